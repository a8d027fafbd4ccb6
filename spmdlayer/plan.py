"""Plans: the steps that turn one layout of a global array into another.

Pure integer arithmetic, without traffic: a plan for thousands of ranks is made
without starting one.  The cheapest sequence of steps is found by Dijkstra's
method over layouts: above `SMALL` bytes a rank the one that moves least, below
it the one with the fewest rounds.

Partial axes are reduced from the right to the left.  An axis can be reduced
when the Partial axes at its right commute with it, and it becomes Partial only
in ways that the reductions at its right leave alone.
"""

import heapq
from functools import lru_cache
from itertools import count
from math import prod

from .errors import value_error
from .layout import Layout
from .placement import Partial, Replicate, Shard
from .steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    ExchangeBetween,
    IntoPartial,
    ReduceScatter,
    Scale,
    Slice,
    parts,
)

SMALL = 64 * 1024
_REPLICATE = Replicate()
_SUM = Partial("sum")
# For each reduction, the reductions that its identity survives: equal identities reduce to themselves.
_SURVIVES = {
    "sum": ("sum", "avg", "max", "min", "prod"),
    "avg": ("sum", "avg", "max", "min"),
    "prod": ("avg", "max", "min", "prod"),
    "max": ("avg", "max", "min"),
    "min": ("avg", "max", "min"),
    "any": ("any", "all"),
    "all": ("any", "all"),
}
_EVERYWHERE = ("avg", "max", "min", "any", "all")  # of a replicated value every rank keeps it: no identities


@lru_cache(maxsize=1024)
def plan_between(source, source_ranks, target, target_ranks):
    """How the pieces on one mesh become pieces on another.

    Parameters
    ----------
    source, target : Layout of the same global shape; no Partial axis in either
    source_ranks, target_ranks : tuple of int, the ranks of either mesh in mesh order

    Returns an `ExchangeBetween`.
    """
    if source.shape != target.shape:
        raise value_error(f"reshard: source of shape {source.shape}, target of shape {target.shape}; give equal shapes")
    if any(p.kind in ("partial", "own") for p in source.placements + target.placements):
        raise value_error(f"reshard: from {source} to {target} between meshes; reduce Partial axes first")
    return ExchangeBetween(source, source_ranks, target, target_ranks)


@lru_cache(maxsize=8192)
def plan(source, target, itemsize):
    """The cheapest steps from one layout to another of the same array on the same mesh.

    Parameters
    ----------
    source, target : Layout
    itemsize : int, bytes of an item

    Returns a tuple of steps, empty where nothing is to be done.
    """
    if source.shape != target.shape or source.mesh_shape != target.mesh_shape:
        raise value_error(f"reshard: from {source} to {target}; shapes of array and mesh must be equal")
    for axis, (p, q) in enumerate(zip(source.placements, target.placements)):
        if p is not q and "own" in (p.kind, q.kind):
            raise value_error(f"reshard: mesh axis {axis} from {p} to {q}; each rank's own share stays as it is")
    if source == target:
        return ()
    if sum(p is not q for p, q in zip(source.placements, target.placements)) == 1:
        direct = [step for step in _Moves(source, target, itemsize, direct=True)(source) if step.result == target]
        if direct:
            return (direct[0],)
    return _cheapest(source, target, itemsize)


def _cheapest(source, target, itemsize):
    moves = _Moves(source, target, itemsize)
    large = prod(source.shape) * itemsize >= SMALL * min(parts(source), parts(target))
    order = count()
    queue = [((0, 0, 0), next(order), source, ())]
    done = set()
    while queue:
        cost, _, layout, steps = heapq.heappop(queue)
        if layout == target:
            return steps
        if layout in done:
            continue
        done.add(layout)
        for step in moves(layout):
            if step.result in done:
                continue
            weights = (step.total(), step.rounds) if large else (step.rounds, step.total())
            total = tuple([a + b for a, b in zip(cost, (*weights, step.work))])
            heapq.heappush(queue, (total, next(order), step.result, steps + (step,)))
    raise AssertionError(f"no way from {source} to {target}")


class _Moves:
    """The steps from a layout that may lead to the target.

    An axis goes to the target's placement, through Replicate or, where it is
    Partial, through a Shard; one that is right already stays, unless it stands
    in another's way.
    """

    def __init__(self, source, target, itemsize, direct=False):
        self.target, self.itemsize, self.direct = target, itemsize, direct
        self.wanted = [(p,) for p in target.placements]
        self.through = [()] * len(self.wanted)
        if not direct:
            self.wanted, self.through = _goals(source, target)

    def __call__(self, layout):
        for axis, placement in enumerate(layout.placements):
            goals = self.wanted[axis]
            if placement.kind == "partial":
                goals += self.through[axis]
            for goal in goals:
                if goal is not placement and (placement.kind, goal.kind) in _MOVES:
                    yield from _MOVES[placement.kind, goal.kind](self, layout, axis, goal)
        if not self.direct:
            yield from self._exchange(layout)

    def _make(self, kind, layout, result, *arguments):
        if result is not None:
            yield kind(layout, result, self.itemsize, *arguments)

    def _gather(self, layout, axis, goal):
        return self._make(AllGather, layout, _opened(layout, axis, goal), axis, layout.placements[axis].dim)

    def _slice(self, layout, axis, goal):
        return self._make(Slice, layout, _closed(layout, axis, goal, self.target), axis, goal.dim)

    def _transpose(self, layout, axis, goal):
        dim = layout.placements[axis].dim
        if dim != goal.dim:
            between = _opened(layout, axis, _REPLICATE)
            result = between and _closed(between, axis, goal, self.target)
            yield from self._make(AllToAll, layout, result, axis, dim, goal.dim)

    def _reduce(self, layout, axis, goal):
        op, placements = layout.placements[axis].op, layout.placements
        same = tuple(k for k, p in enumerate(placements) if p.is_partial(op) and _REPLICATE in self.wanted[k])
        together = (same,) if len(same) > 1 and same[0] == axis else ()
        if all(_commute(op, other) for other in _ops_right_of(layout, axis)):
            for axes in ((axis,), *together):
                replaced = tuple(_REPLICATE if k in axes else p for k, p in enumerate(placements))
                yield from self._make(AllReduce, layout, layout.with_placements(replaced), axes, op)

    def _reduce_scatter(self, layout, axis, goal):
        op = layout.placements[axis].op
        if all(_commute(op, other) for other in _ops_right_of(layout, axis)):
            result = _closed(layout, axis, goal, self.target)
            yield from self._make(ReduceScatter, layout, result, axis, goal.dim, op)

    def _into_partial(self, layout, axis, goal):
        sharded = layout.placements[axis].kind == "shard"
        if all(_leaves_alone(goal.op, other, sharded) for other in _ops_right_of(layout, axis)):
            result = _opened(layout, axis, goal) if sharded else layout.with_placement(axis, goal)
            yield from self._make(IntoPartial, layout, result, axis, goal.op)

    def _scale(self, layout, axis, goal):
        op, ranks = layout.placements[axis].op, layout.mesh_shape[axis]
        if {op, goal.op} == {"sum", "avg"} and "prod" not in _ops_right_of(layout, axis):
            factor = float(ranks) if goal.op == "avg" else 1.0 / ranks
            yield from self._make(Scale, layout, layout.with_placement(axis, goal), axis, factor)

    def _exchange(self, layout):
        """To the target's pieces at once, along all axes that are not Partial."""
        placements = []
        for placement, goal in zip(layout.placements, self.target.placements):
            if placement.kind in ("partial", "own"):
                placements.append(placement)
            else:
                placements.append(_REPLICATE if goal.kind == "partial" else goal)
        result = _like(layout, tuple(placements), self.target)
        if not result.same_pieces(layout):
            yield from self._make(Exchange, layout, result)


_MOVES = {
    ("shard", "replicate"): _Moves._gather,
    ("shard", "shard"): _Moves._transpose,
    ("shard", "partial"): _Moves._into_partial,
    ("replicate", "shard"): _Moves._slice,
    ("replicate", "partial"): _Moves._into_partial,
    ("partial", "replicate"): _Moves._reduce,
    ("partial", "shard"): _Moves._reduce_scatter,
    ("partial", "partial"): _Moves._scale,
}


def _goals(source, target):
    """For each mesh axis the placements that it may go to, and those that it may go through while it is Partial."""
    forced, wanted, through = [], [], []
    recut = {dim for dim in range(source.ndim) if _cut(source, dim) != _cut(target, dim)}
    for axis, (p, q) in enumerate(zip(source.placements, target.placements)):
        changes = p is not q or _in_the_way(source, target, axis, forced)
        forced.append(changes)
        stays = not changes and not (p.kind == "shard" and p.dim in recut)
        wanted.append((q,) if stays or q is _REPLICATE else (q, _REPLICATE))
        through.append(_ways_through(source, target, axis) if changes and p.kind == "partial" else ())
    return wanted, through


def _cut(layout, dim):
    return layout.cuts(dim), layout.splits[dim]


def _in_the_way(source, target, axis, changing):
    """Whether an axis that stays Partial must be reduced all the same, because of a changing one at its left."""
    if source.placements[axis].kind != "partial":
        return False
    op = source.placements[axis].op
    for k in range(axis):
        before, after = source.placements[k], target.placements[k]
        if not changing[k]:
            continue
        if before.kind == "partial" and not _commute(before.op, op):
            return True
        if after.kind == "partial" and not _leaves_alone(after.op, op, before.kind != "replicate"):
            return True
    return False


def _ways_through(source, target, axis):
    """What a Partial axis may become on its way to the target.

    A Shard of one of the longest dims, where it becomes Partial again or one
    allreduce cannot take all axes together; blocks, where axes at its right
    cut the dim that it goes to; a sum, where it is a mean among sums.
    """
    goal, op = target.placements[axis], source.placements[axis].op
    ways = []
    if goal.kind == "partial" or any(p.kind == "partial" and not _commute(p.op, op) for p in source.placements):
        ways += [Shard(dim) for dim in sorted(range(source.ndim), key=lambda dim: -source.shape[dim])[:2]]
    if goal.kind == "shard":
        others = [k for k in source.sharding_axes(goal.dim) if k != axis]
        block, rest = divmod(source.shape[goal.dim], prod(source.mesh_shape[k] for k in (*others, axis)))
        if others and others[-1] > axis and block and not rest:
            ways.append(Shard(goal.dim, block))
    if op == "avg" and _SUM in source.placements:
        ways.append(_SUM)
    return tuple(way for way in ways if way is not goal)


def _commute(one, other):
    return one == other or {one, other} == {"sum", "avg"}


def _leaves_alone(op, right, sharded):
    """Whether an axis made Partial(op) still reduces to its array after a reduction at its right."""
    return (not sharded and op in _EVERYWHERE) or right in _SURVIVES[op]


def _ops_right_of(layout, axis):
    return [p.op for p in layout.placements[axis + 1 :] if p.kind == "partial"]


def _opened(layout, axis, goal):
    """The layout when the pieces along a Shard axis are joined; None unless that gives the pieces of a layout."""
    dim = layout.placements[axis].dim
    if layout.sharding_axes(dim)[-1] != axis:
        return None
    splits, ranks = layout.splits[dim], layout.mesh_shape[axis]
    if splits is not None:
        splits = tuple(sum(splits[k : k + ranks]) for k in range(0, len(splits), ranks))
    return _recut(layout, axis, goal, dim, splits)


def _closed(layout, axis, goal, target):
    """The layout when each piece is cut along one more axis; None unless every rank keeps a part of what it has."""
    dim, ranks = goal.dim, layout.mesh_shape[axis]
    others, splits = layout.sharding_axes(dim), layout.splits[dim]
    if others and others[-1] > axis:
        return layout.with_placement(axis, goal) if _dealt_out_within(layout, axis, goal) else None
    plain = _recut(layout, axis, goal, dim, None)
    if plain.cuts(dim) == target.cuts(dim) and target.splits[dim] is not None:
        aimed = _recut(layout, axis, goal, dim, target.splits[dim])
        if _opened(aimed, axis, layout.placements[axis]).splits[dim] == splits:
            return aimed
    if splits is None:
        return plain
    if goal.block is not None:
        return None
    nested = tuple(size // ranks + (k < size % ranks) for size in splits for k in range(ranks))
    return _recut(layout, axis, goal, dim, nested)


def _dealt_out_within(layout, axis, goal):
    """Whether blocks dealt out along `axis` lie in the pieces that the axes at its right have cut already.

    They do where all pieces are equal and the blocks are the pieces that they
    are cut into: rank k of the axis gets part k of each.
    """
    dim = goal.dim
    pieces = prod(layout.mesh_shape[k] for k in (*layout.sharding_axes(dim), axis))
    plain = layout.splits[dim] is None and all(block is None for _, block in layout.cuts(dim))
    return plain and goal.block is not None and goal.block * pieces == layout.shape[dim]


def _recut(layout, axis, goal, dim, sizes):
    """The layout with another placement along `axis`, and these sizes along the dim that it cuts."""
    placements = layout.placements[:axis] + (goal,) + layout.placements[axis + 1 :]
    splits = layout.splits[:dim] + (sizes,) + layout.splits[dim + 1 :]
    return Layout(layout.mesh_shape, placements, layout.shape, splits)


def _like(layout, placements, target):
    """A layout of these placements, with the target's splits where it cuts a dim in the same way."""
    plain = Layout(layout.mesh_shape, placements, layout.shape)
    splits = tuple(sizes if plain.cuts(dim) == target.cuts(dim) else None for dim, sizes in enumerate(target.splits))
    return Layout(layout.mesh_shape, placements, layout.shape, splits)
