import numpy as np
import pytest
from finite_differences import check_first, check_second, tensors
from gradient_cases import CASES

from spmdlayer.autograd.backward import grad
from spmdlayer.autograd.tensor import tensor
from spmdlayer.ops import contraction, elementwise, linear, positions, reductions
from spmdlayer.ops.registry import REGISTRY

FLAT = [pytest.param(name, *case, id=f"{name}-{k}") for name, cases in CASES.items() for k, case in enumerate(cases)]


def operations_below(node):
    """The names of all operations on the tape below a node."""
    names, waiting, seen = set(), [node], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names.add(node.op.name)
            waiting.extend(node.edges)
    return names


def test_every_differentiable_operation_has_cases():
    here = {op.name for op in REGISTRY.values() if op.differentiable}
    assert here - set(CASES) == set(), "give these operations cases in gradient_cases.py"
    assert set(CASES) - here == set()


@pytest.mark.parametrize("name, function, arrays", FLAT)
def test_first_order(name, function, arrays):
    assert name in operations_below(function(*tensors(arrays))._node)
    check_first(function, arrays)


@pytest.mark.parametrize("name, function, arrays", FLAT)
def test_second_order(name, function, arrays):
    check_second(function, arrays)


def derivatives(function, value):
    """The function and its first three derivatives at a number."""
    x = tensor(value, requires_grad=True)
    results = [function(x)]
    for _ in range(3):
        results.append(grad(results[-1], x, create_graph=True))
    return [float(result) for result in results]


def test_third_order():
    np.testing.assert_allclose(derivatives(lambda x: x**4, 2.0), [16, 32, 48, 48])
    e = np.exp(0.5)
    np.testing.assert_allclose(derivatives(elementwise.exp, 0.5), [e, e, e, e])
    s, c = np.sin(0.5), np.cos(0.5)
    np.testing.assert_allclose(derivatives(elementwise.sin, 0.5), [s, c, -s, -c])


def test_ties_share_the_gradient():
    x = tensor([2.0, 5.0, 5.0, 1.0], requires_grad=True)
    np.testing.assert_array_equal(grad(reductions.max(x), x), [0, 0.5, 0.5, 0])
    y = tensor([2.0, 3.0, 5.0, 1.0], requires_grad=True)
    gx, gy = grad(reductions.sum(elementwise.maximum(x, y)), [x, y])
    np.testing.assert_array_equal(gx, [0.5, 1, 0.5, 0.5])
    np.testing.assert_array_equal(gy, [0.5, 0, 0.5, 0.5])
    np.testing.assert_array_equal(grad(reductions.sum(elementwise.clip(x, 2, 4)), x), [0.5, 0, 0, 0])


def test_nan_takes_the_gradient_of_an_extreme():
    x = tensor([np.nan, 5.0, np.nan], requires_grad=True)
    np.testing.assert_array_equal(grad(reductions.max(x), x), [0.5, 0, 0.5])
    np.testing.assert_array_equal(grad(reductions.sum(elementwise.minimum(x, 1.0)), x), [1, 0, 1])


def test_power_at_zero():
    x, n = tensor([0.0, 0.0, 2.0], requires_grad=True), tensor([0.0, 2.0, 0.0], requires_grad=True)
    gx, gn = grad(reductions.sum(x**n), [x, n])
    np.testing.assert_array_equal(gx, [0, 0, 0])
    np.testing.assert_allclose(gn, [0, 0, np.log(2.0)])


def test_prod_of_zeros_has_exact_gradients_of_all_orders():
    x = tensor([0.0, 0.0, 3.0, 5.0], requires_grad=True)
    first = grad(reductions.prod(x), x, create_graph=True)
    np.testing.assert_array_equal(first.detach(), [0, 0, 0, 0])
    # d2/dx0 dx1 = x2 x3
    np.testing.assert_array_equal(grad(first[0], x, retain_graph=True), [0, 15, 0, 0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_gradients_keep_the_dtype_of_their_input(dtype):
    x = tensor(np.ones((2, 2)), dtype=dtype, requires_grad=True)
    wide = tensor(np.full((2, 2), 2.0 + (1j if dtype == "complex64" else 0)), requires_grad=True)
    for y in (
        x * wide,
        x @ wide,
        contraction.einsum("ij,jk->ik", x, wide),
        elementwise.where(np.eye(2, dtype=bool), x, wide),
        elementwise.power(x, 2.0) * 3 + reductions.mean(x) - reductions.sum(x, axis=0),
        elementwise.astype(x, wide.dtype),
        linear.outer(x, wide),
    ):
        found = grad(reductions.sum(y), x, None if y.dtype.kind != "c" else [tensor(1.0 + 0j)])
        assert found.dtype == x.dtype
        assert found.shape == x.shape


def test_half_precision_gradients_are_summed_in_float32():
    bias = tensor(np.zeros(1), dtype="float16", requires_grad=True)
    batch = tensor(np.zeros((4096, 1)), dtype="float16")
    assert float(grad(reductions.sum(batch + bias, dtype="float32"), bias)) == 4096


def test_integers_and_bools_are_not_recorded():
    x = tensor([1.5, 2.5], requires_grad=True)
    for y in (x > 2, elementwise.astype(x, "int64"), positions.argmax(x), elementwise.isnan(x), reductions.any(x)):
        assert not y.requires_grad
