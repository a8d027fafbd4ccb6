"""What `import spmdlayer as spmd` offers."""

import numpy as np
import pytest

import spmdlayer as spmd

NAMES = """
ProcessMesh init_mesh Shard Replicate Partial ReduceType
init_parallel_env get_rank get_world_size barrier all_gather print_once
tensor to_tensor asarray zeros ones full arange zeros_like ones_like full_like eye linspace
dtensor_from_local dtensor_to_local shard_tensor dtensor_from_fn reshard unshard_dtensor
Layer LocalLayer local_map backward grad no_grad enable_grad
vjp jvp hvp jacobian hessian Function recompute trace config
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_it_is_there_and_says_what_it_is(name):
    assert getattr(spmd, name).__doc__


def test_dtypes_have_names():
    for name in ("float16", "float32", "float64", "int8", "int64", "uint8", "complex64", "complex128"):
        assert getattr(spmd, name) == np.dtype(name)
    assert spmd.zeros(2, dtype=spmd.float32).dtype == np.float32
    with pytest.raises(AttributeError, match="float128x"):
        _ = spmd.float128x


def test_stop_gradient_is_the_other_word():
    assert spmd.to_tensor([1.0], stop_gradient=False).requires_grad
    assert not spmd.tensor([1.0], stop_gradient=True).requires_grad
    mesh = spmd.init_mesh((1,))
    assert spmd.shard_tensor([1.0], mesh, [spmd.Replicate()], True).requires_grad
    assert spmd.shard_tensor([1.0], mesh, [spmd.Replicate()], stop_gradient=False).requires_grad
    with pytest.raises(TypeError, match="requires_grad: a bool is needed"):
        spmd.shard_tensor([1.0], mesh, [spmd.Replicate()], "float32")
