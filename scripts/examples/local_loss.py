"""Each rank masks its own part of a distributed tensor and returns the mean of what it kept.

    mpiexec -n 2 python scripts/examples/local_loss.py

The mean is a Python computation that differs from rank to rank.  Declared
Partial("sum"), the ranks' means are pieces of one global loss; declared
Shard(0), the ranks' gradients are slices of one global gradient.
"""

import spmdlayer as spmd


def kept(rank):
    """The items that a rank keeps: 1:3 on rank 0, 4:7 on rank 1, and so on round its ten items."""
    start, stop = [(1, 3), (4, 7), (7, 9), (0, 5)][rank % 4]
    return slice(start, stop)


class MaskedMean(spmd.LocalLayer):
    """The mean of the items that this rank keeps."""

    def __init__(self, mesh, grad_placements):
        super().__init__(
            out_dist_attrs=[(mesh, [spmd.Partial("sum")])],
            grad_dist_attrs=[(mesh, grad_placements)],
        )
        self.local_result = None

    def forward(self, x):
        mask = spmd.zeros_like(x)
        mask[kept(spmd.get_rank())] = 1
        loss = (x * mask).sum() / mask.sum()
        self.local_result = loss.detach()
        return loss


def main():
    rank, size = spmd.get_rank(), spmd.get_world_size()
    mesh = spmd.init_mesh((size,), ("x",))
    local = spmd.arange(0, 10, dtype="float32") + rank

    # The seed example declares Partial for the gradient too; that is never used, as x needs no gradient.
    x = spmd.dtensor_from_local(local, mesh, [spmd.Shard(0)])
    layer = MaskedMean(mesh, [spmd.Partial("sum")])
    loss = layer(x)

    local_losses = spmd.all_gather([], layer.local_result)
    for source, local_loss in enumerate(local_losses):
        spmd.print_once(f"[Rank {source}] local_loss={local_loss}")
    spmd.print_once(f"global_loss (distributed)={loss}")

    # Each rank's gradient is its slice of the global one.
    x.requires_grad = True
    MaskedMean(mesh, [spmd.Shard(0)])(x).backward()
    gradients = spmd.all_gather([], x.grad.to_local())
    for source, gradient in enumerate(gradients):
        spmd.print_once(f"[Rank {source}] gradient=[{', '.join(f'{g:.4g}' for g in gradient.numpy())}]")


if __name__ == "__main__":
    main()
