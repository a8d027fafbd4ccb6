"""bincount and histogram.

Every rank counts what it has; the counts are Partial("sum").  Sums of weights
are differentiable in the weights.
"""

import numpy as np

from ..autograd.tensor import asarray, wrap
from ..dtypes import is_inexact
from ..errors import type_error, value_error
from ..placement import Partial
from ..redistribute.crossing import make_spec
from . import elementwise as ew
from . import reductions
from .along import spread_along
from .complaints import shown
from .reductions import sum as sum_
from .registry import apply, define
from .rules import REPLICATE, Rule, replicated_layout, stated
from .searching import is_outside, searchsorted, value_everywhere
from .shape import ravel


@stated("every rank counts what it has: Partial('sum')", "nothing")
def _rule(call):
    layout = call.layouts[0]
    pairs = [(p, Partial("sum")) if p.kind == "shard" else (REPLICATE, REPLICATE) for p in layout.placements]
    source, target = map(tuple, zip(*pairs))
    result = replicated_layout(call.mesh_shape, (call.params["length"],)).with_placements(target)
    return Rule((layout.with_placements(source),), result)


def _forward(np, x, length):
    """The number of elements equal to 0, 1, ... length - 1, in an array of any shape; larger ones are left out."""
    return np.bincount(x.reshape(-1), minlength=length)[:length].astype(np.int64, copy=False)


_bincount = define("bincount", _forward, rule=_rule)


def _extremes(x):
    """The smallest and the largest element, on every rank."""
    return value_everywhere(reductions.min(x)), value_everywhere(reductions.max(x))


def bincount(x, weights=None, minlength=0):
    """How often 0, 1, 2, ... occur among the elements of x, or the sums of their weights.

    Parameters
    ----------
    x : 1-d, integers that are not negative
    weights : None, or of the shape of x; differentiable
    minlength : the result has at least so many elements

    Returns
    -------
    1-d: int64, or of the weights' dtype (float64 for integers).  For a
    sharded x Partial("sum"), once the largest element is agreed.
    """
    x = asarray(x)
    if x.ndim != 1:
        raise value_error(f"bincount: x must have 1 dimension, its shape is {shown(x)}")
    if x.dtype.kind not in "iu" and x.size and not is_outside(x):
        raise type_error(f"bincount: x must be integers, {x.dtype.name} was given")
    length = minlength
    if x.size:
        low, high = _extremes(x)
        if low.size and low < 0:
            raise value_error(f"bincount: x has the negative element {int(low)}")
        length = max(minlength, int(high) + 1) if high.size else minlength
    if weights is None:
        return apply(_bincount, (ew.astype(x, "int64"),), {"length": length})
    weights = asarray(weights)
    if weights.shape != x.shape:
        raise value_error(f"bincount: weights of shape {shown(weights)} for an x of shape {shown(x)}")
    if not is_inexact(weights.dtype):
        weights = ew.astype(weights, "float64")
    return spread_along(weights, ew.astype(x, "int64"), axis=0, extent=length)


_bincount.public = bincount


def histogram(x, bins=10, range=None, weights=None, density=False):
    """How many elements of x (any shape) lie in each bin, or the sums of their weights; and the edges of the bins.

    Parameters
    ----------
    bins : the number of equal bins, or their edges, ascending
    range : (low, high) for equal bins; None: from the smallest to the largest element
    weights : None, or of the shape of x; differentiable
    density : divide by the sum and the bins' widths

    Returns
    -------
    (hist, edges) : the bins include their left edge, the last one both.  hist
    is int64, or of the weights' dtype; for a sharded x Partial("sum"), once
    the range is agreed.
    """
    x = asarray(x)
    edges = _edges(x, bins, range)
    places = searchsorted(edges[1:-1], x, side="right")
    inside = ew.logical_and(x >= edges[0], x <= edges[-1])
    count = len(edges) - 1
    if weights is None:
        hist = apply(_bincount, (ew.where(inside, places, count),), {"length": count})
    else:
        weights = asarray(weights)
        if weights.shape != x.shape:
            raise value_error(f"histogram: weights of shape {shown(weights)} for an x of shape {shown(x)}")
        kept = ew.where(inside, weights, np.zeros((), weights.dtype))
        hist = spread_along(ravel(kept), ravel(places), axis=0, extent=count)
    if density:
        hist = ew.astype(hist, "float64") if not is_inexact(hist.dtype) else hist
        hist = hist / (np.diff(edges) * sum_(hist))
    if x._spec is None:
        return hist, wrap(edges, None, None)
    whole = replicated_layout(tuple(x._spec.mesh.shape), edges.shape)
    return hist, wrap(edges, None, make_spec(x._spec.mesh, whole))


def _edges(x, bins, range):
    """The edges of the bins, a raw array that is the same on all ranks."""
    if isinstance(bins, str):
        raise type_error(f"histogram: bins must be an int or edges, {bins!r} was given")
    extremes = np.zeros(0, x.dtype)
    number = np.ndim(bins) == 0
    if number:
        _bin_edges(extremes, bins, range)  # raises what is wrong before anything is communicated
    if number and range is None and x.size:
        extremes = np.array(_extremes(x)).reshape(-1)
    return _bin_edges(extremes, bins if number else value_everywhere(bins), range)


def _bin_edges(extremes, bins, range):
    try:
        return np.histogram_bin_edges(extremes, bins, range)
    except (ValueError, TypeError) as error:
        raise (value_error if isinstance(error, ValueError) else type_error)(f"histogram: {error}") from None
