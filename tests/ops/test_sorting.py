"""sort, argsort, topk against NumPy: local, and on ranks under random placements."""

import numpy as np
import pytest
from placed import distribute, draw, meshes, placements_for, random_sizes

import spmdlayer as spmd
from spmdlayer.ops import samples

R, S = spmd.Replicate(), spmd.Shard


def order_of(x, axis, descending):
    """The stable order, by NumPy."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


def same_bits(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]))


SPECIAL = np.array([0.0, np.nan, -0.0, np.inf, 1.0, -np.inf, 0.0, -0.0, np.nan, 1.0])
ARRAYS = {
    "special": SPECIAL,
    "rows": np.stack([SPECIAL, SPECIAL[::-1], np.roll(SPECIAL, 3)]),
    "ints": np.array([[3, 1, 2, 3, 1], [0, 0, 0, -1, 5]]),
    "unsigned": np.array([200, 0, 255, 3, 3], np.uint8),
    "bools": np.array([True, False, True, False]),
    "half": np.array([2, 1, np.nan, 0.5, 1], np.float16),
    "complex": np.array([1 + 2j, 1 - 2j, 0j, 1 + 2j]),
    "empty": np.zeros((0,)),
    "no lines": np.zeros((0, 3)),
    "no elements": np.zeros((3, 0)),
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", ARRAYS)
def test_values_and_positions(name, descending):
    x = ARRAYS[name]
    for axis in range(-x.ndim, x.ndim):
        order = order_of(x, axis, descending)
        same_bits(spmd.argsort(spmd.asarray(x), axis, descending=descending).numpy(), order)
        expected = np.take_along_axis(x, order, axis)
        same_bits(spmd.sort(spmd.asarray(x), axis, descending=descending).numpy(), expected)
        quick = spmd.sort(spmd.asarray(x), axis=axis, descending=descending, stable=False)
        np.testing.assert_array_equal(quick.numpy(), expected)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("name", ARRAYS)
def test_topk(name, largest):
    for x in (ARRAYS[name], np.concatenate([ARRAYS[name]] * 5, axis=-1)):  # both ways of selecting
        for axis in range(x.ndim):
            order = order_of(x, axis, largest)
            for k in {0, min(2, x.shape[axis]), x.shape[axis]}:
                values, positions = spmd.topk(spmd.asarray(x), k, axis, largest)
                expected = np.take(order, np.arange(k), axis)
                same_bits(positions.numpy(), expected)
                same_bits(values.numpy(), np.take_along_axis(x, expected, axis))


def test_sorting_bfloat16():
    values = [1.5, float("nan"), -2.0, 1.5, 0.25]
    x = spmd.tensor(values, dtype="bfloat16")
    np.testing.assert_array_equal(spmd.sort(x).numpy().astype(float), [-2, 0.25, 1.5, 1.5, np.nan])
    np.testing.assert_array_equal(spmd.argsort(x, descending=True).numpy(), [1, 0, 3, 4, 2])
    assert spmd.topk(x, 2, largest=False)[1].tolist() == [2, 4]


def test_methods_take_the_last_axis():
    x = spmd.tensor([[3, 1], [2, 5]])
    assert x.sort().tolist() == [[1, 3], [2, 5]]
    assert x.argsort(axis=0).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda x: spmd.sort(x, axis=2), ValueError, "sort: axis 2 was given for 2 dim"),
        (lambda x: spmd.sort(x[0, 0]), ValueError, "sort: at least 1 dim"),
        (lambda x: spmd.argsort(x, axis="a"), TypeError, "argsort: axis must be an int"),
        (lambda x: spmd.topk(x, 4), ValueError, "topk: k is 4; axis 1 of the shape \\(2, 3\\) has 3"),
        (lambda x: spmd.topk(x, -1), ValueError, "topk: k is -1"),
        (lambda x: spmd.topk(x, 1.5), TypeError, "topk: k must be an int"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call(spmd.zeros((2, 3)))


def test_gradients_go_to_where_elements_came_from():
    x = spmd.tensor([2.0, 1.0, 2.0, 0.0], requires_grad=True)
    weight = np.array([1.0, 10, 100, 1000])
    np.testing.assert_array_equal(spmd.grad((spmd.sort(x) * weight).sum(), x), [100, 10, 1000, 1])
    np.testing.assert_array_equal(spmd.grad((spmd.sort(x, descending=True) * weight).sum(), x), [1, 100, 10, 1000])
    np.testing.assert_array_equal(spmd.grad(spmd.topk(x, 1)[0].sum(), x), [1, 0, 0, 0])


# On ranks --------------------------------------------------------------------


def random_array(random):
    shape = tuple(int(n) for n in random.integers(0, 9, random.integers(1, 4)))
    if random.random() < 0.4:
        shape = draw(random, [(int(random.integers(300)),), (int(random.integers(300)), 2)])
    x = draw(random, [random.integers(-3, 4, shape), random.normal(size=shape), random.random(shape) < 0.5])
    if x.dtype.kind == "f" and random.random() < 0.5:
        x = np.where(random.random(shape) < 0.2, draw(random, [np.nan, 0.0, -0.0, np.inf]), x)
    return x


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(30))
def test_random_placements(seed, monkeypatch):
    random = np.random.default_rng([seed, 1])
    monkeypatch.setattr(samples, "SAMPLES", draw(random, [1, 3, 64]))  # few: splitters are far off
    mesh, x = draw(random, meshes()), random_array(random)
    placements = placements_for(random, mesh, x, partial=x.dtype.kind != "f")
    axis, descending = int(random.integers(x.ndim)), bool(random.integers(2))
    k = int(random.integers(x.shape[axis] + 1))
    print(f"seed {seed}, mesh {mesh.shape}, {placements}, shape {x.shape}, {x.dtype}, axis {axis}, k {k}")
    t = distribute(random, mesh, x, placements)
    order = order_of(x, axis, descending)
    result = spmd.sort(t, axis, descending=descending)
    same_bits(result.numpy(), np.take_along_axis(x, order, axis))
    same_bits(spmd.argsort(t, axis, descending=descending).numpy(), order)
    assert result.placements == [R if p.is_partial() else p for p in placements]
    assert all(p.is_partial() for p in placements) or result.local_shape == t.local_shape
    values, positions = spmd.topk(t, k, axis, descending)
    expected = np.take(order, np.arange(k), axis)
    np.testing.assert_array_equal(positions.numpy(), expected)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, axis))
    assert values.placements == positions.placements


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(12))
def test_gradients_under_random_placements(seed):
    random = np.random.default_rng([seed, 2])
    mesh = draw(random, meshes())
    x = random.permutation(40)[: draw(random, [7, 40])].reshape(draw(random, [(-1,), (-1, 1), (1, -1)])) / 8
    axis = int(np.argmax(x.shape))
    placements = placements_for(random, mesh, x, partial=False)
    print(f"seed {seed}, mesh {mesh.shape}, {placements}, shape {x.shape}")
    t = distribute(random, mesh, x, placements)
    t.requires_grad = True
    weight, ranks = random.normal(size=x.shape), np.argsort(np.argsort(x, axis), axis)
    back = np.take_along_axis(weight, ranks, axis)  # the weight of the place that each element has
    g = spmd.grad((spmd.sort(t, axis) ** 3 * weight).sum(), t, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), 3 * x**2 * back)
    np.testing.assert_allclose(spmd.grad((g * g).sum(), t).numpy(), 2 * 3 * x**2 * back * 6 * x * back)
    g = spmd.grad((spmd.topk(t, 3, axis)[0] ** 2).sum(), t, create_graph=True)
    chosen = ranks >= x.shape[axis] - 3
    np.testing.assert_allclose(g.detach().numpy(), 2 * x * chosen)
    np.testing.assert_allclose(spmd.grad(g.sum(), t).numpy(), 2.0 * chosen)


@pytest.mark.mpi
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float32", "complex128"])
def test_every_dtype_across_ranks(dtype):
    kind, random = spmd.dtype(dtype), np.random.default_rng(6)
    x = np.asarray(random.integers(0, 2 if dtype == "bool" else 50, 31), kind)
    t = spmd.shard_tensor(spmd.tensor(x, dtype=kind), line(), [S(0)])
    for descending in (False, True):
        order = order_of(x.astype(complex), 0, descending)
        found = spmd.sort(t, descending=descending)
        assert found.dtype == kind
        np.testing.assert_array_equal(found.numpy(), x[order])
        np.testing.assert_array_equal(spmd.argsort(t, descending=descending).numpy(), order)
        values, positions = spmd.topk(t, 4, largest=descending)
        np.testing.assert_array_equal(positions.numpy(), order[:4])
        np.testing.assert_array_equal(values.numpy(), x[order[:4]])


def line():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


@pytest.mark.mpi
def test_a_long_line_is_sorted_without_gathering_it():
    mesh = line()
    n, size = 40000, mesh.size
    for x in (np.random.default_rng(3).normal(size=n), np.zeros(n), np.arange(n) % 3.0, np.arange(n)[::-1] * 1.0):
        t = spmd.shard_tensor(x, mesh, [S(0)])
        with spmd.trace() as traced:
            result = spmd.sort(t)
        np.testing.assert_array_equal(result.numpy(), np.sort(x))
        # Each element moves about once, and few a second time.
        assert traced.bytes() <= 8 * (1.25 * n / size + 64 * size * size) * (size > 1)
        np.testing.assert_array_equal(spmd.argsort(t).numpy(), np.argsort(x, kind="stable"))


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(12))
def test_long_lines_of_uneven_pieces(seed, monkeypatch):
    mesh, random = line(), np.random.default_rng([seed, 11])
    monkeypatch.setattr(samples, "SAMPLES", draw(random, [1, 2, 5, 64]))
    n = int(random.integers(1, 2000))
    sizes = random_sizes(random, n, mesh.size)
    if seed % 3 == 0:  # all on one rank
        sizes = np.roll([n] + [0] * (mesh.size - 1), seed).tolist()
    values = random.normal(size=n)
    x = draw(
        random, [values, np.round(values), np.sort(values), np.sort(values)[::-1], np.where(values < 0, np.nan, 0)]
    )
    print(f"seed {seed}, sizes {sizes}, {samples.SAMPLES} samples")
    start = sum(sizes[: mesh.rank])
    t = spmd.dtensor_from_local(np.array(x[start : start + sizes[mesh.rank]]), mesh, [S(0)])
    np.testing.assert_array_equal(spmd.sort(t).numpy(), np.sort(x))
    for descending in (False, True):
        np.testing.assert_array_equal(spmd.argsort(t, descending=descending).numpy(), order_of(x, 0, descending))


@pytest.mark.mpi
def test_many_lines_move_to_whole_ones_and_back():
    mesh = line()
    x = np.random.default_rng(4).normal(size=(60, 50))
    t = spmd.shard_tensor(x, mesh, [S(1)])
    with spmd.trace() as traced:
        result = spmd.sort(t)
    np.testing.assert_array_equal(result.numpy(), np.sort(x))
    assert result.placements == [S(1)]
    assert traced.bytes() <= 2 * 8 * x.size / mesh.size
    assert traced.count("alltoall") == (2 if mesh.size > 1 else 0)


@pytest.mark.mpi
def test_only_candidates_of_topk_travel():
    mesh = line()
    x = np.random.default_rng(5).normal(size=10000)
    t = spmd.shard_tensor(x, mesh, [S(0)])
    with spmd.trace() as traced:
        values, positions = spmd.topk(t, 5)
    np.testing.assert_array_equal(positions.numpy(), np.argsort(-x)[:5])
    assert values.placements == positions.placements == [R]
    assert traced.bytes() <= (16 * (mesh.size - 1) + 16) * 5
