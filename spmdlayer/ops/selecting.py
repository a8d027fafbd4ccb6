"""Which elements have given ranks in sorted lines, without sorting them everywhere.

Where a line lies on several ranks, samples tell between which elements the
wanted ones must lie; what all ranks have there is gathered, a few parts in a
hundred of the line, and the ranks are counted off.
"""

from itertools import accumulate

import numpy as np

from ..array import array_module
from ..redistribute.carry_out import redistribute
from .owners import as_lines, from_lines, group, group_rows, sharded
from .registry import define
from .rules import REPLICATE, Rule, cut_coordinates, layout_like, stated
from .samples import Samples
from .sorting import contiguous_along, moved_to_another_dim, sends_elsewhere
from .stable_sort import beside, stable_order

MANY = 8  # so many wanted elements of a line are found by sorting it


def _positions(lines, ranks):
    """The positions (lines, len(ranks)) of the elements with some ranks in the stable order of each line."""
    np = array_module(lines)
    if len(ranks) > MANY or lines.shape[-1] < 64 * len(ranks) or not len(lines):
        return stable_order(lines, False)[:, list(ranks)]
    parted = np.partition(lines, ranks, axis=-1)
    return np.concatenate([_position(np, lines, parted[:, rank : rank + 1], rank) for rank in ranks], axis=-1)


def _position(np, lines, value, rank):
    """The position of the element with a rank, whose value is known: equal ones are in order of position."""
    before, equal = beside(np, lines, value, largest=False)
    if np.count_nonzero(equal) > len(lines):
        nth = rank - np.sum(before, axis=-1, keepdims=True) + 1
        equal &= np.cumsum(equal, axis=-1) == nth
    return np.argmax(equal, axis=-1)[:, None]


def _forward(np, x, axis, ranks):
    shape = (*x.shape[:axis], len(ranks), *x.shape[axis + 1 :])
    return from_lines(_positions(as_lines(x, axis), ranks), shape, axis)


@stated(
    "the result is whole along `axis`",
    "lines to one rank each where another dim can be sharded for the time; else samples and candidates",
)
def _rule(call):
    """The result is whole along the axis; many lines are brought to one rank each, few are searched together."""
    axis, ranks, layout = call.params["axis"], call.params["ranks"], call.layouts[0]
    source = layout.with_placements(tuple(p if p.kind == "shard" else REPLICATE for p in layout.placements))
    apart = [None if dim == axis else dim for dim in range(source.ndim)]
    shape = (*source.shape[:axis], len(ranks), *source.shape[axis + 1 :])

    def of_positions(lines):
        kept = tuple(REPLICATE if p.is_shard(axis) else p for p in lines.placements)
        return layout_like(call.mesh_shape, kept, shape, [(lines, apart)])

    if not sharded(source, axis):
        whole = source.with_placements(tuple(REPLICATE if p.is_shard(axis) else p for p in source.placements))
        return Rule((whole,), of_positions(source))
    lines = moved_to_another_dim(source, axis)
    if lines is not None:
        result, item = of_positions(source), call.dtypes[0].itemsize
        sends = sends_elsewhere((source, lines, item), (of_positions(lines), result, 8))
        return Rule((source,), result, across=_elsewhere(source, lines, of_positions), sends=sends)
    slices = contiguous_along(source, axis)
    if len(ranks) > MANY:
        whole = source.with_placements(tuple(REPLICATE if p.is_shard(axis) else p for p in source.placements))
        return Rule((whole,), of_positions(source))
    return Rule((slices,), of_positions(source), across=_together(slices, axis))


def _elsewhere(source, lines, of_positions):
    def across(mesh, arrays, params):
        found = _forward(np, redistribute(arrays[0], source, lines, mesh), **params)
        return redistribute(found, of_positions(lines), of_positions(source), mesh)

    return across


def _together(slices, axis):
    sizes = [slices.local_shape(member)[axis] for member in cut_coordinates(slices, axis)]

    def across(mesh, arrays, params):
        (x,), ranks = arrays, params["ranks"]
        line = group(mesh, slices.sharding_axes(axis))
        found = select_across(line, as_lines(x, axis), sizes, ranks)
        return from_lines(found, (*x.shape[:axis], len(ranks), *x.shape[axis + 1 :]), axis)

    return across


def select_across(line, x, sizes, ranks):
    """The positions of the elements with some ranks in lines that ranks hold together, on all of them.

    Parameters
    ----------
    line : Channel of the ranks that hold the lines
    x : (lines, size), this rank's consecutive part of every line
    sizes : of all ranks' parts
    ranks : ints from 0 to sum(sizes) - 1

    Returns
    -------
    int64 (lines, len(ranks)).
    """
    if not len(x):
        return np.zeros((0, len(ranks)), np.int64)
    order = stable_order(x, False)
    values = np.take_along_axis(x, order, -1)
    order += list(accumulate(sizes, initial=0))[line.rank]
    samples = Samples(line, values, sizes)
    bounds = [_bracket(samples, rank, len(sizes)) for rank in ranks]
    spans = np.array([span for low, high in bounds for span in zip(low, high)], np.int64)  # rank by rank, row by row
    known = group_rows(line, spans.reshape(-1)).reshape(line.size, len(ranks), len(x), 2)
    rows = [row for _ in ranks for row in range(len(x))]
    mine = [slice(*span) for span in spans.tolist()]
    shapes = [(int(n),) for n in (known[..., 1] - known[..., 0]).sum(axis=(1, 2))]
    gathered = [
        line.allgather(np.concatenate([array[row, part] for row, part in zip(rows, mine)]), shapes)
        for array in (values, order)
    ]
    return _counted_off(gathered, known, ranks)


def _bracket(samples, rank, holders):
    """For each line, between which of this rank's elements the one with a rank in the whole line must lie."""
    # Up to the n-th sample there are from n step to n step + holders (step - 1) elements.
    below = max(0, (rank - holders * (samples.step - 1)) // samples.step)
    above = -(-(rank + 1) // samples.step)
    size = samples.values.shape[1]
    high = samples.places_behind(above) if above <= samples.count else [size] * len(samples.values)
    return samples.places_behind(min(below, samples.count)), high


def _counted_off(gathered, known, ranks):
    """From all ranks' elements in the brackets, those with the wanted ranks."""
    holders, _, lines, _ = known.shape
    lengths = (known[..., 1] - known[..., 0]).reshape(holders, -1)
    ends = np.concatenate([np.zeros((holders, 1), np.int64), np.cumsum(lengths, axis=1)], axis=1)
    result = np.empty((lines, len(ranks)), np.int64)
    for number, rank in enumerate(ranks):
        for row in range(lines):
            k = number * lines + row
            values, places = (
                np.concatenate([part[ends[q, k] : ends[q, k + 1]] for q, part in enumerate(parts)])
                for parts in gathered
            )
            before = int(known[:, number, row, 0].sum())
            result[row, number] = places[stable_order(values, False)[rank - before]]
    return result


ranked_positions = define("ranked_positions", _forward, rule=_rule).public
