"""How a job ends when one rank fails: for all ranks, soon, and with one message that says whose fault came first.

Otherwise the other ranks would wait for it for ever.  `start` prepares that
when MPI is first used by several ranks; `end_job` is the one way to end a job.
"""

from ..config import settings
from .claims import FAULT, TOLD
from .ending import end_job, report
from .hooks import install
from .process import flush, process


def start(MPI):
    """Let faults of this process end all ranks from now on."""
    process.begin(MPI)
    if process.size > 1 and settings.abort:
        install()


def leave_child():
    """End a forked child of a rank here: mpi4py would finalise its parent's MPI, which ends or hangs the job."""
    if process.status_of_child is not None:
        flush()
        process.exit(process.status_of_child)
