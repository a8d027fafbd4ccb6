"""L-BFGS: a quasi-Newton method that remembers the last steps."""

from ..errors import value_error
from .line_search import wolfe_step
from .point import Objective, Space, moved, scaled
from .result import OptimizeResult


def lbfgs(fn, x0, *, maxiter=100, history=10, gtol=1e-6, callback=None):
    """Minimise a function by the limited-memory BFGS method.

    Parameters
    ----------
    fn : function of a Tensor (or of several), with one number as its value
    x0 : Tensor, or list of Tensors, local or distributed, real and floating; where to start
    maxiter : the most steps
    history : how many steps it remembers
    gtol : end where the norm of the gradient is at most gtol times max(1, its norm at x0)
    callback : called after each step with x (a Tensor, or a list)

    Returns an `OptimizeResult`.  Each step evaluates fn and its gradient once
    or a few times.  Called on all ranks of the meshes; all take the same steps.

    J. Nocedal, "Updating quasi-Newton matrices with limited storage", 1980.
    """
    if history < 1:
        raise value_error(f"lbfgs: history {history!r} was given; it is 1 or more")
    space = Space("lbfgs", x0)
    objective = Objective("lbfgs", fn, space)
    x = space.start
    value, gradient = objective.value_and_gradient(x)
    norm = space.norm(gradient)
    goal, pairs = gtol * max(1.0, norm), []
    for step in range(maxiter):
        if norm <= goal:
            return _result(space, objective, x, value, norm, step, True, "the gradient is small enough")
        direction = _direction(space, gradient, pairs)
        found = wolfe_step(objective, x, value, gradient, direction, 1.0 if pairs else min(1.0, 1.0 / norm))
        if found is None and pairs:  # once more, without memory
            pairs = []
            found = wolfe_step(objective, x, value, gradient, scaled(-1.0, gradient), min(1.0, 1.0 / norm))
        if found is None:
            return _result(space, objective, x, value, norm, step, False, "no step along the gradient decreases fn")
        length, value, new_gradient, new = found
        s, y = moved(new, -1.0, x), moved(new_gradient, -1.0, gradient)
        curvature = space.dot(s, y)
        if curvature > 0:
            pairs = [*pairs[-(history - 1) :], (s, y, curvature)] if history > 1 else [(s, y, curvature)]
        x, gradient = new, new_gradient
        norm = space.norm(gradient)
        if callback is not None:
            callback(space.result(x))
    reached = norm <= goal
    message = "the gradient is small enough" if reached else f"{maxiter} steps were not enough"
    return _result(space, objective, x, value, norm, maxiter, reached, message)


def _direction(space, gradient, pairs):
    """Minus the gradient times the inverse Hessian that the last steps suggest (two loops)."""
    q, weights = scaled(-1.0, gradient), []
    for s, y, curvature in reversed(pairs):
        weight = space.dot(s, q) / curvature
        q = moved(q, -weight, y)
        weights.append(weight)
    if pairs:
        _, y, curvature = pairs[-1]
        q = scaled(curvature / space.dot(y, y), q)
    for (s, y, curvature), weight in zip(pairs, reversed(weights)):
        q = moved(q, weight - space.dot(y, q) / curvature, s)
    return q


def _result(space, objective, x, value, norm, steps, success, message):
    return OptimizeResult(space.result(x), value, norm, steps, objective.evaluations, success, message)
