"""Making tensors: local ones from shapes and numbers, and *_like ones with the layout of another.

`dtype` is a numpy.dtype, scalar type or name.  `device` is "cpu" (which None
means too, or for *_like the device of the tensor given) or, with CuPy, "cuda:0".
"""

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor, as_raw, wrap
from ..autograd.tensor import asarray as as_tensor
from ..dtypes import dtype as as_dtype
from ..errors import type_error, value_error
from . import elementwise as ew
from .device import device_of, moved, on_device, to_device
from .registry import apply, elementwise
from .rules import REPLICATE, Rule, stated
from .shape import as_shape, broadcast_to, operand, reshape, stack


def _dtype(dtype):
    return None if dtype is None else as_dtype(dtype)


def _made(name, device, *args, **options):
    """A local tensor that the device's module makes by its function of this name."""
    with on_device(name, device) as module:
        return wrap(as_raw(getattr(module, name)(*args, **options)), None, None)


def zeros(shape, dtype=None, device=None):
    """A local tensor of zeros; float64 unless a dtype is given."""
    return _made("zeros", device, as_shape("zeros", shape), _dtype(dtype) or np.float64)


def ones(shape, dtype=None, device=None):
    """A local tensor of ones; float64 unless a dtype is given."""
    return _made("ones", device, as_shape("ones", shape), _dtype(dtype) or np.float64)


def full(shape, fill_value, dtype=None, device=None):
    """A local tensor with one number everywhere; the number's dtype unless another is given."""
    return _made("full", device, as_shape("full", shape), fill_value, dtype=_dtype(dtype))


def empty(shape, dtype=None, device=None):
    """A local tensor whose elements are not set; float64 unless a dtype is given."""
    return _made("empty", device, as_shape("empty", shape), _dtype(dtype) or np.float64)


def arange(start, stop=None, step=1, dtype=None, device=None):
    """A local tensor of the numbers from start (0 if only one is given) to before stop."""
    start, stop = (0, start) if stop is None else (start, stop)
    return _made("arange", device, start, stop, step, dtype=_dtype(dtype))


def linspace(start, stop, num, dtype=None, device=None, endpoint=True):
    """`num` evenly spaced numbers from start to stop, which is left out without `endpoint`: a local tensor.

    Where start or stop is a tensor, in numbers from one to the other along a
    new dimension 0, on the tape and distributed as these are.
    """
    if not isinstance(start, Tensor) and not isinstance(stop, Tensor):
        return _made("linspace", device, start, stop, num, endpoint=endpoint, dtype=_dtype(dtype))
    ndim = max(np.ndim(start), np.ndim(stop))
    weights = np.linspace(0.0, 1.0, num, endpoint=endpoint).reshape(-1, *(1,) * ndim)
    return _as_asked(start * (1 - weights) + stop * weights, _dtype(dtype), device, None)


def eye(n_rows, n_cols=None, k=0, dtype=None, device=None):
    """A local matrix with ones on diagonal k (positive: above the main one), else zeros."""
    return _made("eye", device, n_rows, n_cols, k=k, dtype=_dtype(dtype) or np.float64)


# From other arrays -------------------------------------------------------


def asarray(data, dtype=None, device=None, copy=None):
    """A tensor of what is given: a Tensor, array, number, nested list, or what has NumPy's or DLPack's protocol.

    copy : None copies where dtype or device ask for it, True always, False
        never (a ValueError where it would have to).

    Without a copy the buffer is shared: writing to an array that was given
    changes what the tensor holds, while a write to the tensor copies first.
    A Tensor stays on the tape and distributed; one that is as asked is
    returned as it is.  A list of Tensors is their `stack`.
    """
    dtype = _dtype(dtype)
    if isinstance(data, Tensor):
        return _as_asked(data, dtype, device, copy)
    if _holds_tensors(data):
        if copy is False:
            raise value_error("asarray: copy=False was given, but a list of tensors must be copied")
        return _as_asked(_stacked(data), dtype, device, None)
    if not is_array(data) and hasattr(data, "__dlpack__") and not hasattr(data, "__array__"):
        return _as_asked(from_dlpack(data), dtype, device, copy)
    raw = as_raw(data, "data", dtype)
    if device is not None:
        raw = moved("asarray", raw, device)
    shared = raw is data or raw.base is not None
    if copy is False and not shared:
        raise value_error("asarray: copy=False was given, but this data, dtype and device need a copy")
    return wrap(raw.copy() if copy and shared else raw, None, None)


def _holds_tensors(data):
    return isinstance(data, (list, tuple)) and any(isinstance(item, Tensor) or _holds_tensors(item) for item in data)


def _stacked(data):
    return stack([_stacked(item) if _holds_tensors(item) else operand(item) for item in data])


def _as_asked(x, dtype, device, copy):
    """A tensor in a dtype, on a device."""
    result = x if dtype in (None, x.dtype) else ew.astype(x, dtype)
    if device is not None:
        result = to_device(result, device)
    if result is not x and copy is False:
        raise value_error(f"asarray: copy=False was given, but a {x.dtype.name} tensor must be copied for this")
    return ew.copy(x) if result is x and copy else result


def from_dlpack(x, /, *, device=None, copy=None):
    """A local tensor of an array of another library, by the DLPack protocol; shares its buffer where it can.

    A write to the tensor copies first; one that the other library makes
    changes what the tensor holds.  device and copy as for `asarray`.
    """
    if isinstance(x, Tensor):
        return _as_asked(x, None, device, copy)
    kind = int(x.__dlpack_device__()[0])
    if kind in (1, 3, 13):  # in memory that the host reaches: plain, pinned, managed
        array = np.from_dlpack(x)
    else:
        import cupy

        array = cupy.from_dlpack(x)
    return _as_asked(wrap(as_raw(array), None, None), None, device, copy)


def meshgrid(*arrays, indexing="xy"):
    """A list of tensors, one per array of one dimension, that together are the coordinates of a grid.

    indexing : "ij", the dimensions in the order of the arrays, or "xy", the first two exchanged
    """
    if indexing not in ("xy", "ij"):
        raise value_error(f"meshgrid: indexing must be 'xy' or 'ij', {indexing!r} was given")
    lines = [as_tensor(array).ravel() for array in arrays]
    order = list(range(len(lines)))
    if indexing == "xy":
        order[:2] = reversed(order[:2])
    shape = tuple(lines[position].size for position in order)
    alone = [tuple(-1 if position == own else 1 for position in order) for own in range(len(lines))]
    return [broadcast_to(reshape(line, form), shape) for line, form in zip(lines, alone)]


# Elementwise operations without gradients, so that the layout follows the operand's, whose values nobody reads.


@stated("as the operand lies; Replicate where it is Partial", "nothing")
def _like_rule(call):
    """The pieces are where the operand's are; what is Partial there is on every rank here."""
    layout = call.layouts[0]
    placements = tuple(REPLICATE if placement.kind == "partial" else placement for placement in layout.placements)
    return Rule((layout,), layout.with_placements(placements))


@stated("as the operand lies, Partial too", "nothing")
def _zeros_like_rule(call):
    """Zeros are Partial of any reduction too."""
    same = call.params.get("dtype") in (None, call.dtypes[0])
    return Rule(call.layouts, call.layouts[0]) if same else _like_rule(call)


_full_like, _ = elementwise(
    "full_like",
    forward=lambda np, x, fill_value, dtype=None: np.full_like(x, fill_value, dtype=dtype, subok=False),
    rule=_like_rule,
)
_zeros_like, _ = elementwise(
    "zeros_like", forward=lambda np, x, dtype=None: np.zeros_like(x, dtype=dtype), rule=_zeros_like_rule
)
_ones_like, _ = elementwise(
    "ones_like", forward=lambda np, x, dtype=None: np.ones_like(x, dtype=dtype), rule=_like_rule
)


def _like(op, x, dtype, device, **params):
    result = apply(op, (x,), {"dtype": _dtype(dtype), **params})
    return result if device is None else to_device(result, device)


def zeros_like(x, dtype=None, device=None):
    """Zeros in x's shape, layout and dtype (unless another is given)."""
    return _like(_zeros_like, as_tensor(x), dtype, device)


def ones_like(x, dtype=None, device=None):
    """Ones in x's shape, layout (Replicate where x is Partial) and dtype (unless another is given)."""
    return _like(_ones_like, as_tensor(x), dtype, device)


def full_like(x, fill_value, dtype=None, device=None):
    """One number everywhere in x's shape, layout (Replicate where x is Partial) and dtype (unless another is given)."""
    if not isinstance(fill_value, (bool, int, float, complex, np.generic)):
        raise type_error(f"full_like: fill_value must be a number, {fill_value!r} was given")
    return _like(_full_like, as_tensor(x), dtype, device, fill_value=fill_value)


def empty_like(x, dtype=None, device=None):
    """A tensor in x's shape, layout and dtype (unless another is given) whose elements mean nothing.

    Local ones are not set; distributed ones are zeros, as copies must be equal.
    """
    x = as_tensor(x)
    if x.is_dist():
        return zeros_like(x, dtype, device)
    return empty(x.shape, x.dtype if dtype is None else dtype, device_of(x._data) if device is None else device)


_zeros_like.public, _ones_like.public, _full_like.public = zeros_like, ones_like, full_like


# Triangles ---------------------------------------------------------------


def _matrices(name, x):
    x = as_tensor(x)
    if x.ndim < 2:
        raise value_error(f"{name}: at least 2 dimensions are needed, the shape is {x.shape}")
    return x


def tril(x, k=0):
    """x with zeros above diagonal k of its last two dimensions."""
    x = _matrices("tril", x)
    return ew.where(np.tri(*x.shape[-2:], k=k, dtype=bool), x, False)


def triu(x, k=0):
    """x with zeros below diagonal k of its last two dimensions."""
    x = _matrices("triu", x)
    return ew.where(np.tri(*x.shape[-2:], k=k - 1, dtype=bool), False, x)
