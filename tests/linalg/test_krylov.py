"""Iterative solvers against NumPy's direct one, local and distributed, with gradients by finite differences."""

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises

import spmdlayer as spmd
from spmdlayer import linalg
from spmdlayer.autograd.backward import grad

pytestmark = pytest.mark.mpi
R, S, P = spmd.Replicate(), spmd.Shard, spmd.Partial
METHODS = {"cg": linalg.cg, "bicgstab": linalg.bicgstab, "gmres": linalg.gmres}


@pytest.fixture
def mesh():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


def system(n, dtype="float64", hermitian=True):
    random = np.random.default_rng(n)
    a, b = random.standard_normal((2, n, n)), random.standard_normal((2, n))
    a, b = (a[0] + 1j * a[1], b[0] + 1j * b[1]) if dtype == "complex128" else (a[0], b[0])
    a = a @ a.conj().T + n * np.eye(n) if hermitian else a + 2 * n * np.eye(n)
    return a.astype(dtype), b.astype(dtype)


def close(found, expected, tolerance=1e-8):
    found = found.detach().numpy()
    good = found.shape == expected.shape and np.allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert_all(good, f"{found} instead of {expected}")


@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
@pytest.mark.parametrize("name", METHODS)
def test_solutions(mesh, name, dtype):
    a, b = system(11, dtype, name == "cg")
    expected, tolerance = np.linalg.solve(a, b), 1e-4 if dtype == "float32" else 1e-8
    for placements in ([R], [S(0)], [P()]):
        for operator in (a, lambda x: spmd.matmul(a, x), spmd.shard_tensor(a, mesh, [S(0)])):
            part = b / mesh.size
            right = (
                spmd.dtensor_from_local(part, mesh, placements)
                if placements[0].is_partial()
                else spmd.shard_tensor(b, mesh, placements)
            )
            x, info = METHODS[name](operator, right, rtol=1e-6 if dtype == "float32" else 1e-12)
            assert_all(
                info == 0 and x.dtype == b.dtype and x.placements == [p if p.is_shard() else R for p in placements]
            )
            close(x, expected.astype(dtype), tolerance)
    x, info = METHODS[name](a, b, rtol=1e-6)
    assert_all(not x.is_dist() and info == 0)


@pytest.mark.parametrize("name", METHODS)
def test_preconditioned_from_a_start(mesh, name):
    a, b = system(9, hermitian=name == "cg")
    a = a * np.arange(1.0, 10) * np.arange(1.0, 10)[:, None]
    diagonal = spmd.shard_tensor(1 / np.diag(a), mesh, [S(0)])
    steps = []
    right, start = spmd.shard_tensor(b, mesh, [S(0)]), spmd.shard_tensor(np.ones(9), mesh, [R])
    x, info = METHODS[name](a, right, start, rtol=1e-12, M=lambda r: diagonal * r, callback=steps.append)
    assert_all(info == 0 and 0 < len(steps) <= 40)
    close(x, np.linalg.solve(a, b))
    close(steps[-1], np.linalg.solve(a, b))


def test_gmres_starts_again(mesh):
    a, b = system(12, hermitian=False)
    x, info = linalg.gmres(a, spmd.shard_tensor(b, mesh, [S(0)]), rtol=1e-11, restart=3)
    assert_all(info == 0)
    close(x, np.linalg.solve(a, b))


@pytest.mark.parametrize("name", METHODS)
def test_gradients_of_first_and_second_order(mesh, name):
    """Of a loss of the solution, by what the operator depends on and by b; against the direct solver's."""
    n = 6
    a, b = system(n, hermitian=name == "cg")
    random = np.random.default_rng(1)
    w, v, u = random.standard_normal((3, n))

    def derivatives(solve, place):
        # The parameter scales the matrix from both sides, so it stays symmetric.
        scale, right = place(np.linspace(1, 2, n)), place(b)
        x = solve(scale, right)
        loss = (x * x * x * w).sum()
        gs, gb = grad(loss, [scale, right], create_graph=True)
        second = grad((gs * v).sum() + (gb * u).sum(), [scale, right])
        return [x, gs, gb, *second]

    def iterative(scale, right):
        x, info = METHODS[name](lambda y: scale * spmd.matmul(a, scale * y), right, rtol=1e-13, atol=0)
        assert info == 0
        return x

    def direct(scale, right):
        return linalg.solve(spmd.tensor(a) * scale * scale[:, None], right)

    expected = derivatives(direct, lambda array: spmd.tensor(array, requires_grad=True))
    for placements in ([R], [S(0)]):
        found = derivatives(
            iterative, lambda array, p=placements: spmd.shard_tensor(array, mesh, p, requires_grad=True)
        )
        for mine, right in zip(found, expected):
            close(mine, right.detach().numpy(), 1e-7)
    for mine, right in zip(derivatives(iterative, lambda array: spmd.tensor(array, requires_grad=True)), expected):
        close(mine, right.detach().numpy(), 1e-7)


@pytest.mark.parametrize("name", METHODS)
def test_gradients_of_the_matrix_however_it_lies(mesh, name):
    """A(x) lies otherwise than b where A's columns are sharded; dL/dA = -y x^H, of the adjoint solution y."""
    n = 7
    a, b = system(n, hermitian=name == "cg")
    x = np.linalg.solve(a, b)
    y = np.linalg.solve(a.T, 2 * x)
    for of_matrix in ([R], [S(0)], [S(1)], [S(1, 2)]):
        for of_right in ([R], [S(0)], [S(0, 1)]):
            matrix = spmd.shard_tensor(a, mesh, of_matrix, requires_grad=True)
            right = spmd.shard_tensor(b, mesh, of_right, requires_grad=True)
            solution, _ = METHODS[name](matrix, right, rtol=1e-13)
            by_matrix, by_right = grad((solution**2).sum(), [matrix, right], create_graph=True)
            close(by_matrix, -np.outer(y, x), 1e-7)
            close(by_right, y, 1e-7)
            # y is 2 A^-T A^-1 b, so the sum of y by b is 2 A^-T A^-1 1.
            close(grad(by_right.sum(), right), 2 * np.linalg.solve(a.T, np.linalg.solve(a, np.ones(n))), 1e-7)


def test_one_adjoint_solve_and_no_graph_of_the_steps(mesh):
    a, b = system(8)
    applied = []

    def operator(x):
        applied.append(1)
        return spmd.matmul(a, x)

    right = spmd.shard_tensor(b, mesh, [S(0)], requires_grad=True)
    x, _ = linalg.cg(operator, right, rtol=1e-10)
    forward = len(applied)
    x.sum().backward()
    assert_all(len(applied) - forward <= forward + 1, f"{len(applied)} and {forward}")
    close(right.grad, np.linalg.solve(a, np.ones(8)))


@pytest.mark.filterwarnings("ignore:cg has not converged")
def test_what_does_not_converge_says_so(mesh):
    a, b = system(10)
    right = spmd.shard_tensor(b, mesh, [S(0)])
    with pytest.warns(RuntimeWarning, match="cg has not converged in 2 steps"):
        _, info = linalg.cg(a, right, rtol=1e-12, maxiter=2)
    assert_all(info == 2)
    x, info = linalg.cg(a, right * 0)
    assert_all(info == 0)
    close(x, np.zeros(10))


def test_bad_input(mesh):
    a, b = system(4)
    right = spmd.shard_tensor(b, mesh, [S(0)])
    skew = np.array([[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, 0.0]])
    for call, kind, message in (
        (lambda: linalg.cg(-a, right), ValueError, "not Hermitian positive definite"),
        (lambda: linalg.cg(skew, right), ValueError, "A is not Hermitian"),
        (lambda: linalg.cg(a, right, M=lambda r: r * 0), ValueError, "M is not Hermitian"),
        (lambda: linalg.cg(a * np.nan, right), RuntimeError, "NaN"),
        (lambda: linalg.bicgstab(a, right * np.inf), RuntimeError, "NaN or infinity"),
        (lambda: linalg.gmres(np.zeros((4, 4)), right), ValueError, "singular"),
        (lambda: linalg.cg(np.ones((3, 4)), right), ValueError, "square"),
        (lambda: linalg.cg(lambda x: x[1:], right), ValueError, r"shape \(4,\) is needed"),
        (lambda: linalg.cg(lambda x: x.to_local(), right), TypeError, "local"),
        (lambda: linalg.cg(a, np.arange(4)), TypeError, "int64"),
        (lambda: linalg.cg(a, right, rtol=-1), ValueError, "rtol"),
        (lambda: linalg.gmres(a, right, restart=0), ValueError, "restart"),
    ):
        with parallel_raises(kind, message):
            call()
