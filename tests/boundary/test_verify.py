"""What is declared Replicate is compared now and then, and the message says what would be right."""

import numpy as np
import pytest
from boundary_helpers import P, R, S, check, layer, replicated, sharded
from mpi_helpers import agree, parallel_raises

import spmdlayer as spmd

pytestmark = pytest.mark.mpi
several = pytest.mark.skipif("config.getoption('--with-mpi') and __import__('spmdlayer').get_world_size() == 1")


@several
def test_an_output_that_differs(mesh):
    made = layer(lambda x: (x, x.sum()), [[S()], [R]])
    x, _ = sharded(mesh)
    with parallel_raises(ValueError, r"out_dist_attrs\[1\].*Replicate.*'x'.*by up to .*Partial\('sum'\).*Shard"):
        made(x)


@several
def test_a_gradient_that_differs(mesh):
    w = replicated([2.0], mesh)
    made = layer(lambda w: w * (1.0 + mesh.rank), [[P]], [[R]])
    with parallel_raises(ValueError, r"grad_dist_attrs\[0\].*Replicate.*by up to.*Partial\('sum'\)"):
        made(w).sum().backward()
    # None means the input's own, which is Replicate.
    with parallel_raises(ValueError, r"grad_dist_attrs\[0\]"):
        layer(lambda w: w * (1.0 + mesh.rank), [[P]])(w).sum().backward()
    with parallel_raises(ValueError, r"in_grad_placements\[0\]"):
        spmd.local_map(lambda w: w * (1.0 + mesh.rank), [[P]], in_grad_placements=[[R]])(w).sum().backward()
    with parallel_raises(ValueError, "keyword"):
        layer(lambda w: w * (1.0 + mesh.rank), [[P]])(w=w).sum().backward()


@several
def test_local_values_that_differ(mesh):
    with parallel_raises(ValueError, r"dtensor_from_local: placements.*Replicate.*Partial"):
        spmd.dtensor_from_local(np.array([1.0 + mesh.rank, 2.0]), mesh, [R])


def calls_that_raise(call, count=9):
    raised = []
    for number in range(1, count + 1):
        try:
            call(number)
        except ValueError:
            raised.append(number)
    assert all(other == raised for other in agree(raised))
    return raised


@several
def test_outputs_are_compared_at_calls_1_2_4_8(mesh):
    x, _ = sharded(mesh)
    made = layer(lambda x, k: spmd.tensor([1.0 + mesh.rank]), [(mesh, [R])])
    assert calls_that_raise(lambda k: made(x, k)) == [1, 2, 4, 8]


@several
def test_gradients_are_compared_at_backward_passes_1_2_4_8(mesh):
    w = replicated([2.0], mesh)
    made = layer(lambda w: w * (1.0 + mesh.rank), [[P]])
    assert calls_that_raise(lambda k: made(w).sum().backward()) == [1, 2, 4, 8]


@several
def test_as_long_as_all_values_were_zero_every_call_compares(mesh):
    """A mask that starts empty hides the error in the first calls."""
    made = layer(lambda k: spmd.tensor([(1.0 + mesh.rank) * (k > 5)]), [(mesh, [R])])
    assert calls_that_raise(made) == [6, 8]
    w = replicated([2.0], mesh)
    made = layer(lambda w, k: (w * (1.0 + mesh.rank) * (k > 5)).sum(), [[P]])
    assert calls_that_raise(lambda k: made(w, k).backward()) == [6, 8]


@several
def test_debug_mode_compares_always(mesh):
    made = layer(lambda k: spmd.tensor([1.0 + mesh.rank]), [(mesh, [R])])
    with spmd.config(debug=True):
        assert calls_that_raise(made) == list(range(1, 10))


@several
def test_verification_can_be_turned_off(mesh):
    made = layer(lambda k: spmd.tensor([1.0 + mesh.rank]), [(mesh, [R])])
    w = replicated([2.0], mesh)
    other = layer(lambda w: w * (1.0 + mesh.rank), [[P]])
    with spmd.config(verify=False):
        assert calls_that_raise(made) == []
        assert calls_that_raise(lambda k: other(w).sum().backward()) == []


@several
def test_settings_that_differ_between_ranks_are_an_error(mesh):
    x, _ = sharded(mesh)
    with spmd.config(verify=mesh.rank != 0), parallel_raises(ValueError, "same on every rank"):
        layer(lambda x: x.sum() * 0.0, [[R]])(x)


def test_equal_values_pass(mesh):
    w = replicated([2.0, np.nan], mesh)
    made = layer(lambda w: (w * w, spmd.tensor([np.nan, np.inf, -np.inf, 0.0])), [[R], [R]], [[R]])
    with spmd.config(debug=True):
        first, second = made(w)
        np.testing.assert_array_equal(first.numpy(), [4.0, np.nan])
        np.testing.assert_array_equal(second.numpy(), [np.nan, np.inf, -np.inf, 0.0])
        first.sum().backward()
        np.testing.assert_array_equal(w.grad.numpy(), [4.0, np.nan])


@several
def test_nan_on_one_rank_alone_is_a_difference(mesh):
    value = np.nan if mesh.rank == mesh.size - 1 else 1.0
    with parallel_raises(ValueError, "differ"):
        spmd.dtensor_from_local(np.array([value]), mesh, [R])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_rounding_is_no_difference(mesh, dtype):
    """Sums in another order on each rank."""
    eps = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-7, "float64": 2e-16, "complex64": 1e-7}[dtype]
    values = spmd.tensor(np.array([1000.0, 1.0, 0.0]) * (1 + 4 * eps * mesh.rank)).astype(dtype)
    minus_zero = spmd.tensor(np.array([-0.0 if mesh.rank else 0.0])).astype(dtype)
    with spmd.config(debug=True):
        spmd.dtensor_from_local(values, mesh, [R])
        spmd.dtensor_from_local(minus_zero, mesh, [R])


@several
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "complex128"])
def test_differences_of_each_dtype(mesh, dtype):
    values = np.array([1, 0]) if mesh.rank == 0 else np.array([1, 1])
    with spmd.config(debug=True), parallel_raises(ValueError, "differ"):
        spmd.dtensor_from_local(values.astype(dtype), mesh, [R])


@several
def test_integers_are_compared_exactly(mesh):
    values = np.array([2**62 + (mesh.rank == 0)])
    with spmd.config(debug=True), parallel_raises(ValueError, "differ"):
        spmd.dtensor_from_local(values, mesh, [R])


@several
def test_gradients_small_beside_what_entered_may_differ_by_rounding(mesh):
    """Differences of large cotangents: what is left is rounding, other on each rank."""
    w = replicated([1.0], mesh)

    def forward(w):
        noise = 2e-15 * mesh.rank
        return w * (1.0 + noise), w * -1.0

    with spmd.config(debug=True):
        one, other = layer(forward, [[P], [P]], [[R]])(w)
        (one * 1000.0 + other * 1000.0).sum().backward()


def test_a_replicated_identity_costs_records_alone(mesh):
    x = replicated([1.0, 2.0], mesh)
    made = layer(lambda x: x, [[R]], [[R]])
    with spmd.trace() as t:
        made(x).sum().backward()
    assert t.count() == 0
    check(x.grad, [1.0, 1.0])
    with spmd.trace() as t:
        for _ in range(3):
            made(x)
    assert t.count() == 0 and t.count("record") == (3 if mesh.size > 1 else 0)


def test_a_call_costs_one_record_and_backward_none_beyond_what_is_compared(mesh):
    x, _ = sharded(mesh)
    made = layer(lambda x: x * x, [[S()]], [[S()]])
    with spmd.trace() as t:
        y = made(x)
    assert t.count("record") == (1 if mesh.size > 1 else 0)
    with spmd.trace() as t:
        y.sum().backward()
    assert t.count("record") == 0


def test_two_axes_of_which_one_differs():
    """Only some ranks see the difference along their axis, and all of them raise."""
    n = spmd.get_world_size()
    if n != 4:
        pytest.skip("needs 4 ranks")
    mesh = spmd.init_mesh((2, 2), ("rows", "columns"))
    i, j = mesh.coordinate
    # Equal along columns in row 0 only; along rows they are split.
    with parallel_raises(ValueError, "'columns'"):
        spmd.dtensor_from_local(np.array([1.0 + i * j]), mesh, [S(), R])
    spmd.dtensor_from_local(np.array([1.0 + i]), mesh, [S(), R])
    w = replicated([2.0], mesh)
    with parallel_raises(ValueError, "'columns'"):
        layer(lambda w: w * (1.0 + i * j), [[P, P]], [[P, R]])(w).sum().backward()
    w.clear_grad()
    for _ in range(6):  # zero in one row of the mesh, not in the other: the count of what was compared stays the same
        layer(lambda w: w * (1.0 * i), [[P, R]], [[P, R]])(w).sum().backward()
    check(w.grad, [6.0])


@several
def test_debug_mode_warns_of_gradients_that_are_summed_already(mesh):
    """A body that has added up its gradients itself, and declares Partial: counted n times."""
    w = replicated([2.0], mesh)
    made = layer(lambda w: (w * 10.0).sum(), [[P]], [[P]])
    with spmd.config(debug=True), pytest.warns(UserWarning, match=r"Partial\('sum'\).*once a rank.*Replicate\(\)"):
        made(w).backward()


@several
@pytest.mark.parametrize("large", [np.inf, np.nan, 1e300])
def test_a_large_value_hides_no_other(mesh, large):
    values = np.array([np.inf, np.nan, 1.0 + mesh.rank])
    with spmd.config(debug=True), parallel_raises(ValueError, "by up to"):
        spmd.dtensor_from_local(values, mesh, [R])
    values = np.array([large if mesh.rank else 1.0])
    with spmd.config(debug=True), parallel_raises(ValueError, "by up to"):
        spmd.dtensor_from_local(values, mesh, [R])
