"""Functions that are a few operations in a row: differences, counts, comparisons of whole tensors, lists of tensors.

They have their gradients and distributed rules from what they call.
"""

import numpy as np

from ..autograd.tensor import Tensor, asarray, wrap
from ..errors import value_error
from ..redistribute.crossing import make_spec
from . import elementwise as ew
from .reductions import all as all_true
from .reductions import normalise_axis, sum
from .registry import apply, elementwise
from .rules import replicated_layout
from .shape import broadcast_to, concat, operand


def diff(x, axis=-1, n=1, prepend=None, append=None):
    """The n-th differences of neighbours along an axis; `!=` for bool.

    prepend, append : tensors joined before and after x along the axis, extents
        of 1 included elsewhere; a number stands for one such element
    """
    x = asarray(x)
    axis = normalise_axis("diff", axis, x.ndim, x)
    if n < 0:
        raise value_error(f"diff: n must not be negative, {n} was given")
    parts = [_ending(part, x, axis) for part in (prepend, x, append) if part is not None]
    x = parts[0] if len(parts) == 1 else concat(parts, axis)
    step = ew.not_equal if x.dtype.kind == "b" else ew.subtract
    before = (slice(None),) * axis
    for _ in range(n):
        x = step(x[(*before, slice(1, None))], x[(*before, slice(None, -1))])
    return x


def _ending(part, x, axis):
    """What is joined to x; a number as one element along the axis."""
    part = operand(part)
    if part.ndim:
        return part
    shape = x.shape[:axis] + (1,) + x.shape[axis + 1 :]
    # A plain array stays one, so that it counts as Replicate beside a distributed x.
    return broadcast_to(part, shape) if isinstance(part, Tensor) else np.broadcast_to(part, shape)


def count_nonzero(x, axis=None, keepdims=False):
    """How many elements are not zero, over an axis, several axes or all; int64.

    Over a sharded axis the result is Partial(sum).
    """
    return sum(ew.not_equal(asarray(x), 0), axis, np.int64, keepdims)


def broadcast_arrays(*arrays):
    """A list of the tensors, each broadcast to their common shape; arrays beside distributed ones become Replicate."""
    tensors = [operand(array) for array in arrays]
    mesh = next((tensor.process_mesh for tensor in tensors if isinstance(tensor, Tensor) and tensor.is_dist()), None)
    if mesh is not None:
        tensors = [tensor if isinstance(tensor, Tensor) else _replicated(tensor, mesh) for tensor in tensors]
    try:
        shape = np.broadcast_shapes(*(tensor.shape for tensor in tensors))
    except ValueError:
        shapes = ", ".join(str(tensor.shape) for tensor in tensors)
        raise value_error(f"broadcast_arrays: shapes {shapes} do not broadcast") from None
    return [broadcast_to(tensor, shape) for tensor in tensors]


def _replicated(array, mesh):
    return wrap(array, None, make_spec(mesh, replicated_layout(tuple(mesh.shape), array.shape)))


def unstack(x, axis=0):
    """A tuple of the slices along an axis, which they no longer have."""
    x = asarray(x)
    axis = normalise_axis("unstack", axis, x.ndim, x)
    return tuple(x[(slice(None),) * axis + (index,)] for index in range(x.shape[axis]))


_isclose, _ = elementwise("isclose", forward=lambda np, a, b, **limits: np.isclose(a, b, **limits))


def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Where |a - b| <= atol + rtol |b|, infinities equal; with equal_nan NaNs too."""
    return apply(_isclose, (a, b), {"rtol": rtol, "atol": atol, "equal_nan": equal_nan})


_isclose.public = isclose


def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Whether all elements are close (see `isclose`): a Python bool; collective for distributed tensors."""
    return bool(all_true(isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a, b):
    """Whether shapes and all elements are equal: a Python bool; collective for distributed tensors."""
    a, b = operand(a), operand(b)
    return a.shape == b.shape and bool(all_true(ew.equal(a, b)))
