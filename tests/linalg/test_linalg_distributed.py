"""Linear algebra on distributed stacks: what stays sharded, what is gathered, and failures that all ranks hear of.

Values and gradients under random placements are tested with all operations, in tests/ops.
"""

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises

import spmdlayer as spmd
from spmdlayer import linalg

pytestmark = pytest.mark.mpi


def random():
    return np.random.default_rng(8)


def mesh():
    return spmd.init_mesh((spmd.get_world_size(),))


def positive(*extents):
    values = random().normal(size=extents)
    return values @ values.swapaxes(-1, -2) + np.eye(extents[-1])


ONE = {
    "inv": np.linalg.inv,
    "det": np.linalg.det,
    "cholesky": np.linalg.cholesky,
    "eigvalsh": np.linalg.eigvalsh,
    "svdvals": np.linalg.svdvals,
    "pinv": np.linalg.pinv,
    "matrix_rank": np.linalg.matrix_rank,
    "trace": np.linalg.trace,
    "diagonal": np.linalg.diagonal,
    "matrix_norm": np.linalg.matrix_norm,
    "cond": np.linalg.cond,
}


@pytest.mark.parametrize("name", ONE)
def test_stacks_stay_sharded_and_matrices_are_gathered(name):
    array = positive(5, 3, 3)
    for placement, kept in (
        (spmd.Shard(0), spmd.Shard(0)),
        (spmd.Shard(1), None),
        (spmd.Shard(0, 1), spmd.Shard(0, 1)),
    ):
        y = getattr(linalg, name)(spmd.shard_tensor(array, mesh(), [placement]))
        assert kept is None or y.placements == [kept]
        np.testing.assert_allclose(y.numpy(), ONE[name](array), atol=1e-9)


def test_factorisations_of_sharded_stacks():
    array = positive(5, 3, 3)
    x = spmd.shard_tensor(array, mesh(), [spmd.Shard(0)])
    w, v = linalg.eigh(x)
    u, s, vh = linalg.svd(x)
    q, r = linalg.qr(x)
    for result in (w, v, u, s, vh, q, r):
        assert result.placements == [spmd.Shard(0)]
    for product in (v * w[..., None, :] @ v.mT, u * s[..., None, :] @ vh, q @ r):
        np.testing.assert_allclose(product.numpy(), array, atol=1e-9)
    sign, logarithm = linalg.slogdet(x)
    np.testing.assert_allclose(logarithm.numpy(), np.linalg.slogdet(array)[1], atol=1e-9)


def test_right_hand_sides_stay_as_they_are():
    """Columns may be sharded, and a sum stays unreduced, when all ranks have the matrix."""
    a, b = positive(3, 3), random().normal(size=(3, 5))
    left = spmd.shard_tensor(a, mesh(), [spmd.Replicate()])
    for placement in (spmd.Shard(1), spmd.Partial("sum"), spmd.Partial("avg")):
        x = linalg.solve(left, spmd.shard_tensor(b, mesh(), [spmd.Replicate()]).reshard(mesh(), [placement]))
        assert x.placements == [placement]
        np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), atol=1e-9)
        x = linalg.solve_triangular(left, spmd.shard_tensor(b, mesh(), [spmd.Replicate()]).reshard(mesh(), [placement]))
        assert x.placements == [placement]


def test_a_stack_of_matrices_for_one_vector():
    a, b = positive(5, 3, 3), random().normal(size=3)
    t = spmd.shard_tensor(a, mesh(), [spmd.Shard(0)], requires_grad=True)
    x = linalg.solve(t, b)
    assert x.placements == [spmd.Shard(0)]
    g = spmd.grad((x**2).sum(), t)
    solutions = np.linalg.solve(a, b)
    back = np.linalg.solve(a.swapaxes(1, 2), 2 * solutions[..., None])
    np.testing.assert_allclose(g.numpy(), -back * solutions[:, None, :], atol=1e-9)
    assert g.placements == [spmd.Shard(0)]


def test_norms_exchange_sums_alone():
    array = random().normal(size=(4, 5))
    x = spmd.shard_tensor(array, mesh(), [spmd.Shard(1)], requires_grad=True)
    for order in (2, 1, 3, np.inf):
        y = linalg.vector_norm(x, axis=1, ord=order)
        np.testing.assert_allclose(y.detach().numpy(), np.linalg.vector_norm(array, axis=1, ord=order), atol=1e-12)
    g = spmd.grad(linalg.vector_norm(x), x)
    assert g.placements == [spmd.Shard(1)]
    np.testing.assert_allclose(g.numpy(), array / np.linalg.norm(array), atol=1e-12)


def test_singular_matrices_on_one_rank_raise_on_all():
    array = np.broadcast_to(np.eye(2), (7, 2, 2)).copy()
    array[5] = 0
    for placement in (spmd.Shard(0), spmd.Shard(0, 2)):
        x = spmd.shard_tensor(array, mesh(), [placement])
        message = r"the matrix at index \(5,\) of the stack, of shape \(7, 2, 2\) as \[Shard\(0.*\)\], is"
        with parallel_raises(np.linalg.LinAlgError, f"inv: {message} singular"):
            linalg.inv(x)
        with parallel_raises(ValueError, f"solve: {message} singular"):
            linalg.solve(x, np.ones(2))
        with parallel_raises(ValueError, f"cholesky: {message} not positive definite"):
            linalg.cholesky(x)
        assert_all(linalg.det(x).numpy()[5] == 0)  # the ranks are still together


def test_a_gathered_matrix_raises_on_all():
    x = spmd.shard_tensor(np.zeros((3, 3)), mesh(), [spmd.Shard(0)])
    with parallel_raises(ValueError, r"inv: the matrix, of shape \(3, 3\), is singular"):
        linalg.inv(x)


def test_wrong_shapes_raise_on_all_with_the_global_shape():
    x = spmd.shard_tensor(np.zeros((5, 3, 2)), mesh(), [spmd.Shard(0)])
    for name in ("inv", "eigh", "cholesky"):
        with parallel_raises(ValueError, rf"{name}: the matrices of x must be square, its shape is \(5, 3, 2\)"):
            getattr(linalg, name)(x)


def test_second_derivatives_within_a_local_map():
    """Factorisations inside a region with recomputation: gradients of gradients come across."""
    array = positive(4, 3, 3)

    def local(x):
        return (linalg.eigh(x).eigenvectors[..., 0, :] ** 2 * linalg.eigvalsh(x)).sum() + linalg.slogdet(x)[1].sum()

    def curvature(x, function):
        first = spmd.grad(function(x), x, create_graph=True)
        return spmd.grad((first * first.detach()).sum(), x).numpy()

    region = spmd.local_map(local, [spmd.Partial("sum")])
    x = spmd.shard_tensor(array, mesh(), [spmd.Shard(0)], requires_grad=True)
    expected = curvature(spmd.tensor(array, requires_grad=True), local)
    np.testing.assert_allclose(curvature(x, region), expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(curvature(x, local), expected, rtol=1e-7, atol=1e-9)


def test_other_products():
    a, b = random().normal(size=(5, 3)), random().normal(size=(5, 3)) + 1
    x, y = (spmd.shard_tensor(array, mesh(), [spmd.Shard(0)]) for array in (a, b))
    assert linalg.cross(x, y).placements == [spmd.Shard(0)]
    np.testing.assert_allclose(linalg.cross(x, y).numpy(), np.cross(a, b))
    np.testing.assert_allclose(linalg.cross(x, b[0]).numpy(), np.cross(a, b[0]))
    np.testing.assert_allclose(linalg.kron(x, b).numpy(), np.kron(a, b))
    np.testing.assert_allclose(linalg.multi_dot([x.mT, y, b.T]).numpy(), a.T @ b @ b.T)
    np.testing.assert_allclose(linalg.lstsq(x, b).x.numpy(), np.linalg.lstsq(a, b)[0], atol=1e-9)
    np.testing.assert_allclose(linalg.expm(x.mT @ y).numpy(), linalg.expm(spmd.tensor(a.T @ b)).numpy())
    np.testing.assert_allclose(linalg.matrix_power(x.mT @ y, 0).numpy(), np.eye(3))
