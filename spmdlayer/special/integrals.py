"""Exponential, sine, cosine and Fresnel integrals and the dilogarithm (DLMF chapters 6, 7, 8 and 25)."""

import math

from ..ops.registry import conj as conjugate
from .library import library_function, special_function

exp1 = special_function(
    "exp1(x)",
    (lambda g, a, xp: -g * conjugate(xp.exp(-a) / a),),
    "The exponential integral E1, the integral of exp(-t) / t from x to infinity.",
    holomorphic=True,
)
expi = special_function(
    "expi(x)",
    (lambda g, a, xp: g * conjugate(xp.exp(a) / a),),
    "The exponential integral Ei, the principal value of the integral of exp(t) / t from -infinity to x.",
    holomorphic=True,
)
expn = special_function(
    "expn(n, x)",
    # n E(n+1) = exp(-x) - x E(n), so that E(n)' = -E(n-1) needs no other function.
    (None, lambda g, a, b, y, xp: g * ((a - 1) * y - xp.exp(-b)) / b),
    "The exponential integral of order n, the integral of exp(-x t) / t^n over t from 1 to infinity.",
)
_sine_integral = special_function(
    "sine_integral(x)",
    (lambda g, a, xp: g * xp.sinc(a / math.pi),),
    "The integral of sin(t) / t from 0 to x.",
    lambda np, x: library_function(np, "sici")(x)[0],
)
_cosine_integral = special_function(
    "cosine_integral(x)",
    (lambda g, a, xp: g * xp.cos(a) / a,),
    "Euler's constant plus log(x) plus the integral of (cos(t) - 1) / t from 0 to x.",
    lambda np, x: library_function(np, "sici")(x)[1],
)


def sici(x):
    """The sine and the cosine integral of real numbers, (Si(x), Ci(x)).

    Si is the integral of sin(t) / t from 0 to x; Ci is Euler's constant plus
    log(x) plus the integral of (cos(t) - 1) / t from 0 to x.
    """
    return _sine_integral(x), _cosine_integral(x)


_fresnel_sine = special_function(
    "fresnel_sine(x)",
    (lambda g, a, xp: g * conjugate(xp.sin(a * a * (math.pi / 2))),),
    "The integral of sin(pi t^2 / 2) from 0 to x.",
    lambda np, x: library_function(np, "fresnel")(x)[0],
    holomorphic=True,
)
_fresnel_cosine = special_function(
    "fresnel_cosine(x)",
    (lambda g, a, xp: g * conjugate(xp.cos(a * a * (math.pi / 2))),),
    "The integral of cos(pi t^2 / 2) from 0 to x.",
    lambda np, x: library_function(np, "fresnel")(x)[1],
    holomorphic=True,
)


def fresnel(x):
    """The Fresnel integrals (S(x), C(x)), of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x."""
    return _fresnel_sine(x), _fresnel_cosine(x)


def _spence_vjp(g, a, xp):
    """log(z) / (1 - z); near 1 the series of -log(1 + w) / w, whose derivatives are right too."""
    w = a - 1
    near = xp.abs(w) < 0.01
    small, large = xp.where(near, w, 0), xp.where(near, 1, w)
    series = small * 0
    for k in reversed(range(10)):
        series = series * small - (-1) ** k / (k + 1)
    return g * conjugate(xp.where(near, series, xp.log(1 + large) / -large))


spence = special_function(
    "spence(z)",
    (_spence_vjp,),
    "The dilogarithm as SciPy defines it, the integral of log(t) / (1 - t) from 1 to z.",
    holomorphic=True,
)
