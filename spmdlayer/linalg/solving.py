"""Linear systems: solve, inv, triangular systems, the pseudoinverse and least squares.

Gradients: Giles, "An extended collection of matrix derivative results" (2008);
for the pseudoinverse Golub and Pereyra (1973), at constant rank.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from ..autograd.tensor import Tensor, asarray
from ..dtypes import is_complex
from ..errors import value_error
from ..ops import elementwise as ew
from ..ops import reductions
from ..ops.linear import matmul
from ..ops.precision import computable, rounding
from ..ops.registry import Op, define, unbroadcast
from ..ops.shape import operand, squeeze, with_dimension
from .spectra import svdvals
from .stacks import StackError, adjoint, apply_on_stacks, check_stack, guarded, stack_rule

_SINGULAR = "is singular"


# Square ------------------------------------------------------------------


class _Solver(Op):
    """An operation that solves a @ y = b, whose two gradients share the solution of the adjoint system.

    back : f(g, a, p, xp) -> the solution for a^H, which is b's gradient
    restrict : f(x, p, xp) -> the part of a gradient of all of a's elements that belongs to those it reads
    """

    def __init__(self, name, forward, back, restrict, rule):
        def to_right(g, a, p, xp):
            return unbroadcast(xp, back(g, a, p, xp), p.shapes[1], p.dtypes[1])

        super().__init__(
            name, forward, (lambda g, a, y, p, xp: self.to_left(back(g, a, p, xp), y, p, xp), to_right), rule=rule
        )
        self.back = back
        self.restrict = restrict

    def to_left(self, back, y, p, xp):
        grad = self.restrict(-xp.matmul(back, adjoint(y, xp)), p, xp)
        return unbroadcast(xp, grad, p.shapes[0], p.dtypes[0])

    def gradients(self, xp, node, g, saved, params):
        if None in node.edges:
            return super().gradients(xp, node, g, saved, params)
        back = self.back(g, saved[0], params, xp)
        right = unbroadcast(xp, back, params.shapes[1], params.dtypes[1])
        return [self.to_left(back, saved[-1], params, xp), right]


_solve = _Solver(
    "solve",
    lambda np, a, b: guarded("solve", _SINGULAR, np.linalg.solve, a, b, alone=np.linalg.inv),
    lambda g, a, p, xp: xp.solve(adjoint(a, xp), g),
    lambda grad, p, xp: grad,
    stack_rule("MM,Mn->Mn", (1,)),
)
_inv = define(
    "inv",
    lambda np, a: guarded("inv", _SINGULAR, np.linalg.inv, a),
    (lambda g, y, xp: -xp.matmul(xp.matmul(adjoint(y, xp), g), adjoint(y, xp)),),
    rule=stack_rule("MM->MM"),
)


def _systems(name, x1, x2):
    """The operands of a solver, x2 as matrices, and what makes the result of the solution."""
    a, b = operand(x1), operand(x2)
    check_stack(name, a, square=True, argument="x1")
    vector = b.ndim == 1
    if b.ndim == 0 or b.shape[0 if vector else -2] != a.shape[-1]:
        raise value_error(f"{name}: x2 of shape {b.shape} has no {a.shape[-1]} rows, as x1 of shape {a.shape} needs")
    back = rounding(a, b)
    a, b = computable(a), computable(b)
    if not vector:
        _check_leading(name, a, b)
        return a, b, back
    return a, with_dimension(b, 1), lambda result: back(squeeze(result, -1))


def _check_leading(name, a, b):
    if a.ndim == b.ndim == 2:
        return
    try:
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise value_error(f"{name}: the leading dims of {a.shape} and {b.shape} do not broadcast") from None


def solve(x1, x2):
    """The solution of x1 @ x = x2.

    Parameters
    ----------
    x1 : (..., n, n)
    x2 : (n,), or (..., n, k); leading dims broadcast

    Distributed: leading dims and x2's columns may be sharded, x1's matrices
    are gathered; x2 may be a Partial sum.
    Raises LinAlgError (a ValueError), on all ranks, for a singular matrix, with its index in the stack.
    """
    a, b, back = _systems("solve", x1, x2)
    return back(apply_on_stacks(_solve, (a, b)))


def inv(x):
    """The inverse of square matrices, (..., n, n).

    Distributed: the leading dims may be sharded, the matrices are gathered.
    Raises LinAlgError (a ValueError), on all ranks, for a singular matrix, with its index in the stack.
    """
    x = asarray(x)
    check_stack("inv", x, square=True)
    return rounding(x)(apply_on_stacks(_inv, (computable(x),)))


_solve.public, _inv.public = solve, inv


# Triangular --------------------------------------------------------------

_SMALL = 64  # stacks of matrices up to this extent are faster as general systems, without a loop in Python


def _triangle(np, a, lower, unit_diagonal):
    a = np.tril(a) if lower else np.triu(a)
    if not unit_diagonal:
        return a
    return np.where(np.eye(a.shape[-1], dtype=bool), np.ones((), a.dtype), a)


def _triangular_forward(np, a, b, lower=False, unit_diagonal=False):
    a = _triangle(np, a, lower, unit_diagonal)
    zero = np.any(np.diagonal(a, 0, -2, -1) == 0, axis=-1)
    if np.any(zero):
        index = tuple(int(place[0]) for place in np.nonzero(zero)) if a.ndim > 2 else ()
        raise StackError("solve_triangular", "has a zero on its diagonal", index, a.shape)
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    alone = _substitution() if prod(leading) == 1 or a.shape[-1] > _SMALL else None
    if alone is None or type(b).__module__ != "numpy" or 0 in (*leading, *b.shape):
        return np.linalg.solve(a, b)
    a, b = (np.broadcast_to(x, (*leading, *x.shape[-2:])) for x in (a, b))
    out = np.empty(b.shape, np.result_type(a, b))
    for index in np.ndindex(leading):
        out[index] = alone(a[index], b[index], lower=lower, check_finite=False)
    return out


def _substitution():
    """SciPy's solver of one triangular system; None where SciPy is not installed."""
    try:
        from scipy.linalg import solve_triangular as function
    except ImportError:
        return None
    return function


def _triangular_back(g, a, p, xp):
    lower, unit = p.get("lower", False), p.get("unit_diagonal", False)
    return xp.solve_triangular(adjoint(a, xp), g, lower=not lower, unit_diagonal=unit)


def _triangular_part(grad, p, xp):
    below = -1 if p.get("unit_diagonal", False) else 0
    if p.get("lower", False):
        return xp.lower_triangle(grad, k=below)
    return adjoint(xp.lower_triangle(adjoint(grad, xp), k=below), xp)


_solve_triangular = _Solver(
    "solve_triangular", _triangular_forward, _triangular_back, _triangular_part, stack_rule("MM,Mn->Mn", (1,))
)


def solve_triangular(x1, x2, lower=False, unit_diagonal=False):
    """The solution of x1 @ x = x2 by substitution: of x1 only one triangle is read.

    Parameters
    ----------
    x1, x2 : as of `solve`
    lower : whether the lower triangle is read, else the upper one
    unit_diagonal : take the diagonal as ones, and do not read it

    Distributed and errors: as `solve`.
    """
    a, b, back = _systems("solve_triangular", x1, x2)
    params = {"lower": bool(lower), "unit_diagonal": bool(unit_diagonal)}
    return back(apply_on_stacks(_solve_triangular, (a, b), params))


_solve_triangular.public = solve_triangular


# Not square --------------------------------------------------------------


def _pinv_forward(np, a, rtol):
    def decomposed(x):
        return np.linalg.svd(x, full_matrices=False)

    if 0 in a.shape:
        return np.swapaxes(a, -1, -2)
    u, s, vh = guarded("pinv", "has NaN or infinite elements", decomposed, a)
    cutoff = np.asarray(rtol)[..., None] * s[..., :1]  # they descend
    large = s > cutoff
    inverse = np.where(large, 1 / np.where(large, s, 1), 0).astype(s.dtype)
    back = np.conj(np.swapaxes(vh, -1, -2)) * inverse[..., None, :]
    return np.matmul(back, np.conj(np.swapaxes(u, -1, -2)))


def _pinv_vjp(g, a, y, p, xp):
    back, given = adjoint(y, xp), adjoint(g, xp)
    left, right = xp.matmul(given, xp.matmul(y, back)), xp.matmul(xp.matmul(back, y), given)
    grad = left - xp.matmul(a, xp.matmul(y, left)) + right - xp.matmul(xp.matmul(right, y), a)
    return grad - xp.matmul(xp.matmul(back, g), back)


_pinv = define("pinv", _pinv_forward, (_pinv_vjp, lambda g: None), rule=stack_rule("MN,->NM"))


def _relative(name, rtol, x):
    """The tolerance below which singular values count as zero, relative to the largest: an operand."""
    if rtol is None:
        return max(x.shape[-2:]) * float(np.finfo(x.dtype).eps)
    if isinstance(rtol, (int, float)):
        return float(rtol)
    rtol = operand(rtol)
    if is_complex(rtol.dtype):
        raise value_error(f"{name}: rtol must be real, its dtype is {rtol.dtype.name}")
    stack = x.shape[:-2]
    pairs = zip(reversed(rtol.shape), reversed(stack))
    if rtol.ndim > len(stack) or any(given not in (1, extent) for given, extent in pairs):
        raise value_error(f"{name}: rtol must be a number or one per matrix, {stack}; its shape is {rtol.shape}")
    return rtol.detach() if isinstance(rtol, Tensor) else rtol


def pinv(x, rtol=None):
    """The pseudoinverse (Moore and Penrose) of matrices (..., m, n): (..., n, m).

    rtol: singular values up to rtol times the largest count as zero; a number
    or one per matrix (...); None: max(m, n) * eps.
    The gradient is that at constant rank.
    Distributed: the leading dims may be sharded, the matrices are gathered.
    """
    x = asarray(x)
    check_stack("pinv", x)
    back, x = rounding(x), computable(x)
    return back(apply_on_stacks(_pinv, (x, _relative("pinv", rtol, x))))


def matrix_rank(x, rtol=None):
    """The number of singular values above rtol times the largest, (...), int64; rtol as of `pinv`."""
    x = asarray(x)
    check_stack("matrix_rank", x)
    x = computable(x).detach()
    return _rank(svdvals(x), _relative("matrix_rank", rtol, x))


def _rank(values, rtol):
    if 0 in values.shape[-1:]:
        return reductions.sum(ew.greater(values, 0), axis=-1)
    largest = reductions.max(values, axis=-1, keepdims=True)
    scaled = ew.multiply(largest, rtol if isinstance(rtol, float) else with_dimension(rtol, rtol.ndim))
    return reductions.sum(ew.greater(values, scaled), axis=-1)


class LstsqResult(NamedTuple):
    x: Tensor
    residuals: Tensor
    rank: Tensor
    s: Tensor


def lstsq(a, b, rcond=None):
    """The x of least norm among those with the least |a @ x - b|.

    Parameters
    ----------
    a : (..., m, n)
    b : (m,), or (..., m, k)
    rcond : as rtol of `pinv`

    Returns
    -------
    LstsqResult(x, residuals, rank, s): the solution (n,) or (..., n, k), the
    sums of squares of a @ x - b for each column (always, unlike NumPy's, whose
    shape depends on the rank), the rank and singular values of a.

    Distributed: leading dims and b's columns may be sharded, a's matrices are gathered.
    """
    a, b = operand(a), operand(b)
    check_stack("lstsq", a, argument="a")
    vector = b.ndim == 1
    if b.ndim == 0 or b.shape[0 if vector else -2] != a.shape[-2]:
        raise value_error(f"lstsq: b of shape {b.shape} has no {a.shape[-2]} rows, as a of shape {a.shape} needs")
    back = rounding(a, b)
    a, b = asarray(computable(a)), computable(b)
    b = with_dimension(b, 1) if vector else b
    _check_leading("lstsq", a, b)
    rtol = _relative("lstsq", rcond, a)
    x = matmul(apply_on_stacks(_pinv, (a, rtol)), b)
    rest = ew.subtract(matmul(a, x), b)
    residuals = reductions.sum(ew.square(ew.abs(rest)), axis=-2)
    values = svdvals(a)
    if vector:
        x, residuals = squeeze(x, -1), squeeze(residuals, -1)
    return LstsqResult(back(x), back(residuals), _rank(values.detach(), rtol), back(values))
