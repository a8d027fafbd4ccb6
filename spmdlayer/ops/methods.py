"""Tensor's operators and NumPy-style methods: the functions of the other files, bound."""

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor, install
from ..errors import type_error, value_error
from . import contraction, indexing, inspection, interchange, linear, numpy_names, protocols, reductions, shape, taking
from . import elementwise as ew
from .device import to_device

# Operators ---------------------------------------------------------------


def _swapped(function):
    """The operator for a tensor on the right."""

    def method(self, other):
        return function(other, self)

    return method


def _in_place(function, symbol):
    """The in-place operator: compute, then make the tensor the result.

    What the tensor held before stays as it was for whoever else holds it.
    """

    def method(self, other):
        indexing.check_writable(self, f"x {symbol} y")
        result = function(self, other)
        if self._spec is not None and self._spec.layout is None:
            indexing.rebind(self, result)  # outside the mesh: nothing is known of it
            return self
        if result.shape != self.shape:
            raise value_error(f"x {symbol} y: the result has shape {result.shape}, x keeps its shape {self.shape}")
        if result.is_dist() != self.is_dist():
            raise type_error(f"x {symbol} y: a distributed y was given for a local x; write x = x {symbol[:-1]} y")
        if result.dtype != self.dtype:
            if not np.can_cast(result.dtype, self.dtype, "same_kind"):
                raise type_error(f"x {symbol} y: the result is {result.dtype.name}, x stays {self.dtype.name}")
            result = ew.astype(result, self.dtype)
        indexing.rebind(self, result)
        return self

    return method


def _comparison(function):
    """== and != answer for anything; what is no operand is simply not equal."""

    def method(self, other):
        if isinstance(other, (Tensor, bool, int, float, complex, list, tuple)) or is_array(other):
            return function(self, other)
        return NotImplemented

    return method


_ARITHMETIC = {
    "add": ("+", ew.add),
    "sub": ("-", ew.subtract),
    "mul": ("*", ew.multiply),
    "truediv": ("/", ew.divide),
    "floordiv": ("//", ew.floor_divide),
    "mod": ("%", ew.remainder),
    "pow": ("**", ew.power),
    "matmul": ("@", linear.matmul),
    "and": ("&", ew.bitwise_and),
    "or": ("|", ew.bitwise_or),
    "xor": ("^", ew.bitwise_xor),
    "lshift": ("<<", ew.bitwise_left_shift),
    "rshift": (">>", ew.bitwise_right_shift),
}
for _name, (_symbol, _function) in _ARITHMETIC.items():
    install(
        **{
            f"__{_name}__": _function,
            f"__r{_name}__": _swapped(_function),
            f"__i{_name}__": _in_place(_function, f"{_symbol}="),
        }
    )

install(
    __neg__=ew.negative,
    __pos__=ew.positive,
    __abs__=ew.abs,
    __invert__=ew.bitwise_invert,
    __eq__=_comparison(ew.equal),
    __ne__=_comparison(ew.not_equal),
    __lt__=ew.less,
    __le__=ew.less_equal,
    __gt__=ew.greater,
    __ge__=ew.greater_equal,
    __getitem__=indexing.getitem,
    __setitem__=indexing.setitem,
)


# Methods and properties --------------------------------------------------


def _reshape(self, *shape_):
    """The elements in C order under another shape: x.reshape(2, 3) or x.reshape((2, 3))."""
    return shape.reshape(self, shape_[0] if len(shape_) == 1 else shape_)


def _transpose(self, *axes):
    """The dimensions reversed, or in the given order: x.transpose(1, 0) or x.transpose((1, 0))."""
    if not axes or axes == (None,):
        return shape.transpose(self)
    return shape.transpose(self, axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes)


install(
    reshape=_reshape,
    transpose=_transpose,
    T=property(shape.transpose),
    mT=property(shape.matrix_transpose),
    real=property(ew.real),
    imag=property(ew.imag),
    cumprod=numpy_names.cumprod,
    cumsum=numpy_names.cumsum,
    conjugate=ew.conj,
    dot=contraction.dot,
    take=taking.take,
    device=property(inspection.device),
    to_device=to_device,
    __divmod__=protocols.divmod,
    __rdivmod__=_swapped(protocols.divmod),
    __array_namespace__=protocols.array_namespace,
    __array_ufunc__=protocols.array_ufunc,
    __array_function__=protocols.array_function,
    __dlpack__=interchange.dlpack,
    __dlpack_device__=interchange.dlpack_device,
    __cuda_array_interface__=property(interchange.cuda_array_interface),
)
for _module, _names in (
    (ew, ("abs", "astype", "clip", "conj", "copy", "round")),
    (reductions, ("sum", "mean", "max", "min", "prod", "any", "all", "var", "std")),
    (shape, ("ravel", "flatten", "repeat", "squeeze", "swapaxes")),
):
    install(**{_name: getattr(_module, _name) for _name in _names})
