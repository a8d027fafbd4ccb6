"""Pieces of an array with what lies around them: ghosts, which neighbours hold or a boundary rule gives.

Along some dims each piece becomes a range of positions that may overlap its
neighbours' and reach beyond the array.  Where a range comes from is a few
`Run`s, so that `moving` finds who sends what to whom: all dims at once, corners
among them, and as far as a range reaches.  The adjoint adds every ghost to the
element that it is a copy of.
"""

from functools import lru_cache

from ..array import array_module
from ..dtypes import is_half
from ..layout import Layout
from ..placement import Shard
from .moving import Mover, Run, reverse
from .owners import sharded
from .rules import cut_coordinates

BOUNDARIES = ("periodic", "zero", "reflect", "edge")
_APART = 1 << 20  # bytes of a piece from which work on its inside begins while the ghosts travel


@lru_cache(maxsize=1024)
def ranges_around(layout, widths):
    """For each dim the ranges (low, high) of the pieces with `widths[dim]` = (before, after) around them, in order.

    None for a dim without any.
    """
    return tuple(
        tuple(
            (start - before, stop + after)
            for ((start, stop),) in (layout.intervals(coord, dim) for coord in cut_coordinates(layout, dim))
        )
        if before or after
        else None
        for dim, (before, after) in enumerate(widths)
    )


def ghost_runs(ranges, extent, boundary):
    """The runs from ranges of positions, one behind the other, to the positions of a dim that they stand for."""
    runs, offset = [], 0
    for low, high in ranges:
        for first, end, source, step in _segments(low, high, extent, boundary):
            if first < end:
                runs.append(Run(offset + first - low, 1, source, step, end - first))
        offset += high - low
    return tuple(runs)


def _segments(low, high, extent, boundary):
    """(first, end, source, step): the positions first to end are copies of source, source + step, ..."""
    if boundary == "periodic":
        for lap in range(low // extent, -(-high // extent)):
            first = max(low, lap * extent)
            yield first, min(high, (lap + 1) * extent), first - lap * extent, 1
        return
    first = max(low, 0)
    yield first, min(high, extent), first, 1
    below, above = min(high, 0), max(low, extent)
    if boundary == "reflect":
        yield low, below, -low, -1
        yield above, high, 2 * (extent - 1) - above, -1
    elif boundary == "edge":
        for position in range(low, below):
            yield position, position + 1, 0, 1
        for position in range(above, high):
            yield position, position + 1, extent - 1, 1


class Ghosts:
    """How pieces in a layout get their ghosts, and give them back; see `ghosts_of`.

    Attributes
    ----------
    source : Layout of the array
    extended : Layout of the extended pieces, one behind the other
    sharded : whether a dim with ghosts is sharded
    exchanged : the dims with ghosts that other ranks may hold
    """

    def __init__(self, source, ranges, boundary):
        self.source, self.boundary = source, boundary
        shape, splits, maps = list(source.shape), list(source.splits), {}
        placements = list(source.placements)
        for dim, parts in enumerate(ranges):
            if parts is None:
                continue
            sizes = tuple(high - low for low, high in parts)
            maps[dim] = ghost_runs(parts, shape[dim], boundary)
            shape[dim] = sum(sizes)
            splits[dim] = sizes if source.sharding_axes(dim) else None
            for axis in source.sharding_axes(dim):
                placements[axis] = Shard(dim)
        self.extended = Layout(source.mesh_shape, tuple(placements), tuple(shape), tuple(splits))
        self._out = Mover.between(source, self.extended, maps)
        back = {dim: tuple(map(reverse, runs)) for dim, runs in maps.items()}
        self._back = Mover.between(self.extended, source, back, add=True)
        self.sharded = len(self._out.axes) > 0
        self.exchanged = frozenset(dim for dim in maps if sharded(source, dim))

    def sends(self, dtype):
        """The bytes that a rank sends for its neighbours' ghosts, as a function of its coordinate."""
        return lambda coord: self._out.items(coord) * dtype.itemsize

    def sends_back(self, dtype):
        """The bytes that a rank sends to give its ghosts back."""
        return lambda coord: self._back.items(coord) * dtype.itemsize

    def extend(self, x, mesh=None):
        """This rank's extended piece, collective over the mesh; without a mesh the array is not cut."""
        result = self._empty(x, () if mesh is None else mesh.coordinate)
        return self._out.alone(x, result) if mesh is None else self._out.on(mesh, x.dtype)(x, result)

    def begin(self, x, mesh):
        """As `extend`, but returns once all is under way: the piece, and a function that waits for others' ghosts."""
        result = self._empty(x, mesh.coordinate)
        return result, self._out.begun(mesh, x.dtype)(x, result)

    def overlaps(self, x):
        """Whether work on a piece should begin before others' ghosts come.

        Not where they are columns: these cost more to work on apart than to
        wait for.
        """
        columns = x.ndim > 1 and x.ndim - 1 in self.exchanged
        return bool(self.exchanged) and not columns and x.nbytes >= _APART and not is_half(x.dtype)

    def _empty(self, x, coord):
        np = array_module(x)
        return (np.zeros if self.boundary == "zero" else np.empty)(self.extended.local_shape(coord), x.dtype)

    def fold(self, g, mesh=None):
        """This rank's piece of the adjoint of `extend`, collective over the mesh; half precision adds up in single."""
        coord = () if mesh is None else mesh.coordinate
        np = array_module(g)
        result = np.zeros(self.source.local_shape(coord), np.float32 if is_half(g.dtype) else g.dtype)
        total = self._back.alone(g, result) if mesh is None else self._back.on(mesh, g.dtype)(g, result)
        return total.astype(g.dtype, copy=False)


@lru_cache(maxsize=1024)
def ghosts_of(source, ranges, boundary):
    """The Ghosts of a layout.

    Parameters
    ----------
    source : Layout
    ranges : for each dim None, or a range (low, high) of positions for each piece in order (any number where the dim
        is not sharded; then they are one behind the other in one piece)
    boundary : what positions beyond the array are, one of BOUNDARIES; "reflect" at most as far as it has positions
    """
    return Ghosts(source, ranges, boundary)


def inside_and_around(shape, reach):
    """A box with a distance (before, after) from the ends of each dim; then slabs that with it fill the shape.

    The slabs lie at both ends of a dim, between those of the dims before it.
    """
    sides, slabs = [slice(0, extent) for extent in shape], []
    for dim, (before, after) in enumerate(reach):
        if before or after:
            start, stop = min(before, shape[dim]), max(shape[dim] - after, min(before, shape[dim]))
            slabs += [(*sides[:dim], end, *sides[dim + 1 :]) for end in (slice(0, start), slice(stop, shape[dim]))]
            sides[dim] = slice(start, stop)
    return [tuple(sides), *slabs]


def whole_layout(shape):
    """The Layout of an array that is not cut, without a mesh."""
    return Layout((), (), tuple(shape))
