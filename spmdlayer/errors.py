"""How errors of use are worded: the rank first, then what is wrong.

Errors of use are `ValueError` (for an axis NumPy's `AxisError`), `IndexError` and `TypeError`.  Every message names the
argument, what was given and what would be right; the rank is put in front
once it is known.
"""

from numpy.exceptions import AxisError

_rank = None


def set_rank(rank):
    """Tell the messages which rank of MPI_COMM_WORLD this process is."""
    global _rank
    _rank = rank


def located(message):
    """A message with this process's rank in front, once it is known."""
    return message if _rank is None else f"[rank {_rank}] {message}"


def value_error(message):
    """A ValueError to raise, with this process's rank in its text."""
    return ValueError(located(message))


def index_error(message):
    """An IndexError to raise, with this process's rank in its text."""
    return IndexError(located(message))


def axis_error(message):
    """NumPy's AxisError, a ValueError and an IndexError in one, with this process's rank in its text."""
    return AxisError(located(message))


def type_error(message):
    """A TypeError to raise, with this process's rank in its text."""
    return TypeError(located(message))


def runtime_error(message):
    """A RuntimeError to raise, with this process's rank in its text."""
    return RuntimeError(located(message))


def buffer_error(message):
    """A BufferError to raise, with this process's rank in its text."""
    return BufferError(located(message))
