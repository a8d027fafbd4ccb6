"""A sample of random programs, short and long ones; `make soak` runs thousands."""

import pytest
from random_programs import Program, check_program, mesh_for

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("block", range(12))
def test_random_programs(block):
    for seed in range(1000 * block, 1000 * block + 5):
        check_program(Program(seed, mesh_for(seed), length=3 + seed % 7), second=True)


@pytest.mark.parametrize("block", range(5))
def test_random_programs_of_thirty_steps(block):
    for seed in range(1000 * block + 500, 1000 * block + 504):
        check_program(Program(seed, mesh_for(seed), length=30), second=seed % 4 == 0)
