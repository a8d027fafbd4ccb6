"""Cholesky and QR, whose factors are triangular.

Gradients: Murray, "Differentiation of the Cholesky decomposition" (2016);
Seeger et al., "Auto-differentiating linear algebra" (2017), Walter and Lehmann,
"On evaluating higher-order derivatives of the QR decomposition" (2012).  The
diagonal of the triangular factor is real (LAPACK's choice), so complex
factors are unique but for signs, and every function of them has a gradient.
"""

from typing import NamedTuple

from ..autograd.tensor import Tensor, asarray
from ..errors import value_error
from ..ops.linear import matmul
from ..ops.packed import Part, define_packed
from ..ops.precision import computable, rounding
from ..ops.registry import conj as conjugate
from ..ops.registry import define
from ..ops.shape import concat, matrix_transpose
from .diagonals import half_lower
from .spectra import hermitian_part
from .stacks import adjoint, apply_on_stacks, check_stack, guarded, stack_rule


class QRResult(NamedTuple):
    Q: Tensor
    R: Tensor


# Cholesky ----------------------------------------------------------------


def _cholesky_forward(np, a):
    return guarded("cholesky", "is not positive definite", np.linalg.cholesky, hermitian_part(a, np))


def _cholesky_vjp(g, y, xp):
    back = adjoint(y, xp)
    inner = half_lower(xp.matmul(back, g), xp)
    left = xp.solve_triangular(back, inner, lower=False)
    grad = adjoint(xp.solve_triangular(back, adjoint(left, xp), lower=False), xp)
    return (grad + adjoint(grad, xp)) * 0.5


_cholesky = define("cholesky", _cholesky_forward, (_cholesky_vjp,), rule=stack_rule("MM->MM"))


def cholesky(x, upper=False):
    """The triangular factor of Hermitian positive definite matrices: x = L @ L^H, or U^H @ U with `upper`.

    Parameters
    ----------
    x : (..., n, n); of a matrix that is not Hermitian, (x + x^H) / 2 is taken

    Distributed: the leading dims may be sharded, the matrices are gathered.
    Raises LinAlgError (a ValueError), on all ranks, for a matrix that is not
    positive definite, with its index in the stack.
    """
    x = asarray(x)
    check_stack("cholesky", x, square=True)
    result = rounding(x)(apply_on_stacks(_cholesky, (computable(x),)))
    return conjugate(matrix_transpose(result)) if upper else result


# QR ----------------------------------------------------------------------


def _qr_parts(m, n, mode):
    k = m if mode == "complete" else min(m, n)
    return Part((m, k)), Part((k, n))


def _qr_vjp(gs, ys, p, xp):
    (gq, gr), (q, r), n = gs, ys, p.shapes[0][-1]
    if p.mode == "complete":
        xp.check_unused(gq[..., :, n:], name="qr")
        gq, q, gr, r = gq[..., :, :n], q[..., :, :n], gr[..., :n, :], r[..., :n, :]
    own = xp.matmul(adjoint(q, xp), gq)
    product = xp.matmul(gr, adjoint(r, xp))
    change = own - product
    inner = half_lower(change - adjoint(change, xp), xp) + product - own
    right = gq + xp.matmul(q, inner)
    return adjoint(xp.solve_triangular(r, adjoint(right, xp), lower=False), xp)


_qr = define_packed("qr", lambda np, a, mode: np.linalg.qr(a, mode), _qr_vjp, _qr_parts, apply_on_stacks)


def _wide(x):
    """The factors of matrices with more columns than rows, by those of the first square."""
    rows = x.shape[-2]
    q, r = _qr(x[..., :, :rows], mode="reduced")
    rest = matmul(conjugate(matrix_transpose(q)), x[..., :, rows:])
    return q, concat([r, rest], axis=-1)


def qr(x, mode="reduced"):
    """The factors x = Q @ R: Q with orthonormal columns, R upper triangular with a real diagonal.

    Parameters
    ----------
    x : (..., m, n)
    mode : "reduced": Q (..., m, k) and R (..., k, n), k = min(m, n); "complete": k = m; "r": R alone is returned

    Returns
    -------
    QRResult(Q, R), or R.

    Distributed: the leading dims may be sharded, the matrices are gathered.
    Backward raises LinAlgError where the first min(m, n) columns of x depend
    on one another, or the loss on the columns that only complete Q.
    """
    if mode not in ("reduced", "complete", "r"):
        raise value_error(f"qr: mode {mode!r} was given; 'reduced', 'complete' and 'r' are right")
    x = asarray(x)
    check_stack("qr", x)
    wide, back = x.shape[-2] < x.shape[-1], rounding(x)
    x = computable(x)
    q, r = map(back, _wide(x) if wide else _qr(x, mode="complete" if mode == "complete" else "reduced"))
    return r if mode == "r" else QRResult(q, r)
