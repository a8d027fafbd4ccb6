"""What the Array API standard asks of the namespace beyond its operations."""

import array
import math

import numpy as np
import pytest
from mpi_helpers import assert_all

import spmdlayer as spmd


def sharded(values):
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    return spmd.shard_tensor(values, mesh, [spmd.Shard(0)])


# The namespace -----------------------------------------------------------


def test_a_tensor_names_its_namespace():
    x = spmd.tensor([1.0])
    assert x.__array_namespace__() is spmd
    assert x.__array_namespace__(api_version=spmd.__array_api_version__) is spmd
    with pytest.raises(ValueError, match="version '2011.1'"):
        x.__array_namespace__(api_version="2011.1")


def test_constants_and_dtypes():
    assert (spmd.e, spmd.pi, spmd.inf) == (math.e, math.pi, math.inf)
    assert math.isnan(spmd.nan) and spmd.newaxis is None
    assert spmd.bool == np.dtype(bool)


def test_inspection():
    info = spmd.__array_namespace_info__()
    assert info.default_device() == "cpu" and "cpu" in info.devices()
    assert info.default_dtypes() == {
        "real floating": np.float64,
        "complex floating": np.complex128,
        "integral": np.int64,
        "indexing": np.int64,
    }
    assert list(info.dtypes(kind="real floating")) == ["float32", "float64"]
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {"bool", "complex64", "complex128"}
    assert len(info.dtypes()) == 13
    assert info.capabilities()["data-dependent shapes"] is True


def test_kinds_of_dtypes():
    kinds = "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"
    expected = {
        "bool": "bool",
        "int8": "signed integer, integral, numeric",
        "uint16": "unsigned integer, integral, numeric",
        "bfloat16": "real floating, numeric",
        "float16": "real floating, numeric",
        "complex64": "complex floating, numeric",
    }
    for name, held in expected.items():
        assert ", ".join(kind for kind in kinds if spmd.isdtype(spmd.dtype(name), kind)) == held
    assert spmd.isdtype(spmd.int8, (spmd.int16, "signed integer")) and not spmd.isdtype(spmd.int8, spmd.int16)
    with pytest.raises(ValueError, match="isdtype: kind 'float'"):
        spmd.isdtype(spmd.int8, "float")


def test_limits_of_dtypes():
    for name in ("float16", "float32", "float64", "complex64"):
        ours, theirs = spmd.finfo(spmd.zeros(1, dtype=name)), np.finfo(name)
        for field in ("eps", "max", "min", "smallest_normal"):
            assert type(getattr(ours, field)) is float and getattr(ours, field) == getattr(theirs, field)
        assert (ours.bits, ours.dtype) == (theirs.bits, theirs.dtype)
    assert spmd.finfo("bfloat16").eps == 2.0**-7
    assert (spmd.iinfo(spmd.uint8).max, spmd.iinfo(spmd.arange(2)).min) == (255, -(2**63))
    for function, wrong in ((spmd.finfo, spmd.int8), (spmd.iinfo, spmd.float32)):
        with pytest.raises(TypeError, match=wrong.name):
            function(wrong)


def test_promotion():
    x = spmd.zeros(2, dtype="float32")
    assert spmd.result_type(x, spmd.float64) == np.float64
    assert spmd.result_type(x, 1.0) == np.float32
    assert spmd.result_type(x, 1j) == np.complex64
    assert spmd.can_cast(x, spmd.float64) is True and spmd.can_cast(spmd.int64, spmd.int32) is False


# Making tensors ----------------------------------------------------------


def test_asarray_copies_when_asked():
    given = np.arange(3.0)
    shared, copied = spmd.asarray(given), spmd.asarray(given, copy=True)
    given[0] = 7.0
    np.testing.assert_array_equal(shared, [7, 1, 2])
    np.testing.assert_array_equal(copied, [0, 1, 2])
    buffer = array.array("d", [1.0, 2.0])
    one, other = spmd.asarray(buffer, copy=False), spmd.asarray(memoryview(buffer), copy=True)
    buffer[0] = 5.0
    np.testing.assert_array_equal(one, [5, 2])
    np.testing.assert_array_equal(other, [1, 2])
    x = spmd.tensor([1.0])
    assert spmd.asarray(x) is x and spmd.asarray(x, copy=True) is not x
    for data, options in ((given, {"dtype": "float32"}), ([1.0], {}), (2.0, {}), ([x, x], {}), (x, {"dtype": "int8"})):
        with pytest.raises(ValueError, match="copy=False"):
            spmd.asarray(data, copy=False, **options)


def test_asarray_checks_that_numbers_fit():
    with pytest.raises(OverflowError):
        spmd.asarray([300], dtype="uint8")
    assert int(spmd.asarray(2**63, dtype="uint64")) == 2**63


def test_asarray_stays_on_the_tape():
    x = spmd.tensor([1.0, 2.0], requires_grad=True)
    y = spmd.asarray([[x[0], 3.0], [x[1] * x[0], 4.0]])
    assert y.shape == (2, 2)
    spmd.sum(y * spmd.asarray(x, dtype="complex128").real).backward()
    # y = [[x0, 3], [x0 x1, 4]] times [x0, x1], summed
    np.testing.assert_allclose(x.grad, [2 * 1 + 2 * 1 * 2, 3 + 1 + 4])


@pytest.mark.mpi
def test_asarray_stays_distributed():
    x = sharded(np.arange(4.0))
    assert spmd.asarray(x, dtype="float32").placements == x.placements
    y = spmd.asarray([[x[0], x[3]], [x[1], 7.0]])
    assert y.is_dist()
    assert_all(np.array_equal(y.numpy(), [[0, 3], [1, 7]]))


def test_meshgrid():
    a, b, c = np.arange(2.0), np.arange(3), np.arange(4)
    for indexing in ("xy", "ij"):
        for found, expected in zip(
            spmd.meshgrid(a, b, c, indexing=indexing), np.meshgrid(a, b, c, indexing=indexing), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == expected.dtype
    assert spmd.meshgrid() == []
    with pytest.raises(ValueError, match="'xy' or 'ij'"):
        spmd.meshgrid(a, indexing="ji")


def test_triangles_keep_the_dtype():
    for dtype in ("bool", "int8", "bfloat16", "float32"):
        x = spmd.ones((2, 3, 3), dtype=dtype)
        assert spmd.tril(x).dtype == spmd.triu(x).dtype == spmd.dtype(dtype)
        np.testing.assert_array_equal(spmd.triu(x, k=1).astype("int8"), np.triu(np.ones((2, 3, 3)), 1))
    with pytest.raises(ValueError, match="tril: at least 2"):
        spmd.tril(spmd.ones(3))


def test_numbers_are_weak_beside_bfloat16():
    x = spmd.tensor([1.0, np.nan, np.inf], dtype="bfloat16")
    for y in (x + 1.0, spmd.where(spmd.isnan(x), 0.0, x), spmd.nan_to_num(x), spmd.nanmin(x), spmd.maximum(x, 0)):
        assert y.dtype == spmd.dtype("bfloat16")
    assert spmd.where(spmd.isnan(x), 0.0, 1).dtype == np.float64


def test_empty_like():
    x = spmd.zeros((2, 0, 3), dtype="int8")
    assert (spmd.empty_like(x).shape, spmd.empty_like(x).dtype) == ((2, 0, 3), np.int8)
    assert spmd.empty_like(x, dtype="float32").dtype == np.float32


def test_reshape_without_a_copy():
    x = spmd.ones((2, 3))
    assert np.shares_memory(spmd.reshape(x, (3, 2), copy=False).numpy(), x.numpy())
    with pytest.raises(ValueError, match="copy=False"):
        spmd.reshape(x.T, (6,), copy=False)


# Devices and other libraries ---------------------------------------------


def test_devices():
    x = spmd.zeros(2, device="cpu")
    assert x.device == "cpu" and x.to_device("cpu") is x
    assert spmd.asarray(x, device="cpu") is x
    assert spmd.astype(x, "float32", device="cpu").device == "cpu"
    for device in ("gpu", "cuda:", "cuda:x", 0):
        with pytest.raises(ValueError, match="device .* 'cpu' and 'cuda:0'"):
            spmd.ones(2, device=device)
        with pytest.raises(ValueError, match="to_device"):
            x.to_device(device)
    with pytest.raises(ValueError, match="stream"):
        x.to_device("cpu", stream=1)


def test_a_device_without_cupy():
    try:
        import cupy  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match="zeros: device 'cuda:1' was given, but CuPy is not installed"):
            spmd.zeros(2, device="cuda:1")


def test_dlpack_shares_the_buffer():
    x = spmd.tensor([1.0, 2.0, 3.0])
    seen = np.from_dlpack(x)
    assert np.shares_memory(seen, x.numpy()) and not seen.flags.writeable
    assert x.__dlpack_device__() == (1, 0)
    x[0] = 7.0  # copies first: somebody looks
    np.testing.assert_array_equal(seen, [1, 2, 3])
    given = np.arange(3.0)
    y = spmd.from_dlpack(given)
    assert np.shares_memory(y.numpy(), given)
    y[0] = 5.0
    np.testing.assert_array_equal(given, [0, 1, 2])
    assert not np.shares_memory(spmd.from_dlpack(given, copy=True).numpy(), given)
    assert spmd.from_dlpack(x) is x


class OldConsumer:
    """What a library sees that knows no DLPack version with a read-only mark."""

    def __init__(self, tensor, copy):
        self.capsule, self.device = tensor.__dlpack__(copy=copy), tensor.__dlpack_device__()

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def test_old_consumers_of_dlpack_get_a_copy():
    x = spmd.tensor([1.0, 2.0])
    assert not np.shares_memory(np.from_dlpack(OldConsumer(x, None)), x.numpy())
    assert np.shares_memory(np.from_dlpack(OldConsumer(x, False)), x.numpy())


class OnlyDlpack:
    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def test_asarray_knows_dlpack():
    values = np.arange(3.0)
    assert np.shares_memory(spmd.asarray(OnlyDlpack(values)).numpy(), values)


@pytest.mark.mpi
def test_what_may_not_leave():
    with pytest.raises(BufferError, match=r"requires grad .* detach\(\)"):
        np.from_dlpack(spmd.tensor([1.0], requires_grad=True))
    with pytest.raises(BufferError, match=r"distributed tensor: .* to_local\(\)"):
        np.from_dlpack(sharded(np.ones(4)))
    assert not hasattr(spmd.tensor([1.0]), "__cuda_array_interface__")


# Compositions ------------------------------------------------------------


def test_diff():
    x = np.array([[1.0, 4.0, 9.0], [2.0, 2.0, 5.0]])
    for options in ({}, {"axis": 0}, {"n": 2}, {"n": 0}, {"n": 5}, {"prepend": 0.0}, {"append": x[:, :2]}):
        np.testing.assert_array_equal(spmd.diff(spmd.tensor(x), **options), np.diff(x, **options))
    bits = np.array([True, False, False])
    assert spmd.diff(spmd.tensor(bits)).tolist() == np.diff(bits).tolist()
    with pytest.raises(ValueError, match="diff: n must not be negative"):
        spmd.diff(spmd.tensor(x), n=-1)


def test_unstack_and_broadcast():
    x = spmd.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    pieces = spmd.unstack(x, axis=1)
    assert isinstance(pieces, tuple) and [piece.shape for piece in pieces] == [(2,)] * 3
    both = spmd.broadcast_arrays(x, np.ones((4, 1, 3)))
    assert isinstance(both, list) and [tensor.shape for tensor in both] == [(4, 2, 3)] * 2
    spmd.sum(pieces[1] * 2 + both[0][0, :, 1]).backward()
    np.testing.assert_array_equal(x.grad, [[0, 3, 0], [0, 3, 0]])
    with pytest.raises(ValueError, match=r"broadcast_arrays: shapes \(2, 3\), \(2,\)"):
        spmd.broadcast_arrays(x, np.ones(2))


def test_close_and_equal():
    a, b = np.array([1.0, np.inf, np.nan, 1e-9]), np.array([1.0 + 1e-6, np.inf, np.nan, 0.0])
    for equal_nan in (False, True):
        found = spmd.isclose(spmd.tensor(a), b, equal_nan=equal_nan)
        np.testing.assert_array_equal(found, np.isclose(a, b, equal_nan=equal_nan))
        assert spmd.allclose(spmd.tensor(a), b, equal_nan=equal_nan) is equal_nan
    assert spmd.array_equal(spmd.tensor(a[:2]), a[:2]) is True
    assert spmd.array_equal(spmd.tensor(a[:2]), a[:1]) is False


@pytest.mark.mpi
def test_compositions_of_distributed_tensors():
    values = np.array([[1.0, 0.0, 9.0], [0.0, 2.0, 5.0], [0.0, 0.0, 1.0]])
    x = sharded(values)
    count = spmd.count_nonzero(x, axis=0)
    assert_all(count.placements == [spmd.Partial("sum")] and count.dtype == np.int64)
    assert_all(count.numpy().tolist() == np.count_nonzero(values, axis=0).tolist())
    for axis in (0, 1):
        assert_all(np.array_equal(spmd.diff(x, axis=axis).numpy(), np.diff(values, axis=axis)), axis)
    assert_all(spmd.allclose(x, values) and not spmd.array_equal(x, values + 1))
    repeated = spmd.repeat(x, sharded(np.array([2, 0, 1])), axis=0)
    assert_all(np.array_equal(repeated.numpy(), np.repeat(values, [2, 0, 1], axis=0)))


@pytest.mark.mpi
def test_a_sharded_element_as_a_number():
    for shape in ((1,), (1, 1)):
        x = sharded(np.full(shape, 3.0)).requires_grad_()
        y = spmd.reshape(x, ())
        assert_all(y.shape == () and float(y) == 3.0)
        assert_all(np.array_equal(spmd.grad(y * y, x).numpy(), np.full(shape, 6.0)))


def test_an_axis_out_of_range_is_numpys_error():
    with pytest.raises(np.exceptions.AxisError, match="sum: axis 2 was given for 1 dimensions"):
        spmd.sum(spmd.ones(3), axis=2)
