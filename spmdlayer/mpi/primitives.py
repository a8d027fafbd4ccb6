"""The linear maps that the collectives are made of, each with its adjoint; shapes are known here.

All take and give local Tensors, and are differentiable to any order because
an adjoint is another of them.
"""

import numpy as np

from ..errors import type_error
from .groups import host
from .record import LINK, recorded


def summed(line, x, op="sum"):
    """The sum (or mean, "avg") of all ranks' tensors; its own adjoint."""
    result = line.allreduce(host(x), op)
    return recorded(line, [x], [result], x.dtype, lambda gs: [summed(line, gs[0], op)])[0]


def gathered(line, x, shapes):
    """A list of all ranks' tensors; adjoint: `scattered_sum`."""
    results = line.allgather(host(x), shapes)
    return recorded(line, [x], results, x.dtype, lambda gs: [scattered_sum(line, gs)])


def scattered_sum(line, blocks, op="sum"):
    """The sum (or mean) of what all ranks have for this one; adjoint: `gathered`."""
    result = line.reduce_scatter([host(block) for block in blocks], op)
    shapes = [block.shape for block in blocks]

    def vjp(gs):
        g = gs[0] * (1.0 / line.size) if op == "avg" else gs[0]
        return gathered(line, g, shapes)

    return recorded(line, blocks, [result], blocks[0].dtype, vjp)[0]


def exchanged(line, blocks, shapes, dtype):
    """A list of what each rank sent to this one, None where it sent nothing; adjoint: the way back.

    `blocks` has None where nothing is sent, `shapes` where nothing comes.
    """
    empty = np.empty(0, dtype)
    received = line.alltoall(
        [empty if block is None else host(block) for block in blocks],
        [(0,) if shape is None else shape for shape in shapes],
    )
    sent = [None if block is None else block.shape for block in blocks]
    given = [block for block in blocks if block is not None]
    places = [k for k, shape in enumerate(shapes) if shape is not None]

    def vjp(gs):
        back = [None] * line.size
        for k, g in zip(places, gs):
            back[k] = g
        return [g for g in exchanged(line, back, sent, dtype) if g is not None]

    tensors = recorded(line, given, [received[k] for k in places], dtype, vjp)
    result = [None] * line.size
    for k, tensor in zip(places, tensors):
        result[k] = tensor
    return result


def spread(line, x, root, shape, dtype):
    """The root's tensor on every rank; adjoint: the sum, on the root."""
    here = line.rank == root
    result = line.bcast(host(x) if here else None, root, shape, dtype)
    result = result.copy() if here else result

    def vjp(gs):
        total = summed(line, gs[0])
        return [total] if here else []

    return recorded(line, [x] if here else [], [result], dtype, vjp)[0]


def running_sum(line, x, reverse=False):
    """The sum over this rank and all before it (behind it, where `reverse`); adjoint: the other direction.

    In log2(ranks) rounds (W. D. Hillis, G. L. Steele, 1986).
    """
    if x.dtype.kind == "b":
        raise type_error("scan: bool cannot be summed; cast to an integer first")
    total, distance, step = np.array(host(x)), 1, -1 if reverse else 1
    while distance < line.size:
        ahead, behind = line.rank + step * distance, line.rank - step * distance
        dest, source = (k if 0 <= k < line.size else None for k in (ahead, behind))
        received = line.sendrecv(total, dest, source, total.shape, total.dtype)
        if received is not None:
            total = total + received
        distance *= 2
    return recorded(line, [x], [total], x.dtype, lambda gs: [running_sum(line, gs[0], not reverse)])[0]


def extreme(line, x, op):
    """The elementwise maximum or minimum; adjoint: the summed cotangent where this rank attains it, ties share."""
    from ..redistribute.shares import attainment

    mine = host(x)
    result = line.allreduce(mine, op)

    def vjp(gs):
        weight, _ = attainment(mine, result, line, None)
        return [summed(line, gs[0]) * weight]

    return recorded(line, [x], [result], x.dtype, vjp)[0]


def linked(line, x, dest, source, shape, dtype):
    """What `source` sent here while `x` went to `dest`; None for either: nobody.  Adjoint: the way back.

    None where nothing comes.
    """
    if dest is None and source is None:
        return None
    result = line.sendrecv(None if dest is None else host(x), dest, source, shape, dtype)
    inputs = [] if dest is None else [x]
    back = _WayBack(line, None if dest is None else x.shape, dest, source, dtype)
    tensors = recorded(line, inputs, [] if source is None else [result], dtype, back, LINK)
    return tensors[0] if tensors else None


class _WayBack:
    """The adjoint of `linked`, and which of its two messages anybody still needs."""

    def __init__(self, line, shape, dest, source, dtype):
        self.line, self.shape, self.dtype = line, shape, dtype
        self.dest, self.source = dest, source
        self.needs = {"dest": dest is not None, "source": source is not None}

    @property
    def open(self):
        return any(self.needs.values())

    def agree(self, has, kept, retain):
        """Whether the cotangent here goes to the source, and whether one comes from the destination.

        Each end of a message learns what the other knows; a message that
        nobody needs any more is never asked for again.
        """
        to = self.source if self.needs["source"] else None
        come_from = self.dest if self.needs["dest"] else None
        flags = np.array([has, kept], np.uint8)
        told = self.line.sendrecv(None if to is None else flags, to, come_from, (2,), flags.dtype)
        receives, kept_there = (False, False) if told is None else (bool(told[0]), bool(told[1]))
        sends = has and to is not None
        if (sends and not retain) or not (has or kept):
            self.needs["source"] = False
        if (receives and not retain) or not (receives or kept_there):
            self.needs["dest"] = False
        return sends, receives

    def __call__(self, gs, sends=True, receives=True):
        to = self.source if sends else None
        come_from = self.dest if receives else None
        g = linked(self.line, gs[0] if gs and to is not None else None, to, come_from, self.shape, self.dtype)
        return [] if self.dest is None else [g]
