"""The node of a distributed operation, where nothing moves: backward is the local vjp.

How the local gradients are read follows from the operands' layouts.  Under
create_graph the vjp runs as a region of its own (`map_local`), which is
recorded.
"""

from functools import lru_cache

import numpy as np

from ..array import array_module
from ..autograd.tape import Node, communicating
from ..autograd.tensor import wrap
from ..config import state
from ..redistribute.crossing import OWN, REPLICATE, SUM, DistributedOp, distributed, make_spec, map_local, zeros
from ..redistribute.reshard import conform
from ..spec import spec_of
from .registry import Params, _fixes, _numpy, operations, raw_namespace


class Record:
    """What the nodes of one operation on operands of the same Specs keep: see `Node.params`."""

    __slots__ = ("op", "params", "specs", "counts", "dtype", "module", "reads")

    def __init__(self, op, params, specs, counts, dtype, module):
        self.op = op
        self.params = params  # of the local call, as its vjp wants them
        self.specs = specs  # of the operands, None for plain ones
        self.counts = counts  # for a Partial max or min: how many elements attain it
        self.dtype = dtype
        self.module = module
        self.reads = (None, ())  # the cotangent's layout, and the Spec in which each operand's gradient is then read

    def layout(self, position, output, cotangent):
        """The layout in which the gradient of one operand is read."""
        layouts = tuple(spec and spec.layout for spec in self.specs)
        return gradient_layout(self.op, position, layouts, output, cotangent)

    def specs_of_gradients(self, edges, output, cotangent):
        """The Spec for each operand's gradient, outside of regions; None where nobody asks."""
        mesh = output.mesh
        specs = [
            None if edge is None else spec_of(mesh, self.layout(position, output.layout, cotangent))
            for position, edge in enumerate(edges)
        ]
        self.reads = (cotangent, specs)
        return specs


class _Operation(DistributedOp):
    """Backward of a distributed operation: the local vjp, and how its results are read."""

    name = "operation"

    def pull(self, node, g):
        record, spec, edges = node.params, node.spec, node.edges
        if g is None:
            g = zeros(spec, record.dtype, record.module)
        elif g._spec.layout is not spec.layout:
            g = conform(g, spec)
        raw, layout = g._data, g._spec.layout
        xp = _numpy if type(raw) is np.ndarray else raw_namespace(raw)
        grads = record.op.gradients(xp, node, raw, node.saved, record.params)
        if state.region is not None:
            return [
                None
                if grad is None
                else distributed(grad, make_spec(spec.mesh, record.layout(position, spec.layout, layout)))
                for position, grad in enumerate(grads)
            ]
        known, specs = record.reads
        if known is not layout:
            specs = record.specs_of_gradients(edges, spec, layout)
        found = []
        for grad, read in zip(grads, specs):
            found.append(None if grad is None else distributed(grad, read))
        return found

    def pull_graph(self, node, g):
        record = node.params
        g = zeros(node.spec, record.dtype, record.module) if g is None else conform(g, node.spec)
        return tuple(None if edge is None else self._recorded(node, record, g, i) for i, edge in enumerate(node.edges))

    @staticmethod
    def _recorded(node, record, g, position):
        """The cotangent of one operand, by the vjp run as a region on the saved tensors."""
        flags = record.op.saves(tuple(i == position for i in range(len(node.edges))))
        tensors, places = [g], []
        saved = [value if flag else None for value, flag in zip(node.saved, flags)]
        for i, value in enumerate(saved):
            edge = node if i == len(node.edges) else node.edges[i]
            spec = node.spec if i == len(node.edges) else record.specs[i]
            if value is not None and spec is not None:
                tensors.append(wrap(value, edge, spec))
                places.append(i)

        def vjp(cotangent, *pieces):
            local = list(saved)
            for place, piece in zip(places, pieces):
                local[place] = piece
            edges = tuple(edge if i == position else None for i, edge in enumerate(node.edges))
            grads = record.op.gradients(operations, _LocalNode(edges), cotangent, local, record.params)
            return grads[position]

        return map_local(vjp, tensors, record.layout(position, node.spec.layout, g._spec.layout))


OPERATION = _Operation()


class _LocalNode:
    """Stands for the node in `Op.gradients`, which asks for its edges alone."""

    __slots__ = ("edges",)

    def __init__(self, edges):
        self.edges = edges


@lru_cache(maxsize=8192)
def gradient_layout(op, position, layouts, output, cotangent):
    """How the local gradient of one operand is read (design: region_gradients, with uniform shares kept).

    Along an axis: Shard stays; a Replicate operand's gradients add up if any
    operand or the result varies; the share of a Partial operand is the same on
    every rank if the cotangent is and the vjp reads nothing else that varies.
    """
    flags = op.saves(tuple(i == position for i in range(len(layouts))))
    read = [layout for i, (layout, flag) in enumerate(zip((*layouts, output), flags)) if flag and layout is not None]
    placements = []
    for axis, own in enumerate(layouts[position].placements):
        if own.kind == "replicate":
            varies = output.placements[axis].kind != "replicate" or any(
                layout is not None and layout.placements[axis].kind != "replicate" for layout in layouts
            )
            placements.append(SUM if varies else REPLICATE)
        elif own.kind in ("partial", "own"):
            uniform = cotangent.placements[axis].kind == "replicate" and all(
                layout.placements[axis].kind == "replicate" for layout in read
            )
            placements.append(REPLICATE if uniform else OWN)
        else:
            placements.append(own)
    return layouts[position].with_placements(tuple(placements))


def record_local(op, rule, moved, arrays, edges, result, params, spec):
    """The node of an operation on the pieces `arrays` of operands that are placed as its rule needs them."""
    counting = _attaining if rule.attaining is True else rule.attaining
    counts = counting(arrays, result, params) if counting else None
    record = what_is_kept(op, moved, arrays, edges, result, params, counts)
    return node_of(op.saves(tuple(edge is not None for edge in edges)), record, edges, arrays, result, spec)


def what_is_kept(op, operands, arrays, edges, result, params, counts=None):
    """The Record of an operation: what depends on Specs, dtypes and parameters alone, but for the counts."""
    if op.elementwise:
        kept = _fixes(edges, arrays, result)
    else:
        kept = Params(params)
        kept["shapes"] = tuple(np.shape(value) for value in arrays)
        kept["dtypes"] = tuple(getattr(value, "dtype", None) for value in arrays)
    specs = tuple(getattr(x, "_spec", None) for x in operands)
    return Record(op, kept, specs, counts, result.dtype, array_module(result))


def node_of(flags, record, edges, arrays, result, spec):
    """The node, with those of the operands and the result saved that the flags say."""
    saved = []
    for value, flag in zip(arrays, flags):
        saved.append(value if flag else None)
    saved.append(result if flags[-1] else None)
    node = Node(OPERATION, edges, saved, record, spec)
    return node if node.region is None else communicating(node)


def _attaining(arrays, result, params):
    """How many elements attain a maximum or minimum of this rank's piece."""
    (array,) = arrays
    module = array_module(array)
    axis, whole = params.get("axis"), result
    if not params.get("keepdims", False):
        axes = range(array.ndim) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
        for dim in sorted(a % array.ndim for a in axes):
            whole = module.expand_dims(whole, dim)
    attains = (array == whole) | ((array != array) & (whole != whole))
    return module.sum(attains, axis=axis, keepdims=params.get("keepdims", False))
