"""What tests on several ranks share: outcomes agreed among the ranks, and jobs of their own under mpiexec.

A test that fails on one rank only would leave the others waiting in their next
collective.  So outcomes that may differ are agreed first: `assert_all` and
`parallel_raises` raise on every rank or on none.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# What a launcher tells its ranks; a launcher inside another's rank would believe it.
_OF_LAUNCHERS = ("OMPI_", "PMI", "PRTE_", "HYDRA_", "HYDI_", "MPI_LOCAL", "MPIEXEC_", "MPIR_", "SLURM_")
_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}


@cache
def _comm():
    from mpi4py import MPI

    return MPI.COMM_WORLD.Dup()


def agree(value):
    """Every rank's value, a list by rank.  Collective over all ranks."""
    return _comm().allgather(value)


def assert_all(condition, message=""):
    """Assert on every rank that a condition holds on every rank; says where it did not, and each one's message."""
    outcomes = agree((bool(condition), "" if condition else str(message)))
    failed = {rank: text for rank, (good, text) in enumerate(outcomes) if not good}
    if failed:
        texts = "\n".join(f"rank {rank}: {text}" for rank, text in failed.items())
        raise AssertionError(f"failed on ranks {sorted(failed)}:\n{texts}")


class Caught:
    """The exception that `parallel_raises` has caught on this rank."""

    value = None


@contextmanager
def parallel_raises(kind, match=None):
    """Every rank must raise an exception of a kind (whose text matches a pattern); else all fail.

    The body must not leave a rank waiting for another that has raised.
    """
    caught, problem = Caught(), ""
    try:
        yield caught
    except kind as error:
        caught.value = error
        if match is not None and not re.search(match, str(error)):
            problem = f"the text does not match {match!r}: {error}"
    except Exception as error:
        problem = f"raised {error!r} instead of {kind}"
    else:
        problem = f"raised nothing instead of {kind}"
    assert_all(not problem, problem)


class Job(NamedTuple):
    """How a job ended; `status` is None where it had to be ended."""

    status: int | None
    stdout: str
    stderr: str
    seconds: float


def launcher():
    """The mpiexec of this Python's environment, else the one on the PATH; None where there is none."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def clean_environment(**variables):
    """The environment without what launchers set, for a job started inside a rank."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_LAUNCHERS)}
    paths = [str(ROOT), kept.get("PYTHONPATH", "")]
    return kept | _OPEN_MPI | {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | variables


def launch(n, code, timeout=50, **variables):
    """Run a script on n ranks in a job of its own.

    Parameters
    ----------
    n : int, ranks; 0: without a launcher
    code : str, the script, or a list of arguments for Python
    timeout : seconds after which the job is ended; below pytest's faulthandler_timeout, which would end the whole run
    variables : environment variables to set

    Returns
    -------
    Job
    """
    arguments = ["-c", code] if isinstance(code, str) else code
    command = ([launcher(), "-n", str(n)] if n else []) + [sys.executable, *arguments]
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=clean_environment(**variables),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
        status = process.returncode
    except subprocess.TimeoutExpired:
        status = None
        out, err = _end(process)
    return Job(status, out, err, time.monotonic() - began)


def _end(process):
    """End a job.  The launcher gets a chance to end its ranks: killed outright it would leave them behind."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()
