"""What collectives are given: communicators, ranks and values, checked before anything is sent."""

import json

from ..array import to_numpy
from ..autograd.tensor import Tensor, as_raw, wrap
from ..comm import channel
from ..dtypes import dtype as as_dtype
from ..errors import type_error, value_error
from ..mesh import ProcessMesh
from ..runtime import get_world_size, mpi


def line_of(comm, name):
    """The Channel of a communicator, a mesh, or a pair of a mesh and one of its axes; None: of all ranks."""
    if comm is None:
        return channel(ProcessMesh(range(get_world_size())), None)
    mesh, axis = comm if isinstance(comm, tuple) and len(comm) == 2 else (comm, None)
    if isinstance(mesh, ProcessMesh):
        if mesh.coordinate is None:
            raise value_error(f"{name}: comm: this rank is not in {mesh!r}")
        return channel(mesh, axis if axis is None else mesh.axis(axis))
    if axis is None and isinstance(mesh, mpi().Intracomm):
        return channel(ProcessMesh(range(mesh.size), comm=mesh), None)
    raise type_error(
        f"{name}: comm: an mpi4py communicator, a ProcessMesh or a pair (mesh, axis) is needed, {comm!r} was given"
    )


def rank_of(value, line, name, argument):
    """A rank of the group, as an int."""
    try:
        rank = value.__index__()
    except AttributeError:
        raise type_error(f"{name}: {argument}: a rank is needed, {value!r} was given") from None
    if not 0 <= rank < line.size:
        raise value_error(f"{name}: {argument}: {rank} was given; the ranks here are 0 to {line.size - 1}")
    return rank


def local(value, name, argument="x"):
    """A local Tensor: the one given, or one around an array or number."""
    if isinstance(value, Tensor):
        if value._spec is not None:
            raise type_error(
                f"{name}: {argument} is a distributed tensor; collectives are for local ones: take its piece with "
                "to_local(), or reshard it"
            )
        return value
    return wrap(as_raw(value, f"{name}: {argument}"), None, None)


def one_for_each(values, line, name, argument):
    """A list of local Tensors of one dtype, one for each rank."""
    if not isinstance(values, (list, tuple)) or len(values) != line.size:
        given = f"{len(values)} values" if isinstance(values, (list, tuple)) else f"a {type(values).__name__}"
        right = f"a list with one value for each of {line.size} ranks is needed"
        raise value_error(f"{name}: {argument}: {right}, not {given}")
    tensors = [local(value, name, f"{argument}[{k}]") for k, value in enumerate(values)]
    kinds = sorted({tensor.dtype.name for tensor in tensors})
    if len(kinds) > 1:
        raise type_error(f"{name}: {argument} has several dtypes: {', '.join(kinds)}; one is needed")
    return tensors


def tell(line, tensors, dtype=None):
    """Every rank's (shapes, dtype) of what it sends, by rank; None among `tensors` for nothing."""
    shapes = [None if tensor is None else tensor.shape for tensor in tensors]
    given = next((tensor.dtype for tensor in tensors if tensor is not None), dtype)
    mine = json.dumps([shapes, None if given is None else given.name]).encode()
    return [_parsed(row) for row in line.record(mine)]


def _parsed(row):
    shapes, name = json.loads(bytes(row))
    return [None if shape is None else tuple(shape) for shape in shapes], None if name is None else as_dtype(name)


def common_dtype(rows, name):
    """The one dtype that all ranks send; a TypeError on every rank where there are several."""
    kinds = sorted({dtype.name for _, dtype in rows if dtype is not None})
    if len(kinds) > 1:
        raise type_error(f"{name}: the ranks send several dtypes: {', '.join(kinds)}; one is needed")
    return as_dtype(kinds[0])


def host(tensor):
    """A tensor's array, in host memory."""
    return to_numpy(tensor._data)
