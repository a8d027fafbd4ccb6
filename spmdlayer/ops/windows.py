"""Windows that slide over the last dimensions, and their adjoint, which adds overlapping windows up.

With d sliding dimensions, `windows` makes (..., *extents) into
(..., *window, *places): element k of the window at place i is element
i * stride + k * dilation.  It is a view; `fold` is its adjoint.
"""

from math import prod

import numpy

from ..dtypes import is_half
from ..errors import type_error, value_error
from .registry import define
from .rules import LINEAR, Rule, follow, moving, stated


def places(extents, window, stride, dilation):
    """At how many places a window fits, along each sliding dimension."""
    return tuple((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(extents, window, stride, dilation))


def windows_of(np, x, window, stride, dilation):
    """The windows of a raw array, as a view of it."""
    lead, moving_strides = x.ndim - len(window), x.strides[x.ndim - len(window) :]
    shape = (*x.shape[:lead], *window, *places(x.shape[lead:], window, stride, dilation))
    strides = (
        *x.strides[:lead],
        *(step * d for step, d in zip(moving_strides, dilation)),
        *(step * s for step, s in zip(moving_strides, stride)),
    )
    # The view must not reach beyond the array, which NumPy checks only where the result is empty.
    if prod(shape) == 0:
        return np.empty(shape, x.dtype)
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def add_windows(out, pieces, window, stride, dilation):
    """Add windows (..., *window, *places) to the array that they are windows of."""
    counts = pieces.shape[pieces.ndim - len(window) :]
    for k in numpy.ndindex(*window):
        spans = tuple(slice(j * d, j * d + s * (n - 1) + 1, s) for j, d, s, n in zip(k, dilation, stride, counts))
        out[(..., *spans)] += pieces[(..., *k, *(slice(None),) * len(window))]


def _fold_forward(np, pieces, extents, stride, dilation):
    count = len(extents)
    lead, window = pieces.shape[: pieces.ndim - 2 * count], pieces.shape[pieces.ndim - 2 * count : pieces.ndim - count]
    out = np.zeros((*lead, *extents), np.float32 if is_half(pieces.dtype) else pieces.dtype)
    if pieces.size:
        add_windows(out, pieces, window, stride, dilation)
    return out.astype(pieces.dtype, copy=False)


def lead_dims(ndim, sliding):
    """For a rule: the leading dims stay, the sliding ones must be whole."""
    return [*range(ndim - sliding), *(None,) * sliding]


@stated("sliding dims must be whole, leading ones stay sharded", "gathers sliding dims")
def _windows_rule(call):
    shape, window = call.shapes[0], call.params["window"]
    lead = shape[: len(shape) - len(window)]
    count = places(shape[len(lead) :], window, call.params["stride"], call.params["dilation"])
    dims = lead_dims(len(shape), len(window))
    source, target = follow(call, dims, (*lead, *window, *count), moving(call.dtypes[0]))
    return Rule((source,), target)


@stated("sliding dims must be whole, leading ones stay sharded", "gathers sliding dims")
def _fold_rule(call):
    shape, extents = call.shapes[0], call.params["extents"]
    dims = lead_dims(len(shape), 2 * len(extents))
    source, target = follow(call, dims, (*shape[: len(shape) - 2 * len(extents)], *extents), LINEAR)
    return Rule((source,), target)


def _windows_vjp(g, p, xp):
    extents = p.shapes[0][len(p.shapes[0]) - len(p.window) :]
    return xp.fold(g, extents=extents, stride=p.stride, dilation=p.dilation)


def _fold_vjp(g, p, xp):
    count = len(p.extents)
    window = p.shapes[0][len(p.shapes[0]) - 2 * count : len(p.shapes[0]) - count]
    return xp.windows(g, window=window, stride=p.stride, dilation=p.dilation)


define("windows", windows_of, (_windows_vjp,), rule=_windows_rule)
define("fold", _fold_forward, (_fold_vjp,), rule=_fold_rule)


# What users give -----------------------------------------------------------


def per_dimension(name, argument, value, count, least=1):
    """An int for all sliding dimensions, or one for each, as a tuple."""
    given = value if isinstance(value, (tuple, list)) else (value,) * count
    try:
        numbers = tuple(item.__index__() for item in given)
    except AttributeError:
        raise type_error(f"{name}: {argument} must be an int or {count} ints, {value!r} was given") from None
    if len(numbers) != count or min(numbers, default=least) < least:
        raise value_error(f"{name}: {argument} must be {count} ints of at least {least} (or one), {value!r} was given")
    return numbers


def paddings(name, value, extents, window, stride, dilation):
    """Padding as a pair (before, after) for each sliding dimension.

    Given as an int, an int or pair for each dimension, "valid" (none), or
    "same": as many places as ceil(extent / stride), the odd element after.
    """
    if value == "valid":
        return ((0, 0),) * len(extents)
    if value == "same":
        totals = [
            max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0) for n, k, s, d in zip(extents, window, stride, dilation)
        ]
        return tuple((total // 2, total - total // 2) for total in totals)
    given = value if isinstance(value, (tuple, list)) else (value,) * len(extents)
    pairs = [item if isinstance(item, (tuple, list)) else (item, item) for item in given]
    if isinstance(value, str) or len(pairs) != len(extents):
        raise value_error(
            f"{name}: padding must be an int, {len(extents)} ints or pairs, 'same' or 'valid'; {value!r} was given"
        )
    return tuple(per_dimension(name, "padding", tuple(pair), 2, least=0) for pair in pairs)


def check_fit(name, shape, extents, window, dilation):
    """Raise unless the window fits in the padded extents of a tensor."""
    for n, k, d in zip(extents, window, dilation):
        if d * (k - 1) + 1 > n:
            raise value_error(
                f"{name}: a window of {k} elements with dilation {d} does not fit in {n} elements, padding "
                f"included; the tensor has shape {shape}"
            )
