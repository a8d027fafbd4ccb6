"""Philox-4x32-10 as numba compiles it; see `philox4x32`."""

import functools

import numpy as np

from .numba_cache import compile_cached
from .philox4x32 import _HALF, _MASK, _MULTIPLIERS, _ROUNDS, _STEPS

_LEFT, _RIGHT = _MULTIPLIERS
_FIRST_STEP, _SECOND_STEP = _STEPS


def fill(key, counters, draw, stream, words):
    """Fill `words` for the counters."""
    _compiled()(key, counters, draw, stream, words)


@functools.cache
def _compiled():
    return compile_cached(_fill, "void(uint64, uint64[::1], uint64, uint64, uint64[:, ::1])", error_model="numpy")


def _fill(key, counters, draw, stream, words):
    for i in range(counters.size):
        first, second = key & _MASK, key >> _HALF
        a, b, c, d = counters[i] & _MASK, counters[i] >> _HALF, draw, stream
        for _ in range(_ROUNDS):
            left, right = np.uint64(_LEFT * a), np.uint64(_RIGHT * c)
            a, b = (right >> _HALF) ^ b ^ first, right & _MASK
            c, d = (left >> _HALF) ^ d ^ second, left & _MASK
            first, second = (first + _FIRST_STEP) & _MASK, (second + _SECOND_STEP) & _MASK
        words[0, i] = (a << _HALF) | b
        words[1, i] = (c << _HALF) | d
