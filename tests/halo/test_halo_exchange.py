"""Halo exchange against numpy.pad on the whole array, its adjoint, and what is sent."""

from math import prod

import numpy as np
import pytest
from mpi_helpers import agree, assert_all, parallel_raises
from placed import dimension_pieces, draw, meshes, placements_for

import spmdlayer as spmd

pytestmark = pytest.mark.mpi

R, S, P = spmd.Replicate(), spmd.Shard, spmd.Partial
MODES = {"periodic": "wrap", "zero": "constant", "reflect": "reflect", "edge": "edge"}


def random_grid(random, ndim):
    """A distributed array of slices of random sizes: (tensor, whole array, {dim: this rank's interval})."""
    mesh = draw(random, meshes())
    array = random.normal(size=tuple(int(n) for n in random.integers(1, 8, ndim)))
    placements = [S(p.dim) if p.is_shard() else R for p in placements_for(random, mesh, array, partial=False)]
    held = [dimension_pieces(random, mesh, placements, dim, n)[mesh.coordinate] for dim, n in enumerate(array.shape)]
    x = spmd.dtensor_from_local(array[np.ix_(*held)], mesh, placements)
    print(f"mesh {mesh.shape}, {placements}, shape {array.shape}, here {[part.size for part in held]}")
    return x, array, held


def intervals(x, held):
    """Where this rank's piece begins and ends; an empty one begins where the pieces before it end."""
    layout = x._spec.layout
    found = [layout.intervals(x.process_mesh.coordinate, dim)[0] for dim in range(len(held))]
    for (start, stop), part in zip(found, held):
        assert list(range(start, stop)) == part.tolist()
    return found


def random_widths(random, shape, boundary):
    most = [n - 1 if boundary == "reflect" else n + 2 for n in shape]
    return tuple(tuple(int(width) for width in random.integers(0, m + 1, 2)) for m in most)


@pytest.mark.parametrize("seed", range(40))
def test_pieces_are_slices_of_the_padded_array(seed):
    random = np.random.default_rng(seed)
    boundary = draw(random, list(MODES))
    x, array, held = random_grid(random, int(random.integers(1, 4)))
    widths = random_widths(random, array.shape, boundary)
    print(f"seed {seed}, {boundary}, widths {widths}")
    x.requires_grad = True
    y = spmd.halo_exchange(x, widths, boundary)
    padded = np.pad(array, widths, MODES[boundary])
    index = tuple(slice(a, b + sum(pair)) for (a, b), pair in zip(intervals(x, held), widths))
    np.testing.assert_array_equal(y.to_local().detach().numpy(), padded[index])
    assert y.placements == x.placements
    # The adjoint: <H x, z> = <x, H* z>.
    z = random.normal(size=y.shape)
    g = spmd.grad((y * z).sum(), x, retain_graph=True)
    assert g.placements == x.placements
    np.testing.assert_allclose((g.numpy() * array).sum(), (y * z).sum().item(), rtol=1e-10, atol=1e-10)
    # The Hessian of the sum of z (H x)^2 is that of a quadratic form.
    v = random.normal(size=array.shape)
    g = spmd.grad((y * y * z).sum(), x, create_graph=True)
    h = spmd.grad((g * v).sum(), x)
    form = 2 * (spmd.halo_exchange(x.detach() * 0 + v, widths, boundary) * y.detach() * z).sum().item()
    np.testing.assert_allclose((g.detach().numpy() * v).sum(), form, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose((h.numpy() * array).sum(), form, rtol=1e-9, atol=1e-9)


def test_ghosts_are_added_back_to_their_owners():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    n, rank = mesh.size, mesh.coordinate[0]
    x = spmd.dtensor_from_local(np.arange(4.0) + 1 + 4 * rank, mesh, [S(0)])
    x.requires_grad = True
    y = spmd.halo_exchange(x, 1, "zero")
    before = [0.0] if rank == 0 else [4.0 * rank]
    after = [0.0] if rank == n - 1 else [4.0 * rank + 5]
    np.testing.assert_array_equal(y.to_local().detach().numpy(), [*before, *(np.arange(4.0) + 1 + 4 * rank), *after])
    y.sum().backward()
    expected = [1 + (rank > 0), 1, 1, 1 + (rank < n - 1)]
    np.testing.assert_array_equal(x.grad.to_local().numpy(), expected)


def test_one_rank_is_its_own_neighbour():
    mesh = spmd.init_mesh((spmd.get_world_size(), 1))
    x = spmd.shard_tensor(np.array([1.0, 2.0, 3.0]), mesh, [R, S(0)], requires_grad=True)
    y = spmd.halo_exchange(x, 1, "periodic")
    np.testing.assert_array_equal(y.detach().numpy(), [3, 1, 2, 3, 1])
    g = spmd.grad(y.sum(), x)
    np.testing.assert_array_equal(g.numpy(), [2, 1, 2])


def test_one_width_is_for_the_sharded_dimensions():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    array = np.arange(24.0).reshape(8, 3)
    x = spmd.shard_tensor(array, mesh, [S(0)])
    assert spmd.halo_exchange(x, (1, 2)).local_shape == (x.local_shape[0] + 3, 3)
    assert spmd.halo_exchange(x, {-1: (0, 2)}).local_shape == (x.local_shape[0], 5)
    whole = spmd.shard_tensor(array, mesh, [R])
    y = spmd.halo_exchange(whole, np.array([[1, 0], [0, 2]]), "edge")
    np.testing.assert_array_equal(y.numpy(), np.pad(array, ((1, 0), (0, 2)), "edge"))


def test_partial_sums_are_reduced_first():
    mesh = spmd.init_mesh((1, spmd.get_world_size()))
    x = spmd.dtensor_from_local(np.arange(4.0), mesh, [S(0), P("sum")])
    y = spmd.halo_exchange(x, 1)
    assert y.placements == [S(0), R]
    np.testing.assert_array_equal(y.numpy(), mesh.size * np.array([3.0, 0, 1, 2, 3, 0]))


def test_what_is_sent():
    """A ring of ghosts, corners once, and as much back."""
    mesh = next(mesh for mesh in reversed(meshes()) if mesh.ndim == 2)
    array = np.arange(144.0).reshape(12, 12)
    x = spmd.shard_tensor(array, mesh, [S(0), S(1)], requires_grad=True)
    with spmd.trace() as there:
        y = spmd.halo_exchange(x, 1, "zero")
    with spmd.trace() as back:
        spmd.grad((y * np.ones(y.shape)).sum(), x)
    rows, columns = mesh.shape
    # Along each cut of a dim both sides need a line as long as the pieces' ghosts there reach.
    lines = 2 * (rows - 1) * (12 + 2 * (columns - 1)) + 2 * (columns - 1) * 12
    total = agree((there.bytes("alltoall"), back.bytes("alltoall")))
    assert sum(sent for sent, _ in total) == sum(sent for _, sent in total) == 8 * lines


def test_dtypes():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    for dtype in ("float16", "int8", "bool", "complex64"):
        array = np.arange(9).astype(dtype)
        x = spmd.shard_tensor(array, mesh, [S(0)])
        y = spmd.halo_exchange(x, (2, 1), "reflect")
        start, stop = x._spec.layout.intervals(mesh.coordinate, 0)[0]
        assert y.dtype == dtype
        np.testing.assert_array_equal(y.to_local().numpy(), np.pad(array, (2, 1), "reflect")[start : stop + 3])
    half = spmd.shard_tensor(np.ones(2048, "float16"), mesh, [S(0)], requires_grad=True)
    g = spmd.grad(spmd.halo_exchange(half, (0, 2049), "edge").sum(dtype="float32"), half)
    assert g.dtype == "float16"
    assert g.numpy()[-1] > 2048  # one by one, half precision would stop there


@pytest.mark.parametrize(
    "kind, match, call",
    [
        (ValueError, r"reflect.*width of \(9, 9\) along dimension 0.*\(9,\).*10 elements", lambda x: (x, 9, "reflect")),
        (ValueError, "boundary must be one of .* 'wrap' was given", lambda x: (x, 1, "wrap")),
        (ValueError, "width must be .* -1 was given", lambda x: (x, -1)),
        (ValueError, "width must be .* none negative; 1.5 was given", lambda x: (x, 1.5)),
        (ValueError, r"width must be .* \(\(1, 1\), \(1, 1\)\) was given", lambda x: (x, ((1, 1), (1, 1)))),
        (ValueError, r"width must be .* {3: 1} was given", lambda x: (x, {3: 1})),
        (ValueError, "none is sharded; name those", lambda x: (x.reshard(x.process_mesh, [R]), 1)),
        (ValueError, "have no neighbours; reshard", lambda x: (x.reshard(x.process_mesh, [S(0, 2)]), 1)),
        (ValueError, "'periodic' cannot fill .* needs 1 elements", lambda x: (x[:0], 1)),
        (TypeError, "x must be a distributed tensor, a local tensor", lambda x: (spmd.ones(3), 1)),
        (TypeError, "x must be a distributed tensor, a ndarray", lambda x: (np.ones(3), 1)),
    ],
)
def test_bad_input(kind, match, call):
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    arguments = call(spmd.shard_tensor(np.arange(9.0), mesh, [S(0)]))
    with spmd.trace() as traced, parallel_raises(kind, f"halo_exchange: .*{match}|{match}"):
        spmd.halo_exchange(*arguments)
    assert_all(traced.count() == 0, traced)


def test_outside_the_mesh():
    mesh = spmd.ProcessMesh([0])
    x = spmd.shard_tensor(np.arange(4.0), mesh, [S(0)])
    y = spmd.halo_exchange(x, 1)
    everywhere = spmd.ProcessMesh(list(range(spmd.get_world_size())))
    np.testing.assert_array_equal(y.reshard(everywhere, [R]).numpy(), [3, 0, 1, 2, 3, 0])
    assert prod(y.shape) == 6
