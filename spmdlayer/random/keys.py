"""Keys: what random arrays are made from."""

from functools import cache

import numpy as np

from ..errors import type_error, value_error

DRAWS, CHILDREN = 0, 1  # streams of a key: its numbers, and the keys made from it


def words(bits, counters, draw=0, stream=DRAWS):
    """Two 64-bit words for each counter, see `kernels.philox`."""
    return _philox()(bits, counters, draw, stream)


@cache
def _philox():
    """The kernel, imported when first used: installed it is in the package, in a checkout beside it."""
    try:
        from ..kernels import philox
    except ModuleNotFoundError:
        from kernels import philox
    return philox


class Key:
    """64 bits that random arrays are made from; not to be changed.

    Equal keys give equal arrays.  `bits` is an int; `Key(bits)` makes one
    again, from a checkpoint say.
    """

    __slots__ = ("bits",)

    def __init__(self, bits):
        object.__setattr__(self, "bits", _as_bits(bits, "bits"))

    def __setattr__(self, name, value):
        raise AttributeError("a Key is immutable; split() it, or make another one")

    def __reduce__(self):
        return Key, (self.bits,)

    def __eq__(self, other):
        return self.bits == other.bits if isinstance(other, Key) else NotImplemented

    def __hash__(self):
        return hash((Key, self.bits))

    def __repr__(self):
        return f"Key({self.bits:#018x})"


def _as_bits(value, argument):
    try:
        number = value.__index__()
    except AttributeError:
        raise type_error(f"{argument}: an int is needed, {value!r} was given") from None
    if not 0 <= number < 2**64:
        raise value_error(f"{argument}: {number} was given; 0 to 2**64 - 1 is right")
    return number


def key(seed):
    """The Key of a seed, an int from 0 to 2**64 - 1; give the same one on every rank."""
    return Key(_as_bits(seed, "seed"))


def fold_in(key, data):
    """A new Key from a Key and an int (a step's or a layer's number), from 0 to 2**64 - 1."""
    check_key(key)
    counter = np.array([_as_bits(data, "data")], np.uint64)
    return Key(int(words(key.bits, counter, stream=CHILDREN)[0, 0]))


def split(key, num=2):
    """A list of `num` new Keys; `fold_in` of 0, 1, ..."""
    check_key(key)
    counters = np.arange(_as_bits(num, "num"), dtype=np.uint64)
    return [Key(int(bits)) for bits in words(key.bits, counters, stream=CHILDREN)[0]]


def check_key(key):
    """Raise unless it is a Key."""
    if not isinstance(key, Key):
        raise type_error(f"key: a Key is needed, {key!r} was given; random.key(seed) makes one")
