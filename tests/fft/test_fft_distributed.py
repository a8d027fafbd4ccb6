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


def test_the_transformed_axis_is_gathered():
    x = whole(5, 6)
    y = fft.fftn(spmd.shard_tensor(x, mesh(), [spmd.Shard(1)]), axes=(1,))
    assert y.placements == [spmd.Replicate()]
    np.testing.assert_allclose(y.numpy(), np.fft.fft(x), atol=1e-12)


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
