"""Special functions: values against SciPy, dtypes, branches, errors; derivatives are in gradient_cases."""

import inspect
import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.special

import spmdlayer as spmd
from spmdlayer import special

INSIDE = np.array([0.02, 0.3, 0.5, 0.51, 0.97])
REAL = np.array([-2.3, -0.7, -0.1, 0.4, 1.9, 6.5, 30.0])
POSITIVE = np.array([1e-3, 0.4, 1.0, 2.6, 9.5, 40.0])
INPUTS = {
    "erf erfc erfcx erfi dawsn ndtr log_ndtr expit log_expit": REAL,
    "gamma gammaln loggamma digamma psi gammasgn i0 i0e i1 i1e j0 j1 sici fresnel entr": REAL,
    "erfcinv ndtri logit": INSIDE,
    "erfinv": 2 * INSIDE - 1,
    "y0 y1 k0 k0e k1 k1e exp1 expi spence": POSITIVE,
}
COMPLEX = "erf erfc erfcx erfi dawsn ndtr log_ndtr gamma loggamma digamma exp1 expi spence fresnel"
PAIRS = "beta betaln gammainc gammaincc xlogy xlog1py rel_entr kl_div jv yv iv ive kv kve poch"


def close(found, expected, rtol=1e-13):
    for ours, theirs in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, expected))):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=rtol, atol=0)


@pytest.mark.parametrize("name, x", [(name, x) for names, x in INPUTS.items() for name in names.split()])
def test_functions_of_one_argument(name, x):
    ours, theirs = getattr(special, name), getattr(scipy.special, name)
    close(ours(x), theirs(x))
    close(ours(spmd.tensor(x.astype("float32"))), theirs(x.astype("float32")), 1e-6)
    close(ours(x[0]), np.float64(theirs(x[0])) if name not in ("sici", "fresnel") else theirs(x[0]))


@pytest.mark.parametrize("name", COMPLEX.split())
def test_functions_of_complex_numbers(name):
    z = np.array([0.3 + 0.4j, -1.2 + 0.1j, 2.5 - 3j])
    close(getattr(special, name)(z), getattr(scipy.special, name)(z))


@pytest.mark.parametrize("name", PAIRS.split())
def test_functions_of_two_arguments(name):
    ours, theirs = getattr(special, name), getattr(scipy.special, name)
    a, b = np.array([[0.0], [0.5], [2.0]]), np.array([0.3, 1.0, 7.0])
    close(ours(a, b), theirs(a, b))
    close(ours(spmd.tensor(a, dtype="float32"), 2.0), theirs(a.astype("float32"), np.float32(2)), 2e-6)


def test_functions_of_three_arguments_and_orders():
    x = POSITIVE
    close(special.betainc(2.0, 0.5, INSIDE), scipy.special.betainc(2.0, 0.5, INSIDE))
    close(special.polygamma(np.arange(4)[:, None], x), scipy.special.polygamma(np.arange(4)[:, None], x))
    assert special.polygamma(1, x.astype("float32")).dtype == np.float32
    close(special.zeta(2.5, x), scipy.special.zeta(2.5, x))
    close(special.zeta(x + 1.5), scipy.special.zeta(x + 1.5))
    close(special.multigammaln(x + 2, 3), scipy.special.multigammaln(x + 2, 3))
    close(special.expn(3, x), scipy.special.expn(3, x))
    close(special.hyp1f1(0.5, 1.5, REAL), scipy.special.hyp1f1(0.5, 1.5, REAL))
    close(special.hyp2f1(0.5, 1.0, 1.5, INSIDE), scipy.special.hyp2f1(0.5, 1.0, 1.5, INSIDE))
    close(special.factorial(REAL), scipy.special.factorial(REAL))
    assert special.factorial(x.astype("float32")).dtype == np.float32


def test_edges():
    nan, inf = np.nan, np.inf
    x, y = np.array([0.0, 0.0, 0.0, 1.0, -1.0, nan]), np.array([0.0, nan, -1.0, 0.0, 2.0, 1.0])
    for name in ("rel_entr", "kl_div"):
        close(getattr(special, name)(x, y), getattr(scipy.special, name)(x, y))
    with np.errstate(all="ignore"):
        close(special.xlogy(x, y), scipy.special.xlogy(x, y))
        close(special.xlog1py(x, -y), scipy.special.xlog1py(x, -y))
        close(special.logit(np.array([0.0, 1.0, -1.0])), np.array([-inf, inf, nan]))
    close(special.entr(np.array([0.0, -1.0, nan, inf])), scipy.special.entr(np.array([0.0, -1.0, nan, inf])))
    close(special.softplus(np.array([-800.0, 800.0])), np.array([0.0, 800.0]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype):
    x = spmd.tensor([0.3, 0.6], dtype=dtype)
    wide = spmd.astype(x, "float32").numpy()
    for name in ("erf", "gammaln", "logit", "softplus", "entr"):
        exact = getattr(special, name)(wide)
        assert (getattr(special, name)(x) == spmd.astype(exact, dtype)).all()
    assert special.gammainc(2.0, x).dtype == dtype
    x.requires_grad = True
    assert spmd.grad(special.beta(x, 2.0).sum(), x).dtype == dtype


@pytest.mark.parametrize("name", "digamma erf jv sinc softplus".split())
def test_derivatives_keep_float32(name):
    x = spmd.tensor(INSIDE, dtype="float32", requires_grad=True)
    function = spmd.sinc if name == "sinc" else getattr(special, name)
    first = spmd.grad((function(2, x) if name == "jv" else function(x)).sum(), x, create_graph=True)
    assert first.dtype == spmd.grad(first.sum(), x).dtype == np.float32


def test_sinc_and_its_derivatives():
    x = np.array([0.0, 1e-8, 0.3, 1.0, 2.7, -11.2])
    np.testing.assert_allclose(spmd.sinc(x).numpy(), np.sinc(x))
    t = spmd.tensor(x, requires_grad=True)
    found = spmd.sinc(t)
    for order in range(1, 6):
        found = spmd.grad(found.sum(), t, create_graph=True)
        # The integral of pi^n s^n cos(pi x s + n pi / 2) over s from 0 to 1.
        s, weights = np.polynomial.legendre.leggauss(60)
        s, weights = (s + 1) / 2, weights / 2
        grid = np.cos(np.pi * x[:, None] * s + order * np.pi / 2) * s**order
        np.testing.assert_allclose(found.detach().numpy(), np.pi**order * (grid @ weights), atol=1e-10 * 4**order)


def test_third_derivative_of_gammaln():
    x = spmd.tensor(2.5, requires_grad=True)
    value = special.gammaln(x)
    for order in range(3):
        value = spmd.grad(value, x, create_graph=True)
        assert math.isclose(value.item(), scipy.special.polygamma(order, 2.5), rel_tol=1e-13)


def test_bad_input():
    x = spmd.tensor(INSIDE, requires_grad=True)
    with pytest.raises(TypeError, match="gammainc: there is no gradient with respect to a; give a.detach()"):
        special.gammainc(x, 1.0)
    assert special.gammainc(x.detach(), x).requires_grad
    with spmd.no_grad():
        special.gammainc(x, 1.0)
    with pytest.raises(TypeError, match="erfinv: y is complex128"):
        special.erfinv(np.array([1j]))
    with pytest.raises(TypeError, match="beta: 2 arguments are needed"):
        special.beta(1.0)
    with pytest.raises(ValueError, match="multigammaln: d must be"):
        special.multigammaln(1.0, 0)
    z = spmd.tensor([1.0 + 1j], requires_grad=True)
    with pytest.raises(TypeError, match="no derivative at complex numbers"):
        spmd.grad(special.digamma(z), z, [np.ones(1)])


def test_signatures_say_what_the_arguments_are():
    assert str(inspect.signature(special.betainc)) == "(a, b, x, /)"
    assert "no gradient with respect to n" in special.polygamma.__doc__


WITHOUT_SCIPY = """
import sys, math
sys.modules["scipy"] = sys.modules["scipy.special"] = None
import numpy as np, spmdlayer as spmd
from spmdlayer import special
x = spmd.tensor([-1.5, 0.25, 2.0], requires_grad=True)
for name in ("erf", "erfc"):
    assert getattr(special, name)(x.detach()).numpy().tolist() == [getattr(math, name)(v) for v in (-1.5, 0.25, 2.0)]
assert abs(special.ndtr(0.0).item() - 0.5) < 1e-15
assert special.erf(np.zeros((0, 2), "float32")).dtype == np.float32
for name in ("expit", "softplus", "log_expit", "entr", "ndtr"):
    spmd.grad(getattr(special, name)(x).sum(), x)
try:
    special.gammaln(x)
except ImportError as error:
    print(error)
"""


@pytest.mark.skipif(spmd.get_world_size() > 1, reason="starts a Python of its own")
def test_without_scipy():
    result = subprocess.run([sys.executable, "-c", WITHOUT_SCIPY], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "gammaln needs scipy.special: pip install 'spmdlayer[scipy]'" in result.stdout
