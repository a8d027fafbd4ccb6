"""Sorting the lines of one array: values, and positions in stable order.

NumPy has fast sorting networks for real numbers of 4 and 8 bytes, which are
not stable; so they sort first, and what they may have exchanged is put right.
"""

from ..array import array_module
from ..dtypes import is_complex


def sorted_lines(x, descending):
    """An array sorted along its last axis; equal elements, which zeros of either sign are, keep their order."""
    np = array_module(x)
    if is_complex(x.dtype):  # where parts are NaN, equal elements may look different
        return np.take_along_axis(x, stable_order(x, descending), -1)
    values = np.sort(x, axis=-1)
    if descending:
        values = np.flip(values, -1).copy()
    if x.dtype.kind not in "biu":
        zeros = x[x == 0]
        if np.signbit(zeros).any():
            values[values == 0] = zeros  # as many in each line, line by line
    return values


def stable_order(x, descending, runs=False):
    """The positions (int64) that sort an array along its last axis; equal elements keep their order.

    runs : whether lines are a few sorted parts behind one another
    """
    np = array_module(x)
    if descending:
        return x.shape[-1] - 1 - np.flip(stable_order(np.flip(x, -1), False, runs), -1)
    if runs or x.dtype.kind not in "iuf" or x.dtype.itemsize not in (4, 8):
        return np.argsort(x, axis=-1, kind="stable")
    order = np.argsort(x, axis=-1)
    values = np.take_along_axis(x, order, -1)
    before, after = values[..., :-1], values[..., 1:]
    equal = (before == after) | ((before != before) & (after != after))
    if not equal.any():
        return order
    # Equal elements are numbered alike, so that sorting (number, position) pairs sorts their positions.
    number = np.zeros(x.shape, np.int64)
    np.cumsum(~equal, axis=-1, out=number[..., 1:])
    number *= x.shape[-1]
    order += number
    order.sort(axis=-1)
    return order - number


def beside(np, lines, value, largest):
    """Which elements of each line are smaller (or larger) than its value (lines, 1), and which are equal to it."""
    beyond, equal = (lines > value) if largest else (lines < value), lines == value
    nan = value != value
    if lines.dtype.kind not in "biu" and (largest or nan.any()):  # NaN is larger than any number
        is_nan = lines != lines
        equal |= nan & is_nan
        beyond |= (~nan & is_nan) if largest else (nan & ~is_nan)
    return beyond, equal
