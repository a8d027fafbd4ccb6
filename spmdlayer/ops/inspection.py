"""Questions about dtypes and about this namespace, by the names of the Array API standard (2024.12)."""

from dataclasses import dataclass

import numpy as np

from .. import dtypes as dt
from ..errors import type_error, value_error
from .device import CPU, device_of, devices

_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}
_DTYPES = (
    *(dt.bool_, dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8, dt.uint16, dt.uint32, dt.uint64),
    *(dt.float32, dt.float64, dt.complex64, dt.complex128),
)


def _dtype_of(value):
    """The dtype of a tensor or array, or the dtype that is named."""
    return value.dtype if hasattr(value, "dtype") and not isinstance(value, type) else dt.dtype(value)


def isdtype(dtype, kind):
    """Whether a dtype is of a kind: a dtype, a name, or a tuple of them of which one must hold.

    Names: "bool", "signed integer", "unsigned integer", "integral", "real
    floating", "complex floating", "numeric".  float16 and bfloat16 are real
    floating.
    """
    dtype = dt.dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, item) for item in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return ("f" if dt.is_bfloat16(dtype) else dtype.kind) in _KINDS[kind]
    if isinstance(kind, str):
        raise value_error(f"isdtype: kind {kind!r} was given; one of {', '.join(map(repr, _KINDS))} is right")
    return dtype == dt.dtype(kind)


def can_cast(from_, to):
    """Whether a dtype, or that of a tensor, can become another without losing values, as numpy.can_cast."""
    return bool(np.can_cast(_dtype_of(from_), _dtype_of(to)))


def result_type(*arrays_and_dtypes):
    """The dtype that an operation of these tensors, dtypes and Python numbers has, by NumPy 2's promotion."""
    numbers = (bool, int, float, complex)
    return np.result_type(*(x if type(x) in numbers else _dtype_of(x) for x in arrays_and_dtypes))


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a floating point dtype, of a complex one those of its parts; Python floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype


@dataclass(frozen=True)
class IntegerInfo:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: np.dtype


def finfo(type):
    """The limits of a floating point or complex dtype, or of a tensor's.

    Attributes: bits, eps, max, min, smallest_normal, dtype.
    """
    dtype = _dtype_of(type)
    if not dt.is_inexact(dtype):
        raise type_error(f"finfo: {dtype.name} was given; a floating point or complex dtype is needed")
    if dt.is_bfloat16(dtype):
        import ml_dtypes

        info = ml_dtypes.finfo(dtype)
    else:
        info = np.finfo(dtype)
    limits = (float(value) for value in (info.eps, info.max, info.min, info.smallest_normal))
    return FloatInfo(int(info.bits), *limits, np.dtype(info.dtype))


def iinfo(type):
    """The limits of an integer dtype, or of a tensor's: bits, max, min, dtype."""
    dtype = _dtype_of(type)
    if dtype.kind not in "iu":
        raise type_error(f"iinfo: {dtype.name} was given; an integer dtype is needed")
    info = np.iinfo(dtype)
    return IntegerInfo(int(info.bits), int(info.max), int(info.min), dtype)


class NamespaceInfo:
    """What this namespace can do: the answer of `__array_namespace_info__()`."""

    @staticmethod
    def capabilities():
        """A dict: indexing with masks and results whose shape depends on values work; at most 64 dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    @staticmethod
    def default_device():
        """Where tensors are made unless a device is given."""
        return CPU

    @staticmethod
    def default_dtypes(*, device=None):
        """A dict of the dtypes that numbers get unless one is given."""
        return {
            "real floating": dt.float64,
            "complex floating": dt.complex128,
            "integral": dt.int64,
            "indexing": dt.int64,
        }

    @staticmethod
    def dtypes(*, device=None, kind=None):
        """A dict of the standard's dtypes by name, those of a kind (see `isdtype`) where one is given."""
        return {dtype.name: dtype for dtype in _DTYPES if kind is None or isdtype(dtype, kind)}

    @staticmethod
    def devices():
        """A list of the devices: "cpu", and "cuda:0" and so on once CuPy has been imported."""
        return devices()


def namespace_info():
    """What this namespace can do, as the Array API standard asks: an object with questions as methods."""
    return NamespaceInfo()


def device(x):
    """The device of a tensor's array, "cpu" or "cuda:0"; of a distributed tensor that of this rank's piece."""
    return device_of(x._data)
