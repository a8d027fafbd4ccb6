"""The public Fourier transforms: arguments checked, then `maps` axis by axis, as they become whole."""

from ..autograd.tensor import asarray
from ..errors import value_error
from ..ops.reductions import normalise_axis
from ..ops.registry import apply
from ..ops.registry import conj as conjugate
from . import maps
from .arguments import axes_and_extents, checked, one
from .pencils import made_whole, over, resized


def _complex(name, op, x, s, axes, norm):
    x, norm = checked(name, x, norm)
    axes, sizes = axes_and_extents(name, x, s, axes)
    return over(op, x, axes, sizes, {"norm": norm}) if axes else apply(op, (x,), {"axes": (), "norm": norm})


def _real(name, x, s, axes, norm):
    x, norm = checked(name, x, norm, real=True)
    axes, sizes = axes_and_extents(name, x, s, axes)
    if not axes:
        raise value_error(f"fft.{name}: at least one axis is needed")
    x = made_whole(x, axes[-1], axes)
    half = apply(maps.rfft, (resized(x, axes[-1:], sizes[-1:]),), {"axes": axes[-1:], "norm": norm})
    return over(maps.fftn, half, axes[:-1], sizes[:-1], {"norm": norm})


def _to_real(name, x, s, axes, norm):
    x, norm = checked(name, x, norm)
    if axes is not None and len(axes) == 0 or x.ndim == 0:
        raise value_error(f"fft.{name}: at least one axis is needed")
    if s is None:  # by default the last axis comes from a transform of an even number of elements
        last = normalise_axis(f"fft.{name}", -1 if axes is None else axes[-1], x.ndim, x)
        s = (None,) * ((x.ndim if axes is None else len(axes)) - 1) + (2 * (x.shape[last] - 1),)
    axes, sizes = axes_and_extents(name, x, s, axes)
    n = sizes[-1]
    x = made_whole(over(maps.ifftn, x, axes[:-1], sizes[:-1], {"norm": norm}), axes[-1], axes[-1:])
    x = resized(x, axes[-1:], (n // 2 + 1,))
    return apply(maps.irfft, (x,), {"axes": axes[-1:], "sizes": (n,), "norm": norm})


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
    return _complex("fft", maps.fftn, x, one(n), (axis,), norm)


def ifft(x, n=None, axis=-1, norm="backward"):
    """The inverse of `fft`, with the same arguments."""
    return _complex("ifft", maps.ifftn, x, one(n), (axis,), norm)


def rfft(x, n=None, axis=-1, norm="backward"):
    """The half of the spectrum of a real x that decides the other: elements 0 to n // 2; arguments as of `fft`."""
    return _real("rfft", x, one(n), (axis,), norm)


def irfft(x, n=None, axis=-1, norm="backward"):
    """The real array of n elements (None: 2 (m - 1)) whose spectrum has this half, of m; the inverse of `rfft`.

    The imaginary part of the first element, and for an even n of the last, does not count.
    """
    return _to_real("irfft", x, one(n), (axis,), norm)


def hfft(x, n=None, axis=-1, norm="backward"):
    """The real spectrum, of n elements (None: 2 (m - 1)), of an array with Hermitian symmetry given by its half."""
    _, norm = checked("hfft", x, norm)
    return _to_real("hfft", conjugate(asarray(x)), one(n), (axis,), maps.SWAPPED[norm])


def ihfft(x, n=None, axis=-1, norm="backward"):
    """The inverse of `hfft`: the half of the array that has this real spectrum."""
    _, norm = checked("ihfft", x, norm, real=True)
    return conjugate(_real("ihfft", x, one(n), (axis,), maps.SWAPPED[norm]))


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
