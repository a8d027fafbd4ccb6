"""unique_* against NumPy: local, and on ranks under random placements."""

import numpy as np
import pytest
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd

R, S = spmd.Replicate(), spmd.Shard
ARRAYS = {
    "ints": np.array([[3, 1, 3], [1, 1, -2]]),
    "nan": np.array([np.nan, 1.0, np.nan, 0.0, 1.0, np.inf, -0.0]),
    "bools": np.array([True, False, True]),
    "half": np.array([2, 1, 2], np.float16),
    "complex": np.array([1 + 1j, 1 - 1j, 1 + 1j, 0]),
    "empty": np.zeros((0, 3)),
    "number": np.array(4.0),
}


def check(t, x):
    values, indices, inverse, counts = np.unique(x, True, True, True, equal_nan=False)
    found = spmd.unique_all(t)
    for ours, theirs in zip(found, (values, indices, inverse.reshape(x.shape), counts)):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours.numpy(), theirs)
    np.testing.assert_array_equal(found.values.numpy(), x.reshape(-1)[found.indices.numpy()])
    np.testing.assert_array_equal(spmd.unique_values(t).numpy(), values)
    assert [part.tolist() for part in spmd.unique_counts(t)][1] == counts.tolist()
    np.testing.assert_array_equal(spmd.unique_inverse(t).inverse_indices.numpy(), inverse.reshape(x.shape))
    for options in (
        {},
        {"return_counts": True},
        dict.fromkeys(["return_index", "return_inverse", "return_counts"], True),
    ):
        expected = np.unique(x, **options)
        parts = spmd.unique(t, **options)
        assert isinstance(parts, tuple) == bool(options)
        for ours, theirs in zip(parts if options else [parts], expected if options else [expected], strict=True):
            np.testing.assert_array_equal(ours.numpy().reshape(-1), theirs.reshape(-1))
    return found


@pytest.mark.parametrize("name", ARRAYS)
def test_local(name):
    check(spmd.asarray(ARRAYS[name]), ARRAYS[name])


def test_bfloat16():
    found = spmd.unique_all(spmd.tensor([2.0, 1.0, 2.0], dtype="bfloat16"))
    assert found.values.dtype == spmd.bfloat16
    assert [part.tolist() for part in found] == [[1, 2], [1, 0], [1, 0, 1], [1, 2]]


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(20))
def test_random_placements(seed):
    random = np.random.default_rng([seed, 4])
    shape = tuple(int(n) for n in random.integers(0, 6, random.integers(1, 4)))
    x = draw(random, [random.integers(-2, 3, shape), random.integers(-2, 3, shape) / 2, random.random(shape) < 0.5])
    if x.dtype.kind == "f":
        x = np.where(random.random(shape) < 0.2, np.nan, x)
    mesh = draw(random, meshes())
    placements = placements_for(random, mesh, x, partial=x.dtype.kind != "f")
    print(f"seed {seed}, mesh {mesh.shape}, {placements}, shape {x.shape}, {x.dtype}")
    found = check(distribute(random, mesh, x, placements), x)
    assert found.values.placements == found.counts.placements == [R] * mesh.ndim
    assert found.inverse_indices.placements == [R if p.is_partial() else p for p in placements]


@pytest.mark.mpi
def test_only_different_values_travel():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = np.arange(4000) % 5
    t = spmd.shard_tensor(x, mesh, [S(0)])
    with spmd.trace() as traced:
        found = spmd.unique_all(t)
    assert found.counts.tolist() == [800] * 5
    assert traced.bytes() == 5 * 24 * (mesh.size - 1)
