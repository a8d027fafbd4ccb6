"""Bad input of distributed operations raises on every rank, before anything moves, and says what was given.

In debug mode also what only some ranks do, or do differently.
"""

import numpy as np
import pytest
from mpi_helpers import assert_all, parallel_raises

import spmdlayer as spmd

pytestmark = pytest.mark.mpi
S, R, P = spmd.Shard, spmd.Replicate, spmd.Partial


@pytest.fixture
def mesh():
    return spmd.init_mesh((spmd.get_world_size(),))


def placed(mesh, *shape, placement=None, dtype="float64"):
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return spmd.shard_tensor(values, mesh, [placement or S(0)])


def write(x, index, value):
    y = spmd.copy(x)
    y[index] = value
    return y


BAD = {
    "add": (lambda a, b, i: a + b, ValueError, r"add: .*\(5, 4\) as \[Shard\(0\)\].*\(4, 3\) as \[Shard\(1\)\]"),
    "an array": (lambda a, b, i: a * np.ones((2, 3, 3)), ValueError, r"multiply: .*NumPy array of float64 \(2, 3, 3\)"),
    "where": (lambda a, b, i: spmd.where(a > 0, a, b), ValueError, r"where: .*\(4, 3\) as"),
    "matmul": (
        lambda a, b, i: a @ a,
        ValueError,
        r"matmul: .*\(5, 4\) as \[Shard\(0\)\] and \(5, 4\) as \[Shard\(0\)\]",
    ),
    "stacks": (
        lambda a, b, i: spmd.matmul(a.reshape((5, 1, 4)), np.ones((3, 4, 3))),
        ValueError,
        r"matmul: .*\(3, 4, 3",
    ),
    "einsum": (lambda a, b, i: spmd.einsum("ij,jk", a, a), ValueError, r"einsum: 'j'.*\(5, 4\) as \[Shard\(0\)\]"),
    "tensordot": (lambda a, b, i: spmd.tensordot(a, a, 1), ValueError, r"tensordot: .*\(5, 4\) as \[Shard\(0\)\]"),
    "concat": (lambda a, b, i: spmd.concat([a, b]), ValueError, r"concat: .*\(4, 3\) as \[Shard\(1\)\]"),
    "stack": (lambda a, b, i: spmd.stack([a, b]), ValueError, r"stack: .*\(4, 3\) as \[Shard\(1\)\]"),
    "broadcast_to": (lambda a, b, i: spmd.broadcast_to(a, (3, 4)), ValueError, r"broadcast_to: .*\(5, 4\) as"),
    "bits": (lambda a, b, i: spmd.bitwise_and(a, i[:4]), TypeError, r"bitwise_and: .*float64 \(5, 4\) as"),
    "order": (lambda a, b, i: spmd.atan2(spmd.astype(a, "complex128"), a), TypeError, r"atan2: .*complex128 \(5, 4\)"),
    "overflow": (lambda a, b, i: spmd.astype(i, "int8") + 1000, OverflowError, r"add: .*int8 \(6,\) as \[Shard\(0\)\]"),
    "axis": (lambda a, b, i: a.sum(axis=2), ValueError, r"sum: axis 2 .* 2 dimensions.*\(5, 4\) as \[Shard\(0\)\]"),
    "int": (
        lambda a, b, i: a[7],
        IndexError,
        r"rank.*index 7 is out of bounds for axis 0 with size 5; .*\(5, 4\) as \[Shard\(0\)\]",
    ),
    "dims": (lambda a, b, i: write(a, (0, 0, 0), 1.0), IndexError, r"3 dimensions are indexed; .*\(5, 4\) as"),
    "segments": (
        lambda a, b, i: spmd.segment_sum(a, [0, 0, 0, 0, 9], 3),
        IndexError,
        r"segment_sum: segment 9 is out of bounds for 3",
    ),
    "index_add": (
        lambda a, b, i: spmd.index_add(a, [-6], 1.0),
        IndexError,
        r"index_add: index -6 is out of bounds for axis 0 of the shape \(5, 4\) as",
    ),
    "correction": (lambda a, b, i: a.var(correction="n"), TypeError, "var: correction must be a number, 'n'"),
    "bins": (lambda a, b, i: spmd.histogram(a, bins=0), ValueError, "histogram: `bins` must be positive"),
    "truth": (lambda a, b, i: bool(a), ValueError, r"\(5, 4\); take any\(\) or all\(\)"),
    "ints": (lambda a, b, i: a[np.array([0, -6])], IndexError, r"-6 is out of bounds for axis 0 with size 5"),
    "indices": (lambda a, b, i: a[i], IndexError, r"index 5 is out of bounds for axis 0 with size 5"),
    "take": (
        lambda a, b, i: spmd.take(a, [0, 9], axis=1),
        IndexError,
        r"index 9 is out of bounds for axis 1 with size 4",
    ),
    "mask": (lambda a, b, i: a[np.ones(4, bool)], IndexError, r"mask of shape \(4,\)"),
    "write": (
        lambda a, b, i: write(a, slice(0, 2), np.ones(3)),
        ValueError,
        r"\(3,\) does not broadcast .*\(2, 4\).*\(5, 4\) as",
    ),
    "write at": (
        lambda a, b, i: write(a, [0, 1], np.ones((3, 1))),
        ValueError,
        r"\(3, 1\) does not broadcast .*\(2, 4\)",
    ),
    "max of nothing": (lambda a, b, i: a[:0].max(axis=0), ValueError, r"max: no elements .*\(0, 4\) as"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(mesh, name):
    function, kind, pattern = BAD[name]
    a, b, i = placed(mesh, 5, 4), placed(mesh, 4, 3, placement=S(1)), placed(mesh, 6, dtype="int64")
    with spmd.trace() as traced, parallel_raises(kind, pattern):
        function(a, b, i)
    # Of a sharded index array, one rank alone may have the wrong one.
    assert_all(name == "indices" or traced.count(records=True) == 0, traced)


def test_nothing_moves_before_bad_input_is_seen(mesh):
    x = spmd.dtensor_from_local(np.ones((5, 4)), mesh, [P("sum")])
    with spmd.trace() as traced:
        with parallel_raises(TypeError, r"bitwise_invert: .*float64 \(5, 4\) as \[Partial\('sum'\)\]"):
            spmd.bitwise_invert(x)
        with parallel_raises(ValueError, r"maximum: .*\(3,\)"):
            spmd.maximum(x, np.ones(3))
    assert_all(traced.count(records=True) == 0, traced)


def test_mixed_meshes(mesh):
    other = spmd.init_mesh((1, spmd.get_world_size()))
    x, y = placed(mesh, 5, 4), spmd.shard_tensor(np.ones((5, 4)), other, [R(), S(0)])
    with parallel_raises(
        ValueError, r"add: operand 1 is on .*reshard one.*Shard\(0\)\] on .*Replicate\(\), Shard\(0\)\] on"
    ):
        x + y
    with parallel_raises(TypeError, r"add: operand 1 is a local tensor.*a local float64 \(5, 4\)"):
        x + spmd.tensor(np.ones((5, 4)))


# Debug mode ----------------------------------------------------------------

DIFFERENT = {
    "a parameter": (lambda x, rank: x.sum(axis=rank % 2), r"sum: .* disagree on parameter axis: rank 0 has .*\(0,\)"),
    "a NumPy operand": (
        lambda x, rank: x + np.full(4, float(rank)),
        r"add: .* operand 1: rank 0 has .*\[0.0, 0.0, 0.0",
    ),
    "a large operand": (lambda x, rank: x * np.full((5, 4), float(rank)), r"multiply: .* operand 1: rank 0 .*hash"),
    "a number": (lambda x, rank: x * rank, r"multiply: .* operand 1: rank 0 has int 0; rank 1 has int 1"),
    "the operation": (
        lambda x, rank: spmd.exp(x) if rank else spmd.sin(x),
        r"disagree on the operation: rank 0 has sin; rank 1 has exp",
    ),
    "placements": (
        lambda x, rank: x.reshard([S(rank % 2)]),
        r"reshard: .* parameter placements: rank 0 has list \[Shard\(0\)\]; rank 1 has list \[Shard\(1\)\]",
    ),
    "the shape": (
        lambda x, rank: spmd.add(x, np.ones((1,) * (1 + rank % 2))),
        r"add: .* operand 1: rank 0 has float64 \(1,\) .*rank 1 has float64 \(1, 1\)",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_disagree(mesh, name):
    function, pattern = DIFFERENT[name]
    x = placed(mesh, 5, 4)
    if mesh.size > 1:
        with spmd.config(debug=True), parallel_raises(ValueError, pattern):
            function(x, spmd.get_rank())


def test_ranks_that_disagree_on_recording(mesh):
    x = placed(mesh, 5, 4)
    x.requires_grad = True
    if mesh.size == 1:
        return
    with spmd.config(debug=True), parallel_raises(ValueError, r"exp: .*operand 0.*requires grad"):
        if spmd.get_rank() == 0:
            with spmd.no_grad():
                spmd.exp(x)
        else:
            spmd.exp(x)


def test_what_fails_on_one_rank_fails_on_all(mesh):
    """Each rank looks up its own index, the last one beyond the end."""
    table, n = spmd.shard_tensor(np.arange(3.0), mesh, [R()]), mesh.size
    indices = spmd.shard_tensor(np.where(np.arange(n) == n - 1, 7, 0), mesh, [S(0)])
    with spmd.config(debug=True), parallel_raises(IndexError, r"index 7 is out of bounds for axis 0 with size 3"):
        table[indices]


def test_debug_mode_changes_nothing_else(mesh):
    x = placed(mesh, 5, 4)
    x.requires_grad = True
    with spmd.config(debug=True), spmd.trace() as traced:
        y = (spmd.exp(x * 0.1) @ np.ones((4, 2))).sum()
        (g,) = spmd.grad(y, [x])
    expected = np.exp(np.arange(20.0).reshape(5, 4) * 0.1)
    np.testing.assert_allclose(y.item(), 2 * expected.sum())
    np.testing.assert_allclose(g.numpy(), 0.2 * expected)
    assert_all(traced.count(phase="forward") == 0, traced)  # records alone
