"""The rule of multilinear operations, in factor notation.

Each dimension of an operand is named by a factor, as in "mk,kn->mn".  Along a
mesh axis one factor may be sharded, in all operands that have it: the result
is sharded on it too, or, where it is contracted, Partial('sum').  Or one
operand stays a Partial sum or mean, where the operation is linear in it.
What moves nothing is taken; else what moves least, a reduction of the result
included, by the bytes of the plans' steps.
"""

from itertools import product
from math import inf

import numpy as np

from ..layout import Layout
from ..placement import Partial, Shard
from ..redistribute.reshard import without_partials
from .cost import moved_bytes
from .rules import LINEAR, REPLICATE, Rule, kept_partials


class _Choice:
    """What happens along one mesh axis: a factor is sharded, or an operand stays Partial, or neither."""

    def __init__(self, factor=None, block=None, operand=None):
        self.factor = factor
        self.block = block
        self.operand = operand


class _Contraction:
    """One call of a multilinear operation; see `contraction_rule`."""

    def __init__(self, call, terms, output, whole, linear, extents):
        self.call = call
        self.terms = terms
        self.output = output
        extents = dict(extents)
        for term, shape in zip(terms, call.shapes):
            extents.update(zip(term, shape))
        self.shape = tuple(extents[factor] for factor in output)
        self.dtype = np.result_type(*call.dtypes)
        # A diagonal cannot be taken of slices of one of its dims.
        self.whole = {factor for term in terms for factor in term if term.count(factor) > 1} | set(whole)
        self.kept = [
            kept_partials(layout.placements, LINEAR) if layout is not None and (linear is None or k in linear) else ()
            for k, layout in enumerate(call.layouts)
        ]

    def candidates(self, axis):
        """The choices along a mesh axis that agree with an operand as it is, and to replicate all."""
        seen = []
        for operand, term in enumerate(self.terms):
            placement = self.call.placement(operand, axis)
            factor = term[placement.dim] if placement.kind == "shard" else None
            if factor is not None and factor not in self.whole and (factor, placement.block) not in seen:
                seen.append((factor, placement.block))
                yield _Choice(factor, placement.block)
        for operand in range(len(self.terms)):
            if axis in self.kept[operand]:
                yield _Choice(operand=operand)
        yield _Choice()

    def cost(self, choices):
        """The bytes that all ranks send to bring the operands together and, if any, to reduce the result."""
        inputs, output = self.layouts(choices)
        moved = sum(map(moved_bytes, self.call.layouts, inputs, self.call.dtypes))
        return moved and moved + moved_bytes(output, without_partials(output), self.dtype)

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

    def splits(self, factor, choices):
        """The offsets of a factor's pieces: those of the first operand that is cut as chosen already."""
        cuts = [(axis, choice.block) for axis, choice in enumerate(choices) if choice.factor == factor]
        for term, layout in zip(self.terms, self.call.layouts):
            if cuts and layout is not None and factor in term and layout.cuts(term.index(factor)) == cuts:
                return layout.splits[term.index(factor)]
        return None

    def layout(self, term, shape, placements, choices):
        splits = tuple(None if factor is None else self.splits(factor, choices) for factor in term)
        return Layout(self.call.mesh_shape, tuple(placements), tuple(shape), splits)

    def layouts(self, choices):
        """The layouts of the operands and of the result, with a choice for each mesh axis."""
        chosen = list(enumerate(choices))
        inputs = tuple(
            self.layout(term, shape, [self.placement(operand, choice, axis) for axis, choice in chosen], choices)
            for operand, (term, shape) in enumerate(zip(self.terms, self.call.shapes))
        )
        placements = [self.result(choice, axis) for axis, choice in chosen]
        return inputs, self.layout(self.output, self.shape, placements, choices)

    def rule(self):
        """That of the cheapest choices, the first of equal ones."""
        best, least = None, inf
        for choices in product(*(list(self.candidates(axis)) for axis in self.call.axes)):
            cost = self.cost(choices)
            if cost < least:
                best, least = choices, cost
            if cost == 0:
                break
        return Rule(*self.layouts(best))


def contraction_rule(call, terms, output, whole=(), linear=None, extents=()):
    """The rule of a multilinear operation, and of others that are done for each index of some factors apart.

    Parameters
    ----------
    terms : for each operand a tuple that names its dims by factors; None: a dim that broadcasts
    output : the same of the result
    whole : factors that must not be sharded
    linear : the operands in which the operation is linear; None: in each of them
    extents : (factor, extent) for the factors that the result alone has
    """
    return _Contraction(call, terms, output, whole, linear, extents).rule()


def broadcast_terms(shapes):
    """Numbers as factors of dims that broadcast: (the output's term, a term for each shape)."""
    shape = np.broadcast_shapes(*shapes)
    terms = [
        tuple(dim if size == shape[dim] else None for dim, size in enumerate(part, len(shape) - len(part)))
        for part in shapes
    ]
    return tuple(range(len(shape))), terms
