"""take and take_along_axis."""

import numpy as np

from ..array import array_module, is_array
from ..autograd.tensor import Tensor, asarray, wrap
from ..errors import type_error, value_error
from ..redistribute.reshard import reshard_to, without_partials
from .along import gather_along
from .complaints import shown
from .fetching import agree_on_bounds, out_of_bounds
from .indexing import getitem
from .reductions import normalise_axis
from .shape import broadcast_to, partners, ravel


def take(x, indices, axis=None):
    """The elements at integer indices along an axis (None: of the flattened tensor).

    The indices, of any shape, take the place of the axis.  What is sent of a
    sharded axis: see x[...].
    """
    x = _beside(x, indices)
    if axis is None:
        x, axis = ravel(x), 0
    return getitem(x, (slice(None),) * normalise_axis("take", axis, x.ndim, x) + (_integers("take", indices),))


def take_along_axis(x, indices, axis=-1):
    """result[i, j, ...] = x[i, indices[i, j, ...], ...]: one index per position along the axis.

    The other extents broadcast.  Where the axis is sharded, positions travel
    to the ranks that hold them and the elements back.
    """
    x = _beside(x, indices)
    axis = normalise_axis("take_along_axis", axis, x.ndim, x)
    indices = _integers("take_along_axis", indices)
    if indices.ndim != x.ndim:
        raise value_error(f"take_along_axis: indices of shape {shown(indices)} for a tensor of shape {shown(x)}")
    others = [tuple(shape[:axis]) + (1,) + tuple(shape[axis + 1 :]) for shape in (x.shape, indices.shape)]
    try:
        common = np.broadcast_shapes(*others)
    except ValueError:
        raise value_error(
            f"take_along_axis: indices of shape {shown(indices)} for a tensor of shape {shown(x)} and axis {axis}; the "
            "other extents must be equal, or 1"
        ) from None
    x, indices = (_stretched(value, (*common[:axis], value.shape[axis], *common[axis + 1 :])) for value in (x, indices))
    return gather_along(x, _from_the_front(indices, axis, x.shape[axis]), axis=axis)


def _beside(x, indices):
    """What is read; a plain array beside distributed indices counts as Replicate."""
    distributed = isinstance(indices, Tensor) and indices._spec is not None and not isinstance(x, Tensor)
    return partners(x, indices)[0] if distributed else asarray(x)


def _stretched(value, shape):
    if tuple(value.shape) == shape:
        return value
    return broadcast_to(value, shape) if isinstance(value, Tensor) else np.broadcast_to(value, shape)


def _from_the_front(indices, axis, extent):
    """Positions along an axis that count from the beginning; an IndexError on all ranks for one out of bounds."""
    distributed = isinstance(indices, Tensor) and indices._spec is not None
    if distributed:
        indices = reshard_to(indices, without_partials(indices._spec.layout))
        if indices.process_mesh.coordinate is None:
            return indices
    raw = indices._data if isinstance(indices, Tensor) else indices
    raw = raw.astype(np.intp, copy=False)
    wrong = (raw < -extent) | (raw >= extent)
    problem = (int(raw[wrong].flat[0]), axis, extent) if wrong.any() else None
    if distributed and any(p.kind == "shard" for p in indices.placements):
        agree_on_bounds(indices.process_mesh, problem)
    elif problem is not None:
        raise out_of_bounds(*problem)
    front = array_module(raw).where(raw < 0, raw + extent, raw)
    return wrap(front, None, indices._spec) if isinstance(indices, Tensor) else front


def _integers(name, indices):
    array = indices if isinstance(indices, Tensor) or is_array(indices) else np.asarray(indices)
    if array.size == 0 and array is not indices:
        array = array.astype(np.intp)
    if array.dtype.kind not in "iu":
        raise type_error(f"{name}: indices must be integers, {array.dtype.name} was given")
    return array
