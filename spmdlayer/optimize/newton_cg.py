"""Newton's method whose equations are solved by conjugate gradients, from Hessian-vector products."""

import math

from ..autograd.backward import enable_grad, grad
from .line_search import wolfe_step
from .point import Objective, Space, moved, scaled
from .result import OptimizeResult


def newton_cg(fn, x0, *, maxiter=100, gtol=1e-6, inner=50, callback=None):
    """Minimise a function by truncated Newton steps; arguments and result as `lbfgs`.

    inner : the most conjugate-gradient steps for one Newton step; each is a
    product of the Hessian with a vector (a backward pass of the gradient).
    They end early at a residual of min(1/2, sqrt(norm of gradient)) of it, or
    where the Hessian is not positive.

    J. Nocedal, S. J. Wright, "Numerical Optimization", 2nd edition, algorithm 7.1.
    """
    space = Space("newton_cg", x0)
    objective = Objective("newton_cg", fn, space)
    x = space.start
    value, gradient = objective.value_and_gradient(x)
    norm = space.norm(gradient)
    goal = gtol * max(1.0, norm)
    for step in range(maxiter):
        if norm <= goal:
            break
        direction = _newton_step(space, _hessian_at(objective, x), gradient, norm, inner)
        found = wolfe_step(objective, x, value, gradient, direction)
        if found is None:
            message = "no step along the direction decreases fn"
            return OptimizeResult(space.result(x), value, norm, step, objective.evaluations, False, message)
        _, value, gradient, x = found
        norm = space.norm(gradient)
        if callback is not None:
            callback(space.result(x))
    else:
        step = maxiter
    reached = norm <= goal
    message = "the gradient is small enough" if reached else f"{maxiter} steps were not enough"
    return OptimizeResult(space.result(x), value, norm, step, objective.evaluations, reached, message)


def _hessian_at(objective, x):
    """The product of the Hessian at a point with a vector; the gradient is recorded once."""
    space = objective.space
    leaves = space.tensors(x)
    with enable_grad():
        gradients = grad(objective.loss(leaves), leaves, create_graph=True)
    reached = [(g, k) for k, g in enumerate(gradients) if g._node is not None]

    def product(vector):
        directions = [space.spaces[k].tensor(vector[k]) for _, k in reached]
        if not reached:
            return scaled(0.0, vector)
        return space.raw(grad([g for g, _ in reached], leaves, directions, retain_graph=True), "Hessian")

    return product


def _newton_step(space, hessian, gradient, norm, inner):
    """Conjugate gradients on H d = -g, until good enough or the Hessian is not positive along a direction."""
    d, r = scaled(0.0, gradient), scaled(-1.0, gradient)
    p, rr = r, norm * norm
    goal = min(0.5, math.sqrt(norm)) * norm
    for step in range(inner):
        q = hessian(p)
        curvature = space.dot(p, q)
        if curvature <= 1e-12 * space.dot(p, p):
            return d if step else p
        alpha = rr / curvature
        d, r = moved(d, alpha, p), moved(r, -alpha, q)
        before, rr = rr, space.dot(r, r)
        if math.sqrt(rr) <= goal:
            break
        p = moved(r, rr / before, p)
    return d
