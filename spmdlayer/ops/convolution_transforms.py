"""The sums of a convolution with stride 1 as products of Fourier transforms, for large windows.

Circular sums of the padded length are those asked for: no index i + k * dilation
is beyond it.  For what is summed see `convolution_sums`.
"""

from math import log2, prod

from .registry import raw_namespace

_LEAST_WINDOW = 32  # smaller ones are always summed directly
_FACTOR = 20  # what an element of a transform costs for each factor of 2, in multiplications
_PRODUCT = 16  # the same of a product of spectra
_SUBSCRIPTS = {"y": "ngcf,gocf->ngof", "x": "ngof,gocf->ngcf", "w": "ngcf,ngof->gocf"}


def by_transforms(samples, inputs, outputs, geometry, arrays):
    """Whether transforms are cheaper for so many samples and channels, by an estimate in multiplications."""
    window = prod(geometry.window)
    if window < _LEAST_WINDOW or set(geometry.stride) != {1} or any(a.dtype.kind not in "fc" for a in arrays):
        return False
    if 0 in (samples, inputs, outputs):
        return False
    size = prod(map(_fast_length, geometry.padded))
    products = samples * outputs * inputs // geometry.groups
    direct = (products + 4 * samples * inputs) * window * prod(geometry.places)
    transforms = samples * inputs + samples * outputs + outputs * inputs // geometry.groups
    return _FACTOR * transforms * size * log2(size) + _PRODUCT * products * size < direct


def _fast_length(n):
    """The least number from n on without prime factors above 5."""
    while True:
        rest = n
        for factor in (2, 3, 5):
            while rest > 1 and rest % factor == 0:
                rest //= factor
        if rest <= 1:
            return n
        n += 1


def transformed(np, wanted, a, b, geometry):
    """The sum "y" of padded x and w, the padded "x" of y and w, or "w" of padded x and y."""
    sliding = len(geometry.window)
    axes, lengths = tuple(range(3, 3 + sliding)), tuple(map(_fast_length, geometry.padded))
    real = a.dtype.kind != "c" and b.dtype.kind != "c"
    transform, inverse = (np.fft.rfftn, np.fft.irfftn) if real else (np.fft.fftn, np.fft.ifftn)
    first, second = (_grouped(np, array, term, geometry) for array, term in zip((a, b), _SUBSCRIPTS[wanted].split(",")))
    one = transform(first, lengths, axes=axes)
    # x is correlated with the other, whose spectrum is reversed; y and w are convolved to x.
    other = (
        transform(second, lengths, axes=axes) if wanted == "x" else transform(second.conj(), lengths, axes=axes).conj()
    )
    flat = (array.reshape(*array.shape[:3], prod(array.shape[3:])) for array in (one, other))
    product = raw_namespace(a).einsum(*flat, subscripts=_SUBSCRIPTS[wanted])
    whole = inverse(product.reshape(*product.shape[:3], *one.shape[3:]), lengths, axes=axes)
    result = _cut(whole, wanted, geometry)
    return result.astype(np.result_type(a, b), copy=False)


def _grouped(np, array, term, geometry):
    """An array with its groups as a dimension of their own; weights spread out by the dilation."""
    groups, shape = geometry.groups, array.shape
    if not term.startswith("g"):
        return array.reshape(shape[0], groups, shape[1] // groups, *shape[2:])
    array = array.reshape(groups, shape[0] // groups, *shape[1:])
    if set(geometry.dilation) == {1}:
        return array
    extents = (d * (k - 1) + 1 for k, d in zip(geometry.window, geometry.dilation))
    spread = np.zeros((*array.shape[:3], *extents), array.dtype)
    spread[_spread_index(geometry)] = array
    return spread


def _spread_index(geometry):
    return (..., *(slice(0, d * (k - 1) + 1, d) for k, d in zip(geometry.window, geometry.dilation)))


def _cut(whole, wanted, geometry):
    """The part of circular sums that is asked for, with the groups joined."""
    if wanted == "w":
        part = whole[_spread_index(geometry)]
        return part.reshape(part.shape[0] * part.shape[1], *part.shape[2:])
    extents = geometry.places if wanted == "y" else geometry.padded
    part = whole[(..., *(slice(0, n) for n in extents))]
    return part.reshape(part.shape[0], part.shape[1] * part.shape[2], *part.shape[3:])
