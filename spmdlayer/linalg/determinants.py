"""Determinants, their sign and logarithm.

The derivative of a determinant is the adjugate, which exists for every
matrix; it is computed from singular values, without an inverse, and so is its
own derivative.  With A = U S V^H and c = det(U) det(V^H),

    adj(A)    = c V diag(prod of the other s) U^H
    adj'(A) E = c V M(U^H E V) U^H
    M(F)[i, j] = -F[i, j] q[i, j],  M(F)[i, i] = sum of F[k, k] q[i, k] over k != i

where q[i, j] is the product of all singular values but two.  (From det(A) A^-1
for regular A, by continuity for all.)
"""

from typing import NamedTuple

from ..autograd.tensor import Tensor, asarray
from ..dtypes import is_complex
from ..ops.precision import computable, rounding
from ..ops.registry import conj as conjugate
from ..ops.registry import define
from .stacks import adjoint, apply_on_stacks, check_stack, guarded, stack_rule


class SlogdetResult(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


# det ---------------------------------------------------------------------


def _all_but_one(np, s):
    """For each element along the last dimension the product of the others."""
    ones = np.ones_like(s[..., :1])
    before = np.concatenate([ones, np.cumprod(s, axis=-1)[..., :-1]], axis=-1)
    after = np.concatenate([ones, np.cumprod(s[..., ::-1], axis=-1)[..., :-1]], axis=-1)[..., ::-1]
    return before * after


def _all_but_two(np, s):
    """q[i, j], i != j: the product of the elements along the last dimension but i and j."""
    n = s.shape[-1]
    without = np.where(np.eye(n, dtype=bool), 1, s[..., None, :])
    return np.where(np.eye(n, dtype=bool), 0, _all_but_one(np, without))


def _frame(np, a):
    """The singular values, and what leads from their frame to the adjugate's: c V and U^H."""
    u, s, vh = guarded("det", "has NaN or infinite elements", np.linalg.svd, a)
    scale = np.linalg.det(u) * np.linalg.det(vh)
    return s, scale[..., None, None] * np.conj(np.swapaxes(vh, -1, -2)), np.conj(np.swapaxes(u, -1, -2)), vh, u


def _adjugate_forward(np, a):
    s, left, right, _, _ = _frame(np, a)
    return np.matmul(left * _all_but_one(np, s)[..., None, :], right)


def _slope_forward(np, a, e):
    s, left, right, vh, u = _frame(np, a)
    q = _all_but_two(np, s)
    inside = np.matmul(np.matmul(right, e), np.conj(np.swapaxes(vh, -1, -2)))
    diagonal = np.matmul(q, np.diagonal(inside, 0, -2, -1)[..., None])
    return np.matmul(np.matmul(left, diagonal * np.eye(s.shape[-1], dtype=s.dtype) - q * inside), right)


def _slope_vjp(g, a, b, xp):
    """By the formula for regular matrices: with Y = A^-1, X = Y E the value is det(A) (tr(X) I - X) Y."""
    inverse = xp.inv(a)
    x = xp.matmul(inverse, b)
    unit = xp.eye_like(a, size=a.shape[-1])
    trace = _sums(xp.diagonal(x), xp, 1)[..., None, None]
    inner = xp.matmul(trace * unit - x, inverse)
    back, scaled = adjoint(inverse, xp), conjugate(xp.det(a))[..., None, None] * g
    to_x = _sums(conjugate(inverse) * scaled, xp, 2)[..., None, None] * unit - xp.matmul(scaled, back)
    to_inverse = conjugate(trace) * scaled - xp.matmul(adjoint(x, xp), scaled) + xp.matmul(to_x, adjoint(b, xp))
    to_det = _sums(conjugate(inner) * g, xp, 2)[..., None, None]
    return to_det * adjoint(xp.adjugate(a), xp) - xp.matmul(xp.matmul(back, to_inverse), back)


def _sums(values, xp, dims):
    return xp.sum(values, axis=tuple(range(values.ndim - dims, values.ndim)))


_det = define(
    "det",
    lambda np, a: np.linalg.det(a),
    (lambda g, a, xp: g[..., None, None] * adjoint(xp.adjugate(a), xp),),
    rule=stack_rule("MM->"),
)
define(
    "adjugate",
    _adjugate_forward,
    (lambda g, a, xp: xp.adjugate_slope(adjoint(a, xp), g),),
    rule=stack_rule("MM->MM"),
)
define(
    "adjugate_slope",
    _slope_forward,
    (_slope_vjp, lambda g, a, xp: xp.adjugate_slope(adjoint(a, xp), g)),
    rule=stack_rule("MM,MM->MM", (1,)),
)


def _square(name, x):
    x = asarray(x)
    check_stack(name, x, square=True)
    return computable(x), rounding(x)


def det(x):
    """The determinants of square matrices (..., n, n): (...).

    First and second derivatives are exact for singular matrices too (by
    singular values); third ones need an inverse, and raise LinAlgError there.
    Distributed: the leading dims may be sharded, the matrices are gathered.
    """
    x, back = _square("det", x)
    return back(apply_on_stacks(_det, (x,)))


_det.public = det


# slogdet -----------------------------------------------------------------


def _slogdet_vjp(g, y, a, xp):
    """A^-H times the cotangent of the logarithm, and i times that of the sign's angle."""
    weight = xp.real(g[..., 1])
    if is_complex(a.dtype):
        weight = weight + xp.imag(conjugate(y[..., 0]) * g[..., 0]) * 1j
    return weight[..., None, None] * adjoint(xp.inv(a), xp)


_slogdet = define(
    "slogdet",
    lambda np, a: np.stack(np.linalg.slogdet(a), axis=-1),
    (_slogdet_vjp,),
    rule=stack_rule("MM->p", extents=lambda call: [("p", 2)]),
)


def slogdet(x):
    """The sign (or phase) and the logarithm of the absolute value of determinants.

    Returns SlogdetResult(sign, logabsdet), each (...), so that det(x) is
    sign * exp(logabsdet): 0 and -inf for a singular matrix, at which backward
    raises LinAlgError.
    Distributed: the leading dims may be sharded, the matrices are gathered.
    """
    x, back = _square("slogdet", x)
    packed = apply_on_stacks(_slogdet, (x,))
    logarithm = packed[..., 1]
    return SlogdetResult(back(packed[..., 0]), back(logarithm.real))
