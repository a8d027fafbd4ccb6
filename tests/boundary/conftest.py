"""The mesh of all ranks, which most tests of the boundary run on."""

import pytest
from boundary_helpers import whole_mesh


@pytest.fixture
def mesh():
    return whole_mesh()
