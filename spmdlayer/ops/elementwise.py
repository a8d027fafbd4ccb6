"""Elementwise operations: arithmetic, functions, comparisons.

Names, broadcasting and dtypes are NumPy 2's: Python numbers are weak, arrays
and NumPy scalars are not.  Where a function has a kink (abs, maximum,
minimum) the inputs that attain the value share the gradient equally; where
it is piecewise constant (floor, sign) the gradient is zero.
"""

import cmath
import math

import numpy as np

from ..array import is_array
from ..autograd.tensor import asarray
from ..dtypes import dtype as as_dtype
from ..dtypes import is_bfloat16, is_complex
from ..errors import type_error
from .registry import apply, binary, elementwise, unary
from .registry import conj as conjugate
from .rules import Rule, follow, linear_cast, stated

_LN2 = math.log(2.0)
_LN10 = math.log(10.0)
_NUMBERS = (bool, int, float, complex)


def _same(g):
    return g


def _zero(g, xp):
    return xp.zeros_like(g)


# Arithmetic --------------------------------------------------------------

add = binary("add", (_same, _same), linear="add")
subtract = binary("subtract", (_same, lambda g: -g), linear="add")
multiply = binary("multiply", (lambda g, b: g * conjugate(b), lambda g, a: g * conjugate(a)), linear="multiply")
divide = binary("divide", (lambda g, b: g / conjugate(b), lambda g, b, y: -g * conjugate(y / b)), linear="divide")
floor_divide = binary("floor_divide", (_zero, _zero))
remainder = binary("remainder", (_same, lambda g, a, b, xp: -g * xp.floor_divide(a, b)))


def _power_base(g, a, b, xp):
    """b a^(b-1); 0 for b = 0, at a = 0 too."""
    if isinstance(b, _NUMBERS):
        if b == 0:
            return xp.zeros_like(g)
        return g * conjugate(a + a) if b == 2 else g * conjugate(b * a ** (b - 1))
    # Only where both are 0 the exponent would be -1 and the product nan.
    return g * conjugate(b * a ** xp.where((a == 0) & (b == 0), 1, b - 1))


def _power_exponent(g, a, y, xp):
    """a^b log(a); 0 for a = 0."""
    if isinstance(a, _NUMBERS):
        if a == 0:
            return xp.zeros_like(g)
        log = cmath.log(a) if is_complex(y.dtype) else (math.log(a) if a > 0 else math.nan)
        return g * conjugate(y * log)
    return g * conjugate(y * xp.log(xp.where(a == 0, 1, a)))


power = binary("power", (_power_base, _power_exponent))
pow = power

negative = unary("negative", (lambda g: -g,), linear="unary")
positive = unary("positive", (_same,), linear="unary")
copy = unary("copy", (_same,), linear="unary", doc="A copy of a tensor, on the tape like any other result.")
square = unary("square", (lambda g, a: g * conjugate(a + a),))
sqrt = unary("sqrt", (lambda g, y: g * 0.5 / conjugate(y),))
cbrt = unary("cbrt", (lambda g, y: g / (3 * y * y),))
reciprocal = unary("reciprocal", (lambda g, y: -g * conjugate(y * y),))


def _sign(g, a, y, xp):
    """For complex numbers sign is z/|z|, whose phase moves."""
    if not is_complex(a.dtype):
        return xp.zeros_like(g)
    return (g - y * xp.real(xp.conj(y) * g)) / xp.abs(a)


abs = unary("abs", (lambda g, a, xp: g * xp.sign(a),))
sign = unary("sign", (_sign,))


def _signs_agree(g, a, b, xp):
    return xp.where(xp.signbit(a) == xp.signbit(b), g, -g)


copysign = binary("copysign", (_signs_agree, _zero))
nextafter = binary("nextafter")


# Exponentials and logarithms ---------------------------------------------

exp = unary("exp", (lambda g, y: g * conjugate(y),))
exp2 = unary("exp2", (lambda g, y: g * conjugate(y * _LN2),))
expm1 = unary("expm1", (lambda g, y: g * conjugate(y + 1),))
log = unary("log", (lambda g, a: g / conjugate(a),))
log1p = unary("log1p", (lambda g, a: g / conjugate(1 + a),))
log2 = unary("log2", (lambda g, a: g / conjugate(a * _LN2),))
log10 = unary("log10", (lambda g, a: g / conjugate(a * _LN10),))


def _sigmoid(np, x):
    """1 / (1 + exp(-x)), without overflow for large negative x."""
    x = np.asarray(x)
    small = np.exp(np.where(np.real(x) < 0, x, -x))
    return np.where(np.real(x) < 0, small, 1) / (1 + small)


sigmoid = unary("sigmoid", (lambda g, y: g * conjugate(y * (1 - y)),), _sigmoid, doc="1 / (1 + exp(-a)), elementwise.")


def _softmax_of_two(a, b, xp):
    """exp(a) / (exp(a) + exp(b)), 1/2 where both are the same infinity."""
    return xp.sigmoid(xp.where((a == b) & xp.isinf(a), 0, a - b))


logaddexp = binary(
    "logaddexp",
    (lambda g, a, b, xp: g * _softmax_of_two(a, b, xp), lambda g, a, b, xp: g * _softmax_of_two(b, a, xp)),
)


# Trigonometric and hyperbolic functions ----------------------------------

sin = unary("sin", (lambda g, a, xp: g * conjugate(xp.cos(a)),))
cos = unary("cos", (lambda g, a, xp: -g * conjugate(xp.sin(a)),))
tan = unary("tan", (lambda g, y: g * conjugate(1 + y * y),))
asin = unary("asin", (lambda g, a, xp: g / conjugate(xp.sqrt(1 - a * a)),))
acos = unary("acos", (lambda g, a, xp: -g / conjugate(xp.sqrt(1 - a * a)),))
atan = unary("atan", (lambda g, a: g / conjugate(1 + a * a),))
sinh = unary("sinh", (lambda g, a, xp: g * conjugate(xp.cosh(a)),))
cosh = unary("cosh", (lambda g, a, xp: g * conjugate(xp.sinh(a)),))
tanh = unary("tanh", (lambda g, y: g * conjugate(1 - y * y),))
asinh = unary("asinh", (lambda g, a, xp: g / conjugate(xp.sqrt(1 + a * a)),))
acosh = unary("acosh", (lambda g, a, xp: g / conjugate(xp.sqrt(a - 1) * xp.sqrt(a + 1)),))
atanh = unary("atanh", (lambda g, a: g / conjugate(1 - a * a),))
atan2 = binary("atan2", (lambda g, a, b: g * b / (a * a + b * b), lambda g, a, b: -g * a / (a * a + b * b)))


def _along(g, a, y, xp):
    """a / y, the cosine to a leg; 0 at the origin, as that of abs."""
    return g * (a / xp.where(y == 0, 1, y))


hypot = binary("hypot", (_along, lambda g, b, y, xp: _along(g, b, y, xp)))
deg2rad = unary("deg2rad", (lambda g: g * (math.pi / 180),), linear="unary")
rad2deg = unary("rad2deg", (lambda g: g * (180 / math.pi),), linear="unary")


# Selection ---------------------------------------------------------------


def attains(value, extreme):
    """Where `value` is the extreme value; NaN, which wins every comparison, equals NaN here."""
    return (value == extreme) | ((value != value) & (extreme != extreme))


def _share(g, mine, other, extreme, xp):
    """The cotangent where `mine` is the extreme value, half of it where both are."""
    return xp.where(attains(mine, extreme), xp.where(attains(other, extreme), g * 0.5, g), 0)


_extreme_vjps = (lambda g, a, b, y, xp: _share(g, a, b, y, xp), lambda g, a, b, y, xp: _share(g, b, a, y, xp))
maximum = binary("maximum", _extreme_vjps)
minimum = binary("minimum", _extreme_vjps)

fmax = binary("fmax", _extreme_vjps)
fmin = binary("fmin", _extreme_vjps)


def _where_forward(np, condition, x, y):
    result = np.where(condition, x, y)
    if type(x) in _NUMBERS or type(y) in _NUMBERS:  # to NumPy's where they are weak beside its own dtypes alone
        result = result.astype(np.result_type(*(getattr(z, "dtype", z) for z in (x, y))), copy=False)
    return result


_where, _ = elementwise(
    "where", (_zero, lambda g, a, xp: xp.where(a, g, 0), lambda g, a, xp: xp.where(a, 0, g)), _where_forward
)


_where.direct = lambda arrays, params: None if any(is_bfloat16(x.dtype) for x in arrays if is_array(x)) else np.where


def where(condition, x, y):
    """`x` where the condition holds, else `y`; all three broadcast.

    The dtype is that of x and y together.  Nothing communicates but what the
    layouts of distributed operands need.
    """
    return apply(_where, (condition, x, y))


_where.public = where


def clip(x, min=None, max=None):
    """x between two bounds (numbers, arrays, tensors or None), elementwise.

    Where x equals a bound the two share the gradient equally.
    """
    if min is not None:
        x = maximum(x, min)
    if max is not None:
        x = minimum(x, max)
    return x if min is not None or max is not None else copy(x)


# Comparisons, logic and bits: no gradients -------------------------------

equal = binary("equal")
not_equal = binary("not_equal")
less = binary("less")
less_equal = binary("less_equal")
greater = binary("greater")
greater_equal = binary("greater_equal")
logical_and = binary("logical_and")
logical_or = binary("logical_or")
logical_xor = binary("logical_xor")
logical_not = unary("logical_not")
isnan = unary("isnan")
isfinite = unary("isfinite")
isinf = unary("isinf")
signbit = unary("signbit")
bitwise_and = binary("bitwise_and")
bitwise_or = binary("bitwise_or")
bitwise_xor = binary("bitwise_xor")
bitwise_invert = unary("bitwise_invert")
bitwise_left_shift = binary("bitwise_left_shift")
bitwise_right_shift = binary("bitwise_right_shift")


# Rounding: the gradient is zero ------------------------------------------

floor = unary("floor", (_zero,))
ceil = unary("ceil", (_zero,))
trunc = unary("trunc", (_zero,))
_nearest = unary("round", (_zero,))


def round(x, decimals=0):
    """To so many decimals (negative: before the point), halves to even, elementwise."""
    if decimals == 0:
        return _nearest(x)
    scale = 10.0**decimals
    return divide(_nearest(multiply(x, scale)), scale)


# Complex parts and dtypes ------------------------------------------------

real = unary("real", (_same,), linear="unary")
imag = unary("imag", (lambda g, a, xp: g * 1j if is_complex(a.dtype) else xp.zeros_like(g),), linear="unary")
conj = unary("conj", (lambda g: conjugate(g),), linear="unary", doc="The complex conjugate, elementwise.")


@stated("as its operand; a Partial sum or mean stays one unless values are cut off", "nothing")
def _astype_rule(call):
    """As its operand; a sum of pieces stays one unless the cast cuts values off."""
    shape = call.shapes[0]
    source, target = follow(call, range(len(shape)), shape, linear_cast(call.dtypes[0], call.params["dtype"]))
    return Rule((source,), target)


# The cotangent comes back in the input's dtype, as that of every elementwise operation.
_astype, _ = elementwise("astype", (_same,), lambda np, x, dtype: x.astype(dtype, copy=False), rule=_astype_rule)


def astype(x, dtype, copy=True, device=None):
    """x in another dtype (a numpy.dtype, scalar type or name), on another device where one is given.

    `copy` is there for the standard's sake: tensors are values, so that
    nobody can tell.  The gradient is cast back to x's dtype.  A TypeError if
    imaginary parts would be dropped: take `real(x)` first.
    """
    x, dtype = asarray(x), as_dtype(dtype)
    if is_complex(x.dtype) and not is_complex(dtype) and dtype.kind != "b":
        raise type_error(f"astype: {x.dtype.name} to {dtype.name} would drop the imaginary parts; take real(x) first")
    result = apply(_astype, (x,), {"dtype": dtype})
    return result if device is None else result.to_device(device)


_astype.public = astype
