"""Philox-4x32-10: random words from counters, each by itself and in any order.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers:
as easy as 1, 2, 3", SC 2011.
"""

import functools

import numpy as np

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_MASK, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ROUNDS = 10
_BLOCK = 8192  # counters that are worked on at once, so that what lies between stays in the cache


def philox(key, counters, draw=0, stream=0):
    """Two 64-bit words for each counter.

    Parameters
    ----------
    key : int, 64 bits
    counters : numpy.ndarray of uint64, any shape
        The lower half of Philox's 128-bit counter.
    draw, stream : int, 32 bits each
        The upper half.

    Returns
    -------
    numpy.ndarray of uint64, shape (2, *counters.shape): the generator's four
    32-bit words, the first and the third in the higher halves.
    """
    counters = np.ascontiguousarray(counters, np.uint64)
    words = np.empty((2, counters.size), np.uint64)
    _implementation()(np.uint64(key), counters.reshape(-1), np.uint64(draw), np.uint64(stream), words)
    return words.reshape(2, *np.shape(counters))


@functools.cache
def _implementation():
    """The compiled kernel, or its NumPy twin where numba is missing or does not work with this NumPy."""
    try:
        from .philox4x32_numba import fill
    except ImportError:
        return fill_with_numpy
    return fill


def fill_with_numpy(key, counters, draw, stream, words):
    """Fill `words` block by block."""
    for start in range(0, counters.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        _fill_block(key, counters[part], draw, stream, words[:, part])


def _fill_block(key, counters, draw, stream, words):
    first, second = key & _MASK, key >> _HALF
    a, b = counters & _MASK, counters >> _HALF
    c, d = np.full_like(counters, draw), np.full_like(counters, stream)
    for _ in range(_ROUNDS):
        left, right = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b, c, d = (right >> _HALF) ^ b ^ first, right & _MASK, (left >> _HALF) ^ d ^ second, left & _MASK
        first, second = (first + _STEPS[0]) & _MASK, (second + _STEPS[1]) & _MASK
    words[0] = (a << _HALF) | b
    words[1] = (c << _HALF) | d
