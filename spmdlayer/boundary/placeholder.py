"""Tensors on ranks that their mesh does not contain.

Such a rank takes no part in the work, but runs the same program: it holds a
placeholder, without data.  Operations on it give placeholders, and nodes that
pass on a cotangent without data, so that backward reaches the reshards in
which this rank does take part.
"""

import numpy as np

from ..autograd.tensor import wrap
from ..config import state
from ..redistribute.between import PLACEHOLDER, UnknownSpec
from ..autograd.tape import Node


def placeholder(mesh, placements, edges=()):
    """A tensor on a mesh that does not contain this rank, of a shape not known here."""
    node = Node(PLACEHOLDER, tuple(edges)) if state.grad_enabled else None
    spec = UnknownSpec(mesh, placements)
    if node is not None:
        node.spec = spec
    return wrap(np.empty(0, np.float32), node, spec)
