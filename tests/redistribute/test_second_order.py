"""Derivatives that once came out wrong: gradients that users see, and ties over several mesh axes."""

import numpy as np
import pytest

import spmdlayer as spmd

pytestmark = pytest.mark.mpi


def test_the_gradient_seen_of_a_partial_leaf_is_differentiable():
    """L = sum(Y^2) / 2 with Y = 3 X: dL/dX = 9 X, and its derivative along D is 9 D."""
    n, r = spmd.get_world_size(), spmd.get_rank()
    mesh = spmd.init_mesh((n,), ("x",))
    x = spmd.dtensor_from_local(np.array([1.0 + r, 2.0]), mesh, [spmd.Partial("sum")])
    x.requires_grad = True
    tripled = spmd.local_map(lambda piece: piece * 3.0, [[spmd.Partial("sum")]])(x).reshard([spmd.Replicate()])
    (first,) = spmd.grad((tripled * tripled).sum() * 0.5, [x], create_graph=True)
    total = np.array([n * (n + 1) / 2, 2.0 * n])
    np.testing.assert_allclose(first.numpy(), 9 * total)
    direction = np.array([0.5, -1.0])
    (second,) = spmd.grad((first * direction).sum(), [x])
    np.testing.assert_allclose(second.numpy(), 9 * direction)


@pytest.mark.mpi(min_size=4)
def test_ties_over_two_mesh_axes_share_by_the_number_of_elements():
    mesh = spmd.init_mesh((2, 2), ("a", "b"))
    values = np.array([3.0, 3.0, 3.0, 3.0, 3.0, 1.0])
    x = spmd.shard_tensor(values, mesh, [spmd.Shard(0), spmd.Shard(0)], requires_grad=True)
    top = x.max()
    assert top.item() == 3.0
    top.backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.2, 0.2, 0.2, 0.2, 0.2, 0.0])
