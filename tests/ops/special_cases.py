"""Gradient cases of special functions, for `gradient_cases`."""

import numpy as np
from case_arrays import cmplx, real, signed, small

from spmdlayer.ops import elementwise
from spmdlayer.ops.registry import REGISTRY
from spmdlayer.special import logarithmic, multigammaln, sici, zeta

CASES = {}


def _functions(name, *cases):
    CASES.setdefault(name, []).extend(cases)


def _each(names, *inputs):
    """Functions of one array, or of a tuple of them."""
    for name in names.split():
        _functions(name, *((REGISTRY[name].public, x if isinstance(x, tuple) else (x,)) for x in inputs))


_each("erf erfc erfcx erfi dawsn ndtr log_ndtr", small(3), small(2) + 1j * small(2), small())
_each("erfinv", small(3))
_each("ndtri erfcinv", real(3, low=0.1, high=0.9))
_each("gamma loggamma", real(3))
_each("gammaln gammasgn digamma", real(3), np.array([-0.4, 2.3]))
_each("beta betaln", (real(2, 3), real(3)))
for _name in ("loggamma", "gamma"):  # the second derivative at complex numbers is not there
    _functions(_name, (lambda x, f=REGISTRY[_name].public: elementwise.abs(f(x)), (real(2, low=1.2, high=1.8),)))
for _name in ("jv", "yv", "iv", "kv", "kve"):
    _functions(
        _name, *((lambda x, v=v, f=REGISTRY[_name].public: f(v, x), (x,)) for v, x in ((1, real(3)), (0.5, cmplx(2))))
    )
_functions("ive", (lambda x: REGISTRY["ive"].public(np.array([[0], [2]]), x), (signed(3),)))
_each("j0 j1 i0 i1 i0e i1e sine_integral", signed(3))
_each("y0 y1 k0 k1 k0e k1e cosine_integral", real(3))
_each("exp1 expi", real(3), cmplx(2))
_each("softplus sinc", signed(3))
_functions("sinc", (REGISTRY["sinc"].public, (np.array([0.0, 1e-3, 2.5]),)))
_functions("sinc_derivative", (lambda x: REGISTRY["sinc_derivative"].public(x, 2), (np.array([0.0, 0.3, -1.9]),)))
_each("logit entr", real(3, low=0.1, high=0.9))
_each("xlogy xlog1py", (signed(2, 3), real(3)), (cmplx(2), real(2)), (np.array([0.0, 0.5]), real(2)))
_each("rel_entr", (real(2, 3), real(3)))
_functions("rel_entr", (logarithmic.kl_div, (real(3), real(3))))
_functions("softplus", (logarithmic.log_expit, (signed(3),)))
_functions("polygamma", *((lambda x, n=n: REGISTRY["polygamma"].public(n, x), (real(3),)) for n in (0, 2)))
_functions("zeta", (lambda q: zeta(2.5, q), (real(3),)))
_functions("gammaln", (lambda a: multigammaln(a, 3), (1.2 + real(3),)))
_functions("sine_integral", (lambda x: sici(x)[0] * sici(x)[1], (real(3),)))
for _name in ("gammainc", "gammaincc"):
    _functions(_name, (lambda x, f=REGISTRY[_name].public: f(np.array([1.0, 2.5]), x), (real(2),)))
_functions("betainc", (lambda x: REGISTRY["betainc"].public(2.5, [[1.0], [0.5]], x), (real(3, low=0.1, high=0.9),)))
_each("spence", real(3), np.array([0.995, 1.0, 1.004]), cmplx(2))
_each("fresnel_sine fresnel_cosine", signed(3), cmplx(2))
_each("poch", (real(2, 3), real(3)))
_functions("expn", *((lambda x, n=n: REGISTRY["expn"].public(n, x), (real(3),)) for n in (0, 1, 4)))
_functions("hyp1f1", (lambda x: REGISTRY["hyp1f1"].public(0.7, [[1.5], [2.5]], x), (signed(3),)))
_functions("hyp2f1", (lambda x: REGISTRY["hyp2f1"].public(0.7, 1.2, [[1.5], [2.5]], x), (small(3),)))
