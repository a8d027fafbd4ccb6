"""Regions of local code, and the fence that keeps ranks in step in backward.

All ranks create the distributed nodes in the same order, though the local
nodes between them differ.  A region's `Fence` holds every communicating node
made while the region is open.  When backward enters any of the region's
outputs, all of these become pending, with zeros where this rank's local graph
does not reach; so every rank runs the same collectives in the same order
whatever branch it took.

Under create_graph the backward of a region is a region too, of the same
family: entering it makes its own fence pending and the first one's.
"""

import weakref
from heapq import heappush

from ..autograd.tape import FREED, HELD, Node, NodeOp, communicating, escaped, family_of, sees, upper
from ..autograd.tensor import wrap
from ..config import state
from ..errors import runtime_error, value_error
from ..redistribute.crossing import (
    FromLocal,
    ToLocal,
    communicating_node,
    distributed,
    make_spec,
)
from ..spec import spec_of


class Region:
    """An open or finished region: what nodes and errors know of it."""

    __slots__ = ("label", "parent", "family", "auto", "fence", "__weakref__")

    def __init__(self, label, parent, family=None, auto=False):
        self.label = label
        self.parent = parent
        self.family = family  # the region whose backward this is a part of; None: itself (a cycle would live on)
        self.auto = auto  # the gradients of its Replicate inputs are summed over the ranks
        self.fence = None  # a weak reference: nodes know their region, the fence knows nodes


class Fence:
    """The communicating nodes of a region, oldest first, and the fences below it.

    Kept alive by the region's outputs alone, so a region whose outputs are
    dropped frees its graph.
    """

    __slots__ = ("region", "nodes", "sources", "site", "__weakref__")

    def __init__(self, label, parent, sources=(), site=None, auto=False):
        self.region = Region(label, parent, family_of(sources[0].region) if sources else None, auto)
        self.region.fence = weakref.ref(self)
        self.nodes = []
        self.sources = sources
        self.site = site


class Entry:
    """What one backward pass keeps for a region that it has entered.

    Attributes
    ----------
    fence : the region's own, which lives on though its outputs have been run
    backward : the Fence of its backward, under create_graph
    region : where its backward is recorded
    check : what `verify` decided for this pass, or None
    """

    __slots__ = ("fence", "backward", "region", "check")

    def __init__(self, fence, backward, check):
        self.fence = fence
        self.backward = backward
        self.region = None if backward is None else backward.region
        self.check = check


def enter(fence):
    """Backward reaches an output of the region: make its fence pending; returns the Entry."""
    engine = state.engine
    entry = engine.entered.get(fence.region)
    if entry is not None:
        return entry
    check = fence.site.begin_backward() if fence.site is not None else None
    if not engine.create_graph and not fence.sources:
        entry = engine.entered[fence.region] = Entry(fence, None, check)
        pending, heap = engine.pending, engine.heap
        for node in fence.nodes:  # `pend`, without the call
            if node not in pending and node.op is not FREED:
                pending[node] = None
                heappush(heap, (node.order, node))
        return entry
    family = _with_sources(fence)
    backward = None
    if engine.create_graph:
        backward = next((e.backward for f in family if (e := engine.entered.get(f.region)) is not None), None)
        if backward is None:
            backward = Fence(f"the backward of {fence.region.label}", state.region, (fence,))
    for member in family:
        if member.region not in engine.entered:
            engine.entered[member.region] = Entry(member, backward, check if member is fence else None)
            pend(member.nodes)
    return engine.entered[fence.region]


def _with_sources(fence):
    members = [fence]
    for source in fence.sources:
        members.extend(_with_sources(source))
    return members


def pend(nodes):
    """Make nodes run in this pass, with zeros if nothing reaches them."""
    engine = state.engine
    pending, heap = engine.pending, engine.heap
    for node in nodes:
        if node not in pending and node.op is not FREED:
            pending[node] = None
            heappush(heap, (node.order, node))


class RegionInput(ToLocal):
    """A distributed tensor's way into a region.

    Its params: the Spec in which local gradients are read, what a zero one is
    like, and the Crossing.
    """

    name = "region input"

    def pull(self, node, g):
        entry = state.engine.entered.get(node.region) or self._entered(node)
        if entry is None:
            return HELD
        read, zero, crossing = node.params
        if g is None:
            g = self.zero(zero)
        if entry.check is not None or crossing.factor != 1:
            g = crossing.gradient(g, entry)
        if state.region is not None:
            read = make_spec(read.mesh, read.layout)
        return (wrap(g, None, read) if type(g) is zero[2] else distributed(g, read),)

    def pull_graph(self, node, g):
        entry = self._entered(node)
        if entry is None:
            return HELD
        read, zero, crossing = node.params
        g = crossing.gradient(wrap(self.zero(zero), None, None) if g is None else g, entry)
        # The gradient leaves the backward region: it is an output of that, seen from outside.
        inside, state.region = state.region, entry.backward.region.parent
        try:
            return (leave(g, make_spec(read.mesh, read.layout), entry.backward),)
        finally:
            state.region = inside

    @staticmethod
    def _entered(node):
        """The region's Entry; None where `grad` runs inside the region, which ends at its inputs."""
        entry = state.engine.entered.get(node.region)
        if entry is not None:
            return entry
        if not sees(state.region, node.region):
            raise escaped(node.region)
        if state.engine.wanted is None:
            raise runtime_error(
                f"backward() inside {node.region.label} has reached one of its inputs, whose gradient crosses only "
                "when backward() runs outside; use grad(loss, inputs), or detach() the input"
            )
        return None


class RegionOutput(FromLocal):
    """A local tensor's way out of a region.

    Its params: dtype, type of array, the number of copies that the auto rule
    takes together for one variable, and the region's Fence.
    """

    name = "region output"

    @staticmethod
    def inner_region(node):
        return node.params[3].region

    def pull(self, node, g):
        entry = enter(node.params[3])
        if entry.check is not None and g is not None:
            entry.check.entering(g._data)
        if g is not None and node.params[2] == 1 and g._spec.layout is node.spec.layout:
            return (g._data,)
        return super().pull(node, g)

    def pull_graph(self, node, g):
        entry = enter(node.params[3])
        if entry.check is not None and g is not None:
            entry.check.entering(g._data)
        g, layout = self.parts(node, self.conformed(node, g))
        outside, state.region = state.region, entry.backward.region
        try:
            return (pass_in(g, spec_of(g._spec.mesh, layout), PLAIN, entry.backward),)
        finally:
            state.region = outside


class LocalOutput(NodeOp):
    """The way out of a region for a local tensor that stays local; its params are the region's Fence."""

    name = "local output"

    @staticmethod
    def inner_region(node):
        return node.params.region

    @staticmethod
    def pull(node, g):
        entry = enter(node.params)
        if entry.check is not None and g is not None:
            entry.check.entering(g)
        return (g,)

    @staticmethod
    def pull_graph(node, g):
        enter(node.params)
        return (g,)


class Plain:
    """How an input's gradient crosses where nothing more is declared about it."""

    __slots__ = ()
    captured = False
    factor = 1

    @staticmethod
    def gradient(g, entry):
        return g


PLAIN = Plain()
REGION_INPUT = RegionInput()
REGION_OUTPUT = RegionOutput()
LOCAL_OUTPUT = LocalOutput()


def pass_in(x, read, crossing, fence):
    """A distributed tensor's piece inside a fence's open region, its gradients read as pieces of the Spec `read`."""
    data = x._data
    if x._node is None or not state.grad_enabled:
        return wrap(data, None, None)
    node = Node(REGION_INPUT, (x._node,), None, (read, (data.shape, data.dtype, type(data)), crossing))
    fence.nodes.append(node)
    return wrap(data, node, None)


def leave(local, spec, fence, auto=False):
    """The distributed tensor that a local one becomes on its way out of a region.

    By the auto rule the copies of a Replicate output are one variable.  It is
    recorded also where this rank's own tensor needs no gradient: some other
    rank's does.
    """
    data = local._data
    params = (data.dtype, type(data), _copies(spec.layout) if auto else 1, fence)
    node = Node(REGION_OUTPUT, (local._node,), None, params, spec)
    return wrap(data, node if node.region is None else communicating(node), spec)


def copies_of_one(local, layout):
    """How many copies of a local tensor of the open region, on its way to be distributed in `layout`, are one variable.

    Along a Replicate axis the ranks' tensors together are one variable.  Where
    a region sums the gradients of what went in (the auto rule), each of the
    n copies therefore takes an n-th part of the cotangent.  With explicit
    attrs each copy takes all of it, which a gradient that is summed all the
    same (of a captured tensor, or of what a region around this one with the
    auto rule got) would count n times: that raises.
    """
    region = state.region
    if region is None:
        return 1
    copies = _copies(layout)
    if copies == 1 or region.auto:
        return copies
    summed = None if local._node is None else _summed_source(local._node, region)
    if summed is not None:
        raise value_error(
            f"{region.label}: what is made Replicate() inside depends on {summed}, whose gradient is summed over the "
            'ranks and would be counted once a rank; declare "auto" for the gradients'
        )
    return 1


def _summed_source(node, region):
    """What a local graph depends on whose gradient is summed over the ranks, here or in a region around; or None."""
    seen, waiting = set(), [node]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen or node.region is None:
            continue
        seen.add(node)
        if node.region is not region and node.region.auto:
            return f'a tensor of {node.region.label}, which declares "auto"'
        if node.op is REGION_INPUT:
            if node.params[2].captured:
                return "a captured tensor or parameter"
        else:
            waiting.extend(node.edges)
    return None


def _copies(layout):
    """How many copies of a tensor are one variable."""
    copies = 1
    for size, placement in zip(layout.mesh_shape, layout.placements):
        if placement.kind == "replicate":
            copies *= size
    return copies


def leave_local(local, fence):
    """A local tensor on its way out of a region, where it stays local; its gradient enters the region as it is."""
    return wrap(local._data, communicating_node(LOCAL_OUTPUT, (local._node,), None, fence), None)


def leave_backward(g, here, there):
    """A local gradient on its way out of the backward of a region, to where a tensor from outside the region is.

    Under create_graph it is an output of that backward region, and of those
    between, one by one.
    """
    recorded_in = state.region
    try:
        while here is not there and here is not None and g._node is not None:
            fence, here = here.fence(), here.parent
            state.region = here
            g = leave_local(g, fence)
    finally:
        state.region = recorded_in
    return g


upper.leave_backward = leave_backward
