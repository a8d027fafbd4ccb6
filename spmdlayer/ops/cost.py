"""What an operation on given layouts sends: the bytes of its rule.

Operands that are not as the rule needs them are resharded, by the plan's
steps; then the local code runs, which communicates only where the rule says
so (`Rule.across`).
"""

from math import prod

from ..plan import plan
from .rules import rule_of


def operation_bytes(call, coord):
    """The bytes that the rank at a mesh coordinate sends in the forward of a `Call`."""
    rule = rule_of(call)
    moved = sum(
        step.bytes(coord)
        for layout, needed, dtype in zip(call.layouts, rule.inputs, call.dtypes)
        for step in _steps(layout, needed, dtype)
    )
    return moved + (0 if rule.sends is None else rule.sends(coord))


def moved_bytes(layout, needed, dtype):
    """The bytes that all ranks together send to bring an operand from one layout to another."""
    return sum(step.total() for step in _steps(layout, needed, dtype)) / prod(needed.mesh_shape) if needed else 0


def _steps(layout, needed, dtype):
    """A plain array or number is whole on every rank, and cutting moves nothing."""
    return () if layout is None or needed is None else plan(layout, needed, dtype.itemsize)
