"""Cosine and sine transforms: scipy.fft's values of the whole array, exact adjoints, local and along sharded axes."""

import numpy as np
import pytest
import scipy.fft
from mpi_helpers import parallel_raises

import spmdlayer as spmd
from spmdlayer import fft

TYPES, NORMS = [1, 2, 3, 4], [None, "ortho", "forward"]
ONE, ALL = ["dct", "idct", "dst", "idst"], ["dctn", "idctn", "dstn", "idstn"]


def whole(*extents, dtype="float64"):
    random = np.random.default_rng(8)
    values = random.normal(size=extents)
    return (values + 1j * random.normal(size=extents) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def same(found, expected):
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    rounding = 2e-5 if expected.dtype.name in ("float32", "complex64") else 1e-11
    np.testing.assert_allclose(found.numpy(), expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("name", ONE + ALL)
def test_values(name, type):
    several = [{}, {"s": (3, 7), "axes": (2, 0)}, {"s": (2, 2)}, {"axes": (1,)}]
    single = [{}, {"n": 7}, {"n": 2, "axis": 0}, {"axis": -2}]
    for dtype in ("float32", "float64", "complex64", "complex128"):
        x = whole(3, 4, 5, dtype=dtype)
        for norm in NORMS:
            for orthogonalize in (None, True, False):
                for options in single if name in ONE else several:
                    options = {**options, "norm": norm, "orthogonalize": orthogonalize}
                    expected = getattr(scipy.fft, name)(x, type, **options)
                    same(getattr(fft, name)(spmd.tensor(x), type, **options), expected)


@pytest.mark.parametrize("norm", [*NORMS, "backward"])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_inverses_and_adjoints(n, type, norm):
    """The inverse undoes a transform, and <F x, g> = <x, F* g> where F* g is the gradient."""
    for forward, back in (("dctn", "idctn"), ("dstn", "idstn")):
        if n == 1 and type == 1 and forward == "dctn":
            continue
        for orthogonalize in (None, True, False):
            options = {"norm": norm, "orthogonalize": orthogonalize}
            x = spmd.tensor(whole(2, n), requires_grad=True)
            y = getattr(fft, forward)(x, type, **options)
            same(getattr(fft, back)(y.detach(), type, **options), x.detach().numpy())
            g = whole(3, 2, n)[-1]
            found = spmd.grad(y, x, [spmd.tensor(g)]).numpy()
            assert np.vdot(y.detach().numpy(), g) == pytest.approx(np.vdot(x.detach().numpy(), found))


def test_halves_and_integers():
    x = np.arange(6).reshape(2, 3)
    same(fft.dctn(spmd.tensor(x)), scipy.fft.dctn(x.astype("float64")))
    same(fft.idst(spmd.tensor(x, dtype="float16")), scipy.fft.idst(x.astype("float32")))
    same(fft.dctn(spmd.tensor(x), axes=()), x.astype("float64"))
    assert fft.dctn(spmd.zeros((0, 4)), axes=1).shape == (0, 4)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: fft.dct(x, 5), ValueError, "fft.dct: type 5 was given; 1, 2, 3 and 4 are right"),
        (lambda x: fft.dctn(x, norm="both"), ValueError, "fft.dctn: norm 'both' was given"),
        (lambda x: fft.dctn(x, orthogonalize="yes"), TypeError, "fft.dctn: orthogonalize must be"),
        (lambda x: fft.dct(x[:, :1], 1), ValueError, "fft.dct: a transform of 1 elements .*; 2 or more are needed"),
        (lambda x: fft.dstn(x, axes=(0, -2)), ValueError, "fft.dstn: axes .* twice"),
    ],
)
def test_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(spmd.ones((2, 3)))


# On ranks ----------------------------------------------------------------


def meshes():
    n = spmd.get_world_size()
    return [spmd.init_mesh((n,))] + ([spmd.init_mesh((2, n // 2))] if n % 2 == 0 else [])


@pytest.mark.mpi
@pytest.mark.parametrize("placements", [(0, 1), (2, 1), (2, None)])
@pytest.mark.parametrize("name, type", [("dctn", 1), ("dctn", 2), ("idctn", 3), ("dctn", 4), ("dstn", 2), ("idstn", 1)])
def test_slabs_and_pencils(name, type, placements):
    """The transform of the whole array; its gradient by the formula: F is linear, so that of |F x|^2 is 2 F* F x."""
    x = whole(7, 10, 12)
    theirs = getattr(scipy.fft, name)
    places = [spmd.Replicate() if dim is None else spmd.Shard(dim) for dim in placements]
    for m in meshes():
        for array, options in ((x, {}), (x + 1j * x[::-1], {"s": (9, 11), "axes": (2, 0), "norm": "ortho"})):
            t = spmd.shard_tensor(array, m, places[: m.ndim], requires_grad=True)
            y = getattr(fft, name)(t, type, **options)
            same(y.detach(), theirs(array, type, **options))
            first = spmd.grad((spmd.abs(y) ** 2).sum(), t, create_graph=True)
            direction = whole(7, 10, 12, dtype=array.dtype)[::-1]
            slope = 2 * np.sum((theirs(array, type, **options).conj() * theirs(direction, type, **options)).real)
            assert first.dtype == array.dtype
            assert np.sum((first.detach().numpy().conj() * direction).real) == pytest.approx(slope)
            second = spmd.grad((spmd.conj(first) * direction).real.sum(), t)
            twice = 2 * np.sum(np.abs(theirs(direction, type, **options)) ** 2)
            assert np.sum((second.numpy().conj() * direction).real) == pytest.approx(twice)


@pytest.mark.mpi(min_size=2)
def test_there_and_back_is_two_transposes():
    x = whole(8, 12, 4)
    t = spmd.shard_tensor(x, meshes()[0], [spmd.Shard(0)])
    with spmd.trace() as events:
        back = fft.idctn(fft.dctn(t))
    assert (events.count("alltoall"), events.count()) == (2, 2)
    assert back.placements == [spmd.Shard(0)]
    same(back, x)


@pytest.mark.mpi
def test_sums_stay_unreduced_and_errors_come_before_communication():
    m, n = meshes()[0], spmd.get_world_size()
    x = spmd.dtensor_from_local(whole(4, 6), m, [spmd.Partial()])
    y = fft.dctn(x, 1)
    assert y.placements == [spmd.Partial()]
    same(y, scipy.fft.dctn(n * whole(4, 6), 1))
    with parallel_raises(ValueError, "fft.dctn: a transform of 1 elements"):
        fft.dctn(spmd.shard_tensor(whole(1, 6), m, [spmd.Shard(1)]), 1)
