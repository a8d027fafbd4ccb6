"""A test that fails on one rank fails the run, shows that rank's report, and hangs nobody."""

import shutil
from pathlib import Path

import pytest
from mpi_helpers import launch

TESTS = """
import pytest
from mpi4py import MPI
world = MPI.COMM_WORLD

@pytest.mark.mpi
def test_first():
    world.Barrier()

@pytest.mark.mpi
def test_second():
    {second}

@pytest.mark.mpi
def test_third():
    world.Barrier()
"""


@pytest.fixture
def run(tmp_path):
    """Runs tests under this conftest on 3 ranks."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)

    def start(second, before=""):
        (tmp_path / "test_it.py").write_text(before + TESTS.format(second=second))
        arguments = ["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "--with-mpi", str(tmp_path)]
        return launch(3, arguments)

    return start


def test_all_is_well(run):
    job = run("world.Barrier()")
    assert job.status == 0, job
    assert "MPI: " in job.stdout and " of 3" in job.stdout
    assert "3 passed" in job.stdout


@pytest.mark.parametrize("wait", ["world.Barrier()", "pass"])
def test_one_rank_fails(run, wait):
    """Whether the others wait for it or have come to the end of the test."""
    job = run(f"assert world.rank != 1, 'bad news'; {wait}")
    assert job.status not in (0, None), job
    assert "[rank 1] E   AssertionError: bad news" in job.stderr.replace("E       ", "E   ")
    assert "[rank 0] FAILED" not in job.stderr
    assert job.seconds < 60


def test_two_ranks_fail_and_both_are_heard(run):
    job = run("assert world.rank == 1, f'bad news of {world.rank}'; world.Barrier()")
    assert job.status not in (0, None), job
    assert "bad news of 0" in job.stderr and "bad news of 2" in job.stderr


def test_all_ranks_fail_and_the_run_goes_on(run):
    job = run("assert False, 'bad news'")
    assert job.status == 1, job
    assert "1 failed, 2 passed" in job.stdout
    assert all(f"[rank {rank}] FAILED" in job.stderr for rank in range(3))


def test_a_file_that_one_rank_cannot_import(run):
    job = run("pass", before="from mpi4py import MPI\nif MPI.COMM_WORLD.rank == 2: raise ImportError('bad news')\n")
    assert job.status not in (0, None), job
    assert "bad news" in job.stderr
    assert job.seconds < 60
