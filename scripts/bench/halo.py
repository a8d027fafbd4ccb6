"""A 7-point stencil with halo exchange on a periodic grid in slabs, against NumPy and mpi4py by hand.

The hand-written code keeps its field with ghosts around it, exchanges planes
with its neighbours, and adds slices in place into a fresh result; where
several ways were worth trying, the fastest one counts.
"""

import numpy as np
from timing import interleaved

import spmdlayer as spmd

EXTENT, ROUNDS = 256, 7


def laplacian():
    """The weights of the 7-point Laplacian."""
    weights = np.zeros((3, 3, 3))
    weights[1, 1, ::2] = weights[1, ::2, 1] = weights[::2, 1, 1] = 1
    weights[1, 1, 1] = -6
    return weights


class ByHand:
    """The field of one rank, with ghosts."""

    def __init__(self, comm, piece):
        self.comm = comm
        self.field = np.pad(piece, 1)
        self.after, self.before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def exchange(self):
        """Fill the ghosts: the planes of the neighbours, then the other end along the whole dimensions."""
        u = self.field
        self.comm.Sendrecv(u[-2].copy(), self.after, 1, u[0], self.before, 1)
        self.comm.Sendrecv(u[1].copy(), self.before, 2, u[-1], self.after, 2)
        u[:, 0], u[:, -1] = u[:, -2], u[:, 1]
        u[:, :, 0], u[:, :, -1] = u[:, :, -2], u[:, :, 1]

    def neighbours(self):
        """The six neighbours of every element, and the element itself, as views."""
        u, inner = self.field, slice(1, -1)
        ends = [part for dim in range(3) for part in _ends(u, dim)]
        return ends, u[inner, inner, inner]

    def in_place(self):
        """One result, to which slices are added."""
        self.exchange()
        (first, second, *others), centre = self.neighbours()
        result = first + second
        for other in others:
            result += other
        result -= 6 * centre
        return result

    def expression(self):
        """The formula as it is written."""
        self.exchange()
        (a, b, c, d, e, f), centre = self.neighbours()
        return a + b + c + d + e + f - 6 * centre


def _ends(u, dim):
    inner = [slice(1, -1)] * 3
    for end in (slice(None, -2), slice(2, None)):
        yield u[(*inner[:dim], end, *inner[dim + 1 :])]


def main():
    """Print the figures; returns the ratio of the hand-written time to ours, forward."""
    mesh = spmd.init_mesh((spmd.get_world_size(),), ("x",))
    rows = np.array_split(np.arange(EXTENT), mesh.size)[mesh.coordinate[0]]
    piece = np.random.default_rng(mesh.coordinate[0]).random((rows.size, EXTENT, EXTENT))
    x = spmd.dtensor_from_local(piece, mesh, [spmd.Shard(0)])
    leaf = spmd.dtensor_from_local(piece, mesh, [spmd.Shard(0)])
    leaf.requires_grad = True
    hand, weights = ByHand(mesh.get_group("x"), piece), laplacian()

    def forward():
        return spmd.stencil(x, weights)

    def both():
        y = spmd.stencil(leaf, weights)
        return spmd.grad(y, leaf, x)

    same = np.allclose(forward().to_local().numpy(), hand.in_place())
    ours, with_gradient, *theirs = interleaved(
        [forward, both, hand.in_place, hand.expression], calls=1, rounds=ROUNDS, before=spmd.barrier
    )
    best, fastest = min(f.median for f in theirs), min(f.low for f in theirs)
    spmd.print_once(
        f"halo: 7-point stencil, {EXTENT}^3 float64, {mesh.size} ranks; equal to the result by hand: {same}\n"
        f"  forward               {ours}\n  forward and backward  {with_gradient}\n"
        f"  by hand, in place     {theirs[0]}\n  by hand, a formula    {theirs[1]}\n"
        f"  ratio {best / ours.median:.2f}, of the fastest {fastest / ours.low:.2f} (bar: 0.9); "
        f"backward included {with_gradient.median / ours.median:.2f} times forward (bar: 3)"
    )
    return best / ours.median


if __name__ == "__main__":
    main()
