"""A distributed tensor's piece as a local tensor, as users ask for it: what its gradients are read as, and verified."""

from ..autograd.tensor import wrap
from ..config import state
from ..redistribute.crossing import TO_LOCAL, ToLocal, communicating_node
from .attrs import auto_layout, check_inside_auto, gradient_layout
from .verify import Sites, check_gradient


class _Verified(ToLocal):
    """Backward where local gradients are declared Replicate: they are compared now and then.

    Its params: as those of ToLocal, then the Site, the mesh axes to compare
    along, and what declares it.
    """

    def pull(self, node, g):
        g = self.zero(node.params[2]) if g is None else g
        _verify(node.params, g)
        return super().pull(node, g)

    def pull_graph(self, node, g):
        g = wrap(self.zero(node.params[2]), None, None) if g is None else g
        _verify(node.params, g._data)
        return super().pull_graph(node, g)


def _verify(params, g):
    spec, *_, site, axes, name = params
    check = site.begin_backward()
    if check is not None:
        check.entering(g)
        check_gradient(check, g, spec.mesh, axes, name)


_VERIFIED = _Verified()
_sites = {function: Sites(function) for function in ("dtensor_to_local", "unshard_dtensor")}


def piece_of(x, placements, function):
    """This rank's piece of a distributed tensor, for a public function of that name.

    `placements` are those of its gradient, or None.  Calls are counted by
    layout, not by their place in the code, where ranks may be at others.
    """
    data, spec = x._data, x._spec
    argument = f"{function}: grad_placements"
    layout = _read_layout(x, placements, argument)
    if x._node is None or not state.grad_enabled:
        return wrap(data, None, None)
    params = (spec, layout, (data.shape, data.dtype, type(data)))
    rows = zip(layout.placements, spec.placements, spec.mesh.shape)
    axes = tuple(k for k, (read, own, size) in enumerate(rows) if read.kind == own.kind == "replicate" and size > 1)
    if not axes:
        return wrap(data, communicating_node(TO_LOCAL, (x._node,), None, params), None)
    name = "grad_placements" if placements is not None else "grad_placements (None: the tensor's own)"
    site = _sites[function].of(spec.mesh, layout)
    return wrap(data, communicating_node(_VERIFIED, (x._node,), None, (*params, site, axes, name)), None)


def _read_layout(x, placements, argument):
    """How the local gradients are read, by what is declared or None."""
    auto, spec = state.region is not None and state.region.auto, x._spec
    if auto and placements is None:
        placements = (None,) * len(spec.placements)
    layout = gradient_layout((None, placements), spec, argument, x._node is not None)
    if auto and x._node is not None:
        check_inside_auto(spec.layout, placements, state.region, argument)
        own = zip(layout.placements, placements, auto_layout(spec.layout).placements)
        layout = layout.with_placements(tuple(summed if given is None else read for read, given, summed in own))
    return layout
