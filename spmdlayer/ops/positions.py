"""argmax and argmin, also where the elements to compare lie on several ranks.

Each rank finds the first extreme of what it has; these, with their global
positions, are exchanged and compared.  NaN wins over any number, and the
smallest global position among equals.
"""

from math import prod

import numpy as np

from ..autograd.tensor import asarray, install
from ..errors import value_error
from .complaints import shown
from .owners import global_flat, global_positions, group, members_along, sharded
from .reductions import normalise_axis
from .registry import apply, define
from .rules import REPLICATE, Rule, stated, whole_lines_rule


def _forward(name):
    """NumPy's function of this name."""
    return lambda np, x, axis=None, keepdims=False: getattr(np, name)(x, axis=axis, keepdims=keepdims)


def _rule(find, extreme):
    """The rule of argmax (find, extreme: np.argmax, np.max) or argmin: pairs travel, or pieces if these are smaller."""

    @stated("pieces are compared where they are", "each rank's extremes and their positions")
    def rule(call):
        layout, axis, itemsize = call.layouts[0], call.params["axis"], call.dtypes[0].itemsize
        source = layout.with_placements(tuple(p if p.kind == "shard" else REPLICATE for p in layout.placements))
        dims = range(source.ndim) if axis is None else (axis,)
        axes = tuple(k for k, p in enumerate(source.placements) if p.kind == "shard" and p.dim in dims)
        piece = prod(-(-source.shape[d] // prod(source.mesh_shape[k] for k in source.sharding_axes(d))) for d in dims)
        if not any(sharded(source, d) for d in dims) or piece * itemsize <= itemsize + 8:
            return whole_lines_rule(call)
        result = whole_lines_rule(call).output
        best = _Best(source, result, axis, axes, find, extreme)
        return Rule((source,), result, across=best, sends=lambda coord: best.sends(coord, itemsize))

    return rule


class _Best:
    """What runs across pieces: see the module's text.

    Parameters
    ----------
    source, result : Layout
    axis : int or None
    axes : the mesh axes along which pieces of one line lie
    find, extreme : NumPy's functions for the position and the value
    """

    def __init__(self, source, result, axis, axes, find, extreme):
        self.source, self.result, self.axis, self.axes = source, result, axis, axes
        self.find, self.extreme = find, extreme

    def __call__(self, mesh, arrays, params):
        (x,), axis, coord = arrays, self.axis, mesh.coordinate
        line = group(mesh, self.axes)
        x = x.reshape(-1) if axis is None else np.moveaxis(x, axis, -1)
        lines = prod(x.shape[:-1])
        members = members_along(self.source.mesh_shape, coord, self.axes)
        counts = [lines if self._elements(member) else 0 for member in members]
        mine = x[..., :0].reshape(-1).view(np.uint8)
        if counts[line.rank]:
            places = self.find(x, axis=-1, keepdims=True)
            values = np.take_along_axis(x, places, -1)
            mine = np.concatenate([values.reshape(-1).view(np.uint8), self._whole(coord, places).view(np.uint8)])
        received = line.allgather(mine, [(count * (x.itemsize + 8),) for count in counts])
        pairs = [(part[: lines * x.itemsize], part[lines * x.itemsize :]) for part in received if part.size]
        if not pairs:  # no lines
            return np.zeros(self.result.local_shape(coord), np.int64)
        values = np.stack([value.view(x.dtype) for value, _ in pairs])
        places = np.stack([place.view(np.int64) for _, place in pairs])
        best = self.extreme(values, axis=0)
        attains = (values == best) | ((values != values) & (best != best))
        found = np.where(attains, places, np.iinfo(np.int64).max).min(axis=0)
        return found.reshape(self.result.local_shape(coord))

    def _whole(self, coord, places):
        """Places in a piece as places in the whole, flat and int64."""
        places = places.reshape(-1)
        if self.axis is None:
            return np.asarray(global_flat(self.source, coord, places), np.int64)
        return np.asarray(global_positions(self.source, coord, self.axis, places), np.int64)

    def _elements(self, coord):
        """How many elements of a line the rank at a coordinate holds."""
        shape = self.source.local_shape(coord)
        return prod(shape) if self.axis is None else shape[self.axis]

    def sends(self, coord, itemsize):
        """The bytes that the rank at a coordinate sends."""
        shape = self.source.local_shape(coord)
        lines = 1 if self.axis is None else prod(n for dim, n in enumerate(shape) if dim != self.axis)
        others = prod(self.source.mesh_shape[k] for k in self.axes) - 1
        return lines * (itemsize + 8) * others if self._elements(coord) else 0


_argmax = define("argmax", _forward("argmax"), rule=_rule(np.argmax, np.max))
_argmin = define("argmin", _forward("argmin"), rule=_rule(np.argmin, np.min))


def _position(op, x, axis, keepdims):
    x = asarray(x)
    if axis is not None:
        axis = normalise_axis(op.name, axis, x.ndim, x)
    if (x.size if axis is None else x.shape[axis]) == 0:
        raise value_error(f"{op.name}: no elements to compare, the tensor has shape {shown(x)} and axis is {axis}")
    return apply(op, (x,), {"axis": axis, "keepdims": bool(keepdims)})


def argmax(x, axis=None, keepdims=False):
    """The position of the first largest element along an axis (None: in the flattened tensor); int64.

    The first NaN where there is one.  The position is the global one; along a
    sharded axis one element a line and rank travels, with its position.
    """
    return _position(_argmax, x, axis, keepdims)


def argmin(x, axis=None, keepdims=False):
    """The position of the first smallest element along an axis (None: in the flattened tensor); int64.

    As `argmax`.
    """
    return _position(_argmin, x, axis, keepdims)


_argmax.public, _argmin.public = argmax, argmin

install(argmax=argmax, argmin=argmin)
