"""Where values are: searchsorted, digitize, nonzero, flatnonzero, argwhere, isin."""

import numpy as np

from ..autograd.tensor import asarray, install, wrap
from ..errors import value_error
from ..layout import Layout
from ..placement import Partial, Shard
from ..redistribute.reshard import reshard_to
from .owners import group, group_rows
from .registry import apply, define
from .rules import REPLICATE, Rule, layout_like, replicated, replicated_layout, stated
from .shape import operand, ravel
from .taking import take


def is_outside(x):
    """Whether this rank is not among those of a tensor's mesh, so that it has a placeholder."""
    return x._spec is not None and x._spec.mesh.coordinate is None


def value_everywhere(x):
    """The whole value of a tensor or array as a raw array, on every rank; gathers a distributed one."""
    x = asarray(x)
    if x._spec is None or is_outside(x):
        return x._data
    return reshard_to(x, replicated_layout(x._spec.layout.mesh_shape, x.shape))._data


# Places in a sorted line -----------------------------------------------------


def _nbytes(call, number):
    return np.prod(call.shapes[number], dtype=float) * getattr(call.dtypes[number], "itemsize", 8)


@stated("over a sharded sorted line the counts are Partial sums; else as the values lie", "nothing")
def _search_rule(call):
    """Counts in the pieces of the sorted line add up; elsewhere the result lies as the values do."""
    line_is_smaller = _nbytes(call, 0) <= _nbytes(call, 1)
    placed = []
    for k in call.axes:
        line, values = call.placement(0, k), call.placement(1, k)
        if values.kind == "shard" and (line.kind != "shard" or line_is_smaller):
            placed.append((REPLICATE, values, values))
        elif line.kind == "shard":
            placed.append((line, REPLICATE, Partial("sum")))
        else:
            placed.append((REPLICATE,) * 3)
    return _placed_rule(call, placed)


def _placed_rule(call, placed):
    """The rule with these placements, a triple for each mesh axis; the result has the second operand's shape."""
    first, second, third = zip(*placed)
    same = list(range(len(call.shapes[1])))
    source = layout_like(call.mesh_shape, first, call.shapes[0], [(call.layouts[0], list(range(len(call.shapes[0]))))])
    values = layout_like(call.mesh_shape, second, call.shapes[1], [(call.layouts[1], same)])
    result = layout_like(call.mesh_shape, third, call.shapes[1], [(values, same)])
    return Rule((source, values), result)


def _search(np, line, values, side):
    return np.asarray(np.searchsorted(line, values, side), np.int64)


_searchsorted = define("searchsorted", _search, rule=_search_rule)


def searchsorted(x1, x2, side="left", sorter=None):
    """Where the values x2 belong in the sorted line x1.

    Parameters
    ----------
    x1 : 1-d, ascending, NaN last (or as `sorter` orders it)
    x2 : any shape
    side : "left": before elements that are equal; "right": behind them
    sorter : integer array that sorts x1, as from `argsort`

    Returns
    -------
    int64, shape of x2.  Where x1 is sharded and x2 is whole nothing
    communicates: the counts are Partial("sum").  Where both are sharded, the
    smaller one is gathered.
    """
    x1, x2 = operand(x1), operand(x2)
    if x1.ndim != 1:
        raise value_error(f"searchsorted: x1 must have 1 dimension, its shape is {x1.shape}")
    if side not in ("left", "right"):
        raise value_error(f"searchsorted: side must be 'left' or 'right', {side!r} was given")
    if sorter is not None:
        x1 = take(x1, sorter, axis=0)
    return apply(_searchsorted, (x1, x2), {"side": side})


_searchsorted.public = searchsorted


def digitize(x, bins, right=False):
    """The number of the bin that each element belongs to: i where bins[i-1] <= x < bins[i].

    Parameters
    ----------
    bins : 1-d, ascending or descending; looked at on every rank
    right : the bins include their right end instead of the left one

    Returns
    -------
    int64, shape and layout of x; 0 and len(bins) are outside.
    """
    edges = value_everywhere(bins)
    if edges.ndim != 1:
        raise value_error(f"digitize: bins must have 1 dimension, their shape is {edges.shape}")
    rising, falling = bool((edges[1:] >= edges[:-1]).all()), bool((edges[1:] <= edges[:-1]).all())
    if not rising and not falling:
        raise value_error("digitize: bins must ascend or descend")
    side = "left" if right else "right"
    return searchsorted(edges, x, side) if rising else len(edges) - searchsorted(edges[::-1], x, side)


# Where elements are not zero -------------------------------------------------


@stated("every rank looks at its rows", "a record of how many each rank finds")
def _argwhere_rule(call):
    """Every rank looks at its rows; a record tells how many each has found."""
    layout = call.layouts[0]
    axes = tuple(k for k, p in enumerate(layout.placements) if p.kind == "shard")
    if not axes:
        return replicated(call)
    rows = layout.with_placements(tuple(Shard(0) if k in axes else REPLICATE for k in call.axes))

    def across(mesh, arrays, params):
        line = group(mesh, axes)
        found = np.argwhere(arrays[0])
        found[:, 0] += rows.intervals(mesh.coordinate, 0)[0][0]
        counts = tuple(group_rows(line, [len(found)])[:, 0].tolist())
        shape = (sum(counts), rows.ndim)
        return found, Layout(rows.mesh_shape, rows.placements, shape, (counts, None))

    return Rule((rows,), None, across=across)


_argwhere = define("argwhere", lambda np, x: np.asarray(np.argwhere(x), np.int64), rule=_argwhere_rule)


def argwhere(x):
    """The indices of the elements that are not zero, in row-major order: int64, (number of them, x.ndim).

    Where x is sharded so is the result, along dim 0, with as many rows a rank
    as it has found (sharded dims other than the first are brought there).
    """
    return apply(_argwhere, (asarray(x),))


def nonzero(x):
    """The indices of the elements that are not zero, an int64 tensor for each dimension; as `argwhere`."""
    x = asarray(x)
    if x.ndim == 0:
        raise value_error("nonzero: at least 1 dimension is needed, a 0-d tensor was given")
    if x._spec is None:
        return tuple(wrap(part, None, None) for part in x._data.nonzero())
    found = argwhere(x)
    return (found,) * x.ndim if is_outside(x) else tuple(found[:, dim] for dim in range(x.ndim))


def flatnonzero(x):
    """The indices in the flattened x of the elements that are not zero: 1-d, int64; as `nonzero`."""
    return nonzero(ravel(x))[0]


_argwhere.public = argwhere


# Membership ------------------------------------------------------------------


@stated("as the elements lie; a set may be sharded where they are replicated", "nothing")
def _isin_rule(call):
    """Where the elements are; only where they are on all ranks each looks at its part of the set."""
    meets = Partial("all" if call.params["invert"] else "any")
    placed = []
    for k in call.axes:
        members, values = call.placement(0, k), call.placement(1, k)
        if values.kind == "shard":
            placed.append((REPLICATE, values, values))
        elif members.kind == "shard":
            placed.append((members, REPLICATE, meets))
        else:
            placed.append((REPLICATE,) * 3)
    return _placed_rule(call, placed)


_isin = define("isin", lambda np, members, x, invert: np.isin(x, members, invert=invert), rule=_isin_rule)


def isin(x1, x2, invert=False):
    """Whether each element of x1 is among those of x2 (any shape); bool, shape and layout of x1.

    invert: whether it is not.  NaN is among nothing.  x2 is gathered where x1
    is sharded.
    """
    return apply(_isin, (operand(x2), operand(x1)), {"invert": bool(invert)})


_isin.public = isin
install(nonzero=nonzero, searchsorted=searchsorted)
