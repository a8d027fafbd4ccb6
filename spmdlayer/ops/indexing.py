"""Reading and writing by index.

An index is brought to one form that names every dimension of the *global*
shape: a tuple with ints (not negative), `Span`s for slices, None for new
dimensions and ARRAY where an index array stands.  The arrays themselves (masks,
integers, tensors of them) are operands.  The forms are hashable.

Tensors are values: writing never changes what another tensor, the tape or an
array outside sees (`own_buffer`).
"""

import sys
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from ..array import array_module, is_array
from ..autograd.tensor import Tensor, as_raw, asarray, wrap
from ..config import state
from ..dtypes import is_complex, is_half, is_inexact
from ..errors import type_error, value_error
from .reductions import normalise_axis
from .registry import apply, define, unbroadcast
from .shape import ravel

ARRAY = "array"  # where an index form takes its next array


class Span(NamedTuple):
    """A slice of a dimension of known extent; `stop` is None where a negative step goes through 0."""

    start: int
    stop: int | None
    step: int


# The form of an index ----------------------------------------------------


def _entry(item):
    """One item of an index: (item, the number of dimensions it takes), arrays brought to arrays."""
    if item is None:
        return None, 0
    if isinstance(item, slice) or (isinstance(item, (int, np.integer)) and not isinstance(item, bool)):
        return item, 1
    if not isinstance(item, Tensor):
        array = item if is_array(item) else np.asarray(item)
        item = array.astype(np.intp) if array.size == 0 and not is_array(item) else array
        if item.ndim == 0 and item.dtype.kind in "iu":
            return int(item), 1
    if item.dtype.kind not in "biu":
        raise type_error(
            f"index: an array of {item.dtype.name} was given; integers, masks, slices, None, ... are right"
        )
    return item, item.ndim if item.dtype.kind == "b" else 1


def _span(item, extent):
    start, stop, step = item.indices(extent)
    return Span(start, None if stop < 0 else stop, step)


def _position(item, axis, extent):
    index = int(item)
    if not -extent <= index < extent:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {extent}")
    return index % extent


@lru_cache(maxsize=1024)
def _whole(shape):
    return tuple(Span(0, extent, 1) for extent in shape)


def index_form(index, shape):
    """The form of an index into this global shape, and the list of its arrays."""
    if shape and type(index) is slice:
        return (_span(index, shape[0]), *_whole(shape[1:])), ()
    items = index if isinstance(index, tuple) else (index,)
    entries = [(item, 0) if item is Ellipsis else _entry(item) for item in items]
    free = len(shape) - sum(taken for _, taken in entries)
    dots = [position for position, (item, _) in enumerate(entries) if item is Ellipsis]
    if free < 0 or len(dots) > 1:
        reason = "more than one ..." if len(dots) > 1 else f"{len(shape) - free} dimensions are indexed"
        raise IndexError(f"index: {reason}, the tensor has shape {shape}")
    whole = [(slice(None), 1)] * free
    place = dots[0] if dots else len(entries)
    form, arrays, axis = [], [], 0
    for item, taken in entries[:place] + whole + entries[place + 1 :]:
        if item is None:
            form.append(None)
        elif isinstance(item, slice):
            form.append(_span(item, shape[axis]))
        elif isinstance(item, (int, np.integer)):
            form.append(_position(item, axis, shape[axis]))
        else:
            if item.dtype.kind == "b" and item.shape != shape[axis : axis + taken]:
                raise IndexError(
                    f"index: a mask of shape {item.shape} for extents {shape[axis : axis + taken]} was given"
                )
            form.append(ARRAY)
            arrays.append(item)
        axis += taken
    return tuple(form), arrays


@lru_cache(maxsize=1024)
def _raw_slices(form):
    return tuple(slice(*item) if type(item) is Span else item for item in form)


def _raw(form, arrays):
    """What NumPy takes."""
    if not arrays:
        return _raw_slices(form)
    left = iter(arrays)
    return tuple(slice(*item) if type(item) is Span else next(left) if item is ARRAY else item for item in form)


# Reading -----------------------------------------------------------------


def _read(np, x, *arrays, index):
    return x[_raw(index, arrays)]


def _spread(np, g, *arrays, index, shape):
    """Zeros of a shape with g added where the index points; the adjoint of reading."""
    out = np.zeros(shape, np.float32 if is_half(g.dtype) else g.dtype)
    place = _raw(index, arrays)
    if any(array.dtype.kind != "b" for array in arrays):
        np.add.at(out, place, g)  # an element may be named twice
    else:
        out[place] = g
    return out.astype(g.dtype, copy=False)


# Slices and ints are parameters; index arrays are operands, which the vjps need again.
_getitem = define("getitem", _read, (lambda g, p, xp: xp.spread(g, index=p.index, shape=p.shapes[0]),))
_spread_basic = define("spread", _spread, (lambda g, p, xp: xp.getitem(g, index=p.index),))
_gather = define("gather", _read, lambda g, xs, p, xp: xp.spread_at(g, *xs[1:], index=p.index, shape=p.shapes[0]))
_spread_at = define("spread_at", _spread, lambda g, xs, p, xp: xp.gather(g, *xs[1:], index=p.index))


def getitem(x, index):
    """x[index]: ints, slices, ..., None, masks, integer arrays and tensors, as in NumPy.

    The result is a value: later writes to x do not change it.
    """
    form, arrays = index_form(index, x.shape)
    return apply(_gather if arrays else _getitem, (x, *arrays), {"index": form})


def take(x, indices, axis=None):
    """The elements at integer indices along an axis (None: of the flattened tensor).

    The indices, of any shape, take the place of the axis.
    """
    x = asarray(x)
    if axis is None:
        x, axis = ravel(x), 0
    return getitem(x, (slice(None),) * normalise_axis("take", axis, x.ndim) + (_integers("take", indices),))


def take_along_axis(x, indices, axis=-1):
    """result[i, j, ...] = x[i, indices[i, j, ...], ...]: one index per position along the axis."""
    x = asarray(x)
    axis = normalise_axis("take_along_axis", axis, x.ndim)
    indices = _integers("take_along_axis", indices)
    if indices.ndim != x.ndim:
        raise value_error(f"take_along_axis: indices of shape {indices.shape} for a tensor of shape {x.shape}")
    grid = [np.arange(extent).reshape((-1,) + (1,) * (x.ndim - 1 - own)) for own, extent in enumerate(x.shape)]
    return getitem(x, tuple(indices if own == axis else steps for own, steps in enumerate(grid)))


def _integers(name, indices):
    array = indices if isinstance(indices, Tensor) or is_array(indices) else np.asarray(indices)
    if array.size == 0 and array is not indices:
        array = array.astype(np.intp)
    if array.dtype.kind not in "iu":
        raise type_error(f"{name}: indices must be integers, {array.dtype.name} was given")
    return array


# Writing -----------------------------------------------------------------


def _write(np, x, value, *arrays, index):
    out = np.array(x, copy=True)
    out[_raw(index, arrays)] = value
    return out


def _fit(grad, p, xp):
    """The cotangent of what was written, summed back to the shape in which it was given."""
    shape = p.shapes[1]
    extra = max(len(shape) - grad.ndim, 0)  # NumPy allows leading dimensions of extent 1 there
    grad = unbroadcast(xp, grad, shape[extra:], p.dtypes[1])
    return xp.reshape(grad, shape) if extra else grad


def _last_writes(np, *arrays, index, shape):
    """Which of the written elements stayed: an integer index may name an element twice, and the last one wins."""
    place = _raw(index, arrays)
    scratch = np.zeros(shape, np.intp)
    order = np.arange(prod(scratch[place].shape)).reshape(scratch[place].shape)
    scratch[place] = order
    return scratch[place] == order


def _write_at_vjp(g, xs, p, i, xp):
    if i == 0:
        return xp.setitem_at(g, 0, *xs[2:], index=p.index)
    stayed = xp.last_writes(*xs[2:], index=p.index, shape=p.shapes[0])
    return _fit(xp.where(stayed, xp.gather(g, *xs[2:], index=p.index), 0), p, xp)


_setitem = define(
    "setitem",
    _write,
    (
        lambda g, p, xp: xp.setitem(g, 0, index=p.index),
        lambda g, p, xp: _fit(xp.getitem(g, index=p.index), p, xp),
    ),
)
_setitem_at = define("setitem_at", _write, _write_at_vjp)
define("last_writes", _last_writes)


def check_writable(x, what):
    """Raise where a write would make a gradient wrong."""
    if x._node is None:
        return
    if state.grad_enabled and x.is_leaf:
        raise value_error(f"{what}: a leaf that requires grad was given; write within no_grad(), or to a copy()")
    if not state.grad_enabled and not x.is_leaf:
        raise value_error(f"{what}: within no_grad() a recorded result was given; write to its detach()")


def _references(tensor):
    return sys.getrefcount(tensor._data)


_probe = wrap(np.zeros(1), None, None)
_ALONE = _references(_probe)  # what a buffer counts that only its tensor holds


def own_buffer(tensor):
    """The tensor's raw array for writing, copied first unless nobody else can see it.

    Others who may: the tape, which saved it; a detached tensor; a view that
    indexing or `numpy()` made; the array that `asarray` was given; the tensor
    outside a region whose piece this is.  Each holds a reference to it, or
    is its base.
    """
    data = tensor._data
    alone = type(data) is np.ndarray and data.base is None and data.flags.owndata and data.flags.writeable
    del data
    if not alone or _references(tensor) > _ALONE:
        tensor._data = array_module(tensor._data).array(tensor._data, copy=True)
    return tensor._data


def rebind(x, result):
    """Make x the result of an operation on it."""
    if x._spec is not None and result._spec != x._spec:
        result = result.reshard(x.process_mesh, x.placements)
    x._data, x._spec = result._data, result._spec
    if state.grad_enabled:
        x._node = result._node


def _local(value):
    """The raw form of a local operand; None for a distributed one."""
    if isinstance(value, Tensor):
        return value._data if value._spec is None else None
    return value


def setitem(x, index, value):
    """x[index] = value, as in NumPy: the value broadcasts and is cast to x's dtype.

    On the tape where x or the value is.  Complex values into a real tensor
    raise a TypeError.  A leaf that requires grad is written within no_grad().
    """
    check_writable(x, "x[...] = value")
    if not isinstance(value, (Tensor, bool, int, float, complex)):
        value = as_raw(value)
    if not is_complex(x.dtype) and (isinstance(value, complex) or is_complex(getattr(value, "dtype", x.dtype))):
        raise type_error(f"x[...] = value: complex values were given for a tensor of {x.dtype.name}; take their real()")
    form, arrays = index_form(index, x.shape)
    operands = [_local(operand) for operand in (value, *arrays)]
    recorded = x._node is not None or (isinstance(value, Tensor) and value._node is not None and is_inexact(x.dtype))
    if x._spec is None and not (recorded and state.grad_enabled) and all(raw is not None for raw in operands):
        own_buffer(x)[_raw(form, operands[1:])] = operands[0]
        return
    rebind(x, apply(_setitem_at if arrays else _setitem, (x, value, *arrays), {"index": form}))
