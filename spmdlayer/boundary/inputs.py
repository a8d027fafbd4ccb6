"""What goes into a region: the checks before anything is communicated, and how each gradient comes out.

The inputs are the distributed tensors among a call's (flattened) arguments,
and captures: tensors that the local code refers to, such as a layer's own
parameters.
"""

from contextlib import contextmanager

from ..autograd.tape import Node
from ..autograd.tensor import Tensor, wrap
from ..config import settings, state
from ..errors import runtime_error, type_error, value_error
from ..placement import normalise
from ..redistribute.reshard import reshard_spec
from ..spec import spec_of
from .attrs import auto_layout, gradient_layout
from .fence import REGION_INPUT
from .trees import flatten
from .verify import check_gradient, warn_of_copies


class Crossing:
    """How the gradient of one input leaves the region.

    Attributes
    ----------
    name : what declares it, for messages
    mesh : of the input
    read : Spec in which the local gradients are read
    claimed : mesh axes along which it is declared Replicate, to be verified
    summed : mesh axes along which it is declared Partial('sum')
    factor : what the local gradient is multiplied with
    captured : whether the input is a captured tensor
    """

    __slots__ = ("name", "mesh", "read", "claimed", "summed", "factor", "captured")

    def __init__(self, name, spec, layout, declared, captured=False):
        self.name = name
        self.mesh = spec.mesh
        self.read = spec_of(spec.mesh, layout)
        self.claimed = self.summed = ()
        self.factor = 1
        self.captured = captured
        if declared:
            kinds = [
                p.kind if own.kind == "replicate" and size > 1 else None
                for p, own, size in zip(layout.placements, spec.placements, spec.mesh.shape)
            ]
            self.claimed = tuple(axis for axis, kind in enumerate(kinds) if kind == "replicate")
            self.summed = tuple(axis for axis, kind in enumerate(kinds) if kind == "partial")

    def gradient(self, g, entry):
        """The local gradient as it crosses; compared between ranks when that is due."""
        if entry.check is not None:
            raw = g._data if isinstance(g, Tensor) else g
            if self.claimed:
                check_gradient(entry.check, raw, self.mesh, self.claimed, self.name)
            if self.summed and settings.debug:
                warn_of_copies(entry.check, raw, self.mesh, self.summed, self.name)
        return g if self.factor == 1 else g * self.factor


def is_distributed(value):
    """Whether a leaf of the arguments is a distributed tensor."""
    return isinstance(value, Tensor) and value._spec is not None


def leaves_each(arguments):
    """How many leaves each argument has."""
    return [1 if isinstance(argument, Tensor) else len(flatten(argument)[0]) for argument in arguments]


def for_each_leaf(declared, arguments, label, name):
    """The entry of each leaf of the positional arguments.

    One is declared for each argument (and holds for all its leaves), or one
    for each leaf; None stands for None for each.
    """
    counts = leaves_each(arguments)
    if declared is None:
        return [None] * sum(counts)
    if len(declared) == len(arguments):
        return [entry for entry, count in zip(declared, counts) for _ in range(count)]
    if len(declared) == sum(counts):
        return list(declared)
    raise value_error(
        f"{label}: {name} has {len(declared)} entries for {len(arguments)} positional inputs; one per input is needed "
        "(None where nothing is declared)"
    )


def check_inputs(label, leaves, captures):
    """Raise for captures that are no tensors, and for distributed tensors that have no meaning here."""
    for position, capture in enumerate(captures):
        if not isinstance(capture, Tensor):
            raise type_error(f"{label}: captures[{position}] is a {type(capture).__name__}, a Tensor is needed")
    here = state.region
    for position, leaf in enumerate((*leaves, *captures)):
        if not is_distributed(leaf) or leaf._spec.region is here:
            continue
        which = f"input {position}" if position < len(leaves) else f"captures[{position - len(leaves)}]"
        if here is None:
            raise runtime_error(f"{label}: {which} is a distributed tensor made inside a region that has ended")
        raise runtime_error(
            f"{label}: {which} is a distributed tensor from outside {here.label}, where it has no meaning; pass it as "
            "an input of the outer region"
        )


def check_meshes(label, leaves, captures, mesh):
    """Raise for an input whose mesh has other ranks than the region: some would miss in backward."""
    for position, leaf in enumerate((*leaves, *captures)):
        if not is_distributed(leaf):
            continue
        own = leaf._spec.mesh
        if own is mesh or own == mesh or (own.comm == mesh.comm and set(own.process_ids) == set(mesh.process_ids)):
            continue
        which = f"input {position}" if position < len(leaves) else f"captures[{position - len(leaves)}]"
        raise value_error(
            f"{label}: {which} is on {own!r} and the region on {mesh!r}, which has other ranks; reshard it to that "
            "mesh first"
        )


def as_declared(leaves, entries, mesh, label, name, reshard_inputs):
    """The leaves, with distributed ones in the placements that `entries` ask for.

    An input in other placements is resharded when `reshard_inputs` says so,
    else it is an error.  Raises before any communication.
    """
    moves = []
    for position, (leaf, entry) in enumerate(zip(leaves, entries)):
        if entry is None or not isinstance(leaf, Tensor):
            continue
        where = f"{label}: {name}[{position}]"
        if leaf._spec is None:
            raise value_error(
                f"{where} declares {list(entry[1])}, but the input is a local tensor; None is right for it"
            )
        own = mesh if entry[0] is None else entry[0]
        ndim = None if leaf._spec.shape is None else len(leaf._spec.shape)
        wanted = normalise(entry[1], own.ndim, ndim, own.dim_names, where)
        if leaf._spec.mesh == own and leaf._spec.placements == wanted:
            continue
        if not reshard_inputs:
            raise value_error(
                f"{where} declares {list(wanted)} on {own!r}, but the input has {leaf.placements} on "
                f"{leaf._spec.mesh!r}; reshard it first, or pass reshard_inputs=True"
            )
        moves.append((position, own, wanted))
    result = list(leaves)
    for position, own, wanted in moves:
        result[position] = reshard_spec(leaves[position], own, wanted)
    return result


def crossings_of(leaves, entries, auto, label, name):
    """The Crossing of each leaf, None for one that isn't distributed.

    `entries` are of the positional arguments' leaves, which come first; the
    others have none.  Raises for an attr that cannot hold the local gradient.
    """
    found = []
    for position, leaf in enumerate(leaves):
        if not is_distributed(leaf):
            found.append(None)
            continue
        spec = leaf._spec
        if auto:
            found.append(Crossing(name, spec, auto_layout(spec.layout), False))
            continue
        called, entry = f"{name} (None for a keyword argument: its own)", None
        if position < len(entries):
            entry = entries[position]
            called = f"{name}[{position}]" if entry is not None else f"{name}[{position}] (None: the input's own)"
        layout = gradient_layout(entry, spec, f"{label}: {called}", leaf._node is not None)
        found.append(Crossing(called, spec, layout, True))
    return found


def captured_crossings(captures):
    """The Crossing of each captured tensor, by the auto rule; None for a local one."""
    return [
        Crossing("captures", c._spec, auto_layout(c._spec.layout), False, True) if c._spec is not None else None
        for c in captures
    ]


def enter_region(tensors, crossings, fence):
    """Each tensor's piece inside the open region; what isn't distributed as it is."""
    pieces, enabled = [], state.grad_enabled
    for tensor, way in zip(tensors, crossings):
        if way is None:
            pieces.append(tensor)
        elif enabled and tensor._node is not None:
            data = tensor._data  # `pass_in`, without the call
            node = Node(REGION_INPUT, (tensor._node,), None, (way.read, (data.shape, data.dtype, type(data)), way))
            fence.nodes.append(node)
            pieces.append(wrap(data, node, None))
        else:
            pieces.append(wrap(tensor._data, None, None))
    return pieces


@contextmanager
def made_local(tensors, pieces, label):
    """While it lasts each distributed tensor *is* its local piece, whoever refers to it.

    Raises where one was written to: the write would be lost.
    """
    swapped = [(t, p, (t._data, t._node, t._spec)) for t, p in zip(tensors, pieces) if t._spec is not None]
    try:
        for tensor, piece, _ in swapped:
            tensor._data, tensor._node, tensor._spec = piece._data, piece._node, None
        yield
        for tensor, piece, _ in swapped:
            if tensor._data is not piece._data:
                raise runtime_error(
                    f"{label}: the code wrote to a captured tensor or parameter, and the write would be lost when the "
                    "region ends; write to a copy(), or outside the region"
                )
    finally:
        for tensor, _, outside in swapped:
            tensor._data, tensor._node, tensor._spec = outside
