"""Derivatives of functions: vjp, jvp, hvp, jacobian and hessian.

All are made of `grad`, so they hold for local and distributed tensors, and
nest.  A function of distributed tensors is called on every rank of the mesh.
"""

import numpy as np

from ..autograd.backward import enable_grad, grad
from ..autograd.tensor import Tensor
from ..errors import type_error, value_error
from .creation import zeros_like
from .shape import reshape, stack


def _as_tuple(value, argument):
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    for position, item in enumerate(values):
        if not isinstance(item, Tensor):
            raise type_error(f"{argument}[{position}]: a Tensor is needed, {type(item).__name__} was given")
    return values


def _tracked(primals):
    """The same tensors, each with a node: one that is off the tape becomes a leaf of its own."""
    return tuple(x if x._node is not None else x.detach().requires_grad_() for x in primals)


def _call(function, primals):
    """The inputs on the tape and the one result of the function."""
    inputs = _tracked(primals)
    with enable_grad():
        result = function(*inputs)
    if not isinstance(result, Tensor):
        raise type_error(f"the function must return one Tensor, it returned {type(result).__name__}")
    return inputs, result


def vjp(function, *primals):
    """The value of a function, and the function of cotangents that gives its vector-Jacobian products.

    Parameters
    ----------
    function : of Tensors, with one Tensor as its result
    primals : Tensors

    Returns
    -------
    (result, pullback); `pullback(cotangent)` takes a cotangent like the result
    (for a distributed one the global cotangent) and gives a tuple with one
    gradient per primal.  It may be called any number of times, and is itself
    differentiable.
    """
    primals = _as_tuple(primals, "primals")
    inputs, result = _call(function, primals)

    def pullback(cotangent):
        if result._node is None:
            return tuple(zeros_like(x.detach()) for x in inputs)
        return tuple(grad(result, list(inputs), [cotangent], create_graph=True))

    return result, pullback


def jvp(function, primals, tangents):
    """The value of a function and its directional derivative.

    Parameters
    ----------
    function : of Tensors, with one Tensor as its result
    primals, tangents : a Tensor or a tuple of them; each tangent is like its primal

    Returns (result, tangent of the result), differentiable.  The pullback is
    linear in its cotangent, and its own transpose is the Jacobian.
    """
    primals, tangents = _as_tuple(primals, "primals"), _as_tuple(tangents, "tangents")
    if len(primals) != len(tangents):
        raise value_error(f"tangents: {len(tangents)} were given for {len(primals)} primals")
    for position, (x, t) in enumerate(zip(primals, tangents)):
        if x.shape != t.shape:
            raise value_error(f"tangents[{position}]: shape {t.shape} was given, the primal has {x.shape}")
    inputs, result = _call(function, primals)
    if result._node is None:
        return result, zeros_like(result)
    with enable_grad():
        cotangent = zeros_like(result.detach()).requires_grad_()
        gradients = grad(result, list(inputs), [cotangent], create_graph=True)
        reached = [(g, t) for g, t in zip(gradients, tangents) if g._node is not None]
        if not reached:
            return result, zeros_like(result.detach())
        roots = [g for g, _ in reached]
        return result, grad(roots, cotangent, [t for _, t in reached], create_graph=True)


def hvp(function, primals, vectors):
    """The product of the Hessian of a scalar function with vectors: (value, products).

    Parameters and results as in `jvp`; the products are like the primals, a
    Tensor if `primals` is one, else a tuple.
    """
    single = isinstance(primals, Tensor)
    primals, vectors = _as_tuple(primals, "primals"), _as_tuple(vectors, "vectors")
    inputs, value = _call(function, primals)
    if value.size != 1:
        raise value_error(f"hvp: the function must return one number, it returned shape {value.shape}")
    gradients = grad(value, list(inputs), create_graph=True)
    reached = [(g, v) for g, v in zip(gradients, vectors, strict=True) if g._node is not None]
    if reached:
        products = grad([g for g, _ in reached], list(inputs), [v for _, v in reached], create_graph=True)
    else:
        products = [zeros_like(x.detach()) for x in inputs]
    return value, products[0] if single else tuple(products)


def jacobian(function, x):
    """The Jacobian of a function of one Tensor, of shape `result.shape + x.shape`.

    One backward pass per element of the result.  For distributed tensors x's
    dimensions keep the placements of its gradient.
    """
    (x,) = _as_tuple(x, "x")
    (inside,), result = _call(function, (x,))
    if result._node is None or result.size == 0:
        rows = [zeros_like(inside.detach())] * result.size
    else:
        basis = np.eye(result.size, dtype=result.dtype).reshape(result.size, *result.shape)
        rows = [grad(result, inside, [unit], create_graph=True) for unit in basis]
    if not rows:
        raise value_error("jacobian: the result has no elements")
    return reshape(stack(rows, axis=0), (*result.shape, *x.shape))


def hessian(function, x):
    """The Hessian of a scalar function of one Tensor, of shape `x.shape + x.shape`."""

    def gradient(value):
        inputs, result = _call(function, (value,))
        if result.size != 1:
            raise value_error(f"hessian: the function must return one number, it returned shape {result.shape}")
        return grad(result, inputs[0], create_graph=True)

    return jacobian(gradient, x)
