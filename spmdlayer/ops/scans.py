"""Accumulating along an axis that several ranks hold pieces of.

Each rank accumulates its pieces as if nothing came before.  Their totals
travel to the ranks that hold later ones, are accumulated there in the same
way, and what came before a piece is put into it.
"""

from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from ..array import array_module
from .owners import group
from .rules import REPLICATE, Rule, cut_coordinates, kept_partials, layout_like, stated


class Scan(NamedTuple):
    """How an operation accumulates.

    Attributes
    ----------
    run : of the operands' pieces, in a tuple as many arrays as there are operands: what `run` of the arrays' last
        entries, piece after piece, accumulates further.  The last array is the result where nothing comes before
    join : of such a tuple and what comes before (extent 1 along the axis), the result
    identities : numbers, for each array what leaves all as it is
    finish : of the result, in the dtype wanted
    """

    run: object
    join: object
    identities: tuple
    finish: object


class Places:
    """Where this rank's intervals of a dim lie among those of the ranks that share the dim with it.

    Attributes
    ----------
    axes : the mesh axes that shard the dim
    parts : a slice of this rank's piece for each of its intervals
    sends : for each rank of the group whether it needs this rank's totals
    counts : how many totals come from each
    order : (rank, interval) of all these totals, in the order in which they are accumulated
    mine : for each of this rank's intervals how many totals come before it
    """

    def __init__(self, layout, dim, coord, reverse):
        self.axes = layout.sharding_axes(dim)
        members = [tuple(c[axis] for axis in self.axes) for c in cut_coordinates(layout, dim)]
        here = members.index(tuple(coord[axis] for axis in self.axes))
        held = [layout.intervals(member, dim) for member in cut_coordinates(layout, dim)]
        sign = -1 if reverse else 1
        first = [min(sign * start for start, _ in part) for part in held]
        last = [max(sign * start for start, _ in part) for part in held]
        self.sends = [k != here and first[here] <= last[k] for k in range(len(held))]
        self.counts = [len(part) if first[k] <= last[here] else 0 for k, part in enumerate(held)]
        self.counts[here] = len(held[here])
        found = [(sign * held[k][j][0], k, j) for k, count in enumerate(self.counts) for j in range(count)]
        self.order = [(k, j) for _, k, j in sorted(found)]
        place = {pair: number for number, pair in enumerate(self.order)}
        self.mine = [place[here, j] for j in range(len(held[here]))]
        ends = np.cumsum([0, *(stop - start for start, stop in held[here])]).tolist()
        self.parts = [slice(start, stop) for start, stop in pairwise(ends)]


def _along(axis, part):
    return (slice(None),) * axis + (part,)


def _last(array, axis, reverse, identity):
    """The last entry along an axis, with extent 1; of an empty array the identity."""
    if not array.shape[axis]:
        return array_module(array).full((*array.shape[:axis], 1, *array.shape[axis + 1 :]), identity, array.dtype)
    return array[_along(axis, slice(0, 1) if reverse else slice(-1, None))]


def scan_across(places, line, scan, arrays, axis, reverse):
    """This rank's piece of the result, from its pieces of the operands; collective over the ranks of `line`."""
    np = array_module(arrays[0])
    runs = [scan.run(*(array[_along(axis, part)] for array in arrays)) for part in places.parts]
    totals = [[_last(a, axis, reverse, e) for a, e in zip(run, scan.identities)] for run in runs]
    # One row after the other: for each interval its totals.
    mine = np.concatenate([row for rows in totals for row in rows], axis=axis)
    width, shape = len(scan.identities), mine.shape
    sent = [
        mine if wanted or k == line.rank else mine[_along(axis, slice(0, 0))] for k, wanted in enumerate(places.sends)
    ]
    received = line.alltoall(sent, [(*shape[:axis], width * n, *shape[axis + 1 :]) for n in places.counts])
    before = _accumulated(places, scan, received, axis, reverse, width)
    results = [run[-1] if number == 0 else scan.join(run, before[number - 1]) for run, number in zip(runs, places.mine)]
    return scan.finish(np.concatenate(results, axis=axis))


def _accumulated(places, scan, received, axis, reverse, width):
    """What comes after each of the totals: extent 1 each, in the order in which they are accumulated."""
    np = array_module(received[0])
    ordered = places.order[::-1] if reverse else places.order
    columns = [
        np.concatenate(
            [received[k][_along(axis, slice(width * j + c, width * j + c + 1))] for k, j in ordered], axis=axis
        )
        for c in range(width)
    ]
    carried = scan.run(*columns)[-1]
    rows = [carried[_along(axis, slice(k, k + 1))] for k in range(len(ordered))]
    return rows[::-1] if reverse else rows


def scan_rule(scan_of, keeps=lambda call: ()):
    """The rule of an operation that accumulates along `axis`; operands and result have one shape.

    Parameters
    ----------
    scan_of : function of the operands' dtypes and the parameters to the Scan
    keeps : function of the call to the Partial reductions that a single operand keeps
    """

    @stated("the operands in one layout, which the result has too", "the totals of pieces, where `axis` is sharded")
    def rule(call):
        axis, shape = call.params["axis"], call.shapes[0]
        source = _common_layout(call, keeps(call) if len(call.layouts) == 1 else ())
        inputs = (source,) * len(call.layouts)
        if not any(call.mesh_shape[k] > 1 for k in source.sharding_axes(axis)):
            return Rule(inputs, source)
        reverse = call.params.get("reverse", False)

        def across(mesh, arrays, params):
            places = Places(source, axis, mesh.coordinate, reverse)
            scan = scan_of([array.dtype for array in arrays], **params)
            return scan_across(places, group(mesh, places.axes), scan, arrays, axis, reverse)

        def sends(coord):
            places = Places(source, axis, coord, reverse)
            nothing = [np.empty((0,) * len(shape), dtype) for dtype in call.dtypes]
            item = scan_of(call.dtypes, **call.params).run(*nothing)[-1].itemsize
            lines = prod(extent for dim, extent in enumerate(source.local_shape(coord)) if dim != axis)
            return sum(places.sends) * len(places.parts) * len(inputs) * lines * item

        return Rule(inputs, source, across=across, sends=sends)

    return rule


def _common_layout(call, keeps):
    """The layout of all operands: along each mesh axis that of the last which is sharded by it."""
    placements = []
    for axis in call.axes:
        own = [call.placement(k, axis) for k in reversed(range(len(call.layouts)))]
        placements.append(next((p for p in own if p.kind == "shard"), own[-1]))
    kept = kept_partials(placements, keeps)
    placements = [p if p.kind == "shard" or k in kept else REPLICATE for k, p in enumerate(placements)]
    dims = list(range(len(call.shapes[0])))
    return layout_like(call.mesh_shape, placements, call.shapes[0], [(x, dims) for x in reversed(call.layouts)])
