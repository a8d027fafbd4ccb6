"""Runs a function on distributed operands under random placements and on whole arrays, and compares.

While it runs, every distributed operation is watched: its result lies as its
rule says, and it sends what the plans of its rule say.
"""

from contextlib import contextmanager

import numpy as np
from mpi_helpers import assert_all
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd
from spmdlayer.ops import distributed, registry
from spmdlayer.ops.cost import operation_bytes
from spmdlayer.ops.rules import rule_of

SINGLE = ("float32", "complex64")


class Watch:
    """Stands between `apply` and what runs an operation on distributed tensors."""

    def __init__(self, run):
        self.run = run
        self.seen = set()
        self.problems = []

    def __call__(self, op, operands, params):
        self.seen.add(op.name)
        with spmd.trace() as traced:
            result = self.run(op, operands, params)
        call = distributed.call_of(op, operands, params)
        self.compare(call, rule_of(call), result, traced)
        return result

    def compare(self, call, rule, result, traced):
        spec, coord = result._spec, result._spec.mesh.coordinate
        if rule.output is not None and spec.layout != rule.output:
            self.problems.append(f"{call}: the result has {spec.layout}, the rule says {rule.output}")
        if result._data.shape != spec.layout.local_shape(coord):
            self.problems.append(f"{call}: a piece of shape {result._data.shape} for {spec.layout} at {coord}")
        if rule.across is None or rule.sends is not None:
            expected = operation_bytes(call, coord)
            if traced.bytes() != expected:
                self.problems.append(f"{call}: {traced.bytes()} bytes sent, {expected} expected\n{traced}")


@contextmanager
def watched():
    """Watch every distributed operation; what is wrong fails the test on every rank in the end."""
    run = registry._apply_distributed
    watch = Watch(run)
    registry.set_distributed_apply(watch)
    try:
        yield watch
    finally:
        registry.set_distributed_apply(run)
    assert_all(not watch.problems, "\n".join(watch.problems[:3]))


def weights(random, shape, dtype):
    values = random.uniform(0.5, 1.5, shape)
    return values + 1j * random.uniform(0.5, 1.5, shape) if np.dtype(dtype).kind == "c" else values


def as_list(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def outcomes(function, inputs, leaves, weight, directions, second=True):
    """The value, and the gradients of first and second order of a weighted sum, as arrays."""
    results = as_list(function(*inputs))
    y = results[0]
    if leaves and y.requires_grad:
        results += spmd.grad(spmd.real(y * weight).sum(), leaves, create_graph=second)
        if second:
            results += second_order(results[-len(leaves) :], leaves, directions)
    return [result.detach().numpy() for result in results]


def known_outcomes(function, inputs, leaves, weight, directions, second):
    """The outcomes on whole arrays, and how many orders of derivatives there are: not all functions of SciPy have any.

    Returns
    -------
    (list of arrays, whether there are gradients, whether there are second ones)
    """
    for orders in (2, 1) if second else (1,):
        try:
            return outcomes(function, inputs, leaves, weight, directions, orders == 2), True, orders == 2
        except TypeError:
            if not leaves:
                raise
    return outcomes(function, inputs, [], weight, directions, False), False, False


def second_order(firsts, leaves, directions):
    total = sum(spmd.real(g * v).sum() for g, v in zip(firsts, directions))
    # Gradients that are constant may be off the tape on whole arrays and on it where they were reduced.
    return spmd.grad(total, leaves) if total.requires_grad else [spmd.zeros_like(leaf) for leaf in leaves]


def has_one_gradient(placements):
    """Whether the shares of a leaf's gradient add up to one array: not behind a mean of minima, or a product."""
    ops = [p.op for p in placements if p.is_partial()]
    linear = [op in ("sum", "avg") for op in ops]
    return "prod" not in ops and linear == sorted(linear)


def operand(random, mesh, array, placements, gradient, second):
    """(leaf or None, the distributed tensor) of an array; the leaf itself is Partial where that has a gradient."""
    if not gradient or array.dtype.kind not in "fc":
        return None, distribute(random, mesh, array, placements)
    extreme = any(p.is_partial("max") or p.is_partial("min") for p in placements)
    if has_one_gradient(placements) and not (second and extreme):  # not where nothing depends on a maximum's pieces
        x = distribute(random, mesh, array, placements)
        x.requires_grad = True
        return x, x
    whole = [spmd.Replicate() if p.is_partial() else p for p in placements]
    leaf = distribute(random, mesh, array, whole)
    leaf.requires_grad = True
    return leaf, leaf.reshard(placements)


@np.errstate(all="ignore")
def check(seed, function, arrays, gradient=True, second=True, plain=0.0, place=placements_for):
    """Compare on a random mesh; some operands stay plain arrays, with probability `plain`.  Returns what was seen.

    `place` draws the placements of an operand, as `placed.placements_for`.
    """
    random = np.random.default_rng(seed)
    mesh = draw(random, meshes())
    # Pieces that add up to an infinity or to no number are another matter: not here.
    places = [place(random, mesh, array, bool(np.isfinite(array).all())) for array in arrays]
    print(f"seed {seed}, mesh {mesh.shape}, placements {places}, shapes {[array.shape for array in arrays]}")
    pairs = [operand(random, mesh, array, placed, gradient, second) for array, placed in zip(arrays, places)]
    whole = [spmd.tensor(array) for array in arrays]
    for (leaf, x), local in zip(pairs, whole):
        exact = 1e-5 if local.dtype in SINGLE else 1e-12
        np.testing.assert_allclose(x.numpy(), local.numpy(), exact, exact, err_msg="the operand itself")
        local.requires_grad = leaf is not None
    inputs = [x for _, x in pairs]
    for k in range(1, len(inputs)):
        if random.random() < plain:
            pairs[k] = None, arrays[k]
            inputs[k], whole[k].requires_grad = arrays[k], False
    value = as_list(function(*whole))[0]
    weight = weights(random, value.shape, value.dtype)
    leaves, locals_ = [leaf for leaf, _ in pairs if leaf is not None], [x for x in whole if x.requires_grad]
    directions = [weights(random, x.shape, x.dtype) for x in locals_]
    expected, gradient, second = known_outcomes(function, whole, locals_, weight, directions, second)
    leaves = leaves if gradient else []
    with watched() as watch:
        found = outcomes(function, inputs, leaves, weight, directions, second)
    compare(found, expected)
    return watch.seen


def compare(found, expected):
    assert len(found) == len(expected)
    # Single precision anywhere on the way leaves its rounding.
    loose = any(array.dtype in SINGLE for array in expected)
    for k, (ours, theirs) in enumerate(zip(found, expected)):
        what = f"result {k} (value, gradients, second)"
        assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, not {theirs.shape}"
        assert ours.dtype == theirs.dtype, f"{what}: dtype {ours.dtype}, not {theirs.dtype}"
        if k and not np.isfinite(theirs).all():  # at a singular point; how far it spreads is rounding's matter
            continue
        rtol, atol = (2e-2, 2e-2) if ours.dtype == "float16" else (2e-4, 2e-4) if loose else (1e-7, 1e-9)
        np.testing.assert_allclose(ours, theirs, rtol, atol, err_msg=what)
