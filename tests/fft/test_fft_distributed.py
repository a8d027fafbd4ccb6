"""Transforms of distributed tensors: other dims stay sharded, sums stay unreduced."""

import numpy as np
import pytest
from mpi_helpers import parallel_raises

import spmdlayer as spmd
from spmdlayer import fft

pytestmark = pytest.mark.mpi


def whole(*extents):
    return np.random.default_rng(6).normal(size=extents)


def mesh():
    return spmd.init_mesh((spmd.get_world_size(),))


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft"])
def test_other_dims_stay_sharded(name):
    x = whole(5, 6)
    y = getattr(fft, name)(spmd.shard_tensor(x, mesh(), [spmd.Shard(0)]), 7)
    assert y.placements == [spmd.Shard(0)]
    np.testing.assert_allclose(y.numpy(), getattr(np.fft, name)(x, 7), atol=1e-12)


def test_a_sharded_axis_changes_places_with_another_dim():
    x = whole(5, 6)
    n = spmd.get_world_size()
    t = spmd.shard_tensor(x, mesh(), [spmd.Shard(1)])
    with spmd.trace() as events:
        y = fft.fftn(t, axes=(1,))
    assert y.placements == [spmd.Shard(0)]
    assert n == 1 or (events.count("alltoall"), events.count()) == (1, 1)
    np.testing.assert_allclose(y.numpy(), np.fft.fft(x), atol=1e-12)
    line = fft.fft(spmd.shard_tensor(x[0], mesh(), [spmd.Shard(0)]))  # there is no other dim
    assert line.placements == [spmd.Replicate()]
    np.testing.assert_allclose(line.numpy(), np.fft.fft(x[0]), atol=1e-12)


def meshes():
    n = spmd.get_world_size()
    return [mesh()] + ([spmd.init_mesh((2, n // 2))] if n % 2 == 0 else [])


@pytest.mark.parametrize("shape", [(7, 10, 12), (4, 1, 9), (2, 3, 5)])
@pytest.mark.parametrize("placements", [(0, 1), (1, 2), (2, 2), (2, None)])
def test_slabs_and_pencils(shape, placements):
    """All transforms over all axes of a cube, with their gradients: of the whole array."""
    places = [spmd.Replicate() if dim is None else spmd.Shard(dim) for dim in placements]
    x, z = whole(*shape), whole(*shape) + 1j * whole(*shape)[::-1]
    larger = (shape[0] + 2, shape[1], max(shape[2] - 1, 1))
    for m in meshes():
        for name, array, options in (
            ("fftn", z, {}),
            ("ifftn", z, {"norm": "ortho"}),
            ("fftn", x, {"s": larger, "axes": (0, 1, 2)}),
            ("rfftn", x, {"s": larger, "axes": (0, 1, 2)}),
            ("irfftn", z, {"s": shape, "axes": (0, 1, 2)}),
            ("fft2", z, {}),
        ):
            t = spmd.shard_tensor(array, m, places[: m.ndim], requires_grad=True)
            y = getattr(fft, name)(t, **options)
            np.testing.assert_allclose(y.detach().numpy(), getattr(np.fft, name)(array, **options), atol=1e-10)
            local = spmd.tensor(array, requires_grad=True)
            g = spmd.grad((spmd.abs(y) ** 2).sum(), t)
            expected = spmd.grad((spmd.abs(getattr(fft, name)(local, **options)) ** 2).sum(), local)
            assert g.dtype == array.dtype
            np.testing.assert_allclose(g.numpy(), expected.numpy(), atol=1e-9)


@pytest.mark.mpi(min_size=2)
def test_there_and_back_is_two_transposes():
    t = spmd.shard_tensor(whole(8, 12, 4), mesh(), [spmd.Shard(0)])
    with spmd.trace() as events:
        spectrum = fft.fftn(t)
        back = fft.ifftn(spectrum)
    assert (events.count("alltoall"), events.count()) == (2, 2)
    assert back.placements == [spmd.Shard(0)] and spectrum.placements == [spmd.Shard(1)]
    np.testing.assert_allclose(back.numpy().real, whole(8, 12, 4), atol=1e-12)


@pytest.mark.parametrize("op", ["sum", "avg"])
def test_sums_stay_unreduced(op):
    n = spmd.get_world_size()
    x = spmd.dtensor_from_local(whole(4, 6) * (spmd.get_rank() + 1), mesh(), [spmd.Partial(op)])
    total = whole(4, 6) * (n * (n + 1) / 2 / (1 if op == "sum" else n))
    for function, theirs in ((fft.rfft, np.fft.rfft), (fft.ifft, np.fft.ifft), (fft.fftshift, np.fft.fftshift)):
        y = function(x)
        assert y.placements == [spmd.Partial(op)]
        np.testing.assert_allclose(y.numpy(), theirs(total), atol=1e-12)


def test_a_spectral_derivative_and_its_gradient():
    """The derivative along an axis of rows that are sharded unevenly, and of a loss of it."""
    x = whole(5, 8)
    waves = 2j * np.pi * np.fft.rfftfreq(8, 1 / 8)
    waves[-1] = 0
    t = spmd.shard_tensor(x, mesh(), [spmd.Shard(0)], requires_grad=True)
    slope = fft.irfft(fft.rfft(t) * waves, 8)
    g = spmd.grad((slope**2).sum(), t)
    expected = np.fft.irfft(np.fft.rfft(x) * waves, 8)
    np.testing.assert_allclose(slope.detach().numpy(), expected, atol=1e-10)
    np.testing.assert_allclose(g.numpy(), -2 * np.fft.irfft(np.fft.rfft(expected) * waves, 8), atol=1e-9)
    assert g.placements == [spmd.Shard(0)]


def test_errors_come_before_communication():
    x = spmd.shard_tensor(whole(5, 6), mesh(), [spmd.Shard(1)])
    with parallel_raises(ValueError, "fft.fft: a transform of 0 elements"):
        fft.fft(x, 0)
