"""Tensors on CUDA devices, against a stand-in for CuPy whose arrays keep a NumPy array and the number of a device."""

import sys
import types
from contextlib import contextmanager

import numpy as np
import pytest

import spmdlayer as spmd

CHOSEN = [0]


class DeviceArray:
    """As much of cupy.ndarray as the operations below use; NumPy's functions do not know it."""

    __array_ufunc__ = None
    base = None

    def __init__(self, host, number):
        self.host, self.device = host, types.SimpleNamespace(id=number)

    dtype = property(lambda self: self.host.dtype)
    shape = property(lambda self: self.host.shape)
    ndim = property(lambda self: self.host.ndim)
    size = property(lambda self: self.host.size)
    __cuda_array_interface__ = property(
        lambda self: {"data": (4096, False), "shape": self.shape, "typestr": self.dtype.str, "version": 3}
    )

    def get(self):
        return self.host.copy()

    def __mul__(self, other):
        return multiply(self, other)


def asarray(value):
    if isinstance(value, DeviceArray) and value.device.id == CHOSEN[0]:
        return value
    host = value.host if isinstance(value, DeviceArray) else np.asarray(value)
    return DeviceArray(host.copy(), CHOSEN[0])


def multiply(a, b):
    return asarray(getattr(a, "host", a) * getattr(b, "host", b))


@contextmanager
def chosen(number=None):
    before, CHOSEN[0] = CHOSEN[0], number
    yield
    CHOSEN[0] = before


class Device:
    def __init__(self, number=None):
        self.id = CHOSEN[0] if number is None else number

    def __enter__(self):
        self.scope = chosen(self.id)
        self.scope.__enter__()

    def __exit__(self, *error):
        self.scope.__exit__(*error)


@pytest.fixture
def cupy(monkeypatch):
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 2)
    cuda = types.SimpleNamespace(Device=Device, runtime=runtime, is_available=lambda: True)
    module = types.ModuleType("cupy")
    vars(module).update(
        ndarray=DeviceArray,
        cuda=cuda,
        asarray=asarray,
        multiply=multiply,
        zeros=lambda shape, dtype: asarray(np.zeros(shape, dtype)),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)


def test_arrays_go_to_a_device_and_back(cupy):
    x = spmd.tensor([1.0, 2.0])
    for word, device in (("cuda", "cuda:0"), ("cuda:1", "cuda:1")):
        there = x.to_device(word)
        assert there.device == device and there.to_device(device) is there
        assert there.shape == (2,) and there.dtype == np.float64
        back = there.to_device("cpu")
        assert back.device == "cpu"
        np.testing.assert_array_equal(back, [1, 2])
        np.testing.assert_array_equal(np.asarray(there), [1, 2])
    assert spmd.__array_namespace_info__().devices() == ["cpu", "cuda:0", "cuda:1"]


def test_making_on_a_device(cupy):
    assert spmd.zeros(3, device="cuda:1").device == "cuda:1"
    x = spmd.asarray([1.0, 2.0], dtype="float32", device="cuda:1")
    assert (x.device, x.dtype) == ("cuda:1", np.float32)
    assert spmd.zeros_like(spmd.ones(2), device="cuda").device == "cuda:0"
    assert spmd.astype(spmd.ones(2), "float32", device="cuda:1").device == "cuda:1"
    assert CHOSEN == [0]
    with pytest.raises(ValueError, match="copy=False"):
        spmd.asarray(spmd.ones(2), device="cuda", copy=False)


def test_gradients_come_back_from_a_device(cupy):
    x = spmd.tensor([1.0, 2.0], requires_grad=True)
    weights = spmd.asarray([3.0, 5.0], device="cuda")
    y = spmd.multiply(x.to_device("cuda"), weights)
    assert y.device == "cuda:0" and y.requires_grad
    gradient = spmd.grad(spmd.sum(y.to_device("cpu")), x)
    assert gradient.device == "cpu"
    np.testing.assert_array_equal(gradient, [3, 5])


def test_the_cuda_array_interface_is_read_only(cupy):
    x = spmd.zeros(3, device="cuda")
    described = x.__cuda_array_interface__
    assert described["data"] == (4096, True) and described["shape"] == (3,)
    assert not hasattr(spmd.zeros(3), "__cuda_array_interface__")
    with pytest.raises(TypeError, match=r"__cuda_array_interface__ .* requires grad .* detach\(\)"):
        spmd.zeros(3, device="cuda").requires_grad_().__cuda_array_interface__  # noqa: B018
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(x, copy=False)
