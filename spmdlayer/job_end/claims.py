"""Whose fault came first: ranks that fail tell one another, and the first of them speaks for all.

A rank that fails sends every other rank a claim.  Nobody waits for these
messages but ranks that fail as well, or are told to end; so they cost nothing
before, and need no communicator that all ranks would have to make together.
They travel on MPI.COMM_WORLD itself, in a job that ends anyway.
"""

import struct
import time
import zlib
from typing import NamedTuple

from .process import process

_TAG = 29997
_WINDOW = 0.15  # seconds in which claims may cross
_PAUSE = 0.003
_HEAD = struct.Struct("<didI")
_SIZE = 256  # bytes of a message, which MPI sends at once

# What a rank has seen for itself comes before what it was told to do because of another's fault.
FAULT, TOLD = 0, 1


class Claim(NamedTuple):
    """One rank's fault; the smallest of those that cross is the first."""

    weight: int
    time: float  # of this node's clock
    rank: int
    digest: int  # of the whole text: equal for equal faults
    summary: str

    def pack(self):
        head = _HEAD.pack(self.time, self.rank, float(self.weight), self.digest)
        text = self.summary.encode("utf-8", "replace")[: _SIZE - len(head)]
        return (head + text).ljust(_SIZE, b"\0")

    @classmethod
    def unpack(cls, data):
        when, rank, weight, digest = _HEAD.unpack_from(data)
        text = bytes(data[_HEAD.size :]).rstrip(b"\0").decode("utf-8", "replace")
        return cls(int(weight), when, rank, digest, text)


def claim_of(text, weight):
    """The claim for a fault of this rank, now; `text` is what it would print."""
    lines = text.rstrip("\n").split("\n")
    return Claim(weight, time.time(), process.rank, zlib.crc32(text.encode("utf-8", "replace")), lines[-1].strip())


def received():
    """The claims of other ranks that have come."""
    MPI, claims = process.mpi, []
    status = MPI.Status()
    while MPI.COMM_WORLD.Iprobe(MPI.ANY_SOURCE, _TAG, status):
        data = bytearray(_SIZE)
        MPI.COMM_WORLD.Recv([data, MPI.BYTE], status.source, _TAG)
        claims.append(Claim.unpack(data))
    return claims


def compare(own):
    """Tell the other ranks, and listen for a moment.

    Returns
    -------
    list of the claims of others that came, or None where one of them was first
    """
    MPI = process.mpi
    if received():
        return None
    data = own.pack()
    others = [rank for rank in range(process.size) if rank != process.rank]
    requests = [MPI.COMM_WORLD.Isend([data, MPI.BYTE], rank, _TAG) for rank in others]
    later, end = [], time.monotonic() + _WINDOW
    while time.monotonic() < end:
        later += received()
        MPI.Request.Testall(requests)
        time.sleep(_PAUSE)
    return None if later and min(later) < own else later
