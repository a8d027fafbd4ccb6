"""What this process is in the job: its MPI, its rank, and whether a fault of it may still end all ranks."""

import os
import sys
import traceback

from ..config import settings


class _Process:
    """Filled when MPI is first used (`begin`); one a process, also after a fork."""

    mpi = None  # the module mpi4py.MPI
    rank = None
    size = 1
    pid = None  # of the process that is the rank; a forked child has another
    leaving = False  # the program has ended, and this rank waits for the others
    status_of_child = None  # what a forked child ends with, where faults end all ranks
    exit = staticmethod(os._exit)  # the real one
    terminal = None  # an open file for messages where standard error is captured, as in pytest

    def begin(self, MPI):
        self.mpi = MPI
        self.rank = MPI.COMM_WORLD.rank
        self.size = MPI.COMM_WORLD.size
        self.pid = os.getpid()

    def is_rank(self):
        """Whether this is a rank, not a forked child of one."""
        return self.pid == os.getpid()

    def guarded(self):
        """Whether a fault of this process ends all ranks now."""
        return (
            settings.abort
            and self.size > 1
            and self.is_rank()
            and not self.leaving
            and not is_interactive()
            and not self.mpi.Is_finalized()
        )

    def may_communicate(self):
        """Whether the running thread may call MPI."""
        level = self.mpi.Query_thread()
        return level == self.mpi.THREAD_MULTIPLE or (level > self.mpi.THREAD_SINGLE and self.mpi.Is_thread_main())


process = _Process()


def is_interactive():
    """Whether somebody types at this process: an error at a prompt ends nothing."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def stack_of(frame):
    """The Python stack of a thread that ends in a frame, as in a traceback."""
    return "Stack (most recent call last):\n" + "".join(traceback.format_stack(frame))


def flush():
    """Flush what has been printed; a stream that is closed or broken must not stop the end of the job."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
