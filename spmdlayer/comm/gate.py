"""The gate that every collective passes, where it is timed while somebody watches.

`watchers` is empty most of the time, and then a collective pays for one look
at it.  Otherwise each watcher is called with an `Event` a collective.
"""

import sys
from time import perf_counter
from typing import NamedTuple

from ..config import state

watchers = []
_PACKAGE = __name__.partition(".")[0]
# Files of the standard library that stand between the user's code and ours.
_BETWEEN = ("contextlib", "functools", "threading")


class Event(NamedTuple):
    """One collective of this rank.

    `name` is "allreduce", "reduce_scatter", "allgather", "alltoall", "bcast",
    "sendrecv" or "record" (sizes and the like, not data); `axis` the mesh axis:
    its name, else its number, a tuple of them, or "mesh"; `bytes` the least
    that this rank has to send to others; `phase` "forward" or "backward";
    `source` "file:line" of the user's code.
    """

    name: str
    axis: object
    bytes: int
    seconds: float
    phase: str
    source: str


def gated(channel, name, sent, call):
    """`call`, a collective as a function of this rank's data, behind the gate.

    Parameters
    ----------
    channel : the Channel
    name : str, as in `Event`
    sent : the bytes that this rank sends
    """
    if channel.size == 1:
        return call

    def collective(data):
        if not watchers:
            return call(data)
        start = perf_counter()
        result = call(data)
        event = Event(name, channel.label, sent, perf_counter() - start, state.phase, _user_line())
        for watcher in tuple(watchers):
            watcher(event)
        return result

    return collective


def _user_line():
    """The "file:line" of the innermost frame that is not of this package."""
    frame = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package != _PACKAGE and package not in _BETWEEN:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown"
