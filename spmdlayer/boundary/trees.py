"""Nested lists, tuples and dicts of inputs and outputs, flattened and packed back.

optree does it (dicts in sorted key order); the plain cases of one tensor and of
a tuple or list of tensors skip it.
"""

from ..autograd.tensor import Tensor

SINGLE = "PyTreeSpec(*)"  # as optree writes it


class _Sequence:
    """The structure of a flat tuple or list."""

    __slots__ = ("kind", "count")

    def __init__(self, kind, count):
        self.kind = kind
        self.count = count

    def __eq__(self, other):
        return type(other) is _Sequence and (self.kind, self.count) == (other.kind, other.count)

    def __hash__(self):
        return hash((self.kind, self.count))

    def __str__(self):
        """As optree writes the structure, which the others may have got from it."""
        leaves = ", ".join("*" * self.count)
        if self.kind is list:
            return f"PyTreeSpec([{leaves}])"
        return f"PyTreeSpec(({leaves}{',' if self.count == 1 else ''}))"


def flatten(value):
    """The leaves of a nested value, and its structure (whose str is equal on ranks with the same one)."""
    if isinstance(value, Tensor):
        return [value], SINGLE
    if type(value) in (tuple, list) and all(isinstance(item, Tensor) for item in value):
        return list(value), _Sequence(type(value), len(value))
    import optree

    leaves, structure = optree.tree_flatten(value)
    return leaves, structure


def unflatten(structure, leaves):
    """A nested value from its structure and leaves."""
    if structure is SINGLE:
        return leaves[0]
    if isinstance(structure, _Sequence):
        return structure.kind(leaves)
    import optree

    return optree.tree_unflatten(structure, leaves)


def flatten_arguments(args, kwargs):
    """The leaves of a call's arguments, and their structure; None for tensors in a row, the common case."""
    if not kwargs:
        for argument in args:
            if type(argument) is not Tensor:
                break
        else:
            return list(args), None
    return flatten((list(args), kwargs))


def unflatten_arguments(structure, leaves):
    """(args, kwargs) from the structure and leaves of `flatten_arguments`."""
    return (leaves, {}) if structure is None else unflatten(structure, leaves)
