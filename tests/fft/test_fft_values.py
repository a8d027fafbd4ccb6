"""Values, shapes and dtypes of Fourier transforms are NumPy's; adjoints are exact."""

import numpy as np
import pytest

import spmdlayer as spmd
from spmdlayer import fft

RANDOM = np.random.default_rng(5)
TRANSFORMS_OF_ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "dct", "idct", "dst", "idst"]
TRANSFORMS_OF_ALL = ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"]
TRANSFORMS_OF_ALL += ["dctn", "idctn", "dstn", "idstn"]
NORMS = [None, "backward", "ortho", "forward"]


def array(*extents, dtype="float64"):
    values = RANDOM.normal(size=extents)
    return (values + 1j * RANDOM.normal(size=extents) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def same(found, expected):
    assert isinstance(found, spmd.Tensor)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    rounding = 1e-5 if expected.dtype.name in ("float32", "complex64") else 1e-12
    np.testing.assert_allclose(found.numpy(), expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_axis(name, norm):
    for dtype in ("float32", "float64", "complex64", "complex128"):
        if np.dtype(dtype).kind == "c" and name in ("rfft", "ihfft"):
            continue
        x = array(2, 5, 4, dtype=dtype)
        for n in (None, 3, 4, 5, 9):
            for axis in (-1, 1):
                same(getattr(fft, name)(spmd.tensor(x), n, axis, norm), getattr(np.fft, name)(x, n, axis, norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_several_axes(name, norm):
    x = array(2, 5, 4) if name.startswith("r") else array(2, 5, 4, dtype="complex128")
    options = [{}, {"axes": (1, 0)}, {"s": (4, 3), "axes": (-1, 0)}, {"s": (7, -1), "axes": (1, 2)}, {"axes": (1,)}]
    for option in options:
        same(getattr(fft, name)(spmd.tensor(x), norm=norm, **option), getattr(np.fft, name)(x, norm=norm, **option))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
def test_inverses(n):
    x, z = spmd.tensor(array(3, n)), spmd.tensor(array(3, n, dtype="complex128"))
    for norm in NORMS:
        same(fft.ifft(fft.fft(z, norm=norm), norm=norm), z.numpy())
        same(fft.irfft(fft.rfft(x, norm=norm), n, norm=norm), x.numpy())
        same(fft.hfft(fft.ihfft(x, norm=norm), n, norm=norm), x.numpy())
        same(fft.ifftn(fft.fftn(z, norm=norm), norm=norm), z.numpy())
        same(fft.irfftn(fft.rfftn(x, norm=norm), x.shape, (0, 1), norm=norm), x.numpy())


LINEAR = [
    ("fft", "complex128"),
    ("ifft", "complex128"),
    ("fft", "float64"),
    ("rfft", "float64"),
    ("irfft", "complex128"),
    ("hfft", "complex128"),
    ("ihfft", "float64"),
]


@pytest.mark.parametrize("norm", NORMS[1:])
@pytest.mark.parametrize("m, n", [(1, 1), (4, None), (5, None), (4, 3), (4, 6), (5, 7), (3, 2)])
@pytest.mark.parametrize("name, dtype", LINEAR)
def test_the_gradient_is_the_adjoint(name, dtype, m, n, norm):
    """<F x, g> = <x, F* g> with the real scalar product, where F* g is the gradient."""
    if m == 1 and name in ("irfft", "hfft"):
        n = 1
    x = spmd.tensor(array(2, m, dtype=dtype), requires_grad=True)
    y = getattr(fft, name)(x, n, norm=norm)
    g = array(*y.shape, dtype=y.dtype)
    found = spmd.grad(y, x, [spmd.tensor(g)]).numpy()
    assert found.dtype == x.dtype
    for direction in (array(2, m, dtype=dtype), array(2, m, dtype=dtype)):
        moved = getattr(np.fft, name)(direction, n, norm=norm)
        assert np.sum((np.conj(moved) * g).real) == pytest.approx(np.sum((np.conj(direction) * found).real))


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_halves_and_integers(name):
    whole = np.arange(6).reshape(2, 3)
    same(getattr(fft, name)(spmd.tensor(whole)), getattr(np.fft, name)(whole))
    for dtype in ("float16", "bfloat16"):
        found = getattr(fft, name)(spmd.tensor(whole, dtype=dtype))
        same(found, getattr(np.fft, name)(whole.astype("float32")))


def test_frequencies_and_their_order():
    for n in (1, 4, 5):
        same(fft.fftfreq(n, d=0.1), np.fft.fftfreq(n, 0.1))
        same(fft.rfftfreq(n, d=0.1), np.fft.rfftfreq(n, 0.1))
        same(fft.fftfreq(n, dtype="float32"), np.fft.fftfreq(n).astype("float32"))
    x = array(3, 4, 5)
    for axes in (None, 1, (0, 2)):
        same(fft.fftshift(spmd.tensor(x), axes=axes), np.fft.fftshift(x, axes))
        same(fft.ifftshift(spmd.tensor(x), axes=axes), np.fft.ifftshift(x, axes))


def test_empty_stacks():
    for name in ("fft", "ifft", "rfft", "irfft"):
        same(getattr(fft, name)(spmd.zeros((0, 4))), getattr(np.fft, name)(np.zeros((0, 4))))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: fft.rfft(x * 1j), TypeError, "fft.rfft: a real tensor is needed, its dtype is complex128"),
        (lambda x: fft.fft(x, norm="both"), ValueError, "fft.fft: norm 'both' was given"),
        (lambda x: fft.fft(x, 0), ValueError, "fft.fft: a transform of 0 elements .* give a greater extent"),
        (lambda x: fft.fft(x, 2.5), TypeError, "fft.fft: an extent must be an int"),
        (lambda x: fft.fft(x, axis=2), ValueError, "fft.fft: axis 2 was given for 2 dimensions"),
        (lambda x: fft.fftn(x, axes=(0, -2)), ValueError, "fft.fftn: axes .* twice"),
        (lambda x: fft.fftn(x, s=(2,), axes=(0, 1)), ValueError, "fft.fftn: s has 1 extents for 2 axes"),
        (lambda x: fft.irfft(x[:, :1]), ValueError, "fft.irfft: a transform of 0 elements"),
        (lambda x: fft.rfftn(x, axes=()), ValueError, "fft.rfftn: at least one axis"),
        (lambda x: fft.fftfreq(0), ValueError, "fft.fftfreq: n is 0"),
        (lambda x: fft.fftfreq(4, dtype="int64"), TypeError, "fft.fftfreq: dtype must be real floating point"),
        (lambda x: fft.fftfreq(4, device="gpu"), ValueError, "fft.fftfreq: device 'gpu'"),
    ],
)
def test_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(spmd.ones((2, 3)))


@pytest.mark.parametrize("name", [*TRANSFORMS_OF_ONE, *TRANSFORMS_OF_ALL])
def test_an_empty_dimension_cannot_be_transformed_but_padded(name):
    """An error that says what to do; zeros are appended where an extent is given."""
    few = 1 if name in ("irfft", "irfftn", "irfft2", "hfft") else 0  # their default extent is 2 (m - 1)
    with pytest.raises(ValueError, match=rf"fft.{name}: a transform of 0 elements .* give a greater extent \(n or s\)"):
        getattr(fft, name)(spmd.zeros((3, few)))
    extents = {"n": 4} if name in TRANSFORMS_OF_ONE else {"s": (3, 4)}
    padded = getattr(fft, name)(spmd.zeros((3, 0)), **extents).numpy()
    assert padded.shape[0] == 3 and padded.shape[1] in (3, 4) and not padded.any()
