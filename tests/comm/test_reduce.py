"""Reductions over ranks, against NumPy on all the ranks' arrays."""

import itertools

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises

from spmdlayer.comm import Channel, channel, exchange
from spmdlayer.mesh import init_mesh

pytestmark = pytest.mark.mpi

REALS = ("float32", "float64", "longdouble")
COMPLEX = ("complex64", "complex128")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")
CASES = [
    *itertools.product(("sum", "prod", "max", "min"), INTS + REALS),
    *itertools.product(("avg",), REALS + COMPLEX),
    *itertools.product(("sum", "prod"), COMPLEX),
    *itertools.product(("any", "all", "max", "min"), ("bool",)),
]
# One element; below and above where the algorithm changes.
SHAPES = [(), (0,), (3, 0, 2), (7,), (5, 3), (9001,)]
REDUCE = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


@pytest.fixture
def line():
    from mpi4py import MPI

    return channel(init_mesh((MPI.COMM_WORLD.size,), ("x",)), 0)


def values(rank, shape, dtype, seed=0):
    """Small values, the same wherever they are made: any order of summation gives the same."""
    rng = np.random.default_rng((seed, rank))
    whole = rng.integers(-2 if np.dtype(dtype).kind != "u" else 0, 3, shape)
    if np.dtype(dtype).kind == "c":
        whole = whole + 1j * rng.integers(-2, 3, shape)
    return np.asarray(whole).astype(dtype)


def expected(arrays, op):
    total = arrays[0]
    for array in arrays[1:]:
        total = REDUCE[op](total, array)
    return np.asarray(total / len(arrays) if op == "avg" else total).astype(arrays[0].dtype)


def assert_equal(got, want):
    same = type(got) is np.ndarray and got.dtype == want.dtype and got.shape == want.shape
    assert_all(same and np.array_equal(got, want, equal_nan=want.dtype.kind in "fc"), f"{got!r} instead of {want!r}")


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_allreduce(line, op, dtype):
    for shape in SHAPES:
        arrays = [values(rank, shape, dtype) for rank in range(line.size)]
        assert_equal(line.allreduce(arrays[line.rank], op), expected(arrays, op))


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_reduce_scatter(line, op, dtype):
    for length in (0, 1, line.size, 2 * line.size + 1, 9001):
        wholes = [values(rank, (length, 2), dtype, 1) for rank in range(line.size)]
        blocks = np.array_split(wholes[line.rank], line.size)
        want = np.array_split(expected(wholes, op), line.size)[line.rank]
        assert_equal(line.reduce_scatter(blocks, op), want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["sum", "avg", "prod", "max", "min"])
@pytest.mark.parametrize("length", [0, 1, 40, 20001])
def test_half_precision(line, dtype, op, length):
    """Accumulated in float32: 1/1024 beside 1 is lost in a half-precision sum, one term after the other."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    arrays = [(values(rank, (length,), "float32", 2) / 8 + 2.0**-9).astype(dtype) for rank in range(line.size)]
    wide = expected([array.astype(np.float32) for array in arrays], op)
    assert_equal(line.allreduce(arrays[line.rank], op), wide.astype(dtype))
    blocks = np.array_split(arrays[line.rank], line.size)
    want = np.array_split(wide, line.size)[line.rank].astype(dtype)
    got = line.reduce_scatter(blocks, op)
    close = np.allclose(got.astype(float), want.astype(float), rtol=2.0**-7, atol=0)  # another order of summation
    assert_all(got.dtype == want.dtype and got.shape == want.shape and close, f"{got} instead of {want}")


@pytest.mark.mpi(min_size=2)
def test_half_precision_overflows_to_infinity(line):
    got = line.allreduce(np.array([60000, 1], np.float16), "sum")
    assert_equal(got, np.array([np.inf, line.size], np.float16))
    # The sum is beyond float16, the mean is not.
    assert_equal(line.allreduce(np.array([60000], np.float16), "avg"), np.array([60000], np.float16))


@pytest.mark.parametrize("op", ["max", "min", "sum", "prod"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("length", [2, 20001])
def test_nan_is_kept_whichever_rank_has_it(line, op, dtype, length):
    for holder in range(line.size):
        x = np.ones(length, dtype)
        if line.rank == holder:
            x[0] = x[-1] = np.nan
        got = line.allreduce(x, op)
        one = line.size if op == "sum" else 1
        want = np.full(length, one, dtype)
        want[0] = want[-1] = np.nan
        assert_equal(got, want)
        blocks = np.array_split(x, line.size)
        assert_equal(line.reduce_scatter(blocks, op), np.array_split(want, line.size)[line.rank])


@pytest.mark.parametrize("op", ["sum", "prod", "avg"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("length", [5, 3000, 30001])
def test_same_bits_on_every_rank(line, op, dtype, length):
    rng = np.random.default_rng((7, line.rank))
    x = rng.standard_normal(length)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(length)
    results = line.mpi.allgather(line.allreduce(x.astype(dtype), op).tobytes())
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "complex128"])
@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("length", range(14))
def test_messages_above_the_largest_count(line, monkeypatch, dtype, op, length):
    monkeypatch.setattr(exchange, "CHUNK", 4)
    if dtype == "complex128" and op == "max":
        pytest.skip("complex numbers have no order")
    x = (np.arange(length) + line.rank).astype(dtype)
    factor, offset = (line.size, sum(range(line.size))) if op == "sum" else (1, line.size - 1)
    want = (factor * np.arange(length) + offset).astype(dtype)
    assert_equal(line.allreduce(x, op), want)
    assert_equal(line.reduce_scatter(np.array_split(x, line.size), op), np.array_split(want, line.size)[line.rank])


FORMS = {
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "every other": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "big-endian": lambda x: x.astype(">f8"),
    "read-only": lambda x: np.frombuffer(x.tobytes()).reshape(x.shape),
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("rows", [4, 900])
def test_any_memory_layout(line, form, op, rows):
    """mpi4py refuses strided arrays, and transposes those in Fortran order without a word."""
    formed = [FORMS[form](np.arange(rows * 6.0).reshape(rows, 6) * (rank + 1)) for rank in range(line.size)]
    native = [np.array(x, "f8", order="C") for x in formed]
    x = formed[line.rank]
    got = line.allreduce(x, op)
    assert_equal(got, expected(native, op))
    assert_all(got.flags.c_contiguous)
    got = line.reduce_scatter(np.array_split(x, line.size, axis=1), op)
    assert_equal(got, np.array_split(expected(native, op), line.size, axis=1)[line.rank])
    assert_all(np.array_equal(x, native[line.rank]), "the input was written to")


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("length", [0, 3, 9001])
def test_results_are_fresh_and_writable(line, length):
    x = np.ones(length)
    blocks = np.array_split(x, line.size)
    for got in (line.allreduce(x, "sum"), line.allreduce(x, "max"), line.reduce_scatter(blocks, "sum")):
        assert_all(not np.shares_memory(got, x) and got.flags.writeable and got.flags.c_contiguous)


def test_repeated_reductions_of_a_long_vector(line):
    """A million elements, to the last one: no buffer is used again while somebody needs it."""
    x = np.arange(1e6)
    for _ in range(8):
        x = line.allreduce(0.5 * x, "sum")
    assert_all(np.array_equal(x, np.arange(1e6) * (0.5 * line.size) ** 8))


@pytest.mark.parametrize(
    ("op", "dtype", "words"),
    [
        ("sum", "bool", "'sum'.*bool"),
        ("avg", "int32", "'avg'.*int32"),
        ("max", "complex128", "'max'.*complex128"),
        ("any", "float64", "'any'.*float64"),
    ],
)
def test_dtypes_unfit_for_a_reduction(line, op, dtype, words):
    with parallel_raises(TypeError, words):
        line.allreduce(np.zeros(3, dtype), op)
    with parallel_raises(TypeError, words):
        line.reduce_scatter([np.zeros(3, dtype)] * line.size, op)


def test_unknown_reduction(line):
    with parallel_raises(ValueError, "median.*sum"):
        line.allreduce(np.zeros(3), "median")


def test_one_rank_alone_never_calls_mpi():
    from mpi4py import MPI

    alone = Channel(MPI.COMM_SELF, "alone")
    alone.mpi = None
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    for got in (
        alone.allreduce(x, "sum"),
        alone.allreduce(x, "avg"),
        alone.reduce_scatter([x], "max"),
        *alone.allgather(x, [x.shape]),
        alone.allgather_into_dim(x, 1, [3]),
        *alone.alltoall([x], [x.shape]),
        alone.bcast(x, 0, x.shape, x.dtype),
    ):
        assert got.flags.c_contiguous
        assert np.array_equal(got, x)
    assert alone.record(b"abc") == [b"abc"]
