"""Whole arrays as distributed tensors under random placements.

The pieces of a Partial axis are random, such that their reduction is the
array; the pieces of a sharded dim are uneven and may be empty.  All is drawn
from one generator, which must be in the same state on every rank.
"""

from itertools import product
from math import prod

import numpy as np

import spmdlayer as spmd

MESHES = {1: [(1,), (1, 1)], 2: [(2,), (2, 1), (1, 2)], 3: [(3,), (1, 3)], 4: [(4,), (2, 2), (2, 1, 2)]}


def meshes():
    """Meshes over all ranks, of rank 1 to 3."""
    n = spmd.get_world_size()
    return [spmd.init_mesh(shape) for shape in MESHES.get(n, [(n,)])]


def reductions_of(array):
    """The reductions by which an array may be Partial."""
    if array.dtype.kind == "b":
        return ["any", "all"]
    if array.dtype.kind in "iu":
        return ["sum", "max", "min"]
    return ["sum", "avg", "prod"] + ([] if array.dtype.kind == "c" else ["max", "min"])


def draw(random, choices):
    return choices[random.integers(len(choices))]


def placements_for(random, mesh, array, partial=True):
    """Random placements of an array; half of the shards are block-cyclic once in a while."""
    placements = []
    for _ in range(mesh.ndim):
        kind = draw(random, ["shard"] * 3 + ["replicate", "partial"])
        if kind == "shard" and array.ndim:
            block = draw(random, [None, None, None, 1, 2])
            placements.append(spmd.Shard(int(random.integers(array.ndim)), block))
        elif kind == "partial" and partial:
            placements.append(spmd.Partial(draw(random, reductions_of(array))))
        else:
            placements.append(spmd.Replicate())
    return placements


def unreduced(random, array, op, n):
    """n arrays whose reduction is the array; differences of eighths, so that small numbers stay exact."""
    shape, dtype = (n - 1, *array.shape), array.dtype
    if op in ("any", "all"):
        others = random.random(shape) < 0.5
        return [*(others & array if op == "any" else others | array), array]
    steps = random.integers(-16, 17, shape)
    if dtype.kind == "c":
        steps = steps + 1j * random.integers(-16, 17, shape)
    others = (steps if dtype.kind in "iu" else steps / 8).astype(dtype)
    if op == "sum":
        return [*others, array - others.sum(axis=0, dtype=dtype)]
    if op == "avg":
        return [*others, array * n - others.sum(axis=0, dtype=dtype)]
    if op == "prod":  # by powers of two nothing is rounded
        others = (2.0 ** random.integers(-2, 3, shape) * random.choice([-1, 1], shape)).astype(dtype)
        return [*others, array / others.prod(axis=0)]
    winner = random.integers(n, size=array.shape)
    gaps = 1 + abs(random.integers(0, 9, (n, *array.shape)))
    gaps = np.where(np.arange(n).reshape(-1, *(1,) * array.ndim) == winner, 0, gaps).astype(dtype)
    return list(array - gaps if op == "max" else array + gaps)


def random_sizes(random, total, n):
    """n sizes that add up to a total."""
    cuts = np.sort(random.integers(0, total + 1, n - 1))
    return np.diff([0, *cuts, total]).tolist()


def dimension_pieces(random, mesh, placements, dim, extent):
    """{coordinate: indices} of the positions along a dim that each rank holds."""
    axes = [k for k, p in enumerate(placements) if p.is_shard(dim)]
    blocks = [placements[k].block for k in axes]
    uneven = len(axes) > 0 and all(block is None for block in blocks) and random.random() < 0.5
    sizes = random_sizes(random, extent, prod(mesh.shape[k] for k in axes)) if uneven else None
    pieces = {}
    for coord in product(*map(range, mesh.shape)):
        held = np.arange(extent)
        if uneven:
            flat = 0
            for k in axes:
                flat = flat * mesh.shape[k] + coord[k]
            held = held[sum(sizes[:flat]) : sum(sizes[: flat + 1])]
        else:
            for k, block in zip(axes, blocks):
                held = _part(held, mesh.shape[k], coord[k], block)
        pieces[coord] = held
    return pieces


def _part(held, n, index, block):
    if block is None:
        return np.array_split(held, n)[index]
    return held[np.arange(held.size) // block % n == index]


def distribute(random, mesh, array, placements):
    """The distributed tensor of an array, by `dtensor_from_local` of pieces made here."""
    wholes = {(): array}  # by the coordinates along the Partial axes so far; the leftmost is reduced last
    partial = [axis for axis, placement in enumerate(placements) if placement.is_partial()]
    for axis in partial:
        split = {}
        for coord, whole in wholes.items():
            parts = unreduced(random, whole, placements[axis].op, mesh.shape[axis])
            split.update({(*coord, k): part for k, part in enumerate(parts)})
        wholes = split
    index = [
        dimension_pieces(random, mesh, placements, dim, extent)[mesh.coordinate]
        for dim, extent in enumerate(array.shape)
    ]
    piece = wholes[tuple(mesh.coordinate[axis] for axis in partial)]
    return spmd.dtensor_from_local(np.ascontiguousarray(piece[np.ix_(*index)]) if index else piece, mesh, placements)
