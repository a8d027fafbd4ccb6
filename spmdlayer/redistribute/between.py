"""Tensors that move from one mesh to another.

All ranks of either mesh take part.  Shape, dtype and offsets travel first, in
one record, because a rank outside the source mesh may not know them.  A rank
in neither mesh passes a placeholder on.
"""

import struct

import numpy as np

from ..autograd.tape import Node, NodeOp, upper
from ..autograd.tensor import wrap
from ..comm import channel
from ..config import state
from ..dtypes import dtype as dtype_of
from ..errors import value_error
from ..layout import Layout
from ..mesh import ProcessMesh
from ..placement import normalise
from ..plan import plan_between
from .carry_out import exchange
from .crossing import REPLICATE, DistributedOp, communicating_node, make_spec, zeros


class UnknownSpec:
    """The Spec of a placeholder whose shape this rank, outside the mesh, does not know."""

    __slots__ = ("mesh", "placements", "region")
    layout = shape = local_shape = None

    def __init__(self, mesh, placements):
        self.mesh = mesh
        self.placements = tuple(placements)
        self.region = state.region

    def __repr__(self):
        return f"UnknownSpec(mesh={self.mesh!r}, placements={list(self.placements)})"


class _Placeholder(NodeOp):
    """Passes a cotangent without data on to the inputs."""

    name = "placeholder"

    @staticmethod
    def accumulate(old, new):
        return old

    @staticmethod
    def pull(node, g):
        return tuple(None if edge is None else _no_data(edge.spec) for edge in node.edges)

    pull_graph = pull


PLACEHOLDER = _Placeholder()


def _no_data(spec):
    return wrap(np.empty(0, np.float32), None, spec)


class _Between(DistributedOp):
    name = "reshard between meshes"

    def pull(self, node, g):
        source, dtype = node.params
        target = node.spec
        if target.mesh.coordinate is not None:
            g = zeros(target, dtype, np) if g is None else upper.conform(g, target)
        else:
            g = wrap(np.empty(0, dtype), None, target)
        return (_transfer(g, target.layout, source.mesh, source.layout, dtype),)

    pull_graph = pull


BETWEEN = _Between()


def move_between(x, mesh, placements):
    """A tensor without Partial axes on another mesh; Partial targets come as Replicate.

    Collective over the ranks of both meshes.
    """
    source = x._spec.mesh
    if source.coordinate is None and mesh.coordinate is None:
        node = Node(PLACEHOLDER, (x._node,)) if x._node is not None and state.grad_enabled else None
        spec = UnknownSpec(mesh, placements)
        if node is not None:
            node.spec = spec
        return wrap(x._data, node, spec)
    layout, dtype, requires_grad = _describe(x, source, mesh)
    placements = normalise(placements, mesh.ndim, len(layout.shape), mesh.dim_names)
    kept = tuple(REPLICATE if p.kind == "partial" else p for p in placements)
    target = Layout(mesh.shape, kept, layout.shape)
    result = _transfer(x, layout, mesh, target, dtype)
    if requires_grad and state.grad_enabled:
        spec = result._spec
        node = communicating_node(BETWEEN, (x._node,), None, (make_spec(source, layout), dtype), spec)
        result = wrap(result._data, node, spec)
    return result


def _union(source, target):
    if source.comm is not target.comm and source.comm != target.comm:
        raise value_error("mesh: the two meshes come from different communicators; a tensor moves within one")
    return ProcessMesh(sorted({*source.process_ids, *target.process_ids}), comm=source.comm)


def _transfer(x, layout, mesh, target, dtype):
    """The pieces of x (in `layout` on its mesh) as pieces in `target` on another mesh; not recorded."""
    source = x._spec.mesh
    union = _union(source, mesh)
    move = plan_between(layout, tuple(source.process_ids), target, tuple(mesh.process_ids))
    rank = union.process_ids[union.rank]
    ranks = union.process_ids
    sends, receives = move.sends(rank), move.receives(rank)
    inside = mesh.coordinate is not None
    shape = target.local_shape(mesh.coordinate) if inside else (0,) * len(target.shape)
    data = x._data if source.coordinate is not None else np.empty((0,) * len(target.shape), dtype)
    data = exchange(data, [sends.get(r, ()) for r in ranks], [receives.get(r, ()) for r in ranks], shape, channel(union, None))
    return wrap(data, None, make_spec(mesh, target))


def _describe(x, source, target):
    """Layout, dtype and requires-grad of a tensor, on all ranks of both meshes."""
    union = _union(source, target)
    line = channel(union, None)
    mine = _encode(x) if source.coordinate is not None else b""
    rows = line.record(mine)
    first = min(source.process_ids, key=list(source.process_ids).index)
    return _decode(bytes(rows[list(union.process_ids).index(first)]), source, x._spec.placements)


def _encode(x):
    layout = x._spec.layout
    name = x.dtype.name.encode()
    parts = [struct.pack("<BBB", x._node is not None, len(name), len(layout.shape)), name]
    parts.append(struct.pack(f"<{len(layout.shape)}q", *layout.shape))
    for splits in layout.splits or (None,) * len(layout.shape):
        sizes = () if splits is None else splits
        parts.append(struct.pack(f"<q{len(sizes)}q", len(sizes), *sizes))
    return b"".join(parts)


def _decode(data, mesh, placements):
    requires_grad, name_length, ndim = struct.unpack_from("<BBB", data)
    offset = 3
    name = data[offset : offset + name_length].decode()
    offset += name_length
    shape = struct.unpack_from(f"<{ndim}q", data, offset)
    offset += 8 * ndim
    splits = []
    for _ in range(ndim):
        (count,) = struct.unpack_from("<q", data, offset)
        offset += 8
        splits.append(struct.unpack_from(f"<{count}q", data, offset) if count else None)
        offset += 8 * count
    placements = normalise(placements, mesh.ndim, ndim, mesh.dim_names)
    plain = tuple(REPLICATE if p.kind == "partial" else p for p in placements)
    return Layout(mesh.shape, plain, shape, tuple(splits)), dtype_of(name), bool(requires_grad)
