"""`backward` and `grad`, and the gradient mode."""

from contextlib import ContextDecorator

from ..array import array_module
from ..config import state
from ..errors import runtime_error, type_error, value_error
from .tape import Engine, escaped, sees, upper
from .tensor import Tensor, as_raw, check_not_in_region, install, wrap, wrap_array


class _GradMode(ContextDecorator):
    """Context manager and decorator that sets whether operations are recorded."""

    def __init__(self, enabled):
        self._enabled = enabled
        self._saved = []

    def __enter__(self):
        self._saved.append(state.grad_enabled)
        state.grad_enabled = self._enabled
        return self

    def __exit__(self, *exc_info):
        state.grad_enabled = self._saved.pop()


def no_grad():
    """Do not record operations: ``with no_grad(): ...``, or as a decorator."""
    return _GradMode(False)


def enable_grad():
    """Record operations again inside `no_grad`."""
    return _GradMode(True)


def _as_list(value, argument):
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    for item in values:
        if not isinstance(item, Tensor):
            raise type_error(f"{argument}: a Tensor or a list of them is needed, {type(item).__name__} was given")
    return values


def _is_outside(tensor):
    """Whether a tensor's mesh does not contain this rank, which then only goes on to where it takes part."""
    return tensor._spec is not None and tensor._spec.mesh.coordinate is None


def _seed(root, given, create_graph):
    """The node to start from and its cotangent."""
    spec, node = root._spec, root._node
    if spec is not None and spec.mesh.coordinate is None:
        return node, upper.no_data(spec)
    if spec is not None and spec.region is not state.region:
        check_not_in_region("the gradient")
        raise runtime_error("backward: the root is a distributed tensor made inside a region that has ended")
    if node is None and state.guarded and state.region is None and spec is None:
        return None, None  # this rank takes part in what other ranks' losses need
    if node is None:
        raise value_error("backward: this tensor does not require grad, so there is nothing to differentiate")
    if node.region is not None and not sees(state.region, node.region):
        raise escaped(node.region)
    if given is None and root.size != 1:
        raise value_error(
            f"grad_outputs: the root has shape {root.shape}; only one element needs none. Give its cotangent, "
            "or sum it first"
        )
    if spec is not None:
        return upper.seed(root, given)
    return node, _local_seed(root, given, create_graph)


def _local_seed(root, given, create_graph):
    if given is None:
        return _local_cotangent(array_module(root._data).ones_like(root._data), create_graph)
    if isinstance(given, Tensor) and create_graph and given._spec is None and given.dtype == root.dtype:
        raw = given
    else:
        raw = as_raw(given, "grad_outputs", root.dtype)
    if raw.shape != root.shape:
        raise value_error(f"grad_outputs: shape {raw.shape} was given, the root has shape {root.shape}")
    return raw if isinstance(raw, Tensor) else _local_cotangent(raw, create_graph)


def _local_cotangent(raw, create_graph):
    return wrap(raw, None, None) if create_graph else raw


def _start(engine, roots, grad_outputs):
    if grad_outputs is None:
        grad_outputs = [None] * len(roots)
    elif not isinstance(grad_outputs, (list, tuple)):
        grad_outputs = [grad_outputs]
    if len(grad_outputs) != len(roots):
        raise value_error(f"grad_outputs: {len(grad_outputs)} were given for {len(roots)} roots")
    seeds = [_seed(root, given, engine.create_graph) for root, given in zip(roots, grad_outputs)]
    for node, seed in seeds:
        if node is not None:
            engine.add(node, seed)


def backward(tensors, grad_outputs=None, retain_graph=False, create_graph=False):
    """Add the gradients of `tensors` to the `.grad` of the leaves they depend on.

    Parameters
    ----------
    tensors : Tensor or list of Tensors
        The roots.  A distributed root is one loss, and all ranks of its mesh
        call this.  Where ranks call it on local scalars of their own, the
        loss is their sum.  A rank outside a root's mesh calls this too, where
        other tensors of the program are on meshes that it belongs to.
    grad_outputs : optional, one entry per root
        Cotangents: of a distributed root the *global* cotangent (distributed,
        or a NumPy array equal on all ranks).  Needed unless a root has one element.
    retain_graph : keep the graph, so that backward can run through it again
    create_graph : record the backward pass, for gradients of gradients

    Communicates what the layouts need, in the same order on every rank.
    """
    engine = Engine(create_graph, retain_graph)
    if type(tensors) is Tensor and not isinstance(grad_outputs, (list, tuple)):
        node, cotangent = _seed(tensors, grad_outputs, create_graph)
        if node is not None:
            engine.pending[node] = cotangent
            engine.heap.append((node.order, node))
    else:
        _start(engine, _as_list(tensors, "tensors"), grad_outputs)
    engine.run()


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False):
    """The gradients of `outputs` with respect to `inputs`; no `.grad` changes.

    Parameters
    ----------
    outputs, grad_outputs : as the roots of `backward`
    inputs : Tensor or list of Tensors
        Leaves or intermediate results, local or distributed.
    retain_graph : keep the graph; None: if create_graph
    create_graph : record the backward pass, for gradients of gradients

    Returns
    -------
    A Tensor for a single Tensor as `inputs`, else a list.  An input that the
    outputs do not depend on gets zeros.  The gradient of a distributed input
    has that input's placements (Replicate where it is a Partial sum or mean).
    """
    roots = _as_list(outputs, "outputs")
    wanted = _as_list(inputs, "inputs")
    for position, tensor in enumerate(wanted):
        if tensor._node is None and not _is_outside(tensor):
            raise value_error(f"inputs[{position}] does not require grad")
    engine = Engine(
        create_graph=create_graph,
        retain_graph=create_graph if retain_graph is None else retain_graph,
        wanted={tensor._node for tensor in wanted if tensor._node is not None},
    )
    _start(engine, roots, grad_outputs)
    engine.run()
    results = [_captured(engine, tensor) for tensor in wanted]
    return results if isinstance(inputs, (list, tuple)) else results[0]


def _captured(engine, tensor):
    node = tensor._node
    g = engine.captured.get(node)
    if _is_outside(tensor):
        return upper.no_data(tensor._spec) if g is None else g
    if tensor._spec is not None:
        if node not in engine.captured:
            return upper.zeros(tensor)
        if g is None:  # other ranks may have a gradient, and showing one communicates
            g = upper.blank(node.spec, tensor.dtype, array_module(tensor._data))
        return upper.natural(node.spec, g)
    if g is None:
        return wrap(array_module(tensor._data).zeros_like(tensor._data), None, None)
    return g if isinstance(g, Tensor) else wrap_array(g)


def _backward(self, grad_outputs=None, retain_graph=False, create_graph=False):
    """`backward(self, ...)`."""
    backward(self, grad_outputs, retain_graph, create_graph)


install(backward=_backward)
