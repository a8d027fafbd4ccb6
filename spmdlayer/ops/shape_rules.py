"""Rules of operations that change the shape: permutations, repetition, reversals, joining.

They only move elements, so most Partial operands pass through; see
`rules.moving`.
"""

from itertools import accumulate

import numpy as np

from ..array import array_module
from .moving import Mover, Run
from .rules import REPLICATE, Rule, follow, joint_partial, kept_partials, layout_like, moving, stated

# Dimensions that stay apart ------------------------------------------------


def _moved(call, dims, shape):
    source, target = follow(call, dims, shape, moving(call.dtypes[0]))
    return Rule((source,), target)


@stated("dims keep their shards", "nothing")
def permute_rule(call):
    """Dim d of the operand becomes the place of d in `axes`."""
    shape, axes = call.shapes[0], call.params["axes"]
    return _moved(call, [axes.index(dim) for dim in range(len(shape))], tuple(shape[axis] for axis in axes))


@stated("the dims that stay keep their shards", "a dropped dim's element, where it is sharded")
def squeeze_rule(call):
    """The dropped dims must not be sharded."""
    shape, axes = call.shapes[0], call.params["axis"]
    kept = [dim for dim in range(len(shape)) if dim not in axes]
    dims = [kept.index(dim) if dim in kept else None for dim in range(len(shape))]
    return _moved(call, dims, tuple(shape[dim] for dim in kept))


@stated("dims keep their shards, new ones are on every rank", "nothing")
def expand_rule(call):
    """The new dims are on every rank."""
    shape, axes = call.shapes[0], call.params["axis"]
    dims = [dim for dim in range(len(shape) + len(axes)) if dim not in axes]
    sizes = dict(zip(dims, shape))
    return _moved(call, dims, tuple(sizes.get(dim, 1) for dim in range(len(shape) + len(axes))))


@stated("dims keep their shards, repeated ones are on every rank", "nothing")
def broadcast_rule(call):
    """The repeated dims are on every rank, the others as they were."""
    shape, given = call.params["shape"], call.shapes[0]
    extra = len(shape) - len(given)
    dims = [dim + extra if size == shape[dim + extra] else None for dim, size in enumerate(given)]
    rule = _moved(call, dims, shape)
    return Rule(rule.inputs, rule.output, local_shape(rule.output))


def local_shape(layout):
    """The parameter `shape` of the local call: the result's piece."""
    return lambda coord: {"shape": layout.local_shape(coord)}


# Lines ---------------------------------------------------------------------


def lines_rule(runs):
    """The rule of what changes the order along some dims: pieces stay as large, and what is not there is sent.

    `runs(call)` is {dim: its Runs}.
    """

    @stated("pieces stay as large as they are", "the elements that another rank gets")
    def rule(call):
        layout = call.layouts[0]
        kept = kept_partials(layout.placements, moving(call.dtypes[0]))
        source = layout.with_placements(
            tuple(p if p.kind == "shard" or k in kept else REPLICATE for k, p in enumerate(layout.placements))
        )
        maps = runs(call)
        if not any(source.sharding_axes(dim) for dim in maps):
            return Rule((source,), source)
        mover = Mover.between(source, source, maps)
        item = call.dtypes[0].itemsize
        return Rule(
            (source,),
            source,
            across=lambda mesh, arrays, params: mover.on(mesh, arrays[0].dtype)(arrays[0]),
            sends=lambda coord: mover.items(coord) * item,
        )

    return rule


@lines_rule
def flip_rule(call):
    """Position k of the result is position size - 1 - k."""
    return {dim: (Run(0, 1, call.shapes[0][dim] - 1, -1, call.shapes[0][dim]),) for dim in call.params["axis"]}


@lines_rule
def roll_rule(call):
    """Two runs: what stays in its order, and what comes in at the other end."""
    shape, maps = call.shapes[0], {}
    for dim in set(call.params["axis"]):
        steps = sum(shift for shift, axis in zip(call.params["shift"], call.params["axis"]) if axis == dim)
        size = shape[dim]
        shift = steps % size if size else 0
        maps[dim] = (Run(0, 1, size - shift, 1, shift), Run(shift, 1, 0, 1, size - shift))
    return maps


# Joining -------------------------------------------------------------------


@stated("dims beside the joined one keep their shards", "what the new pieces need from other ranks")
def concat_rule(call):
    """All operands in one layout: that of the leftmost which shards another dim than the joined one.

    Along mesh axes that shard the joined dim and no other, the result has
    pieces of the default sizes, and what is not there already is sent.
    """
    axis = call.params["axis"]
    shape = list(call.shapes[0])
    shape[axis] = sum(operand[axis] for operand in call.shapes)
    placements = tuple(_joined(call, mesh_axis, axis) for mesh_axis in call.axes)
    dims = [None if dim == axis else dim for dim in range(len(shape))]
    output = layout_like(call.mesh_shape, placements, shape, [(layout, dims) for layout in call.layouts])
    inputs = tuple(
        layout_like(call.mesh_shape, placements, operand, [(output, dims), (layout, list(range(len(shape))))])
        for operand, layout in zip(call.shapes, call.layouts)
    )
    if not output.sharding_axes(axis):
        return Rule(inputs, output)
    mover = _joiner(inputs, output, axis)
    dtype = np.result_type(*call.dtypes)

    def across(mesh, arrays, params):
        np = array_module(arrays[0])
        return mover.on(mesh, dtype)(np.concatenate([np.asarray(array, dtype) for array in arrays], axis=axis))

    return Rule(inputs, output, across=across, sends=lambda coord: mover.items(coord) * dtype.itemsize)


def _joiner(inputs, output, axis):
    """The Mover from the operands' pieces, one behind the other, to the result's."""
    starts = list(accumulate((layout.shape[axis] for layout in inputs), initial=0))

    def have(coord, dim):
        pieces = [layout.intervals(coord, dim) for layout in inputs]
        return [(start + low, start + high) for start, piece in zip(starts, pieces) for low, high in piece]

    def shape(coord):
        local = list(output.local_shape(coord))
        local[axis] = sum(layout.local_shape(coord)[axis] for layout in inputs)
        return tuple(local)

    maps = {axis: (Run(0, 1, 0, 1, output.shape[axis]),)}
    axes = output.sharding_axes(axis)
    return Mover(output.mesh_shape, axes, maps, have, output.intervals, (shape, output.local_shape))


def _joined(call, mesh_axis, axis):
    placements = [call.placement(operand, mesh_axis) for operand in range(len(call.layouts))]
    sharded = [placement for placement in placements if placement.kind == "shard"]
    if sharded:
        return next((placement for placement in sharded if placement.dim != axis), sharded[0])
    partial = joint_partial(placements)
    if partial is None or not all(partial.op in moving(dtype) for dtype in call.dtypes):
        return REPLICATE
    return partial
