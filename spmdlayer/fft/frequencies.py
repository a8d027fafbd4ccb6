"""The frequencies that belong to the elements of a spectrum, and their order."""

import numpy as np

from ..autograd.tensor import asarray, wrap
from ..dtypes import dtype as as_dtype
from ..dtypes import is_complex, is_inexact
from ..errors import type_error, value_error
from ..ops.device import on_device
from ..ops.reductions import normalise_axes
from ..ops.shape import roll


def _frequencies(name, n, d, dtype, device):
    if not hasattr(n, "__index__"):
        raise type_error(f"fft.{name}: n must be an int, {n!r} was given")
    if n < 1:
        raise value_error(f"fft.{name}: n is {n}; at least one element is needed")
    dtype = np.dtype(np.float64) if dtype is None else as_dtype(dtype)
    if is_complex(dtype) or not is_inexact(dtype):
        raise type_error(f"fft.{name}: dtype must be real floating point, {dtype.name} was given")
    with on_device(f"fft.{name}", device) as module:
        return wrap(getattr(module.fft, name)(int(n), d).astype(dtype), None, None)


def fftfreq(n, d=1.0, dtype=None, device=None):
    """The frequencies of the elements of `fft`'s result for n samples at a distance d: a local tensor (n,)."""
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n, d=1.0, dtype=None, device=None):
    """The frequencies of the elements of `rfft`'s result: a local tensor (n // 2 + 1,)."""
    return _frequencies("rfftfreq", n, d, dtype, device)


def _shifted(name, x, axes, back):
    x = asarray(x)
    axes = normalise_axes(f"fft.{name}", axes, x.ndim, x)
    if not axes:
        return x
    return roll(x, tuple(-(x.shape[axis] // 2) if back else x.shape[axis] // 2 for axis in axes), axes)


def fftshift(x, axes=None):
    """The zero frequency moved to the middle of the axes (None: all)."""
    return _shifted("fftshift", x, axes, back=False)


def ifftshift(x, axes=None):
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, back=True)
