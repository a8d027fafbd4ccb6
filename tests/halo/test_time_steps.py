"""Steps of a wave in a sharded domain: stencils, layers on extended pieces, regions that are run again in backward."""

import numpy as np
import pytest

import spmdlayer as spmd

pytestmark = pytest.mark.mpi

PLACES = [spmd.Shard(0), spmd.Shard(1)]
LAPLACIAN = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0.0]])
STEPS, SHAPE = 3, (7, 6)


def laplacian(e):
    return e[2:, 1:-1] + e[:-2, 1:-1] + e[1:-1, 2:] + e[1:-1, :-2] - 4 * e[1:-1, 1:-1]


def final_energy(c, u):
    """The whole wave in NumPy."""
    before = u
    for _ in range(STEPS):
        before, u = u, 2 * u - before + 0.1 * c * laplacian(np.pad(u, 1, "reflect"))
    return (u * u).sum()


class Step(spmd.LocalLayer):
    def forward(self, extended, before, c):
        return 2 * extended[1:-1, 1:-1] - before + 0.1 * c * laplacian(extended)


def by_stencil(mesh):
    return lambda u, before, c: 2 * u - before + 0.1 * c * spmd.stencil(u, LAPLACIAN, "reflect")


def by_layer(mesh):
    layer = Step([(mesh, PLACES)], [(mesh, PLACES)] * 3)
    return lambda u, before, c: layer(spmd.halo_exchange(u, 1, "reflect"), before, c)


def by_region(mesh):
    def step(u, before, c):
        bent = spmd.stencil(spmd.dtensor_from_local(u, mesh, PLACES), LAPLACIAN, "reflect").to_local()
        return 2 * u - before + 0.1 * c * bent

    return spmd.local_map(step, [PLACES], process_mesh=mesh, recompute=True)


@pytest.mark.parametrize("way", [by_stencil, by_layer, by_region])
def test_gradients_of_a_wave(way):
    n = spmd.get_world_size()
    mesh = spmd.init_mesh((2, 2) if n == 4 else (n, 1))
    random = np.random.default_rng(0)
    c, u = 1 + random.random(SHAPE), random.normal(size=SHAPE)
    speed = spmd.shard_tensor(c, mesh, PLACES, requires_grad=True)
    wave = spmd.shard_tensor(u, mesh, PLACES)
    before, step = wave, way(mesh)
    for _ in range(STEPS):
        before, wave = wave, step(wave, before, speed)
    energy = (wave * wave).sum()
    np.testing.assert_allclose(energy.item(), final_energy(c, u), rtol=1e-12)
    g = spmd.grad(energy, speed)
    assert g.placements == PLACES
    found, bump = g.numpy(), 1e-6
    for place in ((0, 0), (3, 3), (6, 5), (4, 2)):
        change = np.zeros(SHAPE)
        change[place] = bump
        slope = (final_energy(c + change, u) - final_energy(c - change, u)) / (2 * bump)
        np.testing.assert_allclose(found[place], slope, rtol=1e-6, atol=1e-6)
