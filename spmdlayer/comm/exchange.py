"""Moving arrays between the ranks of a group without reducing them.

Every exchange is prepared first: a `prepare_` function is given shapes and
dtype, chooses the way, and returns a function of the data alone.  A plan of
redistribution prepares once what it carries out many times.

Buffers are typed and flat: mpi4py would take a Fortran-ordered array and
transpose it silently, so arrays are brought to C order first.
"""

import itertools
import math

import numpy as np

from ..dtypes import is_half
from ..runtime import mpi

# Elements in one message: counts of MPI before version 4 are 32-bit integers.
CHUNK = 1 << 30
# Bytes of a result from which each pair of ranks sends for itself, so that this rank's own part is copied only once.
PAIRWISE = 64 << 10
TAG = 29999  # the user may use the communicators too


def contiguous(x):
    """An array as an ndarray in C order and native byte order; the same object where it is that already."""
    if type(x) is np.ndarray and x.dtype.isnative:
        return x if x.flags.c_contiguous else x.copy()
    x = np.asarray(x)
    return np.asarray(x, native(x.dtype), order="C")


def native(dtype):
    """A dtype in this machine's byte order."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def wire(x):
    """An array as MPI can be given it: half precision, which not every MPI knows, as integers."""
    return x.view(np.uint16) if is_half(x.dtype) else x


def of_blocks(call, cuts):
    """A function of blocks, as a function of the array that the indices `cuts` cut them from; None: as it is."""
    return call if cuts is None else lambda array: call([array[cut] for cut in cuts])


def swapper(comm, dtype, sent, received, dest, source):
    """A function (send, receive) that sends so many elements to one rank while others come from another.

    Both arrays are in C order; an empty one is not sent.
    """
    if not (0 < sent <= CHUNK and 0 < received <= CHUNK):
        return lambda send, receive: _wait(
            _pieces(comm.Irecv, wire(receive), source) + _pieces(comm.Isend, wire(send), dest)
        )
    call = comm.Sendrecv  # which takes keywords more slowly
    if is_half(dtype):
        return lambda send, receive: call(wire(send), dest, TAG, wire(receive), source, TAG)
    return lambda send, receive: call(send, dest, TAG, receive, source, TAG)


def _pieces(start, array, peer):
    """The requests that `start` makes of an array in C order, one a message."""
    flat = array.reshape(-1)
    return [start(flat[k : k + CHUNK], peer, TAG) for k in range(0, flat.size, CHUNK)]


def _wait(requests, kept=()):
    """Wait for requests; `kept` is what they still read."""
    for request in requests:
        request.Wait()


def _whole(call, dtype):
    """A collective of MPI as a function (send, receive) of whole arrays of a dtype."""
    return (lambda send, receive: call(wire(send), wire(receive))) if is_half(dtype) else call


def gatherer(channel, dtype, counts):
    """A function (mine, everything) that puts every rank's array, `counts` elements each, one behind the other.

    All in C order.
    """
    total = sum(counts)
    if total == 0:
        return lambda mine, everything: None
    if total > CHUNK:
        start, gather = sum(counts[: channel.rank]), in_place_gatherer(channel, dtype, counts)

        def gather_pieces(mine, everything):
            everything = everything.reshape(-1)
            everything[start : start + mine.size] = mine.reshape(-1)
            gather(everything)

        return gather_pieces
    if counts.count(counts[0]) == channel.size:
        return _whole(channel.mpi.Allgather, dtype)
    call = channel.mpi.Allgatherv
    return lambda mine, everything: call(wire(mine), (wire(everything), counts))


def in_place_gatherer(channel, dtype, counts):
    """A function of a flat array that gathers every rank's part, of which its own is in place; by pairs of ranks."""
    comm, rank, size = channel.mpi, channel.rank, channel.size
    bounds = list(itertools.accumulate(counts, initial=0))
    parts = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
    steps = []
    for step in range(1, size):
        dest, source = (rank + step) % size, (rank - step) % size
        steps.append((swapper(comm, dtype, counts[rank], counts[source], dest, source), parts[source]))

    def gather(everything):
        mine = everything[parts[rank]]
        for swap, part in steps:
            swap(mine, everything[part])

    return gather


def prepare_allgather(channel, dtype, shapes):
    """A function of this rank's array that gives every rank's: views of one fresh buffer."""
    counts = [math.prod(shape) for shape in shapes]
    bounds = list(itertools.accumulate(counts, initial=0))
    parts = [(slice(start, stop), shape) for (start, stop), shape in zip(itertools.pairwise(bounds), shapes)]
    gather, total = gatherer(channel, dtype, counts), bounds[-1]

    def call(x):
        everything = np.empty(total, dtype)
        gather(contiguous(x), everything)
        return [everything[part].reshape(shape) for part, shape in parts]

    return call


def prepare_allgather_into_dim(channel, shape, dtype, dim, sizes):
    """A function of this rank's array, of that shape, that gives every rank's, concatenated along a dimension."""
    before, after = shape[:dim], shape[dim + 1 :]
    rows, row, total = math.prod(before), math.prod(after), sum(sizes)
    if rows * total * row * dtype.itemsize >= PAIRWISE and (rows > 1 or channel.size == 2):
        trade = prepare_alltoall_into_dim(channel, [shape] * channel.size, dtype, dim, sizes)
        copies = channel.size
        return lambda x: trade((contiguous(x),) * copies)
    if rows == 1:
        gather, whole = gatherer(channel, dtype, [size * row for size in sizes]), (*before, total, *after)
    elif sizes.count(sizes[0]) < channel.size:
        gather_all = prepare_allgather(channel, dtype, [(*before, size, *after) for size in sizes])
        return lambda x: np.concatenate(gather_all(x), axis=dim)
    else:
        return _gather_equal(channel, shape, dtype, dim)

    def call(x):
        out = np.empty(whole, dtype)
        gather(contiguous(x), out)
        return out

    return call


def _gather_equal(channel, shape, dtype, dim):
    """The same for equal shapes whose pieces lie scattered in the result."""
    size = channel.size
    gather, stacked = gatherer(channel, dtype, [math.prod(shape)] * size), (size, *shape)
    axes = (*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1))
    whole = (*shape[:dim], size * shape[dim], *shape[dim + 1 :])

    def call(x):
        pieces = np.empty(stacked, dtype)
        gather(contiguous(x), pieces)
        return pieces.transpose(axes).copy().reshape(whole)

    return call


def prepare_alltoall(channel, sent, dtype, shapes):
    """A function of blocks, one for each rank, that gives what came from each.

    `sent` are the shapes of this rank's blocks, `shapes` those of what it gets.
    """
    rank = channel.rank
    trade = _trader(channel, dtype, [math.prod(shape) for shape in sent], [math.prod(shape) for shape in shapes])

    def call(blocks):
        own = contiguous(blocks[rank])
        received = [own if k == rank else np.empty(shape, dtype) for k, shape in enumerate(shapes)]
        trade(blocks, received)
        return received

    return call


def prepare_alltoall_begun(channel, sent, dtype, shapes):
    """As `prepare_alltoall`, but the function returns once all is under way: a function that waits for it."""
    rank = channel.rank
    start = _starter(channel, [math.prod(shape) for shape in sent], [math.prod(shape) for shape in shapes])

    def begin(blocks):
        own = contiguous(blocks[rank])
        received = [own if k == rank else np.empty(shape, dtype) for k, shape in enumerate(shapes)]
        requests, packed = start(blocks, received)

        def finish():
            _wait(requests, packed)
            return received

        return finish

    return begin


def prepare_alltoall_into_dim(channel, sent, dtype, dim, sizes, cuts=None):
    """A function of blocks, one for each rank, that gives what came from each, concatenated along a dimension.

    With `cuts` of the array that these indices cut the blocks from.

    What lies in one piece in the result is received there, the rest copied
    once; this rank's own block does not pass through MPI.
    """
    rank, own = channel.rank, sent[channel.rank]
    before, after = own[:dim], own[dim + 1 :]
    whole, rows, row = (*before, sum(sizes), *after), math.prod(before), math.prod(after)
    index = (slice(None),) * dim
    bounds = itertools.pairwise(itertools.accumulate(sizes, initial=0))
    places = [(*index, slice(start, stop)) for start, stop in bounds]
    counts = [rows * size * row for size in sizes]
    if rows > 1 and channel.size == 2 and _large(whole, dtype, sizes, math.prod(sent[1 - rank])):
        return of_blocks(_prepare_swap_strided(channel, whole, dtype, dim, sizes, places[rank]), cuts)
    if channel.size == 2:
        other = 1 - rank
        swap = swapper(channel.mpi, dtype, math.prod(sent[other]), counts[other], other, other)
        received = (*before, sizes[other], *after) if rows > 1 else None
        if cuts is None:
            return _pair_into_dim(swap, rank, whole, dtype, places, received)
        return _cut_pair_into_dim(swap, rank, whole, dtype, places, received, cuts)
    trade = _trader(channel, dtype, [math.prod(shape) for shape in sent], counts)
    if rows == 1:

        def call(blocks):
            out = np.empty(whole, dtype)
            trade(blocks, [out[place] for place in places])
            out[places[rank]] = blocks[rank]
            return out

        return of_blocks(call, cuts)
    shapes = [(*before, size, *after) for size in sizes]

    def call_scattered(blocks):
        out = np.empty(whole, dtype)
        received = [blocks[rank] if k == rank else np.empty(shape, dtype) for k, shape in enumerate(shapes)]
        trade(blocks, received)
        for place, block in zip(places, received):
            out[place] = block
        return out

    return of_blocks(call_scattered, cuts)


def _pair_into_dim(swap, rank, whole, dtype, places, shape):
    """The same between two ranks; `shape` is of what comes, None where it lies in one piece in the result."""
    other = 1 - rank
    here, there = places[rank], places[other]

    def call(blocks):
        out = np.empty(whole, dtype)
        received = out[there] if shape is None else np.empty(shape, dtype)
        swap(contiguous(blocks[other]), received)
        if shape is not None:
            out[there] = received
        out[here] = blocks[rank]
        return out

    return call


def _cut_pair_into_dim(swap, rank, whole, dtype, places, shape, cuts):
    """The same on blocks of one array: with as few calls as can be, which large arrays have driven from the caches."""
    here, there, mine, theirs = places[rank], places[1 - rank], cuts[rank], cuts[1 - rank]

    def call(array):
        out, block = np.empty(whole, dtype), array[theirs]
        received = out[there] if shape is None else np.empty(shape, dtype)
        swap(block if block.flags.c_contiguous else block.copy(), received)
        if shape is not None:
            out[there] = received
        out[here] = array[mine]
        return out

    return call


class _Vector:
    """An MPI datatype of strided elements, freed with the function that uses it (which no other rank need know)."""

    def __init__(self, dtype, *counts):
        item = mpi().Datatype.fromcode(wire(np.empty(0, dtype)).dtype.char)
        self.datatype = item.Create_vector(*counts).Commit()

    def __del__(self):
        if not mpi().Is_finalized():
            self.datatype.Free()


def _large(whole, dtype, sizes, sent):
    total = math.prod(whole)
    return total * dtype.itemsize >= PAIRWISE and min(sizes) > 0 and 0 < sent <= CHUNK >= total


def _prepare_swap_strided(channel, whole, dtype, dim, sizes, mine):
    """The same between two ranks, where MPI puts what comes in its places: a copy less."""
    other, row = 1 - channel.rank, math.prod(whole[dim + 1 :])
    first = (0, sizes[0])[other] * row
    place = _Vector(dtype, math.prod(whole[:dim]), sizes[other] * row, sum(sizes) * row)
    sendrecv, rank, half = channel.mpi.Sendrecv, channel.rank, is_half(dtype)

    def call(blocks):
        out = np.empty(whole, dtype)
        flat, block = out.reshape(-1), contiguous(blocks[other])
        if half:
            flat, block = wire(flat), wire(block)
        sendrecv(block, other, TAG, (flat[first:], 1, place.datatype), other, TAG)
        out[mine] = blocks[rank]
        return out

    return call


def _trader(channel, dtype, sent, received):
    """A function (blocks, received): block i to rank i, and theirs into `received`, but for this rank's own.

    `sent` and `received` are numbers of elements; what is empty is not sent.
    """
    comm, rank, size = channel.mpi, channel.rank, channel.size
    if size == 2:
        other = 1 - rank
        swap = swapper(comm, dtype, sent[other], received[other], other, other)
        return lambda blocks, places: swap(contiguous(blocks[other]), places[other])
    start = _starter(channel, sent, received)
    return lambda blocks, places: _wait(*start(blocks, places))


def _starter(channel, sent, received):
    """A function (blocks, received), as `_trader`, that does not wait: it gives the arguments of `_wait`."""
    comm, rank, size = channel.mpi, channel.rank, channel.size
    peers = [(rank + step) % size for step in range(1, size)]
    dests, sources = [k for k in peers if sent[k]], [k for k in reversed(peers) if received[k]]

    def start(blocks, places):
        # The packed blocks are kept until they have been sent.
        packed, requests = [contiguous(blocks[peer]) for peer in dests], []
        for peer in sources:
            requests += _pieces(comm.Irecv, wire(places[peer]), peer)
        for peer, block in zip(dests, packed):
            requests += _pieces(comm.Isend, wire(block), peer)
        return requests, packed

    return start


def sendrecv(channel, x, dest, source, shape, dtype):
    """An array from one rank while another goes to one; None for either: nobody."""
    requests, out, sent = [], None, None
    if source is not None:
        out = np.empty(shape, dtype)
        requests += _pieces(channel.mpi.Irecv, wire(out), source)
    if dest is not None:
        sent = wire(x)
        requests += _pieces(channel.mpi.Isend, sent, dest)
    _wait(requests, sent)
    return out


def bcast(channel, x, root, shape, dtype):
    """The root's array on every rank."""
    out = x if channel.rank == root else np.empty(shape, dtype)
    flat = wire(out).reshape(-1)
    for k in range(0, flat.size, CHUNK):
        channel.mpi.Bcast(flat[k : k + CHUNK], root)
    return out
