"""median, quantile and percentile against NumPy: local, and on ranks under random placements."""

import numpy as np
import pytest
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd
from spmdlayer.ops import samples
from spmdlayer.ops.selecting import ranked_positions

Q = [0.3, 0.0, 1.0, [0.1, 0.5], [[0.25, 0.6], [0.9, 1.0]]]


def same(found, expected):
    expected = np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3 if expected.dtype == np.float16 else 1e-14)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, 1)])
def test_local(axis, keepdims):
    random = np.random.default_rng(0)
    for x in (random.normal(size=(3, 4, 5)), random.integers(-4, 5, (2, 3, 4)), random.random((2, 1, 3)) < 0.5):
        same(spmd.median(spmd.tensor(x), axis, keepdims), np.median(x, axis, keepdims=keepdims))
        for q in Q if x.dtype != bool else []:
            same(spmd.quantile(spmd.tensor(x), q, axis, keepdims), np.quantile(x, q, axis, keepdims=keepdims))
    same(spmd.percentile(spmd.tensor(x * 1.0), [12, 50]), np.percentile(x * 1.0, [12, 50]))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_dtypes(dtype):
    x = np.array([[1, 2, 4, 3], [7, 5, 6, 60000]], dtype)
    same(spmd.median(spmd.tensor(x)), np.median(x))
    same(spmd.quantile(spmd.tensor(x), 0.3, axis=1), np.quantile(x, 0.3, axis=1))
    same(spmd.quantile(spmd.tensor(x), [0.3], axis=1), np.quantile(x, [0.3], axis=1))


def test_nan_and_infinities():
    x = np.array([[1.0, np.nan, 3.0], [np.inf, np.inf, -np.inf]])
    with np.errstate(all="ignore"):
        same(spmd.median(spmd.tensor(x), 1), np.median(x, 1))
        same(spmd.median(spmd.tensor(np.array([np.inf, np.inf]))), np.inf)
        same(spmd.quantile(spmd.tensor(x), 0.75, 1), [np.nan, np.nan])


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: spmd.median(spmd.zeros((0, 2)), 0), ValueError, "median: no elements"),
        (lambda: spmd.median([1j]), TypeError, "median: complex128 was given"),
        (lambda: spmd.quantile([1.0], 1.5), ValueError, "quantile: q must be from 0 to 1"),
        (lambda: spmd.percentile([1.0], -1), ValueError, "percentile: q must be from 0 to 100"),
        (lambda: spmd.quantile([1.0], "a"), TypeError, "quantile: q must be a number"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_the_middle_elements_get_the_gradient():
    x = spmd.tensor([3.0, 1.0, 2.0, 5.0], requires_grad=True)
    np.testing.assert_array_equal(spmd.grad(spmd.median(x), x), [0.5, 0, 0.5, 0])
    np.testing.assert_allclose(spmd.grad(spmd.quantile(x, 0.1), x), [0, 0.7, 0.3, 0])
    np.testing.assert_array_equal(spmd.grad(spmd.median(x[:3]), x), [0, 0, 1, 0])


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(16))
def test_random_placements(seed):
    random = np.random.default_rng([seed, 9])
    shape = tuple(int(n) for n in random.integers(1, 7, random.integers(1, 4)))
    x = random.permutation(int(np.prod(shape))).reshape(shape) / 4
    mesh = draw(random, meshes())
    placements = placements_for(random, mesh, x, partial=False)
    axis, q = draw(random, [None, *range(x.ndim), tuple(range(x.ndim))]), draw(random, Q)
    print(f"seed {seed}, mesh {mesh.shape}, {placements}, shape {shape}, axis {axis}, q {q}")
    t, whole = distribute(random, mesh, x, placements), spmd.tensor(x, requires_grad=True)
    t.requires_grad = True
    for function in (lambda x: spmd.median(x, axis), lambda x: spmd.quantile(x, q, axis)):
        np.testing.assert_allclose(function(t).detach().numpy(), function(whole).detach().numpy())
        ours, theirs = (spmd.grad((function(x) ** 3).sum(), x, create_graph=True) for x in (t, whole))
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy())
        np.testing.assert_allclose(spmd.grad((ours**2).sum(), t).numpy(), spmd.grad((theirs**2).sum(), whole).numpy())


@pytest.mark.mpi
def test_a_median_of_many_elements_gathers_none_of_them():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = np.random.default_rng(3).normal(size=20000)
    t = spmd.shard_tensor(x, mesh, [spmd.Shard(0)])
    with spmd.trace() as traced:
        found = spmd.median(t)
    np.testing.assert_allclose(found.item(), np.median(x))
    # Samples, and twice what may lie in the middle, with its positions.
    middle = 2 * 16 * (mesh.size + 2) * x.size / (64 * mesh.size)
    assert traced.bytes() <= (mesh.size - 1) * (64 * 8 + middle + 64)


@pytest.mark.parametrize("ties", [False, True])
def test_selecting_finds_what_sorting_finds(ties):
    random = np.random.default_rng(4)
    x = random.integers(0, 5, (3, 500)) / 2 if ties else random.normal(size=(3, 500))
    x[1, ::7] = np.nan
    ranks = (0, 3, 250, 440, 499)
    found = ranked_positions(spmd.tensor(x), axis=1, ranks=ranks)
    np.testing.assert_array_equal(found.numpy(), np.argsort(x, 1, kind="stable")[:, ranks])


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(10))
def test_selecting_across_ranks_finds_what_sorting_finds(seed, monkeypatch):
    random = np.random.default_rng([seed, 10])
    monkeypatch.setattr(samples, "SAMPLES", draw(random, [1, 3, 64]))
    n = int(draw(random, [1, 5, 100, 3000]))
    x = draw(
        random, [random.normal(size=n), random.integers(0, 3, n) / 2, np.arange(n)[::-1] * 1.0, np.full(n, np.nan)]
    )
    mesh, ranks = draw(random, meshes()), tuple(sorted({0, n // 3, n // 2, n - 1}))
    placements = placements_for(random, mesh, x, partial=False)
    print(f"seed {seed}, mesh {mesh.shape}, {placements}, {n} elements")
    found = ranked_positions(distribute(random, mesh, x, placements), axis=0, ranks=ranks)
    np.testing.assert_array_equal(found.numpy(), np.argsort(x, kind="stable")[list(ranks)])
