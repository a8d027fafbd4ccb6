"""Contractions: einsum, and tensordot and dot as cases of it.

Subscripts are brought to one explicit form, "ab,bc->ac", without ellipses and
with equal extents for equal letters; that is what the operation, its vjp and
its distributed rule see.  Two operands are one matrix product; more are
contracted pair by pair, in the order that opt_einsum finds.
"""

from collections import Counter
from functools import lru_cache
from math import prod
from string import ascii_letters

import numpy as np

from ..errors import type_error, value_error
from . import elementwise as ew
from .complaints import shown
from .factors import contraction_rule
from .linear import matmul, widened
from .reductions import normalise_axis
from .registry import apply, define, unbroadcast
from .registry import conj as conjugate
from .rules import stated
from .shape import operand


@lru_cache(maxsize=1024)
def _terms(subscripts):
    """(("ab", "bc"), "ac") of "ab,bc->ac"."""
    inputs, output = subscripts.split("->")
    return tuple(inputs.split(",")), output


# Forward -----------------------------------------------------------------


@lru_cache(maxsize=1024)
def _pair_plan(left, right, output):
    """How two operands become one matrix product, once nothing is summed in one alone."""
    batch = [letter for letter in left if letter in right and letter in output]
    inner = [letter for letter in left if letter in right and letter not in output]
    rows = [letter for letter in left if letter not in right]
    columns = [letter for letter in right if letter not in left]
    result = batch + rows + columns
    return (
        len(batch),
        len(inner),
        tuple(left.index(letter) for letter in batch + rows + inner),
        tuple(right.index(letter) for letter in batch + inner + columns),
        tuple(result.index(letter) for letter in output),
    )


def _single(np, array, term, output):
    """Sums and diagonals of one operand, its dimensions in the order of `output`."""
    return array if term == output else np.einsum(f"{term}->{output}", array)


def _needed(term, *others):
    """The letters of a term that occur elsewhere, once each."""
    return "".join(dict.fromkeys(letter for letter in term if any(letter in other for other in others)))


def _pair(np, a, left, b, right, output):
    """The contraction of two operands."""
    kept = _needed(left, right, output)
    a, left = _single(np, a, left, kept), kept
    kept = _needed(right, left, output)
    b, right = _single(np, b, right, kept), kept
    batch, inner, left_order, right_order, order = _pair_plan(left, right, output)
    a, b = np.transpose(a, left_order), np.transpose(b, right_order)
    end = a.ndim - inner
    shared, rows, columns = a.shape[:batch], a.shape[batch:end], b.shape[batch + inner :]
    size = prod(a.shape[end:])
    a = np.reshape(a, (*shared, prod(rows), size))
    b = np.reshape(b, (*shared, size, prod(columns)))
    product = np.matmul(a, b) if inner else np.multiply(a, b)
    return np.transpose(np.reshape(product, (*shared, *rows, *columns)), order)


@lru_cache(maxsize=1024)
def _path(subscripts, shapes):
    """Which operands to contract, pair after pair; the result of each goes to the end of the list."""
    import opt_einsum

    return tuple(tuple(sorted(step)) for step in opt_einsum.contract_path(subscripts, *shapes, shapes=True)[0])


def _einsum_forward(np, *operands, subscripts=None):
    """Takes the subscripts by name, or first, as NumPy does."""
    if subscripts is None:
        subscripts, *operands = operands
    arrays, dtype = widened(operands)
    terms, output = _terms(subscripts)
    if len(arrays) == 1:
        result = _single(np, arrays[0], terms[0], output)
    elif len(arrays) == 2:
        result = _pair(np, arrays[0], terms[0], arrays[1], terms[1], output)
    else:
        result = _many(np, arrays, terms, output, subscripts)
    return result if dtype is None else result.astype(dtype)


def _many(np, arrays, terms, output, subscripts):
    left = list(zip(arrays, terms))
    for first, second in _path(subscripts, tuple(array.shape for array in arrays)):
        (b, right), (a, term) = left.pop(second), left.pop(first)
        kept = _needed(term + right, output, *(other for _, other in left)) if left else output
        left.append((_pair(np, a, term, b, right, kept), kept))
    return left[0][0]


# Gradient ----------------------------------------------------------------


def _distinct(term, used):
    """A term with its repeated letters replaced by fresh ones, and the pairs that were equal."""
    fresh = (letter for letter in ascii_letters if letter not in used)
    letters, equal = [], []
    for letter in term:
        if letter in letters:
            new = next(fresh)
            equal.append(letter + new)
            letter = new
        letters.append(letter)
    return "".join(letters), equal


def _einsum_vjp(g, others, p, i, xp):
    """An einsum of the cotangent and the other operands; what was summed in operand i alone is repeated."""
    terms, output = _terms(p.subscripts)
    target, equal = _distinct(terms[i], p.subscripts)
    shape = p.shapes[i]
    extents = dict(zip(target, shape))
    operands, inputs = [g], [output]
    for value, term in zip(others, terms[:i] + terms[i + 1 :]):
        operands.append(conjugate(value))
        inputs.append(term)
    for pair in equal:
        operands.append(xp.eye_like(g, size=extents[pair[0]]))
        inputs.append(pair)
    reached = _needed(target, *inputs)
    grad = xp.einsum(f"{','.join(inputs)}->{reached}", *operands)
    missing = tuple(axis for axis, letter in enumerate(target) if letter not in reached)
    if missing:
        grad = xp.broadcast_to(xp.expand_dims(grad, axis=missing), shape)
    return unbroadcast(xp, grad, shape, p.dtypes[i])


@stated("the subscripts are the factors", "the operand that costs least, or nothing: the result is then Partial")
def _einsum_rule(call):
    terms, output = _terms(call.params["subscripts"])
    return contraction_rule(call, tuple(map(tuple, terms)), tuple(output))


_einsum = define("einsum", _einsum_forward, _einsum_vjp, rule=_einsum_rule)
define("eye_like", lambda np, x, size: np.eye(size, dtype=x.dtype))


# Subscripts --------------------------------------------------------------


@lru_cache(maxsize=1024)
def _explicit(subscripts, ndims):
    """Terms and output without ellipses; what stood for it is right-aligned."""
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ndims):
        raise value_error(f"einsum: {subscripts!r} names {len(terms)} operands, {len(ndims)} were given")
    unused = [letter for letter in ascii_letters if letter not in text]
    widths = [ndim - len(term.replace("...", "")) for term, ndim in zip(terms, ndims)]
    for position, (term, width) in enumerate(zip(terms, widths)):
        if width < 0 or (width and "..." not in term):
            raise value_error(f"einsum: {term!r} does not fit operand {position} of {ndims[position]} dimensions")
    most = max((width for term, width in zip(terms, widths) if "..." in term), default=0)
    hidden = "".join(unused[:most])
    full = [term.replace("...", hidden[most - width :]) for term, width in zip(terms, widths)]
    if not arrow:
        counts = Counter("".join(full))
        output = hidden + "".join(sorted(letter for letter in counts if counts[letter] == 1 and letter not in hidden))
    output = output.replace("...", hidden)
    _check_letters(subscripts, full, output)
    return tuple(full), output


def _check_letters(subscripts, terms, output):
    letters = "".join(terms)
    wrong = [letter for letter in letters + output if letter not in ascii_letters]
    if wrong:
        raise value_error(f"einsum: {subscripts!r} contains {wrong[0]!r}; letters, ',', '...' and '->' are right")
    wrong = [letter for letter in output if letter not in letters or output.count(letter) > 1]
    if wrong:
        raise value_error(f"einsum: in {subscripts!r} the output must name {wrong[0]!r} once, and an input too")


def _extents(subscripts, terms, tensors):
    """The extent of each letter; operands with extent 1 broadcast."""
    extents = {}
    for term, tensor in zip(terms, tensors):
        for letter, extent in zip(term, tensor.shape):
            known = extents.setdefault(letter, extent)
            if known == 1:
                extents[letter] = extent
            elif extent not in (1, known):
                shapes = " and ".join(map(shown, tensors))
                raise value_error(f"einsum: {letter!r} in {subscripts!r} has extents {known} and {extent}, of {shapes}")
    return extents


def einsum(subscripts, *operands):
    """Sums of products by Einstein's convention, as numpy.einsum with subscripts as a string.

    Repeated letters in one operand take its diagonal, `...` stands for
    dimensions that broadcast, without `->` letters that occur once stay, in
    alphabetical order.  A summed dimension that is sharded gives Partial(sum).
    """
    if not isinstance(subscripts, str):
        raise type_error(f"einsum: the subscripts must be a string, {type(subscripts).__name__} was given")
    tensors = [operand(value) for value in operands]
    terms, output = _explicit(subscripts, tuple(tensor.ndim for tensor in tensors))
    extents = _extents(subscripts, terms, tensors)
    plain, used = [], []
    for term, tensor in zip(terms, tensors):
        single = tuple(
            axis for axis, (letter, extent) in enumerate(zip(term, tensor.shape)) if extent == 1 < extents[letter]
        )
        used.append("".join(letter for axis, letter in enumerate(term) if axis not in single))
        plain.append(tensor.squeeze(single) if single else tensor)
    return apply(_einsum, plain, {"subscripts": f"{','.join(used)}->{output}"})


_einsum.public = einsum


def tensordot(a, b, axes=2):
    """The sum of products over pairs of axes.

    axes: a number n (the last n of a with the first n of b) or two sequences
    of axes.  The result has a's other dimensions, then b's.
    """
    a, b = operand(a), operand(b)
    if isinstance(axes, (int, np.integer)):
        axes = range(-axes, 0), range(axes)
    pairs = [[axis] if isinstance(axis, (int, np.integer)) else axis for axis in axes]
    left, right = ([normalise_axis("tensordot", axis, x.ndim, x) for axis in some] for some, x in zip(pairs, (a, b)))
    if [a.shape[axis] for axis in left] != [b.shape[axis] for axis in right]:
        raise value_error(f"tensordot: axes {left} of shape {shown(a)} and {right} of shape {shown(b)} do not match")
    first, second = list(ascii_letters[: a.ndim]), list(ascii_letters[a.ndim : a.ndim + b.ndim])
    for one, other in zip(left, right):
        second[other] = first[one]
    kept = [letter for letter in first if letter not in second] + [letter for letter in second if letter not in first]
    return einsum(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", a, b)


def dot(a, b):
    """NumPy's dot: the sum of products over a's last and b's second-last dimension (its only one); * for numbers."""
    a, b = operand(a), operand(b)
    if a.ndim == 0 or b.ndim == 0:
        return ew.multiply(a, b)
    return matmul(a, b) if b.ndim <= 2 else tensordot(a, b, ((-1,), (-2,)))
