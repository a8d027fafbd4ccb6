"""Values, shapes and dtypes are NumPy's."""

import warnings
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spmdlayer.autograd.tensor import Tensor, tensor
from spmdlayer.ops import contraction, creation, cumulative, elementwise, linear, positions, reductions, shape, softmax

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = ["bool", "int8", "uint8", "int64", "float16", "float32", "float64", "complex64", "complex128", BFLOAT16]
UNARY = (
    "negative positive square sqrt reciprocal abs sign exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh "
    "cosh tanh asinh acosh atanh logical_not isnan isfinite isinf signbit bitwise_invert floor ceil trunc round real "
    "imag conj copy"
).split()
BINARY = (
    "add subtract multiply divide floor_divide remainder power atan2 maximum minimum equal not_equal less less_equal "
    "greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift "
    "bitwise_right_shift"
).split()
VALUES = [0, 1, 2, 3, 1, 0]


def same(found, expected):
    """Equal values, shape and dtype, NaNs included."""
    assert isinstance(found, Tensor)
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)


def outcome(function, *arguments):
    """What a function returns, or the type of what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*arguments)
        except (TypeError, OverflowError, ValueError) as error:
            return OverflowError if isinstance(error, OverflowError) else TypeError


def agrees(found, expected):
    if isinstance(expected, type):
        assert found is expected
    else:
        same(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    for array in (np.array(VALUES, dtype), np.array(1, dtype), np.zeros((0, 2), dtype), np.ones((2, 3), dtype).T):
        agrees(outcome(getattr(elementwise, name), tensor(array)), outcome(getattr(np, name), array))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    left, right = np.array(VALUES, dtype).reshape(2, 3), np.array([1, 2, 1], dtype)
    ours, numpys = getattr(elementwise, name), getattr(np, name)
    for a, b in ((left, right), (left[0, 1], right), (left, 2), (2, right), (left, 2.0), (left, 1j), (True, right)):
        first, second = (tensor(x) if isinstance(x, (np.ndarray, np.generic)) else x for x in (a, b))
        agrees(
            outcome(ours, first, second), outcome(numpys, *(np.asarray(x) if x is left[0, 1] else x for x in (a, b)))
        )


@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("second", DTYPES)
def test_mixed_dtypes(first, second):
    a, b = np.array(VALUES, first), np.array(VALUES, second)[::-1]
    for name in ("add", "multiply", "divide", "maximum", "equal"):
        agrees(outcome(getattr(elementwise, name), tensor(a), tensor(b)), outcome(getattr(np, name), a, b))
    same(elementwise.where(tensor(a), tensor(a), tensor(b)), np.where(a, a, b))
    same(shape.concat([tensor(a), tensor(b)]), np.concat([a, b]))


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(hnp.mutually_broadcastable_shapes(num_shapes=3, min_side=0, max_side=3), st.integers(0, 2**32 - 1))
def test_broadcasting(shapes, seed):
    random = np.random.default_rng(seed)
    a, b, c = (random.normal(size=extents) for extents in shapes.input_shapes)
    same(elementwise.where(tensor(a) > 0, b, tensor(c) * 2), np.where(a > 0, b, c * 2))
    same(tensor(a) * tensor(b) - c, a * b - c)
    same(shape.broadcast_to(tensor(a), shapes.result_shape), np.broadcast_to(a, shapes.result_shape))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_reductions(data):
    extents = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    axis = data.draw(
        st.none() | hnp.valid_tuple_axes(len(extents)) | st.sampled_from(range(-len(extents), len(extents)))
        if extents
        else st.none()
    )
    keepdims = data.draw(st.booleans())
    array = np.random.default_rng(1).integers(-3, 4, extents).astype(data.draw(st.sampled_from(DTYPES[1:-1])))
    for name in ("sum", "prod", "any", "all"):
        expected = getattr(np, name)(array, axis=axis, keepdims=keepdims)
        found = getattr(reductions, name)(tensor(array), axis=axis, keepdims=keepdims)
        assert (found.dtype, found.shape) == (expected.dtype, np.shape(expected))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3 if array.dtype == np.float16 else 1e-6)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("mean", "var", "std"):
            expected = np.asarray(getattr(np, name)(array, axis=axis, keepdims=keepdims))
            found = getattr(reductions, name)(tensor(array), axis=axis, keepdims=keepdims)
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            tolerance = {2: 2e-3, 4: 1e-5}.get(expected.dtype.itemsize, 1e-5)
            np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)
    if array.dtype.kind != "c":
        for name in ("max", "min"):
            found = outcome(partial(getattr(reductions, name), tensor(array), axis, keepdims))
            agrees(found, outcome(partial(getattr(np, name), array, axis=axis, keepdims=keepdims)))


def test_arg_reductions_and_cumulative_sum():
    array = np.array([[3, 1, 4], [1, 5, 9]])
    for axis in (None, 0, -1):
        same(positions.argmax(tensor(array), axis, keepdims=True), np.argmax(array, axis, keepdims=True))
        same(positions.argmin(tensor(array), axis), np.argmin(array, axis))
    same(cumulative.cumulative_sum(tensor(array), 1), np.cumsum(array, 1))
    same(tensor(array[0]).cumsum(), np.cumsum(array[0]))
    same(cumulative.cumulative_sum(tensor(array), 0, dtype="float32"), np.cumsum(array, 0, dtype="float32"))


@pytest.mark.parametrize("dtype", ["float16", BFLOAT16])
def test_half_precision_accumulates_in_float32(dtype):
    ones = tensor(np.ones((4096, 2)), dtype=dtype)
    np.testing.assert_array_equal(np.asarray(reductions.sum(ones, axis=0), np.float64), [4096, 4096])
    assert float(reductions.mean(ones)) == 1.0
    assert float((ones.T @ ones)[0, 0]) == 4096
    assert float(contraction.einsum("ij,ij->", ones, ones)) == 8192
    assert (ones.T @ ones).dtype == ones.dtype
    large = tensor(np.full(4, 60000.0), dtype=dtype)
    assert abs(float(reductions.mean(large)) - 60000) < 300  # the sum would be infinite in float16


def test_mean_and_product_dtypes():
    same(reductions.mean(tensor([1, 2])), np.mean([1, 2]))
    same(reductions.mean(tensor(np.ones(3, np.float32))), np.float32(1))
    same(reductions.mean(tensor(np.ones(3, np.float32)), dtype="float64"), np.float64(1))
    same(reductions.sum(tensor(np.ones(3, np.int8))), np.sum(np.ones(3, np.int8)))
    same(reductions.sum(tensor(np.ones(3, bool)), dtype="int8"), np.int8(3))


def test_max_of_an_empty_piece_is_the_identity():
    # A rank's piece may be empty where the global tensor is not; then the others decide.
    for op, extreme in ((reductions._max, -np.inf), (reductions._min, np.inf)):
        assert op.forward(np, np.zeros((0,)), axis=(0,)) == extreme
        np.testing.assert_array_equal(op.forward(np, np.zeros((0, 2)), axis=(0,), keepdims=True), [[extreme, extreme]])
    assert reductions._max.forward(np, np.zeros(0, np.int8), axis=(0,)) == -128


def test_shapes():
    array = np.arange(24.0).reshape(2, 3, 4)
    x = tensor(array)
    fortran = tensor(np.asfortranarray(array))
    for value in (x, fortran):
        same(shape.reshape(value, (4, -1)), array.reshape(4, -1))
        same(shape.ravel(value), array.ravel())
    same(x.reshape(6, 4), array.reshape(6, 4))
    same(x.reshape(-1), array.reshape(-1))
    same(x.transpose(), array.T)
    same(x.transpose(2, 0, 1), array.transpose(2, 0, 1))
    same(x.transpose((1, 0, 2)), array.transpose(1, 0, 2))
    same(x.T, array.T)
    same(x.mT, array.mT)
    same(x.swapaxes(0, -1), array.swapaxes(0, -1))
    same(shape.moveaxis(x, (0, 1), (-1, 0)), np.moveaxis(array, (0, 1), (-1, 0)))
    same(shape.expand_dims(x, (0, -1)), np.expand_dims(array, (0, -1)))
    same(shape.squeeze(tensor(array[:, :1]), 1), array[:, 0])
    same(shape.squeeze(tensor(np.ones((1, 1)))), np.ones(()))
    same(shape.flip(x, (0, 2)), np.flip(array, (0, 2)))
    same(shape.roll(x, 5), np.roll(array, 5))
    same(shape.roll(x, (1, -2), (0, 2)), np.roll(array, (1, -2), (0, 2)))
    same(shape.tile(x, (2, 1, 1, 3)), np.tile(array, (2, 1, 1, 3)))
    same(shape.tile(x, 2), np.tile(array, 2))
    same(shape.repeat(x, 2), np.repeat(array, 2))
    same(x.repeat([1, 0, 2], axis=1), array.repeat([1, 0, 2], axis=1))
    same(shape.stack([x, x], axis=-1), np.stack([array, array], axis=-1))
    same(shape.concat([x, array], axis=None), np.concatenate([array, array], axis=None))
    same(shape.reshape(tensor(np.zeros((0, 3))), (-1, 3)), np.zeros((0, 3)))


def test_split():
    array = np.arange(12).reshape(2, 6)
    for given_, axis in ((3, 1), ([2, 3], 1), ([4, 9], -1), (2, 0), ([], 0)):
        found, expected = shape.split(tensor(array), given_, axis), np.split(array, given_, axis)
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            same(one, other)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_einsum(data):
    letters = "abcd"
    extents = {letter: data.draw(st.integers(1, 3)) for letter in letters}
    terms = data.draw(st.lists(st.text(letters, max_size=3), min_size=1, max_size=4))
    used = sorted(set("".join(terms)))
    output = "".join(data.draw(st.lists(st.sampled_from(used), unique=True))) if used else ""
    random = np.random.default_rng(3)
    arrays = [random.normal(size=[extents[letter] for letter in term]) for term in terms]
    subscripts = data.draw(st.sampled_from([f"{','.join(terms)}->{output}", ",".join(terms)]))
    found = contraction.einsum(subscripts, *map(tensor, arrays))
    expected = np.asarray(np.einsum(subscripts, *arrays))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_products():
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 3, 4)), random.normal(size=(4, 3))
    integers = np.arange(6).reshape(2, 3)
    same(linear.matmul(tensor(a), tensor(b)), a @ b)
    same(tensor(a) @ b[:, 0], a @ b[:, 0])
    same(a[0, 0] @ tensor(b), a[0, 0] @ b)
    same(linear.matmul(integers, tensor(integers.T)), integers @ integers.T)
    np.testing.assert_allclose(contraction.einsum("...ij,jk->k...i", a, b).numpy(), np.einsum("...ij,jk->k...i", a, b))
    for axes in (1, ((1, 2), (1, 0))):
        np.testing.assert_allclose(contraction.tensordot(tensor(a), b, axes).numpy(), np.tensordot(a, b, axes))
    np.testing.assert_allclose(contraction.dot(tensor(a), a.swapaxes(1, 2)).numpy(), np.dot(a, a.swapaxes(1, 2)))
    same(contraction.dot(tensor(b), 2.0), b * 2)
    z = a[0] + 1j
    np.testing.assert_allclose(linear.vecdot(tensor(z), a[1]).numpy(), np.vecdot(z, a[1]))
    same(linear.outer(tensor(b), integers), np.outer(b, integers))


def test_softmax():
    array = np.array([[1000.0, 1000.0, 999.0], [-1000.0, 0.0, -np.inf]])
    powers = np.array([[1, 1, np.exp(-1)], [0, 1, 0]])
    expected = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(softmax.softmax(tensor(array)).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(softmax.log_softmax(tensor(array[:1])).numpy(), np.log(expected[:1]), rtol=1e-12)
    np.testing.assert_allclose(
        softmax.logsumexp(tensor(array), axis=1).numpy(), [1000 + np.log(2 + np.exp(-1)), 0.0], rtol=1e-12
    )
    with np.errstate(divide="ignore"):
        assert float(softmax.logsumexp(tensor([-np.inf, -np.inf]))) == -np.inf
    assert softmax.softmax(tensor(array.astype("float16"))).dtype == np.float16
    assert softmax.softmax(tensor([1, 2])).dtype == np.float64
    assert softmax.softmax(tensor(np.zeros((0, 3)))).shape == (0, 3)


def test_sigmoid():
    found = elementwise.sigmoid(tensor([-1000.0, -40.0, 0.0, 40.0, 1000.0])).numpy()
    np.testing.assert_allclose(found, [0, np.exp(-40), 0.5, 1, 1], rtol=1e-12)
    assert elementwise.sigmoid(tensor(np.zeros(2), dtype=BFLOAT16)).dtype == BFLOAT16


def test_clip_and_astype():
    x = tensor([-2.0, 0.5, 3.0, np.nan])
    same(x.clip(0, 1), np.array([0, 0.5, 1, np.nan]))
    same(x.clip(max=1), np.array([-2, 0.5, 1, np.nan]))
    same(x.clip(), np.array([-2, 0.5, 3, np.nan]))
    same(x.astype("float32"), np.array([-2, 0.5, 3, np.nan], np.float32))
    assert x.astype("float64") is not x
    with pytest.raises(TypeError, match="imaginary"):
        elementwise.astype(tensor([1j]), "float64")


def test_creation():
    same(creation.zeros((2, 3)), np.zeros((2, 3)))
    same(creation.zeros(3, dtype="bool"), np.zeros(3, bool))
    same(creation.ones([2], dtype="bfloat16"), np.ones(2, BFLOAT16))
    same(creation.full((2,), 7), np.full((2,), 7))
    same(creation.full((), 1.5, "float32"), np.float32(1.5))
    assert creation.empty((4, 0), "int8").shape == (4, 0)
    same(creation.arange(5), np.arange(5))
    same(creation.arange(1, 2, 0.25), np.arange(1, 2, 0.25))
    same(creation.linspace(0, 1, 5, endpoint=False), np.linspace(0, 1, 5, endpoint=False))
    same(creation.eye(2, 3, 1, dtype="int32"), np.eye(2, 3, 1, dtype="int32"))
    x = tensor(np.arange(6, dtype="float32").reshape(2, 3), requires_grad=True)
    same(creation.zeros_like(x), np.zeros((2, 3), np.float32))
    same(creation.ones_like(x, dtype="int64"), np.ones((2, 3), np.int64))
    same(creation.full_like(x, 2), np.full((2, 3), 2, np.float32))
    assert not creation.zeros_like(x).requires_grad
    same(creation.tril(x), np.tril(x.detach().numpy()))
    same(creation.triu(x, 1), np.triu(x.detach().numpy(), 1))
