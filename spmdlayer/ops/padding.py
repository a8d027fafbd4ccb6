"""Padding by numpy.pad's modes, all of them linear in the tensor, and their adjoint."""

import numpy

from ..autograd.tensor import asarray
from ..dtypes import is_complex, is_half
from ..errors import type_error, value_error
from ..layout import Layout
from .registry import apply, define
from .rules import LINEAR, Rule, cut_coordinates, follow, moving, stated

_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")

# Forward and adjoint --------------------------------------------------------


def _pad_forward(np, x, widths, mode, value):
    if mode != "constant":
        return np.pad(x, widths, mode)
    out = np.full([n + before + after for n, (before, after) in zip(x.shape, widths)], value, x.dtype)
    out[tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, widths))] = x
    return out


def _unpad_forward(np, g, widths, mode):
    """What lies in the padding is added to the elements that it repeats."""
    out = g.astype(np.float32) if is_half(g.dtype) else g
    for axis, (before, after) in enumerate(widths):
        if before or after:
            out = _fold_edges(np, out, axis, before, after, mode)
    return out.astype(g.dtype, copy=False)


def _fold_edges(np, g, axis, before, after, mode):
    extent = g.shape[axis] - before - after
    lead = (slice(None),) * axis
    middle = g[(*lead, slice(before, before + extent))]
    if mode == "constant":
        return middle
    middle = middle.copy()
    repeated = numpy.pad(numpy.arange(extent), (before, after), mode)
    for edge in (slice(0, before), slice(before + extent, None)):
        np.add.at(middle, (*lead, np.asarray(repeated[edge])), g[(*lead, edge)])
    return middle


# Distributed rules ----------------------------------------------------------


@stated("with constants dims stay sharded, else padded dims must be whole", "gathers what must be whole")
def _pad_rule(call):
    """Padded dims stay sharded where the first and the last piece can add constants, else they must be whole."""
    widths, mode, value = (call.params[name] for name in ("widths", "mode", "value"))
    layout, shape = call.layouts[0], call.shapes[0]
    padded = {dim for dim, pair in enumerate(widths) if any(pair)}
    whole = {dim for dim in padded if mode != "constant" or any(block is not None for _, block in layout.cuts(dim))}
    dims = [None if dim in whole else dim for dim in range(len(shape))]
    extents = tuple(n + before + after for n, (before, after) in zip(shape, widths))
    keeps = moving(call.dtypes[0]) if value == 0 else ()
    # The operand's pieces first, as the result's are not cut where array_split would cut them.
    source, same = follow(call, dims, shape, keeps)
    splits = list(same.splits)
    for dim in padded - whole:
        if source.sharding_axes(dim):
            splits[dim] = _padded_sizes(source, dim, widths[dim])
    target = Layout(call.mesh_shape, same.placements, extents, tuple(splits))
    return Rule((source,), target, lambda coord: {"widths": _local_widths(source, widths, coord)})


def _padded_sizes(layout, dim, pair):
    sizes = [layout.local_shape(coord)[dim] for coord in cut_coordinates(layout, dim)]
    sizes[0] += pair[0]
    sizes[-1] += pair[1]
    return tuple(sizes)


def _local_widths(layout, widths, coord):
    """The first piece alone is padded before, the last one alone after."""
    local = []
    for dim, (before, after) in enumerate(widths):
        axes = layout.sharding_axes(dim)
        first = all(coord[axis] == 0 for axis in axes)
        last = all(coord[axis] == layout.mesh_shape[axis] - 1 for axis in axes)
        local.append((before if first else 0, after if last else 0))
    return tuple(local)


@stated("padded dims must be whole", "gathers these dims")
def _unpad_rule(call):
    widths, shape = call.params["widths"], call.shapes[0]
    dims = [None if any(pair) else dim for dim, pair in enumerate(widths)]
    extents = tuple(n - before - after for n, (before, after) in zip(shape, widths))
    source, target = follow(call, dims, extents, LINEAR)
    return Rule((source,), target)


_pad = define("padded", _pad_forward, (lambda g, p, xp: xp.unpadded(g, widths=p.widths, mode=p.mode),), rule=_pad_rule)
define(
    "unpadded",
    _unpad_forward,
    (lambda g, p, xp: xp.padded(g, widths=p.widths, mode=p.mode, value=0),),
    rule=_unpad_rule,
)


def _widths(pad_width, ndim):
    """numpy.pad's forms: an int, a pair, or a pair for each dimension."""
    given = pad_width.tolist() if isinstance(pad_width, numpy.ndarray) else pad_width
    pairs = [given] if not isinstance(given, (tuple, list)) else list(given)
    if pairs and not isinstance(pairs[0], (tuple, list)):
        pairs = [pairs if len(pairs) == 2 else pairs * 2] if len(pairs) < 3 else pairs
    if len(pairs) == 1:
        pairs *= ndim
    try:
        widths = tuple(tuple(width.__index__() for width in pair) for pair in pairs)
    except (AttributeError, TypeError):
        widths = ()
    if len(widths) != ndim or any(len(pair) != 2 or min(pair) < 0 for pair in widths):
        raise value_error(
            f"pad: pad_width must be an int, a pair (before, after) or a pair for each of the {ndim} dimensions, none "
            f"negative; {pad_width!r} was given"
        )
    return widths


def pad(x, pad_width, mode="constant", constant_values=0):
    """A tensor with elements added at its ends, as numpy.pad.

    Parameters
    ----------
    pad_width : int, pair (before, after), or a pair for each dimension
    mode : "constant", "edge" (the last element again), "reflect" (mirrored about the last element), "symmetric"
        (mirrored with it) or "wrap" (from the other end)
    constant_values : one number, for the mode "constant"

    A padded dimension stays sharded with constants, and is gathered in the other modes.
    """
    x = asarray(x)
    if mode not in _MODES:
        raise value_error(f"pad: mode must be one of {_MODES}, {mode!r} was given")
    if not isinstance(constant_values, (bool, int, float, complex, numpy.generic)):
        raise type_error(f"pad: constant_values must be a number, {constant_values!r} was given")
    if isinstance(constant_values, (complex, numpy.complexfloating)) and not is_complex(x.dtype):
        raise type_error(f"pad: constant_values is complex, the tensor is {x.dtype.name}")
    widths = _widths(pad_width, x.ndim)
    if mode != "constant" and any(n == 0 and any(pair) for n, pair in zip(x.shape, widths)):
        raise value_error(f"pad: mode {mode!r} has nothing to repeat along an empty dimension, the shape is {x.shape}")
    value = constant_values.item() if isinstance(constant_values, numpy.generic) else constant_values
    return apply(_pad, (x,), {"widths": widths, "mode": mode, "value": value})
