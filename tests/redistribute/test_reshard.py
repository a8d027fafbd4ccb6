"""Reshard on one mesh: every pair of placements, values and derivatives against NumPy on the whole array."""

import itertools

import numpy as np
import pytest
from mpi_helpers import agree, assert_all
from whole_arrays import (
    MESHES,
    Pieces,
    all_placements,
    in_memory,
    random_placements,
    random_shape,
    random_sizes,
    random_values,
    random_wholes,
)

import spmdlayer as spmd
from spmdlayer.layout import Layout
from spmdlayer.plan import plan

pytestmark = pytest.mark.mpi
DTYPES = ["bool", "int8", "int64", "uint16", "float16", "float32", "float64", "complex64", "complex128", "bfloat16"]


def kind_of(dtype):
    return np.dtype(dtype).kind


def resolve(name):
    if name == "bfloat16":
        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype(name)


def random_mesh(rng):
    """A mesh of all ranks, in any order; the same on every rank."""
    n = spmd.get_world_size()
    shape = MESHES[n][rng.integers(len(MESHES[n]))]
    return spmd.ProcessMesh(rng.permutation(n).reshape(shape))


def attempt(check, *arguments):
    """An empty text, or what an assertion said on this rank."""
    try:
        check(*arguments)
    except AssertionError as error:
        return str(error) or "failed"
    return ""


def tolerance(dtype):
    return {"f2": 2e-3, "V2": 2e-2, "f4": 1e-5, "c8": 1e-5}.get(f"{dtype.kind}{dtype.itemsize}", 1e-12)


def assert_close(actual, expected, what):
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    rtol = tolerance(expected.dtype)
    atol = 4 * rtol  # values are about 1, but cancel where they are added
    np.testing.assert_allclose(np.asarray(actual).astype(wide), expected.astype(wide), rtol, atol, err_msg=what)


def distributed(rng, mesh, pieces, wholes):
    """The tensor of these pieces, made by from_local from memory of some order, and its local leaf."""
    local = in_memory(rng, pieces.piece(wholes, mesh.coordinate))
    leaf = spmd.asarray(local)
    if wholes.dtype.kind in "fc":
        leaf.requires_grad = True
    return spmd.dtensor_from_local(leaf, mesh, pieces.placements), leaf


def table_of(tensor, mesh):
    """Every rank's piece, by coordinate."""
    return dict(agree((mesh.coordinate, tensor.detach().to_local().numpy())))


def planned_bytes(mesh, source, target, itemsize):
    """What this rank sends, according to the plan."""
    before = Layout(mesh.shape, tuple(source.placements), source.shape, splits_of(source))
    after = Layout(mesh.shape, tuple(target.placements), target.shape)
    return sum(step.bytes(mesh.coordinate) for step in plan(before, after, itemsize))


def splits_of(pieces):
    return tuple(pieces.sizes.get(dim) for dim in range(len(pieces.shape)))


def check_value(rng, mesh, source, target, dtype, what):
    wholes = random_wholes(rng, source, dtype)
    x, _ = distributed(rng, mesh, source, wholes)
    with spmd.trace() as watched:
        y = spmd.reshard(x, mesh, target.placements)
    table = table_of(y, mesh)

    def right():
        assert y.shape == target.shape and y.dtype == dtype, f"{y!r}"
        assert y.placements == target.placements
        assert_close(target.value(target.join(table)), source.value(wholes), what)
        expected = planned_bytes(mesh, source, target, np.dtype(dtype).itemsize)
        assert watched.bytes() == expected, f"{watched.bytes()} bytes sent, {expected} planned:\n{watched}"

    return attempt(right)


def weighted_cubes(y, weight):
    return (y * y * y * weight).sum()


def check_gradients(rng, mesh, source, target, what):
    """First and second derivative of sum(w Y^3), with no ties, so that both are defined."""
    wholes = rng.uniform(0.5, 2.0, source.varying() + source.shape)
    direction = rng.uniform(-1.0, 1.0, wholes.shape)
    weight = rng.uniform(0.5, 1.5, source.shape)
    x, leaf = distributed(rng, mesh, source, wholes)
    y = spmd.reshard(x, mesh, target.placements)
    whole = spmd.reshard(y, mesh, [spmd.Replicate()] * mesh.ndim)
    first = spmd.grad(weighted_cubes(whole, weight), leaf, create_graph=True)
    along = source.piece(direction, mesh.coordinate)
    second = spmd.grad((first * along).sum(), leaf)

    def gradient(values):
        return source.shares(values, 3 * weight * source.value(values) ** 2, conjugate=False)

    step = 1e-30
    expected = gradient(wholes)
    # The second derivative along a direction, by a complex step: exact to rounding.
    curved = gradient(wholes + 1j * step * direction).imag / step

    def right():
        mine = mesh.coordinate
        np.testing.assert_allclose(first.numpy(), source.piece(expected, mine), rtol=1e-10, atol=1e-12, err_msg=what)
        np.testing.assert_allclose(second.numpy(), source.piece(curved, mine), rtol=1e-9, atol=1e-10, err_msg=what)

    return attempt(right)


def check_linear_gradient(rng, mesh, source, target, dtype, what):
    """First derivative where values tie and are zero, of a loss that is linear in the result."""
    wholes = random_wholes(rng, source, dtype)
    weight = random_values(rng, source.shape, dtype)
    x, leaf = distributed(rng, mesh, source, wholes)
    y = spmd.reshard(x, mesh, target.placements)
    g = spmd.grad(y, leaf, grad_outputs=weight)

    def right():
        assert g.dtype == dtype, f"{what}: gradient of dtype {g.dtype}"
        expected = source.shares(wholes, weight).astype(dtype)
        assert_close(g.numpy(), source.piece(expected, mesh.coordinate), what)

    return attempt(right)


def check_adjoint(rng, mesh, source, target, what):
    """Every rank uses its own piece of the result in its own way: the gradient is that of the pieces as they are made.

    Compared with central differences along a direction.
    """
    wholes = rng.uniform(0.5, 2.0, source.varying() + source.shape)
    direction = rng.uniform(-1.0, 1.0, wholes.shape)
    weights = rng.uniform(-1.0, 1.0, target.varying() + target.shape)

    def piece_of_result(values):
        x, leaf = distributed(rng, mesh, source, values)
        return spmd.reshard(x, mesh, target.placements).to_local(), leaf

    y, leaf = piece_of_result(wholes)
    weight = target.piece(weights, mesh.coordinate)
    with np.errstate(invalid="ignore"):  # identities may be infinite
        g = spmd.grad((y * weight).sum(), leaf).numpy()
    step = 1e-5
    high, low = [piece_of_result(wholes + sign * step * direction)[0].detach().numpy() for sign in (1, -1)]
    with np.errstate(invalid="ignore"):
        change = np.where(high == low, 0, high - low)
    # Copies count once: each rank's share of both sums, told apart by the coordinate without the replicated axes.
    mine = (first_copy(source, mesh), (g * source.piece(direction, mesh.coordinate)).sum())
    theirs = (first_copy(target, mesh), (weight * change).sum() / (2 * step))
    everyone = agree((mine, theirs))

    def right():
        analytic = sum(value for (first, value), _ in everyone if first)
        numeric = sum(value for _, (first, value) in everyone if first)
        np.testing.assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-7, err_msg=what)

    return attempt(right)


def first_copy(pieces, mesh):
    return all(c == 0 for c, p in zip(mesh.coordinate, pieces.placements) if p.is_replicated())


def described(seed, mesh, source, target, dtype):
    return f"seed {seed}: {dtype} {source} to {target.placements}, mesh {mesh!r}"


def rounds(number):
    """So many rounds of a random test; fewer where one rank is alone, and where they share cores."""
    return range({1: number // 4, 2: number}.get(spmd.get_world_size(), 2 * number // 3))


def report(problems):
    """Fail with the first few of the texts that are not empty, on every rank."""
    problems = [text for text in problems if text]
    assert_all(not problems, "\n\n".join(problems[:3]))


def test_every_pair_on_one_axis():
    mesh = spmd.init_mesh(spmd.get_world_size())
    rng = np.random.default_rng(1)
    shape, dtype = (5, 3), np.dtype(np.float64)
    kinds = all_placements(len(shape), dtype.kind)
    problems = []
    for before, after in itertools.product(kinds, kinds):
        source, target = Pieces(mesh.shape, [before], shape), Pieces(mesh.shape, [after], shape)
        what = described(1, mesh, source, target, dtype)
        problems.append(check_value(rng, mesh, source, target, dtype, what))
        problems.append(check_gradients(rng, mesh, source, target, what))
        problems.append(check_linear_gradient(rng, mesh, source, target, dtype, what))
    report(problems)


@pytest.mark.parametrize("name", DTYPES)
def test_pairs_of_every_dtype(name):
    dtype = resolve(name)
    mesh = spmd.init_mesh(spmd.get_world_size())
    rng = np.random.default_rng(2)
    shape = (4, 3)
    kinds = all_placements(len(shape), dtype.kind)
    problems = []
    for before, after in rng.permutation(list(itertools.product(kinds, kinds)))[:40]:
        source, target = Pieces(mesh.shape, [before], shape), Pieces(mesh.shape, [after], shape)
        what = described(2, mesh, source, target, dtype)
        problems.append(check_value(rng, mesh, source, target, dtype, what))
        if dtype.kind in "fc":
            problems.append(check_linear_gradient(rng, mesh, source, target, dtype, what))
    report(problems)


@pytest.mark.parametrize("seed", range(8))
def test_random_layouts(seed):
    """Meshes of rank 1 to 3; 0-d, empty, uneven arrays; pieces of any size and order in memory."""
    problems = []
    for round in rounds(20):
        rng = np.random.default_rng((seed, round))
        dtype = resolve(DTYPES[rng.integers(len(DTYPES))])
        mesh, source, target = random_case(rng, dtype)
        what = described((seed, round), mesh, source, target, dtype)
        problems.append(check_value(rng, mesh, source, target, dtype, what))
        if dtype.kind in "fc":
            problems.append(check_linear_gradient(rng, mesh, source, target, dtype, what))
    report(problems)


@pytest.mark.parametrize("check", [check_gradients, check_adjoint])
@pytest.mark.parametrize("seed", range(5))
def test_random_derivatives(seed, check):
    problems = []
    for round in rounds(15):
        rng = np.random.default_rng((100 + seed, round))
        mesh, source, target = random_case(rng, np.dtype(np.float64))
        what = described((100 + seed, round), mesh, source, target, "float64")
        problems.append(check(rng, mesh, source, target, what))
    report(problems)


def random_case(rng, dtype):
    """A mesh, and pieces of a source and a target on it."""
    mesh, shape = random_mesh(rng), random_shape(rng)
    placements = random_placements(rng, len(shape), mesh.ndim, dtype.kind)
    sizes = random_sizes(rng, mesh.shape, placements, shape)
    target = random_placements(rng, len(shape), mesh.ndim, dtype.kind)
    return mesh, Pieces(mesh.shape, placements, shape, sizes), Pieces(mesh.shape, target, shape)
