"""Functions with a gradient of the user's own, local and distributed."""

import numpy as np
import pytest

import spmdlayer as spmd


def leaf(values):
    return spmd.tensor(values, requires_grad=True)


def check(tensor, expected):
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-12)


class Cube(spmd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3.0 * x * x


class Kernel(spmd.Function):
    """exp by an array library, off the tape; saves its output."""

    @staticmethod
    def forward(ctx, x, scale=1.0):
        y = spmd.asarray(np.exp(scale * x.numpy()))
        ctx.scale = scale
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @spmd.once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return spmd.asarray(ctx.scale * g.numpy() * y.numpy())


class SumAndProduct(spmd.Function):
    @staticmethod
    def forward(ctx, a, b, label):
        ctx.save_for_backward(a, None, b)
        ctx.label = label
        return a + b, a * b

    @staticmethod
    def backward(ctx, g_sum, g_product):
        a, nothing, b = ctx.saved_tensors
        assert nothing is None and ctx.label == "label"
        return (
            g_sum + g_product * b if ctx.needs_input_grad[0] else None,
            g_sum + g_product * a if ctx.needs_input_grad[1] else None,
            None,
        )


def test_first_and_higher_order():
    x = leaf([1.0, 2.0])
    y = Cube.apply(x)
    assert y.requires_grad and not y.is_leaf
    first = spmd.grad(y.sum(), x, create_graph=True)
    check(first, [3.0, 12.0])
    second = spmd.grad(first.sum(), x, create_graph=True)
    check(second, [6.0, 12.0])
    check(spmd.grad(second.sum(), x), [6.0, 6.0])


def test_a_kernel_off_the_tape():
    x = leaf([0.5, 1.0])
    (Kernel.apply(x, scale=2.0) * 3.0).sum().backward()
    check(x.grad, 6.0 * np.exp([1.0, 2.0]))
    first = spmd.grad(Kernel.apply(x).sum(), x, create_graph=True)
    check(first, np.exp([0.5, 1.0]))
    with pytest.raises(RuntimeError, match="Kernel.backward is once_differentiable"):
        spmd.grad(first.sum(), x)


def test_several_inputs_and_outputs():
    a, b = leaf([2.0]), leaf([5.0])
    total, product = SumAndProduct.apply(a, b, "label")
    check(total, [7.0])
    check(product, [10.0])
    (total * 10.0 + product).sum().backward()
    check(a.grad, [15.0])
    check(b.grad, [12.0])
    a.clear_grad()
    _, product = SumAndProduct.apply(a, spmd.tensor([5.0]), "label")  # one output unused, one input without gradient
    product.sum().backward()
    check(a.grad, [5.0])
    _, product = SumAndProduct.apply(a, b, "label")
    first = spmd.grad(product.sum(), a, create_graph=True)
    check(spmd.grad(first.sum(), b), [1.0])


def test_nothing_is_recorded_where_nothing_requires_grad():
    assert not Cube.apply(spmd.tensor([1.0])).requires_grad
    x = leaf([1.0])
    with spmd.no_grad():
        assert not Cube.apply(x).requires_grad


def test_inputs_returned_as_they_are_become_results():
    class Reverse(spmd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return -g

    x = leaf([1.0])
    y = Reverse.apply(x)
    assert y is not x and x.is_leaf
    (x * 2.0 + y * 3.0).backward()
    check(x.grad, [-1.0])


def function(backward, forward=lambda ctx, x: x * 1.0):
    return type("Given", (spmd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def test_what_is_wrong_with_a_function():
    x = leaf([1.0, 2.0])
    with pytest.raises(ValueError, match="returned 2 gradients for 1 inputs"):
        function(lambda ctx, g: (g, g)).apply(x).sum().backward()
    with pytest.raises(TypeError, match="gradient 0 is a ndarray"):
        function(lambda ctx, g: g.numpy()).apply(x).sum().backward()
    with pytest.raises(ValueError, match=r"gradient 0 has shape \(\), the input has \(2,\)"):
        function(lambda ctx, g: g.sum()).apply(x).sum().backward()
    with pytest.raises(TypeError, match="output 0 is a float"):
        function(None, lambda ctx, x: 1.0).apply(x)
    with pytest.raises(TypeError, match="save_for_backward: argument 0 is a ndarray"):
        function(None, lambda ctx, x: ctx.save_for_backward(np.ones(2))).apply(x)
    with pytest.raises(NotImplementedError, match="static forward"):
        spmd.Function.apply(x)


def test_none_is_no_gradient():
    x = leaf([1.0, 2.0])
    (function(lambda ctx, g: None).apply(x).sum() + x.sum()).backward()
    check(x.grad, [1.0, 1.0])


def test_a_write_to_what_was_saved_is_not_seen():
    x = leaf([2.0])
    y = Cube.apply(x)
    with spmd.no_grad():
        x += 10.0
    y.backward()
    check(x.grad, [12.0])


# Distributed ----------------------------------------------------------------------


def placed(placement, mesh):
    """1 to 4 under a placement; 4 and 1 as parts that differ between ranks."""
    whole = np.arange(1.0, 5.0)
    local = leaf(whole)
    return whole, local, spmd.shard_tensor(local, mesh, [spmd.Replicate()]).reshard([placement])


@pytest.mark.mpi
@pytest.mark.parametrize(
    "placement",
    [spmd.Shard(0), spmd.Replicate(), spmd.Partial("sum"), spmd.Partial("avg"), spmd.Partial("max")],
    ids=repr,
)
def test_distributed_tensors_in_the_global_view(placement):
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    whole, local, x = placed(placement, mesh)
    weights = np.array([1.0, -2.0, 3.0, 4.0])
    y = Cube.apply(x)
    check(y, whole**3)
    first = spmd.grad((y * weights).sum(), local, create_graph=True)
    check(first, 3 * whole**2 * weights)
    check(spmd.grad(first.sum(), local), 6 * whole * weights)


@pytest.mark.mpi
@pytest.mark.parametrize("op", ["sum", "avg", "max", "min"])
def test_a_result_that_is_partial(op):
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    whole, local, x = placed(spmd.Replicate(), mesh)
    double = function(lambda ctx, g: g * 2.0, lambda ctx, x: (x * 2.0).reshard([spmd.Partial(op)]))
    weights = np.array([1.0, -2.0, 3.0, 4.0])
    y = double.apply(x)
    assert y.placements == [spmd.Partial(op)]
    (y.reshard([spmd.Replicate()]) * weights).sum().backward()
    check(local.grad, 2 * weights)


@pytest.mark.mpi
def test_inside_a_region_on_every_rank():
    """A Function of distributed tensors communicates in backward, also on ranks that make no use of it."""
    n, r = spmd.get_world_size(), spmd.get_rank()
    mesh = spmd.init_mesh((n,))
    x = spmd.shard_tensor(np.arange(1.0, 1 + 2 * n), mesh, [spmd.Shard(0)], requires_grad=True)

    def forward(x):
        total = Cube.apply(spmd.dtensor_from_local(x, mesh, [spmd.Shard(0)])).sum()
        everywhere = total.reshard([spmd.Replicate()]).to_local([spmd.Partial()])
        return everywhere if r == 0 else x.sum() * 0.0

    loss = spmd.local_map(forward, [[spmd.Partial()]])(x)
    first = spmd.grad(loss, x, create_graph=True)
    check(first, 3 * np.arange(1.0, 1 + 2 * n) ** 2)
    check(spmd.grad(first.sum(), x), 6 * np.arange(1.0, 1 + 2 * n))


@pytest.mark.mpi
def test_gradients_of_the_wrong_kind():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = spmd.shard_tensor(np.ones(4), mesh, [spmd.Replicate()], requires_grad=True)
    with pytest.raises(TypeError, match="gradient 0 is local, the input is distributed"):
        function(lambda ctx, g: spmd.ones(4)).apply(x).sum().backward()
