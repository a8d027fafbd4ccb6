"""Values, shapes and dtypes are those of NumPy and SciPy."""

import sys

import numpy as np
import pytest
import scipy.linalg

from spmdlayer import linalg
from spmdlayer.autograd.tensor import Tensor, tensor

RANDOM = np.random.default_rng(3)


def matrices(*extents, dtype="float64"):
    values = RANDOM.normal(size=extents) + (1j * RANDOM.normal(size=extents) if np.dtype(dtype).kind == "c" else 0)
    values[..., np.arange(min(extents[-2:])), np.arange(min(extents[-2:]))] += 3
    return values.astype(dtype)


def hermitian(*extents, dtype="float64"):
    values = matrices(*extents, dtype=dtype)
    return values @ np.conj(np.swapaxes(values, -1, -2)) + np.eye(extents[-1], dtype=dtype)


def same(found, expected):
    """Close values, equal shape and dtype; of named tuples each field."""
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected):
            same(ours, theirs)
        return
    expected = np.asarray(expected)
    assert isinstance(found, Tensor)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    rounding = 1e-4 if expected.dtype.name in ("float32", "complex64") else 1e-10
    np.testing.assert_allclose(found.numpy(), expected, rtol=rounding, atol=rounding)


DTYPES = ["float32", "float64", "complex64", "complex128"]
SAME_NAME = "det inv slogdet matrix_norm svdvals cond pinv".split()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SAME_NAME)
def test_functions_of_one_matrix(name, dtype):
    for array in (matrices(3, 3, dtype=dtype), matrices(2, 1, 2, 2, dtype=dtype), matrices(0, 2, 2, dtype=dtype)):
        same(getattr(linalg, name)(tensor(array)), getattr(np.linalg, name)(array))


@pytest.mark.parametrize("dtype", DTYPES)
def test_hermitian_functions(dtype):
    for array in (hermitian(3, 3, dtype=dtype), hermitian(2, 2, 2, dtype=dtype), hermitian(2, 0, 0, dtype=dtype)):
        x = tensor(array)
        same(linalg.cholesky(x), np.linalg.cholesky(array))
        same(linalg.cholesky(x, upper=True), np.linalg.cholesky(array, upper=True))
        same(linalg.eigvalsh(x), np.linalg.eigvalsh(array))
        values, vectors = linalg.eigh(x)
        same(values, np.linalg.eigh(array)[0])
        same(vectors @ (values[..., None] * linalg.matrix_transpose(vectors).conj()), array)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extents", [(3, 2), (2, 3), (2, 3, 3), (2, 0, 3), (3, 0)])
def test_factorisations_have_numpys_shapes_and_give_the_matrix(extents, dtype):
    array = matrices(*extents, dtype=dtype)
    x, k = tensor(array), min(extents[-2:])
    for full in (False, True):
        expected = np.linalg.svd(array, full_matrices=full)
        u, s, vh = found = linalg.svd(x, full_matrices=full)
        assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in expected]
        same(s, expected.S)
        same((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], array)
    for mode in ("reduced", "complete"):
        expected = np.linalg.qr(array, mode)
        q, r = found = linalg.qr(x, mode=mode)
        assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in expected]
        same(q @ r, array)
        same(q.conj().mT @ q, np.broadcast_to(np.eye(q.shape[-1], dtype=dtype), (*extents[:-2], *q.shape[-1:] * 2)))
        same(linalg.qr(x, mode="r"), np.linalg.qr(array, "r"))


def test_results_are_named_as_in_the_standard():
    x = tensor(hermitian(2, 2))
    assert linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")
    assert linalg.svd(x)._fields == ("U", "S", "Vh")
    assert linalg.qr(x)._fields == ("Q", "R")
    assert linalg.slogdet(x)._fields == ("sign", "logabsdet")


@pytest.mark.parametrize("dtype", DTYPES)
def test_solve(dtype):
    for left, right in [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (3, 2)), ((2, 2), (4, 2, 1)), ((2, 2, 2), (2,))]:
        a, b = matrices(*left, dtype=dtype), RANDOM.normal(size=right).astype(dtype)
        same(linalg.solve(tensor(a), tensor(b)), np.linalg.solve(a, b))
        for lower in (False, True):
            triangle = np.tril(a) if lower else np.triu(a)
            same(linalg.solve_triangular(tensor(a), tensor(b), lower=lower), np.linalg.solve(triangle, b))
    unit = np.tril(a, -1) + np.eye(2, dtype=dtype)
    same(linalg.solve_triangular(tensor(a), tensor(b), lower=True, unit_diagonal=True), np.linalg.solve(unit, b))


def test_large_triangular_systems_of_a_stack():
    a, b = matrices(2, 70, 70) / 9, RANDOM.normal(size=(70, 3))
    same(linalg.solve_triangular(tensor(a), tensor(b)), np.linalg.solve(np.triu(a), b))


def test_without_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.linalg", None)
    a, b = matrices(3, 3), RANDOM.normal(size=(3, 2))
    same(linalg.solve_triangular(tensor(a), tensor(b)), np.linalg.solve(np.triu(a), b))
    with pytest.raises(ImportError, match="expm needs scipy.linalg"):
        linalg.expm(tensor(a))


def test_solving_mixes_dtypes_as_numpy_does():
    a, b = matrices(2, 2, dtype="float32"), matrices(2, 2, dtype="complex128")
    same(linalg.solve(tensor(a), b), np.linalg.solve(a, b))
    same(linalg.solve(b, tensor(a)), np.linalg.solve(b, a))
    same(linalg.inv(tensor([[2, 1], [1, 1]])), np.array([[1.0, -1.0], [-1.0, 2.0]]))


def test_least_squares():
    for extents in [(4, 2), (2, 4), (3, 3)]:
        a, b = matrices(*extents), RANDOM.normal(size=(extents[0], 2))
        x, residuals, rank, s = linalg.lstsq(tensor(a), tensor(b))
        expected = np.linalg.lstsq(a, b)
        same(x, expected[0])
        same(residuals, np.sum((a @ expected[0] - b) ** 2, axis=0))
        assert int(rank) == expected[2]
        same(s, expected[3])
        same(linalg.lstsq(tensor(a), tensor(b[:, 0])).x, expected[0][:, 0])
    stack, right = matrices(2, 3, 2), RANDOM.normal(size=(2, 3, 1))
    same(
        linalg.lstsq(tensor(stack), tensor(right)).x,
        np.stack([np.linalg.lstsq(*pair)[0] for pair in zip(stack, right)]),
    )


def test_rank_and_tolerances():
    array = np.stack([np.diag([1.0, 1e-3, 1e-9]), np.zeros((3, 3)), np.eye(3)])
    x = tensor(array)
    same(linalg.matrix_rank(x), np.linalg.matrix_rank(array))
    for rtol in (1e-2, np.array([1e-2, 1e-2, 2.0]), tensor([1e-10, 1e-10, 1e-10])):
        given = np.asarray(rtol)
        same(linalg.matrix_rank(x, rtol=rtol), np.linalg.matrix_rank(array, rtol=given))
        same(linalg.pinv(x, rtol=rtol), np.linalg.pinv(array, rtol=given))


def test_general_eigenvalues_are_complex_always():
    for array in (np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([[0.0, -1.0], [1.0, 0.0]]), matrices(2, 3, 3)):
        values, vectors = linalg.eig(tensor(array))
        assert values.dtype == vectors.dtype == np.complex128
        same(values, np.linalg.eigvals(array).astype(complex))
        same(array @ vectors, (vectors * values[..., None, :]).numpy())
        same(linalg.eigvals(tensor(array)), values.numpy())
    assert linalg.eigvals(tensor(np.eye(2, dtype="float32"))).dtype == np.complex64


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_functions_and_powers(dtype):
    array = matrices(2, 3, 3, dtype=dtype) / 3
    same(linalg.expm(tensor(array)), np.stack([scipy.linalg.expm(a) for a in array]))
    for n in (-3, -1, 0, 1, 2, 7):
        same(linalg.matrix_power(tensor(array), n), np.linalg.matrix_power(array, n))


def test_diagonals_and_traces():
    array = matrices(2, 3, 4)
    for k in (-5, -2, 0, 1, 3, 4):
        same(linalg.diagonal(tensor(array), offset=k), np.linalg.diagonal(array, offset=k))
        same(linalg.trace(tensor(array), offset=k), np.linalg.trace(array, offset=k))
    whole = np.arange(9, dtype="int32").reshape(3, 3)
    same(linalg.trace(tensor(whole)), np.linalg.trace(whole))
    same(linalg.trace(tensor(whole), dtype="float32"), np.linalg.trace(whole, dtype="float32"))


@pytest.mark.parametrize("dtype", ["int64", *DTYPES])
@pytest.mark.parametrize("order", [2, 1, 0, 3, 0.5, -1, np.inf, -np.inf])
def test_vector_norms(order, dtype):
    array = (RANDOM.normal(size=(2, 3, 4)) * 9).astype(dtype) + np.array(2, dtype)
    for axis, keepdims in ((None, False), (1, True), ((0, 2), False), (-1, False)):
        expected = np.linalg.vector_norm(array, axis=axis, keepdims=keepdims, ord=order)
        if dtype in ("float32", "complex64"):
            expected = expected.astype("float32")
        same(
            linalg.vector_norm(tensor(array), axis=axis, keepdims=keepdims, ord=order), expected.astype(expected.dtype)
        )


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_matrix_norms(order, dtype):
    array = matrices(2, 3, 2, dtype=dtype)
    for keepdims in (False, True):
        same(
            linalg.matrix_norm(tensor(array), keepdims, order),
            np.linalg.matrix_norm(array, keepdims=keepdims, ord=order),
        )
        same(linalg.norm(tensor(array), order, (2, 0), keepdims), np.linalg.norm(array, order, (2, 0), keepdims))
    if order not in (2, -2, "nuc", "fro"):
        same(linalg.cond(tensor(array[:, :2]), order), np.linalg.cond(array[:, :2], order))


def test_norm_takes_vectors_matrices_and_all_elements():
    array = matrices(2, 3, 4)
    same(linalg.norm(tensor(array)), np.linalg.norm(array))
    same(linalg.norm(tensor(array), axis=1, keepdims=True), np.linalg.norm(array, axis=1, keepdims=True))
    same(linalg.norm(tensor(array[0]), 1), np.linalg.norm(array[0], 1))
    same(linalg.norm(tensor(array[0, 0]), 3), np.linalg.norm(array[0, 0], 3))
    same(linalg.norm(tensor(np.zeros((2, 0))), axis=1), np.zeros(2))


def test_products():
    a, b = RANDOM.normal(size=(2, 4, 3)), RANDOM.normal(size=(4, 3)) + 1j
    same(linalg.cross(tensor(a), tensor(b)), np.linalg.cross(a, b))
    same(linalg.cross(a.swapaxes(1, 2), tensor(b.T), axis=-2), np.linalg.cross(a.swapaxes(1, 2), b.T, axis=-2))
    same(linalg.outer(tensor(a[0, 0]), b[0]), np.linalg.outer(a[0, 0], b[0]))
    same(linalg.kron(tensor(a), b), np.kron(a, b))
    same(linalg.vecdot(tensor(b), a), np.linalg.vecdot(b, a))
    same(linalg.tensordot(tensor(a), b.T, axes=1), np.tensordot(a, b.T, axes=1))
    chain = [RANDOM.normal(size=extents) for extents in ((3,), (3, 9), (9, 2), (2,))]
    for some in (chain, chain[:3], chain[1:], chain[1:3]):
        same(linalg.multi_dot([tensor(x) for x in some]), np.linalg.multi_dot(some))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32_and_rounded(dtype):
    x = tensor(matrices(2, 2), dtype=dtype)
    wide = x.astype("float32").numpy()
    symmetric = x + x.mT
    for found, expected in (
        (linalg.inv(x), np.linalg.inv(wide)),
        (linalg.svd(x).S, np.linalg.svd(wide).S),
        (linalg.solve(x, x[0]), np.linalg.solve(wide, wide[0])),
        (linalg.eigvalsh(symmetric), np.linalg.eigvalsh(symmetric.astype("float32").numpy())),
        (linalg.vector_norm(x), np.linalg.norm(wide)),
    ):
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found.astype("float32").numpy(), expected, rtol=2e-2, atol=2e-2)
    assert linalg.vector_norm(tensor(np.full(4096, 8.0), dtype="float16")).numpy() == 512


def test_a_matrix_that_is_not_hermitian_stands_for_its_hermitian_part():
    array = np.diag([2.0, 3.0]) + [[0, 1.0], [0, 0]]
    part = (array + array.T) / 2
    same(linalg.eigvalsh(tensor(array)), np.linalg.eigvalsh(part))
    same(linalg.cholesky(tensor(array)), np.linalg.cholesky(part))
