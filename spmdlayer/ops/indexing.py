"""Reading and writing by index.

Tensors are values: writing never changes what another tensor, the tape or an
array outside sees (`own_buffer`).
"""

import sys

import numpy as np

from ..array import array_module
from ..autograd.tensor import Tensor, as_raw, wrap
from ..config import state
from ..dtypes import is_complex, is_half, is_inexact
from ..errors import index_error, type_error, value_error
from ..redistribute.reshard import reshard_to
from . import elementwise as ew
from .complaints import shown
from .index_array_rules import gather_rule, spread_at_rule, write_at_rule
from .index_form import ARRAY, index_form, plain_form, raw_index
from .index_parts import (
    as_spans,
    crossing_spans,
    dim_of,
    ints_as_arrays,
    lone_mask,
    sharded_ints,
    split_form,
    unmasked,
    whole_but,
)
from .index_rules import getitem_rule, read_shape, setitem_rule, spread_rule
from .masks import can_select, gather_mask
from .registry import apply, define, unbroadcast
from .shape import squeeze, with_dimension

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

    Of a distributed x: slices keep a dim sharded, with the pieces that they
    leave; where they go backwards or cut blocks, elements are sent to pieces of
    the default sizes.  An int of a sharded dim brings that slice to all ranks.
    Rows that index arrays name are sent to where the arrays are (cut along
    their first free dim, where every rank knows them), each once a rank.  A
    mask along sharded first dims keeps what is true where it is: counts alone
    travel.  IndexError, on all ranks, for a position out of bounds.
    """
    plain = _form_of(x, index, plain_form)
    if plain is not None:
        form, ints = plain
        return _getitem_basic(x, form) if ints else apply(_getitem, (x,), {"index": form})
    form, arrays = _form_of(x, index)
    if arrays:
        if x._spec is not None and x._spec.mesh.coordinate is not None:
            return _getitem_at(x, form, arrays)
        return apply(_gather, (x, *arrays), {"index": form})
    return _getitem_basic(x, form)


def _form_of(x, index, parse=index_form):
    """The form of an index into a tensor, and its arrays; errors say what was indexed."""
    try:
        return parse(index, x.shape)
    except IndexError as error:
        raise index_error(f"x[...]: {error}; the tensor has shape {shown(x)}") from None


def _getitem_basic(x, form):
    """x[index] without index arrays."""
    sharded = () if x._spec is None else sharded_ints(x, form)
    if not sharded:
        return apply(_getitem, (x,), {"index": form})
    # Read where it is, as a slice of extent 1, only that slice is sent to all ranks.
    kept = apply(_getitem, (x,), {"index": as_spans(form, sharded)})
    return squeeze(kept, tuple(dim_of(form, k, sharded) for k in sharded))


def _getitem_at(x, form, arrays):
    """x[index] of a distributed tensor, where there are index arrays.

    A mask alone is read as such where that can be, else masks become
    positions.  Slices that go backwards or cut blocks are read first; ints for
    sharded dims become index arrays, as which they count beside others.
    """
    alone = lone_mask(x, form, arrays)
    if alone is not None:
        rest, place = alone
        x = x if rest is None else _getitem_basic(x, rest)
        if can_select(x, arrays[0], place):
            return apply(gather_mask, (x, arrays[0]), {"at": place})
        form = whole_but(x.shape, place, arrays[0].ndim)
    form, arrays = unmasked(form, arrays)
    if any(array.dtype.kind == "b" for array in arrays):
        return apply(_gather, (x, *arrays), {"index": form})
    places = crossing_spans(x, form)
    if places:
        first, form = split_form(x, form, places)
        x = apply(_getitem, (x,), {"index": first})
    form, arrays = ints_as_arrays(x, form, arrays)
    return apply(_gather, (x, *arrays), {"index": form})


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
    rule=write_at_rule,
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

    On the tape where x or the value is.  A distributed x keeps its layout, and
    what of the value other ranks write is sent to them.  Complex values into a
    real tensor raise a TypeError.  A leaf that requires grad is written within no_grad().
    """
    check_writable(x, "x[...] = value")
    if not isinstance(value, (Tensor, bool, int, float, complex)):
        value = as_raw(value)
    if not is_complex(x.dtype) and (isinstance(value, complex) or is_complex(getattr(value, "dtype", x.dtype))):
        raise type_error(f"x[...] = value: complex values were given for a tensor of {x.dtype.name}; take their real()")
    form, arrays = _form_of(x, index)
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
    sharded = sharded_ints(x, form)
    for place in reversed(sharded):
        behind = dim_of(form[place + 1 :], len(form), [k - place - 1 for k in sharded])
        if np.ndim(value) > behind:
            value = with_dimension(value, value.ndim - behind)
    return apply(_setitem, (x, value), {"index": as_spans(form, sharded)})


def _written_at(x, value, form, arrays):
    """A distributed tensor with the value written where index arrays point; see `_getitem_at`."""
    rest, place = lone_mask(x, form, arrays) or (form, None)
    if rest is None and np.ndim(value) == 0:
        mask = arrays[0]
        for _ in range(x.ndim - place - mask.ndim):
            mask = with_dimension(mask, mask.ndim)
        number = ew.astype(value, x.dtype) if isinstance(value, Tensor) else np.asarray(value, x.dtype)
        return ew.where(mask, number, x)  # where it is, whatever the mask turns out to be
    form, arrays = unmasked(form, arrays)
    places = () if any(array.dtype.kind == "b" for array in arrays) else crossing_spans(x, form)
    if places:
        first, rest = split_form(x, form, places)
        part = _written_at(apply(_getitem, (x,), {"index": first}), value, rest, arrays)
        return apply(_setitem, (x, part), {"index": first})
    form, arrays = ints_as_arrays(x, form, arrays)
    return apply(_setitem_at, (x, value, *arrays), {"index": form})
