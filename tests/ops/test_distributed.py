"""Operations of random shapes and parameters under random placements, against the same on whole arrays.

Those that `test_walk` runs on the shapes of their cases; see `walking`.
"""

import numpy as np
import pytest
from placed import distribute, draw, meshes
from walking import check

import spmdlayer as spmd

pytestmark = pytest.mark.mpi


# Shapes that several ranks share -----------------------------------------


def numbers(random, *shape):
    return random.uniform(0.3, 1.7, shape) * random.choice([-1.0, 1.0], shape)


def extents(random, ndim, low=1, high=6):
    return tuple(int(n) for n in random.integers(low, high, ndim))


def axes_of(random, ndim):
    """None, an axis, or some axes."""
    some = tuple(int(a) for a in np.flatnonzero(random.random(ndim) < 0.5))
    return draw(random, [None, int(random.integers(ndim)), some])


def factorised(random, size):
    """A random shape of so many elements."""
    shape = []
    while size > 1:
        divisors = [d for d in range(2, size + 1) if size % d == 0]
        shape.append(draw(random, divisors))
        size //= shape[-1]
    for _ in range(random.integers(2)):
        shape.insert(random.integers(len(shape) + 1), 1)
    return tuple(shape)


def basic_index(random, shape):
    """Ints, slices, None and ... for a shape without zeros."""
    items = []
    for n in shape[: random.integers(len(shape) + 1)]:
        cut = slice(
            *(draw(random, [None, *range(-n - 1, n + 2)]) for _ in range(2)), draw(random, [None, 1, 2, -1, -2])
        )
        items.append(draw(random, [int(random.integers(-n, n)), cut, cut, slice(None)]))
    for extra in (None, ...):
        if random.random() < 0.3:
            items.insert(random.integers(len(items) + 1) if extra is None else len(items), extra)
    return tuple(items)


def reshaped(random):
    shape = draw(random, [(4, 6), (2, 3, 4), (12,), (6, 1, 4), (3, 5), (8, 3)])
    target = factorised(random, int(np.prod(shape)))
    return lambda x: spmd.reshape(x, target), [numbers(random, *shape)]


def reduced(random):
    x = numbers(random, *extents(random, 3))
    name, axis, keepdims = (
        draw(random, ["sum", "max", "min", "prod", "mean", "var"]),
        axes_of(random, 3),
        bool(random.integers(2)),
    )
    return lambda t: getattr(spmd, name)(t, axis=axis, keepdims=keepdims), [x]


def multiplied(random):
    m, k, n = extents(random, 3)
    stacks = draw(random, [((), ()), ((3,), ()), ((2, 3), (3,)), ((1,), (4,)), ((2, 1), (3,))])
    left, right = (*stacks[0], m, k), (*stacks[1], k, n)
    if stacks == ((), ()):
        left, right = draw(random, [left, (k,)]), draw(random, [right, (k,)])
    return spmd.matmul, [numbers(random, *left), numbers(random, *right)]


def contracted(random):
    n = dict(zip("abcd", extents(random, 4)))
    text = draw(
        random,
        ["ab,bc->ac", "ab,bc->ca", "ab,ab->a", "ab,ab->", "abc,cd->dab", "ab,c->cb", "ab,bc,cd->da", "aab,bc->ac"],
    )
    arrays = [numbers(random, *(n[letter] for letter in term)) for term in text.split("->")[0].split(",")]
    return lambda *ts: spmd.einsum(text, *ts), arrays


def combined(random):
    shape = extents(random, 3)
    smaller = tuple(n if random.random() < 0.6 else 1 for n in shape)[random.integers(3) :]
    function = draw(
        random, [spmd.add, spmd.subtract, spmd.multiply, spmd.divide, spmd.maximum, lambda a, b: (a + b) * a]
    )
    arrays = [numbers(random, *shape), numbers(random, *smaller)]
    return function, arrays[:: draw(random, [1, -1])]


def joined(random):
    shape, axis = list(extents(random, 2)), int(random.integers(2))
    arrays = []
    for _ in range(int(random.integers(2, 4))):
        shape[axis] = int(random.integers(0, 4))
        arrays.append(numbers(random, *shape))
    return lambda *ts: spmd.concat(list(ts), axis=axis), arrays


def read(random):
    x = numbers(random, *extents(random, 3))
    index = basic_index(random, x.shape)
    return lambda t: t[index], [x]


def gathered(random):
    """Integer arrays as index; the arrays, too, are distributed."""
    x = numbers(random, *extents(random, 3))
    shapes = draw(random, [((4,),), ((3, 2),), ((3, 1), (2,))])
    arrays = [random.integers(-n, n, shape) for n, shape in zip(x.shape, shapes)]
    places = draw(random, [(slice(None),), (), (slice(1, None),)])

    def function(t, *indices):
        return t[(*places, *indices)] if len(places) + len(indices) < 4 and not places else t[(*indices, *places)]

    return function, [x, *arrays]


def written(random):
    x = numbers(random, *extents(random, 3))
    index = basic_index(random, x.shape)
    shape = np.zeros(x.shape)[index].shape
    shape = tuple(n if random.random() < 0.7 else 1 for n in shape)[random.integers(len(shape) + 1) :]

    def function(t, value):
        y = spmd.copy(t)
        y[index] = value
        return y * y

    return function, [x, numbers(random, *shape)]


def written_at(random):
    x, value = numbers(random, 4, *extents(random, 2)), numbers(random, 1)
    rows = random.permutation(4)[:3]

    def function(t, value):
        y = spmd.copy(t)
        y[rows] = value
        y[t > 1] = 0.5
        return y

    return function, [x, value]


def moved(random):
    x = numbers(random, *extents(random, 3))
    order, axis = tuple(int(a) for a in random.permutation(3)), int(random.integers(3))
    functions = [
        lambda t: spmd.permute_dims(t, order),
        lambda t: spmd.flip(t, axis),
        lambda t: spmd.roll(t, 2, axis),
        lambda t: spmd.expand_dims(t, axis),
        lambda t: spmd.squeeze(t),
        lambda t: spmd.broadcast_to(t, (2, *t.shape)),
        lambda t: spmd.repeat(t, 2, axis),
        lambda t: spmd.tile(t, (2, 1, 1)),
        lambda t: spmd.cumulative_sum(t, axis),
        lambda t: spmd.softmax(t, axis),
        lambda t: spmd.log_softmax(t, axis),
        lambda t: spmd.logsumexp(t, axis),
        lambda t: spmd.stack([t, t * t], axis),
        lambda t: spmd.astype(t, "complex128"),
    ]
    return draw(random, functions), [x]


SHAPED = [reshaped, reduced, multiplied, contracted, combined, joined, read, gathered, written, written_at, moved]


@pytest.mark.parametrize("make", SHAPED, ids=lambda make: make.__name__)
@pytest.mark.parametrize("seed", range(8))
def test_random_shapes(make, seed):
    seed = [seed, *make.__name__.encode()]
    check(seed, *make(np.random.default_rng(seed)))


# What has no gradient ----------------------------------------------------


def integers(random, *shape):
    return random.integers(-9, 10, shape)


INTEGERS = {
    "any": lambda x: spmd.any(x > 4, axis=0),
    "all": lambda x: spmd.all(x > -8, axis=1, keepdims=True),
    "any of a Partial": lambda x: spmd.any(x),
    "argmax": lambda x: spmd.argmax(x, axis=1),
    "argmin": lambda x: spmd.argmin(x, axis=0, keepdims=True),
    "argmax of all": spmd.argmax,
    "sum": lambda x: spmd.sum(x, axis=0),
    "sum of bools": lambda x: spmd.sum(x > 0),
    "sum as bool": lambda x: spmd.sum(x, axis=0, dtype="bool"),
    "prod as bool": lambda x: spmd.prod(x, axis=0, dtype="bool"),
    "max": lambda x: spmd.max(spmd.max(x, axis=0)),
    "min": lambda x: spmd.min(x, axis=1),
    "matmul of bools": lambda x: spmd.matmul(x > 0, (x > 0).T),
    "to float": lambda x: spmd.astype(x, "float64") / 4,
    "bits": lambda x: x & 3 | ~x,
    "comparison": lambda x: (x > 2) == (x % 2 == 0),
    "move": lambda x: spmd.flip(x.T, 0)[1:].reshape(-1),
    "mask": lambda x: x[x > 0],
    "full_like": lambda x: spmd.full_like(x, 7) + spmd.ones_like(x) + spmd.zeros_like(x),
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("seed", range(4))
def test_integers_and_bools(name, seed):
    seed = [seed, *name.encode()]
    random = np.random.default_rng(seed)
    check(seed, INTEGERS[name], [integers(random, *extents(random, 2, 2))], gradient=False)


def test_floats_that_are_cut_off_are_reduced_first():
    random = np.random.default_rng(5)
    for mesh in meshes():
        x = distribute(random, mesh, np.array([0.5, 1.75, -2.25]), [spmd.Partial("sum")] * mesh.ndim)
        np.testing.assert_array_equal(spmd.astype(x, "int64").numpy(), [0, 1, -2])
        assert spmd.sum(x, dtype="int64").item() == -1


def test_a_number_before_differences_counts_as_replicate():
    a = np.arange(10.0).reshape(5, 2) ** 2
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    x = spmd.shard_tensor(a, mesh, [spmd.Shard(0)], requires_grad=True)
    y = spmd.diff(x, axis=0, prepend=1.0, append=np.ones((2, 2)))
    expected = np.diff(a, axis=0, prepend=1.0, append=np.ones((2, 2)))
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    (y * np.arange(1, 8)[:, None]).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), -np.ones((5, 2)))
