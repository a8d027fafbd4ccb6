"""The error function and its relatives, and the normal distribution (DLMF chapter 7)."""

import math

from ..ops.registry import conj as conjugate
from .library import library_function, special_function

_ROOT_PI = math.sqrt(math.pi)
_SLOPE = 2 / _ROOT_PI
_ROOT_TWO_PI = math.sqrt(2 * math.pi)


def _from_math(name):
    """The library's function; without SciPy, for real arrays of NumPy, that of the standard library."""
    function = getattr(math, name)

    def forward(np, x):
        try:
            return library_function(np, name)(x)
        except ImportError:
            x = np.asarray(x)
            if x.dtype.kind == "c":
                raise
            return np.asarray(np.frompyfunc(function, 1, 1)(x), np.result_type(x.dtype, np.float32))

    return forward


erf = special_function(
    "erf(x)",
    (lambda g, a, xp: g * conjugate(xp.exp(-a * a) * _SLOPE),),
    "The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.",
    _from_math("erf"),
    holomorphic=True,
)
erfc = special_function(
    "erfc(x)",
    (lambda g, a, xp: g * conjugate(xp.exp(-a * a) * -_SLOPE),),
    "1 - erf(x), without cancellation for large x.",
    _from_math("erfc"),
    holomorphic=True,
)
erfcx = special_function(
    "erfcx(x)",
    (lambda g, a, y: g * conjugate(2 * a * y - _SLOPE),),
    "exp(x^2) erfc(x), which does not underflow.",
    holomorphic=True,
)
erfi = special_function(
    "erfi(x)",
    (lambda g, a, xp: g * conjugate(xp.exp(a * a) * _SLOPE),),
    "The imaginary error function, -i erf(i x).",
    holomorphic=True,
)
dawsn = special_function(
    "dawsn(x)",
    (lambda g, a, y: g * conjugate(1 - 2 * a * y),),
    "Dawson's integral, exp(-x^2) times the integral of exp(t^2) from 0 to x.",
    holomorphic=True,
)
erfinv = special_function(
    "erfinv(y)",
    (lambda g, y, xp: g * xp.exp(y * y) * (_ROOT_PI / 2),),
    "The inverse of erf: the x with erf(x) = y.",
)
erfcinv = special_function(
    "erfcinv(y)",
    (lambda g, y, xp: g * xp.exp(y * y) * (-_ROOT_PI / 2),),
    "The inverse of erfc: the x with erfc(x) = y.",
)


def _ndtr_forward(np, x):
    """By erfc where there is no SciPy."""
    try:
        return library_function(np, "ndtr")(x)
    except ImportError:
        return _from_math("erfc")(np, np.asarray(x) * -math.sqrt(0.5)) * 0.5


ndtr = special_function(
    "ndtr(x)",
    (lambda g, a, xp: g * conjugate(xp.exp(a * a * -0.5) / _ROOT_TWO_PI),),
    "The distribution function of the standard normal distribution, (1 + erf(x / sqrt(2))) / 2.",
    _ndtr_forward,
    holomorphic=True,
)
ndtri = special_function(
    "ndtri(p)",
    (lambda g, y, xp: g * xp.exp(y * y * 0.5) * _ROOT_TWO_PI,),
    "The inverse of ndtr: the quantiles of the standard normal distribution.",
)
log_ndtr = special_function(
    "log_ndtr(x)",
    (lambda g, a, y, xp: g * conjugate(xp.exp(a * a * -0.5 - y) / _ROOT_TWO_PI),),
    "log(ndtr(x)), accurate for large negative x.",
    holomorphic=True,
)
