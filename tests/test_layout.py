import itertools
import pickle

import numpy as np
import pytest
from call_counts import calls_of
from hypothesis import given
from hypothesis import strategies as st

from spmdlayer.layout import Layout, layout_of
from spmdlayer.placement import Own, Partial, Replicate, Shard

R, P = Replicate(), Partial()


def pieces_by_slicing(items, mesh_shape, placements, dim, coord):
    """The items along one dimension that a rank holds, by splitting a list of them again and again."""
    for count, placement, index in zip(mesh_shape, placements, coord):
        if not placement.is_shard(dim):
            continue
        if placement.block is None:
            items = np.array_split(items, count)[index]
        else:
            items = items[[k for k in range(len(items)) if k // placement.block % count == index]]
    return items


@st.composite
def layouts(draw, blocks=True):
    mesh_shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    shape = draw(st.lists(st.integers(0, 11), max_size=3).map(tuple))
    options = [st.sampled_from([R, P, Own()])]
    if shape:
        block = st.none() | st.integers(1, 3) if blocks else st.none()
        options.append(st.builds(Shard, st.integers(0, len(shape) - 1), block))
    placements = tuple(draw(st.one_of(options)) for _ in mesh_shape)
    return Layout(mesh_shape, placements, shape)


def coords(layout):
    return list(itertools.product(*map(range, layout.mesh_shape)))


@given(layouts())
def test_intervals_are_repeated_array_split(layout):
    for coord in coords(layout):
        for dim, size in enumerate(layout.shape):
            right = pieces_by_slicing(np.arange(size), layout.mesh_shape, layout.placements, dim, coord)
            intervals = layout.intervals(coord, dim)
            assert [k for start, stop in intervals for k in range(start, stop)] == right.tolist()
            assert layout.local_shape(coord)[dim] == len(right)
            assert all(a[1] < b[0] for a, b in itertools.pairwise(intervals))


@given(layouts())
def test_local_shapes_give_the_layout_back(layout):
    shapes = {coord: layout.local_shape(coord) for coord in coords(layout)}
    assert Layout.from_local_shapes(layout.mesh_shape, layout.placements, shapes) == layout
    assert Layout.from_local_shapes(layout.mesh_shape, layout.placements, list(shapes.values())) == layout
    assert hash(pickle.loads(pickle.dumps(layout))) == hash(layout)


@given(layouts(blocks=False), st.data())
def test_any_sizes_are_consecutive_pieces(layout, data):
    splits = []
    for dim in range(layout.ndim):
        count = int(np.prod([layout.mesh_shape[axis] for axis in layout.sharding_axes(dim)], dtype=int))
        splits.append(tuple(data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))))
    shape = tuple(map(sum, splits))
    custom = Layout(layout.mesh_shape, layout.placements, shape, tuple(splits))
    for dim in range(layout.ndim):
        axes = custom.sharding_axes(dim)
        for coord in coords(custom):
            flat = np.ravel_multi_index([coord[a] for a in axes], [custom.mesh_shape[a] for a in axes]) if axes else 0
            start = sum(splits[dim][:flat])
            assert custom.intervals(coord, dim) == ((start, start + splits[dim][flat]),)
    shapes = {coord: custom.local_shape(coord) for coord in coords(custom)}
    assert Layout.from_local_shapes(custom.mesh_shape, custom.placements, shapes) == custom


def test_uneven_and_empty_pieces():
    five = Layout((4,), (Shard(0),), (5,))
    assert [five.local_shape((k,)) for k in range(4)] == [(2,), (1,), (1,), (1,)]
    two = Layout((4,), (Shard(0),), (2,))
    assert [two.intervals((k,), 0) for k in range(4)] == [((0, 1),), ((1, 2),), ((2, 2),), ((2, 2),)]
    assert five.sizes(0, 0, (2,)) == (2, 1, 1, 1)


def test_block_cyclic():
    layout = Layout((2,), (Shard(0, block=2),), (5,))
    assert layout.intervals((0,), 0) == ((0, 2), (4, 5))
    assert layout.intervals((1,), 0) == ((2, 4),)
    alone = Layout((1,), (Shard(0, block=2),), (5,))
    assert alone.intervals((0,), 0) == ((0, 5),)


def test_two_axes_on_one_dimension():
    layout = Layout((2, 2), (Shard(0), Shard(0)), (5,))
    assert [layout.local_shape(coord) for coord in coords(layout)] == [(2,), (1,), (1,), (1,)]
    assert layout.sharding_axes(0) == (0, 1)
    assert layout.sizes(0, 1, (0, 1)) == (2, 1) and layout.sizes(0, 0, (0, 1)) == (1, 1)


def test_sizes_that_are_the_default_are_none():
    assert Layout((2,), (Shard(0),), (5,), ((3, 2),)) == Layout((2,), (Shard(0),), (5,))
    custom = Layout((2,), (Shard(0),), (5,), ((2, 3),))
    assert custom.splits == ((2, 3),) and not custom.is_default
    assert Layout((2,), (R,), (5,), ((5,),)).is_default
    assert Layout((2,), (Shard(0, block=2),), (5,), ((3, 2),)).is_default


@pytest.mark.parametrize("splits", [((2, 2),), ((6, -1),), ((5,),), ((2, 3), None)])
def test_wrong_splits(splits):
    with pytest.raises(ValueError, match="splits"):
        Layout((2,), (Shard(0),), (5,), splits)


def test_other_placements_keep_the_splits_of_what_stays():
    layout = Layout((2, 2), (Shard(0), Shard(1)), (5, 5), ((1, 4), (0, 5)))
    assert layout.with_placement(1, R) == Layout((2, 2), (Shard(0), R), (5, 5), ((1, 4), None))
    assert layout.with_placement(1, Shard(1, block=1)).splits == ((1, 4), None)
    assert layout.with_placements((Shard(0), Shard(0))).is_default
    assert layout.with_placements(layout.placements) == layout


def test_same_pieces_looks_at_shards_alone():
    layout = Layout((2, 2), (Shard(0), P), (5,))
    assert layout.same_pieces(Layout((2, 2), (Shard(0), Own()), (5,)))
    assert not layout.same_pieces(Layout((2, 2), (Shard(0), Shard(0)), (5,)))
    assert not layout.same_pieces(Layout((2, 2), (P, Shard(0)), (5,)))
    assert not layout.same_pieces(Layout((2, 2), (Shard(0), R), (5,), ((1, 4),)))
    assert not layout.same_pieces(Layout((2, 2), (Shard(0), P), (6,)))


def test_shapes_that_are_no_pieces_of_one_array():
    def derive(placements, *shapes, mesh_shape=(2,)):
        return Layout.from_local_shapes(mesh_shape, placements, shapes)

    with pytest.raises(ValueError, match=r"\(0,\) and \(1,\) have shapes \(2,\) and \(2, 1\); the number of dim"):
        derive((R,), (2,), (2, 1))
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 4\); dim 1 must be the same, for no placement"):
        derive((Shard(0),), (2, 3), (2, 4))
    with pytest.raises(ValueError, match=r"\(0, 0\) and \(0, 1\) .* only mesh axis 0 shards it"):
        derive((Shard(0), R), (2,), (3,), (4,), (4,), mesh_shape=(2, 2))
    with pytest.raises(ValueError, match=r"\(0,\) has shape \(2,\).*block=2.* of 5 items in dim 0 gives it 3"):
        derive((Shard(0, block=2),), (2,), (3,))
    with pytest.raises(ValueError, match=r"placements\[0\]: Shard\(1\) is outside the 1 dim"):
        derive((Shard(1),), (2,), (3,))
    with pytest.raises(ValueError, match="3 shapes"):
        derive((R,), (2,), (2,), (2,))


def test_many_ranks_are_quick():
    layout, calls = calls_of(lambda: Layout((4096,), (Shard(0),), (10**6, 3)))
    shape, more = calls_of(lambda: layout.local_shape((4095,)))
    assert shape == (244, 3) and calls + more < 100
    assert layout.intervals((4095,), 0) == ((10**6 - 244, 10**6),)
    shapes = {(k,): (k % 3, 2) for k in range(4096)}
    assert Layout.from_local_shapes((4096,), (Shard(0),), shapes).shape == (sum(k % 3 for k in range(4096)), 2)


def test_remembered_layouts_are_one_object():
    assert layout_of((2,), (Shard(0),), (3,)) is layout_of((2,), (Shard(0),), (3,))
