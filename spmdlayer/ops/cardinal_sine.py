"""sinc and its derivatives of any order.

With t = pi x, f(t) = sin(t) / t is the integral of cos(t s) over s from 0 to 1.
Its n-th derivative satisfies t f(n) + n f(n-1) = sin(t + n pi / 2), which is
stable for |t| > n; below, the power series

    f(n)(t) = sum over k >= n / 2 of (-1)^k t^(2k-n) / ((2k + 1) (2k - n)!)

has no difficulty at 0.
"""

import math

from .registry import binary, unary

_TERMS = 24


def _series(t, n):
    total, first = 0 * t, (n + 1) // 2
    for k in reversed(range(first, first + _TERMS)):
        total = total + (-1) ** k / ((2 * k + 1) * math.factorial(2 * k - n)) * t ** (2 * k - n)
    return total


def _recurrence(np, t, n):
    value = np.sin(t) / t
    for order in range(1, n + 1):
        value = (np.sin(t + order * math.pi / 2) - order * value) / t
    return value


def _derivative(np, x, n):
    t = math.pi * x
    small = abs(t) < n + 2
    value = np.where(small, _series(np.where(small, t, 0), n), _recurrence(np, np.where(small, n + 2.0, t), n))
    return math.pi**n * value


# The order is an operand, a Python int: vjps of elementwise operations see no parameters.
binary(
    "sinc_derivative",
    (lambda g, a, b, xp: g * xp.sinc_derivative(a, b + 1), lambda g: g),
    _derivative,
    doc="The n-th derivative of sinc at real x: sinc_derivative(x, n) with a Python int n.",
)
sinc = unary(
    "sinc",
    (lambda g, a, xp: g * xp.sinc_derivative(a, 1),),
    doc="sin(pi x) / (pi x), and 1 at 0, elementwise, as numpy.sinc.",
)
