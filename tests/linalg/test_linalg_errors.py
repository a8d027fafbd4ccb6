"""Errors name the operation, the shape, and of a stack the matrix."""

import numpy as np
import pytest

import spmdlayer as spmd
from spmdlayer import linalg

SQUARE = "det inv slogdet cholesky eigh eigvalsh eig eigvals expm".split()
SOLVERS = [linalg.solve, linalg.solve_triangular]


@pytest.mark.parametrize("name", SQUARE)
def test_matrices_must_be_square(name):
    for extents in ((2, 3), (4, 3, 2)):
        with pytest.raises(
            ValueError, match=rf"{name}.*: the matrices of x must be square, its shape is \({extents[0]}, "
        ):
            getattr(linalg, name)(spmd.zeros(extents))
    with pytest.raises(ValueError, match=r"at least 2 dimensions, its shape is \(3,\)"):
        getattr(linalg, name)(spmd.zeros(3))


@pytest.mark.parametrize("name", "svd svdvals qr pinv matrix_rank matrix_norm cond diagonal trace".split())
def test_matrices_must_have_two_dimensions(name):
    with pytest.raises(ValueError, match=r"at least 2 dimensions, its shape is \(3,\)"):
        getattr(linalg, name)(spmd.zeros(3))


def test_singular_matrices_are_named():
    stack = np.stack([np.eye(2), np.eye(2), np.zeros((2, 2))])
    for function in (linalg.inv, lambda x: linalg.solve(x, np.ones(2)), lambda x: linalg.matrix_power(x, -1)):
        with pytest.raises(
            np.linalg.LinAlgError, match=r"the matrix at index \(2,\) of the stack, of shape \(3, 2, 2\), is sing"
        ):
            function(spmd.tensor(stack))
        with pytest.raises(ValueError, match=r"the matrix, of shape \(2, 2\), is singular"):
            function(spmd.tensor(stack[2]))
    with pytest.raises(
        linalg.LinAlgError, match=r"solve_triangular: the matrix at index \(2,\) .* zero on its diagonal"
    ):
        linalg.solve_triangular(spmd.tensor(stack), np.ones(2))


def test_matrices_that_are_not_positive_definite_are_named():
    with pytest.raises(linalg.LinAlgError, match=r"cholesky: the matrix at index \(0, 1\) .* not positive definite"):
        linalg.cholesky(spmd.tensor(np.stack([np.eye(2), -np.eye(2)])[None]))


@pytest.mark.parametrize("name", "svd svdvals pinv eigh eigvalsh eig".split())
def test_nan_is_named(name):
    stack = np.stack([np.eye(3), np.full((3, 3), np.nan)])
    with pytest.raises(linalg.LinAlgError, match=r"the matrix at index \(1,\) .* NaN"):
        getattr(linalg, name)(spmd.tensor(stack))


@pytest.mark.parametrize("solver", SOLVERS)
def test_systems_must_fit(solver):
    with pytest.raises(ValueError, match=r"x2 of shape \(2, 1\) has no 3 rows, as x1 of shape \(3, 3\) needs"):
        solver(spmd.tensor(np.eye(3)), np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"the leading dims of \(2, 3, 3\) and \(4, 3, 1\) do not broadcast"):
        solver(spmd.zeros((2, 3, 3)), np.ones((4, 3, 1)))
    with pytest.raises(ValueError, match="x1 must be square|matrices of x1 must be square"):
        solver(spmd.zeros((2, 3)), np.ones(3))
    with pytest.raises(ValueError, match="no 3 rows"):
        solver(spmd.tensor(np.eye(3)), 1.0)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: linalg.norm(x, "nuclear"), ValueError, "matrix_norm: ord 'nuclear' was given"),
        (lambda x: linalg.vector_norm(x, ord="fro"), ValueError, "vector_norm: ord 'fro' was given"),
        (lambda x: linalg.norm(x, 2, axis=(0, 0)), ValueError, "norm: axis .* two different ones"),
        (lambda x: linalg.norm(x[None], 2), ValueError, "needs an axis"),
        (lambda x: linalg.qr(x, mode="raw"), ValueError, "qr: mode 'raw' was given"),
        (lambda x: linalg.cross(x, x), ValueError, r"cross: x1 of shape \(2, 2\) must have 3 elements along axis -1"),
        (lambda x: linalg.outer(x, x[0]), ValueError, "linalg.outer: vectors are needed"),
        (lambda x: linalg.matrix_power(x, 1.5), TypeError, "matrix_power: n must be an int"),
        (lambda x: linalg.multi_dot([x]), ValueError, "multi_dot: at least 2 arrays"),
        (lambda x: linalg.multi_dot([x, x[0], x]), ValueError, r"multi_dot: array 1 of shape \(2,\) is no matrix"),
        (lambda x: linalg.pinv(x, rtol=np.array(1j)), ValueError, "pinv: rtol must be real"),
        (lambda x: linalg.lstsq(x, np.ones(3)), ValueError, r"lstsq: b of shape \(3,\) has no 2 rows"),
    ],
)
def test_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(spmd.tensor(np.eye(2)))
