"""Sorting lines that lie on several ranks: sample sort.

Each rank sorts what it has.  From samples all ranks choose the same splitters;
the elements between two splitters go to one rank, which merges the sorted runs
that it gets.  What the samples guessed wrong moves once more, so that every
rank ends with the places that it shall have.  (Shi and Schaeffer, Parallel
sorting by regular sampling, J. Parallel Distrib. Comput. 14, 1992.)

The order is total: by value, then by position, so results are the same for any
number of ranks, and stable.
"""

from itertools import accumulate, pairwise

import numpy as np

from ..redistribute.carry_out import exchange
from .samples import Samples
from .stable_sort import sorted_lines, stable_order


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
    bounds = _bounds(Samples(line, values, sizes, descending), ends)
    counts = np.array(line.allgather(np.diff(bounds, axis=1), [(len(x), line.size)] * line.size))
    arrived = _traded(line, values, bounds, counts)
    if positions:
        merged = [stable_order(run, descending, runs=True) for run in arrived]
        arrived = _traded(line, order + ends[line.rank], bounds, counts)
        merged = np.concatenate([run[order] for run, order in zip(arrived, merged)])
    else:
        merged = np.concatenate([sorted_lines(run, descending) for run in arrived])
    return _in_place(line, merged, counts, ends).reshape(x.shape)


def _bounds(samples, ends):
    """Where each line of this rank's part is cut: (lines, ranks + 1), the same places in the total order everywhere."""
    lines, size = samples.values.shape
    bounds = np.zeros((lines, len(ends)), np.int64)
    bounds[:, -1] = size
    for rank in range(1, len(ends) - 1):
        before = min(ends[rank] // samples.step, samples.count)  # so many samples, about, belong before this rank
        bounds[:, rank] = size if ends[rank] == ends[-1] else samples.places_behind(before)
    return bounds


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
