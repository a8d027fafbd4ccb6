"""Moving arrays between the ranks of a group without reducing them.

Buffers are typed and flat: mpi4py would take a Fortran-ordered array and
transpose it silently, so arrays are brought to C order first.
"""

import math

import numpy as np

# Elements in one message: counts of MPI before version 4 are 32-bit integers.
CHUNK = 1 << 30
TAG = 29999  # the user may use the communicators too


def contiguous(x):
    """An array as an ndarray in C order and native byte order; the same object where it is that already."""
    if type(x) is np.ndarray and x.flags.c_contiguous and x.dtype.isnative:
        return x
    x = np.asarray(x)
    return np.asarray(x, x.dtype.newbyteorder("="), order="C")


def wire(x):
    """An array as MPI can be given it: half precision, which not every MPI knows, as integers."""
    dtype = x.dtype
    return x.view(np.uint16) if dtype.itemsize == 2 and dtype.kind in "fV" else x


def sendrecv(comm, send, dest, receive, source):
    """Send a flat array to one rank and receive one from another; an empty one is not sent."""
    send, receive = wire(send), wire(receive)
    outgoing, incoming = send.size, receive.size
    if 0 < outgoing <= CHUNK and 0 < incoming <= CHUNK:
        comm.Sendrecv(send, dest, TAG, receive, source, TAG)
        return
    requests = [comm.Irecv(receive[k : k + CHUNK], source, TAG) for k in range(0, incoming, CHUNK)]
    requests += [comm.Isend(send[k : k + CHUNK], dest, TAG) for k in range(0, outgoing, CHUNK)]
    for request in requests:
        request.Wait()


def gather_flat(channel, mine, everything, counts):
    """Every rank's flat array, one behind the other, into a flat array; `counts` are their sizes."""
    comm, rank, size = channel.mpi, channel.rank, channel.size
    if everything.size <= CHUNK:
        if counts.count(counts[0]) == size:
            comm.Allgather(wire(mine), wire(everything))
        else:
            comm.Allgatherv(wire(mine), (wire(everything), counts))
        return
    starts = [sum(counts[:k]) for k in range(size)]
    parts = [everything[start : start + count] for start, count in zip(starts, counts)]
    parts[rank][...] = mine
    for step in range(1, size):
        dest, source = (rank + step) % size, (rank - step) % size
        sendrecv(comm, mine, dest, parts[source], source)


def allgather(channel, x, shapes):
    """Every rank's array; views of one fresh buffer."""
    counts = [math.prod(shape) for shape in shapes]
    everything = np.empty(sum(counts), x.dtype)
    if everything.size:
        gather_flat(channel, x.reshape(-1), everything, counts)
    arrays, start = [], 0
    for shape, count in zip(shapes, counts):
        arrays.append(everything[start : start + count].reshape(shape))
        start += count
    return arrays


def allgather_into_dim(channel, x, dim, sizes):
    """Every rank's array, concatenated along a dimension."""
    before, after = x.shape[:dim], x.shape[dim + 1 :]
    if math.prod(before) != 1:
        return np.concatenate(allgather(channel, x, [(*before, size, *after) for size in sizes]), axis=dim)
    out = np.empty((*before, sum(sizes), *after), x.dtype)
    if out.size:
        row = math.prod(after)
        gather_flat(channel, x.reshape(-1), out.reshape(-1), [size * row for size in sizes])
    return out


def alltoall(channel, blocks, shapes):
    """Block i to rank i; what came from each rank.  Posts a message for each block that is not empty."""
    comm, rank, size = channel.mpi, channel.rank, channel.size
    received = [np.empty(shape, blocks[rank].dtype) for shape in shapes]
    received[rank] = contiguous(blocks[rank])
    if size == 2:
        other = 1 - rank
        sendrecv(comm, contiguous(blocks[other]).reshape(-1), other, received[other].reshape(-1), other)
        return received
    requests, sent = [], []
    peers = [(rank + step) % size for step in range(1, size)]
    for peer in peers:
        flat = wire(received[peer].reshape(-1))
        requests += [comm.Irecv(flat[k : k + CHUNK], peer, TAG) for k in range(0, flat.size, CHUNK)]
    for peer in peers:
        flat = wire(contiguous(blocks[peer]).reshape(-1))
        sent.append(flat)  # kept until it has been sent
        requests += [comm.Isend(flat[k : k + CHUNK], peer, TAG) for k in range(0, flat.size, CHUNK)]
    for request in requests:
        request.Wait()
    return received


def bcast(channel, x, root, shape, dtype):
    """The root's array on every rank."""
    out = x if channel.rank == root else np.empty(shape, dtype)
    flat = wire(out.reshape(-1))
    for k in range(0, flat.size, CHUNK):
        channel.mpi.Bcast(flat[k : k + CHUNK], root)
    return out
