"""Distributed rules: in which layouts an operation's local code may run.

A rule is a function of a `Call` (global shapes, layouts, parameters) and
returns a `Rule`: the layout each operand must have, the layout of the result,
and the parameters of the local call where they differ from the global ones.
It looks at integers alone, so rules are cached by what they were asked.

    def rule(call):
        return Rule(inputs, output)

What no rule covers is replicated first: `replicated`, never an error.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from ..dtypes import is_complex, is_inexact
from ..layout import Layout
from ..placement import Partial, Replicate, Shard

REPLICATE = Replicate()
LINEAR = ("sum", "avg")


@dataclass(frozen=True)
class Call:
    """What a rule may look at.

    Attributes
    ----------
    op : the Op
    mesh_shape : of the one mesh of all distributed operands
    layouts : a Layout per operand; None for a plain array or number (equal on all ranks)
    shapes : global shapes (() for a number)
    dtypes : numpy dtypes (None for a Python number)
    params : dict of keyword arguments
    """

    op: object
    mesh_shape: tuple
    layouts: tuple
    shapes: tuple
    dtypes: tuple
    params: dict

    @property
    def axes(self):
        return range(len(self.mesh_shape))

    def placement(self, operand, axis):
        """The placement of an operand along a mesh axis; plain values count as Replicate."""
        layout = self.layouts[operand]
        return REPLICATE if layout is None else layout.placements[axis]


@dataclass(frozen=True)
class Rule:
    """How to run a call.

    Attributes
    ----------
    inputs : a Layout per operand; None leaves a plain number as it is
    output : the Layout of the result
    params : None (as given), or a function of the mesh coordinate to the local parameters
    attaining : the result is a maximum or minimum of pieces, which count the elements that attain it: True for a
        reduction over axes, else a function of (arrays, result, params), with this rank's raw pieces
    across : None, or what runs in place of the local forward where pieces need one another: a function of
        (mesh, arrays, params), with this rank's raw pieces and the global parameters, that gives this rank's
        piece of the result and is collective over the mesh.  Where `output` is None, which only the values
        decide, it gives the pair of the piece and its Layout.  Along an axis where an operand is Partial the
        result has to be so too, and the vjp must keep a Partial sum as it is: see `ops.across`
    sends : of local code that communicates, a function of the mesh coordinate to the bytes that this rank sends;
        None where only the values tell
    """

    inputs: tuple
    output: Layout
    params: object = None
    attaining: object = False
    across: object = None
    sends: object = None


def stated(words, moves):
    """Decorator of rules: what they say of themselves in docs/operations.md.

    Parameters
    ----------
    words : the rule in words, or in factors as "mk,kn->mn"
    moves : what is sent; "nothing" apart from operands that do not lie as the rule has them
    """

    def decorate(rule):
        rule.words, rule.moves = words, moves
        return rule

    return decorate


_ELEMENTWISE = {
    None: "elementwise",
    "unary": "elementwise; a Partial sum or mean stays",
    "add": "elementwise; Partial sums and means stay",
    "multiply": "elementwise; one operand may stay a Partial sum or mean",
    "divide": "elementwise; the first operand may stay a Partial sum or mean",
}


def statement(op):
    """What an operation's rule says of itself: (words, moves), see `stated`."""
    if op.rule is not None:
        return op.rule.words, op.rule.moves
    return (_ELEMENTWISE[op.linear], "nothing") if op.elementwise else ("replicated", "gathers all operands")


def rule_of(call):
    """The Rule of a call: its operation's own, that of elementwise ones, or to replicate all."""
    if call.op.rule is not None:
        return call.op.rule(call)
    return elementwise_rule(call) if call.op.elementwise else replicated(call)


def layout_like(mesh_shape, placements, shape, sources):
    """A Layout whose sharded dims take their offsets from the first source that shards them by the same axes.

    `sources` is a sequence of (layout, dims): dims[d] is the dim of the new
    layout that dim d of the source becomes, or None.
    """
    plain = Layout(mesh_shape, tuple(placements), tuple(shape))
    if all(source is None or source.is_default for source, _ in sources):
        return plain
    splits = [None] * len(shape)
    for dim in range(len(shape)):
        if not plain.sharding_axes(dim):
            continue
        for source, dims in sources:
            if source is None or dim not in dims:
                continue
            origin = dims.index(dim)
            if source.shape[origin] == shape[dim] and source.cuts(origin) == plain.cuts(dim):
                splits[dim] = None if source.splits is None else source.splits[origin]
                break
    return Layout(mesh_shape, tuple(placements), tuple(shape), tuple(splits))


def replicated_layout(mesh_shape, shape):
    """The Layout with everything on every rank."""
    return Layout(mesh_shape, (REPLICATE,) * len(mesh_shape), tuple(shape))


def replicated(call):
    """The rule of last resort: every operand whole on every rank."""
    inputs = tuple(
        None if layout is None else replicated_layout(call.mesh_shape, shape)
        for layout, shape in zip(call.layouts, call.shapes)
    )
    return Rule(inputs, None)


def elementwise_rule(call):
    """Operands broadcast; an output dim is sharded where the leftmost operand that can say so shards it."""
    shape = np.broadcast_shapes(*call.shapes)
    placements = tuple(_elementwise_placement(call, axis, shape) for axis in call.axes)
    sources = [(layout, _aligned(operand_shape, shape)) for layout, operand_shape in zip(call.layouts, call.shapes)]
    output = layout_like(call.mesh_shape, placements, shape, sources)
    inputs = tuple(_elementwise_input(call, operand, output) for operand in range(len(call.layouts)))
    return Rule(inputs, output)


def _aligned(shape, broadcast):
    """For each dim of an operand the dim of the result that it spans, or None where it is broadcast."""
    offset = len(broadcast) - len(shape)
    return [d + offset if size == broadcast[d + offset] else None for d, size in enumerate(shape)]


def _elementwise_placement(call, axis, shape):
    partial = None
    for operand, operand_shape in enumerate(call.shapes):
        placement = call.placement(operand, axis)
        if placement.kind == "shard":
            dim = _aligned(operand_shape, shape)[placement.dim]
            if dim is not None:
                return Shard(dim, placement.block)
        elif placement.kind == "partial" and partial is None:
            partial = _lazy(call, axis)
    return partial or REPLICATE


def _lazy(call, axis):
    """The Partial that a linear operation keeps along an axis, or None."""
    kinds = [call.placement(operand, axis) for operand in range(len(call.layouts))]
    if any(p.kind not in ("partial", "replicate") or (p.kind == "partial" and p.op not in LINEAR) for p in kinds):
        return None
    partial = [index for index, p in enumerate(kinds) if p.kind == "partial"]
    linear = call.op.linear
    if linear == "add":
        ops = {kinds[index].op for index in partial}
        return Partial("avg") if ops == {"avg"} else Partial("sum")
    if linear == "unary" or (linear == "multiply" and len(partial) == 1) or (linear == "divide" and partial == [0]):
        return kinds[partial[0]]
    return None


def _elementwise_input(call, operand, output):
    if call.layouts[operand] is None and call.shapes[operand] == () and not _sums(call, output):
        return None
    shape = call.shapes[operand]
    offset = len(output.shape) - len(shape)
    placements = []
    for axis, placement in enumerate(output.placements):
        if placement.kind == "shard":
            dim = placement.dim - offset
            spans = dim >= 0 and shape[dim] == output.shape[placement.dim]
            placements.append(Shard(dim, placement.block) if spans else REPLICATE)
        elif placement.kind == "partial" and (
            call.op.linear == "add" or call.placement(operand, axis).kind == "partial"
        ):
            placements.append(placement)
        else:
            placements.append(REPLICATE)
    dims = [d - offset if d >= offset else None for d in range(len(output.shape))]
    return layout_like(call.mesh_shape, placements, shape, [(output, dims)])


def _sums(call, output):
    """Whether a plain number must become part of a Partial sum."""
    return call.op.linear == "add" and any(p.kind == "partial" for p in output.placements)


def cut_coordinates(layout, dim):
    """For each piece that a dim is cut into, in order, the coordinate of a rank that holds it."""
    axes = layout.sharding_axes(dim)
    for indices in product(*(range(layout.mesh_shape[axis]) for axis in axes)):
        at = dict(zip(axes, indices))
        yield tuple(at.get(axis, 0) for axis in range(len(layout.mesh_shape)))


# One operand, dimension by dimension ---------------------------------------


def commute(one, other):
    """Whether two Partial reductions may be done in either order."""
    return one == other or (one in LINEAR and other in LINEAR)


def kept_partials(placements, keeps):
    """The mesh axes whose Partial need not be reduced first, for an operation that commutes with those in `keeps`.

    Reductions go from the right to the left, so one that is done takes all at
    its right with it that do not commute with it.
    """
    kept, reduced = set(), []
    for axis, placement in enumerate(placements):
        if placement.kind != "partial":
            continue
        if placement.op in keeps and all(commute(placement.op, op) for op in reduced):
            kept.add(axis)
        else:
            reduced.append(placement.op)
    return kept


def moving(dtype):
    """The Partial reductions that commute with an operation that only moves elements.

    How a maximum's gradient is shared depends on how many elements attain
    it, which its pieces know and others do not; so where there are gradients
    it is reduced first.
    """
    return ("sum", "avg", "prod", "any", "all") + (() if is_inexact(dtype) else ("max", "min"))


def linear_cast(source, target):
    """The Partial reductions that commute with a change of dtype: none where values are cut off."""
    if is_inexact(target) or (source.kind in "iu" and target.kind in "iu"):
        return LINEAR
    return ()


def follow(call, dims, shape, keeps=(), reduces=None):
    """The layouts of the first operand and of the result, of an operation that keeps dimensions apart.

    Parameters
    ----------
    dims : for each dim of the operand the dim of the result that it becomes; None: it must not be sharded
    shape : of the result
    keeps : the Partial reductions that the operation commutes with
    reduces : a reduction: dims without a successor may be sharded, and make the result Partial
    """
    layout = call.layouts[0]
    kept = kept_partials(layout.placements, keeps)
    inputs, outputs = [], []
    for axis, placement in enumerate(layout.placements):
        before = after = REPLICATE
        if placement.kind == "shard" and dims[placement.dim] is not None:
            before, after = placement, Shard(dims[placement.dim], placement.block)
        elif placement.kind == "shard" and reduces is not None:
            before, after = placement, Partial(reduces)
        elif axis in kept:
            before = after = placement
        inputs.append(before)
        outputs.append(after)
    source = layout.with_placements(tuple(inputs))
    return source, layout_like(call.mesh_shape, outputs, shape, [(source, dims)])


def without_axes(ndim, axes, keepdims=False):
    """For each dim where it is once `axes` are gone (or have extent 1, with keepdims); None for those."""
    dims, position = [], 0
    for dim in range(ndim):
        dims.append(None if dim in axes else position)
        position += keepdims or dim not in axes
    return dims


def _reduced(shape, axes, keepdims):
    return tuple(1 if dim in axes else size for dim, size in enumerate(shape) if keepdims or dim not in axes)


def reduction_rule(kind, keeps=()):
    """The rule of a reduction: along reduced sharded dims the result is Partial(kind).

    `keeps` are the Partial operations that the reduction commutes with, so
    that such an operand is not reduced first.
    """

    @stated(f"over sharded dims the result is Partial({kind!r}); such operands stay so", "nothing")
    def rule(call):
        shape, axes = call.shapes[0], call.params["axis"]
        keepdims = call.params.get("keepdims", False)
        given = call.dtypes[0]
        dtype = call.params.get("dtype", given)
        logical = {"sum": "any", "prod": "all"} if dtype.kind == "b" and "dtype" in call.params else {}
        kept = keeps if dtype == given or linear_cast(given, dtype) else ()
        dims = without_axes(len(shape), axes, keepdims)
        source, target = follow(call, dims, _reduced(shape, axes, keepdims), kept, logical.get(kind, kind))
        counted = kind in ("max", "min") and any(p.kind == "partial" for p in target.placements)
        return Rule((source,), target, attaining=counted)

    return rule


def extreme_rule(kind):
    """The rule of max and min; a Partial of the same kind stays so where there are no gradients (see `moving`)."""
    exact, inexact = reduction_rule(kind, (kind,)), reduction_rule(kind)

    @stated(f"over sharded dims the result is Partial({kind!r})", "nothing")
    def rule(call):
        if is_complex(call.dtypes[0]):  # NumPy orders them, but no reduction over ranks does
            return whole_lines_rule(call)
        return inexact(call) if is_inexact(call.dtypes[0]) else exact(call)

    return rule


def whole_lines_rule(call):
    """The rule of reductions that need whole lines along their axes (argmax)."""
    shape, axis, keepdims = call.shapes[0], call.params["axis"], call.params["keepdims"]
    axes = tuple(range(len(shape))) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    source, target = follow(call, without_axes(len(shape), axes, keepdims), _reduced(shape, axes, keepdims))
    return Rule((source,), target)


@stated("`axis` must be whole, other dims stay sharded", "gathers `axis`, where nothing cheaper is known")
def whole_axis_rule(call):
    """The rule of what needs whole lines along `axis` and has a result of the same shape (softmax)."""
    shape, axis = call.shapes[0], call.params["axis"]
    axes = axis if isinstance(axis, tuple) else (axis,)
    dims = [None if dim in axes else dim for dim in range(len(shape))]
    source, target = follow(call, dims, shape)
    return Rule((source,), target)


def joint_partial(placements):
    """The Partial that operands of a jointly linear operation keep along a mesh axis, or None.

    A Replicate beside a Partial sum or mean becomes one without moving.
    """
    partials = [p for p in placements if p.kind == "partial"]
    if len(partials) == len(placements) and len(set(partials)) == 1:
        return partials[0]
    if not partials or any(p.kind != "replicate" and not (p.kind == "partial" and p.op in LINEAR) for p in placements):
        return None
    return Partial("avg") if all(p.op == "avg" for p in partials) else Partial("sum")
