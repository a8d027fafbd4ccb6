"""Layer: parameters and sublayers by their attributes."""

import numpy as np
import pytest

import spmdlayer as spmd


class Linear(spmd.Layer):
    def __init__(self, inputs, outputs):
        rng = np.random.default_rng(inputs)
        self.weight = spmd.tensor(rng.normal(size=(inputs, outputs)), requires_grad=True)
        self.bias = spmd.tensor(np.zeros(outputs), requires_grad=True)
        self.name = "linear"

    def forward(self, x, scale=1.0):
        return (x @ self.weight + self.bias) * scale


class Network(spmd.Layer):
    def __init__(self):
        self.layers = [Linear(3, 4), Linear(4, 2)]
        self.table = {"first": Linear(2, 2), "constant": spmd.tensor([1.0])}
        self.again = self.layers[0]
        self.itself = self
        self.scale = spmd.tensor([2.0], requires_grad=True)

    def forward(self, x):
        for layer in self.layers:
            x = spmd.tanh(layer(x))
        return self.table["first"](x, scale=2.0) * self.scale


def test_names_and_parameters():
    network = Network()
    names = [name for name, _ in network.named_parameters()]
    assert names == [
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.weight",
        "layers.1.bias",
        "table.first.weight",
        "table.first.bias",
        "scale",
    ]
    expected = [network.layers[0].weight, network.layers[0].bias]
    assert [p is q for p, q in zip(network.parameters(), expected)] == [True] * 2
    assert [name for name, _ in network.named_parameters("net")][-1] == "net.scale"
    assert "table.constant" in [name for name, _ in network.named_tensors()]
    assert network.sublayers() == [*network.layers, network.table["first"]]


def test_calls_and_gradients():
    network = Network()
    x = np.random.default_rng(0).normal(size=(5, 3))
    out = network(spmd.tensor(x))
    hidden = np.tanh(x @ network.layers[0].weight.numpy())
    hidden = np.tanh(hidden @ network.layers[1].weight.numpy())
    np.testing.assert_allclose(out.numpy(), hidden @ network.table["first"].weight.numpy() * 4.0, rtol=1e-12)
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    np.testing.assert_allclose(network.table["first"].bias.grad.numpy(), [20.0, 20.0])
    network.clear_gradients()
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_shared_tensor_is_named_once():
    layer = spmd.Layer()
    layer.one = layer.other = spmd.tensor([1.0], requires_grad=True)
    assert [name for name, _ in layer.named_parameters()] == ["one"]
    layer.result = layer.one * 2.0  # no parameter: an operation made it
    assert len(layer.parameters()) == 1


def test_a_layer_without_forward():
    with pytest.raises(NotImplementedError, match="Layer has no forward"):
        spmd.Layer()(1)


@pytest.mark.mpi
def test_distributed_parameters():
    """A replicated network on a sharded batch, trained for a few steps, as NumPy does it."""
    n = spmd.get_world_size()
    mesh = spmd.init_mesh((n,))
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(7, 3)), rng.normal(size=(7, 2))
    layer = Linear(3, 2)
    start = layer.weight.numpy().copy()
    layer.weight = spmd.shard_tensor(start, mesh, [spmd.Replicate()], requires_grad=True)
    layer.bias = spmd.shard_tensor(np.zeros(2), mesh, [spmd.Replicate()], requires_grad=True)
    inputs, targets = (spmd.shard_tensor(a, mesh, [spmd.Shard(0)]) for a in (x, y))
    w, b = start, np.zeros(2)
    for _ in range(3):
        residual = layer(inputs) - targets
        (residual * residual).sum().backward()
        with spmd.no_grad():
            for parameter in layer.parameters():
                parameter -= 0.01 * parameter.grad
        layer.clear_gradients()
        error = x @ w + b - y
        w, b = w - 0.02 * x.T @ error, b - 0.02 * error.sum(0)
    np.testing.assert_allclose(layer.weight.numpy(), w, rtol=1e-12)
    np.testing.assert_allclose(layer.bias.numpy(), b, rtol=1e-12)
