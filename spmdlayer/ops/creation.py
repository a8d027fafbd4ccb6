"""Making tensors: local ones from shapes and numbers, and *_like ones with the layout of another."""

import numpy as np

from ..autograd.tensor import as_raw, asarray, wrap
from ..dtypes import dtype as as_dtype
from ..errors import type_error
from .elementwise import where
from .registry import apply, elementwise
from .rules import REPLICATE, Rule
from .shape import as_shape


def _dtype(dtype):
    return None if dtype is None else as_dtype(dtype)


def _wrapped(array):
    return wrap(as_raw(array), None, None)


def zeros(shape, dtype=None):
    """A local tensor of zeros; float64 unless a dtype is given."""
    return _wrapped(np.zeros(as_shape("zeros", shape), _dtype(dtype) or np.float64))


def ones(shape, dtype=None):
    """A local tensor of ones; float64 unless a dtype is given."""
    return _wrapped(np.ones(as_shape("ones", shape), _dtype(dtype) or np.float64))


def full(shape, fill_value, dtype=None):
    """A local tensor with one number everywhere; the number's dtype unless another is given."""
    return _wrapped(np.full(as_shape("full", shape), fill_value, _dtype(dtype)))


def empty(shape, dtype=None):
    """A local tensor whose elements are not set; float64 unless a dtype is given."""
    return _wrapped(np.empty(as_shape("empty", shape), _dtype(dtype) or np.float64))


def arange(start, stop=None, step=1, dtype=None):
    """A local tensor of the numbers from start (0 if only one is given) to before stop."""
    start, stop = (0, start) if stop is None else (start, stop)
    return _wrapped(np.arange(start, stop, step, dtype=_dtype(dtype)))


def linspace(start, stop, num, dtype=None, endpoint=True):
    """A local tensor of `num` evenly spaced numbers from start to stop."""
    return _wrapped(np.linspace(start, stop, num, endpoint=endpoint, dtype=_dtype(dtype)))


def eye(n_rows, n_cols=None, k=0, dtype=None):
    """A local matrix with ones on diagonal k (positive: above the main one), else zeros."""
    return _wrapped(np.eye(n_rows, n_cols, k, dtype=_dtype(dtype) or np.float64))


# Elementwise operations without gradients, so that the layout follows the operand's, whose values nobody reads.


def _like_rule(call):
    """The pieces are where the operand's are; what is Partial there is on every rank here."""
    layout = call.layouts[0]
    placements = tuple(REPLICATE if placement.kind == "partial" else placement for placement in layout.placements)
    return Rule((layout,), layout.with_placements(placements))


def _zeros_like_rule(call):
    """Zeros are Partial of any reduction too."""
    same = call.params.get("dtype") in (None, call.dtypes[0])
    return Rule(call.layouts, call.layouts[0]) if same else _like_rule(call)


_full_like, _ = elementwise(
    "full_like",
    forward=lambda np, x, fill_value, dtype=None: np.full_like(x, fill_value, dtype=dtype, subok=False),
    rule=_like_rule,
)
_zeros_like, _ = elementwise(
    "zeros_like", forward=lambda np, x, dtype=None: np.zeros_like(x, dtype=dtype), rule=_zeros_like_rule
)
_ones_like, _ = elementwise(
    "ones_like", forward=lambda np, x, dtype=None: np.ones_like(x, dtype=dtype), rule=_like_rule
)


def zeros_like(x, dtype=None):
    """Zeros in x's shape, layout and dtype (unless another is given)."""
    return apply(_zeros_like, (asarray(x),), {"dtype": _dtype(dtype)})


def ones_like(x, dtype=None):
    """Ones in x's shape, layout (Replicate where x is Partial) and dtype (unless another is given)."""
    return apply(_ones_like, (asarray(x),), {"dtype": _dtype(dtype)})


def full_like(x, fill_value, dtype=None):
    """One number everywhere in x's shape, layout (Replicate where x is Partial) and dtype (unless another is given)."""
    if not isinstance(fill_value, (bool, int, float, complex, np.generic)):
        raise type_error(f"full_like: fill_value must be a number, {fill_value!r} was given")
    return apply(_full_like, (asarray(x),), {"fill_value": fill_value, "dtype": _dtype(dtype)})


_zeros_like.public, _ones_like.public, _full_like.public = zeros_like, ones_like, full_like


# Triangles ---------------------------------------------------------------


def tril(x, k=0):
    """x with zeros above diagonal k of its last two dimensions."""
    x = asarray(x)
    return where(np.tri(*x.shape[-2:], k=k, dtype=bool), x, 0)


def triu(x, k=0):
    """x with zeros below diagonal k of its last two dimensions."""
    x = asarray(x)
    return where(np.tri(*x.shape[-2:], k=k - 1, dtype=bool), 0, x)
