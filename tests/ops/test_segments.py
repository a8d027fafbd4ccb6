"""Segments and index_add against loops, whole and distributed; derivatives are in gradient_cases."""

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd

R, S, P = spmd.Replicate(), spmd.Shard, spmd.Partial


def by_rows(function, empty):
    """A function of the rows of each segment."""

    def segment(x, ids, count):
        return np.stack(
            [function(x[ids == k]) if (ids == k).any() else np.full(x.shape[1:], empty) for k in range(count)]
        )

    return segment


FUNCTIONS = [
    (spmd.segment_sum, by_rows(lambda rows: rows.sum(axis=0), 0.0)),
    (spmd.segment_mean, by_rows(lambda rows: rows.mean(axis=0), 0.0)),
    (spmd.segment_max, by_rows(lambda rows: rows.max(axis=0), -np.inf)),
    (spmd.segment_min, by_rows(lambda rows: rows.min(axis=0), np.inf)),
]
NAMES = ["sum", "mean", "max", "min"]


@pytest.mark.parametrize("ours, theirs", FUNCTIONS, ids=NAMES)
@pytest.mark.parametrize("shape", [(9,), (9, 2), (1, 2, 3)])
def test_values(ours, theirs, shape):
    random = np.random.default_rng(0)
    x, ids = random.normal(size=shape), random.integers(0, 6, shape[0])
    np.testing.assert_allclose(ours(x, ids, 6).numpy(), theirs(x, ids, 6), rtol=1e-14)
    assert ours(x[:0], ids[:0], 2).shape == (2, *shape[1:])


def test_dtypes():
    ids = np.array([1, 1], "uint8")
    np.testing.assert_array_equal(spmd.segment_sum(np.array([True, True]), ids, 2).numpy(), [0, 2])
    found = spmd.segment_max(np.array([3, -4], "int16"), ids, 2)
    assert found.dtype == np.int16
    np.testing.assert_array_equal(found.numpy(), [-(2**15), 3])
    assert spmd.segment_mean(np.array([3, 4]), ids, 2).numpy().tolist() == [0, 3.5]
    brain = spmd.tensor([3.0, -4.0], dtype="bfloat16")
    for function in (spmd.segment_max, spmd.segment_sum, spmd.segment_mean):
        assert function(brain, ids, 2).dtype == spmd.bfloat16
    assert spmd.astype(spmd.segment_min(brain, ids, 2), "float32").numpy().tolist() == [np.inf, -4]
    ones = spmd.tensor(np.ones(5000), dtype="float16")
    for function, expected in ((spmd.segment_sum, 5000), (spmd.segment_mean, 1)):
        found = function(ones, np.zeros(5000, int), 1)
        assert found.dtype == np.float16
        assert found.item() == expected


def test_ties_share_the_gradient():
    x = spmd.tensor([2.0, 5.0, 5.0, 2.0, 7.0], requires_grad=True)
    y = spmd.segment_max(x, [0, 0, 0, 1, 1], 2)
    np.testing.assert_array_equal(spmd.grad(y, x, [np.array([1.0, 10.0])]).numpy(), [0, 0.5, 0.5, 0, 10])


def added(x, index, value, axis):
    out = np.moveaxis(np.array(x), axis, 0)
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    value = np.moveaxis(np.broadcast_to(value, shape), range(axis, axis + index.ndim), range(index.ndim))
    for place in np.ndindex(*index.shape):
        out[index[place]] += value[place]
    return np.moveaxis(out, 0, axis)


@pytest.mark.parametrize("shape, axis", [((4,), 0), ((2,), 1), ((), 0), ((2, 3), 1), ((0,), 0)])
@pytest.mark.parametrize("whole", [True, False])
def test_index_add(shape, axis, whole):
    random = np.random.default_rng(1)
    x, index = random.normal(size=(4, 3, 2)), random.integers(-3, 3, shape)
    value = random.normal(size=(*x.shape[:axis], *shape, *x.shape[axis + 1 :]) if whole else (2,))
    np.testing.assert_allclose(spmd.index_add(x, index, value, axis).numpy(), added(x, index, value, axis))


def test_index_add_keeps_dtypes():
    x = np.zeros(3, "float32")
    assert spmd.index_add(x, [0, 0], 1).numpy().tolist() == [2, 0, 0]
    assert spmd.index_add(x, [0, 0], np.ones(2)).dtype == np.float32
    assert x.tolist() == [0, 0, 0]


X, IDS = np.ones((3, 2)), np.array([0, 1, 1])
WRONG = [
    (lambda: spmd.segment_sum(X, IDS * 1.0, 2), TypeError, "segment_sum: ids must be integers, float64"),
    (lambda: spmd.segment_sum(X, IDS[:2], 2), ValueError, r"one entry for each row of x; shapes \(2,\) and \(3, 2\)"),
    (lambda: spmd.segment_mean(X, IDS, -1), ValueError, "segment_mean: num_segments"),
    (lambda: spmd.segment_max(X * 1j, IDS, 2), TypeError, "segment_max: complex"),
    (lambda: spmd.segment_sum(X, IDS, 1), IndexError, "segment 1 is out of bounds for 1 segments"),
    (lambda: spmd.segment_min(X, IDS - 1, 1), IndexError, "segment -1 is out of bounds"),
    (lambda: spmd.index_add(X, [0.5], 1.0), TypeError, "index_add: index must be integers"),
    (lambda: spmd.index_add(X, [0], 1j), TypeError, "index_add: complex128 values"),
    (lambda: spmd.index_add(X, [0, 1], np.ones((3, 2))), ValueError, r"shape \(3, 2\) does not broadcast to \(2, 2\)"),
    (lambda: spmd.index_add(X, [0], 1.0, axis=2), ValueError, "index_add: axis 2"),
    (lambda: spmd.index_add(X, [3], 1.0), IndexError, "3 is out of bounds"),
]


@pytest.mark.parametrize("call, kind, match", WRONG, ids=range(len(WRONG)))
def test_bad_input(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


# Distributed ---------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("ours, theirs", FUNCTIONS, ids=NAMES)
@pytest.mark.parametrize("seed", range(5))
def test_random_placements(ours, theirs, seed):
    random = np.random.default_rng([2, seed])
    x = random.normal(size=(int(random.integers(1, 9)), 3))
    ids = random.integers(0, 4, len(x))
    mesh = draw(random, meshes())
    places = [placements_for(random, mesh, a) for a in (x, ids)]
    print(f"seed {seed}, mesh {mesh.shape}, placements {places}, shape {x.shape}, ids {ids}")
    found = ours(*(distribute(random, mesh, a, p) for a, p in zip((x, ids), places)), 4)
    np.testing.assert_allclose(found.numpy(), theirs(x, ids, 4), rtol=1e-9, atol=1e-12)


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(5))
def test_index_add_at_random_placements(seed):
    random = np.random.default_rng([4, seed])
    x, axis = random.normal(size=(4, 3)), int(random.integers(2))
    index = random.integers(-x.shape[axis], x.shape[axis], 5)
    value = random.normal(size=(5, 3) if axis == 0 else (4, 5))
    mesh = draw(random, meshes())
    arrays = [x, index, value]
    places = [placements_for(random, mesh, a) for a in arrays]
    print(f"seed {seed}, mesh {mesh.shape}, placements {places}, axis {axis}, index {index}")
    tensors = [distribute(random, mesh, a, p) for a, p in zip(arrays, places)]
    plain = int(random.integers(4))
    if plain:
        tensors[plain % 3] = arrays[plain % 3]
    np.testing.assert_allclose(
        spmd.index_add(*tensors, axis).numpy(), added(x, index, value, axis), rtol=1e-9, atol=1e-9
    )


@pytest.fixture
def mesh():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


@pytest.mark.mpi
def test_what_does_not_communicate(mesh):
    x = spmd.shard_tensor(np.arange(14.0).reshape(7, 2), mesh, [S(0)])
    ids = spmd.shard_tensor(np.array([2, 0, 2, 1, 1, 2, 0]), mesh, [S(0)])
    whole, columns = np.arange(7) % 3, spmd.shard_tensor(np.ones((7, 2)), mesh, [S(1)])
    with spmd.trace() as t:
        total = spmd.segment_sum(x, ids, 3)
        assert total.placements == [P("sum")]
        assert spmd.segment_max(x, ids, 3).placements == [P("max")]
        assert spmd.segment_min(x, whole, 3).placements == [P("min")]
        assert spmd.segment_sum(np.ones((7, 2)), ids, 3).placements == [P("sum")]
        assert spmd.segment_sum(columns, whole, 3).placements == [S(1)]
        assert spmd.segment_sum(x.sum(axis=1), whole, 3).placements == [P("sum")]
        assert spmd.segment_sum(spmd.shard_tensor(np.ones((3, 2)), mesh, [P("sum")]), np.arange(3), 3).placements == [
            P("sum")
        ]
    assert t.count(records=True) == 0, str(t)
    np.testing.assert_array_equal(total.numpy(), [[14, 16], [14, 16], [14, 17]])


@pytest.mark.mpi
def test_rows_of_several_ranks_share_the_gradient(mesh):
    x = spmd.shard_tensor(np.array([5.0, 1.0, 5.0, 3.0, 5.0, 3.0]), mesh, [S(0)])
    x.requires_grad = True
    y = spmd.segment_max(x, np.array([0, 0, 0, 1, 0, 1]), 3)
    weights = spmd.shard_tensor(np.array([6.0, 4.0, 1.0]), mesh, [R])
    total = spmd.where(spmd.isinf(y), 0.0, y * weights).sum()
    np.testing.assert_allclose(spmd.grad(total, x).numpy(), [2, 0, 2, 2, 2, 2])


@pytest.mark.mpi
def test_bad_input_on_every_rank(mesh):
    x = spmd.shard_tensor(np.ones((5, 2)), mesh, [S(0)])
    with parallel_raises(ValueError, r"shapes \(4,\) and \(5, 2\)"):
        spmd.segment_sum(x, np.arange(4), 4)
    ids = np.array([0, 1, 2, 3, 9])
    with parallel_raises(IndexError, "segment 9 is out of bounds"):
        spmd.segment_sum(x, ids, 5)
    caught = False
    try:
        spmd.segment_sum(x, spmd.shard_tensor(ids, mesh, [S(0)]), 5)
    except IndexError as error:
        caught = "segment 9 is out of bounds" in str(error)
    assert_all(caught == (mesh.rank == mesh.size - 1))
