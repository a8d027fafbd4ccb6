"""NumPy's protocols: `np.sin(t)`, `np.concatenate([t, u])`, `array + t` are our operations, on the tape.

`__array_ufunc__` answers for NumPy's and SciPy's ufuncs, `__array_function__`
for NumPy's other functions.  Either looks for a function of the same name in
our namespace (or in `linalg`, `fft`, `special`), so what is added there is
found here.  What is not found raises a TypeError; nothing is converted to
NumPy in silence, which would leave the tape and, for a distributed tensor,
communicate.
"""

import inspect
import sys
from functools import lru_cache

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor
from ..errors import type_error, value_error
from . import elementwise as ew
from .numpy_names import cumprod, cumsum, fliplr, flipud, trace
from .shape import operand

_ROOT = __name__.partition(".")[0]
_OPERANDS = (Tensor, bool, int, float, complex, list, tuple)


def namespace():
    """The package, whose names are the Array API's."""
    return sys.modules[_ROOT]


def array_namespace(self, *, api_version=None):
    """The namespace of functions for tensors: the package itself."""
    own = namespace().__array_api_version__
    if api_version is not None and api_version not in ("2021.12", "2022.12", "2023.12", own):
        raise value_error(f"__array_namespace__: version {api_version!r} was asked for; {own!r} is here")
    return namespace()


# Universal functions -----------------------------------------------------

_OTHER_UFUNCS = {np.rint: "round", np.radians: "deg2rad", np.degrees: "rad2deg"}
_REDUCTIONS = {
    ("add", "reduce"): "sum",
    ("multiply", "reduce"): "prod",
    ("maximum", "reduce"): "max",
    ("minimum", "reduce"): "min",
    ("logical_and", "reduce"): "all",
    ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumulative_sum",
    ("multiply", "accumulate"): "cumulative_prod",
}
_ADVICE = {
    "out": "tensors are values; write y = numpy.{name}(...), or y[...] = numpy.{name}(...) for a tensor y",
    "where": "write spmdlayer.where(mask, numpy.{name}(...), y)",
    "dtype": "take astype() of the operands",
    "initial": "combine it with the result",
}


_UNSAID = {"keepdims": False, "where": True, "subok": True}  # values that say nothing


def divmod(a, b):
    """The floor of a / b, and what remains."""
    return ew.floor_divide(a, b), ew.remainder(a, b)


@lru_cache(maxsize=1024)
def _counterpart(ufunc):
    """Our function for a ufunc, or None: the one that has any of its names."""
    root = namespace()
    if ufunc in _OTHER_UFUNCS:
        return getattr(root, _OTHER_UFUNCS[ufunc])
    if ufunc is np.divmod:
        return divmod
    scipy, special = sys.modules.get("scipy.special"), getattr(root, "special", None)
    for theirs, ours in ((np, root), (scipy, special), (scipy, root)):
        if theirs is not None and ours is not None:
            for name in (ufunc.__name__, *_names(theirs).get(ufunc, ())):
                if getattr(theirs, name, None) is ufunc and hasattr(ours, name):
                    return getattr(ours, name)
    return None


@lru_cache(maxsize=4)
def _names(module):
    """The names that each ufunc of a module has there."""
    names = {}
    for name, value in vars(module).items():
        if isinstance(value, np.ufunc):
            names.setdefault(value, []).append(name)
    return names


def _refuse(name, keyword):
    advice = _ADVICE.get(keyword, "leave it out, or call NumPy on .numpy()").format(name=name)
    return type_error(f"numpy.{name}: {keyword}= was given, which tensors have no counterpart for; {advice}")


def _missing(name):
    return type_error(
        f"{name}: spmdlayer has no counterpart for this function; call it on .numpy() (collective for a distributed "
        "tensor; .detach().numpy() for one that requires grad), or on the raw array inside a region"
    )


def _outer(function, a, b):
    """The function of all pairs: the shape of a, then that of b."""
    a, b = operand(a), operand(b)
    return function(namespace().reshape(a, (*a.shape, *(1,) * b.ndim)), b)


def array_ufunc(self, ufunc, method, *inputs, **options):
    """NumPy's call for a ufunc of which an operand (or `out`) is a tensor."""
    if not all(isinstance(value, _OPERANDS) or is_array(value) for value in inputs):
        return NotImplemented
    function, name = _counterpart(ufunc), ufunc.__name__
    if "out" in options:
        raise _refuse(name, "out")
    if method in ("reduce", "accumulate"):
        found = _REDUCTIONS.get((name, method))
        if function is None or not hasattr(namespace(), found or ""):
            raise _missing(f"numpy.{name}.{method}")
        return _reduced(getattr(namespace(), found), f"{name}.{method}", *inputs, **options)
    if function is None or method not in ("__call__", "outer"):
        raise _missing(f"numpy.{name}" + ("" if method == "__call__" else f".{method}"))
    options = {keyword: value for keyword, value in options.items() if not _same(value, _UNSAID.get(keyword))}
    for keyword in options:
        if keyword not in _parameters(function):
            raise _refuse(name, keyword)
    return _outer(function, *inputs) if method == "outer" else function(*inputs, **options)


def _reduced(function, name, x, axis=0, dtype=None, **options):
    """A reduction or accumulation; along dimension 0 unless an axis is given, as NumPy's methods."""
    options = {keyword: value for keyword, value in options.items() if not _same(value, _UNSAID.get(keyword))}
    if dtype is not None:
        options["dtype"] = dtype
    for keyword in options:
        if keyword not in _parameters(function):
            raise _refuse(name, keyword)
    return function(x, axis=axis, **options)


@lru_cache(maxsize=1024)
def _parameters(function):
    """The names of a function's parameters."""
    return frozenset(inspect.signature(function).parameters)


# Other functions ---------------------------------------------------------

_OTHER_NAMES = {
    "amax": "max",
    "amin": "min",
    "around": "round",
}
_OTHER_PARAMETERS = {"ddof": "correction", "a_min": "min", "a_max": "max"}
# `trace` of our namespace is the tracer; the Array API's running sums do not flatten.
_OTHER_FUNCTIONS = {np.trace: trace, np.cumsum: cumsum, np.cumprod: cumprod, np.flipud: flipud, np.fliplr: fliplr}
_OF_LINALG = (np.cross, np.kron)
_NOTHING = object()
_HINTS = ("optimize", "kind", "subok", "casting")  # of how NumPy computes, not what


def _where(condition, x=None, y=None):
    return namespace().nonzero(condition) if x is None and y is None else ew.where(condition, x, y)


def _size(x, axis=None):
    return x.size if axis is None else x.shape[axis]


_SPECIAL = {np.where: _where, np.shape: lambda x: x.shape, np.ndim: lambda x: x.ndim, np.size: _size}
_SPECIAL[np.iscomplexobj] = lambda x: x.dtype.kind == "c"
_SPECIAL[np.isrealobj] = lambda x: x.dtype.kind != "c"


@lru_cache(maxsize=1024)
def _function(function):
    """Our function for one of NumPy's, or None."""
    if function in _SPECIAL:
        return _SPECIAL[function]
    if function in _OTHER_FUNCTIONS:
        return _OTHER_FUNCTIONS[function]
    home, _, part = function.__module__.partition(".")
    if function in _OF_LINALG:
        part = "linalg"
    ours = getattr(namespace(), part, None) if part else namespace()
    found = getattr(ours, _OTHER_NAMES.get(function.__name__, function.__name__), None)
    if home != "numpy" or found is None or (not part and not found.__module__.startswith(f"{_ROOT}.ops.")):
        return None
    return found


def _same(value, default):
    """Whether an argument is what leaving it out means."""
    return value is default or (isinstance(value, (bool, int, float, str)) and value == default)


@lru_cache(maxsize=1024)
def _plan(function, count, keywords):
    """For each argument of a call (so many by position, then these keywords): our name for it, and NumPy's default.

    The name is None for what we take by position: required arguments, and those behind a *.
    """
    signature = inspect.signature(function)
    signature.bind(*range(count), **dict.fromkeys(keywords))  # raises what a call with wrong arguments raises
    parameters, plan = list(signature.parameters.values()), []
    for position in range(count):
        parameter = parameters[min(position, len(parameters) - 1)]
        stars = [p for p in parameters[:position] if p.kind is p.VAR_POSITIONAL]
        plan.append(_name_and_default(stars[0] if stars else parameter))
    for name in keywords:
        known = signature.parameters.get(name)
        plan.append((name, _NOTHING) if known is None else _name_and_default(known))
    return tuple(plan)


def _name_and_default(parameter):
    if parameter.kind is parameter.VAR_POSITIONAL or parameter.default is parameter.empty:
        return None, _NOTHING
    return _OTHER_PARAMETERS.get(parameter.name, parameter.name), parameter.default


def _translated(theirs, ours, args, keywords):
    """Arguments for our function: NumPy's required ones by position, the others by name where they say something."""
    positional, named = [], {}
    plan = _plan(theirs, len(args), tuple(keywords))
    for (name, default), value in zip(plan, (*args, *keywords.values())):
        if name is None:
            positional.append(value)
        elif name not in _HINTS and not _same(value, default):
            if name not in _parameters(ours):
                raise _refuse(f"{theirs.__module__}.{theirs.__name__}".removeprefix("numpy."), name)
            named[name] = value
    return positional, named


def array_function(self, function, types, args, keywords):
    """NumPy's call for a function of which an argument is a tensor."""
    if not all(issubclass(kind, (Tensor, np.ndarray)) for kind in types):
        return NotImplemented
    ours = _function(function)
    if ours is None:
        raise _missing(f"{function.__module__}.{function.__name__}")
    if function in _SPECIAL:
        return ours(*args, **keywords)
    positional, named = _translated(function, ours, args, keywords)
    return ours(*positional, **named)
