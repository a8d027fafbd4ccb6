"""Every operation on distributed operands under random placements, against the same on whole arrays.

Values are compared with NumPy on whole arrays where the operation is NumPy's,
gradients of first and second order with those of local tensors, which
`test_gradients` compares with finite differences.
"""

import numpy as np
import pytest
from gradient_cases import CASES
from placed import distribute, draw, meshes, placements_for

import spmdlayer as spmd

pytestmark = pytest.mark.mpi

FLAT = [pytest.param(name, *case, id=f"{name}-{k}") for name, cases in CASES.items() for k, case in enumerate(cases)]


def weights(random, shape, dtype):
    values = random.uniform(0.5, 1.5, shape)
    return values + 1j * random.uniform(0.5, 1.5, shape) if np.dtype(dtype).kind == "c" else values


def outcomes(function, inputs, weight, directions):
    """The value, and the gradients of first and second order of a weighted sum, as arrays."""
    y = function(*inputs)
    wanted = [x for x in inputs if x.requires_grad]
    results = [y]
    if y.requires_grad and wanted:
        firsts = spmd.grad(spmd.real(y * weight).sum(), wanted, create_graph=True)
        results += firsts
        total = sum(spmd.real(g * v).sum() for g, v in zip(firsts, directions))
        if total.requires_grad:
            results += spmd.grad(total, wanted)
    return [result.detach().numpy() for result in results]


def check(seed, function, arrays, gradient=True):
    random = np.random.default_rng(seed)
    mesh = draw(random, meshes())
    places = [placements_for(random, mesh, array) for array in arrays]
    print(f"seed {seed}, mesh {mesh.shape}, placements {places}, shapes {[array.shape for array in arrays]}")
    tensors = [distribute(random, mesh, array, placed) for array, placed in zip(arrays, places)]
    whole = [spmd.tensor(array) for array in arrays]
    for x, local, placed in zip(tensors, whole, places):
        np.testing.assert_allclose(x.numpy(), local.numpy(), err_msg="the operand itself", rtol=1e-12, atol=1e-12)
        if gradient and local.dtype.kind in "fc" and not any(p.is_partial("prod") for p in placed):
            x.requires_grad = local.requires_grad = True
    value = function(*whole)
    weight = weights(random, value.shape, value.dtype)
    directions = [weights(random, x.shape, x.dtype) for x in whole if x.requires_grad]
    expected = outcomes(function, whole, weight, directions)
    found = outcomes(function, tensors, weight, directions)
    assert len(found) == len(expected)
    for k, (ours, theirs) in enumerate(zip(found, expected)):
        assert ours.shape == theirs.shape, f"result {k}: shape {ours.shape}, not {theirs.shape}"
        assert ours.dtype == theirs.dtype, f"result {k}: dtype {ours.dtype}, not {theirs.dtype}"
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9, err_msg=f"result {k} (value, gradients, second)")


@pytest.mark.parametrize("name, function, arrays", FLAT)
@pytest.mark.parametrize("seed", range(2))
def test_every_differentiable_operation(name, function, arrays, seed, request):
    check([seed, *request.node.callspec.id.encode()], function, arrays)
