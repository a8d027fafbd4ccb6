"""Layouts: which slice of a global array each rank of a mesh holds.

Pure integer arithmetic, without MPI and without a mesh: a rank is known by
its coordinate.  Along a dimension a rank holds a short list of intervals, so
block-cyclic pieces are no special case.  Where several mesh axes shard one
dimension, each splits the piece left by the axes at its left as an array of
its own.  Replicate, Partial and Own all mean "the whole of what the other axes
leave".
"""

from functools import lru_cache
from itertools import accumulate, product

from .errors import value_error


class Layout:
    """A global shape, and how a mesh's axes cut it into pieces.  Not to be changed once made.

    Parameters
    ----------
    mesh_shape : tuple of int
    placements : tuple of Placement, one for each mesh axis, dims not negative
    shape : tuple of int, the global shape
    splits : None, or a tuple with an entry for each dimension
        None: `numpy.array_split`'s sizes (or block-cyclic).  A tuple: the
        sizes of the pieces, over the flat (row-major) coordinates of the mesh
        axes that shard this dimension.  Sizes that equal the default become
        None, so equal layouts compare equal.
    """

    __slots__ = (
        "mesh_shape",
        "placements",
        "shape",
        "splits",
        "ndim",
        "partial",  # whether a placement is Partial
        "_axes",
        "_hash",
        "_shapes",
        "__weakref__",
    )

    def __init__(self, mesh_shape, placements, shape, splits=None):
        self.mesh_shape = mesh_shape
        self.placements = placements
        self.shape = shape
        self.ndim = len(shape)
        self.partial = any(placement.kind == "partial" for placement in placements)
        axes = [()] * len(shape)
        for axis, placement in enumerate(placements):
            if placement.kind == "shard":
                axes[placement.dim] += (axis,)
        self._axes = tuple(axes)
        self._shapes = {}
        none = (None,) * len(shape)
        self.splits = none if splits is None or splits == none else self._normalise_splits(splits)
        self._hash = hash((mesh_shape, placements, shape, self.splits))

    def _normalise_splits(self, splits):
        if len(splits) != self.ndim:
            raise value_error(f"splits: {splits!r} has {len(splits)} entries; the shape {self.shape} needs {self.ndim}")
        return tuple(self._normalise_sizes(dim, sizes) for dim, sizes in enumerate(splits))

    def _normalise_sizes(self, dim, sizes):
        """None where the sizes along a dimension are the default ones."""
        if sizes is None:
            return None
        sizes, default = tuple(sizes), self._default_sizes(dim)
        if sizes == default:
            return None
        cyclic = any(self.placements[axis].block is not None for axis in self._axes[dim])
        if cyclic or len(sizes) != len(default) or sum(sizes) != self.shape[dim] or min(sizes) < 0:
            right = f"exactly {default}" if cyclic else f"{len(default)} sizes that add up to {self.shape[dim]}"
            raise value_error(f"splits[{dim}]: {sizes} was given; {list(self.placements)} needs {right}")
        return sizes

    def _default_sizes(self, dim):
        counts = [range(self.mesh_shape[axis]) for axis in self._axes[dim]]
        return tuple(_extent(self._default_intervals(dim, flat)) for flat in product(*counts))

    def _default_intervals(self, dim, indices):
        axes = self._axes[dim]
        counts = tuple(self.mesh_shape[axis] for axis in axes)
        return _piece(self.shape[dim], counts, tuple(self.placements[axis].block for axis in axes), indices)

    @property
    def is_default(self):
        """Whether every dimension is cut as `numpy.array_split` (or block-cyclic) cuts it."""
        return not any(self.splits)

    def sharding_axes(self, dim):
        """The mesh axes that shard a dimension, from the left to the right."""
        return self._axes[dim]

    def intervals(self, coord, dim):
        """The global intervals ((start, stop), ...) of a dimension that the rank at `coord` holds.

        Ascending and never touching one another; an empty piece is one
        interval (offset, offset).
        """
        axes = self._axes[dim]
        if not axes:
            return ((0, self.shape[dim]),)
        indices = tuple([coord[axis] for axis in axes])
        if self.splits[dim] is None:
            return self._default_intervals(dim, indices)
        flat = 0
        for axis, index in zip(axes, indices):
            flat = flat * self.mesh_shape[axis] + index
        ends = _ends(self.splits[dim])
        return ((ends[flat], ends[flat + 1]),)

    def local_shape(self, coord):
        """The shape of the piece that the rank at `coord` holds."""
        shape = self._shapes.get(coord)
        if shape is None:
            shape = tuple(
                _extent(self.intervals(coord, dim)) if self._axes[dim] else size for dim, size in enumerate(self.shape)
            )
            self._shapes[coord] = shape
        return shape

    def sizes(self, dim, axis, coord):
        """The sizes along `dim` of the pieces of the ranks along a mesh axis, in the group that contains `coord`."""
        members = (coord[:axis] + (index,) + coord[axis + 1 :] for index in range(self.mesh_shape[axis]))
        return tuple(_extent(self.intervals(member, dim)) for member in members)

    def with_placement(self, axis, placement):
        """The same array with another placement along one mesh axis; see `with_placements`."""
        return self.with_placements(self.placements[:axis] + (placement,) + self.placements[axis + 1 :])

    def with_placements(self, placements):
        """The same array with other placements.

        A dimension that is sharded as before keeps its splits; the others get
        the default.
        """
        plain = Layout(self.mesh_shape, placements, self.shape)
        if self.is_default:
            return plain
        kept = tuple(
            sizes if sizes is not None and self.cuts(dim) == plain.cuts(dim) else None
            for dim, sizes in enumerate(self.splits)
        )
        return Layout(self.mesh_shape, placements, self.shape, kept)

    def cuts(self, dim):
        """How a dimension is cut: (mesh axis, block) for each axis that shards it, from the left to the right."""
        return [(axis, self.placements[axis].block) for axis in self._axes[dim]]

    def same_pieces(self, other):
        """Whether every rank holds the same slice under both layouts, by equal Shard axes and splits."""
        if self.mesh_shape != other.mesh_shape or self.shape != other.shape or self.splits != other.splits:
            return False
        pairs = zip(self.placements, other.placements)
        return all(p is q or (p.kind != "shard" and q.kind != "shard") for p, q in pairs)

    @classmethod
    def from_local_shapes(cls, mesh_shape, placements, local_shapes):
        """The layout of pieces whose shapes are known.

        Parameters
        ----------
        mesh_shape, placements : as for Layout
        local_shapes : dict from coordinate to shape, or the shapes in mesh order

        Raises
        ------
        ValueError where the shapes are no pieces of one array: they differ in
        ndim, in a dimension that is not sharded or between replicas, or they
        are not the sizes that block-cyclic shards have.
        """
        if isinstance(local_shapes, dict):
            shapes = tuple([tuple(local_shapes[coord]) for coord in _coords(mesh_shape)])
        else:
            shapes = tuple([tuple(shape) for shape in local_shapes])
        return _from_local_shapes(mesh_shape, placements, shapes)

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, Layout):
            return NotImplemented
        return (
            self._hash == other._hash
            and self.placements == other.placements
            and self.shape == other.shape
            and self.mesh_shape == other.mesh_shape
            and self.splits == other.splits
        )

    def __hash__(self):
        return self._hash

    def __reduce__(self):
        return Layout, (self.mesh_shape, self.placements, self.shape, self.splits)

    def __repr__(self):
        splits = "" if self.is_default else f", splits={self.splits}"
        return f"Layout(mesh_shape={self.mesh_shape}, {list(self.placements)}, shape={self.shape}{splits})"


@lru_cache(maxsize=4096)
def layout_of(mesh_shape, placements, shape, splits=None):
    """`Layout(...)`, remembered: equal arguments give the same object."""
    return Layout(mesh_shape, placements, shape, splits)


def _extent(intervals):
    return intervals[0][1] - intervals[0][0] if len(intervals) == 1 else sum(stop - start for start, stop in intervals)


def _coords(mesh_shape):
    return product(*map(range, mesh_shape))


@lru_cache(maxsize=1024)
def _ends(sizes):
    return tuple(accumulate(sizes, initial=0))


@lru_cache(maxsize=65536)
def _piece(size, counts, blocks, indices):
    """The intervals of range(size) that remain when each axis in turn splits what its left neighbours leave.

    Axis k has `counts[k]` ranks, takes part number `indices[k]`, in one slice
    where `blocks[k]` is None and in blocks dealt out in turn where it is not.
    """
    intervals = ((0, size),)
    for count, block, index in zip(counts, blocks, indices):
        total = _extent(intervals)
        if block is None:
            base, extra = divmod(total, count)
            start = index * base + min(index, extra)
            parts = [(start, start + base + (index < extra))]
        else:
            starts = range(index * block, total, count * block)
            parts = [(start, min(start + block, total)) for start in starts] or [(total, total)]
        intervals = _select(intervals, parts)
    return intervals


def _select(intervals, parts):
    """Parts counted from the beginning of a list of intervals, as intervals of their own, joined where they touch."""
    if len(intervals) == 1:
        offset = intervals[0][0]
        return _joined([(offset + start, offset + stop) for start, stop in parts])
    found, first, passed = [], 0, 0  # `passed`: what the intervals before the first hold
    for start, stop in parts:
        while first < len(intervals) - 1 and passed + intervals[first][1] - intervals[first][0] <= start:
            passed += intervals[first][1] - intervals[first][0]
            first += 1
        if start == stop:
            found.append((intervals[first][0] + start - passed,) * 2)
        position, k = passed, first
        while k < len(intervals) and position < stop:
            low, high = intervals[k]
            begin, end = max(start - position, 0), min(stop - position, high - low)
            if begin < end:
                found.append((low + begin, low + end))
            position += high - low
            k += 1
    return _joined(found)


def _joined(intervals):
    joined = [intervals[0]]
    for start, stop in intervals[1:]:
        if start == joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)


@lru_cache(maxsize=4096)
def _from_local_shapes(mesh_shape, placements, shapes):
    coords = list(_coords(mesh_shape))
    if len(shapes) != len(coords):
        raise value_error(f"local: {len(shapes)} shapes were given for a mesh of shape {mesh_shape}")
    ndim = len(shapes[0])
    for coord, shape in zip(coords, shapes):
        if len(shape) != ndim:
            raise _disagreement(coords[0], shapes[0], coord, shape, "the number of dimensions must be the same")
    for axis, placement in enumerate(placements):
        if placement.kind == "shard" and not 0 <= placement.dim < ndim:
            raise value_error(f"placements[{axis}]: {placement!r} is outside the {ndim} dims of local, {shapes[0]}")
    splits = tuple(_split_sizes(dim, mesh_shape, placements, coords, shapes) for dim in range(ndim))
    whole = Layout(mesh_shape, placements, tuple(map(sum, splits)))
    _check_cyclic(whole, splits, coords, shapes)
    return Layout(mesh_shape, placements, whole.shape, splits)


def _split_sizes(dim, mesh_shape, placements, coords, shapes):
    """The sizes of the pieces along a dimension, over the flat coordinates of the axes that shard it."""
    axes = [axis for axis, placement in enumerate(placements) if placement.is_shard(dim)]
    first = {}
    for coord, shape in zip(coords, shapes):
        key = tuple([coord[axis] for axis in axes])
        other, shape_there = first.setdefault(key, (coord, shape))
        if shape[dim] != shape_there[dim]:
            if axes:
                whole = f"only mesh axis {' and '.join(map(str, axes))} shards it, and both ranks are at {key} there"
            else:
                whole = f"no placement in {list(placements)} shards it"
            raise _disagreement(other, shape_there, coord, shape, f"dim {dim} must be the same, for {whole}")
    return tuple([shape[dim] for _, shape in first.values()])


def _check_cyclic(whole, splits, coords, shapes):
    """Raise where a dimension is dealt out in blocks and the pieces have other sizes than that gives."""
    for dim, sizes in enumerate(splits):
        axes = whole.sharding_axes(dim)
        if all(whole.placements[axis].block is None for axis in axes) or sizes == whole._default_sizes(dim):
            continue
        for coord, shape in zip(coords, shapes):
            right = whole.local_shape(coord)
            if shape[dim] != right[dim]:
                raise value_error(
                    f"local: the rank at mesh coordinate {coord} has shape {shape}; {list(whole.placements)} of "
                    f"{whole.shape[dim]} items in dim {dim} gives it {right[dim]} there"
                )


def _disagreement(one, shape_of_one, other, shape_of_other, right):
    return value_error(
        f"local: the ranks at mesh coordinates {one} and {other} have shapes "
        f"{shape_of_one} and {shape_of_other}; {right}"
    )
