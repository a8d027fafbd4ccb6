"""Eigenvalues, eigenvectors and singular values.

Gradients: Giles, "An extended collection of matrix derivative results" (2008);
Townsend, "Differentiating the singular value decomposition" (2016); complex
ones as Wan and Zhang (arXiv:1909.02659); for `eig` Boeddeker et al.
(arXiv:1701.00392).

Values alone always have a gradient.  Vectors that belong to equal values are
not unique, nor is the phase of complex ones; a loss that depends on that has
no gradient, and backward raises `LinAlgError` (a ValueError) where it finds so:
see `divisions`.
"""

from typing import NamedTuple

from ..autograd.tensor import Tensor, asarray
from ..config import state
from ..dtypes import is_complex
from ..ops.packed import Part, define_packed
from ..ops.precision import computable, rounding
from ..ops.registry import conj as conjugate
from ..ops.registry import define, unbroadcast
from .divisions import over_gaps
from .stacks import adjoint, apply_on_stacks, check_stack, guarded, stack_rule

_NOT_FOUND = "has NaN or infinite elements, or its {} do not converge"


class EighResult(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


def _recorded(x):
    return x._node is not None and state.grad_enabled


# Hermitian ---------------------------------------------------------------


def hermitian_part(a, np):
    """(a + a^H) / 2 of a raw stack."""
    return (a + np.conj(np.swapaxes(a, -1, -2))) / 2


def _eigh_forward(np, a):
    return guarded("eigh", _NOT_FOUND.format("eigenvalues"), np.linalg.eigh, hermitian_part(a, np))


def _eigh_vjp(gs, ys, p, xp):
    (gw, gv), (w, v) = gs, ys
    back = adjoint(v, xp)
    k = xp.matmul(back, gv)
    if is_complex(k.dtype):
        xp.check_phases(xp.imag(xp.diagonal(k)), k, name="eigh")
    inner = over_gaps(k, w, xp, "eigh: backward divides by the difference of eigenvalues {row} and {column}")
    inner = (inner + adjoint(inner, xp)) * 0.5
    return xp.matmul(xp.matmul(v, inner) + v * gw[..., None, :], back)


_eigh = define_packed(
    "eigh", _eigh_forward, _eigh_vjp, lambda n, _: (Part((n,), real=True), Part((n, n))), apply_on_stacks
)
_eigvalsh = define(
    "eigvalsh",
    lambda np, a: guarded("eigvalsh", _NOT_FOUND.format("eigenvalues"), np.linalg.eigvalsh, hermitian_part(a, np)),
    rule=stack_rule("MM->M"),
)


def _square(name, x):
    x = asarray(x)
    check_stack(name, x, square=True)
    return computable(x), rounding(x)


def eigh(x):
    """Eigenvalues (ascending, (..., n)) and eigenvectors (columns, (..., n, n)) of Hermitian matrices.

    Parameters
    ----------
    x : (..., n, n); of a matrix that is not Hermitian, (x + x^H) / 2 is taken

    Returns
    -------
    EighResult(eigenvalues, eigenvectors), the eigenvalues real.

    Distributed: the leading dims may be sharded, the matrices are gathered.
    The gradient of the eigenvectors divides by differences of eigenvalues:
    backward raises LinAlgError where equal ones are told apart by the loss,
    and where it depends on the phase of complex vectors.
    """
    x, back = _square("eigh", x)
    return EighResult(*map(back, _eigh(x)))


def eigvalsh(x):
    """The eigenvalues of Hermitian matrices, ascending, (..., n); as `eigh`, and differentiable for equal ones too."""
    x, back = _square("eigvalsh", x)
    return back(_eigh(x)[0] if _recorded(x) else apply_on_stacks(_eigvalsh, (x,)))


# Singular values ---------------------------------------------------------


def _svd_parts(m, n, full_matrices=False):
    k = min(m, n)
    return (
        Part((m, m if full_matrices else k)),
        Part((k,), real=True),
        Part((n if full_matrices else k, n)),
    )


def _svd_forward(np, a, full_matrices=False):
    return guarded(
        "svd", _NOT_FOUND.format("singular values"), lambda x: np.linalg.svd(x, full_matrices=full_matrices), a
    )


def _svd_vjp(gs, ys, p, xp):
    (gu, gs, gvh), (u, s, vh), k = gs, ys, ys[1].shape[-1]
    if p.full_matrices:
        for extra in (gu[..., :, k:], gvh[..., k:, :]):
            xp.check_unused(extra, name="svd")
        gu, u, gvh, vh = gu[..., :, :k], u[..., :, :k], gvh[..., :k, :], vh[..., :k, :]
    v, gv = adjoint(vh, xp), adjoint(gvh, xp)
    left, right = xp.matmul(adjoint(u, xp), gu), xp.matmul(vh, gv)
    row, column = s[..., None, :], s[..., :, None]
    inner = _skew_over_gaps(left, s, xp) * row + _skew_over_gaps(right, s, xp) * column
    rows, columns = p.shapes[0][-2:]
    weights = gs[..., None, :]
    if is_complex(u.dtype):
        weights = weights + _phase_part(left, right, s, xp)
    result = xp.matmul(xp.matmul(u, inner) + u * weights, vh)
    if rows > k:
        rest = _over_values(gu - xp.matmul(u, left), s, xp)
        result = result + xp.matmul(rest, vh)
    if columns > k:
        rest = _over_values(gv - xp.matmul(v, right), s, xp)
        result = result + xp.matmul(u, adjoint(rest, xp))
    return result


_EQUAL = "svd: backward divides by the difference of singular values {row} and {column}"
_ZERO = "svd: backward divides by singular value {column}"


def _skew_over_gaps(k, s, xp):
    """(k - k^H)[i, j] / (s[j]^2 - s[i]^2)."""
    over = over_gaps(k, s, xp, _EQUAL)
    sums = s[..., None, :] + s[..., :, None]
    # k^H divided by the gaps is minus the adjoint of k divided by them.
    return xp.over_nonzero(over + adjoint(over, xp), sums, s, what=_ZERO)


def _over_values(k, s, xp):
    return xp.over_nonzero(k, s[..., None, :], s, what=_ZERO)


def _phase_part(left, right, s, xp):
    """What the phase of the left singular vectors against the right ones adds to the singular values' cotangent."""
    one, other = (xp.imag(xp.diagonal(k)) for k in (left, right))
    xp.check_phases(one + other, xp.abs(left) + xp.abs(right), name="svd")
    return _over_values((one - other)[..., None, :], s, xp) * 0.5j


_svd = define_packed("svd", _svd_forward, _svd_vjp, _svd_parts, apply_on_stacks)
_svdvals = define(
    "svdvals",
    lambda np, a: guarded(
        "svdvals", _NOT_FOUND.format("singular values"), lambda x: np.linalg.svd(x, compute_uv=False), a
    ),
    rule=stack_rule("MN->k", extents=lambda call: [("k", min(call.shapes[0][-2:]))]),
)


def _matrices(name, x):
    x = asarray(x)
    check_stack(name, x)
    return computable(x), rounding(x)


def svd(x, full_matrices=True):
    """The singular value decomposition: x = U @ diag(S) @ Vh, S descending.

    Parameters
    ----------
    x : (..., m, n)
    full_matrices : whether U is (..., m, m) and Vh (..., n, n), else (..., m, k) and (..., k, n), k = min(m, n)

    Returns
    -------
    SVDResult(U, S, Vh), S real.

    Distributed: the leading dims may be sharded, the matrices are gathered.
    Backward raises LinAlgError where the loss tells vectors of equal singular
    values apart, depends on vectors of zero ones of a matrix that is not
    square, on those that only complete U or Vh, or on phases of complex ones.
    """
    x, back = _matrices("svd", x)
    return SVDResult(*map(back, _svd(x, full_matrices=bool(full_matrices))))


def svdvals(x):
    """The singular values, descending, (..., min(m, n)); as `svd`, and differentiable for equal ones too.

    That of a singular value that is zero is one of its subgradients.
    """
    x, back = _matrices("svdvals", x)
    return back(_svd(x, full_matrices=False)[1] if _recorded(x) else apply_on_stacks(_svdvals, (x,)))


# General -----------------------------------------------------------------


def _eig_forward(np, a):
    results = guarded("eig", _NOT_FOUND.format("eigenvalues"), np.linalg.eig, a)
    return [result.astype(np.result_type(a, np.complex64), copy=False) for result in results]


def _eig_vjp(gs, ys, p, xp):
    (gw, gv), (w, v) = gs, ys
    back = adjoint(v, xp)
    along = xp.matmul(back, gv)
    lengths = xp.diagonal(along)
    xp.check_phases(xp.imag(lengths), along, name="eig")
    k = xp.matmul(back, gv - v * lengths[..., None, :])  # the vectors keep their length
    what = "eig: backward divides by the difference of eigenvalues {row} and {column}"
    inner = over_gaps(k, conjugate(w), xp, what)
    grad = xp.solve(back, xp.matmul(inner, back) + gw[..., :, None] * back)
    return unbroadcast(xp, grad, p.shapes[0], p.dtypes[0])


_eig = define_packed("eig", _eig_forward, _eig_vjp, lambda n, _: (Part((n,)), Part((n, n))), apply_on_stacks)


def eig(x):
    """Eigenvalues (..., n) and eigenvectors (columns of length 1, (..., n, n)) of square matrices.

    Returns EigResult(eigenvalues, eigenvectors), both complex also where x is
    real.  The order is LAPACK's.  Backward raises LinAlgError as that of
    `eigh`, and where there is no basis of eigenvectors.
    """
    x, _ = _square("eig", x)
    return EigResult(*_eig(x))


def eigvals(x):
    """The eigenvalues of square matrices, complex, (..., n); as `eig`."""
    x, _ = _square("eigvals", x)
    return _eig(x)[0]
