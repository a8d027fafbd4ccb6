"""Operations whose local code communicates: values, gradients of two orders, and what travels."""

import ml_dtypes
import numpy as np
import pytest
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd

pytestmark = pytest.mark.mpi

R, S, P = spmd.Replicate(), spmd.Shard, spmd.Partial


@pytest.fixture
def mesh():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


def traced(function):
    """The result of a function, and the bytes that this rank sent."""
    with spmd.trace() as t:
        result = function()
    return result, t.bytes()


def test_only_totals_travel_in_a_running_sum(mesh):
    array = np.arange(4000.0).reshape(1000, 4)
    x = spmd.shard_tensor(array, mesh, [S(0)])
    y, sent = traced(lambda: spmd.cumulative_sum(x, axis=0))
    np.testing.assert_allclose(y.numpy(), array.cumsum(axis=0))
    assert y.placements == [S(0)]
    assert sent <= 4 * 8 * (mesh.size - 1)


def test_a_running_sum_has_a_running_sum_as_its_gradient(mesh):
    x = spmd.shard_tensor(np.arange(7.0), mesh, [S(0)])
    x.requires_grad = True
    weight = np.array([1.0, -1, 2, 0, 3, 1, 1])
    with spmd.trace() as t:
        g = spmd.grad((spmd.cumulative_sum(x) * weight).sum(), x)
    np.testing.assert_array_equal(g.numpy(), weight[::-1].cumsum()[::-1])
    assert g.placements == [S(0)]
    assert t.bytes() <= 2 * 8 * (mesh.size - 1)


def test_a_running_product_with_zeros(mesh):
    array = np.array([2.0, -1.0, 0.0, 3.0, 0.5, 0.0, 4.0])
    x = spmd.shard_tensor(array, mesh, [S(0)])
    x.requires_grad = True
    y, sent = traced(lambda: spmd.cumulative_prod(x, include_initial=True))
    np.testing.assert_array_equal(y.detach().numpy(), np.concatenate([[1.0], array.cumprod()]))
    assert y.placements == [S(0)]
    g = spmd.grad(y.sum(), x, create_graph=True)
    expected = [sum(np.prod(np.delete(array[: k + 1], j)) for k in range(j, 7)) for j in range(7)]
    np.testing.assert_allclose(g.detach().numpy(), expected)
    # The gradient is linear in each other factor: its difference quotients are its derivatives.
    direction = np.arange(1.0, 8.0)
    second = spmd.grad((g * direction).sum(), x)

    def slope(a):
        return sum(d * sum(np.prod(np.delete(a[: k + 1], j)) for k in range(j, 7)) for j, d in enumerate(direction))

    quotients = [(slope(array + e) - slope(array - e)) / 2 for e in np.eye(7)]
    np.testing.assert_allclose(second.numpy(), quotients, atol=1e-12)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("seed", range(4))
def test_running_sums_of_every_dtype(dtype, seed):
    random = np.random.default_rng(seed)
    mesh = draw(random, meshes())
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    array = random.integers(0, 2, (5, 3)).astype(kind)
    placed = placements_for(random, mesh, array, partial=False)
    print(f"seed {seed}, mesh {mesh.shape}, placements {placed}")
    x = distribute(random, mesh, array, placed)
    for axis in (0, 1):
        y = spmd.cumulative_sum(x, axis=axis)
        half = dtype in ("float16", "bfloat16")
        expected = array.astype("float32").cumsum(axis).astype(kind) if half else array.cumsum(axis)
        np.testing.assert_array_equal(y.numpy(), expected)
        assert y.dtype == expected.dtype
        assert y.placements == placed
        assert spmd.cumulative_sum(x, axis=axis, dtype="complex128").dtype == np.complex128
        product = spmd.cumulative_prod(x, axis=axis)
        expected = array.cumprod(axis)
        np.testing.assert_array_equal(product.numpy(), expected)
        assert (product.dtype, product.placements) == (expected.dtype, placed)


def test_inside_a_region_and_from_outside(mesh):
    """A distributed tensor made inside a region, and its gradients from inside, through the region, and again."""
    array = np.arange(1.0, 6.0)

    def local(piece):
        inner = spmd.dtensor_from_local(piece, mesh, [S(0)])
        return spmd.cumulative_sum(inner * inner).to_local()

    x = spmd.shard_tensor(array, mesh, [S(0)])
    x.requires_grad = True
    y = spmd.local_map(local, [[S(0)]], in_placements=[[S(0)]], process_mesh=mesh)(x)
    np.testing.assert_allclose(y.numpy(), (array**2).cumsum())
    g = spmd.grad((y * y).sum(), x, create_graph=True)
    total = (array**2).cumsum()
    np.testing.assert_allclose(g.detach().numpy(), 2 * array * 2 * total[::-1].cumsum()[::-1])
    again = spmd.grad(g.sum(), x)

    def gradient(a):
        return 4 * a * (a**2).cumsum()[::-1].cumsum()[::-1]

    step = 1e-6
    expected = [(gradient(array + step * e) - gradient(array - step * e)).sum() / (2 * step) for e in np.eye(5)]
    np.testing.assert_allclose(again.numpy(), expected, rtol=1e-6)


def test_ranks_that_do_not_reach_it_run_its_gradient_all_the_same(mesh):
    """Where one rank alone uses its piece of the running sum, the others take part in its gradient."""

    def local(piece):
        inner = spmd.dtensor_from_local(piece, mesh, [S(0)])
        mine = spmd.cumulative_sum(inner).to_local()
        return mine * 2.0 if mesh.rank == mesh.size - 1 else piece * 1.0

    n = mesh.size
    x = spmd.shard_tensor(np.ones(2 * n), mesh, [S(0)])
    x.requires_grad = True
    y = spmd.local_map(local, [[S(0)]], in_placements=[[S(0)]], process_mesh=mesh)(x)
    expected = np.array([1.0 + 4.0] * (2 * n - 2) + [4.0, 2.0])
    np.testing.assert_allclose(spmd.grad(y.sum(), x).numpy(), expected)


def test_ranks_outside_the_mesh_take_no_part():
    """On all ranks but the first, if there are more; what they compute comes to all with the last reshard."""
    n = spmd.get_world_size()
    everyone = spmd.init_mesh((n,))
    inner = spmd.ProcessMesh(list(range(1, n)) or [0])
    array = np.arange(1.0, 8.0)
    rows = np.array([6, 0, 0, 3])

    def function(x):
        y = spmd.flip(spmd.cumulative_sum(x))[::-2]
        z = x[rows] * x[:4]
        z[np.array([3, 1])] = 2.0
        return spmd.concat([y, z])

    leaf = spmd.shard_tensor(array, everyone, [S(0)])
    leaf.requires_grad = True
    result = function(leaf.reshard(mesh=inner, placements=[S(0)])).reshard(mesh=everyone, placements=[R])
    local = spmd.tensor(array, requires_grad=True)
    expected = function(local)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy())
    g = spmd.grad((result * result).sum(), leaf)
    np.testing.assert_allclose(g.numpy(), spmd.grad((expected * expected).sum(), local).numpy())
