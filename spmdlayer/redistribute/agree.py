"""Do the ranks along a mesh axis hold the same values?"""

import zlib

import numpy as np

from ..array import to_numpy
from ..dtypes import is_inexact


def fingerprint(array):
    """A hash of an array's shape, dtype and bytes, as an unsigned 64-bit integer."""
    host = np.ascontiguousarray(to_numpy(array))
    head = f"{host.shape}{host.dtype.name}".encode()
    data = host.reshape(-1).view(np.uint8)
    # Two independent checksums: equal bytes agree for certain, unequal ones collide with probability 2**-64 or so.
    return (zlib.crc32(data, zlib.crc32(head)) << 32) | zlib.adler32(data, zlib.adler32(head))


def spread(array, line):
    """The largest difference between any two ranks' values, and the largest finite magnitude.

    NaN equals NaN, an infinity itself; otherwise they differ by infinity.
    `array` has the same shape and dtype on every rank of the Channel `line`;
    a few reductions.
    """
    host = to_numpy(array)
    if not is_inexact(host.dtype):
        high, low = line.allreduce(host, "max"), line.allreduce(host, "min")
        apart = [int(h) - int(k) for h, k in zip(high[high != low].flat, low[high != low].flat)]
        return float(max(apart, default=0)), 0.0
    if host.dtype.kind == "c":
        host = np.stack([host.real, host.imag])
    wide = host.astype(np.longdouble if host.dtype.itemsize > 8 else np.float64)
    nan = np.isnan(wide)
    nans = line.allreduce(nan.astype(np.float64), "sum")
    if ((nans > 0) & (nans < line.size)).any():
        return np.inf, 0.0
    filled = np.where(nan, 0, wide)
    high, low = line.allreduce(filled, "max"), line.allreduce(filled, "min")
    with np.errstate(invalid="ignore"):
        difference = np.where(high == low, 0, high - low)
    magnitude = np.maximum(np.abs(high), np.abs(low))
    finite = np.where(np.isfinite(magnitude), magnitude, 0)
    return float(difference.max(initial=0)), float(finite.max(initial=0))


def tolerance(dtype, magnitude, entered=0.0):
    """How far values may be apart that were computed in another order.

    Relative to the largest cotangent that entered the region, never below
    rounding of the values themselves.
    """
    if not is_inexact(dtype):
        return 0.0
    eps = 2.0**-8 if dtype.itemsize == 2 else float(np.finfo(dtype).eps)
    return 64 * eps * max(magnitude, entered)


def same_values(array, line, entered=0.0):
    """Whether all ranks of a Channel hold equal values, up to rounding; collective."""
    size, dtype = array.size, array.dtype
    records = line.record(fingerprint(array).to_bytes(8, "little"))
    if all(record == records[0] for record in records):
        return True
    shapes = line.record(repr((array.shape, dtype.name)).encode())
    if any(shape != shapes[0] for shape in shapes) or size == 0:
        return False
    difference, magnitude = spread(array, line)
    return difference <= tolerance(dtype, magnitude, entered)


def any_rank(line, *flags):
    """For each flag whether any rank of the Channel `line` has it set: a tuple of bools; one small exchange."""
    if line.size == 1:
        return flags
    rows = line.record(bytes(map(bool, flags)))
    return tuple(any(row[k] for row in rows) for k in range(len(flags)))
