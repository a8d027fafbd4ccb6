"""Stencils: weighted sums of neighbours, or any function of a piece and its ghosts.

For x, weights w and y of x's shape, and X, which is x beyond its ends too,

    T(x, w, y) = sum over i and k of X[i + k - centre] w[k] y[i]

the operations `stencil`, `stencil_adjoint` and `stencil_weights` are its
derivatives with respect to y, x and w; whatever is differentiated, one of them
comes out.
"""

from functools import lru_cache, wraps

import numpy

from ..array import array_module, is_array
from ..autograd.tensor import Tensor, asarray
from ..boundary.local_map import local_map
from ..comm import channel
from ..errors import type_error, value_error
from ..ops.convolution import bilinear_vjps
from ..ops.ghosts import ghosts_of, inside_and_around, ranges_around, whole_layout
from ..ops.linear import widened
from ..ops.registry import apply, define
from ..ops.rules import Rule, replicated, replicated_layout, stated
from ..ops.shape import operand
from ..redistribute.reshard import reshard_to, without_partials
from .neighbours import check_boundary, check_width, in_slices, widths_of, with_ghosts
from .sums import neighbour_sums, spread_sums, weight_sums

# Forward -------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _ghosts(layout, window, boundary):
    """The Ghosts of a layout for weights of extents `window`, along its last dims."""
    widths = tuple((reach, reach) for reach in _reach(layout.ndim, window))
    return ghosts_of(layout, ranges_around(layout, widths), boundary)


def _reach(ndim, window):
    """How far weights of extents `window` see along each dim."""
    return (0,) * (ndim - len(window)) + tuple(extent // 2 for extent in window)


# Of this rank's pieces in a layout, collective over the mesh; without a mesh the arrays are not cut.


def _stencil(x, w, boundary, layout, mesh=None):
    ghosts = _ghosts(layout, w.shape, boundary)
    if mesh is not None and ghosts.overlaps(x):
        return _overlapped(x, w, ghosts, mesh)
    (extended, w), dtype = widened((ghosts.extend(x, mesh), w))
    result = neighbour_sums(extended, w)
    return result if dtype is None else result.astype(dtype)


def _overlapped(x, w, ghosts, mesh):
    """The sums that see this rank's elements alone while the ghosts travel, then those around them."""
    extended, finish = ghosts.begin(x, mesh)
    y = array_module(x).empty(x.shape, array_module(x).result_type(x, w))
    reach = _reach(x.ndim, w.shape)
    far = [(n, n) if dim in ghosts.exchanged else (0, 0) for dim, n in enumerate(reach)]

    def add_up(part):
        seen = tuple(slice(side.start, side.stop + 2 * n) for side, n in zip(part, reach))
        neighbour_sums(extended[seen], w, out=y[part])

    inside, *slabs = inside_and_around(x.shape, far)
    add_up(inside)
    finish()
    for slab in slabs:
        add_up(slab)
    return y


def _adjoint(g, w, boundary, layout, mesh=None):
    if boundary in _SELF_ADJOINT:
        return _stencil(g, w[(slice(None, None, -1),) * w.ndim], boundary, layout, mesh)
    (g, w), dtype = widened((g, w))
    spread = spread_sums(g, w)
    return _ghosts(layout, w.shape, boundary).fold(spread if dtype is None else spread.astype(dtype), mesh)


def _weights(x, g, window, boundary, layout, mesh=None):
    """This rank's share of the sums."""
    extended = _ghosts(layout, window, boundary).extend(x, mesh)
    (extended, g), dtype = widened((extended, g))
    share = weight_sums(extended, g, window)
    return share if dtype is None else share.astype(dtype)


# Boundaries for which the adjoint is a stencil with the same boundary, of the weights backwards.
_SELF_ADJOINT = ("periodic", "zero")


# Distributed rules ---------------------------------------------------------


def _sliding(ndim, window):
    return range(ndim - len(window), ndim)


def _rule(function, sends):
    """x (or its cotangent) stays where it is, in slices; all ranks have all weights."""

    @stated("x may be sharded in any dims, in slices; weights must be whole", "ghosts along sharded dims")
    def rule(call):
        if call.layouts[0] is None:
            return replicated(call)
        window, boundary = call.shapes[1], call.params["boundary"]
        layout = in_slices(call.layouts[0], _sliding(len(call.shapes[0]), window))
        inputs = layout, replicated_layout(call.mesh_shape, window)
        ghosts = _ghosts(layout, window, boundary)
        if not ghosts.sharded:
            return Rule(inputs, layout)
        return Rule(
            inputs,
            layout,
            across=lambda mesh, arrays, params: function(*arrays, boundary, layout, mesh),
            sends=sends(ghosts, call.dtypes),
        )

    return rule


@stated("both may be sharded in any dims, in slices", "ghosts along sharded dims, and all-reduces the result")
def _weights_rule(call):
    """Both operands where the first one is (or the second, if that is whole); the ranks' sums are added up."""
    window, boundary = call.params["window"], call.params["boundary"]
    known = next((layout for layout in call.layouts if layout is not None), None)
    layout = in_slices(known, _sliding(len(known.shape), window))
    target = replicated_layout(call.mesh_shape, window)
    axes = tuple(axis for axis, p in enumerate(layout.placements) if p.kind == "shard")
    if not axes:
        return Rule((layout, layout), target)

    def across(mesh, arrays, params):
        share = _weights(*arrays, window, boundary, layout, mesh)
        return channel(mesh, axes if len(axes) > 1 else axes[0]).allreduce(share, "sum")

    return Rule((layout, layout), target, across=across)


def _adjoint_sends(ghosts, dtypes):
    if ghosts.boundary in _SELF_ADJOINT:
        return ghosts.sends(dtypes[0])
    return ghosts.sends_back(numpy.result_type(*dtypes))


# Operations ----------------------------------------------------------------

_apply_stencil = define(
    "stencil",
    lambda np, x, w, boundary: _stencil(x, w, boundary, whole_layout(x.shape)),
    bilinear_vjps(
        lambda xp, g, w, p: xp.stencil_adjoint(g, w, boundary=p.boundary),
        lambda xp, g, x, p: xp.stencil_weights(x, g, window=p.shapes[1], boundary=p.boundary),
    ),
    rule=_rule(_stencil, lambda ghosts, dtypes: ghosts.sends(dtypes[0])),
)
define(
    "stencil_adjoint",
    lambda np, g, w, boundary: _adjoint(g, w, boundary, whole_layout(g.shape)),
    bilinear_vjps(
        lambda xp, h, w, p: xp.stencil(h, w, boundary=p.boundary),
        lambda xp, h, g, p: xp.stencil_weights(h, g, window=p.shapes[1], boundary=p.boundary),
    ),
    rule=_rule(_adjoint, _adjoint_sends),
)
define(
    "stencil_weights",
    lambda np, x, g, window, boundary: _weights(x, g, window, boundary, whole_layout(x.shape)),
    bilinear_vjps(
        lambda xp, h, g, p: xp.stencil_adjoint(g, h, boundary=p.boundary),
        lambda xp, h, x, p: xp.stencil(x, h, boundary=p.boundary),
    ),
    rule=_weights_rule,
)


# Public --------------------------------------------------------------------


def stencil(x, weights, boundary="periodic", width=None):
    """A weighted sum of each element's neighbours, or a function of every rank's piece and its ghosts.

    With weights, y[i] is the sum over k of x[i + k - centre] * weights[k]: not
    flipped, as scipy.ndimage.correlate.

    Parameters
    ----------
    x : tensor, local or distributed, any dimensions of which are sharded
    weights : an array of odd extents (a tensor where its gradient is wanted, Replicate beside a distributed x), for
        the last dimensions of x if it has fewer; or a function of a local tensor, the piece extended by `width`, that
        gives one of the piece's shape
    boundary : "periodic", "zero", "reflect" or "edge": what lies beyond the ends, as for `halo_exchange`
    width : how far a function sees, for it alone: as for `halo_exchange`, where an int or pair is along all dimensions

    Returns
    -------
    tensor of x's shape; distributed as x, where x is no Partial sum (it is reduced first)

    Weights that are zero cost nothing, and are not multiplied with an
    infinity.  Each rank receives the ghosts along sharded dimensions, and the
    sums inside large pieces are done meanwhile; so does the gradient, and adds
    the weights' up over all ranks.

    Raises ValueError for weights of even extents or more dimensions than x,
    and for a boundary that has too few elements for them.
    """
    x = asarray(x)
    check_boundary("stencil", boundary)
    if callable(weights) and not isinstance(weights, Tensor) and not is_array(weights):
        return _by_function(x, weights, boundary, width)
    if width is not None:
        raise type_error(f"stencil: width={width!r} is for a function; the extents of weights say it")
    weights = operand(weights)
    for what, array in (("x", x), ("weights", weights)):
        if array.dtype.kind == "b":
            raise type_error(f"stencil: {what} is bool; numbers are needed")
    if _is_unknown(x):
        return apply(_apply_stencil, (x, weights))
    window, ndim = weights.shape, len(x.shape)
    if len(window) > ndim or any(extent % 2 == 0 for extent in window):
        raise value_error(
            f"stencil: weights of shape {window} were given for x of shape {x.shape}; they need odd extents, so that "
            f"there is a centre, and at most {ndim} dimensions"
        )
    check_width("stencil", [(far, far) for far in _reach(ndim, window)], x.shape, boundary)
    return _as_given(apply(_apply_stencil, (x, weights), {"boundary": boundary}), x)


def _is_unknown(x):
    """Whether this rank is outside the mesh of a tensor and does not know its shape."""
    return x._spec is not None and x._spec.layout is None


def _as_given(y, x):
    """The result in x's layout, where that is block-cyclic."""
    if x._spec is None or y._spec.layout is None:
        return y
    return reshard_to(y, without_partials(x._spec.layout))


def _by_function(x, function, boundary, width):
    if width is None:
        raise type_error("stencil: a function needs width=, how many elements around its piece it reads")
    if _is_unknown(x):
        return local_map(function, [list(x._spec.placements)])(x)
    ndim = len(x.shape)
    widths = widths_of("stencil", width, ndim, range(ndim))
    check_width("stencil", widths, x.shape, boundary)
    if x._spec is None:
        return _checked(function, widths)(with_ghosts(x, widths, boundary))
    layout = in_slices(x._spec.layout, [dim for dim, pair in enumerate(widths) if any(pair)])
    extended = with_ghosts(reshard_to(x, layout), widths, boundary)
    run = local_map(_checked(function, widths), [list(layout.placements)])
    return _as_given(run(extended), x)


def _checked(function, widths):
    """The function, whose result must be as large as the piece."""

    @wraps(function)
    def checked(extended):
        result = function(extended)
        shape = tuple(extent - before - after for extent, (before, after) in zip(extended.shape, widths))
        if getattr(result, "shape", None) != shape:
            given = f"shape {result.shape}" if hasattr(result, "shape") else f"a {type(result).__name__}"
            raise value_error(
                f"stencil: the function gave {given} for an extended piece of shape {extended.shape}; the piece "
                f"without its ghosts has {shape}"
            )
        return result

    return checked
