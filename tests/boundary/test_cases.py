"""Trouble that users of such tools reported, each with the numbers that are right.

What one loss is matters in each: a distributed root is one, and where ranks
differentiate local scalars the loss is their sum.
"""

import numpy as np
import pytest
from boundary_helpers import P, R, S, check, layer, own_part, replicated, sharded
from mpi_helpers import parallel_raises

import spmdlayer as spmd

pytestmark = pytest.mark.mpi


def from_ranks(values, mesh, placement):
    """A leaf on each rank with its own values, and the distributed tensor made of them."""
    local = spmd.tensor(values, requires_grad=True)
    return local, spmd.dtensor_from_local(local, mesh, [placement])


def test_gradients_that_are_parts_are_added_before_they_go_back(mesh):
    """A Partial value, used as a whole by every rank for work of its own."""
    n, r = mesh.size, mesh.rank
    local, x = from_ranks([1.0], mesh, P)
    (x.reshard([R]).to_local([P]) * (r + 1.0)).sum().backward()
    check(local.grad, [sum(k + 1.0 for k in range(n))])


@pytest.mark.parametrize("placement", [S(), R])
@pytest.mark.parametrize("incoming", [P, None])
def test_gradients_of_slices_and_copies(mesh, placement, incoming):
    n = mesh.size
    local, x = from_ranks([1.0, 2.0], mesh, placement)
    whole = x.reshard([R]).to_local([incoming])
    weights = np.arange(1.0, 1 + whole.size)
    (whole * weights).sum().backward()
    total = weights * (n if incoming is P else 1)
    check(local.grad, own_part(total, mesh) if placement == S() else total)


def test_a_reshard_that_does_nothing_still_brings_gradients_into_its_layout(mesh):
    n = mesh.size
    x, whole = sharded(mesh)
    x.reshard([S()]).reshard([R]).to_local([P]).sum().backward()
    check(x.grad, np.full(2 * n, 1.0 * n))
    assert x.grad.placements == [S()]


def test_gradients_of_partial_values_are_labelled_by_what_they_hold(mesh):
    """A later reduction must not multiply them by the number of ranks."""
    local, x = from_ranks([1.0, 2.0], mesh, P)
    y = x.reshard([P])
    gradient = spmd.grad((y.reshard([R]) * np.array([3.0, 4.0])).sum(), x)
    assert gradient.placements == [R]
    check(gradient, [3.0, 4.0])
    check(gradient.reshard([S()]).reshard([R]), [3.0, 4.0])


def test_gradients_for_each_sample_by_a_closed_over_parameter_stay_apart(mesh):
    """Inside a region nothing is added up behind one's back: d(sample . w)/dw is the sample."""
    n = mesh.size
    samples = np.random.default_rng(0).integers(0, 5, (2 * n, 2)).astype(float)
    x = spmd.shard_tensor(samples, mesh, [S()])
    w = replicated([1.0, 2.0], mesh)

    def forward(x):
        rows = [spmd.grad((row * w).sum(), w) for row in x]
        return spmd.stack(rows)

    check(spmd.local_map(forward, [[S()]], captures=[w])(x), samples)


def test_an_identity_of_copies_costs_nothing(mesh):
    x = replicated([1.0], mesh)
    made = layer(lambda x: x, [[R]], [[R]])
    loss = made(x).sum()
    with spmd.trace() as t:
        loss.backward()
    check(x.grad, [1.0])
    assert t.count() == 0


def test_a_local_kernel_need_not_know_of_ranks(mesh):
    """A replicated image, points of each rank: the adjoint sums over all points."""
    n = mesh.size

    class Interpolate(spmd.Function):
        @staticmethod
        def forward(ctx, image, points):
            ctx.save_for_backward(image, points)
            return image[points]

        @staticmethod
        def backward(ctx, g):
            image, points = ctx.saved_tensors
            spread = np.zeros(image.shape)
            np.add.at(spread, points.numpy(), g.detach().numpy())
            return spmd.asarray(spread), None

    image = np.arange(1.0, 6.0)
    points = np.random.default_rng(1).integers(0, 5, 3 * n)
    weights = np.arange(1.0, 1 + 3 * n)
    x = replicated(image, mesh)
    at = spmd.shard_tensor(points, mesh, [S()])
    values = layer(Interpolate.apply, [[S()]], [[P], None])(x, at)
    check(values, image[points])
    (values * weights).sum().backward()
    expected = np.zeros(5)
    np.add.at(expected, points, weights)
    check(x.grad, expected)


def test_none_for_inputs_that_are_no_tensors(mesh):
    x, whole = sharded(mesh)
    made = spmd.local_map(lambda x, k, opt: x * k if opt is None else x, [[S()]], in_placements=[[S()], None, None])
    check(made(x, 3, None), 3 * whole)
    check(layer(lambda x, k: x * k, [[S()]], [[S()], None])(x, 2.0), 2 * whole)


def test_nan_is_the_maximum_whichever_rank_has_it(mesh):
    for owner in range(mesh.size):
        _, x = from_ranks([np.nan if mesh.rank == owner else 1.0], mesh, spmd.Partial("max"))
        assert np.isnan(x.reshard([R]).numpy()).all()


def test_gradients_of_means_and_maxima(mesh):
    n, r = mesh.size, mesh.rank
    rows = np.array([[1.0, 2.0], [2.0, 4.0], [0.0, 4.0], [-1.0, 1.0]])[:n]
    weights = np.array([1.0, 2.0])
    local, x = from_ranks(rows[r], mesh, spmd.Partial("avg"))
    mean = x.reshard([R])
    check(mean, rows.mean(0))
    (mean * weights).sum().backward()
    check(local.grad, weights / n)
    local, x = from_ranks(rows[r], mesh, spmd.Partial("max"))
    top = x.reshard([R])
    check(top, rows.max(0))
    (top * weights).sum().backward()
    attains = rows == rows.max(0)
    check(local.grad, weights * attains[r] / attains.sum(0))


def test_a_gradient_attr_that_cannot_hold_the_piece(mesh):
    if mesh.size == 1:
        pytest.skip("one rank holds everything")
    x, _ = sharded(mesh)
    with parallel_raises(ValueError, "needs local shape"):
        x.to_local([R])


def test_the_mean_of_ranks_by_finite_differences(mesh):
    """One loss, held as copies: dL/dx_r is 1/n."""
    n, r = mesh.size, mesh.rank

    def loss(first):
        local, x = from_ranks([first if r == 0 else 1.0 + r], mesh, spmd.Partial("avg"))
        return local, x.reshard([R]).sum()

    local, value = loss(1.0)
    value.backward()
    check(local.grad, [1.0 / n])
    step = 1e-3
    np.testing.assert_allclose((loss(1.0 + step)[1].item() - value.item()) / step, 1.0 / n, rtol=1e-9)


def test_gathered_values_of_one_loss_and_of_many(mesh):
    """The same arithmetic on every rank is one loss; a loss of each rank's own adds up."""
    n, r = mesh.size, mesh.rank
    weights = np.arange(1.0, 1 + n)
    for grads, factor in [([R], 1.0), ([P], 1.0 * n)]:
        local, x = from_ranks([1.0 + r], mesh, S())
        everything = x.reshard([R])
        check(everything, 1.0 + np.arange(n))
        (everything.to_local(grads) * weights).sum().backward()
        check(local.grad, [(1.0 + r) * factor])


def test_out_of_the_distributed_type_and_back(mesh):
    x, whole = sharded(mesh, k=1)
    total = x.sum()
    again = spmd.dtensor_from_local(total.to_local(), mesh, total.placements)
    value = again.reshard([R])
    np.testing.assert_allclose(value.item(), whole.sum())
    value.backward()
    check(x.grad, np.ones(mesh.size))


def test_a_weight_shared_by_different_work(mesh):
    x, whole = sharded(mesh)
    w = replicated([3.0], mesh)
    y = layer(lambda w, x: w * x, [[S()]], [[P], [S()]])(w, x)
    y.sum().backward()
    check(w.grad, [whole.sum()])
    assert w.grad.placements == [R]


def test_a_partial_gradient_crosses_without_communication(mesh):
    """It is added up once, for the leaf, and not at the crossing."""
    w = replicated([3.0], mesh)
    y = layer(lambda w: w * 2.0, [[S()]], [[P]])(w * 1.0)
    with spmd.trace() as t:
        (y * 1.0).sum().backward()
    assert t.count() == (1 if mesh.size > 1 else 0)
    assert t.count("allreduce") == t.count()


def test_parts_added_into_slices(mesh):
    n, r = mesh.size, mesh.rank
    local, x = from_ranks(np.full(n, 1.0 + 2 * r), mesh, P)
    slices = x.reshard([S()])
    check(slices.to_local(), [sum(1.0 + 2 * k for k in range(n))])
    slices.sum().backward()
    check(local.grad, np.ones(n))


def test_an_array_that_the_tape_has_saved_is_written_to(mesh):
    for x in (spmd.tensor([1.0, 2.0], requires_grad=True), replicated([1.0, 2.0], mesh)):
        y = x * x
        with spmd.no_grad():
            x += 1.0
        check(x, [2.0, 3.0])
        y.sum().backward()
        check(x.grad, [2.0, 4.0])


def test_a_control_that_all_ranks_share(mesh):
    """J = sum over ranks of c x_r."""
    x, whole = sharded(mesh, k=1)
    c = replicated(1.0, mesh)
    layer(lambda c, x: (c * x).sum(), [[P]], [[P], [S()]])(c, x).backward()
    assert c.grad.item() == whole.sum()


def test_gradients_of_inner_products_of_slices(mesh):
    """X split by columns, Y by rows: the parts of X @ Y add up."""
    n = mesh.size
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(3, 2 * n)), rng.normal(size=(2 * n, 2))
    x = spmd.shard_tensor(a, mesh, [S(1)], requires_grad=True)
    y = spmd.shard_tensor(b, mesh, [S(0)], requires_grad=True)
    z = layer(lambda x, y: x @ y, [[P]], [[S(1)], [S(0)]])(x, y)
    np.testing.assert_allclose(z.numpy(), a @ b, rtol=1e-12)
    z.reshard([R]).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.ones((3, 2)) @ b.T, rtol=1e-12)
    np.testing.assert_allclose(y.grad.numpy(), a.T @ np.ones((3, 2)), rtol=1e-12)
    assert x.grad.placements == [S(1)] and y.grad.placements == [S(0)]


def test_the_cotangent_of_a_reduced_value_is_neither_added_up_nor_divided(mesh):
    local, x = from_ranks([1.0 + mesh.rank], mesh, P)
    check(spmd.grad(x.reshard([R]), local, np.array([5.0])), [5.0])


def test_a_loss_that_each_rank_adds_its_share_to(mesh):
    """loss_r = (w^2 + 1) d_r with w = 1: dL/dw = 2 sum d on every rank."""
    n = mesh.size
    d = spmd.shard_tensor(np.arange(1.0 * n), mesh, [S()])
    for grads in ([[P], [S()]], "auto"):
        w = replicated([1.0], mesh)
        loss = layer(lambda w, d: ((w * w + 1.0) * d).sum(), [[P]], grads)(w, d)
        assert loss.item() == 2.0 * np.arange(n).sum()
        loss.backward()
        check(w.grad, [2.0 * np.arange(n).sum()])
    # Declared Replicate, which it isn't, it is an error.
    if n > 1:
        with parallel_raises(ValueError, r"Partial\('sum'\)"):
            layer(lambda w, d: ((w * w + 1.0) * d).sum(), [[P]])(replicated([1.0], mesh), d).backward()


def test_a_declared_gradient_that_does_not_fit_is_no_error_until_it_is_needed(mesh):
    n, r = mesh.size, mesh.rank
    attrs = [(mesh, [P])]
    values = [np.arange(10, dtype=np.float32) + k for k in range(n)]

    def forward(x):
        mask = spmd.zeros_like(x)
        first, last = [(1, 3), (4, 7), (2, 4), (5, 9)][r]
        mask[first:last] = 1
        return (x * mask).sum() / mask.sum()

    x = spmd.dtensor_from_local(values[r], mesh, [S()])
    loss = layer(forward, attrs, attrs)(x)
    means = [values[k][first:last].mean() for k, (first, last) in enumerate([(1, 3), (4, 7), (2, 4), (5, 9)][:n])]
    np.testing.assert_allclose(loss.item(), sum(means), rtol=1e-6)  # 7.5 on two ranks
    x.requires_grad = True
    if n > 1:
        with parallel_raises(ValueError, rf"grad_dist_attrs\[0\].*\({10 * n},\).*\(10,\)"):
            layer(forward, attrs, attrs)(x)
    layer(forward, attrs, [(mesh, [S()])])(x).backward()
    expected = np.zeros((n, 10))
    for k, (first, last) in enumerate([(1, 3), (4, 7), (2, 4), (5, 9)][:n]):
        expected[k, first:last] = 1.0 / (last - first)
    np.testing.assert_allclose(x.grad.numpy(), expected.ravel(), rtol=1e-6)


# A replicated input that the region makes distributed again: its n copies are one variable ----------------------


def _again_replicated(mesh, inner):
    return lambda a, w: inner(
        spmd.dtensor_from_local(a, mesh, [S()]), spmd.dtensor_from_local(w, mesh, [R])
    ).to_local()


@pytest.mark.parametrize("recompute", [False, True])
def test_a_replicated_input_made_replicated_again_counts_once(mesh, recompute):
    x, w = spmd.dtensor_from_local(np.ones(2), mesh, [S()]), replicated(3.0, mesh)
    inner = spmd.local_map(lambda a, w: (a * w * w).sum(), [[P]])
    loss = spmd.local_map(_again_replicated(mesh, inner), [[P]], recompute=recompute)(x, w)
    (first,) = spmd.grad(loss, [w], create_graph=True)
    check(first, 2 * 3.0 * 2 * mesh.size)
    check(spmd.grad(first, [w])[0], 2 * 2.0 * mesh.size)


def test_other_ways_to_make_it_distributed_again(mesh):
    n, r = mesh.size, mesh.rank
    w = replicated([3.0] * n, mesh)
    total = spmd.local_map(lambda w: (spmd.shard_tensor(w, mesh, [S()]) * 2.0).to_local().sum(), [[P]])(w)
    total.backward()
    check(w.grad, [2.0] * n)
    w = replicated(3.0, mesh)
    twice = spmd.local_map(lambda w: (spmd.dtensor_from_local(w, mesh, [R]) * 2).to_local([P]) * (r + 1), [[P]])
    twice(w).backward()
    check(w.grad, 2.0 * n * (n + 1) / 2)


def test_a_parameter_made_replicated_again_under_explicit_attrs_asks_for_auto(mesh):
    if mesh.size == 1:
        pytest.skip("one copy is one variable")
    inner = spmd.local_map(lambda a, w: (a * w).sum(), [[P]])
    x = spmd.dtensor_from_local(np.ones(2), mesh, [S()])
    made = layer(lambda a: _again_replicated(mesh, inner)(a, made.w), [(mesh, [P])], [None])
    made.w = replicated(3.0, mesh)
    with parallel_raises(ValueError, '"auto"'):
        made(x)
    made = layer(lambda a: _again_replicated(mesh, inner)(a, made.w), [(mesh, [P])], "auto")
    made.w = replicated(3.0, mesh)
    made(x).backward()
    check(made.w.grad, 2.0 * mesh.size)


# Numbers among the outputs -------------------------------------------------------------------------------------------


def test_a_number_on_one_rank_and_a_tensor_on_another(mesh):
    x = spmd.dtensor_from_local(np.ones(2, np.float32), mesh, [S()])
    x.requires_grad = True
    total = spmd.local_map(lambda a: a.sum() if mesh.rank == 0 else 0.0, [[P]])(x)
    assert total.dtype == np.float32
    check(total, 2.0)
    total.backward()
    check(x.grad, [1.0, 1.0] + [0.0] * (2 * mesh.size - 2))
    one, two = spmd.local_map(lambda a: (a, 0 if mesh.rank else a.sum()), [[S()], [P]])(x)
    check(two, 2.0)
    mixed = spmd.local_map(lambda a: mesh.rank * 0.5 if mesh.rank else 1, [[P]])(x)
    check(mixed, 1 + sum(0.5 * r for r in range(mesh.size)))


def test_a_number_that_the_other_ranks_dtype_cannot_hold(mesh):
    if mesh.size == 1:
        pytest.skip("one rank agrees with itself")
    x = spmd.dtensor_from_local(np.ones(2, np.int64), mesh, [S()])
    with parallel_raises(TypeError, r"out_placements\[0\].*float64.*int64"):
        spmd.local_map(lambda a: a.sum() if mesh.rank == 0 else 0.5, [[P]])(x)


def test_recomputed_code_may_write_to_its_inputs(mesh):
    x = sharded(mesh)[0]

    def forward(a):
        a[0] = 0.0
        a *= 2.0
        return (a * a).sum()

    kept = spmd.local_map(forward, [[P]])(x)
    again = spmd.local_map(forward, [[P]], recompute=True)(x)
    check(again, kept.numpy())
    check(spmd.grad(again, [x])[0], spmd.grad(kept, [x])[0].numpy())


def test_recompute_takes_local_tensors(mesh):
    with parallel_raises(TypeError, "recompute=True"):
        spmd.recompute(lambda v: v * v)(sharded(mesh)[0])
