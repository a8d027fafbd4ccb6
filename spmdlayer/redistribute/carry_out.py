"""Carries out a plan: raw pieces in one layout become raw pieces in another.

Nothing here knows gradients.  Each step of a plan has a function; the pieces
are cut and joined by the intervals that the layouts give, so uneven, empty
and block-cyclic pieces take the same path.
"""

import numpy as np

from ..array import array_module
from ..comm import channel
from ..dtypes import highest, lowest
from ..plan import plan

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
    for step in plan(source, target, array.dtype.itemsize):
        array = _STEPS[step.kind](step, array, source, mesh)
        source = step.result
    return array


def positions(outer, inner):
    """Where the intervals `inner` lie in a piece made of the intervals `outer`: slices of that piece."""
    found = []
    for start, stop in inner:
        offset = 0
        for low, high in outer:
            if start < stop and low <= start and stop <= high:
                found.append(slice(offset + start - low, offset + stop - low))
                break
            offset += high - low
    return found


def cut(array, dim, slices):
    """The parts of an array along one dimension, joined."""
    if len(slices) == 1:
        return array[(slice(None),) * dim + (slices[0],)]
    if not slices:
        return array[(slice(None),) * dim + (slice(0, 0),)]
    return array_module(array).concatenate([array[(slice(None),) * dim + (part,)] for part in slices], axis=dim)


def restrict(array, dims, outer, inner, coord):
    """This rank's own piece under `inner`, cut from its larger piece under `outer`."""
    for dim in dims:
        have, want = outer.intervals(coord, dim), inner.intervals(coord, dim)
        if have != want:
            array = cut(array, dim, positions(have, want))
    return array


def _move_coord(coord, axis, index):
    return coord[:axis] + (index,) + coord[axis + 1 :]


def _group_intervals(layout, coord, axis, dim):
    """The intervals along `dim` of each rank along the mesh axis."""
    return [layout.intervals(_move_coord(coord, axis, index), dim) for index in range(layout.mesh_shape[axis])]


def _extent(intervals):
    return sum(stop - start for start, stop in intervals)


def _join(pieces, dim, group, whole):
    """Pieces along `dim` with the group's intervals, put in their places in `whole`."""
    if all(len(intervals) == 1 for intervals in group):
        starts = [intervals[0][0] for intervals in group]
        filled = [index for index, intervals in enumerate(group) if _extent(intervals)]
        if all(starts[a] < starts[b] for a, b in zip(filled, filled[1:])):
            return array_module(pieces[0]).concatenate(pieces, axis=dim)
    shape = list(pieces[0].shape)
    shape[dim] = _extent(whole)
    joined = array_module(pieces[0]).empty(tuple(shape), pieces[0].dtype)
    for piece, intervals in zip(pieces, group):
        offset = 0
        for part in positions(whole, intervals):
            extent = part.stop - part.start
            joined[(slice(None),) * dim + (part,)] = piece[(slice(None),) * dim + (slice(offset, offset + extent),)]
            offset += extent
    return joined


def _slice(step, array, source, mesh):
    return restrict(array, (step.dim,), source, step.result, mesh.coordinate)


def _all_gather(step, array, source, mesh):
    coord, dim = mesh.coordinate, step.dim
    group = _group_intervals(source, coord, step.axis, dim)
    line = channel(mesh, step.axis)
    sizes = [_extent(intervals) for intervals in group]
    if all(len(intervals) == 1 for intervals in group):
        return line.allgather_into_dim(array, dim, sizes)
    shapes = [array.shape[:dim] + (size,) + array.shape[dim + 1 :] for size in sizes]
    return _join(line.allgather(array, shapes), dim, group, step.result.intervals(coord, dim))


def _all_reduce(step, array, source, mesh):
    axes = step.axes
    return channel(mesh, axes[0] if len(axes) == 1 else tuple(axes)).allreduce(array, step.op)


def _reduce_scatter(step, array, source, mesh):
    coord, dim = mesh.coordinate, step.dim
    have = source.intervals(coord, dim)
    group = _group_intervals(step.result, coord, step.axis, dim)
    blocks = [cut(array, dim, positions(have, want)) for want in group]
    return channel(mesh, step.axis).reduce_scatter(blocks, step.op)


def _all_to_all(step, array, source, mesh):
    coord, axis, gathered, split = mesh.coordinate, step.axis, step.source_dim, step.target_dim
    have = source.intervals(coord, split)
    wanted = _group_intervals(step.result, coord, axis, split)
    blocks = [cut(array, split, positions(have, want)) for want in wanted]
    pieces = _group_intervals(source, coord, axis, gathered)
    mine = _extent(wanted[coord[axis]])
    shapes = []
    for intervals in pieces:
        shape = list(array.shape)
        shape[gathered], shape[split] = _extent(intervals), mine
        shapes.append(tuple(shape))
    received = channel(mesh, axis).alltoall(blocks, shapes)
    return _join(received, gathered, pieces, step.result.intervals(coord, gathered))


def _pack(array, boxes):
    if len(boxes) == 1:
        return array[boxes[0]]
    flat = [array[box].reshape(-1) for box in boxes]
    return array_module(array).concatenate(flat) if flat else array.reshape(-1)[:0]


def _box_shape(box):
    return tuple(part.stop - part.start for part in box)


def exchange(array, sends, receives, shape, line):
    """A general exchange of boxes.

    Parameters
    ----------
    array : raw array to send from (or an empty one)
    sends, receives : for each rank of `line` a list of boxes (tuples of
        slices), into `array` and into the result
    shape : of the result
    line : the Channel
    """
    blocks = [_pack(array, boxes) for boxes in sends]
    shapes = [
        _box_shape(boxes[0]) if len(boxes) == 1 else (sum(int(np.prod(_box_shape(box))) for box in boxes),)
        for boxes in receives
    ]
    received = line.alltoall(blocks, shapes)
    result = array_module(array).empty(shape, array.dtype)
    for block, boxes in zip(received, receives):
        offset, flat = 0, block.reshape(-1)
        for box in boxes:
            extent = _box_shape(box)
            size = int(np.prod(extent))
            result[box] = flat[offset : offset + size].reshape(extent)
            offset += size
    return result


def _exchange(step, array, source, mesh):
    coord = mesh.coordinate
    shape = step.result.local_shape(coord)
    return exchange(array, step.sends(coord), step.receives(coord), shape, channel(mesh, None))


def _into_partial(step, array, source, mesh):
    """A piece that, reduced over the axis, gives the array: no traffic (see the plan's text)."""
    axis, op = step.axis, step.op
    coord, size = mesh.coordinate, source.mesh_shape[axis]
    placement = source.placements[axis]
    if placement.kind != "shard":
        if coord[axis] == 0 or op in ("avg", "max", "min", "any", "all"):
            return array
        return array_module(array).full_like(array, _IDENTITY[op](array.dtype))
    dim = placement.dim
    whole = array_module(array).full(step.result.local_shape(coord), _IDENTITY[op](array.dtype), array.dtype)
    offset = 0
    for part in positions(step.result.intervals(coord, dim), source.intervals(coord, dim)):
        extent = part.stop - part.start
        piece = array[(slice(None),) * dim + (slice(offset, offset + extent),)]
        whole[(slice(None),) * dim + (part,)] = piece * size if op == "avg" else piece
        offset += extent
    return whole


def _scale(step, array, source, mesh):
    return (array * step.factor).astype(array.dtype)


_STEPS = {
    "slice": _slice,
    "allgather": _all_gather,
    "allreduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "alltoall": _all_to_all,
    "exchange": _exchange,
    "into_partial": _into_partial,
    "scale": _scale,
}
