"""Pooling against loops over windows; derivatives are in gradient_cases."""

from itertools import product

import numpy as np
import pytest
from mpi_helpers import parallel_raises
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd

S, P = spmd.Shard, spmd.Partial


def pooled(function, x, window, stride, padding, dilation):
    """A function of the elements of x in each window."""
    lead, count = x.ndim - len(window), len(window)
    x = np.pad(x.astype(float), ((0, 0),) * lead + tuple(padding), constant_values=np.nan)
    places = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[lead:], window, stride, dilation)]
    y = np.zeros((*x.shape[:lead], *places))
    for i in product(*map(range, places)):
        spans = (slice(i[a] * stride[a], i[a] * stride[a] + dilation[a] * window[a], dilation[a]) for a in range(count))
        y[(..., *i)] = function(x[(..., *spans)].reshape(*x.shape[:lead], -1))
    return y


def largest(rows):
    return np.nanmax(rows, axis=-1)


def mean(rows):
    return np.nansum(rows, axis=-1) / rows.shape[-1]


def inner_mean(rows):
    return np.nanmean(rows, axis=-1)


FUNCTIONS = [
    (spmd.max_pool, largest),
    (spmd.avg_pool, mean),
    (lambda x, **options: spmd.avg_pool(x, **options, count_include_pad=False), inner_mean),
]


def drawn(random):
    sliding = int(random.integers(1, 4))
    window = tuple(int(k) for k in random.integers(1, 4, sliding))
    stride, dilation = (tuple(int(k) for k in random.integers(1, 3, sliding)) for _ in range(2))
    extents = [d * (k - 1) + 1 + int(random.integers(3)) for k, d in zip(window, dilation)]
    padding = tuple((int(random.integers(k)), int(random.integers(k))) for k in window)
    x = random.normal(size=(int(random.integers(1, 4)), 2, *extents))
    return x, {"window": window, "stride": stride, "padding": padding, "dilation": dilation}


@pytest.mark.parametrize("ours, theirs", FUNCTIONS, ids=["max", "avg", "avg of x alone"])
@pytest.mark.parametrize("seed", range(8))
def test_values(ours, theirs, seed):
    x, options = drawn(np.random.default_rng(seed))
    np.testing.assert_allclose(ours(x, **options).numpy(), pooled(theirs, x, **options), rtol=1e-12)


def test_defaults():
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    np.testing.assert_array_equal(spmd.max_pool(x, 2).numpy()[0, 0], [[5, 7], [13, 15]])
    np.testing.assert_array_equal(spmd.avg_pool(x, 2).numpy()[0, 0], [[2.5, 4.5], [10.5, 12.5]])
    np.testing.assert_array_equal(spmd.max_pool(x[0, 0, 0], (3,), 1).numpy(), [2, 3])
    assert spmd.max_pool(x, 3, stride=2, padding="same").shape == (1, 1, 2, 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
def test_dtypes(dtype):
    x = spmd.tensor(np.arange(6).reshape(1, 1, 6), dtype=dtype)
    found = spmd.max_pool(x, 3, 2, padding=1)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(spmd.astype(found, "float64").numpy()[0, 0], [1, 3, 5])
    found = spmd.avg_pool(x, 2, padding=((1, 1),), count_include_pad=False)
    assert found.dtype == ("float64" if dtype == "int32" else x.dtype)
    np.testing.assert_array_equal(spmd.astype(found, "float64").numpy()[0, 0], [0, 1.5, 3.5, 5])


def test_means_of_small_integers_do_not_overflow():
    assert spmd.avg_pool(np.full((1, 1, 2), 100, "int8"), 2).item() == 100


def test_ties_share_the_gradient_of_their_window():
    x = spmd.tensor([[[1.0, 1.0, 0.0, 1.0]]], requires_grad=True)
    gradient = spmd.grad(spmd.max_pool(x, 2, 1), x, [np.array([[[1.0, 10.0, 100.0]]])])
    np.testing.assert_array_equal(gradient.numpy(), [[[0.5, 10.5, 0, 100]]])
    nan = spmd.tensor([[[np.nan, 1.0, 2.0]]], requires_grad=True)
    y = spmd.max_pool(nan, 2, 1)
    np.testing.assert_array_equal(y.detach().numpy(), [[[np.nan, 2]]])
    np.testing.assert_array_equal(spmd.grad(y.sum(), nan).numpy(), [[[1, 0, 1]]])


X = np.ones((1, 1, 4))
WRONG = [
    (lambda: spmd.max_pool(X[0], 2), ValueError, r"max_pool: window 2 was given for a tensor of shape \(1, 4\)"),
    (lambda: spmd.max_pool(X, (1, 1, 1, 1)), ValueError, "window"),
    (lambda: spmd.max_pool(X, 5), ValueError, "a window of 5 elements with dilation 1 does not fit in 4"),
    (lambda: spmd.max_pool(X, 2, padding=2), ValueError, "padding alone"),
    (lambda: spmd.avg_pool(X, 2, stride=0), ValueError, "avg_pool: stride"),
    (lambda: spmd.max_pool(X * 1j, 2), TypeError, "complex numbers have no largest"),
]


@pytest.mark.parametrize("call, kind, match", WRONG, ids=range(len(WRONG)))
def test_bad_input(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


# Distributed ---------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(9))
def test_random_placements(seed):
    random = np.random.default_rng([5, seed])
    x, options = drawn(random)
    ours, theirs = FUNCTIONS[seed % 3]
    mesh = draw(random, meshes())
    places = placements_for(random, mesh, x)
    print(f"seed {seed}, mesh {mesh.shape}, {places}, shape {x.shape}, {options}")
    t = distribute(random, mesh, x, places)
    np.testing.assert_allclose(ours(t, **options).numpy(), pooled(theirs, x, **options), rtol=1e-9, atol=1e-12)


@pytest.mark.mpi
def test_what_does_not_communicate():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = np.random.default_rng(1).normal(size=(3, 5, 6))
    with spmd.trace() as t:
        for dim in (0, 1):
            piece = spmd.shard_tensor(x, mesh, [S(dim)])
            assert spmd.max_pool(piece, 2, padding=1).placements == [S(dim)]
            assert spmd.avg_pool(piece, 3).placements == [S(dim)]
        assert spmd.avg_pool(spmd.shard_tensor(x, mesh, [P("sum")]), 3, padding=1).placements == [P("sum")]
    assert t.count(records=True) == 0, str(t)


@pytest.mark.mpi
def test_bad_input_on_every_rank():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = spmd.shard_tensor(np.ones((1, 1, 3)), mesh, [S(2)])
    with parallel_raises(ValueError, r"does not fit in 3 elements.*the tensor has shape \(1, 1, 3\)"):
        spmd.max_pool(x, 4)
