"""argmax and argmin against NumPy: local, and on ranks under random placements."""

import numpy as np
import pytest
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd

R, S = spmd.Replicate(), spmd.Shard


def small_array(random, low=0, ndim=3):
    """Numbers with many ties, and sometimes NaN."""
    shape = tuple(int(n) for n in random.integers(low, 6, random.integers(1, ndim + 1)))
    x = draw(random, [random.integers(-2, 3, shape), random.integers(-2, 3, shape) / 2, random.random(shape) < 0.5])
    return np.where(random.random(shape) < 0.2, np.nan, x) if x.dtype.kind == "f" and random.random() < 0.5 else x


def placed(random, x):
    """A distributed tensor under random placements, which are printed."""
    mesh = draw(random, meshes())
    placements = placements_for(random, mesh, x, partial=x.dtype.kind != "f")
    print(f"mesh {mesh.shape}, {placements}, shape {x.shape}, {x.dtype}")
    return distribute(random, mesh, x, placements)


def line():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


# argmax and argmin -----------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(30))
def test_positions_of_extremes(seed):
    random = np.random.default_rng([seed, 3])
    x = small_array(random, low=1)
    t = placed(random, x)
    axis, keepdims = draw(random, [None, *range(x.ndim)]), bool(random.integers(2))
    for name in ("argmax", "argmin"):
        found = getattr(spmd, name)(t, axis, keepdims)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found.numpy(), getattr(np, name)(x, axis, keepdims=keepdims), err_msg=name)


@pytest.mark.mpi
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float32", "complex64"])
def test_positions_in_every_dtype(dtype):
    kind = spmd.dtype(dtype)
    x = np.array([[0, 3, 1, 0, 3, 2, 3, 1], [1, 1, 0, 0, 1, 1, 0, 0]]).T.astype(kind)
    t = spmd.shard_tensor(spmd.tensor(x, dtype=kind), line(), [S(0)])
    np.testing.assert_array_equal(spmd.argmax(t, 0).numpy(), np.argmax(x, 0))
    np.testing.assert_array_equal(spmd.argmin(t, 0).numpy(), np.argmin(x, 0))
    assert spmd.argmax(t).item() == np.argmax(x)


@pytest.mark.mpi
def test_one_pair_a_line_and_rank_travels():
    mesh = line()
    x = np.random.default_rng(0).normal(size=(1000, 3))
    t = spmd.shard_tensor(x, mesh, [S(0)])
    with spmd.trace() as traced:
        found = spmd.argmax(t, axis=0)
    np.testing.assert_array_equal(found.numpy(), x.argmax(0))
    assert found.placements == [R]
    assert traced.bytes() == 3 * 16 * (mesh.size - 1)
    assert traced.count(records=True) == (mesh.size > 1)


@pytest.mark.mpi
def test_a_rank_without_elements_takes_part():
    mesh = line()
    n = mesh.size
    local = np.arange(20.0)[::-1] if mesh.rank == n - 1 else np.zeros(0)
    t = spmd.dtensor_from_local(local, mesh, [S(0)])
    assert spmd.argmax(t).item() == 0
    assert spmd.argmin(t).item() == 19
    with pytest.raises(ValueError, match="argmax: no elements to compare"):
        spmd.argmax(t[:0])
