"""What has gone wrong for users of other tools when layouts change, with the values that are right."""

import numpy as np
import pytest
from mpi_helpers import agree, assert_all, parallel_raises

import spmdlayer as spmd
from spmdlayer.comm import exchange

pytestmark = pytest.mark.mpi
R, P, S0, S1 = spmd.Replicate(), spmd.Partial(), spmd.Shard(0), spmd.Shard(1)


@pytest.fixture
def mesh():
    return spmd.init_mesh(spmd.get_world_size())


def leaf(values):
    return spmd.tensor(values, requires_grad=True)


def assert_equal(actual, expected):
    np.testing.assert_array_equal(actual, expected)


# Forward ------------------------------------------------------------------------------------------------------------


def test_the_global_shape_is_the_sum_of_the_pieces(mesh):
    rows = 1 if mesh.rank == mesh.size - 1 else 3
    x = spmd.dtensor_from_local(np.full((rows, 2), mesh.rank), mesh, [S0])
    assert_all(x.shape == (3 * mesh.size - 2, 2), x.shape)
    expected = np.repeat(np.arange(mesh.size), [3] * (mesh.size - 1) + [1])
    assert_equal(x.numpy(), np.stack([expected, expected], axis=1))


def test_pieces_that_array_split_would_not_make(mesh):
    """Of 2, 3, 4, ... columns: gathered in the order of ranks, and cut anew by array_split."""
    n = mesh.size
    starts = np.cumsum([0, *range(2, n + 2)])
    whole = np.arange(2 * starts[-1]).reshape(2, -1)
    x = spmd.dtensor_from_local(whole[:, starts[mesh.rank] : starts[mesh.rank + 1]], mesh, [S1])
    assert_equal(x.numpy(), whole)
    again = spmd.reshard(x, mesh, [S1])
    assert_equal(again.to_local().numpy(), np.array_split(whole, n, axis=1)[mesh.rank])


@pytest.mark.parametrize("size", range(6))
def test_round_trip_keeps_uneven_and_empty_pieces(mesh, size):
    whole = np.arange(10.0 * size).reshape(size, 10)
    x = spmd.shard_tensor(whole, mesh, [S0])
    assert_equal(x.to_local().numpy(), np.array_split(whole, mesh.size)[mesh.rank])
    back = spmd.reshard(spmd.reshard(x, mesh, [R]), mesh, [S0])
    assert_all(back.shape == (size, 10) and back.local_shape == x.local_shape, back)
    assert_equal(back.numpy(), whole)


def test_blocks_dealt_out_in_turn():
    """0 to 4 in blocks of two: 0, 1 and 4 on the first rank, 2 and 3 on the second."""
    mesh = spmd.ProcessMesh([0, 1]) if spmd.get_world_size() > 1 else spmd.ProcessMesh([0])
    if mesh.coordinate is None:
        return
    x = spmd.shard_tensor(np.arange(5), mesh, [spmd.Shard(0, block=2)])
    expected = [[0, 1, 4], [2, 3]] if mesh.size == 2 else [[0, 1, 2, 3, 4]]
    assert_equal(x.to_local().numpy(), expected[mesh.rank])
    assert_equal(x.numpy(), np.arange(5))


def test_every_element_of_a_long_vector_is_reduced_again_and_again(mesh):
    whole = np.random.default_rng(0).random(300_000)
    x = spmd.dtensor_from_local(whole, mesh, [P])
    for _ in range(20):
        total = spmd.reshard(x, mesh, [R]).to_local().numpy()
        x = spmd.dtensor_from_local(total * (0.99 / mesh.size), mesh, [P])
    np.testing.assert_allclose(total, whole * mesh.size * 0.99**19, rtol=1e-12)


@pytest.mark.parametrize("length", range(14))
def test_messages_in_chunks(mesh, monkeypatch, length):
    monkeypatch.setattr(exchange, "CHUNK", 4)
    whole = np.arange(length, dtype=np.int64)
    summed = spmd.reshard(spmd.dtensor_from_local(whole, mesh, [P]), mesh, [R])
    assert_equal(summed.to_local().numpy(), mesh.size * whole)
    table = spmd.shard_tensor(np.stack([whole, whole + 100]), mesh, [S1])
    assert_equal(spmd.reshard(table, mesh, [S0]).numpy(), np.stack([whole, whole + 100]))


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "complex128"])
@pytest.mark.parametrize("source, target", [(S1, R), (S1, S0), (S0, S1), (spmd.Shard(2), S1), (S1, spmd.Shard(1, 3))])
def test_large_uneven_arrays(mesh, dtype, source, target):
    whole = (np.arange(97 * 53 * 31) % 11).reshape(97, 53, 31).astype(dtype)
    x = spmd.shard_tensor(whole, mesh, [source])
    y = spmd.reshard(x, mesh, [target])
    assert_all(y.to_local().numpy().flags.c_contiguous, "not in C order")
    assert_equal(spmd.reshard(y, mesh, [R]).to_local().numpy(), whole)


@pytest.mark.parametrize("make", [lambda a: a[:, 1:3], np.asfortranarray, lambda a: a.T, lambda a: a[::-2]])
def test_views_are_sent_by_value(mesh, make):
    whole = make(np.arange(12.0).reshape(3, 4) + 100 * mesh.rank)
    expected = np.concatenate([make(np.arange(12.0).reshape(3, 4) + 100 * rank) for rank in range(mesh.size)], axis=1)
    x = spmd.dtensor_from_local(whole, mesh, [S1])
    assert_equal(spmd.reshard(x, mesh, [R]).to_local().numpy(), expected)
    assert_equal(spmd.reshard(x, mesh, [S0]).to_local().numpy(), np.array_split(expected, mesh.size)[mesh.rank])


@pytest.mark.parametrize("holder", [0, -1])
@pytest.mark.parametrize("op", ["max", "min", "sum"])
def test_nan_is_kept_whichever_rank_has_it(mesh, op, holder):
    local = np.array([np.nan if mesh.rank == holder % mesh.size else 1.0, 1.0])
    whole = spmd.reshard(spmd.dtensor_from_local(local, mesh, [spmd.Partial(op)]), mesh, [R])
    assert_equal(whole.to_local().numpy(), [np.nan, mesh.size if op == "sum" else 1.0])


def test_half_precision_adds_up_in_single(mesh):
    big = spmd.dtensor_from_local(np.full(3, 60000, np.float16), mesh, [P])
    assert_equal(spmd.reshard(big, mesh, [R]).to_local().numpy(), [np.inf if mesh.size > 1 else 60000] * 3)
    first = np.array([2048.0 if mesh.rank == 0 else 1.0], np.float16)
    total = spmd.reshard(spmd.dtensor_from_local(first, mesh, [P]), mesh, [R])
    assert_equal(total.to_local().numpy(), np.float16(2048.0 + (mesh.size - 1)))


@pytest.mark.parametrize("dtype, op", [("bool", "sum"), ("complex128", "max"), ("int64", "avg"), ("float64", "any")])
def test_values_that_cannot_be_reduced_so(mesh, dtype, op):
    x = spmd.shard_tensor(np.ones(4, dtype), mesh, [S0])
    with parallel_raises(TypeError, op):
        spmd.reshard(x, mesh, [spmd.Partial(op)])


@pytest.mark.parametrize(
    "placements, kind, text",
    [
        ([S0, S0], ValueError, "1 axis"),
        ([], ValueError, "1 axis"),
        ([spmd.Shard(2)], ValueError, "2 dimensions"),
        (S0, TypeError, "list"),
        ([[0]], TypeError, "not a placement"),
        (["S0"], TypeError, "not a placement"),
    ],
)
def test_placements_that_do_not_fit(mesh, placements, kind, text):
    x = spmd.shard_tensor(np.ones((4, 2)), mesh, [R])
    with parallel_raises(kind, text):
        spmd.reshard(x, mesh, placements)


# What is sent -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, target, names",
    [
        (P, R, ["allreduce"]),
        (S0, R, ["allgather"]),
        (S0, S1, ["alltoall"]),
        (P, S0, ["reduce_scatter"]),
        (R, S0, []),
        (R, R, []),
        (S1, P, []),
        (R, P, []),
    ],
)
def test_one_collective_at_most(mesh, source, target, names):
    x = spmd.shard_tensor(np.ones((4, 8)), mesh, [source])
    with spmd.trace() as watched:
        spmd.reshard(x, mesh, [target])
    expected = names if mesh.size > 1 else []
    assert_all([event.name for event in watched.select(records=True)] == expected, watched)


def test_all_ranks_communicate_in_one_order_backward(mesh):
    locals_ = {name: leaf(np.arange(4.0) + mesh.rank) for name in "abc"}
    tensors = {name: spmd.dtensor_from_local(value, mesh, [S0]) for name, value in locals_.items()}
    wholes = [spmd.reshard(x, mesh, [R]) for x in tensors.values()]
    with spmd.trace() as watched:
        spmd.reshard(sum(wholes, wholes[0] * wholes[1]), mesh, [S0]).sum().backward()
    orders = agree([(event.name, event.bytes) for event in watched.events if event.phase == "backward"])
    assert_all(all(order == orders[0] for order in orders), orders)


# Gradients ----------------------------------------------------------------------------------------------------------


def test_nothing_to_do_forward_but_another_cotangent_backward(mesh):
    """The cotangent comes as Replicate; the gradient of a Shard(0) tensor is Shard(0)."""
    whole = np.arange(2.0 * mesh.size)
    x = spmd.shard_tensor(whole, mesh, [S0], requires_grad=True)
    y = spmd.reshard(x, mesh, [S0])
    y.backward(spmd.shard_tensor(3 * whole, mesh, [R]))
    assert_all(x.grad.placements == [S0], x.grad)
    assert_equal(x.grad.numpy(), 3 * whole)


def test_the_gradient_of_a_partial_tensor_is_labelled_as_what_it_is(mesh):
    local = leaf(np.array([1.0, 2.0]))
    x = spmd.dtensor_from_local(local, mesh, [P])
    y = spmd.reshard(x, mesh, [P])
    g = spmd.grad(spmd.reshard(y, mesh, [R]).sum(), x)
    assert_all(g.placements == [R], g)
    assert_equal(g.numpy(), [1.0, 1.0])  # and not times the number of ranks


def test_leaving_and_entering_again_changes_no_gradient(mesh):
    whole = np.arange(1.0, 1 + mesh.size)
    x = spmd.shard_tensor(whole, mesh, [S0], requires_grad=True)
    total = x.sum()
    again = spmd.dtensor_from_local(total.to_local(), mesh, total.placements)
    loss = spmd.reshard(again, mesh, [R])
    assert_equal(loss.numpy(), whole.sum())
    loss.backward()
    assert_equal(x.grad.numpy(), np.ones(mesh.size))


def test_reducing_and_scattering_divides_nothing(mesh):
    local = leaf(np.full(mesh.size, 1.0 + 2 * mesh.rank))
    y = spmd.reshard(spmd.dtensor_from_local(local, mesh, [P]), mesh, [S0])
    assert_equal(y.to_local().numpy(), [mesh.size**2])
    g = spmd.grad(y, local, grad_outputs=np.ones(mesh.size))
    assert_equal(g.numpy(), np.ones(mesh.size))


def test_reducing_passes_the_cotangent_on(mesh):
    local = leaf(np.array([1.0 + mesh.rank]))
    y = spmd.reshard(spmd.dtensor_from_local(local, mesh, [P]), mesh, [R])
    with spmd.trace() as watched:
        g = spmd.grad(y, local, grad_outputs=np.array([5.0]))
    assert_equal(g.numpy(), [5.0])
    assert_all(watched.count(records=True) == 0, watched)
