"""The tape: what backward and grad give, what they keep, and what is never silently wrong."""

import gc
import weakref

import numpy as np
import pytest

import spmdlayer as spmd


def leaf(values):
    return spmd.tensor(values, requires_grad=True)


def check(tensor, expected):
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-12)


def test_gradients_add_up_until_they_are_cleared():
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    (x * 3.0).sum().backward()
    check(x.grad, [5.0, 7.0])
    assert not x.grad.requires_grad
    x.clear_grad()
    assert x.grad is None
    spmd.backward([(x * x).sum(), x.sum()])
    check(x.grad, [3.0, 5.0])


def test_adding_up_changes_no_gradient_that_somebody_holds():
    x = leaf([1.0, 2.0])
    y = x * 1.0
    y.sum().backward()
    held = x.grad
    value = held.numpy().copy()
    (x * 2.0).sum().backward()
    check(held, value)
    a, b = leaf([1.0]), leaf([2.0])
    spmd.backward(a + b, np.array([5.0]))  # both get the same cotangent
    a.grad[0] = 100.0
    check(b.grad, [5.0])


def test_cotangents_that_are_given():
    x = leaf([1.0, 2.0, 3.0])
    y = x * x
    with pytest.raises(ValueError, match="grad_outputs: the root has shape"):
        y.backward()
    y.backward(np.array([1.0, 0.0, 2.0]), retain_graph=True)
    check(x.grad, [2.0, 0.0, 12.0])
    check(spmd.grad(y, x, spmd.tensor([0.0, 1.0, 0.0]), retain_graph=True), [0.0, 4.0, 0.0])
    check(spmd.grad([y, x * 1.0], x, [np.ones(3), np.ones(3)], retain_graph=True), [3.0, 5.0, 7.0])
    with pytest.raises(ValueError, match=r"shape \(2,\) was given"):
        y.backward(np.ones(2))
    with pytest.raises(ValueError, match="1 were given for 2 roots"):
        spmd.backward([y, y], np.ones(3))


def test_a_single_element_of_any_shape_needs_no_cotangent():
    x = leaf([[3.0]])
    (x * x).backward()
    check(x.grad, [[6.0]])


def test_grad_leaves_grad_alone():
    x, y = leaf([1.0]), leaf([2.0])
    middle = x * y
    loss = (middle * middle).sum()
    gx, gm = spmd.grad(loss, [x, middle])
    check(gx, [2 * 2 * 2.0])
    check(gm, [4.0])
    assert x.grad is None and y.grad is None
    assert isinstance(spmd.grad((x * y).sum(), x), spmd.Tensor)


def test_inputs_that_nothing_reaches_get_zeros():
    x, other = leaf([1.0, 2.0]), leaf([[3.0]])
    gx, go = spmd.grad(x.sum(), [x, other])
    check(gx, [1.0, 1.0])
    check(go, [[0.0]])
    with pytest.raises(ValueError, match=r"inputs\[1\] does not require grad"):
        spmd.grad(x.sum(), [x, spmd.tensor([1.0])])


def test_what_does_not_require_grad():
    x = spmd.tensor([1.0])
    with pytest.raises(ValueError, match="does not require grad"):
        x.sum().backward()
    with pytest.raises(ValueError, match="floating point"):
        spmd.tensor([1]).requires_grad = True
    with pytest.raises(TypeError, match="a Tensor"):
        spmd.backward(3.0)
    y = leaf([1.0])
    assert not (y > 0).requires_grad and not y.detach().requires_grad and (y * 2.0).requires_grad
    with pytest.raises(ValueError, match="detach"):
        (y * 2.0).requires_grad = False
    y.stop_gradient = True
    assert not y.requires_grad


def test_a_graph_runs_once_unless_it_is_kept():
    x = leaf([2.0])
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    check(x.grad, [8.0])
    with pytest.raises(RuntimeError, match="freed.*retain_graph=True"):
        y.backward()
    with pytest.raises(RuntimeError, match="freed"):
        (y * 2.0).backward()


def test_branches_that_share_a_part_and_run_apart():
    x = leaf([2.0])
    shared = spmd.exp(x)
    one, other = shared * 2.0, shared * 3.0
    one.backward(retain_graph=True)
    other.backward()
    check(x.grad, 5.0 * np.exp([2.0]))


def test_a_deep_graph():
    """No recursion: ten thousand operations one behind another."""
    x = leaf([1.0])
    y = x
    for _ in range(10_000):
        y = y + 1e-4
    y.backward()
    check(x.grad, [1.0])
    del y
    deep = x
    for _ in range(10_000):
        deep = deep * 1.0
    del deep  # nor when a graph is dropped


def test_a_diamond_runs_each_node_once():
    x = leaf([1.0])
    calls = []
    y = x * 1.0
    y.register_hook(lambda g: calls.append(g.item()))
    z = y
    for _ in range(20):  # 2**20 paths
        z = z + z
    z.backward()
    assert calls == [2.0**20]


def test_no_grad_and_enable_grad():
    x = leaf([1.0])
    with spmd.no_grad():
        assert not (x * 2.0).requires_grad
        with spmd.enable_grad():
            assert (x * 2.0).requires_grad
        assert not (x * 2.0).requires_grad
    assert (x * 2.0).requires_grad

    @spmd.no_grad()
    def off(x):
        return x * 2.0

    assert not off(x).requires_grad and (x * 2.0).requires_grad
    with pytest.raises(KeyError):
        with spmd.no_grad():
            raise KeyError
    assert (x * 2.0).requires_grad


def test_the_mode_is_restored_when_backward_fails():
    x = leaf([1.0])
    y = x * 2.0
    y.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        y.backward()
    z = x * 3.0
    assert z.requires_grad
    z.backward()
    check(x.grad, [3.0])


# Hooks -----------------------------------------------------------------------


def test_hooks_see_and_replace_gradients():
    x = leaf([1.0, 2.0])
    seen = []
    y = x * x
    handle = y.register_hook(lambda g: seen.append(g.numpy().copy()))
    y.register_hook(lambda g: g * 10.0)
    (y * 3.0).sum().backward(retain_graph=True)
    np.testing.assert_array_equal(seen, [[3.0, 3.0]])
    check(x.grad, [60.0, 120.0])
    handle.remove()
    handle.remove()
    x.clear_grad()
    (y * 3.0).sum().backward()
    assert len(seen) == 1
    check(x.grad, [60.0, 120.0])


def test_hooks_of_leaves_see_the_whole_sum():
    x = leaf([1.0])
    seen = []
    x.register_hook(lambda g: seen.append(g.item()))
    (x * 2.0 + x * 3.0).backward()
    assert seen == [5.0]
    check(spmd.grad(x * 2.0, x), [2.0])
    assert seen == [5.0, 2.0]


def test_hooks_that_are_wrong():
    x = leaf([1.0])
    with pytest.raises(TypeError, match="callable"):
        x.register_hook(3)
    with pytest.raises(ValueError, match="does not require grad"):
        spmd.tensor([1.0]).register_hook(print)
    for bad in (lambda g: 3.0, lambda g: spmd.ones(2), lambda g: g.astype("float32")):
        y = x * 1.0
        y.register_hook(bad)
        with pytest.raises(ValueError, match="None or a tensor like its argument"):
            y.backward()


def test_hooks_are_recorded_under_create_graph():
    x = leaf([3.0])
    y = x * x
    y.register_hook(lambda g: g * x)
    first = spmd.grad(y, x, create_graph=True)  # 2 x * x
    check(first, [18.0])
    check(spmd.grad(first, x), [12.0])


# Gradients of gradients ---------------------------------------------------------


def test_derivatives_of_higher_order():
    x = leaf([0.5, 2.0])
    y = (x**5).sum()
    expected = [5 * x.numpy() ** 4, 20 * x.numpy() ** 3, 60 * x.numpy() ** 2, 120 * x.numpy(), [120.0, 120.0]]
    for order in expected:
        g = spmd.grad(y, x, create_graph=True)
        check(g, order)
        y = g.sum()


def test_backward_with_create_graph_gives_differentiable_grads():
    x = leaf([3.0])
    (x * x * x).backward(create_graph=True)
    first = x.grad
    check(first, [27.0])
    x.grad = None
    (first * first).backward()  # 2 * 27 * 18
    check(x.grad, [972.0])


def test_a_gradient_with_respect_to_the_cotangent():
    x, v = leaf([2.0]), leaf([5.0])
    first = spmd.grad(x * x, x, v, create_graph=True)
    check(first, [20.0])
    gx, gv = spmd.grad(first, [x, v])
    check(gx, [10.0])
    check(gv, [4.0])


# Writing in place -----------------------------------------------------------------


def test_writes_to_what_the_tape_has_saved():
    x = leaf([1.0, 2.0])
    y = x * x
    z = spmd.exp(y)
    with spmd.no_grad():
        x += 1.0
    y = y * 1.0
    y[0] = 100.0
    (z + y).sum().backward()
    check(x.grad, 2 * np.array([1.0, 2.0]) * np.exp([1.0, 4.0]) + [0.0, 4.0])


def test_recorded_writes():
    x, v = leaf([1.0, 2.0, 3.0]), leaf([10.0])
    y = x * 2.0
    y[1:2] = v * v
    y *= 3.0
    check(y, [6.0, 300.0, 18.0])
    y.sum().backward()
    check(x.grad, [6.0, 0.0, 6.0])
    check(v.grad, [60.0])


def test_writes_that_cannot_be_right_raise():
    x = leaf([1.0])
    with pytest.raises(ValueError, match=r"no_grad\(\)"):
        x += 1.0
    y = x * 2.0
    with spmd.no_grad(), pytest.raises(ValueError, match=r"detach\(\)"):
        y[0] = 3.0


def test_views_are_values():
    x = spmd.tensor([1.0, 2.0, 3.0])
    part, other = x[1:], x.reshape(3, 1)
    x[1] = 100.0
    check(part, [2.0, 3.0])
    check(other, [[1.0], [2.0], [3.0]])
    part[0] = 7.0
    check(x, [1.0, 100.0, 3.0])


def test_writes_to_an_array_that_was_shared():
    array = np.ones(2)
    x = spmd.asarray(array)
    x += 1.0
    np.testing.assert_array_equal(array, [1.0, 1.0])
    assert not x.numpy().flags.writeable
    g = leaf([1.0, 2.0])
    loss = (g * x).sum()
    x[0] = 50.0
    loss.backward()
    check(g.grad, [2.0, 2.0])


# Memory ------------------------------------------------------------------------------


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def big(x):
    """A result whose graph holds an array that can be watched."""
    middle = spmd.exp(x)
    watch = weakref.ref(middle._data)
    return middle * middle, watch


@pytest.mark.usefixtures("no_collector")
def test_a_graph_that_is_dropped_is_freed_at_once():
    x = leaf(np.ones(1000))
    y, watch = big(x)
    assert watch() is not None
    del y
    assert watch() is None


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_graph_is_freed_after_backward(create_graph):
    x = leaf(np.ones(1000))
    y, watch = big(x)
    first = spmd.grad(y.sum(), x, create_graph=create_graph)
    if create_graph:
        assert watch() is not None
        spmd.grad(first.sum(), x)
        del first
        del y
    assert watch() is None


# On ranks ------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("recompute", [False, True])
def test_the_graph_of_a_region_is_freed_without_the_collector(recompute):
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = spmd.shard_tensor(np.ones(8), mesh, [spmd.Shard(0)], requires_grad=True)
    watched = []

    def forward(x):
        middle = spmd.exp(x)
        watched.append(weakref.ref(middle._data))
        inner = spmd.dtensor_from_local(middle * middle, mesh, [spmd.Shard(0)])
        return inner.reshard([spmd.Replicate()]).to_local([spmd.Partial()]).sum()

    mapped = spmd.local_map(forward, [[spmd.Partial()]], recompute=recompute)
    kept = mapped(x)  # dropped without backward
    assert (watched[0]() is None) == recompute
    del kept
    assert watched[0]() is None
    mapped(x).backward()
    assert all(watch() is None for watch in watched)
    y = mapped(x)
    first = spmd.grad(y, x, create_graph=True)
    spmd.grad(first.sum(), x)
    del first, y
    assert all(watch() is None for watch in watched)


@pytest.mark.mpi
@pytest.mark.parametrize("placement", ["R", "S", "sum", "avg", "max", "min"])
def test_hooks_of_distributed_tensors_see_the_global_gradient(placement):
    n = spmd.get_world_size()
    mesh = spmd.init_mesh((n,))
    kinds = {"R": spmd.Replicate(), "S": spmd.Shard(0)}
    target = kinds.get(placement) or spmd.Partial(placement)
    weights = np.arange(1.0, 5.0)
    x = leaf(np.arange(4.0))
    seen = []
    for factor in (None, 10.0):
        x.clear_grad()
        y = spmd.shard_tensor(x, mesh, [spmd.Replicate()]).reshard([target])
        handle = y.register_hook(lambda g: seen.append(g.numpy()) if factor is None else g * factor)
        (y.reshard([spmd.Replicate()]) * weights).sum().backward()
        check(x.grad, weights * (factor or 1.0))
        handle.remove()
    check(spmd.asarray(seen[0]), weights)


@pytest.mark.mpi
def test_a_hook_runs_on_every_rank_whatever_its_local_graph():
    n, r = spmd.get_world_size(), spmd.get_rank()
    mesh = spmd.init_mesh((n,))
    w = spmd.shard_tensor(np.array([2.0]), mesh, [spmd.Replicate()], requires_grad=True)
    seen = []

    def forward(w):
        parts = spmd.dtensor_from_local(w * (1.0 + r), mesh, [spmd.Shard(0)])
        parts.register_hook(lambda g: seen.append(g.numpy()))  # shows the sum over the ranks
        piece = parts.reshard([spmd.Replicate()]).to_local([spmd.Partial()])
        return piece.sum() if r == 0 else w.sum() * 0.0

    spmd.local_map(forward, [[spmd.Partial()]])(w).backward()
    np.testing.assert_array_equal(seen, [np.ones(n)])
    check(w.grad, [sum(1.0 + k for k in range(n))])


@pytest.mark.mpi
def test_grad_of_distributed_inputs():
    n = spmd.get_world_size()
    mesh = spmd.init_mesh((n,))
    x = spmd.shard_tensor(np.arange(1.0, 6.0), mesh, [spmd.Shard(0)], requires_grad=True)
    y = spmd.shard_tensor(np.array([2.0]), mesh, [spmd.Replicate()], requires_grad=True)
    middle = x * y
    gx, gm, gy, unreached = spmd.grad((middle * middle).sum(), [x, middle, y, y * 1.0])
    check(gx, 8 * np.arange(1.0, 6.0))
    check(gm, 4 * np.arange(1.0, 6.0))
    check(gy, [4 * (np.arange(1.0, 6.0) ** 2).sum()])
    check(unreached, [0.0])
    assert gx.placements == [spmd.Shard(0)] and gy.placements == [spmd.Replicate()]
    assert x.grad is None
    root = x * 3.0
    given = np.arange(5.0)
    check(spmd.grad(root, x, given, retain_graph=True), 3 * given)
    check(spmd.grad(root, x, spmd.shard_tensor(given, mesh, [spmd.Replicate()])), 3 * given)
    with pytest.raises(ValueError, match=r"shape \(2,\) was given"):
        (x * 3.0).backward(np.ones(2))
