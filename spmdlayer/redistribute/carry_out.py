"""Carries out a plan: raw pieces in one layout become raw pieces in another.

Nothing here knows gradients.  Each step of a plan is prepared once, as a
function of this rank's piece: which slices it cuts, what it sends to whom and
where what it gets belongs are integers from the layouts, the same at every
call.  Pieces are cut and joined by intervals, so uneven, empty and
block-cyclic ones take the same path.
"""

from functools import lru_cache
from math import prod

from ..array import array_module
from ..comm import channel
from ..dtypes import highest, lowest
from ..plan import plan
from ..steps import positions

_IDENTITY = {
    "sum": lambda dtype: dtype.type(0),
    "avg": lambda dtype: dtype.type(0),
    "prod": lambda dtype: dtype.type(1),
    "max": lowest,
    "min": highest,
    "any": lambda dtype: dtype.type(False),
    "all": lambda dtype: dtype.type(True),
}


def redistribute(array, source, target, mesh):
    """This rank's piece of the same global array under another layout.

    Parameters
    ----------
    array : raw array, this rank's piece under `source`
    source, target : Layout on the mesh's shape, of one global shape
    mesh : ProcessMesh that this rank belongs to

    Collective over the mesh, except for steps that move nothing.  The result
    may share memory with `array`; pieces are never written to afterwards.
    """
    for move in moves(source, target, array.dtype, mesh):
        array = move(array)
    return array


@lru_cache(maxsize=8192)
def moves(source, target, dtype, mesh):
    """The plan's steps as functions of this rank's piece, to be called one after the other.

    Opens the channels that they need, so it is collective the first time.
    """
    native = dtype if dtype.isnative else dtype.newbyteorder("=")
    first = () if dtype.isnative else (lambda array: array.astype(native),)
    return (*first, *[_PREPARE[step.kind](step, mesh, native) for step in plan(source, target, dtype.itemsize)])


# Slices -------------------------------------------------------------------------------------------------------------


def _along(dim, part):
    """An index that takes a slice of one dimension and all of the others."""
    return (slice(None),) * dim + (part,)


def _cutter(dim, slices):
    """A function that cuts some slices of a dimension out of an array and joins them; one slice is a view."""
    if len(slices) <= 1:
        index = _along(dim, slices[0] if slices else slice(0, 0))
        return lambda array: array[index]
    indices = [_along(dim, part) for part in slices]
    return lambda array: array_module(array).concatenate([array[index] for index in indices], axis=dim)


def _cut_for(prepare, dim, have, wanted):
    """A collective on the blocks `wanted`, as a function of an array with the intervals `have`.

    `prepare(cuts)` prepares it: of an array, of which each block is one index,
    or with None of a list of blocks.
    """
    parts = [positions(have, want) for want in wanted]
    if all(len(slices) == 1 for slices in parts):
        return prepare([_along(dim, slices[0]) for slices in parts])
    cutters, call = [_cutter(dim, slices) for slices in parts], prepare(None)
    return lambda array: call([cut(array) for cut in cutters])


def _resized(shape, dim, extents):
    """A shape with each of these extents along a dimension."""
    return [(*shape[:dim], extent, *shape[dim + 1 :]) for extent in extents]


def _extents(group):
    return [_extent(intervals) for intervals in group]


def _extent(intervals):
    return sum(stop - start for start, stop in intervals)


def _group_intervals(layout, coord, axis, dim):
    """The intervals along `dim` of each rank along the mesh axis."""
    return [
        layout.intervals(coord[:axis] + (index,) + coord[axis + 1 :], dim) for index in range(layout.mesh_shape[axis])
    ]


def _in_order(group):
    """Whether pieces, one behind the other, are the whole that they make."""
    filled = [intervals for intervals in group if _extent(intervals)]
    return all(len(intervals) == 1 for intervals in filled) and all(
        before[-1][1] <= after[0][0] for before, after in zip(filled, filled[1:])
    )


def _joiner(dim, group, whole):
    """A function that puts pieces, with the group's intervals along `dim`, in their places in `whole`."""
    places = []
    for number, intervals in enumerate(group):
        offset = 0
        for part in positions(whole, intervals):
            extent = part.stop - part.start
            places.append((number, _along(dim, slice(offset, offset + extent)), _along(dim, part)))
            offset += extent
    total = _extent(whole)

    def join(pieces):
        first = pieces[0]
        joined = array_module(first).empty(first.shape[:dim] + (total,) + first.shape[dim + 1 :], first.dtype)
        for number, taken, place in places:
            joined[place] = pieces[number][taken]
        return joined

    return join


# Steps --------------------------------------------------------------------------------------------------------------


def _slice(step, mesh, dtype):
    coord, dim = mesh.coordinate, step.dim
    return _cutter(dim, positions(step.source.intervals(coord, dim), step.result.intervals(coord, dim)))


def _all_gather(step, mesh, dtype):
    coord, dim = mesh.coordinate, step.dim
    group = _group_intervals(step.source, coord, step.axis, dim)
    line, shape, sizes = channel(mesh, step.axis), step.source.local_shape(coord), _extents(group)
    if _in_order(group):
        return line.prepare_allgather_into_dim(shape, dtype, dim, sizes)
    gather = line.prepare_allgather(dtype, _resized(shape, dim, sizes))
    join = _joiner(dim, group, step.result.intervals(coord, dim))
    return lambda array: join(gather(array))


def _all_reduce(step, mesh, dtype):
    line = channel(mesh, step.axes[0] if len(step.axes) == 1 else step.axes)
    return line.prepare_allreduce(step.source.local_shape(mesh.coordinate), dtype, step.op)


def _reduce_scatter(step, mesh, dtype):
    coord, dim, shape = mesh.coordinate, step.dim, step.source.local_shape(mesh.coordinate)
    wanted = _group_intervals(step.result, coord, step.axis, dim)
    line = channel(mesh, step.axis)
    blocks = _resized(shape, dim, _extents(wanted))

    def prepare(cuts):
        return line.prepare_reduce_scatter(blocks, dtype, step.op, cuts)

    return _cut_for(prepare, dim, step.source.intervals(coord, dim), wanted)


def _all_to_all(step, mesh, dtype):
    coord, axis, gathered, split = mesh.coordinate, step.axis, step.source_dim, step.target_dim
    shape = step.source.local_shape(coord)
    wanted = _group_intervals(step.result, coord, axis, split)
    have = step.source.intervals(coord, split)
    pieces = _group_intervals(step.source, coord, axis, gathered)
    sent, sizes, line = _resized(shape, split, _extents(wanted)), _extents(pieces), channel(mesh, axis)
    if _in_order(pieces):
        return _cut_for(
            lambda cuts: line.prepare_alltoall_into_dim(sent, dtype, gathered, sizes, cuts), split, have, wanted
        )
    received = _resized(sent[coord[axis]], gathered, sizes)
    join = _joiner(gathered, pieces, step.result.intervals(coord, gathered))
    trade = _cut_for(lambda cuts: line.prepare_alltoall(sent, dtype, received, cuts), split, have, wanted)
    return lambda array: join(trade(array))


def _exchange(step, mesh, dtype):
    coord = mesh.coordinate
    return exchange(step.sends(coord), step.receives(coord), step.result.local_shape(coord), channel(mesh, None), dtype)


def exchange(sends, receives, shape, line, dtype, add=False):
    """A general exchange of boxes, as a function of a raw array.

    Parameters
    ----------
    sends, receives : for each rank of `line` a list of boxes (tuples of
        slices, which may have steps, or `np.ix_`), into the array and into the
        result, where steps are positive; a rank's own ones are of equal shapes
    shape : of the result
    line : the Channel
    dtype : of the array
    add : what comes is added to the result that is given; boxes may overlap

    The function takes the raw array, and maybe the result to be written to.
    """
    parcels = _Parcels(sends, receives, line.rank)
    trade = line.prepare_alltoall(parcels.sent, dtype, parcels.received)

    def move(array, result=None):
        received = trade(parcels.pack(array))
        if result is None:
            result = array_module(array).empty(shape, array.dtype)
        copy_boxes(parcels.own, array, result, add)
        for box, values in parcels.unpack(received):
            _put(result, box, values, add)
        return result

    return move


def exchange_begun(sends, receives, line, dtype):
    """As `exchange`, but the function of a raw array and the result returns once all is under way.

    What stays on this rank is written then; the function that is returned
    waits for the rest and writes it.
    """
    parcels = _Parcels(sends, receives, line.rank)
    trade = line.prepare_alltoall_begun(parcels.sent, dtype, parcels.received)

    def begin(array, result):
        wait = trade(parcels.pack(array))
        copy_boxes(parcels.own, array, result)

        def finish():
            for box, values in parcels.unpack(wait()):
                result[box] = values

        return finish

    return begin


class _Parcels:
    """How the boxes for each rank travel: as they are, or several one behind the other.

    Attributes
    ----------
    own : pairs of boxes, of the array and of the result, that stay here
    sent, received : the shapes of what goes to each rank and comes from it
    """

    def __init__(self, sends, receives, rank):
        self.own = list(zip(sends[rank], receives[rank]))
        sends, receives = ([() if k == rank else boxes for k, boxes in enumerate(side)] for side in (sends, receives))
        self.sent = [_packed_shape([box_shape(box) for box in boxes]) for boxes in sends]
        self._sends = [[(*box, ...) for box in boxes] for boxes in sends]  # with the dots, 0-d stays an array
        extents = [[box_shape(box) for box in boxes] for boxes in receives]
        self.received = [_packed_shape(boxes) for boxes in extents]
        self._places = []
        for number, boxes in enumerate(receives):
            offset = 0
            for box, extent in zip(boxes, extents[number]):
                self._places.append((number, box, slice(offset, offset + prod(extent)), extent))
                offset += prod(extent)

    def pack(self, array):
        """What goes to each rank."""
        return [_pack(array, boxes) for boxes in self._sends]

    def unpack(self, received):
        """(box of the result, values) for all that came from others."""
        for number, box, taken, extent in self._places:
            yield box, received[number].reshape(-1)[taken].reshape(extent)


def copy_boxes(pairs, array, result, add=False):
    """Write boxes of an array to boxes of a result, or add them."""
    for taken, place in pairs:
        _put(result, place, array[taken], add)


def _put(result, box, values, add):
    if not add:
        result[box] = values
    elif any(not isinstance(part, slice) for part in box):  # positions, some of them twice
        array_module(result).add.at(result, box, values)
    else:
        result[box] += values


def _packed_shape(boxes):
    """The shape in which boxes of these shapes travel."""
    return boxes[0] if len(boxes) == 1 else (sum(map(prod, boxes)),)


def _pack(array, boxes):
    if len(boxes) == 1:
        return array[boxes[0]]
    flat = [array[box].reshape(-1) for box in boxes]
    return array_module(array).concatenate(flat) if flat else array_module(array).empty(0, array.dtype)


def box_shape(box):
    """How many positions a box takes along each dim."""
    return tuple(_length(part) if isinstance(part, slice) else part.size for part in box)


def _length(part):
    return len(range(part.start, -1 if part.stop is None else part.stop, part.step or 1))


def _into_partial(step, mesh, dtype):
    """A piece that, reduced over the axis, gives the array: no traffic (see the plan's text)."""
    axis, op, coord = step.axis, step.op, mesh.coordinate
    placement = step.source.placements[axis]
    if placement.kind == "shard":
        return _padded(step, coord, placement.dim)
    if coord[axis] == 0 or op in ("avg", "max", "min", "any", "all"):
        return lambda array: array
    return lambda array: array_module(array).full_like(array, _IDENTITY[op](array.dtype))


def _padded(step, coord, dim):
    """A slice among identities."""
    op, shape, factor = step.op, step.result.local_shape(coord), step.source.mesh_shape[step.axis]
    places, offset = [], 0
    for part in positions(step.result.intervals(coord, dim), step.source.intervals(coord, dim)):
        extent = part.stop - part.start
        places.append((_along(dim, slice(offset, offset + extent)), _along(dim, part)))
        offset += extent

    def pad(array):
        whole = array_module(array).full(shape, _IDENTITY[op](array.dtype), array.dtype)
        for taken, place in places:
            whole[place] = array[taken] * factor if op == "avg" else array[taken]
        return whole

    return pad


def _scale(step, mesh, dtype):
    factor = step.factor
    # NumPy makes a scalar of a 0-d array, and may make another dtype of bfloat16.
    return lambda array: array_module(array).asarray(array * factor, array.dtype)


_PREPARE = {
    "slice": _slice,
    "allgather": _all_gather,
    "allreduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "alltoall": _all_to_all,
    "exchange": _exchange,
    "into_partial": _into_partial,
    "scale": _scale,
}
