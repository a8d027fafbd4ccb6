"""Distributed leaves and roots: gradients as users see them.

A gradient has the natural placements of its tensor: Shard and Replicate as
the tensor, Replicate for a Partial sum or mean, the shares as Partial('sum')
for max and min.
"""

from ..array import array_module, is_array
from ..autograd.backward import enable_grad
from ..autograd.tape import upper
from ..autograd.tensor import Tensor, wrap
from ..comm import channel
from ..config import state
from ..errors import runtime_error, type_error, value_error
from ..layout import Layout
from ..placement import Replicate
from .agree import same_values
from .between import no_data
from .crossing import OWN, REPLICATE, SUM, DistributedOp, make_spec, map_local, one_of_equals, relabel
from .reshard import add_cotangents, conform, reshard_spec, reshard_to, without_partials
from .shares import share


def natural(spec, g):
    """A cotangent of a distributed tensor as users see it; may communicate.  A rank outside the mesh sees nothing."""
    if spec.mesh.coordinate is None:
        return g
    if g._spec.layout is not spec.layout:
        g = conform(g, spec)
    for axis, placement in enumerate(spec.placements):
        if placement.kind == "partial":
            g = _seen_partial(g, axis, placement.op)
    return g


def _seen_partial(g, axis, op):
    placements = list(g._spec.placements)
    if op in ("sum", "avg"):
        if placements[axis].kind == "own":
            if not same_values(g._data, channel(g._spec.mesh, axis)):
                raise runtime_error(
                    f"the gradient of a Partial({op!r}) tensor is not one array: its pieces were used separately, so "
                    "the ranks' shares differ. Reshard the tensor to Replicate() first"
                )
            placements[axis] = REPLICATE
            g = one_of_equals(g, placements, axis)
        if op == "avg":
            size = g._spec.mesh.shape[axis]
            g = map_local(lambda piece: piece * size, [g], g._spec.layout)
        return g
    if op == "prod":
        raise value_error(
            "the gradient of a Partial('prod') leaf: its shares have no sum that means anything; reshard the tensor "
            "first"
        )
    if placements[axis].kind == "replicate":
        size = g._spec.mesh.shape[axis]
        return map_local(lambda piece: piece * size, [g], g._spec.layout)
    placements[axis] = SUM
    return relabel(g, placements)


def from_natural(spec, g):
    """The cotangent of a tensor of this spec that users see as `g`: the inverse of `natural`."""
    for axis, placement in enumerate(spec.placements):
        if placement.kind != "partial":
            continue
        shares = placement.op in ("max", "min")
        placements = list(g._spec.placements)
        placements[axis] = SUM if shares else REPLICATE
        g = reshard_to(g, g._spec.layout.with_placements(tuple(placements)))
        if shares:
            placements[axis] = OWN
            g = relabel(g, placements)
        elif placement.op == "avg":
            size = spec.mesh.shape[axis]
            g = map_local(lambda piece, size=size: piece / size, [g], g._spec.layout)
    return g


class _DistributedLeaf(DistributedOp):
    name = "leaf"
    keeps = True

    @staticmethod
    def pull(node, g):
        if state.engine.wanted is None and g is not None:
            layout = node.spec.layout
            if g._spec.layout is not layout or layout is None or layout.partial:
                g = natural(node.spec, g)
            fresh = node.grad is None or node.spec.mesh.coordinate is None
            node.grad = g if fresh else add_cotangents(node.grad, g)
        return ()

    pull_graph = pull


def seed(root, given):
    """Where to start backward from a distributed root, and with which cotangent.

    For a Partial root backward is that of its reshard to Replicate, and
    `given` is the cotangent G of that.  Returns (node, cotangent).  A rank
    outside the mesh starts without data.
    """
    spec = root._spec
    mesh = spec.mesh
    if mesh.coordinate is None:
        return root._node, no_data(spec)
    if type(given) is Tensor and given._spec is spec and not spec.layout.partial:
        return root._node, given
    partial = [(axis, p.op) for axis, p in enumerate(spec.placements) if p.kind == "partial"]
    plain = without_partials(spec.layout) if partial else spec.layout
    if given is None:
        g = wrap(array_module(root._data).ones(root._data.shape, root.dtype), None, make_spec(mesh, plain))
    elif isinstance(given, Tensor) and given._spec is not None:
        if given.shape != spec.shape:
            raise value_error(f"grad_outputs: global shape {given.shape} was given, the root has {spec.shape}")
        g = reshard_to(reshard_spec(given, mesh, plain.placements), plain)
    else:
        g = reshard_to(_replicated(given, root, mesh), plain)
    if all(op in ("sum", "avg") for _, op in partial):
        for axis, op in partial:
            g = share(g, axis, op)
        return root._node, g
    with enable_grad():
        return reshard_to(root, plain)._node, g


def _replicated(given, root, mesh):
    raw = given._data if isinstance(given, Tensor) else given
    if not is_array(raw):
        raw = array_module(root._data).asarray(raw)
    if raw.shape != root.shape:
        raise value_error(
            f"grad_outputs: shape {raw.shape} was given, the root's global shape is {root.shape}; give a distributed "
            "tensor, or the whole cotangent on every rank"
        )
    layout = Layout(mesh.shape, (Replicate(),) * len(mesh.shape), raw.shape)
    return wrap(raw.astype(root.dtype), None, make_spec(mesh, layout))


def zeros_like_gradient(tensor):
    """The gradient of a distributed tensor that nothing reached."""
    if tensor._spec.mesh.coordinate is None:
        return no_data(tensor._spec)
    for placement in tensor._spec.placements:
        if placement.kind == "partial" and placement.op not in ("sum", "avg"):
            raise type_error("a Partial max, min or prod tensor that no output depends on has no gradient to show")
    layout = without_partials(tensor._spec.layout)
    data = tensor._data
    return wrap(array_module(data).zeros(data.shape, data.dtype), None, make_spec(tensor._spec.mesh, layout))


upper.leaf = _DistributedLeaf()
upper.natural = natural
upper.from_natural = from_natural
upper.seed = seed
upper.zeros = zeros_like_gradient
