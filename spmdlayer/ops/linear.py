"""Products of matrices and vectors.

Half precision is multiplied and accumulated in float32.
"""

import numpy as np

from ..dtypes import is_complex, is_half
from ..errors import value_error
from . import elementwise as ew
from . import reductions
from .complaints import shown
from .factors import broadcast_terms, contraction_rule
from .registry import apply, define, unbroadcast
from .registry import conj as conjugate
from .rules import stated
from .shape import operand, with_dimension

_FLOAT32 = np.dtype(np.float32)


# Matrix products ---------------------------------------------------------


def widened(arrays):
    """The raw arrays to multiply, and the dtype to cast the result to (None: as it is)."""
    if not any(is_half(array.dtype) for array in arrays):
        return arrays, None
    result = np.result_type(*arrays)
    return [array.astype(_FLOAT32 if is_half(result) else result) for array in arrays], result


def _matmul_forward(np, a, b):
    (a, b), dtype = widened((a, b))
    result = np.matmul(a, b)
    return result if dtype is None else result.astype(dtype)


def _adjoint(value, xp):
    """The conjugate transpose of the last two dimensions."""
    ndim = value.ndim
    return conjugate(xp.permute_dims(value, (*range(ndim - 2), ndim - 1, ndim - 2)))


def _column(value, xp):
    return xp.expand_dims(value, axis=(value.ndim,))


def _apply_columns(matrix, vectors, xp):
    """The matrices times vectors that lie along the last dimension."""
    return xp.squeeze(xp.matmul(matrix, _column(vectors, xp)), axis=(vectors.ndim,))


def _matmul_left(g, b, p, xp):
    shape = p.shapes[0]
    if b.ndim == 1:
        grad = (_column(g, xp) if len(shape) > 1 else g) * conjugate(b)
    elif len(shape) == 1:
        grad = _apply_columns(conjugate(b), g, xp)
    else:
        grad = xp.matmul(g, _adjoint(b, xp))
    return unbroadcast(xp, grad, shape, p.dtypes[0])


def _matmul_right(g, a, p, xp):
    shape = p.shapes[1]
    if a.ndim == 1:
        grad = _column(conjugate(a), xp) * xp.expand_dims(g, axis=(g.ndim - 1,)) if len(shape) > 1 else g * conjugate(a)
    elif len(shape) == 1:
        grad = _apply_columns(_adjoint(a, xp), g, xp)
    else:
        grad = xp.matmul(_adjoint(a, xp), g)
    return unbroadcast(xp, grad, shape, p.dtypes[1])


@stated('"...mk,...kn->...mn"', "the operand that costs least, or nothing: the result is then Partial")
def _matmul_rule(call):
    """Factors "mk,kn->mn", with numbered ones for the leading dimensions."""
    left, right = call.shapes
    leading, (before, after) = broadcast_terms((left[:-2], right[:-2]))
    rows, columns = ("m",) * (len(left) > 1), ("n",) * (len(right) > 1)
    return contraction_rule(call, ((*before, *rows, "k"), (*after, "k", *columns)), (*leading, *rows, *columns))


_matmul = define("matmul", _matmul_forward, (_matmul_left, _matmul_right), rule=_matmul_rule)


_matmul.direct = lambda arrays, params: None if any(is_half(array.dtype) for array in arrays) else np.matmul


def matmul(a, b):
    """The matrix product over the last two dimensions, as `a @ b` in NumPy.

    Leading dimensions broadcast; a 1-d operand is a row (left) or a column
    (right).  A contracted dimension that is sharded gives Partial(sum).
    """
    a, b = operand(a), operand(b)
    if a.ndim == 0 or b.ndim == 0:
        raise value_error(f"matmul: shapes {shown(a)} and {shown(b)} were given; a number multiplies with *")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else -1]:
        raise value_error(f"matmul: the inner dimensions of shapes {shown(a)} and {shown(b)} differ")
    return apply(_matmul, (a, b))


_matmul.public = matmul


def vecdot(a, b, axis=-1):
    """The sum of conj(a) * b over an axis, in the dtype of the product; the other dimensions broadcast.

    axis : counted from the end where a and b have different numbers of dimensions
    """
    a, b = operand(a), operand(b)
    if a.ndim == 0 or b.ndim == 0:
        raise value_error(f"vecdot: shapes {shown(a)} and {shown(b)} were given; a number multiplies with *")
    first, second = (reductions.normalise_axis("vecdot", axis, x.ndim, x) for x in (a, b))
    if a.shape[first] != b.shape[second] or a.ndim - first != b.ndim - second:
        raise value_error(f"vecdot: axis {axis} of shapes {shown(a)} and {shown(b)} is not one of the same extent")
    products = ew.multiply(a.conj() if is_complex(a.dtype) else a, b)
    return reductions.sum(products, first - a.ndim, products.dtype)


def outer(a, b):
    """All products of an element of a with an element of b, both flattened: shape (a.size, b.size)."""
    return ew.multiply(with_dimension(operand(a).ravel(), 1), operand(b).ravel())
