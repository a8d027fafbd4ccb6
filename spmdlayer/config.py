"""Settings, and the state that belongs to the running thread.

`state` is read on hot paths, so it is a plain object with attributes.  It is
local to a thread: ranks that are threads of one process do not share a
gradient mode or an open region.
"""

import os
import threading
from contextlib import contextmanager


class _State(threading.local):
    grad_enabled = True  # operations record themselves on the tape
    region = None  # the innermost open boundary region, or None
    engine = None  # the backward pass that runs, or None
    guarded = None  # communicating nodes outside of regions that every backward pass comes by: a dict, oldest first
    phase = "forward"  # what the tracer writes beside a collective


class _Settings:
    """Process-wide switches; the environment gives the defaults."""

    def __init__(self):
        self.debug = os.environ.get("SPMDLAYER_DEBUG", "0") not in ("", "0")
        self.verify = os.environ.get("SPMDLAYER_VERIFY", "1") not in ("", "0")
        self.abort = os.environ.get("SPMDLAYER_ABORT", "1") not in ("", "0")


state = _State()
settings = _Settings()


@contextmanager
def _restore(saved):
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(settings, name, value)


def config(**options):
    """Change settings at once; as a context manager, until its end.

    Parameters
    ----------
    debug : bool
        Check at every call what is otherwise checked now and then: values
        and gradients declared ``Replicate`` are compared on all ranks, and
        before and after each distributed operation the ranks tell one another
        what they call and whether it failed, so that what only some do, or
        do with other arguments, raises on all.
        Default: the environment variable ``SPMDLAYER_DEBUG``, else False.
    verify : bool
        Compare what is declared ``Replicate`` at calls 1, 2, 4, 8, ... of a
        layer.  Must be the same on every rank.  Default: the variable
        ``SPMDLAYER_VERIFY``, else True.
    abort : bool
        A fault of one rank (an uncaught exception, a failing or early exit,
        SIGTERM) ends the job, so that no rank waits for it for ever.
        Programs that have their own way for this turn it off, best before
        MPI is first used: then nothing is hooked in.  Default: the variable
        ``SPMDLAYER_ABORT``, else True.

    Examples
    --------
    >>> with spmdlayer.config(debug=True):
    ...     y = layer(x)
    """
    for name, value in options.items():
        if name not in ("debug", "verify", "abort"):
            raise TypeError(f"config(): unknown setting {name!r}; the settings are debug, verify and abort")
        if not isinstance(value, bool):
            raise TypeError(f"config({name}=...): a bool is needed, {value!r} was given")
    saved = {name: getattr(settings, name) for name in options}
    for name, value in options.items():
        setattr(settings, name, value)
    return _restore(saved)
