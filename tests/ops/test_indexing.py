import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spmdlayer.autograd.backward import grad
from spmdlayer.autograd.tensor import tensor
from spmdlayer.ops import index_form, reductions, taking

QUIET = settings(max_examples=100, deadline=None, derandomize=True, database=None)
ARRAY = np.arange(24.0).reshape(2, 3, 4)


@st.composite
def basic(draw):
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    index = draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    return shape, index


@QUIET
@given(basic())
def test_basic_indices(case):
    shape, index = case
    array = np.arange(float(np.prod(shape))).reshape(shape)
    x = tensor(array, requires_grad=True)
    np.testing.assert_array_equal(x[index].detach().numpy(), array[index])
    written = np.zeros(shape)
    written[index] = 2.0
    np.testing.assert_array_equal(grad(reductions.sum(x[index] * 2.0), x), written)
    y = tensor(array)
    y[index] = -1.0
    array[index] = -1.0
    np.testing.assert_array_equal(y.numpy(), array)


MASK = np.arange(6).reshape(2, 3) % 2 == 0
ADVANCED = [
    [1, 0, 0],
    [],
    np.array([[0, 1], [1, 1]]),
    (slice(None), [2, 0]),
    ([0, 1], slice(None), [3, 0]),
    (0, slice(None), [1, 2]),
    (..., [[0], [1]]),
    MASK,
    (MASK, 1),
    (slice(None), np.array([True, False, True])),
    (None, MASK, slice(1, None, 2)),
    True,
    np.array(False),
    (np.array([1, 0]), np.array([2, -3]), slice(None, None, -1)),
    np.int64(1),
    np.array(1),
]


@pytest.mark.parametrize("index", ADVANCED, ids=str)
def test_advanced_indices(index):
    expected = ARRAY[index]
    x = tensor(ARRAY, requires_grad=True)
    np.testing.assert_array_equal(x[index].detach().numpy(), expected)
    counted = np.zeros(ARRAY.shape)
    np.add.at(counted, index, 1.0)
    np.testing.assert_array_equal(grad(reductions.sum(x[index]), x), counted)


def test_tensors_as_indices():
    x = tensor(ARRAY)
    np.testing.assert_array_equal(x[tensor([1, 0])].numpy(), ARRAY[[1, 0]])
    np.testing.assert_array_equal(x[x > 5].numpy(), ARRAY[ARRAY > 5])
    np.testing.assert_array_equal(x[tensor(1), :, tensor([0, 3])].numpy(), ARRAY[1, :, [0, 3]])
    np.testing.assert_array_equal(x[tensor(0) : tensor(1)].numpy(), ARRAY[0:1])


def test_steps_back_from_before_the_beginning_read_nothing():
    for index in (slice(-6, None, -1), slice(-9, -8, -2), slice(None, None, -1), slice(-5, None, -1)):
        np.testing.assert_array_equal(tensor(np.arange(5.0))[index], np.arange(5.0)[index])


def test_forms_are_hashable_and_complete():
    form, arrays = index_form.index_form((..., None, -1, slice(None, None, -2)), (2, 3, 4))
    assert form == ((0, 2, 1), None, 2, (3, None, -2))
    assert list(arrays) == []
    assert isinstance(hash(form), int)
    form, arrays = index_form.index_form(([0, 1], slice(1, None)), (2, 3))
    assert form == (index_form.ARRAY, (1, 3, 1))
    np.testing.assert_array_equal(arrays[0], [0, 1])


def test_take():
    x = tensor(ARRAY)
    np.testing.assert_array_equal(x.take([5, -1]).numpy(), ARRAY.take([5, -1]))
    np.testing.assert_array_equal(taking.take(x, [[0, 2]], axis=1).numpy(), ARRAY.take([[0, 2]], axis=1))
    np.testing.assert_array_equal(taking.take(x, 1, axis=-1).numpy(), ARRAY.take(1, axis=-1))
    positions = np.argsort(-ARRAY, axis=1)[:, :2]
    found = taking.take_along_axis(x, positions, axis=1)
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(ARRAY, positions, axis=1))
    rows = np.array([[0], [1]])
    np.testing.assert_array_equal(taking.take_along_axis(tensor(MASK), rows).numpy(), [[True], [True]])


def test_iteration_and_length():
    x = tensor(ARRAY)
    assert len(x) == 2
    for row, expected in zip(x, ARRAY):
        np.testing.assert_array_equal(row.numpy(), expected)


@pytest.mark.parametrize(
    "index, error, words",
    [
        (2, IndexError, "index 2 is out of bounds for axis 0 with size 2"),
        ((0, -4), IndexError, "index -4 is out of bounds for axis 1 with size 3"),
        ((0, 0, 0, 0), IndexError, "4 dimensions are indexed"),
        ((..., ...), IndexError, "more than one"),
        (np.ones(3, bool), IndexError, r"mask of shape \(3,\)"),
        (1.5, TypeError, "float64"),
        ("a", TypeError, "index"),
        ([0, 7], IndexError, "7"),
    ],
)
def test_wrong_indices(index, error, words):
    with pytest.raises(error, match=words):
        tensor(ARRAY)[index]


def test_half_precision_gradients_of_repeated_indices_are_exact():
    x = tensor(np.zeros(2), dtype="float16", requires_grad=True)
    picked = x[np.zeros(4096, int)]
    np.testing.assert_array_equal(grad(reductions.sum(picked, dtype="float32"), x), [4096, 0])


@pytest.mark.parametrize("mask", [(0,), (0, 3), (2, 0), (0, 0)])
def test_a_mask_with_extents_0_chooses_nothing(mask):
    x, nothing = np.arange(6.0).reshape(2, 3), np.zeros(mask, bool)
    assert tensor(x)[nothing].shape == x[nothing].shape
    y = tensor(x)
    y[nothing] = 7.0
    np.testing.assert_array_equal(y, x)
