"""Every way that sizes choose between, taken with small arrays by moving the sizes."""

import numpy as np
import pytest
from mpi_helpers import assert_all

from spmdlayer.comm import channel, exchange, reduce
from spmdlayer.mesh import init_mesh
from spmdlayer.runtime import get_world_size

pytestmark = pytest.mark.mpi

NEVER = 1 << 60
WAYS = {
    "MPI's own": {"SWAP": NEVER, "SLICE": NEVER, "LARGE_SLICE": NEVER},
    "swapped": {"SWAP": 0, "SLICE": NEVER, "LARGE_SLICE": NEVER},
    "slices where MPI cannot": {"SWAP": NEVER, "SLICE": 0, "LARGE_SLICE": NEVER},
    "slices": {"SWAP": 0, "SLICE": 0, "LARGE_SLICE": 0},
}
KINDS = [
    ("sum", "float64"),
    ("avg", "float32"),
    ("prod", "complex128"),
    ("max", "float32"),
    ("min", "int16"),
    ("sum", "float16"),
    ("avg", "float16"),
    ("max", "float16"),
    ("any", "bool"),
    ("all", "bool"),
]
REDUCE = {
    "sum": lambda arrays: sum(arrays),
    "avg": lambda arrays: sum(arrays) / len(arrays),
    "prod": lambda arrays: np.prod(arrays, axis=0),
    "max": lambda arrays: np.max(arrays, axis=0),
    "min": lambda arrays: np.min(arrays, axis=0),
    "any": lambda arrays: np.any(arrays, axis=0),
    "all": lambda arrays: np.all(arrays, axis=0),
}


@pytest.fixture
def line():
    return channel(init_mesh((get_world_size(),), ("x",)), 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("op", "dtype"), KINDS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 7)])
def test_reductions(line, monkeypatch, way, op, dtype, shape):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(reduce, name, value)
    arrays = [np.asarray(np.random.default_rng(rank).integers(0, 3, shape)).astype(dtype) for rank in range(line.size)]
    wide = [array.astype("float32") if dtype == "float16" else array for array in arrays]
    want = np.asarray(REDUCE[op](wide)).astype(dtype)
    got = line.allreduce(arrays[line.rank], op)
    close = np.allclose(got, want, rtol=2.0**-20 if dtype != "float16" else 2.0**-10, atol=0)
    assert_all(got.shape == shape and got.dtype == want.dtype and close, f"{got} instead of {want}")
    bits = line.mpi.allgather(got.tobytes())
    assert all(other == bits[0] for other in bits)
    got = line.reduce_scatter([arrays[line.rank]] * line.size, op)
    close = np.allclose(got, want, rtol=2.0**-20 if dtype != "float16" else 2.0**-10, atol=0)
    assert_all(got.shape == shape and got.dtype == want.dtype and close, f"{got} instead of {want}")


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("way", WAYS)
def test_the_users_error_state_stops_no_rank(line, monkeypatch, way):
    """Raised on one rank, in the middle of a reduction, it would leave the others waiting."""
    for name, value in WAYS[way].items():
        monkeypatch.setattr(reduce, name, value)
    with np.errstate(all="raise"):
        infinite = line.allreduce(np.array([np.inf if line.rank else -np.inf, 1.0]), "sum")
        overflowed = line.allreduce(np.full(3, 60000, np.float16), "sum")
        huge = line.allreduce(np.full(3, 3e38, np.float32), "avg")
    assert_all(np.isnan(infinite[0]) and infinite[1] == line.size)
    assert_all(np.isposinf(overflowed).all() and np.isposinf(huge).all())


def _table(source, dest, shape, dtype):
    return (np.arange(np.prod(shape, dtype=int)) % 5 + 10 * source + dest).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bool", "complex64"])
@pytest.mark.parametrize("sizes_of", [lambda n: [2] * n, lambda n: list(range(n)), lambda n: [0] * n])
@pytest.mark.parametrize("chunk", [4, 1 << 30])
def test_alltoall_into_a_dimension(line, monkeypatch, dim, dtype, sizes_of, chunk):
    monkeypatch.setattr(exchange, "CHUNK", chunk)
    sizes = sizes_of(line.size)

    def block(source, dest):
        shape = [2, 3, dest + 1]  # to each rank another shape, the same from all but along dim
        shape[dim] = sizes[source]
        return _table(source, dest, shape, dtype)

    blocks = [block(line.rank, dest) for dest in range(line.size)]
    want = np.concatenate([block(source, line.rank) for source in range(line.size)], axis=dim)
    for form in (lambda x: x, np.asfortranarray, lambda x: np.repeat(x, 2, axis=2)[:, :, ::2]):
        got = line.alltoall_into_dim([form(x) for x in blocks], dim, sizes)
        good = got.shape == want.shape and got.dtype == want.dtype and got.flags.c_contiguous
        assert_all(good and np.array_equal(got, want), f"{got} instead of {want}")


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("chunk", [4, 1 << 30])
@pytest.mark.parametrize("pairwise", [0, NEVER])
def test_allgather_into_a_dimension(line, monkeypatch, dim, chunk, pairwise):
    monkeypatch.setattr(exchange, "CHUNK", chunk)
    monkeypatch.setattr(exchange, "PAIRWISE", pairwise)
    for sizes in ([2] * line.size, list(range(line.size)), [0] * line.size):
        shape = [2, 3, 2]
        shape[dim] = sum(sizes)
        whole = np.arange(np.prod(shape)).reshape(shape)
        mine = np.split(whole, np.cumsum(sizes)[:-1], axis=dim)[line.rank]
        for x in (mine, np.asfortranarray(mine)):
            got = line.allgather_into_dim(x, dim, sizes)
            assert_all(got.flags.c_contiguous and np.array_equal(got, whole), f"{got} instead of {whole}")


def test_the_halves_of_large_arrays(line):
    """As large as real ones, without sizes moved."""
    x = np.arange(2.0**20 + 3) * (line.rank + 1)
    want = np.arange(2.0**20 + 3) * (line.size * (line.size + 1) / 2)
    assert_all(np.array_equal(line.allreduce(x, "sum"), want))


@pytest.mark.parametrize(("op", "dtype"), KINDS)
@pytest.mark.parametrize("pairwise", [0, NEVER])
@pytest.mark.parametrize(("shape", "dim"), [((5, 12), 1), ((5, 7), 1), ((12, 3), 0), ((2, 12, 3), 1), ((2, 3, 12), 2)])
def test_a_reduced_part_of_an_array(line, monkeypatch, op, dtype, pairwise, shape, dim):
    """Each rank's part of one array, equal parts and others, packed first and not."""
    monkeypatch.setattr(exchange, "PAIRWISE", pairwise)
    arrays = [np.random.default_rng(rank).integers(0, 3, shape).astype(dtype) for rank in range(line.size)]
    wide = [array.astype("float32") if dtype == "float16" else array for array in arrays]
    want = np.array_split(np.asarray(REDUCE[op](wide)).astype(dtype), line.size, axis=dim)
    stops = np.cumsum([0] + [part.shape[dim] for part in want])
    cuts = [(slice(None),) * dim + (slice(int(a), int(b)),) for a, b in zip(stops, stops[1:])]
    reduce_part = line.prepare_reduce_scatter([part.shape for part in want], want[0].dtype, op, cuts)
    for form in (lambda x: x, np.asfortranarray):
        got, right = reduce_part(form(arrays[line.rank])), want[line.rank]
        close = np.allclose(got, right, rtol=2.0**-20 if dtype != "float16" else 2.0**-10, atol=0)
        good = got.shape == right.shape and got.dtype == right.dtype and got.flags.c_contiguous
        assert_all(good and close, f"{got} instead of {right}")
