"""Calls that are remembered must not be taken for others."""

import numpy as np
import pytest
from mpi_helpers import assert_all

import spmdlayer as spmd
from spmdlayer.autograd.backward import grad
from spmdlayer.ops import ways
from spmdlayer.ops.registry import REGISTRY

pytestmark = pytest.mark.mpi
S, P = spmd.Shard, spmd.Partial


@pytest.fixture
def mesh():
    ways._ways.clear()
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


def check(found, expected):
    found = found.numpy()
    assert_all(found.dtype == expected.dtype and np.array_equal(found, expected), f"{found} instead of {expected}")


def test_a_call_is_worked_out_once(mesh):
    x = spmd.shard_tensor(np.arange(5.0), mesh, [S(0)])
    for scale in (2.0, 3.0, 4.0):
        check(x * scale, np.arange(5.0) * scale)
    assert_all(len(ways._ways) == 1)
    check(x * 2, np.arange(5.0) * 2)  # an integer may give another dtype
    check(spmd.astype(x, "int64") * 2, np.arange(5) * 2)
    check(spmd.astype(x, "int64") * 2.0, np.arange(5) * 2.0)


def test_a_number_in_a_sum_of_pieces_is_added_once(mesh):
    z = spmd.dtensor_from_local(np.ones(2), mesh, [P()])
    for number in (0, 5, 7):
        check(z + number, np.full(2, mesh.size + number, float))


def test_parameters_and_dtypes_are_told_apart(mesh):
    a = np.arange(6.0).reshape(2, 3)
    x = spmd.shard_tensor(a, mesh, [S(1)])
    for axis in (0, 1):
        for keepdims in (False, True):
            check(spmd.sum(x, axis=axis, keepdims=keepdims), a.sum(axis=axis, keepdims=keepdims))
    for value in (1, True, 1.0, 0.0, -0.0):
        check(spmd.full_like(x, value, dtype="float64"), np.full_like(a, value))
        assert_all((np.signbit(spmd.full_like(x, value).to_local().numpy()) == np.signbit(value)).all())
    narrow = spmd.shard_tensor(a.astype("float32"), mesh, [S(1)])
    check(narrow * narrow, (a * a).astype("float32"))
    check(x * x, a * a)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_gradients_go_where_they_are_asked_for(mesh, left, right):
    a, b = np.arange(1.0, 6.0), np.arange(2.0, 7.0)
    for wanted in ((True, True), (left, right)):  # the first call has another pattern
        x = spmd.shard_tensor(a, mesh, [S(0)], requires_grad=wanted[0])
        y = spmd.shard_tensor(b, mesh, [S(0)], requires_grad=wanted[1])
        z = x * y
        assert_all(z.requires_grad == any(wanted))
        for tensor, asked, expected in ((x, wanted[0], b), (y, wanted[1], a)):
            if asked:
                check(grad(spmd.sum(z), tensor, retain_graph=True), expected)
    with spmd.no_grad():
        assert_all(not (x * y).requires_grad)


def test_what_moves_or_is_plain_is_worked_out_each_time(mesh):
    x = spmd.shard_tensor(np.arange(4.0), mesh, [S(0)])
    y = spmd.shard_tensor(np.arange(4.0), mesh, [spmd.Replicate()])
    for other in (y, np.arange(4.0)):
        for _ in range(2):
            check(x * other, np.arange(4.0) ** 2)
    assert_all(not any(key[0] is REGISTRY["multiply"] and len(key) > 4 for key in ways._ways if mesh.size > 1))
