"""Losses that reach other collectives on other ranks: backward ends, and gives what each rank's value is worth."""

import numpy as np
import pytest
from mpi_helpers import agree, assert_all

import spmdlayer as spmd
from spmdlayer import mpi
from spmdlayer.autograd.backward import backward, grad
from spmdlayer.config import state

pytestmark = pytest.mark.mpi
RANK, N = spmd.get_rank(), spmd.get_world_size()


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    leaf(0.0).sum().backward()  # comes by what a test has kept until its end
    assert_all(not state.guarded, f"{state.guarded}")


def leaf(*values):
    return spmd.tensor(np.array(values, float), requires_grad=True)


@pytest.mark.mpi(min_size=2)
def test_only_the_last_ranks_loss_uses_what_was_sent():
    x = leaf(2.0 + RANK)
    g = mpi.gather(x, 0)
    b = mpi.bcast(sum(item * item for item in g) if RANK == 0 else None, 0)
    loss = (b * 3.0).sum() if RANK == N - 1 else spmd.tensor(0.0)
    loss.backward()
    assert_all(np.allclose(x.grad.numpy(), 3.0 * 2 * (2.0 + RANK)), f"{x.grad}")


@pytest.mark.mpi(min_size=2)
def test_a_result_that_was_dropped_still_gives_its_part():
    x = leaf(1.0, 2.0)
    y = mpi.allreduce(x * (RANK + 1))
    if RANK == 0:
        del y
        loss = x.sum() * 0
    else:
        loss = y.sum() * RANK
    loss.backward()
    total = sum(range(N))
    assert_all(np.allclose(x.grad.numpy(), (RANK + 1) * total), f"{x.grad}")


def test_in_another_order():
    a, b = leaf(1.0), leaf(2.0)
    p, q = mpi.allreduce(a), mpi.allreduce(b * b)
    loss = (q * p if RANK % 2 else p * q).sum()
    loss.backward()
    # Each rank's loss is (N a)(N b^2); every a and b is a variable of its own.
    assert_all(np.allclose(a.grad.numpy(), N * (N * 4.0)) and np.allclose(b.grad.numpy(), N * 2 * 2.0 * N))


def test_two_losses_one_after_the_other():
    x = leaf(3.0)
    first, second = mpi.allreduce(x), mpi.allreduce(x * x)
    first.sum().backward()
    assert_all(np.allclose(x.grad.numpy(), N))
    loss = second.sum() if RANK == N - 1 else x * 0
    loss.backward()
    assert_all(np.allclose(x.grad.numpy(), N + 6.0), f"{x.grad}")


def test_what_nobody_needs_is_dropped():
    x = leaf(3.0)
    mpi.allreduce(x)
    assert_all(len(state.guarded) == 1)
    (x * 2).sum().backward()
    with spmd.no_grad():
        mpi.allreduce(x)
    assert_all(np.allclose(x.grad.numpy(), 2.0))


def test_grad_asks_for_different_tensors():
    x = leaf(2.0)
    y = mpi.allreduce(x * x)
    z = mpi.allreduce(y * (RANK + 1.0))
    wanted = y if RANK == 0 else x
    found = grad(z.sum(), wanted).item()
    # dz/dy of one rank: (rank + 1), from N losses; dy/dx: 2 x, from all ranks.
    right = N * 1.0 if RANK == 0 else 4.0 * sum(N * (r + 1.0) for r in range(N))
    assert_all(np.isclose(found, right), f"{found} instead of {right}")


def test_retained_graphs_run_again():
    x = leaf(2.0)
    y = mpi.allreduce(x * x).sum()
    for times in (1, 2):
        backward(y, retain_graph=times == 1)
        assert_all(np.allclose(x.grad.numpy(), times * N * 4.0))


@pytest.mark.mpi(min_size=2)
def test_a_chain_in_which_one_message_matters():
    x = leaf(1.0 + RANK)
    for step in range(3):
        dest, source = (RANK + 1 if RANK + 1 < N else None), (RANK - 1 if RANK else None)
        y = mpi.sendrecv(x * (step + 1.0), dest, source)
        matters = y is not None and RANK == 1 and step != 1
        loss = (y * y).sum() if matters else x.sum() * 0
        x.clear_grad()
        loss.backward()
        right = 2 * (step + 1.0) ** 2 if RANK == 0 and step != 1 else 0.0
        assert_all(np.allclose(0 if x.grad is None else x.grad.numpy(), right), f"{x.grad} instead of {right}")


def test_second_order_outside():
    x = leaf(1.0 + RANK)
    y = (mpi.allreduce(x * x) ** 2).sum()  # the loss is N s^2 with s = sum of x^2
    (g,) = grad([y], [x], create_graph=True)
    (h,) = grad([g.sum()], [x])
    values = [1.0 + r for r in range(N)]
    s = sum(v * v for v in values)
    first = N * 2 * s * 2 * (1.0 + RANK)
    # g_r = 4 N s x_r; the ranks' g add up to 4 N s t with t = sum of x.
    second = 4 * N * (2 * (1.0 + RANK) * sum(values) + s)
    assert_all(np.isclose(g.item(), first) and np.isclose(h.item(), second), f"{h} instead of {second}")


def in_region(forward, x, grads="auto"):
    """The gradient of the sum of a region's local results."""
    mesh = spmd.init_mesh((N,), ("x",))
    layer = spmd.local_map(forward, [spmd.Partial()], in_grad_placements=grads, process_mesh=mesh)
    d = spmd.shard_tensor(x, mesh, [spmd.Shard(0)], requires_grad=True)
    layer(d).backward()
    return d.grad.to_local().numpy()


def test_inside_of_regions_the_fence_runs_what_one_rank_needs():
    def forward(x):
        y = mpi.allreduce(x * x, comm=None)
        left = mpi.shift(x, 1)
        unused = mpi.allgather(x)
        if RANK == 0:
            return (y * 2.0).sum() + unused[-1].sum()
        return left.sum() * RANK

    found = in_region(forward, np.arange(1.0, N + 1))
    mine = 1.0 + RANK
    right = 2.0 * 2 * mine + (RANK == N - 1) + (RANK + 1 if RANK + 1 < N else 0)
    assert_all(np.allclose(found, right), f"{found} instead of {right}")
    agree(None)


def test_second_order_inside():
    mesh = spmd.init_mesh((N,), ("x",))
    layer = spmd.local_map(lambda x: (mpi.allreduce(x * x) ** 2).sum(), [spmd.Partial()], process_mesh=mesh)
    x = spmd.shard_tensor(np.arange(1.0, N + 1), mesh, [spmd.Shard(0)], requires_grad=True)
    g = grad(layer(x), x, create_graph=True)
    h = grad(g.sum(), x).numpy()
    values = np.arange(1.0, N + 1)
    s = (values**2).sum()
    assert_all(np.allclose(h, 4 * N * (2 * values * values.sum() + s)), f"{h}")
