"""What the tests of the boundary share: meshes, tensors with known values, and layers around a function."""

import numpy as np

import spmdlayer as spmd

R, P = spmd.Replicate(), spmd.Partial("sum")


def S(dim=0):
    return spmd.Shard(dim)


def whole_mesh():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


def replicated(values, mesh, requires_grad=True):
    return spmd.shard_tensor(np.array(values), mesh, [R] * mesh.ndim, requires_grad=requires_grad)


def sharded(mesh, k=2, requires_grad=True):
    """The numbers 1, 2, ... with k items a rank, and the same as a NumPy array."""
    whole = np.arange(1.0, 1 + k * mesh.size)
    return spmd.shard_tensor(whole, mesh, [S()], requires_grad=requires_grad), whole


def own_part(whole, mesh, k=2):
    """This rank's k items."""
    return whole[k * mesh.rank : k * (mesh.rank + 1)]


def layer(forward, outs, grads=None, recompute=False):
    """A LocalLayer whose forward is a function."""
    made = spmd.LocalLayer(outs, grads, recompute=recompute)
    made.forward = forward
    return made


def check(tensor, expected):
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-6 if tensor.dtype.itemsize <= 4 else 1e-12)
