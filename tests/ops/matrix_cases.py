"""Gradient cases of linear algebra and Fourier transforms, for `gradient_cases`.

Eigenvectors and singular vectors are unique but for signs or phases, so they
are tried in functions that do not depend on these.
"""

import numpy as np

from spmdlayer import fft, linalg
from spmdlayer.ops import elementwise, reductions
from spmdlayer.ops.registry import REGISTRY
from spmdlayer.ops.shape import matrix_transpose

_random = np.random.default_rng(7)
CASES = {}
VALUES = {}  # of operations without a gradient


def signed(*extents):
    return _random.uniform(0.3, 1.7, extents) * _random.choice([-1.0, 1.0], extents)


def cmplx(*extents):
    return signed(*extents) + 1j * signed(*extents)


def regular(*extents, make=signed):
    """Matrices with singular values that are not small and far apart."""
    n = min(extents[-2:])
    values = make(*extents) / 4
    values[..., np.arange(n), np.arange(n)] += 1.5 + np.arange(n)
    return values


def _functions(names, *cases):
    for name in names.split():
        CASES.setdefault(name, []).extend(cases)


def _params(operation, **params):
    return lambda *operands: REGISTRY[operation].public(*operands, **params)


def _adjoint(x):
    return elementwise.conj(matrix_transpose(x))


# Solving -----------------------------------------------------------------

_functions(
    "solve",
    (linalg.solve, (regular(2, 3, 3), signed(2, 3, 2))),
    (linalg.solve, (regular(2, 2, make=cmplx), signed(2))),
    (linalg.solve, (regular(2, 2), cmplx(3, 2, 1))),
    (linalg.solve, (regular(2, 1, 2, 2), signed(3, 2, 2))),
    (linalg.solve, (regular(2, 0, 0), signed(2, 0, 3))),
)
_functions(
    "inv",
    (linalg.inv, (regular(2, 3, 3),)),
    (linalg.inv, (regular(2, 2, make=cmplx),)),
    (lambda x: linalg.matrix_power(x, -2), (regular(2, 2),)),
    (lambda x: linalg.cond(x, "fro"), (regular(2, 2),)),
)
_functions(
    "solve_triangular",
    (linalg.solve_triangular, (regular(3, 3), signed(3, 2))),
    (lambda a, b: linalg.solve_triangular(a, b, lower=True), (regular(2, 3, 3, make=cmplx), cmplx(3, 1))),
    (lambda a, b: linalg.solve_triangular(a, b, unit_diagonal=True), (signed(2, 2), signed(2))),
)
_functions(
    "pinv",
    (linalg.pinv, (regular(2, 3, 2),)),
    (linalg.pinv, (regular(2, 3, make=cmplx),)),
    (lambda x: linalg.pinv(x, rtol=np.array([1e-9, 1e-8])), (regular(2, 2, 2),)),
    (lambda a, b: linalg.lstsq(a, b).x, (regular(3, 2), signed(3))),
    (lambda a, b: linalg.lstsq(a, b).residuals, (regular(2, 3, 2, make=cmplx), cmplx(3, 2))),
)

# Diagonals and triangular factors ----------------------------------------

_functions(
    "diagonal",
    *((lambda x, k=k: linalg.diagonal(x, offset=k), (signed(2, 3, 4),)) for k in (0, 2, -1)),
    (lambda x: linalg.trace(x, offset=1), (cmplx(3, 3),)),
)


def _place_below(x):
    return REGISTRY["place_diagonal"].public(x, offset=-1, rows=x.shape[-1] + 1, columns=x.shape[-1])


_functions(
    "place_diagonal",
    (_params("place_diagonal"), (signed(2, 3),)),
    (_place_below, (cmplx(3),)),
)
_functions("lower_triangle", (_params("lower_triangle", k=-1), (signed(2, 3, 3),)))


def positive(*extents, make=signed):
    values = make(*extents)
    return values @ np.conj(np.swapaxes(values, -1, -2)) + 2 * np.eye(extents[-1])


_functions(
    "cholesky",
    (linalg.cholesky, (positive(2, 3, 3),)),
    (linalg.cholesky, (positive(2, 2, make=cmplx),)),
    (lambda x: linalg.cholesky(x, upper=True), (positive(2, 2, make=cmplx),)),
)
_functions(
    "qr",
    (lambda x: linalg.qr(x).Q, (regular(2, 3, 2),)),
    (lambda x: linalg.qr(x).R, (regular(3, 2, make=cmplx),)),
    (lambda x: linalg.qr(x).Q, (regular(3, 3, make=cmplx),)),
    (lambda x: linalg.qr(x, mode="r"), (regular(2, 3),)),
    (lambda x: linalg.qr(x, mode="complete").R, (regular(3, 2),)),
    (lambda x: linalg.qr(x).Q, (regular(2, 3),)),
)

# Spectra -----------------------------------------------------------------


def _of_eigh(x):
    values, vectors = linalg.eigh(x)
    return (vectors * elementwise.tanh(values)[..., None, :]) @ _adjoint(vectors)


def _of_svd(x):
    u, s, vh = linalg.svd(x, full_matrices=False)
    return (u * elementwise.sin(s)[..., None, :]) @ vh


def _of_eig(x):
    values, vectors = linalg.eig(x)
    return elementwise.abs(vectors) * elementwise.sin(values)[..., None, :]


_functions(
    "eigh",
    (_of_eigh, (regular(2, 3, 3),)),
    (_of_eigh, (regular(3, 3, make=cmplx),)),
    (linalg.eigvalsh, (regular(3, 3),)),
    (lambda x: elementwise.abs(linalg.eigh(x).eigenvectors), (regular(2, 2, make=cmplx),)),
)
_functions(
    "svd",
    (_of_svd, (regular(2, 3, 2),)),
    (_of_svd, (regular(2, 3, make=cmplx),)),
    (_of_svd, (regular(2, 2, make=cmplx),)),
    (linalg.svdvals, (regular(3, 2),)),
    (lambda x: elementwise.abs(linalg.svd(x, full_matrices=False).U), (regular(3, 2, make=cmplx),)),
    (lambda x: linalg.matrix_norm(x, ord="nuc"), (regular(2, 2, 3),)),
    (lambda x: linalg.matrix_norm(x, ord=2, keepdims=True), (regular(2, 2),)),
    (linalg.cond, (regular(2, 2),)),
)
_functions(
    "eig",
    (_of_eig, (regular(2, 3, 3),)),
    (_of_eig, (regular(2, 2, make=cmplx),)),
    (linalg.eigvals, (np.array([[1.0, 2.0], [-1.0, 0.5]]),)),
)
_functions(
    "over_nonzero",
    (
        lambda k, d: REGISTRY["over_nonzero"].public(
            k, d, np.array([2.0, 1.0]), what="a test divides by {row} {column}"
        ),
        (cmplx(2, 2), signed(1, 2)),
    ),
)

# Determinants ------------------------------------------------------------

SINGULAR = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
_functions(
    "det",
    (linalg.det, (regular(2, 3, 3),)),
    (linalg.det, (cmplx(2, 2),)),
    (linalg.det, (SINGULAR,)),
    (linalg.det, (np.outer([1.0, 2.0, 3.0], [1.0, 0.5, 2.0]),)),
)
_functions("adjugate", *((_params("adjugate"), (x,)) for x in (signed(1, 1), cmplx(2, 2), regular(2, 3, 3))))
_functions("adjugate_slope", (_params("adjugate_slope"), (regular(3, 3, make=cmplx), cmplx(3, 3))))
_functions(
    "slogdet",
    (lambda x: linalg.slogdet(x).logabsdet, (regular(2, 3, 3),)),
    (lambda x: linalg.slogdet(x).sign * linalg.slogdet(x).logabsdet, (regular(2, 2, make=cmplx),)),
)
_functions("expm", (linalg.expm, (signed(2, 2, 2) / 2,)), (linalg.expm, (cmplx(2, 2) / 2,)))

# Norms and products ------------------------------------------------------

_functions(
    "sum",
    (linalg.vector_norm, (signed(2, 3),)),
    (lambda x: linalg.vector_norm(x, axis=1), (cmplx(2, 3),)),
    (lambda x: linalg.vector_norm(x, axis=0, ord=3, keepdims=True), (signed(2, 3),)),
    (lambda x: linalg.norm(x), (np.array([3.0, 0.0, 4.0]),)),
    (lambda x: linalg.norm(x, 1, axis=(0, 2)), (signed(2, 3, 2),)),
)
_functions("multiply", (linalg.cross, (signed(2, 3), cmplx(3))), (linalg.kron, (signed(2), cmplx(2, 2))))
_functions("einsum", (lambda *x: linalg.multi_dot(x), (signed(2), signed(2, 3), signed(3, 2))))
_functions("matmul", (lambda x: linalg.matrix_power(x, 3), (signed(2, 2),)))

# Fourier transforms ------------------------------------------------------

_functions(
    "fftn",
    (fft.fft, (cmplx(2, 3),)),
    (lambda x: fft.fft(x, axis=0, norm="ortho"), (signed(4, 2),)),
    (lambda x: fft.fftn(x, s=(3, 2), axes=(2, 0), norm="forward"), (signed(3, 1, 2),)),
)
_functions("ifftn", (fft.ifft, (signed(5),)), (lambda x: fft.ifft2(x, norm="ortho"), (cmplx(2, 2, 3),)))
_functions(
    "rfft",
    *((lambda x, n=n: fft.rfft(x, n=n), (signed(2, 4),)) for n in (None, 3, 5, 6)),
    (lambda x: fft.rfftn(x, norm="ortho"), (signed(2, 3),)),
    (lambda x: fft.ihfft(x, norm="forward"), (signed(5),)),
)
_functions(
    "irfft",
    *((lambda x, n=n: fft.irfft(x, n=n), (cmplx(2, 3),)) for n in (None, 5, 3, 7)),
    (lambda x: fft.irfftn(x, norm="ortho"), (cmplx(2, 3),)),
    (lambda x: fft.hfft(x, axis=0, norm="forward"), (cmplx(3, 2),)),
    (fft.irfft, (signed(3),)),
)


def _halves(x, odd):
    n = 2 * x.shape[0] - 2 + odd
    return REGISTRY["half_spectrum"].public(x, axes=(0,), n=n, factor=0.5)


_functions("half_spectrum", *((lambda x, odd=odd: _halves(x, odd), (cmplx(3, 2),)) for odd in (0, 1)))
_functions(
    "dctn",
    *((lambda x, t=t: fft.dctn(x, t), (signed(2, 3),)) for t in (1, 2, 3, 4)),
    *((lambda x, t=t: fft.idct(x, t, 4, 0, "ortho"), (cmplx(3, 2),)) for t in (1, 2, 3, 4)),
    (lambda x: fft.dctn(x, 3, (4, 2), (0, 1), "forward", orthogonalize=True), (signed(3, 2),)),
)
_functions(
    "dstn",
    *((lambda x, t=t: fft.dstn(x, t), (signed(2, 3),)) for t in (1, 2, 3, 4)),
    *((lambda x, t=t: fft.idst(x, t, 4, 0, "ortho"), (cmplx(3, 2),)) for t in (1, 2, 3, 4)),
)
_functions("scaled_ends", (_params("scaled_ends", axes=(1, 0), ends=(0, -1), factor=0.5), (signed(2, 3),)))
_functions("cut_or_pad", (_params("cut_or_pad", axes=(1, 0), sizes=(2, 3)), (signed(2, 3),)))
_functions("roll", (fft.fftshift, (signed(3, 2),)), (lambda x: fft.ifftshift(x, axes=0), (cmplx(3, 2),)))
_functions("sum", (lambda x: reductions.sum(linalg.vecdot(x, x)), (cmplx(2, 3),)))


# Without gradients -------------------------------------------------------

VALUES["eigvalsh"] = [(linalg.eigvalsh, (regular(3, 2, 2),)), (linalg.eigvalsh, (regular(3, 3, make=cmplx),))]
VALUES["svdvals"] = [(linalg.svdvals, (regular(3, 2, 4),)), (linalg.matrix_rank, (regular(3, 2, make=cmplx),))]
VALUES["check_phases"] = [(_params("check_phases", name="a test"), (np.zeros((2, 3)), cmplx(2, 3, 3)))]
VALUES["check_unused"] = [(_params("check_unused", name="a test"), (np.zeros((2, 3)),))]
