"""Minimisers on problems whose minimum is known, the same on any placement and number of ranks."""

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises

import spmdlayer as spmd
from spmdlayer import optimize

pytestmark = pytest.mark.mpi
R, S = spmd.Replicate(), spmd.Shard
N = 8
MATRIX = np.diag(np.arange(1.0, N + 1)) + 0.3


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def quadratic(x):
    return 0.5 * (x * spmd.matmul(MATRIX, x)).sum() - x.sum()


def places(array):
    """The array local, and distributed in several ways."""
    mesh = spmd.init_mesh((spmd.get_world_size(),), ("x",))
    return [spmd.tensor(array), spmd.shard_tensor(array, mesh, [R]), spmd.shard_tensor(array, mesh, [S(0)])]


def ends_at(result, minimum, tolerance):
    found = result.x.numpy()
    good = result.success and result.x._node is None and np.allclose(found, minimum, atol=tolerance)
    assert_all(good, f"{result.message}: {found} instead of {minimum}")


@pytest.mark.parametrize("method", [optimize.lbfgs, optimize.newton_cg])
def test_a_quadratic(method):
    minimum, steps = np.linalg.solve(MATRIX, np.ones(N)), []
    for x0 in places(np.zeros(N)):
        result = method(quadratic, x0, gtol=1e-9, callback=steps.append)
        ends_at(result, minimum, 1e-7)
        assert_all(
            result.x.is_dist() == x0.is_dist() and np.isclose(result.fun, quadratic(spmd.tensor(minimum)).item())
        )
        assert_all(result.grad_norm < 1e-7 and 0 < result.nit < result.nfev)
    assert_all(len(steps) > 3 and steps[-1].shape == (N,))


@pytest.mark.parametrize("method", [optimize.lbfgs, optimize.newton_cg])
def test_a_curved_valley(method):
    for x0 in places(np.array([-1.2, 1.0, -0.5, 0.8])):
        ends_at(method(rosenbrock, x0, gtol=1e-9, maxiter=300), np.ones(4), 1e-6)


def test_several_tensors_and_dtypes():
    a, b = places(np.zeros(5))[2], places(np.zeros((2, 3), "float32"))[1]
    result = optimize.lbfgs(lambda a, b: ((a - 1) ** 2).sum() + ((b + 2) ** 4).sum() * 1.0, [a, b], gtol=1e-7)
    assert_all(np.allclose(result.x[0].numpy(), 1, atol=1e-4) and np.allclose(result.x[1].numpy(), -2, atol=1e-1))
    assert_all(result.x[1].dtype == np.float32 and result.x[0].placements == [S(0)])


def test_where_the_function_ends():
    """A logarithm: steps that leave its domain are shortened."""
    for x0 in places(np.full(3, 0.1)):
        result = optimize.lbfgs(lambda x: (x - spmd.log(x)).sum(), x0, gtol=1e-8)
        ends_at(result, np.ones(3), 1e-6)


def test_least_squares():
    t = np.linspace(0, 2, 23)
    data = 2.5 * np.exp(-1.3 * t) + 0.5
    for points in places(t):
        mesh = points.process_mesh if points.is_dist() else None
        start = np.array([1.0, -1.0, 0.0])
        x0 = spmd.tensor(start) if mesh is None else spmd.shard_tensor(start, mesh, [R])

        def residual(p, points=points):
            return p[0] * spmd.exp(p[1] * points) + p[2] - data

        result = optimize.gauss_newton(residual, x0, gtol=1e-10)
        ends_at(result, np.array([2.5, -1.3, 0.5]), 1e-6)
        assert_all(result.nit < 20)


def test_scipy_drives_a_distributed_loss():
    from scipy.optimize import minimize

    for x0 in places(np.array([-1.2, 1.0, -0.5, 0.8])):
        problem = optimize.to_scipy(rosenbrock, x0)
        found = minimize(problem.fun, problem.x0, jac=True, method="BFGS", options={"gtol": 1e-8})
        x = problem.unpack(found.x)
        assert_all(np.allclose(x.numpy(), 1, atol=1e-5) and x.is_dist() == x0.is_dist())
    pair = [places(np.zeros(5))[2], places(np.zeros((2, 2)))[0]] if spmd.get_world_size() == 1 else None
    if pair:
        problem = optimize.to_scipy(lambda a, b: ((a - 1) ** 2).sum().to_local() + ((b + 2) ** 2).sum(), pair)
        assert problem.fun(problem.x0)[1].tolist() == [-2.0] * 5 + [4.0] * 4


def test_what_fails_says_so():
    x0 = places(np.zeros(N))[2]
    result = optimize.lbfgs(quadratic, x0, maxiter=2, gtol=1e-12)
    assert_all(not result.success and "2 steps" in result.message and result.nit == 2)
    for call, kind, message in (
        (lambda: optimize.lbfgs(lambda x: x, x0), ValueError, r"one number, it returned shape \(8,\)"),
        (lambda: optimize.lbfgs(lambda x: spmd.tensor(1.0), x0), ValueError, "does not depend on x"),
        (lambda: optimize.lbfgs(lambda x: (x * np.nan).sum(), x0), RuntimeError, "NaN at evaluation 1"),
        (lambda: optimize.newton_cg(quadratic, np.zeros(N)), TypeError, "x0"),
        (lambda: optimize.lbfgs(quadratic, spmd.tensor([1, 2])), TypeError, "int64"),
        (lambda: optimize.lbfgs(quadratic, x0, history=0), ValueError, "history"),
        (lambda: optimize.gauss_newton(lambda x: spmd.tensor(1.0), x0), TypeError, "residual"),
    ):
        with parallel_raises(kind, message):
            call()
