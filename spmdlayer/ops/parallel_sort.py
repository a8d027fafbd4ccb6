"""Sorting lines that lie on several ranks: sample sort.

Each rank sorts what it has and shows every `step`-th element.  From these
samples all ranks choose the same splitters; the elements between two
splitters go to one rank, which merges the sorted runs that it gets.  What the
samples guessed wrong moves once more, so that every rank ends with the places
that it shall have.  (Shi and Schaeffer, Parallel sorting by regular sampling,
J. Parallel Distrib. Comput. 14, 1992; splitters are (value, position) pairs,
so that many equal elements are no burden.)

The order is total: by value, then by position, so results are the same for any
number of ranks, and stable.
"""

from itertools import accumulate, pairwise

import numpy as np

from ..redistribute.carry_out import exchange
from .stable_sort import sorted_lines, stable_order

SAMPLES = 64  # a rank and line; the final exchange moves about so small a part of everything


def sort_across(line, x, sizes, descending, positions):
    """This rank's places of lines that the ranks hold together, sorted.

    Parameters
    ----------
    line : Channel of the ranks that hold the lines
    x : array (lines, size), this rank's consecutive part of every line
    sizes : of all ranks' parts; the results have the same
    positions : whether to return where the elements were in the line (int64)
        instead of the elements

    Returns
    -------
    array (lines, size).  Moves each element about once, with its position
    where that is asked for.
    """
    ends = list(accumulate(sizes, initial=0))
    if not len(x) or not ends[-1]:
        return np.zeros(x.shape, np.int64) if positions else x
    order = stable_order(x, descending) if positions else None
    values = np.take_along_axis(x, order, -1) if positions else sorted_lines(x, descending)
    bounds = _bounds(line, values, sizes, ends, descending)
    counts = np.array(line.allgather(np.diff(bounds, axis=1), [(len(x), line.size)] * line.size))
    arrived = _traded(line, values, bounds, counts)
    if positions:
        merged = [stable_order(run, descending, runs=True) for run in arrived]
        arrived = _traded(line, order + ends[line.rank], bounds, counts)
        merged = np.concatenate([run[order] for run, order in zip(arrived, merged)])
    else:
        merged = np.concatenate([sorted_lines(run, descending) for run in arrived])
    return _in_place(line, merged, counts, ends).reshape(x.shape)


def _bounds(line, values, sizes, ends, descending):
    """Where each line of this rank's part is cut: (lines, ranks + 1), the same places in the total order everywhere."""
    lines, size = values.shape
    step = max(1, ends[-1] // (len(sizes) * SAMPLES))
    taken = [n // step for n in sizes]
    mine = values[:, step - 1 :: step]
    samples = np.concatenate(line.allgather(mine, [(lines, n) for n in taken]), axis=1)
    holders = np.repeat(np.arange(len(sizes)), taken)
    places = np.concatenate([np.arange(n) * step + step - 1 for n in taken])
    order = stable_order(samples, descending)
    bounds = np.zeros((lines, len(sizes) + 1), np.int64)
    bounds[:, -1] = size
    for rank in range(1, len(sizes)):
        before = ends[rank] // step  # so many samples, about, belong before this rank
        if ends[rank] == ends[-1]:
            bounds[:, rank] = size
        elif before:
            for row, chosen in enumerate(order[:, before - 1]):
                bounds[row, rank] = _count_before(
                    values[row], samples[row, chosen], holders[chosen], places[chosen], line.rank, descending
                )
    return bounds


def _count_before(row, value, holder, place, here, descending):
    """How many elements of a sorted row come before or are the splitter, which is at `place` on rank `holder`."""
    if holder == here:
        return place + 1
    equal_too = here < holder  # equal elements of ranks at the left come before it
    if not descending:
        return np.searchsorted(row, value, "right" if equal_too else "left")
    return len(row) - np.searchsorted(row[::-1], value, "left" if equal_too else "right")


def _traded(line, values, bounds, counts):
    """What all ranks send this one, one array a line; `counts` is (from, line, to)."""
    blocks = [
        np.concatenate([row[start:stop] for row, (start, stop) in zip(values, ends)])
        for ends in (bounds[:, rank : rank + 2] for rank in range(line.size))
    ]
    coming = counts[:, :, line.rank]
    received = line.alltoall(blocks, [(n,) for n in coming.sum(axis=1).tolist()])
    cuts = [np.concatenate([[0], np.cumsum(row)]) for row in coming]
    return [
        np.concatenate([part[cut[row] : cut[row + 1]] for part, cut in zip(received, cuts)])
        for row in range(len(values))
    ]


def _in_place(line, merged, counts, ends):
    """The sorted parts, moved so that each rank holds the places that it shall; flat, line by line."""
    held = counts.sum(axis=0)  # (line, rank)
    here, lines = line.rank, len(held)
    starts = np.cumsum(held, axis=1) - held
    sends, receives = [[] for _ in range(line.size)], [[] for _ in range(line.size)]
    offset = 0
    size = ends[here + 1] - ends[here]
    for row in range(lines):
        spans = [(start, start + n) for start, n in zip(starts[row].tolist(), held[row].tolist())]
        own, wanted = spans[here], (ends[here], ends[here + 1])
        for rank, (place, span) in enumerate(zip(pairwise(ends), spans)):
            _add_overlap(sends[rank], own, place, offset - own[0])
            _add_overlap(receives[rank], span, wanted, row * size - wanted[0])
        offset += own[1] - own[0]
    return exchange(sends, receives, (lines * size,), line, merged.dtype)(merged)


def _add_overlap(boxes, one, other, shift):
    start, stop = max(one[0], other[0]), min(one[1], other[1])
    if start < stop:
        boxes.append((slice(start + shift, stop + shift),))
