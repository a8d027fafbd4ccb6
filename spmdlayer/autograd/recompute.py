"""Recomputation: keep the inputs instead of the graph, and run again in backward."""

from ..config import state
from ..dtypes import is_inexact
from ..errors import type_error
from .backward import enable_grad, no_grad
from .tape import PICK, Node, NodeOp, add_slots, communicating, pick
from .tensor import Tensor, wrap


class _Recompute(NodeOp):
    """Backward of recomputed code: record it now, and let the engine go on into what was recorded."""

    name = "recompute"

    @staticmethod
    def accumulate(old, new):
        return add_slots(old, new, lambda a, b: a + b)

    @staticmethod
    def pull(node, slots):
        function, structure, kept, positions = node.params
        engine, inside = state.engine, state.region
        fence = node.region.fence() if node.region is not None else None
        known = len(fence.nodes) if fence is not None else 0
        arrays = iter(node.saved)
        edges = iter(node.edges)
        leaves = list(kept)
        for position in positions:
            leaves[position] = wrap(next(arrays), next(edges), None)
        args, kwargs = _unflatten(structure, leaves)
        state.region, phase, state.phase = node.region, state.phase, "recompute"
        try:
            with enable_grad():
                outputs = [x for x in _flatten(function(*args, **kwargs))[0] if _differentiable(x)]
        finally:
            state.region, state.phase = inside, phase
        for index, g in (slots or {}).items():
            if outputs[index]._node is not None:
                engine.add(outputs[index]._node, g)
        if fence is not None:
            for made in fence.nodes[known:]:
                engine.add(made, None)
        return (None,) * len(node.edges)

    pull_graph = pull


RECOMPUTE = _Recompute()


def _flatten(value):
    import optree

    return optree.tree_flatten(value)


def _unflatten(structure, leaves):
    import optree

    return optree.tree_unflatten(structure, leaves)


def _differentiable(value):
    return isinstance(value, Tensor) and is_inexact(value.dtype)


def _local(value, what):
    if value._spec is not None:
        raise type_error(
            f"recompute: an {what} is a distributed tensor; recompute takes functions of local ones. For a "
            "region between distributed tensors use LocalLayer or local_map with recompute=True"
        )
    return value


def recompute(function):
    """Wrap a function of local tensors so that backward runs it again.

    The wrapped function keeps its inputs on the tape, not what it computes
    between them and its outputs; backward calls it once more.  It must give
    the same values then.  Gradients leave it through its outputs alone: what
    it stores elsewhere has none.  Communicates what the function does, twice.

    Raises TypeError for distributed inputs or outputs.
    """

    def wrapped(*args, **kwargs):
        if not state.grad_enabled:
            return function(*args, **kwargs)
        leaves, structure = _flatten((args, kwargs))
        positions = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        # Raw arrays are kept, not the tensors: a later write to these is not seen.
        saved = [_local(leaves[k], "input")._data for k in positions]
        plain = list(leaves)
        for k in positions:
            plain[k] = leaves[k].detach()  # the function may write to what it is given
        args, kwargs = _unflatten(structure, plain)
        with no_grad():
            results, out_structure = _flatten(function(*args, **kwargs))
        edges = tuple(leaves[k]._node for k in positions)
        kept = [None if k in positions else leaf for k, leaf in enumerate(leaves)]
        node = communicating(Node(RECOMPUTE, edges, saved, (function, structure, kept, positions)))
        index = 0
        for k, value in enumerate(results):
            if isinstance(value, Tensor) and _differentiable(_local(value, "output")):
                results[k] = wrap(value._data, pick(node, index, PICK), None)
                index += 1
        return _unflatten(out_structure, results)

    return wrapped
