"""Rules of reading and writing by index.

A dimension that a slice with a positive step reads may be sharded: every rank
reads what it holds of it, and the pieces of the result are as uneven as that
makes them.  Slices that go backwards, or cut block-cyclic pieces, make pieces
of the default sizes, and what is not there already is sent (`moving`).
Dimensions that ints read are needed whole, along the mesh axes that shard them
and no others; for index arrays see `fetching`.
"""

from functools import cache

import numpy as np

from ..array import array_module
from ..errors import value_error
from ..layout import Layout
from ..placement import Partial, Shard
from .fetching import Fetcher
from .index_form import ARRAY, Span, as_broadcast, raw_index
from .moving import Mover, reverse, span_run
from .rules import (
    LINEAR,
    REPLICATE,
    Rule,
    cut_coordinates,
    kept_partials,
    layout_like,
    moving,
    replicated,
    replicated_layout,
    stated,
)


class Cut:
    """An index into a layout: which piece of the result each rank reads from its own piece.

    Attributes
    ----------
    source : the operand's Layout, Replicate where dims are needed whole
    result : the Layout of what is read; where `source` is Partial, so is this
    arrays_at : where the dims of the index arrays begin in the result
    moved : the sharded dims of which a rank reads what others hold; `local` leaves them whole
    asked : the mesh axes that shard dims that index arrays stand for
    """

    def __init__(self, layout, form, arrays_shape=None, keeps=()):
        self.form, self.only_slices = form, arrays_shape is None
        shape, dims, self.arrays_at = read_shape(form, arrays_shape)
        kept = kept_partials(layout.placements, keeps)
        self.source = layout.with_placements(
            tuple(
                p if axis in kept or (p.kind == "shard" and self._kept(layout, p.dim)) else REPLICATE
                for axis, p in enumerate(layout.placements)
            )
        )
        self.moved = {
            dim: dims[dim]
            for dim in range(layout.ndim)
            if self.source.sharding_axes(dim) and dims[dim] is not None and not self._sliced(self.source, dim)
        }
        sharded = [(axis, p) for axis, p in enumerate(self.source.placements) if p.kind == "shard"]
        self.asked = tuple(axis for axis, p in sharded if dims[p.dim] is None)
        placements = list(self.source.placements)
        for axis, p in sharded:
            placements[axis] = REPLICATE if axis in self.asked else Shard(dims[p.dim], p.block)
        splits = [None] * len(shape)
        for dim, position in enumerate(dims):
            if position is not None and self.source.sharding_axes(dim) and dim not in self.moved:
                splits[position] = self._sizes(dim)
        self.result = Layout(layout.mesh_shape, tuple(placements), shape, tuple(splits))

    def between(self):
        """The Movers from what `local` reads, where moved dims are as they were, to the result, and back."""
        shape, splits, maps = list(self.result.shape), list(self.result.splits), {}
        for dim, position in self.moved.items():
            shape[position], splits[position] = self.source.shape[dim], self.source.splits[dim]
            maps[position] = (span_run(self._item(dim)),)
        read = Layout(self.result.mesh_shape, self.result.placements, tuple(shape), tuple(splits))
        back = {position: (reverse(run),) for position, (run,) in maps.items()}
        return Mover.between(read, self.result, maps), Mover.between(self.result, read, back)

    def _item(self, dim):
        return [item for item in self.form if item is not None][dim]

    def _kept(self, layout, dim):
        """Whether a dim may stay sharded."""
        item = self._item(dim)
        return item is ARRAY or (type(item) is Span and (self.only_slices or self._sliced(layout, dim)))

    def _sliced(self, layout, dim):
        """Whether every rank reads of a sharded dim what it holds of it."""
        item = self._item(dim)
        return _is_whole(item, layout.shape[dim]) or (item.step > 0 and all(b is None for _, b in layout.cuts(dim)))

    def _sizes(self, dim):
        """The sizes of the result's pieces along a sharded dim."""
        item = self._item(dim)
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
                if type(item) is Span and self.source.sharding_axes(dim):
                    item = self._local_span(item, coord, dim)
                dim += 1
            items.append(item)
        return {"index": tuple(items)}

    def _local_span(self, item, coord, dim):
        if dim in self.moved or _is_whole(item, self.source.shape[dim]):
            return Span(0, self.source.local_shape(coord)[dim], 1)
        (interval,) = self.source.intervals(coord, dim)
        return self._within(item, interval)


def _is_whole(item, extent):
    return item == Span(0, extent, 1)


def read_shape(form, arrays_shape):
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


@stated(
    "slices of sharded dims are read where they are; ints need their dims whole",
    "what slices with other pieces read from other ranks",
)
def getitem_rule(call):
    """Slices of sharded dims are read where they are; what other slices read is sent."""
    cut = Cut(call.layouts[0], call.params["index"], None, moving(call.dtypes[0]))
    local = cache(cut.local)
    if not cut.moved:
        return Rule((cut.source,), cut.result, local)
    mover, _ = cut.between()

    def across(mesh, arrays, params):
        return mover.on(mesh, arrays[0].dtype)(arrays[0][raw_index(local(mesh.coordinate)["index"], ())])

    return Rule((cut.source,), cut.result, across=across, sends=_sends(mover, call.dtypes[0]))


def _sends(mover, dtype):
    return lambda coord: mover.items(coord) * dtype.itemsize


def _target(layout, cotangent):
    """The layout of the adjoint of reading: that of what was read, along Partial axes what its argument says."""
    return layout.with_placements(
        tuple(
            (q if q.kind == "partial" and q.op in LINEAR else REPLICATE) if p.kind in ("partial", "own") else p
            for p, q in zip(layout.placements, cotangent.placements)
        )
    )


@stated("the adjoint of reading by slices", "what goes back to other ranks")
def spread_rule(call):
    """The adjoint of `getitem_rule`, for the layout of what was read; without that everything is replicated."""
    if call.params.get("layout") is None or call.layouts[0] is None:
        return replicated(call)
    cut = Cut(_target(call.params["layout"], call.layouts[0]), call.params["index"], None, LINEAR)
    local = cache(lambda coord: {**cut.local(coord), "shape": cut.source.local_shape(coord)})
    if not cut.moved:
        return Rule((cut.result,), cut.source, local)
    _, back = cut.between()

    def across(mesh, arrays, params):
        g, place = arrays[0], local(mesh.coordinate)
        out = array_module(g).zeros(place["shape"], g.dtype)
        back.on(mesh, g.dtype)(g, out[raw_index(place["index"], ())])
        return out

    return Rule((cut.result,), cut.source, across=across, sends=_sends(back, call.dtypes[0]))


def _reading(call, layout, arrays, keeps, write=False):
    """How index arrays read an operand of a layout: (Cut, Layout of the result, those of the arrays, Fetcher or None).

    Parameters
    ----------
    arrays : the positions of the index arrays among the call's operands
    keeps : the Partial reductions that pass
    write : every rank knows all of the arrays, and a result that is sent is cut along their first dim, so that the
        order of the ranks is that of the elements
    """
    shapes = [call.shapes[k] for k in arrays]
    shape = np.broadcast_shapes(*shapes)
    cut = Cut(layout, call.params["index"], shape, keeps)
    at, placements = cut.arrays_at, list(cut.result.placements)
    for axis, placement in enumerate(cut.source.placements):
        everywhere = placement.kind == "replicate" and layout.placements[axis].kind == "replicate"
        if not write and (axis in cut.asked or everywhere):
            placements[axis] = _array_placement(call, arrays, axis, shape, at)
    taken = {p.dim - at for p in placements if p.kind == "shard"}
    free = next((dim for dim in range(min(len(shape), 1) if write else len(shape)) if dim not in taken), None)
    dealt = [axis for axis in cut.asked if placements[axis] is REPLICATE and free is not None]
    given = tuple(placements)
    for axis in dealt:
        placements[axis] = Shard(at + free)
    sources = [(cut.result, list(range(cut.result.ndim)))]
    for k, own in zip(arrays, shapes):
        sources.append((call.layouts[k], [d + at if n == shape[d] else None for d, n in _aligned(own, shape)]))
    result = layout_like(call.mesh_shape, placements, cut.result.shape, sources)
    known = layout_like(call.mesh_shape, given, cut.result.shape, [(result, list(range(result.ndim)))])
    inputs = tuple(_operand_layout(own, known, at + len(shape) - len(own)) for own in shapes)
    if not cut.asked:
        return cut, result, inputs, None
    dims = [dim for dim, item in enumerate(item for item in cut.form if item is not None) if item is ARRAY]
    given, wanted = (_operand_layout(shape, of, at) for of in (known, result))
    fetcher = Fetcher(
        cut.source, dims, cut.asked, (True,) * len(dims), given, wanted, lambda coord: cut.local(coord)["index"], at
    )
    return cut, result, inputs, fetcher


@stated(
    "dims read by slices stay sharded; a sharded index array makes a sharded result",
    "indices that other ranks do not know, and the elements that they name",
)
def gather_rule(call):
    """As `getitem_rule`; where an index array alone is sharded, so is the result.

    What index arrays read of a sharded dim is sent (`fetching`); where the
    arrays are on every rank the result is cut along their first free dim.
    """
    if _has_masks(call.dtypes[1:]):
        return replicated(call)
    layout = call.layouts[0] or replicated_layout(call.mesh_shape, call.shapes[0])
    cut, result, arrays, fetcher = _reading(call, layout, range(1, len(call.shapes)), moving(call.dtypes[0]))
    if fetcher is None:
        return Rule((cut.source, *arrays), result, cache(cut.local))
    return Rule(
        (cut.source, *arrays),
        result,
        across=lambda mesh, raw, params: fetcher.gather(mesh, raw[0], raw[1:]),
    )


@stated("the adjoint of reading by index arrays", "elements that go back to other ranks")
def spread_at_rule(call):
    """The adjoint of `gather_rule`, for the layout of what was read; without that everything is replicated."""
    layout, cotangent = call.params.get("layout"), call.layouts[0]
    if layout is None or cotangent is None or _has_masks(call.dtypes[1:]):
        return replicated(call)
    target = _target(layout, cotangent)
    cut, result, arrays, fetcher = _reading(call, target, range(1, len(call.shapes)), LINEAR)
    if fetcher is not None and any(
        p.kind == "replicate" and q.kind == "shard" for p, q in zip(cut.source.placements, result.placements)
    ):  # a sum over these axes, too, which nobody would reduce: all of the cotangent along them
        cut, result, arrays, fetcher = _reading(call, target, range(1, len(call.shapes)), LINEAR, write=True)
    if fetcher is None:
        local = cache(lambda coord: {**cut.local(coord), "shape": cut.source.local_shape(coord)})
        added = tuple(
            Partial("sum") if p.kind == "replicate" and q.kind == "shard" else p
            for p, q in zip(cut.source.placements, result.placements)
        )
        return Rule((result, *arrays), cut.source.with_placements(added), local)
    return Rule(
        (result, *arrays),
        cut.source,
        across=lambda mesh, raw, params: fetcher.spread(mesh, raw[0], raw[1:], cut.source.local_shape(mesh.coordinate)),
    )


def _aligned(own, shape):
    return list(enumerate(own, len(shape) - len(own)))


def _array_placement(call, arrays, axis, shape, at):
    for operand in arrays:
        placement, own = call.placement(operand, axis), call.shapes[operand]
        if placement.kind == "shard" and own[placement.dim] == shape[placement.dim + len(shape) - len(own)]:
            return Shard(placement.dim + len(shape) - len(own) + at, placement.block)
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


@stated(
    "every rank writes what it holds of the place; the result lies as the tensor",
    "the pieces of the value that other ranks write",
)
def setitem_rule(call):
    """Every rank writes what it holds of the place; the value's pieces are brought there."""
    arrays = call.shapes[2:]
    if _has_masks(call.dtypes[2:]) or call.layouts[0] is None:
        return replicated(call)
    if arrays:
        return _write_at(call)
    cut = Cut(call.layouts[0], call.params["index"], None, LINEAR)
    value = _value_layout(call, cut, cut.result)
    if cut.moved:
        return _write_across(call, cut, value)
    return Rule((cut.source, value), cut.source, cache(cut.local))


def _check_fits(shape, place):
    """Raise unless a value of a shape broadcasts to the place; like NumPy this allows more leading dims of extent 1."""
    extra = max(len(shape) - len(place), 0)
    given = zip(reversed(shape[extra:]), reversed(place))
    if any(size != 1 for size in shape[:extra]) or any(size not in (1, wanted) for size, wanted in given):
        raise value_error(f"setitem: a value of shape {shape} does not broadcast to the place's shape {place}")


def _value_layout(call, cut, result):
    """The layout of a value that is written to an operand of which `result` is read; None for a plain number."""
    _check_fits(call.shapes[1], cut.result.shape)
    value = _operand_layout(call.shapes[1], result, result.ndim - len(call.shapes[1]))
    partial = tuple(
        place if place.kind == "partial" else placement
        for place, placement in zip(cut.source.placements, value.placements)
    )
    value = value.with_placements(partial)
    if call.layouts[1] is None and call.shapes[1] == () and value.placements == (REPLICATE,) * len(partial):
        value = None
    return value


def _write_at(call):
    """Writing where index arrays point: every rank knows them, and the values go to those that hold the places."""
    cut, result, _, fetcher = _reading(call, call.layouts[0], range(2, len(call.shapes)), LINEAR, write=True)
    whole = tuple(replicated_layout(call.mesh_shape, own) for own in call.shapes[2:])
    if fetcher is None:
        return Rule((cut.source, _value_layout(call, cut, cut.result), *whole), cut.source, cache(cut.local))
    offset = cut.result.ndim - len(call.shapes[1])
    places = range(cut.arrays_at, cut.arrays_at + fetcher.wanted.ndim)
    same = all(dim < offset or call.shapes[1][dim - offset] == 1 for dim in places)
    return Rule(
        (cut.source, _value_layout(call, cut, cut.result if same else result), *whole),
        cut.source,
        across=lambda mesh, raw, params: fetcher.write(mesh, raw[0], raw[1], raw[2:], same),
    )


def _write_across(call, cut, value):
    """The rule of writing by slices that read what other ranks hold; a value that is the same all along stays here."""
    _, back = cut.between()
    local = cache(cut.local)
    offset = cut.result.ndim - len(call.shapes[1])
    spans = any(d >= offset and value.sharding_axes(d - offset) for d in cut.moved.values())

    def across(mesh, arrays, params):
        x, given = arrays
        out = array_module(x).array(x, copy=True)
        place = out[raw_index(local(mesh.coordinate)["index"], ())]
        if spans:
            given = as_broadcast(array_module(x), given, x.dtype, cut.result.local_shape(mesh.coordinate))
            back.on(mesh, x.dtype)(given, place)
        else:
            for boxes in back.boxes_from(mesh.coordinate):
                for box in boxes:
                    place[box] = given
        return out

    sends = _sends(back, call.dtypes[0]) if spans else None
    return Rule((cut.source, value), cut.source, across=across, sends=sends)
