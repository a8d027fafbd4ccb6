"""Each distribution against SciPy's, on local arrays; seeds are fixed, so a test passes always or never."""

import numpy as np
import pytest
from mpi_helpers import launch
from scipy import stats

import spmdlayer as spmd
from spmdlayer import random

N = 20_000
KEY = random.key(2026)


def values(array):
    return array.numpy().astype(float)


def assert_distributed_as(sample, cdf):
    assert stats.kstest(sample, cdf).pvalue > 1e-3


def assert_counts(sample, probabilities):
    """Whole numbers 0, 1, ... with these probabilities, the last one of all that are larger."""
    last = len(probabilities) - 1
    counts = np.bincount(np.minimum(sample.astype(int), last), minlength=len(probabilities))
    assert stats.chisquare(counts, np.array(probabilities) * sample.size).pvalue > 1e-3


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_uniform(dtype):
    sample = random.uniform(KEY, N, dtype=dtype)
    assert sample.dtype == spmd.dtype(dtype) and sample.shape == (N,)
    sample = values(sample)
    assert 0 <= sample.min() and sample.max() < 1
    if dtype in ("float64", "float32"):
        assert_distributed_as(sample, stats.uniform.cdf)
    else:
        assert abs(sample.mean() - 0.5) < 0.02 + 2.0**-9


def test_uniform_between_bounds():
    sample = values(random.uniform(KEY, (100, 200), low=-3.0, high=5.0))
    assert_distributed_as(sample.reshape(-1), stats.uniform(-3, 8).cdf)
    low = np.array([0.0, 10.0])
    sample = values(random.uniform(KEY, (1000, 2), low=low, high=low + 1))
    assert np.all((low <= sample) & (sample < low + 1))
    # So narrow that rounding would reach the upper bound.
    narrow = random.uniform(KEY, 1000, "float32", low=1.0, high=np.nextafter(np.float32(1), np.float32(2)))
    assert np.all(narrow.numpy() == 1)


def test_normal():
    assert_distributed_as(values(random.normal(KEY, N)), stats.norm.cdf)
    assert_distributed_as(values(random.normal(KEY, N, "float32")), stats.norm.cdf)
    z = random.normal(KEY, N, "complex128").numpy()
    assert_distributed_as(z.real * np.sqrt(2), stats.norm.cdf)
    assert_distributed_as(z.imag * np.sqrt(2), stats.norm.cdf)
    assert abs(np.corrcoef(z.real, z.imag)[0, 1]) < 0.03
    assert random.normal(KEY, 3, "complex64").dtype == np.complex64


@pytest.mark.parametrize("lower, upper", [(-2, 2), (0.5, np.inf), (-np.inf, -1), (3.0, 3.5), (9.0, 12.0)])
def test_truncated_normal(lower, upper):
    sample = values(random.truncated_normal(KEY, N, lower, upper))
    assert lower <= sample.min() and sample.max() <= upper
    assert_distributed_as(sample, stats.truncnorm(lower, upper).cdf)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 2.5, 50.0])
def test_gamma(alpha):
    assert_distributed_as(values(random.gamma(KEY, N, alpha)), stats.gamma(alpha).cdf)


def test_gamma_of_many_shapes():
    alpha = np.array([0.5, 3.0])
    sample = values(random.gamma(KEY, (N // 4, 2), alpha))
    for column, parameter in enumerate(alpha):
        assert_distributed_as(sample[:, column], stats.gamma(parameter).cdf)


@pytest.mark.parametrize("p", [0.0, 0.1, 1.0])
def test_bernoulli(p):
    sample = random.bernoulli(KEY, N, p)
    assert sample.dtype == bool
    assert abs(values(sample).mean() - p) < 4 * np.sqrt(p * (1 - p) / N) + 1e-12


@pytest.mark.parametrize("low, high", [(0, 7), (-3, 4), (2**40, 2**40 + 5)])
def test_randint(low, high):
    sample = random.randint(KEY, N, low, high).numpy()
    assert sample.dtype == np.int64 and low <= sample.min() and sample.max() < high
    assert_counts(sample - low, [1 / (high - low)] * (high - low))


def test_randint_over_the_whole_range():
    sample = random.randint(KEY, N, -(2**63), 2**63).numpy()
    assert_distributed_as(sample.astype(float), stats.uniform(-(2.0**63), 2.0**64).cdf)
    third = 3 * 2**62  # so that a quarter of the words is drawn again
    sample = random.randint(KEY, N, 0, third, "uint64").numpy()
    assert_distributed_as(sample.astype(float), stats.uniform(0, float(third)).cdf)
    assert set(random.randint(KEY, 200, 250, 256, "uint8").numpy()) == set(range(250, 256))


def test_categorical():
    probabilities = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        logits = np.broadcast_to(np.log(probabilities), (N, 4))
    assert_counts(values(random.categorical(KEY, logits))[:], probabilities + np.array([0, 1e-12, 0, 0]))
    assert random.categorical(KEY, logits[:5].T, axis=0).shape == (5,)


@pytest.mark.parametrize("lam", [0.0, 0.3, 4.0, 9.99, 10.0, 60.0])
def test_poisson(lam):
    sample = random.poisson(KEY, N, lam).numpy()
    assert sample.dtype == np.int64
    grid = stats.poisson(lam)
    low, high = int(grid.ppf(0.001)), int(grid.ppf(0.999))
    if lam == 0:
        assert not sample.any()
        return
    inner = grid.pmf(np.arange(low + 1, high))
    assert_counts(np.clip(sample - low, 0, high - low), [grid.cdf(low), *inner, 1 - grid.cdf(high - 1)])


def test_permutation():
    assert sorted(random.permutation(KEY, 50).numpy()) == list(range(50))
    counts = {}
    for key in random.split(KEY, 600):
        order = tuple(random.permutation(key, 3).numpy())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6 and stats.chisquare(list(counts.values())).pvalue > 1e-3
    x = np.arange(12.0).reshape(4, 3)
    rows = random.permutation(KEY, x).numpy()
    np.testing.assert_array_equal(np.sort(rows, axis=0), x)
    columns = random.permutation(KEY, spmd.tensor(x), axis=1).numpy()
    np.testing.assert_array_equal(np.sort(columns, axis=1), x)
    assert random.permutation(KEY, 0).shape == (0,)


def test_keys():
    one, two, three = random.split(KEY, 3)
    assert len({KEY, one, two, three}) == 4
    assert random.split(KEY, 2) == [one, two] and random.fold_in(KEY, 2) == three
    assert random.Key(one.bits) == one and one != 5
    a, b = values(random.uniform(one, N)), values(random.uniform(two, N))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.03
    np.testing.assert_array_equal(a, values(random.uniform(one, N)))
    with pytest.raises(AttributeError, match="immutable"):
        one.bits = 3


def test_bad_input():
    for call, kind, message in (
        (lambda: random.key(-1), ValueError, "seed: -1"),
        (lambda: random.key("a"), TypeError, "seed"),
        (lambda: random.split(7), TypeError, "random.key"),
        (lambda: random.normal(0, 3), TypeError, "key: a Key"),
        (lambda: random.normal(KEY, (2, -1)), ValueError, "shape"),
        (lambda: random.normal(KEY, 3, "int32"), TypeError, "int32"),
        (lambda: random.uniform(KEY, 3, "complex64"), TypeError, "complex64"),
        (lambda: random.uniform(KEY, 3, low=2, high=1), ValueError, "low"),
        (lambda: random.uniform(KEY, 3, low=np.zeros(4)), ValueError, r"low: shape \(4,\)"),
        (lambda: random.bernoulli(KEY, 3, 1.5), ValueError, "probability"),
        (lambda: random.randint(KEY, 3, 5, 5), ValueError, "low < high"),
        (lambda: random.randint(KEY, 3, 0, 300, "uint8"), ValueError, "uint8"),
        (lambda: random.randint(KEY, 3, 0, 3, "float32"), TypeError, "float32"),
        (lambda: random.gamma(KEY, 3, 0.0), ValueError, "positive"),
        (lambda: random.poisson(KEY, 3, -1.0), ValueError, "0 or more"),
        (lambda: random.truncated_normal(KEY, 3, 1, 1), ValueError, "lower"),
        (lambda: random.permutation(KEY, 2.5), TypeError, "int"),
        (lambda: random.uniform(KEY, 3, placements=[spmd.Shard(0)]), ValueError, "without a mesh"),
    ):
        with pytest.raises(kind, match=message):
            call()


def test_a_checkout_that_is_not_installed():
    job = launch(0, "import spmdlayer as spmd; print(spmd.random.randint(spmd.random.key(0), (2,), 5, 6).tolist())")
    assert job.stdout.strip() == "[5, 5]", job.stderr
