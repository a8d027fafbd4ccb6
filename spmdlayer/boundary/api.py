"""The crossing as functions: from local arrays to distributed tensors and back."""

import operator
import sys

import numpy as np

from ..autograd.backward import no_grad
from ..autograd.tensor import Tensor, as_raw, check_not_in_region, install, wants_grad, wrap
from ..comm import channel
from ..config import settings, state
from ..dtypes import dtype as as_dtype
from ..dtypes import is_inexact
from ..errors import runtime_error, type_error, value_error
from ..layout import Layout
from ..mesh import ProcessMesh
from ..placement import Replicate, normalise
from ..redistribute.agreement import run_agreed
from ..redistribute.crossing import from_local, make_spec
from ..redistribute.reshard import check_target, follow, reshard_spec
from ..runtime import get_world_size, mpi
from .attrs import layout_of, placement_list
from .fence import copies_of_one
from .piece import piece_of
from .placeholder import known_placeholder, placeholder
from .record import exchange_record, pack_record, row_of
from .verify import Sites, check_outputs

_sites = Sites("dtensor_from_local")


def check_mesh(mesh, argument="mesh"):
    """Raise unless it is a ProcessMesh."""
    if not isinstance(mesh, ProcessMesh):
        raise type_error(f"{argument}: a ProcessMesh is needed, {type(mesh).__name__} was given")


def check_distributed(x, function, argument="x"):
    """Raise unless x is a distributed tensor that has a meaning here."""
    if not isinstance(x, Tensor):
        raise type_error(f"{function}: {argument} must be a distributed tensor, {type(x).__name__} was given")
    if x._spec is None:
        raise type_error(
            f"{function}: {argument} is a local tensor; make it distributed with dtensor_from_local or shard_tensor"
        )
    made, here = x._spec.region, state.region
    if (made is None) != (here is None):
        where = (
            f"from outside {here.label}; pass it as an input"
            if here is not None
            else "made inside a region that has ended"
        )
        raise runtime_error(f"{function}: {argument} is a distributed tensor {where}")


def _check_inside(x, function):
    if x._spec.mesh.coordinate is None:
        raise value_error(
            f"{function}: this rank is outside the tensor's mesh, {x._spec.mesh!r}, and has no piece of it; reshard "
            "the tensor to a mesh with this rank"
        )


def dtensor_from_local(local, mesh, placements, shape=None):
    """The distributed tensor whose pieces are the ranks' local arrays.

    Parameters
    ----------
    local : local Tensor or array; this rank's piece.  Along a `Shard(d)` axis
        the ranks' pieces may differ in size along d (also be empty), nowhere else.
    mesh : ProcessMesh
    placements : one per mesh axis
    shape : the global shape, where it is known: then nothing is exchanged,
        and the pieces must have numpy.array_split's sizes

    Returns
    -------
    A distributed Tensor; no data moves and the buffer is shared.  Backward
    gives each rank dL/d(local): its slice for Shard, all of G for Replicate
    and Partial('sum'), G / n for Partial('avg'), and so on.

    Collective over the mesh (one small record), unless `shape` is given.  A
    rank outside the mesh gets a placeholder.

    Raises ValueError, on every rank, where pieces disagree, and where values
    declared Replicate differ, which is checked now and then (see `config`) at
    each place that calls this.
    """
    check_mesh(mesh)
    placements = normalise(placements, mesh.ndim, None, mesh.dim_names)
    if isinstance(local, Tensor) and local._spec is not None:
        raise type_error("dtensor_from_local: local is a distributed tensor already; reshard changes its placements")
    tensor = local if isinstance(local, Tensor) else wrap(as_raw(local, "local"), None, None)
    if mesh.coordinate is None:
        return placeholder(mesh, placements, recorded=tensor._node is not None)
    if shape is not None:
        layout, wanted = _of_shape(tensor, mesh, placements, shape), tensor._node is not None
    else:
        caller = sys._getframe(1)
        layout, wanted = _agreed_layout(tensor, mesh, placements, (caller.f_code.co_filename, caller.f_lineno))
    check_target(tensor.dtype, layout)
    recorded = wanted and is_inexact(tensor.dtype)
    return from_local(tensor, make_spec(mesh, layout), copies_of_one(tensor, layout) if recorded else 1, recorded)


def _of_shape(tensor, mesh, placements, shape):
    try:
        shape = tuple(operator.index(extent) for extent in (shape if isinstance(shape, (tuple, list)) else [shape]))
    except TypeError:
        raise type_error(f"dtensor_from_local: shape: a tuple of integers is needed, {shape!r} was given") from None
    if any(extent < 0 for extent in shape):
        raise value_error(f"dtensor_from_local: shape: {shape} was given; the global shape has no negative extents")
    placements = normalise(placements, mesh.ndim, len(shape), mesh.dim_names)
    layout = Layout(mesh.shape, placements, shape)
    right = layout.local_shape(mesh.coordinate)
    if tensor._data.shape != right:
        raise value_error(
            f"dtensor_from_local: local has shape {tensor._data.shape}, but of global shape {shape} with "
            f"{list(placements)} this rank holds {right} (numpy.array_split's sizes); without shape= the true "
            "sizes are found"
        )
    return layout


def _agreed_layout(tensor, mesh, placements, place):
    """The layout, and whether any rank's piece requires grad.

    Calls are counted by their place in the user's code.  Ranks may be at
    different places: values are compared where all of them ask for it.
    """
    label = "dtensor_from_local"
    site = _sites.of(mesh, (placements, place))
    compare = any(p.kind == "replicate" for p in placements) and site.begin_call()
    rows = (row_of(tensor, compare),)
    tables = exchange_record(channel(mesh, None), pack_record("", rows), rows, label)
    layout = layout_of(mesh, placements, [rows[0].shape for rows in tables], f"{label}: placements")
    if all(rows[0].fingerprint for rows in tables):
        check_outputs(site, tables, [tensor], [layout], mesh, "placements")
    return layout, any(rows[0].requires_grad for rows in tables)


def dtensor_to_local(x, mesh=None, grad_placements=None):
    """This rank's piece of a distributed tensor, as a local tensor.

    Parameters
    ----------
    x : distributed Tensor; a Partial one yields its unreduced piece
    mesh : its ProcessMesh, or None
    grad_placements : how the ranks' local gradients are one gradient of x, one
        placement per mesh axis: Partial('sum') adds them, Shard(d) concatenates
        them, Replicate says that they are equal.  None: x's own placements;
        inside a region with "auto" Partial('sum') where x is Replicate, because
        each rank's gradient there is its part of the whole.

    No data moves and the buffer is shared.  Raises ValueError, on every rank,
    for placements that cannot hold the local gradient, if x requires grad.
    """
    check_distributed(x, "dtensor_to_local")
    if mesh is not None:
        check_mesh(mesh)
        if mesh != x._spec.mesh:
            raise value_error(
                f"dtensor_to_local: mesh {mesh!r} is not the tensor's, {x._spec.mesh!r}; reshard it first"
            )
    _check_inside(x, "dtensor_to_local")
    placements = None if grad_placements is None else placement_list(grad_placements, "grad_placements")
    return piece_of(x, placements, "dtensor_to_local")


def shard_tensor(data, mesh, placements, requires_grad=False, dtype=None, stop_gradient=None):
    """A distributed tensor made from a global array that every rank has.

    Parameters
    ----------
    data : array, number, nested list or local Tensor, equal on all ranks of the
        mesh; or a distributed Tensor, which is resharded
    mesh, placements : where it goes
    requires_grad : make the result a leaf that requires grad
    dtype : of the result; None: of the data
    stop_gradient : Paddle's word for the opposite of requires_grad; None: as that says

    Each rank keeps a copy of its piece; nothing is communicated.  A local
    Tensor that requires grad gets the whole gradient on every rank.
    """
    check_mesh(mesh)
    requires_grad = wants_grad(requires_grad, stop_gradient)
    if isinstance(data, Tensor) and dtype is not None and data.dtype != as_dtype(dtype):
        data = data.astype(dtype)
    if isinstance(data, Tensor) and data._spec is not None:
        result = reshard(data, mesh, placements)
    else:
        result = _shard_local(data, mesh, placements, dtype)
    if requires_grad:
        if result._node is not None:
            raise value_error("shard_tensor: requires_grad=True of data that is on the tape already; detach() it first")
        result = result.detach()  # where nothing had to be done it is the tensor that was given
        result.requires_grad = True
    return result


def _shard_local(data, mesh, placements, dtype):
    raw = as_raw(data, "data", dtype)
    layout = Layout(mesh.shape, normalise(placements, mesh.ndim, raw.ndim, mesh.dim_names), raw.shape)
    check_target(raw.dtype, layout)
    if mesh.coordinate is None:
        return known_placeholder(mesh, layout, raw.dtype)
    whole = Layout(mesh.shape, (Replicate(),) * mesh.ndim, raw.shape)
    if isinstance(data, Tensor) and data._node is not None and state.grad_enabled:
        everywhere = from_local(data, make_spec(mesh, whole), copies_of_one(data, whole))
        return reshard_spec(everywhere, mesh, layout.placements)
    piece = reshard_spec(wrap(raw, None, make_spec(mesh, whole)), mesh, layout.placements)
    return wrap(piece._data.copy(), None, piece._spec)


def unshard_dtensor(x):
    """The global value of a distributed tensor, as a local tensor on every rank.

    Collective over the mesh.  Backward: each rank's local gradient is the
    gradient of the whole, equal on all ranks (Replicate); inside a region with
    "auto" it is the rank's part of that (Partial('sum')).
    """
    check_distributed(x, "unshard_dtensor")
    _check_inside(x, "unshard_dtensor")
    mesh = x._spec.mesh
    whole = reshard_spec(x, mesh, (Replicate(),) * mesh.ndim)
    return piece_of(whole, None, "unshard_dtensor")


def dtensor_from_fn(fn, mesh, placements, *args, **kwargs):
    """`shard_tensor(fn(*args, **kwargs), mesh, placements)`: fn makes the global array on every rank."""
    if not callable(fn):
        raise type_error(f"dtensor_from_fn: fn must be callable, {fn!r} was given")
    return shard_tensor(fn(*args, **kwargs), mesh, placements)


def reshard(x, mesh, placements):
    """The same global array under other placements, or on another mesh.

    Parameters
    ----------
    x : distributed Tensor, global shape S
    mesh : ProcessMesh of the result
    placements : one per axis of that mesh

    Returns
    -------
    A distributed Tensor of global shape S with numpy.array_split's offsets.
    Nothing moves from Replicate to Shard or into Partial; else the cheapest
    plan of collectives runs (`trace` shows it).  Differentiable to any order.

    Collective over the ranks of both meshes.
    """
    spec = x._spec if type(x) is Tensor else None
    if spec is None or spec.region is not state.region:
        check_distributed(x, "reshard")
    if type(mesh) is not ProcessMesh:
        check_mesh(mesh)
    elif mesh is spec.mesh and spec.layout is not None and type(placements) is list and not settings.debug:
        try:
            route = spec.routes.get((*placements, x._data.dtype))
        except TypeError:  # what cannot be hashed is no placement; below this is said
            route = None
        if route is not None:
            return follow(x, route)
    if settings.debug and mesh == x._spec.mesh and mesh.coordinate is not None:
        return run_agreed("reshard", (x,), {"placements": placements}, mesh, lambda: reshard_spec(x, mesh, placements))
    return reshard_spec(x, mesh, placements)


def all_gather(tensor_list, x, comm=None):
    """Every rank's local value of x, by rank (Paddle's form: they are appended to the list).

    Parameters
    ----------
    tensor_list : list, or None
    x : local Tensor, array or number; shapes may differ between ranks
    comm : mpi4py communicator; None: all ranks

    Returns the list.  Collective; off the tape.
    """
    raw = as_raw(x, "x", copy=True)
    mesh = ProcessMesh(list(range(get_world_size() if comm is None else comm.size)), comm=comm)
    line = channel(mesh, None)
    rows = (row_of(wrap(raw, None, None), False),)
    tables = exchange_record(line, pack_record("", rows), rows, "all_gather")
    pieces = line.allgather(raw, [rows[0].shape for rows in tables])
    result = tensor_list if tensor_list is not None else []
    result.extend(wrap(piece, None, None) for piece in pieces)
    return result


def print_once(*values, **kwargs):
    """`print`, by the first rank alone; every rank calls it.

    Distributed tensors among the values show their global value, so all ranks
    take part in getting it; one whose mesh does not contain the first rank
    shows its layout.
    """
    texts = [repr(value) if _is_elsewhere(value) else str(value) for value in values]
    if mpi().COMM_WORLD.rank == 0:
        print(*texts, **kwargs)


def _is_elsewhere(value):
    return isinstance(value, Tensor) and value._spec is not None and value._spec.mesh.coordinate is None


# Tensor's methods ----------------------------------------------------------


def _to_global(self):
    check_not_in_region("the value")
    mesh = self._spec.mesh
    _check_inside(self, "the value of a distributed tensor")
    with no_grad():
        whole = reshard_spec(self, mesh, (Replicate(),) * mesh.ndim)
    return np.array(whole._data)


def _to_local(self, grad_placements=None):
    """`dtensor_to_local(self, grad_placements=...)`."""
    return dtensor_to_local(self, grad_placements=grad_placements)


def _reshard(self, mesh, placements=None):
    """`reshard(self, mesh, placements)`; the mesh may be left out."""
    if placements is None and not isinstance(mesh, ProcessMesh):
        check_distributed(self, "reshard")
        mesh, placements = self._spec.mesh, mesh
    return reshard(self, mesh, placements)


install(_to_global=_to_global, to_local=_to_local, reshard=_reshard)
