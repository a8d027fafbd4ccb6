"""In debug mode: do all ranks run the same operation on the same arguments, and did it end well on all of them?

One small record before each distributed operation or reshard, and one after it.  What
differs, or a failure on one rank, becomes an error on every rank.
"""

import json

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor
from ..comm import channel
from ..config import state
from ..errors import located, value_error
from .agree import fingerprint

_FEW = 8  # elements of which the values are shown
_KINDS = {
    kind.__name__: kind
    for kind in (ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError, np.linalg.LinAlgError)
}


def run_agreed(name, operands, params, mesh, run):
    """The result of `run()`, once all ranks of the mesh agree on the call; raises on all ranks where one does."""
    line = channel(mesh, None)
    _compare(name, mesh, [json.loads(text) for text in line.record(json.dumps(_call(name, operands, params)).encode())])
    result, error = None, None
    try:
        result = run()
    except Exception as caught:
        error = caught
    told = line.record(b"" if error is None else f"{_kind(error)} {error}".encode())
    if error is not None:
        raise error
    for rank, text in zip(mesh.process_ids, told):
        if text:
            kind, _, reason = text.decode().partition(" ")
            raise _KINDS.get(kind, RuntimeError)(located(f"{name}: rank {rank} failed: {reason}"))
    return result


def _kind(error):
    """The name of the kind of error that the other ranks raise."""
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS), "RuntimeError")


def _call(name, operands, params):
    """What all ranks must have in common: {what: its text}."""
    found = {"the operation": name}
    found.update((f"operand {position}", _operand(operand)) for position, operand in enumerate(operands))
    found.update((f"parameter {parameter}", _value(value)) for parameter, value in params.items())
    return found


def _operand(operand):
    if not isinstance(operand, Tensor):
        return _value(operand)
    layout = operand._spec.layout
    splits = "" if layout.is_default else f", pieces of {[sizes for sizes in layout.splits if sizes is not None]}"
    recorded = "" if operand._node is None or not state.grad_enabled else ", requires grad"
    return f"{operand.dtype.name} {layout.shape} as {list(layout.placements)}{splits}{recorded}"


def _value(value):
    if not is_array(value):
        return f"{type(value).__name__} {value!r}"
    shown = repr(value.tolist()) if value.size <= _FEW else f"hash {fingerprint(value):016x}"
    return f"{value.dtype.name} {value.shape} with {shown}"


def _compare(name, mesh, calls):
    for what in dict.fromkeys(what for call in calls for what in call):
        texts = [call.get(what, "nothing") for call in calls]
        if any(text != texts[0] for text in texts):
            ranks = [f"rank {rank} has {text}" for rank, text in zip(mesh.process_ids, texts)]
            raise value_error(f"{name}: the ranks of {mesh!r} disagree on {what}: {'; '.join(ranks)}")
