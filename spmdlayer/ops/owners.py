"""Which rank holds which positions of a sharded dimension, and how elements are asked of it."""

from functools import lru_cache
from itertools import pairwise, product
from math import prod

import numpy as np

from ..array import array_module
from ..comm import channel
from .rules import cut_coordinates


def as_lines(x, axis):
    """The lines of an array along an axis, as the rows of a matrix."""
    moved = array_module(x).moveaxis(x, axis, -1)
    return moved.reshape(prod(moved.shape[:-1]), moved.shape[-1])


def from_lines(lines, shape, axis):
    """The inverse of `as_lines`, for an array of a shape."""
    others = shape[:axis] + shape[axis + 1 :]
    return array_module(lines).moveaxis(lines.reshape(*others, shape[axis]), -1, axis)


def sharded(layout, dim):
    """Whether a dimension lies on more than one rank."""
    return prod(layout.mesh_shape[axis] for axis in layout.sharding_axes(dim)) > 1


def group(mesh, axes):
    """The Channel of the ranks along some axes, in the order in which they hold pieces."""
    return channel(mesh, axes[0] if len(axes) == 1 else tuple(axes))


def members_along(mesh_shape, coord, axes):
    """The coordinates of the ranks that differ from one in its coordinates on some axes, in mesh order."""
    for indices in product(*(range(mesh_shape[axis]) for axis in axes)):
        at = dict(zip(axes, indices))
        yield tuple(at.get(axis, own) for axis, own in enumerate(coord))


def group_rows(line, row):
    """Every rank's small row of integers, of one length, as a matrix; a record."""
    rows = line.record(np.asarray(row, np.int64).tobytes())
    return np.array([np.frombuffer(found, np.int64) for found in rows])


def send_blocks(line, flat, counts):
    """Consecutive parts of a flat array to one rank each; the list of what comes, whose sizes a record tells."""
    ends = np.concatenate([[0], np.cumsum(counts)]).tolist()
    coming = group_rows(line, counts)[:, line.rank].tolist()
    return line.alltoall([flat[start:stop] for start, stop in pairwise(ends)], [(n,) for n in coming])


class Owners:
    """Where the ranks that share a dimension with this one hold each position.

    Attributes
    ----------
    starts : the first positions of all intervals that are not empty, ascending
    ranks, offsets : for each interval which rank of the group holds it, and where in its piece it begins
    extents : of each rank's piece
    """

    def __init__(self, layout, dim):
        held = [layout.intervals(member, dim) for member in cut_coordinates(layout, dim)]
        found = []
        for rank, intervals in enumerate(held):
            offset = 0
            for start, stop in intervals:
                if start < stop:
                    found.append((start, rank, offset))
                offset += stop - start
        self.starts, self.ranks, self.offsets = np.array(sorted(found), np.int64).reshape(-1, 3).T
        self.extents = np.array([sum(stop - start for start, stop in intervals) for intervals in held])

    def request(self, places):
        """What to ask of whom, for a matrix with a row of positions for each line."""
        interval = np.searchsorted(self.starts, places, side="right") - 1
        owner = self.ranks[interval]
        rows = np.arange(len(places))[:, None]
        flat = self.extents[owner] * rows + self.offsets[interval] + places - self.starts[interval]
        order = np.argsort(owner, axis=None, kind="stable")
        small = len(places) * int(self.extents.max()) < 2**31
        flat = flat.reshape(-1)[order].astype(np.int32 if small else np.int64)
        return Request(flat, np.bincount(owner.reshape(-1), minlength=len(self.extents)), order)


@lru_cache(maxsize=256)
def owners_of(layout, dim):
    """The Owners of a dimension; the same for all ranks that share it."""
    return Owners(layout, dim)


class Request:
    """Positions in the owners' pieces (line by line, flat), sorted by owner.

    Attributes
    ----------
    flat : the positions
    counts : how many of each owner
    order : which element of the matrix each one is for
    """

    def __init__(self, flat, counts, order):
        self.flat, self.counts, self.order = flat, counts, order

    def restore(self, answers):
        """What the owners sent, in the order of the matrix; flat."""
        answers = np.concatenate(answers)
        result = np.empty_like(answers)
        result[self.order] = answers
        return result


def global_positions(layout, coord, dim, places):
    """Where places in a piece along a dimension lie in the whole dimension."""
    intervals = layout.intervals(coord, dim)
    if len(intervals) == 1:
        return places + intervals[0][0]
    return np.concatenate([np.arange(start, stop) for start, stop in intervals])[places]


def global_flat(layout, coord, places):
    """Flat (row-major) places in a piece as flat places in the whole array; increasing where the places are."""
    shape = layout.local_shape(coord)
    if not layout.ndim or shape == layout.shape:
        return places
    index = np.unravel_index(places, shape)
    return np.ravel_multi_index(
        [global_positions(layout, coord, dim, part) for dim, part in enumerate(index)], layout.shape
    )
