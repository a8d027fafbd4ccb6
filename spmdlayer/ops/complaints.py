"""What errors of distributed operations say: the operation, the global shapes, the placements.

A rule or NumPy knows what is wrong, but not on what; and where pieces are
compared, the rank's piece and not the tensor.
"""

import re

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor
from ..errors import located

# The first that fits; others, of the library's own state say, are left as they are.
_KINDS = (np.linalg.LinAlgError, TypeError, OverflowError, ZeroDivisionError, IndexError, ValueError)
_RANK = re.compile(r"^\[rank \d+\] ")


def described(operand):
    """An operand as text: dtype, global shape, placements, mesh."""
    if isinstance(operand, Tensor):
        text = f"{operand.dtype.name} {operand.shape}"
        if not operand.is_dist():
            return f"a local {text}"
        return f"{text} as {list(operand.placements)} on {operand.process_mesh!r}"
    if is_array(operand):
        return f"a NumPy array of {operand.dtype.name} {operand.shape}"
    return repr(operand)


def complaint(error, op, operands):
    """The error to raise for one that an operation on distributed operands raised; None: the error itself."""
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), None)
    if kind is None:
        return None
    reason = _RANK.sub("", str(error)).rstrip(". ")
    if not reason.startswith(f"{op.name}: "):
        reason = f"{op.name}: {reason}"
    return kind(located(f"{reason}; operands: {', '.join(map(described, operands))}"))
