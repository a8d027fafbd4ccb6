"""Moving distributed tensors between layouts, with gradients; the crossing to and from local tensors."""

from . import leaf, reshard  # noqa: F401: they tell the tape how cotangents of distributed tensors behave
