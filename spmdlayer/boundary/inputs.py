"""Inputs brought to the placements that `in_placements` asks for."""

from ..autograd.tensor import Tensor
from ..errors import value_error
from ..placement import normalise
from ..redistribute.reshard import reshard_spec
from .trees import flatten


def as_declared(boundary, args, leaves, mesh):
    """The leaves, with distributed ones as declared.

    An input in other placements is resharded when `reshard_inputs` says so,
    else it is an error.  Raises before any communication.
    """
    name = boundary.names[2]
    per_argument = [len(flatten(argument)[0]) for argument in args]
    declared = boundary.ins
    if len(declared) == len(args):
        entries = [entry for entry, count in zip(declared, per_argument) for _ in range(count)]
    elif len(declared) == sum(per_argument):
        entries = list(declared)
    else:
        raise value_error(
            f"{boundary.label}: {name} has {len(declared)} entries for {len(args)} positional inputs; one per input is needed"
        )
    result = list(leaves)
    moves = []
    for position, entry in enumerate(entries):
        leaf = leaves[position]
        if entry is None or not isinstance(leaf, Tensor):
            continue
        where = f"{boundary.label}: {name}[{position}]"
        if leaf._spec is None:
            raise value_error(f"{where} declares {list(entry[1])}, but the input is a local tensor; None is right for it")
        own = mesh if entry[0] is None else entry[0]
        wanted = normalise(entry[1], own.ndim, len(leaf.shape), own.dim_names, where)
        if leaf._spec.mesh == own and leaf._spec.placements == wanted:
            continue
        if not boundary.reshard_inputs:
            raise value_error(
                f"{where} declares {list(wanted)}, but the input has {leaf.placements}; reshard it first, or pass "
                "reshard_inputs=True"
            )
        moves.append((position, own, wanted))
    for position, own, wanted in moves:
        leaf = leaves[position]
        result[position] = reshard_spec(leaf, own, wanted)
    return result
