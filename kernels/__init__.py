"""Kernels on raw NumPy arrays, compiled by numba where that is installed.

They know nothing of tensors, tapes or ranks.  Installed, this package is
`spmdlayer.kernels`.  numba is imported by the first call of a kernel, and
what it compiles is kept on disk.
"""

from .philox4x32 import philox
from .softmax import softmax_cross_entropy

__all__ = ["philox", "softmax_cross_entropy"]
