"""from_local, to_local and the other crossings as functions: all kinds of arrays, values against NumPy."""

import numpy as np
import pytest
from boundary_helpers import P, R, S, check, layer, own_part, replicated, sharded
from mpi_helpers import agree

import spmdlayer as spmd

pytestmark = pytest.mark.mpi

DTYPES = ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def pieces(n, shapes, dtype):
    """Every rank's piece, of a shape of its own, with small values."""
    numbers = iter(range(1, 1 + sum(int(np.prod(shape)) for shape in shapes)))
    made = [np.array([next(numbers) % 7 for _ in range(int(np.prod(s)))], float).reshape(s) for s in shapes]
    return [piece.astype(spmd.dtype(dtype)) for piece in made]


@pytest.mark.parametrize("dtype", DTYPES)
def test_shards_of_any_size_and_dtype(mesh, dtype):
    n, r = mesh.size, mesh.rank
    for dim in (0, 1, -1):
        shapes = [(k, 3) if dim == 0 else (3, k) for k in range(n)]  # rank 0 has nothing
        local = pieces(n, shapes, dtype)
        x = spmd.dtensor_from_local(local[r], mesh, [S(dim)])
        whole = np.concatenate(local, axis=dim)
        assert x.shape == whole.shape and x.local_shape == shapes[r] and x.dtype == local[r].dtype
        assert x.placements == [S(dim % 2)] and x.is_dist() and x.process_mesh is mesh
        got = x.numpy()
        assert got.dtype == whole.dtype
        np.testing.assert_array_equal(got, whole)
        np.testing.assert_array_equal(x.to_local().numpy(), local[r])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0, 3)])
def test_copies_and_parts_of_any_shape_and_dtype(mesh, dtype, shape):
    n, r = mesh.size, mesh.rank
    same = pieces(1, [shape], dtype)[0]
    x = spmd.dtensor_from_local(same, mesh, [R])
    assert x.shape == shape
    np.testing.assert_array_equal(x.numpy(), same)
    local = pieces(n, [shape] * n, dtype)
    op = "any" if dtype == "bool" else "sum"
    x = spmd.dtensor_from_local(local[r], mesh, [spmd.Partial(op)])
    expected = np.any(local, axis=0) if op == "any" else sum(piece.astype(complex) for piece in local)
    np.testing.assert_array_equal(x.numpy().astype(complex), expected)
    assert x.numpy().dtype == local[r].dtype


def test_strided_and_fortran_ordered_arrays(mesh):
    n, r = mesh.size, mesh.rank
    base = np.arange(24.0).reshape(4, 6) + 100 * r
    all_bases = [np.arange(24.0).reshape(4, 6) + 100 * k for k in range(n)]
    for view in (
        lambda a: np.asfortranarray(a),
        lambda a: a.T,
        lambda a: a[::2, 1::2],
        lambda a: a[::-1],
        lambda a: np.broadcast_to(a[:1], (4, 6)),
        lambda a: a.astype(">f8"),
    ):
        x = spmd.dtensor_from_local(view(base), mesh, [S(1)])
        np.testing.assert_array_equal(x.numpy(), np.concatenate([view(a) for a in all_bases], axis=1))
        x = spmd.dtensor_from_local(view(base), mesh, [P])
        np.testing.assert_array_equal(x.numpy(), sum(view(a) for a in all_bases))
    readonly = base.copy()
    readonly.flags.writeable = False
    assert spmd.dtensor_from_local(readonly, mesh, [S()]).shape == (4 * n, 6)


def test_local_values_may_be_numbers_and_lists(mesh):
    n, r = mesh.size, mesh.rank
    assert spmd.dtensor_from_local(1.0 + r, mesh, [P]).item() == sum(1.0 + k for k in range(n))
    np.testing.assert_array_equal(spmd.dtensor_from_local([r, r], mesh, [S()]).numpy(), np.repeat(np.arange(n), 2))


def test_the_global_shape_may_be_given(mesh):
    n, r = mesh.size, mesh.rank
    whole = np.arange(5.0)
    local = np.array_split(whole, n)[r]
    with spmd.trace() as t:
        x = spmd.dtensor_from_local(local, mesh, [S()], shape=(5,))
    assert t.count("record") == 0
    np.testing.assert_array_equal(x.numpy(), whole)
    y = spmd.dtensor_from_local(spmd.tensor(local, requires_grad=True), mesh, [S()], shape=[5])
    assert y.requires_grad and y.shape == (5,)


def test_the_buffer_is_shared_and_never_written_through(mesh):
    local = np.arange(3.0)
    x = spmd.dtensor_from_local(local, mesh, [S()])
    piece = x.to_local()
    assert np.shares_memory(piece.numpy(), local)
    piece[0] = 100.0
    x[0] = 50.0
    np.testing.assert_array_equal(local, [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(piece.numpy(), [100.0, 1.0, 2.0])


def test_two_axes_that_shard_one_dimension():
    n = spmd.get_world_size()
    shape = (2, n // 2) if n % 2 == 0 else (n, 1)
    mesh = spmd.init_mesh(shape)
    sizes = np.arange(1, n + 1)
    values = np.arange(float(sizes.sum()))
    local = np.split(values, np.cumsum(sizes)[:-1])[mesh.rank]
    x = spmd.dtensor_from_local(local, mesh, [S(), S()])
    np.testing.assert_array_equal(x.numpy(), values)


def test_placements_of_two_axes():
    n = spmd.get_world_size()
    shape = (2, n // 2) if n % 2 == 0 else (n, 1)
    mesh = spmd.init_mesh(shape, ("a", "b"))
    i, j = mesh.coordinate
    x = spmd.dtensor_from_local(np.full((1, 2), 10.0 * i + j), mesh, [S(), P])
    expected = [[sum(10.0 * row + k for k in range(shape[1]))] * 2 for row in range(shape[0])]
    np.testing.assert_array_equal(x.numpy(), expected)
    x = spmd.dtensor_from_local(np.full((1, 2), 1.0 * i), mesh, [S(), R])
    np.testing.assert_array_equal(x.numpy(), np.repeat(np.arange(shape[0] * 1.0), 2).reshape(-1, 2))


def test_a_mesh_in_another_order():
    n = spmd.get_world_size()
    mesh = spmd.ProcessMesh(list(reversed(range(n))))
    x = spmd.dtensor_from_local(np.array([1.0 * spmd.get_rank()]), mesh, [S()])
    np.testing.assert_array_equal(x.numpy(), np.arange(n * 1.0)[::-1])


def test_a_users_own_communicator():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    comm = world.Split(world.rank % 2, -world.rank)
    mesh = spmd.ProcessMesh(np.arange(comm.size), comm=comm)
    x = spmd.dtensor_from_local(np.array([1.0 * world.rank]), mesh, [S()])
    np.testing.assert_array_equal(x.numpy(), np.arange(world.rank % 2, world.size, 2.0)[::-1])
    x = spmd.dtensor_from_local(spmd.tensor([1.0], requires_grad=True), mesh, [P])
    layer(lambda x: x * 2.0, [[P]])(x).sum().backward()


# to_local ---------------------------------------------------------------------


def test_to_local_yields_the_piece(mesh):
    r = mesh.rank
    x, whole = sharded(mesh)
    check(spmd.dtensor_to_local(x), own_part(whole, mesh))
    check(spmd.dtensor_to_local(x, mesh, [S()]), own_part(whole, mesh))
    parts = spmd.dtensor_from_local(np.array([1.0 + r]), mesh, [P])
    check(parts.to_local(), [1.0 + r])  # unreduced
    assert not x.to_local().is_dist() and x.to_local().requires_grad


def test_local_gradients_are_read_as_declared(mesh):
    n, r = mesh.size, mesh.rank
    w = replicated([1.0, 2.0], mesh)
    (w.to_local([P]) * (1.0 + r)).sum().backward()
    check(w.grad, [sum(1.0 + k for k in range(n))] * 2)
    w.clear_grad()
    (w.to_local([R]) * 3.0).sum().backward()
    check(w.grad, [3.0, 3.0])
    w.clear_grad()
    (w.to_local() * 3.0).sum().backward()  # None: its own, Replicate
    check(w.grad, [3.0, 3.0])
    w.clear_grad()
    (spmd.dtensor_to_local(w, grad_placements=[None]) * 3.0).sum().backward()
    check(w.grad, [3.0, 3.0])
    x, whole = sharded(mesh)
    (x.to_local() * (1.0 + r)).sum().backward()
    check(x.grad, np.repeat(1.0 + np.arange(n), 2))


def test_pieces_of_partial_tensors_get_their_own_gradients(mesh):
    r = mesh.rank
    for op in ("sum", "avg", "max", "min", "prod"):
        for grads in (None, [spmd.Partial(op)]):
            local = spmd.tensor([1.0 + r], requires_grad=True)
            x = spmd.dtensor_from_local(local, mesh, [spmd.Partial(op)])
            (x.to_local(grads) * (10.0 + r)).sum().backward()
            check(local.grad, [10.0 + r])


def test_there_and_back_is_the_identity(mesh):
    r = mesh.rank
    x, whole = sharded(mesh)
    again = spmd.dtensor_from_local(x.to_local(), mesh, [S()])
    (again * whole).sum().backward()
    check(x.grad, whole)
    local = spmd.tensor([1.0 + r, 2.0], requires_grad=True)
    part = spmd.dtensor_from_local(local, mesh, [P])
    again = spmd.dtensor_from_local(part.to_local(), mesh, [P])
    (again.reshard([R]) * np.array([3.0, 4.0])).sum().backward()
    check(local.grad, [3.0, 4.0])


def test_crossings_to_second_order(mesh):
    n, r = mesh.size, mesh.rank
    w = replicated([2.0], mesh)
    piece = w.to_local([P])
    total = spmd.dtensor_from_local(piece * piece * piece * (1.0 + r), mesh, [P])
    first = spmd.grad(total.sum(), w, create_graph=True)
    factor = sum(1.0 + k for k in range(n))
    check(first, [12.0 * factor])
    check(spmd.grad(first.sum(), w), [12.0 * factor])


# The others ---------------------------------------------------------------------


@pytest.mark.parametrize("data", [np.arange(10.0).reshape(5, 2), [[1, 2], [3, 4], [5, 6]], np.float32(3), 2.5])
def test_shard_tensor(mesh, data):
    whole = np.asarray(data)
    targets = [R] + ([S(), S(-1)] if whole.ndim else [])
    for placement in targets:
        x = spmd.shard_tensor(data, mesh, [placement])
        assert x.shape == whole.shape and x.dtype == whole.dtype and not x.requires_grad
        np.testing.assert_array_equal(x.numpy(), whole)
    for op in ("sum", "max", "min", "prod") + (("avg",) if whole.dtype.kind == "f" else ()):
        x = spmd.shard_tensor(data, mesh, [spmd.Partial(op)])
        np.testing.assert_array_equal(x.numpy(), whole)
    if whole.ndim:
        expected = np.array_split(whole, mesh.size)[mesh.rank]
        np.testing.assert_array_equal(spmd.shard_tensor(data, mesh, [S()]).to_local().numpy(), expected)


def test_shard_tensor_copies_and_makes_leaves(mesh):
    data = np.arange(4.0)
    x = spmd.shard_tensor(data, mesh, [S()], requires_grad=True)
    data[:] = 0
    np.testing.assert_array_equal(x.numpy(), np.arange(4.0))
    assert x.requires_grad and x.is_leaf and not x.stop_gradient
    assert spmd.shard_tensor([1, 2], mesh, [R], dtype="float32").dtype == np.float32
    assert spmd.shard_tensor(spmd.tensor([1, 2]), mesh, [R], dtype="float32").dtype == np.float32


def test_shard_tensor_of_tensors(mesh):
    n = mesh.size
    local = spmd.tensor(np.arange(4.0), requires_grad=True)
    (spmd.shard_tensor(local, mesh, [S()]) * np.arange(1.0, 5.0)).sum().backward()
    check(local.grad, np.arange(1.0, 5.0))  # the whole, on every rank
    half = spmd.shard_tensor(local, mesh, [S()], dtype="float32")
    assert half.dtype == np.float32 and half.requires_grad
    x, whole = sharded(mesh)
    y = spmd.shard_tensor(x, mesh, [R])
    check(y, whole)
    assert y.placements == [R] and y.requires_grad
    plain = spmd.shard_tensor(np.arange(2.0 * n), mesh, [S()])
    leaf = spmd.shard_tensor(plain, mesh, [S()], requires_grad=True)
    assert leaf.requires_grad and not plain.requires_grad
    with pytest.raises(ValueError, match="on the tape already"):
        spmd.shard_tensor(x * 2.0, mesh, [S()], requires_grad=True)


def test_unshard(mesh):
    x, whole = sharded(mesh)
    y = spmd.unshard_dtensor(x)
    assert not y.is_dist()
    check(y, whole)
    (y * whole).sum().backward()  # the same on every rank: one gradient
    check(x.grad, whole)


def test_from_fn(mesh):
    x = spmd.dtensor_from_fn(np.full, mesh, [S()], (5, 2), fill_value=3.0)
    np.testing.assert_array_equal(x.numpy(), np.full((5, 2), 3.0))
    x = spmd.dtensor_from_fn(spmd.ones, mesh, [R], (2,), dtype="int32")
    assert x.dtype == np.int32 and x.numpy().tolist() == [1, 1]


def test_reshard_forms(mesh):
    x, whole = sharded(mesh)
    for y in (spmd.reshard(x, mesh, [R]), x.reshard(mesh, [R]), x.reshard([R])):
        assert y.placements == [R]
        check(y, whole)


def test_all_gather(mesh):
    n, r = mesh.size, mesh.rank
    found = ["before"]
    result = spmd.all_gather(found, spmd.tensor([1.0 + r, 2.0]))
    assert result is found and found[0] == "before" and len(found) == n + 1
    for k, got in enumerate(found[1:]):
        assert not got.is_dist()
        check(got, [1.0 + k, 2.0])
    sizes = spmd.all_gather(None, np.arange(r))
    assert [got.shape for got in sizes] == [(k,) for k in range(n)]
    assert [got.item() for got in spmd.all_gather([], 3 * r)] == [3 * k for k in range(n)]
    half = spmd.all_gather([], spmd.tensor([r]).astype("bfloat16"))
    assert [float(got.item()) for got in half] == list(range(n))
    mine = np.array([1.0])
    first = spmd.all_gather([], mine)[r]
    mine[0] = 5.0
    check(first, [1.0])
    with pytest.raises(TypeError, match="distributed"):
        spmd.all_gather([], sharded(mesh)[0])


def test_all_gather_over_a_communicator():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    comm = world.Split(world.rank % 2, world.rank)
    found = spmd.all_gather([], world.rank, comm=comm)
    assert [got.item() for got in found] == list(range(world.rank % 2, world.size, 2))


def test_print_once_shows_the_global_value_on_the_first_rank(mesh, capfd):
    x, whole = sharded(mesh)
    spmd.print_once("value:", x, mesh.size, sep="|")
    text = capfd.readouterr().out
    assert text == (f"value:|{whole}|{mesh.size}\n" if spmd.get_rank() == 0 else "")


def test_strings_give_the_global_value_and_repr_the_layout(mesh, capfd):
    n, r = mesh.size, mesh.rank
    x, whole = sharded(mesh)
    assert str(x) == f"{x}" == str(whole)
    total = spmd.dtensor_from_local(np.array(1.5 + r), mesh, [P])
    expected = sum(1.5 + k for k in range(n))
    assert f"{total:.3f}" == f"{expected:.3f}" and str(total) == str(expected)
    print(x)
    assert capfd.readouterr().out == f"{whole}\n"
    with spmd.trace() as t:
        text = repr(x)
    assert t.count(records=True) == 0
    for part in (f"shape=({2 * n},)", "local_shape=(2,)", "float64", "Shard(0)", "requires_grad=True", repr(mesh)):
        assert part in text
    if r == 0:
        repr(x)  # on one rank alone


def test_scalars_are_global(mesh):
    """The norm of ones(8, 8), sharded, is 8 on every rank."""
    n, r = mesh.size, mesh.rank
    x = spmd.shard_tensor(np.ones((8, 8)), mesh, [S()])
    norm = spmd.sqrt((x * x).sum())
    assert norm.item() == float(norm) == 8.0
    part = spmd.dtensor_from_local(np.array(2 * r), mesh, [P])
    assert int(part) == n * (n - 1)
    assert bool(spmd.dtensor_from_local(np.array(r == 0), mesh, [spmd.Partial("any")])) is True
    assert complex(spmd.dtensor_from_local(np.array(1j), mesh, [P])) == n * 1j
    assert spmd.shard_tensor([1, 2], mesh, [S()]).tolist() == [1, 2]
    assert all(other == 8.0 for other in agree(norm.item()))
