"""The rule of reshape.

A sharded dim stays so where its pieces stay contiguous, or become blocks that
are dealt out in turn, and then nothing moves.  Where neither is so, each
element goes to the rank that holds its place in a result of the default sizes.
"""

from math import prod

import numpy as np

from ..array import array_module
from ..layout import Layout
from ..placement import Shard
from .fetching import Lookup
from .owners import global_flat, group, members_along
from .rules import REPLICATE, Rule, cut_coordinates, kept_partials, moving, stated
from .shape_rules import local_shape

# Dims and their groups -----------------------------------------------------


def _groups(before, after):
    """The smallest groups of dims of both shapes that have equal products, without dims of extent 1."""
    left = [dim for dim, size in enumerate(before) if size != 1]
    right = [dim for dim, size in enumerate(after) if size != 1]
    while left:
        ins, outs = [left.pop(0)], [right.pop(0)]
        while (sizes := prod(before[dim] for dim in ins)) != (others := prod(after[dim] for dim in outs)):
            if sizes < others:
                ins.append(left.pop(0))
            else:
                outs.append(right.pop(0))
        yield ins, outs


class _Group:
    """Dims of the operand, `ins`, and of the result, `outs`, that have the same elements in the same order."""

    def __init__(self, before, after, ins, outs):
        self.ins, self.outs, self.before, self.after = ins, outs, before, after

    def inner(self, dim):
        """The elements of the group that one index of a dim of the operand spans."""
        return prod(self.before[k] for k in self.ins if k > dim)

    def new_inner(self, dim):
        """The same of a dim of the result."""
        return prod(self.after[k] for k in self.outs if k > dim)

    def outermost(self, dim):
        """(new dim, inner, new inner) of the outermost dim, else None."""
        if dim != self.ins[0]:
            return None
        return self.outs[0], self.inner(dim), self.new_inner(self.outs[0])


def _carry_dim(layout, dim, found, shape):
    """How a sharded dim becomes a dim of the result: (placements by axis, sizes of the pieces), or None.

    Every boundary between pieces must be one between indices of the new dim.
    """
    new, inner, new_inner = found
    cuts = layout.cuts(dim)
    pieces = {coord: layout.intervals(coord, dim) for coord in cut_coordinates(layout, dim)}
    ends = [end * inner for piece in pieces.values() for interval in piece for end in interval]
    if any(number % new_inner for number in (*ends, *(block * inner for _, block in cuts if block is not None))):
        return None
    pieces = {c: [tuple(end * inner // new_inner for end in part) for part in piece] for c, piece in pieces.items()}
    shards = {axis: Shard(new, None if block is None else block * inner // new_inner) for axis, block in cuts}
    if all(block is None for _, block in cuts):
        return shards, tuple(stop - start for ((start, stop),) in pieces.values())
    # Blocks that several axes deal out need not be dealt out in the same way along the new dim.
    placements = tuple(shards.get(axis, REPLICATE) for axis in range(len(layout.mesh_shape)))
    dealt = Layout(layout.mesh_shape, placements, shape)
    same = all(_filled(dealt.intervals(coord, new)) == _filled(piece) for coord, piece in pieces.items())
    return (shards, None) if same else None


def _filled(intervals):
    return [interval for interval in intervals if interval[0] < interval[1]]


def _deal_dim(layout, dim, of):
    """The same for a dim that one mesh axis cuts into equal blocks, of the only sharded dim of its group.

    Counted in elements of the group such blocks are dealt out in turn.
    """
    ((axis, block),) = layout.cuts(dim)
    ranks, extent = layout.mesh_shape[axis], layout.shape[dim]
    block = block or extent // ranks
    if layout.splits[dim] is not None or not block or extent % (block * ranks):
        return None
    elements = block * of.inner(dim)
    for new in of.outs:
        inner = of.new_inner(new)
        if elements % inner:
            continue
        if new == of.outs[0] or of.after[new] % (elements // inner * ranks) == 0:
            whole = elements // inner * ranks == of.after[new]
            return new, {axis: Shard(new, None if whole else elements // inner)}
    return None


# The rule ------------------------------------------------------------------


@stated(
    "a sharded dim stays so where its pieces stay contiguous or become blocks, else it gets default pieces",
    "elements that other ranks get, where pieces do not stay",
)
def reshape_rule(call):
    """What stays where it is; along the mesh axes for which nothing does, the elements move to default pieces.

    The parameter `layout` is where the result is wanted if elements move.
    """
    after, source = call.params["shape"], call.layouts[0]
    kept = kept_partials(source.placements, moving(call.dtypes[0]))
    source = source.with_placements(
        tuple(p if p.kind == "shard" or axis in kept else REPLICATE for axis, p in enumerate(source.placements))
    )
    if 0 in after or not after:  # nothing to move, or no dim to shard
        source = source.with_placements(tuple(REPLICATE if p.kind == "shard" else p for p in source.placements))
    groups = [_Group(call.shapes[0], after, *dims) for dims in _groups(call.shapes[0], after)] if 0 not in after else []
    outputs, splits, left = _carried(source, groups, after)
    placements = [outputs.get(axis, p) for axis, p in enumerate(source.placements)]
    if not left:
        output = Layout(call.mesh_shape, tuple(placements), after, tuple(splits))
        return Rule((source,), output, local_shape(output))
    wanted = call.params.get("layout")
    if wanted is not None and all(
        (p.kind == "shard") == (q.kind == "shard") for p, q in zip(source.placements, wanted.placements)
    ):
        placements = [q if q.kind == "shard" else p for p, q in zip(source.placements, wanted.placements)]
        return _move(source, Layout(call.mesh_shape, tuple(placements), after, wanted.splits), call.dtypes[0])
    for axis, outs in left.items():
        new = _roomiest(call.mesh_shape, placements, after, outs, axis)
        placements[axis], splits[new] = Shard(new), None
    return _move(source, Layout(call.mesh_shape, tuple(placements), after, tuple(splits)), call.dtypes[0])


def _carried(source, groups, after):
    """What stays where it is: (placements by mesh axis, splits), and {axis: dims that it may cut} of what does not."""
    outputs, splits, left = {}, [None] * len(after), {}
    of = {dim: one for one in groups for dim in one.ins}
    everything = list(range(len(after)))
    for dim in range(source.ndim):
        trial = source
        while axes := trial.sharding_axes(dim):
            found = _stays(trial, dim, of.get(dim), after)
            if found is not None:
                outputs.update(found[1])
                splits[found[0]] = found[2]
                break
            left[axes[-1]] = of[dim].outs if dim in of else everything
            trial = trial.with_placement(axes[-1], REPLICATE)  # the others may stay
    return outputs, splits, left


def _stays(layout, dim, of, after):
    """(new dim, placements by axis, sizes) of a sharded dim whose pieces stay where they are, else None."""
    if of is None:
        return None
    outermost = of.outermost(dim)
    carried = None if outermost is None else _carry_dim(layout, dim, outermost, after)
    if carried is not None:
        return outermost[0], *carried
    if len(layout.sharding_axes(dim)) == 1 and not any(layout.sharding_axes(k) for k in of.ins if k != dim):
        dealt = _deal_dim(layout, dim, of)
        return None if dealt is None else (*dealt, None)
    return None


def _roomiest(mesh_shape, placements, shape, outs, axis):
    """The first of some dims with an index for each rank that would cut it, else the longest."""
    for dim in outs:
        ranks = prod(
            mesh_shape[k] for k, p in enumerate(placements) if k != axis and p.kind == "shard" and p.dim == dim
        )
        if shape[dim] >= ranks * mesh_shape[axis]:
            return dim
    return max(outs, key=shape.__getitem__)


# Elements that move --------------------------------------------------------


class _Order:
    """Which element of a piece is which of another layout's, both in the order of the whole array."""

    def __init__(self, layout, other, axes):
        self.layout, self.shape, self.axes = layout, other.shape, axes
        self.dims = [dim for dim in range(other.ndim) if other.sharding_axes(dim)]
        self.lookup = Lookup(other, self.dims, axes)

    def at(self, coord):
        """(the elements of the piece at a coordinate, by the rank of the group that has them; how many for each)."""
        places = global_flat(self.layout, coord, np.arange(prod(self.layout.local_shape(coord))))
        index = np.unravel_index(places, self.shape)
        owner, _ = self.lookup([index[dim] for dim in self.dims])
        ranks = prod(self.layout.mesh_shape[axis] for axis in self.axes)
        return np.argsort(owner, kind="stable"), np.bincount(owner, minlength=ranks)


def _move(source, target, dtype):
    """The rule of sending every element to where the target layout has it; both shard along the same mesh axes."""
    axes = [axis for axis, p in enumerate(source.placements) if p.kind == "shard"]
    there, back = _Order(source, target, axes), _Order(target, source, axes)

    def across(mesh, arrays, params):
        np, coord = array_module(arrays[0]), mesh.coordinate
        order, counts = there.at(coord)
        ends = counts.cumsum().tolist()
        packed = arrays[0].reshape(-1)[order]
        blocks = [packed[end - count : end] for end, count in zip(ends, counts.tolist())]
        order, counts = back.at(coord)
        received = group(mesh, axes).alltoall(blocks, [(count,) for count in counts.tolist()])
        result = np.empty(order.size, packed.dtype)
        result[order] = np.concatenate(received)
        return result.reshape(target.local_shape(coord))

    def sends(coord):
        here = list(members_along(source.mesh_shape, coord, axes)).index(coord)
        counts = there.at(coord)[1]
        return int(counts.sum() - counts[here]) * dtype.itemsize

    return Rule((source,), target, across=across, sends=sends)
