"""pad against numpy.pad, whole and distributed; derivatives are in gradient_cases."""

import numpy as np
import pytest
from mpi_helpers import parallel_raises
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd

S, P = spmd.Shard, spmd.Partial
MODES = ["constant", "edge", "reflect", "symmetric", "wrap"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "widths", [0, 2, (1, 3), ((1, 2), (7, 0)), ((0, 0), (5, 6)), [[2, 2], [0, 1]], np.array([1, 2])]
)
def test_values(mode, widths):
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(spmd.pad(x, widths, mode).numpy(), np.pad(x, widths, mode))


def test_constants_and_dtypes():
    x = np.arange(3, dtype="int8")
    found = spmd.pad(x, (1, 2), constant_values=-1)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found.numpy(), [-1, 0, 1, 2, -1, -1])
    np.testing.assert_array_equal(spmd.pad(x > 0, 1, constant_values=True).numpy(), [True, False, True, True, True])
    assert spmd.pad(np.zeros((0, 2)), ((1, 0), (0, 0))).shape == (1, 2)
    assert spmd.pad(np.zeros((0, 2)), ((0, 0), (1, 0)), "edge").shape == (0, 3)
    assert spmd.pad(spmd.tensor(2.0), 3).shape == ()


def test_half_precision_gradients_are_summed_in_float32():
    x = spmd.tensor(np.ones(2), dtype="float16", requires_grad=True)
    gradient = spmd.grad(spmd.pad(x, (0, 4095), "edge"), x, [np.ones(4097, "float16")])
    np.testing.assert_array_equal(gradient.numpy(), [1, 4096])


WRONG = [
    (lambda: spmd.pad(np.ones((2, 3)), 1, "mean"), ValueError, "pad: mode must be one of"),
    (lambda: spmd.pad(np.ones((2, 3)), -1), ValueError, "pad_width must be .* of the 2 dimensions"),
    (lambda: spmd.pad(np.ones((2, 3)), ((1, 1),) * 3), ValueError, "pad_width"),
    (lambda: spmd.pad(np.ones((2, 3)), 1.5), ValueError, "pad_width"),
    (lambda: spmd.pad(np.ones((2, 3)), "1"), ValueError, "pad_width"),
    (lambda: spmd.pad(np.ones((2, 0)), 1, "wrap"), ValueError, "nothing to repeat .* the shape is"),
    (lambda: spmd.pad(np.ones(2), 1, constant_values=1j), TypeError, "complex"),
    (lambda: spmd.pad(np.ones(2), 1, constant_values=[1, 2]), TypeError, "constant_values must be a number"),
]


@pytest.mark.parametrize("call, kind, match", WRONG, ids=range(len(WRONG)))
def test_bad_input(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


# Distributed ---------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(16))
def test_random_placements(seed):
    random = np.random.default_rng([3, seed])
    shape = tuple(int(n) for n in random.integers(1, 6, 2))
    x = random.normal(size=shape)
    mode, value = draw(random, MODES), draw(random, [0, 2.5])
    widths = tuple((int(a), int(b)) for a, b in random.integers(0, 4, (2, 2)) * random.integers(0, 2, (2, 1)))
    mesh = draw(random, meshes())
    places = placements_for(random, mesh, x)
    print(f"seed {seed}, mesh {mesh.shape}, {places}, shape {shape}, {widths}, {mode}, {value}")
    t = distribute(random, mesh, x, places)
    options = {"constant_values": value} if mode == "constant" else {}
    y = spmd.pad(t, widths, mode, **options)
    np.testing.assert_allclose(y.numpy(), np.pad(x, widths, mode, **options), rtol=1e-9, atol=1e-12)


@pytest.mark.mpi
def test_what_does_not_communicate():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    n, array = mesh.size, np.arange(15.0).reshape(5, 3)
    x = spmd.shard_tensor(array, mesh, [S(0)])
    x.requires_grad = True
    with spmd.trace() as t:
        along = spmd.pad(x, ((2, 1), (0, 0)), constant_values=4)
        across = spmd.pad(x, ((0, 0), (1, 1)), "wrap")
        total = spmd.pad(x.sum(axis=0), 1, "edge")
        gradient = spmd.grad(along.sum(), x)
    assert t.count(records=True) == 0, str(t)
    assert along.placements == across.placements == [S(0)]
    assert total.placements == [P("sum")]
    sizes = [len(piece) for piece in np.array_split(np.arange(5), n)]
    sizes[0] += 2
    sizes[-1] += 1
    assert along.local_shape == (sizes[mesh.rank], 3)
    np.testing.assert_array_equal(along.detach().numpy(), np.pad(array, ((2, 1), (0, 0)), constant_values=4))
    np.testing.assert_array_equal(gradient.numpy(), np.ones((5, 3)))


@pytest.mark.mpi
def test_bad_input_on_every_rank():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = spmd.shard_tensor(np.ones((0, 3)), mesh, [S(0)])
    with parallel_raises(ValueError, "nothing to repeat"):
        spmd.pad(x, 1, "reflect")
