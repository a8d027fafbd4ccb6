"""Random programs of layers, operations and reshards, compared with NumPy on whole arrays.

A program is a list of steps, made from a seed that every failure prints.  Each
step knows how to run on distributed tensors and how to run on whole NumPy
arrays; layers take other branches on other ranks.  The loss is compared
directly, gradients by central differences of the NumPy program along random
directions, second derivatives likewise.
"""

import numpy as np
import pytest
from mpi_helpers import assert_all

import spmdlayer as spmd

pytestmark = pytest.mark.mpi

ROWS, COLUMNS = 5, 4
MESHES = {1: [(1,), (1, 1)], 2: [(2,), (2, 1), (1, 2)], 3: [(3,), (3, 1)], 4: [(4,), (2, 2), (1, 2, 2)]}
WHOLE = [spmd.Shard(0), spmd.Shard(1), spmd.Replicate(), spmd.Partial("sum"), spmd.Partial("avg"), spmd.Partial("max")]


def placements(rng, mesh):
    return [WHOLE[rng.integers(len(WHOLE))] for _ in range(mesh.ndim)]


# Steps: functions of (rng, mesh) that give a pair: on distributed tensors, on whole arrays ----------


def pointwise(rng, mesh):
    ours, theirs = [(spmd.tanh, np.tanh), (spmd.sin, np.sin), (lambda x: x * 0.7 + 0.1,) * 2, (lambda x: -x,) * 2][
        rng.integers(4)
    ]
    i, j = rng.integers(100, size=2)
    return lambda ts: ours(ts[i % len(ts)]), lambda ts: theirs(ts[i % len(ts)])


def combined(rng, mesh):
    i, j = rng.integers(100, size=2)
    kind = rng.integers(3)

    def step(ts):
        a, b = ts[i % len(ts)], ts[j % len(ts)]
        return a * b if kind == 0 else a + b if kind == 1 else a - b * 0.5

    return step, step


def mixed(rng, mesh):
    """A matrix product, a reduction that is broadcast back, a softmax, a slice put beside a slice."""
    i = rng.integers(100)
    kind = rng.integers(5)
    matrix = rng.normal(size=(COLUMNS, COLUMNS)) * 0.4

    def ours(ts):
        x = ts[i % len(ts)]
        if kind == 0:
            return x @ matrix
        if kind == 1:
            return x * x.mean(axis=0, keepdims=True)
        if kind == 2:
            return spmd.softmax(x, axis=1)
        if kind == 3:
            return x.T.reshape(COLUMNS, ROWS).T * 0.9
        return spmd.concat([x[2:], x[:2] * 2.0], axis=0)

    def theirs(ts):
        x = ts[i % len(ts)]
        if kind == 0:
            return x @ matrix
        if kind == 1:
            return x * x.mean(axis=0, keepdims=True)
        if kind == 2:
            e = np.exp(x - x.max(axis=1, keepdims=True))
            return e / e.sum(axis=1, keepdims=True)
        if kind == 3:
            return x * 0.9
        return np.concatenate([x[2:], x[:2] * 2.0], axis=0)

    return ours, theirs


def resharded(rng, mesh):
    i, target = rng.integers(100), placements(rng, mesh)
    return lambda ts: ts[i % len(ts)].reshard(target), lambda ts: ts[i % len(ts)]


def branching_layer(rng, mesh):
    """Rows over mesh axis 0: even ranks scale by a replicated tensor's sum, odd ones ignore it and loop."""
    i, j = rng.integers(100, size=2)
    rows = [spmd.Shard(0)] + [spmd.Replicate()] * (mesh.ndim - 1)
    everywhere = [spmd.Replicate()] * mesh.ndim
    recompute = bool(rng.integers(2))

    def local(x, w):
        index = mesh.coordinate[0]
        if index % 2 == 0:
            return x * w.sum() * 0.1
        for _ in range(index):
            x = spmd.sin(x) + x * 0.3
        return x

    layer = spmd.local_map(local, [rows], in_placements=[rows, everywhere], reshard_inputs=True, process_mesh=mesh,
                           recompute=recompute)

    def theirs(ts):
        x, w = ts[i % len(ts)], ts[j % len(ts)]
        pieces = []
        for index, piece in enumerate(np.array_split(x, mesh.shape[0])):
            if index % 2 == 0:
                piece = piece * w.sum() * 0.1
            else:
                for _ in range(index):
                    piece = np.sin(piece) + piece * 0.3
            pieces.append(piece)
        return np.concatenate(pieces)

    return lambda ts: layer(ts[i % len(ts)], ts[j % len(ts)]), theirs


def partial_layer(rng, mesh):
    """Each rank along axis 0 contributes another multiple of its input, some of them none."""
    i = rng.integers(100)
    factors = rng.integers(0, 3, size=mesh.shape[0]) * 0.4
    factors[rng.integers(mesh.shape[0])] = 0.8  # some rank contributes, so the loss has a gradient
    everywhere = [spmd.Replicate()] * mesh.ndim
    out = [spmd.Partial("sum")] + [spmd.Replicate()] * (mesh.ndim - 1)

    class Contribution(spmd.LocalLayer):
        def forward(self, x):
            factor = factors[mesh.coordinate[0]]
            return spmd.tanh(x) * factor if factor else spmd.zeros_like(x.detach())

    layer = Contribution([(mesh, out)], "auto", recompute=bool(rng.integers(2)))
    return (
        lambda ts: layer(ts[i % len(ts)].reshard(everywhere)),
        lambda ts: np.tanh(ts[i % len(ts)]) * factors.sum(),
    )


STEPS = [pointwise, combined, mixed, resharded, resharded, branching_layer, partial_layer]


class Program:
    """Two inputs, a number of steps, and the weighted sum of the last results."""

    def __init__(self, seed, mesh, length):
        rng = np.random.default_rng(seed)
        self.mesh = mesh
        self.values = [rng.normal(size=(ROWS, COLUMNS)) for _ in range(2)]
        starts = [placements(rng, mesh) for _ in range(2)]
        self.starts = [[p if p.kind != "partial" else spmd.Replicate() for p in start] for start in starts]
        chosen = rng.integers(len(STEPS), size=length)
        self.steps = [STEPS[k](rng, mesh) for k in chosen]
        self.weight = rng.normal(size=(ROWS, COLUMNS))
        self.directions = [rng.normal(size=(ROWS, COLUMNS)) for _ in range(2)]
        self.text = f"seed {seed}, mesh {mesh.shape}: " + ", ".join(STEPS[k].__name__ for k in chosen)

    def numpy_loss(self, values):
        tensors = list(values)
        for _, step in self.steps:
            tensors.append(step(tensors))
        return sum((t * self.weight).sum() for t in tensors[-2:])

    def loss(self):
        leaves = [spmd.shard_tensor(v, self.mesh, p, requires_grad=True) for v, p in zip(self.values, self.starts)]
        tensors = list(leaves)
        for step, _ in self.steps:
            tensors.append(step(tensors))
        total = None
        for t in tensors[-2:]:
            part = (t * self.weight).sum()
            total = part if total is None else total + part
        return leaves, total

    def moved(self, h, k=0.0, other=None):
        others = other or [0.0, 0.0]
        return self.numpy_loss([v + h * d + k * o for v, d, o in zip(self.values, self.directions, others)])

    def slope(self, h=1e-6):
        return (self.moved(h) - self.moved(-h)) / (2 * h)

    def curvature(self, h=1e-4):
        return (self.moved(h) - 2 * self.moved(0.0) + self.moved(-h)) / h**2


def close(one, other, tolerance):
    return abs(one - other) <= tolerance * (1.0 + abs(one) + abs(other))


def inner(gradients, directions):
    return sum((g.numpy() * d).sum() for g, d in zip(gradients, directions))


@pytest.mark.parametrize("block", range(6))
def test_random_programs(block):
    size = spmd.get_world_size()
    for k in range(5):
        seed = 1000 * block + k
        shape = MESHES[size][seed % len(MESHES[size])]
        program = Program(seed, spmd.init_mesh(shape, tuple("abc"[: len(shape)])), length=3 + seed % 7)
        leaves, loss = program.loss()
        value = loss.item()
        assert_all(close(value, program.numpy_loss(program.values), 1e-9), f"value of {program.text}")
        gradients = spmd.grad(loss, leaves, create_graph=True)
        slope = inner(gradients, program.directions)
        assert_all(close(slope, program.slope(), 1e-6), f"gradient of {program.text}: {slope}, {program.slope()}")
        again = sum((g * d).sum() for g, d in zip(gradients, program.directions))
        if again.requires_grad:
            curvature = inner(spmd.grad(again, leaves), program.directions)
            assert_all(
                close(curvature, program.curvature(), 2e-5),
                f"second derivative of {program.text}: {curvature}, {program.curvature()}",
            )
