"""Reading where a mask is true, on distributed tensors.

How much each rank has of the result is known only from the values: where the
mask's first dim is sharded, the counts travel and nothing else, and the pieces
of the result have these sizes.
"""

import struct

from ..array import array_module
from ..layout import Layout
from ..placement import Shard
from ..redistribute.carry_out import redistribute
from .owners import group
from .registry import define
from .rules import LINEAR, REPLICATE, Rule, kept_partials, layout_like, moving, stated

_COUNT = struct.Struct("<q")


def _gather(np, x, mask, at):
    return x[(slice(None),) * at + (mask,)]


def _spread(np, g, mask, at):
    out = np.zeros((*g.shape[:at], *mask.shape, *g.shape[at + 1 :]), g.dtype)
    out[(slice(None),) * at + (mask,)] = g
    return out


def _is_rows(placement, dim):
    """Whether a mesh axis cuts a dim into slices, whose order is that of the ranks."""
    return placement.kind == "shard" and placement.dim == dim and placement.block is None


def can_select(x, mask, at):
    """Whether of the masked dims, from `at` on, the tensor x shards the first alone, in slices."""
    masked = range(at, at + mask.ndim)
    return mask.ndim > 0 and all(
        p.kind != "shard" or p.dim not in masked or _is_rows(p, at) for p in x._spec.placements
    )


class _Rows:
    """The layouts of a tensor, a mask of some of its dims and what it selects.

    Attributes
    ----------
    whole, mask : Layout
    axes : the mesh axes that cut the mask's first dim
    """

    def __init__(self, call, whole, pairs, sources):
        self.at, self.count = call.params["at"], len(call.shapes[1])
        self.axes = tuple(axis for axis, (_, mask) in enumerate(pairs) if mask.kind == "shard")
        self.whole = layout_like(call.mesh_shape, [pair[0] for pair in pairs], whole, sources)
        dims = [d - self.at if 0 <= d - self.at < self.count else None for d in range(len(whole))]
        self.mask = layout_like(call.mesh_shape, [pair[1] for pair in pairs], call.shapes[1], [(self.whole, dims)])

    def selected(self, mesh, mask):
        """The Layout of what a mask selects, of which this rank has a piece; the counts travel."""
        counts = (int(array_module(mask).count_nonzero(mask)),)
        if self.axes:
            rows = group(mesh, self.axes).record(_COUNT.pack(*counts))
            counts = tuple(_COUNT.unpack(row)[0] for row in rows)
        at, whole = self.at, self.whole
        shape = (*whole.shape[:at], sum(counts), *whole.shape[at + self.count :])
        splits = (*whole.splits[:at], counts if self.axes else None, *whole.splits[at + self.count :])
        placements = tuple(
            Shard(p.dim - self.count + 1, p.block) if p.kind == "shard" and p.dim >= at + self.count else p
            for p in whole.placements
        )
        return Layout(whole.mesh_shape, placements, shape, splits)


@stated(
    "pieces are cut alike along the mask's first dim, and selected where they are",
    "a record of how many each rank selects",
)
def _gather_rule(call):
    """Pieces are cut alike along the mask's first dim; the result's pieces are as large as that makes them."""
    at, masked = call.params["at"], range(call.params["at"], call.params["at"] + len(call.shapes[1]))
    layout = call.layouts[0]
    kept = () if layout is None else kept_partials(layout.placements, moving(call.dtypes[0]))
    pairs = []
    for axis in call.axes:
        ours, theirs = call.placement(0, axis), call.placement(1, axis)
        if _is_rows(ours, at) or (ours.kind == "replicate" and _is_rows(theirs, 0)):
            pairs.append((Shard(at), Shard(0)))
        elif (ours.kind == "shard" and ours.dim not in masked) or axis in kept:
            pairs.append((ours, REPLICATE))
        else:
            pairs.append((REPLICATE, REPLICATE))
    own, others = list(range(len(call.shapes[0]))), list(masked)
    rows = _Rows(call, call.shapes[0], pairs, [(layout, own), (call.layouts[1], others)])

    def across(mesh, arrays, params):
        return _gather(array_module(arrays[0]), *arrays, **params), rows.selected(mesh, arrays[1])

    return Rule((rows.whole, rows.mask), None, across=across)


@stated("the adjoint: pieces go back to where the mask is", "elements that lie otherwise")
def _spread_rule(call):
    """The adjoint: what is selected goes to where the mask is."""
    at, count = call.params["at"], len(call.shapes[1])
    layout, (before, after) = call.layouts[0], (call.shapes[0][:at], call.shapes[0][at + 1 :])
    kept = () if layout is None else kept_partials(layout.placements, LINEAR)
    pairs, inputs = [], []
    for axis in call.axes:
        ours, theirs = call.placement(0, axis), call.placement(1, axis)
        if _is_rows(theirs, 0):
            pairs.append((Shard(at), Shard(0)))
            inputs.append(ours if _is_rows(ours, at) else REPLICATE)
        elif (ours.kind == "shard" and ours.dim != at) or axis in kept:
            dim = None if axis in kept else ours.dim + (count - 1 if ours.dim > at else 0)
            pairs.append((ours if dim is None else Shard(dim, ours.block), REPLICATE))
            inputs.append(ours)
        else:
            pairs.append((REPLICATE, REPLICATE))
            inputs.append(REPLICATE)
    dims = [d if d < at else None if d == at else d + count - 1 for d in range(len(call.shapes[0]))]
    sources = [(call.layouts[1], list(range(at, at + count))), (layout, dims)]
    rows = _Rows(call, (*before, *call.shapes[1], *after), pairs, sources)
    given = layout_like(call.mesh_shape, inputs, call.shapes[0], [(layout, list(range(len(call.shapes[0]))))])

    def across(mesh, arrays, params):
        g, mask = arrays
        g = redistribute(g, given, rows.selected(mesh, mask), mesh)
        return _spread(array_module(g), g, mask, **params)

    return Rule((given, rows.mask), rows.whole, across=across)


gather_mask = define("gather_mask", _gather, (lambda g, b, p, xp: xp.spread_mask(g, b, at=p.at),), rule=_gather_rule)
define("spread_mask", _spread, (lambda g, b, p, xp: xp.gather_mask(g, b, at=p.at),), rule=_spread_rule)
