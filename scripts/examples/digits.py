"""Handwritten digits: a two-layer network on data-parallel ranks, whose loss is local Python.

    mpiexec -n 2 python scripts/examples/digits.py

The weights are replicated, the batch is sharded over the ranks.  In the loss,
a LocalLayer, each rank leaves out a set of its own samples (another number on
each rank) and returns a sum and a count, declared Partial("sum"); so the
global loss is the mean over all samples that were kept, on any number of
ranks.
"""

import argparse
import time

import numpy as np

import spmdlayer as spmd
from spmdlayer.kernels import softmax_cross_entropy

CLASSES = 10


class CrossEntropy(spmd.Function):
    """The summed softmax cross-entropy of rows; the kernel gives loss and gradient in one pass."""

    @staticmethod
    def forward(ctx, logits, labels, weights):
        losses, gradient = softmax_cross_entropy(logits.numpy(), labels.numpy(), weights)
        ctx.gradient = spmd.asarray(gradient)
        return spmd.asarray(losses.sum())

    @staticmethod
    @spmd.once_differentiable
    def backward(ctx, g):
        return ctx.gradient * g, None, None


class KeptLoss(spmd.LocalLayer):
    """Sum of the losses of the samples that are kept, and their number, over this rank's samples."""

    def __init__(self, mesh):
        partial = (mesh, [spmd.Partial("sum")])
        super().__init__(out_dist_attrs=[partial, partial], grad_dist_attrs=[(mesh, [spmd.Shard(0)]), None, None])

    def forward(self, logits, labels, sample_ids, epoch):
        kept = is_kept(sample_ids.numpy(), epoch)
        loss = CrossEntropy.apply(logits, labels, kept.astype(logits.dtype))
        return loss, float(kept.sum())


def is_kept(sample_ids, epoch):
    """Which samples count in an epoch: all but about a tenth, by a hash of sample and epoch."""
    mixed = (sample_ids.astype(np.uint64) + np.uint64(epoch) * np.uint64(7919)) * np.uint64(2654435761)
    return (mixed >> np.uint64(16)) % np.uint64(10) != 0


class Network(spmd.Layer):
    """64 pixels, a hidden layer of tanh, ten logits; weights on every rank."""

    def __init__(self, mesh, hidden, seed):
        rng = np.random.default_rng(seed)

        def parameter(*shape):
            scale = 1.0 / np.sqrt(shape[0]) if len(shape) == 2 else 0.0
            values = (scale * rng.standard_normal(shape)).astype(np.float32)
            return spmd.shard_tensor(values, mesh, [spmd.Replicate()], requires_grad=True)

        self.weight_1, self.bias_1 = parameter(64, hidden), parameter(hidden)
        self.weight_2, self.bias_2 = parameter(hidden, CLASSES), parameter(CLASSES)

    def forward(self, pixels):
        hidden = spmd.tanh(pixels @ self.weight_1 + self.bias_1)
        return hidden @ self.weight_2 + self.bias_2


def load_digits(held_out=360):
    """Pixels in 0 to 1 and labels: a training set, and the last samples held out."""
    from sklearn.datasets import load_digits as load

    data = load()
    order = np.random.default_rng(0).permutation(len(data.target))
    pixels, labels = (data.data[order] / 16.0).astype(np.float32), data.target[order].astype(np.int64)
    return (pixels[:-held_out], labels[:-held_out]), (pixels[-held_out:], labels[-held_out:])


def progress(epochs):
    """The epochs, with a progress bar on the first rank."""
    from tqdm import tqdm

    return tqdm(range(epochs), unit="epoch", disable=spmd.get_rank() != 0)


def train(network, mesh, pixels, labels, options):
    """Momentum descent; returns the loss of each step."""
    loss_layer = KeptLoss(mesh)
    shard = [spmd.Shard(0)]
    parameters = network.parameters()
    velocity = [spmd.zeros_like(p) for p in parameters]
    rng = np.random.default_rng(options.seed + 1)
    curve = []
    for epoch in progress(options.epochs):
        order = rng.permutation(len(labels))
        for start in range(0, len(order), options.batch):
            chosen = order[start : start + options.batch]
            x, y, ids = (spmd.shard_tensor(a, mesh, shard) for a in (pixels[chosen], labels[chosen], chosen))
            total, count = loss_layer(network(x), y, ids, epoch=epoch)
            loss = total / count
            loss.backward()
            curve.append(loss)
            with spmd.no_grad():
                for p, v in zip(parameters, velocity, strict=True):
                    v *= options.momentum
                    v += p.grad
                    p -= options.rate * v
            network.clear_gradients()
    return [value.item() for value in curve]


def accuracy(network, mesh, pixels, labels):
    """The share of samples whose largest logit is at their label."""
    with spmd.no_grad():
        logits = network(spmd.shard_tensor(pixels, mesh, [spmd.Shard(0)]))
    return float((logits.numpy().argmax(1) == labels).mean())


def draw(curve, path):
    """The loss curve as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot(np.arange(1, len(curve) + 1), curve, linewidth=1)
    axes.set(xlabel="step", ylabel="mean loss of the kept samples", yscale="log", title="Handwritten digits")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128, help="samples a step, over all ranks")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", default="digits_loss.png", help="where the loss curve goes; empty for none")
    parser.add_argument("--curve", default="", help="a text file for the loss of each step")
    return parser.parse_args()


def main():
    options = parse_options()
    mesh = spmd.init_mesh((spmd.get_world_size(),), ("data",))
    (pixels, labels), held_out = load_digits()
    network = Network(mesh, options.hidden, options.seed)
    began = time.perf_counter()
    curve = train(network, mesh, pixels, labels, options)
    seconds = time.perf_counter() - began
    share = accuracy(network, mesh, *held_out)
    spmd.print_once(
        f"{mesh.size} ranks, {options.epochs} epochs in {seconds:.1f} s: "
        f"loss {curve[0]:.4f} -> {curve[-1]:.4f}, held-out accuracy {100 * share:.1f} %"
    )
    if spmd.get_rank() == 0:
        if options.curve:
            np.savetxt(options.curve, curve)
        if options.picture:
            draw(curve, options.picture)
            print(f"loss curve: {options.picture}")


if __name__ == "__main__":
    main()
