"""Operations that move elements without computing: reshape, permute, join, cut, repeat.

All return new tensors.  Locally the buffers are shared where NumPy shares
them, which nobody can notice: a write to a shared buffer copies it first.
"""

import math

import numpy as np

from ..array import array_module
from ..autograd.tensor import Tensor, as_raw, asarray, wrap
from ..errors import type_error, value_error
from ..redistribute.crossing import make_spec
from .complaints import shown
from .reductions import normalise_axes, normalise_axis
from .registry import apply, define, unbroadcast
from .reshaping import reshape_rule
from .rules import replicated_layout
from .shape_rules import (
    broadcast_rule,
    concat_rule,
    expand_rule,
    flip_rule,
    permute_rule,
    roll_rule,
    squeeze_rule,
)

_INT = {int}


def as_shape(name, shape):
    """An int or a sequence of ints as a tuple of Python ints."""
    if type(shape) is tuple and set(map(type, shape)) <= _INT:
        return shape
    single = not isinstance(shape, (tuple, list)) and getattr(shape, "ndim", 0) == 0
    try:
        return tuple(item.__index__() for item in ((shape,) if single else shape))
    except (AttributeError, TypeError):
        raise type_error(f"{name}: shape must be an int or a sequence of ints, {shape!r} was given") from None


def operand(value):
    """A Tensor as it is, anything else as a raw array, which counts as Replicate beside distributed tensors."""
    return value if isinstance(value, Tensor) else as_raw(value)


def partners(*values):
    """Values as operands of several operations: where one is distributed, raw arrays as Replicate tensors beside it."""
    found = [operand(value) for value in values]
    mesh = next((x._spec.mesh for x in found if isinstance(x, Tensor) and x._spec is not None), None)
    if mesh is None:
        return [asarray(x) for x in found]
    return [x if isinstance(x, Tensor) else wrap(x, None, _everywhere(mesh, x.shape)) for x in found]


def _everywhere(mesh, shape):
    return make_spec(mesh, replicated_layout(tuple(mesh.shape), shape))


# Reshape and its special cases -------------------------------------------


def _reshape_vjp(g, p, xp):
    if "layouts" in p:  # in the global view: back to where it came from
        return apply(_reshape, (g,), {"shape": p.shapes[0], "layout": p.layouts[0]})
    return xp.reshape(g, p.shapes[0])


_reshape = define(
    "reshape",
    lambda np, x, shape, layout=None: x.reshape(shape),
    (_reshape_vjp,),
    rule=reshape_rule,
)


def _complete(given, shape):
    """A shape with its -1, if any, replaced by what is left."""
    size = math.prod(shape)
    complete = given
    if given.count(-1) == 1:
        known = -math.prod(given)
        complete = tuple(size // (known or 1) if extent == -1 else extent for extent in given)
    if min(complete, default=0) < 0 or math.prod(complete) != size:
        raise value_error(f"reshape: shape {given} was given for a tensor of shape {shape}, which has {size} elements")
    return complete


def reshape(x, shape, copy=None):
    """The elements in C order under another (global) shape; one extent may be -1.

    copy : False for a ValueError where the result cannot share x's (local)
        buffer; sharing or not, a tensor is a value

    A sharded dim stays so where pieces stay contiguous or become blocks that
    are dealt out in turn; else elements are sent to pieces of the default sizes.
    """
    x = asarray(x)
    result = apply(_reshape, (x,), {"shape": _complete(as_shape("reshape", shape), x.shape)})
    if copy is False and x.size and not array_module(x._data).may_share_memory(result._data, x._data):
        raise value_error(f"reshape: copy=False was given, but {shown(x)} to {shape} needs a copy here")
    return result


_reshape.public = reshape


def ravel(x):
    """The elements in C order as one dimension."""
    x = asarray(x)
    return reshape(x, (x.size,))


flatten = ravel


def _expand_dims_forward(np, x, axis):
    shape = list(x.shape)
    for position in axis:  # sorted, counted in the result
        shape.insert(position, 1)
    return x.reshape(shape)


_squeeze = define(
    "squeeze",
    lambda np, x, axis: x.squeeze(axis),
    (lambda g, p, xp: xp.expand_dims(g, axis=p.axis),),
    rule=squeeze_rule,
)
_expand_dims = define(
    "expand_dims", _expand_dims_forward, (lambda g, p, xp: xp.squeeze(g, axis=p.axis),), rule=expand_rule
)


def squeeze(x, axis=None):
    """Without the named dimensions, which have extent 1; None: without all of extent 1."""
    x = asarray(x)
    if axis is None:
        axes = tuple(index for index, extent in enumerate(x.shape) if extent == 1)
    else:
        axes = normalise_axes("squeeze", axis, x.ndim, x)
    wrong = [index for index in axes if x.shape[index] != 1]
    if wrong:
        raise value_error(f"squeeze: dimension {wrong[0]} of shape {shown(x)} has more or less than one element")
    return apply(_squeeze, (x,), {"axis": axes})


def expand_dims(x, axis):
    """With new dimensions of extent 1 at these positions (int or tuple) of the result."""
    x = asarray(x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    return apply(_expand_dims, (x,), {"axis": normalise_axes("expand_dims", axis, x.ndim + count)})


_squeeze.public, _expand_dims.public = squeeze, expand_dims


def with_dimension(value, axis):
    """An operand with one new dimension: a Tensor by an operation, a raw array directly."""
    return expand_dims(value, axis) if isinstance(value, Tensor) else value[(slice(None),) * axis + (None,)]


# Permutations ------------------------------------------------------------


def _inverse(axes):
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


_permute_dims = define(
    "permute_dims",
    lambda np, x, axes: x.transpose(axes),
    (lambda g, p, xp: xp.permute_dims(g, _inverse(p.axes)),),
    rule=permute_rule,
)


def permute_dims(x, axes):
    """The dimensions in another order: dimension i of the result is dimension axes[i] of x."""
    x, order = asarray(x), tuple(axes)
    ndim = x.ndim
    if set(map(type, order)) != _INT or min(order) < 0 or max(order) >= ndim:
        order = tuple(normalise_axis("permute_dims", axis, ndim, x) for axis in order)
    if sorted(order) != list(range(ndim)):
        raise value_error(f"permute_dims: axes {tuple(axes)} must name each of the {x.ndim} dimensions once")
    return apply(_permute_dims, (x,), {"axes": order})


_permute_dims.public = permute_dims


def transpose(x, axes=None):
    """The dimensions reversed, or in the given order."""
    return permute_dims(x, tuple(reversed(range(asarray(x).ndim))) if axes is None else axes)


def swapaxes(x, axis1, axis2):
    """Two dimensions exchanged."""
    x = asarray(x)
    first, second = (normalise_axis("swapaxes", axis, x.ndim, x) for axis in (axis1, axis2))
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return permute_dims(x, order)


def matrix_transpose(x):
    """The last two dimensions exchanged."""
    x = asarray(x)
    if x.ndim < 2:
        raise value_error(f"matrix_transpose: at least 2 dimensions are needed, the shape is {shown(x)}")
    return swapaxes(x, -1, -2)


def moveaxis(x, source, destination):
    """Dimensions moved to other positions; the others keep their order."""
    x = asarray(x)
    sources, destinations = (axis if isinstance(axis, (tuple, list)) else (axis,) for axis in (source, destination))
    moved = [normalise_axis("moveaxis", axis, x.ndim, x) for axis in sources]
    places = [normalise_axis("moveaxis", axis, x.ndim, x) for axis in destinations]
    if len(moved) != len(places) or len(set(moved)) != len(moved) or len(set(places)) != len(places):
        raise value_error(f"moveaxis: source {source} and destination {destination} must pair different dimensions")
    order = [axis for axis in range(x.ndim) if axis not in moved]
    for place, axis in sorted(zip(places, moved)):
        order.insert(place, axis)
    return permute_dims(x, order)


_flip = define(
    "flip",
    lambda np, x, axis: np.flip(x, axis),
    (lambda g, p, xp: xp.flip(g, axis=p.axis),),
    rule=flip_rule,
)


def flip(x, axis=None):
    """The elements in reverse order along an axis, several axes or all.

    Keeps x's layout; along a sharded axis what changes its rank is sent.
    """
    x = asarray(x)
    return apply(_flip, (x,), {"axis": normalise_axes("flip", axis, x.ndim, x)})


def _backwards(shift):
    return tuple(-step for step in shift)


_roll = define(
    "roll",
    lambda np, x, shift, axis: np.roll(x, shift, axis),
    (lambda g, p, xp: xp.roll(g, _backwards(p.shift), p.axis),),
    rule=roll_rule,
)


def roll(x, shift, axis=None):
    """The elements shifted along axes, those that leave coming in at the other end.

    shift and axis: an int each, or tuples of one length; axis None shifts in
    the flattened order.  Keeps x's layout; along a sharded axis what changes
    its rank is sent.
    """
    x = asarray(x)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    steps = as_shape("roll", shift)
    if len(steps) != len(axes):
        raise value_error(f"roll: {len(steps)} shifts were given for {len(axes)} axes")
    params = {"shift": steps, "axis": tuple(normalise_axis("roll", item, x.ndim, x) for item in axes)}
    return apply(_roll, (x,), params)


_flip.public, _roll.public = flip, roll


# Repetition --------------------------------------------------------------

_broadcast_to = define(
    "broadcast_to",
    lambda np, x, shape: np.broadcast_to(x, shape),
    (lambda g, p, xp: unbroadcast(xp, g, p.shapes[0], p.dtypes[0]),),
    rule=broadcast_rule,
)


def broadcast_to(x, shape):
    """x repeated along new leading dimensions and dimensions of extent 1 to a (global) shape."""
    x, shape = asarray(x), as_shape("broadcast_to", shape)
    extra = len(shape) - x.ndim
    if extra < 0 or any(old not in (1, new) for old, new in zip(x.shape, shape[extra:])):
        raise value_error(f"broadcast_to: shape {shown(x)} does not broadcast to {shape}")
    return apply(_broadcast_to, (x,), {"shape": shape})


_broadcast_to.public = broadcast_to


def tile(x, repetitions):
    """x repeated as a whole, `repetitions` times along each of the last dimensions."""
    x, times = asarray(x), as_shape("tile", repetitions)
    ndim = max(x.ndim, len(times))
    shape = (1,) * (ndim - x.ndim) + x.shape
    times = (1,) * (ndim - len(times)) + times
    alternate = tuple(extent for old in shape for extent in (1, old))
    repeated = tuple(extent for pair in zip(times, shape) for extent in pair)
    tiled = broadcast_to(reshape(x, alternate), repeated)
    return reshape(tiled, tuple(count * old for count, old in zip(times, shape)))


def repeat(x, repeats, axis=None):
    """Each element repeated: an int for all of them, or one count per index along the axis.

    A distributed tensor of counts is read by all ranks, which is collective.
    """
    x = asarray(x)
    if axis is None:
        x, axis = ravel(x), 0
    axis = normalise_axis("repeat", axis, x.ndim, x)
    extent = x.shape[axis]
    counts = repeats.numpy() if isinstance(repeats, Tensor) else np.asarray(repeats)
    if counts.dtype.kind not in "iu" or counts.shape not in ((), (1,), (extent,)) or (counts < 0).any():
        raise value_error(f"repeat: repeats must be an int or {extent} of them, none negative; {repeats!r} was given")
    if counts.size == 1:
        times, before, after = int(counts.reshape(())), x.shape[:axis], x.shape[axis + 1 :]
        apart = broadcast_to(expand_dims(x, axis + 1), (*before, extent, times, *after))
        return reshape(apart, (*before, extent * times, *after))
    return x[(slice(None),) * axis + (np.repeat(np.arange(extent), counts),)]


# Joining and cutting -----------------------------------------------------


def _concat_forward(np, *arrays, axis=0):
    """Takes the arrays one by one, as operands, or as one sequence, as NumPy does."""
    if isinstance(arrays[0], (list, tuple)):
        arrays = arrays[0]
    return np.concatenate(arrays, axis=axis)


def _concat_vjp(g, p, i, xp):
    start = sum(shape[p.axis] for shape in p.shapes[:i])
    shape = p.shapes[i]
    piece = g[(slice(None),) * p.axis + (slice(start, start + shape[p.axis]),)]
    return unbroadcast(xp, piece, shape, p.dtypes[i])


_concat = define("concat", _concat_forward, _concat_vjp, rule=concat_rule)


def operands(name, arrays):
    """A list or tuple of tensors and arrays, see `operand`, which is not empty."""
    if not isinstance(arrays, (list, tuple)) or not arrays:
        raise type_error(f"{name}: a non-empty list or tuple of tensors is needed, {arrays!r} was given")
    return [operand(array) for array in arrays]


def concat(arrays, axis=0):
    """Tensors joined along an existing axis (None: flattened first), in NumPy's common dtype.

    Sharded as the leftmost that shards another dim; else along the axis, if
    one is sharded so, in pieces of the default sizes: what is not there is sent.
    """
    tensors = operands("concat", arrays)
    if axis is None:
        tensors, axis = [tensor.ravel() for tensor in tensors], 0
    first = tensors[0].shape
    axis = normalise_axis("concat", axis, len(first))
    for position, tensor in enumerate(tensors):
        shape = tensor.shape
        if len(shape) != len(first) or shape[:axis] + shape[axis + 1 :] != first[:axis] + first[axis + 1 :]:
            raise value_error(
                f"concat: shapes {shown(tensors[0])} and {shown(tensor)} (tensor {position}) differ outside axis {axis}"
            )
    return apply(_concat, tensors, {"axis": axis})


_concat.public = concat


def stack(arrays, axis=0):
    """Tensors of one shape joined along a new axis of the result."""
    tensors = operands("stack", arrays)
    for tensor in tensors:
        if tensor.shape != tensors[0].shape:
            given = f"{shown(tensors[0])} and {shown(tensor)}"
            raise value_error(f"stack: all tensors must have one shape, {given} were given")
    axis = normalise_axis("stack", axis, tensors[0].ndim + 1)
    return concat([with_dimension(tensor, axis) for tensor in tensors], axis)


def split(x, indices_or_sections, axis=0):
    """A list of pieces along an axis: so many equal ones (int), or cut at these positions."""
    x = asarray(x)
    axis = normalise_axis("split", axis, x.ndim, x)
    extent = x.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        sections = int(indices_or_sections)
        if sections < 1 or extent % sections:
            raise value_error(f"split: {extent} elements along axis {axis} do not make {sections} equal pieces")
        cuts = [extent // sections * index for index in range(1, sections)]
    else:
        cuts = [int(cut) for cut in indices_or_sections]
    ends = [slice(start, stop) for start, stop in zip([0, *cuts], [*cuts, None])]
    return [x[(slice(None),) * axis + (piece,)] for piece in ends]
