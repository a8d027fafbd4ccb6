"""Running sums along an axis, also where its pieces lie on several ranks.

Each rank sums up what it has; the totals alone travel, to the ranks that hold
later elements, and are added there.
"""

from itertools import pairwise
from math import prod

import numpy as np

from ..array import array_module
from ..autograd.tensor import asarray
from ..dtypes import dtype as as_dtype
from ..dtypes import is_half
from ..errors import value_error
from .owners import group
from .reductions import normalise_axis
from .registry import apply, define, unbroadcast
from .rules import REPLICATE, Rule, cut_coordinates, kept_partials, linear_cast

# Totals of pieces ----------------------------------------------------------


class Places:
    """Where this rank's intervals of a dim lie among those of the ranks that share the dim with it.

    Attributes
    ----------
    axes : the mesh axes that shard the dim
    parts : a slice of this rank's piece for each of its intervals
    sends : for each rank of the group whether it needs this rank's totals
    order : (rank, interval) of all totals that this rank gets, in the order in which they are accumulated
    mine : for each of this rank's intervals how many totals come before it
    """

    def __init__(self, layout, dim, coord, reverse):
        self.axes = layout.sharding_axes(dim)
        members = list(cut_coordinates(layout, dim))
        here = [tuple(c[axis] for axis in self.axes) for c in members].index(tuple(coord[axis] for axis in self.axes))
        held = [layout.intervals(member, dim) for member in members]
        sign = -1 if reverse else 1
        first, last = (
            [min(sign * s for s, _ in part) for part in held],
            [max(sign * s for s, _ in part) for part in held],
        )
        self.sends = [k != here and first[here] <= last[k] for k in range(len(held))]
        self.counts = [len(part) if first[k] <= last[here] else 0 for k, part in enumerate(held)]
        self.counts[here] = len(held[here])
        found = [(sign * held[k][j][0], k, j) for k, count in enumerate(self.counts) for j in range(count)]
        self.order = [(k, j) for _, k, j in sorted(found)]
        self.mine = [self.order.index((here, j)) for j in range(len(held[here]))]
        ends = np.cumsum([0, *(stop - start for start, stop in held[here])]).tolist()
        self.parts = [slice(start, stop) for start, stop in pairwise(ends)]


def _along(axis, part):
    return (slice(None),) * axis + (part,)


def sum_across(places, line, x, axis, accumulate, reverse):
    """This rank's piece of a running sum, from its piece of the operand; collective over the ranks of `line`."""
    module = array_module(x)
    runs = [accumulate(x[_along(axis, part)]) for part in places.parts]
    totals = [_total(run, axis, reverse) for run in runs]
    mine = module.concatenate(totals, axis=axis)
    nothing = mine[_along(axis, slice(0, 0))]
    shapes = [(*x.shape[:axis], count, *x.shape[axis + 1 :]) for count in places.counts]
    received = line.alltoall(
        [mine if sent or k == line.rank else nothing for k, sent in enumerate(places.sends)], shapes
    )
    rows = [received[k][_along(axis, slice(j, j + 1))] for k, j in places.order]
    before = module.concatenate([module.zeros_like(rows[0]), *rows], axis=axis).cumsum(axis=axis, dtype=mine.dtype)
    return module.concatenate(
        [run + before[_along(axis, slice(k, k + 1))] for run, k in zip(runs, places.mine)], axis=axis
    )


def _total(run, axis, reverse):
    """The last of a running sum, with extent 1; zeros for an empty one."""
    if not run.shape[axis]:
        return array_module(run).zeros((*run.shape[:axis], 1, *run.shape[axis + 1 :]), run.dtype)
    return run[_along(axis, slice(0, 1) if reverse else slice(-1, None))]


# Cumulative sum ------------------------------------------------------------


def _running(x, axis, dtype, reverse):
    if not reverse:
        return x.cumsum(axis=axis, dtype=dtype)
    np = array_module(x)
    return np.flip(np.flip(x, axis).cumsum(axis=axis, dtype=dtype), axis)


def _wide(x, dtype):
    """The dtype in which sums are accumulated, and that of the result; None for NumPy's choice."""
    result = x.dtype if dtype is None else dtype
    return (np.dtype(np.float32), result) if is_half(result) else (dtype, None)


def _forward(np, x, axis=0, dtype=None, reverse=False):
    wide, result = _wide(x, dtype)
    sums = _running(x, axis, wide, reverse)
    return sums if result is None else sums.astype(result)


def _vjp(g, p, xp):
    sums = xp.cumulative_sum(g, axis=p.axis, reverse=not p.get("reverse", False))
    return unbroadcast(xp, sums, p.shapes[0], p.dtypes[0])


def _rule(call):
    """Linear; along a sharded axis the totals of pieces travel."""
    axis, given = call.params["axis"], call.dtypes[0]
    layout = call.layouts[0]
    kept = kept_partials(layout.placements, linear_cast(given, call.params.get("dtype", given)))
    source = layout.with_placements(
        tuple(p if p.kind == "shard" or k in kept else REPLICATE for k, p in enumerate(layout.placements))
    )
    if not source.sharding_axes(axis):
        return Rule((source,), source)

    def across(mesh, arrays, params):
        (x,), reverse = arrays, params.get("reverse", False)
        wide, result = _wide(x, params.get("dtype"))
        places = Places(source, axis, mesh.coordinate, reverse)
        line = group(mesh, places.axes)
        sums = sum_across(places, line, x, axis, lambda part: _running(part, axis, wide, reverse), reverse)
        return sums if result is None else sums.astype(result)

    return Rule((source,), source, across=across, sends=lambda coord: _sent(call, source, coord))


def _sent(call, layout, coord):
    """The bytes of the totals that the rank at a coordinate sends."""
    axis, shape = call.params["axis"], list(layout.local_shape(coord))
    places = Places(layout, axis, coord, call.params.get("reverse", False))
    shape[axis] = len(places.parts)
    wide, _ = _wide(np.empty(0, call.dtypes[0]), call.params.get("dtype"))
    item = np.empty(0, call.dtypes[0]).cumsum(dtype=wide).itemsize
    return sum(places.sends) * prod(shape) * item


_cumulative_sum = define("cumulative_sum", _forward, (_vjp,), rule=_rule)


def cumulative_sum(x, axis=None, dtype=None):
    """The running sum along an axis, which a tensor of one dimension need not name; shape of x.

    dtype: what to sum in and return, as for `sum`.  Keeps x's placements; along
    a sharded axis one total a piece travels.
    """
    x = asarray(x)
    if axis is None and x.ndim != 1:
        raise value_error(f"cumulative_sum: axis is needed for a tensor of {x.ndim} dimensions")
    params = {"axis": normalise_axis("cumulative_sum", 0 if axis is None else axis, x.ndim)}
    if dtype is not None:
        params["dtype"] = as_dtype(dtype)
    return apply(_cumulative_sum, (x,), params)
