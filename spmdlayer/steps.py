"""The steps that plans are made of: what each does, and what it sends.

Pure integer arithmetic, without traffic.  A step is a collective along mesh
axes, an exchange of boxes over the whole mesh, or local work.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import ClassVar

from .layout import Layout
from .placement import Replicate

_REPLICATE = Replicate()
_SAMPLES = 16  # ranks that an exchange's bytes are estimated from, on larger meshes


@dataclass(frozen=True, slots=True)
class Step:
    """Base of the steps: local work from layout `source` to layout `result`, and no traffic."""

    source: Layout
    result: Layout
    itemsize: int
    kind: ClassVar[str]
    rounds: ClassVar[int] = 0
    work: ClassVar[int] = 1  # local packing; decides where traffic is equal

    def bytes(self, coord):
        """The bytes that the rank at a mesh coordinate sends to others (for an allreduce: the least that it has to)."""
        return 0

    def total(self):
        """What all ranks send together, times the size of the mesh (so that it is an integer)."""
        return 0

    def _held(self):
        """The items that all ranks hold together under `source`, times the size of the mesh."""
        ranks = prod(self.source.mesh_shape)
        return prod(self.source.shape) * ranks * ranks // parts(self.source)


@dataclass(frozen=True, slots=True)
class Slice(Step):
    """Replicate to Shard(dim) along `axis`: each rank keeps its slice."""

    axis: int
    dim: int
    kind: ClassVar[str] = "slice"


@dataclass(frozen=True, slots=True)
class IntoPartial(Step):
    """Replicate or Shard to Partial(op) along `axis`, by identities in the other places."""

    axis: int
    op: str
    kind: ClassVar[str] = "into_partial"


@dataclass(frozen=True, slots=True)
class Scale(Step):
    """Partial sum to avg or back along `axis`: each piece times `factor`."""

    axis: int
    factor: float
    kind: ClassVar[str] = "scale"


@dataclass(frozen=True, slots=True)
class AllGather(Step):
    """Shard(dim) to Replicate along `axis`."""

    axis: int
    dim: int
    kind: ClassVar[str] = "allgather"
    rounds: ClassVar[int] = 1

    def bytes(self, coord):
        return prod(self.source.local_shape(coord)) * (self.source.mesh_shape[self.axis] - 1) * self.itemsize

    def total(self):
        return self._held() * (self.source.mesh_shape[self.axis] - 1) * self.itemsize


@dataclass(frozen=True, slots=True)
class AllReduce(Step):
    """Partial(op) to Replicate along several axes at once."""

    axes: tuple
    op: str
    kind: ClassVar[str] = "allreduce"
    rounds: ClassVar[int] = 1

    def bytes(self, coord):
        ranks = prod(self.source.mesh_shape[axis] for axis in self.axes)
        return -(-2 * prod(self.source.local_shape(coord)) * self.itemsize * (ranks - 1) // ranks)

    def total(self):
        ranks = prod(self.source.mesh_shape[axis] for axis in self.axes)
        return 2 * self._held() // ranks * (ranks - 1) * self.itemsize


@dataclass(frozen=True, slots=True)
class ReduceScatter(Step):
    """Partial(op) to Shard(dim) along `axis`."""

    axis: int
    dim: int
    op: str
    kind: ClassVar[str] = "reduce_scatter"
    rounds: ClassVar[int] = 1

    def bytes(self, coord):
        kept = prod(self.result.local_shape(coord))
        return (prod(self.source.local_shape(coord)) - kept) * self.itemsize

    def total(self):
        ranks = self.source.mesh_shape[self.axis]
        return self._held() // ranks * (ranks - 1) * self.itemsize


@dataclass(frozen=True, slots=True)
class AllToAll(Step):
    """Shard(source_dim) to Shard(target_dim) along `axis`."""

    axis: int
    source_dim: int
    target_dim: int
    kind: ClassVar[str] = "alltoall"
    rounds: ClassVar[int] = 1

    def bytes(self, coord):
        shape = self.source.local_shape(coord)
        others = shape[self.target_dim] - self.result.local_shape(coord)[self.target_dim]
        return prod(shape[: self.target_dim]) * others * prod(shape[self.target_dim + 1 :]) * self.itemsize

    def total(self):
        ranks = self.source.mesh_shape[self.axis]
        return self._held() // ranks * (ranks - 1) * self.itemsize


@dataclass(frozen=True, slots=True)
class Exchange(Step):
    """Any Shard and Replicate axes to any others, box by box; other axes keep what they are.

    Of a replicated source a rank reads the replica at its own coordinates, so
    what it holds already it takes from itself.
    """

    kind: ClassVar[str] = "exchange"
    rounds: ClassVar[int] = 2  # messages between many pairs cost more than one collective along an axis
    work: ClassVar[int] = 3

    def sends(self, coord):
        """For each rank in mesh order the boxes, as tuples of slices into this rank's source piece, that it gets."""
        return self._boxes(self.source, self.result, coord)

    def receives(self, coord):
        """For each rank in mesh order the boxes, as tuples of slices into this rank's result, that it fills."""
        return self._boxes(self.result, self.source, coord)

    def _boxes(self, mine, theirs, coord):
        placements = self.source.placements
        fixed = [None if p.kind == "shard" else index for p, index in zip(placements, coord)]
        held = _box(mine, coord)
        boxes = [()] * prod(mine.mesh_shape)
        for other, common in _overlapping(theirs, held, fixed):
            boxes[_flat(other, mine.mesh_shape)] = _slices(held, common)
        return boxes

    def bytes(self, coord):
        boxes = self.sends(coord)
        boxes[_flat(coord, self.source.mesh_shape)] = ()
        return sum(_volume(box) for sent in boxes for box in sent) * self.itemsize

    def total(self):
        return _missing(_plain(self.source), _plain(self.result)) * prod(self.source.mesh_shape) * self.itemsize


class ExchangeBetween:
    """The general exchange between two meshes; the ranks are those of the communicator that both share.

    Of a replicated piece a rank that holds it takes its own; the others take
    turns among the replicas.
    """

    kind = "exchange"

    def __init__(self, source, source_ranks, target, target_ranks):
        self.source, self.result = source, target
        self.ranks = tuple(sorted({*source_ranks, *target_ranks}))
        self._source_ranks, self._target_ranks = source_ranks, target_ranks
        self._source_places = {rank: place for place, rank in enumerate(source_ranks)}
        self._target_places = {rank: place for place, rank in enumerate(target_ranks)}
        shape, placements = source.mesh_shape, source.placements
        self._replicas = [index for index, p in enumerate(placements) if p.kind != "shard"]
        self._copies = [shape[axis] for axis in self._replicas]

    def sends(self, rank):
        """A dict from rank to the boxes, as tuples of slices into this rank's source piece, that it gets."""
        if rank not in self._source_places:
            return {}
        coord = _unflat(self._source_places[rank], self.source.mesh_shape)
        held, boxes = _box(self.source, coord), {}
        for other, common in _overlapping(self.result, held, [None] * len(self.result.mesh_shape)):
            place = _flat(other, self.result.mesh_shape)
            if self._owner(coord, place) == coord:
                boxes[self._target_ranks[place]] = _slices(held, common)
        return boxes

    def receives(self, rank):
        """A dict from rank to the boxes, as tuples of slices into this rank's result, that it fills."""
        if rank not in self._target_places:
            return {}
        place = self._target_places[rank]
        held, boxes = _box(self.result, _unflat(place, self.result.mesh_shape)), {}
        fixed = [0 if axis in self._replicas else None for axis in range(len(self.source.mesh_shape))]
        for piece, common in _overlapping(self.source, held, fixed):
            owner = _flat(self._owner(piece, place), self.source.mesh_shape)
            boxes[self._source_ranks[owner]] = _slices(held, common)
        return boxes

    def _owner(self, piece, place):
        """The coordinate of the replica of a source piece from which the target's rank number `place` takes it."""
        own = self._source_places.get(self._target_ranks[place])
        if own is not None:
            coord = _unflat(own, self.source.mesh_shape)
            if all(a == b for axis, (a, b) in enumerate(zip(coord, piece)) if axis not in self._replicas):
                return coord
        copies = prod(self._copies)
        turn = _unflat((place + place // copies) % copies, self._copies)
        chosen = list(piece)
        for axis, index in zip(self._replicas, turn):
            chosen[axis] = index
        return tuple(chosen)


def _plain(layout):
    """The same pieces, whatever they mean along the axes that do not shard."""
    return layout.with_placements(tuple(p if p.kind == "shard" else _REPLICATE for p in layout.placements))


@lru_cache(maxsize=4096)
def _missing(source, result):
    """The items that all ranks together do not hold yet; estimated from some of the ranks where there are many."""
    ranks, missing = prod(source.mesh_shape), 0
    step = -(-ranks // _SAMPLES)
    for place in range(0, ranks, step):
        coord = _unflat(place, source.mesh_shape)
        common = [_common(a, b) for a, b in zip(_box(source, coord), _box(result, coord))]
        missing += prod(result.local_shape(coord)) - prod(sum(stop - start for start, stop in c) for c in common)
    return missing * step


def parts(layout):
    """How many pieces an array is cut into, replicas counted once."""
    return prod(size for size, p in zip(layout.mesh_shape, layout.placements) if p.kind == "shard")


def _flat(coord, mesh_shape):
    place = 0
    for index, size in zip(coord, mesh_shape):
        place = place * size + index
    return place


def _unflat(place, mesh_shape):
    coord = []
    for size in reversed(mesh_shape):
        place, index = divmod(place, size)
        coord.append(index)
    return tuple(reversed(coord))


def _box(layout, coord):
    """What the rank at `coord` holds: its intervals along each dimension."""
    return [layout.intervals(coord, dim) for dim in range(layout.ndim)]


def _volume(box):
    return prod(part.stop - part.start for part in box)


def _common(one, other):
    """The intervals that two ascending lists of intervals share; empty ones are left out."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        start, stop = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < stop:
            found.append((start, stop))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def _overlapping(layout, box, fixed):
    """The ranks of a layout whose pieces overlap a box: pairs of coordinate and common intervals along each dimension.

    `fixed` has an index for each mesh axis that does not vary, else None.  The
    cost is that of the axes one by one and of what is found, not of all ranks.
    """
    choices = [range(size) if index is None else (index,) for size, index in zip(layout.mesh_shape, fixed)]
    found = [([0 if index is None else index for index in fixed], [])]
    for dim in range(layout.ndim):
        axes = layout.sharding_axes(dim)
        options = []
        for indices in product(*[choices[axis] for axis in axes]):
            coord = _with_indices([0] * len(fixed), axes, indices)
            common = _common(box[dim], layout.intervals(coord, dim))
            if common:
                options.append((indices, common))
        found = [
            (_with_indices(coord, axes, indices), commons + [common])
            for coord, commons in found
            for indices, common in options
        ]
    free = [axis for axis, p in enumerate(layout.placements) if p.kind != "shard"]
    for coord, commons in found:
        for indices in product(*[choices[axis] for axis in free]):
            yield tuple(_with_indices(coord, free, indices)), commons


def _with_indices(coord, axes, indices):
    changed = list(coord)
    for axis, index in zip(axes, indices):
        changed[axis] = index
    return changed


def _slices(box, commons):
    """The parts of a piece that hold the common intervals, as tuples of slices into it."""
    return list(product(*[positions(intervals, common) for intervals, common in zip(box, commons)]))


def positions(outer, inner):
    """Where the intervals `inner` lie in a piece made of the intervals `outer`: slices of that piece; none if empty."""
    found, k, offset = [], 0, 0  # both lists ascend
    for start, stop in inner:
        if start == stop:
            continue
        while outer[k][1] < stop:
            offset += outer[k][1] - outer[k][0]
            k += 1
        found.append(slice(offset + start - outer[k][0], offset + stop - outer[k][0]))
    return found
