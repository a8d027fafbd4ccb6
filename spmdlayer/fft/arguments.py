"""What callers give to the transforms: checked, and in one form, before anything is communicated."""

from ..autograd.tensor import asarray
from ..dtypes import is_complex
from ..errors import type_error, value_error
from ..ops.precision import computable
from ..ops.reductions import normalise_axis
from .maps import SWAPPED


def checked(name, x, norm, real=False):
    """(the tensor in a precision that can be computed with, the norm's name)."""
    x = asarray(x)
    if norm is not None and norm not in SWAPPED:
        raise value_error(f"fft.{name}: norm {norm!r} was given; 'backward', 'ortho' and 'forward' are right")
    if real and is_complex(x.dtype):
        raise type_error(f"fft.{name}: a real tensor is needed, its dtype is {x.dtype.name}")
    return computable(x), norm or "backward"


def axes_and_extents(name, x, s, axes, least=1):
    """The axes as non-negative ints, in their order, and the extent to give each."""
    axes = (axes,) if hasattr(axes, "__index__") else axes
    s = (s,) if hasattr(s, "__index__") else s
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    axes = tuple(normalise_axis(f"fft.{name}", axis, x.ndim, x) for axis in axes)
    if len(set(axes)) != len(axes):
        raise value_error(f"fft.{name}: axes {axes} name an axis twice")
    sizes = (None,) * len(axes) if s is None else tuple(s)
    if len(sizes) != len(axes):
        raise value_error(f"fft.{name}: s has {len(sizes)} extents for {len(axes)} axes")
    return axes, tuple(_extent(name, x, size, axis, least) for size, axis in zip(sizes, axes))


def _extent(name, x, size, axis, least):
    own = size is None or size == -1
    try:
        extent = (x.shape[axis] if own else size).__index__()
    except AttributeError:
        raise type_error(f"fft.{name}: an extent must be an int, {size!r} was given") from None
    if extent < least:
        why = f"axis {axis} of a tensor of shape {x.shape}" if own else f"asked for along axis {axis}"
        raise value_error(
            f"fft.{name}: a transform of {extent} elements ({why}); {least} or more are needed: leave the axis out, "
            "or give a greater extent (n or s), and zeros are appended"
        )
    return extent


def one(n):
    """The extents of a transform along one axis."""
    return None if n is None else (n,)
