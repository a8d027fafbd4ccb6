"""Transforms over several axes, and the transposes between them: a sharded axis changes places with another dim."""

from ..ops.registry import apply
from ..placement import Shard
from ..redistribute.reshard import reshard_spec
from .maps import cut_or_pad


def waits(x, axis):
    """Whether an axis of a distributed tensor is sharded, so that no rank has whole lines."""
    return x._spec is not None and any(p.is_shard(axis) for p in x._spec.placements)


def made_whole(x, axis, waiting):
    """The same tensor with whole lines along an axis; what sharded it shards other dims instead.

    `waiting` are the axes still to be transformed: the others are taken first,
    then those that the mesh cuts into the longest pieces.  Where there is no
    other dim of two elements, the tensor is returned as it is.
    """
    if not waits(x, axis):
        return x
    mesh, shape, placements = x._spec.mesh, x._spec.shape, list(x._spec.placements)
    for number, placement in enumerate(placements):
        if not placement.is_shard(axis):
            continue
        pieces = list(shape)
        for size, other in zip(mesh.shape, placements):
            if other.is_shard():
                pieces[other.dim] //= size
        dims = [dim for dim in range(len(shape)) if dim != axis and shape[dim] > 1]
        if not dims:
            return x
        best = max(dims, key=lambda dim: (pieces[dim] >= mesh.shape[number], dim not in waiting, pieces[dim], -dim))
        placements[number] = Shard(best)
    return reshard_spec(x, mesh, placements)


def resized(x, axes, sizes):
    """The tensor with other extents along axes: cut off, or with zeros at the end."""
    changed = [(axis, size) for axis, size in zip(axes, sizes) if x.shape[axis] != size]
    if not changed:
        return x
    axes, sizes = zip(*changed)
    return apply(cut_or_pad, (x,), {"axes": axes, "sizes": sizes})


def over(op, x, axes, sizes, params):
    """A transform over axes given extents: those that every rank has whole come first."""
    waiting = list(zip(axes, sizes))
    while waiting:
        turn = [pair for pair in waiting if not waits(x, pair[0])]
        if not turn:
            turn = waiting[:1]
            x = made_whole(x, turn[0][0], [axis for axis, _ in waiting])
        waiting = [pair for pair in waiting if pair not in turn]
        now, extents = zip(*turn)
        x = apply(op, (resized(x, now, extents),), {"axes": now, **params})
    return x
