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
        reshard_bytes(layout, needed, dtype.itemsize, coord)
        for layout, needed, dtype in zip(call.layouts, rule.inputs, call.dtypes)
        if layout is not None and needed is not None
    )
    return moved + (0 if rule.sends is None else rule.sends(coord))


def reshard_bytes(source, target, itemsize, coord):
    """The bytes that the rank at a mesh coordinate sends where a tensor goes from one layout to another."""
    return sum(step.bytes(coord) for step in plan(source, target, itemsize))


def moved_bytes(layout, needed, dtype):
    """The bytes that all ranks together send to bring an operand from one layout to another."""
    if layout is None or needed is None:  # a plain array or number is whole on every rank, and cutting moves nothing
        return 0
    return sum(step.total() for step in plan(layout, needed, dtype.itemsize)) / prod(needed.mesh_shape)
