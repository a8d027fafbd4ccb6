"""Reductions over the ranks of a group.

MPI's own reductions lose a NaN in max and min, depending on the rank that has
it, and not every MPI knows half precision.  These are reduced by NumPy, half
precision in float32; so are large arrays between two ranks, because that is
faster.  Whatever way is taken, all ranks get the same bits.
"""

import contextvars
import functools
import itertools
import math
import threading
from typing import NamedTuple

import numpy as np

from ..dtypes import check_reducible, is_half
from ..errors import value_error
from . import exchange
from .exchange import contiguous

# From so many bytes on two ranks swap their arrays and reduce them, rather than call Allreduce.
SWAP = 16 << 10
# From so many on they reduce a half each.
HALVES = 1 << 20
# From so many bytes on each rank reduces a slice, where MPI cannot, rather than everything.
SLICE = 32 << 10
# With so many bytes a slice, slices are always faster.
LARGE_SLICE = 2 << 20

_UFUNCS = {
    "sum": np.add,
    "avg": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
    "any": np.logical_or,
    "all": np.logical_and,
}
_OPERATIONS = {"sum": "SUM", "avg": "SUM", "max": "MAX", "min": "MIN", "prod": "PROD", "any": "LOR", "all": "LAND"}
_OPERATIONS_OF_BOOL = _OPERATIONS | {"max": "LOR", "min": "LAND"}


class _Quiet(threading.local):
    """`run(function, *arguments)` without the user's error state, which must not make one rank raise where another
    does not.

    A context that is entered anew costs less than an `errstate`.
    """

    def __init__(self):
        with np.errstate(all="ignore"):
            self.run = contextvars.copy_context().run


_quiet = _Quiet()


class Way(NamedTuple):
    """How values of one dtype are reduced."""

    ufunc: np.ufunc
    accumulator: np.dtype
    operation: str | None  # MPI's, or None where MPI's would be wrong
    mean: bool
    half: bool


@functools.cache
def way(dtype, op):
    """The Way to reduce a dtype; a TypeError where it cannot be reduced by this operation."""
    if op not in _UFUNCS:
        raise value_error(f"op: {op!r} is no reduction; they are {', '.join(_UFUNCS)}")
    check_reducible(dtype, op)
    half = is_half(dtype)
    operation = (_OPERATIONS_OF_BOOL if dtype.kind == "b" else _OPERATIONS)[op]
    if half or (op in ("max", "min") and dtype.kind == "f"):
        operation = None
    return Way(_UFUNCS[op], np.dtype(np.float32) if half else dtype, operation, op == "avg", half)


def prepare_allreduce(channel, shape, dtype, op):
    """A function of an array of this shape and dtype that gives the reduction over all ranks, in a fresh array."""
    how, size = way(dtype, op), math.prod(shape)
    nbytes = size * dtype.itemsize
    if channel.size == 1:
        return contiguous
    if channel.size == 2 and nbytes >= min(HALVES, 2 * LARGE_SLICE):
        prepare = _prepare_halves
    elif nbytes >= channel.size * LARGE_SLICE:
        prepare = _prepare_slices
    elif how.operation is not None and (channel.size > 2 or nbytes < SWAP):
        prepare = _prepare_call
    elif channel.size == 2:
        prepare = _prepare_swap
    elif nbytes < SLICE and size * channel.size <= exchange.CHUNK:
        prepare = _prepare_everything
    else:
        prepare = _prepare_slices
    return prepare(channel, shape, dtype, how)


def _prepare_call(channel, shape, dtype, how):
    """MPI's own reduction."""
    call, operation = channel.mpi.Allreduce, channel.operations[how.operation]
    size, ranks = math.prod(shape), channel.size

    def reduce(x):
        x, out = contiguous(x), np.empty(shape, dtype)
        if size <= exchange.CHUNK:
            call(x, out, operation)
        else:
            x, flat = x.reshape(-1), out.reshape(-1)
            for k in range(0, size, exchange.CHUNK):
                part = slice(k, k + exchange.CHUNK)
                call(x[part], flat[part], operation)
        if how.mean:
            _quiet.run(np.divide, out, ranks, out)
        return out

    return reduce


def _prepare_swap(channel, shape, dtype, how):
    """Two ranks send each other everything and reduce it, in the order of ranks."""
    other, size = 1 - channel.rank, math.prod(shape)
    swap, combine = exchange.swapper(channel.mpi, dtype, size, size, other, other), _combiner(how)

    def reduce(x):
        x, out = contiguous(x), np.empty(shape, dtype)
        swap(x, out)
        first, second = (x, out) if other else (out, x)
        _quiet.run(combine, first, second, out=out)
        return out

    return reduce


def _combiner(how):
    """A function (first, second, out=) of two arrays that reduces them, for a mean divided by two.

    `out` may be one of the two.
    """
    if not (how.half or how.mean):
        return how.ufunc

    def combine(first, second, out):
        total = np.empty(out.shape, np.float32) if how.half else out
        how.ufunc(first, second, out=total, dtype=how.accumulator)
        if how.mean:
            np.divide(total, 2, out=total)
        if total is not out:
            out[...] = total

    return combine


def _prepare_everything(channel, shape, dtype, how):
    """Every rank gets all and reduces all."""
    ranks = channel.size
    gather = exchange.gatherer(channel, dtype, [math.prod(shape)] * ranks)

    def total(everything):
        if how.half:
            everything = everything.astype(np.float32)
        found = how.ufunc.reduce(everything, axis=0, dtype=how.accumulator)
        return (np.divide(found, ranks) if how.mean else np.asarray(found)).astype(dtype, copy=False)

    def reduce(x):
        everything = np.empty((ranks, *shape), dtype)
        gather(contiguous(x), everything)
        return np.asarray(_quiet.run(total, everything))

    return reduce


def _prepare_halves(channel, shape, dtype, how):
    """Two ranks reduce one half each, and swap these."""
    rank, size = channel.rank, math.prod(shape)
    half = (size + 1) // 2
    parts, counts = [slice(0, half), slice(half, size)], [half, size - half]
    mine, theirs, (here, there) = parts[rank], parts[1 - rank], (counts[rank], counts[1 - rank])
    send_theirs = exchange.swapper(channel.mpi, dtype, there, here, 1 - rank, 1 - rank)
    swap = exchange.swapper(channel.mpi, dtype, here, there, 1 - rank, 1 - rank)
    combine = _combiner(how)

    def reduce(x):
        x, out = contiguous(x).reshape(-1), np.empty(size, dtype)
        own = out[mine]
        send_theirs(x[theirs], own)
        _quiet.run(combine, x[mine], own, out=own)
        swap(own, out[theirs])
        return out.reshape(shape)

    return reduce


def _prepare_slices(channel, shape, dtype, how):
    """Every rank reduces one slice, which then all get."""
    size, ranks = math.prod(shape), channel.size
    bounds = [size * k // ranks for k in range(ranks + 1)]
    counts = [stop - start for start, stop in itertools.pairwise(bounds)]
    parts = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
    reduce_blocks = _block_reducer(channel, counts, dtype, how)
    gather = exchange.in_place_gatherer(channel, dtype, counts)

    def reduce(x):
        mine, out = contiguous(x).reshape(-1), np.empty(size, dtype)
        reduce_blocks([mine[part] for part in parts], out[parts[channel.rank]])
        gather(out)
        return out.reshape(shape)

    return reduce


def _block_reducer(channel, counts, dtype, how):
    """A function (blocks, out) that reduces this rank's block over all ranks, one other rank after the other.

    `counts` are the blocks' numbers of elements; `out` is an array in C order.
    """
    comm, rank, size = channel.mpi, channel.rank, channel.size
    if size == 2:
        other = 1 - rank
        swap, combine = exchange.swapper(comm, dtype, counts[other], counts[rank], other, other), _combiner(how)

        def reduce_pair(blocks, out):
            swap(contiguous(blocks[other]), out)
            _quiet.run(combine, blocks[rank], out, out=out)

        return reduce_pair
    peers = [((rank + step) % size, (rank - step) % size) for step in range(1, size)]
    swaps = [(exchange.swapper(comm, dtype, counts[dest], counts[rank], dest, source), dest) for dest, source in peers]

    def reduce_blocks(blocks, out):
        total = blocks[rank]
        target = np.empty(out.shape, np.float32) if how.half else out
        combine = functools.partial(how.ufunc, out=target, dtype=how.accumulator)
        received = out  # the first time; then it holds the sum
        for swap, dest in swaps:
            swap(contiguous(blocks[dest]), received)
            total = _quiet.run(combine, total, received)
            if received is target:
                received = np.empty_like(out)
        if how.mean:
            _quiet.run(np.divide, target, size, target)
        if how.half:
            _quiet.run(np.copyto, out, target, "same_kind")

    return reduce_blocks


def prepare_reduce_scatter(channel, shapes, dtype, op, cuts=None):
    """A function of blocks of these shapes, one for each rank, that gives this rank's, reduced over all ranks.

    With `cuts` of the array that these indices cut the blocks from.
    """
    ranks, rank = channel.size, channel.rank
    if ranks == 2 and cuts is not None:
        counts, prepare = [math.prod(block) for block in shapes], _cut_pair
        if sum(counts) * dtype.itemsize < exchange.PAIRWISE and _scattered_halves(shapes, cuts):
            prepare = _packed_pair
        return prepare(channel, counts, shapes[rank], dtype, way(dtype, op), cuts)
    return exchange.of_blocks(_prepare_reduce_scatter(channel, shapes, dtype, way(dtype, op)), cuts)


def _cut_pair(channel, counts, shape, dtype, how, cuts):
    """Two ranks reduce a block of an array each: with as few calls as can be."""
    rank, other = channel.rank, 1 - channel.rank
    mine, theirs = cuts[rank], cuts[other]
    swap, combine = exchange.swapper(channel.mpi, dtype, counts[other], counts[rank], other, other), _combiner(how)

    def reduce(array):
        out, block = np.empty(shape, dtype), array[theirs]
        swap(block if block.flags.c_contiguous else block.copy(), out)
        _quiet.run(combine, array[mine], out, out=out)
        return out

    return reduce


def _scattered_halves(shapes, cuts):
    """Whether two blocks are the equal halves of an array, each scattered in it."""
    dim, half = len(cuts[0]) - 1, cuts[0][-1]
    equal = shapes[0] == shapes[1] and half == slice(0, shapes[0][dim])
    return equal and cuts[1][-1].start == half.stop and math.prod(shapes[0][:dim]) > 1


def _packed_pair(channel, counts, shape, dtype, how, cuts):
    """The same for small scattered halves: they are copied together, because NumPy adds scattered ones slowly."""
    rank, other, dim = channel.rank, 1 - channel.rank, len(cuts[0]) - 1
    split, order = (*shape[:dim], 2, *shape[dim:]), (dim, *range(dim), *range(dim + 1, len(shape) + 1))
    swap, combine = exchange.swapper(channel.mpi, dtype, counts[other], counts[rank], other, other), _combiner(how)

    def reduce(array):
        halves, out = array.reshape(split).transpose(order).copy(), np.empty(shape, dtype)
        swap(halves[other], out)
        _quiet.run(combine, halves[rank], out, out=out)
        return out

    return reduce


def _prepare_reduce_scatter(channel, shapes, dtype, how):
    """The same of blocks."""
    ranks, rank = channel.size, channel.rank
    if ranks == 1:
        return lambda blocks: contiguous(blocks[0])
    counts, shape = [math.prod(block) for block in shapes], shapes[rank]
    if ranks > 2 and how.operation is not None and sum(counts) * dtype.itemsize < SWAP:
        call, operation = channel.mpi.Reduce_scatter, channel.operations[how.operation]

        def reduce(blocks):
            packed, out = np.concatenate([contiguous(block).reshape(-1) for block in blocks]), np.empty(shape, dtype)
            call(packed, out, counts, operation)
            if how.mean:
                _quiet.run(np.divide, out, ranks, out)
            return out

        return reduce
    reduce_blocks = _block_reducer(channel, counts, dtype, how)

    def reduce_apart(blocks):
        out = np.empty(shape, dtype)
        reduce_blocks(blocks, out)
        return out

    return reduce_apart
