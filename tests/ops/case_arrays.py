"""Arrays to differentiate at, for the files of gradient cases."""

import numpy as np

_random = np.random.default_rng(0)


def real(*extents, low=0.3, high=1.7):
    """Positive numbers, far from one another's ties."""
    return _random.uniform(low, high, extents)


def signed(*extents):
    return _random.uniform(0.3, 1.7, extents) * _random.choice([-1.0, 1.0], extents)


def small(*extents):
    return _random.uniform(-0.7, 0.7, extents)


def cmplx(*extents):
    return signed(*extents) + 1j * signed(*extents)
