"""What minimisers compute with: several tensors as one vector of raw pieces."""

import math

from ..autograd.backward import enable_grad, grad
from ..autograd.tensor import Tensor
from ..dtypes import is_complex, is_inexact
from ..errors import runtime_error, type_error, value_error
from ..linalg.vectors import Vectors, right_side


class Space:
    """The vectors like some tensors; a vector is a list of raw arrays, this rank's pieces."""

    def __init__(self, name, x0):
        self.single = isinstance(x0, Tensor)
        given = [x0] if self.single else list(x0)
        for position, x in enumerate(given):
            if not isinstance(x, Tensor):
                raise type_error(
                    f"{name}: x0[{position}] is a {type(x).__name__}; a Tensor or a list of them is needed"
                )
            if not is_inexact(x.dtype) or is_complex(x.dtype):
                raise type_error(f"{name}: x0[{position}] has dtype {x.dtype.name}; a real floating one is needed")
        given = [right_side(x.detach(), name) for x in given]
        self.name = name
        self.spaces = [Vectors(x) for x in given]
        self.start = [x._data.copy() for x in given]

    def tensors(self, vector):
        """The Tensors whose pieces these are, each a leaf that requires grad."""
        return [space.tensor(raw).requires_grad_() for space, raw in zip(self.spaces, vector)]

    def result(self, vector):
        """The Tensors as the user gave them: one, or a list."""
        found = [space.tensor(raw) for space, raw in zip(self.spaces, vector)]
        return found[0] if self.single else found

    def raw(self, tensors, what):
        """The pieces of tensors like the space's."""
        return [space.raw(x.detach(), f"{self.name}: {what}") for space, x in zip(self.spaces, tensors)]

    def dot(self, u, v):
        """The dot product over all ranks and tensors."""
        return math.fsum(space.dots((a, b))[0].real for space, a, b in zip(self.spaces, u, v))

    def norm(self, u):
        return math.sqrt(self.dot(u, u))


def moved(x, step, direction):
    """x + step * direction, in each array's own dtype."""
    return [a + a.dtype.type(step) * b for a, b in zip(x, direction)]


def scaled(factor, u):
    return [a.dtype.type(factor) * a for a in u]


class Objective:
    """A function of tensors with one number as its value, and its gradient."""

    def __init__(self, name, function, space):
        self.name, self.function, self.space = name, function, space
        self.evaluations = 0

    def value_and_gradient(self, x):
        """The value as a float, and the gradient as a vector."""
        self.evaluations += 1
        leaves = self.space.tensors(x)
        with enable_grad():
            loss = self.loss(leaves)
        value = float(loss)
        if math.isnan(value):
            raise runtime_error(f"{self.name}: the function is NaN at evaluation {self.evaluations}")
        return value, self.space.raw(grad(loss, leaves), "gradient")

    def loss(self, leaves):
        loss = self.function(*leaves)
        if not isinstance(loss, Tensor) or loss.size != 1:
            given = f"shape {loss.shape}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise value_error(f"{self.name}: the function must return one number, it returned {given}")
        if loss._node is None:
            raise value_error(f"{self.name}: the function does not depend on x")
        return loss if loss.ndim == 0 else loss.reshape(())
