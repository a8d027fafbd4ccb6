"""The sums of a convolution on raw arrays.

For x of shape (N, C, *extents), weights w (O, C / groups, *window) and
y (N, O, *places), the three arrays of one trilinear form

    T(x, w, y) = sum of x[n, c, i * stride + k * dilation - before] w[o, c, k] y[n, o, i]

the functions `output_sum`, `input_sum` and `weight_sum` are its derivatives
with respect to y, x and w; whatever is differentiated, one of them comes out.

The windows of some samples and rows at a time are copied (columns), so that
the sums are matrix products.  Large windows go by Fourier transforms: see
`convolution_transforms`.
"""

from math import prod
from typing import NamedTuple

from .convolution_transforms import by_transforms, transformed
from .linear import widened
from .windows import add_windows, places, windows_of

_BLOCK = 1 << 18  # elements of columns at a time, which stay in the cache


class Geometry(NamedTuple):
    """Everything but the arrays; entries are tuples over the sliding dimensions."""

    window: tuple
    stride: tuple
    padding: tuple  # pairs (before, after)
    dilation: tuple
    groups: int
    extents: tuple  # of x, without padding

    @property
    def padded(self):
        return tuple(n + before + after for n, (before, after) in zip(self.extents, self.padding))

    @property
    def places(self):
        return places(self.padded, self.window, self.stride, self.dilation)


def _pad(np, x, geometry):
    if not any(map(any, geometry.padding)):
        return x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)  # rows need not lie side by side
    out = np.zeros((*x.shape[:2], *geometry.padded), x.dtype)
    out[_inside(geometry)] = x
    return out


def _inside(geometry):
    """The index of x within its padded form."""
    return (..., *(slice(before, before + n) for n, (before, _) in zip(geometry.extents, geometry.padding)))


def _blocks(samples, channels, geometry):
    """Slices of samples, and of places along the first sliding dimension, with the rows of padded x that they see."""
    first, *others = geometry.places
    window, stride, dilation = geometry.window[0], geometry.stride[0], geometry.dilation[0]
    row = max(channels * prod(geometry.window) * prod(others), 1)
    rows = min(max(_BLOCK // row, 1), max(first, 1))
    step = max(_BLOCK // (row * rows), 1)
    for n in range(0, samples, step):
        for start in range(0, first, rows):
            stop = min(start + rows, first)
            seen = slice(start * stride, (stop - 1) * stride + dilation * (window - 1) + 1)
            yield slice(n, n + step), slice(start, stop), seen


def _columns(np, x, groups, geometry):
    """The windows of x as (N, groups, elements of a window, places); a view where they are single elements."""
    pieces = windows_of(np, x, geometry.window, geometry.stride, geometry.dilation)
    count = x.shape[1] // groups * prod(geometry.window)
    return pieces.reshape(x.shape[0], groups, count, prod(pieces.shape[2 + len(geometry.window) :]))


def output_sum(np, x, w, geometry, out=None):
    """y[n, o, i]: the cross-correlation, maybe written to `out`."""
    (x, w), dtype = widened((x, w))
    if by_transforms(*x.shape[:2], w.shape[0], geometry, (x, w)):
        y = transformed(np, "y", _pad(np, x, geometry), w, geometry)
    else:
        y = _output_sum(np, x, w, geometry, out)
    if out is None or y is out:
        return y if dtype is None else y.astype(dtype)
    out[...] = y
    return out


def _output_sum(np, x, w, geometry, out=None):
    groups = geometry.groups
    y = np.empty((x.shape[0], w.shape[0], *geometry.places), np.result_type(x, w)) if out is None else out
    matrix, x = _matrix(w, groups), _pad(np, x, geometry)
    for samples, rows, seen in _blocks(x.shape[0], x.shape[1], geometry):
        columns = _columns(np, x[samples, :, seen], groups, geometry)
        target = y[samples, :, rows]
        target[...] = np.matmul(matrix, columns).reshape(target.shape)
    return y


def _matrix(w, groups):
    """Weights as (groups, O / groups, elements of a window)."""
    return w.reshape(groups, w.shape[0] // groups, prod(w.shape[1:]))


def input_sum(np, y, w, geometry):
    """x[n, c, j]: the adjoint of `output_sum` in x, the transposed convolution."""
    (y, w), dtype = widened((y, w))
    if by_transforms(y.shape[0], w.shape[1] * geometry.groups, y.shape[1], geometry, (y, w)):
        x = transformed(np, "x", y, w, geometry)[_inside(geometry)]
    elif (reverse := _reverse(y, w, geometry)) is not None:
        x = _output_sum(np, y, _reversed(np, w, geometry), reverse)
    else:
        x = np.zeros((y.shape[0], w.shape[1] * geometry.groups, *geometry.padded), np.result_type(y, w))
        _add_input(np, x, y, w, geometry)
        x = x[_inside(geometry)]
    return x if dtype is None else x.astype(dtype)


def _reverse(y, w, geometry):
    """With stride 1, the geometry by which x is an `output_sum` of y; None where adding windows up is cheaper."""
    reach = tuple(d * (k - 1) for k, d in zip(geometry.window, geometry.dilation))
    padding = tuple((n - before, n - after) for n, (before, after) in zip(reach, geometry.padding))
    inputs, outputs = w.shape[1] * geometry.groups, y.shape[1]
    # Copying windows of y costs a third of adding windows of x.
    if set(geometry.stride) != {1} or min(map(min, padding)) < 0 or outputs > 3 * inputs:
        return None
    return geometry._replace(padding=padding, extents=geometry.places)


def _reversed(np, w, geometry):
    """The weights from y to x: (C, O / groups, *window), every window in reverse order."""
    groups = geometry.groups
    apart = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).swapaxes(1, 2)
    flipped = np.flip(apart, tuple(range(3, apart.ndim)))
    return flipped.reshape(groups * w.shape[1], w.shape[0] // groups, *geometry.window)


def _add_input(np, x, y, w, geometry):
    groups = geometry.groups
    matrix = _matrix(w, groups).transpose(0, 2, 1)
    for samples, rows, seen in _blocks(x.shape[0], x.shape[1], geometry):
        piece = y[samples, :, rows]
        lines = piece.reshape(piece.shape[0], groups, y.shape[1] // groups, prod(piece.shape[2:]))
        columns = np.matmul(matrix, lines)
        pieces = columns.reshape(piece.shape[0], x.shape[1], *geometry.window, *piece.shape[2:])
        add_windows(x[samples, :, seen], pieces, geometry.window, geometry.stride, geometry.dilation)


def weight_sum(np, x, y, geometry):
    """w[o, c, k]: the adjoint of `output_sum` in w."""
    (x, y), dtype = widened((x, y))
    if by_transforms(*x.shape[:2], y.shape[1], geometry, (x, y)):
        w = transformed(np, "w", _pad(np, x, geometry), y, geometry)
    else:
        w = _weight_sum(np, x, y, geometry)
    return w if dtype is None else w.astype(dtype)


def _weight_sum(np, x, y, geometry):
    groups, outputs, channels = geometry.groups, y.shape[1], x.shape[1]
    total = np.zeros((groups, outputs // groups, channels // groups * prod(geometry.window)), np.result_type(x, y))
    x = _pad(np, x, geometry)
    for samples, rows, seen in _blocks(x.shape[0], channels, geometry):
        columns = _columns(np, x[samples, :, seen], groups, geometry)
        piece = y[samples, :, rows]
        lines = piece.reshape(piece.shape[0], groups, outputs // groups, prod(piece.shape[2:]))
        total += np.matmul(lines, columns.transpose(0, 1, 3, 2)).sum(axis=0)
    return total.reshape(outputs, channels // groups, *geometry.window)
