"""Reductions over the ranks of a group.

MPI's own reductions lose a NaN in max and min, depending on the rank that has
it, and not every MPI knows half precision.  These are reduced by NumPy, half
precision in float32; so are large arrays between two ranks, because that is
faster.  Whatever way is taken, all ranks get the same bits.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np

from ..dtypes import check_reducible, is_half
from ..errors import value_error
from . import exchange
from .exchange import contiguous, gather_in_place, native, sendrecv, wire

# From so many bytes on two ranks swap their arrays and reduce them, rather than call Allreduce.
SWAP = 16 << 10
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

# The user's error state must not make one rank raise where another does not.
_quiet = np.errstate(all="ignore")


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


def allreduce(channel, x, op):
    """The reduction over all ranks, on every rank, in a fresh array."""
    x = contiguous(x)
    how = way(x.dtype, op)
    if channel.size == 1:
        return x
    out = np.empty(x.shape, x.dtype)
    _choose(channel, x, how)(channel, x, out, how)
    return out


def _choose(channel, x, how):
    """The function that reduces an array of this size; the same on every rank."""
    size, nbytes = channel.size, x.nbytes
    if nbytes >= size * LARGE_SLICE:
        return _reduce_slices
    if how.operation is not None and (size > 2 or nbytes < SWAP):
        return _call
    if size == 2:
        return _swap
    return _reduce_everything if nbytes < SLICE and x.size * size <= exchange.CHUNK else _reduce_slices


def _call(channel, x, out, how):
    """MPI's own reduction."""
    operation = channel.operations[how.operation]
    if x.size <= exchange.CHUNK:
        channel.mpi.Allreduce(x, out, operation)
    else:
        x, flat = x.reshape(-1), out.reshape(-1)
        for k in range(0, x.size, exchange.CHUNK):
            part = slice(k, k + exchange.CHUNK)
            channel.mpi.Allreduce(x[part], flat[part], operation)
    if how.mean:
        _divide(out, channel.size)


@_quiet
def _divide(out, ranks):
    np.divide(out, ranks, out=out)


@_quiet
def _swap(channel, x, out, how):
    """Two ranks send each other everything and reduce it, in the order of ranks."""
    other = 1 - channel.rank
    sendrecv(channel.mpi, x, other, out, other)
    first, second = (x, out) if other else (out, x)
    total = np.empty(out.shape, np.float32) if how.half else out
    how.ufunc(first, second, out=total, dtype=how.accumulator)
    _finish(total, out, how, 2)


def _finish(total, out, how, ranks):
    """Put a reduction from the accumulator into its place, for a mean divided."""
    if how.mean:
        np.divide(total, ranks, out=total)
    if total is not out:
        out[...] = total


@_quiet
def _reduce_everything(channel, x, out, how):
    """Every rank gets all and reduces all."""
    everything = np.empty((channel.size, *x.shape), x.dtype)
    if x.size:
        channel.mpi.Allgather(wire(x), wire(everything))
    if how.half:
        everything = everything.astype(np.float32)
    total = np.empty(out.shape, np.float32) if how.half else out
    how.ufunc.reduce(everything, axis=0, dtype=how.accumulator, out=total)
    _finish(total, out, how, channel.size)


def _reduce_slices(channel, x, out, how):
    """Every rank reduces one slice, which then all get."""
    mine, out, size = x.reshape(-1), out.reshape(-1), channel.size
    bounds = [mine.size * k // size for k in range(size + 1)]
    parts = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
    _reduce_blocks(channel, [mine[part] for part in parts], out[parts[channel.rank]], how)
    gather_in_place(channel, out, [part.stop - part.start for part in parts])


@_quiet
def _reduce_blocks(channel, blocks, out, how):
    """This rank's block reduced over all ranks into an array in C order, one other rank after the other."""
    comm, rank, size = channel.mpi, channel.rank, channel.size
    total = blocks[rank]
    target = np.empty(out.shape, np.float32) if how.half else out
    received = out  # the first time; then it holds the sum
    for step in range(1, size):
        dest, source = (rank + step) % size, (rank - step) % size
        sendrecv(comm, contiguous(blocks[dest]), dest, received, source)
        total = how.ufunc(total, received, out=target, dtype=how.accumulator)
        if step == 1 and size > 2 and not how.half:
            received = np.empty_like(out)
    _finish(target, out, how, size)


def reduce_scatter(channel, blocks, op):
    """This rank's block reduced over all ranks."""
    own, size = blocks[channel.rank], channel.size
    how = way(native(own.dtype), op)
    if size == 1:
        return contiguous(own)
    out = np.empty(own.shape, native(own.dtype))
    if size > 2 and how.operation is not None and sum(block.nbytes for block in blocks) < SWAP:
        packed = np.concatenate([contiguous(block).reshape(-1) for block in blocks])
        channel.mpi.Reduce_scatter(packed, out, [block.size for block in blocks], channel.operations[how.operation])
        if how.mean:
            _divide(out, size)
    else:
        _reduce_blocks(channel, blocks, out, how)
    return out
