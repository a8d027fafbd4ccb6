"""What moves along sharded dims: values and gradients, where the results are, and how little travels."""

import numpy as np
import pytest
from placed import distribute, draw, meshes, placements_for
from traffic import ITEM, sharded, traced

import spmdlayer as spmd
from spmdlayer.ops.index_form import Span
from spmdlayer.ops.moving import Run, common, reverse, span_run

pytestmark = pytest.mark.mpi

R, S, P = spmd.Replicate(), spmd.Shard, spmd.Partial


@pytest.fixture
def mesh():
    return spmd.init_mesh((spmd.get_world_size(),), ("x",))


# Arithmetic ----------------------------------------------------------------


def taken(have, want, runs):
    """The pairs (source position, result position) in the pieces, written out."""
    pairs = []
    for source, target in common(have, want, runs):
        for part in (source, target):
            assert isinstance(part, slice) == isinstance(source, slice)
        if isinstance(source, slice):
            source, target = np.arange(1000)[source], np.arange(1000)[target]
        assert source.size == target.size > 0
        pairs += zip(source.tolist(), target.tolist())
    return sorted(pairs)


@pytest.mark.parametrize("seed", range(30))
def test_common_parts(seed):
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 200))
    cut = slice(*(draw(random, [None, *range(-size, size)]) for _ in range(2)), draw(random, [1, 2, -1, -3]))
    start, stop, step = cut.indices(size)
    span = Span(start, None if stop < 0 else stop, step)
    source = np.arange(size)[slice(*span)]  # for each position of the result that of the operand

    have, want = cyclic(random, size), cyclic(random, source.size)
    mine = np.concatenate([np.arange(*part) for part in have])
    theirs = np.concatenate([np.arange(*part) for part in want])
    expected = sorted(
        (int(np.flatnonzero(mine == source[position])[0]), place)
        for place, position in enumerate(theirs)
        if source[position] in mine
    )
    runs = (span_run(span),)
    assert taken(have, want, runs) == expected
    assert taken(want, have, [reverse(run) for run in runs]) == sorted((b, a) for a, b in expected)


def cyclic(random, size):
    """The intervals of one piece, in one slice or dealt out in blocks."""
    block, n = draw(random, [1, 3, size + 1]), int(random.integers(1, 4))
    found = [(start, min(start + block, size)) for start in range(int(random.integers(n)) * block, size, n * block)]
    return found or [(size, size)]


def test_a_run_and_its_reverse():
    run = Run(2, 1, 9, -2, 4)  # 2 3 4 5 from 9 7 5 3
    assert reverse(run) == Run(3, 2, 5, -1, 4)
    assert reverse(reverse(run)) == run


# Values and gradients ------------------------------------------------------


def slices(random, shape):
    return tuple(
        slice(*(draw(random, [None, *range(-n - 1, n + 2)]) for _ in range(2)), draw(random, [None, 1, 2, 3, -1, -2]))
        for n in shape
    )


def moves(random, shape):
    """The same function for tensors and arrays, and the module that they call."""
    axis, shift, index = int(random.integers(2)), int(random.integers(-9, 9)), slices(random, shape)
    times, where = int(random.integers(1, 4)), int(random.integers(-shape[axis], shape[axis]))
    kind = draw(random, ["flip", "roll", "read", "both", "int", "join", "tile", "write", "write all"])

    def written(x, value):
        if isinstance(x, np.ndarray):
            y = x.copy()
        else:
            y = spmd.copy(x)
        y[index] = value(y[index])
        return y

    functions = {
        "flip": lambda m, x: m.flip(x, axis),
        "roll": lambda m, x: m.roll(x, (shift, 2), (axis, 1 - axis)),
        "read": lambda m, x: x[index],
        "both": lambda m, x: m.flip(x)[index] * 2.0,
        "int": lambda m, x: x[(slice(None),) * axis + (where,)],
        "join": lambda m, x: (m.concat if m is spmd else m.concatenate)([x[1:], x * 2.0, x[:1], x[:0]], axis=0),
        "tile": lambda m, x: m.tile(x, (times, 2)),
        "write": lambda m, x: written(x, lambda part: 7.0),
        "write all": lambda m, x: written(x, lambda part: part[:, :1] * 3.0 if axis else part * part),
    }
    return functions[kind]


@pytest.mark.parametrize("seed", range(40))
def test_moves(seed):
    random = np.random.default_rng(seed)
    mesh = draw(random, meshes())
    array = random.normal(size=draw(random, [(7, 5), (1, 9), (12, 3), (90, 2)]))
    placed = placements_for(random, mesh, array)
    while any(p.is_partial() and p.op not in ("sum", "avg") for p in placed):
        placed = placements_for(random, mesh, array)
    function = moves(random, array.shape)
    print(f"seed {seed}, mesh {mesh.shape}, placements {placed}, shape {array.shape}")
    x, whole = distribute(random, mesh, array, placed), spmd.tensor(array)
    np.testing.assert_allclose(x.numpy(), array, rtol=1e-12, atol=1e-12)
    x.requires_grad = whole.requires_grad = True
    expected = function(np, array)
    weight, direction = random.normal(size=expected.shape), random.normal(size=array.shape)
    results = []
    for t in (x, whole):
        y = function(spmd, t)
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-10, atol=1e-10)
        g = spmd.grad((y * y * weight).sum(), t, create_graph=True)
        h = spmd.grad((g * direction).sum(), t)
        results.append((g.detach().numpy(), h.numpy()))
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


SHAPES = [(12,), (3, 4), (4, 3), (2, 6), (2, 2, 3), (1, 12), (3, 1, 4), (6, 2), (5, 3), (15,), (3, 5), (1, 3, 5)]


@pytest.mark.parametrize("seed", range(24))
def test_reshapes(seed):
    random = np.random.default_rng([seed, 5])
    mesh, before = draw(random, meshes()), draw(random, SHAPES)
    after = draw(random, [shape for shape in SHAPES if np.prod(shape) == np.prod(before)])
    array = random.normal(size=before)
    placed = [p if not p.is_partial() else P("sum") for p in placements_for(random, mesh, array)]
    print(f"seed {seed}, mesh {mesh.shape}, placements {placed}, from {before} to {after}")
    x = distribute(random, mesh, array, placed)
    x.requires_grad = True
    y = spmd.reshape(x, after)
    np.testing.assert_allclose(y.detach().numpy(), array.reshape(after), rtol=1e-12, atol=1e-12)
    weight = random.normal(size=after)
    g = spmd.grad((y * y * weight).sum(), x, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), 2 * array * weight.reshape(before), rtol=1e-9, atol=1e-9)
    h = spmd.grad((g * g).sum(), x)
    np.testing.assert_allclose(h.numpy(), 8 * array * weight.reshape(before) ** 2, rtol=1e-9, atol=1e-9)


# Where it is, and what travels ---------------------------------------------


def test_a_reversal_moves_what_changes_its_rank(mesh):
    n, array = mesh.size, np.arange(60.0)
    x = sharded(mesh, array)
    x.requires_grad = True
    for function in (spmd.flip, lambda t: t[::-1]):
        y, sent = traced(lambda: function(x))
        np.testing.assert_array_equal(y.detach().numpy(), array[::-1])
        assert y.placements == [S(0)]
        assert sent == ITEM * (60 - 60 // n * (n % 2))  # the middle one of an odd number stays
        g, back = traced(lambda: spmd.grad((y * np.arange(60.0)).sum(), x))
        np.testing.assert_array_equal(g.numpy(), np.arange(60.0)[::-1])
        assert back == sent


def test_a_roll_moves_its_shift(mesh):
    n = mesh.size
    y, sent = traced(lambda: spmd.roll(sharded(mesh, np.arange(60.0)), 2))
    np.testing.assert_array_equal(y.numpy(), np.roll(np.arange(60.0), 2))
    assert y.placements == [S(0)]
    assert sent == (ITEM * 2 * n if n > 1 else 0)


def test_a_row_moves_alone(mesh):
    n, array = mesh.size, np.arange(400.0).reshape(100, 4)
    x = sharded(mesh, array)
    x.requires_grad = True
    y, sent = traced(lambda: x[70])
    np.testing.assert_array_equal(y.detach().numpy(), array[70])
    assert y.placements == [R]
    assert sent == 4 * ITEM * (n - 1)
    g, back = traced(lambda: spmd.grad((y * y).sum(), x))
    expected = np.zeros((100, 4))
    expected[70] = 2 * array[70]
    np.testing.assert_array_equal(g.numpy(), expected)
    assert (g.placements, back) == ([S(0)], 0)


def test_joining_along_the_sharded_dim(mesh):
    n, array = mesh.size, np.arange(24.0).reshape(12, 2)
    x = sharded(mesh, array)
    y, sent = traced(lambda: spmd.concat([x, x]))
    np.testing.assert_array_equal(y.numpy(), np.concatenate([array, array]))
    assert y.placements == [S(0)]
    held = [{*np.array_split(np.arange(12), n)[k]} for k in range(n)]
    wanted = [{*(np.array_split(np.arange(24), n)[k])} for k in range(n)]
    there = [len(w & (h | {k + 12 for k in h})) for h, w in zip(held, wanted)]
    assert sent == 2 * ITEM * (24 - sum(there))
    mixed = spmd.concat([x, np.ones((3, 2))])
    assert mixed.placements == [S(0)]
    np.testing.assert_array_equal(mixed.numpy(), np.concatenate([array, np.ones((3, 2))]))


def test_slices_of_block_cyclic_pieces(mesh):
    n, array = mesh.size, np.arange(48.0)
    x = sharded(mesh, array, block=2)
    y, sent = traced(lambda: x[4 * n :])  # whole rounds of blocks: all stays where it is
    np.testing.assert_array_equal(y.numpy(), array[4 * n :])
    assert (y.placements, sent) == ([S(0, 2)], 0)
    z, sent = traced(lambda: x[7])  # one element of one block, to all ranks
    assert (z.numpy(), z.placements, sent) == (7.0, [R], ITEM * (n - 1))
    z, sent = traced(lambda: x[8:10])  # within one block
    np.testing.assert_array_equal(z.numpy(), [8, 9])
    assert (z.placements, sent) == ([S(0)], 0)
    z, sent = traced(lambda: x[2:])  # every block is another rank's
    np.testing.assert_array_equal(z.numpy(), array[2:])
    assert sent == (ITEM * 46 if n > 1 else 0)


def test_writing_backwards(mesh):
    array = np.arange(12.0)
    x = sharded(mesh, array)
    value = sharded(mesh, np.arange(100.0, 106.0))
    _, sent = traced(lambda: x.__setitem__(slice(None, None, -2), value))
    array[::-2] = np.arange(100.0, 106.0)
    np.testing.assert_array_equal(x.numpy(), array)
    assert x.placements == [S(0)]
    assert sent <= ITEM * 6
    x[11:10:-1] = sharded(mesh, np.array([-1.0]))  # one element, sharded all the same
    array[11] = -1
    np.testing.assert_array_equal(x.numpy(), array)
    _, sent = traced(lambda: x.__setitem__(slice(None, None, -3), 5.0))
    array[::-3] = 5.0
    np.testing.assert_array_equal(x.numpy(), array)
    assert sent == 0


def test_one_sharded_element_as_a_number(mesh):
    x = sharded(mesh, np.array([[4.0]]))
    assert spmd.reshape(x, ()).item() == 4.0
    assert spmd.reshape(x, ()).placements == [R]
    assert spmd.reshape(spmd.reshape(x, ()), (1, 1, 1)).tolist() == [[[4.0]]]
