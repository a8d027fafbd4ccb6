"""sort, argsort and topk.

NaN counts as larger than any number, so it comes last, or first where the
order is descending; equal elements keep their order.  Gradients go back to
where the elements came from.
"""

from math import prod

import numpy as np

from ..array import array_module
from ..autograd.tensor import asarray, install
from ..errors import type_error, value_error
from ..placement import Shard
from ..redistribute.carry_out import redistribute
from ..redistribute.reshard import reshard_to
from .along import gather_along
from .complaints import shown
from .cost import reshard_bytes
from .owners import as_lines, from_lines, group, sharded
from .parallel_sort import sort_across
from .reductions import normalise_axis
from .registry import apply, define
from .rules import REPLICATE, Rule, cut_coordinates, follow, stated
from .stable_sort import beside, sorted_lines, stable_order

# Rules -----------------------------------------------------------------------


def moved_to_another_dim(layout, axis):
    """The layout with a longer dim sharded instead of `axis`, so that lines are whole; None without such a dim."""
    pieces = {
        dim: extent // prod(layout.mesh_shape[k] for k in layout.sharding_axes(dim))
        for dim, extent in enumerate(layout.shape)
        if dim != axis
    }
    axes = layout.sharding_axes(axis)
    dim = max(pieces, key=pieces.get, default=None)
    if dim is None or pieces[dim] < prod(layout.mesh_shape[k] for k in axes):
        return None
    return layout.with_placements(tuple(Shard(dim) if k in axes else p for k, p in enumerate(layout.placements)))


def contiguous_along(layout, axis):
    """The layout without blocks along a dim, so that each rank holds one slice of it."""
    axes = layout.sharding_axes(axis)
    if all(layout.placements[k].block is None for k in axes):
        return layout
    return layout.with_placements(tuple(Shard(axis) if k in axes else p for k, p in enumerate(layout.placements)))


def _lines_rule(positions):
    """The rule of sorting: the result has the operand's layout, without Partials."""

    @stated(
        "the result lies as the operand",
        "dims are exchanged where another can be sharded for the time; else a sample sort",
    )
    def rule(call):
        axis, layout = call.params["axis"], call.layouts[0]
        source = layout.with_placements(tuple(p if p.kind == "shard" else REPLICATE for p in layout.placements))
        if not sharded(source, axis):
            return Rule((source,), source)
        whole = moved_to_another_dim(source, axis)
        if whole is not None:
            item = call.dtypes[0].itemsize
            sends = sends_elsewhere((source, whole, item), (whole, source, 8 if positions else item))
            return Rule((source,), source, across=_sorted_elsewhere(call.op, source, whole), sends=sends)
        return Rule((source,), source, across=_sorted_across(source, contiguous_along(source, axis), axis, positions))

    return rule


def sends_elsewhere(there, back):
    """What bringing lines to one rank each and their results back sends, as `Rule.sends`.

    there, back : (source, target, itemsize)
    """
    return lambda coord: reshard_bytes(*there, coord) + reshard_bytes(*back, coord)


def _sorted_elsewhere(op, source, whole):
    """Lines are brought to one rank each, sorted there, and brought back."""

    def across(mesh, arrays, params):
        x = redistribute(arrays[0], source, whole, mesh)
        return redistribute(op.forward(array_module(x), x, **params), whole, source, mesh)

    return across


def _sorted_across(source, slices, axis, positions):
    """Few lines are sorted by all ranks together."""
    sizes = [slices.local_shape(member)[axis] for member in cut_coordinates(slices, axis)]

    def across(mesh, arrays, params):
        x = redistribute(arrays[0], source, slices, mesh)
        line = group(mesh, slices.sharding_axes(axis))
        result = sort_across(line, as_lines(x, axis), sizes, params["descending"], positions)
        return redistribute(from_lines(result, x.shape, axis), slices, source, mesh)

    return across


# The operations --------------------------------------------------------------


def _sort_forward(np, x, axis, descending=False, stable=True):
    return from_lines(sorted_lines(as_lines(x, axis), descending), x.shape, axis)


def _argsort_forward(np, x, axis, descending=False, stable=True):
    return from_lines(stable_order(as_lines(x, axis), descending), x.shape, axis)


def _sort_vjp(g, a, p, xp):
    order = xp.argsort(a, axis=p.axis, descending=p.descending)
    return xp.spread_along(g, order, axis=p.axis, extent=p.shapes[0][p.axis])


_sort = define("sort", _sort_forward, (_sort_vjp,), rule=_lines_rule(positions=False))
_argsort = define("argsort", _argsort_forward, rule=_lines_rule(positions=True))


def _line_params(name, x, axis, descending, stable):
    if x.ndim == 0:
        raise value_error(f"{name}: at least 1 dimension is needed, a 0-d tensor was given")
    return {"axis": normalise_axis(name, axis, x.ndim, x), "descending": bool(descending), "stable": bool(stable)}


def sort(x, axis=-1, descending=False, stable=True):
    """The elements in order along an axis; shape, dtype and layout of x.

    Parameters
    ----------
    descending : the largest first
    stable : equal elements keep their order; they do, also where this is False

    NaN is larger than any number.  Along a sharded axis the lines move to
    whole ones on each rank and back, where there are enough of them; else all
    ranks sort them together (sample sort), and each element moves about once.
    Backward sorts once more, for the positions.
    """
    x = asarray(x)
    return apply(_sort, (x,), _line_params("sort", x, axis, descending, stable))


def argsort(x, axis=-1, descending=False, stable=True):
    """The (global) positions that sort x along an axis, int64; equal elements keep their order.

    Parameters and communication as for `sort`.
    """
    x = asarray(x)
    return apply(_argsort, (x,), _line_params("argsort", x, axis, descending, stable))


_sort.public, _argsort.public = sort, argsort


# The k largest ---------------------------------------------------------------


def _top_positions(np, lines, k, largest):
    """The positions of the k largest or smallest elements of each line, in order, the first of equal ones."""
    extent = lines.shape[-1]
    if not 0 < 8 * k < extent:
        return stable_order(lines, largest)[:, :k]
    place = extent - k if largest else k - 1
    beyond, equal = beside(np, lines, np.partition(lines, place, axis=-1)[:, place : place + 1], largest)
    chosen = beyond | equal
    if np.count_nonzero(chosen) > k * len(lines):  # of equal elements the first ones
        missing = k - np.sum(beyond, axis=-1, keepdims=True)
        chosen = beyond | (equal & (np.cumsum(equal, axis=-1) <= missing))
    places = np.nonzero(chosen)[1].reshape(len(lines), k)
    order = stable_order(np.take_along_axis(lines, places, -1), largest)
    return np.take_along_axis(places, order, -1)


def _topk_forward(np, x, k, axis, largest):
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return from_lines(_top_positions(np, as_lines(x, axis), k, largest), shape, axis)


@stated("each rank chooses among what it has", "each rank's candidates")
def _topk_rule(call):
    """Each rank's best candidates meet on all ranks."""
    axis, k = call.params["axis"], call.params["k"]
    shape = call.shapes[0]
    target = (*shape[:axis], k, *shape[axis + 1 :])
    dims = [None if dim == axis else dim for dim in range(len(shape))]
    source, result = follow(call, dims, target)
    pairs = zip(call.layouts[0].placements, source.placements)
    kept = call.layouts[0].with_placements(
        tuple(Shard(axis) if before.is_shard(axis) else after for before, after in pairs)
    )
    if not sharded(kept, axis):
        return Rule((source,), result)
    item = call.dtypes[0].itemsize + 8

    def sends(coord):
        local = kept.local_shape(coord)
        others = prod(call.mesh_shape[mesh_axis] for mesh_axis in kept.sharding_axes(axis)) - 1
        return prod(local[:axis]) * prod(local[axis + 1 :]) * min(k, local[axis]) * item * others

    return Rule((kept,), result, across=_best_of_all(kept, result, axis), sends=sends)


def _best_of_all(source, target, axis):
    members = list(cut_coordinates(source, axis))
    pieces = [source.intervals(member, axis)[0] for member in members]
    axes = source.sharding_axes(axis)

    def across(mesh, arrays, params):
        k, largest = params["k"], params["largest"]
        line = group(mesh, axes)
        lines = as_lines(arrays[0], axis)
        counts = [min(k, stop - start) for start, stop in pieces]
        mine = _top_positions(np, lines, counts[line.rank], largest)
        shapes = [(len(lines), n) for n in counts]
        values = np.concatenate(line.allgather(np.take_along_axis(lines, mine, -1), shapes), axis=-1)
        places = np.concatenate(line.allgather(mine + pieces[line.rank][0], shapes), axis=-1)
        found = np.take_along_axis(places, _top_positions(np, values, k, largest), -1)
        return from_lines(found, target.local_shape(mesh.coordinate), axis)

    return across


_topk = define("topk_positions", _topk_forward, rule=_topk_rule)


def topk(x, k, axis=-1, largest=True):
    """The k largest (or smallest) elements along an axis, in order, and their positions.

    Returns
    -------
    (values, indices) : the axis has extent k in both; indices are int64, the
    first of equal elements comes first, and NaN is larger than any number.
    Along a sharded axis k candidates a rank are gathered, and both results
    are whole on all its ranks.
    """
    x = asarray(x)
    axis = normalise_axis("topk", axis, x.ndim, x)
    try:
        count = k.__index__()
    except AttributeError:
        raise type_error(f"topk: k must be an int, {k!r} was given") from None
    if not 0 <= count <= x.shape[axis]:
        raise value_error(f"topk: k is {count}; axis {axis} of the shape {shown(x)} has {x.shape[axis]} elements")
    indices = apply(_topk, (x,), {"k": count, "axis": axis, "largest": bool(largest)})
    return take_selected(x, indices, axis), indices


def take_selected(x, indices, axis):
    """The elements at a few positions along an axis, in the layout of the positions; differentiable."""
    values = gather_along(x, indices, axis=axis)
    return values if values._spec is None else reshard_to(values, indices._spec.layout)


install(sort=sort, argsort=argsort)
