"""The tape: nodes, and the engine that runs them backwards.

Every recorded operation is a `Node` with a sequence number.  The engine keeps
the cotangents that wait in a heap by sequence number, largest first: a node
runs once, after all its consumers, without a walk of the graph in advance.

What a node does lies in its `op`, an object with

    pull(node, g)        -> cotangents of its edges, from raw arrays
    pull_graph(node, g)  -> the same, recorded on the tape (create_graph)
    accumulate(old, new) -> the sum of two cotangents of the node's output

A cotangent of a local tensor is a raw array (a Tensor under create_graph); of
a distributed tensor always a distributed Tensor, since its layout matters.
"""

import itertools
import operator
from heapq import heappop, heappush

from ..config import state
from ..errors import runtime_error

next_order = itertools.count(-1, -1).__next__  # negated: the heap pops the smallest first


class Node:
    """One recorded operation.

    Attributes
    ----------
    order : the negated sequence number
    op : what runs backwards (see the module's text)
    edges : a tuple with, for each input, the node that made it, or None
    saved : raw arrays that the vjp needs, or None
    params : what else it needs
    region : the boundary region in which it was recorded, or None
    spec : the Spec of a distributed output; None for a local one
    hooks : functions of the cotangent, or None
    """

    __slots__ = ("order", "op", "edges", "saved", "params", "region", "spec", "hooks", "__weakref__")

    def __init__(self, op, edges, saved=None, params=None, spec=None):
        self.order = next_order()
        self.op = op
        self.edges = edges
        self.saved = saved
        self.params = params
        self.region = state.region
        self.spec = spec
        self.hooks = None

    def __repr__(self):
        return f"<Node {-self.order} {self.op.name}>"


class NodeOp:
    """Base of what runs backwards; see the module's text."""

    name = "node"
    accumulate = staticmethod(operator.add)
    keeps = False  # a node that survives backward (leaves)
    inner_region = staticmethod(lambda node: None)  # the region whose nodes its edges may touch


HELD = (None,)  # what a node's op returns to go no further and stay as it is


class _Freed(NodeOp):
    name = "freed"

    @staticmethod
    def pull(node, g):
        raise runtime_error(
            "backward reached a part of the graph that an earlier backward has freed; "
            "pass retain_graph=True to the earlier one"
        )

    pull_graph = pull


FREED = _Freed()


class Pick(NodeOp):
    """Output `params` of a node with several: puts its cotangent in its place."""

    name = "output"

    @staticmethod
    def pull(node, g):
        return (Slots({node.params: g}),)

    pull_graph = pull


PICK = Pick()


class _Upper:
    """What upper floors install for distributed tensors; nothing here imports upwards.

    leaf : the op of a distributed leaf
    conform(g, spec) : a cotangent in the layout that a tensor of this spec wants
    add(old, new) : the sum of two cotangents of one distributed tensor
    seed(root, grad_outputs) : the node and cotangent to start a distributed root with
    natural(spec, g) : a cotangent as users see it
    from_natural(spec, g) : the cotangent that users see as `g`
    no_data(spec) : a cotangent on a rank outside the mesh
    blank(spec, dtype, module) : a cotangent of zeros
    spec_here(spec) : the same layout for a tensor made now
    zeros(tensor) : the gradient of a tensor that nothing reached
    leave_backward(g, here, there) : a local gradient that leaves the backward of a region, under create_graph
    """

    leaf = conform = add = seed = natural = from_natural = None
    no_data = blank = spec_here = zeros = leave_backward = None


upper = _Upper()


def communicating(node):
    """A node that may communicate in backward: an open region's fence keeps it, because all ranks must run it."""
    if node.region is not None:
        node.region.fence().nodes.append(node)
    return node


def guard(node):
    """Have every backward pass of this thread come by a communicating node that no region holds.

    All ranks of its group do the same, so the node's op can ask them whether
    any has a cotangent.  The op decides when to `release` it.
    """
    if state.guarded is None:
        state.guarded = {}
    state.guarded[node] = None


def release(node):
    """No pass needs to come by the node any more."""
    if state.guarded is not None:
        state.guarded.pop(node, None)


class Slots(dict):
    """Cotangents of a node with several outputs, by output; missing ones are zero."""


def add_slots(old, new, add):
    """Add up two `Slots`, entry by entry with `add`."""
    total = Slots(old)
    for key, value in new.items():
        total[key] = add(total[key], value) if key in total else value
    return total


def pick(node, index, op=PICK, spec=None):
    """The node of output `index` of a node with several outputs."""
    proxy = Node(op, (node,), None, index, spec)
    proxy.region = node.region
    return proxy


class Engine:
    """One backward pass.

    Parameters
    ----------
    create_graph : record the backward pass itself
    retain_graph : keep what the nodes saved
    wanted : the nodes whose cotangents `grad` asks for, or None: then leaves
        accumulate into their `.grad`
    """

    __slots__ = ("create_graph", "retain_graph", "wanted", "captured", "heap", "pending", "entered", "last")

    def __init__(self, create_graph=False, retain_graph=False, wanted=None):
        self.create_graph = create_graph
        self.retain_graph = retain_graph or create_graph
        self.wanted = wanted
        self.captured = {}
        self.heap = []
        self.pending = {}
        self.entered = {}  # regions whose outputs have been popped, with the fence of their backward (create_graph)
        # Nothing below the oldest wanted node can contribute to it.
        self.last = max((node.order for node in wanted), default=0) if wanted is not None else None

    def add(self, node, cotangent):
        """Give `node` a cotangent (None: only make it run, with zeros)."""
        pending = self.pending
        if node not in pending:
            pending[node] = cotangent
            heappush(self.heap, (node.order, node))
        elif cotangent is not None:
            old = pending[node]
            pending[node] = cotangent if old is None else node.op.accumulate(old, cotangent)

    def _beside(self, node, outside):
        """Where, under create_graph, what runs backwards for a node is recorded: in the backward of its region."""
        entry = None if node.region is None else self.entered.get(node.region)
        return outside if entry is None else entry.region

    def _leave(self, g, node, edge, outside):
        """Under create_graph: a local gradient for a tensor from outside the region whose backward this is."""
        here, there = self._beside(node, outside), self._beside(edge, outside)
        if here is there or node.op.inner_region(node) is not None:
            return g
        return upper.leave_backward(g, here, there)

    def run(self):
        """Run all that is pending, until nothing is."""
        outer, phase, grad_mode, region = state.engine, state.phase, state.grad_enabled, state.region
        if state.guarded and outer is None and region is None:
            self._come_by(state.guarded)
        state.engine, state.phase, state.grad_enabled = self, "backward", self.create_graph
        try:
            self._loop()
        finally:
            state.engine, state.phase, state.grad_enabled, state.region = outer, phase, grad_mode, region

    def _come_by(self, nodes):
        """Make nodes run that other ranks may need, whether or not this rank reaches them; to the oldest one."""
        for node in nodes:
            self.add(node, None)
        if self.wanted is not None:
            self.last = 0

    def _loop(self):
        heap, pending, wanted = self.heap, self.pending, self.wanted
        graph, retain, outside = self.create_graph, self.retain_graph, state.region
        while heap:
            order, node = heappop(heap)
            if wanted is not None and order > self.last:
                pending.clear()
                heap.clear()
                return
            g = pending.pop(node)
            if node.hooks is not None and (g is not None or node.spec is not None):
                g = run_hooks(node, g)
            op, region = node.op, node.region
            if wanted is not None and node in wanted:
                self.captured[node] = g
            if graph:
                state.region = self._beside(node, outside)
                grads = op.pull_graph(node, g)
            else:
                grads = op.pull(node, g)
            for edge, grad in zip(node.edges, grads):
                if edge is None or grad is None:
                    continue
                if edge.region is not region:
                    if edge.region is not None and edge.region is not op.inner_region(node):
                        check_visible(node, edge)
                    if graph and region is not None and edge.spec is None:
                        grad = self._leave(grad, node, edge, outside)
                old = pending.get(edge)
                if old is not None:
                    if graph:
                        state.region = self._beside(edge, outside)
                    pending[edge] = edge.op.accumulate(old, grad)
                else:  # the same as add(), without the call
                    if edge not in pending:
                        heappush(heap, (edge.order, edge))
                    pending[edge] = grad
            if not retain and not op.keeps and grads is not HELD:
                node.op, node.edges, node.saved, node.params = FREED, (), None, None


def sees(region, other):
    """Whether code in `region` may use local tensors made in `other`.

    It may if `other` is open around it, or if it is the backward of `other`
    (then both are of one family).
    """
    family = family_of(other)
    while region is not None:
        if family_of(region) is family:
            return True
        region = region.parent
    return False


def family_of(region):
    """The region that stands for a region and what belongs to its backward."""
    return region.family or region


def check_visible(node, edge):
    """Raise when a gradient would enter a region by another way than its outputs."""
    inner = node.op.inner_region(node)
    if not sees(inner if inner is not None else node.region, edge.region):
        raise escaped(edge.region)


def escaped(region):
    """The error for a gradient through a local tensor that left its region."""
    return runtime_error(
        f"backward would differentiate through a local tensor that escaped from {region.label}: gradients leave a "
        "region through its outputs alone.  Return it from forward (its value may be used freely; detach() says so)"
    )


def run_hooks(node, g):
    """The cotangent after the node's hooks; a hook may return another one.

    Hooks of a distributed tensor communicate, so they run also where this
    rank has no cotangent (None).
    """
    for hook in tuple(node.hooks):
        g = hook(node, g)
    return g
