"""`Function`: an operation with a gradient of the user's own."""

from functools import wraps

from ..array import array_module
from ..config import state
from ..errors import runtime_error, type_error, value_error
from .backward import no_grad
from .tape import PICK, Node, NodeOp, Slots, add_slots, communicating, pick, upper
from .tensor import Tensor, wrap, wrap_array


class Context:
    """What forward leaves for backward; free for attributes of the user's own.

    Attributes
    ----------
    needs_input_grad : tuple of bool, one per positional input
    saved_tensors : in backward, the tensors given to `save_for_backward`
    """

    def __init__(self, needs_input_grad):
        self.needs_input_grad = needs_input_grad
        self._given = ()
        self._saved = ()

    def save_for_backward(self, *tensors):
        """Keep inputs, outputs or other tensors for backward, on the tape."""
        for position, tensor in enumerate(tensors):
            if tensor is not None and not isinstance(tensor, Tensor):
                raise type_error(
                    f"save_for_backward: argument {position} is a {type(tensor).__name__}, a Tensor is needed"
                )
        self._given = tensors

    @property
    def saved_tensors(self):
        return self._saved


class _FunctionOp(NodeOp):
    """Backward of a Function: the user's, on Tensors."""

    name = "function"

    @staticmethod
    def accumulate(old, new):
        if isinstance(old, Slots):
            return add_slots(old, new, _add)
        return _add(old, new)

    def pull(self, node, g):
        grads = self._call(node, g, lambda data, edge, spec: wrap(data, None, spec and upper.spec_here(spec)))
        return [g if g is None or g._spec is not None else g._data for g in grads]

    def pull_graph(self, node, g):
        return self._call(node, g, wrap)

    @staticmethod
    def _call(node, g, restore):
        function, context, kept, outputs, inputs = node.params
        cotangents = g if isinstance(g, Slots) else {0: g}
        grads = [_cotangent(cotangents.get(k), output) for k, output in enumerate(outputs)]
        context._saved = tuple(
            None if entry is None else restore(entry[0], _edge(entry[1], node, len(outputs)), entry[2])
            for entry in kept
        )
        try:
            result = function.backward(context, *grads)
        finally:
            context._saved = ()
        result = list(result) if isinstance(result, (tuple, list)) else [result]
        return _checked(function, result, inputs, node.edges)


FUNCTION = _FunctionOp()


def _add(old, new):
    spec = getattr(old, "_spec", None)
    return old + new if spec is None else upper.add(old, new)


def _cotangent(g, output):
    """An output's cotangent as a Tensor; zeros where nothing reached it."""
    shape, dtype, module, spec = output
    if spec is not None:
        return upper.natural(spec, upper.blank(spec, dtype, module) if g is None else g)
    if g is None:
        return wrap(module.zeros(shape, dtype), None, None)
    return g if isinstance(g, Tensor) else wrap_array(g)


def _edge(edge, node, outputs):
    """The node of a saved tensor; an output is known by its number, so that no cycle keeps it."""
    if not isinstance(edge, int):
        return edge
    return node if outputs == 1 else pick(node, edge)


def _checked(function, grads, inputs, edges):
    if len(grads) != len(edges):
        raise value_error(
            f"{function.__name__}.backward returned {len(grads)} gradients for {len(edges)} inputs "
            "(None where there is none)"
        )
    found = []
    for position, (g, shape, edge) in enumerate(zip(grads, inputs, edges)):
        if edge is None or g is None:
            found.append(None)
            continue
        if not isinstance(g, Tensor):
            raise type_error(
                f"{function.__name__}.backward: gradient {position} is a {type(g).__name__}, a Tensor is needed"
            )
        if g.shape != shape:
            raise value_error(
                f"{function.__name__}.backward: gradient {position} has shape {g.shape}, the input has {shape}"
            )
        if g.is_dist() != (edge.spec is not None):
            kinds = ("distributed", "local") if g.is_dist() else ("local", "distributed")
            raise type_error(
                f"{function.__name__}.backward: gradient {position} is {kinds[0]}, the input is {kinds[1]}"
            )
        found.append(g if edge.spec is None else upper.from_natural(edge.spec, g))
    return found


class Function:
    """An operation defined by its forward and backward.

    Subclasses define two static methods::

        forward(ctx, *inputs, **kwargs)   Tensors in, a Tensor or a tuple of them out
        backward(ctx, *grads)             one gradient (or None) per positional input

    `apply` runs it.  Inside forward nothing is recorded.  Backward may use
    differentiable operations, and then has gradients of its own; one that
    leaves the tape (for a kernel on raw arrays) is marked `once_differentiable`.
    Inputs that are no tensors pass through and get no gradient.
    """

    @staticmethod
    def forward(ctx, *inputs, **kwargs):
        raise NotImplementedError("a Function needs a static forward(ctx, *inputs)")

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError("a Function needs a static backward(ctx, *grads)")

    @classmethod
    def apply(cls, *inputs, **kwargs):
        """Run forward, and record backward if an input requires grad."""
        edges = tuple(x._node if isinstance(x, Tensor) else None for x in inputs)
        recorded = state.grad_enabled and any(edge is not None for edge in edges)
        context = Context(tuple(recorded and edge is not None for edge in edges))
        with no_grad():
            result = cls.forward(context, *inputs, **kwargs)
        results = result if isinstance(result, tuple) else (result,)
        for position, output in enumerate(results):
            if not isinstance(output, Tensor):
                raise type_error(
                    f"{cls.__name__}.forward: output {position} is a {type(output).__name__}, a Tensor is needed"
                )
        if not recorded:
            return result
        outputs = [wrap(output._data, None, output._spec) for output in results]
        node = cls._node(context, inputs, edges, results)
        for index, output in enumerate(outputs):
            output._node = node if len(outputs) == 1 else pick(node, index, PICK, output._spec)
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]

    @classmethod
    def _node(cls, context, inputs, edges, results):
        kept = []
        for tensor in context._given:
            output = next((k for k, result in enumerate(results) if tensor is result), None)
            kept.append(
                None if tensor is None else (tensor._data, tensor._node if output is None else output, tensor._spec)
            )
        context._given = ()
        described = [(r._data.shape, r._data.dtype, array_module(r._data), r._spec) for r in results]
        shapes = [x.shape if isinstance(x, Tensor) else None for x in inputs]
        spec = results[0]._spec if len(results) == 1 else None
        node = Node(FUNCTION, edges, None, (cls, context, kept, described, shapes), spec)
        return node if all(result._spec is None for result in results) else communicating(node)


class _Once(NodeOp):
    name = "once differentiable"

    @staticmethod
    def pull(node, g):
        raise runtime_error(f"{node.params}.backward is once_differentiable: it has no gradient of its own")

    pull_graph = pull


ONCE = _Once()


def once_differentiable(backward):
    """Mark a Function's backward that leaves the tape; differentiating it again raises.

    Write ``@staticmethod`` above it.
    """

    @wraps(backward)
    def marked(ctx, *grads):
        with no_grad():
            result = backward(ctx, *grads)
        if not state.grad_enabled:
            return result
        sources = tuple(t._node for t in (*grads, *ctx.saved_tensors) if isinstance(t, Tensor))
        results = result if isinstance(result, (tuple, list)) else (result,)
        name = backward.__qualname__.rpartition(".")[0] or backward.__name__
        linked = tuple(
            r if r is None else wrap(r._data, Node(ONCE, sources, None, name, r._spec), r._spec) for r in results
        )
        return linked if isinstance(result, (tuple, list)) else linked[0]

    return marked
