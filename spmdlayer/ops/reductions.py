"""Reductions: sum, mean, max, min, prod, any, all, var, std.

The public functions bring `axis` to a sorted tuple of axes of the *global*
shape; counts come from the global shape too, so that means over uneven
shards are right.  Half precision is accumulated in float32.
"""

import builtins
import math
from functools import partial

import numpy as np

from ..autograd.tensor import asarray
from ..dtypes import dtype as as_dtype
from ..dtypes import highest, is_complex, is_half, is_inexact, lowest
from ..errors import axis_error, type_error, value_error
from . import elementwise as ew
from .complaints import shown
from .registry import apply, define, unbroadcast
from .registry import conj as conjugate
from .rules import (
    extreme_rule,
    reduction_rule,
)

_FLOAT32 = np.dtype(np.float32)


def normalise_axis(name, axis, ndim, of=None):
    """One axis as an int from 0 to ndim - 1; `of` is the tensor that an error shows."""
    try:
        index = axis.__index__()
    except AttributeError:
        raise type_error(f"{name}: axis must be an int, {axis!r} was given") from None
    if not -ndim <= index < ndim:
        right = f"{-ndim} to {ndim - 1} is right" if ndim else "a 0-d tensor has none"
        whose = "" if of is None else f", the tensor has shape {shown(of)}"
        raise axis_error(f"{name}: axis {index} was given for {ndim} dimensions; {right}{whose}")
    return index % ndim


def normalise_axes(name, axis, ndim, of=None):
    """None, an int or a tuple of ints as a sorted tuple of axes; `of` as for `normalise_axis`."""
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(sorted(normalise_axis(name, item, ndim, of) for item in given))
    if len(set(axes)) != len(axes):
        raise value_error(f"{name}: axis {axis!r} names a dimension twice")
    return axes


def count_along(shape, axes):
    """The number of elements that a reduction over these axes takes together."""
    return math.prod(shape[axis] for axis in axes)


def _keep(value, p, xp):
    """A result or its cotangent with the reduced axes as extent 1."""
    return value if p.keepdims or not p.axis else xp.expand_dims(value, axis=p.axis)


def _restore(grad, p, xp):
    """A cotangent in the dtype of the input."""
    return unbroadcast(xp, grad, grad.shape, p.dtypes[0])


# Sum and mean ------------------------------------------------------------


def _accumulated(function, x, dtype, **options):
    """A reduction (a method of x), with half precision accumulated in float32."""
    result = x.dtype if dtype is None else dtype
    if is_half(result):
        return function(dtype=_FLOAT32, **options).astype(result)
    return function(dtype=dtype, **options)


def _sum_forward(np, x, axis=None, keepdims=False, dtype=None):
    return _accumulated(x.sum, x, dtype, axis=axis, keepdims=keepdims)


def _sum_vjp(g, p, xp):
    return _restore(xp.broadcast_to(_keep(g, p, xp), p.shapes[0]), p, xp)


_sum = define("sum", _sum_forward, (_sum_vjp,), rule=reduction_rule("sum", ("sum", "avg")))


def _reduction_params(name, x, axis, keepdims, dtype=None):
    params = {"axis": normalise_axes(name, axis, x.ndim, x), "keepdims": bool(keepdims)}
    if dtype is not None:
        params["dtype"] = as_dtype(dtype)
    return params


def sum(x, axis=None, dtype=None, keepdims=False):
    """The sum of elements over an axis, several axes (tuple) or all (None).

    dtype: what to sum in and return; by default as NumPy (small integers and
    bool in int64).  float16 and bfloat16 are accumulated in float32.
    Over a sharded axis the result is Partial(sum); nothing communicates.
    """
    x = asarray(x)
    return apply(_sum, (x,), _reduction_params("sum", x, axis, keepdims, dtype))


def direct_reduction(ufunc):
    """For `Op.direct`: the ufunc's own reduction, of floating pieces that need no care."""

    def direct(arrays, params):
        (x,) = arrays
        if x.dtype.kind not in "fc" or is_half(x.dtype) or 0 in x.shape or "dtype" in params:
            return None
        return partial(ufunc.reduce, axis=params["axis"], keepdims=params["keepdims"])

    return direct


_sum.public = sum
_sum.direct = direct_reduction(np.add)


def mean(x, axis=None, dtype=None, keepdims=False):
    """The mean over an axis, several axes or all: the sum over the global count of elements.

    Integers and bool in float64, as NumPy.
    """
    x = asarray(x)
    axes = normalise_axes("mean", axis, x.ndim, x)
    given = x.dtype if dtype is None else as_dtype(dtype)
    result = given if is_inexact(given) else np.dtype(np.float64)
    wide = _FLOAT32 if is_half(result) else result
    value = ew.divide(sum(x, axes, None if wide == x.dtype else wide, keepdims), count_along(x.shape, axes))
    return value if wide == result else ew.astype(value, result)


def var(x, axis=None, dtype=None, keepdims=False, correction=0):
    """The variance over an axis, several axes or all: sum |x - mean|^2 / (count - correction)."""
    x = asarray(x)
    axes = normalise_axes("var", axis, x.ndim, x)
    if not isinstance(correction, (int, float, np.integer, np.floating)):
        raise type_error(f"var: correction must be a number, {correction!r} was given")
    half = is_half(x.dtype) if dtype is None else is_half(as_dtype(dtype))
    wide = _FLOAT32 if half else dtype
    deviation = ew.subtract(x, mean(x, axes, wide, keepdims=True))
    if is_complex(deviation.dtype):
        squares = ew.real(ew.multiply(deviation, ew.conj(deviation)))
    else:
        squares = ew.square(deviation)
    # With nothing left to divide by the result is nan, as NumPy's.
    degrees = builtins.max(count_along(x.shape, axes) - correction, 0)
    value = ew.divide(sum(squares, axes, None, keepdims), degrees)
    return ew.astype(value, x.dtype if dtype is None else dtype) if half else value


def std(x, axis=None, dtype=None, keepdims=False, correction=0):
    """The standard deviation over an axis, several axes or all: the square root of `var`."""
    return ew.sqrt(var(x, axis, dtype, keepdims, correction))


# Max and min -------------------------------------------------------------


def _extreme_forward(name, identity):
    def forward(np, x, axis=None, keepdims=False):
        # A rank's piece may be empty where the global array is not.
        empty = 0 in (x.shape if axis is None else [x.shape[index] for index in axis])
        options = {"initial": identity(x.dtype)} if empty else {}
        return getattr(x, name)(axis=axis, keepdims=keepdims, **options)

    return forward


def _extreme_vjp(g, a, y, p, xp):
    """Ties share equally; where the result is NaN, the NaNs do."""
    mask = ew.attains(a, _keep(y, p, xp))
    count = xp.maximum(xp.sum(mask, axis=p.axis, keepdims=True), 1)  # a rank's piece may be empty
    share = xp.astype(_keep(g, p, xp) / count, g.dtype)
    return xp.where(mask, share, 0)


_max = define("max", _extreme_forward("max", lowest), (_extreme_vjp,), rule=extreme_rule("max"))
_min = define("min", _extreme_forward("min", highest), (_extreme_vjp,), rule=extreme_rule("min"))
_max.direct, _min.direct = direct_reduction(np.maximum), direct_reduction(np.minimum)


def _extreme(op, x, axis, keepdims):
    x = asarray(x)
    params = _reduction_params(op.name, x, axis, keepdims)
    if 0 in x.shape and count_along(x.shape, params["axis"]) == 0:
        raise value_error(f"{op.name}: no elements to compare, the tensor has shape {shown(x)} and axis is {axis}")
    return apply(op, (x,), params)


def max(x, axis=None, keepdims=False):
    """The largest element over an axis, several axes or all; NaN if there is one.

    Elements that tie share the gradient equally.  Over a sharded axis the
    result is Partial(max).
    """
    return _extreme(_max, x, axis, keepdims)


def min(x, axis=None, keepdims=False):
    """The smallest element over an axis, several axes or all; NaN if there is one.

    Elements that tie share the gradient equally.  Over a sharded axis the
    result is Partial(min).
    """
    return _extreme(_min, x, axis, keepdims)


_max.public = max
_min.public = min


# Product -----------------------------------------------------------------


def _prod_forward(np, x, axis=None, keepdims=False, dtype=None):
    return _accumulated(x.prod, x, dtype, axis=axis, keepdims=keepdims)


def _prod_last(a, g, xp):
    """The vjp of the product over the last axis, g with extent 1 there.

    A tree of products of two: only multiplications, so it is exact where
    factors are 0, and so are its own derivatives.
    """
    if a.shape[-1] < 2:
        # Without other factors the gradient is g.  It counts as depending on a all the same: a rank with a
        # shorter piece must record what the others record.
        return xp.where(True, g, a)
    pairs = []
    while a.shape[-1] > 1:
        half = a.shape[-1] // 2
        left, right, rest = a[..., :half], a[..., half : 2 * half], a[..., 2 * half :]
        pairs.append((left, right))
        product = left * right
        a = xp.concat([product, rest], axis=-1) if rest.shape[-1] else product
    for left, right in reversed(pairs):
        half = left.shape[-1]
        top = g[..., :half]
        g = xp.concat([top * conjugate(right), top * conjugate(left), g[..., half:]], axis=-1)
    return g


def _prod_vjp(g, a, p, xp):
    shape, axes = p.shapes[0], p.axis
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    order = kept + tuple(axes)
    rows = tuple(shape[axis] for axis in kept)
    moved = xp.permute_dims(xp.astype(a, g.dtype), order)
    grad = _prod_last(xp.reshape(moved, (*rows, count_along(shape, axes))), xp.reshape(g, (*rows, 1)), xp)
    grad = xp.reshape(grad, tuple(shape[axis] for axis in order))
    return _restore(xp.permute_dims(grad, tuple(int(axis) for axis in np.argsort(order))), p, xp)


_prod = define("prod", _prod_forward, (_prod_vjp,), rule=reduction_rule("prod", ("prod",)))


def prod(x, axis=None, dtype=None, keepdims=False):
    """The product over an axis, several axes or all; its gradient is exact where factors are 0.

    dtype as for `sum`.  Over a sharded axis the result is Partial(prod).
    """
    x = asarray(x)
    return apply(_prod, (x,), _reduction_params("prod", x, axis, keepdims, dtype))


_prod.public = prod


# Logic: no gradients -----------------------------------------------------


def _along(name):
    """NumPy's function of this name, over an axis."""
    return lambda np, x, axis=None, keepdims=False: getattr(np, name)(x, axis=axis, keepdims=keepdims)


_any = define("any", _along("any"), rule=reduction_rule("any", ("any",)))
_all = define("all", _along("all"), rule=reduction_rule("all", ("all",)))


def any(x, axis=None, keepdims=False):
    """Whether an element is true, over an axis, several axes or all; bool."""
    x = asarray(x)
    return apply(_any, (x,), _reduction_params("any", x, axis, keepdims))


def all(x, axis=None, keepdims=False):
    """Whether all elements are true, over an axis, several axes or all; bool."""
    x = asarray(x)
    return apply(_all, (x,), _reduction_params("all", x, axis, keepdims))


_any.public, _all.public = any, all
