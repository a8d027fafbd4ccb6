"""What an operation on a sharded array sends, summed over the ranks."""

from mpi_helpers import agree

import spmdlayer as spmd

ITEM = 8  # bytes of a float64


def sharded(mesh, array, dim=0, block=None):
    return spmd.shard_tensor(array, mesh, [spmd.Shard(dim, block)])


def traced(function, records=True):
    """The result of a function, and the bytes that all ranks sent for it; `records`: with counts and the like."""
    with spmd.trace() as t:
        result = function()
    return result, sum(agree(t.bytes(records=True) if records else t.bytes()))
