"""Bessel functions and their modified and scaled forms (DLMF 10.6 and 10.29).

Derivatives raise and lower the order by one, so no formula divides by x.
None exists with respect to the order.
"""

from ..ops.registry import conj as conjugate
from .library import special_function


def _ordered(name, doc, slope, holomorphic=True):
    """A function of an order v and an argument x; `slope(f, v, x, y, xp)` is its derivative."""
    vjp = lambda g, a, b, y, xp: g * conjugate(slope(lambda v: getattr(xp, name)(v, b), a, b, y, xp))  # noqa: E731
    return special_function(f"{name}(v, x)", (None, vjp), doc, holomorphic=holomorphic)


def _of_one(name, doc, slope):
    """A function of one real argument; `slope(x, y, xp)` is its derivative."""
    return special_function(f"{name}(x)", (lambda g, a, y, xp: g * slope(a, y, xp),), doc)


jv = _ordered(
    "jv", "The Bessel function of the first kind of real order v.", lambda f, v, x, y, xp: (f(v - 1) - f(v + 1)) * 0.5
)
yv = _ordered(
    "yv", "The Bessel function of the second kind of real order v.", lambda f, v, x, y, xp: (f(v - 1) - f(v + 1)) * 0.5
)
iv = _ordered(
    "iv",
    "The modified Bessel function of the first kind of real order v.",
    lambda f, v, x, y, xp: (f(v - 1) + f(v + 1)) * 0.5,
)
kv = _ordered(
    "kv",
    "The modified Bessel function of the second kind of real order v.",
    lambda f, v, x, y, xp: (f(v - 1) + f(v + 1)) * -0.5,
)
ive = _ordered(
    "ive",
    "exp(-abs(x)) iv(v, x), which does not overflow.",
    lambda f, v, x, y, xp: (f(v - 1) + f(v + 1)) * 0.5 - xp.sign(x) * y,
    holomorphic=False,
)
kve = _ordered(
    "kve",
    "exp(x) kv(v, x), which does not underflow.",
    lambda f, v, x, y, xp: y - (f(v - 1) + f(v + 1)) * 0.5,
)

j0 = _of_one("j0", "The Bessel function of the first kind of order 0.", lambda x, y, xp: -xp.j1(x))
j1 = _of_one("j1", "The Bessel function of the first kind of order 1.", lambda x, y, xp: (xp.j0(x) - xp.jv(2, x)) * 0.5)
y0 = _of_one("y0", "The Bessel function of the second kind of order 0.", lambda x, y, xp: -xp.y1(x))
y1 = _of_one(
    "y1", "The Bessel function of the second kind of order 1.", lambda x, y, xp: (xp.y0(x) - xp.yv(2, x)) * 0.5
)
i0 = _of_one("i0", "The modified Bessel function of the first kind of order 0.", lambda x, y, xp: xp.i1(x))
i1 = _of_one(
    "i1", "The modified Bessel function of the first kind of order 1.", lambda x, y, xp: (xp.i0(x) + xp.iv(2, x)) * 0.5
)
k0 = _of_one("k0", "The modified Bessel function of the second kind of order 0.", lambda x, y, xp: -xp.k1(x))
k1 = _of_one(
    "k1",
    "The modified Bessel function of the second kind of order 1.",
    lambda x, y, xp: (xp.k0(x) + xp.kv(2, x)) * -0.5,
)
i0e = _of_one("i0e", "exp(-abs(x)) i0(x).", lambda x, y, xp: xp.i1e(x) - xp.sign(x) * y)
i1e = _of_one("i1e", "exp(-abs(x)) i1(x).", lambda x, y, xp: (xp.i0e(x) + xp.ive(2, x)) * 0.5 - xp.sign(x) * y)
k0e = _of_one("k0e", "exp(x) k0(x).", lambda x, y, xp: y - xp.k1e(x))
k1e = _of_one("k1e", "exp(x) k1(x).", lambda x, y, xp: y - (xp.k0e(x) + xp.kve(2, x)) * 0.5)
