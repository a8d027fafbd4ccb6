"""ProcessMesh: ranks arranged in a grid whose axes have sizes and, if wanted, names.

Making a mesh communicates nothing.  Meshes of equal value are one object while
their communicator lives, so comparing them is cheap.
"""

import math
import operator

import numpy as np

from .errors import type_error, value_error
from .runtime import home, mpi, subgroup


class ProcessMesh:
    """A grid of some or all ranks of a communicator, in any order.

    Parameters
    ----------
    mesh : nested list or integer array of ranks of `comm`, at least one
        Its shape is the shape of the grid.
    dim_names : sequence of str, one an axis, or None
    comm : mpi4py.MPI.Intracomm, by default MPI.COMM_WORLD
        The library duplicates from it what it needs and sends nothing on it.

    Attributes
    ----------
    shape : tuple of int; ndim : int; size : int, the number of ranks
    dim_names : tuple of str, or None
    process_ids : tuple of int, the ranks in mesh order (the last axis fastest)
    mesh : read-only integer array of the ranks
    coordinate : tuple of int, where this process is, or None outside the mesh
    rank : int, this process's place in `process_ids`, or None outside
    comm : the communicator given

    Raises ValueError for duplicate ranks, ranks that the communicator does not
    have and names that do not fit; TypeError for what are no ranks, names or
    communicators.  Every rank checks its own arguments; nothing is sent.

    Examples
    --------
    >>> mesh = ProcessMesh([[0, 1], [2, 3]], dim_names=["x", "y"])
    >>> mesh.shape
    (2, 2)
    """

    __slots__ = (
        "__weakref__",
        "_hash",
        "_home",
        "channels",
        "comm",
        "coordinate",
        "dim_names",
        "mesh",
        "ndim",
        "process_ids",
        "rank",
        "shape",
        "size",
    )

    def __new__(cls, mesh, dim_names=None, comm=None):
        comm = _checked_comm(comm)
        ranks = _checked_ranks(mesh, comm.size)
        names = _checked_names(dim_names, ranks.ndim)
        value = (tuple(ranks.ravel().tolist()), ranks.shape, names)
        meshes = home(comm).meshes
        found = meshes.get(value)
        if found is None:
            found = meshes[value] = object.__new__(cls)
            found._fill(ranks, value, comm)
        return found

    def _fill(self, ranks, value, comm):
        self.process_ids, self.shape, self.dim_names = value
        self.ndim = len(self.shape)
        self.size = len(self.process_ids)
        self.mesh = ranks
        self.comm = comm
        self.rank = self.process_ids.index(comm.rank) if comm.rank in self.process_ids else None
        self.coordinate = None
        if self.rank is not None:
            self.coordinate = tuple(int(i) for i in np.unravel_index(self.rank, self.shape))
        self.channels = {}  # what comm.channel keeps for this mesh
        self._home = home(comm)
        self._hash = hash(value)

    def axis(self, axis):
        """The number of a mesh axis, given by number (negative ones count from the end) or by name.

        Raises ValueError for an axis that the mesh has not, TypeError for
        anything else.
        """
        if isinstance(axis, str):
            if self.dim_names is None or axis not in self.dim_names:
                names = "has no names" if self.dim_names is None else f"has the axes {list(self.dim_names)}"
                raise value_error(f"axis: the mesh of shape {self.shape} {names}; {axis!r} was given")
            return self.dim_names.index(axis)
        number = _integer(axis)
        if number is None:
            raise type_error(f"axis: the number or name of a mesh axis is needed, {axis!r} was given")
        if not -self.ndim <= number < self.ndim:
            raise value_error(
                f"axis: the mesh of shape {self.shape} has axes {-self.ndim} to {self.ndim - 1}; {number} was given"
            )
        return number % self.ndim

    def get_dim_size(self, axis):
        """The number of ranks along an axis, given by name or number."""
        return self.shape[self.axis(axis)]

    def ranks_along(self, axes=None):
        """The ranks of `comm` that differ from this one only in its coordinates on some axes, in mesh order.

        Parameters
        ----------
        axes : number or name of an axis, a sequence of them, or None for the whole mesh

        Returns
        -------
        tuple of int; for a process outside the mesh the empty tuple
        """
        if self.coordinate is None:
            return ()
        if axes is None:
            return self.process_ids
        axes = axes if isinstance(axes, (tuple, list)) else (axes,)
        open_axes = {self.axis(axis) for axis in axes}
        index = tuple(slice(None) if k in open_axes else i for k, i in enumerate(self.coordinate))
        return tuple(np.ravel(self.mesh[index]).tolist())

    def get_group(self, axis=None):
        """The communicator of the ranks along one axis through this process.

        Collective over these ranks the first time; kept from then on.

        Parameters
        ----------
        axis : number or name of a mesh axis; a sequence of them; or None for the whole mesh

        Returns
        -------
        mpi4py.MPI.Intracomm, ranks in mesh order; None outside the mesh.  It
        is the library's: use it, but do not free it.
        """
        ranks = self.ranks_along(axis)
        return subgroup(self.comm, ranks) if ranks else None

    def __contains__(self, rank):
        return rank in self.process_ids

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, ProcessMesh):
            return NotImplemented
        return (
            self._home is other._home
            and self.process_ids == other.process_ids
            and self.shape == other.shape
            and self.dim_names == other.dim_names
        )

    def __hash__(self):
        return self._hash

    def __repr__(self):
        names = "" if self.dim_names is None else f", dim_names={list(self.dim_names)}"
        return f"ProcessMesh({self.mesh.tolist()}{names})"

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return ProcessMesh, (self.mesh.tolist(), self.dim_names, self.comm)


def init_mesh(shape, dim_names=None, comm=None):
    """A mesh of the first ranks of a communicator, in order.

    Parameters
    ----------
    shape : int or sequence of int, all positive, of at most `comm.size` ranks in all
    dim_names : sequence of str, one an axis, or None
    comm : mpi4py.MPI.Intracomm, by default MPI.COMM_WORLD

    Returns
    -------
    ProcessMesh.  Nothing is communicated.

    Examples
    --------
    >>> mesh = init_mesh((2, 2), ("data", "model"))
    """
    comm = _checked_comm(comm)
    sizes = (shape,) if _integer(shape) is not None else shape
    if isinstance(sizes, (str, bytes)) or not hasattr(sizes, "__iter__"):
        raise type_error(f"shape: an int or a sequence of ints is needed, {shape!r} was given")
    numbers = tuple(_integer(n) for n in sizes)
    if None in numbers:
        raise type_error(f"shape: an int or a sequence of ints is needed, {shape!r} was given")
    if not numbers or min(numbers) < 1:
        raise value_error(f"shape: at least one axis and positive sizes are needed, {shape!r} was given")
    count = math.prod(numbers)
    if count > comm.size:
        raise value_error(f"shape: {numbers} needs {count} ranks, the communicator has {comm.size}")
    return ProcessMesh(np.arange(count).reshape(numbers), dim_names, comm)


def _integer(value):
    """An int for what is an integer and no bool, else None."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _checked_comm(comm):
    MPI = mpi()
    if comm is None:
        return MPI.COMM_WORLD
    if not isinstance(comm, MPI.Comm):
        raise type_error(f"comm: an mpi4py communicator is needed, {type(comm).__name__} was given")
    if comm == MPI.COMM_NULL:
        raise value_error(
            "comm: MPI.COMM_NULL was given (or one that is freed); give a communicator that this process is in"
        )
    if comm.Is_inter():
        raise value_error("comm: an intercommunicator was given; give an intracommunicator (Merge makes one)")
    return comm


def _checked_ranks(mesh, size):
    try:
        ranks = np.array(mesh, order="C")
    except ValueError:
        raise value_error(f"mesh: its rows differ in length: {mesh!r}; give every axis one size") from None
    if ranks.ndim == 0:
        raise type_error(f"mesh: a nested list or an array of ranks is needed, {mesh!r} was given")
    if ranks.size == 0:
        raise value_error(f"mesh: it has no ranks: {mesh!r}; give at least one")
    if ranks.dtype.kind not in "iu":
        raise type_error(f"mesh: ranks are integers, {ranks.dtype} was given: {mesh!r}")
    flat = ranks.ravel().tolist()
    beyond = sorted({rank for rank in flat if not 0 <= rank < size})
    if beyond:
        raise value_error(f"mesh: ranks {beyond} are not in the communicator, which has the ranks 0 to {size - 1}")
    seen = set()
    twice = sorted({rank for rank in flat if rank in seen or seen.add(rank)})
    if twice:
        raise value_error(f"mesh: ranks {twice} stand in it more than once: {ranks.tolist()}; every rank has one place")
    ranks = ranks.astype(np.int64)
    ranks.flags.writeable = False
    return ranks


def _checked_names(dim_names, ndim):
    if dim_names is None:
        return None
    if isinstance(dim_names, (str, bytes)) or not hasattr(dim_names, "__iter__"):
        raise type_error(
            f"dim_names: a sequence of names is needed, {dim_names!r} was given; for one axis ({dim_names!r},)"
        )
    names = tuple(dim_names)
    if not all(isinstance(name, str) for name in names):
        raise type_error(f"dim_names: names are str, {list(names)} was given")
    if len(names) != ndim:
        raise value_error(f"dim_names: {len(names)} names were given, {list(names)}, for {ndim} mesh axes")
    if len(set(names)) != len(names):
        raise value_error(f"dim_names: every name stands once, {list(names)} was given")
    return names
