"""Elements at positions that values decide: who asks whom for what.

Positions along sharded dims are looked up in the intervals that the layout
gives: the rank that holds each, and its place in that rank's piece.  Where
index arrays are the same on all ranks of a group, every one works out what the
others need; else each sends its requests first.  An element that a rank needs
twice travels once, and contributions to one element are added up before they
are sent.
"""

import struct
from typing import NamedTuple

import numpy as np

from ..array import array_module, to_numpy
from ..comm import channel
from ..dtypes import is_half
from ..redistribute.carry_out import positions
from .index_form import as_broadcast, raw_index
from .owners import group, members_along, owners_of
from .rules import cut_coordinates

_NARROW = 1 << 31  # below so many possible positions a request has 4 bytes


class Lookup:
    """Where the positions along some dims of a layout are.

    Parameters
    ----------
    layout : Layout
    dims : the dims that positions are given for
    axes : the mesh axes that shard them, ascending; their ranks make a group, in row-major order
    """

    def __init__(self, layout, dims, axes):
        self.dims = [(owners_of(layout, dim), _parts(layout, dim, axes)) for dim in dims]

    def __call__(self, places):
        """For an array of positions a dim: the rank of the group that holds each, and the places in its piece."""
        owner, local = np.zeros(places[0].shape, np.intp), []
        for (owners, parts), place in zip(self.dims, places):
            interval = np.searchsorted(owners.starts, place, "right") - 1
            owner = owner + parts[owners.ranks[interval]]
            local.append(owners.offsets[interval] + place - owners.starts[interval])
        return owner, local


def _parts(layout, dim, axes):
    """What each rank that shares a dim adds to the rank of a larger group, along `axes`."""
    sizes = [layout.mesh_shape[axis] for axis in axes]
    held = [[coord[axis] for axis in axes] for coord in cut_coordinates(layout, dim)]
    return np.array([np.ravel_multi_index(indices, sizes) for indices in held])


class Request(NamedTuple):
    """What a rank needs of one rank of its group."""

    selected: np.ndarray  # which of its places, flattened
    keys: np.ndarray  # the places in the other's piece, flattened over the dims, each once
    order: np.ndarray  # for each selected place which of the keys it is


class Fetcher:
    """How the elements that index arrays name are brought to the result's pieces, or back.

    Parameters
    ----------
    source : Layout of what is read; the axes that shard indexed dims are those along which ranks exchange
    dims : the dims that index arrays stand for
    axes : these mesh axes, ascending
    searched : for each of `dims` whether its positions are global; else they are places in the piece
    given, wanted : Layouts over the index arrays' broadcast shape, of the arrays that a rank is given, and of
        the part that it needs
    form : function of the coordinate to the form of the local index
    arrays_at : where the arrays' dims begin in the result
    """

    def __init__(self, source, dims, axes, searched, given, wanted, form, arrays_at):
        self.source, self.dims, self.axes, self.searched = source, dims, axes, searched
        self.given, self.wanted, self.form, self.at = given, wanted, form, arrays_at
        self.lookup = Lookup(source, [dim for dim, global_ in zip(dims, searched) if global_], axes)
        self.extents = tuple(source.shape[dim] for dim in dims)
        self.key = np.dtype(np.int32 if np.prod(self.extents, dtype=float) < _NARROW else np.int64)
        self.varies = any(p.kind == "shard" for p in given.placements)
        self.known = all(given.placements[axis].kind != "shard" for axis in axes)

    # Requests ---------------------------------------------------------

    def requests(self, mesh, arrays):
        """(what this rank needs of each of its group, the keys that each of them needs of this one).

        Raises IndexError, on all ranks, for a position out of bounds.
        """
        coord = mesh.coordinate
        places = [to_numpy(array).astype(np.intp, copy=False) for array in arrays]
        places, problem = self._normalised(places)
        members = list(members_along(mesh.shape, coord, self.axes))
        here = members.index(coord)
        if problem is not None and not self.varies:
            raise out_of_bounds(*problem)
        mine = None if problem is not None else self._of(places, coord, coord, range(len(members)))
        if not self.known:
            return mine, self._exchanged(mesh, members, mine, problem)
        if self.varies:
            agree_on_bounds(mesh, problem)
        return mine, [
            mine[here].keys if taker == coord else self._of(places, coord, taker, (here,))[0].keys for taker in members
        ]

    def _normalised(self, places):
        """Positions that count from the end brought to the front, and (position, dim, extent) of one out of bounds."""
        found = []
        for place, dim, global_ in zip(places, self.dims, self.searched):
            if global_:
                extent = self.source.shape[dim]
                wrong = (place < -extent) | (place >= extent)
                if wrong.any():
                    return places, (int(place[wrong][0]), dim, extent)
                place = np.where(place < 0, place + extent, place)
            found.append(place)
        return found, None

    def _of(self, places, coord, taker, ranks):
        """What the rank at `taker` needs of some of its group, by the index arrays of the one at `coord`."""
        cut = tuple(
            _one_index(positions(self.given.intervals(coord, dim), self.wanted.intervals(taker, dim)))
            for dim in range(self.given.ndim)
        )
        shape = self.given.local_shape(coord)
        parts = [_cut(np.broadcast_to(place, shape), cut) for place in places]
        flat = [part.reshape(-1) for part in parts]
        owner, local = self.lookup([part for part, global_ in zip(flat, self.searched) if global_])
        found = iter(local)
        own = [next(found) if global_ else part for part, global_ in zip(flat, self.searched)]
        keys = np.ravel_multi_index(own, self.extents).astype(self.key) if flat[0].size else np.zeros(0, self.key)
        return [self._request(owner, keys, rank) for rank in ranks]

    @staticmethod
    def _request(owner, keys, rank):
        selected = np.flatnonzero(owner == rank)
        return Request(selected, *np.unique(keys[selected], return_inverse=True))

    def _exchanged(self, mesh, members, mine, problem):
        """The keys that each rank of the group needs of this one, sent to it; how many there are comes first."""
        line = group(mesh, self.axes)
        counts = [0] * line.size if mine is None else [request.keys.size for request in mine]
        rows = agree_on_bounds(mesh, problem, counts)
        sizes = [rows[int(np.ravel_multi_index(member, mesh.shape))][line.rank] for member in members]
        return line.alltoall([request.keys for request in mine], [(size,) for size in sizes])

    # Elements ---------------------------------------------------------

    def _index(self, coord, keys):
        places = np.unravel_index(keys, self.extents) if keys.size else [np.zeros(0, np.intp)] * len(self.extents)
        return raw_index(self.form(coord), places)

    def _along(self, part):
        return (slice(None),) * self.at + (part,)

    def _shape(self, piece, coord, count):
        """The shape of so many elements of a piece."""
        shape = piece[self._index(coord, np.zeros(0, self.key))].shape
        return (*shape[: self.at], count, *shape[self.at + 1 :])

    def _result_shape(self, flat, coord):
        return (*flat[: self.at], *self.wanted.local_shape(coord), *flat[self.at + 1 :])

    def gather(self, mesh, x, arrays):
        """This rank's piece of x[arrays]."""
        np = array_module(x)
        coord, line = mesh.coordinate, group(mesh, self.axes)
        mine, theirs = self.requests(mesh, arrays)
        blocks = [x[self._index(coord, keys)] for keys in theirs]
        received = line.alltoall(blocks, [self._shape(x, coord, request.keys.size) for request in mine])
        shape = self._shape(x, coord, sum(request.selected.size for request in mine))
        result = np.empty(shape, x.dtype)
        for request, rows in zip(mine, received):
            result[self._along(request.selected)] = rows[self._along(request.order)]
        return result.reshape(self._result_shape(shape, coord))

    def _once(self, coord, mine, theirs):
        """Along axes where all ranks have the same rows, each keeps what is for itself and sends nothing."""
        same = [axis for axis in self.axes if self.wanted.placements[axis].kind != "shard"]
        if not same:
            return mine, theirs
        nothing = np.zeros(0, np.intp)
        others = [
            any(member[axis] != coord[axis] for axis in same)
            for member in members_along(self.source.mesh_shape, coord, self.axes)
        ]
        mine = [Request(nothing, nothing, nothing) if other else own for own, other in zip(mine, others)]
        return mine, [keys[:0] if other else keys for keys, other in zip(theirs, others)]

    def _sent(self, mesh, g, mine, theirs, out, reduce):
        """Rows of g, one for each key, at the ranks that hold the keys: [(keys, rows)], in the order of the group."""
        coord, line = mesh.coordinate, group(mesh, self.axes)
        flat = g.reshape(self._shape(out, coord, sum(request.selected.size for request in mine)))
        mine, theirs = self._once(coord, mine, theirs)
        blocks = [reduce(flat[self._along(request.selected)], request) for request in mine]
        return zip(theirs, line.alltoall(blocks, [self._shape(out, coord, keys.size) for keys in theirs]))

    def spread(self, mesh, g, arrays, shape):
        """This rank's piece, of a shape, of zeros with g added where the arrays point."""
        np = array_module(g)
        wide = np.float32 if is_half(g.dtype) else g.dtype
        out = np.zeros(shape, wide)

        def added(rows, request):
            if request.keys.size == request.order.size:
                total = np.empty(rows.shape, rows.dtype)
                total[self._along(request.order)] = rows
                return total
            total = np.zeros((*rows.shape[: self.at], request.keys.size, *rows.shape[self.at + 1 :]), wide)
            np.add.at(total, self._along(request.order), rows)
            return total.astype(g.dtype, copy=False)

        mine, theirs = self.requests(mesh, arrays)
        for keys, rows in self._sent(mesh, g, mine, theirs, out, added):
            out[self._index(mesh.coordinate, keys)] += rows
        return out.astype(g.dtype, copy=False)

    def write(self, mesh, x, value, arrays, same):
        """This rank's piece of a copy of x with the value written where the arrays point; the last one stays.

        `same`: the value is the same at all places, so that none is sent.
        """
        np = array_module(x)
        out = np.array(x, copy=True)
        mine, theirs = self.requests(mesh, arrays)
        shape = self._shape(x, mesh.coordinate, sum(request.selected.size for request in mine))
        if same:
            row = as_broadcast(np, value, x.dtype, (*shape[: self.at], *(1,) * self.wanted.ndim, *shape[self.at + 1 :]))
            row = row.reshape((*shape[: self.at], 1, *shape[self.at + 1 :]))
            for keys in theirs:
                out[self._index(mesh.coordinate, keys)] = row
            return out
        value = as_broadcast(np, value, x.dtype, self._result_shape(shape, mesh.coordinate))

        def last(rows, request):
            kept = np.empty((*rows.shape[: self.at], request.keys.size, *rows.shape[self.at + 1 :]), rows.dtype)
            kept[self._along(request.order)] = rows
            return kept

        for keys, rows in self._sent(mesh, value, mine, theirs, x, last):
            out[self._index(mesh.coordinate, keys)] = rows
        return out


def _one_index(parts):
    """Slices of one dim as one index."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.arange(part.start, part.stop) for part in parts]) if parts else slice(0, 0)


def _cut(array, index):
    for dim, part in enumerate(index):
        array = array[(slice(None),) * dim + (part,)]
    return array


# Errors --------------------------------------------------------------------

_PROBLEM = struct.Struct("<?qqq")


def out_of_bounds(position, dim, extent):
    """The error for a position."""
    return IndexError(f"index {position} is out of bounds for axis {dim} with size {extent}")


def agree_on_bounds(mesh, problem, counts=()):
    """Every rank's counts, in mesh order; raises on all of them where one has a position out of bounds.

    `problem` is that position, its dim and the extent, or None.  One record.
    """
    data = _PROBLEM.pack(problem is not None, *(problem or (0, 0, 0))) + struct.pack(f"<{len(counts)}q", *counts)
    found = []
    for row in channel(mesh, None).record(data):
        wrong, *what = _PROBLEM.unpack_from(row)
        if wrong:
            raise out_of_bounds(*what)
        found.append(struct.unpack_from(f"<{len(counts)}q", row, _PROBLEM.size))
    return found
