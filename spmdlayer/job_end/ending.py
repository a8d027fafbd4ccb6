"""The end of a job by a fault: one message, of the rank whose fault came first, and an end for all ranks."""

import sys
import threading
import time

from .claims import FAULT, claim_of, compare
from .process import flush, process

_DRAIN = 0.2  # seconds between what a failing rank writes and the end of the job
_PATIENCE = 3.0  # seconds that a rank whose fault was not the first leaves the end to that one
_lock = threading.Lock()


def end_job(text, status, weight=FAULT):
    """Say what went wrong on this rank, unless another rank's fault came first, and end all ranks.

    Parameters
    ----------
    text : str, what to print; its last line says in short what the fault is
    status : int, what the job ends with, 1 to 255
    weight : `FAULT`, or `TOLD` for what may be the consequence of another rank's fault, such as a signal

    Does not return.  May be called in any thread, also while the main thread
    waits in MPI; where MPI does not allow threads, nobody is asked who was first.
    """
    with _lock:  # a second fault of this process waits here for the end
        others = []
        if process.may_communicate():
            others = compare(claim_of(text, weight))
        if others is None:
            flush()
            time.sleep(_PATIENCE)
        else:
            report(text)
            report(_conclusion(others, text))
        abort(status)


def _conclusion(others, text):
    """The last words: that this fault came first, and what followed."""
    own = claim_of(text, FAULT)
    same = sorted({claim.rank for claim in others if claim.digest == own.digest})
    words = [f"this fault came first; it ends the job of {process.size} ranks"]
    if same:
        words.append(f"the same then happened on {_ranks(same)}")
    for claim in sorted(others):
        if claim.rank not in same:
            words.append(f"then rank {claim.rank}: {claim.summary}")
    return "; ".join(words)


def _ranks(ranks):
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    first = ranks[:8]
    more = f" and {len(ranks) - len(first)} more" if len(ranks) > len(first) else ""
    return "ranks " + ", ".join(map(str, first)) + more


def report(text):
    """Write a text to stderr with the rank before every line, in one piece, so that ranks do not interleave."""
    lines = "".join(f"[rank {process.rank}] {line}\n" for line in text.rstrip("\n").split("\n"))
    for stream in (process.terminal, sys.stderr, sys.__stderr__):
        try:
            stream.write(lines)
            stream.flush()
            return
        except (AttributeError, OSError, ValueError):  # None, or closed, or nobody reads it
            continue


def abort(status):
    """End all ranks of the job with a status."""
    flush()
    # A launcher that hears of the end before it has read what was written may drop it.
    time.sleep(_DRAIN)
    if process.mpi.Query_thread() != process.mpi.THREAD_MULTIPLE and not process.mpi.Is_thread_main():
        process.exit(status)  # the launcher sees it
    process.mpi.COMM_WORLD.Abort(status)
    # MPICH tells its launcher and may come back before that has killed this process.
    process.exit(status)
