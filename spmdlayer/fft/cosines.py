"""Cosine and sine transforms of types 1 to 4, as scipy.fft has them.

Each is linear, and its adjoint is one too, by the same pencils.  Let D be the
identity with the root of 2 in place of 1 where a line ends: for cosines at
element 0 (type 1: at both ends), for sines at the last element (types 2 and 3
alone).  A matrix of type 1 is D S D^-1 with a symmetric S, one of type 2 is
D Q, one of type 3 Q^T D^-1, one of type 4 is symmetric; D or its inverse at
both sides turns each into its own adjoint, type 2 into type 3.  Where they are
orthogonalised D is left out.
"""

from importlib import import_module

import numpy

from ..errors import type_error, value_error
from ..ops.registry import apply, define
from .arguments import axes_and_extents, checked, one
from .maps import SWAPPED, fitted, own, rule_of
from .pencils import over

INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
_COSINE_ENDS = {1: (0, -1), 2: (0,), 3: (0,), 4: ()}
_SINE_ENDS = {1: (), 2: (-1,), 3: (-1,), 4: ()}


def _scaled_ends(np, x, axes, ends, factor):
    y = x.copy()
    for axis in axes:
        for end in ends:
            y[(slice(None),) * axis + (end,)] *= factor
    return y


define(
    "scaled_ends",
    _scaled_ends,
    (lambda g, p, xp: xp.scaled_ends(g, axes=p.axes, ends=p.ends, factor=p.factor),),
    rule=rule_of(own),
)


def _trigonometric(name, all_ends):
    """Register a transform; returns its Op."""

    def forward(np, x, axes, type, norm, orthogonalize):
        # CuPy's functions have no such argument, but the same default.
        given = {} if orthogonalize == (norm == "ortho") else {"orthogonalize": orthogonalize}
        return _library_function(np, name)(x, type, axes=axes, norm=norm, **given) if axes else x.copy()

    def vjp(g, p, xp):
        ends = () if p.orthogonalize else all_ends[p.type]
        if ends and p.type != 3:
            g = xp.scaled_ends(g, axes=p.axes, ends=ends, factor=2.0)
        options = {"norm": p.norm, "orthogonalize": p.orthogonalize}
        g = getattr(xp, name)(g, axes=p.axes, type=INVERSE[p.type], **options)
        if ends and p.type != 2:
            g = xp.scaled_ends(g, axes=p.axes, ends=ends, factor=0.5)
        return fitted(g, p, xp)

    return define(name, forward, (vjp,), rule=rule_of(own))


def _library_function(np, name):
    module = "scipy.fft" if np is numpy else "cupyx.scipy.fft"
    try:
        return getattr(import_module(module), name)
    except ImportError:
        raise ImportError(f"fft.{name} needs {module}: pip install 'spmdlayer[scipy]' brings SciPy") from None


_dctn = _trigonometric("dctn", _COSINE_ENDS)
_dstn = _trigonometric("dstn", _SINE_ENDS)


def _transformed(name, op, inverse, x, type, s, axes, norm, orthogonalize):
    if type not in INVERSE:
        raise value_error(f"fft.{name}: type {type!r} was given; 1, 2, 3 and 4 are right")
    if orthogonalize not in (None, True, False):
        raise type_error(f"fft.{name}: orthogonalize must be True, False or None, {orthogonalize!r} was given")
    x, norm = checked(name, x, norm)
    axes, sizes = axes_and_extents(name, x, s, axes, least=2 if type == 1 and op is _dctn else 1)
    if orthogonalize is None:
        orthogonalize = norm == "ortho"
    # An inverse is the transform of the inverse type, but for the factor that the norm says.
    type, norm = (INVERSE[type], SWAPPED[norm]) if inverse else (int(type), norm)
    options = {"type": type, "norm": norm, "orthogonalize": bool(orthogonalize)}
    return over(op, x, axes, sizes, options) if axes else apply(op, (x,), {"axes": (), **options})


def dctn(x, type=2, s=None, axes=None, norm=None, *, orthogonalize=None):
    """The discrete cosine transform over several axes: all, or the last len(s); as scipy.fft.dctn.

    Parameters
    ----------
    x : real or complex, whose parts are then transformed; half precision gives float32, integers float64
    type : 1, 2, 3 or 4; type 1 needs two elements or more along each axis
    s : the extents to transform: x is cut off or gets zeros at its ends
    norm : which direction has the factor 1/N, N = 2n (type 1: 2(n - 1)): "backward" (the inverse), "forward", or
        "ortho" (its root in both)
    orthogonalize : whether the elements at the ends get the weights that make the transform orthogonal but for a
        factor; None: where norm is "ortho"

    Distributed as `fftn`: by slabs and pencils, one all-to-all for each sharded axis.
    """
    return _transformed("dctn", _dctn, False, x, type, s, axes, norm, orthogonalize)


def idctn(x, type=2, s=None, axes=None, norm=None, *, orthogonalize=None):
    """The inverse of `dctn`, with the same arguments."""
    return _transformed("idctn", _dctn, True, x, type, s, axes, norm, orthogonalize)


def dstn(x, type=2, s=None, axes=None, norm=None, *, orthogonalize=None):
    """The discrete sine transform, as scipy.fft.dstn: arguments as of `dctn`, in type 1 N = 2(n + 1)."""
    return _transformed("dstn", _dstn, False, x, type, s, axes, norm, orthogonalize)


def idstn(x, type=2, s=None, axes=None, norm=None, *, orthogonalize=None):
    """The inverse of `dstn`, with the same arguments."""
    return _transformed("idstn", _dstn, True, x, type, s, axes, norm, orthogonalize)


def dct(x, type=2, n=None, axis=-1, norm=None, *, orthogonalize=None):
    """`dctn` along one axis, with n for its extent."""
    return _transformed("dct", _dctn, False, x, type, one(n), (axis,), norm, orthogonalize)


def idct(x, type=2, n=None, axis=-1, norm=None, *, orthogonalize=None):
    """The inverse of `dct`, with the same arguments."""
    return _transformed("idct", _dctn, True, x, type, one(n), (axis,), norm, orthogonalize)


def dst(x, type=2, n=None, axis=-1, norm=None, *, orthogonalize=None):
    """`dstn` along one axis, with n for its extent."""
    return _transformed("dst", _dstn, False, x, type, one(n), (axis,), norm, orthogonalize)


def idst(x, type=2, n=None, axis=-1, norm=None, *, orthogonalize=None):
    """The inverse of `dst`, with the same arguments."""
    return _transformed("idst", _dstn, True, x, type, one(n), (axis,), norm, orthogonalize)
