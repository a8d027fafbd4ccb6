"""Each collective against NumPy on all ranks' arrays, its adjoint by the dot product, to second order."""

import numpy as np
import pytest
from mpi_helpers import agree, assert_all, parallel_raises

import spmdlayer as spmd
from spmdlayer import mpi
from spmdlayer.autograd.backward import grad
from spmdlayer.config import state

pytestmark = pytest.mark.mpi
RANK, N = spmd.get_rank(), spmd.get_world_size()
ROOT = N - 1


def array(rank, *shape, dtype="float64", seed=0):
    """The same numbers on all ranks, for each rank others."""
    random = np.random.default_rng([seed, rank, *shape])
    values = random.integers(-8, 9, shape) / 4
    return (values + 1j * random.integers(-8, 9, shape) / 4 if dtype == "complex128" else values).astype(dtype)


def world_sum(value):
    return sum(agree(value))


def dot(a, b):
    return float(np.sum(np.real(np.conj(a) * b)))


# name: (the call, of this rank's inputs; NumPy's, of all ranks' inputs; the shapes of a rank's inputs)
ONE = {
    "allreduce": (lambda x: [mpi.allreduce(x)], lambda xs, r: [sum(x[0] for x in xs)], lambda r: [(2, 3)]),
    "mean": (lambda x: [mpi.allreduce(x, "avg")], lambda xs, r: [sum(x[0] for x in xs) / N], lambda r: [(3,)]),
    "reduce": (
        lambda x: [mpi.reduce(x, root=ROOT)],
        lambda xs, r: [sum(x[0] for x in xs) if r == ROOT else None],
        lambda r: [(2,)],
    ),
    "bcast": (lambda x: [mpi.bcast(x, ROOT)], lambda xs, r: [xs[ROOT][0]], lambda r: [(r + 1, 2)]),
    "allgather": (mpi.allgather, lambda xs, r: [x[0] for x in xs], lambda r: [(r, 2)]),
    "gather": (
        lambda x: mpi.gather(x, ROOT),
        lambda xs, r: [x[0] for x in xs] if r == ROOT else None,
        lambda r: [(r + 1,)],
    ),
    "scatter": (
        lambda *x: [mpi.scatter(list(x), ROOT)],
        lambda xs, r: [xs[ROOT][r]],
        lambda r: [(k, 2) for k in range(N)],
    ),
    "alltoall": (
        lambda *x: mpi.alltoall(list(x)),
        lambda xs, r: [x[r] for x in xs],
        lambda r: [(r, k) for k in range(N)],
    ),
    "reduce_scatter": (
        lambda *x: [mpi.reduce_scatter(list(x))],
        lambda xs, r: [sum(x[r] for x in xs)],
        lambda r: [(k + 1,) for k in range(N)],
    ),
    "reduce_scatter avg": (
        lambda *x: [mpi.reduce_scatter(list(x), "avg")],
        lambda xs, r: [sum(x[r] for x in xs) / N],
        lambda r: [(2,)] * N,
    ),
    "scan": (lambda x: [mpi.scan(x)], lambda xs, r: [sum(x[0] for x in xs[: r + 1])], lambda r: [(2,)]),
    "shift": (lambda x: [mpi.shift(x)], lambda xs, r: [xs[(r - 1) % N][0]], lambda r: [(2,)]),
    "shift back": (
        lambda x: [mpi.shift(x, -2, periodic=False)],
        lambda xs, r: [xs[r + 2][0] if r + 2 < N else np.zeros(2)],
        lambda r: [(2,)],
    ),
    "sendrecv": (
        lambda x: [mpi.sendrecv(x, (RANK + 1) % N, (RANK - 1) % N)],
        lambda xs, r: [xs[(r - 1) % N][0]],
        lambda r: [(r + 1, 2)],
    ),
    "send to the last": (
        lambda x: [mpi.sendrecv(x, ROOT if RANK == 0 else None, 0 if RANK == ROOT else None)],
        lambda xs, r: [xs[0][0] if r == ROOT else None],
        lambda r: [(r + 3,)],
    ),
}


@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32", "float16", "int32", "bfloat16"])
@pytest.mark.parametrize("name", ONE)
def test_values(name, dtype):
    call, numpy_call, shapes = ONE[name]
    if dtype == "int32" and name in ("mean", "reduce_scatter avg"):
        return
    everything = [[array(r, *shape, dtype=spmd.dtype(dtype)) for shape in shapes(r)] for r in range(N)]
    found, expected = call(*everything[RANK]), numpy_call(everything, RANK)
    if expected is None:
        assert_all(found is None)
        return
    good = len(found) == len(expected)
    for mine, right in zip(found, expected):
        if right is None:
            good &= mine is None
        else:
            right = np.asarray(right)
            good &= mine.shape == right.shape and mine.dtype == everything[RANK][0].dtype
            good &= np.allclose(mine.numpy().astype("complex128"), right.astype("complex128"), rtol=1e-2)
    assert_all(good, f"{found} instead of {expected}")


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", ONE)
def test_adjoints(name, dtype):
    """<F x, y> = <x, F* y> over all ranks, and the same of F*, whose adjoint is F."""
    call, _, shapes = ONE[name]
    inputs = [spmd.tensor(array(RANK, *shape, dtype=dtype), requires_grad=True) for shape in shapes(RANK)]
    results = [y for y in call(*inputs) or [] if y is not None]
    duals = [spmd.tensor(array(RANK, *y.shape, dtype=dtype, seed=1), requires_grad=True) for y in results]
    # A rank without results starts from something else, and takes part all the same.
    nothing = inputs[0] * 0
    gradients = grad(results or [nothing], inputs, duals or [nothing], create_graph=True)
    left = world_sum(sum(dot(y.detach().numpy(), d.detach().numpy()) for y, d in zip(results, duals)))
    right = world_sum(sum(dot(x.detach().numpy(), g.detach().numpy()) for x, g in zip(inputs, gradients)))
    others = [array(RANK, *x.shape, dtype=dtype, seed=2) for x in inputs]
    # What depends on nothing is off the tape.
    roots = [g if g.requires_grad or state.guarded else nothing for g in gradients]
    again = grad(roots, duals or inputs[:1], others)
    forth = world_sum(sum(dot(g.detach().numpy(), o) for g, o in zip(gradients, others)))
    back = world_sum(sum(dot(a.numpy(), d.detach().numpy()) for a, d in zip(again, duals)))
    assert_all(np.isclose(left, right) and np.isclose(forth, back), f"{left} {right}, {forth} {back}")
    del results, gradients, again
    grad(spmd.sum(spmd.real(inputs[0])), inputs[0])  # comes by what is left
    assert_all(not state.guarded, "what nobody keeps is dropped")


def weighted(y, seed=5):
    return (y * array(RANK, *y.shape, seed=seed)).sum()


def test_gradients_of_extremes():
    """To where the value is attained; ranks that tie share."""
    values = [np.array([1.0, 5.0, -2.0 * r, 7.0 if r else np.nan]) for r in range(N)]
    cotangent = sum(array(r, 4, seed=5) for r in range(N))
    for op, best in (("max", np.maximum.reduce(values)), ("min", np.minimum.reduce(values))):
        x = spmd.tensor(values[RANK], requires_grad=True)
        y = mpi.allreduce(x, op)
        weighted(y).backward()
        attains = [(v == best) | (np.isnan(v) & np.isnan(best)) for v in values]
        expected = cotangent * attains[RANK] / sum(attains)
        good = np.array_equal(y.detach().numpy(), best, equal_nan=True)
        assert_all(good and np.allclose(x.grad.numpy(), expected), f"{x.grad} instead of {expected}")


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradients_of_products(zeros):
    values = [np.array([1.5, -2.0]) + r for r in range(N)]
    for r in range(min(zeros, N)):
        values[r][1] = 0.0
    x = spmd.tensor(values[RANK], requires_grad=True)
    y = mpi.allreduce(x, "prod")
    weighted(y).backward()
    others = np.prod([v for r, v in enumerate(values) if r != RANK], axis=0)
    expected = sum(array(r, 2, seed=5) for r in range(N)) * others
    assert_all(np.allclose(y.detach().numpy(), np.prod(values, axis=0)) and np.allclose(x.grad.numpy(), expected))
    for op in ("prod", "max"):
        blocks = [spmd.tensor(values[RANK] + k, requires_grad=True) for k in range(N)]
        y = mpi.reduce_scatter(blocks, op)
        assert_all(np.allclose(y.detach().numpy(), getattr(np, op)([v + RANK for v in values], axis=0)))
        y = mpi.scan(spmd.tensor(values[RANK]), op)
        assert_all(np.allclose(y.detach().numpy(), getattr(np, op)(values[: RANK + 1], axis=0)))


def test_bools_and_operations_of_mpi4py():
    from mpi4py import MPI

    mine = np.array([True, RANK == 0, False])
    assert_all(mpi.allreduce(mine, "any").numpy().tolist() == [True, True, False])
    assert_all(mpi.allreduce(mine, MPI.LAND).numpy().tolist() == [True, N == 1, False])
    assert_all(mpi.allreduce(2.0, MPI.PROD).item() == 2.0**N)
    assert_all(mpi.allreduce(RANK, spmd.ReduceType.kRedMax).item() == N - 1)
    assert_all(mpi.scan(mine, "any").numpy().tolist() == [True, True, False])


def test_communicators():
    from mpi4py import MPI

    halves = MPI.COMM_WORLD.Split(RANK % 2, -RANK)  # ranks in reverse
    members = [r for r in range(N) if r % 2 == RANK % 2]
    assert_all(mpi.allreduce(float(RANK), comm=halves).item() == sum(members))
    assert_all([x.item() for x in mpi.allgather(RANK, halves)] == members[::-1])
    mesh = spmd.init_mesh((N, 1), ("x", "y"))
    assert_all(mpi.allreduce(1.0, comm=(mesh, "x")).item() == N and mpi.allreduce(1.0, comm=(mesh, 1)).item() == 1)
    assert_all(mpi.allreduce(1.0, comm=mesh).item() == N)


@pytest.mark.mpi(min_size=2)
def test_bad_input():
    mesh = spmd.init_mesh((N,), ("x",))
    x = spmd.shard_tensor(np.ones(N), mesh, [spmd.Shard(0)])
    for call, kind, message in (
        (lambda: mpi.allreduce(x), TypeError, "distributed"),
        (lambda: mpi.allreduce(1.0, "median"), ValueError, "median"),
        (lambda: mpi.allreduce(1.0, 5), TypeError, "no reduction"),
        (lambda: mpi.allreduce(True), TypeError, "bool"),
        (lambda: mpi.bcast(1.0, N), ValueError, f"root: {N}"),
        (lambda: mpi.bcast(1.0, "a"), TypeError, "root"),
        (lambda: mpi.alltoall([1.0]), ValueError, "one value for each"),
        (lambda: mpi.alltoall(1.0), ValueError, "one value for each"),
        (lambda: mpi.alltoall([1.0] * (N - 1) + [1]), TypeError, "several dtypes"),
        (lambda: mpi.allgather(np.ones(1, "f4" if RANK else "f8")), TypeError, "several dtypes"),
        (lambda: mpi.reduce_scatter([np.ones(RANK + 1)] * N), ValueError, "one shape"),
        (lambda: mpi.sendrecv(1.0, -1, 0), ValueError, "dest: -1"),
        (lambda: mpi.allreduce(1.0, comm=3), TypeError, "comm"),
        (lambda: mpi.allreduce(1.0, comm=(mesh, "z")), ValueError, "z"),
    ):
        with parallel_raises(kind, message):
            call()
