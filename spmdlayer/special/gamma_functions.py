"""The gamma function, its relatives and hypergeometric functions (DLMF chapters 5, 8, 13, 15 and 25)."""

import math

from ..autograd.tensor import asarray
from ..dtypes import is_complex
from ..errors import type_error, value_error
from ..ops.elementwise import add, less, where
from ..ops.registry import conj as conjugate
from .library import from_library, library_function, special_function

gamma = special_function(
    "gamma(x)",
    (lambda g, a, y, xp: g * conjugate(y * xp.digamma(a)),),
    "The gamma function; gamma(n + 1) = n! for integers n.",
    holomorphic=True,
)
gammaln = special_function(
    "gammaln(x)",
    (lambda g, a, xp: g * xp.digamma(a),),
    "log(abs(gamma(x))) of real numbers.",
)
loggamma = special_function(
    "loggamma(x)",
    (lambda g, a, xp: g * conjugate(xp.digamma(a)),),
    "The principal branch of log(gamma(x)); nan for negative real numbers (see gammaln).",
    holomorphic=True,
)


def _digamma_vjp(g, a, xp):
    if is_complex(a.dtype):
        raise type_error("digamma: there is no derivative at complex numbers, SciPy has no complex polygamma")
    return g * xp.polygamma(1, a)


digamma = special_function(
    "digamma(x)",
    (_digamma_vjp,),
    "The logarithmic derivative of the gamma function, psi(x).  Differentiable at real numbers.",
    from_library("psi"),
    holomorphic=True,
)
psi = digamma


def _polygamma_forward(np, n, x):
    """The library's computes in float64."""
    return library_function(np, "polygamma")(n, x).astype(np.result_type(n, x), copy=False)


polygamma = special_function(
    "polygamma(n, x)",
    (None, lambda g, a, b, xp: g * xp.polygamma(a + 1, b)),
    "The n-th derivative of digamma at x, for integers n >= 0.",
    _polygamma_forward,
)
gammasgn = special_function(
    "gammasgn(x)",
    (lambda g, xp: xp.zeros_like(g),),
    "The sign of gamma(x); the gradient is zero.",
)


def factorial(x):
    """gamma(x + 1), for real x too; 0 for negative x."""
    negative = less(x, 0)
    return where(negative, 0.0, gamma(add(where(negative, 0.0, x), 1.0)))


def multigammaln(a, d):
    """The logarithm of the multivariate gamma function of dimension d (an int), for a > (d - 1) / 2.

    d (d - 1) / 4 log(pi) plus the sum of gammaln(a - j / 2) over j from 0 to d - 1.
    """
    if not isinstance(d, int) or d < 1:
        raise value_error(f"multigammaln: d must be an int of at least 1, {d!r} was given")
    a = asarray(a)
    total = gammaln(a)
    for j in range(1, d):
        total = total + gammaln(a - 0.5 * j)
    return total + d * (d - 1) / 4 * math.log(math.pi)


# Incomplete and two arguments ---------------------------------------------


def _gammainc_slope(a, x, xp):
    """x^(a-1) exp(-x) / gamma(a)."""
    return xp.exp(xp.xlogy(a - 1, x) - x - xp.gammaln(a))


gammainc = special_function(
    "gammainc(a, x)",
    (None, lambda g, a, b, xp: g * _gammainc_slope(a, b, xp)),
    "The regularised lower incomplete gamma function, the integral of t^(a-1) exp(-t) from 0 to x over gamma(a).",
)
gammaincc = special_function(
    "gammaincc(a, x)",
    (None, lambda g, a, b, xp: -g * _gammainc_slope(a, b, xp)),
    "The regularised upper incomplete gamma function, 1 - gammainc(a, x).",
)
beta = special_function(
    "beta(a, b)",
    (
        lambda g, a, b, y, xp: g * y * (xp.digamma(a) - xp.digamma(a + b)),
        lambda g, a, b, y, xp: g * y * (xp.digamma(b) - xp.digamma(a + b)),
    ),
    "The beta function, gamma(a) gamma(b) / gamma(a + b).",
)
betaln = special_function(
    "betaln(a, b)",
    (
        lambda g, a, b, xp: g * (xp.digamma(a) - xp.digamma(a + b)),
        lambda g, a, b, xp: g * (xp.digamma(b) - xp.digamma(a + b)),
    ),
    "log(abs(beta(a, b))).",
)


def _betainc_vjp(g, a, b, c, xp):
    """x^(a-1) (1-x)^(b-1) / beta(a, b)."""
    return g * xp.exp(xp.xlogy(a - 1, c) + xp.xlog1py(b - 1, -c) - xp.betaln(a, b))


betainc = special_function(
    "betainc(a, b, x)",
    (None, None, _betainc_vjp),
    "The regularised incomplete beta function, the integral of t^(a-1) (1-t)^(b-1) from 0 to x over beta(a, b).",
)
poch = special_function(
    "poch(z, m)",
    (
        lambda g, a, b, y, xp: g * y * (xp.digamma(a + b) - xp.digamma(a)),
        lambda g, a, b, y, xp: g * y * xp.digamma(a + b),
    ),
    "The rising factorial, gamma(z + m) / gamma(z).",
)
hyp1f1 = special_function(
    "hyp1f1(a, b, x)",
    (None, None, lambda g, a, b, c, xp: g * a / b * xp.hyp1f1(a + 1, b + 1, c)),
    "The confluent hypergeometric function 1F1(a; b; x).",
)
hyp2f1 = special_function(
    "hyp2f1(a, b, c, x)",
    (None, None, None, lambda g, a, b, c, d, xp: g * a * b / c * xp.hyp2f1(a + 1, b + 1, c + 1, d)),
    "Gauss's hypergeometric function 2F1(a, b; c; x).",
)
_zeta = special_function(
    "zeta(x, q)",
    (None, lambda g, a, b, xp: -g * a * xp.zeta(a + 1, b)),
    "The Hurwitz zeta function.",
)


def zeta(x, q=1.0):
    """The Hurwitz zeta function, the sum of (k + q)^-x over k >= 0; Riemann's for q = 1.

    There is no gradient with respect to x.
    """
    return _zeta(x, q)
