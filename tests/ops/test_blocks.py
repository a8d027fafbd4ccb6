"""Blocks dealt out in turn, `Shard(d, block=b)`, in elementwise operations, reductions and products of matrices.

Blocks of many sizes, along one mesh axis or several that cut the same dim, whole or with a smaller last one.
"""

import numpy as np
import pytest
from mpi_helpers import assert_all
from placed import draw
from walking import check

import spmdlayer as spmd

pytestmark = pytest.mark.mpi


def dealt_out(random, mesh, array, partial=True):
    """Mostly blocks, some slices and copies; of large blocks some ranks get none."""
    placements = []
    for _ in range(mesh.ndim):
        dim = int(random.integers(array.ndim)) if array.ndim else None
        kind = draw(random, ["blocks"] * 6 + ["slice", "replicate"])
        block = int(draw(random, [1, 2, 3, 4, 7, 16])) if kind == "blocks" else None
        placements.append(spmd.Replicate() if kind == "replicate" or dim is None else spmd.Shard(dim, block))
    return placements


def numbers(random, *shape):
    return random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape)


def extents(random, ndim, most=24):
    return tuple(int(n) for n in random.integers(1, most, ndim))


def elementwise(random):
    m, n = extents(random, 2)
    shapes = [(m, n), draw(random, [(m, n), (n,), (m, 1), ()])]
    return lambda a, b: spmd.tanh(a) * b + a - spmd.maximum(a, b), [numbers(random, *shape) for shape in shapes]


def reduced(random):
    name, axis = draw(random, ["sum", "mean", "max", "min", "prod", "var"]), draw(random, [None, 0, 1, (0, 2), ()])
    keepdims = bool(random.integers(2))
    return lambda a: getattr(spmd, name)(a, axis=axis, keepdims=keepdims), [numbers(random, *extents(random, 3, 9))]


def multiplied(random):
    m, k, n = extents(random, 3)
    stack = draw(random, [(), (), (3,)])
    return spmd.matmul, [numbers(random, *stack, m, k), numbers(random, k, n)]


def contracted(random):
    sizes = dict(zip("abcd", extents(random, 4, 9)))
    text = draw(random, ["ab,bc->ca", "abc,cd->dab", "ab,ab->b", "abc,bcd->ad", "ab,bc,cd->da"])
    terms = text.partition("->")[0].split(",")
    return lambda *ts: spmd.einsum(text, *ts), [numbers(random, *(sizes[a] for a in term)) for term in terms]


def chained(random):
    """Layouts that one operation gives are what the next gets."""
    m, k, n = extents(random, 3, 12)
    weight = numbers(random, k, n)
    return lambda a, b: ((a @ weight) * 0.5 - b).sum(axis=0) @ weight.T, [numbers(random, m, k), numbers(random, m, n)]


@pytest.mark.parametrize(
    "make", [elementwise, reduced, multiplied, contracted, chained], ids=lambda make: make.__name__
)
@pytest.mark.parametrize("seed", range(6))
def test_blocks(make, seed):
    seed = [seed, *make.__name__.encode()]
    check(seed, *make(np.random.default_rng(seed)), second=seed[0] % 2 == 0, place=dealt_out)


def test_what_fits_moves_nothing_and_stays_dealt_out():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    rows, columns = spmd.Shard(0, 2), spmd.Shard(1, 2)
    values = np.arange(77.0).reshape(11, 7)
    x, bias = (spmd.shard_tensor(array, mesh, [rows]) for array in (values, values[:, :1]))
    w = spmd.shard_tensor(values.T.copy(), mesh, [columns])
    with spmd.trace() as traced:
        results = [(spmd.exp(x * 0.01) + bias, rows), (x.sum(axis=1), rows), (x.T, columns)]
        results += [(x @ values.T, rows), (values @ w, columns), (w @ x, spmd.Partial("sum")), (x[:, 2:5], rows)]
    assert_all(traced.count() == 0, traced)
    assert [list(result.placements) for result, _ in results] == [[placement] for _, placement in results]
    expected = [
        np.exp(values * 0.01) + values[:, :1],
        values.sum(axis=1),
        values.T,
        values @ values.T,
        values @ values.T,
    ]
    for (result, _), whole in zip(results, [*expected, values.T @ values, values[:, 2:5]]):
        np.testing.assert_allclose(result.numpy(), whole)


def test_many_blocks_on_two_axes_are_planned_quickly():
    """Thousands of blocks cut by a second axis: the plan takes time in proportion to them."""
    n = spmd.get_world_size()
    mesh = spmd.init_mesh((2, n // 2) if n % 2 == 0 else (1, n))
    values = np.arange(20_000.0)
    x = spmd.shard_tensor(values, mesh, [spmd.Shard(0, 3), spmd.Shard(0, 2)])
    y = (x + 1.0).reshard([spmd.Shard(0), spmd.Shard(0)])
    assert y.sum().item() == values.sum() + values.size
