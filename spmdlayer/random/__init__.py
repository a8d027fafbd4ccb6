"""Random arrays that depend on a key and a shape alone.

    key = spmd.random.key(0)
    x = spmd.random.normal(key, (1000, 64), mesh=mesh, placements=[spmd.Shard(0)])

Element i of the global array is computed from (key, i) by a counter-based
generator (Philox).  So the array is the same, bit for bit, for every number of
ranks and all placements; each rank draws only its own piece, and nothing
communicates.  The same key gives the same numbers again: `split` it for others.
"""

from .continuous import gamma, normal, truncated_normal, uniform
from .discrete import bernoulli, categorical, permutation, poisson, randint
from .keys import Key, fold_in, key, split

__all__ = [
    "Key",
    "bernoulli",
    "categorical",
    "fold_in",
    "gamma",
    "key",
    "normal",
    "permutation",
    "poisson",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]
