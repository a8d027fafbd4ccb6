"""`reshard` on the tape: the same global array under other placements.

Forward carries out a plan.  Backward is composed of three linear maps, each
exact whatever the plan did: shares of new Partial axes become gradients of the
value; the cotangent is brought to the source's layout; reduced axes turn it
into shares.  Under create_graph these maps are recorded like any other.
"""

from functools import lru_cache

from ..array import array_module
from ..autograd.tape import upper
from ..autograd.tensor import wrap
from ..config import state
from ..dtypes import check_reducible
from ..layout import Layout
from ..placement import Shard
from .between import move_between
from .carry_out import positions, redistribute
from .crossing import (
    OWN,
    REPLICATE,
    SUM,
    DistributedOp,
    communicating_node,
    make_spec,
    map_local,
    relabel,
    zeros,
)
from .shares import share, unmix

_LINEAR = ("sum", "avg")


class _Reshard(DistributedOp):
    name = "reshard"

    def pull(self, node, g):
        source, counts, dtype, module = node.params
        g = zeros(node.spec, dtype, module) if g is None else conform(g, node.spec)
        g = _leave_new_partials(g, source.layout, node.spec.layout)
        return (_enter_reduced(g, source, node, counts),)

    pull_graph = pull


RESHARD = _Reshard()


def _commute(one, other):
    return one == other or (one in _LINEAR and other in _LINEAR)


@lru_cache(maxsize=4096)
def _via(source, target):
    """A layout to go through, where a Partial axis must become something that is Partial again.

    That is an axis whose operation changes (sum and mean differ by a factor
    only), and one that stays, but at whose left an axis is reduced that does
    not commute with it: reductions go from the right to the left.
    """
    changes, reduced = {}, []
    for k, (s, t) in enumerate(zip(source.placements, target.placements)):
        if s.kind != "partial":
            continue
        again = t.kind == "partial" and (
            not _commute(s.op, t.op) or any(not _commute(source.placements[left].op, s.op) for left in reduced)
        )
        if again:
            free = [dim for dim in range(len(source.shape)) if not source.sharding_axes(dim)]
            changes[k] = Shard(free[0]) if free and not changes else REPLICATE
        if again or t.kind != "partial":
            reduced.append(k)
    return _with(source, changes) if changes else None


@lru_cache(maxsize=4096)
def _reduced_axes(source, target):
    return tuple(
        k
        for k, (s, t) in enumerate(zip(source.placements, target.placements))
        if s.kind == "partial" and t.kind != "partial"
    )


def _with(layout, changes):
    return layout.with_placements(tuple(changes.get(k, p) for k, p in enumerate(layout.placements)))


def _leave_new_partials(g, source, target):
    """Shares along axes that became Partial, turned into gradients of what went in."""
    padded = []
    for axis, (before, after) in enumerate(zip(source.placements, target.placements)):
        if after.kind != "partial" or before == after:
            continue
        if before.kind == "shard":
            padded.append(axis)
        elif before.kind == "partial":  # a sum became a mean, or the reverse
            size = source.mesh_shape[axis]
            factor = size if after.op == "avg" else 1.0 / size
            g = map_local(lambda piece, factor=factor: piece * factor, [g], g._spec.layout)
        else:
            g = unmix(g, axis, after.op)
    return _unpad(g, padded, source, target) if padded else g


def _unpad(g, axes, source, target):
    """Backward of a slice padded to a whole: each rank's own slice of its share."""
    dims = {source.placements[axis].dim for axis in axes}
    wide = {}
    for k, placement in enumerate(source.placements):
        if k in axes:
            wide[k] = g._spec.placements[k]  # still shares
        elif placement.kind == "shard":
            wide[k] = REPLICATE if placement.dim in dims else placement
        else:
            wide[k] = g._spec.placements[k]
    whole = _with(source, wide)
    g = reshard_to(g, whole)
    narrow = {k: source.placements[k] for k, p in enumerate(source.placements) if p.kind == "shard"}
    layout = _with(source, {**wide, **narrow})
    coord = g._spec.mesh.coordinate
    index = [slice(None)] * len(source.shape)
    for dim in dims:
        parts = positions(whole.intervals(coord, dim), layout.intervals(coord, dim))
        index[dim] = _index(parts)
    factor = 1
    for axis in axes:
        if target.placements[axis].op == "avg":
            factor *= source.mesh_shape[axis]
    return map_local(lambda piece: piece[tuple(index)] * factor, [g], layout)


def _index(parts):
    if len(parts) == 1:
        return parts[0]
    positions_ = [k for part in parts for k in range(part.start, part.stop)]
    return positions_ if positions_ else slice(0, 0)


def _enter_reduced(g, source, node, counts):
    """The cotangent in the source's layout, with shares along the axes that were reduced."""
    layout, target = source.layout, node.spec.layout
    axes = _reduced_axes(layout, target)
    if not axes:
        return g
    wanted = {}
    for k, placement in enumerate(layout.placements):
        wanted[k] = REPLICATE if k in axes else (g._spec.placements[k] if placement.kind == "partial" else placement)
    g = reshard_to(g, _with(layout, wanted))
    linear = all(layout.placements[axis].op in _LINEAR for axis in axes)
    stages = None if linear else _stages(node, source, axes)
    for axis in axes:  # the leftmost was reduced last
        x, y = (None, None) if linear else stages[axis]
        g = share(g, x, y, axis, layout.placements[axis].op, counts if axis == axes[-1] else None)
    return g


def _stages(node, source, axes):
    """For each reduced axis the tensor before and the raw array after its reduction, computed again."""
    x = wrap(node.saved[0], node.edges[0] if state.grad_enabled else None, source)
    stages = {}
    for axis in reversed(axes):
        after = reshard_to(x, _with(x._spec.layout, {axis: REPLICATE}))
        stages[axis] = (x, after._data)
        x = after
    return stages


def reshard_to(x, layout):
    """A distributed tensor in another layout on its own mesh; recorded.

    The identity, without a node, where the layout is the same already.
    """
    source = x._spec
    if layout == source.layout:
        return x
    via = _via(source.layout, layout)
    if via is not None:
        return reshard_to(reshard_to(x, via), layout)
    mesh = source.mesh
    if mesh.coordinate is None:
        data = x._data
    else:
        data = redistribute(x._data, source.layout, layout, mesh)
    node = None
    if x._node is not None and state.grad_enabled:
        axes = _reduced_axes(source.layout, layout)
        nonlinear = any(source.layout.placements[axis].op not in _LINEAR for axis in axes)
        saved = (x._data,) if nonlinear else None
        counts = getattr(x._node.params, "counts", None) if nonlinear else None
        node = communicating_node(RESHARD, (x._node,), saved, (source, counts, data.dtype, array_module(data)))
        spec = node.spec = make_spec(mesh, layout)
    else:
        spec = make_spec(mesh, layout)
    return wrap(data, node, spec)


def check_target(dtype, layout):
    """Raise for a placement that values of this dtype cannot be reduced by."""
    for placement in layout.placements:
        if placement.kind == "partial":
            check_reducible(dtype, placement.op)


def reshard_spec(x, mesh, placements):
    """A distributed tensor under other (checked) placements, maybe on another mesh; recorded.

    The result has the default offsets of array_split.
    """
    if mesh != x._spec.mesh:
        if x._spec.layout is not None:
            x = reshard_to(x, without_partials(x._spec.layout))
        x = move_between(x, mesh, placements)
        if mesh.coordinate is None:
            return x
    layout = Layout(mesh.shape, placements, x.shape)
    check_target(x.dtype, layout)
    return reshard_to(x, layout)


@lru_cache(maxsize=4096)
def without_partials(layout):
    """A layout with Replicate where it is Partial."""
    return _with(layout, {k: REPLICATE for k, p in enumerate(layout.placements) if p.kind == "partial"})


# Cotangents ----------------------------------------------------------------


@lru_cache(maxsize=8192)
def _conforming(cotangent, primal):
    """The layout that a cotangent takes for a tensor of layout `primal`."""
    placements = []
    for c, p in zip(cotangent.placements, primal.placements):
        if p.kind in ("partial", "own"):
            placements.append(c)  # shares already, own or the same on every rank
        else:
            placements.append(p)
    return primal.with_placements(tuple(placements))


def conform(g, spec):
    """A cotangent in the layout that a tensor of this spec wants.

    Adds up what is still Partial, gathers or slices; shares stay shares.
    """
    if g._spec.mesh != spec.mesh:
        raise AssertionError("a cotangent arrived on another mesh than its tensor's")
    layout = g._spec.layout
    target = _conforming(layout, spec.layout)
    return g if layout == target else reshard_to(g, target)


@lru_cache(maxsize=8192)
def _common(one, other):
    """A layout in which two cotangents of one tensor can be added, moving as little as can be."""
    placements = []
    for a, b in zip(one.placements, other.placements):
        kinds = {a.kind, b.kind}
        if a == b:
            placements.append(a)
        elif kinds == {"own", "replicate"}:
            placements.append(OWN)
        elif kinds == {"partial", "replicate"}:
            placements.append(SUM)
        else:
            placements.append(a if a.kind == "shard" else b)
    return one.with_placements(tuple(placements))


def add_cotangents(old, new):
    """The sum of two cotangents of one distributed tensor; Partial ones stay so while they can."""
    if old._spec.layout != new._spec.layout:
        layout = _common(old._spec.layout, new._spec.layout)
        old, new = _to_common(old, layout), _to_common(new, layout)
    if old._node is None and new._node is None:
        return wrap(old._data + new._data, None, old._spec)
    return map_local(lambda a, b: a + b, [old, new], old._spec.layout)


def _to_common(g, layout):
    if any(p.kind == "own" and q.kind == "replicate" for p, q in zip(layout.placements, g._spec.placements)):
        g = relabel(
            g,
            [p if p.kind == "own" and q.kind == "replicate" else q for p, q in zip(layout.placements, g._spec.placements)],
        )
    return reshard_to(g, layout)


upper.conform = conform
upper.add = add_cotangents
