"""Convolutions against sums written out, SciPy's and NumPy's; derivatives are in gradient_cases."""

from itertools import product

import numpy as np
import pytest
import scipy.signal
from mpi_helpers import assert_all, parallel_raises
from placed import distribute, draw, meshes, placements_for
from walking import check

import spmdlayer as spmd
from spmdlayer.ops import convolution_sums, convolution_transforms, ghosts

R, S, P = spmd.Replicate(), spmd.Shard, spmd.Partial


def summed(x, w, stride, padding, dilation, groups):
    """The definition, element by element."""
    sliding = x.ndim - 2
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    window = w.shape[2:]
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], window, stride, dilation)]
    y = np.zeros((x.shape[0], w.shape[0], *counts), np.result_type(x, w))
    for n, o, *i in product(*map(range, y.shape)):
        first = o // (w.shape[0] // groups) * w.shape[1]
        index = tuple(
            slice(i[a] * stride[a], i[a] * stride[a] + dilation[a] * window[a], dilation[a]) for a in range(sliding)
        )
        y[(n, o, *i)] = np.sum(x[(n, slice(first, first + w.shape[1]), *index)] * w[o])
    return y


def numbers(random, *shape, kind="f"):
    values = random.normal(size=shape)
    return values + 1j * random.normal(size=shape) if kind == "c" else values


def drawn(random, most=3):
    """Arrays and options of a random convolution."""
    sliding, groups = int(random.integers(1, most + 1)), draw(random, [1, 1, 2, 4])
    inner, outer = int(random.integers(1, 3)), int(random.integers(1, 4))
    window = tuple(int(k) for k in random.integers(1, 4, sliding))
    stride, dilation = (tuple(int(k) for k in random.integers(1, 3, sliding)) for _ in range(2))
    padding = tuple((int(a), int(b)) for a, b in random.integers(0, 3, (sliding, 2)))
    extents = [d * (k - 1) + 1 + int(random.integers(3)) for k, d in zip(window, dilation)]
    x = numbers(random, int(random.integers(1, 6)), inner * groups, *extents)
    w = numbers(random, outer * groups, inner, *window, kind=draw(random, "ffc"))
    return x, w, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


@pytest.mark.parametrize("seed", range(20))
def test_values(seed):
    x, w, options = drawn(np.random.default_rng(seed))
    found = spmd.conv(x, w, **options).numpy()
    np.testing.assert_allclose(found, summed(x, w, **options), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", "fc")
def test_transforms_give_the_same_sums(seed, kind, monkeypatch):
    random = np.random.default_rng(seed)
    x, w, options = drawn(random, 2)
    options["stride"] = (1,) * (x.ndim - 2)
    y = numbers(random, *spmd.conv(x, w, **options).shape, kind=kind)
    geometry = convolution_sums.Geometry(w.shape[2:], *options.values(), x.shape[2:])
    sums = [
        lambda: convolution_sums.output_sum(np, x, w, geometry),
        lambda: convolution_sums.input_sum(np, y, w, geometry),
        lambda: convolution_sums.weight_sum(np, x, y, geometry),
    ]
    direct = [function() for function in sums]
    monkeypatch.setattr(convolution_sums, "by_transforms", lambda *arguments: True)
    for expected, function in zip(direct, sums):
        found = function()
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_large_windows_go_by_transforms():
    random = np.random.default_rng(3)
    x, w = numbers(random, 2, 1, 100, 90), numbers(random, 1, 1, 31, 29)
    geometry = convolution_sums.Geometry((31, 29), (1, 1), ((0, 0),) * 2, (1, 1), 1, (100, 90))
    assert convolution_transforms.by_transforms(2, 1, 1, geometry, (x, w))
    expected = np.stack([scipy.signal.correlate2d(image, w[0, 0], "valid") for image in x[:, 0]])[:, None]
    np.testing.assert_allclose(spmd.conv(x, w).numpy(), expected, atol=1e-10)
    single = spmd.conv(x.astype("float32"), w.astype("float32"))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single.numpy(), expected, atol=1e-3)


def test_blocks_join(monkeypatch):
    random = np.random.default_rng(4)
    x, w = numbers(random, 3, 2, 9, 5), numbers(random, 2, 2, 3, 2)
    whole = spmd.conv(x, w, stride=2)
    monkeypatch.setattr(convolution_sums, "_BLOCK", 20)
    x, w = (spmd.tensor(a, requires_grad=True) for a in (x, w))
    y = spmd.conv(x, w, stride=2)
    np.testing.assert_allclose(y.detach().numpy(), whole.numpy())
    gx, gw = spmd.grad(y, [x, w], [np.ones(y.shape)])
    expected = np.zeros(w.shape)
    for i, j in product(range(3), range(2)):
        expected[:, :, i, j] = x.detach().numpy()[:, :, i : i + 7 : 2, j : j + 4 : 2].sum(axis=(0, 2, 3))
    np.testing.assert_allclose(gw.numpy(), expected)
    np.testing.assert_allclose(gx.numpy()[:, 0, 0, 0], w.detach().numpy()[:, 0, 0, 0].sum())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int64"])
def test_dtypes(dtype):
    x, w = np.arange(24.0).reshape(1, 2, 12) % 5, np.arange(12.0).reshape(2, 2, 3) % 3
    found = spmd.conv(spmd.tensor(x, dtype=dtype), spmd.tensor(w, dtype=dtype))
    assert found.dtype == spmd.dtype(dtype)
    expected = summed(x, w, (1,), ((0, 0),), (1,), 1)
    np.testing.assert_array_equal(spmd.astype(found, "float64").numpy(), expected)


@pytest.mark.parametrize("seed", range(8))
def test_the_transpose_is_the_adjoint(seed):
    random = np.random.default_rng(seed)
    x, w, options = drawn(random)
    y = spmd.conv(x, w, **options).numpy()
    z = numbers(random, *y.shape)
    spans = zip(x.shape[2:], options["padding"], w.shape[2:], options["dilation"], options["stride"])
    extra = tuple((n + sum(p) - d * (k - 1) - 1) % s for n, p, k, d, s in spans)
    if min(x.shape[2:]) >= 1:
        back = spmd.conv_transpose(z, w, **options, output_padding=extra).numpy()
        assert back.shape == x.shape
        np.testing.assert_allclose(np.sum(back * x), np.sum(y * z))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("lengths", [(7, 3), (7, 4), (3, 7), (4, 7), (5, 5), (1, 1), (300, 200)])
def test_numpys(mode, lengths):
    random = np.random.default_rng(0)
    a, v = (numbers(random, n, kind=kind) for n, kind in zip(lengths, "cc"))
    np.testing.assert_allclose(spmd.convolve(a, v, mode).numpy(), np.convolve(a, v, mode), atol=1e-10)
    np.testing.assert_allclose(spmd.correlate(a, v, mode).numpy(), np.correlate(a, v, mode), atol=1e-10)


def test_same_and_valid():
    x, w = np.ones((1, 1, 7)), np.ones((1, 1, 4))
    assert spmd.conv(x, w, padding="valid").shape == (1, 1, 4)
    np.testing.assert_array_equal(spmd.conv(x, w, padding="same").numpy()[0, 0], [3, 4, 4, 4, 4, 3, 2])
    assert spmd.conv(x, w, padding="same", stride=2).shape == (1, 1, 4)


X, W = np.ones((2, 4, 5, 5)), np.ones((6, 2, 3, 3))
WRONG = [
    (lambda: spmd.conv(X[0, 0], W), ValueError, r"conv: x of shape \(5, 5\)"),
    (lambda: spmd.conv(X, W), ValueError, "groups=1 takes 2 channels; x has shape"),
    (lambda: spmd.conv(X, W, groups=4), ValueError, "4 groups do not divide"),
    (lambda: spmd.conv(X, W, groups=0), ValueError, "groups must be 1 ints of at least 1"),
    (lambda: spmd.conv(X, W, stride=0, groups=2), ValueError, "stride must be 2 ints of at least 1"),
    (lambda: spmd.conv(X, W, stride=1.5, groups=2), TypeError, "stride must be an int"),
    (lambda: spmd.conv(X, W, dilation=(1, 2, 3), groups=2), ValueError, "dilation"),
    (lambda: spmd.conv(X, W, padding="full", groups=2), ValueError, "padding must be"),
    (lambda: spmd.conv(X, W, padding=-1, groups=2), ValueError, "padding"),
    (
        lambda: spmd.conv(X, W, dilation=4, groups=2),
        ValueError,
        "window of 3 elements with dilation 4 does not fit in 5",
    ),
    (lambda: spmd.conv(X > 0, W), TypeError, "conv: x is bool"),
    (lambda: spmd.conv(X, W[:, :, :0], groups=2), ValueError, "an empty window"),
    (lambda: spmd.conv_transpose(X, W), ValueError, "takes 6 channels"),
    (lambda: spmd.conv_transpose(X, np.ones((4, 1, 2, 2)), output_padding=1), ValueError, "less than the stride"),
    (lambda: spmd.conv_transpose(X, np.ones((4, 1, 2, 2)), padding=3), ValueError, "would have extents"),
    (lambda: spmd.conv_transpose(X, np.ones((4, 1, 2, 2)), padding="same"), ValueError, "padding='same'"),
    (lambda: spmd.convolve([1.0], np.ones((2, 2))), ValueError, "convolve: v must have one dimension"),
    (lambda: spmd.correlate([1.0], [1.0], mode="all"), ValueError, "correlate: mode"),
]


@pytest.mark.parametrize("call, kind, match", WRONG, ids=range(len(WRONG)))
def test_bad_input(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


# Distributed ---------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(10))
def test_random_placements(seed):
    random = np.random.default_rng([7, seed])
    x, w, options = drawn(random, 2)
    mesh = draw(random, meshes())
    places = [placements_for(random, mesh, a) for a in (x, w)]
    print(f"seed {seed}, mesh {mesh.shape}, placements {places}, shapes {x.shape} {w.shape}, {options}")
    found = spmd.conv(*(distribute(random, mesh, a, p) for a, p in zip((x, w), places)), **options)
    np.testing.assert_allclose(found.numpy(), summed(x, w, **options), rtol=1e-9, atol=1e-9)


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(6))
def test_gradients_at_random_placements(seed):
    x, w, options = drawn(np.random.default_rng([8, seed]), 2)
    check([8, seed], lambda x, w: spmd.conv(x, w, **options), [x, w])


@pytest.fixture
def mesh():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


@pytest.mark.mpi
def test_what_does_not_communicate(mesh):
    n = mesh.size
    x, w = np.ones((3, 2 * n, 5, 5)), np.ones((n, 2 * n, 3, 3))

    def placed(array, placement):
        return spmd.shard_tensor(array, mesh, [placement])

    depthwise = placed(np.ones((2 * n, 1, 3, 3)), S(0))
    with spmd.trace() as t:
        assert spmd.conv(placed(x, S(0)), w).placements == [S(0)]
        assert spmd.conv(placed(x, R), placed(w, S(0))).placements == [S(1)]
        assert spmd.conv(placed(x, S(1)), placed(w, S(1))).placements == [P("sum")]
        assert spmd.conv(placed(x, P("sum")), w).placements == [P("sum")]
        y = spmd.conv(placed(x, S(1)), depthwise, groups=2 * n)
        assert y.placements == [S(1)]
        assert spmd.conv_transpose(placed(x, S(1)), depthwise, groups=2 * n).placements == [S(1)]
    assert t.count(records=True) == 0, str(t)
    np.testing.assert_array_equal(y.numpy(), np.full((3, 2 * n, 3, 3), 9.0))


@pytest.mark.mpi
def test_weights_of_sharded_samples_get_one_reduction(mesh):
    x = spmd.shard_tensor(np.ones((5, 2, 6)), mesh, [S(0)])
    w = spmd.shard_tensor(np.ones((3, 2, 2)), mesh, [R])
    w.requires_grad = True
    loss = spmd.conv(x, w).sum()
    with spmd.trace() as t:
        loss.backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full((3, 2, 2), 25.0))
    assert t.count() == (1 if mesh.size > 1 else 0)


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(12))
def test_sharded_sliding_dims(seed, monkeypatch):
    """Places stay sharded; both gradients by linearity, and the transpose, whose operand is cut along places."""
    random = np.random.default_rng([9, seed])
    if seed % 3:  # the places inside while the ghosts travel, as for large pieces
        monkeypatch.setattr(ghosts, "_APART", 0)
    x, w, options = drawn(random, 2)
    mesh = draw(random, meshes())
    placements = placements_for(random, mesh, x)
    placements[0] = S(2 + int(random.integers(x.ndim - 2)))
    print(f"seed {seed}, mesh {mesh.shape}, placements {placements}, shapes {x.shape} {w.shape}, {options}")
    t = distribute(random, mesh, x, [R if p.is_partial() else p for p in placements])
    v = spmd.shard_tensor(w, mesh, [R] * mesh.ndim)
    t.requires_grad = v.requires_grad = True
    y, expected = spmd.conv(t, v, **options), summed(x, w, **options)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-9, atol=1e-9)
    assert y.placements[0] == placements[0]
    z = numbers(random, *expected.shape)
    sent = (np.conj(w) * spmd.grad(spmd.real(y * z).sum(), v, create_graph=True)).sum()
    total = (expected * z).sum()
    np.testing.assert_allclose(sent.real.item(), total.real, rtol=1e-8, atol=1e-9)
    back = spmd.grad(spmd.real(sent), t)
    assert back.placements == t.placements
    np.testing.assert_allclose((back.numpy() * x).sum(), total.real, rtol=1e-8, atol=1e-9)
    options["padding"] = 0
    whole, cut = (spmd.conv_transpose(a, w, **options) for a in (expected, y.detach()))
    assert cut.placements[0] == placements[0]
    np.testing.assert_allclose(cut.numpy(), whole.numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.mpi
def test_windows_bring_lines_from_the_neighbours(mesh):
    n, rank = mesh.size, mesh.coordinate[0]
    x = spmd.shard_tensor(np.ones((2, 3, 4 * n, 5)), mesh, [S(2)], requires_grad=True)
    with spmd.trace() as there:
        y = spmd.conv(x, np.ones((4, 3, 3, 3)), padding="same")
    assert (y.placements, y.local_shape) == ([S(2)], (2, 4, 4, 5))
    neighbours = (rank > 0) + (rank < n - 1)
    assert_all(there.bytes() == 8 * 2 * 3 * 5 * neighbours, there)
    with spmd.trace() as back:
        spmd.grad(y, x, y.detach())
    assert_all(back.bytes() == there.bytes(), back)
    with spmd.trace() as strided:  # windows side by side: nothing is seen twice
        y = spmd.conv(x, np.ones((1, 3, 2, 1)), stride=(2, 1))
    assert_all(strided.bytes() == 0 and y.local_shape == (2, 1, 2, 5), strided)


@pytest.mark.mpi
def test_bad_shapes_raise_on_every_rank(mesh):
    x = spmd.shard_tensor(np.ones((5, 2, 6)), mesh, [S(0)])
    with parallel_raises(ValueError, r"conv: weight of shape \(3, 4, 2\)"):
        spmd.conv(x, np.ones((3, 4, 2)))
