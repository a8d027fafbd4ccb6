"""Names and kinds of dtypes, bfloat16 among them.

bfloat16 comes from ml_dtypes, which takes long to import and so is imported
only when somebody names it.  To NumPy its kind is "V", so no code asks
`numpy.issubdtype` directly; the functions here know it.
"""

import numpy as np

from .errors import type_error

_KINDS_INEXACT = "fc"


bool_ = np.dtype(bool)
int8, int16, int32, int64 = map(np.dtype, ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(np.dtype, ("uint8", "uint16", "uint32", "uint64"))
float16, float32, float64 = map(np.dtype, ("float16", "float32", "float64"))
complex64, complex128 = map(np.dtype, ("complex64", "complex128"))


def dtype(name):
    """The `numpy.dtype` for a dtype, a scalar type or a name ("float32", "bfloat16")."""
    if type(name) is np.dtype:
        return name
    if isinstance(name, str) and name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    try:
        return np.dtype(name)
    except TypeError:
        raise type_error(f"dtype: {name!r} is not a dtype; give one like 'float32' or numpy.float32") from None


def is_bfloat16(dt):
    return dt.kind == "V" and dt.name == "bfloat16"


def is_inexact(dt):
    """Whether a dtype can carry gradients: floating point or complex."""
    return dt.kind in _KINDS_INEXACT or is_bfloat16(dt)


def is_complex(dt):
    return dt.kind == "c"


def is_half(dt):
    """Whether sums of this dtype are accumulated in float32."""
    return dt.itemsize == 2 and (dt.kind == "f" or is_bfloat16(dt))


def supported(dt):
    """Whether tensors of this dtype exist: bool, ints, floats, complex."""
    return dt.kind in "biufc" or is_bfloat16(dt)


def lowest(dt):
    """The identity of max for a dtype: no value is below it."""
    return _extreme(dt, -1)


def highest(dt):
    """The identity of min for a dtype: no value is above it."""
    return _extreme(dt, +1)


def _extreme(dt, sign):
    if is_inexact(dt) and dt.kind != "c":
        return dt.type(sign * np.inf)
    if dt.kind == "b":
        return dt.type(sign > 0)
    if dt.kind in "iu":
        info = np.iinfo(dt)
        return dt.type(info.max if sign > 0 else info.min)
    raise type_error(f"{dt.name} has no order, so max and min are not defined for it")


def check_reducible(dt, op):
    """Raise a TypeError unless values of this dtype can be reduced by `op`.

    sum, avg and prod need numbers; max and min an order; any and all bool.
    """
    if op in ("sum", "prod", "avg") and dt.kind == "b":
        raise type_error(f"Partial({op!r}) of bool: cast to an integer first, or use Partial('any') or Partial('all')")
    if op == "avg" and dt.kind in "iu":
        raise type_error(f"Partial('avg') of {dt.name}: the mean of integers is no integer; cast to float first")
    if op in ("max", "min") and dt.kind == "c":
        raise type_error(f"Partial({op!r}) of {dt.name}: complex numbers have no order")
    if op in ("any", "all") and dt.kind != "b":
        raise type_error(f"Partial({op!r}) of {dt.name}: only bool can be reduced by {op}")
