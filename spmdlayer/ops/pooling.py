"""Pooling: maxima and means of windows that slide over the last dimensions."""

from math import prod

import numpy

from ..autograd.tensor import asarray
from ..dtypes import is_complex, is_half, is_inexact, lowest
from ..errors import type_error, value_error
from . import elementwise as ew
from .complaints import shown
from .padding import pad
from .registry import apply, define
from .rules import LINEAR, Rule, follow, stated
from .windows import check_fit, lead_dims, paddings, per_dimension, places, windows_of

_FLOAT32 = numpy.dtype(numpy.float32)

# The elements number k of all windows are one slice; all operations go k after k.


def _slices(np, x, window, stride, dilation):
    """For each element of a window, that element of all windows, as views of x."""
    pieces = windows_of(np, x, window, stride, dilation)
    lead = (slice(None),) * (x.ndim - len(window))
    return [pieces[(*lead, *k)] for k in numpy.ndindex(*window)]


def _rule(keeps=()):
    """The sliding dimensions of the first operand must be whole."""

    @stated("sliding dims must be whole, leading ones stay sharded", "gathers sliding dims")
    def rule(call):
        shape, window = call.shapes[0], call.params["window"]
        lead = shape[: len(shape) - len(window)]
        count = places(shape[len(lead) :], window, call.params["stride"], call.params["dilation"])
        source, target = follow(call, lead_dims(len(shape), len(window)), (*lead, *count), keeps)
        return Rule((source,), target)

    return rule


# Maxima --------------------------------------------------------------------


def _reduced(function, parts, start):
    """All parts by a function of two, in the buffer of the first result."""
    total = function(start, parts[0])
    for part in parts[1:]:
        function(total, part, out=total)
    return total


def _max_forward(np, x, window, stride, dilation):
    parts = _slices(np, x, window, stride, dilation)
    return _reduced(np.maximum, parts, parts[0])


def _attaining(np, x, y, **params):
    """Which elements attain the maximum of their window, slice after slice, and how many do."""
    nans = y != y
    some = bool(nans.any())
    masks = [(part == y) | (nans & (part != part)) if some else part == y for part in _slices(np, x, **params)]
    count = _reduced(np.add, masks, numpy.int32(0))
    return masks, count


def _shares_forward(np, g, x, y, **params):
    """The cotangent of the maxima, shared equally among the elements of a window that tie."""
    out = np.zeros(x.shape, _FLOAT32 if is_half(g.dtype) else g.dtype)
    masks, count = _attaining(np, x, y, **params)
    share = (g / count.astype(out.dtype)).astype(out.dtype)
    for target, mask in zip(_slices(np, out, **params), masks):
        target += np.where(mask, share, 0)
    return out.astype(g.dtype, copy=False)


def _means_forward(np, h, x, y, **params):
    """The mean, in each window, of the elements of h where x attains the maximum; the adjoint of the above."""
    masks, count = _attaining(np, x, y, **params)
    total = _reduced(np.add, [np.where(mask, part, 0) for part, mask in zip(_slices(np, h, **params), masks)], 0)
    return (total / count).astype(h.dtype)


def _sliding(p):
    return {"window": p.window, "stride": p.stride, "dilation": p.dilation}


def _zero(i):
    """Where a maximum is attained does not move."""
    return lambda g, p, bs, xp: xp.zeros_like(bs[i])


_max_pool = define(
    "window_max",
    _max_forward,
    (lambda g, a, y, p, xp: xp.window_max_shares(g, a, y, **_sliding(p)),),
    rule=_rule(),
)
define(
    "window_max_shares",
    _shares_forward,
    (lambda g, bs, p, xp: xp.window_max_means(g, *bs, **_sliding(p)), _zero(0), _zero(1)),
)
define(
    "window_max_means",
    _means_forward,
    (lambda g, bs, p, xp: xp.window_max_shares(g, *bs, **_sliding(p)), _zero(0), _zero(1)),
)


# Sums ----------------------------------------------------------------------


def _sum_forward(np, x, window, stride, dilation):
    wide = x.astype(_FLOAT32) if is_half(x.dtype) else x
    return _reduced(np.add, _slices(np, wide, window, stride, dilation), 0).astype(x.dtype, copy=False)


def _sum_vjp(g, p, xp):
    lead = g.ndim - len(p.window)
    apart = xp.expand_dims(g, axis=_window_axes(g.ndim, p.window))
    every = xp.broadcast_to(apart, (*g.shape[:lead], *p.window, *g.shape[lead:]))
    return xp.fold(every, extents=p.shapes[0][lead:], stride=p.stride, dilation=p.dilation)


def _window_axes(ndim, window):
    """Where the windows' dimensions are in what `windows` makes of a tensor of ndim dimensions."""
    return tuple(range(ndim - len(window), ndim))


_sum_pool = define("window_sum", _sum_forward, (_sum_vjp,), rule=_rule(LINEAR))


# Public --------------------------------------------------------------------


def _checked(name, x, window, stride, padding, dilation):
    """The tensor, and all arguments as tuples over the sliding dimensions."""
    x = asarray(x)
    sliding = len(window) if isinstance(window, (tuple, list)) else x.ndim - 2
    if not 1 <= sliding <= x.ndim:
        raise value_error(
            f"{name}: window {window!r} was given for a tensor of shape {shown(x)}; an int slides over all dimensions "
            "but the first two, of which there must be one; a tuple over the last ones"
        )
    window = per_dimension(name, "window", window, sliding)
    stride = window if stride is None else per_dimension(name, "stride", stride, sliding)
    dilation = per_dimension(name, "dilation", dilation, sliding)
    extents = x.shape[x.ndim - sliding :]
    pairs = paddings(name, padding, extents, window, stride, dilation)
    if any(max(pair) > d * (k - 1) for pair, k, d in zip(pairs, window, dilation)):
        raise value_error(f"{name}: padding {padding!r} would make windows {window} of padding alone")
    padded = tuple(n + before + after for n, (before, after) in zip(extents, pairs))
    check_fit(name, x.shape, padded, window, dilation)
    return x, pairs, {"window": window, "stride": stride, "dilation": dilation}


def _around(x, pairs, value):
    """The tensor with padding around its last dimensions."""
    if not any(map(any, pairs)):
        return x
    return pad(x, ((0, 0),) * (x.ndim - len(pairs)) + pairs, constant_values=value)


def max_pool(x, window, stride=None, padding=0, dilation=1):
    """The largest element of each window.

    Parameters
    ----------
    x : shape (..., *extents), mostly (N, C, *extents)
    window : int, for all dimensions but the first two, or one for each of the last dimensions
    stride : int or one for each sliding dimension; by default the window
    padding : as for `conv`; what is added never is the largest
    dilation : int or one for each sliding dimension

    Returns
    -------
    tensor of shape (..., *places), see `conv`

    Elements of a window that tie share its gradient equally.  A sharded sliding dimension is gathered.
    """
    x, pairs, params = _checked("max_pool", x, window, stride, padding, dilation)
    if is_complex(x.dtype):
        raise type_error("max_pool: complex numbers have no largest one; take real(x) or abs(x) first")
    return apply(_max_pool, (_around(x, pairs, lowest(x.dtype)),), params)


def avg_pool(x, window, stride=None, padding=0, dilation=1, count_include_pad=True):
    """The mean of each window; parameters and result as for `max_pool`.

    Padding is zeros; without `count_include_pad` the mean is that of the elements of x alone.
    """
    x, pairs, params = _checked("avg_pool", x, window, stride, padding, dilation)
    if not is_inexact(x.dtype):
        x = ew.astype(x, "float64")
    counts = prod(params["window"])
    if not count_include_pad and any(map(any, pairs)):
        inside = numpy.pad(numpy.ones(x.shape[x.ndim - len(pairs) :]), pairs)
        counts = _sum_forward(numpy, inside, **params).astype(x.dtype)
    return ew.divide(apply(_sum_pool, (_around(x, pairs, 0),), params), counts)
