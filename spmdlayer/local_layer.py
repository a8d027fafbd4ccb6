"""`LocalLayer`: the boundary as a layer."""

from .autograd.tensor import Tensor
from .boundary.attrs import parse_attrs, parse_outs
from .boundary.region import Boundary
from .config import state
from .errors import type_error
from .nn.layer import Layer

_MAY_HOLD_TENSORS = (Tensor, Layer, list, tuple, dict)


class LocalLayer(Layer):
    """A layer whose `forward` runs on each rank's own local tensors.

    Outside, inputs and outputs are distributed tensors; inside, each rank has
    its own arrays and plain Python that may differ from rank to rank.

    Parameters
    ----------
    out_dist_attrs : list
        For each output (nested outputs flattened, dicts in sorted key order)
        `(mesh, placements)`, placements alone where the mesh can be taken from
        the inputs, or None for an output that stays local.
    grad_dist_attrs : list, None or "auto"
        For each input how the ranks' local gradients are one gradient:
        `(mesh, placements)`, placements, or None for the input's own.  A
        replicated input that ranks use for different work has
        `Partial('sum')`.  "auto" is right whatever the local code does.
    recompute : bool
        Run forward again in backward instead of keeping its graph.

    The layer's own distributed tensors are inputs too: inside forward they are
    local, and their gradients are summed over the ranks (with attrs, where all
    floating outputs are Replicate, averaged: every rank got the whole gradient).
    Distributed keyword arguments are inputs with None as attr.  A call
    exchanges one small record along the mesh.  A rank outside the mesh gets
    placeholders.

    Raises ValueError or TypeError, on every rank: wrong numbers of attrs,
    placements that do not fit, and now and then (see `config`) values or
    gradients declared Replicate that differ between ranks.

    Examples
    --------
    >>> class MaskedMean(LocalLayer):
    ...     def __init__(self, mesh):
    ...         super().__init__([(mesh, [Partial("sum")])], [(mesh, [Shard(0)])])
    ...     def forward(self, x):
    ...         mask = zeros_like(x)
    ...         mask[1:3] = 1
    ...         return (x * mask).sum() / mask.sum()
    """

    def __init__(self, out_dist_attrs, grad_dist_attrs=None, recompute=False):
        name = type(self).__name__
        outs = parse_outs(out_dist_attrs, f"{name}: out_dist_attrs")
        grads = parse_attrs(grad_dist_attrs, f"{name}: grad_dist_attrs")
        self._boundary = Boundary(name, outs, grads, recompute=recompute)

    @property
    def out_dist_attrs(self):
        """What was declared of the outputs."""
        return self._boundary.outs

    @property
    def grad_dist_attrs(self):
        """What was declared of the inputs' gradients."""
        return self._boundary.grads

    def __call__(self, *inputs, **kwargs):
        attributes = self.__dict__
        boundary = attributes.get("_boundary")
        if boundary is None:
            raise type_error(
                f"{type(self).__name__}: call super().__init__(out_dist_attrs, grad_dist_attrs) in __init__"
            )
        # One from another region, such as a result kept in an attribute, has no piece here; using it raises.
        captures = ()
        for value in attributes.values():
            if isinstance(value, _MAY_HOLD_TENSORS):
                captures = [t for _, t in self.named_tensors() if t.is_dist() and t._spec.region is state.region]
                break
        return boundary(self.forward, inputs, kwargs, captures)
