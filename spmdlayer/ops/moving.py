"""Moving elements along dims: who sends what to whom, by arithmetic alone.

Slices, reversals, rolls and joins take each position of a dim of the result
from a position of the operand that every rank can work out.  A dim's map is a
few `Run`s, so that nothing as long as the dim is written down; with the
intervals that the layouts give it yields the boxes that pairs of ranks
exchange.  Only what another rank needs is sent, and no indices.
"""

from bisect import bisect_left, bisect_right
from functools import cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ..redistribute.carry_out import box_shape, copy_boxes, exchange, exchange_begun
from .owners import group, members_along

# From so many slices of one dim on they are written as an array of positions.
_MANY = 32


class Run(NamedTuple):
    """Positions target + k * target_step of the result from source + k * source_step, for k in range(count)."""

    target: int
    target_step: int  # positive
    source: int
    source_step: int
    count: int


def reverse(run):
    """The run from the result to the operand, for the adjoint."""
    target, target_step, source, source_step, count = run
    if source_step < 0:
        last = count - 1
        return Run(source + last * source_step, -source_step, target + last * target_step, -target_step, count)
    return Run(source, source_step, target, target_step, count)


def span_run(span):
    """The run of a slice (`index_form.Span`)."""
    count = len(range(span.start, -1 if span.stop is None else span.stop, span.step))
    return Run(0, 1, span.start, span.step, count)


# Common parts --------------------------------------------------------------


def _steps_inside(first, step, count, start, stop):
    """The k, as a range's bounds, for which first + k * step lies in the interval [start, stop)."""
    if step < 0:
        first, step, start, stop = -first, -step, 1 - stop, 1 - start
    low, high = -((first - start) // step), -((first - stop) // step)
    return min(max(low, 0), count), min(max(high, 0), count)


def common(have, want, runs):
    """What a piece with the intervals `have` gives to one with the intervals `want`.

    Pairs of slices into either piece, of equal lengths; or one pair of arrays
    of positions where there are many.
    """
    starts = [start for start, _ in have]
    offsets = np.cumsum([0, *(stop - start for start, stop in have)]).tolist()
    found, offset = [], 0
    for low, high in want:
        for run in runs:
            first, end = _steps_inside(run.target, run.target_step, run.count, low, high)
            if first < end:
                place = offset + run.target - low
                found += _from(have, starts, offsets, run, first, end, place)
        offset += high - low
    return _as_positions(found) if len(found) > _MANY else found


def _from(have, starts, offsets, run, first, end, place):
    """The parts of the steps first to end of a run that lie in the intervals `have`."""
    ends = sorted((run.source + first * run.source_step, run.source + (end - 1) * run.source_step))
    for k in range(max(bisect_right(starts, ends[0]) - 1, 0), bisect_left(starts, ends[1] + 1)):
        low, high = have[k]
        a, b = _steps_inside(run.source, run.source_step, run.count, low, high)
        a, b = max(a, first), min(b, end)
        if a < b:
            source = offsets[k] + run.source + a * run.source_step - low
            yield (
                _slice(source, run.source_step, b - a),
                _slice(place + a * run.target_step, run.target_step, b - a),
            )


def _slice(start, step, count):
    stop = start + (count - 1) * step + (1 if step > 0 else -1)
    return slice(start, None if stop < 0 else stop, step)


def _as_positions(pairs):
    positions = [np.concatenate([_arange(pair[which]) for pair in pairs]) for which in (0, 1)]
    return [tuple(positions)]


def _arange(part):
    return np.arange(part.start, -1 if part.stop is None else part.stop, part.step)


def _boxes(shape, dims, commons, which):
    """The boxes of a piece of a shape, from what is common along each moved dim; the other dims whole."""
    boxes = []
    for parts in product(*commons):
        box = [slice(0, extent) for extent in shape]
        for dim, part in zip(dims, parts):
            box[dim] = part[which]
        if sum(isinstance(part, np.ndarray) for part in box) > 1:  # arrays side by side would be paired, not crossed
            box = np.ix_(*[part if isinstance(part, np.ndarray) else _arange(part) for part in box])
        boxes.append(tuple(box))
    return boxes


# Movers --------------------------------------------------------------------


class Mover:
    """How pieces of an array become pieces of another by the maps of some dims; the other dims are cut alike.

    Parameters
    ----------
    mesh_shape : tuple of int
    axes : the mesh axes that shard moved dims of the operand, ascending; ranks along them exchange
    maps : {dim: sequence of Run}
    have, want : functions of (coordinate, dim), the intervals of the operand's and the result's piece
    shapes : the pair of functions of the coordinate to the shape of the operand's and of the result's piece
    add : what several positions of the operand give to one of the result is added
    """

    def __init__(self, mesh_shape, axes, maps, have, want, shapes, add=False):
        self.mesh_shape, self.axes, self.dims, self.maps, self.add = mesh_shape, axes, tuple(maps), maps, add
        self.have, self.want, self.shapes = have, want, shapes
        self.on, self.begun = cache(self._on), cache(self._begun)

    @classmethod
    def between(cls, source, target, maps, add=False):
        """From one layout to another."""
        axes = sorted({axis for dim in maps for axis in source.sharding_axes(dim)})
        shapes = source.local_shape, target.local_shape
        return cls(source.mesh_shape, axes, maps, source.intervals, target.intervals, shapes, add)

    def group_of(self, coord):
        """The coordinates of the ranks that exchange with the one at a coordinate, in the order of their channel."""
        return members_along(self.mesh_shape, coord, self.axes)

    def _commons(self, giver, taker):
        return [common(self.have(giver, dim), self.want(taker, dim), self.maps[dim]) for dim in self.dims]

    def boxes_to(self, coord):
        """For each rank of the group the boxes that the rank at a coordinate gives it."""
        shape = self.shapes[0](coord)
        return [_boxes(shape, self.dims, self._commons(coord, taker), 0) for taker in self.group_of(coord)]

    def boxes_from(self, coord):
        """For each rank of the group where what it gives belongs."""
        shape = self.shapes[1](coord)
        return [_boxes(shape, self.dims, self._commons(giver, coord), 1) for giver in self.group_of(coord)]

    def _on(self, mesh, dtype):
        """The move as a function of this rank's piece, of a dtype, and maybe the result to be written to."""
        coord, line = mesh.coordinate, group(mesh, self.axes)
        return exchange(self.boxes_to(coord), self.boxes_from(coord), self.shapes[1](coord), line, dtype, self.add)

    def _begun(self, mesh, dtype):
        """The move as a function that returns once all is under way: see `exchange_begun`."""
        coord = mesh.coordinate
        return exchange_begun(self.boxes_to(coord), self.boxes_from(coord), group(mesh, self.axes), dtype)

    def alone(self, array, result):
        """The move where no dim is sharded, without a mesh."""
        ((taken,), (place,)) = self.boxes_to(()), self.boxes_from(())
        copy_boxes(zip(taken, place), array, result, self.add)
        return result

    def items(self, coord):
        """How many elements the rank at a coordinate sends to others."""
        others = [boxes for taker, boxes in zip(self.group_of(coord), self.boxes_to(coord)) if taker != coord]
        return sum(prod(box_shape(box)) for boxes in others for box in boxes)
