"""Rules of reading and writing by index.

A dimension that a slice with a positive step reads may be sharded: every rank
reads what it holds of it, and the pieces of the result are as uneven as that
makes them.  Dimensions that ints, index arrays and other slices read are
needed whole, along the mesh axes that shard them and no others.
"""

from functools import cache

import numpy as np

from ..layout import Layout
from ..placement import Shard
from .index_form import ARRAY, Span
from .rules import LINEAR, REPLICATE, Rule, cut_coordinates, kept_partials, layout_like, moving, replicated


class Cut:
    """An index into a layout: which piece of the result each rank reads from its own piece.

    Attributes
    ----------
    source : the operand's Layout, Replicate where dims are needed whole
    result : the Layout of what is read; where `source` is Partial, so is this
    arrays_at : where the dims of the index arrays begin in the result
    """

    def __init__(self, layout, form, arrays_shape=None, keeps=()):
        self.form = form
        shape, dims, self.arrays_at = _result(form, layout.ndim, arrays_shape)
        kept = kept_partials(layout.placements, keeps)
        self.source = layout.with_placements(
            tuple(
                p if axis in kept or (p.kind == "shard" and self._sliced(layout, p.dim)) else REPLICATE
                for axis, p in enumerate(layout.placements)
            )
        )
        placements = tuple(Shard(dims[p.dim], p.block) if p.kind == "shard" else p for p in self.source.placements)
        splits = [None] * len(shape)
        for dim, position in enumerate(dims):
            if position is not None and self.source.sharding_axes(dim):
                splits[position] = self._sizes(dim)
        self.result = Layout(layout.mesh_shape, placements, shape, tuple(splits))

    def _spans(self):
        """(dim, item) for every dim of the operand."""
        return enumerate(item for item in self.form if item is not None)

    def _sliced(self, layout, dim):
        item = dict(self._spans())[dim]
        if type(item) is not Span:
            return False
        return _is_whole(item, layout.shape[dim]) or (item.step > 0 and all(b is None for _, b in layout.cuts(dim)))

    def _sizes(self, dim):
        """The sizes of the result's pieces along a sharded dim."""
        item = dict(self._spans())[dim]
        if _is_whole(item, self.source.shape[dim]):
            return self.source.splits[dim]
        pieces = (self.source.intervals(coord, dim) for coord in cut_coordinates(self.source, dim))
        return tuple(len(range(*self._within(item, interval))) for (interval,) in pieces)

    @staticmethod
    def _within(item, interval):
        """The part of a slice inside an interval, counted from its beginning."""
        total = len(range(*item))
        first, end = (min(max(-((item.start - bound) // item.step), 0), total) for bound in interval)
        if first >= end:
            return Span(0, 0, 1)
        start = item.start + first * item.step - interval[0]
        return Span(start, start + (end - first - 1) * item.step + 1, item.step)

    def local(self, coord):
        """The index into the piece of the rank at a coordinate."""
        items, dim = [], 0
        for item in self.form:
            if item is not None:
                if self.source.sharding_axes(dim):
                    item = self._local_span(item, coord, dim)
                dim += 1
            items.append(item)
        return {"index": tuple(items)}

    def _local_span(self, item, coord, dim):
        if _is_whole(item, self.source.shape[dim]):
            return Span(0, self.source.local_shape(coord)[dim], 1)
        (interval,) = self.source.intervals(coord, dim)
        return self._within(item, interval)


def _is_whole(item, extent):
    return item == Span(0, extent, 1)


def _result(form, ndim, arrays_shape):
    """The shape that a form reads, for each dim of the operand its place there or None, and where the arrays' dims are.

    As in NumPy: ints beside arrays are index arrays too, and the dims of the
    arrays stand where these stood if they were side by side, else first.
    """
    advanced = [k for k, item in enumerate(form) if item is ARRAY or isinstance(item, int)]
    if arrays_shape is None:
        first = None
    elif advanced[-1] - advanced[0] == len(advanced) - 1:
        first = advanced[0]
    else:
        first = 0
    shape, dims, arrays_at = [], [], None
    for k, item in enumerate(form):
        if k == first:
            arrays_at = len(shape)
            shape.extend(arrays_shape)
        if item is None:
            shape.append(1)
        elif type(item) is Span:
            dims.append(len(shape))
            shape.append(len(range(*_explicit(item))))
        else:
            dims.append(None)
    return tuple(shape), dims, arrays_at


def _explicit(item):
    return item.start, -1 if item.stop is None else item.stop, item.step


def _has_masks(dtypes):
    """Whether an index array is a mask: how much it reads is not known before."""
    return any(dtype.kind == "b" for dtype in dtypes)


def getitem_rule(call):
    """Slices of sharded dims are read where they are."""
    cut = Cut(call.layouts[0], call.params["index"], None, moving(call.dtypes[0]))
    return Rule((cut.source,), cut.result, cache(cut.local))


def gather_rule(call):
    """As `getitem_rule`; where the tensor is on all ranks and an index array is sharded, so is the result."""
    if _has_masks(call.dtypes[1:]) or call.layouts[0] is None:
        return replicated(call)
    shape = np.broadcast_shapes(*call.shapes[1:])
    cut = Cut(call.layouts[0], call.params["index"], shape, moving(call.dtypes[0]))
    placements = list(cut.result.placements)
    for axis, placement in enumerate(cut.source.placements):
        if placement.kind == "replicate" and call.layouts[0].placements[axis].kind == "replicate":
            placements[axis] = _array_placement(call, axis, shape, cut.arrays_at)
    sources = [(cut.result, list(range(cut.result.ndim)))]
    for layout, own in zip(call.layouts[1:], call.shapes[1:]):
        sources.append((layout, [d + cut.arrays_at if n == shape[d] else None for d, n in _aligned(own, shape)]))
    result = layout_like(call.mesh_shape, placements, cut.result.shape, sources)
    arrays = tuple(_operand_layout(own, result, cut.arrays_at + len(shape) - len(own)) for own in call.shapes[1:])
    return Rule((cut.source, *arrays), result, cache(cut.local))


def _aligned(own, shape):
    return list(enumerate(own, len(shape) - len(own)))


def _array_placement(call, axis, shape, arrays_at):
    for operand, own in enumerate(call.shapes[1:], 1):
        placement = call.placement(operand, axis)
        if placement.kind == "shard" and own[placement.dim] == shape[placement.dim + len(shape) - len(own)]:
            return Shard(placement.dim + len(shape) - len(own) + arrays_at, placement.block)
    return REPLICATE


def _operand_layout(shape, result, offset):
    """The layout of an operand whose dim d spans dim d + offset of the result, or is broadcast along it."""
    placements = []
    for placement in result.placements:
        if placement.kind == "shard":
            dim = placement.dim - offset
            spans = 0 <= dim < len(shape) and shape[dim] == result.shape[placement.dim]
            placements.append(Shard(dim, placement.block) if spans else REPLICATE)
        else:
            placements.append(REPLICATE)
    dims = [d - offset if 0 <= d - offset < len(shape) else None for d in range(result.ndim)]
    return layout_like(result.mesh_shape, placements, shape, [(result, dims)])


def setitem_rule(call):
    """Every rank writes what it holds of the place; the value's pieces are brought there."""
    arrays = call.shapes[2:]
    if _has_masks(call.dtypes[2:]) or call.layouts[0] is None:
        return replicated(call)
    shape = np.broadcast_shapes(*arrays) if arrays else None
    cut = Cut(call.layouts[0], call.params["index"], shape, LINEAR)
    value = _operand_layout(call.shapes[1], cut.result, cut.result.ndim - len(call.shapes[1]))
    partial = tuple(
        place if place.kind == "partial" else placement
        for place, placement in zip(cut.source.placements, value.placements)
    )
    value = value.with_placements(partial)
    if call.layouts[1] is None and call.shapes[1] == () and value.placements == (REPLICATE,) * len(partial):
        value = None
    whole = tuple(Layout(call.mesh_shape, (REPLICATE,) * len(call.mesh_shape), own) for own in arrays)
    return Rule((cut.source, value, *whole), cut.source, cache(cut.local))
