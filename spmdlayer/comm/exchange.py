"""Moving arrays between the ranks of a group without reducing them.

Buffers are typed and flat: mpi4py would take a Fortran-ordered array and
transpose it silently, so arrays are brought to C order first.
"""

import itertools
import math

import numpy as np

from ..runtime import mpi

# Elements in one message: counts of MPI before version 4 are 32-bit integers.
CHUNK = 1 << 30
# Bytes of a result from which each pair of ranks sends for itself, so that this rank's own part is copied only once.
PAIRWISE = 64 << 10
TAG = 29999  # the user may use the communicators too


def contiguous(x):
    """An array as an ndarray in C order and native byte order; the same object where it is that already."""
    if type(x) is np.ndarray and x.flags.c_contiguous and x.dtype.isnative:
        return x
    x = np.asarray(x)
    return np.asarray(x, native(x.dtype), order="C")


def native(dtype):
    """A dtype in this machine's byte order."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def wire(x):
    """An array as MPI can be given it: half precision, which not every MPI knows, as integers."""
    dtype = x.dtype
    return x.view(np.uint16) if dtype.itemsize == 2 and dtype.kind in "fV" else x


def sendrecv(comm, send, dest, receive, source):
    """Send an array in C order to one rank and receive one from another; an empty one is not sent."""
    send, receive = wire(send), wire(receive)
    if 0 < send.size <= CHUNK and 0 < receive.size <= CHUNK:
        comm.Sendrecv(send, dest, TAG, receive, source, TAG)
        return
    for request in _pieces(comm.Irecv, receive, source) + _pieces(comm.Isend, send, dest):
        request.Wait()


def _pieces(start, array, peer):
    """The requests that `start` makes of an array in C order, one a message."""
    flat = array.reshape(-1)
    return [start(flat[k : k + CHUNK], peer, TAG) for k in range(0, flat.size, CHUNK)]


def _gather(channel, mine, everything, counts):
    """Every rank's array, one behind the other, into an array; `counts` are their sizes.  All in C order."""
    if everything.size > CHUNK:
        start, everything = sum(counts[: channel.rank]), everything.reshape(-1)
        everything[start : start + mine.size] = mine.reshape(-1)
        gather_in_place(channel, everything, counts)
    elif counts.count(counts[0]) == channel.size:
        channel.mpi.Allgather(wire(mine), wire(everything))
    else:
        channel.mpi.Allgatherv(wire(mine), (wire(everything), counts))


def gather_in_place(channel, everything, counts):
    """Every rank's part of a flat array, of which this rank's is in its place; always between pairs of ranks."""
    comm, rank, size = channel.mpi, channel.rank, channel.size
    bounds = list(itertools.accumulate(counts, initial=0))
    parts = [everything[start:stop] for start, stop in itertools.pairwise(bounds)]
    for step in range(1, size):
        dest, source = (rank + step) % size, (rank - step) % size
        sendrecv(comm, parts[rank], dest, parts[source], source)


def allgather(channel, x, shapes):
    """Every rank's array; views of one fresh buffer."""
    counts = [math.prod(shape) for shape in shapes]
    everything = np.empty(sum(counts), x.dtype)
    if everything.size:
        _gather(channel, x, everything, counts)
    arrays, start = [], 0
    for shape, count in zip(shapes, counts):
        arrays.append(everything[start : start + count].reshape(shape))
        start += count
    return arrays


def allgather_into_dim(channel, x, dim, sizes):
    """Every rank's array, concatenated along a dimension."""
    before, after = x.shape[:dim], x.shape[dim + 1 :]
    rows, row, total = math.prod(before), math.prod(after), sum(sizes)
    nbytes = rows * total * row * x.itemsize
    if nbytes >= PAIRWISE and (rows > 1 or channel.size == 2):
        return alltoall_into_dim(channel, [x] * channel.size, dim, sizes)
    if rows == 1:
        out = np.empty((*before, total, *after), x.dtype)
        if out.size:
            _gather(channel, x, out, [size * row for size in sizes])
        return out
    if sizes.count(sizes[0]) < channel.size:
        return np.concatenate(allgather(channel, x, [(*before, size, *after) for size in sizes]), axis=dim)
    pieces = np.empty((channel.size, *x.shape), x.dtype)
    if pieces.size:
        channel.mpi.Allgather(wire(x), wire(pieces))
    return np.concatenate(pieces, axis=dim)


def alltoall(channel, blocks, shapes):
    """Block i to rank i; what came from each rank."""
    own = contiguous(blocks[channel.rank])
    received = [np.empty(shape, own.dtype) for shape in shapes]
    received[channel.rank] = own
    _trade(channel, blocks, received)
    return received


def alltoall_into_dim(channel, blocks, dim, sizes):
    """Block i to rank i; what came from each rank, concatenated along a dimension.

    What lies in one piece in the result is received there, the rest copied
    once; this rank's own block does not pass through MPI.
    """
    rank, own = channel.rank, blocks[channel.rank]
    before, after = own.shape[:dim], own.shape[dim + 1 :]
    out = np.empty((*before, sum(sizes), *after), native(own.dtype))
    if math.prod(before) == 1:
        index = (slice(None),) * dim
        bounds = itertools.pairwise(itertools.accumulate(sizes, initial=0))
        received = [out[(*index, slice(start, stop))] for start, stop in bounds]
        _trade(channel, blocks, received)
        received[rank][...] = own
    elif channel.size == 2 and PAIRWISE <= out.nbytes and min(sizes) and 0 < blocks[1 - rank].size <= CHUNK >= out.size:
        _swap_strided(channel, blocks, out, dim, sizes)
    else:
        received = [np.empty((*before, size, *after), out.dtype) for size in sizes]
        received[rank] = own
        _trade(channel, blocks, received)
        np.concatenate(received, axis=dim, out=out)
    return out


def _swap_strided(channel, blocks, out, dim, sizes):
    """The same between two ranks, where MPI puts what comes in its places: a copy less."""
    rank, other = channel.rank, 1 - channel.rank
    row = math.prod(out.shape[dim + 1 :])
    starts = (0, sizes[0])
    flat = wire(out).reshape(-1)
    item = mpi().Datatype.fromcode(flat.dtype.char)
    place = item.Create_vector(math.prod(out.shape[:dim]), sizes[other] * row, sum(sizes) * row).Commit()
    sent, first = wire(contiguous(blocks[other])), starts[other] * row
    channel.mpi.Sendrecv(sent, other, TAG, (flat[first:], 1, place), other, TAG)
    place.Free()
    out[(slice(None),) * dim + (slice(starts[rank], starts[rank] + sizes[rank]),)] = blocks[rank]


def _trade(channel, blocks, received):
    """Block i to rank i, and theirs into `received`, but for this rank's own; empty ones are not sent."""
    comm, rank, size = channel.mpi, channel.rank, channel.size
    if size == 2:
        other = 1 - rank
        sendrecv(comm, contiguous(blocks[other]), other, received[other], other)
        return
    peers = [(rank + step) % size for step in range(1, size)]
    # The packed blocks are kept until they have been sent.
    sent = {peer: contiguous(blocks[peer]) for peer in peers}
    requests = []
    for peer in reversed(peers):
        requests += _pieces(comm.Irecv, wire(received[peer]), peer)
    for peer in peers:
        requests += _pieces(comm.Isend, wire(sent[peer]), peer)
    for request in requests:
        request.Wait()


def bcast(channel, x, root, shape, dtype):
    """The root's array on every rank."""
    out = x if channel.rank == root else np.empty(shape, dtype)
    flat = wire(out).reshape(-1)
    for k in range(0, flat.size, CHUNK):
        channel.mpi.Bcast(flat[k : k + CHUNK], root)
    return out
