"""The precision in which LAPACK and Fourier transforms compute: they know neither half precision nor integers."""

import numpy as np

from ..autograd.tensor import Tensor
from ..dtypes import is_half, is_inexact
from .elementwise import astype
from .shape import operand


def computable(value):
    """An operand, half precision in float32, integers and bool in float64."""
    value = operand(value)
    if is_half(value.dtype):
        return _cast(value, np.dtype(np.float32))
    return value if is_inexact(value.dtype) else _cast(value, np.dtype(np.float64))


def _cast(value, dtype):
    return astype(value, dtype) if isinstance(value, Tensor) else value.astype(dtype)


def rounding(*given):
    """What brings results (Tensors) back to half precision where all operands have it; else leaves them."""
    dtypes = {value.dtype for value in map(operand, given)}
    if len(dtypes) > 1 or not all(map(is_half, dtypes)):
        return lambda result: result
    (dtype,) = dtypes
    return lambda result: astype(result, dtype)
