"""What iterative solvers compute with: raw pieces of vectors of one layout, and operators on them.

Inside of a solver nothing is recorded, so vectors are raw arrays (each rank's
piece) that may be written to.  A dot product is one small allreduce.
"""

import math

from ..array import array_module
from ..autograd.backward import no_grad
from ..autograd.tensor import Tensor, as_raw, asarray, wrap
from ..comm import channel
from ..dtypes import is_inexact
from ..errors import type_error, value_error
from ..ops.linear import matmul
from ..redistribute.crossing import make_spec
from ..redistribute.reshard import reshard_to, without_partials


class Vectors:
    """The space of vectors like a given one: any shape, local or distributed."""

    def __init__(self, like):
        self.shape, self.dtype = like.shape, like.dtype
        self.module = array_module(like._data)
        self.layout, self.line = None, None
        if like._spec is not None:
            self.mesh, self.layout = like._spec.mesh, like._spec.layout
            axes = tuple(axis for axis, p in enumerate(self.layout.placements) if p.is_shard())
            self.line = channel(self.mesh, axes[0] if len(axes) == 1 else axes) if axes else None

    def tensor(self, raw):
        """The Tensor whose piece a raw array is."""
        return wrap(raw, None, None if self.layout is None else make_spec(self.mesh, self.layout))

    def raw(self, x, name):
        """This rank's piece of a tensor of the space, which is brought to its layout."""
        if isinstance(x, Tensor) and (x._spec is None) != (self.layout is None):
            kinds = ("distributed", "local") if x._spec is not None else ("local", "distributed")
            raise type_error(f"{name}: it is {kinds[0]}, and the right side {kinds[1]}")
        if not isinstance(x, Tensor) or x.shape != self.shape:
            given = f"shape {x.shape}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
            raise value_error(f"{name}: a tensor of shape {self.shape} is needed, {given} was given")
        if self.layout is not None:
            x = reshard_to(x, self.layout)
        return x._data if x._data.dtype == self.dtype else x._data.astype(self.dtype)

    def dots(self, *pairs):
        """The dot products <u, v> = sum(conj(u) v) of pairs, as Python numbers; one reduction for all."""
        found = self.module.asarray([self.module.vdot(u, v) for u, v in pairs])
        if self.line is not None:
            found = self.line.allreduce(found, "sum")
        return [value.item() for value in found]

    def norm(self, u):
        """The Euclidean norm."""
        return math.sqrt(self.dots((u, u))[0].real)


def right_side(b, name):
    """The right side as a floating or complex Tensor without Partial placements."""
    b = asarray(b)
    if not is_inexact(b.dtype):
        raise type_error(f"{name}: b has dtype {b.dtype.name}; a floating or complex one is needed")
    return b if b._spec is None else reshard_to(b, without_partials(b._spec.layout))


def operator(A, name, argument="A"):
    """A linear operator as a function of a Tensor: a function as it is, a matrix by its product."""
    if callable(A) and not isinstance(A, Tensor):
        return A
    A = A if isinstance(A, Tensor) else as_raw(A, f"{name}: {argument}")  # an array counts as Replicate
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise value_error(f"{name}: {argument} has shape {A.shape}; a square matrix or a function is needed")
    return lambda x: matmul(A, x)


def applied(function, space, name):
    """An operator on raw pieces: nothing is recorded."""

    def apply(raw):
        with no_grad():
            return space.raw(function(space.tensor(raw)), name)

    return apply
