"""A tensor's buffer for other libraries: DLPack and the CUDA array interface.

A tensor is a value, so others may read its buffer and not write to it.  What
is handed out is marked read-only where the protocol has a word for that;
a consumer whose version of DLPack has none gets a copy, which it may write.
While somebody holds the buffer, a write to the tensor copies first.
"""

import numpy as np

from ..errors import buffer_error, type_error


def _exported(x, what, error):
    """The raw array of a tensor that may leave the tape and this namespace."""
    if x.is_dist():
        raise error(f"{what} of a distributed tensor: hand out this rank's piece, to_local(), or the global numpy()")
    if x.requires_grad:
        raise error(f"{what} of a tensor that requires grad would leave the tape: use detach()")
    return x._data


def dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """A DLPack capsule of a local tensor's buffer, read-only from version 1.0 on.

    To a consumer of an older version (max_version) it is a copy; if that asks
    for copy=False, it gets the buffer itself and must not write to it.
    Raises BufferError for tensors that are distributed or require grad.
    """
    raw = _exported(self, "__dlpack__", buffer_error)
    if isinstance(raw, np.ndarray) and copy is not True:
        if max_version is not None and max_version[0] >= 1:
            raw = raw.view()
            raw.flags.writeable = False
        elif copy is None:
            copy = True
    return raw.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def dlpack_device(self):
    """The kind and number of the device of a tensor's buffer, as DLPack numbers them."""
    return _exported(self, "__dlpack_device__", buffer_error).__dlpack_device__()


def cuda_array_interface(self):
    """The CUDA array interface, read-only, of a local tensor on a CUDA device; elsewhere there is no such attribute."""
    if isinstance(self._data, np.ndarray):
        raise AttributeError("__cuda_array_interface__: this tensor is in host memory")
    described = dict(_exported(self, "__cuda_array_interface__", type_error).__cuda_array_interface__)
    described["data"] = (described["data"][0], True)
    return described
