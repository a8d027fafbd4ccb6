"""What the functions of stacks of matrices share: operands, rules, and failures that all ranks hear of.

A stack is an array whose last two dimensions are matrices.  Half precision is
computed in float32 and rounded, integers and bool are computed in float64.
"""

import numpy as np

from ..autograd.tensor import Tensor
from ..comm import channel
from ..errors import value_error
from ..ops.complaints import shown
from ..ops.distributed import call_of
from ..ops.factors import broadcast_terms, contraction_rule
from ..ops.registry import apply
from ..ops.registry import conj as conjugate
from ..ops.rules import rule_of, stated

LinAlgError = np.linalg.LinAlgError


# Operands ----------------------------------------------------------------


def check_stack(name, x, square=False, argument="x"):
    """Raise unless x is a stack of matrices, square ones if wanted."""
    if x.ndim < 2:
        raise value_error(f"{name}: {argument} must have at least 2 dimensions, its shape is {x.shape}")
    if square and x.shape[-1] != x.shape[-2]:
        raise value_error(f"{name}: the matrices of {argument} must be square, its shape is {x.shape}")


def adjoint(value, xp):
    """The conjugate transpose of the last two dimensions."""
    ndim = value.ndim
    return conjugate(xp.permute_dims(value, axes=(*range(ndim - 2), ndim - 1, ndim - 2)))


# Rules -------------------------------------------------------------------


def stack_rule(notation, linear=(), extents=lambda call: ()):
    """The rule of an operation on stacks, as "MM,Mn->Mn": dims in capitals are needed whole.

    The dims before those named broadcast, and may be sharded.  `linear`: the
    operands in which the operation is linear, so that a Partial sum or mean
    stays one.  `extents`: of a Call, those of the dims that the result alone has.
    """
    inputs, output = notation.split("->")
    terms = inputs.split(",")
    whole = {factor for factor in notation if factor.isupper()}

    @stated(
        f'"{",".join(f"...{term}" for term in terms)}->...{output}"',
        "gathers matrices; a record tells of failures",
    )
    def rule(call):
        leading, before = broadcast_terms([s[: len(s) - len(term)] for s, term in zip(call.shapes, terms)])
        full = tuple((*b, *term) for b, term in zip(before, terms))
        return contraction_rule(call, full, (*leading, *output), whole, linear, extents(call))

    return rule


# Failures ----------------------------------------------------------------


class StackError(LinAlgError):
    """One matrix of a local stack that an operation cannot be done with; `index` is its place in the stack."""

    def __init__(self, name, reason, index, shape):
        super().__init__(str(value_error(described(name, reason, index, shape))))
        self.reason = reason
        self.index = index


def described(name, reason, index, shape):
    """The message for a matrix that an operation cannot be done with."""
    if not index:
        return f"{name}: the matrix, of shape {shape}, {reason}"
    return f"{name}: the matrix at index {index} of the stack, of shape {shape}, {reason}"


def guarded(name, reason, function, a, *others, alone=None):
    """function(a, *others) of raw stacks; a failure names the first matrix of `a` for which `alone` fails."""
    try:
        return function(a, *others)
    except LinAlgError:
        for index in np.ndindex(a.shape[:-2]):
            try:
                (alone or function)(a[index])
            except LinAlgError:
                raise StackError(name, reason, index, a.shape) from None
        raise


def apply_on_stacks(op, operands, params=None):
    """`apply`; where stacks are sharded, a matrix that fails on one rank raises on all ranks.

    That costs one short exchange of records over the mesh; nothing else does.
    """
    mesh = next((x._spec.mesh for x in operands if _varies(x)), None)
    if mesh is None or mesh.coordinate is None:
        return apply(op, operands, params)
    result, problem = None, b""
    try:
        result = apply(op, operands, params)
    except LinAlgError as error:
        problem = _in_whole(error, op, mesh, operands, params or {}).encode()
    for rank, text in enumerate(channel(mesh, None).record(problem)):
        if text:
            raise LinAlgError(str(value_error(f"{text.decode()} (on mesh rank {rank})")))
    return result


def _in_whole(error, op, mesh, operands, params):
    """What has failed on this rank, with the index in the whole stack."""
    if not isinstance(error, StackError):
        return f"{op.name}: {error}"
    layout = rule_of(call_of(op, operands, params)).inputs[0]
    index = tuple(_global(layout, mesh.coordinate, dim, place) for dim, place in enumerate(error.index))
    return described(op.name, error.reason, index, shown(operands[0]))


def _varies(x):
    """Whether ranks may hold different matrices of a tensor."""
    if not isinstance(x, Tensor) or x._spec is None or x._spec.layout is None:
        return False
    return any(placement.kind == "shard" and placement.dim < x.ndim - 2 for placement in x._spec.placements)


def _global(layout, coord, dim, place):
    """The global index of the element of a rank's piece at a place along a dim."""
    for start, stop in layout.intervals(coord, dim):
        if place < stop - start:
            return start + place
        place -= stop - start
    raise AssertionError("the place lies outside the piece")
