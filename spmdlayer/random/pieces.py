"""A rank's piece of a random array: which elements it holds, and the words for them."""

import math

import numpy as np

from ..autograd.tensor import Tensor, as_raw, wrap
from ..boundary.placeholder import known_placeholder
from ..dtypes import dtype as as_dtype
from ..dtypes import is_complex, is_inexact
from ..errors import type_error, value_error
from ..layout import Layout
from ..ops.shape import as_shape
from ..placement import Replicate, normalise
from ..redistribute.crossing import make_spec
from .keys import check_key, words


class Piece:
    """The elements of a global array that this rank draws.

    Attributes
    ----------
    shape : the global shape
    index : for each dim a slice of the global array, or the positions along it
    counters : numpy.ndarray of uint64, of the local shape: each element's place in the global array, in C order
    """

    def __init__(self, key, shape, layout, coordinate):
        self.bits = key.bits
        self.shape = shape
        if layout is None:
            self.index = (slice(None),) * len(shape)
            self.counters = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
            return
        positions = []
        for dim in range(len(shape)):
            parts = [np.arange(start, stop) for start, stop in layout.intervals(coordinate, dim)]
            positions.append(parts[0] if len(parts) == 1 else np.concatenate(parts))
        self.index = np.ix_(*positions) if shape else ()
        strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
        counters = np.zeros([len(held) for held in positions], np.uint64)
        for held, stride in zip(self.index, strides):
            counters += held.astype(np.uint64) * np.uint64(stride)
        self.counters = counters

    def words(self, draw=0, where=None):
        """Two 64-bit words for each element, or for those in the mask `where`: draw number `draw`."""
        return words(self.bits, self.counters if where is None else self.counters[where], draw)

    def parameter(self, value, name):
        """A distribution's parameter for each element of the piece: a number, or an array of the local shape."""
        if isinstance(value, Tensor) and value.is_dist():
            raise type_error(
                f"{name}: a distributed tensor was given; a number or an array equal on all ranks is needed"
            )
        array = as_raw(value, name)
        if array.ndim == 0:
            return array[()]
        try:
            return np.broadcast_to(array, self.shape)[self.index]
        except ValueError:
            raise value_error(
                f"{name}: shape {array.shape} was given, which does not broadcast to the array's {self.shape}"
            ) from None


def draw(name, key, shape, dtype, mesh, placements, make):
    """A random tensor: `make(piece)` gives this rank's raw piece.

    Raises, on every rank, for what is no key, shape or placement.
    """
    check_key(key)
    shape = as_shape(name, shape)
    if any(size < 0 for size in shape):
        raise value_error(f"{name}: shape {shape} was given; sizes are 0 or more")
    if mesh is None:
        if placements is not None:
            raise value_error(f"{name}: placements {placements!r} were given without a mesh")
        return wrap(np.asarray(make(Piece(key, shape, None, None)), dtype), None, None)
    placements = (Replicate(),) * mesh.ndim if placements is None else placements
    layout = Layout(mesh.shape, normalise(placements, mesh.ndim, len(shape), mesh.dim_names), shape)
    if layout.partial:
        raise value_error(
            f"{name}: placements {list(placements)}: a random array is Shard or Replicate; reshard it then"
        )
    if mesh.coordinate is None:
        return known_placeholder(mesh, layout, dtype)
    piece = make(Piece(key, shape, layout, mesh.coordinate))
    return wrap(np.asarray(piece, dtype), None, make_spec(mesh, layout))


def floating(name, dtype, complex_too=False):
    """A dtype for real (or complex) numbers; float64 unless one is given."""
    dtype = as_dtype("float64" if dtype is None else dtype)
    if not is_inexact(dtype) or (is_complex(dtype) and not complex_too):
        kinds = "a floating or complex one" if complex_too else "a floating one"
        raise type_error(f"{name}: dtype {dtype.name} was given; {kinds} is needed")
    return dtype
