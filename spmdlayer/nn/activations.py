"""Activation functions, elementwise; at a kink the gradient is that from the left."""

import math

from ..ops import elementwise as ew
from ..ops.registry import raw_namespace, unary

relu = unary(
    "relu",
    (lambda g, a, xp: xp.where(a > 0, g, 0),),
    lambda np, x: np.maximum(x, 0),
    doc="max(x, 0); the gradient at 0 is 0.",
)


def leaky_relu(x, negative_slope=0.01):
    """x where it is positive, else negative_slope * x."""
    return ew.where(ew.greater(x, 0), x, ew.multiply(x, negative_slope))


def elu(x, alpha=1.0):
    """x where it is positive, else alpha * (exp(x) - 1)."""
    positive = ew.greater(x, 0)
    return ew.where(positive, x, ew.multiply(ew.expm1(ew.where(positive, 0, x)), alpha))


def _silu_vjp(g, a, xp):
    s = xp.sigmoid(a)
    return g * s * (1 + a * (1 - s))


silu = unary("silu", (_silu_vjp,), lambda np, x: x * raw_namespace(x).sigmoid(x), doc="x times its sigmoid (swish).")

_ROOT_TWO_PI = math.sqrt(2 * math.pi)


def _gelu_vjp(g, a, xp):
    return g * (xp.ndtr(a) + a * xp.exp(a * a * -0.5) / _ROOT_TWO_PI)


gelu = unary(
    "gelu",
    (_gelu_vjp,),
    lambda np, x: x * raw_namespace(x).ndtr(x),
    doc="x times the distribution function of the standard normal distribution at x (not its tanh approximation).",
)
