"""Operations with several results: one operation whose result is all of them, packed.

The results for one index of the leading dimensions (a stack of matrices, say)
lie behind one another in the last dimension of one array, and slices of it
are what users get.  So the tape, the distributed rules and recomputation meet
operations with one result alone, and gradients of gradients need nothing of
their own.  A result that nobody uses has zeros as its cotangent.
"""

from math import prod
from typing import NamedTuple

from ..dtypes import is_complex
from .factors import contraction_rule
from .registry import apply, define, namespace_of
from .rules import stated


class Part(NamedTuple):
    """One of the packed results: its shape behind the leading dimensions, and whether it is real in any case."""

    shape: tuple
    real: bool = False


def pack(np, results, parts):
    """Raw arrays as one, (leading..., total length)."""
    flat = [
        result.reshape(*result.shape[: result.ndim - len(part.shape)], prod(part.shape))
        for result, part in zip(results, parts)
    ]
    return np.concatenate(flat, axis=-1)


def unpack(packed, parts):
    """The results, from a raw array or a Tensor; of a cotangent, their cotangents."""
    xp, leading, start, results = namespace_of(packed), packed.shape[:-1], 0, []
    for part in parts:
        stop = start + prod(part.shape)
        result = xp.reshape(packed[..., start:stop], shape=(*leading, *part.shape))
        results.append(xp.real(result) if part.real and is_complex(result.dtype) else result)
        start = stop
    return results


def define_packed(name, forward, vjp, parts, run=apply):
    """Register an operation on stacks of matrices with several results.

    Parameters
    ----------
    forward : f(np, a, **params) -> the results, raw arrays
    vjp : f(gs, ys, p, xp) -> the cotangent of a, with lists of the results' cotangents and of the results
    parts : f(rows, columns, **params) -> a Part for each result
    run : what applies the operation

    Returns the function of a Tensor and parameters that gives the results as
    Tensors.  The leading dimensions may be sharded, the matrices are gathered.
    """

    def packed_forward(np, a, **params):
        return pack(np, forward(np, a, **params), parts(*a.shape[-2:], **params))

    def packed_vjp(g, y, p, xp):
        given = {key: value for key, value in p.items() if key not in ("shapes", "dtypes")}
        found = parts(*p.shapes[0][-2:], **given)
        return vjp(unpack(g, found), unpack(y, found), p, xp)

    @stated("stacks stay sharded, matrices must be whole", "gathers matrices")
    def rule(call):
        *leading, rows, columns = call.shapes[0]
        length = sum(prod(part.shape) for part in parts(rows, columns, **call.params))
        dims = tuple(range(len(leading)))
        term, output = (*dims, "rows", "columns"), (*dims, "packed")
        return contraction_rule(call, (term,), output, ("rows", "columns"), (), [("packed", length)])

    op = define(name, packed_forward, (packed_vjp,), rule=rule)
    return lambda a, **params: unpack(run(op, (a,), params), parts(*a.shape[-2:], **params))
