"""Distributed rules: in which layouts an operation's local code may run.

A rule is a function of a `Call` (global shapes, layouts, parameters) and
returns a `Rule`: the layout each operand must have, the layout of the result,
and the parameters of the local call where they differ from the global ones.
It looks at integers alone, so rules are cached by what they were asked.

    def rule(call):
        return Rule(inputs, output)

What no rule covers is replicated first: `replicated`, never an error.
"""

from dataclasses import dataclass, field

import numpy as np

from ..layout import Layout
from ..placement import Partial, Replicate, Shard

REPLICATE = Replicate()
LINEAR = ("sum", "avg")


@dataclass(frozen=True)
class Call:
    """What a rule may look at.

    Attributes
    ----------
    op : the Op
    mesh_shape : of the one mesh of all distributed operands
    layouts : a Layout per operand; None for a plain array or number (equal on all ranks)
    shapes : global shapes (() for a number)
    dtypes : numpy dtypes (None for a Python number)
    params : dict of keyword arguments
    """

    op: object
    mesh_shape: tuple
    layouts: tuple
    shapes: tuple
    dtypes: tuple
    params: dict

    @property
    def axes(self):
        return range(len(self.mesh_shape))

    def placement(self, operand, axis):
        """The placement of an operand along a mesh axis; plain values count as Replicate."""
        layout = self.layouts[operand]
        return REPLICATE if layout is None else layout.placements[axis]


@dataclass(frozen=True)
class Rule:
    """How to run a call.

    Attributes
    ----------
    inputs : a Layout per operand; None leaves a plain number as it is
    output : the Layout of the result
    params : None (as given), or a function of the mesh coordinate to the local parameters
    attaining : the result is a maximum or minimum of pieces, which count the elements that attain it
    """

    inputs: tuple
    output: Layout
    params: object = None
    attaining: bool = False
    notes: dict = field(default_factory=dict)


def layout_like(mesh_shape, placements, shape, sources):
    """A Layout whose sharded dims take their offsets from the first source that shards them by the same axes.

    `sources` is a sequence of (layout, dims): dims[d] is the dim of the new
    layout that dim d of the source becomes, or None.
    """
    plain = Layout(mesh_shape, tuple(placements), tuple(shape))
    if all(source is None or source.is_default for source, _ in sources):
        return plain
    splits = [None] * len(shape)
    for dim in range(len(shape)):
        axes = plain.sharding_axes(dim)
        if not axes:
            continue
        for source, dims in sources:
            if source is None or dim not in dims:
                continue
            origin = dims.index(dim)
            if source.shape[origin] == shape[dim] and source.sharding_axes(origin) == axes:
                splits[dim] = None if source.splits is None else source.splits[origin]
                break
    return Layout(mesh_shape, tuple(placements), tuple(shape), tuple(splits))


def replicated_layout(mesh_shape, shape):
    """The Layout with everything on every rank."""
    return Layout(mesh_shape, (REPLICATE,) * len(mesh_shape), tuple(shape))


def replicated(call):
    """The rule of last resort: every operand whole on every rank."""
    inputs = tuple(
        None if layout is None else replicated_layout(call.mesh_shape, shape)
        for layout, shape in zip(call.layouts, call.shapes)
    )
    return Rule(inputs, None)


def elementwise_rule(call):
    """Operands broadcast; an output dim is sharded where the leftmost operand that can say so shards it."""
    shape = np.broadcast_shapes(*call.shapes)
    placements = tuple(_elementwise_placement(call, axis, shape) for axis in call.axes)
    sources = [
        (layout, _aligned(operand_shape, shape)) for layout, operand_shape in zip(call.layouts, call.shapes)
    ]
    output = layout_like(call.mesh_shape, placements, shape, sources)
    inputs = tuple(
        _elementwise_input(call, operand, output) for operand in range(len(call.layouts))
    )
    return Rule(inputs, output)


def _aligned(shape, broadcast):
    """For each dim of an operand the dim of the result that it spans, or None where it is broadcast."""
    offset = len(broadcast) - len(shape)
    return [d + offset if size == broadcast[d + offset] else None for d, size in enumerate(shape)]


def _elementwise_placement(call, axis, shape):
    partial = None
    for operand, operand_shape in enumerate(call.shapes):
        placement = call.placement(operand, axis)
        if placement.kind == "shard":
            dim = _aligned(operand_shape, shape)[placement.dim]
            if dim is not None:
                return Shard(dim, placement.block)
        elif placement.kind == "partial" and partial is None:
            partial = _lazy(call, axis)
    return partial or REPLICATE


def _lazy(call, axis):
    """The Partial that a linear operation keeps along an axis, or None."""
    kinds = [call.placement(operand, axis) for operand in range(len(call.layouts))]
    if any(p.kind not in ("partial", "replicate") or (p.kind == "partial" and p.op not in LINEAR) for p in kinds):
        return None
    partial = [index for index, p in enumerate(kinds) if p.kind == "partial"]
    linear = call.op.linear
    if linear == "add":
        ops = {kinds[index].op for index in partial}
        return Partial("avg") if ops == {"avg"} else Partial("sum")
    if linear == "unary" or (linear == "multiply" and len(partial) == 1) or (linear == "divide" and partial == [0]):
        return kinds[partial[0]]
    return None


def _elementwise_input(call, operand, output):
    if call.layouts[operand] is None and call.shapes[operand] == () and not _sums(call, output):
        return None
    shape = call.shapes[operand]
    offset = len(output.shape) - len(shape)
    placements = []
    for axis, placement in enumerate(output.placements):
        if placement.kind == "shard":
            dim = placement.dim - offset
            spans = dim >= 0 and shape[dim] == output.shape[placement.dim]
            placements.append(Shard(dim, placement.block) if spans else REPLICATE)
        elif placement.kind == "partial" and (
            call.op.linear == "add" or call.placement(operand, axis).kind == "partial"
        ):
            placements.append(placement)
        else:
            placements.append(REPLICATE)
    dims = [d - offset if d >= offset else None for d in range(len(output.shape))]
    return layout_like(call.mesh_shape, placements, shape, [(output, dims)])


def _sums(call, output):
    """Whether a plain number must become part of a Partial sum."""
    return call.op.linear == "add" and any(p.kind == "partial" for p in output.placements)


def normalised_axes(axis, ndim):
    """A reduction's axes as a set of non-negative ints."""
    if axis is None:
        return set(range(ndim))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    return {a % ndim for a in axes}


def reduction_rule(kind, keeps=()):
    """The rule of a reduction: along reduced sharded dims the result is Partial(kind).

    `keeps` are the Partial operations that the reduction commutes with, so
    that such an operand is not reduced first.
    """
    keeps = (kind, *keeps)

    def rule(call):
        layout, shape = call.layouts[0], call.shapes[0]
        reduced = normalised_axes(call.params.get("axis"), len(shape))
        keepdims = call.params.get("keepdims", False)
        dims, position = [], 0
        for dim in range(len(shape)):
            if dim in reduced:
                dims.append(None)
                position += keepdims
            else:
                dims.append(position)
                position += 1
        inputs, outputs = [], []
        for placement in layout.placements:
            if placement.kind == "shard" and dims[placement.dim] is None:
                inputs.append(placement)
                outputs.append(Partial(kind))
            elif placement.kind == "shard":
                inputs.append(placement)
                outputs.append(Shard(dims[placement.dim], placement.block))
            elif placement.kind == "partial" and placement.op in keeps:
                inputs.append(placement)
                outputs.append(placement)
            else:
                inputs.append(REPLICATE)
                outputs.append(REPLICATE)
        out_shape = tuple(
            1 if dim in reduced else size for dim, size in enumerate(shape) if keepdims or dim not in reduced
        )
        output = layout_like(call.mesh_shape, outputs, out_shape, [(layout, dims)])
        attaining = kind in ("max", "min") and any(p.kind == "partial" for p in outputs)
        return Rule((layout.with_placements(tuple(inputs)),), output, attaining=attaining)

    return rule
