"""The softmax cross-entropy kernel that numba compiles.

Written so that LLVM turns the loops over classes into vector instructions:
an exponential without branches or calls, a maximum over integers, and no
check that could raise.  Rows are taken in blocks that fit into the cache, so
that the exponential runs over long stretches even where classes are few.
"""

import functools
import math

import numpy as np
from numba.extending import overload

from .numba_cache import compile_cached

_BLOCK = 2048  # elements that are worked on at once
# NaN and infinity must come out as such, so no flag may assume them away.  Reassociation is for sums; in the
# exponential it would undo the rounding.
_EXACT = {"fastmath": {"contract", "nsz"}, "error_model": "numpy"}
_FREE = {"fastmath": {"contract", "nsz", "reassoc", "arcp"}, "error_model": "numpy"}


def fill(logits, labels, weights, losses, gradient):
    """Fill losses and gradient; returns -1, or the first row whose label is out of range."""
    return _compiled(logits.dtype.name)(logits, labels, weights, losses, gradient)


@functools.cache
def _compiled(real):
    signature = f"int64({real}[:, ::1], int64[::1], {real}[::1], {real}[::1], {real}[:, ::1])"
    return compile_cached(_fill, signature, **_FREE)


def _fill(logits, labels, weights, losses, gradient):
    rows, classes = logits.shape
    real = logits.dtype.type
    block_rows = max(1, _BLOCK // classes)
    flat = gradient.reshape(rows * classes)
    for start in range(0, rows, block_rows):
        stop = min(start + block_rows, rows)
        for i in range(start, stop):
            label = labels[i]
            if label < 0 or label >= classes:
                return i
            largest = _order(logits[i, 0])
            for j in range(1, classes):
                largest = max(largest, _order(logits[i, j]))
            shift = _at_order(largest, logits[i, 0])
            for j in range(classes):
                gradient[i, j] = logits[i, j] - shift
            losses[i] = gradient[i, label]
        block = flat[start * classes : stop * classes]
        for k in range(block.size):
            block[k] = _exp(block[k])
        for i in range(start, stop):
            total = real(0)
            for j in range(classes):
                total += gradient[i, j]
            losses[i] = weights[i] * (math.log(total) - losses[i])
            scale = weights[i] / total
            for j in range(classes):
                gradient[i, j] *= scale
            gradient[i, labels[i]] -= weights[i]
    return -1


def _order(x):
    """An integer that orders floats as they are ordered: a maximum of integers can be vectorised.

    NaN comes above all if its sign is positive, and below all if negative;
    either way it gets into the sum of its row.
    """


def _at_order(order, like):
    """The float of an order, of the type of `like`."""


def _exp(x):
    """exp(x) for x <= 0, to 2 ulp; 0 where the result would be denormal."""


class _Format:
    """What the functions above need to know of a floating-point format."""

    def __init__(self, real, integer, mantissa_bits, terms):
        self.real, self.integer = real, integer
        self.mantissa_bits = integer(mantissa_bits)
        self.sign_shift = integer(np.iinfo(integer).bits - 1)
        self.magnitude = np.iinfo(integer).max
        self.bias = integer(1 - np.finfo(real).minexp)
        # Adding this rounds to an integer, and leaves it in the lowest bits.
        self.rounder = real(1.5 * 2.0**mantissa_bits)
        self.smallest = real(np.finfo(real).minexp * math.log(2))
        # log(2) in two parts, the first with so few bits that its multiples are exact.
        bits = np.array(math.log(2), real).view(integer)
        self.log2_high = (bits >> (mantissa_bits // 2) << (mantissa_bits // 2)).view(real)
        self.log2_low = real(math.log(2) - float(self.log2_high))
        self.taylor = tuple(real(1 / math.factorial(k)) for k in reversed(range(terms)))


# So many terms that the rest of the series is below half an ulp on |x| <= log(2) / 2.
_FORMATS = {"float32": _Format(np.float32, np.int32, 23, 8), "float64": _Format(np.float64, np.int64, 52, 14)}


@overload(_order, jit_options=_EXACT)
def _order_of_type(x):
    known = _FORMATS[x.name]
    real, integer, sign_shift, magnitude = known.real, known.integer, known.sign_shift, known.magnitude

    def order(x):
        bits = real(x).view(integer)
        return integer(bits ^ ((bits >> sign_shift) & magnitude))

    return order


@overload(_at_order, jit_options=_EXACT)
def _at_order_of_type(order, like):
    known = _FORMATS[like.name]
    real, integer, sign_shift, magnitude = known.real, known.integer, known.sign_shift, known.magnitude

    def at_order(order, like):
        bits = integer(order ^ ((order >> sign_shift) & magnitude))
        return bits.view(real)

    return at_order


@overload(_exp, jit_options=_EXACT)
def _exp_of_type(x):
    known = _FORMATS[x.name]
    real, integer, mantissa_bits, bias = known.real, known.integer, known.mantissa_bits, known.bias
    per_log2, rounder, smallest = real(1 / math.log(2)), known.rounder, known.smallest
    log2_high, log2_low = known.log2_high, known.log2_low
    first, others = known.taylor[0], known.taylor[1:]

    def exp(x):  # 2**n * exp(rest), |rest| <= log(2) / 2
        shifted = real(x * per_log2 + rounder)
        n = shifted - rounder
        rest = (x - n * log2_high) - n * log2_low
        series = first
        for term in others:
            series = series * rest + term
        power_bits = integer((shifted.view(integer) + bias) << mantissa_bits)
        return real(0) if x < smallest else series * power_bits.view(real)

    return exp
