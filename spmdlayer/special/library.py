"""How special functions are defined: computed by SciPy or CuPy, differentiated by formulas.

SciPy is imported when a function that needs it is first used.  Half precision
is computed in float32; float32 stays float32.
"""

import inspect
from importlib import import_module

import numpy

from ..array import is_array
from ..autograd.tensor import Tensor
from ..config import state
from ..dtypes import is_complex, is_half, is_inexact
from ..errors import type_error
from ..ops.registry import apply, elementwise

_FLOAT32 = numpy.dtype(numpy.float32)


def library_function(np, name):
    """The function of this name in scipy.special, or for CuPy's arrays in cupyx.scipy.special."""
    module = "scipy.special" if np is numpy else "cupyx.scipy.special"
    try:
        return getattr(import_module(module), name)
    except ImportError:
        raise ImportError(f"{name} needs {module}: pip install 'spmdlayer[scipy]' brings SciPy") from None
    except AttributeError:
        raise type_error(f"{name}: {module} has no such function; bring the array to NumPy first") from None


def from_library(name):
    """A forward that calls the library's function."""
    return lambda np, *arrays: library_function(np, name)(*arrays)


def _widened(forward):
    """The same forward, with half precision computed in float32."""

    def widened(np, *arrays):
        if not any(is_half(array.dtype) for array in arrays if hasattr(array, "dtype")):
            return forward(np, *arrays)
        dtype = np.result_type(*arrays)
        wide = (a.astype(_FLOAT32) if hasattr(a, "dtype") and is_half(a.dtype) else a for a in arrays)
        result = forward(np, *wide)
        return result.astype(dtype) if is_half(dtype) else result

    return widened


def _as_operands(operands):
    """Numbers beside arrays as arrays of their precision, so that formulas keep it."""
    known = [x if isinstance(x, Tensor) or is_array(x) else numpy.asarray(x) for x in operands]
    if len(operands) == 1:
        return known
    dtypes = [x.dtype for x, given in zip(known, operands) if not isinstance(given, (bool, int, float, complex))]
    common = numpy.result_type(*dtypes) if dtypes else numpy.dtype(numpy.float64)
    real = numpy.dtype(f"f{common.itemsize // 2}") if is_complex(common) else common
    if not is_inexact(real):
        real = numpy.dtype(numpy.float64)
    return [x.astype(real) if isinstance(given, (bool, int, float)) else x for x, given in zip(known, operands)]


def _unreachable(g):
    raise AssertionError("whether a gradient is needed is checked at the call")


def _check(name, names, vjps, operands, holomorphic):
    for argument, vjp, x in zip(names, vjps, operands):
        if is_complex(x.dtype) and not holomorphic:
            raise type_error(f"{name}: {argument} is {x.dtype.name}; this function takes real numbers")
        if vjp is None and isinstance(x, Tensor) and x.requires_grad and state.grad_enabled:
            raise type_error(f"{name}: there is no gradient with respect to {argument}; give {argument}.detach()")


def special_function(signature, vjps, doc, forward=None, holomorphic=False):
    """Register an elementwise function; returns the public one.

    Parameters
    ----------
    signature : str such as "polygamma(n, x)"; without a forward, the library's name
    vjps : for each argument its vjp, or None where no gradient exists
    doc : what it is
    forward : f(np, *arrays); by default the library's function
    holomorphic : whether it takes complex numbers too
    """
    name, arguments = signature.rstrip(")").split("(")
    names = arguments.split(", ")
    op, _ = elementwise(name, tuple(vjp or _unreachable for vjp in vjps), _widened(forward or from_library(name)))

    def call(*operands):
        if len(operands) != len(names):
            raise type_error(f"{name}: {len(names)} arguments are needed ({arguments}), {len(operands)} were given")
        operands = _as_operands(operands)
        _check(name, names, vjps, operands, holomorphic)
        return apply(op, operands)

    missing = [argument for argument, vjp in zip(names, vjps) if vjp is None]
    note = f"  There is no gradient with respect to {' and '.join(missing)}." if missing else ""
    kind = inspect.Parameter.POSITIONAL_ONLY
    call.__signature__ = inspect.Signature([inspect.Parameter(argument, kind) for argument in names])
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{doc}{note}"
    op.public = call
    return call
