"""Fourier transforms: the Array API's extension, NumPy's of two axes, and SciPy's cosine and sine transforms.

Local and distributed: a sharded axis changes places with another dim, other
dimensions stay sharded.  All are linear, and differentiable to any order.
"""

from .cosines import dct, dctn, dst, dstn, idct, idctn, idst, idstn
from .frequencies import fftfreq, fftshift, ifftshift, rfftfreq
from .transforms import (
    fft,
    fft2,
    fftn,
    hfft,
    ifft,
    ifft2,
    ifftn,
    ihfft,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftn,
)
