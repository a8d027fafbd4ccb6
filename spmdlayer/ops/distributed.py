"""Operations on distributed tensors: through the boundary, by a rule.

Every distributed operation is a region whose local code is the operation and
whose placements come from its rule.  Operands that are not as the rule needs
them are resharded first; then nothing moves, so the region is recorded as a
single node whose vjp is the local one.  Under create_graph the vjp runs as a
region of its own (`map_local`), which is recorded.  Where the rule says how
the operation runs `across` pieces, its local code communicates: see `across`.
"""

import numpy as np

from ..array import is_array
from ..autograd.tape import Node
from ..autograd.tensor import Tensor, wrap
from ..config import settings, state
from ..dtypes import is_inexact
from ..errors import runtime_error, type_error, value_error
from ..layout import Layout
from ..redistribute.agreement import run_agreed
from ..redistribute.between import PLACEHOLDER, UnknownSpec
from ..redistribute.carry_out import redistribute
from ..redistribute.crossing import REPLICATE, make_spec
from ..redistribute.reshard import reshard_to
from .across import record_across
from .complaints import complaint
from .recorded import record_local
from .registry import run_forward, set_distributed_apply
from .rules import Call, rule_of
from .ways import look_up, remember

_SCALARS = frozenset({bool, int, float, complex})


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
        return rule_of(_call(op, mesh, operands, params))
    if found is None:
        if len(_rules) >= _MOST_RULES:
            _rules.clear()
        _check_dtypes(op, operands, params)
        found = _rules[key] = rule_of(_call(op, mesh, operands, params))
    return found


def _check_dtypes(op, operands, params):
    """Raise before anything moves where an elementwise operation does not take these dtypes."""
    if op.elementwise:
        with np.errstate(all="ignore"):
            run_forward(op, [np.empty(0, x.dtype) if hasattr(x, "dtype") else x for x in operands], params)


def _rule_key(operand):
    if isinstance(operand, Tensor):
        return operand._spec.layout, operand._data.dtype
    return None if type(operand) in _SCALARS else (operand.shape, operand.dtype)


def _params_key(params):
    return tuple(sorted(params.items())) if params else ()


def call_of(op, operands, params):
    """The Call that an operation's rule is asked about; an operand at least is distributed."""
    operands = [_plain(op, position, operand) for position, operand in enumerate(operands)]
    return _call(op, _common_mesh(op, operands), operands, params)


def _call(op, mesh, operands, params):
    return Call(
        op,
        tuple(mesh.shape),
        tuple(operand._spec.layout if isinstance(operand, Tensor) else None for operand in operands),
        tuple(np.shape(operand) if not isinstance(operand, Tensor) else operand._spec.shape for operand in operands),
        tuple(getattr(operand, "dtype", None) for operand in operands),
        params,
    )


def apply_distributed(op, operands, params):
    """Run an operation of which an operand is distributed; all are checked, moved as the rule says, and recorded."""
    try:
        key = way = None
        if state.region is None and not settings.debug:
            key, way = look_up(op, operands, params)
        return _apply_anew(op, operands, params, key) if way is None else way.run(operands)
    except Exception as error:
        named = complaint(error, op, operands)
        if named is None:
            raise
        raise named from error


def _apply_anew(op, operands, params, key):
    """An operation whose operands have Specs that it has not had before, or none that could be remembered."""
    operands = [_plain(op, position, operand) for position, operand in enumerate(operands)]
    mesh = _common_mesh(op, operands)
    if mesh.coordinate is None or any(isinstance(x, Tensor) and x._spec.layout is None for x in operands):
        return _outside(op, mesh, operands, params)
    if settings.debug:
        return run_agreed(op.name, operands, params, mesh, lambda: _apply_checked(op, mesh, operands, params, key))
    return _apply_checked(op, mesh, operands, params, key)


def _apply_checked(op, mesh, operands, params, key):
    """An operation on this rank's mesh."""
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
    if key is not None and _runs_alike(rule, operands, moved):
        remember(key, op, moved, local, spec)
    edges = tuple(x._node if isinstance(x, Tensor) else None for x in moved)
    if not (
        op.differentiable and state.grad_enabled and is_inexact(result.dtype) and any(e is not None for e in edges)
    ):
        return wrap(result, None, spec)
    if rule.across is not None:
        moved = [_placed(x, layout, mesh) for x, layout in zip(moved, rule.inputs)]
        return wrap(result, record_across(op, moved, arrays, result, params, spec), spec)
    return wrap(result, record_local(op, rule, moved, arrays, edges, result, local, spec), spec)


def _runs_alike(rule, operands, moved):
    """Whether every call with such operands is the same local code, without moving or counting anything."""
    if rule.across is not None or rule.attaining or rule.output is None:  # None: the values may decide the shape
        return False
    for operand, placed, layout in zip(operands, moved, rule.inputs):
        # A number with a layout is part of a Partial sum, and then not the same on every rank.
        if placed is not operand or (layout is not None and not isinstance(operand, Tensor)):
            return False
    return True


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
