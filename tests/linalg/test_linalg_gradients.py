"""Gradients where a formula would divide by zero: right where they exist, else an error that says why.

That gradients are right elsewhere is tested with all operations, in tests/ops.
"""

import numpy as np
import pytest

import spmdlayer as spmd
from spmdlayer import linalg

RANDOM = np.random.default_rng(4)


def leaf(array):
    return spmd.tensor(np.asarray(array), requires_grad=True)


def gradient(function, array):
    x = leaf(array)
    return spmd.grad(function(x), x).numpy()


# Values alone ------------------------------------------------------------


def test_eigenvalues_that_are_equal_have_gradients():
    np.testing.assert_allclose(gradient(lambda x: linalg.eigvalsh(x).sum(), np.eye(3)), np.eye(3), atol=1e-12)
    found = gradient(lambda x: (linalg.eigvalsh(x) ** 2).sum(), 2 * np.eye(3))  # of the trace of x^2
    np.testing.assert_allclose(found, 4 * np.eye(3), atol=1e-12)
    np.testing.assert_allclose(
        gradient(lambda x: linalg.eigh(x).eigenvalues[0], np.diag([1.0, 2, 2])), np.diag([1, 0, 0])
    )


def test_singular_values_that_are_equal_or_zero_have_gradients():
    np.testing.assert_allclose(gradient(lambda x: (linalg.svdvals(x) ** 2).sum(), np.eye(3)), 2 * np.eye(3), atol=1e-12)
    flat = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(gradient(lambda x: linalg.svdvals(x)[0], flat), flat, atol=1e-12)


def test_vectors_of_single_values_have_gradients_beside_equal_ones():
    matrix = np.diag([1.0, 2.0, 2.0])
    found = gradient(lambda x: linalg.eigh(x).eigenvectors[1, 0] ** 2 + linalg.eigh(x).eigenvalues[0], matrix)
    np.testing.assert_allclose(found, np.diag([1.0, 0, 0]), atol=1e-12)
    # d v0[1] / d x[0, 1] = 1 / (1 - 2), half of it in each of the two elements
    found = gradient(lambda x: linalg.eigh(x).eigenvectors[1, 0] * linalg.eigh(x).eigenvectors[0, 0], matrix)
    np.testing.assert_allclose(found, [[0, -0.5, 0], [-0.5, 0, 0], [0, 0, 0]], atol=1e-12)


# What has no gradient ----------------------------------------------------


@pytest.mark.parametrize(
    "function, matrix, message",
    [
        (lambda x: linalg.eigh(x).eigenvectors[1, 0], np.eye(3), "eigh: .* difference of eigenvalues 1 and 0"),
        (lambda x: linalg.eigh(x[None]).eigenvectors[0, 1, 0], np.eye(3), r"matrix at index \(0,\)"),
        (lambda x: linalg.svd(x).U[1, 0], np.eye(3), "svd: .* difference of singular values"),
        (lambda x: linalg.svd(x).Vh[1, 0], np.eye(3), "svd: .* difference of singular values"),
        (lambda x: linalg.svd(x, False).U[2, 1], np.eye(3)[:, :1] * [1.0, 0.0], "svd: .* singular value 1, which is 0"),
        (lambda x: linalg.svd(x).U[0, 2], np.eye(3)[:, :2] * [1.0, 2.0], "svd: .* only complete a basis"),
        (lambda x: linalg.qr(x, mode="complete").Q[0, 2], np.eye(3)[:, :2], "qr: .* only complete a basis"),
        (lambda x: linalg.eig(x).eigenvectors[1, 0].real, np.eye(2), "eig: .* difference of eigenvalues"),
        (lambda x: linalg.slogdet(x).logabsdet, np.ones((2, 2)), "inv: the matrix, .* is singular"),
        (lambda x: linalg.qr(x).Q[0, 1], np.ones((3, 2)) * [1.0, 0.0], "has a zero on its diagonal"),
    ],
)
def test_an_error_says_what_has_no_gradient(function, matrix, message):
    x = leaf(matrix)
    y = function(x)
    with pytest.raises(linalg.LinAlgError, match=message):
        spmd.backward(y)
    assert issubclass(linalg.LinAlgError, ValueError)


def test_phases_have_no_gradient():
    matrix = RANDOM.normal(size=(3, 3)) + 1j * RANDOM.normal(size=(3, 3))
    for function, name in (
        (lambda x: linalg.eigh(x).eigenvectors[0, 1].imag, "eigh"),
        (lambda x: linalg.svd(x).U[0, 1].imag, "svd"),
        (lambda x: linalg.eig(x).eigenvectors[0, 1].imag, "eig"),
    ):
        with pytest.raises(linalg.LinAlgError, match=f"{name}: the loss depends on the phase of vector 1"):
            gradient(function, matrix)


def test_second_derivatives_at_equal_values_raise():
    x = leaf(np.eye(2))
    first = spmd.grad((linalg.eigvalsh(x) ** 3).sum(), x, create_graph=True)
    with pytest.raises(linalg.LinAlgError, match="difference of eigenvalues"):
        spmd.grad((first * [[1.0, 2.0], [2.0, 3.0]]).sum(), x)


# Zero, and singular matrices ---------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 3, 0.5, -1, np.inf])
def test_the_gradient_of_a_norm_at_zero_is_zero(order):
    for dtype in (float, complex):
        np.testing.assert_array_equal(gradient(lambda x: linalg.vector_norm(x, ord=order), np.zeros(3, dtype)), 0)
    np.testing.assert_array_equal(gradient(linalg.matrix_norm, np.zeros((2, 3))), 0)


def test_second_derivatives_of_a_norm_at_zero_are_finite():
    assert np.isfinite(spmd.hessian(lambda x: linalg.vector_norm(x) ** 2, spmd.tensor(np.zeros(2))).numpy()).all()


def test_determinants_of_singular_matrices():
    rank_one = np.outer([1.0, 2.0], [3.0, 4.0])
    np.testing.assert_allclose(gradient(linalg.det, rank_one), [[8, -6], [-4, 3]], atol=1e-12)  # the cofactors
    np.testing.assert_allclose(gradient(linalg.det, np.diag([0.0, 2.0, 3.0])), np.diag([6.0, 0, 0]), atol=1e-12)
    np.testing.assert_allclose(gradient(linalg.det, np.zeros((3, 3))), 0)
    second = spmd.hessian(linalg.det, spmd.tensor(np.zeros((2, 2)))).numpy()
    assert second[0, 0, 1, 1] == pytest.approx(1)
    assert second[0, 1, 1, 0] == pytest.approx(-1)
    assert second[0, 0, 0, 0] == pytest.approx(0)


def test_third_derivatives_of_a_determinant():
    matrix = RANDOM.normal(size=(3, 3)) + 2 * np.eye(3)
    along = RANDOM.normal(size=(3, 3))
    t = leaf(0.3)
    value = linalg.det(spmd.tensor(matrix) + t * spmd.tensor(along))
    for _ in range(3):
        value = spmd.grad(value, t, create_graph=True)
    assert float(value) == pytest.approx(6 * np.linalg.det(along))  # det is a cubic polynomial of t


def test_third_derivatives_of_factorisations():
    matrix = np.array([[3.0, 0.4, 0.2], [0.4, 2.0, 0.1], [0.2, 0.1, 1.0]])

    def trace_of_fourth_power(x):
        values, vectors = linalg.eigh(x)
        root = (vectors * values[..., None, :]) @ vectors.mT
        return linalg.trace(root @ root @ root @ root)

    def by_cholesky(x):
        factor = linalg.cholesky(x @ x)
        return linalg.trace(factor @ factor.mT @ factor @ factor.mT)

    def by_svd(x):
        return (linalg.svdvals(x) ** 4).sum()

    for function in (trace_of_fourth_power, by_cholesky, by_svd):
        t = leaf(0.1)
        value = function(spmd.tensor(matrix) + t * spmd.tensor(np.eye(3)))
        for _ in range(3):
            value = spmd.grad(value, t, create_graph=True)
        expected = 24 * np.trace(matrix + 0.1 * np.eye(3))  # of tr (A + t)^4
        assert float(value) == pytest.approx(expected)


# Recomputation -----------------------------------------------------------


def test_factorisations_within_recompute():
    matrix = RANDOM.normal(size=(2, 3, 3))

    def function(x):
        values, vectors = linalg.eigh(x)
        return (vectors[..., 0, :] ** 2 * values).sum()

    np.testing.assert_allclose(gradient(spmd.recompute(function), matrix), gradient(function, matrix))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_gradients_keep_the_dtype_of_their_input(dtype):
    x = spmd.tensor(RANDOM.normal(size=(2, 3, 3)) + 3 * np.eye(3), dtype=dtype, requires_grad=True)
    for y in (
        linalg.solve(x, np.ones(3)),
        linalg.inv(x),
        linalg.slogdet(x).logabsdet,
        linalg.det(x),
        linalg.svdvals(x),
        linalg.eigvalsh(x),
        linalg.qr(x).R,
        linalg.pinv(x),
        linalg.matrix_norm(x),
        spmd.fft.fft(x),
        spmd.fft.ifft(x, 5),
    ):
        g = spmd.grad(spmd.real(y).sum(), x)
        assert (g.dtype, g.shape) == (x.dtype, x.shape)


def test_gradients_of_empty_stacks_are_empty():
    for extents in ((0, 2, 2), (2, 0, 0)):
        for function in (
            linalg.inv,
            linalg.det,
            linalg.cholesky,
            linalg.svdvals,
            lambda x: linalg.eigh(x)[1],
            linalg.expm,
        ):
            assert gradient(lambda x, f=function: f(x).sum(), np.zeros(extents)).shape == extents
