"""Known pitfalls of computing on pieces, with the arithmetic written out, and what must not communicate."""

import numpy as np
import pytest

import spmdlayer as spmd

pytestmark = pytest.mark.mpi

R, S, P = spmd.Replicate(), spmd.Shard, spmd.Partial


@pytest.fixture
def mesh():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


def partial(mesh, first, other, op="sum"):
    """The tensor whose piece is `first` on rank 0 and `other` elsewhere."""
    return spmd.dtensor_from_local(np.array(first if mesh.rank == 0 else other, float), mesh, [P(op)])


def sharded(mesh, array, dim=0):
    return spmd.shard_tensor(array, mesh, [S(dim)])


def test_partial_and_replicated_bias(mesh):
    n = mesh.size
    z, b = partial(mesh, [1.0], [2.0]), spmd.shard_tensor(np.array([10.0]), mesh, [R])
    z.requires_grad = b.requires_grad = True
    y = z + b
    assert y.placements == [P("sum")]
    assert y.item() == 1 + 2 * (n - 1) + 10  # the bias once, not once a rank
    gz, gb = spmd.grad(y.sum(), [z, b])
    assert gz.item() == 1
    assert gb.item() == 1


def test_norm_of_a_partial(mesh):
    x = partial(mesh, [1.0, 3.0], [2.0, 1.0])
    whole = np.array([1.0, 3.0]) + (mesh.size - 1) * np.array([2.0, 1.0])
    np.testing.assert_allclose(spmd.sqrt((x * x).sum()).item(), np.sqrt((whole**2).sum()))


def test_what_is_not_linear_reduces_a_partial_first(mesh):
    n = mesh.size
    x = partial(mesh, [1.0, 5.0], [3.0, -4.0])
    whole = np.array([1.0, 5.0]) + (n - 1) * np.array([3.0, -4.0])
    assert x.max().item() == whole.max()
    assert x.min().item() == whole.min()
    np.testing.assert_allclose(spmd.exp(x).numpy(), np.exp(whole))
    np.testing.assert_array_equal((x * x).numpy(), whole**2)
    np.testing.assert_array_equal(spmd.abs(x).numpy(), abs(whole))
    np.testing.assert_array_equal((x > 0).numpy(), whole > 0)
    np.testing.assert_allclose((x / x).numpy(), [1, 1])


def test_mean_and_variance_over_uneven_shards(mesh):
    array = np.arange(12.0).reshape(3, 4)
    x = sharded(mesh, array)
    x.requires_grad = True
    mean = x.mean()
    assert mean.item() == 5.5
    np.testing.assert_allclose(spmd.var(x).item(), array.var())
    np.testing.assert_allclose(spmd.grad(mean, x).numpy(), np.full((3, 4), 1 / 12))
    row = sharded(mesh, np.arange(4.0).reshape(1, 4))  # all but one rank are empty
    assert row.mean().item() == 1.5
    assert row.max().item() == 3


def test_ties_across_ranks_share_the_gradient(mesh):
    x = sharded(mesh, np.array([5.0, 5.0, 1.0, 5.0]))
    x.requires_grad = True
    np.testing.assert_allclose(spmd.grad(x.max(), x).numpy(), np.array([1, 1, 0, 1]) / 3)
    y = spmd.reshape(x, (2, 2)).max(axis=0)
    y = spmd.max(spmd.reshape(y, (1, 2)))  # columns tie, each with elements of its own
    np.testing.assert_allclose(spmd.grad(y, x).numpy(), [1 / 2, 1 / 4, 0, 1 / 4])


def test_same_shape_and_split_but_other_cuts(mesh):
    a, b = sharded(mesh, np.ones(10))[:-1], sharded(mesh, np.zeros(10))[1:]
    before = b.local_shape
    np.testing.assert_array_equal((a + b).numpy(), np.ones(9))
    assert b.local_shape == before  # moved into a copy
    if mesh.size == 2:
        assert a.local_shape == [(5,), (4,)][mesh.rank]
        assert b.local_shape == [(4,), (5,)][mesh.rank]


def test_a_mask_that_covers_the_tensor_writes_where_it_is(mesh):
    x = sharded(mesh, np.arange(10.0))
    with spmd.trace() as t:
        x[x > 6] = -1
    assert t.count() == 0
    np.testing.assert_array_equal(x.numpy(), [0, 1, 2, 3, 4, 5, 6, -1, -1, -1])


def test_writes_keep_the_placements_and_the_cuts(mesh):
    x = sharded(mesh, np.arange(12.0).reshape(6, 2))[1:]
    local, placements = x.local_shape, x.placements
    x[2] = np.array([7.0, 8.0])
    x[[0, 4], 1] = -1
    x[1:3, 0] = sharded(mesh, np.array([20.0, 30.0]))
    expected = np.arange(2.0, 12.0).reshape(5, 2)
    expected[2] = [7, 8]
    expected[[0, 4], 1] = -1
    expected[1:3, 0] = [20, 30]
    np.testing.assert_array_equal(x.numpy(), expected)
    assert (x.local_shape, x.placements) == (local, placements)


def silent(function):
    """The result of a function that must not communicate."""
    with spmd.trace() as t:
        result = function()
    assert t.count(records=True) == 0, str(t)
    return result


def test_what_does_not_communicate(mesh):
    x = sharded(mesh, np.arange(24.0).reshape(6, 4))
    y = sharded(mesh, np.arange(24.0).reshape(4, 6), 1)
    w = np.ones((4, 4))
    assert silent(lambda: x @ w).placements == [S(0)]
    assert silent(lambda: y @ x).placements == [P("sum")]
    assert silent(lambda: x.T + y).placements == [S(1)]
    assert silent(lambda: x.sum(axis=0)).placements == [P("sum")]
    assert silent(lambda: x.mean()).placements == [P("sum")]
    assert silent(lambda: x.max(axis=1)).placements == [S(0)]
    assert silent(lambda: x.reshape(-1)).placements == [S(0)]
    assert silent(lambda: x[2:5, 1]).placements == [S(0)]
    assert silent(lambda: spmd.softmax(x, axis=1)).placements == [S(0)]
    assert silent(lambda: spmd.concat([x, np.ones((6, 1))], axis=1)).placements == [S(0)]
    assert silent(lambda: spmd.einsum("ab,ca->bc", x, y)).placements == [P("sum")]
    assert silent(lambda: (x.sum(axis=0) * 2.0 - 1.0) @ w).placements == [P("sum")]
    assert silent(lambda: spmd.ones_like(x)).placements == [S(0)]
    table, ids = spmd.shard_tensor(np.ones((9, 4)), mesh, [R]), sharded(mesh, np.arange(6))
    assert silent(lambda: table[ids]).placements == [S(0)]


def test_a_row_of_a_sharded_tensor_moves_the_row_alone(mesh):
    x = sharded(mesh, np.arange(4000.0).reshape(1000, 4))
    with spmd.trace() as t:
        row = x[700]
    np.testing.assert_array_equal(row.numpy(), np.arange(2800.0, 2804.0))
    assert t.bytes() <= 4 * 8 * mesh.size


def test_softmax_along_a_sharded_dim_moves_maxima_and_sums_alone(mesh):
    array = np.random.default_rng(1).normal(size=(3, 1000))
    x = sharded(mesh, array, 1)
    with spmd.trace() as t:
        y = spmd.softmax(x, axis=1)
    expected = np.exp(array) / np.exp(array).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(y.numpy(), expected)
    assert y.placements == [S(1)]
    assert t.bytes() <= 2 * 2 * 3 * 8 * mesh.size


def test_gradients_of_a_matmul_communicate_once(mesh):
    x = sharded(mesh, np.arange(24.0).reshape(6, 4))
    w = spmd.shard_tensor(np.ones((4, 3)), mesh, [R])
    w.requires_grad = True
    loss = (x @ w).sum()
    with spmd.trace() as t:
        loss.backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.repeat(np.arange(24.0).reshape(6, 4).sum(axis=0)[:, None], 3, 1))
    assert t.count() == (1 if mesh.size > 1 else 0)
