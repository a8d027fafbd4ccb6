"""Products of matrices and vectors.

Half precision is multiplied and accumulated in float32.
"""

import numpy as np

from ..autograd.tensor import asarray
from ..dtypes import is_complex, is_half
from ..errors import value_error
from . import elementwise as ew
from . import reductions
from .registry import apply, define, unbroadcast
from .registry import conj as conjugate
from .shape import expand_dims, ravel, squeeze

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


_matmul = define(
    "matmul",
    _matmul_forward,
    (
        lambda g, b, p, xp: unbroadcast(xp, xp.matmul(g, _adjoint(b, xp)), p.shapes[0], p.dtypes[0]),
        lambda g, a, p, xp: unbroadcast(xp, xp.matmul(_adjoint(a, xp), g), p.shapes[1], p.dtypes[1]),
    ),
)


def matmul(a, b):
    """The matrix product over the last two dimensions, as `a @ b` in NumPy.

    Leading dimensions broadcast; a 1-d operand is a row (left) or a column
    (right).  A contracted dimension that is sharded gives Partial(sum).
    """
    a, b = asarray(a), asarray(b)
    if a.ndim == 0 or b.ndim == 0:
        raise value_error(f"matmul: shapes {a.shape} and {b.shape} were given; a number multiplies with *")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else -1]:
        raise value_error(f"matmul: the inner dimensions of shapes {a.shape} and {b.shape} differ")
    if a.ndim > 1 and b.ndim > 1:
        return apply(_matmul, (a, b))
    row, column = a.ndim == 1, b.ndim == 1
    product = apply(_matmul, (expand_dims(a, 0) if row else a, expand_dims(b, 1) if column else b))
    return squeeze(product, (-2,) * row + (-1,) * column)


_matmul.public = matmul


def vecdot(a, b, axis=-1):
    """The sum of conj(a) * b over an axis; the other dimensions broadcast."""
    a = asarray(a)
    return reductions.sum(ew.multiply(ew.conj(a) if is_complex(a.dtype) else a, b), axis)


def outer(a, b):
    """All products of an element of a with an element of b, both flattened: shape (a.size, b.size)."""
    return ew.multiply(expand_dims(ravel(a), 1), ravel(b))
