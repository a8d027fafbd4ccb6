"""Which collectives a piece of code makes: how many, how large, how long, and from which line.

::

    with spmd.trace() as t:
        loss = layer(x)
        loss.backward()
    print(t)
    t.count("allreduce", axis="data", phase="backward")
"""

from contextlib import contextmanager

from ..comm.gate import Event, watchers

__all__ = ["Event", "Trace", "trace"]


class Trace:
    """The collectives of this rank while a `trace()` was open.

    Attributes
    ----------
    events : list of Event, in the order in which they ended
    """

    def __init__(self):
        self.events = []

    def select(self, name=None, axis=None, phase=None, records=False):
        """The events with a name, on a mesh axis, of a phase ("forward" or "backward").

        Records, small exchanges of sizes and the like, are left out unless
        asked for by name or by `records=True`.  An event over several axes
        is on each of them.
        """
        return [
            event
            for event in self.events
            if (event.name == name if name is not None else records or event.name != "record")
            and (axis is None or event.axis == axis or (isinstance(event.axis, tuple) and axis in event.axis))
            and (phase is None or event.phase == phase)
        ]

    def count(self, name=None, axis=None, phase=None, records=False):
        """How many collectives there were; see `select`."""
        return len(self.select(name, axis, phase, records))

    def bytes(self, name=None, axis=None, phase=None, records=False):
        """The bytes that this rank had to send in them; see `select`."""
        return sum(event.bytes for event in self.select(name, axis, phase, records))

    def __str__(self):
        head = ("name", "axis", "bytes", "microseconds", "phase", "source")
        rows = [
            (event.name, str(event.axis), f"{event.bytes:,}", f"{event.seconds * 1e6:,.1f}", event.phase, event.source)
            for event in self.events
        ]
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if column in (2, 3) else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths))
            ).rstrip()
            for row in (head, *rows)
        )

    def __repr__(self):
        return f"<Trace of {len(self.events)} collectives>"


@contextmanager
def trace():
    """Record every collective of this rank while the context is open.

    Returns, as the context's value, a `Trace`; it can be read at any time,
    also afterwards.  Traces nest; each sees what happens while it is open.
    Communicates nothing.
    """
    made = Trace()
    watcher = made.events.append
    watchers.append(watcher)
    try:
        yield made
    finally:
        # By identity: two lists of equal events would have equal methods.
        watchers[:] = [other for other in watchers if other is not watcher]
