"""Continuous distributions: uniform, normal, truncated normal, gamma."""

import numpy as np

from ..dtypes import is_complex
from ..errors import value_error
from ..special.library import library_function
from .pieces import draw, floating

# How many of a word's bits a uniform number of each width of significand keeps, so that it stays below 1.
_SIGNIFICAND = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def fractions(word, dtype=None):
    """Uniform numbers on [0, 1) from 64-bit words: the multiples of 2**-bits that the dtype holds exactly."""
    bits = _SIGNIFICAND["float64" if dtype is None else dtype.name]
    return (word >> np.uint64(64 - bits)).astype(np.float64) * 2.0**-bits


def positive_fractions(word):
    """Uniform numbers on (0, 1], whose logarithm is finite."""
    return ((word >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53


def uniform(key, shape, dtype=None, low=0.0, high=1.0, mesh=None, placements=None):
    """Numbers evenly distributed on [low, high).

    Parameters
    ----------
    key : Key
    shape : global shape, an int or a sequence of ints
    dtype : a floating one; float64
    low, high : numbers, or arrays (equal on all ranks) that broadcast to `shape`
    mesh, placements : where a distributed tensor lies (Replicate unless given); without a mesh it is local

    Nothing communicates.
    """
    dtype = floating("uniform", dtype)

    def make(piece):
        start, stop = piece.parameter(low, "low"), piece.parameter(high, "high")
        if np.any(start > stop):
            raise value_error(f"uniform: low {low!r} lies above high {high!r}")
        unit = fractions(piece.words()[0], dtype)
        if np.all(start == 0) and np.all(stop == 1):
            return unit
        # Rounding could reach `high`.
        values = (start + (stop - start) * unit).astype(dtype)
        return np.where(values < stop, values, np.minimum(np.nextafter(values, start, dtype=dtype), stop))

    return draw("uniform", key, shape, dtype, mesh, placements, make)


def standard_normals(words):
    """Two independent standard normal numbers for each pair of words (G. E. P. Box, M. E. Muller, 1958)."""
    radius, angle = np.sqrt(-2 * np.log(positive_fractions(words[0]))), 2 * np.pi * fractions(words[1])
    return radius * np.cos(angle), radius * np.sin(angle)


def normal(key, shape, dtype=None, mesh=None, placements=None):
    """Standard normal numbers: mean 0, variance 1.

    For a complex dtype real and imaginary part each have variance 1/2.  Other
    arguments as for `uniform`; ``mean + std * normal(...)`` gives other ones.
    """
    dtype = floating("normal", dtype, complex_too=True)

    def make(piece):
        first, second = standard_normals(piece.words())
        return (first + 1j * second) * np.sqrt(0.5) if is_complex(dtype) else first

    return draw("normal", key, shape, dtype, mesh, placements, make)


def truncated_normal(key, shape, lower=-2.0, upper=2.0, dtype=None, mesh=None, placements=None):
    """Standard normal numbers among those between two bounds (numbers or arrays), by the inverse of the distribution.

    Other arguments as for `uniform`.  Needs SciPy.
    """
    dtype = floating("truncated_normal", dtype)

    def make(piece):
        ndtr, ndtri = library_function(np, "ndtr"), library_function(np, "ndtri")
        low, high = piece.parameter(lower, "lower"), piece.parameter(upper, "upper")
        if not np.all(low < high):
            raise value_error(f"truncated_normal: lower {lower!r} must lie below upper {upper!r}")
        # On the right of 0 the distribution is near 1 and has lost its digits: mirrored.
        mirrored = np.asarray(low > 0)
        start, stop = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
        begin, end = ndtr(start), ndtr(stop)
        values = ndtri(begin + (end - begin) * positive_fractions(piece.words()[0]))
        return np.clip(np.where(mirrored, -values, values), low, high)

    return draw("truncated_normal", key, shape, dtype, mesh, placements, make)


def gamma(key, shape, alpha, dtype=None, mesh=None, placements=None):
    """Numbers of the gamma distribution with shape parameter `alpha` (a number or an array, positive) and scale 1.

    By rejection: G. Marsaglia, W. W. Tsang, "A simple method for generating
    gamma variables", ACM TOMS 26 (2000).  Other arguments as for `uniform`.
    """
    dtype = floating("gamma", dtype)

    def make(piece):
        wanted = np.asarray(piece.parameter(alpha, "alpha"), np.float64)
        if not np.all(wanted > 0):
            raise value_error(f"gamma: alpha {alpha!r} was given; it must be positive")
        wanted = np.broadcast_to(wanted, piece.counters.shape)
        # Below 1: of alpha + 1, times U**(1 / alpha).
        boost = positive_fractions(piece.words()[1]) ** (1 / wanted)
        return _marsaglia_tsang(piece, np.where(wanted < 1, wanted + 1, wanted)) * np.where(wanted < 1, boost, 1)

    return draw("gamma", key, shape, dtype, mesh, placements, make)


def _marsaglia_tsang(piece, alpha):
    d = alpha - 1 / 3
    c = 1 / np.sqrt(9 * d)
    values, open_, attempt = np.empty(piece.counters.shape), np.ones(piece.counters.shape, bool), 1
    while open_.any():
        x = standard_normals(piece.words(attempt, open_))[0]
        u = positive_fractions(piece.words(attempt + 1, open_)[0])
        v = (1 + c[open_] * x) ** 3
        with np.errstate(invalid="ignore", divide="ignore"):
            good = (v > 0) & (np.log(u) < 0.5 * x * x + d[open_] * (1 - v + np.log(v)))
        places = np.flatnonzero(open_)[good]
        values.reshape(-1)[places] = d.reshape(-1)[places] * v[good]
        open_.reshape(-1)[places] = False
        attempt += 2
    return values
