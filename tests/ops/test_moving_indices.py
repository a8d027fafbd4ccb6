"""Index arrays and masks across shards: values and gradients, where the results are, and how little travels."""

import numpy as np
import pytest
from mpi_helpers import agree, parallel_raises
from placed import distribute, draw, meshes, placements_for
from traffic import ITEM, sharded, traced

import spmdlayer as spmd

pytestmark = pytest.mark.mpi

R, S, P = spmd.Replicate(), spmd.Shard, spmd.Partial


@pytest.fixture
def mesh():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


# Values and gradients ------------------------------------------------------


def indices(random, shape):
    """An index with arrays for a shape of three dims, and which of its items to distribute."""
    n, m, k = shape
    rows = random.integers(-n, n, draw(random, [(4,), (2, 3), (0,)]))
    columns = random.integers(-m, m, rows.shape[-1:])
    whole, part = slice(None), draw(random, [slice(None, None, -1), slice(1, None), slice(None, None, 2)])
    return draw(
        random,
        [
            ((rows,), (0,)),
            ((whole, columns), (1,)),
            ((rows, columns), (0, 1)),
            ((rows, whole, 1), (0,)),
            ((part, columns), (1,)),
            ((2, whole, columns % k), ()),
            ((rows, None, part), (0,)),
            ((random.random(n) < 0.6,), (0,)),
            ((whole, random.random(m) < 0.6), (1,)),
            ((random.random((n, m)) < 0.5,), (0,)),
            ((random.random((n, m)) < 0.5, 1), (0,)),
            ((random.random(shape) < 0.5,), (0,)),
            ((1, random.random(m) < 0.6), (1,)),
            ((None, random.random(n) < 0.6, 0, part), (1,)),
            ((random.random(n) < 0.6, whole, 1), (0,)),
        ],
    )


@pytest.mark.parametrize("seed", range(30))
def test_reading(seed):
    random = np.random.default_rng(seed)
    array = random.normal(size=draw(random, [(5, 4, 3), (9, 2, 4), (3, 8, 3)]))
    index, arrays = indices(random, array.shape)
    check(random, array, index, arrays, lambda x, at: x[at])


@pytest.mark.parametrize("seed", range(30))
def test_writing(seed):
    random = np.random.default_rng([seed, 1])
    array = random.normal(size=draw(random, [(5, 4, 3), (9, 2, 4), (3, 8, 3)]))
    index, arrays = indices(random, array.shape)
    value = random.normal(size=array[index].shape) if random.random() < 0.7 else np.array(3.0)
    kind = draw(random, ["plain", "replicated", "sharded"])

    def write(x, at):
        y = x.copy() if isinstance(x, np.ndarray) else spmd.copy(x)
        given = value
        if not isinstance(x, np.ndarray):
            if x.is_dist() and kind != "plain" and value.ndim:
                placed = [S(0) if kind == "sharded" else R] * x.process_mesh.ndim
                given = spmd.shard_tensor(value, x.process_mesh, placed)
            given = (x.sum() * 0 if value.ndim else x[0, 0, 0]) + given  # its gradient reaches x
        else:
            given = value if value.ndim else x[0, 0, 0] + value
        y[at] = given
        return y * y

    check(random, array, index, arrays, write)


def check(random, array, index, arrays, function):
    mesh = draw(random, meshes())
    placed = placements_for(random, mesh, array)
    while any(p.is_partial() and p.op not in ("sum", "avg") for p in placed):
        placed = placements_for(random, mesh, array)
    x, whole = distribute(random, mesh, array, placed), spmd.tensor(array)
    ours = list(index)
    for k in arrays:
        if random.random() < 0.7:
            ours[k] = distribute(random, mesh, index[k], placements_for(random, mesh, index[k], partial=False))
    where = [getattr(item, "placements", None) for item in ours]
    print(f"mesh {mesh.shape}, placements {placed}, shape {array.shape}, index {index}, its placements {where}")
    x.requires_grad = whole.requires_grad = True
    expected = function(array, index)
    weight, direction = random.normal(size=expected.shape), random.normal(size=array.shape)
    results = []
    for t, at in ((x, tuple(ours)), (whole, index)):
        y = function(t, at)
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-10, atol=1e-10)
        g = spmd.grad((y * y * weight).sum(), t, create_graph=True)
        h = spmd.grad((g * direction).sum(), t)
        results.append((g.detach().numpy(), h.numpy()))
    for mine, theirs in zip(*results):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "complex64"])
def test_dtypes(mesh, dtype):
    array = np.arange(20).reshape(10, 2).astype(dtype)
    x = sharded(mesh, array)
    np.testing.assert_array_equal(x[[7, 0, 7]].numpy(), array[[7, 0, 7]])
    np.testing.assert_array_equal(x[array[:, 0] > 4].numpy(), array[array[:, 0] > 4])


def test_half_precision_gradients_are_summed_in_float32(mesh):
    x = sharded(mesh, np.zeros(2, "float16"))
    x.requires_grad = True
    rows = sharded(mesh, np.zeros(4096, int))
    np.testing.assert_array_equal(spmd.grad(spmd.sum(x[rows], dtype="float32"), x).numpy(), [4096, 0])


# Where it is, and what travels ---------------------------------------------


def test_rows_that_every_rank_names_travel_once_and_no_index(mesh):
    n, array = mesh.size, np.arange(400.0).reshape(100, 4)
    x, rows = sharded(mesh, array), np.array([99, 3, 3, 50, 0, 99, 98, 7])
    x.requires_grad = True
    y, sent = traced(lambda: x[rows], records=False)
    np.testing.assert_array_equal(y.detach().numpy(), array[rows])
    assert y.placements == [S(0)]
    owner = np.repeat(np.arange(n), [len(part) for part in np.array_split(np.arange(100), n)])
    pairs = {(k, row) for k, part in enumerate(np.array_split(rows, n)) for row in part if owner[row] != k}
    assert sent == len(pairs) * 4 * ITEM
    g, back = traced(lambda: spmd.grad((y * y).sum(), x), records=False)
    expected = np.zeros((100, 4))
    np.add.at(expected, rows, 2 * array[rows])
    np.testing.assert_array_equal(g.numpy(), expected)
    assert (g.placements, back) == ([S(0)], sent)  # contributions are added up before they travel


def test_requests_travel_where_each_rank_has_its_own(mesh):
    n, array = mesh.size, np.arange(400.0).reshape(100, 4)
    x, rows = sharded(mesh, array), (np.arange(12 * n) * 37) % 100
    y, sent = traced(lambda: x[sharded(mesh, rows)], records=False)
    np.testing.assert_array_equal(y.numpy(), array[rows])
    assert y.placements == [S(0)]
    owner = np.repeat(np.arange(n), [len(part) for part in np.array_split(np.arange(100), n)])
    pairs = {(k, row) for k, part in enumerate(np.array_split(rows, n)) for row in part if owner[row] != k}
    assert sent == len(pairs) * (4 * ITEM + 4)  # a position has 4 bytes


def test_an_embedding_over_two_mesh_axes():
    """The words cut along one axis, the vocabulary along the other."""
    n = spmd.get_world_size()
    mesh = spmd.init_mesh((2, 2) if n == 4 else (1, n))
    table, words = np.arange(60.0).reshape(20, 3), (np.arange(24) * 7 % 20).reshape(6, 4)
    w = spmd.shard_tensor(table, mesh, [R, S(0)])
    w.requires_grad = True
    y = w[spmd.shard_tensor(words, mesh, [S(0), R])]
    np.testing.assert_array_equal(y.detach().numpy(), table[words])
    assert y.placements == [S(0), S(1)]
    g = spmd.grad((y * y).sum(), w)
    expected = np.zeros((20, 3))
    np.add.at(expected, words, 2 * table[words])
    np.testing.assert_array_equal(g.numpy(), expected)
    assert g.placements == [R, S(0)]


def test_a_mask_like_the_tensor_keeps_what_is_true_where_it_is(mesh):
    array = np.arange(30.0).reshape(10, 3)
    x = sharded(mesh, array)
    x.requires_grad = True
    keep = array[:, 0] % 2 == 0
    for mask in (sharded(mesh, keep), keep, x.detach()[:, 0] % 2 == 0):
        y, sent = traced(lambda: x[mask], records=False)
        np.testing.assert_array_equal(y.detach().numpy(), array[keep])
        assert (y.placements, sent) == ([S(0)], 0)
        assert agree(y.local_shape[0]) == [int(part.sum()) for part in np.array_split(keep, mesh.size)]
        g, back = traced(lambda: spmd.grad((y * y).sum(), x), records=False)
        np.testing.assert_array_equal(g.numpy(), np.where(keep[:, None], 2 * array, 0))
        assert (g.placements, back) == ([S(0)], 0)
    y, sent = traced(lambda: x[keep, 1], records=False)
    np.testing.assert_array_equal(y.detach().numpy(), array[keep, 1])
    assert (y.placements, sent) == ([S(0)], 0)
    y, sent = traced(lambda: x[x > 7], records=False)
    np.testing.assert_array_equal(y.detach().numpy(), array[array > 7])
    assert (y.placements, sent) == ([S(0)], 0)


def test_a_mask_along_another_dim_moves_itself_and_what_is_true(mesh):
    n, array = mesh.size, np.arange(40.0).reshape(4, 10)
    x = sharded(mesh, array, 1)
    y, sent = traced(lambda: x[x > 30], records=False)
    np.testing.assert_array_equal(y.numpy(), array[array > 30])
    assert sent <= 40 * (n - 1) + 9 * ITEM


def test_writing_at_positions_moves_the_values_alone(mesh):
    n, array = mesh.size, np.arange(40.0).reshape(20, 2)
    x = sharded(mesh, array)
    rows, value = np.array([19, 0, 5, 19, 12, 3]), np.arange(12.0).reshape(6, 2)
    _, sent = traced(lambda: x.__setitem__(rows, value), records=False)
    array[rows] = value
    np.testing.assert_array_equal(x.numpy(), array)
    assert sent <= 12 * ITEM * (n > 1)
    _, sent = traced(lambda: x.__setitem__((rows, 1), -1.0), records=False)
    array[rows, 1] = -1
    np.testing.assert_array_equal(x.numpy(), array)
    assert sent == 0


@pytest.mark.parametrize("seed", range(12))
def test_along_an_axis(seed):
    random = np.random.default_rng([seed, 2])
    array, axis = random.normal(size=(6, 5)), seed % 2
    shape = [draw(random, [1, 5, 6][:: 2 - axis]), draw(random, [1, 5])]
    shape[axis] = int(random.integers(0, 8))
    rows = random.integers(-array.shape[axis], array.shape[axis], shape)
    if shape[1 - axis] not in (1, array.shape[1 - axis]):
        rows = rows[:1] if axis else rows[:, :1]
    check(random, array, (rows,), (0,), lambda x, at: along(x, at[0], axis))


def along(x, rows, axis):
    if isinstance(x, np.ndarray):
        return np.take_along_axis(x, rows, axis)
    return spmd.take_along_axis(x, rows, axis)


def test_a_plain_table_beside_distributed_positions(mesh):
    table, rows = np.arange(12.0).reshape(4, 3), np.arange(8) % 4
    y, sent = traced(lambda: spmd.take(table, sharded(mesh, rows), axis=0), records=False)
    np.testing.assert_array_equal(y.numpy(), table[rows])
    assert (y.placements, sent) == ([S(0)], 0)


def test_only_the_last_of_several_writes_has_a_gradient(mesh):
    x, rows = sharded(mesh, np.zeros((6, 2))), np.array([5, 0, 5, 2, 0])
    value = sharded(mesh, np.arange(10.0).reshape(5, 2))
    value.requires_grad = True
    y = spmd.copy(x)
    y[rows] = value
    expected = np.zeros((6, 2))
    expected[rows] = np.arange(10.0).reshape(5, 2)
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    stayed = np.array([0, 0, 1, 1, 1])[:, None] * np.ones(2)
    np.testing.assert_array_equal(spmd.grad(y.sum(), value).numpy(), stayed)


# Errors --------------------------------------------------------------------


def test_positions_out_of_bounds_raise_on_every_rank(mesh):
    x = sharded(mesh, np.arange(40.0).reshape(20, 2))
    with parallel_raises(IndexError, "index 20 is out of bounds for axis 0 with size 20"):
        x[[0, 20]]
    rows = np.arange(mesh.size * 2)
    rows[-1] = -21  # on the last rank alone
    with parallel_raises(IndexError, "index -21 is out of bounds for axis 0 with size 20"):
        x[sharded(mesh, rows)]
    with parallel_raises(IndexError, "index 7 is out of bounds for axis 1 with size 2"):
        x[[0, 1], [0, 7]]
    with parallel_raises(IndexError, "index 30 is out of bounds for axis 0 with size 20"):
        x[[30]] = 1.0
    with parallel_raises(IndexError, "index -21 is out of bounds for axis 0 with size 20"):
        spmd.take_along_axis(x, sharded(mesh, rows[:, None]), axis=0)
    with parallel_raises(ValueError, r"take_along_axis: indices of shape \(1, 3\)"):
        spmd.take_along_axis(x, np.zeros((1, 3), int), axis=0)
    with parallel_raises(IndexError, r"mask of shape \(3,\)"):
        x[np.ones(3, bool)]
