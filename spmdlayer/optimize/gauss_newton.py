"""Gauss-Newton: least squares by linearised residuals, damped, solved by conjugate gradients."""

import math

from ..autograd.backward import enable_grad, grad
from ..autograd.tensor import Tensor
from ..errors import runtime_error, type_error
from ..ops.transforms import jvp
from .point import Space, moved, scaled
from .result import OptimizeResult


def gauss_newton(residual, x0, *, maxiter=50, gtol=1e-6, inner=50, damping=1e-3, callback=None):
    """Minimise half the sum of squares of a residual; other arguments and result as `lbfgs`.

    Parameters
    ----------
    residual : function of a Tensor (or of several), with a real Tensor of any shape as its value
    inner : the most conjugate-gradient steps for one step; each is a product with the Jacobian and its transpose
    damping : added to J^T J, relative to norm(J^T r); grows where a step does not decrease the sum, else shrinks

    K. Levenberg, 1944; D. W. Marquardt, 1963.
    """
    space = Space("gauss_newton", x0)
    x, evaluations = space.start, 1
    point = _Linearised(space, residual, x)
    for step in range(maxiter):
        norm = space.norm(point.gradient)
        if step == 0:
            goal, weight = gtol * max(1.0, norm), damping * norm
        if norm <= goal:
            return _result(space, point, norm, step, evaluations, True, "the gradient is small enough")
        while True:
            direction = _step(space, point, weight, inner)
            new = _Linearised(space, residual, moved(point.x, 1.0, direction))
            evaluations += 1
            if new.value < point.value:
                break
            weight = max(10 * weight, 1e-12 * norm)
            if space.norm(direction) <= 1e-14 * (1.0 + space.norm(point.x)):
                return _result(space, point, norm, step, evaluations, False, "no step decreases the sum of squares")
        point, weight = new, weight / 10
        if callback is not None:
            callback(space.result(point.x))
    norm = space.norm(point.gradient)
    message = "the gradient is small enough" if norm <= goal else f"{maxiter} steps were not enough"
    return _result(space, point, norm, maxiter, evaluations, norm <= goal, message)


class _Linearised:
    """A residual at a point: half its sum of squares, the gradient of that, and products with J and J^T."""

    def __init__(self, space, residual, x):
        self.space, self.residual, self.x = space, residual, x
        self.leaves = space.tensors(x)
        with enable_grad():
            self.r = residual(*self.leaves)
        if not isinstance(self.r, Tensor) or self.r.dtype.kind != "f" or self.r._node is None:
            raise type_error("gauss_newton: the residual must be a real Tensor that depends on x")
        self.value = 0.5 * float((self.r.detach() ** 2).sum())
        if not math.isfinite(self.value):
            raise runtime_error("gauss_newton: the residual has NaN or infinity")
        self.gradient = self.transposed(self.r.detach())

    def transposed(self, cotangent):
        """J^T times a cotangent of the residual."""
        return self.space.raw(grad(self.r, self.leaves, [cotangent], retain_graph=True), "gradient")

    def normal(self, vector):
        """J^T J times a vector."""
        tangents = [s.tensor(v) for s, v in zip(self.space.spaces, vector)]
        primals = [leaf.detach() for leaf in self.leaves]
        _, product = jvp(self.residual, tuple(primals), tuple(tangents))
        return self.transposed(product.detach())


def _step(space, point, weight, inner):
    """Conjugate gradients on (J^T J + weight) d = -J^T r."""
    d, r = scaled(0.0, point.gradient), scaled(-1.0, point.gradient)
    p, rr = r, space.dot(r, r)
    goal = 1e-10 * rr
    for _ in range(inner):
        q = moved(point.normal(p), weight, p)
        curvature = space.dot(p, q)
        if curvature <= 0:
            break
        alpha = rr / curvature
        d, r = moved(d, alpha, p), moved(r, -alpha, q)
        before, rr = rr, space.dot(r, r)
        if rr <= goal:
            break
        p = moved(r, rr / before, p)
    return d


def _result(space, point, norm, steps, evaluations, success, message):
    return OptimizeResult(space.result(point.x), point.value, norm, steps, evaluations, success, message)
