"""Tensors are values: a write is seen by the tensor alone, and gradients stay right or it raises."""

import numpy as np
import pytest

from spmdlayer.autograd.backward import backward, grad, no_grad
from spmdlayer.autograd.tensor import asarray, tensor
from spmdlayer.ops import creation, elementwise, indexing, reductions, shape


def write(x):
    x[0] = 9.0


def test_a_mask_is_written_in_its_own_buffer():
    mask = creation.zeros(5, dtype="bool")
    buffer = id(mask._data)
    mask[1:3] = 1
    assert id(mask._data) == buffer
    assert mask.tolist() == [False, True, True, False, False]


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.detach(),
        lambda x: x[1:],
        lambda x: x.reshape(2, 2),
        lambda x: x.T,
        lambda x: x.astype("float64"),
        lambda x: x.real,
        lambda x: shape.broadcast_to(x, (2, 4)),
        lambda x: shape.squeeze(x),
    ],
)
def test_other_tensors_do_not_see_a_write(other):
    x = tensor([1.0, 2.0, 3.0, 4.0])
    y = other(x)
    before = y.numpy().copy()
    x[:] = 0.0
    np.testing.assert_array_equal(y.numpy(), before)
    x = tensor([1.0, 2.0, 3.0, 4.0])
    y = other(x)
    y[...] = 0.0
    np.testing.assert_array_equal(x.numpy(), [1, 2, 3, 4])


def test_arrays_outside_do_not_see_a_write():
    array = np.ones(3)
    x = asarray(array)
    write(x)
    np.testing.assert_array_equal(array, [1, 1, 1])
    shown = x.numpy()
    x[1] = 5.0
    np.testing.assert_array_equal(shown, [9, 1, 1])
    read_only = np.ones(2)
    read_only.flags.writeable = False
    y = asarray(read_only)
    del read_only
    write(y)
    assert y.tolist() == [9, 1]


def test_overlapping_pieces_of_one_tensor():
    x = tensor([1.0, 2.0, 3.0])
    x[1:] = x[:-1]
    assert x.tolist() == [1, 1, 2]


def test_what_the_tape_saved_is_not_written():
    # x = [1, 2], y = x x, then x += 1: the gradient is 2 [1, 2], never [4, 6].
    x = tensor([1.0, 2.0], requires_grad=True)
    factor = tensor([5.0, 7.0])
    y = x * factor
    write(factor)
    np.testing.assert_array_equal(grad(reductions.sum(y), x), [5, 7])
    y = x * x
    with no_grad():
        x += 1
    np.testing.assert_array_equal(grad(reductions.sum(y), x), [2, 4])
    assert x.tolist() == [2, 3]


def test_a_leaf_is_written_within_no_grad_only():
    x = tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ValueError, match=r"no_grad\(\)"):
        write(x)
    with pytest.raises(ValueError, match="leaf"):
        x += 1
    with no_grad():
        write(x)
        x *= 2
    assert x.is_leaf
    assert x.requires_grad
    assert x.tolist() == [18, 4]


def test_a_step_of_gradient_descent_keeps_leaf_and_grad():
    w = tensor([1.0, 2.0], requires_grad=True)
    for _ in range(2):
        backward(reductions.sum(w * w))
        with no_grad():
            w -= 0.25 * w.grad
        assert w.grad is not None
        w.clear_grad()
    assert w.tolist() == [0.25, 0.5]


def test_writes_are_recorded():
    x, v = tensor([1.0, 2.0, 3.0], requires_grad=True), tensor(5.0, requires_grad=True)
    y = x * 2
    y[1:] = v
    y[0] *= 10
    assert y.tolist() == [20, 5, 5]
    gx, gv = grad(reductions.sum(y * y), [x, v])
    np.testing.assert_array_equal(gx, [2 * 20 * 20, 0, 0])
    assert float(gv) == 2 * 5 + 2 * 5


def test_a_tensor_off_the_tape_gets_on_it_by_what_is_written():
    x, v = creation.zeros(3), tensor([1.0, 2.0], requires_grad=True)
    x[:2] = v
    assert x.requires_grad
    np.testing.assert_array_equal(grad(reductions.sum(x * x), v), [2, 4])
    mask = creation.zeros(2, dtype="int64")
    mask[:] = v
    assert not mask.requires_grad
    assert mask.tolist() == [1, 2]
    with no_grad():
        y = creation.zeros(2)
        y[:] = v
    assert not y.requires_grad


def test_of_elements_written_twice_the_last_one_counts():
    x = creation.zeros(3)
    v = tensor([1.0, 2.0, 3.0], requires_grad=True)
    x[[0, 2, 0]] = v
    assert x.tolist() == [3, 0, 2]
    np.testing.assert_array_equal(grad(reductions.sum(x), v), [0, 1, 1])


def test_a_recorded_result_is_not_written_within_no_grad():
    y = tensor([1.0], requires_grad=True) * 2
    with no_grad(), pytest.raises(ValueError, match="recorded"):
        write(y)


def test_values_are_cast_as_numpy_casts():
    x = creation.zeros(3, dtype="int32")
    x[0] = 2.7
    x[1:] = np.array([3.9, 4.2])
    assert x.tolist() == [2, 3, 4]
    assert x.dtype == np.int32
    for value in (1j, np.array([1j, 1j, 1j]), tensor([1j])):
        with pytest.raises(TypeError, match="complex"):
            x[:] = value
    z = creation.zeros(2, dtype="complex64")
    z[0] = 1j
    assert z.tolist() == [1j, 0]


def test_in_place_operators():
    x = tensor([7.0, 8.0])
    same = x
    x += 1
    x -= np.array([1.0, 2.0])
    x *= tensor([2.0, 3.0])
    x /= 2
    x **= 2
    x //= 2
    x %= 10
    assert same is x
    np.testing.assert_array_equal(x.numpy(), ((np.array([8.0, 9.0]) - [1, 2]) * [2, 3] / 2) ** 2 // 2 % 10)
    bits = tensor([6, 3])
    bits &= 5
    bits |= 8
    bits ^= 1
    bits <<= 2
    bits >>= 1
    assert bits.tolist() == [((6 & 5 | 8) ^ 1) << 2 >> 1, ((3 & 5 | 8) ^ 1) << 2 >> 1]
    matrix = tensor(np.ones((2, 2)))
    matrix @= np.eye(2) * 2
    np.testing.assert_array_equal(matrix.numpy(), [[2, 2], [2, 2]])


def test_in_place_operators_keep_shape_and_dtype():
    x = tensor(np.ones(2, np.float32))
    x += np.ones(2)
    assert x.dtype == np.float32
    with pytest.raises(ValueError, match=r"shape \(3, 2\)"):
        x += np.ones((3, 2))
    n = tensor([1, 2])
    with pytest.raises(TypeError, match="float64"):
        n /= 2
    half = tensor(np.ones(2), dtype="bfloat16")
    half += np.ones(2, np.float32)
    assert half.dtype.name == "bfloat16"


def test_in_place_operators_are_recorded():
    x = tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    z = y.detach()
    y *= y
    y += x
    np.testing.assert_array_equal(grad(reductions.sum(y), x), 18 * np.array([1.0, 2.0]) + 1)
    assert z.tolist() == [3, 6]


def test_copies_are_independent():
    x = tensor([1.0, 2.0], requires_grad=True)
    y = elementwise.copy(x)
    write(y)
    assert x.tolist() == [1, 2]
    np.testing.assert_array_equal(grad(reductions.sum(y * y), x), [0, 4])


def test_own_buffer_copies_only_what_is_shared():
    x = tensor(np.zeros(3))
    first = x._data.__array_interface__["data"][0]
    assert indexing.own_buffer(x).__array_interface__["data"][0] == first
    saved = x._data
    assert indexing.own_buffer(x) is not saved
