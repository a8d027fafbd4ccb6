"""Examples for every operation: those of `gradient_cases` and `value_cases`, in random shapes and dtypes.

An example is a function of tensors and the whole arrays to call it on.  Its
extents are changed together, so that what fitted still fits; where a function
takes its own shapes or dtypes alone, its arrays stay as they are.
"""

import importlib
import pkgutil

import numpy as np
from gradient_cases import CASES
from placed import draw
from value_cases import VALUES

import spmdlayer as spmd

for _module in pkgutil.walk_packages(spmd.__path__, "spmdlayer."):  # so that the registry is complete
    if not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)

SAMPLES = {**VALUES, **CASES}
# Operations whose parameters fit one shape alone, which nobody checks: only vjps call them.
FIXED = {
    "spread",
    "spread_at",
    "gather_mask",
    "spread_mask",
    "half_spectrum",
    "place_diagonal", "fold",
    "window_max_shares",
    "window_max_means",
}
_REFUSED = (ValueError, TypeError, IndexError, ZeroDivisionError)


def example(random, name):
    """A random example of an operation: (function, arrays)."""
    function, arrays = draw(random, SAMPLES[name])
    arrays = [np.asarray(array) for array in arrays]
    if name in FIXED:
        return function, arrays
    for change in (_stretched, _numbers, _recast):
        changed = change(random, arrays)
        if changed is not None and _runs(function, changed):
            arrays = changed
    return function, arrays


def _runs(function, arrays):
    """Whether a function takes these arrays, as local tensors."""
    try:
        with np.errstate(all="ignore"):
            function(*map(spmd.tensor, arrays))
    except _REFUSED:
        return False
    return True


def _stretched(random, arrays):
    """The arrays with each extent replaced by another, by 0 once in a while; the values are drawn from theirs."""
    if random.random() < 0.2:
        return None
    extents = sorted({extent for array in arrays for extent in array.shape if extent > 1})
    other = {extent: int(draw(random, [1, 2, 3, 4, 5, 6, 7, 7, 8, 0])) for extent in extents}
    return [_resampled(random, array, tuple(other.get(extent, extent) for extent in array.shape)) for array in arrays]


def _numbers(random, arrays):
    """One of the arrays as a 0-d one, if at all."""
    chosen = int(random.integers(4 * len(arrays)))
    if chosen >= len(arrays):
        return None
    return [_resampled(random, array, ()) if k == chosen else array for k, array in enumerate(arrays)]


def _recast(random, arrays):
    """Some of the arrays in another dtype, if at all."""
    if random.random() < 0.6:
        return None
    dtype = np.dtype(draw(random, ["bool", "int64", "int8", "float32", "complex64", "complex128"]))
    return [_cast(array, dtype) if random.random() < 0.7 else array for array in arrays]


def _cast(array, dtype):
    if dtype.kind not in "biu":
        return array if array.dtype.kind == "c" and dtype.kind != "c" else array.astype(dtype)
    if array.dtype.kind not in "fc" or not np.isfinite(array).all():
        return array
    return np.rint(array.real * 2).astype(dtype)


@np.errstate(invalid="ignore")  # infinite parts of complex numbers
def _resampled(random, array, shape):
    """Values from an array in another shape; floats get a little noise, so that they are not equal (zeros are)."""
    if array.size == 0:
        return np.asarray(random.uniform(0.3, 1.7, shape)).astype(array.dtype)
    values = np.asarray(random.choice(array.reshape(-1), shape))
    if array.dtype.kind in "fc":
        values = np.asarray(values * random.uniform(0.99, 1.01, shape)).astype(array.dtype)
    return values
