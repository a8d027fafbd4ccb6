"""`reshard` on the tape: the same global array under other placements.

Forward carries out a plan.  Backward is composed of three linear maps, each
exact whatever the plan did: shares of new Partial axes become gradients of the
value; the cotangent is brought to the source's layout; reduced axes turn it
into shares.  Under create_graph these maps are recorded like any other.
"""

from functools import lru_cache

from ..array import array_module
from ..autograd.tape import Node, upper
from ..autograd.tensor import wrap
from ..comm import channel
from ..config import state
from ..dtypes import check_reducible
from ..layout import Layout
from ..placement import normalise
from ..plan import plan
from ..spec import spec_of
from ..steps import positions
from .between import PLACEHOLDER, move_between
from .carry_out import moves
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
from .shares import attainment, share, unmix

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
        else:  # Replicate, whose slices in the target come together again, or shares
            wide[k] = REPLICATE if g._spec.placements[k].kind == "shard" else g._spec.placements[k]
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


@lru_cache(maxsize=8192)
def _before_shares(layout, axes, cotangent):
    """The layout that a cotangent takes before it becomes shares along the axes that were reduced."""
    wanted = {}
    for k, placement in enumerate(layout.placements):
        wanted[k] = REPLICATE if k in axes else (cotangent.placements[k] if placement.kind == "partial" else placement)
    return _with(layout, wanted)


def _enter_reduced(g, source, node, counts):
    """The cotangent in the source's layout, with shares along the axes that were reduced."""
    layout = source.layout
    axes = _reduced_axes(layout, node.spec.layout)
    if not axes:
        return g
    g = reshard_to(g, _before_shares(layout, axes, g._spec.layout))
    stages = {} if node.saved is None else _stages(node, source, axes, counts)
    for axis in axes:  # the leftmost was reduced last
        g = share(g, axis, layout.placements[axis].op, *stages.get(axis, ()))
    return g


def _stages(node, source, axes, counts):
    """For each reduced axis the tensor before its reduction and this rank's part of G, worked out again."""
    x = wrap(node.saved[0], node.edges[0] if state.grad_enabled else None, source)
    stages = {}
    for axis in reversed(axes):
        after = reshard_to(x, _with(x._spec.layout, {axis: REPLICATE}))
        weight = None
        if source.placements[axis].op in ("max", "min"):
            weight, counts = attainment(x._data, after._data, channel(source.mesh, axis), counts)
        stages[axis] = (x, weight)
        x = after
    return stages


# Reshard ------------------------------------------------------------------------------------------------------------


class _Route:
    """What a reshard from one Spec to a layout on the same mesh does; worked out once.

    Attributes
    ----------
    spec : Spec of the result
    moves : functions of this rank's piece, one after the other
    stages : routes to follow instead, one after the other, or None
    keeps : whether backward needs the pieces that went in
    """

    __slots__ = ("keeps", "moves", "spec", "stages")

    def __init__(self, source, target, dtype):
        mesh, layout = source.mesh, source.layout
        self.spec = spec_of(mesh, target)
        self.keeps = any(layout.placements[axis].op not in _LINEAR for axis in _reduced_axes(layout, target))
        self.moves, self.stages = (), None
        steps = plan(layout, target, dtype.itemsize)
        if mesh.coordinate is None:
            return
        if len(steps) > 1 and _made_anew(layout, target, steps):
            specs = [source, *[spec_of(mesh, step.result) for step in steps]]
            self.stages = [_Route(one, other.layout, dtype) for one, other in zip(specs, specs[1:])]
        else:
            self.moves = moves(layout, target, dtype, mesh)


def _made_anew(source, target, steps):
    """Whether pieces along an axis that ends as Partial are made from something else than the source's pieces there.

    Then each share of the gradient belongs to a piece that the source did not
    have, and every step has to be a node of its own.
    """
    for axis, (before, after) in enumerate(zip(source.placements, target.placements)):
        if after.kind == "partial" and before.kind != "replicate":
            if any(step.result.placements[axis] not in (before, after) for step in steps):
                return True
    return False


@lru_cache(maxsize=8192)
def _route(source, target, dtype):
    return _Route(source, target, dtype)


def reshard_to(x, layout):
    """A distributed tensor in another layout on its own mesh; recorded.

    The identity, without a node, where the layout is the same already.
    """
    source = x._spec
    if layout is source.layout or layout == source.layout:
        return x
    return follow(x, _route(source, layout, x._data.dtype))


def reshard_spec(x, mesh, placements):
    """A distributed tensor under other placements, maybe on another mesh; recorded.

    The result has the default offsets of array_split.  Raises for placements
    that do not fit, on every rank and before anything moves.
    """
    source = x._spec
    placements = tuple(placements) if type(placements) in (list, tuple) else placements
    if source.layout is None or (mesh is not source.mesh and mesh != source.mesh):
        if source.layout is not None:
            x = reshard_to(x, without_partials(source.layout))
        x = move_between(x, mesh, placements)
        source = x._spec
        if source.layout is None:
            return x
    dtype = x._data.dtype
    try:
        route = source.routes.get((*placements, dtype))
    except TypeError:  # what cannot be hashed is no placement either, and this says so
        normalise(placements, mesh.ndim, len(source.shape), mesh.dim_names)
        raise
    if route is None:
        target = Layout(mesh.shape, normalise(placements, mesh.ndim, len(source.shape), mesh.dim_names), source.shape)
        check_target(dtype, target)
        if target == source.layout:
            return x
        route = source.routes[(*placements, dtype)] = _route(source, target, dtype)
    return follow(x, route)


def follow(x, route):
    """A distributed tensor along a route from its Spec; recorded."""
    if route.stages is not None:
        for stage in route.stages:
            x = follow(x, stage)
        return x
    data = x._data
    for move in route.moves:
        data = move(data)
    spec = route.spec if state.region is None else make_spec(route.spec.mesh, route.spec.layout)
    node = _recorded(x, route, data, spec) if x._node is not None and state.grad_enabled else None
    return wrap(data, node, spec)


def _recorded(x, route, data, spec):
    """The node of a reshard; on a rank outside the mesh one that passes on a cotangent without data."""
    if spec.mesh.coordinate is None:
        return Node(PLACEHOLDER, (x._node,), None, None, spec)
    saved, counts = None, None
    if route.keeps:
        saved, counts = (x._data,), getattr(x._node.params, "counts", None)
    params = (x._spec, counts, data.dtype, array_module(data))
    return communicating_node(RESHARD, (x._node,), saved, params, spec)


def check_target(dtype, layout):
    """Raise for a placement that values of this dtype cannot be reduced by."""
    for placement in layout.placements:
        if placement.kind == "partial":
            check_reducible(dtype, placement.op)


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
    own = g._spec
    if own.mesh is not spec.mesh and own.mesh != spec.mesh:
        raise AssertionError("a cotangent arrived on another mesh than its tensor's")
    if own.layout is spec.layout:
        return g
    target = _conforming(own.layout, spec.layout)
    return g if own.layout == target else reshard_to(g, target)


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
    if old._spec.layout is not new._spec.layout and old._spec.layout != new._spec.layout:
        layout = _common(old._spec.layout, new._spec.layout)
        old, new = _to_common(old, layout), _to_common(new, layout)
    if old._node is None and new._node is None:
        return wrap(old._data + new._data, None, old._spec)
    return map_local(lambda a, b: a + b, [old, new], old._spec.layout)


def _to_common(g, layout):
    if any(p.kind == "own" and q.kind == "replicate" for p, q in zip(layout.placements, g._spec.placements)):
        g = relabel(
            g,
            [
                p if p.kind == "own" and q.kind == "replicate" else q
                for p, q in zip(layout.placements, g._spec.placements)
            ],
        )
    return reshard_to(g, layout)


upper.conform = conform
upper.add = add_cotangents
