"""Tensors on ranks that their mesh does not contain.

Such a rank takes no part in the work, but runs the same program: it holds a
placeholder, without data.  Operations on it give placeholders, and nodes that
pass on a cotangent without data, so that backward reaches the reshards in
which this rank does take part.
"""

import numpy as np

from ..autograd.tape import Node, upper
from ..autograd.tensor import wrap
from ..config import state
from ..redistribute.between import PLACEHOLDER, UnknownSpec, no_data
from ..redistribute.crossing import make_spec


def placeholder(mesh, placements, edges=(), recorded=False):
    """A tensor on a mesh that does not contain this rank, of a shape not known here.

    `edges` are the nodes of what it was computed from; where there is one,
    backward goes on to them.  `recorded` gives it a node without any.
    """
    spec = UnknownSpec(mesh, placements)
    edges = tuple(edge for edge in edges if edge is not None)
    node = Node(PLACEHOLDER, edges, None, None, spec) if (edges or recorded) and state.grad_enabled else None
    return wrap(np.empty(0, np.float32), node, spec)


def known_placeholder(mesh, layout, dtype):
    """A tensor on a mesh that does not contain this rank, of a shape that is known here: a leaf."""
    return wrap(np.empty((0,) * len(layout.shape), dtype), None, make_spec(mesh, layout))


upper.no_data = no_data
