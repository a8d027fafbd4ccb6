import itertools
from math import prod

import numpy as np
import pytest
from call_counts import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st

from spmdlayer.layout import Layout
from spmdlayer.placement import Own, Partial, Replicate, Shard
from spmdlayer.plan import plan, plan_between

R, P, MAX, AVG, PROD, OWN = Replicate(), Partial(), Partial("max"), Partial("avg"), Partial("prod"), Own()
REDUCE = {"sum": np.sum, "avg": np.mean, "max": np.max, "min": np.min, "prod": np.prod, "any": np.any, "all": np.all}
IDENTITY = {"sum": 0, "avg": 0, "max": -np.inf, "min": np.inf, "prod": 1, "any": False, "all": True}


# All ranks in one process -------------------------------------------------------------------------------------------


def coords(mesh_shape):
    return list(itertools.product(*map(range, mesh_shape)))


def indices(layout, coord):
    """The global positions, dimension by dimension, of what a rank holds; from array_split, not from the layout."""
    found = []
    for dim, size in enumerate(layout.shape):
        axes = [axis for axis, p in enumerate(layout.placements) if p.is_shard(dim)]
        items = np.arange(size)
        if layout.splits[dim] is not None:
            flat = np.ravel_multi_index([coord[a] for a in axes], [layout.mesh_shape[a] for a in axes])
            items = np.split(items, np.cumsum(layout.splits[dim])[:-1])[flat]
        else:
            for axis in axes:
                count, block = layout.mesh_shape[axis], layout.placements[axis].block
                if block is None:
                    items = np.array_split(items, count)[coord[axis]]
                else:
                    items = items[np.arange(len(items)) // block % count == coord[axis]]
        found.append(items)
    return found


def cut(whole, layout, coord):
    return whole[np.ix_(*indices(layout, coord))] if layout.ndim else whole


def axes_of(layout, *kinds):
    return [axis for axis, p in enumerate(layout.placements) if p.kind in kinds]


def reduced(wholes, layout):
    """Arrays with the mesh's axes in front, reduced over the Partial axes from the right to the left."""
    for axis in reversed(axes_of(layout, "partial")):
        op = layout.placements[axis].op
        wholes = np.broadcast_to(REDUCE[op](wholes, axis=axis, keepdims=True), wholes.shape)
    return wholes


def scatter(layout, seed, boolean=False):
    """Random pieces under a layout, and the global array for each coordinate of the Own axes."""
    rng = np.random.default_rng(seed)
    sizes = [n if p.kind in ("partial", "own") else 1 for n, p in zip(layout.mesh_shape, layout.placements)]
    wholes = rng.integers(-3, 4, size=(*sizes, *layout.shape)).astype(float)
    if boolean:
        wholes = wholes > 0
    wholes = np.broadcast_to(wholes, (*layout.mesh_shape, *layout.shape))
    return {c: cut(wholes[c], layout, c) for c in coords(layout.mesh_shape)}, reduced(wholes, layout)


def check(pieces, layout, truth):
    """Every rank's piece has the right shape, and the pieces reduce to the truth."""
    partial = axes_of(layout, "partial")
    for coord in coords(layout.mesh_shape):
        right = cut(truth[coord], layout, coord)
        assert pieces[coord].shape == right.shape == layout.local_shape(coord)
        if all(coord[axis] == 0 for axis in partial):
            sizes = [layout.mesh_shape[axis] if axis in partial else 1 for axis in range(len(coord))]
            group = np.empty((*sizes, *right.shape), right.dtype)
            for offset in coords(sizes):
                group[offset] = pieces[tuple(a + b for a, b in zip(coord, offset))]
            np.testing.assert_allclose(reduced(group, layout)[(0,) * len(sizes)], right, atol=1e-12)


def group_of(coord, axes, mesh_shape):
    """The coordinates of the ranks that differ from one along some axes only, in mesh order."""
    return [c for c in coords(mesh_shape) if all(c[k] == coord[k] for k in range(len(coord)) if k not in axes)]


def place(piece, have, want):
    """A piece put into a larger one: positions of `have` within `want`, dimension by dimension."""
    return np.ix_(*[np.searchsorted(w, h) for h, w in zip(have, want)]) if have else ()


def execute(step, pieces, coord):
    """The rank's piece after a step, and how many items it received from others."""
    source, result = step.source, step.result
    have, want = indices(source, coord), indices(result, coord)
    mine = pieces[coord]
    if step.kind == "slice":
        return mine[place(mine, want, have)], 0
    if step.kind == "scale":
        return mine * step.factor, 0
    if step.kind == "into_partial":
        return into_partial(step, mine, coord, have, want), 0
    if step.kind == "exchange":
        return receive(step.receives(coord), lambda k: packed(step, pieces, coords(source.mesh_shape)[k], coord), result
                       .local_shape(coord), coords(source.mesh_shape).index(coord), mine.dtype)
    axes = step.axes if step.kind == "allreduce" else (step.axis,)
    group = group_of(coord, axes, source.mesh_shape)
    if step.kind == "allreduce":
        return REDUCE[step.op]([pieces[c] for c in group], axis=0), None
    blocks = {}
    for c in group:  # what each rank of the group has of what this one wants
        theirs = indices(source, c)
        within = [np.intersect1d(h, w) for h, w in zip(theirs, want)]
        blocks[c] = pieces[c][place(None, within, theirs)], within
    received = sum(block.size for c, (block, _) in blocks.items() if c != coord)
    if step.kind == "reduce_scatter":
        return REDUCE[step.op]([block for block, _ in blocks.values()], axis=0), received
    whole = np.full([len(w) for w in want], np.nan).astype(mine.dtype)
    for block, within in blocks.values():
        whole[place(None, within, want)] = block
    return whole, received


def into_partial(step, mine, coord, have, want):
    sharded = step.source.placements[step.axis].kind == "shard"
    if not sharded and (step.op not in ("sum", "prod") or coord[step.axis] == 0):
        return mine
    whole = np.full([len(w) for w in want], IDENTITY[step.op], mine.dtype)
    if sharded:
        factor = step.source.mesh_shape[step.axis] if step.op == "avg" else 1
        whole[place(None, have, want)] = mine * factor if step.op == "avg" else mine
    return whole


def packed(step, pieces, sender, receiver):
    place_of_receiver = coords(step.source.mesh_shape).index(receiver)
    return [pieces[sender][box] for box in step.sends(sender)[place_of_receiver]]


def receive(boxes_by_rank, blocks_of, shape, own, dtype):
    result, filled, received = np.empty(shape, dtype), np.zeros(shape, int), 0
    for k, boxes in enumerate(boxes_by_rank):
        blocks = blocks_of(k)
        assert len(blocks) == len(boxes)
        for box, block in zip(boxes, blocks):
            result[box] = block
            filled[box] += 1
            received += block.size if k != own else 0
    assert (filled == 1).all()
    return result, received


def run(source, target, seed=0, boolean=False, itemsize=8):
    """Execute a plan on random pieces, check the result and the bytes; the steps."""
    pieces, truth = scatter(source, seed, boolean)
    steps = plan(source, target, itemsize)
    layout = source
    for step in steps:
        assert step.source == layout
        after, received = {}, []
        for coord in pieces:
            after[coord], items = execute(step, pieces, coord)
            received.append(items)
        if step.kind != "allreduce":
            assert sum(step.bytes(c) for c in pieces) == sum(received) * itemsize
        pieces, layout = after, step.result
    assert layout == target
    check(pieces, target, truth)
    return steps


# Random pairs of layouts --------------------------------------------------------------------------------------------


@st.composite
def pairs(draw, ops=("sum", "avg", "max", "min", "prod"), top=7):
    mesh_shape = draw(st.sampled_from([(1,), (2,), (3,), (4,), (2, 2), (2, 3), (3, 1), (2, 1, 2), (2, 2, 2)]))
    shape = draw(st.lists(st.integers(0, top), max_size=3).map(tuple))
    options = [st.just(R), st.sampled_from([Partial(op) for op in ops])]
    if shape:
        options.append(st.builds(Shard, st.integers(0, len(shape) - 1), st.sampled_from([None, None, None, 1, 2])))
    source, target = ([draw(st.one_of(options)) for _ in mesh_shape] for _ in range(2))
    for axis in range(len(mesh_shape)):
        choice = draw(st.integers(0, 5))
        if choice == 0:
            source[axis] = target[axis]
        elif choice == 1:
            source[axis] = target[axis] = OWN
    return tuple(with_splits(draw, mesh_shape, tuple(p), shape) for p in (source, target))


def with_splits(draw, mesh_shape, placements, shape):
    layout, splits = Layout(mesh_shape, placements, shape), []
    for dim, size in enumerate(shape):
        blocks = [placements[axis].block for axis in layout.sharding_axes(dim)]
        sizes = None
        if blocks and not any(blocks) and draw(st.integers(0, 3)) == 0:
            count = prod(mesh_shape[axis] for axis in layout.sharding_axes(dim))
            cuts = sorted(draw(st.lists(st.integers(0, size), min_size=count - 1, max_size=count - 1)))
            sizes = tuple(int(n) for n in np.diff([0, *cuts, size]))
        splits.append(sizes)
    return Layout(mesh_shape, placements, shape, tuple(splits))


@settings(max_examples=300, deadline=None)
@given(pairs(), st.integers(0, 99), st.sampled_from([8, 8 << 20]))
def test_every_pair_of_layouts(pair, seed, itemsize):
    run(*pair, seed, itemsize=itemsize)


@settings(max_examples=100, deadline=None)
@given(pairs(ops=("any", "all")), st.integers(0, 99), st.sampled_from([1, 1 << 20]))
def test_every_pair_of_boolean_layouts(pair, seed, itemsize):
    run(*pair, seed, boolean=True, itemsize=itemsize)


@pytest.mark.parametrize("mesh_shape", [(2,), (3,), (2, 2)])
def test_all_pairs_of_placements(mesh_shape):
    every = [R, P, MAX, Shard(0), Shard(1), Shard(0, block=2)]
    for source in itertools.product(every, repeat=len(mesh_shape)):
        for target in itertools.product(every, repeat=len(mesh_shape)):
            for itemsize in (8, 8 << 20):
                run(Layout(mesh_shape, source, (5, 4)), Layout(mesh_shape, target, (5, 4)), itemsize=itemsize)


# What is chosen -----------------------------------------------------------------------------------------------------


def kinds(mesh_shape, source, target, shape, itemsize=8):
    layouts = [Layout(mesh_shape, placements, shape) for placements in (source, target)]
    return [step.kind for step in run(*layouts, itemsize=itemsize)]


BIG = 8 << 20  # an item so long that only bytes count


@pytest.mark.parametrize("itemsize", [8, BIG])
@pytest.mark.parametrize(
    "source, target, steps",
    [
        (R, Shard(0), ["slice"]),
        (Shard(0), R, ["allgather"]),
        (Shard(0), Shard(1), ["alltoall"]),
        (P, R, ["allreduce"]),
        (P, Shard(1), ["reduce_scatter"]),
        (R, P, ["into_partial"]),
        (Shard(0), MAX, ["into_partial"]),
        (P, AVG, ["scale"]),
        (AVG, P, ["scale"]),
        (P, MAX, None),
        (R, R, []),
        (Shard(0), Shard(0), []),
        (P, P, []),
    ],
)
def test_one_axis(source, target, steps, itemsize):
    found = kinds((3,), (source,), (target,), (5, 4), itemsize)
    assert found == (["reduce_scatter", "into_partial"] if steps is None else steps)


def test_several_axes():
    assert kinds((2, 2), (P, P), (R, R), (4,), BIG) == ["allreduce"]
    assert kinds((2, 2), (P, AVG), (R, R), (4,)) == ["scale", "allreduce"]
    assert kinds((2, 2), (P, P), (Shard(0), R), (4,), BIG) == ["reduce_scatter", "allreduce"]
    assert kinds((2, 2), (P, P), (Shard(0), Shard(0)), (4,), BIG) == ["reduce_scatter", "reduce_scatter"]
    assert kinds((2, 2), (Shard(0), Shard(0)), (R, R), (4,)) == ["allgather", "allgather"]
    assert kinds((2, 2), (Shard(0), Shard(0)), (R, Shard(0)), (4,), BIG) == ["exchange"]
    forced = kinds((2, 2, 2), (P, MAX, P), (R, MAX, P), ())
    assert sorted(forced) == ["allreduce", "allreduce", "allreduce", "into_partial", "into_partial"]
    assert kinds((2, 2), (R, P), (MAX, P), (4,)) == ["into_partial"]
    assert kinds((2, 2), (P, R), (P, Shard(0)), (4,)) == ["slice"]


def test_a_partial_of_a_scalar_goes_through_replicate():
    assert kinds((2,), (P,), (MAX,), ()) == ["allreduce", "into_partial"]


def test_reductions_go_from_the_right_to_the_left():
    # max over axis 0 of the sums over axis 1: (1 + 2, 3 - 4) -> 3; the other order would give max(1, 3) + max(2, -4)
    source = Layout((2, 2), (MAX, P), (1,))
    pieces, truth = scatter(source, 0)
    pieces = {(0, 0): np.array([1.0]), (0, 1): np.array([2.0]), (1, 0): np.array([3.0]), (1, 1): np.array([-4.0])}
    for step in plan(source, Layout((2, 2), (R, R), (1,)), 8):
        pieces = {coord: execute(step, pieces, coord)[0] for coord in pieces}
    assert [pieces[c].tolist() for c in coords((2, 2))] == [[3.0]] * 4


def test_own_shares_stay():
    run(Layout((2, 2), (OWN, Shard(0)), (5,)), Layout((2, 2), (OWN, R), (5,)))
    with pytest.raises(ValueError, match="mesh axis 0 from Own.. to Replicate"):
        plan(Layout((2,), (OWN,), (5,)), Layout((2,), (R,), (5,)), 8)
    with pytest.raises(ValueError, match="must be equal"):
        plan(Layout((2,), (R,), (5,)), Layout((2,), (R,), (6,)), 8)


# Bytes --------------------------------------------------------------------------------------------------------------


def sent(steps, mesh_shape):
    return sum(step.bytes(coord) for step in steps for coord in coords(mesh_shape))


def missing(source, target):
    """The items that ranks do not hold yet: no plan between Shard and Replicate can send less."""
    total = 0
    for coord in coords(source.mesh_shape):
        have, want = indices(source, coord), indices(target, coord)
        total += prod(map(len, want)) - prod(len(np.intersect1d(h, w)) for h, w in zip(have, want))
    return total


@settings(max_examples=200, deadline=None)
@given(pairs(ops=("sum",), top=6))
def test_shards_and_copies_move_the_least(pair):
    source, target = (
        layout.with_placements(tuple(R if p.kind != "shard" else p for p in layout.placements)) for layout in pair
    )
    steps = plan(source, target, BIG)
    assert sent(steps, source.mesh_shape) == missing(source, target) * BIG


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("target, times", [(R, 2), (Shard(0), 1), (MAX, 1)])
def test_reductions_move_the_least(ranks, target, times):
    # An allreduce cannot send less than 2 (n - 1) / n of the array a rank, a reduce_scatter (n - 1) / n.
    steps = plan(Layout((ranks,), (P,), (12, 5)), Layout((ranks,), (target,), (12, 5)), BIG)
    assert sent(steps, (ranks,)) == times * (ranks - 1) * 60 * BIG


def test_a_reduction_into_a_dimension_that_the_other_axis_cuts():
    # Each quarter is summed from two ranks; the two quarters that must go to a rank with no part of them travel twice.
    steps = plan(Layout((2, 2), (P, Shard(0)), (16,)), Layout((2, 2), (Shard(0), Shard(0)), (16,)), BIG)
    assert sent(steps, (2, 2)) == 6 * 4 * BIG


def test_small_arrays_take_fewer_rounds():
    source, target = Layout((2, 2), (Shard(0), R), (8,)), Layout((2, 2), (R, Shard(0)), (8,))
    assert [step.kind for step in plan(source, target, 8)] == ["allgather", "slice"]
    assert [step.kind for step in plan(source, target, BIG)] == ["exchange"]


# Many ranks ---------------------------------------------------------------------------------------------------------


def test_a_plan_for_4096_ranks_that_moves_nothing():
    mesh_shape, shape = (16, 16, 16), (10**6, 64, 64)
    source = Layout(mesh_shape, (R, Shard(1), P), shape)
    target = Layout(mesh_shape, (Shard(0), AVG, P), shape)
    steps, calls = calls_of(lambda: plan(source, target, 8))
    assert calls < 6000  # nothing is done rank by rank
    assert [step.kind for step in steps] == ["slice", "into_partial"]
    assert all(step.bytes(coord) == 0 for step in steps for coord in [(0, 0, 0), (15, 15, 15)])
    line = Layout((4096,), (R,), shape)
    (step,) = plan(line, Layout((4096,), (Shard(0),), shape), 8)
    assert step.kind == "slice" and step.result.local_shape((4095,)) == (244, 64, 64)
    assert plan(line, line, 8) == ()


def test_an_exchange_for_4096_ranks():
    source = Layout((4096,), (Shard(0),), (10**6,))
    target = Layout((4096,), (Shard(0, block=8),), (10**6,))
    (step,) = plan(source, target, 8 << 10)
    receives, calls = calls_of(lambda: step.receives((4000,)))
    assert calls < 30 * 4096  # not pair by pair
    assert len(receives) == 4096
    assert sum(box[0].stop - box[0].start for boxes in receives for box in boxes) == target.local_shape((4000,))[0]


# Between meshes -----------------------------------------------------------------------------------------------------


@st.composite
def meshes(draw):
    shape = draw(st.lists(st.integers(0, 7), max_size=2).map(tuple))
    found = []
    for _ in range(2):
        mesh_shape = draw(st.sampled_from([(1,), (2,), (3,), (5,), (2, 2), (2, 3), (1, 2, 2)]))
        ranks = tuple(draw(st.permutations(range(8)))[: prod(mesh_shape)])
        options = [st.just(R)]
        if shape:
            options.append(st.builds(Shard, st.integers(0, len(shape) - 1), st.sampled_from([None, None, 2])))
        placements = tuple(draw(st.one_of(options)) for _ in mesh_shape)
        found += [with_splits(draw, mesh_shape, placements, shape), ranks]
    return found


@settings(max_examples=300, deadline=None)
@given(meshes())
def test_between_meshes(given_meshes):
    source, source_ranks, target, target_ranks = given_meshes
    whole = np.random.default_rng(0).normal(size=source.shape)
    move = plan_between(source, source_ranks, target, target_ranks)
    assert move.ranks == tuple(sorted({*source_ranks, *target_ranks}))
    pieces = {rank: cut(whole, source, c) for rank, c in zip(source_ranks, coords(source.mesh_shape))}
    places = dict(zip(target_ranks, coords(target.mesh_shape)))
    for rank in move.ranks:
        receives = move.receives(rank)
        assert all(rank in move.sends(other) for other in receives)
        assert all(rank in move.receives(other) for other in move.sends(rank))
        if rank not in places:
            assert receives == {}
            continue
        right = cut(whole, target, places[rank])
        blocks = [[pieces[q][box] for box in move.sends(q)[rank]] for q in receives]
        result, _ = receive(receives.values(), lambda k, b=blocks: b[k], right.shape, None, whole.dtype)
        np.testing.assert_array_equal(result, right)


def test_what_a_rank_holds_it_takes_from_itself():
    move = plan_between(Layout((2,), (R,), (4,)), (0, 1), Layout((4,), (Shard(0),), (4,)), (0, 1, 2, 3))
    assert [list(move.receives(rank)) for rank in range(4)] == [[0], [1], [1], [0]]


def test_replicas_share_the_load():
    move = plan_between(Layout((4,), (R,), (8,)), (0, 1, 2, 3), Layout((4,), (Shard(0),), (8,)), (4, 5, 6, 7))
    assert sorted(rank for k in range(4, 8) for rank in move.receives(k)) == [0, 1, 2, 3]


def test_between_meshes_refuses_partial():
    with pytest.raises(ValueError, match="reduce Partial axes first"):
        plan_between(Layout((2,), (P,), (4,)), (0, 1), Layout((2,), (R,), (4,)), (2, 3))
