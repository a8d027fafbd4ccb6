"""Operations whose local code communicates: their node on the tape.

A `Rule` may carry `across`, which computes this rank's piece of the result
from the pieces of the operands, collectively over the mesh.  Backward of such
an operation is its own vjp in the *global* view: the cotangent, the saved
operands and the result are distributed Tensors, the parameters global, `xp`
the operations.  What it calls communicates by its own rules, so gradients of
any order come without a second formula.

Along an axis where the result is Partial so is the operand (the rule kept it,
because the operation is linear), and the cotangent holds each rank's own
share.  The vjp maps these shares one by one; for its operations they are
pieces of a sum that nobody reduces.
"""

from ..array import array_module
from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..redistribute.crossing import OWN, SUM, DistributedOp, communicating_node, make_spec, relabel, zeros
from ..redistribute.reshard import conform
from .registry import Params, _fixes, operations


class Record:
    """What the node of an operation across pieces keeps: see `Node.params`."""

    __slots__ = ("op", "params", "specs", "dtype", "module")

    def __init__(self, op, params, specs, dtype, module):
        self.op = op
        self.params = params  # global, as the vjp wants them
        self.specs = specs  # of the operands, None for numbers
        self.dtype = dtype
        self.module = module


class _Across(DistributedOp):
    """Backward: the operation's vjp on distributed Tensors; recorded where the pass is."""

    name = "operation across pieces"

    def pull(self, node, g):
        record, layout = node.params, node.spec.layout
        g = zeros(node.spec, record.dtype, record.module) if g is None else conform(g, node.spec)
        shares = [axis for axis, p in enumerate(g._spec.placements) if p.kind == "own"]
        g = _relabelled(_made_here(g), shares, SUM)
        saved = [_restored(v, edge, spec) for v, edge, spec in zip(node.saved, node.edges, record.specs)]
        saved.append(_restored(node.saved[-1], node, node.spec))
        grads = record.op.gradients(operations, node, g, saved, record.params)
        return tuple(None if grad is None else _as_shares(record.op, grad, shares, layout) for grad in grads)

    pull_graph = pull


ACROSS = _Across()


def _made_here(x):
    """A distributed tensor for the region whose backward runs."""
    return wrap(x._data, x._node, make_spec(x._spec.mesh, x._spec.layout))


def _restored(value, edge, spec):
    """What was saved, as the distributed Tensor that it was; numbers as they are."""
    if value is None or spec is None:
        return value
    return wrap(value, edge if state.grad_enabled else None, make_spec(spec.mesh, spec.layout))


def _relabelled(x, axes, placement):
    if not axes:
        return x
    return relabel(x, [placement if axis in axes else p for axis, p in enumerate(x._spec.placements)])


def _as_shares(op, grad, axes, layout):
    """A cotangent with each rank's own shares along the axes where the result's cotangent has them."""
    if any(grad._spec.placements[axis] is not SUM for axis in axes):
        raise AssertionError(f"{op.name}: its rule keeps {layout}, and its vjp does not: {grad._spec.layout}")
    return _relabelled(grad, axes, OWN)


def record_across(op, moved, arrays, result, params, spec):
    """The node of an operation that communicated; `moved` are the operands as its rule needs them, `arrays` raw.

    Plain arrays have become distributed tensors.
    """
    edges = tuple(x._node if isinstance(x, Tensor) else None for x in moved)
    flags = op.saves(tuple(edge is not None for edge in edges))
    saved = [value if flag else None for value, flag in zip(arrays, flags)]
    saved.append(result if flags[-1] else None)
    if op.elementwise:
        kept = _fixes(edges, moved, wrap(result, None, spec))
    else:
        kept = Params(params)
        kept["shapes"] = tuple(getattr(x, "shape", ()) for x in moved)
        kept["dtypes"] = tuple(getattr(x, "dtype", None) for x in moved)
        kept["layouts"] = tuple(x._spec.layout if isinstance(x, Tensor) else None for x in moved)
    specs = tuple(x._spec if isinstance(x, Tensor) else None for x in moved)
    record = Record(op, kept, specs, result.dtype, array_module(result))
    return communicating_node(ACROSS, edges, saved, record, spec)
