"""The form of an index.

An index is brought to one form that names every dimension of the *global*
shape: a tuple with ints (not negative), `Span`s for slices, None for new
dimensions and ARRAY where an index array stands.  The arrays themselves (masks,
integers, tensors of them) are operands.  The forms are hashable.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor
from ..errors import type_error

ARRAY = "array"  # where an index form takes its next array


class Span(NamedTuple):
    """A slice of a dimension of known extent; `stop` is None where a negative step goes through 0."""

    start: int
    stop: int | None
    step: int


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
    count = len(range(start, stop, step))
    if count < 2:  # the same form for all ways to write it
        return Span(start, start + 1, 1) if count else Span(0, 0, 1)
    return Span(start, None if stop < 0 else stop, step)


def _position(item, axis, extent):
    index = int(item)
    if not -extent <= index < extent:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {extent}")
    return index % extent


@lru_cache(maxsize=1024)
def _whole(shape):
    return tuple(Span(0, extent, 1) for extent in shape)


def _mask(mask, extents):
    """A mask that fits; one that has extents 0 instead chooses nothing, as in NumPy."""
    if mask.shape == extents:
        return mask
    if any(size not in (0, extent) for size, extent in zip(mask.shape, extents)):
        raise IndexError(f"a mask of shape {mask.shape} for extents {extents} was given")
    return np.zeros(extents, bool)


_BOUNDS = (int, type(None))


def plain_form(index, shape):
    """The form of an index of slices, ints, None and ... alone, and whether an int is among them; else None.

    Remembered, because parsing takes longer than reading a small array.
    """
    key = []
    for item in index if type(index) is tuple else (index,):
        if type(item) is slice:
            if not (type(item.start) in _BOUNDS and type(item.stop) in _BOUNDS and type(item.step) in _BOUNDS):
                return None
            key.append((item.start, item.stop, item.step))
        elif type(item) is int or item is None or item is Ellipsis:
            key.append(item)
        else:
            return None
    return _plain_form(tuple(key), shape)


@lru_cache(maxsize=4096)
def _plain_form(key, shape):
    form, _ = index_form(tuple(slice(*item) if type(item) is tuple else item for item in key), shape)
    return form, any(type(item) is int for item in form)


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
        raise IndexError(reason)
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
            form.append(ARRAY)
            arrays.append(_mask(item, shape[axis : axis + taken]) if item.dtype.kind == "b" else item)
        axis += taken
    return tuple(form), arrays


@lru_cache(maxsize=1024)
def _raw_slices(form):
    return tuple(slice(*item) if type(item) is Span else item for item in form)


def raw_index(form, arrays):
    """What NumPy takes."""
    if not arrays:
        return _raw_slices(form)
    left = iter(arrays)
    return tuple(slice(*item) if type(item) is Span else next(left) if item is ARRAY else item for item in form)


def as_broadcast(module, value, dtype, shape):
    """A value that is written, in the dtype and broadcast to the shape of its place.

    Like NumPy's assignment this allows more leading dims, of extent 1.
    """
    value = module.asarray(value, dtype)
    if value.ndim > len(shape):
        value = value.reshape(value.shape[value.ndim - len(shape) :])
    return module.broadcast_to(value, shape)
