"""Discrete distributions: bernoulli, randint, categorical, poisson, permutation."""

import numpy as np

from ..autograd.tensor import Tensor, asarray
from ..dtypes import dtype as as_dtype
from ..errors import type_error, value_error
from ..ops.elementwise import add
from ..ops.positions import argmax
from ..ops.reductions import normalise_axis
from ..ops.sorting import argsort
from ..ops.taking import take
from ..placement import Replicate
from ..redistribute.reshard import reshard_spec
from ..special.library import library_function
from .continuous import fractions, positive_fractions
from .pieces import draw

_LARGE = 10.0  # from this mean on Poisson numbers come from transformed rejection


def bernoulli(key, shape, p=0.5, mesh=None, placements=None):
    """True with probability `p` (a number, or an array equal on all ranks that broadcasts to `shape`), else False.

    key, shape, mesh, placements : as for `uniform`.  Nothing communicates.
    """

    def make(piece):
        wanted = np.asarray(piece.parameter(p, "p"))
        if not np.all((wanted >= 0) & (wanted <= 1)):
            raise value_error(f"bernoulli: p {p!r} was given; a probability lies between 0 and 1")
        return fractions(piece.words()[0]) < wanted

    return draw("bernoulli", key, shape, np.dtype(bool), mesh, placements, make)


def randint(key, shape, low, high, dtype=None, mesh=None, placements=None):
    """Integers from `low` to `high` - 1, each as likely as the others.

    dtype : an integer one that holds them; int64.  Other arguments as for `uniform`.
    """
    dtype = as_dtype("int64" if dtype is None else dtype)
    if dtype.kind not in "iu":
        raise type_error(f"randint: dtype {dtype.name} was given; an integer one is needed")
    low, high, limits = low.__index__(), high.__index__(), np.iinfo(dtype)
    if not limits.min <= low < high <= limits.max + 1:
        raise value_error(
            f"randint: low {low} and high {high} were given; low < high is needed, within {dtype.name}'s "
            f"{limits.min} to {limits.max}"
        )
    count = high - low

    def make(piece):
        return _below(piece, count, dtype) + dtype.type(low)

    return draw("randint", key, shape, dtype, mesh, placements, make)


def _below(piece, count, dtype):
    """Integers from 0 to count - 1 in a dtype, where those of the upper half may be wrapped to negative ones."""
    word = piece.words()[0]
    if count < 2**64:
        # Words from the last, incomplete run of `count` are drawn again.
        last, attempt = 2**64 - 2**64 % count - 1, 1
        again = word > np.uint64(last)
        while again.any():
            word[again] = piece.words(attempt, again)[0]
            again, attempt = word > np.uint64(last), attempt + 1
        word %= np.uint64(count)
    return word.astype(dtype)


def categorical(key, logits, axis=-1):
    """The number of a class, drawn with probabilities softmax(logits) along an axis.

    Parameters
    ----------
    key : Key
    logits : Tensor or array; distributed ones may be sharded along `axis` too

    Returns
    -------
    Integers in the shape of logits without `axis`: the class with the largest
    logits + Gumbel noise.
    """
    logits = asarray(logits)
    axis = normalise_axis("categorical", axis, logits.ndim)
    mesh = placements = None
    if logits.is_dist():
        mesh = logits.process_mesh
        placements = [Replicate() if p.is_partial() else p for p in logits.placements]
        logits = reshard_spec(logits, mesh, placements)

    def make(piece):
        return -np.log(-np.log(fractions(piece.words()[0]) + 2.0**-54))

    noise = draw("categorical", key, logits.shape, np.dtype(np.float64), mesh, placements, make)
    return argmax(add(logits.detach(), noise), axis=axis)


def poisson(key, shape, lam, dtype=None, mesh=None, placements=None):
    """Numbers of events where `lam` are expected (a number or an array, 0 or more).

    Small means by multiplication of uniform numbers (D. E. Knuth); from 10 on
    by transformed rejection (W. Hörmann, "The transformed rejection method for
    generating Poisson random variables", 1993).  dtype : an integer one; int64.
    Other arguments as for `uniform`.
    """
    dtype = as_dtype("int64" if dtype is None else dtype)
    if dtype.kind not in "iu":
        raise type_error(f"poisson: dtype {dtype.name} was given; an integer one is needed")

    def make(piece):
        wanted = np.asarray(piece.parameter(lam, "lam"), np.float64)
        if not np.all((wanted >= 0) & (wanted < 2.0**62)):
            raise value_error(f"poisson: lam {lam!r} was given; it must be 0 or more, and below 2**62")
        wanted = np.broadcast_to(wanted, piece.counters.shape)
        values = np.zeros(piece.counters.shape)
        _poisson_small(piece, wanted, values)
        _poisson_large(piece, wanted, values)
        return values.astype(dtype)

    return draw("poisson", key, shape, dtype, mesh, placements, make)


def _poisson_small(piece, lam, values):
    """How many uniform numbers can be multiplied before the product falls below exp(-lam)."""
    open_, attempt = (lam < _LARGE) & (lam > 0), 0
    product, bound = np.ones(lam.shape), np.exp(-lam)
    while open_.any():
        for word in piece.words(attempt, open_):
            product[open_] *= positive_fractions(word)
            values[open_] += product[open_] > bound[open_]
        open_ &= product > bound
        attempt += 1


def _poisson_large(piece, lam, values):
    open_, attempt = lam >= _LARGE, 0
    if not open_.any():
        return
    gammaln = library_function(np, "gammaln")
    flat, mean = values.reshape(-1), lam.reshape(-1)
    while open_.any():
        places = np.flatnonzero(open_)
        mu, words = mean[places], piece.words(attempt, open_)
        b = 0.931 + 2.53 * np.sqrt(mu)
        a = -0.059 + 0.02483 * b
        u, v = fractions(words[0]) - 0.5, positive_fractions(words[1])
        us = 0.5 - np.abs(u)
        with np.errstate(divide="ignore", invalid="ignore"):
            k = np.floor((2 * a / us + b) * u + mu + 0.43)
            scale = np.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b))
            good = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
            good |= ~((k < 0) | ((us < 0.013) & (v > us))) & (scale <= k * np.log(mu) - mu - gammaln(k + 1))
        flat[places[good]] = k[good]
        open_.reshape(-1)[places[good]] = False
        attempt += 1


def permutation(key, x, axis=0, mesh=None, placements=None):
    """The numbers 0 to x - 1 in random order for an int `x`; a tensor's slices along `axis` in random order.

    All orders are equally likely (but for 64-bit numbers that coincide).  With
    a mesh, the numbers as a distributed tensor, sorted across the ranks.
    """
    if isinstance(x, Tensor) or hasattr(x, "shape"):
        x = asarray(x)
        axis = normalise_axis("permutation", axis, x.ndim, x)
        return take(x, permutation(key, x.shape[axis]).numpy(), axis=axis)

    def make(piece):
        return piece.words()[0]

    if not hasattr(x, "__index__") or x.__index__() < 0:
        raise type_error(f"permutation: x must be an int (0 or more) or a tensor, {x!r} was given")
    return argsort(draw("permutation", key, (x.__index__(),), np.dtype(np.uint64), mesh, placements, make))
