"""NumPy's names beyond the Array API's, for functions that are a few operations in a row.

They have their gradients and distributed rules from what they call.
"""

import math

import numpy as np

from ..autograd.tensor import asarray
from ..dtypes import is_complex, is_inexact
from ..errors import value_error
from . import elementwise as ew
from . import reductions
from .contraction import tensordot
from .cumulative import cumulative_prod, cumulative_sum
from .inspection import finfo
from .linear import vecdot
from .reductions import normalise_axis
from .shape import concat, flip, moveaxis, operand, operands, ravel, split

# Joining and cutting -----------------------------------------------------


def _grown(x, ndim, positions):
    """An operand with new dimensions, at the positions listed for its own number of them, until it has `ndim`."""
    shape = list(x.shape)
    for position in positions[x.ndim] if x.ndim < ndim else ():
        shape.insert(position, 1)
    return x.reshape(shape)


_TO_3D = [(0, 1, 2), (0, 2), (2,)]


def _each(arrays, ndim, positions):
    results = tuple(_grown(asarray(array), ndim, positions) for array in arrays)
    return results[0] if len(results) == 1 else results


def atleast_1d(*arrays):
    """Numbers as tensors of one dimension, others as they are; a tuple for several."""
    return _each(arrays, 1, [(0,)])


def atleast_2d(*arrays):
    """With leading dimensions of extent 1 up to two dimensions; a tuple for several."""
    return _each(arrays, 2, [(0, 1), (0,)])


def atleast_3d(*arrays):
    """With dimensions of extent 1 up to three, (n,) as (1, n, 1) and (m, n) as (m, n, 1); a tuple for several."""
    return _each(arrays, 3, _TO_3D)


def vstack(arrays):
    """Joined along dimension 0, tensors of one dimension as rows."""
    return concat([_grown(array, 2, [(0, 1), (0,)]) for array in operands("vstack", arrays)], 0)


def hstack(arrays):
    """Joined along dimension 1, tensors of one dimension along it."""
    tensors = [_grown(array, 1, [(0,)]) for array in operands("hstack", arrays)]
    return concat(tensors, 0 if tensors[0].ndim == 1 else 1)


def dstack(arrays):
    """Joined along dimension 2, with dimensions as by `atleast_3d`."""
    return concat([_grown(array, 3, _TO_3D) for array in operands("dstack", arrays)], 2)


def column_stack(arrays):
    """Joined along dimension 1, tensors of one dimension as columns."""
    return concat([_grown(array, 2, [(0, 1), (1,)]) for array in operands("column_stack", arrays)], 1)


def append(x, values, axis=None):
    """Two tensors joined along an axis; None: both flattened."""
    return concat([x, values], axis)


def array_split(x, indices_or_sections, axis=0):
    """Like `split`; so many pieces (int) may differ in length by one, longer ones first."""
    if not isinstance(indices_or_sections, (int, np.integer)):
        return split(x, indices_or_sections, axis)
    if indices_or_sections < 1:
        raise value_error(f"array_split: {indices_or_sections} pieces were asked for; at least 1 is right")
    x = asarray(x)
    length, longer = divmod(x.shape[normalise_axis("array_split", axis, x.ndim, x)], indices_or_sections)
    return split(x, [length * piece + min(piece, longer) for piece in range(1, indices_or_sections)], axis)


# Diagonals ---------------------------------------------------------------


def diagonal(x, offset=0, axis1=0, axis2=1):
    """The elements [i, i + offset] of two dimensions, as the last dimension of the result."""
    x = asarray(x)
    if x.ndim < 2:
        raise value_error(f"diagonal: at least 2 dimensions are needed, the shape is {x.shape}")
    first, second = (normalise_axis("diagonal", axis, x.ndim, x) for axis in (axis1, axis2))
    if first == second:
        raise value_error(f"diagonal: axis1 and axis2 are both {first}; two dimensions are needed")
    x = moveaxis(x, (first, second), (-2, -1))
    rows, columns = x.shape[-2:]
    places = np.arange(max(0, min(rows + min(offset, 0), columns - max(offset, 0))))
    return x[..., places + max(-offset, 0), places + max(offset, 0)]


def trace(x, offset=0, axis1=0, axis2=1, dtype=None):
    """The sum of a diagonal, see `diagonal`; dtype as in `sum`."""
    return reductions.sum(diagonal(x, offset, axis1, axis2), -1, dtype)


def diag(x, k=0):
    """Of a matrix its diagonal k; of one dimension the matrix with it as diagonal k and zeros elsewhere."""
    x = asarray(x)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise value_error(f"diag: 1 or 2 dimensions are needed, the shape is {x.shape}")
    zeros = np.zeros(abs(k), x.dtype)
    columns = concat([zeros, x] if k > 0 else [x, zeros], 0)
    return ew.where(np.eye(x.size + abs(k), k=k, dtype=bool), columns, np.zeros((), x.dtype))


# Products and means ------------------------------------------------------


def inner(a, b):
    """The sum of products over the last dimensions; * for numbers."""
    a, b = operand(a), operand(b)
    return ew.multiply(a, b) if a.ndim == 0 or b.ndim == 0 else tensordot(a, b, ((-1,), (-1,)))


def vdot(a, b):
    """The sum of conj(a) * b over all elements, both flattened."""
    return vecdot(operand(a).ravel(), operand(b).ravel())


def average(x, axis=None, weights=None, keepdims=False):
    """The mean with weights: of x's shape or, for one axis, one weight per index along it."""
    x = asarray(x)
    if weights is None:
        return reductions.mean(x, axis, keepdims=keepdims)
    weights = operand(weights)
    if weights.shape == x.shape:
        total = weights.sum(axis=axis, keepdims=keepdims)
    else:
        along = None if axis is None else normalise_axis("average", axis, x.ndim, x)
        if along is None or weights.shape != (x.shape[along],):
            raise value_error(f"average: weights of shape {weights.shape} for {x.shape} and axis {axis} were given")
        total = weights.sum()
        weights = weights.reshape((-1,) + (1,) * (x.ndim - 1 - along))
    return ew.divide(reductions.sum(ew.multiply(x, weights), axis, keepdims=keepdims), total)


def ptp(x, axis=None, keepdims=False):
    """The largest minus the smallest element over an axis, several axes or all."""
    x = asarray(x)
    return ew.subtract(reductions.max(x, axis, keepdims), reductions.min(x, axis, keepdims))


# Where values are no numbers ---------------------------------------------


def angle(z, deg=False):
    """The angle of complex numbers, atan2(imag, real), in radians or degrees."""
    z = asarray(z)
    if not is_complex(z.dtype):
        z = ew.astype(z, np.result_type(z.dtype, np.complex64))
    result = ew.atan2(ew.imag(z), ew.real(z))
    return ew.multiply(result, 180 / math.pi) if deg else result


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    """NaN as a number, infinities as the largest and smallest finite numbers unless others are given."""
    x = asarray(x)
    if not is_inexact(x.dtype):
        return ew.copy(x)
    if is_complex(x.dtype):
        real, imag = (nan_to_num(part, nan, posinf, neginf) for part in (ew.real(x), ew.imag(x)))
        return ew.add(real, ew.multiply(imag, 1j))
    limits = finfo(x.dtype)
    x = ew.where(ew.isnan(x), nan, x)
    x = ew.where(ew.equal(x, math.inf), limits.max if posinf is None else posinf, x)
    return ew.where(ew.equal(x, -math.inf), limits.min if neginf is None else neginf, x)


def nansum(x, axis=None, dtype=None, keepdims=False):
    """The sum of what is not NaN, over an axis, several axes or all."""
    x = asarray(x)
    return reductions.sum(ew.where(ew.isnan(x), False, x), axis, dtype, keepdims)


def nanmean(x, axis=None, keepdims=False):
    """The mean of what is not NaN, over an axis, several axes or all; NaN where nothing is left."""
    x = asarray(x)
    count = reductions.sum(ew.logical_not(ew.isnan(x)), axis, keepdims=keepdims)
    value = ew.divide(nansum(x, axis, keepdims=keepdims), count)
    return ew.astype(value, x.dtype) if is_inexact(x.dtype) else value


def _without_nan(extreme, identity):
    def function(x, axis=None, keepdims=False):
        x = asarray(x)
        if not is_inexact(x.dtype):
            return extreme(x, axis, keepdims)
        missing = ew.isnan(x)
        result = extreme(ew.where(missing, identity, x), axis, keepdims)
        return ew.where(reductions.all(missing, axis, keepdims), math.nan, result)

    return function


nanmax = _without_nan(reductions.max, -math.inf)
nanmin = _without_nan(reductions.min, math.inf)
nanmax.__name__ = nanmax.__qualname__ = "nanmax"
nanmin.__name__ = nanmin.__qualname__ = "nanmin"
nanmax.__doc__ = "The largest of what is not NaN, over an axis, several axes or all; NaN where nothing is left."
nanmin.__doc__ = "The smallest of what is not NaN, over an axis, several axes or all; NaN where nothing is left."


# NumPy's names with NumPy's defaults, for its protocols --------------------


def cumsum(x, axis=None, dtype=None):
    """The running sum along an axis, or of the elements in C order."""
    return _running(cumulative_sum, x, axis, dtype)


def cumprod(x, axis=None, dtype=None):
    """The running product along an axis, or of the elements in C order."""
    return _running(cumulative_prod, x, axis, dtype)


def _running(function, x, axis, dtype):
    x = asarray(x)
    return function(ravel(x), 0, dtype) if axis is None else function(x, axis, dtype)


def flipud(m):
    """The rows in reverse order."""
    return flip(m, 0)


def fliplr(m):
    """The columns in reverse order."""
    return flip(m, 1)
