"""Norms of vectors and matrices, and condition numbers.

At zero the gradient of a norm that is a root of a sum is 0, one of its
subgradients, never NaN.
"""

import numpy as np

from ..autograd.tensor import asarray
from ..dtypes import is_complex, is_inexact
from ..errors import value_error
from ..ops import elementwise as ew
from ..ops import reductions
from ..ops.precision import computable, rounding
from ..ops.shape import expand_dims, moveaxis
from ..redistribute.reshard import reshard_to, without_partials
from .solving import inv
from .spectra import svdvals
from .stacks import check_stack


def _inexact(x):
    x = asarray(x)
    return x if is_inexact(x.dtype) else ew.astype(x, np.float64)


def _settled(x):
    """With Partial axes reduced once, where several operations follow."""
    return x if x._spec is None else reshard_to(x, without_partials(x._spec.layout))


def _root(total, power):
    """total ** (1 / power), with gradient 0 where it is 0."""
    total = _settled(total)
    if not total.requires_grad:
        return ew.sqrt(total) if power == 2 else ew.power(total, 1.0 / power)
    zero = ew.equal(total, 0)
    safe = ew.where(zero, 1, total)
    return ew.where(zero, 0, ew.sqrt(safe) if power == 2 else ew.power(safe, 1.0 / power))


def _squares(x):
    """|x|^2, smooth at zero."""
    return ew.add(ew.square(ew.real(x)), ew.square(ew.imag(x))) if is_complex(x.dtype) else ew.square(x)


def vector_norm(x, axis=None, keepdims=False, ord=2):
    """The norm of vectors along an axis, over several axes or over all elements (None).

    ord: 2; inf and -inf (the largest and smallest absolute value), 0 (the
    number of elements that are not 0), 1, or any number p: sum(|x|^p)^(1/p).
    Half precision is summed in float32.
    Distributed: along a sharded axis only sums (or extremes) are exchanged.
    """
    x = _inexact(x)
    back = rounding(x)
    x = computable(x)
    axes = reductions.normalise_axes("vector_norm", axis, x.ndim, x)
    return back(_vector_norm(x, axes, keepdims, ord))


def _vector_norm(x, axes, keepdims, ord):
    if not isinstance(ord, (int, float)) or isinstance(ord, bool):
        raise value_error(f"vector_norm: ord {ord!r} was given; a number, inf or -inf is right")
    if ord == 2:
        return _root(reductions.sum(_squares(x), axis=axes, keepdims=keepdims), 2)
    size = ew.abs(x)
    if ord in (np.inf, -np.inf):
        return (reductions.max if ord > 0 else reductions.min)(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return reductions.sum(ew.astype(ew.not_equal(x, 0), size.dtype), axis=axes, keepdims=keepdims)
    if ord == 1:
        return reductions.sum(size, axis=axes, keepdims=keepdims)
    return _root(reductions.sum(_powers(size, ord), axis=axes, keepdims=keepdims), ord)


def _powers(size, ord):
    """size ** ord, with gradient 0 where the size is 0."""
    if ord > 1:
        return ew.power(size, ord)
    zero = ew.equal(size, 0)
    return ew.where(zero, 0.0 if ord > 0 else np.inf, ew.power(ew.where(zero, 1, size), ord))


_SUMS = {1: (-2, reductions.max), -1: (-2, reductions.min), np.inf: (-1, reductions.max), -np.inf: (-1, reductions.min)}
_SPECTRAL = {2: reductions.max, -2: reductions.min, "nuc": reductions.sum}


def matrix_norm(x, keepdims=False, ord="fro"):
    """The norm of matrices (..., m, n): (...).

    ord: "fro" (root of the sum of squares), "nuc" (sum of the singular
    values), 2 and -2 (the largest and smallest singular value), 1 and -1 (the
    largest and smallest sum of absolute values of a column), inf and -inf (of a row).
    Distributed: leading dims may be sharded; "nuc", 2 and -2 gather the matrices.
    """
    x = _inexact(x)
    check_stack("matrix_norm", x)
    back = rounding(x)
    x = computable(x)
    axes = (x.ndim - 2, x.ndim - 1)
    if ord == "fro":
        result = _vector_norm(x, axes, keepdims, 2)
    elif ord in _SPECTRAL:
        result = _SPECTRAL[ord](svdvals(x), axis=-1)
        result = expand_dims(result, (-2, -1)) if keepdims else result
    elif ord in _SUMS:
        axis, extreme = _SUMS[ord]
        sums = _settled(reductions.sum(ew.abs(x), axis=axis, keepdims=True))
        result = extreme(sums, axis=axes, keepdims=keepdims)
    else:
        raise value_error(f"matrix_norm: ord {ord!r} was given; 'fro', 'nuc', 1, -1, 2, -2, inf and -inf are right")
    return back(result)


def norm(x, ord=None, axis=None, keepdims=False):
    """NumPy's norm: of matrices where two axes are meant, of vectors otherwise.

    Without `ord` that of all the elements along `axis` (int, pair, or None for
    all) as one vector; with it and without `axis` x has one or two dimensions.
    """
    x = _inexact(x)
    if ord is None:
        return vector_norm(x, axis, keepdims)
    if axis is None and x.ndim not in (1, 2):
        raise value_error(f"norm: ord {ord!r} of a tensor of shape {x.shape} needs an axis, or two")
    given = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(reductions.normalise_axis("norm", item, x.ndim, x) for item in given)
    if len(axes) == 1:
        return vector_norm(x, axes, keepdims, ord)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise value_error(f"norm: axis {axis!r} was given; an int or two different ones are right")
    result = matrix_norm(moveaxis(x, axes, (-2, -1)), False, ord)
    return expand_dims(result, tuple(sorted(axes))) if keepdims else result


def cond(x, p=None):
    """The condition numbers of matrices (..., m, n): (...).

    p: None and 2 (the largest over the smallest singular value), -2 (its
    inverse), or an `ord` of matrix_norm: |x| |x^-1|, for square matrices.
    """
    x = _inexact(x)
    check_stack("cond", x)
    back = rounding(x)
    x = computable(x)
    if p in (None, 2, -2):
        values = svdvals(x)
        largest, smallest = values[..., 0], values[..., -1]
        return back(ew.divide(smallest, largest) if p == -2 else ew.divide(largest, smallest))
    return back(ew.multiply(matrix_norm(x, ord=p), matrix_norm(inv(x), ord=p)))
