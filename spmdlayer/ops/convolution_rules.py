"""Distributed rules of the three sums of a convolution: see `convolution`.

Samples and channels are factors.  Sliding dims may be sharded too: then every
rank gets the ghosts that the windows of its places see, and the adjoint gives
them back.  Places are cut in proportion to the elements, so that few travel.
"""

from dataclasses import replace
from itertools import accumulate, pairwise
from math import prod

from ..array import array_module
from ..comm import channel
from ..layout import Layout
from ..placement import Shard
from .factors import contraction_rule
from .ghosts import ghosts_of, inside_and_around
from .rules import REPLICATE, Rule, cut_coordinates, stated

IMAGE, OUTPUT, WEIGHT = "nc", "no", "oc"

# Samples and channels ------------------------------------------------------


def result_shape(call, result):
    """The global shape of the result."""
    geometry, (first, second) = call.params["geometry"], call.shapes
    if result == OUTPUT:
        return (first[0], second[0], *geometry.places)
    if result == IMAGE:
        return (first[0], second[1] * geometry.groups, *geometry.extents)
    return (second[1], first[1] // geometry.groups, *geometry.window)


def _by_factors(call, terms):
    """The rule where sliding dims are whole; groups may be sharded as a whole."""
    geometry, shape = call.params["geometry"], result_shape(call, terms[2])
    sliding = (None,) * len(geometry.window)
    group = "g" if _groups_fit(call, geometry.groups) else None
    terms = terms if geometry.groups == 1 else [_by_groups(term, group) for term in terms]
    # What the result alone has: its sliding dims, and channels that must not be sharded.
    names = [factor or dim for dim, factor in enumerate((*terms[2], *sliding))]
    operands = [(*term, *sliding) for term in terms[:2]]
    found = contraction_rule(call, operands, names, extents=[*zip(names, shape)])
    output = Layout(call.mesh_shape, found.output.placements, shape, found.output.splits)
    axes = [axis for dim, name in enumerate(names) if name == "g" for axis in output.sharding_axes(dim)]
    local = geometry._replace(groups=geometry.groups // prod(call.mesh_shape[axis] for axis in axes))
    return Rule(found.inputs, output, lambda coord: {"geometry": local})


def _by_groups(term, group):
    """Both channels of images are factor `group`; of weights the outer dim is, the inner one lies within groups."""
    return (group, None) if term == WEIGHT else ("n", group)


def _groups_fit(call, groups):
    """Whether pieces of channels are whole groups, however they are sharded."""
    if groups % prod(call.mesh_shape):
        return False
    for layout in filter(None, call.layouts):
        for dim in (0, 1):
            if layout.splits[dim] is not None or any(block is not None for _, block in layout.cuts(dim)):
                return False
    return True


# Sliding dims --------------------------------------------------------------


def conv_rule(terms, local_sum):
    """The rule of one of the sums.

    Parameters
    ----------
    terms : IMAGE, OUTPUT or WEIGHT for the two operands and the result
    local_sum : what computes it on raw arrays, a function of (np, one, other, geometry)
    """

    @stated(
        "samples, channels and groups are factors; sliding dims may be sharded too",
        "the operand that costs least, or nothing: the result is then Partial; what windows see of other pieces",
    )
    def rule(call):
        axes = _sliding_axes(call, terms)
        return _Sliding(call, terms, axes).rule(local_sum) if axes else _by_factors(call, terms)

    return rule


def _sliding_axes(call, terms):
    """{mesh axis: dim} for the axes that shard a sliding dim of an image or of places."""
    found = {}
    for term, layout in zip(terms, call.layouts):
        if term != WEIGHT and layout is not None:
            for axis, placement in enumerate(layout.placements):
                if placement.kind == "shard" and placement.dim >= 2:
                    found.setdefault(axis, placement.dim)
    return found


class _Sliding:
    """A call along whose sliding dims ranks exchange ghosts; along the other mesh axes it is as without."""

    def __init__(self, call, terms, axes):
        self.call, self.terms, self.axes = call, terms, axes
        self.geometry = call.params["geometry"]
        self.found = _by_factors(replace(call, layouts=tuple(map(self._others, call.layouts))), terms)
        # Whatever is Partial here is a sum over a factor, and is added up at once.
        self.summed = [axis for axis, p in enumerate(self.found.output.placements) if p.kind == "partial"]
        given = dict(zip(terms, (*self.found.inputs, self.found.output)))
        self.sizes = {dim: self._sizes(dim) for dim in set(axes.values())}
        self.image, self.places = (self._sharded(given[term], term) for term in (IMAGE, OUTPUT))
        self.ghosts = ghosts_of(self.image, self._ranges(), "zero")

    def _others(self, layout):
        """A layout along the other axes."""
        if layout is None:
            return None
        return layout.with_placements(
            tuple(
                REPLICATE if axis in self.axes or p.kind == "partial" else p for axis, p in enumerate(layout.placements)
            )
        )

    def _sizes(self, dim):
        """{IMAGE: sizes, OUTPUT: sizes} of the pieces along a sliding dim: an operand's own, others in proportion."""
        cuts = [(axis, None) for axis in sorted(self.axes) if self.axes[axis] == dim]
        extents = {IMAGE: self.geometry.extents[dim - 2], OUTPUT: self.geometry.places[dim - 2]}
        own = {}
        for term, layout in zip(self.terms, self.call.layouts):
            if term != WEIGHT and layout is not None and layout.cuts(dim) == cuts:
                own[term] = tuple(layout.local_shape(coord)[dim] for coord in cut_coordinates(layout, dim))
        known = next(iter(own), None)
        for term, extent in extents.items():
            if term not in own:
                own[term] = known and _in_proportion(own[known], extents[known], extent)
        return own

    def _sharded(self, layout, term):
        placements, splits = list(layout.placements), list(layout.splits)
        for axis, dim in self.axes.items():
            placements[axis], splits[dim] = Shard(dim), self.sizes[dim][term]
        for axis in self.summed:
            placements[axis] = REPLICATE if placements[axis].kind == "partial" else placements[axis]
        return Layout(layout.mesh_shape, tuple(placements), layout.shape, tuple(splits))

    def _ranges(self):
        """Along sharded sliding dims what the windows of each piece's places see; along the others the padding."""
        ranges = [None] * len(self.image.shape)
        for dim, (before, after) in enumerate(self.geometry.padding, 2):
            window, stride = self._seen(dim)
            if dim not in self.sizes:
                ranges[dim] = ((-before, self.image.shape[dim] + after),) if before or after else None
                continue
            parts = []
            for coord in cut_coordinates(self.places, dim):
                ((start, stop),) = self.places.intervals(coord, dim)
                low = start * stride - before
                parts.append((low, max(low + (stop - start - 1) * stride + window, low)))
            ranges[dim] = tuple(parts)
        return tuple(ranges)

    def _local(self, coord):
        """The geometry of the extended piece, which has its padding."""
        return self.geometry._replace(
            extents=self.ghosts.extended.local_shape(coord)[2:],
            padding=((0, 0),) * len(self.geometry.padding),
            groups=self.found.params(coord)["geometry"].groups,
        )

    def _overlapped(self, mesh, x, w, local_sum):
        """This rank's places: those whose windows see nothing of other ranks first, while their ghosts travel."""
        np, coord = array_module(x), mesh.coordinate
        extended, finish = self.ghosts.begin(x, mesh)
        geometry, shape = self._local(coord), self.places.local_shape(coord)
        y = np.empty(shape, np.result_type(x, w))

        def add_up(part):
            extents, seen = list(geometry.extents), [slice(None)] * x.ndim
            for dim in self.sizes:
                if part[dim].start == part[dim].stop:
                    return
                window, stride = self._seen(dim)
                seen[dim] = slice(part[dim].start * stride, (part[dim].stop - 1) * stride + window)
                extents[dim - 2] = seen[dim].stop - seen[dim].start
            local_sum(np, extended[tuple(seen)], w, geometry._replace(extents=tuple(extents)), out=y[part])

        reach = [self._waiting(coord, dim) if dim in self.ghosts.exchanged else (0, 0) for dim in range(x.ndim)]
        inside, *slabs = inside_and_around(shape, reach)
        add_up(inside)
        finish()
        for slab in slabs:
            add_up(slab)
        return y

    def _seen(self, dim):
        """How many elements a window spans along a sliding dim, and the stride."""
        window, stride, dilation = (getattr(self.geometry, name)[dim - 2] for name in ("window", "stride", "dilation"))
        return dilation * (window - 1) + 1, stride

    def _waiting(self, coord, dim):
        """How many of a rank's first and last places along a sliding dim see elements of others."""
        ((start, stop),), ((first, end),) = self.image.intervals(coord, dim), self.places.intervals(coord, dim)
        window, stride = self._seen(dim)
        low = first * stride - self.geometry.padding[dim - 2][0]  # what the first place sees first
        # Beyond the ends of the array there is nothing to wait for.
        before = 0 if start == 0 else -(-max(start - low, 0) // stride)
        after = 0 if stop == self.image.shape[dim] else end - first - ((stop - low - window) // stride + 1)
        return min(before, end - first), min(max(after, 0), end - first)

    def rule(self, local_sum):
        layouts = {IMAGE: self.image, OUTPUT: self.places}
        one, other, result = self.terms
        inputs = layouts[one], layouts.get(other, self.found.inputs[1])
        summed, output = set(self.summed), layouts.get(result)
        if result == WEIGHT:
            summed |= set(self.axes)
            placements = [REPLICATE if k in summed else p for k, p in enumerate(self.found.output.placements)]
            output = self.found.output.with_placements(tuple(placements))
        summed = tuple(sorted(summed))

        def across(mesh, arrays, params):
            first, second = arrays
            if result == OUTPUT and self.ghosts.overlaps(first):
                total = self._overlapped(mesh, first, second, local_sum)
            else:
                if one == IMAGE:
                    first = self.ghosts.extend(first, mesh)
                total = local_sum(array_module(first), first, second, self._local(mesh.coordinate))
            if result == IMAGE:
                total = self.ghosts.fold(total, mesh)
            return channel(mesh, summed).allreduce(total, "sum") if summed else total

        return Rule(inputs, output, across=across)


def _in_proportion(sizes, extent, other):
    """Sizes that add up to another extent, with the pieces' ends in proportion."""
    ends = [end * other // max(extent, 1) for end in accumulate(sizes, initial=0)]
    return tuple(high - low for low, high in pairwise([*ends[:-1], other]))
