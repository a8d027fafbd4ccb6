"""Ranks take other branches, and backward still ends, with the right gradient on every rank."""

import numpy as np
import pytest

import spmdlayer as spmd

pytestmark = pytest.mark.mpi


def replicated(values, mesh):
    return spmd.shard_tensor(np.array(values), mesh, [spmd.Replicate()], requires_grad=True)


def sharded(mesh, k=2):
    """The numbers 1, 2, ... in k items a rank, as a leaf."""
    whole = np.arange(1.0, 1 + k * mesh.size)
    return spmd.shard_tensor(whole, mesh, [spmd.Shard(0)], requires_grad=True), whole


def layer(forward, mesh, outs=1, grads="auto", recompute=False):
    made = spmd.LocalLayer([(mesh, [spmd.Partial("sum")])] * outs, grads, recompute=recompute)
    made.forward = forward
    return made


@pytest.mark.parametrize("recompute", [False, True])
def test_one_rank_ignores_an_input(mesh, recompute):
    n = mesh.size
    w, v = replicated([2.0], mesh), replicated([3.0], mesh)

    def forward(w, v):
        return (w * w if mesh.rank == 0 else w * v).sum()

    layer(forward, mesh, recompute=recompute)(w, v).backward()
    np.testing.assert_allclose(w.grad.numpy(), [2 * 2.0 + (n - 1) * 3.0])
    np.testing.assert_allclose(v.grad.numpy(), [(n - 1) * 2.0])


@pytest.mark.parametrize("recompute", [False, True])
def test_no_rank_but_the_last_uses_its_inputs(mesh, recompute):
    n = mesh.size
    x, whole = sharded(mesh)
    w = replicated([2.0], mesh)

    def forward(x, w):
        return (x * w).sum() if mesh.rank == n - 1 else spmd.tensor(5.0)

    loss = layer(forward, mesh, recompute=recompute)(x, w)
    np.testing.assert_allclose(loss.numpy(), 5.0 * (n - 1) + 2 * whole[-2:].sum())
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), np.r_[np.zeros(2 * n - 2), 2.0, 2.0])
    np.testing.assert_allclose(w.grad.numpy(), [whole[-2:].sum()])


def test_loops_of_other_lengths(mesh):
    n = mesh.size
    w = replicated([1.5], mesh)

    def forward(w):
        y = w
        for _ in range(mesh.rank):
            y = y * w
        return y.sum()

    layer(forward, mesh)(w).backward()
    np.testing.assert_allclose(w.grad.numpy(), [sum((r + 1) * 1.5**r for r in range(n))])


def test_inputs_used_in_another_order(mesh):
    n = mesh.size
    a, b = replicated([2.0, 3.0], mesh), replicated([5.0, 7.0], mesh)

    def forward(a, b):
        if mesh.rank % 2:
            return (spmd.exp(b * 0.0) * b + a * 2.0).sum()
        return (a * 2.0 + b).sum()

    layer(forward, mesh)(a, b).backward()
    np.testing.assert_allclose(a.grad.numpy(), [2.0 * n] * 2)
    np.testing.assert_allclose(b.grad.numpy(), [1.0 * n] * 2)


def test_several_outputs_of_which_one_is_used(mesh):
    x, whole = sharded(mesh)

    def forward(x):
        return {"b": (x * x).sum(), "a": x.sum() if mesh.rank == 0 else spmd.tensor(0.0)}

    out = layer(forward, mesh, outs=2)(x)
    out["a"].backward(retain_graph=True)
    expected = np.zeros(whole.size)
    expected[:2] = 1.0
    np.testing.assert_allclose(x.grad.numpy(), expected)
    x.clear_grad()
    (out["a"] + out["b"]).backward()
    np.testing.assert_allclose(x.grad.numpy(), expected + 2 * whole)


@pytest.mark.parametrize("recompute", [False, True])
def test_nested_layers_and_reshards_inside_a_region(mesh, recompute):
    """Only one rank's result depends on what the nested layer gave; all take part in its backward."""
    x, whole = sharded(mesh)
    w = replicated([2.0], mesh)
    inner = layer(lambda y: (y * y).sum(), mesh)

    def forward(x, w):
        total = inner(spmd.dtensor_from_local(x * w, mesh, [spmd.Shard(0)]))
        everywhere = total.reshard([spmd.Replicate()]).to_local([spmd.Partial("sum")])
        return everywhere * 3.0 if mesh.rank == 0 else x.sum() * 0.0

    loss = layer(forward, mesh, recompute=recompute)(x, w)
    np.testing.assert_allclose(loss.numpy(), 3 * 4 * (whole**2).sum())
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * 8 * whole)
    np.testing.assert_allclose(w.grad.numpy(), [3 * 2 * 2.0 * (whole**2).sum()])


def test_gradients_of_gradients_through_other_branches(mesh):
    """L = w^3 on rank 0, w^2 v elsewhere; |dL/dw|^2 differentiated again."""
    n = mesh.size
    w, v = replicated([2.0], mesh), replicated([3.0], mesh)

    def forward(w, v):
        return (w * w * w if mesh.rank == 0 else w * w * v).sum()

    loss = layer(forward, mesh)(w, v)
    (first,) = spmd.grad(loss, [w], create_graph=True)
    g = 3 * 4.0 + (n - 1) * 2 * 2.0 * 3.0
    np.testing.assert_allclose(first.numpy(), [g])
    dw, dv = spmd.grad((first * first).sum(), [w, v])
    np.testing.assert_allclose(dw.numpy(), [2 * g * (6 * 2.0 + (n - 1) * 2 * 3.0)])
    np.testing.assert_allclose(dv.numpy(), [2 * g * (n - 1) * 2 * 2.0])


@pytest.mark.parametrize("recompute", [False, True])
def test_third_derivatives_with_a_nested_layer(mesh, recompute):
    n = mesh.size
    w = replicated([1.5], mesh)
    inner = layer(lambda y: (y * y * y * y).sum(), mesh)

    def forward(w):
        total = inner(spmd.dtensor_from_local(w * (1.0 + mesh.rank), mesh, [spmd.Shard(0)]))
        everywhere = total.reshard([spmd.Replicate()]).to_local([spmd.Partial("sum")])
        return everywhere if mesh.rank == 0 else w.sum() * 0.0

    factor = sum((1.0 + r) ** 4 for r in range(n))
    value = layer(forward, mesh, recompute=recompute)(w)
    for power, coefficient in [(3, 4), (2, 12), (1, 24)]:
        (value,) = spmd.grad(value.sum(), [w], create_graph=True)
        np.testing.assert_allclose(value.numpy(), [coefficient * 1.5**power * factor])


def test_local_tensors_of_a_rank_get_their_own_gradients(mesh):
    own = spmd.tensor([1.0 + mesh.rank], requires_grad=True)
    w = replicated([2.0], mesh)
    layer(lambda w: (w * own * own).sum() if mesh.rank != 1 else w.sum(), mesh)(w).backward()
    if mesh.rank != 1:
        np.testing.assert_allclose(own.grad.numpy(), [2.0 * 2 * (1.0 + mesh.rank)])
    else:
        assert own.grad is None
    expected = sum((1.0 + r) ** 2 if r != 1 else 1.0 for r in range(mesh.size))
    np.testing.assert_allclose(w.grad.numpy(), [expected])


def test_local_inputs_beside_distributed_ones(mesh):
    own = spmd.tensor([1.0 + mesh.rank], requires_grad=True)
    w = replicated([2.0], mesh)
    layer(lambda w, own, label, k=None: (w * own * k).sum(), mesh)(w, own, "a label", k=3.0).backward()
    np.testing.assert_allclose(own.grad.numpy(), [6.0])
    np.testing.assert_allclose(w.grad.numpy(), [3.0 * sum(1.0 + r for r in range(mesh.size))])


def test_an_escaped_local_tensor_may_be_used_but_not_differentiated(mesh):
    x, whole = sharded(mesh)
    kept = []

    def forward(x):
        kept.append(x * x)
        return x.sum()

    loss = layer(forward, mesh)(x)
    np.testing.assert_allclose(kept[0].numpy(), whole[2 * mesh.rank : 2 * mesh.rank + 2] ** 2)
    assert (kept[0] * 2.0).shape == (2,)
    with pytest.raises(RuntimeError, match="[Rr]eturn it"):
        kept[0].sum().backward()
    total = spmd.dtensor_from_local(kept[0].sum(), mesh, [spmd.Partial("sum")]) + loss
    with pytest.raises(RuntimeError, match="[Rr]eturn it"):
        total.backward()
