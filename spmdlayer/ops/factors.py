"""The rule of multilinear operations, in factor notation.

Each dimension of an operand is named by a factor, as in "mk,kn->mn".  Along a
mesh axis one factor may be sharded, in all operands that have it: the result
is sharded on it too, or, where it is contracted, Partial('sum').  Or one
operand stays a Partial sum or mean, since the operation is linear in each.
What moves nothing is taken; else what moves least.
"""

from math import prod

import numpy as np

from ..layout import Layout
from ..placement import Partial, Shard
from .rules import LINEAR, REPLICATE, Rule, kept_partials


class _Choice:
    """What happens along one mesh axis: a factor is sharded, or an operand stays Partial, or neither."""

    def __init__(self, factor=None, block=None, operand=None):
        self.factor = factor
        self.block = block
        self.operand = operand


class _Contraction:
    """One call of a multilinear operation; see `contraction_rule`."""

    def __init__(self, call, terms, output):
        self.call = call
        self.terms = terms
        self.output = output
        extents = {}
        for term, shape in zip(terms, call.shapes):
            extents.update(zip(term, shape))
        self.shape = tuple(extents[factor] for factor in output)
        self.dtype = np.result_type(*call.dtypes)
        # A diagonal cannot be taken of slices of one of its dims.
        self.whole = {factor for term in terms for factor in term if term.count(factor) > 1}
        self.kept = [() if layout is None else kept_partials(layout.placements, LINEAR) for layout in call.layouts]
        self.choices = []

    def candidates(self, axis):
        """The choices along a mesh axis that agree with an operand as it is, and to replicate all."""
        placements = [self.call.placement(operand, axis) for operand in range(len(self.terms))]
        for term, placement in zip(self.terms, placements):
            if placement.kind == "shard":
                factor = term[placement.dim]
                if factor is not None and factor not in self.whole:
                    yield _Choice(factor, placement.block)
        for operand in range(len(self.terms)):
            if axis in self.kept[operand]:
                yield _Choice(operand=operand)
        yield _Choice()

    def choose(self, axis):
        best = min(self.candidates(axis), key=lambda choice: self.cost(choice, axis))  # the first of equal ones
        self.choices.append(best)

    def cost(self, choice, axis):
        """(whether an operand must move, the bytes moved by now and by a reduction of the result)."""
        moved = 0
        for operand, shape in enumerate(self.call.shapes):
            size = prod(shape) * self.call.dtypes[operand].itemsize / self.pieces(operand, axis)
            before, after = self.call.placement(operand, axis), self.placement(operand, choice, axis)
            moved += size * _share_moved(before, after, self.call.mesh_shape[axis])
        if moved == 0:
            return False, 0
        size = prod(self.shape) * self.dtype.itemsize
        return True, moved + size * _share_moved(self.result(choice, axis), REPLICATE, self.call.mesh_shape[axis])

    def pieces(self, operand, axis):
        """In how many pieces the other mesh axes cut an operand."""
        others = (other for other in self.call.axes if other != axis)
        return prod(self.call.mesh_shape[k] for k in others if self.call.placement(operand, k).kind == "shard")

    def placement(self, operand, choice, axis):
        """An operand's placement along a mesh axis once a choice is made."""
        if choice.factor in self.terms[operand] and choice.factor is not None:
            return Shard(self.terms[operand].index(choice.factor), choice.block)
        return self.call.placement(operand, axis) if choice.operand == operand else REPLICATE

    def result(self, choice, axis):
        """The placement of the result along a mesh axis."""
        if choice.factor is None:
            return REPLICATE if choice.operand is None else self.call.placement(choice.operand, axis)
        if choice.factor in self.output:
            return Shard(self.output.index(choice.factor), choice.block)
        return Partial("any") if self.dtype.kind == "b" else Partial("sum")

    def splits(self, factor):
        """The offsets of a factor's pieces: those of the first operand that is cut as chosen already."""
        cuts = [(axis, choice.block) for axis, choice in enumerate(self.choices) if choice.factor == factor]
        for term, layout in zip(self.terms, self.call.layouts):
            if cuts and layout is not None and factor in term and layout.cuts(term.index(factor)) == cuts:
                return layout.splits[term.index(factor)]
        return None

    def layout(self, term, shape, placements):
        splits = tuple(None if factor is None else self.splits(factor) for factor in term)
        return Layout(self.call.mesh_shape, tuple(placements), tuple(shape), splits)

    def rule(self):
        for axis in self.call.axes:
            self.choose(axis)
        chosen = list(enumerate(self.choices))
        inputs = tuple(
            self.layout(term, shape, [self.placement(operand, choice, axis) for axis, choice in chosen])
            for operand, (term, shape) in enumerate(zip(self.terms, self.call.shapes))
        )
        return Rule(
            inputs, self.layout(self.output, self.shape, [self.result(choice, axis) for axis, choice in chosen])
        )


def _share_moved(before, after, size):
    """The part of an array that a rank sends when its placement changes along a mesh axis of some size."""
    whole = (size - 1) / size
    if before == after or before.kind == "replicate":
        return 0
    if before.kind == "shard":
        return whole if after.kind == "replicate" else whole / size
    return whole if after.kind == "shard" else 2 * whole


def contraction_rule(call, terms, output):
    """The rule of a multilinear operation.

    Parameters
    ----------
    terms : for each operand a tuple that names its dims by factors; None: a dim that broadcasts
    output : the same of the result
    """
    return _Contraction(call, terms, output).rule()
