"""The table of what crosses the boundary, row by row, to second order.

L is always a sum of products written out here, so the expected gradients are
plain arithmetic on the ranks' values.
"""

import numpy as np
import pytest

import spmdlayer as spmd

pytestmark = pytest.mark.mpi


def pieces(n, shape, seed=1):
    """Every rank's piece, the same table on all ranks."""
    return np.random.default_rng(seed).uniform(0.5, 2.0, (n, *shape))


def leaf(values):
    return spmd.tensor(values, requires_grad=True)


def cubed_loss(x, mesh, weight):
    """sum(weight * X**3): its gradient 3 w X^2 and second derivative 6 w X are easily written out."""
    whole = spmd.reshard(x, mesh, [spmd.Replicate()])
    return (whole * whole * whole * weight).sum()


def first_and_second(local, mesh, placement, weight, direction):
    """dL/dx_r and the gradient of sum_r <dL/dx_r, direction_r> with respect to x_r."""
    x = spmd.dtensor_from_local(local, mesh, [placement])
    loss = cubed_loss(x, mesh, weight)
    first = spmd.grad(loss, local, create_graph=True)
    again = spmd.grad((first * direction).sum(), local)
    return first.numpy(), again.numpy()


def test_shard(mesh):
    n, r = mesh.size, mesh.rank
    # Uneven and empty pieces: rank r holds r items.
    values = [np.arange(1.0, 1 + k) for k in range(n)]
    whole = np.concatenate(values)
    weight = np.arange(2.0, 2 + whole.size)
    offset = sum(v.size for v in values[:r])
    own = slice(offset, offset + r)
    direction = np.full(r, 0.5)
    local = leaf(values[r])
    first, second = first_and_second(local, mesh, spmd.Shard(0), weight, direction)
    np.testing.assert_allclose(first, (3 * weight * whole**2)[own])
    np.testing.assert_allclose(second, (6 * weight * whole)[own] * direction)


@pytest.mark.parametrize("op", ["sum", "avg"])
def test_partial_linear(mesh, op):
    n, r = mesh.size, mesh.rank
    x = pieces(n, (3,))
    weight = np.array([1.0, -2.0, 3.0])
    factor = 1.0 if op == "sum" else 1.0 / n
    total = x.sum(0) * factor
    directions = pieces(n, (3,), seed=2)
    local = leaf(x[r])
    first, second = first_and_second(local, mesh, spmd.Partial(op), weight, directions[r])
    # Every rank gets all of G (or G / n); shares of all ranks meet in the second derivative.
    np.testing.assert_allclose(first, 3 * weight * total**2 * factor)
    np.testing.assert_allclose(second, 6 * weight * total * factor**2 * directions.sum(0))


@pytest.mark.parametrize("op", ["max", "min"])
def test_partial_extreme(mesh, op):
    n, r = mesh.size, mesh.rank
    x = pieces(n, (4,))
    x[:, 0] = 1.0  # all ranks tie
    reduced = getattr(x, op)(0)
    attains = (x == reduced) / (x == reduced).sum(0)
    weight = np.array([1.0, -2.0, 3.0, 4.0])
    directions = pieces(n, (4,), seed=2)
    local = leaf(x[r])
    first, second = first_and_second(local, mesh, spmd.Partial(op), weight, directions[r])
    np.testing.assert_allclose(first, 3 * weight * reduced**2 * attains[r])
    np.testing.assert_allclose(second, 6 * weight * reduced * attains[r] * (attains * directions).sum(0))


def test_partial_prod(mesh):
    n, r = mesh.size, mesh.rank
    x = pieces(n, (3,))
    x[0, 1] = 0.0
    weight = np.array([1.0, -2.0, 3.0])
    others = np.array([np.prod(np.delete(x, k, 0), 0) for k in range(n)])
    product = x.prod(0)
    directions = pieces(n, (3,), seed=2)
    local = leaf(x[r])
    first, second = first_and_second(local, mesh, spmd.Partial("prod"), weight, directions[r])
    np.testing.assert_allclose(first, 3 * weight * product**2 * others[r])
    # d/dx_r of sum_s d_s 3 w P^2 O_s: P^2 gives 2 P O_r O_s, O_s gives the product without r and s.
    expected = np.zeros(3)
    for s in range(n):
        expected += directions[s] * 6 * weight * product * others[r] * others[s]
        if s != r:
            both = np.prod(np.delete(x, [r, s], 0), 0)
            expected += directions[s] * 3 * weight * product**2 * both
    np.testing.assert_allclose(second, expected, atol=1e-12)


def test_replicate(mesh):
    x = np.array([1.0, 2.0, 3.0])
    weight = np.array([1.0, -2.0, 3.0])
    direction = np.array([0.5, 0.25, 2.0])
    first, second = first_and_second(leaf(x), mesh, spmd.Replicate(), weight, direction)
    np.testing.assert_allclose(first, 3 * weight * x**2)
    np.testing.assert_allclose(second, 6 * weight * x * direction)


def test_any_and_all_have_values_and_no_gradient(mesh):
    n, r = mesh.size, mesh.rank
    local = np.array([r == 0, True, False, r != 0])
    got_any = spmd.dtensor_from_local(local, mesh, [spmd.Partial("any")])
    got_all = spmd.dtensor_from_local(local, mesh, [spmd.Partial("all")])
    np.testing.assert_array_equal(got_any.numpy(), [True, True, False, n > 1])
    np.testing.assert_array_equal(got_all.numpy(), [n == 1, True, False, False])
    assert not got_any.requires_grad and not got_all.requires_grad


def test_nan_is_kept_whichever_rank_has_it_and_gets_the_gradient(mesh):
    n, r = mesh.size, mesh.rank
    for owner in range(n):
        local = leaf([np.nan if r == owner else 1.0])
        x = spmd.dtensor_from_local(local, mesh, [spmd.Partial("max")])
        whole = x.reshard([spmd.Replicate()])
        assert np.isnan(whole.numpy()).all()
        np.testing.assert_array_equal(spmd.grad(whole.sum(), local).numpy(), [float(r == owner)])


def test_backward_of_a_partial_root_is_that_of_its_reshard(mesh):
    n, r = mesh.size, mesh.rank
    for op, factor in [("sum", 1.0), ("avg", 1.0 / n)]:
        local = leaf([1.0 + r, 2.0])
        x = spmd.dtensor_from_local(local, mesh, [spmd.Partial(op)])
        np.testing.assert_allclose(spmd.grad(x, local, np.array([3.0, 4.0])).numpy(), factor * np.array([3.0, 4.0]))
    local = leaf([1.0 + r])
    x = spmd.dtensor_from_local(local, mesh, [spmd.Partial("max")])
    np.testing.assert_allclose(spmd.grad(x, local).numpy(), [float(r == n - 1)])


def test_gradients_that_users_see(mesh):
    n, r = mesh.size, mesh.rank
    for op in ("sum", "avg"):
        x = spmd.dtensor_from_local(np.array([1.0 + r, 2.0]), mesh, [spmd.Partial(op)])
        x.requires_grad = True
        (x.reshard([spmd.Replicate()]) * np.array([3.0, 4.0])).sum().backward()
        assert x.grad.placements == [spmd.Replicate()]
        np.testing.assert_allclose(x.grad.numpy(), [3.0, 4.0])
    x = spmd.dtensor_from_local(np.array([1.0 + r, 2.0]), mesh, [spmd.Partial("max")])
    x.requires_grad = True
    (x.reshard([spmd.Replicate()]) * np.array([3.0, 4.0])).sum().backward()
    assert x.grad.placements == [spmd.Partial("sum")]
    np.testing.assert_allclose(x.grad.numpy(), [3.0, 4.0])
    np.testing.assert_allclose(x.grad._data, [3.0 * (r == n - 1), 4.0 / n])


def test_a_prod_leaf_raises_and_works_as_an_intermediate(mesh):
    local = leaf([1.0 + mesh.rank])
    x = spmd.dtensor_from_local(local, mesh, [spmd.Partial("prod")])
    total = np.prod(np.arange(1.0, mesh.size + 1))
    (gradient,) = spmd.grad(x.reshard([spmd.Replicate()]).sum(), [local])
    np.testing.assert_allclose(gradient.numpy(), [total / (1.0 + mesh.rank)])
    x = spmd.dtensor_from_local(np.array([2.0]), mesh, [spmd.Partial("prod")])
    x.requires_grad = True
    with pytest.raises(ValueError, match="prod"):
        x.reshard([spmd.Replicate()]).sum().backward()
