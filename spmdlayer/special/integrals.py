"""Exponential, sine and cosine integrals (DLMF chapter 6)."""

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
