"""Fourier transforms: the Array API's extension, and NumPy's of two axes.

Local and distributed: the transformed axes are gathered, other dimensions may
be sharded.  All are linear, and differentiable to any order.
"""

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
