"""Parts of an index into a distributed tensor: what is read first, and what stands for what.

An index with arrays is brought to a form that `index_rules` reads without
replicating a sharded dim.
"""

import numpy as np

from ..autograd.tensor import Tensor
from ..redistribute.reshard import reshard_to
from .index_form import ARRAY, Span
from .moving import span_run
from .rules import replicated_layout

# Masks ---------------------------------------------------------------------


def whole_but(shape, place, count):
    """The form of a shape's whole dims, with ARRAY for `count` of them from `place` on."""
    spans = [Span(0, extent, 1) for extent in shape]
    return (*spans[:place], ARRAY, *spans[place + count :])


def lone_mask(x, form, arrays):
    """Of an index with one array, a mask: (the form that reads everything else or None, the mask's first dim in that).

    None for other indices, and where ints apart from the mask put its dim first.
    """
    if len(arrays) != 1 or arrays[0].dtype.kind != "b" or arrays[0].ndim == 0:
        return None
    count, at = arrays[0].ndim, form.index(ARRAY)
    ints = [k for k, item in enumerate(form) if isinstance(item, int) or k == at]
    if ints[-1] - ints[0] != len(ints) - 1:
        return None
    dim = sum(item is not None for item in form[:at])
    spans = [Span(0, extent, 1) for extent in x.shape]
    rest = (*form[:at], *spans[dim : dim + count], *form[at + 1 :])
    return (None if rest == tuple(spans) else rest), sum(not isinstance(item, int) for item in form[:at])


def unmasked(form, arrays):
    """The form and arrays with the positions where masks are true; those of a distributed mask are gathered for it."""
    items, found, left = [], [], iter(arrays)
    for item in form:
        array = next(left) if item is ARRAY else None
        if array is not None and array.dtype.kind == "b" and array.ndim:
            positions = _everywhere(array).nonzero()
            items.extend([ARRAY] * len(positions))
            found.extend(positions)
        else:
            items.append(item)
            found.extend([] if array is None else [array])
    return tuple(items), found


def _everywhere(mask):
    """A mask as a raw array, on every rank."""
    if not isinstance(mask, Tensor):
        return mask
    if mask._spec is not None:
        mask = reshard_to(mask, replicated_layout(mask._spec.mesh.shape, mask.shape))
    return mask._data


# Slices and ints ------------------------------------------------------------


def sharded_ints(x, form):
    """Where in a form ints stand for sharded dims."""
    dims = [k for k, item in enumerate(form) if item is not None]
    sharded = {dims[placement.dim] for placement in x._spec.placements if placement.kind == "shard"}
    return sorted(k for k in sharded if isinstance(form[k], int))


def _dims(form):
    """(place in the form, dim of the tensor, item) of all that stand for dims."""
    named = [(k, item) for k, item in enumerate(form) if item is not None]
    return [(k, dim, item) for dim, (k, item) in enumerate(named)]


def crossing_spans(x, form):
    """Where in a form slices stand that read of a sharded dim what other ranks hold."""
    blocks = {p.dim: p.block for p in x._spec.placements if p.kind == "shard"}
    return {
        k
        for k, dim, item in _dims(form)
        if type(item) is Span
        and dim in blocks
        and item != Span(0, x.shape[dim], 1)
        and (item.step < 0 or blocks[dim] is not None)
    }


def split_form(x, form, places):
    """The form that reads the slices at some places alone, and the one that reads the rest of what that gives."""
    first = tuple(item if k in places else Span(0, x.shape[dim], 1) for k, dim, item in _dims(form))
    rest = tuple(Span(0, span_run(item).count, 1) if k in places else item for k, item in enumerate(form))
    return first, rest


def ints_as_arrays(x, form, arrays):
    """The form with ARRAY where ints stand for sharded dims, and the arrays with them in their places."""
    sharded = sharded_ints(x, form)
    left, found = iter(arrays), []
    for k, item in enumerate(form):
        if item is ARRAY:
            found.append(next(left))
        elif k in sharded:
            found.append(np.asarray(item))
    return tuple(ARRAY if k in sharded else item for k, item in enumerate(form)), found


def as_spans(form, places):
    """The form with the ints at these places as slices of extent 1."""
    return tuple(Span(item, item + 1, 1) if k in places else item for k, item in enumerate(form))


def dim_of(form, place, spans):
    """Which dim of what is read an item of a form makes; the ints at `spans` make dims too."""
    return sum(k in spans or not isinstance(item, int) for k, item in enumerate(form[:place]))
