"""The heat source that makes a wanted temperature: control of a partial differential equation.

    mpiexec -n 2 python scripts/examples/poisson_control.py

A square plate, held at 0 along its edges, is heated by a source f; its
temperature u solves -div grad u = f.  Wanted is the source that makes u as much
like a given picture as its cost allows:

    minimise  1/2 |u(f) - wanted|^2 + alpha/2 |f|^2

The grid lies over the ranks, which exchange the lines at their edges
(`stencil`).  Each temperature is a solution by conjugate gradients, and the
gradient crosses it by one more solve (the implicit function theorem), whatever
number of steps the first one took.  L-BFGS does the rest.  The result is the
same, to rounding, on any number of ranks.
"""

import argparse
import time

import numpy as np

import spmdlayer as spmd

LAPLACE = np.array([[0.0, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 0.0]])


class Plate:
    """The grid of a square plate, sharded by rows (and by columns, where the number of ranks is a square)."""

    def __init__(self, size):
        ranks = spmd.get_world_size()
        side = round(ranks**0.5)
        square = side * side == ranks and side > 1
        self.mesh = spmd.init_mesh((side, side) if square else (ranks,))
        self.placements = [spmd.Shard(0), spmd.Shard(1)][: self.mesh.ndim]
        self.size, self.spacing = size, 1.0 / (size + 1)
        self.solves = 0

    def field(self, values):
        """A distributed field of an array that every rank has."""
        return spmd.shard_tensor(values, self.mesh, self.placements)

    def minus_laplacian(self, u):
        """-div grad u by differences, 0 beyond the edges."""
        return spmd.stencil(u, LAPLACE / self.spacing**2, "zero")

    def temperature(self, source):
        """What a source heats the plate to."""
        self.solves += 1
        u, info = spmd.linalg.cg(self.minus_laplacian, source, rtol=1e-8)
        if info:
            raise RuntimeError(f"conjugate gradients have not converged in {info} steps")
        return u


def wanted_temperature(size):
    """A disc that is hot, and a colder ring around it."""
    line = np.arange(1, size + 1) / (size + 1)
    x, y = np.meshgrid(line, line, indexing="ij")
    distance = np.hypot(x - 0.55, y - 0.45)
    return np.where(distance < 0.15, 1.0, 0.0) + np.where((distance > 0.25) & (distance < 0.35), 0.4, 0.0)


def draw(path, panels):
    """Pictures side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.8), layout="constrained")
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        image = axis.imshow(values.T, origin="lower", extent=(0, 1, 0, 1), cmap="inferno")
        axis.set_title(title)
        figure.colorbar(image, ax=axis, shrink=0.8)
    figure.savefig(path, dpi=120)


def control(size, alpha, steps):
    """The source, its temperature, what was wanted, and the values along the way."""
    plate, values = Plate(size), []
    wanted = plate.field(wanted_temperature(size))
    area = plate.spacing**2

    def cost(source):
        misfit = plate.temperature(source) - wanted
        return 0.5 * area * ((misfit * misfit).sum() + alpha * (source * source).sum())

    def report(source):
        with spmd.no_grad():
            values.append(cost(source).item())
        spmd.print_once(f"step {len(values):3}: cost {values[-1]:.6e}")

    start = time.perf_counter()
    result = spmd.optimize.lbfgs(cost, plate.field(np.zeros((size, size))), maxiter=steps, gtol=1e-8, callback=report)
    with spmd.no_grad():
        heated = plate.temperature(result.x)
    spmd.print_once(
        f"{plate.mesh.size} ranks, {size} x {size} points: cost {result.fun:.6e} after {result.nit} steps and "
        f"{plate.solves} solves in {time.perf_counter() - start:.1f} s ({result.message})"
    )
    return result.x.numpy(), heated.numpy(), wanted.numpy(), values


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64, help="points along an edge (default: 64)")
    parser.add_argument("--alpha", type=float, default=1e-6, help="what the source costs (default: 1e-6)")
    parser.add_argument("--steps", type=int, default=40, help="the most steps (default: 40)")
    parser.add_argument("--picture", default="poisson_control.png", help="where the picture goes; '' for none")
    parser.add_argument("--values", default="", help="a text file for the cost after each step")
    options = parser.parse_args()
    source, heated, wanted, values = control(options.size, options.alpha, options.steps)
    if spmd.get_rank() == 0:
        if options.values:
            np.savetxt(options.values, values)
        if options.picture:
            draw(options.picture, {"wanted": wanted, "temperature": heated, "heat source": source})
            print(f"pictures: {options.picture}")


if __name__ == "__main__":
    main()
