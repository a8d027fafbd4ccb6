"""A random array is the same for all meshes, placements and numbers of ranks."""

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises

import spmdlayer as spmd
from spmdlayer import random

pytestmark = pytest.mark.mpi
KEY = random.key(7)
R, S, P = spmd.Replicate(), spmd.Shard, spmd.Partial
DRAWS = {
    "uniform": lambda **where: random.uniform(KEY, (7, 5), low=np.arange(5.0), high=10.0, **where),
    "normal": lambda **where: random.normal(KEY, (7, 5), "float32", **where),
    "complex": lambda **where: random.normal(KEY, (7, 5), "complex128", **where),
    "truncated_normal": lambda **where: random.truncated_normal(KEY, (7, 5), **where),
    "gamma": lambda **where: random.gamma(KEY, (7, 5), np.arange(1.0, 6.0) / 3, **where),
    "bernoulli": lambda **where: random.bernoulli(KEY, (7, 5), 0.4, **where),
    "randint": lambda **where: random.randint(KEY, (7, 5), 0, 3 * 2**62, "uint64", **where),
    "poisson": lambda **where: random.poisson(KEY, (7, 5), np.arange(5.0) * 6, **where),
}


def meshes():
    n = spmd.get_world_size()
    found = [spmd.init_mesh((n,), ("x",))]
    return found + ([spmd.init_mesh((2, n // 2), ("x", "y"))] if n % 2 == 0 else [])


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_array_everywhere(name):
    whole = DRAWS[name]().numpy()
    for mesh in meshes():
        for first in (R, S(0), S(1), S(0, block=2)):
            for last in (R, S(0), S(1, block=1)):
                placements = [first, last][: mesh.ndim]
                with spmd.trace() as events:
                    found = DRAWS[name](mesh=mesh, placements=placements)
                same = found.placements == placements and np.array_equal(found.numpy(), whole)
                assert_all(same and events.count() == 0, f"{placements}: {found.numpy()} instead of {whole}")
    assert_all(np.array_equal(DRAWS[name](mesh=meshes()[0]).to_local().numpy(), whole))


def test_shapes_without_elements_or_dims():
    mesh = meshes()[0]
    for shape in ((), (0,), (3, 0), (1,)):
        whole = random.normal(KEY, shape).numpy()
        placements = [S(0)] if shape else [R]
        found = random.normal(KEY, shape, mesh=mesh, placements=placements)
        assert_all(found.shape == shape and np.array_equal(found.numpy(), whole))


def test_permutation_and_categorical():
    mesh, logits = meshes()[0], np.arange(12.0).reshape(4, 3) / 4
    order = random.permutation(KEY, 23).numpy()
    for placements in ([R], [S(0)]):
        assert_all(np.array_equal(random.permutation(KEY, 23, mesh=mesh, placements=placements).numpy(), order))
    want = random.categorical(KEY, logits).numpy()
    for placements in ([R], [S(0)], [S(1)]):
        found = random.categorical(KEY, spmd.shard_tensor(logits, mesh, placements))
        assert_all(np.array_equal(found.numpy(), want), f"{found.numpy()} instead of {want}")
    pieces = spmd.dtensor_from_local(logits / mesh.size, mesh, [P()])
    assert_all(random.categorical(KEY, pieces).shape == (4,))
    rows = random.permutation(KEY, spmd.shard_tensor(logits, mesh, [S(0)]))
    assert_all(np.array_equal(rows.numpy(), random.permutation(KEY, logits).numpy()))


def test_ranks_outside_the_mesh():
    mesh = spmd.ProcessMesh([0])
    whole = random.normal(KEY, (5,)).numpy()
    found = random.normal(KEY, (5,), mesh=mesh, placements=[S(0)])
    everywhere = spmd.reshard(found, meshes()[0], [R])
    assert_all(np.array_equal(everywhere.to_local().numpy(), whole))


def test_bad_placements():
    mesh = meshes()[0]
    with parallel_raises(ValueError, "Shard or Replicate"):
        random.normal(KEY, (3,), mesh=mesh, placements=[P()])
    with parallel_raises(ValueError, "outside"):
        random.normal(KEY, (3,), mesh=mesh, placements=[S(1)])
    x = spmd.shard_tensor(np.ones(3), mesh, [S(0)])
    with parallel_raises(TypeError, "alpha"):
        random.gamma(KEY, (3,), x, mesh=mesh, placements=[S(0)])
