"""Products of vectors and matrices beyond matmul; compositions of other operations."""

from string import ascii_letters

from ..array import array_module
from ..autograd.tensor import Tensor, asarray
from ..errors import type_error, value_error
from ..ops import contraction, creation, linear
from ..ops import elementwise as ew
from ..ops.reductions import normalise_axis
from ..ops.shape import operand, reshape, roll
from .solving import inv
from .stacks import check_stack


def outer(x1, x2):
    """All products of an element of x1 (m,) with an element of x2 (n,): (m, n)."""
    x1, x2 = operand(x1), operand(x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise value_error(f"linalg.outer: vectors are needed, the shapes are {x1.shape} and {x2.shape}")
    return linear.outer(x1, x2)


def cross(x1, x2, axis=-1):
    """The cross product of vectors of 3 elements along an axis; the other dims broadcast.

    Distributed: the axis is gathered, other dims may be sharded.
    """
    x1, x2 = operand(x1), operand(x2)
    ndim = max(x1.ndim, x2.ndim)
    place = normalise_axis("cross", axis, ndim) - ndim
    for argument, x in (("x1", x1), ("x2", x2)):
        if -place > x.ndim or x.shape[place] != 3:
            raise value_error(f"cross: {argument} of shape {x.shape} must have 3 elements along axis {axis}")
    first, second = (ew.multiply(_rolled(x1, -k, place), _rolled(x2, k, place)) for k in (1, 2))
    return ew.subtract(first, second)


def _rolled(x, shift, axis):
    return roll(x, shift, axis) if isinstance(x, Tensor) else array_module(x).roll(x, shift, axis)


def matrix_power(x, n):
    """The product of n copies of square matrices (..., k, k); of their inverses where n is negative."""
    x = asarray(x)
    check_stack("matrix_power", x, square=True)
    try:
        n = n.__index__()
    except AttributeError:
        raise type_error(f"matrix_power: n must be an int, {n!r} was given") from None
    if n < 0:
        return matrix_power(inv(x), -n)
    if n == 0:
        unit = creation.eye(x.shape[-1], dtype=x.dtype)
        return ew.add(creation.zeros_like(x), unit.numpy())
    result, square = None, x
    while n:
        if n & 1:
            result = square if result is None else linear.matmul(result, square)
        n >>= 1
        if n:
            square = linear.matmul(square, square)
    return result


def kron(x1, x2):
    """The Kronecker product: x2 times each element of x1, dims aligned at the right."""
    x1, x2 = operand(x1), operand(x2)
    ndim = max(x1.ndim, x2.ndim)
    first, second = ((1,) * (ndim - x.ndim) + tuple(x.shape) for x in (x1, x2))
    left = _reshaped(x1, tuple(extent for size in first for extent in (size, 1)))
    right = _reshaped(x2, tuple(extent for size in second for extent in (1, size)))
    return reshape(ew.multiply(left, right), tuple(a * b for a, b in zip(first, second)))


def _reshaped(x, shape):
    return reshape(x, shape) if isinstance(x, Tensor) else x.reshape(shape)


def multi_dot(arrays):
    """The product of a chain of matrices, in the order that multiplies least; the ends may be vectors."""
    tensors = [operand(value) for value in arrays]
    if len(tensors) < 2:
        raise value_error(f"multi_dot: at least 2 arrays are needed, {len(tensors)} were given")
    wrong = [k for k, x in enumerate(tensors) if x.ndim != 2 and not (x.ndim == 1 and k in (0, len(tensors) - 1))]
    if wrong:
        raise value_error(f"multi_dot: array {wrong[0]} of shape {tensors[wrong[0]].shape} is no matrix")
    letters = ascii_letters
    terms = [letters[k : k + 2] for k in range(len(tensors))]
    terms[0] = terms[0][-1] if tensors[0].ndim == 1 else terms[0]
    terms[-1] = terms[-1][0] if tensors[-1].ndim == 1 else terms[-1]
    ends = (terms[0][:-1], terms[-1][1:])
    return contraction.einsum(f"{','.join(terms)}->{''.join(ends)}", *tensors)
