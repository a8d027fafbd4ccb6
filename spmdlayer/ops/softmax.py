"""softmax, log_softmax and logsumexp, shifted by the maximum so that nothing overflows."""

import numpy as np

from ..autograd.tensor import asarray
from ..dtypes import is_complex, is_half, is_inexact
from ..errors import type_error, value_error
from . import elementwise as ew
from . import reductions
from .complaints import shown
from .registry import apply, define
from .rules import whole_axis_rule
from .shape import squeeze

_FLOAT32 = np.dtype(np.float32)


def _working_dtype(dtype):
    """What is computed in: half precision in float32, integers in float64."""
    return _FLOAT32 if is_half(dtype) else _result_dtype(dtype)


def _result_dtype(dtype):
    return dtype if is_inexact(dtype) else np.dtype(np.float64)


def _cast(x, dtype):
    return x if x.dtype == dtype else ew.astype(x, dtype)


def _shifted(np, x, axis):
    """x less its largest element along the axis (what is -inf everywhere stays so)."""
    x = x.astype(_working_dtype(x.dtype), copy=False)
    largest = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return x - np.where(np.isinf(largest), 0, largest)


def _softmax_forward(np, x, axis=-1):
    powers = np.exp(_shifted(np, x, axis))
    powers /= np.sum(powers, axis=axis, keepdims=True)
    return powers.astype(_result_dtype(x.dtype), copy=False)


def _log_softmax_forward(np, x, axis=-1):
    shifted = _shifted(np, x, axis)
    shifted = shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))
    return shifted.astype(_result_dtype(x.dtype), copy=False)


_softmax = define(
    "softmax",
    _softmax_forward,
    (lambda g, y, p, xp: y * (g - xp.sum(g * y, axis=p.axis, keepdims=True)),),
    rule=whole_axis_rule,
)
_log_softmax = define(
    "log_softmax",
    _log_softmax_forward,
    (lambda g, y, p, xp: g - xp.exp(y) * xp.sum(g, axis=p.axis, keepdims=True),),
    rule=whole_axis_rule,
)


def _checked(name, x, axis):
    x = asarray(x)
    if is_complex(x.dtype):
        raise type_error(f"{name}: complex numbers have no largest one; take real(x) or abs(x) first")
    return x, reductions.normalise_axis(name, axis, x.ndim, x)


def _sharded(x, axis):
    """Whether ranks must exchange maxima and sums; of an empty line there are none."""
    return x.is_dist() and x.shape[axis] > 0 and any(placement.is_shard(axis) for placement in x.placements)


def softmax(x, axis=-1):
    """exp(x) / sum(exp(x)) along an axis.

    Along a sharded axis only the maxima and the sums are exchanged.
    """
    x, axis = _checked("softmax", x, axis)
    return ew.exp(log_softmax(x, axis)) if _sharded(x, axis) else apply(_softmax, (x,), {"axis": axis})


def log_softmax(x, axis=-1):
    """log(softmax(x)) along an axis, without its rounding.

    Along a sharded axis only the maxima and the sums are exchanged.
    """
    x, axis = _checked("log_softmax", x, axis)
    if _sharded(x, axis):
        wide = _cast(x, _working_dtype(x.dtype))
        return _cast(ew.subtract(wide, _logsumexp(wide, (axis,))), _result_dtype(x.dtype))
    return apply(_log_softmax, (x,), {"axis": axis})


_softmax.public, _log_softmax.public = softmax, log_softmax


def logsumexp(x, axis=None, keepdims=False):
    """log(sum(exp(x))) over an axis, several axes or all (None), without overflow."""
    x = asarray(x)
    if is_complex(x.dtype):
        raise type_error("logsumexp: complex numbers have no largest one; take real(x) or abs(x) first")
    axes = reductions.normalise_axes("logsumexp", axis, x.ndim, x)
    if reductions.count_along(x.shape, axes) == 0:
        raise value_error(f"logsumexp: no elements to add, the tensor has shape {shown(x)} and axis is {axis}")
    total = _cast(_logsumexp(_cast(x, _working_dtype(x.dtype)), axes), _result_dtype(x.dtype))
    return total if keepdims else squeeze(total, axes)


def _logsumexp(x, axes):
    """log(sum(exp(x))) with extent 1 along the axes."""
    largest = reductions.max(x, axes, keepdims=True).detach()
    shift = ew.where(ew.isinf(largest), 0, largest)
    return ew.add(ew.log(reductions.sum(ew.exp(ew.subtract(x, shift)), axes, keepdims=True)), shift)
