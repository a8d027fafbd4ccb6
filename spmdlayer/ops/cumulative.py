"""Running sums and products along an axis, also where its pieces lie on several ranks.

Each rank accumulates what it has; the totals alone travel (`scans`).
"""

import numpy as np

from ..array import array_module
from ..autograd.tensor import asarray
from ..dtypes import dtype as as_dtype
from ..dtypes import is_half
from ..errors import value_error
from .reductions import normalise_axis
from .registry import apply, conj, define, unbroadcast
from .rules import linear_cast
from .scans import Scan, scan_rule
from .shape import concat

# Sum and product -----------------------------------------------------------


def _accumulate(name, x, axis, dtype, reverse):
    """NumPy's running sum or product, maybe from the end."""
    if not reverse:
        return getattr(x, name)(axis=axis, dtype=dtype)
    np = array_module(x)
    return np.flip(getattr(np.flip(x, axis), name)(axis=axis, dtype=dtype), axis)


def _dtypes(given, dtype):
    """The dtype to accumulate in, and that of the result; None for NumPy's choice."""
    result = given if dtype is None else dtype
    return (np.dtype(np.float32), result) if is_half(result) else (dtype, None)


def _cast(array, dtype):
    return array if dtype is None else array.astype(dtype)


def _forward(name):
    def forward(np, x, axis=0, dtype=None, reverse=False):
        wide, result = _dtypes(x.dtype, dtype)
        return _cast(_accumulate(name, x, axis, wide, reverse), result)

    return forward


def _scan(name, ufunc, identity):
    """How pieces are accumulated one after the other: see `Scan`."""

    def of(dtypes, axis, dtype=None, reverse=False):
        wide, result = _dtypes(dtypes[0], dtype)
        return Scan(
            lambda x: (_accumulate(name, x, axis, wide, reverse),),
            lambda run, carry: ufunc(run[0], carry),
            (identity,),
            lambda array: _cast(array, result),
        )

    return of


def _sum_vjp(g, p, xp):
    sums = xp.cumulative_sum(g, axis=p.axis, reverse=not p.get("reverse", False))
    return unbroadcast(xp, sums, p.shapes[0], p.dtypes[0])


def _sum_keeps(call):
    return linear_cast(call.dtypes[0], call.params.get("dtype", call.dtypes[0]))


_cumulative_sum = define(
    "cumulative_sum", _forward("cumsum"), (_sum_vjp,), rule=scan_rule(_scan("cumsum", np.add, 0), _sum_keeps)
)


def _shifted(xp, x, axis, steps, like):
    """x moved by one place along an axis, forwards or backwards; zeros or ones ("zeros_like", "ones_like") come in."""
    before = (slice(None),) * axis
    edge = getattr(xp, like)(x[(*before, slice(0, 1))], dtype=None)
    if steps > 0:
        return xp.concat([edge, x[(*before, slice(0, -1))]], axis=axis)
    return xp.concat([x[(*before, slice(1, None))], edge], axis=axis)


def _prod_vjp(g, a, p, xp):
    """Only products and sums, so that it is exact where factors are 0: the product of those before times a recurrence.

    With y_k = y_(k-1) a_k the gradient is conj(y_(k-1)) r_k, where r_k = g_k + conj(a_(k+1)) r_(k+1).
    """
    if not p.shapes[0][p.axis]:
        return unbroadcast(xp, g, p.shapes[0], p.dtypes[0])
    a = xp.astype(a, g.dtype)
    before = _shifted(xp, xp.cumulative_prod(a, axis=p.axis), p.axis, 1, "ones_like")
    behind = xp.recurrence(_shifted(xp, conj(a), p.axis, -1, "ones_like"), g, axis=p.axis, reverse=True)
    return unbroadcast(xp, behind * conj(before), p.shapes[0], p.dtypes[0])


_cumulative_prod = define(
    "cumulative_prod", _forward("cumprod"), (_prod_vjp,), rule=scan_rule(_scan("cumprod", np.multiply, 1))
)


# Recurrence ----------------------------------------------------------------


def _solved(a, b, axis):
    """(products of the a, h) of h_k = a_k h_(k-1) + b_k: twice as many places with each step."""
    a, b = (array_module(x).moveaxis(x, axis, 0).copy() for x in (a, b))
    step = 1
    while step < len(b):
        b[step:] += a[step:] * b[:-step]
        a[step:] = a[step:] * a[:-step]
        step *= 2
    return tuple(array_module(x).moveaxis(x, 0, axis) for x in (a, b))


def _recurrence_of(dtypes, axis, reverse=False):
    result = np.result_type(*dtypes)
    wide = np.dtype(np.float32) if is_half(result) else result

    def run(a, b):
        np = array_module(b)
        a, b = a.astype(wide, copy=False), b.astype(wide, copy=False)
        if not reverse:
            return _solved(a, b, axis)
        return tuple(np.flip(x, axis) for x in _solved(np.flip(a, axis), np.flip(b, axis), axis))

    return Scan(run, lambda run, carry: run[1] + run[0] * carry, (1, 0), lambda array: array.astype(result, copy=False))


def _recurrence(np, a, b, axis, reverse=False):
    scan = _recurrence_of((a.dtype, b.dtype), axis, reverse)
    return scan.finish(scan.run(a, b)[1])


def _behind(g, a, p, xp):
    """The gradient of b: the same recurrence from the other end."""
    steps, reverse = (1, False) if p.reverse else (-1, True)
    factors = _shifted(xp, conj(a), p.axis, steps, "zeros_like")
    return xp.recurrence(factors, g, axis=p.axis, reverse=reverse)


def _factor_vjp(g, a, y, p, xp):
    before = _shifted(xp, y, p.axis, -1 if p.reverse else 1, "zeros_like")
    return unbroadcast(xp, _behind(g, a, p, xp) * conj(before), p.shapes[0], p.dtypes[0])


def _term_vjp(g, a, p, xp):
    return unbroadcast(xp, _behind(g, a, p, xp), p.shapes[1], p.dtypes[1])


# h_k = a_k h_(k-1) + b_k along an axis, from nothing; what the gradient of a running product needs.
define("recurrence", _recurrence, (_factor_vjp, _term_vjp), rule=scan_rule(_recurrence_of))


# Public functions ----------------------------------------------------------


def _cumulative(op, x, axis, dtype, include_initial, initial):
    x = asarray(x)
    if axis is None and x.ndim != 1:
        raise value_error(f"{op.name}: axis is needed for a tensor of {x.ndim} dimensions")
    params = {"axis": normalise_axis(op.name, 0 if axis is None else axis, x.ndim, x)}
    if dtype is not None:
        params["dtype"] = as_dtype(dtype)
    result = apply(op, (x,), params)
    if not include_initial:
        return result
    shape = (*x.shape[: params["axis"]], 1, *x.shape[params["axis"] + 1 :])
    return concat([initial(shape, result.dtype), result], axis=params["axis"])


def cumulative_sum(x, axis=None, dtype=None, include_initial=False):
    """The running sum along an axis, which a tensor of one dimension need not name; shape of x.

    Parameters
    ----------
    dtype : what to sum in and return, as for `sum`
    include_initial : begin with a 0, so that the result is longer by one

    Keeps x's placements; along a sharded axis one total a piece travels.
    """
    return _cumulative(_cumulative_sum, x, axis, dtype, include_initial, np.zeros)


def cumulative_prod(x, axis=None, dtype=None, include_initial=False):
    """The running product along an axis; its gradient is exact where factors are 0.

    Parameters
    ----------
    dtype : what to multiply in and return, as for `prod`
    include_initial : begin with a 1, so that the result is longer by one

    Keeps x's placements; along a sharded axis one total a piece travels.
    """
    return _cumulative(_cumulative_prod, x, axis, dtype, include_initial, np.ones)
