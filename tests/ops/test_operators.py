import operator

import numpy as np
import pytest

from spmdlayer.autograd.tensor import Tensor, tensor
from spmdlayer.ops import contraction, creation, cumulative, elementwise, linear, shape, softmax

A, B = np.array([[7.0, -2.0], [3.0, 4.0]]), np.array([2.0, 3.0])
ARITHMETIC = "add sub mul truediv floordiv mod pow matmul lt le gt ge eq ne".split()
BITS = "and_ or_ xor lshift rshift".split()


@pytest.mark.parametrize("name", ARITHMETIC + BITS)
def test_binary_operators(name):
    function = getattr(operator, name)
    a, b = (A, B) if name in ARITHMETIC else (np.array([[6, 5], [1, 0]]), np.array([1, 2]))
    expected = function(a, b)
    for left, right in ((tensor(a), tensor(b)), (tensor(a), b), (a, tensor(b))):
        found = function(left, right)
        assert isinstance(found, Tensor)
        np.testing.assert_array_equal(found.numpy(), expected)
    if name != "matmul":
        number = 2.0 if name in ARITHMETIC else 2
        np.testing.assert_array_equal(function(tensor(a), number).numpy(), function(a, number))
        np.testing.assert_array_equal(function(number, tensor(b)).numpy(), function(number, b))
        np.testing.assert_array_equal(function(b[0], tensor(b)).numpy(), function(b[0], b))


def test_unary_operators():
    x = tensor(A)
    np.testing.assert_array_equal((-x).numpy(), -A)
    np.testing.assert_array_equal((+x).numpy(), A)
    np.testing.assert_array_equal(abs(x).numpy(), abs(A))
    np.testing.assert_array_equal((~(x > 0)).numpy(), ~(A > 0))


def test_equality_with_what_is_no_operand():
    x = tensor(A)
    assert (x == None) is False  # noqa: E711
    assert (x != "text") is True
    assert x in [x]
    assert len({x, x}) == 1


def test_sum_of_a_list():
    assert sum([tensor(1.0), tensor(2.0)]).item() == 3.0


def test_numpy_scalars_are_not_weak():
    x = tensor(np.ones(2, np.float32))
    assert (x * np.float64(2)).dtype == np.float64
    assert (np.float64(2) * x).dtype == np.float64
    assert (x * 2.0).dtype == np.float32


def test_methods_are_numpys():
    x, z = tensor(A), tensor(A + 1j)
    for name, arguments in (
        ("sum", (0,)),
        ("mean", ()),
        ("max", (1,)),
        ("min", ()),
        ("prod", (0,)),
        ("any", ()),
        ("all", (0,)),
        ("var", ()),
        ("std", (0,)),
        ("argmax", (1,)),
        ("argmin", ()),
        ("reshape", (4,)),
        ("reshape", (np.array([1, 4]),)),
        ("ravel", ()),
        ("flatten", ()),
        ("squeeze", ()),
        ("repeat", (2,)),
        ("round", ()),
        ("clip", (0, 3)),
        ("conj", ()),
        ("conjugate", ()),
        ("copy", ()),
        ("take", ([0, 3],)),
        ("cumsum", (0,)),
        ("cumsum", ()),
        ("dot", (B,)),
        ("swapaxes", (0, 1)),
        ("astype", ("float32",)),
    ):
        np.testing.assert_allclose(getattr(x, name)(*arguments).numpy(), getattr(A, name)(*arguments))
    for name in ("T", "mT", "real", "imag"):
        np.testing.assert_array_equal(getattr(z, name).numpy(), getattr(A + 1j, name))


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda x: x.sum(2), ValueError, "sum: axis 2 was given for 2 dimensions; -2 to 1 is right"),
        (lambda x: x.sum((0, -2)), ValueError, "names a dimension twice"),
        (lambda x: x.sum("rows"), TypeError, "axis must be an int"),
        (lambda x: x.reshape(3, 2), ValueError, "which has 4 elements"),
        (lambda x: x.reshape(-1, -1), ValueError, "reshape"),
        (lambda x: x.reshape("a"), TypeError, "shape must be"),
        (lambda x: x.reshape(np.array([2.0, 2.0])), TypeError, "shape must be"),
        (lambda x: creation.zeros((0, 2)).max(), ValueError, "no elements"),
        (lambda x: creation.zeros((0, 2)).argmax(0), ValueError, "no elements"),
        (lambda x: x.transpose(0, 0), ValueError, "each of the 2 dimensions once"),
        (lambda x: shape.squeeze(x, 0), ValueError, "more or less than one"),
        (lambda x: shape.broadcast_to(x, (2, 3)), ValueError, "does not broadcast"),
        (lambda x: shape.concat([x, tensor(B)]), ValueError, "differ outside axis 0"),
        (lambda x: shape.concat([]), TypeError, "non-empty"),
        (lambda x: shape.concat(x), TypeError, "list or tuple"),
        (lambda x: shape.stack([x, tensor(B)]), ValueError, "one shape"),
        (lambda x: shape.split(x, 3), ValueError, "3 equal pieces"),
        (lambda x: shape.roll(x, (1, 2), 0), ValueError, "2 shifts"),
        (lambda x: shape.moveaxis(x, (0, 0), (0, 1)), ValueError, "pair different"),
        (lambda x: x @ 2.0, ValueError, "multiplies with"),
        (lambda x: x @ np.ones(3), ValueError, "inner dimensions"),
        (lambda x: x + "a", TypeError, "add: operand 1 is a str"),
        (lambda x: x * None, TypeError, "multiply: operand 1 is a NoneType"),
        (lambda x: contraction.einsum("ij,jk", x), ValueError, "names 2 operands, 1 were given"),
        (lambda x: contraction.einsum("ijk", x), ValueError, "operand 0 of 2 dimensions"),
        (lambda x: contraction.einsum("ij->k", x), ValueError, "output"),
        (lambda x: contraction.einsum("ij,j", x, np.ones(3)), ValueError, "extents 2 and 3"),
        (lambda x: contraction.einsum("i1", x), ValueError, "contains '1'"),
        (lambda x: contraction.einsum(x, x), TypeError, "string"),
        (lambda x: contraction.tensordot(x, np.ones(3), 1), ValueError, "do not match"),
        (lambda x: softmax.softmax(x * 1j), TypeError, "complex"),
        (lambda x: cumulative.cumulative_sum(x), ValueError, "axis is needed"),
        (lambda x: creation.full_like(x, x), TypeError, "number"),
        (lambda x: elementwise.astype(x, "nonsense"), TypeError, "nonsense"),
        (lambda x: linear.matmul(x, "a"), TypeError, "not supported"),
    ],
)
def test_wrong_arguments(call, error, words):
    with pytest.raises(error, match=words):
        call(tensor(A))
