"""Arrays that change ranks without being reduced, against slices of the whole array."""

import numpy as np
import pytest
from mpi_helpers import assert_all

from spmdlayer.comm import channel, exchange
from spmdlayer.mesh import init_mesh

pytestmark = pytest.mark.mpi

DTYPES = ["bool", "int8", "int64", "float16", "float32", "float64", "longdouble", "complex64", "complex128", "bfloat16"]


@pytest.fixture
def line():
    from mpi4py import MPI

    return channel(init_mesh((MPI.COMM_WORLD.size,), ("x",)), None)


def as_dtype(name):
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def piece(rank, shape, dtype="float64"):
    """An array that says which rank it is from; small integers, exact in every dtype."""
    return np.asarray((np.arange(np.prod(shape, dtype=int)) % 9 + rank).reshape(shape)).astype(dtype)


def same(got, want):
    return type(got) is np.ndarray and got.dtype == want.dtype and got.shape == want.shape and bool(np.all(got == want))


@pytest.mark.parametrize("name", DTYPES)
def test_allgather_of_uneven_pieces(line, name):
    dtype = as_dtype(name)
    for shapes in (
        [(2, 3)] * line.size,
        [(rank, 3) for rank in range(line.size)],  # the first is empty
        [(5 * (rank == line.size - 1),) for rank in range(line.size)],  # all but the last are
        [()] * line.size,
        [(0,)] * line.size,
    ):
        got = line.allgather(piece(line.rank, shapes[line.rank], dtype), shapes)
        want = [piece(rank, shape, dtype) for rank, shape in enumerate(shapes)]
        assert_all(len(got) == len(want) and all(map(same, got, want)), f"{got} instead of {want}")


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("name", ["float64", "bfloat16", "bool"])
def test_allgather_into_a_dimension(line, dim, rows, name):
    for sizes in ([2] * line.size, list(range(line.size)), [0] * line.size):
        shape = [rows, 3, 4]
        shape[dim] = sum(sizes)
        whole = np.asarray(np.arange(np.prod(shape)) % 7).reshape(shape).astype(as_dtype(name))
        mine = np.split(whole, np.cumsum(sizes)[:-1], axis=dim)[line.rank]
        got = line.allgather_into_dim(mine, dim, sizes)
        assert_all(same(got, whole) and got.flags.c_contiguous, f"{got} instead of {whole}")


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("empty", [0, -1])
def test_allgather_with_an_empty_rank_among_large_ones(line, dim, empty):
    """All ranks must take the same way, though one has nothing to measure it by."""
    sizes = [7] * line.size
    sizes[empty] = 0
    shape = [30, 30, 400]
    shape[dim] = sum(sizes)
    whole = np.arange(np.prod(shape), dtype=float).reshape(shape)
    mine = np.split(whole, np.cumsum(sizes)[:-1], axis=dim)[line.rank]
    assert_all(same(line.allgather_into_dim(mine, dim, sizes), whole))


@pytest.mark.parametrize("name", DTYPES)
def test_alltoall_with_empty_blocks(line, name):
    dtype = as_dtype(name)
    for shape_of in (
        lambda source, dest: (2, 2),
        lambda source, dest: (source, dest + 1),
        lambda source, dest: (3 * (dest == (source + 1) % line.size),),  # one way round only
        lambda source, dest: (0, 4),
        lambda source, dest: (),
    ):
        blocks = [piece(line.rank + 2 * dest, shape_of(line.rank, dest), dtype) for dest in range(line.size)]
        shapes = [shape_of(source, line.rank) for source in range(line.size)]
        got = line.alltoall(blocks, shapes)
        want = [piece(source + 2 * line.rank, shape, dtype) for source, shape in enumerate(shapes)]
        assert_all(len(got) == len(want) and all(map(same, got, want)), f"{got} instead of {want}")


@pytest.mark.parametrize("name", DTYPES)
def test_bcast(line, name):
    dtype = as_dtype(name)
    for root in range(line.size):
        for shape in ((), (0,), (3, 2)):
            x = piece(root, shape, dtype)
            got = line.bcast(x if line.rank == root else None, root, shape, dtype)
            assert_all(same(got, x), f"{got} instead of {x}")


@pytest.mark.parametrize("length", range(14))
def test_messages_above_the_largest_count(line, monkeypatch, length):
    monkeypatch.setattr(exchange, "CHUNK", 4)
    shapes = [(length,), (3,), (length + 2,), (0,)][: line.size]
    got = line.allgather(piece(line.rank, shapes[line.rank]), shapes)
    assert_all(all(map(same, got, [piece(rank, shape) for rank, shape in enumerate(shapes)])))
    blocks = [piece(line.rank, shapes[dest]) for dest in range(line.size)]
    got = line.alltoall(blocks, [shapes[line.rank]] * line.size)
    assert_all(all(map(same, got, [piece(source, shapes[line.rank]) for source in range(line.size)])))
    root = line.size - 1
    got = line.bcast(piece(root, (length,)) if line.rank == root else None, root, (length,), np.dtype(float))
    assert_all(same(got, piece(root, (length,))))


FORMS = {
    "columns": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "big-endian": lambda x: x.astype(">f8"),
    "read-only": lambda x: np.frombuffer(x.tobytes()).reshape(x.shape),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_memory_layout(line, form):
    shape = (3, 4)
    x = FORMS[form](piece(line.rank, shape))
    want = [piece(rank, shape) for rank in range(line.size)]
    got = line.allgather(x, [shape] * line.size)
    assert_all(all(map(same, got, want)), f"{got} instead of {want}")
    for dim in (0, 1):
        assert_all(same(line.allgather_into_dim(x, dim, [shape[dim]] * line.size), np.concatenate(want, axis=dim)))
    got = line.alltoall([x[:, dest % 4 :] for dest in range(line.size)], [(3, 4 - line.rank)] * line.size)
    assert_all(all(map(same, got, [array[:, line.rank :] for array in want])))
    got = line.bcast(x if line.rank == 0 else None, 0, shape, np.dtype(float))
    assert_all(same(got, want[0]))


@pytest.mark.mpi(min_size=2)
def test_results_share_no_memory_with_the_input(line):
    """But for what a rank has itself, in `alltoall` and as the root of `bcast`."""
    x = np.ones(4)
    received = line.alltoall([x] * line.size, [(4,)] * line.size)
    del received[line.rank]
    for got in (*line.allgather(x, [(4,)] * line.size), line.allgather_into_dim(x, 0, [4] * line.size), *received):
        assert_all(not np.shares_memory(got, x) and got.flags.writeable)


@pytest.mark.parametrize("length", [0, 1, 507, 508, 509, 512, 513, 5000])
def test_record(line, length):
    for kind in (bytes, bytearray, memoryview):
        data = [bytes([rank + 1]) * (length if rank == line.size - 1 else rank) for rank in range(line.size)]
        got = line.record(kind(data[line.rank]))
        assert_all(all(type(part) is bytes for part in got) and got == data, f"{got} instead of {data}")
