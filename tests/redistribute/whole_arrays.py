"""Distributed arrays in one process: random pieces, the array they stand for, and its derivatives, by NumPy alone.

An array under placements is kept as `wholes`: an array with the mesh's axes in
front, of extent 1 where the axis is not Partial, then the global shape.  Every
rank makes the same from the same seed.
"""

import itertools

import numpy as np

import spmdlayer as spmd

REDUCE = {
    "sum": np.add.reduce,
    "avg": lambda x, axis, keepdims: np.add.reduce(x, axis=axis, keepdims=keepdims) / x.dtype.type(x.shape[axis]),
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
    "prod": np.multiply.reduce,
    "any": np.logical_or.reduce,
    "all": np.logical_and.reduce,
}
OPS = {
    "b": ("any", "all", "max", "min"),
    "i": ("sum", "max", "min", "prod"),
    "u": ("sum", "max", "min", "prod"),
    "f": ("sum", "avg", "max", "min", "prod"),
    "V": ("sum", "avg", "max", "min", "prod"),
    "c": ("sum", "avg", "prod"),
}
MESHES = {
    1: [(1,), (1, 1), (1, 1, 1)],
    2: [(2,), (2, 1), (1, 2), (1, 2, 1)],
    3: [(3,), (3, 1), (1, 3), (1, 1, 3)],
    4: [(4,), (2, 2), (4, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1)],
}


class Pieces:
    """How a mesh's ranks hold an array: `sizes` has, for a dimension, the true sizes over the axes that shard it."""

    def __init__(self, mesh_shape, placements, shape, sizes=None):
        self.mesh_shape = tuple(mesh_shape)
        self.placements = list(placements)
        self.shape = tuple(shape)
        self.sizes = sizes or {}
        self.partial = [(axis, p.op) for axis, p in enumerate(placements) if p.is_partial()]

    def __repr__(self):
        return f"{self.placements} of {self.shape} on {self.mesh_shape}, sizes {self.sizes or 'of array_split'}"

    def coords(self):
        return list(itertools.product(*map(range, self.mesh_shape)))

    def items(self, coord, dim):
        """The global positions along a dimension that the rank at `coord` holds."""
        axes = [axis for axis, p in enumerate(self.placements) if p.is_shard(dim)]
        items = np.arange(self.shape[dim])
        if dim in self.sizes:
            flat = np.ravel_multi_index([coord[a] for a in axes], [self.mesh_shape[a] for a in axes])
            return np.split(items, np.cumsum(self.sizes[dim])[:-1])[flat]
        for axis in axes:
            count, block = self.mesh_shape[axis], self.placements[axis].block
            if block is None:
                items = np.array_split(items, count)[coord[axis]]
            else:
                items = items[np.arange(len(items)) // block % count == coord[axis]]
        return items

    def cut(self, whole, coord):
        """The rank's slice of a global array."""
        return whole[np.ix_(*[self.items(coord, dim) for dim in range(whole.ndim)])] if whole.ndim else whole

    def varying(self):
        """The extents of the mesh's axes in `wholes`."""
        ops = dict(self.partial)
        return tuple(n if axis in ops else 1 for axis, n in enumerate(self.mesh_shape))

    def piece(self, wholes, coord):
        """The rank's piece."""
        ops = dict(self.partial)
        return self.cut(wholes[tuple(c if axis in ops else 0 for axis, c in enumerate(coord))], coord)

    def join(self, table):
        """`wholes` from every rank's piece (a dict by coordinate); checks that replicas are equal."""
        ops = dict(self.partial)
        first = next(iter(table.values()))
        wholes = np.zeros(self.varying() + self.shape, first.dtype)
        for coord, piece in table.items():
            whole = wholes[(*[c if axis in ops else 0 for axis, c in enumerate(coord)], ...)]
            whole[np.ix_(*[self.items(coord, dim) for dim in range(whole.ndim)]) if whole.ndim else ()] = piece
        for coord, piece in table.items():
            right = self.piece(wholes, coord)
            assert piece.shape == right.shape, f"piece at {coord} has shape {piece.shape}, {right.shape} is right"
            np.testing.assert_array_equal(piece, right, f"replica at {coord}")
        return wholes

    def stages(self, wholes):
        """(axis, op, before, after) of each reduction, from the right to the left, with the result at the end."""
        found = []
        for axis, op in reversed(self.partial):
            after = REDUCE[op](wholes, axis=axis, keepdims=True)
            found.append((axis, op, wholes, after))
            wholes = after
        return found, wholes.reshape(self.shape)

    def value(self, wholes):
        """The global array."""
        return self.stages(wholes)[1]

    def shares(self, wholes, gradient, conjugate=True):
        """dL/d(wholes) for dL/d(the global array).

        For complex numbers such that dL = Re(conj(g) dx).  Without `conjugate`
        the analytic continuation, by which a complex step gives derivatives.
        """
        g = gradient.reshape((1,) * len(self.mesh_shape) + self.shape)
        for axis, op, before, after in reversed(self.stages(wholes)[0]):
            g = _share(g, axis, op, before, after, conjugate)
        return np.broadcast_to(g, wholes.shape)


def _share(g, axis, op, before, after, conjugate):
    n = before.shape[axis]
    if op == "sum":
        return np.broadcast_to(g, before.shape)
    if op == "avg":
        return np.broadcast_to(g / n, before.shape)
    if op == "prod":
        others = [np.multiply.reduce(np.delete(before, k, axis), axis=axis, keepdims=True) for k in range(n)]
        return np.concatenate([g * (factor.conj() if conjugate else factor) for factor in others], axis)
    attains = before.real == after.real
    return g * (attains / attains.sum(axis=axis, keepdims=True))


def random_values(rng, shape, dtype):
    """Small integers that every dtype holds exactly, and that ties and zeros are among."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    low = 0 if dtype.kind == "u" else -3
    values = rng.integers(low, 4, shape)
    if dtype.kind == "c":
        return (values + 1j * rng.integers(-3, 4, shape)).astype(dtype)
    return np.asarray(values, np.float64).astype(dtype)


def random_wholes(rng, pieces, dtype):
    return random_values(rng, pieces.varying() + pieces.shape, dtype)


def in_memory(rng, array):
    """The same values, laid out in memory in one of several ways."""
    kind = rng.integers(5)
    if kind == 0 or array.ndim == 0:
        return array.copy()
    if kind == 1:
        return np.asfortranarray(array)
    if kind == 2:
        return array[::-1].copy()[::-1]
    if kind == 3:
        wide = np.zeros(array.shape[:-1] + (2 * array.shape[-1],), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    frozen = array.copy()
    frozen.flags.writeable = False
    return frozen


def random_shape(rng, ndim=None):
    ndim = rng.integers(4) if ndim is None else ndim
    return tuple(int(k) for k in rng.choice([0, 1, 2, 3, 4, 5, 7], ndim, p=[0.06, 0.1, 0.18, 0.2, 0.18, 0.18, 0.1]))


def all_placements(ndim, kind):
    """Every kind of placement that an array of this dtype kind can have along one mesh axis."""
    shards = [spmd.Shard(d) for d in range(ndim)] + [spmd.Shard(d, block=b) for d in range(ndim) for b in (1, 2)]
    return [spmd.Replicate(), *shards, *[spmd.Partial(op) for op in OPS[kind]]]


def random_placements(rng, ndim, mesh_ndim, kind):
    choices = all_placements(ndim, kind)
    weights = np.array(
        [4.0 if p.is_replicated() else 3.0 if p.is_shard() and p.block is None else 1.0 for p in choices]
    )
    return [choices[k] for k in rng.choice(len(choices), mesh_ndim, p=weights / weights.sum())]


def random_sizes(rng, mesh_shape, placements, shape):
    """True sizes of uneven pieces, as from_local finds them, for some of the dimensions."""
    sizes = {}
    for dim, extent in enumerate(shape):
        axes = [axis for axis, p in enumerate(placements) if p.is_shard(dim)]
        if axes and all(placements[axis].block is None for axis in axes) and rng.random() < 0.4:
            count = int(np.prod([mesh_shape[axis] for axis in axes]))
            ends = np.sort(rng.integers(0, extent + 1, count - 1))
            sizes[dim] = tuple(int(k) for k in np.diff([0, *ends, extent]))
    return sizes
