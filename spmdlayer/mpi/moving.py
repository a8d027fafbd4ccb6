"""Collectives that move values: allgather, alltoall, bcast, gather, scatter, sendrecv, shift."""

import json

import numpy as np

from ..dtypes import dtype as as_dtype
from ..errors import value_error
from . import primitives
from .groups import common_dtype, line_of, local, one_for_each, rank_of, tell
from .record import nothing_for

_HEADER = 512  # bytes that tell a partner shape and dtype of what comes


def allgather(x, comm=None):
    """A list of every rank's x, by rank; shapes may differ, the dtype may not."""
    line, x = line_of(comm, "allgather"), local(x, "allgather")
    rows = tell(line, [x])
    common_dtype(rows, "allgather")
    return primitives.gathered(line, x, [shapes[0] for shapes, _ in rows])


def alltoall(values, comm=None):
    """A list of what each rank has for this one; `values` is a list with one tensor for each rank, of any shapes."""
    line = line_of(comm, "alltoall")
    blocks = one_for_each(values, line, "alltoall", "values")
    rows = tell(line, blocks)
    dtype = common_dtype(rows, "alltoall")
    return primitives.exchanged(line, blocks, [shapes[line.rank] for shapes, _ in rows], dtype)


def bcast(x, root=0, comm=None):
    """The root's x on every rank; what the others give is not looked at (None will do)."""
    line = line_of(comm, "bcast")
    root = rank_of(root, line, "bcast", "root")
    x = local(x, "bcast") if line.rank == root else None
    shapes, dtype = tell(line, [x])[root]
    return primitives.spread(line, x, root, shapes[0], dtype)


def gather(x, root=0, comm=None):
    """On the root a list of every rank's x (shapes may differ), on the others None."""
    line, x = line_of(comm, "gather"), local(x, "gather")
    root = rank_of(root, line, "gather", "root")
    rows = tell(line, [x])
    dtype = common_dtype(rows, "gather")
    blocks = [x if k == root else None for k in range(line.size)]
    shapes = [shapes[0] if line.rank == root else None for shapes, _ in rows]
    result = primitives.exchanged(line, blocks, shapes, dtype)
    return result if line.rank == root else None


def scatter(values, root=0, comm=None):
    """This rank's part of the root's list `values`, one tensor for each rank; the others may give None."""
    line = line_of(comm, "scatter")
    root = rank_of(root, line, "scatter", "root")
    blocks = one_for_each(values, line, "scatter", "values") if line.rank == root else [None] * line.size
    shapes, dtype = tell(line, blocks)[root]
    wanted = [shapes[line.rank] if k == root else None for k in range(line.size)]
    return primitives.exchanged(line, blocks, wanted, dtype)[root]


def sendrecv(x, dest, source, comm=None):
    """What the rank `source` sent here, while x goes to the rank `dest`.

    Either may be None: then nothing is sent (x is not looked at), or nothing
    comes and the result is None.  Only the partners communicate.
    """
    line = line_of(comm, "sendrecv")
    dest = None if dest is None else rank_of(dest, line, "sendrecv", "dest")
    source = None if source is None else rank_of(source, line, "sendrecv", "source")
    x = None if dest is None else local(x, "sendrecv")
    header = line.sendrecv(None if x is None else _header(x), dest, source, (_HEADER,), np.dtype(np.uint8))
    shape, dtype = (None, None if x is None else x.dtype) if header is None else _read(header)
    if x is not None and dtype is not None and dtype != x.dtype:
        return _different(line, x, dest, source, shape, dtype)
    return primitives.linked(line, x, dest, source, shape, dtype)


def _different(line, x, dest, source, shape, dtype):
    """Two messages of different dtypes are two links."""
    primitives.linked(line, x, dest, None, None, x.dtype)
    return primitives.linked(line, None, None, source, shape, dtype)


def _header(x):
    text = json.dumps([x.shape, x.dtype.name]).encode()
    if len(text) > _HEADER:
        raise value_error(f"sendrecv: x has {x.ndim} dimensions, which is too many")
    return np.frombuffer(text.ljust(_HEADER), np.uint8)


def _read(header):
    shape, name = json.loads(header.tobytes())
    return tuple(shape), as_dtype(name)


def shift(x, n=1, comm=None, periodic=True):
    """x of the rank n places before this one; every rank gives a tensor of one shape and dtype.

    Not periodic: zeros where no rank is there.
    """
    line, x = line_of(comm, "shift"), local(x, "shift")
    ahead, behind = line.rank + n, line.rank - n
    if periodic:
        dest, source = ahead % line.size, behind % line.size
    else:
        dest, source = (k if 0 <= k < line.size else None for k in (ahead, behind))
    result = primitives.linked(line, x, dest, source, x.shape, x.dtype)
    return nothing_for(x) if result is None else result
