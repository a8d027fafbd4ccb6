"""Tensors that move from one mesh to another.

All ranks of either mesh take part.  Shape, dtype and offsets travel first, in
one record, because a rank outside the source mesh may not know them.  A rank
in neither mesh passes a placeholder on.
"""

import struct
from functools import lru_cache

import numpy as np

from ..autograd.tape import Node, NodeOp, upper
from ..autograd.tensor import wrap
from ..comm import channel
from ..config import state
from ..dtypes import dtype as dtype_of
from ..errors import value_error
from ..layout import Layout
from ..mesh import ProcessMesh
from ..placement import Shard, normalise
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
        return tuple(None if edge is None else no_data(edge.spec) for edge in node.edges)

    @staticmethod
    def pull_graph(node, g):
        after = None if g is None else g._node
        return tuple(None if edge is None else no_data(edge.spec, after) for edge in node.edges)


PLACEHOLDER = _Placeholder()


def no_data(spec, after=None):
    """A cotangent on a rank that its mesh does not contain; backward goes on from it to the node `after`."""
    node = None if after is None else Node(PLACEHOLDER, (after,), None, None, spec)
    return wrap(np.empty(0, np.float32), node, spec)


class _Between(DistributedOp):
    """Backward of a move: the move back.

    `params` has the Spec and dtype of what was moved, and for a node that a
    backward pass has recorded the node that it ran for.  That one has to run
    once more when this one does, for it may be needed, and ranks outside one
    of the meshes could not tell.
    """

    name = "reshard between meshes"

    def pull(self, node, g):
        return (self._moved_back(node, g)[0],)

    def pull_graph(self, node, g):
        moved, g = self._moved_back(node, g)
        spec = moved._spec
        back = communicating_node(BETWEEN, (g._node,), None, (node.spec, node.params[1], node), spec)
        return (wrap(moved._data, back, spec),)

    @staticmethod
    def _moved_back(node, g):
        source, dtype, ran_for = node.params
        target = node.spec
        if ran_for is not None and ran_for.op is BETWEEN:
            state.engine.add(ran_for, None)
        if target.mesh.coordinate is not None:
            g = zeros(target, dtype, np) if g is None else upper.conform(g, target)
        elif g is None:
            g = no_data(target)
        return _transfer(g, target.layout, source.mesh, source.layout, dtype), g


BETWEEN = _Between()


def move_between(x, mesh, placements):
    """A tensor without Partial axes on another mesh; Partial targets come as Replicate.

    Collective over the ranks of both meshes.
    """
    source = x._spec.mesh
    if source.coordinate is None and mesh.coordinate is None:
        spec = UnknownSpec(mesh, placements)
        node = x._node if state.grad_enabled else None
        return wrap(x._data, None if node is None else Node(PLACEHOLDER, (node,), None, None, spec), spec)
    layout, dtype, requires_grad = _describe(x, source, mesh)
    placements = normalise(placements, mesh.ndim, len(layout.shape), mesh.dim_names)
    kept = tuple(REPLICATE if p.kind == "partial" else p for p in placements)
    result = _transfer(x, layout, mesh, Layout(mesh.shape, kept, layout.shape), dtype)
    if not (requires_grad and state.grad_enabled):
        return result
    spec = result._spec
    node = communicating_node(BETWEEN, (x._node,), None, (make_spec(source, layout), dtype, None), spec)
    return wrap(result._data, node, spec)


def _union(source, target):
    if source.comm is not target.comm and source.comm != target.comm:
        raise value_error("mesh: the two meshes come from different communicators; a tensor moves within one")
    return ProcessMesh(sorted({*source.process_ids, *target.process_ids}), comm=source.comm)


def _transfer(x, layout, mesh, target, dtype):
    """The pieces of x (in `layout` on its mesh) as pieces in `target` on another mesh; not recorded."""
    source = x._spec.mesh
    data = x._data if source.coordinate is not None else np.empty((0,) * len(target.shape), dtype)
    return wrap(_prepared(source, layout, mesh, target, data.dtype)(data), None, make_spec(mesh, target))


@lru_cache(maxsize=1024)
def _prepared(source, layout, mesh, target, dtype):
    """The move as a function of this rank's piece."""
    union = _union(source, mesh)
    move = plan_between(layout, source.process_ids, target, mesh.process_ids)
    ranks = union.process_ids
    rank = ranks[union.rank]
    sends, receives = move.sends(rank), move.receives(rank)
    shape = (0,) * len(target.shape) if mesh.coordinate is None else target.local_shape(mesh.coordinate)
    return exchange(
        [sends.get(k, ()) for k in ranks],
        [receives.get(k, ()) for k in ranks],
        shape,
        channel(union, None),
        dtype,
    )


def _describe(x, source, target):
    """Layout, dtype and requires-grad of a tensor, on all ranks of both meshes."""
    union = _union(source, target)
    line = channel(union, None)
    mine = _encode(x) if source.coordinate is not None else b""
    rows = line.record(mine)
    first = union.process_ids.index(source.process_ids[0])
    return _decode(bytes(rows[first]), source)


def _encode(x):
    layout = x._spec.layout
    name = x.dtype.name.encode()
    parts = [struct.pack("<BBB", x._node is not None, len(name), len(layout.shape)), name]
    parts.append(struct.pack(f"<{len(layout.shape)}q", *layout.shape))
    for placement in layout.placements:
        cut = (placement.dim, placement.block or 0) if placement.kind == "shard" else (-1, 0)
        parts.append(struct.pack("<2q", *cut))
    for splits in layout.splits or (None,) * len(layout.shape):
        sizes = () if splits is None else splits
        parts.append(struct.pack(f"<q{len(sizes)}q", len(sizes), *sizes))
    return b"".join(parts)


def _decode(data, mesh):
    requires_grad, name_length, ndim = struct.unpack_from("<BBB", data)
    offset = 3
    name = data[offset : offset + name_length].decode()
    offset += name_length
    shape = struct.unpack_from(f"<{ndim}q", data, offset)
    offset += 8 * ndim
    placements = []
    for _ in range(mesh.ndim):
        dim, block = struct.unpack_from("<2q", data, offset)
        offset += 16
        placements.append(REPLICATE if dim < 0 else Shard(dim, block or None))
    splits = []
    for _ in range(ndim):
        (count,) = struct.unpack_from("<q", data, offset)
        offset += 8
        splits.append(struct.unpack_from(f"<{count}q", data, offset) if count else None)
        offset += 8 * count
    return Layout(mesh.shape, tuple(placements), shape, tuple(splits)), dtype_of(name), bool(requires_grad)
