"""Values by table: one_hot, select, interp; and trapezoid, the integral of a table."""

import numpy

from ..autograd.tensor import asarray
from ..dtypes import dtype as as_dtype
from ..dtypes import is_complex
from ..errors import type_error, value_error
from . import elementwise as ew
from .padding import pad
from .reductions import normalise_axis
from .reductions import sum as sum_
from .searching import searchsorted
from .shape import operand, partners, reshape, with_dimension


def one_hot(ids, num_classes, dtype="float64"):
    """1 where the class is the id, else 0.

    ids : integers of any shape; an id outside of 0 to num_classes - 1 gives zeros
    num_classes : int, the extent of the new last dimension

    Returns a tensor of shape (*ids.shape, num_classes), placed as ids.
    """
    ids = operand(ids)
    if ids.dtype.kind not in "iu":
        raise type_error(f"one_hot: ids must be integers, {ids.dtype.name} was given")
    if not isinstance(num_classes, (int, numpy.integer)) or num_classes < 0:
        raise value_error(f"one_hot: num_classes must be an int of at least 0, {num_classes!r} was given")
    return ew.astype(ew.equal(with_dimension(ids, ids.ndim), numpy.arange(num_classes)), as_dtype(dtype))


def select(condlist, choicelist, default=0):
    """Where the first of several conditions holds, the choice beside it, elementwise, as numpy.select.

    condlist, choicelist : as many bool tensors as choices; all broadcast
    default : where no condition holds
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        raise value_error(f"select: {len(condlist)} conditions and {len(choicelist)} choices; as many are needed")
    for position, condition in enumerate(condlist):
        if operand(condition).dtype.kind != "b":
            raise type_error(f"select: condition {position} is {operand(condition).dtype.name}, bool is needed")
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        result = ew.where(condition, choice, result)
    return result


# Interpolation -------------------------------------------------------------


def interp(x, xp, fp, left=None, right=None):
    """Linear interpolation between points, as numpy.interp, differentiable in x, xp and fp.

    Parameters
    ----------
    x : real tensor of any shape
    xp : points of shape (n,), increasing; they are not checked
    fp : values at the points, of shape (n,), real or complex
    left, right : number or tensor for x below xp[0] and above xp[-1]; by default fp[0] and fp[-1]

    The result is placed as x, for which points that are sharded are gathered.
    """
    x, xp, fp = partners(x, xp, fp)
    for what, array in (("x", x), ("xp", xp)):
        if is_complex(array.dtype):
            raise type_error(f"interp: {what} is {array.dtype.name}, real numbers are needed")
    if xp.ndim != 1 or xp.shape != fp.shape or xp.shape[0] == 0:
        raise value_error(f"interp: xp and fp must be points (n,) and their values; shapes {xp.shape} and {fp.shape}")
    first, last = fp[0], fp[-1]
    y = _between(x, xp, fp) if xp.shape[0] > 1 else ew.where(ew.isnan(x), x, first)
    y = ew.where(ew.less(x, xp[0]), first if left is None else left, y)
    return ew.where(ew.greater(x, xp[-1]), last if right is None else right, y)


def _between(x, points, values):
    """Along the line through the ends of the interval that x lies in."""
    number = ew.clip(ew.subtract(searchsorted(points, x, side="right"), 1), 0, points.shape[0] - 2)
    after = ew.add(number, 1)
    x0, f0, x1, f1 = points[number], values[number], points[after], values[after]
    return ew.add(f0, ew.multiply(ew.subtract(x, x0), ew.divide(ew.subtract(f1, f0), ew.subtract(x1, x0))))


# Integration ---------------------------------------------------------------


def trapezoid(y, x=None, dx=1.0, axis=-1):
    """The integral along an axis by the trapezoidal rule, as numpy.trapezoid, differentiable in y and x.

    Parameters
    ----------
    y : tensor
    x : places of the samples, of shape (y.shape[axis],) or that of y; None: they are dx apart
    dx : number

    Along a sharded axis the result is Partial(sum); where x is None or not distributed, nothing communicates.
    """
    y, x = (asarray(y), None) if x is None else partners(y, x)
    axis = normalise_axis("trapezoid", axis, y.ndim)
    extent = y.shape[axis]
    behind = (1,) * (y.ndim - 1 - axis)
    if x is None:
        weights = numpy.ones(extent)
        weights[[0, -1] if extent > 1 else slice(None)] = 0.5 if extent > 1 else 0.0
        precision = numpy.empty(0, y.dtype).real.dtype if y.dtype.kind in "fcV" else numpy.float64
        weights = (weights * dx).astype(precision).reshape(extent, *behind)
        return sum_(ew.multiply(y, weights), axis)
    if x.shape not in ((extent,), y.shape):
        raise value_error(f"trapezoid: x of shape {x.shape} must have shape {(extent,)} or that of y, {y.shape}")
    weights = _weights(x, 0 if x.ndim == 1 else axis)
    return sum_(ew.multiply(y, reshape(weights, (extent, *behind)) if x.ndim == 1 else weights), axis)


def _weights(x, axis):
    """Half the distance between the neighbours on both sides; at the ends, to the only one."""
    if x.shape[axis] < 2:
        return ew.multiply(x, 0)
    lead = (slice(None),) * axis
    ahead, behind = x[(*lead, slice(1, None))], x[(*lead, slice(None, -1))]
    gaps = pad(ew.divide(ew.subtract(ahead, behind), 2), _at(x.ndim, axis, (1, 1)))
    return ew.add(gaps[(*lead, slice(1, None))], gaps[(*lead, slice(None, -1))])


def _at(ndim, axis, pair):
    return tuple(pair if dim == axis else (0, 0) for dim in range(ndim))
