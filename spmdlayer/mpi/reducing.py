"""Collectives that reduce values: allreduce, reduce, reduce_scatter, scan."""

from functools import cache

from ..dtypes import check_reducible
from ..errors import type_error, value_error
from ..ops import reductions
from ..ops.shape import stack
from ..placement import Partial, ReduceType
from ..runtime import mpi
from . import primitives
from .groups import common_dtype, line_of, local, one_for_each, rank_of, tell
from .record import recorded

_LINEAR = ("sum", "avg")
_OVER_RANKS = {"prod": reductions.prod, "max": reductions.max, "min": reductions.min}


@cache
def _mpi_operations():
    MPI = mpi()
    names = {"SUM": "sum", "PROD": "prod", "MAX": "max", "MIN": "min", "LOR": "any", "LAND": "all"}
    return [(getattr(MPI, name), ours) for name, ours in names.items()]


def _operation(op, dtype, name):
    """A reduction's name, from a name, a ReduceType or mpi4py's operation; checked for the dtype."""
    if isinstance(op, (str, ReduceType)):
        found = Partial(op).op
    else:
        found = next((ours for theirs, ours in _mpi_operations() if op == theirs), None)
    if found is None:
        raise type_error(
            f"{name}: op: {op!r} is no reduction; give 'sum', 'avg', 'max', 'min', 'prod', 'any' or 'all', or "
            "mpi4py's SUM, MAX, MIN, PROD, LOR or LAND"
        )
    check_reducible(dtype, found)
    return found


def allreduce(x, op="sum", comm=None):
    """The elementwise reduction of every rank's x, on every rank.

    Parameters
    ----------
    x : local Tensor, array or number, of one shape and dtype on all ranks
    op : "sum", "avg", "max", "min", "prod", "any" or "all", or mpi4py's operation

    The gradient of max and min goes to where they are attained, in equal
    parts; that of prod is exact where a factor is 0 (x is gathered for it).
    """
    line, x = line_of(comm, "allreduce"), local(x, "allreduce")
    op = _operation(op, x.dtype, "allreduce")
    if op in _LINEAR:
        return primitives.summed(line, x, op)
    if op in ("any", "all"):
        return recorded(line, [x], [line.allreduce(x._data, op)], x.dtype, None)[0]
    if op == "prod":
        return reductions.prod(stack(primitives.gathered(line, x, [x.shape] * line.size)), axis=0)
    return primitives.extreme(line, x, op)


def reduce(x, op="sum", root=0, comm=None):
    """`allreduce` for the root alone; None on the other ranks."""
    line = line_of(comm, "reduce")
    root = rank_of(root, line, "reduce", "root")
    result = allreduce(local(x, "reduce"), op, comm)
    return result if line.rank == root else None


def reduce_scatter(values, op="sum", comm=None):
    """The reduction of what all ranks have for this one.

    Parameters
    ----------
    values : list with a tensor for each rank; number k has one shape on all ranks
    op : as for `allreduce`
    """
    line = line_of(comm, "reduce_scatter")
    blocks = one_for_each(values, line, "reduce_scatter", "values")
    op = _operation(op, blocks[0].dtype, "reduce_scatter")
    rows = tell(line, blocks)
    dtype = common_dtype(rows, "reduce_scatter")
    for rank, (shapes, _) in enumerate(rows):
        if shapes != rows[0][0]:
            raise value_error(
                f"reduce_scatter: values have shapes {rows[0][0]} on rank 0 and {shapes} on rank {rank}; number k "
                "needs one shape on all ranks"
            )
    if op in _LINEAR:
        return primitives.scattered_sum(line, blocks, op)
    if op in ("any", "all"):
        return recorded(line, [], [line.reduce_scatter([block._data for block in blocks], op)], dtype, None)[0]
    given = primitives.exchanged(line, blocks, [blocks[line.rank].shape] * line.size, dtype)
    return _OVER_RANKS[op](stack(given), axis=0)


def scan(x, op="sum", comm=None):
    """The reduction over this rank and all before it; x of one shape and dtype on all ranks.

    For other reductions than sum every rank's x is gathered.
    """
    line, x = line_of(comm, "scan"), local(x, "scan")
    op = _operation(op, x.dtype, "scan")
    if op == "sum":
        return primitives.running_sum(line, x)
    known = stack(primitives.gathered(line, x, [x.shape] * line.size)[: line.rank + 1])
    if op in ("any", "all"):
        return (reductions.any if op == "any" else reductions.all)(known, axis=0)
    return reductions.mean(known, axis=0) if op == "avg" else _OVER_RANKS[op](known, axis=0)
