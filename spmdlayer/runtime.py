"""MPI as this process sees it: started when first asked for, ended for all ranks when one fails.

Importing this file initialises nothing.  `mpi()` does, the first time: it
imports mpi4py.MPI, lets glibc keep freed memory, and, where there are several
ranks, makes a fault of one rank end the job (`job_end`).
"""

import atexit
import ctypes
import os
import sys
import threading

from . import job_end
from .errors import runtime_error, set_rank

# Open MPI mixes up a message of the user that waits on a communicator with what it sends itself to make another from
# it, where both have one tag.  Its default, 0, is what most users have.
_TAG = 29998

_module = None
_home_key = None
_lock = threading.Lock()
_homes = {}


def mpi():
    """The module mpi4py.MPI; the first call of a process initialises MPI."""
    return _module if _module is not None else _start()


def init_parallel_env():
    """Initialise MPI, unless it is already.  Every rank of the job must do so."""
    mpi()


def get_rank():
    """This process's rank in MPI.COMM_WORLD."""
    return mpi().COMM_WORLD.rank


def get_world_size():
    """The number of ranks of MPI.COMM_WORLD."""
    return mpi().COMM_WORLD.size


def barrier():
    """Wait until every rank of MPI.COMM_WORLD has come here.  Collective over them."""
    mpi().COMM_WORLD.Barrier()


def _start():
    global _module, _home_key
    with _lock:
        if _module is None:
            from mpi4py import MPI

            if not MPI.Is_initialized() or MPI.Is_finalized():
                state = "has been finalised" if MPI.Is_finalized() else "is not initialised, as mpi4py.rc asks for"
                raise runtime_error(f"MPI {state}; call this between MPI.Init_thread() and MPI.Finalize()")
            set_rank(MPI.COMM_WORLD.rank)
            _keep_freed_memory()
            _home_key = MPI.Comm.Create_keyval(None, _forget)
            atexit.register(_leave)
            job_end.start(MPI)
            _module = MPI
    return _module


def _keep_freed_memory():
    """Let glibc keep what is freed, up to 1 GiB, so that fresh result buffers need no new pages.

    The environment variable SPMDLAYER_MALLOC=0 turns it off.
    """
    if not sys.platform.startswith("linux") or os.environ.get("SPMDLAYER_MALLOC") == "0":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(mmap_threshold, 1 << 30)
        mallopt(trim_threshold, 1 << 30)


# ---- communicators -------------------------------------------------------------------------------------------------


class Home:
    """What is kept for one parent communicator, and goes when the parent is freed."""

    __slots__ = ("meshes", "subgroups")

    def __init__(self):
        self.subgroups = {}  # ranks of the parent -> communicator
        self.meshes = {}  # the value of a mesh -> the one ProcessMesh of that value


def home(comm):
    """The `Home` of a communicator; the same for every handle of it."""
    found = comm.Get_attr(_home_key)
    if found is None:
        found = Home()
        comm.Set_attr(_home_key, found)
        _homes[id(found)] = comm
    return found


def subgroup(comm, ranks):
    """A communicator of some ranks of `comm`, in the order given.

    Collective over these ranks the first time, and kept from then on: asking
    again communicates nothing.  It is freed with `comm`, or at the end of the
    program; never when garbage is collected, because that happens at another
    time on every rank.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    ranks : sequence of int, ranks of `comm`

    Returns
    -------
    mpi4py.MPI.Intracomm, or None on a process that is not among the ranks
    """
    ranks = tuple(ranks)
    if comm.rank not in ranks:
        return None
    subgroups = home(comm).subgroups
    found = subgroups.get(ranks)
    if found is None:
        parent = comm.Get_group()
        group = parent.Incl(ranks)
        found = subgroups[ranks] = comm.Create_group(group, _TAG)
        group.Free()
        parent.Free()
    return found


def _forget(comm, keyval, found):
    """MPI calls this when a parent communicator is freed: its subgroups go too, in the order of their making."""
    _homes.pop(id(found), None)
    found.meshes.clear()
    for child in found.subgroups.values():
        child.Free()
    found.subgroups.clear()


def close():
    """Free the communicators that were made here; meshes made before cannot be used afterwards.

    Collective.  Runs by itself when the program ends.
    """
    if _module is None or _module.Is_finalized():
        return
    for comm in list(_homes.values()):
        # Freeing one may have freed another.
        if comm != _module.COMM_NULL and comm.Get_attr(_home_key) is not None:
            comm.Delete_attr(_home_key)


def _leave():
    """What happens at the end of the program, and of a forked child that does not end by `os._exit`."""
    if job_end.process.is_rank():
        close()
    else:
        job_end.leave_child()
