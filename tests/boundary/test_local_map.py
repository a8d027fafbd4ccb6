"""local_map: the boundary around a function."""

import numpy as np
import pytest
from boundary_helpers import P, R, S, check, replicated, sharded

import spmdlayer as spmd

pytestmark = pytest.mark.mpi


def test_a_function_of_local_arrays(mesh):
    x, whole = sharded(mesh)
    w = replicated([2.0], mesh)

    def weighted(x, w, power=1):
        """The sum of powers."""
        return (w * x**power).sum()

    mapped = spmd.local_map(weighted, [[P]])
    assert mapped.__name__ == "weighted" and mapped.__doc__ == "The sum of powers."
    loss = mapped(x, w, power=3)
    assert loss.placements == [P]
    np.testing.assert_allclose(loss.item(), 2 * (whole**3).sum())
    loss.backward()
    check(x.grad, 6 * whole**2)
    check(w.grad, [(whole**3).sum()])


def test_replicated_gradients_are_right_by_default(mesh):
    """Rank-dependent work on a replicated input, to a replicated output, without a word about gradients."""
    n, r = mesh.size, mesh.rank
    w = replicated([2.0], mesh)
    copies = spmd.local_map(lambda w: w * w, [[R]])(w)
    copies.sum().backward()
    check(w.grad, [4.0])
    w.clear_grad()
    spmd.local_map(lambda w: w * (1.0 + r), [[P]])(w).sum().backward()
    check(w.grad, [sum(1.0 + k for k in range(n))])


def test_declared_gradients(mesh):
    w = replicated([2.0], mesh)
    spmd.local_map(lambda w: w * w, [[R]], in_grad_placements=[[R]])(w).sum().backward()
    check(w.grad, [4.0])
    w.clear_grad()
    spmd.local_map(lambda w: (w * w).sum(), [[P]], in_grad_placements=[(mesh, [P])])(w).backward()
    check(w.grad, [4.0 * mesh.size])
    x, whole = sharded(mesh)
    spmd.local_map(lambda x: x * x, [S()], in_grad_placements=None)(x).sum().backward()
    check(x.grad, 2 * whole)


def test_inputs_as_declared(mesh):
    x, whole = sharded(mesh)
    w = replicated([2.0], mesh)
    mapped = spmd.local_map(lambda x, w, k: x * w * k, [[S()]], in_placements=[[S()], [R], None])
    check(mapped(x, w, 3.0), 6 * whole)
    check(spmd.local_map(lambda x: x * 2.0, [[S()]], in_placements=[[S(-1)]])(x), 2 * whole)
    with pytest.raises(ValueError, match=r"in_placements\[1\].*reshard"):
        mapped(x, x, 3.0)
    with pytest.raises(ValueError, match="local tensor; None is right"):
        mapped(x, spmd.tensor([2.0]), 3.0)
    with pytest.raises(ValueError, match="in_placements has 3 entries for 2"):
        mapped(x, w)


def test_inputs_are_resharded_when_asked(mesh):
    n = mesh.size
    values = np.arange(1.0, 1 + 2 * n)
    x = spmd.shard_tensor(values, mesh, [R], requires_grad=True)
    parts = spmd.dtensor_from_local(spmd.tensor(values, requires_grad=True), mesh, [P])
    mapped = spmd.local_map(lambda x, y: x * y, [[S()]], in_placements=[[S()], [S()]], reshard_inputs=True)
    out = mapped(x, parts)
    check(out, n * values**2)
    out.sum().backward()
    check(x.grad, n * values)


def test_the_mesh_comes_from_where_it_can(mesh):
    made = spmd.local_map(lambda: spmd.tensor([1.0 + mesh.rank]), [[S()]], process_mesh=mesh)()
    check(made, 1.0 + np.arange(mesh.size))
    made = spmd.local_map(lambda: spmd.tensor([1.0 + mesh.rank]), [(mesh, [S()])])()
    check(made, 1.0 + np.arange(mesh.size))
    with pytest.raises(ValueError, match="no mesh is known"):
        spmd.local_map(lambda x: x, [[S()]])(spmd.tensor([1.0]))


def test_captures_are_local_inside_and_have_gradients(mesh):
    n = mesh.size
    x, whole = sharded(mesh)
    w = replicated([2.0], mesh)
    table, rows = sharded(mesh)

    def forward(x):
        assert w.shape == (1,) and not w.is_dist() and table.shape == (2,)
        return (x * w * table).sum()

    mapped = spmd.local_map(forward, [[P]], captures=[w, table])
    loss = mapped(x)
    np.testing.assert_allclose(loss.item(), 2 * (whole * rows).sum())
    loss.backward()
    check(w.grad, [(whole * rows).sum()])
    check(table.grad, 2 * whole)
    check(x.grad, 2 * rows)
    assert w.is_dist() and table.shape == (2 * n,)


def test_a_captured_intermediate_passes_its_gradient_on(mesh):
    x, whole = sharded(mesh)
    w = replicated([2.0], mesh)
    squared = w * w
    for grads in ("auto", [[S()]]):
        w.clear_grad()
        spmd.local_map(lambda x: (x * squared).sum(), [[P]], in_grad_placements=grads, captures=(squared,))(x).backward(
            retain_graph=True
        )
        check(w.grad, [4.0 * whole.sum()])


def test_captures_with_declared_gradients_and_replicated_outputs(mesh):
    x = replicated([3.0], mesh)
    w = replicated([2.0], mesh)
    spmd.local_map(lambda x: x * w, [[R]], in_grad_placements=[[R]], captures=[w])(x).sum().backward()
    check(w.grad, [3.0])
    mapped = spmd.local_map(lambda x: (x * w, x * w), [[R], [P]], in_grad_placements=[[R]], captures=[w])
    if mesh.size > 1:
        with pytest.raises(ValueError, match=r"captures\[0\].*\"auto\""):
            mapped(x)


def test_an_input_that_is_captured_too(mesh):
    w = replicated([2.0], mesh)
    spmd.local_map(lambda v: (v * w).sum(), [[P]], captures=[w])(w).backward()
    check(w.grad, [4.0 * mesh.size])


def test_recompute(mesh):
    x, whole = sharded(mesh)
    w = replicated([2.0], mesh)
    calls = []

    def forward(x):
        calls.append(1)
        return (x * x * w).sum()

    spmd.local_map(forward, [[P]], captures=[w], recompute=True)(x).backward()
    assert len(calls) == 2
    check(x.grad, 4 * whole)
    check(w.grad, [(whole**2).sum()])


def test_as_a_layer_of_layers(mesh):
    """Nested: each rank adds its part of a sum that all of them need inside."""
    n = mesh.size
    x, whole = sharded(mesh)
    total = spmd.local_map(lambda x: x.sum(), [[P]])

    def forward(x):
        everywhere = total(spmd.dtensor_from_local(x, mesh, [S()])).reshard([R]).to_local([P])
        return x / everywhere

    weights = np.arange(1.0, 1 + 2 * n)
    out = spmd.local_map(forward, [[S()]])(x)
    check(out, whole / whole.sum())
    (out * weights).sum().backward()
    s = whole.sum()
    check(x.grad, weights / s - (weights * whole).sum() / s**2)


def test_arguments_of_local_map_are_checked(mesh):
    with pytest.raises(TypeError, match="fn must be callable"):
        spmd.local_map(3, [[P]])
    with pytest.raises(TypeError, match="out_placements: a list"):
        spmd.local_map(len, None)
    with pytest.raises(TypeError, match="out_placements: a list"):
        spmd.local_map(len, "auto")
    with pytest.raises(TypeError, match=r"out_placements\[0\].*\[Shard\(0\)\]"):
        spmd.local_map(len, [S(), [S()]])
    with pytest.raises(ValueError, match="only word is 'auto'"):
        spmd.local_map(len, [[P]], in_grad_placements="sum")
    with pytest.raises(TypeError, match="process_mesh"):
        spmd.local_map(len, [[P]], process_mesh=[0, 1])
    with pytest.raises(TypeError, match="captures must be a list"):
        spmd.local_map(len, [[P]], captures=spmd.tensor([1.0]))
    with pytest.raises(TypeError, match=r"captures\[0\] is a str"):
        spmd.local_map(lambda x: x, [[P]], captures=["w"])(sharded(mesh)[0])
