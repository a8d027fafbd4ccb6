"""vjp, jvp, hvp, jacobian and hessian, local and distributed, against written-out derivatives."""

import numpy as np
import pytest

import spmdlayer as spmd

X = np.array([0.5, -1.0, 2.0])
A = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
V = np.array([0.3, 0.7, -0.2])


def quadratic(x):
    """(A x)^2 elementwise: Jacobian 2 diag(A x) A."""
    y = spmd.matmul(A, x)
    return y * y


def cubic(x):
    """sum(x^3) + (sum x)^2: Hessian 6 diag(x) + 2."""
    total = x.sum()
    return (x * x * x).sum() + total * total


def placed(kind):
    if kind == "local":
        return spmd.tensor(X)
    mesh = spmd.init_mesh((spmd.get_world_size(),), ("x",))
    return spmd.shard_tensor(X, mesh, [spmd.Shard(0) if kind == "shard" else spmd.Replicate()])


def like(x, values):
    return spmd.tensor(values) if not x.is_dist() else spmd.shard_tensor(values, x.process_mesh, x.placements)


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["local", "shard", "replicate"])
class TestTransforms:
    def test_vjp(self, kind):
        x = placed(kind)
        value, pullback = spmd.vjp(quadratic, x)
        np.testing.assert_allclose(value.numpy(), (A @ X) ** 2)
        for cotangent in ([1.0, -2.0], [0.5, 0.0]):
            (gradient,) = pullback(np.array(cotangent))
            np.testing.assert_allclose(gradient.numpy(), A.T @ (2 * (A @ X) * cotangent))

    def test_jvp(self, kind):
        x = placed(kind)
        value, tangent = spmd.jvp(quadratic, x, like(x, V))
        np.testing.assert_allclose(value.numpy(), (A @ X) ** 2)
        np.testing.assert_allclose(tangent.numpy(), 2 * (A @ X) * (A @ V))

    def test_hvp(self, kind):
        x = placed(kind)
        value, product = spmd.hvp(cubic, x, like(x, V))
        np.testing.assert_allclose(value.numpy(), (X**3).sum() + X.sum() ** 2)
        np.testing.assert_allclose(product.numpy(), 6 * X * V + 2 * V.sum())

    def test_jacobian(self, kind):
        np.testing.assert_allclose(spmd.jacobian(quadratic, placed(kind)).numpy(), 2 * (A @ X)[:, None] * A)

    def test_hessian(self, kind):
        np.testing.assert_allclose(spmd.hessian(cubic, placed(kind)).numpy(), 6 * np.diag(X) + 2)


def test_transforms_nest():
    value, tangent = spmd.jvp(lambda x: spmd.jvp(lambda y: y * y * y, x, x)[1], spmd.tensor(2.0), spmd.tensor(1.0))
    np.testing.assert_allclose([value.numpy(), tangent.numpy()], [3 * 8.0, 9 * 4.0])


def test_a_constant_function_has_zero_derivatives():
    x = spmd.tensor(X)
    _, pullback = spmd.vjp(lambda x: spmd.ones(2), x)
    np.testing.assert_array_equal(pullback(np.ones(2))[0].numpy(), np.zeros(3))
    np.testing.assert_array_equal(spmd.jvp(lambda x: spmd.ones(2), x, x)[1].numpy(), np.zeros(2))
    np.testing.assert_array_equal(spmd.jacobian(lambda x: spmd.ones(2), x).numpy(), np.zeros((2, 3)))


def test_wrong_arguments():
    x = spmd.tensor(X)
    with pytest.raises(ValueError, match=r"tangents\[0\]: shape \(2,\)"):
        spmd.jvp(quadratic, x, spmd.ones(2))
    with pytest.raises(TypeError, match="one Tensor"):
        spmd.vjp(lambda x: [x], x)
    with pytest.raises(ValueError, match="one number"):
        spmd.hvp(quadratic, x, x)
    with pytest.raises(TypeError, match=r"x\[0\]"):
        spmd.jacobian(quadratic, X)
