"""Operations: what one is, and how it is recorded on the tape.

An operation is written once, beside its gradient and its distributed rule:

    exp = elementwise("exp", vjps=(lambda g, y, xp: g * conj(y),))
    sum_ = define("sum", forward, vjps=(vjp,), rule=reduction_rule)

A vjp is a function whose argument *names* say what it needs, so that nothing
else is saved:

    g         the cotangent of the result
    a b c d   the inputs 0 to 3      bs cs    the inputs from 1 on, from 2 on
    y         the result             others   all inputs but the one asked for
    i         which input is asked for
    p         the parameters (keyword arguments, and p.shapes, p.dtypes of the
              inputs)
    xp        the namespace to compute with

It is called with raw arrays and a raw namespace, or under `create_graph` with
Tensors and the namespace of operations; so it uses array operations alone and
looks at shapes and dtypes, never at values.

Complex numbers: the gradient of a real L with respect to z = x + iy is
dL/dx + i dL/dy, so a holomorphic f has the vjp g * conj(f'(z)).
"""

import math
import sys
from functools import cache

import numpy as np

from ..array import array_module, is_array
from ..autograd.tape import Node, NodeOp
from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..dtypes import is_complex, is_inexact, supported
from ..errors import type_error

REGISTRY = {}  # every operation by name
_ndarray = np.ndarray
_new = object.__new__
_SCALARS = frozenset({bool, int, float, complex})
_KINDS = "biufc"  # of NumPy's dtypes that tensors have
_INPUTS = "abcd"


class Params(dict):
    """Keyword arguments of a call, with attribute access."""

    __getattr__ = dict.__getitem__


class _Raw:
    """The raw namespace of an array module: its functions, and our operations' forward."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        op = REGISTRY.get(name)
        function = op.bound(self) if op is not None else getattr(self.module, name)
        setattr(self, name, function)
        return function


class _Operations:
    """The namespace of operations on Tensors, for vjps under create_graph."""

    def __getattr__(self, name):
        op = REGISTRY.get(name)
        if op is None:
            raise AttributeError(f"a vjp uses {name}, which is no operation")
        setattr(self, name, op.public)
        return op.public


_numpy = _Raw(np)
_raw_namespaces = {np: _numpy}
operations = _Operations()


def raw_namespace(array):
    """The raw namespace for an array's module."""
    module = np if type(array) is _ndarray else array_module(array)
    namespace = _raw_namespaces.get(module)
    if namespace is None:
        namespace = _raw_namespaces[module] = _Raw(module)
    return namespace


def namespace_of(value):
    """What a vjp computes with: for a raw array its module's, for a Tensor the operations."""
    return operations if isinstance(value, Tensor) else raw_namespace(value)


_SOURCES = {
    **{"g": "g", "p": "p", "xp": "xp", "i": "i", "y": "s[-1]", "bs": "s[1:-1]", "cs": "s[2:-1]"},
    **{letter: f"s[{position}]" for position, letter in enumerate(_INPUTS)},
    "others": "(*s[:i], *s[i + 1 : -1])",
}


def _adapter(vjp):
    """(xp, g, saved, p, i) -> vjp with the arguments it names, and what it needs saved."""
    names = vjp.__code__.co_varnames[: vjp.__code__.co_argcount]
    unknown = [name for name in names if name not in _SOURCES]
    if unknown:
        raise TypeError(f"vjp argument {unknown[0]!r} is none of {sorted(_SOURCES)}")
    call = f"({', '.join(_SOURCES[name] for name in names)})"
    function = _caller(call)(vjp)

    first = min((begin for name, begin in (("bs", 1), ("cs", 2)) if name in names), default=math.inf)
    single = {_INPUTS.index(name) for name in names if name in _INPUTS}

    def reads(index, position):
        """Whether the vjp of the input at `position` needs the one at `index`."""
        return index in single or index >= first or ("others" in names and index != position)

    return function, call, reads, "y" in names


# Compiling takes longer than all else in registering an operation, and few calls differ.


@cache
def _caller(call):
    return eval(f"lambda f: lambda xp, g, s, p, i: f{call}")  # built from checked names


@cache
def _callers(calls):
    functions = ", ".join(f"f{k}" for k in range(len(calls)))
    listed = "".join(f"f{k}{call}, " for k, call in enumerate(calls))
    return eval(f"lambda {functions}: lambda xp, g, s, p=None, i=0: ({listed})")


def _together(vjps, calls):
    """(xp, g, saved) -> the cotangents of all inputs of an elementwise operation, in one call."""
    return _callers(tuple(calls))(*vjps)


def _module_being_imported():
    """The name of the module that registers an operation, through whatever functions."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals["__name__"]


class Op(NodeOp):
    """An operation; see the module's text.

    Parameters
    ----------
    name : str, also its name in the public namespace
    forward : f(np, *arrays, **params) -> array; np is the array module (numpy or cupy)
    vjps : a function per input, or one function for all (with `i`), or None
    elementwise : inputs broadcast; the vjps are summed back to the inputs' shapes
    linear : for elementwise operations, how Partial operands pass: see `rules`
    rule : the distributed rule, see `rules`
    """

    def __init__(self, name, forward, vjps, elementwise=False, linear=None, rule=None):
        self.name = name
        self.forward = forward
        self.elementwise = elementwise
        self.linear = linear
        self.rule = rule
        self.direct = None  # of arrays and parameters: the function of NumPy that forward would end in; or None
        self.numpy_function = None  # what forward does with NumPy's arrays, where it is no more than that
        self.differentiable = vjps is not None
        self.shared = callable(vjps)
        adapters = [_adapter(vjp) for vjp in ((vjps,) if self.shared else vjps or ())]
        self.vjps = tuple(adapter[0] for adapter in adapters)
        self._needs = [adapter[2:] for adapter in adapters]
        self._all = _together(vjps, [adapter[1] for adapter in adapters]) if elementwise and vjps else None
        self._saves = {}
        self.public = None
        self.family = _module_being_imported()
        REGISTRY[name] = self

    def bound(self, xp):
        """forward with its array module filled in."""
        forward, module = self.forward, xp.module
        return lambda *arrays, **params: forward(module, *arrays, **params)

    def vjp_of(self, position):
        return self.vjps[0] if self.shared else self.vjps[position]

    def saves(self, wanted):
        """Which of (inputs..., result) the vjps of the wanted inputs need: a tuple of bools."""
        found = self._saves.get(wanted)
        if found is None:
            flags = [False] * (len(wanted) + 1)
            for position, asked in enumerate(wanted):
                if asked:
                    reads, result = self._needs[0 if self.shared else position]
                    for index in range(len(wanted)):
                        flags[index] |= reads(index, position)
                    flags[-1] |= result
            found = self._saves[wanted] = tuple(flags)
        return found

    def gradients(self, xp, node, g, saved, params):
        """The cotangents of a node's inputs, None where nobody asks."""
        if not self.elementwise:
            return [
                None if edge is None else self.vjp_of(position)(xp, g, saved, params, position)
                for position, edge in enumerate(node.edges)
            ]
        if None in node.edges:
            grads = []
            for edge, vjp in zip(node.edges, self.vjps):
                grads.append(None if edge is None else vjp(xp, g, saved, None, 0))
        else:
            grads = self._all(xp, g, saved)
        if params is None:
            return grads
        # An elementwise node's parameters are what each input's cotangent is summed back to.
        return [
            grad if grad is None or fix is None else unbroadcast(xp, grad, *fix) for grad, fix in zip(grads, params)
        ]

    def pull(self, node, g):
        xp = _numpy if type(g) is _ndarray else raw_namespace(g)
        return self.gradients(xp, node, g, node.saved, node.params)

    def pull_graph(self, node, g):
        return self.gradients(operations, node, g, saved_tensors(node), node.params)


def saved_tensors(node):
    """What a node saved, as Tensors that are still on the tape."""
    saved = node.saved
    tensors = [wrap(value, edge, None) if is_array(value) else value for value, edge in zip(saved[:-1], node.edges)]
    tensors.append(None if saved[-1] is None else wrap(saved[-1], node, None))
    return tensors


def unbroadcast(xp, grad, shape, dtype):
    """Sum a cotangent back to the shape of a broadcast input, in that input's dtype."""
    if grad.shape != shape:
        extra = grad.ndim - len(shape)
        axes = tuple(range(extra)) + tuple(
            axis + extra for axis, size in enumerate(shape) if size == 1 and grad.shape[axis + extra] != 1
        )
        if axes:
            grad = xp.sum(grad, axis=axes, keepdims=True)
        if grad.shape != shape:
            grad = xp.reshape(grad, shape)
    if grad.dtype != dtype:
        if is_complex(grad.dtype) and not is_complex(dtype):
            grad = xp.real(grad)
        grad = xp.astype(grad, dtype)
    return grad


def _fixes(edges, arrays, result):
    """For an elementwise node: per input None, or the (shape, dtype) to sum its cotangent back to."""
    shape, dtype = result.shape, result.dtype
    fixes = None
    for position, edge in enumerate(edges):
        if edge is not None:
            array = arrays[position]
            if array.shape != shape or array.dtype != dtype:
                fixes = fixes or [None] * len(edges)
                fixes[position] = (array.shape, array.dtype)
    return fixes


_apply_distributed = None


def set_distributed_apply(function):
    """Upper floors say how an operation on distributed tensors runs."""
    global _apply_distributed
    _apply_distributed = function


def apply(op, operands, params=None):
    """Run an operation on Tensors, arrays and numbers, and record it.

    The result is distributed when an operand is.
    """
    arrays, edges = [], []
    for position, operand in enumerate(operands):
        if isinstance(operand, Tensor):
            if operand._spec is not None:
                return _apply_distributed(op, operands, params or {})
            arrays.append(operand._data)
            edges.append(operand._node)
        else:
            arrays.append(as_operand(op, position, operand))
            edges.append(None)
    result = run_forward(op, arrays, params)
    recorded = (
        op.differentiable
        and state.grad_enabled
        and any(edge is not None for edge in edges)
        and is_inexact(result.dtype)
    )
    if not recorded:
        return wrap(result, None, None)
    return wrap(result, record(op, arrays, tuple(edges), result, params), None)


def as_operand(op, position, operand):
    """A number or raw array among an operation's operands."""
    if type(operand) in _SCALARS:
        return operand
    if is_array(operand) or isinstance(operand, (list, tuple)):
        array = operand if is_array(operand) and not isinstance(operand, np.generic) else np.asarray(operand)
        if supported(array.dtype):
            return array
    raise type_error(
        f"{op.name}: operand {position} is a {type(operand).__name__}; a tensor, array or number is needed"
    )


def run_forward(op, arrays, params):
    """The result of an operation's forward, always an array."""
    array = next((value for value in arrays if type(value) not in _SCALARS), None)
    module = np if array is None else array_module(array)
    result = op.forward(module, *arrays, **params) if params else op.forward(module, *arrays)
    if type(result) is _ndarray or (is_array(result) and not isinstance(result, np.generic)):
        return result
    return module.asarray(result)


def record(op, arrays, edges, result, params):
    """The node of an operation on raw arrays."""
    flags = op.saves(tuple(edge is not None for edge in edges))
    saved = [value if flag else None for value, flag in zip(arrays, flags)]
    saved.append(result if flags[-1] else None)
    if op.elementwise:
        return Node(op, edges, saved, _fixes(edges, arrays, result))
    p = Params(params or ())
    p["shapes"] = tuple(getattr(value, "shape", ()) for value in arrays)
    p["dtypes"] = tuple(getattr(value, "dtype", None) for value in arrays)
    return Node(op, edges, saved, p)


def define(name, forward, vjps=None, rule=None, public=None):
    """Register an operation; returns its Op.

    `public` is the function users call; without one, `apply` with the operands
    as positional and the parameters as keyword arguments.
    """
    op = Op(name, forward, vjps, rule=rule)
    op.public = public or (lambda *operands, **params: apply(op, operands, params))
    return op


def elementwise(name, vjps=None, forward=None, linear=None, doc=None, rule=None):
    """Register an elementwise operation of one, two or three inputs.

    `forward` defaults to the array module's function of that name.  Returns
    the public function.
    """
    function = forward or (lambda module, *arrays: getattr(module, name)(*arrays))
    op = Op(name, function, vjps, elementwise=True, linear=linear, rule=rule)
    op.numpy_function = getattr(np, name, None) if forward is None else None
    return op, op.numpy_function


def unary(name, vjps=None, forward=None, linear=None, doc=None):
    """Register an elementwise operation of one input; returns the public function."""
    op, numpy_function = elementwise(name, vjps, forward, linear)

    def call(a):
        if numpy_function is None or type(a) is not Tensor or a._spec is not None or type(a._data) is not _ndarray:
            return apply(op, (a,))
        result = numpy_function(a._data)
        if type(result) is not _ndarray:
            result = np.asarray(result)
        node = a._node
        if node is not None:
            if state.grad_enabled and differentiable:
                node = Node(op, (node,), (a._data if save_a else None, result if save_y else None), None)
                if result.dtype != a._data.dtype:
                    node.params = [(a._data.shape, a._data.dtype)]
            else:
                node = None
        y = _new(Tensor)
        y._data = result
        y._node = node
        y._spec = None
        return y

    differentiable = op.differentiable
    save_a, save_y = op.saves((True,)) if differentiable else (False, False)
    return _publish(op, call, doc, "(a)")


def binary(name, vjps=None, forward=None, linear=None, doc=None):
    """Register an elementwise operation of two inputs; returns the public function."""
    op, numpy_function = elementwise(name, vjps, forward, linear)
    differentiable = op.differentiable
    needs = [[op.saves((x, y)) for y in (False, True)] for x in (False, True)] if differentiable else None

    def call(a, b):
        if type(a) is Tensor:
            if a._spec is not None:
                return _apply_distributed(op, (a, b), {})
            x, left = a._data, a._node
        elif type(a) in _SCALARS or (type(a) is _ndarray and a.dtype.kind in _KINDS):
            x, left = a, None
        else:
            return apply(op, (a, b))
        if type(b) is Tensor and b._spec is None:
            z, right = b._data, b._node
        elif type(b) in _SCALARS or (type(b) is _ndarray and b.dtype.kind in _KINDS):
            z, right = b, None
        else:
            return apply(op, (a, b))
        if numpy_function is None or (type(x) is not _ndarray and type(z) is not _ndarray):
            return apply(op, (a, b))
        result = numpy_function(x, z)
        if type(result) is not _ndarray:
            result = np.asarray(result)
        y = _new(Tensor)
        y._data = result
        y._spec = None
        y._node = None
        if differentiable and (left is not None or right is not None) and state.grad_enabled:
            save_x, save_z, save_y = needs[left is not None][right is not None]
            shape, dtype = result.shape, result.dtype
            fits = (left is None or (x.shape == shape and x.dtype is dtype)) and (
                right is None or (z.shape == shape and z.dtype is dtype)
            )
            edges = (left, right)
            y._node = Node(
                op,
                edges,
                (x if save_x else None, z if save_z else None, result if save_y else None),
                None if fits else _fixes(edges, (x, z), result),
            )
        return y

    return _publish(op, call, doc, "(a, b)")


def _publish(op, call, doc, signature):
    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = (
        doc
        or f"Elementwise {op.name}, as numpy.{op.name}; local or distributed, differentiable where it has a gradient."
    )
    op.public = call
    return call


def conj(value):
    """The complex conjugate; a real value as it is, without a copy."""
    try:
        real = value.dtype.kind != "c"
    except AttributeError:  # a Python number
        return value.conjugate()
    return value if real else namespace_of(value).conj(value)
