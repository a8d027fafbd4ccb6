"""Which ranks a channel joins, and how many communicators that takes."""

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises

from spmdlayer.comm import channel
from spmdlayer.mesh import ProcessMesh, init_mesh
from spmdlayer.runtime import get_rank, get_world_size

pytestmark = pytest.mark.mpi


def ranks_of(line):
    """The world ranks that a channel joins, in its order."""
    return [int(part[0]) for part in line.allgather(np.array([get_rank()]), [(1,)] * line.size)]


@pytest.mark.mpi(min_size=4)
def test_one_axis_and_several():
    mesh = ProcessMesh([[3, 1], [0, 2]], ("a", "b"))
    along = {0: {3: [3, 0], 0: [3, 0], 1: [1, 2], 2: [1, 2]}, 1: {3: [3, 1], 1: [3, 1], 0: [0, 2], 2: [0, 2]}}
    if get_rank() < 4:
        for axis in (0, 1):
            line = channel(mesh, axis)
            assert ranks_of(line) == along[axis][get_rank()]
            assert line.label == "ab"[axis]
            assert line.rank == mesh.coordinate[axis]
            assert channel(mesh, "ab"[axis]).mpi is line.mpi
        for axes in (None, (0, 1), ("a", "b")):
            assert ranks_of(channel(mesh, axes)) == [3, 1, 0, 2]
        assert channel(mesh, None).label == "mesh"
        assert channel(mesh, (0, 1)).label == ("a", "b")


def test_labels_without_names():
    mesh = init_mesh((1, get_world_size()))
    assert (channel(mesh, 0).label, channel(mesh, -1).label) == (0, 1)


def test_the_same_object_again():
    mesh = init_mesh((get_world_size(),), ("x",))
    assert channel(mesh, 0) is channel(init_mesh((get_world_size(),), ("x",)), 0)
    assert channel(mesh, (0,)).mpi == channel(mesh, 0).mpi


@pytest.mark.mpi(min_size=2)
def test_a_rank_outside_the_mesh():
    mesh = ProcessMesh([1])
    if get_rank() != 1:
        with pytest.raises(ValueError, match=r"not among \[1\]"):
            channel(mesh, None)
    else:
        assert channel(mesh, None).size == 1


def test_unknown_axis():
    mesh = init_mesh((get_world_size(),), ("x",))
    with parallel_raises(ValueError, "'y'"):
        channel(mesh, "y")
    with parallel_raises(ValueError, "1 was given"):
        channel(mesh, 1)


def test_thousands_of_meshes_need_few_communicators():
    """MPICH has 2046 of them in all."""
    size = get_world_size()
    for k in range(3000):
        mesh = init_mesh((size,), (f"x{k}",))
        assert channel(mesh, 0).size == size
    total = channel(mesh, 0).allreduce(np.ones(1), "sum")
    assert_all(total[0] == size)


def test_a_users_communicator_keeps_its_messages():
    """What the library sends does not meet what the user sends on the communicator given."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()
    mesh = init_mesh((comm.size,), comm=comm)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    request = comm.isend(comm.rank, right)
    channel(mesh, None).alltoall([np.ones(3)] * comm.size, [(3,)] * comm.size)
    assert_all(comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG) == left)
    request.wait()
    comm.Free()


def test_communicators_go_with_their_parent():
    from mpi4py import MPI

    for _ in range(40):
        comm = MPI.COMM_WORLD.Dup()
        mesh = init_mesh((comm.size, 1), comm=comm)
        lines = [channel(mesh, axes) for axes in (None, 0)]
        assert_all(lines[0].allreduce(np.ones(1, int), "sum")[0] == comm.size)
        comm.Free()
