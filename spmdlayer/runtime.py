"""MPI as this process sees it: started when first asked for, ended for all ranks when one fails.

Importing this file initialises nothing.  `mpi()` does, the first time: it
imports mpi4py.MPI, lets glibc keep freed memory, and, where there are several
ranks, makes an uncaught exception or a failing exit of one rank end the job;
otherwise the other ranks would wait for it for ever.
"""

import atexit
import ctypes
import gc
import os
import sys
import threading
import time
import traceback

from .errors import runtime_error, set_rank

# Open MPI mixes up a message of the user that waits on a communicator with what it sends itself to make another from
# it, where both have one tag.  Its default, 0, is what most users have.
_TAG = 29998
_DRAIN = 0.2  # seconds between what a failing rank writes and the end of the job

_module = None
_home_key = None
_process = None
_status_of_child = None  # what a forked child of a rank ends with, where failures end all ranks
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
                state = "has been finalised" if MPI.Is_finalized() else "is not initialised, as mpi4py.rc asks for"
                raise runtime_error(f"MPI {state}; call this between MPI.Init_thread() and MPI.Finalize()")
            set_rank(MPI.COMM_WORLD.rank)
            _keep_freed_memory()
            _process = os.getpid()
            _home_key = MPI.Comm.Create_keyval(None, _forget)
            atexit.register(_leave)
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
    if os.getpid() == _process:
        close()
    elif _status_of_child is not None:
        # mpi4py would go on to finalise the parent's MPI, which ends or hangs the job.
        _flush()
        os._exit(_status_of_child)


# ---- how a job ends ------------------------------------------------------------------------------------------------


def _end_together(rank):
    """Let a failure of this process end all ranks: an uncaught exception, also of a thread, or a failing exit."""
    global _status_of_child
    previous = sys.excepthook
    previous_of_threads = threading.excepthook

    def excepthook(kind, value, trace):
        if previous is sys.__excepthook__:
            report(rank, "".join(traceback.format_exception(kind, value, trace)))
        else:
            report(rank, "uncaught exception:")
            previous(kind, value, trace)
        abort(1)

    def thread_excepthook(args):
        if issubclass(args.exc_type, SystemExit):
            previous_of_threads(args)
            return
        name = args.thread.name if args.thread is not None else "unknown"
        text = "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
        report(rank, f"Exception in thread {name}:\n{text}")
        abort(1)

    _status_of_child = 0
    sys.excepthook = excepthook
    threading.excepthook = thread_excepthook
    _watch_system_exit(rank)


def _watch_system_exit(rank):
    """End all ranks where the interpreter ends this one on a SystemExit with a failure.

    No hook is called for SystemExit, and aborting in `sys.exit` would miss
    `raise SystemExit(main())` and hit those that are caught.  But the
    interpreter reads the attribute `code` of one that nobody caught, with no
    Python frame around.  Built-in types cannot be assigned to, so the
    attribute is replaced in the type's own dictionary.  Up to Python 3.11 the
    built-in `sys.exit` makes no instance that could be asked for it.
    """
    attributes = gc.get_referents(SystemExit.__dict__)
    if sys.implementation.name != "cpython" or len(attributes) != 1:
        return
    stored = SystemExit.code

    def read(exception):
        status = stored.__get__(exception)
        failed = status is not None and not (isinstance(status, int) and status == 0)
        if failed and sys._getframe().f_back is None:
            if isinstance(status, int):
                abort(status & 0xFF or 1)
            else:
                report(rank, str(status))
                abort(1)
        return status

    attributes[0]["code"] = property(read, stored.__set__, stored.__delete__, stored.__doc__)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))
    sys.exit = _exit


def _exit(status=None, /):
    """Exit the interpreter by raising SystemExit(status)."""
    if isinstance(status, BaseException):
        raise status
    arguments = status if isinstance(status, tuple) else () if status is None else (status,)
    raise SystemExit(*arguments)


def report(rank, text):
    """Write a text to stderr with the rank before every line, in one piece, so that ranks do not interleave."""
    sys.stderr.write("".join(f"[rank {rank}] {line}\n" for line in text.rstrip("\n").split("\n")))
    sys.stderr.flush()


def abort(status):
    """End all ranks of the job with a status; in a forked child, only note the status for its own end."""
    global _status_of_child
    if _module.Is_finalized():
        return
    if os.getpid() != _process:
        _status_of_child = status
        return
    _flush()
    # A launcher that hears of the end before it has read what was written may drop it.
    time.sleep(_DRAIN)
    _module.COMM_WORLD.Abort(status)
    # MPICH tells its launcher and may come back before that has killed this process.
    os._exit(status)


def _flush():
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
