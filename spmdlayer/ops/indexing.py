"""Reading and writing by index.

Tensors are values: writing never changes what another tensor, the tape or an
array outside sees (`own_buffer`).
"""

import sys

import numpy as np

from ..array import array_module, is_array
from ..autograd.tensor import Tensor, as_raw, asarray, wrap
from ..config import state
from ..dtypes import is_complex, is_half, is_inexact
from ..errors import type_error, value_error
from ..redistribute.reshard import reshard_to, without_partials
from . import elementwise as ew
from .along import gather_along
from .complaints import shown
from .fetching import agree_on_bounds, out_of_bounds
from .index_form import ARRAY, Span, index_form, raw_index
from .index_rules import gather_rule, getitem_rule, read_shape, setitem_rule, spread_at_rule, spread_rule
from .masks import can_select, gather_mask
from .moving import span_run
from .reductions import normalise_axis
from .registry import apply, define, unbroadcast
from .rules import replicated_layout
from .shape import broadcast_to, partners, ravel, squeeze, with_dimension

# Reading -----------------------------------------------------------------


def _read(np, x, *arrays, index):
    return x[raw_index(index, arrays)]


def _spread(np, g, *arrays, index, shape, layout=None):
    """Zeros of a shape with g added where the index points; the adjoint of reading.

    `layout` is that of what was read, where it is distributed: see the rules.
    """
    out = np.zeros(shape, np.float32 if is_half(g.dtype) else g.dtype)
    place = raw_index(index, arrays)
    if any(array.dtype.kind != "b" for array in arrays):
        np.add.at(out, place, g)  # an element may be named twice
    else:
        out[place] = g
    return out.astype(g.dtype, copy=False)


def _as_read(p):
    """The parameters of the adjoint of reading: the shape of what was read and, in the global view, its layout."""
    return {"shape": p.shapes[0], **({"layout": p.layouts[0]} if "layouts" in p else {})}


# Slices and ints are parameters; index arrays are operands, which the vjps need again.
_getitem = define("getitem", _read, (lambda g, p, xp: xp.spread(g, index=p.index, **_as_read(p)),), rule=getitem_rule)
_spread_basic = define("spread", _spread, (lambda g, p, xp: xp.getitem(g, index=p.index),), rule=spread_rule)
_gather = define(
    "gather",
    _read,
    (lambda g, bs, p, xp: xp.spread_at(g, *bs, index=p.index, **_as_read(p)),),
    rule=gather_rule,
)
_spread_at = define("spread_at", _spread, (lambda g, bs, p, xp: xp.gather(g, *bs, index=p.index),), rule=spread_at_rule)


def getitem(x, index):
    """x[index]: ints, slices, ..., None, masks, integer arrays and tensors, as in NumPy.

    The result is a value: later writes to x do not change it.
    """
    form, arrays = index_form(index, x.shape)
    if arrays:
        if x._spec is not None and x._spec.mesh.coordinate is not None:
            return _getitem_at(x, form, arrays)
        return apply(_gather, (x, *arrays), {"index": form})
    sharded = () if x._spec is None else _sharded_ints(x, form)
    if not sharded:
        return apply(_getitem, (x,), {"index": form})
    # Read where it is, as a slice of extent 1, only that slice is sent to all ranks.
    kept = apply(_getitem, (x,), {"index": _as_spans(form, sharded)})
    return squeeze(kept, tuple(_place(form, k, sharded) for k in sharded))


def _sharded_ints(x, form):
    """Where in a form ints stand for sharded dims."""
    dims = [k for k, item in enumerate(form) if item is not None]
    sharded = {dims[placement.dim] for placement in x._spec.placements if placement.kind == "shard"}
    return sorted(k for k in sharded if isinstance(form[k], int))


def _getitem_at(x, form, arrays):
    """x[index] of a distributed tensor, where there are index arrays.

    Masks are read as such, or become positions.  Slices that go backwards or cut blocks
    are read first; ints for sharded dims become index arrays, as which they
    count beside others.
    """
    place = _only_mask(x, form, arrays)
    if place is not None and can_select(x, arrays[0], place):
        return apply(gather_mask, (x, arrays[0]), {"at": place})
    form, arrays = _unmasked(form, arrays)
    if any(array.dtype.kind == "b" for array in arrays):
        return apply(_gather, (x, *arrays), {"index": form})
    places = _crossing_spans(x, form)
    if places:
        first, form = _split_form(x, form, places)
        x = apply(_getitem, (x,), {"index": first})
    form, arrays = _ints_as_arrays(x, form, arrays)
    return apply(_gather, (x, *arrays), {"index": form})


def _only_mask(x, form, arrays):
    """The first dim of a mask that is all there is in an index, else None."""
    if len(arrays) != 1 or arrays[0].dtype.kind != "b" or arrays[0].ndim == 0:
        return None
    place, behind = form.index(ARRAY), arrays[0].ndim - 1
    extents = [x.shape[k if k < place else k + behind] for k in range(len(form))] if None not in form else []
    whole = all(k == place or form[k] == Span(0, extents[k], 1) for k in range(len(extents)))
    return place if extents and whole else None


def _unmasked(form, arrays):
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


def _dims(form):
    """(place in the form, dim of the tensor, item) of all that stand for dims."""
    named = [(k, item) for k, item in enumerate(form) if item is not None]
    return [(k, dim, item) for dim, (k, item) in enumerate(named)]


def _crossing_spans(x, form):
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


def _split_form(x, form, places):
    """The form that reads the slices at some places alone, and the one that reads the rest of what that gives."""
    first = tuple(item if k in places else Span(0, x.shape[dim], 1) for k, dim, item in _dims(form))
    rest = tuple(Span(0, span_run(item).count, 1) if k in places else item for k, item in enumerate(form))
    return first, rest


def _ints_as_arrays(x, form, arrays):
    """The form with ARRAY where ints stand for sharded dims, and the arrays with them in their places."""
    sharded = _sharded_ints(x, form)
    left, found = iter(arrays), []
    for k, item in enumerate(form):
        if item is ARRAY:
            found.append(next(left))
        elif k in sharded:
            found.append(np.asarray(item))
    return tuple(ARRAY if k in sharded else item for k, item in enumerate(form)), found


def _as_spans(form, places):
    """The form with the ints at these places as slices of extent 1."""
    return tuple(Span(item, item + 1, 1) if k in places else item for k, item in enumerate(form))


def _place(form, place, spans):
    """Which dim of what is read an item of a form makes; the ints at `spans` make dims too."""
    return sum(k in spans or not isinstance(item, int) for k, item in enumerate(form[:place]))


def take(x, indices, axis=None):
    """The elements at integer indices along an axis (None: of the flattened tensor).

    The indices, of any shape, take the place of the axis.
    """
    x = _beside(x, indices)
    if axis is None:
        x, axis = ravel(x), 0
    return getitem(x, (slice(None),) * normalise_axis("take", axis, x.ndim) + (_integers("take", indices),))


def take_along_axis(x, indices, axis=-1):
    """result[i, j, ...] = x[i, indices[i, j, ...], ...]: one index per position along the axis.

    The other extents broadcast.  Where the axis is sharded, positions travel
    to the ranks that hold them and the elements back.
    """
    x = _beside(x, indices)
    axis = normalise_axis("take_along_axis", axis, x.ndim)
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


# Writing -----------------------------------------------------------------


def _write(np, x, value, *arrays, index):
    out = np.array(x, copy=True)
    out[raw_index(index, arrays)] = value
    return out


def _fit(grad, p, xp):
    """The cotangent of what was written, summed back to the shape in which it was given."""
    shape = p.shapes[1]
    extra = max(len(shape) - grad.ndim, 0)  # NumPy allows leading dimensions of extent 1 there
    grad = unbroadcast(xp, grad, shape[extra:], p.dtypes[1])
    return xp.reshape(grad, shape) if extra else grad


def _last_writes(np, *arrays, index, shape):
    """Which of the written elements stayed: an integer index may name an element twice, and the last one wins.

    The dims of the arrays, with the others, which slices read, of extent 1.
    """
    places, extents = _positions_of(np, arrays, index, shape)
    places = np.broadcast_arrays(*places)
    read, _, first = read_shape(index, places[0].shape)
    behind = len(read) - first - places[0].ndim
    stayed = np.zeros(places[0].size, bool)
    if stayed.size:
        keys = np.ravel_multi_index([p.reshape(-1) % extent for p, extent in zip(places, extents)], extents)
        stayed[stayed.size - 1 - np.unique(keys[::-1], return_index=True)[1]] = True
    return stayed.reshape((1,) * first + places[0].shape + (1,) * behind)


def _positions_of(np, arrays, index, shape):
    """The integer arrays of an index, in place of masks where these are true, and the extents that they index."""
    places, extents, left, dim = [], [], iter(arrays), 0
    for item in index:
        if item is not ARRAY:
            dim += item is not None
            continue
        array = next(left)
        if array.dtype.kind == "b":
            places.extend(array.nonzero() if array.ndim else (np.zeros(int(array), np.intp),))
            extents.extend(array.shape or (1,))
            dim += array.ndim
        else:
            places.append(array)
            extents.append(shape[dim])
            dim += 1
    return places, extents


def _written_at_vjp(g, cs, p, xp):
    stayed = xp.last_writes(*cs, index=p.index, shape=p.shapes[0])
    return _fit(xp.where(stayed, xp.gather(g, *cs, index=p.index), 0), p, xp)


_setitem = define(
    "setitem",
    _write,
    (
        lambda g, p, xp: xp.setitem(g, 0, index=p.index),
        lambda g, p, xp: _fit(xp.getitem(g, index=p.index), p, xp),
    ),
    rule=setitem_rule,
)
_setitem_at = define(
    "setitem_at",
    _write,
    (lambda g, cs, p, xp: xp.setitem_at(g, 0, *cs, index=p.index), _written_at_vjp),
    rule=setitem_rule,
)
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
        result = reshard_to(result, x._spec.layout)
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
        own_buffer(x)[raw_index(form, operands[1:])] = operands[0]
        return
    rebind(x, _written(x, value, form, arrays))


def _written(x, value, form, arrays):
    """x with the value written to it, as a new tensor."""
    if x._spec is None:
        return apply(_setitem_at if arrays else _setitem, (x, value, *arrays), {"index": form})
    if arrays and x._spec.mesh.coordinate is not None:
        return _written_at(x, value, form, arrays)
    if arrays:
        return apply(_setitem_at, (x, value, *arrays), {"index": form})
    sharded = _sharded_ints(x, form)
    for place in reversed(sharded):
        behind = _place(form[place + 1 :], len(form), [k - place - 1 for k in sharded])
        if np.ndim(value) > behind:
            value = with_dimension(value, value.ndim - behind)
    return apply(_setitem, (x, value), {"index": _as_spans(form, sharded)})


def _written_at(x, value, form, arrays):
    """A distributed tensor with the value written where index arrays point; see `_getitem_at`."""
    place = _only_mask(x, form, arrays)
    if place is not None and np.ndim(value) == 0:
        mask = arrays[0]
        for _ in range(x.ndim - place - mask.ndim):
            mask = with_dimension(mask, mask.ndim)
        number = ew.astype(value, x.dtype) if isinstance(value, Tensor) else np.asarray(value, x.dtype)
        return ew.where(mask, number, x)  # where it is, whatever the mask turns out to be
    form, arrays = _unmasked(form, arrays)
    places = () if any(array.dtype.kind == "b" for array in arrays) else _crossing_spans(x, form)
    if places:
        first, rest = _split_form(x, form, places)
        part = _written_at(apply(_getitem, (x,), {"index": first}), value, rest, arrays)
        return apply(_setitem, (x, part), {"index": first})
    form, arrays = _ints_as_arrays(x, form, arrays)
    return apply(_setitem_at, (x, value, *arrays), {"index": form})
