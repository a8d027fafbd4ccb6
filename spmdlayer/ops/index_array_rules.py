"""Rules of reading and writing where index arrays point.

What they read of a sharded dim is sent (`fetching`): where the arrays are on
every rank the result is cut along their first free dim, else as the arrays
are.  Where an index array alone is sharded, every rank reads what its part
names, and nothing moves.
"""

from functools import cache

import numpy as np

from ..placement import Partial, Shard
from .fetching import Fetcher
from .index_form import ARRAY
from .index_rules import Cut, adjoint_layout, operand_layout, value_layout
from .rules import LINEAR, REPLICATE, Rule, layout_like, moving, replicated, replicated_layout, stated


def _has_masks(dtypes):
    """Whether an index array is a mask: how much it reads is not known before."""
    return any(dtype.kind == "b" for dtype in dtypes)


def _reading(call, layout, arrays, keeps, write=False):
    """How index arrays read an operand of a layout: (Cut, Layout of the result, those of the arrays, Fetcher or None).

    Parameters
    ----------
    arrays : the positions of the index arrays among the call's operands
    keeps : the Partial reductions that pass
    write : every rank knows all of the arrays, and a result that is sent is cut along their first dim, so that the
        order of the ranks is that of the elements
    """
    shapes = [call.shapes[k] for k in arrays]
    shape = np.broadcast_shapes(*shapes)
    cut = Cut(layout, call.params["index"], shape, keeps)
    at, placements = cut.arrays_at, list(cut.result.placements)
    for axis, placement in enumerate(cut.source.placements):
        everywhere = placement.kind == "replicate" and layout.placements[axis].kind == "replicate"
        if not write and (axis in cut.asked or everywhere):
            placements[axis] = _array_placement(call, arrays, axis, shape, at)
    taken = {p.dim - at for p in placements if p.kind == "shard"}
    free = next((dim for dim in range(min(len(shape), 1) if write else len(shape)) if dim not in taken), None)
    dealt = [axis for axis in cut.asked if placements[axis] is REPLICATE and free is not None]
    given = tuple(placements)
    for axis in dealt:
        placements[axis] = Shard(at + free)
    sources = [(cut.result, list(range(cut.result.ndim)))]
    for k, own in zip(arrays, shapes):
        sources.append((call.layouts[k], [d + at if n == shape[d] else None for d, n in _aligned(own, shape)]))
    result = layout_like(call.mesh_shape, placements, cut.result.shape, sources)
    known = layout_like(call.mesh_shape, given, cut.result.shape, [(result, list(range(result.ndim)))])
    inputs = tuple(operand_layout(own, known, at + len(shape) - len(own)) for own in shapes)
    if all(call.mesh_shape[axis] == 1 for axis in cut.asked):
        return cut, result, inputs, None
    dims = [dim for dim, item in enumerate(item for item in cut.form if item is not None) if item is ARRAY]
    given, wanted = (operand_layout(shape, of, at) for of in (known, result))
    fetcher = Fetcher(
        cut.source, dims, cut.asked, (True,) * len(dims), given, wanted, lambda coord: cut.local(coord)["index"], at
    )
    return cut, result, inputs, fetcher


@stated(
    "dims read by slices stay sharded; a sharded index array makes a sharded result",
    "indices that other ranks do not know, and the elements that they name",
)
def gather_rule(call):
    """As `getitem_rule`; where an index array alone is sharded, so is the result.

    What index arrays read of a sharded dim is sent (`fetching`); where the
    arrays are on every rank the result is cut along their first free dim.
    """
    if _has_masks(call.dtypes[1:]):
        return replicated(call)
    layout = call.layouts[0] or replicated_layout(call.mesh_shape, call.shapes[0])
    cut, result, arrays, fetcher = _reading(call, layout, range(1, len(call.shapes)), moving(call.dtypes[0]))
    if fetcher is None:
        return Rule((cut.source, *arrays), result, cache(cut.local))
    return Rule(
        (cut.source, *arrays),
        result,
        across=lambda mesh, raw, params: fetcher.gather(mesh, raw[0], raw[1:]),
    )


@stated("the adjoint of reading by index arrays", "elements that go back to other ranks")
def spread_at_rule(call):
    """The adjoint of `gather_rule`, for the layout of what was read; without that everything is replicated."""
    layout, cotangent = call.params.get("layout"), call.layouts[0]
    if layout is None or cotangent is None or _has_masks(call.dtypes[1:]):
        return replicated(call)
    target = adjoint_layout(layout, cotangent)
    cut, result, arrays, fetcher = _reading(call, target, range(1, len(call.shapes)), LINEAR)
    if fetcher is not None and any(
        p.kind == "replicate" and q.kind == "shard" for p, q in zip(cut.source.placements, result.placements)
    ):  # a sum over these axes, too, which nobody would reduce: all of the cotangent along them
        cut, result, arrays, fetcher = _reading(call, target, range(1, len(call.shapes)), LINEAR, write=True)
    if fetcher is None:
        local = cache(lambda coord: {**cut.local(coord), "shape": cut.source.local_shape(coord)})
        added = tuple(
            Partial("sum") if p.kind == "replicate" and q.kind == "shard" else p
            for p, q in zip(cut.source.placements, result.placements)
        )
        return Rule((result, *arrays), cut.source.with_placements(added), local)
    return Rule(
        (result, *arrays),
        cut.source,
        across=lambda mesh, raw, params: fetcher.spread(mesh, raw[0], raw[1:], cut.source.local_shape(mesh.coordinate)),
    )


def _aligned(own, shape):
    return list(enumerate(own, len(shape) - len(own)))


def _array_placement(call, arrays, axis, shape, at):
    for operand in arrays:
        placement, own = call.placement(operand, axis), call.shapes[operand]
        if placement.kind == "shard" and own[placement.dim] == shape[placement.dim + len(shape) - len(own)]:
            return Shard(placement.dim + len(shape) - len(own) + at, placement.block)
    return REPLICATE


@stated(
    "every rank writes what it holds of the place; the result lies as the tensor",
    "the elements of the value that other ranks write",
)
def write_at_rule(call):
    """Every rank knows the index arrays, and the values go to those that hold the places."""
    if _has_masks(call.dtypes[2:]) or call.layouts[0] is None:
        return replicated(call)
    cut, result, _, fetcher = _reading(call, call.layouts[0], range(2, len(call.shapes)), LINEAR, write=True)
    whole = tuple(replicated_layout(call.mesh_shape, own) for own in call.shapes[2:])
    if fetcher is None:
        return Rule((cut.source, value_layout(call, cut, cut.result), *whole), cut.source, cache(cut.local))
    offset = cut.result.ndim - len(call.shapes[1])
    places = range(cut.arrays_at, cut.arrays_at + fetcher.wanted.ndim)
    same = all(dim < offset or call.shapes[1][dim - offset] == 1 for dim in places)
    return Rule(
        (cut.source, value_layout(call, cut, cut.result if same else result), *whole),
        cut.source,
        across=lambda mesh, raw, params: fetcher.write(mesh, raw[0], raw[1], raw[2:], same),
    )
