"""Reductions of rows that belong together: segment_sum, segment_max, segment_min, segment_mean, and index_add.

Row e belongs to segment ids[e].  Where rows and ids are sharded each rank
reduces its own rows, and the result is Partial: nothing moves.
"""

from math import prod

import numpy

from ..autograd.tensor import Tensor
from ..dtypes import highest, is_complex, is_half, is_inexact, lowest
from ..errors import index_error, type_error, value_error
from ..placement import Partial, Shard
from . import elementwise as ew
from .complaints import shown
from .creation import ones_like
from .reductions import normalise_axis
from .registry import apply, define, namespace_of
from .rules import LINEAR, REPLICATE, Rule, kept_partials, layout_like, stated
from .shape import broadcast_to, moveaxis, partners, ravel, reshape

_FLOAT32 = numpy.dtype(numpy.float32)

# Forward and gradient -------------------------------------------------------


def _check_ids(np, ids, count):
    """Segments out of bounds, which NumPy would count from the end."""
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= count):
        wrong = ids[(ids < 0) | (ids >= count)][0]
        raise IndexError(f"segment {int(wrong)} is out of bounds for {count} segments")


def _sum_forward(np, x, ids, count):
    _check_ids(np, ids, count)
    out = np.zeros((count, *x.shape[1:]), _FLOAT32 if is_half(x.dtype) else x.dtype)
    np.add.at(out, ids, x)
    return out.astype(x.dtype, copy=False)


def _extreme_forward(function, identity):
    def forward(np, x, ids, count):
        _check_ids(np, ids, count)
        out = np.full((count, *x.shape[1:]), identity(x.dtype), x.dtype)
        getattr(np, function).at(out, ids, x)
        return out

    return forward


def _no_gradient(g):
    raise AssertionError("ids are integers")


def _extreme_vjp(g, a, b, y, p, xp):
    """As in `max`, rows that tie share the cotangent of their segment equally."""
    mask = ew.attains(a, y[b])
    count = xp.segment_sum(xp.astype(mask, numpy.int64), b, count=p.count)
    share = g / xp.astype(xp.maximum(count, 1), g.dtype)
    return xp.where(mask, share[b], 0)


def _attaining(arrays, result, params):
    """How many rows of this rank's piece attain the extreme of their segment."""
    x, ids = arrays
    xp = namespace_of(x)
    return xp.segment_sum(xp.astype(ew.attains(x, result[ids]), numpy.int64), ids, count=params["count"])


# Distributed rule ----------------------------------------------------------


def _segment_rule(kind):
    """Sharded rows are reduced where they are; other dims stay sharded; a sum keeps Partial sums."""

    @stated(f"rows are reduced where they are: Partial({kind!r}); other dims stay sharded", "nothing")
    def rule(call):
        layout = call.layouts[0]
        kept = kept_partials(layout.placements, LINEAR) if kind == "sum" and layout is not None else ()
        chosen = [_choice(call, axis, kind, axis in kept) for axis in call.axes]
        rows, ids, results = zip(*chosen)
        (shape, many), count = call.shapes, call.params["count"]
        every = list(range(len(shape)))
        source = layout_like(call.mesh_shape, rows, shape, [(layout, every), (call.layouts[1], [0])])
        beside = layout_like(call.mesh_shape, ids, many, [(source, [0, *(None,) * (len(shape) - 1)])])
        target = layout_like(call.mesh_shape, results, (count, *shape[1:]), [(source, [None, *every[1:]])])
        counted = kind != "sum" and any(p.kind == "partial" for p in results)
        return Rule((source, beside), target, attaining=_attaining if counted else False)

    return rule


def _choice(call, axis, kind, kept):
    """The placements of rows, ids and result along a mesh axis."""
    rows, ids = call.placement(0, axis), call.placement(1, axis)
    if rows.kind == "shard" and rows.dim > 0:
        return rows, REPLICATE, rows
    if kept:
        return rows, REPLICATE, rows
    if rows.kind == "shard" or (rows.kind == "replicate" and ids.kind == "shard"):
        cut = rows if rows.kind == "shard" else Shard(0, ids.block)
        return cut, cut, Partial(kind)
    return REPLICATE, REPLICATE, REPLICATE


_segment_sum = define("segment_sum", _sum_forward, (lambda g, b: g[b], _no_gradient), rule=_segment_rule("sum"))
_segment_max = define(
    "segment_max", _extreme_forward("maximum", lowest), (_extreme_vjp, _no_gradient), rule=_segment_rule("max")
)
_segment_min = define(
    "segment_min", _extreme_forward("minimum", highest), (_extreme_vjp, _no_gradient), rule=_segment_rule("min")
)


# Public --------------------------------------------------------------------


def _checked(name, x, ids, num_segments):
    x, ids = partners(x, ids)
    if ids.dtype.kind not in "iu":
        raise type_error(f"{name}: ids must be integers, {ids.dtype.name} was given")
    if x.ndim == 0 or ids.shape != x.shape[:1]:
        raise value_error(f"{name}: ids must have one entry for each row of x; shapes {ids.shape} and {x.shape}")
    if not isinstance(num_segments, (int, numpy.integer)) or num_segments < 0:
        raise value_error(f"{name}: num_segments must be an int of at least 0, {num_segments!r} was given")
    if isinstance(x, Tensor) and x._spec is not None:
        check_bounds(name, "segment", ids, 0, num_segments, f"{num_segments} segments")
    return x, ids, {"count": int(num_segments)}


def check_bounds(name, what, ids, low, high, of):
    """Raise on every rank for ids below low or not below high, where every rank has all ids.

    Else the rank that comes upon a wrong one raises, in the forward.
    """
    spec = ids._spec if isinstance(ids, Tensor) else None
    if spec is not None and (spec.layout is None or any(p.kind != "replicate" for p in spec.layout.placements)):
        return
    raw = ids._data if isinstance(ids, Tensor) else ids
    wrong = raw[(raw < low) | (raw >= high)]
    if wrong.size:
        raise index_error(f"{name}: {what} {int(wrong[0])} is out of bounds for {of}")


def segment_sum(x, ids, num_segments):
    """The sum of the rows of each segment.

    Parameters
    ----------
    x : shape (rows, ...)
    ids : integers of shape (rows,), the segment of each row, in any order
    num_segments : int, greater than every id

    Returns
    -------
    tensor of shape (num_segments, ...), zeros for a segment without rows; bool is summed in int64

    Raises
    ------
    IndexError for an id below 0 or not below num_segments; of sharded ids on the rank that holds it

    Sharded rows give Partial(sum); nothing communicates.
    """
    x, ids, params = _checked("segment_sum", x, ids, num_segments)
    return apply(_segment_sum, (ew.astype(x, numpy.int64) if x.dtype.kind == "b" else x, ids), params)


def _extreme(op, x, ids, num_segments):
    x, ids, params = _checked(op.name, x, ids, num_segments)
    if is_complex(x.dtype):
        raise type_error(f"{op.name}: complex numbers have no order; take real(x) or abs(x) first")
    return apply(op, (x, ids), params)


def segment_max(x, ids, num_segments):
    """The largest element of each segment, row by row; parameters as for `segment_sum`.

    -inf (or the least integer) for a segment without rows.  Rows that tie
    share the gradient equally.  Sharded rows give Partial(max).
    """
    return _extreme(_segment_max, x, ids, num_segments)


def segment_min(x, ids, num_segments):
    """The smallest element of each segment, row by row; parameters as for `segment_sum`.

    inf (or the greatest integer) for a segment without rows.  Rows that tie
    share the gradient equally.  Sharded rows give Partial(min).
    """
    return _extreme(_segment_min, x, ids, num_segments)


def segment_mean(x, ids, num_segments):
    """The mean of the rows of each segment, 0 for one without rows; parameters as for `segment_sum`."""
    x, ids, params = _checked("segment_mean", x, ids, num_segments)
    dtype = x.dtype if is_inexact(x.dtype) else numpy.dtype(numpy.float64)
    wide = _FLOAT32 if is_half(dtype) else dtype
    ones = ones_like(ids, dtype=numpy.empty(0, wide).real.dtype)
    counts = reshape(apply(_segment_sum, (ones, ids), params), (params["count"],) + (1,) * (x.ndim - 1))
    mean = ew.divide(apply(_segment_sum, (ew.astype(x, wide), ids), params), ew.maximum(counts, 1))
    return mean if wide == dtype else ew.astype(mean, dtype)


def index_add(x, index, value, axis=0):
    """x with values added at integer indices along an axis; what is named twice gets both.

    Parameters
    ----------
    x : tensor
    index : integers of any shape, negative ones count from the end
    value : broadcasts to x's shape with the shape of `index` in place of the axis, in a dtype that x's can hold
    axis : int

    Returns
    -------
    tensor of the shape and dtype of x, which stays as it is

    Sharded indices and values are added where they are; then the sum moves to where x is.
    """
    x, index, value = partners(x, index, value)
    axis = normalise_axis("index_add", axis, x.ndim, x)
    if index.dtype.kind not in "iu":
        raise type_error(f"index_add: index must be integers, {index.dtype.name} was given")
    if not numpy.can_cast(value.dtype, x.dtype, "same_kind"):
        raise type_error(f"index_add: {value.dtype.name} values were given for a tensor of {x.dtype.name}")
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    if value.ndim > len(shape) or any(n not in (1, m) for n, m in zip(value.shape[::-1], shape[::-1])):
        raise value_error(f"index_add: value of shape {value.shape} does not broadcast to {shape}")
    extent = x.shape[axis]
    check_bounds("index_add", "index", index, -extent, extent, f"axis {axis} of the shape {shown(x)}")
    ids = ravel(ew.where(ew.less(index, 0), ew.add(index, extent), index))
    rows = _rows(ew.astype(value, x.dtype), shape, axis, index.ndim)
    return ew.add(x, moveaxis(apply(_segment_sum, (rows, ids), {"count": extent}), 0, axis))


def _rows(value, shape, axis, ndim):
    """A value with the dims of the index first, joined to one."""
    value = moveaxis(broadcast_to(value, shape), tuple(range(axis, axis + ndim)), tuple(range(ndim)))
    return reshape(value, (prod(value.shape[:ndim]), *value.shape[ndim:]))
