"""Ranks outside a mesh: they run the same program, hold placeholders, and take part where a mesh has them."""

import numpy as np
import pytest
from boundary_helpers import P, R, S, check, layer
from mpi_helpers import parallel_raises

import spmdlayer as spmd

pytestmark = pytest.mark.mpi


def first_and_others():
    """Two meshes that share no rank: the first rank, and all others."""
    n = spmd.get_world_size()
    if n == 1:
        pytest.skip("needs a rank outside")
    return spmd.ProcessMesh([0]), spmd.ProcessMesh(list(range(1, n)))


def everyone():
    return spmd.ProcessMesh(list(range(spmd.get_world_size())))


def inside(mesh):
    return mesh.coordinate is not None


def test_a_mesh_of_some_ranks():
    first, others = first_and_others()
    rank = spmd.get_rank()
    assert inside(first) == (rank == 0) and (rank in others) == (rank > 0)
    with spmd.trace() as t:
        x = spmd.dtensor_from_local(np.array([1.0 + rank]), others, [S()])
        if not inside(others):
            assert x.is_dist() and x.placements == [S()] and x.process_mesh == others
            assert "outside the mesh" in repr(x)
    if inside(others):
        check(x, 1.0 + np.arange(1, spmd.get_world_size()))
    else:
        assert t.count(records=True) == 0


def test_what_a_rank_outside_may_ask():
    first, _ = first_and_others()
    x = spmd.shard_tensor(np.arange(4.0), first, [S()])
    assert x.shape == (4,) and x.dtype == np.float64  # every rank was given the array
    unknown = layer(lambda x: x, [(first, [S()])])(x)
    if inside(first):
        check(unknown, np.arange(4.0))
        return
    with pytest.raises(RuntimeError, match="not known on this rank.*reshard"):
        _ = unknown.shape
    for ask in (str, lambda y: y.numpy(), spmd.unshard_dtensor, lambda y: y.to_local()):
        with pytest.raises(ValueError, match="outside.*reshard"):
            ask(unknown)


def test_placeholders_have_the_form_of_the_out_attrs():
    first, _ = first_and_others()
    x = spmd.shard_tensor(np.arange(4.0), first, [S()])
    calls = []

    def forward(x):
        calls.append(x)
        return x, x.sum(), x * 2.0

    outs = layer(forward, [(first, [S()]), None, (first, [R])])(x)
    assert isinstance(outs, tuple) and len(outs) == 3
    assert len(calls) == (1 if inside(first) else 0)
    assert outs[0].placements == [S()] and outs[2].placements == [R]
    if inside(first):
        assert outs[1].item() == 6.0
    else:
        assert outs[1] is None
    single = spmd.local_map(lambda x: x, [(first, [S()])])(x)
    assert single.is_dist()


def test_a_call_on_other_ranks_communicates_nothing_here():
    first, others = first_and_others()
    x = spmd.shard_tensor(np.arange(8.0), others, [S()])
    with spmd.trace() as t:
        y = layer(lambda x: x.sum(), [(others, [P])])(x).reshard(others, [R])
    if not inside(others):
        assert t.count(records=True) == 0
    else:
        assert y.item() == 28.0


def test_the_checks_hold_outside_too():
    first, others = first_and_others()
    x = spmd.shard_tensor(np.arange(8.0), others, [S()])
    with parallel_raises(ValueError, "grad_dist_attrs has 2 entries"):
        layer(lambda x: x, [(others, [S()])], [None, None])(x)
    with parallel_raises(ValueError, "1 axis"):
        layer(lambda x: x, [(others, [S(), S()])])(x)
    with parallel_raises(ValueError, "input 0 is on .*other ranks; reshard"):
        layer(lambda x: x, [(first, [S()])])(x)
    with parallel_raises(ValueError, r"captures\[0\] is on"):
        spmd.local_map(lambda: 1.0, [(first, [R])], captures=[x])()


@pytest.mark.parametrize("target", [[S()], [R], [P], [spmd.Partial("max")]])
def test_a_reshard_brings_shape_and_values(target):
    first, others = first_and_others()
    whole = np.arange(7.0)
    x = layer(lambda: spmd.tensor(whole), [(first, [R])])()  # known to the first rank alone
    for mesh in (others, everyone()):
        y = x.reshard(mesh, target)
        if inside(mesh):
            assert y.shape == (7,) and y.dtype == np.float64
            check(y, whole)
        again = y.reshard(first, [S()])
        if inside(first):
            check(again, whole)


def test_gradients_from_another_mesh():
    first, others = first_and_others()
    local = spmd.tensor(np.arange(4.0), requires_grad=True)
    x = spmd.dtensor_from_local(local, first, [R])
    (x.reshard(everyone(), [S()]) * np.arange(1.0, 5.0)).sum().backward()
    if inside(first):
        check(local.grad, np.arange(1.0, 5.0))
    else:
        assert local.grad is None
    w = spmd.shard_tensor(np.array([2.0]), others, [R], requires_grad=True)
    loss = (w.reshard(everyone(), [R]) * w.reshard(everyone(), [R])).sum()
    gradient = spmd.grad(loss, w)
    assert gradient.process_mesh == others
    if inside(others):
        check(gradient, [4.0])


class Stage(spmd.LocalLayer):
    """x -> x * w on one mesh, with w the stage's own."""

    def __init__(self, mesh, value):
        super().__init__([(mesh, [S()])], [[S()]])
        self.weight = spmd.shard_tensor(np.array([value]), mesh, [R], requires_grad=True)

    def forward(self, x):
        return x * self.weight


def test_backward_through_a_two_stage_pipeline():
    """loss = sum((x v w)^2): the stages are on meshes that share no rank, all ranks run one program."""
    first, others = first_and_others()
    values = np.arange(1.0, 7.0)
    x = spmd.shard_tensor(values, first, [S()])
    stages = [Stage(first, 2.0), Stage(others, 3.0)]
    weights = [stage.weight for stage in stages]
    expected = np.array([2.0, 3.0])
    for _ in range(3):
        y = stages[1](stages[0](x).reshard(others, [S()]))
        loss = layer(lambda y: (y * y).sum(), [(others, [P])])(y)
        loss.backward()
        product = (expected[0] * expected[1]) ** 2 * (values**2).sum()
        slopes = 2 * product / expected
        for weight, value, slope in zip(weights, expected, slopes):
            if inside(weight.process_mesh):
                check(weight, [value])
                check(weight.grad, [slope])
        shown = loss.reshard(everyone(), [R])
        np.testing.assert_allclose(shown.item(), product)
        with spmd.no_grad():
            for weight in weights:
                weight -= weight.grad * 1e-4
                weight.clear_grad()
        expected = expected - 1e-4 * slopes


def test_gradients_of_gradients_through_a_pipeline():
    first, others = first_and_others()
    values = np.arange(1.0, 7.0)
    x = spmd.shard_tensor(values, first, [S()])
    stages = [Stage(first, 2.0), Stage(others, 3.0)]
    y = stages[1](stages[0](x).reshard(others, [S()]))
    loss = layer(lambda y: (y * y * y).sum(), [(others, [P])])(y)
    (slope,) = spmd.grad(loss, [stages[0].weight], create_graph=True)  # 3 w^3 v^2 sum x^3
    third = (values**3).sum()
    if inside(first):
        check(slope, [3 * 27 * 4 * third])
    (curvature,) = spmd.grad(slope.sum(), [stages[0].weight], retain_graph=True)
    if inside(first):
        check(curvature, [6 * 27 * 2 * third])
    (mixed,) = spmd.grad(slope.sum(), [stages[1].weight])
    if inside(others):
        check(mixed, [9 * 9 * 4 * third])


def test_three_meshes_that_overlap():
    n = spmd.get_world_size()
    if n < 3:
        pytest.skip("needs three ranks")
    meshes = [spmd.ProcessMesh([0, 1]), spmd.ProcessMesh([2, 1]), spmd.ProcessMesh(list(range(n)))]
    x = spmd.shard_tensor(np.arange(1.0, 6.0), meshes[0], [S()], requires_grad=True)
    y = x
    for mesh in meshes:
        y = layer(lambda y: y * y, [(mesh, [S()])])(y.reshard(mesh, [S()]))
    (y * 1.0).sum().backward()
    if inside(meshes[0]):
        check(x.grad, 8 * np.arange(1.0, 6.0) ** 7)
