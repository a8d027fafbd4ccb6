"""Rules of reading and writing by index.

A dimension that a slice with a positive step reads may be sharded: every rank
reads what it holds of it, and the pieces of the result are as uneven as that
makes them.  Slices that go backwards, or cut block-cyclic pieces, make pieces
of the default sizes, and what is not there already is sent (`moving`).
Dimensions that ints read are needed whole, along the mesh axes that shard them
and no others.  For index arrays see `index_array_rules`.
"""

from functools import cache

from ..array import array_module
from ..errors import value_error
from ..layout import Layout
from ..placement import Shard
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
            placements[axis] = REPLICATE if axis in self.asked else Shard(dims[p.dim], self._block(p))
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
        """Whether every rank reads of a sharded dim what it holds of it: of blocks, one rank all from one block."""
        item = self._item(dim)
        if _is_whole(item, layout.shape[dim]):
            return True
        blocks = [block for _, block in layout.cuts(dim)]
        if item.step < 0 or all(block is None for block in blocks):
            return item.step > 0
        total = len(range(*item))
        if len(blocks) == 1:  # on any number of ranks alike, also where touching blocks are one interval
            return total > 0 and item.start // blocks[0] == (item.start + (total - 1) * item.step) // blocks[0]
        pieces = (layout.intervals(coord, dim) for coord in cut_coordinates(layout, dim))
        return any(_count(item, interval) == total for piece in pieces for interval in piece)

    def _block(self, placement):
        """How the result is dealt out: as the operand is, but in slices where one rank has all of it."""
        dim = placement.dim
        as_it_is = dim in self.moved or _is_whole(self._item(dim), self.source.shape[dim])
        return placement.block if as_it_is else None

    def _sizes(self, dim):
        """The sizes of the result's pieces along a sharded dim."""
        item = self._item(dim)
        if _is_whole(item, self.source.shape[dim]):
            return self.source.splits[dim]
        pieces = (self.source.intervals(coord, dim) for coord in cut_coordinates(self.source, dim))
        return tuple(len(range(*self._within(item, piece))) for piece in pieces)

    @staticmethod
    def _within(item, piece):
        """The part of a slice inside a piece, counted from the piece's beginning; it lies in one interval."""
        total, offset = len(range(*item)), 0
        for low, high in piece:
            first, end = (min(max(-((item.start - bound) // item.step), 0), total) for bound in (low, high))
            if first < end:
                start = offset + item.start + first * item.step - low
                return Span(start, start + (end - first - 1) * item.step + 1, item.step)
            offset += high - low
        return Span(0, 0, 1)

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
        return self._within(item, self.source.intervals(coord, dim))


def _count(item, interval):
    """How many positions of a slice, forwards, lie in an interval."""
    return len(range(*Cut._within(item, (interval,))))


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


def adjoint_layout(layout, cotangent):
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
    cut = Cut(adjoint_layout(call.params["layout"], call.layouts[0]), call.params["index"], None, LINEAR)
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


def operand_layout(shape, result, offset):
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
    if call.layouts[0] is None:
        return replicated(call)
    cut = Cut(call.layouts[0], call.params["index"], None, LINEAR)
    value = value_layout(call, cut, cut.result)
    if cut.moved:
        return _write_across(call, cut, value)
    return Rule((cut.source, value), cut.source, cache(cut.local))


def _check_fits(shape, place):
    """Raise unless a value of a shape broadcasts to the place; like NumPy this allows more leading dims of extent 1."""
    extra = max(len(shape) - len(place), 0)
    given = zip(reversed(shape[extra:]), reversed(place))
    if any(size != 1 for size in shape[:extra]) or any(size not in (1, wanted) for size, wanted in given):
        raise value_error(f"setitem: a value of shape {shape} does not broadcast to the place's shape {place}")


def value_layout(call, cut, result):
    """The layout of a value that is written to an operand of which `result` is read; None for a plain number."""
    _check_fits(call.shapes[1], cut.result.shape)
    value = operand_layout(call.shapes[1], result, result.ndim - len(call.shapes[1]))
    partial = tuple(
        place if place.kind == "partial" else placement
        for place, placement in zip(cut.source.placements, value.placements)
    )
    value = value.with_placements(partial)
    if call.layouts[1] is None and call.shapes[1] == () and value.placements == (REPLICATE,) * len(partial):
        value = None
    return value


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

    sends = _sends(back, call.dtypes[0]) if spans else lambda coord: 0
    return Rule((cut.source, value), cut.source, across=across, sends=sends)
