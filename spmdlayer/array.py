"""Which library a raw array belongs to.

The module follows the array: NumPy for NumPy's, CuPy for CuPy's.  Nobody is
imported to look: a CuPy array exists only where CuPy has been imported.
"""

import sys

import numpy as np


def is_array(value):
    """Whether a value is a raw array: a NumPy or CuPy array, or a NumPy scalar."""
    if isinstance(value, (np.ndarray, np.generic)):
        return True
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def array_module(value):
    """The module (numpy or cupy) whose functions work on a raw array."""
    kind = type(value)
    return np if kind is np.ndarray else module_of(kind)


def module_of(kind):
    """The module (numpy or cupy) of a type of raw arrays."""
    return np if issubclass(kind, (np.ndarray, np.generic)) else sys.modules["cupy"]


def to_numpy(value):
    """A raw array in host memory, as a NumPy array; copies only from a device."""
    return value if isinstance(value, np.ndarray) else (value.get() if hasattr(value, "get") else np.asarray(value))
