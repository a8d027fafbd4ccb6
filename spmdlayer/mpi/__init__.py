"""MPI's collectives for local tensors, with gradients.

    total = spmd.mpi.allreduce(x)
    left = spmd.mpi.shift(x, 1, periodic=False)

The functions have the names and the meaning of mpi4py's for objects
(`comm.allgather(x)` gives a list, `comm.reduce(x)` None but on the root), take
local Tensors (arrays and numbers too), and send them in buffers.  `comm` is an
mpi4py communicator, a `ProcessMesh`, or a pair of a mesh and its axis; by
default all ranks.

Each rank's value is a variable of its own, and the loss is the sum of what the
ranks call `backward` on.  The gradients are the adjoints: of allreduce
allreduce, of allgather reduce_scatter, of bcast reduce, of scatter gather, of
alltoall alltoall, of a shift the opposite one.

Inside a region (LocalLayer, local_map) the region's fence makes all ranks run
the adjoints.  Outside, where gradients are on, every rank records each
collective, and every rank of its communicator calls `backward`, also one whose
loss needs no gradient; there the ranks agree, collective by collective, on
whether any of them has a cotangent for it.
"""

from .moving import allgather, alltoall, bcast, gather, scatter, sendrecv, shift
from .reducing import allreduce, reduce, reduce_scatter, scan

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "bcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "sendrecv",
    "shift",
]
