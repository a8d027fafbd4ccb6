"""Collectives on the tape: one node a collective, which all its ranks run or none.

Inside a region the node belongs to the region's fence.  Outside, the thread's
`guarded` nodes hold it: every backward pass comes by it, on every rank, and
before it passes the ranks tell each other whether any has a cotangent (then
all run it, with zeros where there is none) and whether any still refers to its
results (else all drop it).
"""

import weakref

import numpy as np

from ..array import array_module
from ..autograd.tape import HELD, PICK, Node, NodeOp, add_slots, communicating, guard, pick, release
from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..dtypes import is_inexact
from ..redistribute.agree import any_rank


class Call:
    """What the node of a collective keeps.

    Attributes
    ----------
    line : the Channel
    outputs : (shape, dtype) of each result
    vjp : function of a list of cotangents (Tensors, one for each result) that gives one for each input
    results : weak references to the results' own nodes
    """

    __slots__ = ("line", "outputs", "vjp", "results")

    def __init__(self, line, outputs, vjp):
        self.line = line
        self.outputs = outputs
        self.vjp = vjp
        self.results = []

    def cotangents(self, slots):
        """One for each result, zeros where none came."""
        found = []
        for index, (shape, dtype) in enumerate(self.outputs):
            g = None if slots is None else slots.get(index)
            g = np.zeros(shape, dtype) if g is None else g
            found.append(g if isinstance(g, Tensor) else wrap(np.asarray(g), None, None))
        return found

    @property
    def kept(self):
        """Whether somebody here still refers to a result."""
        return any(reference() is not None for reference in self.results)


class Collective(NodeOp):
    """Backward of a collective: its adjoint, on all ranks or on none."""

    name = "collective"

    @staticmethod
    def accumulate(old, new):
        return add_slots(old, new, lambda a, b: a + b)

    def pull(self, node, slots):
        grads = self.pull_graph(node, slots)
        return grads if grads is HELD else [None if grad is None else grad._data for grad in grads]

    def pull_graph(self, node, slots):
        if node.region is None and not self.asked_for(node, slots):
            return HELD
        call = node.params
        return call.vjp(call.cotangents(slots))

    @staticmethod
    def asked_for(node, slots):
        """Whether a rank has a cotangent; where none has and none keeps a result, the node is dropped everywhere."""
        call = node.params
        has, kept = any_rank(call.line, slots is not None, call.kept)
        if (has and not state.engine.retain_graph) or not (has or kept):
            release(node)
        return has


class Link(Collective):
    """Backward of a message sent on and another received: only the two partners ask each other."""

    name = "sendrecv"
    keeps = True  # one of its two messages may still be needed when the other has been run

    def pull_graph(self, node, slots):
        call = node.params
        if node.region is None:
            sends, receives = call.vjp.agree(slots is not None, call.kept, state.engine.retain_graph)
            if not call.vjp.open:
                release(node)
            if not (sends or receives):
                return HELD
            return call.vjp(call.cotangents(slots), sends, receives)
        return call.vjp(call.cotangents(slots))


class _Nothing(NodeOp):
    """Backward of zeros that stand for what did not come: the input has no part in them."""

    name = "nothing came"

    @staticmethod
    def pull(node, g):
        return (None,)

    pull_graph = pull


COLLECTIVE, LINK, NOTHING = Collective(), Link(), _Nothing()


def nothing_for(x):
    """Zeros like x where no rank sent anything; they require grad like what comes on the other ranks."""
    zeros = array_module(x._data).zeros(x.shape, x.dtype)
    on_tape = state.grad_enabled and is_inexact(x.dtype)
    return wrap(zeros, Node(NOTHING, (x._node,)) if on_tape else None, None)


def recorded(line, inputs, results, dtype, vjp, op=COLLECTIVE):
    """The results (raw arrays) of a collective as Tensors; on the tape, on every rank, where gradients are on.

    Parameters
    ----------
    inputs : the local Tensors that this rank gave
    dtype : of what is sent, the same on all ranks; integers have no gradient
    vjp : see `Call`
    """
    tensors = [wrap(np.asarray(result), None, None) for result in results]
    if not (state.grad_enabled and is_inexact(dtype)):
        return tensors
    call = Call(line, [(tensor.shape, tensor.dtype) for tensor in tensors], vjp)
    node = Node(op, tuple(x._node for x in inputs), None, call)
    for index, tensor in enumerate(tensors):
        tensor._node = pick(node, index, PICK)
        call.results.append(weakref.ref(tensor._node))
    if node.region is None:
        guard(node)
    else:
        communicating(node)
    return tensors
