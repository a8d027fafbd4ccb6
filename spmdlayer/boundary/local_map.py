"""`local_map`: a function of local arrays as a function of distributed tensors."""

from functools import wraps

from ..autograd.tensor import Tensor
from ..errors import type_error
from .api import check_mesh
from .attrs import parse_attrs, parse_outs
from .region import Boundary


def local_map(
    fn,
    out_placements,
    in_placements=None,
    in_grad_placements="auto",
    process_mesh=None,
    reshard_inputs=False,
    captures=(),
    recompute=False,
):
    """Wrap a function of local tensors as one of distributed tensors.

    Parameters
    ----------
    fn : plain Python on each rank's own local tensors; may differ from rank to rank
    out_placements : a list with, for each (flattened) output, placements,
        (mesh, placements), or None for an output that stays local
    in_placements : None, or a list with an entry for each input that it must have
        (None: anything)
    in_grad_placements : "auto", right whatever fn does; or None or a list with
        the placements in which each input's local gradients are read
    process_mesh : the mesh, where neither placements nor inputs give it
    reshard_inputs : bring inputs to `in_placements` instead of raising
    captures : distributed tensors that fn refers to; they are local inside
    recompute : run fn again in backward instead of keeping its graph

    Returns a function.  A call exchanges one small record along the mesh;
    backward communicates what the gradient placements need.

    Raises ValueError or TypeError, on every rank, for wrong numbers of
    entries, placements that do not fit and inputs that are not as declared,
    and now and then (see `config`) where values declared Replicate differ.
    """
    if not callable(fn):
        raise type_error(f"local_map: fn must be callable, {fn!r} was given")
    if process_mesh is not None:
        check_mesh(process_mesh, "local_map: process_mesh")
    if isinstance(captures, Tensor):
        raise type_error("local_map: captures must be a list of tensors, a Tensor was given")
    captures = tuple(captures)
    boundary = Boundary(
        f"local_map({getattr(fn, '__name__', type(fn).__name__)})",
        parse_outs(out_placements, "local_map: out_placements"),
        parse_attrs(in_grad_placements, "local_map: in_grad_placements"),
        ins=None if in_placements is None else parse_outs(in_placements, "local_map: in_placements"),
        reshard_inputs=reshard_inputs,
        mesh=process_mesh,
        recompute=recompute,
        names=("out_placements", "in_grad_placements", "in_placements"),
    )

    @wraps(fn)
    def wrapped(*args, **kwargs):
        return boundary(fn, args, kwargs, captures)

    return wrapped
