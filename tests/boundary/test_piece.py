"""A piece made local: how its gradients are read by default, and that a wrong claim about them is found."""

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises

import spmdlayer as spmd

pytestmark = pytest.mark.mpi
R, S, P = spmd.Replicate(), spmd.Shard(0), spmd.Partial("sum")
VALUES = np.arange(1.0, 7.0)


@pytest.fixture
def mesh():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


def again(kind, mesh):
    """Local code that makes its input distributed, takes a copy of the whole, and computes with that: 3 x**2."""

    def local(piece):
        y = spmd.dtensor_from_local(piece, mesh, [R if kind == "copy" else S])
        if kind == "unshard":
            whole = spmd.unshard_dtensor(y)
        elif kind == "declared":
            whole = y.reshard([R]).to_local([P])
        else:
            whole = y.reshard([R]).to_local()
        return whole * whole * 3.0

    return local


@pytest.mark.parametrize("out", [R, P])
@pytest.mark.parametrize("kind", ["copy", "shard", "unshard", "declared"])
def test_inside_an_auto_region_copies_are_summed(mesh, kind, out):
    """Each rank's cotangent is its part of the whole there: as Replicate it would count an n-th."""
    x = spmd.shard_tensor(VALUES, mesh, [R if kind == "copy" else S], requires_grad=True)
    y = spmd.local_map(again(kind, mesh), [out], process_mesh=mesh)(x)
    copies = mesh.size if out == P else 1
    assert np.allclose(y.numpy(), 3.0 * copies * VALUES**2)
    (g,) = spmd.grad(y.sum(), [x], create_graph=True)
    assert np.allclose(g.numpy(), 6.0 * copies * VALUES)
    (h,) = spmd.grad((g * VALUES).sum(), [x])
    assert np.allclose(h.numpy(), 6.0 * copies * VALUES)


@pytest.mark.mpi(min_size=2)
def test_inside_an_auto_region_no_gradient_of_copies_is_replicated(mesh):
    def local(piece):
        return spmd.dtensor_from_local(piece, mesh, [S]).reshard([R]).to_local([R])

    x = spmd.shard_tensor(VALUES, mesh, [S], requires_grad=True)
    with parallel_raises(ValueError, r"Partial\('sum'\) or None is right"):
        spmd.local_map(local, [R], process_mesh=mesh)(x)
    with spmd.no_grad():
        assert np.allclose(spmd.local_map(local, [R], process_mesh=mesh)(x.detach()).numpy(), VALUES)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_a_gradient_that_is_no_copy_is_found(mesh, number, create_graph):
    """By default each rank's gradient is said to be the whole; here it is a part, as large as the rank's number."""
    take = [lambda x: x.to_local(), lambda x: x.to_local([R]), spmd.unshard_dtensor][number]
    values = np.ones(21 + 2 * number + create_graph)  # calls are counted by shape, and the first is compared
    x = spmd.shard_tensor(values, mesh, [R], requires_grad=True)
    with parallel_raises(ValueError, r"declares Replicate\(\) along mesh axis 'x'.*Partial\('sum'\) adds them up"):
        (take(x) * (1.0 + spmd.get_rank())).sum().backward(create_graph=create_graph)


def test_gradients_that_are_said_to_be_parts_or_are_copies_pass(mesh):
    x = spmd.shard_tensor(VALUES, mesh, [R], requires_grad=True)
    (x.to_local([P]) * (1.0 + spmd.get_rank())).sum().backward()
    assert_all(np.allclose(x.grad.numpy(), sum(range(1, mesh.size + 1))), x.grad)
    x.clear_grad()
    (x.to_local() * 2.0).sum().backward()
    assert_all(np.allclose(x.grad.numpy(), 2.0), x.grad)


@pytest.mark.mpi(min_size=2)
def test_copies_are_compared_now_and_then(mesh):
    """At backward passes 1, 2, 4, 8, ... of one layout; in between nothing is exchanged."""
    x = spmd.shard_tensor(np.ones(mesh.size + 11), mesh, [R], requires_grad=True)
    compared = []
    for _ in range(9):
        with spmd.trace() as events:
            (x.to_local() * 2.0).sum().backward()
        compared.append(events.count("record"))
    outside = min(compared)  # what backward outside of regions exchanges in any case
    assert [count - outside for count in compared] == [1, 1, 0, 1, 0, 0, 0, 1, 0]
