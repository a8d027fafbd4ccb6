"""Operations on distributed tensors: through the boundary, by a rule.

Every distributed operation is a region whose local code is the operation and
whose placements come from its rule.  Operands that are not as the rule needs
them are resharded first; then nothing moves, so the region is recorded as a
single node whose vjp is the local one.  Under create_graph the vjp runs as a
region of its own (`map_local`), which is recorded.  Where the rule says how
the operation runs `across` pieces, its local code communicates: see `across`.
"""

from functools import lru_cache

import numpy as np

from ..array import array_module, is_array
from ..autograd.tape import Node
from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..dtypes import is_inexact
from ..errors import runtime_error, type_error, value_error
from ..layout import Layout
from ..redistribute.between import PLACEHOLDER, UnknownSpec
from ..redistribute.carry_out import redistribute
from ..redistribute.crossing import (
    OWN,
    REPLICATE,
    SUM,
    DistributedOp,
    communicating_node,
    distributed,
    make_spec,
    map_local,
    zeros,
)
from ..redistribute.reshard import conform, reshard_to
from .across import record_across
from .registry import Params, _fixes, operations, raw_namespace, run_forward, set_distributed_apply
from .rules import Call, rule_of

_SCALARS = frozenset({bool, int, float, complex})


class Record:
    """What a distributed operation's node keeps: see `Node.params`."""

    __slots__ = ("op", "params", "specs", "counts", "dtype", "module")

    def __init__(self, op, params, specs, counts, dtype, module):
        self.op = op
        self.params = params  # of the local call, as its vjp wants them
        self.specs = specs  # of the operands, None for plain ones
        self.counts = counts  # for a Partial max or min: how many elements attain it
        self.dtype = dtype
        self.module = module


class _Operation(DistributedOp):
    """Backward of a distributed operation: the local vjp, and how its results are read."""

    name = "operation"

    def pull(self, node, g):
        record = node.params
        g = zeros(node.spec, record.dtype, record.module) if g is None else conform(g, node.spec)
        local = _LocalNode(node.edges)
        grads = record.op.gradients(raw_namespace(g._data), local, g._data, node.saved, record.params)
        return tuple(
            None if grad is None else distributed(grad, make_spec(node.spec.mesh, _gradient_layout(record, i, g, node)))
            for i, grad in enumerate(grads)
        )

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

        return map_local(vjp, tensors, _gradient_layout(record, position, g, node))


OPERATION = _Operation()


class _LocalNode:
    """Stands for the node in `Op.gradients`, which asks for its edges alone."""

    __slots__ = ("edges",)

    def __init__(self, edges):
        self.edges = edges


def _gradient_layout(record, position, g, node):
    layouts = tuple(spec and spec.layout for spec in record.specs)
    return gradient_layout(record.op, position, layouts, node.spec.layout, g._spec.layout)


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


def _common_mesh(op, operands):
    mesh = None
    for position, operand in enumerate(operands):
        if not isinstance(operand, Tensor):
            continue
        if operand._spec is None:
            for place, other in enumerate(operands):
                if isinstance(other, Tensor) and other._spec is not None:
                    _check_region(op, other, place)  # inside a region this is what is wrong
            raise type_error(
                f"{op.name}: operand {position} is a local tensor and another is distributed; make it distributed "
                "(dtensor_from_local, shard_tensor), or take the other's piece (to_local); NumPy arrays and numbers "
                "count as Replicate"
            )
        if mesh is None:
            mesh = operand._spec.mesh
        elif operand._spec.mesh != mesh:
            raise value_error(
                f"{op.name}: operand {position} is on {operand._spec.mesh!r} and another on {mesh!r}; "
                "reshard one of them"
            )
        _check_region(op, operand, position)
    return mesh


def _check_region(op, operand, position):
    made, here = operand._spec.region, state.region
    if made is here or (made is not None and here is not None):
        return
    if here is not None:
        raise runtime_error(
            f"{op.name}: operand {position} is a distributed tensor from outside {here.label}, where everything is "
            "local; pass it as an input of the layer, or name it in captures="
        )
    raise runtime_error(
        f"{op.name}: operand {position} is a distributed tensor made inside {made.label}, which has ended"
    )


_rules = {}
_MOST_RULES = 4096


def _rule_for(op, mesh, operands, params):
    key = (op, tuple(_rule_key(operand) for operand in operands), _params_key(params), mesh.shape)
    try:
        found = _rules.get(key)
    except TypeError:  # a parameter that cannot be hashed: an index array
        return _make_rule(op, mesh, operands, params)
    if found is None:
        if len(_rules) >= _MOST_RULES:
            _rules.clear()
        found = _rules[key] = _make_rule(op, mesh, operands, params)
    return found


def _rule_key(operand):
    if isinstance(operand, Tensor):
        return operand._spec.layout, operand._data.dtype
    return None if type(operand) in _SCALARS else (operand.shape, operand.dtype)


def _params_key(params):
    return tuple(sorted(params.items())) if params else ()


def _make_rule(op, mesh, operands, params):
    call = Call(
        op,
        tuple(mesh.shape),
        tuple(operand._spec.layout if isinstance(operand, Tensor) else None for operand in operands),
        tuple(np.shape(operand) if not isinstance(operand, Tensor) else operand._spec.shape for operand in operands),
        tuple(getattr(operand, "dtype", None) for operand in operands),
        params,
    )
    return rule_of(call)


def apply_distributed(op, operands, params):
    """Run an operation of which an operand is distributed; all are checked, moved as the rule says, and recorded."""
    operands = [_plain(op, position, operand) for position, operand in enumerate(operands)]
    mesh = _common_mesh(op, operands)
    if mesh.coordinate is None or any(isinstance(x, Tensor) and x._spec.layout is None for x in operands):
        return _outside(op, mesh, operands, params)
    rule = _rule_for(op, mesh, operands, params)
    moved = [_as_needed(operand, layout, mesh) for operand, layout in zip(operands, rule.inputs)]
    arrays = [x._data if isinstance(x, Tensor) else x for x in moved]
    local, layout = params, rule.output
    if rule.across is not None:
        result = rule.across(mesh, arrays, params)
        if layout is None:
            result, layout = result
    else:
        local = params if rule.params is None else {**params, **rule.params(mesh.coordinate)}
        result = run_forward(op, arrays, local)
    if layout is None:
        layout = Layout(tuple(mesh.shape), (REPLICATE,) * mesh.ndim, result.shape)
    spec = make_spec(mesh, layout)
    edges = tuple(x._node if isinstance(x, Tensor) else None for x in moved)
    if not (
        op.differentiable and state.grad_enabled and is_inexact(result.dtype) and any(e is not None for e in edges)
    ):
        return wrap(result, None, spec)
    if rule.across is not None:
        moved = [_placed(x, layout, mesh) for x, layout in zip(moved, rule.inputs)]
        return wrap(result, record_across(op, moved, arrays, result, params, spec), spec)
    return wrap(result, _record(op, rule, moved, arrays, edges, result, local, spec), spec)


def _record(op, rule, moved, arrays, edges, result, params, spec):
    flags = op.saves(tuple(edge is not None for edge in edges))
    saved = [value if flag else None for value, flag in zip(arrays, flags)]
    saved.append(result if flags[-1] else None)
    if op.elementwise:
        kept = _fixes(edges, arrays, result)
    else:
        kept = Params(params)
        kept["shapes"] = tuple(np.shape(value) for value in arrays)
        kept["dtypes"] = tuple(getattr(value, "dtype", None) for value in arrays)
    counts = _attaining(arrays[0], result, params) if rule.attaining else None
    specs = tuple(x._spec if isinstance(x, Tensor) else None for x in moved)
    record = Record(op, kept, specs, counts, result.dtype, array_module(result))
    return communicating_node(OPERATION, edges, saved, record, spec)


def _attaining(array, result, params):
    """How many elements attain a maximum or minimum of this rank's piece."""
    module = array_module(array)
    axis, whole = params.get("axis"), result
    if not params.get("keepdims", False):
        axes = range(array.ndim) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
        for dim in sorted(a % array.ndim for a in axes):
            whole = module.expand_dims(whole, dim)
    attains = (array == whole) | ((array != array) & (whole != whole))
    return module.sum(attains, axis=axis, keepdims=params.get("keepdims", False))


def _plain(op, position, operand):
    if isinstance(operand, Tensor) or type(operand) in _SCALARS:
        return operand
    if is_array(operand) and not isinstance(operand, np.generic):
        return operand
    from .registry import as_operand

    return as_operand(op, position, operand)


def _as_needed(operand, layout, mesh):
    """An operand in the layout that the rule needs; a plain one counts as Replicate."""
    if isinstance(operand, Tensor):
        return operand if layout is None else reshard_to(operand, layout)
    if layout is None:
        return operand
    if type(operand) in _SCALARS:
        # In a Partial sum the first rank alone adds it (in a mean, all do).
        alone = [k for k, p in enumerate(layout.placements) if p.kind == "partial" and p.op == "sum"]
        return operand if all(mesh.coordinate[k] == 0 for k in alone) else type(operand)(0)
    whole = Layout(tuple(mesh.shape), (REPLICATE,) * mesh.ndim, operand.shape)
    return operand if layout == whole else redistribute(operand, whole, layout, mesh)


def _placed(operand, layout, mesh):
    """The piece of a plain array as the distributed tensor that it is a piece of, for a vjp in the global view."""
    if isinstance(operand, Tensor) or layout is None:
        return operand
    return wrap(operand, None, make_spec(mesh, layout))


def _outside(op, mesh, operands, params):
    """What an operation gives on a rank outside the mesh: a placeholder."""
    edges = tuple(x._node for x in operands if isinstance(x, Tensor))
    known = all(not isinstance(x, Tensor) or x._spec.layout is not None for x in operands)
    layout = _rule_for(op, mesh, operands, params).output if known else None
    spec = UnknownSpec(mesh, (REPLICATE,) * mesh.ndim) if layout is None else make_spec(mesh, layout)
    node = None
    if state.grad_enabled and any(edge is not None for edge in edges):
        node = Node(PLACEHOLDER, edges)
        node.spec = spec
    dtype = next(x._data.dtype for x in operands if isinstance(x, Tensor))
    return wrap(np.empty(0, dtype), node, spec)


set_distributed_apply(apply_distributed)
