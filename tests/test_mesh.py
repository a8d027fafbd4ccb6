"""Meshes: which ranks stand where, and what is refused."""

import copy
import pickle

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises

from spmdlayer.mesh import ProcessMesh, init_mesh
from spmdlayer.runtime import get_rank, get_world_size

pytestmark = pytest.mark.mpi


@pytest.mark.mpi(min_size=4)
def test_a_mesh_in_any_order():
    mesh = ProcessMesh([[3, 1], [0, 2]], dim_names=["data", "model"])
    assert (mesh.shape, mesh.ndim, mesh.size) == ((2, 2), 2, 4)
    assert mesh.dim_names == ("data", "model")
    assert list(mesh.process_ids) == [3, 1, 0, 2]
    assert np.array_equal(mesh.mesh, [[3, 1], [0, 2]])
    where = {3: (0, 0), 1: (0, 1), 0: (1, 0), 2: (1, 1)}
    assert mesh.coordinate == where.get(get_rank())
    assert mesh.rank == {3: 0, 1: 1, 0: 2, 2: 3}.get(get_rank())
    assert mesh.get_dim_size("model") == 2
    assert mesh.axis("model") == mesh.axis(1) == mesh.axis(-1) == mesh.axis(np.int64(1)) == 1


@pytest.mark.mpi(min_size=2)
def test_a_mesh_of_some_ranks():
    last = get_world_size() - 1
    mesh = ProcessMesh([last])
    assert last in mesh and 0 not in mesh
    if get_rank() == last:
        assert (mesh.coordinate, mesh.rank) == ((0,), 0)
        assert mesh.get_group(0).size == 1
    else:
        assert mesh.coordinate is None and mesh.rank is None
        assert mesh.get_group(0) is None


def test_one_rank_in_many_axes():
    mesh = ProcessMesh(np.zeros((1, 1, 1), np.int32))
    assert mesh.shape == (1, 1, 1)
    assert mesh.coordinate == ((0, 0, 0) if get_rank() == 0 else None)


@pytest.mark.mpi(min_size=4)
def test_groups_along_axes():
    mesh = ProcessMesh([[3, 1], [0, 2]], ("a", "b"))
    if get_rank() > 3:
        return
    along = {"a": {3: [3, 0], 0: [3, 0], 1: [1, 2], 2: [1, 2]}, "b": {3: [3, 1], 1: [3, 1], 0: [0, 2], 2: [0, 2]}}
    for number, name in enumerate("ab"):
        group = mesh.get_group(name)
        assert group.allgather(get_rank()) == along[name][get_rank()]
        assert group is mesh.get_group(number)
    assert mesh.get_group().allgather(get_rank()) == [3, 1, 0, 2]


def test_a_users_own_communicator():
    """Ranks are the communicator's, here in reverse order of the world's."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Split(0, -get_rank())
    mesh = init_mesh((comm.size,), comm=comm)
    assert mesh.comm is comm
    assert mesh.coordinate == (comm.rank,) == (get_world_size() - 1 - get_rank(),)
    assert_all(mesh.get_group(0).allgather(get_rank()) == list(reversed(range(comm.size))))
    assert mesh != init_mesh((comm.size,))
    comm.Free()


def test_init_mesh_takes_the_first_ranks_in_order():
    size = get_world_size()
    assert list(init_mesh((1, size)).process_ids) == list(range(size))
    assert init_mesh(size) == init_mesh((size,)) == init_mesh([np.int64(size)])
    assert init_mesh((1,)).process_ids == (0,)


def test_equality_and_hash():
    size = get_world_size()
    mesh = init_mesh((size,), ("x",))
    same = ProcessMesh(list(range(size)), ["x"])
    assert mesh == same and hash(mesh) == hash(same)
    for other in (init_mesh((size,)), init_mesh((size,), ("y",)), init_mesh((1, size), ("a", "x")), "x"):
        assert mesh != other
    if size > 1:
        assert mesh != ProcessMesh(list(reversed(range(size))), ("x",))


def test_repr_says_how_to_make_it():
    mesh = init_mesh((1, 1), ("a", "b"))
    assert repr(mesh) == "ProcessMesh([[0]], dim_names=['a', 'b'])"
    assert repr(init_mesh(1)) == "ProcessMesh([0])"
    assert eval(repr(mesh)) == mesh


def test_ranks_cannot_be_changed():
    mesh = init_mesh((1, 1))
    with pytest.raises(ValueError, match="read-only"):
        mesh.mesh[0, 0] = 1
    given = np.array([0])
    mesh = ProcessMesh(given)
    given[0] = 7
    assert mesh.process_ids == (0,)


def test_copies_are_the_mesh_itself():
    mesh = init_mesh((get_world_size(),), ("x",))
    assert copy.copy(mesh) == copy.deepcopy(mesh) == mesh
    assert pickle.loads(pickle.dumps(mesh)) == mesh


BEYOND = get_world_size  # the first rank that does not exist
MESHES = [
    (lambda: [0, 0], ValueError, r"mesh: ranks \[0\].*more than once"),
    (lambda: [0, BEYOND()], ValueError, r"mesh: ranks \[\d+\] are not in the communicator"),
    (lambda: [-1], ValueError, r"mesh: ranks \[-1\]"),
    (lambda: [[0], [0, 0]], ValueError, "mesh: .*length"),
    (lambda: [], ValueError, "mesh: .*at least one"),
    (lambda: 0, TypeError, "mesh: "),
    (lambda: [0.5], TypeError, "mesh: .*float64"),
    (lambda: [True], TypeError, "mesh: .*bool"),
    (lambda: ["a"], TypeError, "mesh: "),
    (lambda: None, TypeError, "mesh: "),
]


@pytest.mark.parametrize(("mesh", "kind", "words"), MESHES)
def test_what_is_no_mesh(mesh, kind, words):
    with parallel_raises(kind, rf"^\[rank {get_rank()}\] {words}"):
        ProcessMesh(mesh())


NAMES = [
    (["a", "b"], ValueError, "dim_names: .*'a', 'b'.* 1 mesh ax"),
    ([1], TypeError, "dim_names: .*str"),
    ("x", TypeError, r"dim_names: .*\('x',\)"),
    (3, TypeError, "dim_names: .*3"),
]


@pytest.mark.parametrize(("names", "kind", "words"), NAMES)
def test_what_are_no_names(names, kind, words):
    with parallel_raises(kind, rf"^\[rank {get_rank()}\] {words}"):
        ProcessMesh([0], names)


def test_a_name_twice():
    with parallel_raises(ValueError, "dim_names: .*'x', 'x'"):
        ProcessMesh([[0]], ["x", "x"])


AXES = [
    ("z", ValueError, "'x', 'y'.*'z'"),
    (2, ValueError, "2"),
    (-3, ValueError, "-3"),
    (0.0, TypeError, "0.0"),
    (None, TypeError, "None"),
]


@pytest.mark.parametrize(("axis", "kind", "words"), AXES)
def test_unknown_axes(axis, kind, words):
    with parallel_raises(kind, f"axis: .*{words}"):
        ProcessMesh([[0]], ["x", "y"]).axis(axis)


def test_a_name_for_a_mesh_without_names():
    with parallel_raises(ValueError, "no names.*'x'"):
        init_mesh(1).get_dim_size("x")


def test_what_is_no_communicator():
    from mpi4py import MPI

    with parallel_raises(TypeError, "comm: .*int"):
        init_mesh(1, comm=3)
    with parallel_raises(ValueError, "comm: .*COMM_NULL"):
        init_mesh(1, comm=MPI.COMM_NULL)


@pytest.mark.parametrize(
    ("shape", "kind", "words"),
    [
        ((0,), ValueError, "positive"),
        ((), ValueError, "at least one axis"),
        ((-1,), ValueError, "-1"),
        ("ab", TypeError, "'ab'"),
        ((1.0,), TypeError, "1.0"),
        (None, TypeError, "None"),
        (10**6, ValueError, "needs 1000000 ranks"),
    ],
)
def test_what_is_no_shape(shape, kind, words):
    with parallel_raises(kind, f"shape: .*{words}"):
        init_mesh(shape)
