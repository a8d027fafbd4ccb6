"""Reshard from one mesh to another: of other sizes and ranks, overlapping or disjoint, with ranks in neither."""

import numpy as np
import pytest
from mpi_helpers import agree, assert_all, parallel_raises
from test_reshard import assert_close, attempt, report, resolve, rounds
from whole_arrays import (
    Pieces,
    in_memory,
    random_placements,
    random_shape,
    random_sizes,
    random_values,
    random_wholes,
)

import spmdlayer as spmd

pytestmark = pytest.mark.mpi
SHAPES = {1: [(1,), (1, 1)], 2: [(2,), (2, 1), (1, 2)], 3: [(3,), (1, 3)], 4: [(4,), (2, 2), (1, 2, 2)]}
DTYPES = ["bool", "int32", "float16", "float32", "float64", "complex128", "bfloat16"]


def random_ranks_mesh(rng, count=None):
    """A mesh of some ranks, in any order; the same on every rank."""
    n = spmd.get_world_size()
    count = int(rng.integers(1, n + 1)) if count is None else count
    shapes = SHAPES[count]
    return spmd.ProcessMesh(rng.permutation(n)[:count].reshape(shapes[rng.integers(len(shapes))]))


def random_pieces(rng, mesh, shape, kind, uneven):
    placements = random_placements(rng, len(shape), mesh.ndim, kind)
    sizes = random_sizes(rng, mesh.shape, placements, shape) if uneven else None
    return Pieces(mesh.shape, placements, shape, sizes)


def made(rng, mesh, pieces, wholes):
    """The tensor of these pieces, and this rank's leaf; a placeholder, and None, outside the mesh."""
    if mesh.coordinate is None:
        nothing = np.zeros(0, wholes.dtype)
        return spmd.dtensor_from_local(nothing, mesh, pieces.placements), None
    leaf = spmd.asarray(in_memory(rng, pieces.piece(wholes, mesh.coordinate)))
    if wholes.dtype.kind in "fc":
        leaf.requires_grad = True
    return spmd.dtensor_from_local(leaf, mesh, pieces.placements), leaf


def table_of(tensor, mesh):
    inside = mesh.coordinate is not None
    found = agree((mesh.coordinate, tensor.detach().to_local().numpy()) if inside else (None, None))
    return {coord: piece for coord, piece in found if coord is not None}


def random_case(rng, dtype):
    shape, first, second = random_shape(rng), random_ranks_mesh(rng), random_ranks_mesh(rng)
    source = random_pieces(rng, first, shape, dtype.kind, uneven=True)
    target = random_pieces(rng, second, shape, dtype.kind, uneven=False)
    return first, source, second, target


def check(rng, first, source, second, target, dtype, what):
    wholes = random_wholes(rng, source, dtype)
    weight = random_values(rng, source.shape, dtype)
    x, leaf = made(rng, first, source, wholes)
    y = spmd.reshard(x, second, target.placements)
    table = table_of(y, second)
    differentiable = dtype.kind in "fc"
    if differentiable:
        # The program is the same on ranks outside a mesh, also backwards; a rank in neither takes no part.
        assert y.requires_grad or (first.coordinate is None and second.coordinate is None)
        if y.requires_grad:
            spmd.backward(y, weight)

    def right():
        assert y.process_mesh == second and y.placements == target.placements
        if first.coordinate is not None or second.coordinate is not None:
            assert y.shape == target.shape and y.dtype == dtype, f"{y!r}"
        assert_close(target.value(target.join(table)), source.value(wholes), what)
        if differentiable and leaf is not None:
            expected = source.shares(wholes, weight).astype(dtype)
            assert leaf.grad.dtype == dtype
            assert_close(leaf.grad.numpy(), source.piece(expected, first.coordinate), what)

    return attempt(right)


@pytest.mark.parametrize("seed", range(6))
def test_random_meshes(seed):
    problems = []
    for round in rounds(12):
        rng = np.random.default_rng((seed, round))
        dtype = resolve(DTYPES[rng.integers(len(DTYPES))])
        first, source, second, target = random_case(rng, dtype)
        what = f"seed {(seed, round)}: {dtype} {source} on {first!r} to {target.placements} on {second!r}"
        problems.append(check(rng, first, source, second, target, dtype, what))
    report(problems)


def plain(rng, mesh, shape):
    """Shard and Replicate placements alone."""
    choices = [spmd.Replicate(), *[spmd.Shard(d) for d in range(len(shape))]]
    return [choices[k] for k in rng.integers(len(choices), size=mesh.ndim)]


@pytest.mark.parametrize("seed", range(4))
def test_derivatives_to_second_order(seed):
    """sum(w Y^3), where Y comes to all ranks by way of another mesh; some ranks are in none of the two meshes."""
    problems = []
    everyone = spmd.init_mesh(spmd.get_world_size())
    whole = [spmd.Replicate()]
    for round in rounds(8):
        rng = np.random.default_rng((50 + seed, round))
        shape, first, second = random_shape(rng), random_ranks_mesh(rng), random_ranks_mesh(rng)
        values, along = rng.uniform(0.5, 2.0, shape), rng.uniform(-1.0, 1.0, shape)
        weight = rng.uniform(0.5, 1.5, shape)
        x = spmd.shard_tensor(values, first, plain(rng, first, shape), requires_grad=True)
        between = random_placements(rng, len(shape), second.ndim, "f")
        y = spmd.reshard(spmd.reshard(x, second, between), everyone, whole)
        g = spmd.grad((y * y * y * weight).sum(), x, create_graph=True)
        g = spmd.reshard(g, everyone, whole)
        again = spmd.reshard(spmd.grad((g * along).sum(), x), everyone, whole)

        what = f"seed {(50 + seed, round)}: {first!r} to {between} on {second!r}"
        for seen, expected in ((g, 3 * weight * values**2), (again, 6 * weight * values * along)):
            problems.append(attempt(assert_close, seen.detach().numpy(), expected, what))
    report(problems)


@pytest.mark.parametrize("seed", range(2))
def test_a_pipeline(seed):
    """Each rank does its part on a mesh of its own and hands on; all ranks call backward."""
    n = spmd.get_world_size()
    values = np.random.default_rng(seed).uniform(0.5, 2.0, (3, 2))
    meshes = [spmd.ProcessMesh([rank]) for rank in range(n)]
    weights = [spmd.shard_tensor(np.array([1.0 + k, 0.5]), mesh, [spmd.Replicate()], requires_grad=True)
               for k, mesh in enumerate(meshes)]
    y = spmd.shard_tensor(values, meshes[0], [spmd.Shard(0)])
    for mesh, w in zip(meshes, weights):
        y = spmd.reshard(y, mesh, [spmd.Shard(0)]) * w
    everyone = spmd.init_mesh(n)
    loss = spmd.reshard(y, everyone, [spmd.Replicate()]).sum()
    loss.backward()
    factors = np.array([[1.0 + k, 0.5] for k in range(n)])
    expected = values.sum(axis=0) * np.prod(factors, axis=0) / factors[spmd.get_rank()]
    mine = weights[spmd.get_rank()].grad.numpy()
    assert_all(np.allclose(mine, expected), f"{mine}, {expected} is right")


def test_meshes_of_different_communicators_are_refused():
    from mpi4py import MPI

    other = MPI.COMM_WORLD.Dup()
    x = spmd.shard_tensor(np.arange(4.0), spmd.init_mesh(spmd.get_world_size()), [spmd.Shard(0)])
    with parallel_raises(ValueError, "communicators"):
        spmd.reshard(x, spmd.init_mesh(other.size, comm=other), [spmd.Replicate()])
    other.Free()
