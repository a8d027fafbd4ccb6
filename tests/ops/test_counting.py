"""bincount and histogram against NumPy: local, and on ranks under random placements."""

import numpy as np
import pytest
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd


@pytest.mark.parametrize("minlength", [0, 2, 9])
def test_bincount(minlength):
    for x in (np.array([3, 0, 3, 1]), np.array([2], np.uint8), np.zeros(0, int)):
        found = spmd.bincount(spmd.asarray(x), minlength=minlength)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found.numpy(), np.bincount(x, minlength=minlength))
        weights = np.arange(len(x)) + 0.5
        found = spmd.bincount(spmd.asarray(x), weights, minlength)
        np.testing.assert_array_equal(found.numpy(), np.bincount(x, weights, minlength))
    assert spmd.bincount(spmd.tensor([1, 1]), [2, 3]).tolist() == [0.0, 5.0]


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: spmd.bincount([[1]]), ValueError, "bincount: x must have 1 dimension"),
        (lambda: spmd.bincount([0, -2]), ValueError, "bincount: x has the negative element -2"),
        (lambda: spmd.bincount([0.5]), TypeError, "bincount: x must be integers"),
        (lambda: spmd.bincount([1, 2], [1.0]), ValueError, "bincount: weights of shape"),
        (lambda: spmd.histogram([1.0], 0), ValueError, "histogram: "),
        (lambda: spmd.histogram([1.0], "auto"), TypeError, "histogram: bins must be"),
        (lambda: spmd.histogram([1.0], [3, 1]), ValueError, "histogram: "),
        (lambda: spmd.histogram([np.nan, 1.0]), ValueError, "histogram: .*finite"),
        (lambda: spmd.histogram([1.0, 2.0], weights=[1.0]), ValueError, "histogram: weights of shape"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


BINS = [{}, {"bins": 4}, {"bins": 3, "range": (0, 2)}, {"bins": [0, 0.5, 1.5, 4]}, {"bins": 5, "density": True}]


@pytest.mark.parametrize("options", BINS, ids=str)
def test_histogram(options):
    random = np.random.default_rng(1)
    for x in (random.normal(size=(4, 5)), random.integers(0, 4, 30), np.array([0.5, 0.5]), np.zeros(0)):
        if options.get("density") and not x.size:
            continue
        for weights in (None, random.integers(1, 9, x.shape) / 4):
            hist, edges = spmd.histogram(spmd.asarray(x), weights=weights, **options)
            expected, sides = np.histogram(x, weights=weights, **options)
            assert (hist.dtype, edges.dtype) == (expected.dtype, sides.dtype)
            np.testing.assert_allclose(hist.numpy(), expected)
            np.testing.assert_array_equal(edges.numpy(), sides)


def test_weights_have_gradients():
    w = spmd.tensor([1.0, 2.0, 3.0], requires_grad=True)
    g = spmd.grad((spmd.bincount(spmd.tensor([2, 0, 2]), w) ** 2).sum(), w, create_graph=True)
    np.testing.assert_array_equal(g.detach(), [8, 4, 8])
    np.testing.assert_array_equal(spmd.grad(g[0], w), [2, 0, 2])
    hist, _ = spmd.histogram(spmd.tensor([0.1, 5.0, 0.9]), 2, (0, 1), weights=w)
    np.testing.assert_array_equal(spmd.grad((hist * np.array([10.0, 20.0])).sum(), w), [10, 0, 20])


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(16))
def test_random_placements(seed):
    random = np.random.default_rng([seed, 8])
    n = int(random.integers(0, 20))
    x, weights = random.integers(0, draw(random, [3, 50]), n), random.integers(1, 9, n) / 4
    mesh = draw(random, meshes())
    places = [placements_for(random, mesh, array, partial) for array, partial in ((x, True), (weights, False))]
    print(f"seed {seed}, mesh {mesh.shape}, {places}, {n} elements")
    t, w = (distribute(random, mesh, array, p) for array, p in zip((x, weights), places))
    w.requires_grad = True
    np.testing.assert_array_equal(spmd.bincount(t, minlength=2).numpy(), np.bincount(x, minlength=2))
    sums = spmd.bincount(t, w)
    np.testing.assert_allclose(sums.detach().numpy(), np.bincount(x, weights))
    if n:
        g = spmd.grad((sums**2).sum(), w, create_graph=True)
        np.testing.assert_allclose(g.detach().numpy(), 2 * np.bincount(x, weights)[x])
        np.testing.assert_allclose(spmd.grad(g.sum(), w).numpy(), 2.0 * np.bincount(x)[x])
    hist, edges = spmd.histogram(t, 4)
    expected, sides = np.histogram(x, 4)
    np.testing.assert_array_equal(hist.numpy(), expected)
    np.testing.assert_array_equal(edges.numpy(), sides)
    if n and x.min() < 30:
        hist, _ = spmd.histogram(t, [0, 1, 7, 30], weights=w, density=True)
        np.testing.assert_allclose(hist.detach().numpy(), np.histogram(x, [0, 1, 7, 30], None, True, weights)[0])


@pytest.mark.mpi
def test_only_the_range_travels():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = np.random.default_rng(2).normal(size=3000)
    t = spmd.shard_tensor(x, mesh, [spmd.Shard(0)])
    with spmd.trace() as traced:
        hist, edges = spmd.histogram(t, 20)
    assert hist.placements == [spmd.Partial("sum")]
    assert traced.bytes() <= 64
    np.testing.assert_array_equal((hist[1:3] * 2).numpy(), 2 * np.histogram(x, 20)[0][1:3])
    np.testing.assert_array_equal((edges[1:] - edges[:-1]).numpy(), np.diff(np.histogram(x, 20)[1]))
