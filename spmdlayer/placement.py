"""Placements: how the pieces along one mesh axis encode a distributed tensor.

A distributed tensor has one placement for each axis of its mesh.  Placements
are immutable and there is one object for each value, so comparing and hashing
them costs what comparing identities costs.
"""

import enum
import operator

from .errors import type_error, value_error


class ReduceType(enum.Enum):
    """The reductions of `Partial`, by Paddle's names; the plain strings work too."""

    kRedSum = "sum"
    kRedMax = "max"
    kRedMin = "min"
    kRedProd = "prod"
    kRedAvg = "avg"
    kRedAny = "any"
    kRedAll = "all"


_OPS = tuple(member.value for member in ReduceType)
_interned = {}


class Placement:
    """Base of `Shard`, `Replicate` and `Partial`.  Not made by itself."""

    __slots__ = ()
    kind = None

    def __new__(cls):
        if cls is Placement:
            raise type_error("Placement is a base class; give Shard(dim), Replicate() or Partial(op)")
        return _intern(cls, ())

    def __setattr__(self, name, value):
        raise AttributeError(f"{self!r} is immutable; make another placement instead")

    def __delattr__(self, name):
        raise AttributeError(f"{self!r} is immutable; make another placement instead")

    def is_shard(self, dim=None):
        """Whether this is a `Shard`, of dimension `dim` if that is given."""
        return self.kind == "shard" and (dim is None or dim == self.dim)

    def is_replicated(self):
        """Whether this is `Replicate()`."""
        return self.kind == "replicate"

    def is_replicate(self):
        """Whether this is `Replicate()`."""
        return self.kind == "replicate"

    def is_partial(self, op=None):
        """Whether this is a `Partial`, with reduction `op` if that is given."""
        return self.kind == "partial" and (op is None or _op_name(op) == self.op)


def _intern(cls, values):
    """The one placement of a class with these values for its slots."""
    key = (cls, *values)
    placement = _interned.get(key)
    if placement is None:
        placement = object.__new__(cls)
        for name, value in zip(cls.__slots__, values):
            object.__setattr__(placement, name, value)
        placement = _interned.setdefault(key, placement)  # another thread may have been first
    return placement


class Shard(Placement):
    """Slices of dimension `dim`, one a rank, in the order of the ranks.

    Parameters
    ----------
    dim : int
        The dimension that is sliced; negative counts from the last one.
        Slices are as equal as can be: the first ``size % n`` ranks get one
        item more (`numpy.array_split`).
    block : int, optional
        Deal out blocks of this many items in turn (block-cyclic) instead of
        one slice a rank.
    """

    __slots__ = ("dim", "block")
    kind = "shard"

    def __new__(cls, dim, block=None):
        return _intern(cls, (_integer(dim, "dim"), None if block is None else _positive(block)))

    def get_dim(self):
        """The dimension that is sliced."""
        return self.dim

    def __repr__(self):
        return f"Shard({self.dim})" if self.block is None else f"Shard({self.dim}, block={self.block})"

    def __reduce__(self):
        return Shard, (self.dim, self.block)


class Replicate(Placement):
    """Equal copies: every rank holds the whole."""

    __slots__ = ()
    kind = "replicate"

    def __repr__(self):
        return "Replicate()"

    def __reduce__(self):
        return Replicate, ()


class Partial(Placement):
    """Pieces whose elementwise reduction over the ranks is the tensor.

    Parameters
    ----------
    reduce_type : str or ReduceType
        ``"sum"`` (the default), ``"avg"``, ``"max"``, ``"min"``, ``"prod"``,
        ``"any"`` or ``"all"``.
    """

    __slots__ = ("op",)
    kind = "partial"

    def __new__(cls, reduce_type="sum"):
        return _intern(cls, (_op_name(reduce_type),))

    def reduce_type(self):
        """The reduction, as a `ReduceType`."""
        return ReduceType(self.op)

    def __repr__(self):
        return f"Partial({self.op!r})"

    def __reduce__(self):
        return Partial, (self.op,)


class Own(Placement):
    """Each rank's own share of a cotangent; internal to the tape, never a user's placement."""

    __slots__ = ()
    kind = "own"

    def __repr__(self):
        return "Own()"

    def __reduce__(self):
        return Own, ()


def _op_name(reduce_type):
    if isinstance(reduce_type, ReduceType):
        return reduce_type.value
    if isinstance(reduce_type, str):
        if reduce_type in _OPS:
            return reduce_type
        raise value_error(f"Partial: {reduce_type!r} is not a reduction; give one of {', '.join(map(repr, _OPS))}")
    raise type_error(
        f"Partial: {reduce_type!r} is not a reduction; give a ReduceType or one of {', '.join(map(repr, _OPS))}"
    )


def _integer(value, name):
    if isinstance(value, bool):
        raise type_error(f"Shard: {name} is {value!r}; an int is needed, like Shard(0)")
    try:
        return operator.index(value)
    except TypeError:
        raise type_error(f"Shard: {name} is {value!r}; an int is needed, like Shard(0)") from None


def _positive(block):
    number = _integer(block, "block")
    if number < 1:
        raise value_error(f"Shard: block is {number}; a block has at least 1 item")
    return number


def normalise(placements, mesh_ndim, ndim=None, dim_names=None, argument="placements"):
    """Check placements against a mesh and a tensor; a tuple with no negative dims.

    Parameters
    ----------
    placements : list or tuple of Placement, one for each mesh axis
    mesh_ndim : number of mesh axes
    ndim : number of the tensor's dimensions; None leaves dims unchecked
    dim_names : names of the mesh axes, for messages
    argument : what messages call `placements`

    Raises
    ------
    TypeError where something is no placement, ValueError for too many, too
    few, or a `Shard` outside the tensor's dimensions.
    """
    if not isinstance(placements, (list, tuple)):
        hint = f"[{placements!r}]" if isinstance(placements, Placement) else "[Shard(0)]"
        raise type_error(
            f"{argument}: {placements!r} was given; a list with one placement for each mesh axis is needed, like {hint}"
        )
    for axis, placement in enumerate(placements):
        if not isinstance(placement, Placement):
            raise type_error(
                f"{argument}[{axis}]: {placement!r} is not a placement; give Shard(dim), Replicate() or Partial(op)"
            )
    if len(placements) != mesh_ndim:
        names = f" ({', '.join(map(str, dim_names))})" if dim_names else ""
        raise value_error(
            f"{argument}: {len(placements)} given, {list(placements)!r}; the mesh has {mesh_ndim} "
            f"{'axis' if mesh_ndim == 1 else 'axes'}{names} and needs one placement for each"
        )
    if ndim is None:
        return tuple(placements)
    return tuple(_within(placement, ndim, f"{argument}[{axis}]") for axis, placement in enumerate(placements))


def _within(placement, ndim, argument):
    """The placement with its dim between 0 and ndim - 1."""
    if placement.kind != "shard" or 0 <= placement.dim < ndim:
        return placement
    if -ndim <= placement.dim < 0:
        return Shard(placement.dim + ndim, placement.block)
    right = f"a dim from {-ndim} to {ndim - 1} is needed" if ndim else "a 0-d tensor has nothing to slice: Replicate()"
    raise value_error(f"{argument}: {placement!r} is outside the tensor's {ndim} dimensions; {right}")
