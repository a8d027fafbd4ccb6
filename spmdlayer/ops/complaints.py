"""What errors of distributed operations say: the operation, the global shapes, the placements.

A rule or NumPy knows what is wrong, but not on what; and where pieces are
compared, the rank's piece and not the tensor.
"""

import re

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor
from ..errors import located

# The first that fits, of Python's and NumPy's errors; others say what they have to themselves.
_KINDS = (np.linalg.LinAlgError, TypeError, OverflowError, ZeroDivisionError, IndexError, ValueError)
_RANK = re.compile(r"^\[rank \d+\] ")


def shown(x):
    """The global shape of a tensor or array as text, with the placements of a distributed one."""
    distributed = isinstance(x, Tensor) and x.is_dist()
    return f"{x.shape} as {list(x.placements)}" if distributed else str(x.shape)


def described(operand):
    """An operand as text: dtype, global shape, placements, mesh."""
    if isinstance(operand, Tensor):
        text = f"{operand.dtype.name} {shown(operand)}"
        return f"{text} on {operand.process_mesh!r}" if operand.is_dist() else f"a local {text}"
    if is_array(operand):
        return f"a NumPy array of {operand.dtype.name} {operand.shape}"
    return repr(operand)


def complaint(error, op, operands):
    """The error to raise for one that an operation on distributed operands raised; None: the error itself."""
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), None)
    if kind is None or type(error).__module__.partition(".")[0] not in ("builtins", "numpy"):
        return None
    reason = _RANK.sub("", str(error)).rstrip(". ")
    if not reason.startswith(f"{op.name}: "):
        reason = f"{op.name}: {reason}"
    return kind(located(f"{reason}; operands: {', '.join(map(described, operands))}"))
