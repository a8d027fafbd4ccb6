"""The crossing between the two views, as nodes on the tape.

`to_local` takes a distributed tensor's piece, `from_local` reads pieces as a
distributed tensor; neither moves data.  Each is the other's adjoint, with the
placements that say how gradients are read.  `map_local` is the smallest region
of local code: both crossings around a function that is the same on all ranks.

What a rank holds of the cotangent of X, by X's placement along an axis:

    Shard(d)      its slice of G = dL/dX
    Replicate     G, equal on every rank
    Partial(op)   its own share dL/dx_r, labelled Own; or Replicate where the
                  tape knows that all ranks have the same share

A label Partial('sum') on a cotangent means a gradient not yet summed.
"""

from functools import lru_cache

import numpy as np

from ..array import array_module, module_of
from ..autograd.tape import Node, NodeOp, communicating, upper
from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..placement import Own, Partial, Replicate
from ..spec import Spec, spec_of

OWN, REPLICATE, SUM = Own(), Replicate(), Partial("sum")


class DistributedOp(NodeOp):
    """Base of the ops of nodes whose output is distributed."""

    @staticmethod
    def accumulate(old, new):
        return upper.add(old, new)


def communicating_node(op, edges, saved=None, params=None, spec=None):
    """A node that all ranks must run, also one whose local graph does not reach it."""
    return communicating(Node(op, edges, saved, params, spec))


def make_spec(mesh, layout):
    """The Spec for a tensor made now; inside a region it belongs to the region."""
    if state.region is None:
        return spec_of(mesh, layout)
    result = Spec(mesh, layout)
    result.region = state.region
    return result


@lru_cache(maxsize=4096)
def cotangent_layout(layout):
    """A layout with Own where it is Partial: what a cotangent has by default."""
    return layout.with_placements(tuple(OWN if p.kind == "partial" else p for p in layout.placements))


def zeros(spec, dtype, module):
    """A zero cotangent for a tensor of this spec, in an array module."""
    shape = spec.local_shape or ()
    return wrap(module.zeros(shape, dtype), None, make_spec(spec.mesh, cotangent_layout(spec.layout)))


upper.blank = zeros
upper.spec_here = lambda spec: spec if spec.layout is None else make_spec(spec.mesh, spec.layout)


def distributed(raw, spec):
    """A cotangent from a raw piece; NumPy makes scalars of 0-d arrays, collectives want arrays."""
    return wrap(np.asarray(raw) if isinstance(raw, np.generic) else raw, None, spec)


class ToLocal(NodeOp):
    """Backward of `to_local`: a local gradient is read as a piece of a distributed one."""

    name = "to_local"

    def pull(self, node, g):
        spec, layout, zero = node.params[:3]
        g = self.zero(zero) if g is None else g
        return (distributed(g, make_spec(spec.mesh, layout)),)

    def pull_graph(self, node, g):
        spec, layout, zero = node.params[:3]
        if g is None:
            g = wrap(self.zero(zero), None, None)
        return (from_local(g, make_spec(spec.mesh, layout)),)

    @staticmethod
    def zero(zero):
        shape, dtype, kind = zero
        return module_of(kind).zeros(shape, dtype)


class FromLocal(DistributedOp):
    """Backward of `from_local`: this rank's piece of the cotangent.

    Params: the dtype, the type of array, and how many copies along Replicate
    axes are together the one variable; each takes that part of the cotangent.
    """

    name = "from_local"

    def pull(self, node, g):
        g, copies = self.conformed(node, g), node.params[2]
        return (g._data if copies == 1 else (g._data / copies).astype(g.dtype),)

    def pull_graph(self, node, g):
        return (to_local(*self.parts(node, self.conformed(node, g))),)

    @staticmethod
    def conformed(node, g):
        if g is not None:
            return upper.conform(g, node.spec)
        dtype, kind = node.params[:2]
        return zeros(node.spec, dtype, module_of(kind))

    @staticmethod
    def parts(node, g):
        """The cotangent as the copies take it, and how its own gradient is read."""
        copies, layout = node.params[2], adjoint_layout(g._spec.layout, node.spec.layout)
        if copies != 1:
            g = map_local(lambda piece: piece * (1.0 / copies), [g], g._spec.layout)
            layout = layout.with_placements(tuple(SUM if p.kind == "replicate" else p for p in layout.placements))
        return g, layout


TO_LOCAL = ToLocal()
FROM_LOCAL = FromLocal()


@lru_cache(maxsize=4096)
def adjoint_layout(cotangent, primal):
    """How the gradient of a cotangent is read once it has become local shares.

    Along an axis where the tensor is Partial and every rank got the same
    share, each rank's use of it counts: Partial('sum').
    """
    return cotangent.with_placements(
        tuple(
            SUM if c.kind == "replicate" and p.kind in ("partial", "own") else (OWN if c.kind == "partial" else c)
            for c, p in zip(cotangent.placements, primal.placements)
        )
    )


def to_local(x, grad_layout=None):
    """This rank's piece of a distributed tensor, as a local tensor on the tape.

    `grad_layout` is how the local gradients are read; None: slice for slice,
    copy for copy, share for share.
    """
    data = x._data
    node = None
    if x._node is not None and state.grad_enabled:
        layout = cotangent_layout(x._spec.layout) if grad_layout is None else grad_layout
        zero = (data.shape, data.dtype, type(data))
        node = communicating_node(TO_LOCAL, (x._node,), None, (x._spec, layout, zero))
    return wrap(data, node, None)


def from_local(local, spec, copies=1, recorded=False):
    """The distributed tensor of this spec whose piece a local tensor is.

    `copies` of it are one variable.  `recorded` records it also where this
    rank's tensor needs no gradient, because another rank's does.
    """
    node = None
    if (recorded or local._node is not None) and state.grad_enabled:
        params = (local._data.dtype, type(local._data), copies)
        node = communicating_node(FROM_LOCAL, (local._node,), None, params, spec)
    return wrap(local._data, node, spec)


@lru_cache(maxsize=4096)
def region_gradients(layouts, result):
    """For code that is the same on all ranks: how the gradients of its inputs are read.

    Along an axis where any operand or the result varies between ranks, a
    Replicate operand's gradients add up; elsewhere all ranks have computed
    the same.  Pieces of Partial operands are each rank's own.
    """
    axes = range(len(result.placements))
    varies = [
        result.placements[axis].kind != "replicate" or any(x.placements[axis].kind != "replicate" for x in layouts)
        for axis in axes
    ]
    return tuple(
        layout.with_placements(
            tuple(
                SUM if p.kind == "replicate" and varies[axis] else (OWN if p.kind == "partial" else p)
                for axis, p in enumerate(layout.placements)
            )
        )
        for layout in layouts
    )


def map_local(function, tensors, layout, grads=None):
    """Run a local function on the pieces of distributed tensors of one mesh.

    Parameters
    ----------
    function : of local Tensors, the same on all ranks up to their coordinates
    tensors : distributed Tensors
    layout : Layout of the result
    grads : Layouts for the gradients; None: by `region_gradients`

    Communicates nothing, forward or backward.
    """
    spec = make_spec(tensors[0]._spec.mesh, layout)
    if grads is None:
        grads = region_gradients(tuple(t._spec.layout for t in tensors), layout)
    result = function(*[to_local(t, grad) for t, grad in zip(tensors, grads)])
    return from_local(result if isinstance(result, Tensor) else wrap(result, None, None), spec)


class _Weigh(NodeOp):
    """Backward of `weigh`: linear and symmetric, so its own adjoint."""

    name = "weigh"

    @staticmethod
    def pull(node, g):
        return (_weighed(g, node.params),)

    @staticmethod
    def pull_graph(node, g):
        return (weigh(g, node.params),)


WEIGH = _Weigh()


def _weighed(array, weight):
    # Where the weight is 0 the result is 0, also of an infinite or NaN cotangent.
    module = array_module(array)
    return module.where(module.asarray(weight) == 0, array.dtype.type(0), array * weight).astype(array.dtype)


def weigh(x, weight):
    """A local tensor times a constant weight (number or raw array); exactly 0 where that is 0."""
    node = Node(WEIGH, (x._node,), None, weight) if x._node is not None and state.grad_enabled else None
    return wrap(_weighed(x._data, weight), node, None)


def one_of_equals(x, placements, axis):
    """Shares that are equal along a mesh axis, as one Replicate array; each has an n-th part in it, backwards too."""
    part = 1.0 / x._spec.mesh.shape[axis]

    def same(piece):
        node = Node(WEIGH, (piece._node,), None, part) if piece._node is not None else None
        return wrap(piece._data, node, None)

    return map_local(same, [x], x._spec.layout.with_placements(tuple(placements)))


def relabel(x, placements):
    """The same pieces under other placements; gradients go back share for share."""
    layout = x._spec.layout
    target = layout.with_placements(tuple(placements))
    if target == layout:
        return x
    return map_local(lambda piece: piece, [x], target)
