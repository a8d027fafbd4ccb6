"""The sums of stencils on raw arrays that have their ghosts.

For e of shape (..., n + window - 1) and y of shape (..., n), with the window
along the last dimensions:

    y[i] = sum over k of e[i + k] w[k]

Blocks that stay in the cache are summed by slices; weights that are zero are
not read, and elements with equal weights are multiplied once.
"""

from functools import lru_cache
from itertools import product
from math import prod

from ..array import array_module, to_numpy

_BLOCK = 1 << 16  # elements of the result at a time


@lru_cache(maxsize=256)
def _blocks(shape):
    """Indices of the blocks that a shape is cut into: slices along the first dimensions."""
    block, cuts = _BLOCK, []
    for dim, extent in enumerate(shape):
        rows = max(block // max(prod(shape[dim + 1 :]), 1), 1)
        cuts.append([slice(start, min(start + rows, extent)) for start in range(0, extent, rows)])
    return tuple(product(*cuts))


def _moved(block, k):
    """The block of e that lies k further."""
    lead = len(block) - len(k)
    return (*block[:lead], *(slice(part.start + step, part.stop + step) for part, step in zip(block[lead:], k)))


def _by_weight(w):
    """(weight, its places) for each weight that is not zero."""
    values, groups = to_numpy(w), {}
    for k in product(*map(range, values.shape)):
        if values[k] != 0:
            groups.setdefault(values[k], []).append(k)
    return list(groups.items())


def neighbour_sums(e, w, out=None):
    """y, for weights of any shape that e is large enough for, maybe written to `out`."""
    np = array_module(e)
    lead, groups, dtype = e.ndim - w.ndim, _by_weight(w), np.result_type(e, w)
    shape = (*e.shape[:lead], *(n - k + 1 for n, k in zip(e.shape[lead:], w.shape)))
    y = np.empty(shape, dtype) if out is None else out
    if not groups:
        y[...] = 0
        return y
    for block in _blocks(shape):
        part = y[block]
        # What is added to often lies in one stretch.
        total = part if part.flags.c_contiguous else np.empty(part.shape, dtype)
        _add_up(np, e, block, groups[0], total)
        if len(groups) > 1:
            other = np.empty(part.shape, dtype)
            for group in groups[1:]:
                _add_up(np, e, block, group, other)
                np.add(total, other, out=total)
        if total is not part:
            part[...] = total
    return y


def _add_up(np, e, block, group, out):
    """A weight times the sum of the elements at its places."""
    weight, (first, *others) = group
    total = e[_moved(block, first)]
    for k in others:
        total = np.add(total, e[_moved(block, k)], out=out, dtype=out.dtype)
    np.multiply(total, weight, out=out, dtype=out.dtype)


def spread_sums(y, w):
    """The adjoint of `neighbour_sums` in e, but for conjugates: e[i + k] = sum of y[i] w[k]."""
    np = array_module(y)
    lead = y.ndim - w.ndim
    extents = [n + 2 * (k - 1) for n, k in zip(y.shape[lead:], w.shape)]
    wide = np.zeros((*y.shape[:lead], *extents), y.dtype)
    wide[(..., *(slice(k - 1, k - 1 + n) for n, k in zip(y.shape[lead:], w.shape)))] = y
    return neighbour_sums(wide, w[(slice(None, None, -1),) * w.ndim])


def weight_sums(e, y, window):
    """The adjoint in w: the sums over all i of e[i + k] y[i]."""
    np = array_module(e)
    dtype = np.result_type(e, y)
    w = np.zeros(window, dtype)
    for block in _blocks(y.shape):
        piece = y[block]
        for k in product(*map(range, window)):
            w[k] += np.sum(np.multiply(e[_moved(block, k)], piece, dtype=dtype), dtype=dtype)
    return w
