"""The linear maps of which all transforms are made, each with another of them as its adjoint.

    fftn, ifftn       complex to complex over whole axes: adjoints of one another, with the norms swapped
    rfft, irfft       real to half a spectrum along an axis, and back: adjoints but for weights
    half_spectrum     these weights: what stands for two elements of a spectrum, times a factor; its own adjoint
    cut_or_pad        ends of axes cut off, or zeros appended: its own adjoint with the old extents

A norm says which direction has the factor 1/n: "backward", "forward", or
"ortho" for the root of it in both.  Transformed axes are needed whole, other
dims may be sharded, and a Partial sum or mean stays one.
"""

from functools import cache
from importlib import import_module

import numpy

from ..ops.factors import contraction_rule
from ..ops.registry import define, unbroadcast
from ..ops.rules import stated

SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


@cache
def library(np):
    """The transforms of an array module: scipy.fft's, which are faster than NumPy's, where SciPy is installed."""
    if np is not numpy:
        return np.fft
    try:
        return import_module("scipy.fft")
    except ImportError:
        return np.fft


def rule_of(extents):
    """The rule of a map of some axes to others; `extents` gives theirs, of the shape and the parameters."""

    @stated("transformed axes must be whole, others stay sharded", "gathers these axes")
    def rule(call):
        shape, axes = call.shapes[0], call.params["axes"]
        before, after = (tuple((side, k) if k in axes else k for k in range(len(shape))) for side in "io")
        found = [(("o", axis), extent) for axis, extent in zip(axes, extents(shape, call.params))]
        return contraction_rule(call, (before,), after, [("i", axis) for axis in axes], (0,), found)

    return rule


def own(shape, params):
    return [shape[axis] for axis in params["axes"]]


def _sizes(shape, params):
    return params["sizes"]


def _halves(shape, params):
    return [shape[axis] // 2 + 1 for axis in params["axes"]]


# Complex to complex ------------------------------------------------------


def _complex(np, x):
    return x if x.dtype.kind == "c" else x.astype(np.result_type(x, np.complex64))


def fitted(grad, p, xp):
    """A cotangent in the dtype of the input: of a real one the real part."""
    return unbroadcast(xp, grad, p.shapes[0], p.dtypes[0])


fftn = define(
    "fftn",
    lambda np, x, axes, norm: library(np).fftn(x, axes=axes, norm=norm) if axes else _complex(np, x),
    (lambda g, p, xp: fitted(xp.ifftn(g, axes=p.axes, norm=SWAPPED[p.norm]), p, xp),),
    rule=rule_of(own),
)
ifftn = define(
    "ifftn",
    lambda np, x, axes, norm: library(np).ifftn(x, axes=axes, norm=norm) if axes else _complex(np, x),
    (lambda g, p, xp: fitted(xp.fftn(g, axes=p.axes, norm=SWAPPED[p.norm]), p, xp),),
    rule=rule_of(own),
)


# Half a spectrum ---------------------------------------------------------


def _half_spectrum(np, x, axes, n, factor):
    (axis,) = axes
    weights = np.full(n // 2 + 1, factor, x.real.dtype)
    weights[0] = 1  # stands for itself alone, and so does the last one for an even n
    if n % 2 == 0:
        weights[-1] = 1
    return x * weights.reshape((-1,) + (1,) * (x.ndim - axis - 1))


def _rfft_vjp(g, p, xp):
    (axis,) = p.axes
    n = p.shapes[0][axis]
    halved = xp.half_spectrum(g, axes=p.axes, n=n, factor=0.5)
    return xp.irfft(halved, axes=p.axes, sizes=(n,), norm=SWAPPED[p.norm])


def _irfft_vjp(g, p, xp):
    spectrum = xp.rfft(g, axes=p.axes, norm=SWAPPED[p.norm])
    return fitted(xp.half_spectrum(spectrum, axes=p.axes, n=p.sizes[0], factor=2), p, xp)


rfft = define(
    "rfft",
    lambda np, x, axes, norm: library(np).rfft(x, axis=axes[0], norm=norm),
    (_rfft_vjp,),
    rule=rule_of(_halves),
)
irfft = define(
    "irfft",
    lambda np, x, axes, sizes, norm: library(np).irfft(x, sizes[0], axes[0], norm),
    (_irfft_vjp,),
    rule=rule_of(_sizes),
)
define(
    "half_spectrum",
    _half_spectrum,
    (lambda g, p, xp: xp.half_spectrum(g, axes=p.axes, n=p.n, factor=p.factor),),
    rule=rule_of(own),
)


# Padding and cropping ----------------------------------------------------


def _cut_or_pad_forward(np, x, axes, sizes):
    for axis, size in zip(axes, sizes):
        extent = x.shape[axis]
        if size < extent:
            x = x[(slice(None),) * axis + (slice(size),)]
        elif size > extent:
            zeros = np.zeros((*x.shape[:axis], size - extent, *x.shape[axis + 1 :]), x.dtype)
            x = np.concatenate([x, zeros], axis=axis)
    return x


def _cut_or_pad_vjp(g, p, xp):
    return xp.cut_or_pad(g, axes=p.axes, sizes=tuple(p.shapes[0][axis] for axis in p.axes))


cut_or_pad = define("cut_or_pad", _cut_or_pad_forward, (_cut_or_pad_vjp,), rule=rule_of(_sizes))
