"""The public transforms: arguments checked, then `maps` axis by axis, made whole and resized as it is its turn."""

from ..autograd.tensor import asarray
from ..dtypes import is_complex
from ..errors import type_error, value_error
from ..ops.precision import computable
from ..ops.reductions import normalise_axis
from ..ops.registry import apply
from ..ops.registry import conj as conjugate
from . import maps
from .pencils import made_whole, waits

# Arguments ---------------------------------------------------------------


def _checked(name, x, norm, real=False):
    x = asarray(x)
    if norm is not None and norm not in maps.SWAPPED:
        raise value_error(f"fft.{name}: norm {norm!r} was given; 'backward', 'ortho' and 'forward' are right")
    if real and is_complex(x.dtype):
        raise type_error(f"fft.{name}: a real tensor is needed, its dtype is {x.dtype.name}")
    return computable(x), norm or "backward"


def _axes(name, x, s, axes):
    """The axes as non-negative ints, in their order, and the extent to give each (None: its own)."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    axes = tuple(normalise_axis(f"fft.{name}", axis, x.ndim, x) for axis in axes)
    if len(set(axes)) != len(axes):
        raise value_error(f"fft.{name}: axes {axes} name an axis twice")
    sizes = (None,) * len(axes) if s is None else tuple(s)
    if len(sizes) != len(axes):
        raise value_error(f"fft.{name}: s has {len(sizes)} extents for {len(axes)} axes")
    return axes, tuple(_size(name, size, x.shape[axis]) for size, axis in zip(sizes, axes))


def _size(name, size, extent):
    size = extent if size is None or size == -1 else size
    try:
        size = size.__index__()
    except AttributeError:
        raise type_error(f"fft.{name}: an extent must be an int, {size!r} was given") from None
    if size < 1:
        raise value_error(f"fft.{name}: a transform of {size} elements was asked for; at least one is needed")
    return size


def _resized(x, axes, sizes):
    changed = [(axis, size) for axis, size in zip(axes, sizes) if x.shape[axis] != size]
    if not changed:
        return x
    axes, sizes = zip(*changed)
    return apply(maps.cut_or_pad, (x,), {"axes": axes, "sizes": sizes})


def _over(op, x, axes, sizes, norm):
    """A complex transform over axes given extents: those that every rank has whole come first."""
    waiting = list(zip(axes, sizes))
    while waiting:
        turn = [pair for pair in waiting if not waits(x, pair[0])]
        if not turn:
            turn = waiting[:1]
            x = made_whole(x, turn[0][0], [axis for axis, _ in waiting])
        waiting = [pair for pair in waiting if pair not in turn]
        now, extents = zip(*turn)
        x = apply(op, (_resized(x, now, extents),), {"axes": now, "norm": norm})
    return x


def _complex(name, op, x, s, axes, norm):
    x, norm = _checked(name, x, norm)
    axes, sizes = _axes(name, x, s, axes)
    return _over(op, x, axes, sizes, norm) if axes else apply(op, (x,), {"axes": (), "norm": norm})


def _real(name, x, s, axes, norm):
    x, norm = _checked(name, x, norm, real=True)
    axes, sizes = _axes(name, x, s, axes)
    if not axes:
        raise value_error(f"fft.{name}: at least one axis is needed")
    x = made_whole(x, axes[-1], axes)
    half = apply(maps.rfft, (_resized(x, axes[-1:], sizes[-1:]),), {"axes": axes[-1:], "norm": norm})
    return _over(maps.fftn, half, axes[:-1], sizes[:-1], norm)


def _to_real(name, x, s, axes, norm):
    x, norm = _checked(name, x, norm)
    if axes is not None and len(axes) == 0 or x.ndim == 0:
        raise value_error(f"fft.{name}: at least one axis is needed")
    if s is None:  # by default the last axis comes from a transform of an even number of elements
        last = normalise_axis(f"fft.{name}", -1 if axes is None else axes[-1], x.ndim, x)
        s = (None,) * ((x.ndim if axes is None else len(axes)) - 1) + (2 * (x.shape[last] - 1),)
    axes, sizes = _axes(name, x, s, axes)
    n = sizes[-1]
    x = made_whole(_over(maps.ifftn, x, axes[:-1], sizes[:-1], norm), axes[-1], axes[-1:])
    x = _resized(x, axes[-1:], (n // 2 + 1,))
    return apply(maps.irfft, (x,), {"axes": axes[-1:], "sizes": (n,), "norm": norm})


def _one(n):
    return None if n is None else (n,)


# One axis ----------------------------------------------------------------


def fft(x, n=None, axis=-1, norm="backward"):
    """The discrete Fourier transform along an axis: y[k] = sum of x[j] exp(-2 pi i j k / n).

    Parameters
    ----------
    x : real or complex; float32 and half precision give complex64, all others complex128
    n : the extent to transform: x is cut off or gets zeros at its end; None: the axis's own
    norm : which direction has the factor 1/n: "backward" (the inverse), "forward", or "ortho" (its root in both)

    Distributed: where the axis is sharded, another dim is sharded instead (one all-to-all), and stays so in the
    result; where there is no other, the axis is gathered.  Other dims stay sharded, a Partial sum stays one.
    """
    return _complex("fft", maps.fftn, x, _one(n), (axis,), norm)


def ifft(x, n=None, axis=-1, norm="backward"):
    """The inverse of `fft`, with the same arguments."""
    return _complex("ifft", maps.ifftn, x, _one(n), (axis,), norm)


def rfft(x, n=None, axis=-1, norm="backward"):
    """The half of the spectrum of a real x that decides the other: elements 0 to n // 2; arguments as of `fft`."""
    return _real("rfft", x, _one(n), (axis,), norm)


def irfft(x, n=None, axis=-1, norm="backward"):
    """The real array of n elements (None: 2 (m - 1)) whose spectrum has this half, of m; the inverse of `rfft`.

    The imaginary part of the first element, and for an even n of the last, does not count.
    """
    return _to_real("irfft", x, _one(n), (axis,), norm)


def hfft(x, n=None, axis=-1, norm="backward"):
    """The real spectrum, of n elements (None: 2 (m - 1)), of an array with Hermitian symmetry given by its half."""
    _, norm = _checked("hfft", x, norm)
    return _to_real("hfft", conjugate(asarray(x)), _one(n), (axis,), maps.SWAPPED[norm])


def ihfft(x, n=None, axis=-1, norm="backward"):
    """The inverse of `hfft`: the half of the array that has this real spectrum."""
    _, norm = _checked("ihfft", x, norm, real=True)
    return conjugate(_real("ihfft", x, _one(n), (axis,), maps.SWAPPED[norm]))


# Several axes ------------------------------------------------------------


def fftn(x, s=None, axes=None, norm="backward"):
    """`fft` over several axes: all, or the last len(s); s gives the extents to transform.

    Distributed by slabs and pencils: whole axes are transformed first, then
    each sharded one changes places with a dim that is done.  The result stays
    sharded as the last step left it, so that `ifftn` has as few to move.
    """
    return _complex("fftn", maps.fftn, x, s, axes, norm)


def ifftn(x, s=None, axes=None, norm="backward"):
    """The inverse of `fftn`."""
    return _complex("ifftn", maps.ifftn, x, s, axes, norm)


def rfftn(x, s=None, axes=None, norm="backward"):
    """`rfft` along the last of the axes, then `fft` over the others."""
    return _real("rfftn", x, s, axes, norm)


def irfftn(x, s=None, axes=None, norm="backward"):
    """The inverse of `rfftn`; the last extent as n of `irfft`."""
    return _to_real("irfftn", x, s, axes, norm)


def fft2(x, s=None, axes=(-2, -1), norm="backward"):
    """`fftn` over two axes."""
    return _complex("fft2", maps.fftn, x, s, axes, norm)


def ifft2(x, s=None, axes=(-2, -1), norm="backward"):
    """`ifftn` over two axes."""
    return _complex("ifft2", maps.ifftn, x, s, axes, norm)


def rfft2(x, s=None, axes=(-2, -1), norm="backward"):
    """`rfftn` over two axes."""
    return _real("rfft2", x, s, axes, norm)


def irfft2(x, s=None, axes=(-2, -1), norm="backward"):
    """`irfftn` over two axes."""
    return _to_real("irfft2", x, s, axes, norm)
