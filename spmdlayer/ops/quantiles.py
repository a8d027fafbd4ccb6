"""median, quantile and percentile: order statistics, read where they are.

The positions come from `ranked_positions`, which have no gradient; the values are
read with one, which goes to the elements that were chosen, to any order.
"""

import numpy as np

from ..autograd.tensor import Tensor, asarray
from ..dtypes import is_complex, is_half, is_inexact
from ..errors import type_error, value_error
from . import elementwise as ew
from .complaints import shown
from .reductions import count_along, normalise_axes
from .selecting import ranked_positions
from .shape import expand_dims, moveaxis, permute_dims, reshape
from .sorting import take_selected
from .taking import take


def _lines(name, x, axis):
    """x with the reduced axes as one at the end, in an inexact dtype; and the sorted tuple of these axes."""
    x = asarray(x)
    if is_complex(x.dtype):
        raise type_error(f"{name}: {x.dtype.name} was given; complex numbers have no order")
    axes = normalise_axes(name, axis, x.ndim, x)
    count = count_along(x.shape, axes)
    if not count:
        raise value_error(f"{name}: no elements to choose from, the tensor has shape {shown(x)} and axis is {axis}")
    kept = [dim for dim in range(x.ndim) if dim not in axes]
    x = permute_dims(x, (*kept, *axes)) if axes[:-1] or axes != (x.ndim - 1,) else x
    x = x if len(axes) == 1 else reshape(x, (*x.shape[: len(kept)], count))
    return (x if is_inexact(x.dtype) else ew.astype(x, "float64")), axes


def _chosen(x, ranks):
    """The elements with these ranks in each sorted line, along the last axis."""
    wanted, places = np.unique(np.asarray(ranks, np.int64), return_inverse=True)
    positions = ranked_positions(x, axis=x.ndim - 1, ranks=tuple(wanted.tolist()))
    values = take_selected(x, positions, x.ndim - 1)
    return values if places.tolist() == list(range(len(wanted))) else take(values, places, axis=-1)


def _finish(result, last, axes, keepdims):
    """NaN where the line has one; the reduced axes again, with extent 1.  The results are along the last axis."""
    result = ew.where(ew.isnan(last), ew.astype(last, result.dtype), result)
    result = moveaxis(result, -1, 0)
    return expand_dims(result, tuple(axis + 1 for axis in axes)) if keepdims and axes else result


def median(x, axis=None, keepdims=False):
    """The middle element over an axis, several axes or all; the mean of both middle ones of an even number.

    NaN where there is one.  The gradient goes to the middle elements, the
    first of equal ones.  Integers and bool in float64.  Along a sharded axis
    the few elements that may be in the middle are gathered.
    """
    x, axes = _lines("median", x, axis)
    count = x.shape[-1]
    values = _chosen(x, [(count - 1) // 2, count // 2, count - 1])
    low, high, last = (values[..., k : k + 1] for k in range(3))
    middle = low
    if count % 2 == 0:
        wide = "float32" if is_half(x.dtype) else x.dtype
        middle = ew.astype((ew.astype(low, wide) + ew.astype(high, wide)) / 2, x.dtype)
    return _finish(middle, last, axes, keepdims)[0]


def quantile(x, q, axis=None, keepdims=False):
    """The q-th quantile over an axis, several axes or all, linear between the two nearest elements.

    Parameters
    ----------
    q : number or array of numbers from 0 to 1, a constant

    Returns
    -------
    Tensor with the shape of q, and behind it that of x without the axes (1,
    with keepdims).  NaN, gradient and communication as for `median`.
    """
    return _quantile("quantile", x, q, 1, axis, keepdims)


def percentile(x, q, axis=None, keepdims=False):
    """The q-th percentile, q from 0 to 100: see `quantile`."""
    return _quantile("percentile", x, q, 100, axis, keepdims)


def _quantile(name, x, q, whole, axis, keepdims):
    x, axes = _lines(name, x, axis)
    number = isinstance(q, (int, float))
    q = np.asarray(q.numpy() if isinstance(q, Tensor) else q)
    if q.dtype.kind not in "biuf":
        raise type_error(f"{name}: q must be a number or an array of numbers, {q.dtype} was given")
    if not ((q >= 0) & (q <= whole)).all():
        raise value_error(f"{name}: q must be from 0 to {whole}, {q} was given")
    count = x.shape[-1]
    places = (q / whole).reshape(-1) * (count - 1)
    low = np.floor(places).astype(np.int64)
    values = _chosen(x, [*low, *np.minimum(low + 1, count - 1), count - 1])
    part = (places - low).astype(x.dtype if number else np.result_type(q, np.float64))
    m = len(low)
    result = _between(values[..., :m], values[..., m : 2 * m], part)
    result = _finish(result, values[..., 2 * m :], axes, keepdims)
    return reshape(result, (*q.shape, *result.shape[1:]))


def _between(low, high, part):
    """Linear from low to high; from the nearer end, so that it is exact at both."""
    step = high - low
    return ew.where(part < 0.5, low + step * part, high - step * (1 - part))
