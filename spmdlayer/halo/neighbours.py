"""Halo exchange: every piece with what its neighbours hold around it.

As one array, the extended pieces lie behind each other, so that the exchange
is a linear map from a distributed tensor to another; `add_ghosts` is its
adjoint, and the other way round.
"""

import math

import numpy

from ..autograd.tensor import Tensor
from ..errors import type_error, value_error
from ..ops.ghosts import BOUNDARIES, ghosts_of, ranges_around, whole_layout
from ..ops.registry import apply, define
from ..ops.rules import LINEAR, REPLICATE, Rule, follow, layout_like, stated
from ..placement import Shard
from ..redistribute.reshard import reshard_to, without_partials

# Operations ----------------------------------------------------------------


def _extend_forward(np, x, ranges, boundary):
    return ghosts_of(whole_layout(x.shape), ranges, boundary).extend(x)


def _fold_forward(np, g, ranges, boundary, extents, layout=None):
    """`layout` is that of the array whose ghosts come back, where it is distributed: see the rule."""
    return ghosts_of(whole_layout(extents), ranges, boundary).fold(g)


def _as_sharded(call):
    """The layout in which the operand has a piece for each range; dims of which it has not are whole."""
    layout, ranges = call.layouts[0], call.params["ranges"]
    dims = [dim if parts is None or _piecewise(layout, dim, len(parts)) else None for dim, parts in enumerate(ranges)]
    return follow(call, dims, call.shapes[0], LINEAR)[0]


def _piecewise(layout, dim, count):
    cuts = layout.cuts(dim)
    pieces = math.prod(layout.mesh_shape[axis] for axis, _ in cuts)
    return pieces == count and all(block is None for _, block in cuts)


@stated("dims that are cut as the ranges say stay sharded; a Partial sum or mean stays", "each rank's ghosts, to it")
def _extend_rule(call):
    ghosts = ghosts_of(_as_sharded(call), call.params["ranges"], call.params["boundary"])
    if not ghosts.sharded:
        return Rule((ghosts.source,), ghosts.extended)
    return Rule(
        (ghosts.source,),
        ghosts.extended,
        across=lambda mesh, arrays, params: ghosts.extend(arrays[0], mesh),
        sends=ghosts.sends(call.dtypes[0]),
    )


@stated("dims that are cut as the ranges say stay sharded; a Partial sum or mean stays", "ghosts, to their owners")
def _fold_rule(call):
    """The result is cut as the array was whose ghosts these are, else as usual."""
    params, source = call.params, _as_sharded(call)
    known = params.get("layout")
    dims = list(range(len(source.shape)))
    target = layout_like(call.mesh_shape, source.placements, params["extents"], [(known, dims)])
    ghosts = ghosts_of(target, params["ranges"], params["boundary"])
    if not ghosts.sharded:
        return Rule((ghosts.extended,), target, lambda coord: {"extents": target.local_shape(coord)})
    return Rule(
        (ghosts.extended,),
        target,
        across=lambda mesh, arrays, params: ghosts.fold(arrays[0], mesh),
        sends=ghosts.sends_back(call.dtypes[0]),
    )


def _extend_vjp(g, p, xp):
    # In the global view the layout is known, and the gradient comes in it.
    known = {"layout": p.layouts[0]} if "layouts" in p else {}
    return xp.add_ghosts(g, ranges=p.ranges, boundary=p.boundary, extents=p.shapes[0], **known)


_extend = define("with_ghosts", _extend_forward, (_extend_vjp,), rule=_extend_rule)
define(
    "add_ghosts",
    _fold_forward,
    (lambda g, p, xp: xp.with_ghosts(g, ranges=p.ranges, boundary=p.boundary),),
    rule=_fold_rule,
)


# What users give -----------------------------------------------------------


def check_boundary(name, boundary):
    if boundary not in BOUNDARIES:
        raise value_error(f"{name}: boundary must be one of {BOUNDARIES}, {boundary!r} was given")


def _pair(width):
    """(before, after) of one width, or None where it is none."""
    pair = tuple(width) if isinstance(width, (tuple, list)) else (width, width)
    try:
        pair = tuple(number.__index__() for number in pair)
    except AttributeError:
        return None
    return pair if len(pair) == 2 and min(pair) >= 0 else None


def widths_of(name, width, ndim, sharded):
    """A pair (before, after) for each dimension; one width alone is for those in `sharded`."""
    given = width.tolist() if isinstance(width, numpy.ndarray) else width
    if isinstance(given, dict):
        pairs = _named(given, ndim)
    elif isinstance(given, (tuple, list)) and any(isinstance(item, (tuple, list)) for item in given):
        pairs = [_pair(item) for item in given]
    else:
        pairs = [_pair(given) if dim in sharded else (0, 0) for dim in range(ndim)]
        if not sharded and ndim:
            raise value_error(
                f"{name}: width {width!r} is for the sharded dimensions, and none is sharded; name those that are "
                "meant, as in width={0: 1}"
            )
    if len(pairs) != ndim or None in pairs:
        raise value_error(
            f"{name}: width must be an int, a pair (before, after), a pair for each of the {ndim} dimensions or a dict "
            f"from dimension to one of them, none negative; {width!r} was given"
        )
    return tuple(pairs)


def _named(widths, ndim):
    pairs = [(0, 0)] * ndim
    for dim, width in widths.items():
        if not isinstance(dim, (int, numpy.integer)) or not -ndim <= dim < ndim:
            return [None]
        pairs[dim] = _pair(width)
    return pairs


def check_width(name, widths, shape, boundary):
    """Raise where a boundary rule has no elements to fill a width with."""
    for dim, (pair, extent) in enumerate(zip(widths, shape)):
        least = max(pair) + 1 if boundary == "reflect" else 1
        if any(pair) and boundary != "zero" and extent < least:
            raise value_error(
                f"{name}: boundary {boundary!r} cannot fill a width of {pair} along dimension {dim} of a tensor of "
                f"shape {shape}: it needs {least} elements there; boundary 'zero' fills any width"
            )


def in_slices(layout, dims):
    """A layout reduced where it is Partial, and in contiguous slices along some dims where it is block-cyclic."""
    placements = []
    for placement in layout.placements:
        if placement.kind == "shard" and placement.block is not None and placement.dim in dims:
            placement = Shard(placement.dim)
        placements.append(placement if placement.kind == "shard" else REPLICATE)
    return layout.with_placements(tuple(placements))


def with_ghosts(x, widths, boundary):
    """Every piece of a tensor with its ghosts; a local one is one piece."""
    layout = whole_layout(x.shape) if x._spec is None else x._spec.layout
    return apply(_extend, (x,), {"ranges": ranges_around(layout, widths), "boundary": boundary})


def halo_exchange(x, width, boundary="periodic"):
    """Every rank's piece extended by what lies around it: its neighbours' elements, corners too, or the boundary's.

    Parameters
    ----------
    x : distributed tensor, any dimensions of which are sharded, by one mesh axis or several, in slices of any sizes
    width : how many elements are added around each piece
        An int, or a pair (before, after): along every sharded dimension.  A
        pair for each dimension, or a dict from dimension to int or pair: along
        any dimensions; one that is not sharded is a single piece.  A width
        greater than the neighbour's piece reaches the ranks beyond.
    boundary : what lies beyond the first and the last element of the array: "periodic" (the other end; numpy.pad's
        "wrap"), "zero", "reflect" (mirrored about the last element) or "edge" (the last element again)

    Returns
    -------
    distributed tensor with x's placements, whose local piece, on each rank, is
    the slice [start - before, stop + after) of the whole array padded by
    `numpy.pad`, where [start, stop) is x's piece

    The result as one array is these pieces one behind the other: along a
    dimension its extent is the sum of the extended ones, and elements that
    several ranks need are in it several times.  So it is an ordinary
    distributed tensor, for a `LocalLayer`, `local_map`, `to_local` or any
    operation, and the exchange is an ordinary linear map with an ordinary
    gradient: the ghosts' gradients are added to the elements that they are
    copies of.  No other placement would say that neighbours share elements.

    Partial axes are reduced first.  Each rank then sends once to each rank
    that needs elements of it, and no more than those.

    Raises ValueError for pieces that are block-cyclic, and where the boundary
    has too few elements to fill a width: "reflect" needs width + 1 in the
    whole array, "periodic" and "edge" one.
    """
    name = "halo_exchange"
    check_boundary(name, boundary)
    if not isinstance(x, Tensor) or x._spec is None:
        raise type_error(f"{name}: x must be a distributed tensor, a {_kind(x)} was given; numpy.pad is for one piece")
    layout = x._spec.layout
    if layout is None:  # outside the mesh
        return apply(_extend, (x,))
    sharded = {p.dim for p in x._spec.placements if p.kind == "shard"}
    widths = widths_of(name, width, len(x.shape), sharded)
    check_width(name, widths, x.shape, boundary)
    if in_slices(layout, [dim for dim, pair in enumerate(widths) if any(pair)]) != without_partials(layout):
        raise value_error(
            f"{name}: the pieces of {list(layout.placements)} have no neighbours; reshard to placements without blocks"
        )
    return with_ghosts(reshard_to(x, without_partials(layout)), widths, boundary)


def _kind(x):
    return "local tensor" if isinstance(x, Tensor) else type(x).__name__
