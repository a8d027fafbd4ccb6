"""Where arrays are: host memory, "cpu", or a CUDA device by its number, "cuda:0".

A tensor is where its array is, NumPy's in host memory and CuPy's on a device;
of a distributed tensor that is this rank's piece, and ranks may differ.
"""

import sys
from contextlib import contextmanager

import numpy as np

from ..array import to_numpy
from ..autograd.tensor import asarray
from ..errors import value_error
from .registry import apply, define
from .rules import Rule, stated

CPU = "cpu"


def device_of(array):
    """The device of a raw array."""
    return CPU if isinstance(array, (np.ndarray, np.generic)) else f"cuda:{array.device.id}"


def devices():
    """The devices that tensors can be put on: the host, and CUDA devices where CuPy has been imported."""
    cupy = sys.modules.get("cupy")
    count = cupy.cuda.runtime.getDeviceCount() if cupy is not None and cupy.cuda.is_available() else 0
    return [CPU, *(f"cuda:{number}" for number in range(count))]


def _number(name, device):
    """None for the host, else the number of a CUDA device; "cuda" is the one that CuPy has chosen."""
    if device is None or device == CPU:
        return None
    kind, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind != "cuda" or not (number.isdecimal() or device == "cuda"):
        raise value_error(f"{name}: device {device!r} was given; 'cpu' and 'cuda:0' (with CuPy) are right")
    try:
        import cupy
    except ImportError:
        raise value_error(f"{name}: device {device!r} was given, but CuPy is not installed; 'cpu' is right") from None
    return int(number) if number else cupy.cuda.Device().id


@contextmanager
def on_device(name, device):
    """The module, numpy or cupy, that makes arrays on a device, with that device chosen."""
    number = _number(name, device)
    if number is None:
        yield np
    else:
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(number):
            yield cupy


def moved(name, array, device):
    """A raw array on a device; copied only from one to another."""
    with on_device(name, device) as module:
        return to_numpy(array) if module is np else module.asarray(array)


@stated("as the operand lies", "nothing")
def _rule(call):
    return Rule(call.layouts, call.layouts[0])


_to_device = define(
    "to_device",
    lambda np, x, device, source: moved("to_device", x, device),
    (lambda g, p, xp: xp.to_device(g, device=p.source, source=p.device),),
    rule=_rule,
)


def to_device(x, device, /, *, stream=None):
    """x on a device, "cpu" or "cuda:0"; x itself where it is there already.

    The gradient goes back to x's device.  Of a distributed tensor each rank
    moves its own piece; nothing is communicated.  `stream` is for other
    libraries' conventions and must be None.
    """
    if stream is not None:
        raise value_error(f"to_device: stream {stream!r} was given; only None is right, CuPy's current stream is used")
    x = asarray(x)
    source, number = device_of(x._data), _number("to_device", device)
    device = CPU if number is None else f"cuda:{number}"
    return x if device == source else apply(_to_device, (x,), {"device": device, "source": source})
