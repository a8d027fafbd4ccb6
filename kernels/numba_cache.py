"""Compile with numba, and keep the result on disk safely.

Ranks start at once and share a home directory, perhaps between machines of
several kinds.  numba's cache numbers its files in the order in which
signatures are compiled, so two processes can give one name to two results.
Here each signature, source, numba and kind of CPU has a directory of its own:
whoever writes there writes the same, and numba replaces files atomically.
"""

import hashlib
import os
import threading
from pathlib import Path

import numba
from numba.core import config
from numba.core.registry import cpu_target

_lock = threading.Lock()


def compile_cached(function, signature, **options):
    """The function compiled for one signature, taken from the disk where it is there.

    Below `NUMBA_CACHE_DIR`, else `$XDG_CACHE_HOME/spmdlayer`, else
    `~/.cache/spmdlayer`; nowhere if that cannot be written.
    """
    directory = _directory(function, signature)
    if directory is None:
        return numba.njit(signature, **options)(function)
    with _lock:
        before, config.CACHE_DIR = config.CACHE_DIR, str(directory)
        try:
            return numba.njit(signature, cache=True, **options)(function)
        finally:
            config.CACHE_DIR = before


def _directory(function, signature):
    """Where this result belongs, made; None if that is not possible."""
    source = Path(function.__code__.co_filename).read_text()
    machine = repr(cpu_target.target_context.codegen().magic_tuple())
    key = hashlib.sha256("\0".join([signature, source, numba.__version__, machine]).encode()).hexdigest()
    try:
        directory = _base() / f"{function.__module__.rpartition('.')[2]}-{key[:20]}"
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # cannot be written, or there is no home
        return None
    return directory if os.access(directory, os.W_OK | os.X_OK) else None


def _base():
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "spmdlayer"
