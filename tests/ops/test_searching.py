"""argmax and argmin, searchsorted, digitize, nonzero, isin against NumPy: local, and under random placements."""

import numpy as np
import pytest
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd

R, S = spmd.Replicate(), spmd.Shard


def small_array(random, low=0, ndim=3):
    """Numbers with many ties, and sometimes NaN."""
    shape = tuple(int(n) for n in random.integers(low, 6, random.integers(1, ndim + 1)))
    x = draw(random, [random.integers(-2, 3, shape), random.integers(-2, 3, shape) / 2, random.random(shape) < 0.5])
    return np.where(random.random(shape) < 0.2, np.nan, x) if x.dtype.kind == "f" and random.random() < 0.5 else x


def placed(random, x):
    """A distributed tensor under random placements, which are printed."""
    mesh = draw(random, meshes())
    placements = placements_for(random, mesh, x, partial=x.dtype.kind != "f")
    print(f"mesh {mesh.shape}, {placements}, shape {x.shape}, {x.dtype}")
    return distribute(random, mesh, x, placements)


def line():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


# argmax and argmin -----------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(30))
def test_positions_of_extremes(seed):
    random = np.random.default_rng([seed, 3])
    x = small_array(random, low=1)
    t = placed(random, x)
    axis, keepdims = draw(random, [None, *range(x.ndim)]), bool(random.integers(2))
    for name in ("argmax", "argmin"):
        found = getattr(spmd, name)(t, axis, keepdims)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found.numpy(), getattr(np, name)(x, axis, keepdims=keepdims), err_msg=name)


@pytest.mark.mpi
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float32", "complex64"])
def test_positions_in_every_dtype(dtype):
    kind = spmd.dtype(dtype)
    x = np.array([[0, 3, 1, 0, 3, 2, 3, 1], [1, 1, 0, 0, 1, 1, 0, 0]]).T.astype(kind)
    t = spmd.shard_tensor(spmd.tensor(x, dtype=kind), line(), [S(0)])
    np.testing.assert_array_equal(spmd.argmax(t, 0).numpy(), np.argmax(x, 0))
    np.testing.assert_array_equal(spmd.argmin(t, 0).numpy(), np.argmin(x, 0))
    assert spmd.argmax(t).item() == np.argmax(x)


@pytest.mark.mpi
def test_one_pair_a_line_and_rank_travels():
    mesh = line()
    x = np.random.default_rng(0).normal(size=(1000, 3))
    t = spmd.shard_tensor(x, mesh, [S(0)])
    with spmd.trace() as traced:
        found = spmd.argmax(t, axis=0)
    np.testing.assert_array_equal(found.numpy(), x.argmax(0))
    assert found.placements == [R]
    assert traced.bytes() == 3 * 16 * (mesh.size - 1)
    assert traced.count(records=True) == (mesh.size > 1)


@pytest.mark.mpi
def test_a_rank_without_elements_takes_part():
    mesh = line()
    n = mesh.size
    local = np.arange(20.0)[::-1] if mesh.rank == n - 1 else np.zeros(0)
    t = spmd.dtensor_from_local(local, mesh, [S(0)])
    assert spmd.argmax(t).item() == 0
    assert spmd.argmin(t).item() == 19
    with pytest.raises(ValueError, match="argmax: no elements to compare"):
        spmd.argmax(t[:0])


# Places in a sorted line -----------------------------------------------------

LINES = [
    np.array([0.0, 1.0, 1.0, 2.5, np.inf, np.nan]),
    np.array([-3, 0, 0, 0, 7]),
    np.array([False, True]),
    np.zeros(0),
]
VALUES = [np.array([[-1.0, 1.0, np.nan], [np.inf, 2.5, 0.0]]), np.array([0, 1, 9]), np.array(1.0), np.zeros((0, 2))]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("line_", LINES, ids=str)
def test_searchsorted(line_, side):
    for values in VALUES:
        found = spmd.searchsorted(spmd.asarray(line_), spmd.asarray(values), side=side)
        expected = np.searchsorted(line_, values, side)
        assert (found.dtype, found.shape) == (np.int64, np.shape(expected))
        np.testing.assert_array_equal(found.numpy(), expected)


def test_searchsorted_with_a_sorter():
    x = np.array([3.0, 1.0, 2.0])
    t = spmd.tensor(x)
    np.testing.assert_array_equal(spmd.searchsorted(t, [1.5, 3.0], sorter=spmd.argsort(t)).numpy(), [1, 2])
    assert spmd.sort(t).searchsorted(2.5).item() == 2
    with pytest.raises(ValueError, match="searchsorted: side must be"):
        spmd.searchsorted(t, t, side="middle")
    with pytest.raises(ValueError, match="searchsorted: x1 must have 1 dimension"):
        spmd.searchsorted(t[None], t)


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(16))
def test_searchsorted_under_random_placements(seed):
    random = np.random.default_rng([seed, 5])
    sorted_line = np.sort(random.integers(-5, 6, random.integers(0, 12)))
    values = random.integers(-6, 7, random.integers(0, 5, random.integers(3)))
    mesh, side = draw(random, meshes()), draw(random, ["left", "right"])
    places = [placements_for(random, mesh, x) for x in (sorted_line, values)]
    print(f"seed {seed}, mesh {mesh.shape}, {places}, {sorted_line.shape}, {values.shape}")
    t, v = (distribute(random, mesh, x, p) for x, p in zip((sorted_line, values), places))
    expected = np.searchsorted(sorted_line, values, side)
    for line_, other in ((t, v), (t, values), (sorted_line, v)):
        np.testing.assert_array_equal(spmd.searchsorted(line_, other, side=side).numpy(), expected)


@pytest.mark.mpi
def test_counts_in_pieces_of_the_line_add_up():
    mesh = line()
    t = spmd.shard_tensor(np.arange(100.0), mesh, [S(0)])
    with spmd.trace() as traced:
        found = spmd.searchsorted(t, np.array([3.5, 99.0]))
        elsewhere = spmd.searchsorted(np.arange(3.0), t)
    assert found.placements == [spmd.Partial("sum")]
    assert elsewhere.placements == [S(0)]
    assert traced.count() == 0
    assert found.tolist() == [4, 99]


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("bins", [[0.0, 1.0, 2.5], [2.5, 1.0, 0.0], [1.0], [1.0, 1.0]])
def test_digitize(bins, right):
    x = np.array([[-1.0, 0.0, 0.5], [1.0, 2.5, 9.0]])
    np.testing.assert_array_equal(spmd.digitize(spmd.tensor(x), bins, right).numpy(), np.digitize(x, bins, right))


def test_digitize_wants_ordered_bins():
    with pytest.raises(ValueError, match="digitize: bins must ascend or descend"):
        spmd.digitize(spmd.zeros(3), [0, 2, 1])
    with pytest.raises(ValueError, match="digitize: bins must have 1 dimension"):
        spmd.digitize(spmd.zeros(3), [[0, 2]])


@pytest.mark.mpi
def test_digitize_on_ranks():
    mesh = line()
    x = np.linspace(-1, 4, 11)
    bins = spmd.shard_tensor(np.arange(4.0), mesh, [S(0)])
    found = spmd.digitize(spmd.shard_tensor(x, mesh, [S(0)]), bins)
    np.testing.assert_array_equal(found.numpy(), np.digitize(x, np.arange(4.0)))
    assert found.placements == [S(0)]


# Where elements are not zero -------------------------------------------------


def test_nonzero():
    x = np.array([[0.0, np.nan, -0.0], [2.0, 0.0, 1.0]])
    for array in (x, x != 0, x[0], np.zeros((0, 2)), np.zeros((2, 3))):
        found = spmd.asarray(array).nonzero()
        assert isinstance(found, tuple)
        for ours, theirs in zip(found, array.nonzero(), strict=True):
            assert ours.dtype == np.int64
            np.testing.assert_array_equal(ours.numpy(), theirs)
        np.testing.assert_array_equal(spmd.argwhere(spmd.asarray(array)).numpy(), np.argwhere(array))
        np.testing.assert_array_equal(spmd.flatnonzero(spmd.asarray(array)).numpy(), np.flatnonzero(array))
    with pytest.raises(ValueError, match="nonzero: at least 1 dimension"):
        spmd.nonzero(spmd.tensor(1.0))


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(16))
def test_nonzero_under_random_placements(seed):
    random = np.random.default_rng([seed, 6])
    x = small_array(random)
    t = placed(random, x)
    for ours, theirs in zip(spmd.nonzero(t), x.nonzero(), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    np.testing.assert_array_equal(spmd.argwhere(t).numpy(), np.argwhere(x))


@pytest.mark.mpi
def test_ranks_keep_the_indices_that_they_found():
    mesh = line()
    x = np.arange(12) % 3
    t = spmd.shard_tensor(x, mesh, [S(0)])
    with spmd.trace() as traced:
        (found,) = spmd.nonzero(t)
    assert traced.count() == 0
    assert found.placements == [S(0)]
    offset = sum(len(part) for part in np.array_split(x, mesh.size)[: mesh.rank])
    np.testing.assert_array_equal(found.to_local().numpy(), offset + np.flatnonzero(t.to_local().numpy()))
    np.testing.assert_array_equal((found * 2).numpy(), 2 * np.flatnonzero(x))


# Membership ------------------------------------------------------------------


@pytest.mark.parametrize("invert", [False, True])
def test_isin(invert):
    x = np.array([[1.0, 2.0, np.nan], [0.0, -0.0, 5.0]])
    for members in ([1.0, 0.0, np.nan], [[5, 2]], [], 2):
        found = spmd.isin(spmd.tensor(x), spmd.tensor(members), invert=invert)
        np.testing.assert_array_equal(found.numpy(), np.isin(x, members, invert=invert))
        assert found.dtype == bool
    assert spmd.isin(3, [1, 3]).item() is True


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(16))
def test_isin_under_random_placements(seed):
    random = np.random.default_rng([seed, 7])
    x, members = (random.integers(-4, 5, random.integers(0, 5, random.integers(3))) for _ in range(2))
    mesh, invert = draw(random, meshes()), bool(random.integers(2))
    places = [placements_for(random, mesh, array) for array in (x, members)]
    print(f"seed {seed}, mesh {mesh.shape}, {places}, {x.shape}, {members.shape}")
    t, m = (distribute(random, mesh, array, p) for array, p in zip((x, members), places))
    expected = np.isin(x, members, invert=invert)
    for elements, others in ((t, m), (t, members), (x, m)):
        np.testing.assert_array_equal(spmd.isin(elements, others, invert=invert).numpy(), expected)


# Ranks outside the mesh ------------------------------------------------------


@pytest.mark.mpi
def test_ranks_outside_the_mesh_take_no_part():
    n = spmd.get_world_size()
    everyone, mesh = line(), spmd.ProcessMesh(list(range(max(1, n - 1))))
    x = np.array([3, 0, 1, 3, 0, 2, 2])
    t = spmd.shard_tensor(x, mesh, [S(0)])
    expected = [
        (spmd.sort(t), np.sort(x)),
        (spmd.argmax(t), 0),
        (spmd.topk(t, 2)[1], [0, 3]),
        (spmd.nonzero(t)[0], np.flatnonzero(x)),
        (spmd.unique_all(t).indices, [1, 2, 5, 0]),
        (spmd.unique_inverse(t).inverse_indices, x),
        (spmd.searchsorted(spmd.sort(t), t), np.searchsorted(np.sort(x), x)),
        (spmd.isin(t, [2, 3]), np.isin(x, [2, 3])),
        (spmd.bincount(t), np.bincount(x)),
        (spmd.median(t), 2.0),
    ]
    for k, (found, value) in enumerate(expected):
        found = spmd.reshard(found, everyone, [R])
        np.testing.assert_array_equal(found.to_local().numpy(), value, err_msg=str(k))
