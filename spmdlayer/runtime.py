"""MPI as this process sees it: started when first asked for, ended for all ranks when one fails.

Importing this file initialises nothing.  `mpi()` does, the first time: it
imports mpi4py.MPI, lets glibc keep freed memory, and, where there are several
ranks, makes an uncaught exception or a failing `sys.exit` of one rank end the
job; otherwise the other ranks would wait for it for ever.
"""

import atexit
import ctypes
import os
import sys
import threading
import traceback

from .errors import runtime_error, set_rank

_module = None
_home_key = None
_process = None
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
    global _module, _home_key, _process
    with _lock:
        if _module is None:
            from mpi4py import MPI

            if not MPI.Is_initialized() or MPI.Is_finalized():
                state = "has been finalised" if MPI.Is_finalized() else "is not initialised (mpi4py.rc.initialize is False)"
                raise runtime_error(f"MPI {state}; call this between MPI.Init_thread() and MPI.Finalize()")
            set_rank(MPI.COMM_WORLD.rank)
            _keep_freed_memory()
            _process = os.getpid()
            _home_key = MPI.Comm.Create_keyval(None, _forget)
            atexit.register(close)
            if MPI.COMM_WORLD.size > 1:
                _end_together(MPI.COMM_WORLD.rank)
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
        found = subgroups[ranks] = comm.Create_group(group)
        group.Free()
        parent.Free()
    return found


def _forget(comm, keyval, found):
    """MPI calls this when a parent communicator is freed: its subgroups go too, in the order in which they were made."""
    _homes.pop(id(found), None)
    found.meshes.clear()
    for child in found.subgroups.values():
        child.Free()
    found.subgroups.clear()


def close():
    """Free the communicators that were made here; meshes made before cannot be used afterwards.

    Collective.  Runs by itself when the program ends.
    """
    if _module is None or _module.Is_finalized() or os.getpid() != _process:
        return
    for comm in list(_homes.values()):
        # Freeing one may have freed another.
        if comm != _module.COMM_NULL and comm.Get_attr(_home_key) is not None:
            comm.Delete_attr(_home_key)


# ---- how a job ends ------------------------------------------------------------------------------------------------


def _end_together(rank):
    """Let a failure of this process end all ranks: uncaught exceptions, also of threads, and `sys.exit(not 0)`."""
    previous = sys.excepthook
    previous_of_threads = threading.excepthook

    def excepthook(kind, value, trace):
        if previous is sys.__excepthook__:
            report(rank, "".join(traceback.format_exception(kind, value, trace)))
        else:
            report(rank, "uncaught exception")
            previous(kind, value, trace)
        abort(1)

    def thread_excepthook(args):
        if args.exc_type is SystemExit or issubclass(args.exc_type, SystemExit):
            previous_of_threads(args)
            return
        name = args.thread.name if args.thread is not None else "unknown"
        text = "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
        report(rank, f"Exception in thread {name}:\n{text}")
        abort(1)

    sys.excepthook = excepthook
    threading.excepthook = thread_excepthook
    sys.exit = _exit
    quitter = sys.modules.get("_sitebuiltins")  # exit() and quit() raise by themselves
    if quitter is not None:
        quitter.SystemExit = _Exit


class _Exit(SystemExit):
    """What `sys.exit` raises, so that one rank that fails ends all.

    Nobody knows when it is raised whether it will be caught.  But when nobody
    caught it the interpreter itself reads `code`, with no Python frame around.
    """

    @property
    def code(self):
        status = SystemExit.code.__get__(self)
        if sys._getframe().f_back is None and status is not None and not (isinstance(status, int) and status == 0):
            if isinstance(status, int):
                abort(status & 0xFF or 1)
            else:
                report(_module.COMM_WORLD.rank, str(status))
                abort(1)
        return status


def _exit(status=None, /):
    """Exit the interpreter by raising SystemExit(status); a failing status that nobody catches ends all ranks."""
    if isinstance(status, BaseException):
        raise status
    if status is None:
        raise _Exit
    raise _Exit(*status) if isinstance(status, tuple) else _Exit(status)


def report(rank, text):
    """Write a text to stderr with the rank before every line, in one piece, so that ranks do not interleave."""
    lines = "".join(f"[rank {rank}] {line}\n" for line in text.rstrip("\n").split("\n"))
    sys.stderr.write(lines)
    sys.stderr.flush()


def abort(status):
    """End all ranks of the job with a status; in a forked child, only note that MPI is not its own."""
    if os.getpid() != _process or _module.Is_finalized():
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    _module.COMM_WORLD.Abort(status)
