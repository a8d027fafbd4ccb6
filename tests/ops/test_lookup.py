"""one_hot, select, interp, trapezoid and activations against NumPy and formulas."""

import math

import numpy as np
import pytest
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd

POINTS, VALUES = np.array([-1.0, 0.0, 0.5, 3.0]), np.array([2.0, -1.0, 4.0, 0.5])
NUMBERS = np.array([[-2.0, -1.0, -0.3], [0.5, 2.9, 3.0], [3.1, np.inf, -np.inf]])


@pytest.mark.parametrize("left, right", [(None, None), (7.0, None), (-1, 1.5)])
@pytest.mark.parametrize("values", [VALUES, VALUES * (1 + 2j)])
def test_interp(left, right, values):
    x = NUMBERS if values is VALUES else NUMBERS[:2]
    found = spmd.interp(x, POINTS, values, left, right)
    np.testing.assert_allclose(found.numpy(), np.interp(x, POINTS, values, left, right))
    assert spmd.interp(0.2, POINTS, values).item() == pytest.approx(complex(np.interp(0.2, POINTS, values)))
    assert math.isnan(spmd.interp(np.nan, POINTS, VALUES).item())


def test_interp_of_one_point():
    found = spmd.interp(np.array([0.0, 1.0, 2.0, np.nan]), [1.0], [5.0], left=3.0)
    np.testing.assert_array_equal(found.numpy(), [3, 5, 5, np.nan])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_trapezoid(axis):
    random = np.random.default_rng(0)
    y = random.normal(size=(4, 5))
    x = np.cumsum(random.random(y.shape[axis]))
    np.testing.assert_allclose(spmd.trapezoid(y, dx=0.3, axis=axis).numpy(), np.trapezoid(y, dx=0.3, axis=axis))
    np.testing.assert_allclose(spmd.trapezoid(y, x, axis=axis).numpy(), np.trapezoid(y, x, axis=axis))
    np.testing.assert_allclose(spmd.trapezoid(y, y**2, axis=axis).numpy(), np.trapezoid(y, y**2, axis=axis))
    for n in (0, 1, 2):
        few = (slice(None),) * (axis % 2) + (slice(n),)
        np.testing.assert_allclose(spmd.trapezoid(y[few], axis=axis).numpy(), np.trapezoid(y[few], axis=axis))
        np.testing.assert_allclose(
            spmd.trapezoid(y[few], x[:n], axis=axis).numpy(), np.trapezoid(y[few], x[:n], axis=axis)
        )
    assert spmd.trapezoid(y.astype("float32")).dtype == np.float32


def test_one_hot():
    np.testing.assert_array_equal(spmd.one_hot([[2, 0]], 3).numpy(), [[[0, 0, 1], [1, 0, 0]]])
    np.testing.assert_array_equal(spmd.one_hot(np.array([-1, 5, 1]), 2, "int8").numpy(), [[0, 0], [0, 0], [0, 1]])
    assert spmd.one_hot(1, 2, "float32").dtype == np.float32


def test_select():
    x = np.arange(6.0)
    conditions, choices = [x < 2, x < 4], [x, -x]
    np.testing.assert_array_equal(spmd.select(conditions, choices, 9).numpy(), np.select(conditions, choices, 9))


def test_activations():
    x = np.array([-800.0, -2.0, -0.5, 0.0, 0.7, 3.0, 800.0])
    inside = x[1:-1]
    np.testing.assert_array_equal(spmd.relu(x).numpy(), np.maximum(x, 0))
    np.testing.assert_allclose(spmd.leaky_relu(x, 0.2).numpy(), np.where(x > 0, x, 0.2 * x))
    np.testing.assert_allclose(spmd.elu(x, 2.0).numpy(), np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0))))
    np.testing.assert_allclose(spmd.silu(inside).numpy(), inside / (1 + np.exp(-inside)))
    cdf = np.array([(1 + math.erf(value / math.sqrt(2))) / 2 for value in inside])
    np.testing.assert_allclose(spmd.gelu(inside).numpy(), inside * cdf)
    np.testing.assert_allclose(spmd.softplus(inside).numpy(), np.log(1 + np.exp(inside)))
    for function in (spmd.relu, spmd.elu, spmd.silu, spmd.gelu, spmd.softplus):
        assert function(x.astype("float32")).dtype == np.float32
        assert function(spmd.tensor(x, dtype="bfloat16")).dtype == spmd.bfloat16
        ends = spmd.tensor(x, requires_grad=True)
        gradient = spmd.grad(function(ends).sum(), ends).numpy()
        np.testing.assert_allclose(gradient[[0, -1]], [0, 1], atol=1e-12)
    zero = spmd.tensor(0.0, requires_grad=True)
    assert spmd.grad(spmd.relu(zero), zero).item() == 0


WRONG = [
    (lambda: spmd.one_hot([0.5], 2), TypeError, "one_hot: ids must be integers"),
    (lambda: spmd.one_hot([0], -1), ValueError, "one_hot: num_classes"),
    (lambda: spmd.select([], []), ValueError, "select: 0 conditions"),
    (lambda: spmd.select([[1]], [[2]]), TypeError, "select: condition 0 is int64"),
    (lambda: spmd.interp(1.0, [1.0, 2.0], [1.0]), ValueError, r"interp: .* shapes \(2,\) and \(1,\)"),
    (lambda: spmd.interp(1j, [1.0], [1.0]), TypeError, "interp: x is complex128"),
    (lambda: spmd.trapezoid(np.ones((2, 3)), np.ones(2)), ValueError, "trapezoid: x of shape"),
]


@pytest.mark.parametrize("call, kind, match", WRONG, ids=range(len(WRONG)))
def test_bad_input(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


FUNCTIONS = {
    "interp": (lambda x, p, v: spmd.interp(x, p, v), lambda x, p, v: np.interp(x, p, v), (NUMBERS[:2], POINTS, VALUES)),
    "trapezoid": (lambda y: spmd.trapezoid(y, axis=0), lambda y: np.trapezoid(y, axis=0), (NUMBERS[:2],)),
    "trapezoid at": (lambda y, x: spmd.trapezoid(y, x), lambda y, x: np.trapezoid(y, x), (NUMBERS[:2], POINTS[1:])),
    "one_hot": (lambda i: spmd.one_hot(i, 4), lambda i: np.eye(4)[i], (np.array([[3, 0, 1], [2, 2, 0]]),)),
    "gelu": (spmd.gelu, lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2, (NUMBERS[:2],)),
}


@pytest.mark.mpi
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_random_placements(name, seed):
    ours, theirs, arrays = FUNCTIONS[name]
    random = np.random.default_rng([seed, *name.encode()])
    mesh = draw(random, meshes())
    places = [placements_for(random, mesh, array) for array in arrays]
    plain = int(random.integers(2 * len(arrays)))
    print(f"seed {seed}, mesh {mesh.shape}, placements {places}, plain {plain}")
    tensors = [
        array if k == plain and len(arrays) > 1 else distribute(random, mesh, array, placed)
        for k, (array, placed) in enumerate(zip(arrays, places))
    ]
    np.testing.assert_allclose(ours(*tensors).numpy(), theirs(*arrays), rtol=1e-9, atol=1e-9)


@pytest.mark.mpi
def test_what_does_not_communicate():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = spmd.shard_tensor(np.linspace(-1, 2, 7), mesh, [spmd.Shard(0)])
    with spmd.trace() as t:
        assert spmd.interp(x, POINTS, VALUES).placements == [spmd.Shard(0)]
        assert spmd.trapezoid(x).placements == [spmd.Partial("sum")]
        assert spmd.one_hot(spmd.astype(x, "int64"), 3).placements == [spmd.Shard(0)]
        assert spmd.gelu(x).placements == [spmd.Shard(0)]
    assert t.count(records=True) == 0, str(t)
