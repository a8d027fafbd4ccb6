"""Logistic functions and entropies: NumPy suffices for them."""

from ..ops.elementwise import add, negative, sigmoid, subtract
from ..ops.registry import conj as conjugate
from .library import special_function

expit = sigmoid

# Logistic functions --------------------------------------------------------


def _logit_forward(np, x):
    """Near 1/2, where the two logarithms would cancel, log1p of what x / (1 - x) exceeds 1 by."""
    near = abs(x - 0.5) < 0.25
    middle = np.where(near, x, 0.5)
    return np.where(near, np.log1p((2 * middle - 1) / (1 - middle)), np.log(x) - np.log1p(-x))


logit = special_function(
    "logit(p)", (lambda g, a: g / (a * (1 - a)),), "log(p / (1 - p)), the inverse of expit.", _logit_forward
)
softplus = special_function(
    "softplus(x)",
    (lambda g, a, xp: g * xp.sigmoid(a),),
    "log(1 + exp(x)), without overflow.",
    lambda np, x: np.logaddexp(x, 0),
)


def log_expit(x):
    """log(expit(x)), accurate for large negative and large positive x."""
    return negative(softplus(negative(x)))


# Entropies -----------------------------------------------------------------


def _xlogy_forward(np, x, y):
    return x * np.log(np.where((x == 0) & (y == y), 1, y))


def _xlog1py_forward(np, x, y):
    return x * np.log1p(np.where((x == 0) & (y == y), 0, y))


xlogy = special_function(
    "xlogy(x, y)",
    (
        lambda g, a, b, xp: g * conjugate(xp.log(xp.where((a == 0) & (b == 0), 1, b))),
        lambda g, a, b, xp: g * conjugate(a / xp.where((a == 0) & (b == 0), 1, b)),
    ),
    "x log(y), and 0 where x is 0 (unless y is nan).",
    _xlogy_forward,
    holomorphic=True,
)
xlog1py = special_function(
    "xlog1py(x, y)",
    (
        lambda g, a, b, xp: g * conjugate(xp.log1p(xp.where((a == 0) & (b == -1), 0, b))),
        lambda g, a, b, xp: g * conjugate(a / xp.where((a == 0) & (b == -1), 1, 1 + b)),
    ),
    "x log(1 + y), and 0 where x is 0 (unless y is nan).",
    _xlog1py_forward,
    holomorphic=True,
)


def _entr_forward(np, x):
    safe = np.where(x > 0, x, 1)
    return np.where(x < 0, -np.inf, np.where(x == 0, 0, np.where(x > 0, -safe * np.log(safe), x)))


entr = special_function(
    "entr(x)",
    (lambda g, a, xp: g * (-1 - xp.log(a)),),
    "-x log(x); 0 at 0, -inf below.",
    _entr_forward,
)


def _rel_entr_forward(np, x, y):
    good = (x > 0) & (y > 0)
    value = np.where(good, x, 1) * np.log(np.where(good, x, 1) / np.where(good, y, 1))
    value = np.where((x == 0) & (y >= 0), 0, np.where(good, value, np.inf))
    return np.where((x != x) | (y != y), np.nan, value)


rel_entr = special_function(
    "rel_entr(x, y)",
    (lambda g, a, b, xp: g * (xp.log(a / b) + 1), lambda g, a, b: -g * a / b),
    "x log(x / y); 0 where x is 0, inf where x or y is negative.",
    _rel_entr_forward,
)


def kl_div(x, y):
    """x log(x / y) - x + y, the terms of the Kullback-Leibler divergence; inf where x or y is negative."""
    return add(subtract(rel_entr(x, y), x), y)
