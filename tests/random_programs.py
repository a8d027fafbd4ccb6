"""Random programs of layers, operations and reshards, each in two forms: on distributed tensors, and NumPy's.

A program is a list of steps on arrays of one shape, made from a seed that every
failure prints.  Layers take other branches on other ranks, loop another number
of times, or ignore an input.  Derivatives of the NumPy form are taken along
random directions by complex steps, Im f(x + ih d) / h, which cancel nothing
(Squire and Trapp, SIAM Review 40, 1998), so long programs can be compared too.
"""

import numpy as np
from mpi_helpers import assert_all

import spmdlayer as spmd

MESHES = {1: [(1,), (1, 1)], 2: [(2,), (2, 1), (1, 2)], 3: [(3,), (3, 1)], 4: [(4,), (2, 2), (1, 2, 2), (4, 1)]}
PLACEMENTS = [spmd.Shard(0), spmd.Shard(1), spmd.Shard(0, block=2), spmd.Replicate(), spmd.Replicate()]
PLACEMENTS += [spmd.Partial("sum"), spmd.Partial("avg"), spmd.Partial("max")]
STEP = 1e-30  # of complex steps


def placements(rng, mesh, among=PLACEMENTS):
    return [among[rng.integers(len(among))] for _ in range(mesh.ndim)]


def along_first(mesh, placement):
    """A placement along mesh axis 0, copies along the others."""
    return [placement] + [spmd.Replicate()] * (mesh.ndim - 1)


def everywhere(mesh):
    return [spmd.Replicate()] * mesh.ndim


class Picked:
    """One of the results so far: drawn when the program is made, taken when it runs."""

    def __init__(self, rng):
        self.number = int(rng.integers(1000))

    def __call__(self, results):
        return results[-1 - self.number % min(len(results), 6)]


# Steps: functions of (rng, mesh, shape) that give a pair, on distributed tensors and on whole arrays -----------------


def pointwise(rng, mesh, shape):
    ours, theirs = [
        (spmd.tanh, np.tanh),
        (spmd.sin, np.sin),
        (lambda x: x * 0.7 + 0.1,) * 2,
        (lambda x: -x,) * 2,
        (lambda x: spmd.exp(spmd.sin(x)), lambda x: np.exp(np.sin(x))),
        (lambda x: x / (1.0 + spmd.square(x)), lambda x: x / (1.0 + x * x)),
    ][rng.integers(6)]
    pick = Picked(rng)
    return lambda rs: ours(pick(rs)), lambda rs: theirs(pick(rs))


def combined(rng, mesh, shape):
    a, b, kind = Picked(rng), Picked(rng), rng.integers(3)

    def step(rs):
        one, other = a(rs), b(rs)
        return one * other * 0.5 if kind == 0 else one * 0.5 + other if kind == 1 else one - other * 0.5

    return step, step


def numpy_softmax(x):
    e = np.exp(x - x.real.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def whole_array(rng, mesh, shape):
    """A matrix product, reductions that are broadcast back, a running sum, an order, a slice put beside a slice."""
    rows, columns = shape
    pick, kind, matrix = Picked(rng), rng.integers(9), rng.normal(size=(columns, columns)) * 0.4
    rows_taken, cut, turn = rng.integers(rows, size=rows), int(rng.integers(rows + 1)), int(rng.integers(-3, 4))
    ours = [
        lambda x: x @ matrix,
        lambda x: x * x.mean(axis=0, keepdims=True),
        lambda x: spmd.softmax(x, axis=1),
        lambda x: x.T.reshape(columns, rows).T * 0.9,
        lambda x: spmd.concat([x[cut:], x[:cut] * 2.0], axis=0),
        lambda x: spmd.cumulative_sum(x, axis=0) * 0.3,
        lambda x: x[rows_taken] * 0.5,
        lambda x: spmd.roll(x, turn, axis=0) - spmd.flip(x, axis=1) * 0.5,
        lambda x: spmd.sort(x, axis=0) * 0.8,
    ][kind]
    theirs = [
        lambda x: x @ matrix,
        lambda x: x * x.mean(axis=0, keepdims=True),
        numpy_softmax,
        lambda x: x * 0.9,
        lambda x: np.concatenate([x[cut:], x[:cut] * 2.0], axis=0),
        lambda x: np.cumsum(x, axis=0) * 0.3,
        lambda x: x[rows_taken] * 0.5,
        lambda x: np.roll(x, turn, axis=0) - np.flip(x, axis=1) * 0.5,
        lambda x: np.sort(x, axis=0) * 0.8,  # complex numbers by their real parts first
    ][kind]
    return lambda rs: ours(pick(rs)), lambda rs: theirs(pick(rs))


def resharded(rng, mesh, shape):
    pick, target = Picked(rng), placements(rng, mesh)
    return lambda rs: pick(rs).reshard(target), lambda rs: pick(rs)


def branching_layer(rng, mesh, shape):
    """Rows over mesh axis 0: even ranks scale by a replicated tensor's sum, odd ones ignore it and loop."""
    a, b, recompute = Picked(rng), Picked(rng), bool(rng.integers(2))
    rows = along_first(mesh, spmd.Shard(0))

    def local(x, w):
        index = mesh.coordinate[0]
        if index % 2 == 0:
            return x * spmd.tanh(w.sum())
        for _ in range(index):
            x = spmd.sin(x) + x * 0.3
        return x

    layer = spmd.local_map(
        local, [rows], [rows, everywhere(mesh)], reshard_inputs=True, process_mesh=mesh, recompute=recompute
    )

    def theirs(rs):
        x, w = a(rs), b(rs)
        pieces = np.array_split(x, mesh.shape[0])
        for index, piece in enumerate(pieces):
            if index % 2 == 0:
                pieces[index] = piece * np.tanh(w.sum())
            for _ in range(index if index % 2 else 0):
                pieces[index] = np.sin(pieces[index]) + pieces[index] * 0.3
        return np.concatenate(pieces)

    return lambda rs: layer(a(rs), b(rs)), theirs


def partial_layer(rng, mesh, shape):
    """Each rank along axis 0 contributes another multiple of its input, some of them none."""
    pick, factors = Picked(rng), rng.integers(0, 3, size=mesh.shape[0]) * 0.4
    factors[rng.integers(mesh.shape[0])] = 0.8  # some rank contributes, so the loss has a gradient

    class Contribution(spmd.LocalLayer):
        def forward(self, x):
            factor = factors[mesh.coordinate[0]]
            return spmd.tanh(x) * factor if factor else spmd.zeros_like(x.detach())

    out = along_first(mesh, spmd.Partial("sum"))
    layer = Contribution([(mesh, out)], "auto", recompute=bool(rng.integers(2)))
    return lambda rs: layer(pick(rs).reshard(everywhere(mesh))), lambda rs: np.tanh(pick(rs)) * factors.sum()


def two_outputs(rng, mesh, shape):
    """Explicit attrs: rows and, as a Partial sum, what they add up to; ranks use the inputs in another order."""
    a, b = Picked(rng), Picked(rng)
    rows, total = along_first(mesh, spmd.Shard(0)), along_first(mesh, spmd.Partial("sum"))

    class Rows(spmd.LocalLayer):
        def forward(self, x, y):
            if mesh.coordinate[0] % 2:
                product = y * x
                return {"rows": product, "total": y.sum() + x.sum() * 0.1}
            added = x.sum() * 0.1
            return {"rows": x * y, "total": added + y.sum()}

    layer = Rows([(mesh, rows), (mesh, total)], [(mesh, rows), (mesh, rows)])

    def ours(rs):
        found = layer(a(rs).reshard(rows), b(rs).reshard(rows))
        return found["rows"] * 0.5 + spmd.tanh(found["total"])

    def theirs(rs):
        x, y = a(rs), b(rs)
        return x * y * 0.5 + np.tanh(y.sum() + x.sum() * 0.1)

    return ours, theirs


def nested_layer(rng, mesh, shape):
    """A layer with a captured tensor, and in it another layer, a reshard, and a collective that each rank calls."""
    a, b, shift = Picked(rng), Picked(rng), bool(rng.integers(2))
    rows, copies = along_first(mesh, spmd.Shard(0)), everywhere(mesh)
    ranks = mesh.shape[0]

    def ours(rs):
        x, w = a(rs).reshard(rows), b(rs).reshard(copies)

        def inner(piece):
            return piece * 0.5 if mesh.coordinate[0] == 0 else spmd.sin(piece)

        def local(piece):
            whole = spmd.dtensor_from_local(piece, mesh, rows)
            halved = spmd.local_map(inner, [rows], process_mesh=mesh)(whole)
            # By the auto rule each copy has its part in the gradient, along every axis.
            everything = halved.reshard(copies).to_local(grad_placements=[spmd.Partial("sum")] * mesh.ndim)
            used = w.sum() * 0.1 if mesh.coordinate[0] % 2 else 1.0
            total = spmd.mpi.allreduce(piece.sum(), comm=(mesh, 0)) if shift else 0.0
            return piece * used + spmd.tanh(everything.sum()) + spmd.sin(total)

        return spmd.local_map(local, [rows], process_mesh=mesh, captures=[w])(x)

    def theirs(rs):
        x, w = a(rs), b(rs)
        pieces = np.array_split(x, ranks)
        halved = [piece * 0.5 if index == 0 else np.sin(piece) for index, piece in enumerate(pieces)]
        added = np.tanh(sum(piece.sum() for piece in halved)) + (np.sin(x.sum()) if shift else 0.0)
        used = [w.sum() * 0.1 if index % 2 else 1.0 for index in range(ranks)]
        return np.concatenate([piece * factor + added for piece, factor in zip(pieces, used)])

    return ours, theirs


STEPS = [pointwise, combined, whole_array, whole_array, resharded, resharded, branching_layer, partial_layer]
STEPS += [two_outputs, nested_layer]


class Program:
    """Two inputs, a number of steps, and the weighted sum of the last results."""

    def __init__(self, seed, mesh, length):
        rng = np.random.default_rng(seed)
        shape = (int(rng.integers(1, 8)), int(rng.integers(1, 5)))
        self.mesh = mesh
        self.values = [rng.normal(size=shape) for _ in range(2)]
        self.starts = [placements(rng, mesh, PLACEMENTS[:5]) for _ in range(2)]
        chosen = rng.integers(len(STEPS), size=length)
        self.steps = [STEPS[k](rng, mesh, shape) for k in chosen]
        self.weight = rng.normal(size=shape)
        self.directions = [rng.normal(size=shape) for _ in range(2)]
        self.text = f"seed {seed}, mesh {mesh.shape}, shape {shape}: " + ", ".join(STEPS[k].__name__ for k in chosen)

    def loss(self):
        """The leaves, and the loss of the distributed form."""
        leaves = [spmd.shard_tensor(v, self.mesh, p, requires_grad=True) for v, p in zip(self.values, self.starts)]
        results = list(leaves)
        for step, _ in self.steps:
            results.append(step(results))
        return leaves, sum((x * self.weight).sum() for x in results[-3:])

    def numpy_loss(self, values):
        """The loss of whole arrays."""
        results = list(values)
        for _, step in self.steps:
            results.append(step(results))
        return sum((x * self.weight).sum() for x in results[-3:])

    def slope(self, along=0.0):
        """The derivative along the directions, at the inputs moved that far along them."""
        moved = [v + (along + 1j * STEP) * d for v, d in zip(self.values, self.directions)]
        return self.numpy_loss(moved).imag / STEP

    def curvature(self, h=1e-5):
        """The second derivative along the directions."""
        return (self.slope(h) - self.slope(-h)) / (2 * h)


def close(one, other, tolerance):
    return abs(one - other) <= tolerance * (1.0 + abs(one) + abs(other))


def inner(gradients, directions):
    return sum((g.numpy() * d).sum() for g, d in zip(gradients, directions))


def check_program(program, second):
    """The value, the slope and, if asked, the curvature of both forms must be equal; a failure is one on all ranks."""
    leaves, loss = program.loss()
    value, wanted = loss.item(), program.numpy_loss(program.values)
    assert_all(close(value, wanted, 1e-9), f"value {value} instead of {wanted}: {program.text}")
    gradients = spmd.grad(loss, leaves, create_graph=second)
    slope, wanted = inner(gradients, program.directions), program.slope()
    assert_all(close(slope, wanted, 1e-8), f"slope {slope} instead of {wanted}: {program.text}")
    if not second:
        return
    again = sum((g * d).sum() for g, d in zip(gradients, program.directions))
    curvature, wanted = 0.0, program.curvature()
    if again.requires_grad:
        curvature = inner(spmd.grad(again, leaves), program.directions)
    assert_all(close(curvature, wanted, 1e-5), f"curvature {curvature} instead of {wanted}: {program.text}")


def mesh_for(seed):
    """One of the meshes over all ranks."""
    shapes = MESHES[spmd.get_world_size()]
    shape = shapes[seed % len(shapes)]
    return spmd.init_mesh(shape, tuple("abc"[: len(shape)]))
