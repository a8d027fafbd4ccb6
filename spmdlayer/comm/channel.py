"""Channel: a group of ranks that exchange raw arrays.

The only way of data to MPI.  Every rank of the group makes the same calls in
the same order; what the others' shapes are the callers know, from the layout.
"""

import functools
import math
import struct

import numpy as np

from ..errors import value_error
from ..runtime import mpi
from . import exchange, reduce
from .exchange import contiguous, native
from .gate import gated, watchers

_LENGTH = struct.Struct("<I")
_ROW = struct.Struct("<I508s")
_RECORD = _ROW.size
_SHORT = _RECORD - _LENGTH.size


def channel(mesh, axes):
    """The Channel of the ranks along some axes of a mesh that this rank belongs to.

    Parameters
    ----------
    mesh : ProcessMesh
    axes : number or name of an axis, a tuple of them, or None for the whole mesh

    Collective over these ranks the first time; kept from then on.
    """
    try:
        return mesh.channels[axes]
    except KeyError:
        return _open(mesh, axes)


def _open(mesh, axes):
    if mesh.coordinate is None:
        raise value_error(f"mesh: this rank is not among {list(mesh.process_ids)}, so it cannot take part")
    if axes is None:
        label = "mesh"
    else:
        numbers = tuple(mesh.axis(axis) for axis in (axes if isinstance(axes, tuple) else (axes,)))
        labels = tuple(mesh.dim_names[number] if mesh.dim_names else number for number in numbers)
        label = labels[0] if len(labels) == 1 else labels
    alone = len(mesh.ranks_along(axes)) == 1
    made = mesh.channels[axes] = Channel(mpi().COMM_SELF if alone else mesh.get_group(axes), label)
    return made


@functools.cache
def _operations():
    MPI = mpi()
    return {name: getattr(MPI, name) for name in ("SUM", "PROD", "MAX", "MIN", "LOR", "LAND")}


def _shapes(arrays):
    return [array.shape for array in arrays]


class Channel:
    """Collectives on raw arrays over the ranks of one communicator.

    Inputs may have any strides and byte order; results are fresh arrays in C
    order and native byte order, the same bits on every rank.  Only where the
    group has one rank a result may be the input itself; then MPI is not
    called.  All ranks give the same dtype.

    Attributes
    ----------
    rank, size : int, this rank's place in the group, and the number of ranks
    label : the mesh axis: its name, else its number, a tuple of them, or "mesh"
    mpi : the mpi4py communicator
    threads : bool, whether MPI may be called by several threads at once
    """

    __slots__ = ("_received", "_sent", "label", "mpi", "operations", "rank", "size", "threads")

    def __init__(self, comm, label):
        MPI = mpi()
        self.mpi = comm
        self.rank = comm.rank
        self.size = comm.size
        self.label = label
        self.threads = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self.operations = _operations()
        self._sent = [bytearray(_RECORD), _RECORD, MPI.BYTE]
        self._received = [bytearray(_RECORD * self.size), _RECORD, MPI.BYTE]

    def __repr__(self):
        return f"Channel({self.label!r}, rank {self.rank} of {self.size})"

    # Each collective on arrays is prepared for shapes and a dtype, and may then be carried out many times.

    def prepare_allreduce(self, shape, dtype, op):
        """A function of arrays of one shape and dtype, as `allreduce`."""
        nbytes = math.prod(shape) * dtype.itemsize
        sent = -(-2 * nbytes * (self.size - 1) // self.size)
        return gated(self, "allreduce", sent, reduce.prepare_allreduce(self, shape, dtype, op))

    def allreduce(self, x, op):
        """The reduction of every rank's array, on every rank.

        Parameters
        ----------
        x : array of one shape on all ranks
        op : "sum", "avg", "max", "min", "prod", "any" or "all"

        float16 and bfloat16 are accumulated in float32; max and min keep NaN.
        Raises TypeError for a dtype that cannot be reduced so.
        """
        return self.prepare_allreduce(x.shape, native(x.dtype), op)(x)

    # Where a list of `cuts` is given, the blocks are these indices of one array, which the function takes.

    def prepare_reduce_scatter(self, shapes, dtype, op, cuts=None):
        """A function of blocks of these shapes and one dtype, as `reduce_scatter`."""
        call = reduce.prepare_reduce_scatter(self, shapes, dtype, op, cuts)
        return gated(self, "reduce_scatter", self._bytes_to_others(shapes, dtype), call)

    def reduce_scatter(self, blocks, op):
        """This rank's block, reduced over every rank.

        Parameters
        ----------
        blocks : list of arrays, block i for rank i; its shape is one on all ranks
        op : as for `allreduce`
        """
        return self.prepare_reduce_scatter(_shapes(blocks), native(blocks[self.rank].dtype), op)(blocks)

    def prepare_allgather(self, dtype, shapes):
        """A function of an array, as `allgather`."""
        if self.size == 1:
            return lambda x: [contiguous(x)]
        sent = math.prod(shapes[self.rank]) * dtype.itemsize * (self.size - 1)
        return gated(self, "allgather", sent, exchange.prepare_allgather(self, dtype, shapes))

    def allgather(self, x, shapes):
        """List of every rank's array; `shapes` are all their shapes."""
        return self.prepare_allgather(native(x.dtype), shapes)(x)

    def prepare_allgather_into_dim(self, shape, dtype, dim, sizes):
        """A function of arrays of one shape and dtype, as `allgather_into_dim`."""
        if self.size == 1:
            return contiguous
        sent = math.prod(shape) * dtype.itemsize * (self.size - 1)
        call = exchange.prepare_allgather_into_dim(self, shape, dtype, dim, sizes)
        return gated(self, "allgather", sent, call)

    def allgather_into_dim(self, x, dim, sizes):
        """Every rank's array, concatenated along `dim`; `sizes` are their extents there."""
        return self.prepare_allgather_into_dim(x.shape, native(x.dtype), dim, sizes)(x)

    def prepare_alltoall(self, sent, dtype, shapes, cuts=None):
        """A function of blocks of the shapes `sent` and one dtype, as `alltoall`."""
        if self.size == 1:
            return exchange.of_blocks(lambda blocks: [contiguous(blocks[0])], cuts)
        call = exchange.of_blocks(exchange.prepare_alltoall(self, sent, dtype, shapes), cuts)
        return gated(self, "alltoall", self._bytes_to_others(sent, dtype), call)

    def prepare_alltoall_begun(self, sent, dtype, shapes):
        """As `prepare_alltoall`, but the function returns once all is under way.

        It gives a function that waits and returns what came; until then the
        blocks must stay as they are, and the channel is not used otherwise.
        """
        if self.size == 1:
            return lambda blocks: lambda: [contiguous(blocks[0])]
        begin = exchange.prepare_alltoall_begun(self, sent, dtype, shapes)
        wait = gated(self, "alltoall", self._bytes_to_others(sent, dtype), lambda finish: finish())

        def begun(blocks):
            finish = begin(blocks)
            return lambda: wait(finish)

        return begun

    def alltoall(self, blocks, shapes):
        """List of what each rank sent to this one.

        Parameters
        ----------
        blocks : list of arrays of one dtype, block i to rank i; empty ones cost nothing
        shapes : of what comes from each rank

        This rank's own block comes back as it is, in C order.
        """
        return self.prepare_alltoall(_shapes(blocks), native(blocks[self.rank].dtype), shapes)(blocks)

    def prepare_alltoall_into_dim(self, sent, dtype, dim, sizes, cuts=None):
        """A function of blocks of the shapes `sent` and one dtype, as `alltoall_into_dim`."""
        if self.size == 1:
            return exchange.of_blocks(lambda blocks: contiguous(blocks[0]), cuts)
        call = exchange.prepare_alltoall_into_dim(self, sent, dtype, dim, sizes, cuts)
        return gated(self, "alltoall", self._bytes_to_others(sent, dtype), call)

    def alltoall_into_dim(self, blocks, dim, sizes):
        """What each rank sent to this one, concatenated along `dim`.

        Parameters
        ----------
        blocks : list of arrays of one dtype, block i to rank i
        sizes : the extents along `dim` of what comes from each rank; the other extents are this rank's own block's
        """
        return self.prepare_alltoall_into_dim(_shapes(blocks), native(blocks[self.rank].dtype), dim, sizes)(blocks)

    def _bytes_to_others(self, shapes, dtype):
        return sum(math.prod(shape) for rank, shape in enumerate(shapes) if rank != self.rank) * dtype.itemsize

    def bcast(self, x, root, shape, dtype):
        """The root's array on every rank; the others give None, and its shape and dtype."""
        if self.rank == root:
            x = contiguous(x)
        if self.size == 1:
            return x
        sent = x.nbytes if self.rank == root else 0
        return gated(self, "bcast", sent, lambda x: exchange.bcast(self, x, root, shape, dtype))(x)

    def sendrecv(self, x, dest, source, shape, dtype):
        """The array of the rank `source`, while x goes to the rank `dest`; either may be None: nobody.

        `shape` and `dtype` are of what comes; from nobody comes None.
        """
        x = None if dest is None else contiguous(x)
        sent = 0 if dest is None or dest == self.rank else x.nbytes
        return gated(self, "sendrecv", sent, lambda x: exchange.sendrecv(self, x, dest, source, shape, dtype))(x)

    def record(self, data):
        """List of every rank's bytes; quick below 508 of them, with a second round where a rank has more."""
        if self.size == 1:
            return [bytes(data)]
        if watchers:
            return gated(self, "record", len(data) * (self.size - 1), self._record)(data)
        return self._record(data)

    def _record(self, data):
        sent, received = self._sent, self._received
        length = len(data)
        _LENGTH.pack_into(sent[0], 0, length)
        if length <= _SHORT:
            sent[0][_LENGTH.size : _LENGTH.size + length] = data
        self.mpi.Allgather(sent, received)
        if length < _SHORT and received[0] == sent[0] * self.size:
            return [bytes(data)] * self.size  # all sent the same
        found = [row[:size] for size, row in _ROW.iter_unpack(received[0])]
        # A row that is longer than what came with it is cut short, and so are all that fill their place.
        return self._record_long(data) if _SHORT in map(len, found) else found

    def _record_long(self, data):
        lengths = [size for size, _ in _ROW.iter_unpack(self._received[0])]
        mine = np.frombuffer(bytes(data), np.uint8)
        gather = exchange.prepare_allgather(self, mine.dtype, [(length,) for length in lengths])
        return [part.tobytes() for part in gather(mine)]
