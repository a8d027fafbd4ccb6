"""What Python calls where a program ends by a fault: an uncaught exception, a failing exit, `os._exit`."""

import ctypes
import gc
import os
import sys
import threading
import traceback

from .ending import end_job
from .process import flush, process, stack_of

_INTERRUPTED = 130  # what shells give a program that ended by Ctrl-C


def install():
    """Let these faults of this process end all ranks; hooks of the user are called too."""
    process.status_of_child = 0
    _hook_exceptions()
    _hook_threads()
    _hook_system_exit()
    _hook_immediate_exit()


def _hook_exceptions():
    previous = sys.excepthook

    def excepthook(kind, value, trace):
        if not process.guarded():
            if not process.is_rank():
                process.status_of_child = 1
            previous(kind, value, trace)
            return
        text = "".join(traceback.format_exception(kind, value, trace))
        if previous is not sys.__excepthook__:
            previous(kind, value, trace)
            text = "uncaught exception: " + "".join(traceback.format_exception_only(kind, value))
        end_job(text, _INTERRUPTED if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = excepthook


def _hook_threads():
    previous = threading.excepthook

    def excepthook(args):
        if issubclass(args.exc_type, SystemExit) or not process.guarded():
            previous(args)
            return
        name = args.thread.name if args.thread is not None else "unknown"
        text = "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
        if previous is not threading.__excepthook__:
            previous(args)
            text = "".join(traceback.format_exception_only(args.exc_type, args.exc_value))
        end_job(f"Exception in thread {name}:\n{text}", 1)

    threading.excepthook = excepthook


def _hook_system_exit():
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
            _leave_by(exception, status)
        return status

    attributes[0]["code"] = property(read, stored.__set__, stored.__delete__, stored.__doc__)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))
    sys.exit = _exit


def _leave_by(exception, status):
    number = (status & 0xFF or 1) if isinstance(status, int) else 1
    if not process.is_rank():
        process.status_of_child = number
    elif process.guarded():
        trace = "".join(traceback.format_exception(SystemExit, exception, exception.__traceback__))
        end_job(trace, number)


def _exit(status=None, /):
    """Exit the interpreter by raising SystemExit(status)."""
    if isinstance(status, BaseException):
        raise status
    arguments = status if isinstance(status, tuple) else () if status is None else (status,)
    raise SystemExit(*arguments)


def _hook_immediate_exit():
    """End all ranks where one calls `os._exit`: to MPICH's launcher a rank that ends so with status 0 has done well."""
    real = process.exit

    def immediate_exit(status):
        """Exit to the system with specified status, without normal exit processing."""
        if process.guarded():
            flush()
            end_job(f"{stack_of(sys._getframe(1))}os._exit({status}) before MPI was finalised", status & 0xFF or 1)
        real(status)

    os._exit = immediate_exit
