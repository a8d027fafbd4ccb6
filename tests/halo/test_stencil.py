"""Stencils against scipy.ndimage on the whole array, their gradients, and functions of a piece and its ghosts."""

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises
from placed import distribute, draw, meshes, placements_for
from scipy import ndimage

import spmdlayer as spmd
from spmdlayer.ops import ghosts

pytestmark = pytest.mark.mpi

R, S = spmd.Replicate(), spmd.Shard
MODES = {"periodic": "wrap", "zero": "constant", "reflect": "mirror", "edge": "nearest"}
PADS = {"periodic": "wrap", "zero": "constant", "reflect": "reflect", "edge": "edge"}


def laplacian(ndim):
    weights = np.zeros((3,) * ndim)
    weights[(1,) * ndim] = -2 * ndim
    for dim in range(ndim):
        for end in (0, 2):
            weights[(1,) * dim + (end,) + (1,) * (ndim - dim - 1)] = 1
    return weights


@pytest.mark.parametrize("seed", range(24))
def test_weights(seed, monkeypatch):
    random = np.random.default_rng(seed)
    if seed % 2:  # the sums inside while the ghosts travel, as for large pieces
        monkeypatch.setattr(ghosts, "_APART", 0)
    mesh, ndim, boundary = draw(random, meshes()), int(random.integers(1, 4)), draw(random, list(MODES))
    array = random.normal(size=tuple(int(n) for n in random.integers(3, 9, ndim)))
    weights = random.normal(size=tuple(int(k) for k in random.choice([1, 3, 5], random.integers(1, ndim + 1))))
    weights[random.random(weights.shape) < 0.3] = 0
    placements = placements_for(random, mesh, array)
    linear = all(not p.is_partial() or p.op in ("sum", "avg") for p in placements)
    print(f"seed {seed}, mesh {mesh.shape}, {placements}, {array.shape}, {weights.shape}, {boundary}")
    x = distribute(random, mesh, array, placements)
    w = spmd.shard_tensor(weights, mesh, [R] * mesh.ndim, requires_grad=True)
    x.requires_grad = linear
    y = spmd.stencil(x, w, boundary)
    full = weights.reshape((1,) * (ndim - weights.ndim) + weights.shape)
    expected = ndimage.correlate(array, full, mode=MODES[boundary])
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-9, atol=1e-9)
    assert y.placements == [R if p.is_partial() else p for p in placements]
    if all(p.is_shard() for p in placements):
        assert y.local_shape == x.local_shape
    # What is linear in two arguments: both gradients, and the mixed second one, follow from values.
    z, v = random.normal(size=array.shape), random.normal(size=weights.shape)
    by_weights = spmd.grad((y * z).sum(), w, create_graph=True)
    np.testing.assert_allclose((by_weights.detach().numpy() * weights).sum(), (expected * z).sum(), rtol=1e-8)
    if linear:
        other = ndimage.correlate(array, v.reshape(full.shape), mode=MODES[boundary])
        by_x = spmd.grad((by_weights * v).sum(), x)
        np.testing.assert_allclose((by_x.numpy() * array).sum(), (other * z).sum(), rtol=1e-8, atol=1e-9)
        assert by_x.placements == y.placements


def test_the_laplacian_of_a_sharded_grid():
    mesh = meshes()[-1]
    array = np.random.default_rng(0).normal(size=(6, 5, 4))
    x = spmd.shard_tensor(array, mesh, [S(k) for k in range(mesh.ndim)], requires_grad=True)
    y = spmd.stencil(x, laplacian(3))
    expected = sum(np.roll(array, step, dim) for dim in range(3) for step in (-1, 1)) - 6 * array
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=1e-12)
    # It is symmetric, so the gradient of y^2 / 2 is the Laplacian of y.
    g = spmd.grad((y * y).sum() / 2, x)
    again = sum(np.roll(expected, step, dim) for dim in range(3) for step in (-1, 1)) - 6 * expected
    np.testing.assert_allclose(g.numpy(), again, atol=1e-11)
    assert g.placements == x.placements


@pytest.mark.parametrize("boundary", list(MODES))
def test_functions(boundary):
    """A function that is not linear, with a distributed coefficient from outside, against its formula on the array."""
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    random = np.random.default_rng(1)
    array, z, widths = random.normal(size=(9, 4)), random.normal(size=(9, 4)), ((2, 1), (0, 1))

    def upwind(u):
        return u[2:-1, :-1] * u[:-3, :-1] - u[3:, 1:] ** 2

    def formula(a):
        return upwind(np.pad(a, widths, PADS[boundary]))

    x = spmd.shard_tensor(array, mesh, [S(0)], requires_grad=True)
    local = spmd.tensor(array, requires_grad=True)
    for t in (x, local):
        y = spmd.stencil(t, upwind, boundary, width=widths)
        np.testing.assert_allclose(y.detach().numpy(), formula(array), atol=1e-12)
        g = spmd.grad((y * z).sum(), t).numpy()
        for place in ((0, 0), (4, 3), (8, 1)):
            step = np.zeros_like(array)
            step[place] = 1e-6
            slope = ((formula(array + step) - formula(array - step)) * z).sum() / 2e-6
            np.testing.assert_allclose(g[place], slope, rtol=1e-6, atol=1e-6)
    assert spmd.stencil(x, upwind, boundary, width=widths).placements == [S(0)]
    cyclic = x.detach().reshard(mesh, [S(0, 2)])
    y = spmd.stencil(cyclic, upwind, boundary, width=widths)
    assert y.placements == [S(0, 2)]
    np.testing.assert_allclose(y.numpy(), formula(array), atol=1e-12)


def test_each_application_sends_a_line():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = spmd.shard_tensor(np.ones((12, 5)), mesh, [S(0)], requires_grad=True)
    inner = 0 < mesh.coordinate[0] < mesh.size - 1
    with spmd.trace() as there:
        y = spmd.stencil(x, laplacian(2), "zero")
    with spmd.trace() as back:
        spmd.grad(y, x, y.detach())
    sent = 0 if mesh.size == 1 else 8 * 5 * (1 + inner)
    assert_all(there.bytes() == back.bytes() == sent, (there, back))


def test_dtypes():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    for dtype, w_dtype, result in [
        ("float16", "float16", "float16"),
        ("float32", "float32", "float32"),
        ("int8", "float64", "float64"),
        ("int64", "int64", "int64"),
        ("float64", "complex128", "complex128"),
    ]:
        array, weights = (np.arange(9) * 14).astype(dtype), np.array([1, 2, 1]).astype(w_dtype)
        y = spmd.stencil(spmd.shard_tensor(array, mesh, [S(0)]), weights, "edge")
        assert y.dtype == result
        wide = np.pad(array.astype(result), 1, "edge")
        np.testing.assert_array_equal(y.numpy(), wide[:-2] + 2 * wide[1:-1] + wide[2:])


def test_weights_that_are_zero_read_nothing():
    x = np.array([1.0, np.inf, 2.0, 3.0])
    np.testing.assert_array_equal(spmd.stencil(x, [0, 0, 1.0]).numpy(), [np.inf, 2, 3, 1])
    np.testing.assert_array_equal(spmd.stencil(x, np.zeros(3)).numpy(), np.zeros(4))


@pytest.mark.parametrize(
    "kind, match, call",
    [
        (ValueError, r"weights of shape \(2,\) .* odd extents", lambda x: (x, np.ones(2))),
        (ValueError, r"weights of shape \(1, 1, 1\) .* at most 2 dimensions", lambda x: (x, np.ones((1, 1, 1)))),
        (ValueError, "boundary must be one of .* 'mirror' was given", lambda x: (x, np.ones(3), "mirror")),
        (ValueError, "reflect.* along dimension 1 .*needs 4 elements", lambda x: (x, np.ones(7), "reflect")),
        (TypeError, "width=1 is for a function", lambda x: (x, np.ones(3), "zero", 1)),
        (TypeError, "a function needs width=", lambda x: (x, lambda u: u)),
        (TypeError, "weights is bool", lambda x: (x, np.ones(3, bool))),
        (TypeError, "stencil: operand 1 is a local tensor", lambda x: (x, spmd.ones(3))),
    ],
)
def test_bad_input(kind, match, call):
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    arguments = call(spmd.shard_tensor(np.ones((9, 3)), mesh, [S(0)]))
    with spmd.trace() as traced, parallel_raises(kind, match):
        spmd.stencil(*arguments)
    assert_all(traced.count() == 0, traced)


def test_a_function_with_a_result_of_the_wrong_shape():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = spmd.shard_tensor(np.ones((9, 3)), mesh, [S(0)])
    with parallel_raises(ValueError, r"the function gave shape .* the piece without its ghosts has \("):
        spmd.stencil(x, lambda u: u[1:], width={0: 1})
    with parallel_raises(ValueError, "the function gave a float"):
        spmd.stencil(x, lambda u: 1.0, width={0: 1})


def test_outside_the_mesh():
    """A tensor that another mesh's layer made, whose shape the ranks outside do not know."""
    mesh, everywhere = spmd.ProcessMesh([0]), spmd.ProcessMesh(list(range(spmd.get_world_size())))
    x = spmd.shard_tensor(np.arange(4.0), mesh, [S(0)], requires_grad=True)
    doubled = spmd.local_map(lambda t: t * 2.0, [[S(0)]])(x)
    for y in (
        spmd.stencil(doubled, [1.0, 0, 0], "zero"),
        spmd.stencil(doubled, lambda t: t[:-1], "zero", width=(1, 0)),
        spmd.halo_exchange(doubled, (1, 0), "zero"),
    ):
        whole = y.reshard(everywhere, [R])
        np.testing.assert_array_equal(whole.detach().numpy()[:4], [0, 0, 2, 4])
