"""Recomputation: the same values and gradients with less kept."""

import numpy as np
import pytest

import spmdlayer as spmd


def leaf(values):
    return spmd.tensor(values, requires_grad=True)


def check(tensor, expected):
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-12)


def test_values_and_gradients():
    x, w, closed = leaf([1.0, 2.0]), leaf([3.0, 4.0]), leaf([5.0])
    calls = []

    def f(x, pair, power=1, name=None):
        calls.append(name)
        assert name == "text"
        return {"a": (x * pair[0]) ** power, "b": [closed * x, 7, "kept"]}

    out = spmd.recompute(f)(x, [w, None], power=2, name="text")
    assert out["b"][1:] == [7, "kept"]
    check(out["a"], [9.0, 64.0])
    (out["a"].sum() + out["b"][0].sum()).backward()
    assert len(calls) == 2
    check(x.grad, [2 * 9.0 + 5, 2 * 2 * 16.0 + 5])
    check(w.grad, [2 * 3.0, 2 * 4 * 4.0])
    check(closed.grad, [3.0])


def test_one_of_several_results_is_used():
    x = leaf([2.0])
    one, other = spmd.recompute(lambda x: (x * x, x * x * x))(x)
    one.backward()
    check(x.grad, [4.0])
    assert other.requires_grad


def test_nested_and_of_higher_order():
    x = leaf([1.5])
    inner = spmd.recompute(lambda x: x * x)
    outer = spmd.recompute(lambda x: inner(x) * inner(x))
    y = outer(x)
    for factor, power in [(4, 3), (12, 2), (24, 1)]:
        y = spmd.grad(y, x, create_graph=True)
        check(y, [factor * 1.5**power])


def test_a_graph_that_is_kept_runs_twice():
    x = leaf([2.0])
    y = spmd.recompute(lambda x: x * x)(x)
    y.backward(retain_graph=True)
    y.backward()
    check(x.grad, [8.0])
    with pytest.raises(RuntimeError, match="freed"):
        y.backward()


def test_later_writes_to_inputs_are_not_seen():
    x, v = leaf([2.0]), spmd.tensor([3.0])
    y = spmd.recompute(lambda x, v: x * x * v)(x, v)
    v[0] = 100.0
    with spmd.no_grad():
        x += 1.0
    y.backward()
    check(x.grad, [12.0])


def test_nothing_is_recorded_without_grad_mode():
    x = leaf([2.0])
    calls = []
    with spmd.no_grad():
        y = spmd.recompute(lambda x: calls.append(1) or x * x)(x)
    assert not y.requires_grad and calls == [1]
