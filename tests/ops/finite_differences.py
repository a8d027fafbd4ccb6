"""Gradients of first and second order against finite differences.

The loss is L(x) = Re sum(conj(G) f(x)); the gradient of a complex input is
dL/dx + i dL/dy.  For the second order, the gradients themselves are weighted
and summed to a number, whose derivatives with respect to the inputs and to G
are compared with differences of the first-order gradients.
"""

import numpy as np

from spmdlayer.autograd.backward import grad
from spmdlayer.autograd.tensor import tensor
from spmdlayer.ops import creation, elementwise, reductions

STEP = 1e-6


def weights(shape, dtype, seed):
    """Numbers that are nowhere small, of a shape and an inexact dtype."""
    random = np.random.default_rng(seed)
    values = random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape)
    if np.dtype(dtype).kind == "c":
        values = values * np.exp(1j * random.uniform(0, 6, shape))
    return np.asarray(values, dtype)


def difference(function, arrays, position):
    """The gradient of a real function of arrays with respect to one of them."""
    result = np.zeros(arrays[position].shape, arrays[position].dtype)
    for index in np.ndindex(result.shape):
        for direction in (1.0, 1j) if result.dtype.kind == "c" else (1.0,):
            values = []
            for sign in (+1, -1):
                moved = [np.array(array) for array in arrays]
                moved[position][index] += sign * STEP * direction
                values.append(function(*moved))
            result[index] += direction * (values[0] - values[1]) / (2 * STEP)
    return result


def tensors(arrays, requires_grad=True):
    return [tensor(array, requires_grad=requires_grad) for array in arrays]


def gradients(function, arrays, cotangent):
    """First-order gradients as arrays."""
    inputs = tensors(arrays)
    return [np.asarray(g) for g in grad(function(*inputs), inputs, [tensor(cotangent)])]


def close(found, expected, what):
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}"
    assert found.dtype == expected.dtype, f"{what}: dtype {found.dtype}, expected {expected.dtype}"
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5, err_msg=what)


def check_first(function, arrays):
    output = np.asarray(function(*tensors(arrays, requires_grad=False)).numpy())
    cotangent = weights(output.shape, output.dtype, 1)

    def loss(*values):
        result = function(*tensors(values, requires_grad=False)).numpy()
        return float(np.sum(np.real(np.conj(cotangent) * result)))

    for position, found in enumerate(gradients(function, arrays, cotangent)):
        close(found, difference(loss, arrays, position), f"gradient of input {position}")


def check_second(function, arrays):
    output = np.asarray(function(*tensors(arrays, requires_grad=False)).numpy())
    everything = [*arrays, weights(output.shape, output.dtype, 1)]
    factors = [weights(array.shape, array.dtype, 2 + k) for k, array in enumerate(arrays)]

    def weighted(*values):
        found = gradients(function, values[:-1], values[-1])
        return float(sum(np.sum(np.real(np.conj(v) * g)) for v, g in zip(factors, found)))

    inputs = tensors(everything)
    firsts = grad(function(*inputs[:-1]), inputs[:-1], [inputs[-1]], create_graph=True)
    total = creation.zeros(())
    for factor, first in zip(factors, firsts):
        total = total + reductions.sum(elementwise.real(np.conj(factor) * first))
    # A gradient that depends on nothing is a constant, off the tape.
    seconds = grad(total, inputs) if total.requires_grad else [np.zeros(x.shape, x.dtype) for x in inputs]
    for position, second in enumerate(seconds):
        expected = difference(weighted, everything, position)
        close(np.asarray(second), expected, f"second order, input {position} (the last is the cotangent)")
