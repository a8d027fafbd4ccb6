"""Divisions that gradients of factorisations need, which raise where the quotient does not exist.

The gradient of eigenvectors divides by differences of eigenvalues, that of
singular vectors by those of singular values and by these themselves.  Where
one is zero the vectors are not differentiable, and a function of them only if
it does not need that quotient: then the cotangent is zero there, and so is
what comes out.  Anything else raises; a quotient of rounding errors would be
a wrong gradient without a word.  A vjp itself never looks at values, so these
are operations.  Of a sharded stack the rank that holds the matrix raises.
"""

from ..errors import value_error
from ..ops.registry import conj as conjugate
from ..ops.registry import define, unbroadcast
from .stacks import LinAlgError


def _fail(message):
    raise LinAlgError(str(value_error(message)))


def _first(np, bad):
    """The index of the first True, as a tuple of ints."""
    return tuple(int(place[0]) for place in np.nonzero(bad))


def _of_matrix(index):
    return f" of the matrix at index {tuple(index)}" if index else ""


def _over_forward(np, k, d, scale, what):
    """k / d; `scale` (stack, n) are the numbers whose rounding decides when d is zero."""
    shape = np.broadcast_shapes(k.shape, d.shape)
    if 0 in shape:
        return np.zeros(shape, np.result_type(k, d))
    eps = np.finfo(k.dtype).eps * max(shape[-2:])
    zero = np.abs(d) <= eps * np.max(np.abs(scale), axis=-1)[..., None, None]
    size = np.abs(k)
    bad = zero & (size > eps * np.max(size, axis=(-2, -1), keepdims=True))
    if bad.any():
        *index, row, column = _first(np, bad)
        distance = float(np.abs(np.broadcast_to(d, shape)[(*index, row, column)]))
        _fail(
            f"{what.format(row=row, column=column)}, which is {distance:.3g}{_of_matrix(index)}. "
            "The vectors have no gradient there; use the values alone, or move the matrix a little"
        )
    return np.where(zero, 0, k / np.where(zero, 1, d)).astype(np.result_type(k, d), copy=False)


def _over_left(g, b, c, p, xp):
    return unbroadcast(xp, xp.over_nonzero(g, conjugate(b), c, what=p.what), p.shapes[0], p.dtypes[0])


def _over_right(g, y, b, c, p, xp):
    product = g * conjugate(y)
    return unbroadcast(xp, -xp.over_nonzero(product, conjugate(b), c, what=p.what), p.shapes[1], p.dtypes[1])


# The scale only says what counts as zero: it has no gradient.
define("over_nonzero", _over_forward, (_over_left, _over_right, lambda g: None))


def over_gaps(k, values, xp, what):
    """k[i, j] / (values[j] - values[i]) off the diagonal, and zero on it; `what` opens the error's text."""
    n = values.shape[-1]
    unit = xp.eye_like(k, size=n)
    gaps = values[..., None, :] - values[..., :, None] + xp.eye_like(values, size=n)
    return xp.over_nonzero(k * (1 - unit), gaps, values, what=what)


# Checks that backward makes in passing; what they let pass is zero, and nothing to gradients of gradients.


def _check_phases(np, phases, scale, name):
    """Raise unless the cotangents along the phases are zero to rounding beside those of the vectors."""
    if phases.size:
        tolerance = float(np.finfo(phases.dtype).eps) ** 0.5
        bad = np.abs(phases) > tolerance * np.max(np.abs(scale), axis=(-2, -1))[..., None]
        if bad.any():
            *index, column = _first(np, bad)
            _fail(
                f"{name}: the loss depends on the phase of vector {column}{_of_matrix(index)}, which is arbitrary; "
                "complex vectors have gradients only in functions that do not, of v * conj(v) or abs(v), say"
            )
    return np.zeros_like(phases)


def _check_unused(np, x, name):
    if np.any(x != 0):
        _fail(f"{name}: the loss depends on the vectors that only complete a basis, which are arbitrary")
    return np.zeros_like(x)


define("check_phases", _check_phases)
define("check_unused", _check_unused)
