"""The gate that every collective passes, where it is timed while somebody watches.

`watchers` is empty most of the time, and then a collective pays for one look
at it.  Otherwise each watcher is called with an `Event` a collective.
"""

import functools
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

    `name` is "allreduce", "reduce_scatter", "allgather", "alltoall", "bcast"
    or "record" (sizes and the like, not data); `axis` the mesh axis: its name,
    else its number, a tuple of them, or "mesh"; `bytes` the least that this
    rank has to send to others; `phase` "forward" or "backward"; `source`
    "file:line" of the user's code.
    """

    name: str
    axis: object
    bytes: int
    seconds: float
    phase: str
    source: str


def collective(name, sent):
    """Decorator of the methods of Channel that communicate.

    Parameters
    ----------
    name : str, as in `Event`
    sent : function of the method's arguments, the bytes that this rank sends
    """

    def decorate(method):
        @functools.wraps(method)
        def gated(channel, *args):
            if not watchers or channel.size == 1:
                return method(channel, *args)
            start = perf_counter()
            result = method(channel, *args)
            seconds = perf_counter() - start
            event = Event(name, channel.label, sent(channel, *args), seconds, state.phase, _user_line())
            for watcher in tuple(watchers):
                watcher(event)
            return result

        return gated

    return decorate


def _user_line():
    """The "file:line" of the innermost frame that is not of this package."""
    frame = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package != _PACKAGE and package not in _BETWEEN:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown"
