"""Own shares of a gradient: what reducing a Partial axis does backwards.

For y = reduce(op, x_r over the ranks of an axis) and G = dL/dy, rank r's
share is dL/dx_r: all of G for a sum, G / n for a mean, G where x_r attains the
maximum or minimum (shared among the ranks that tie), G times the other ranks'
factors for a product.
"""

from ..array import array_module
from ..layout import Layout
from ..placement import Replicate, Shard
from .crossing import OWN, SUM, map_local, relabel, weigh


def _with(layout, axis, placement):
    placements = list(layout.placements)
    placements[axis] = placement
    return layout.with_placements(tuple(placements))


def _own_where(layout, axis, pieces):
    """The layout of shares that depend on `pieces`: Own along an axis, and wherever the pieces are Partial."""
    return layout.with_placements(
        tuple(
            OWN if k == axis or piece.kind in ("partial", "own") else placement
            for k, (placement, piece) in enumerate(zip(layout.placements, pieces.placements))
        )
    )


def share(g, axis, op, x=None, weight=None):
    """This rank's share of a Replicate cotangent along one mesh axis.

    Parameters
    ----------
    g : distributed Tensor, Replicate along `axis`: G
    x : distributed Tensor, the pieces that were reduced (max, min and prod)
    weight : raw array, this rank's part of G (max and min), see `attainment`

    Communicates a gather for prod, else nothing.
    """
    if op == "sum":
        return g
    if op == "avg":
        size = g._spec.mesh.shape[axis]
        return map_local(lambda piece: piece * (1.0 / size), [g], g._spec.layout)
    if op in ("max", "min"):
        return map_local(lambda piece: weigh(piece, weight), [g], _own_where(g._spec.layout, axis, x._spec.layout))
    if op == "prod":
        return _product_share(g, x, axis)
    raise AssertionError(f"no gradient is recorded through {op}")


def attainment(x, y, line, counts):
    """The fraction of G that goes to this rank where it attains a maximum or minimum, and how many attain it in all.

    Parameters
    ----------
    x, y : raw arrays, this rank's piece and the reduction of all pieces
    line : the Channel of the mesh axis; one reduction
    counts : how many elements attain x, where a reduction made it; None counts
        each rank once

    Where y is NaN the ranks that hold NaN attain it.
    """
    np = array_module(x)
    attains = (x == y) | (np.isnan(y) & np.isnan(x)) if x.dtype.kind in "fV" else x == y
    weight = attains.astype("float64")
    if counts is not None:
        weight = weight * counts
    total = line.allreduce(weight, "sum")
    return (weight / np.where(total == 0, 1, total)).astype(x.dtype), total


def _product_share(g, x, axis):
    """G times the product of the other ranks' pieces, exact where a factor is 0."""
    mesh, layout = g._spec.mesh, x._spec.layout
    size, here = mesh.shape[axis], mesh.coordinate[axis]
    # Every rank's piece becomes a row of one more dimension, which is then gathered along the axis.
    pieces = [
        OWN if p.kind == "partial" else Shard(p.dim + 1, p.block) if p.kind == "shard" else p for p in layout.placements
    ]
    pieces[axis] = Shard(0)
    splits = None if layout.splits is None else (None,) + tuple(layout.splits)
    rows = Layout(layout.mesh_shape, tuple(pieces), (size,) + layout.shape, splits)
    stacked = map_local(lambda piece: piece[None], [relabel_own(x, axis)], rows)
    from .reshard import reshard_to

    gathered = reshard_to(stacked, _with(rows, axis, Replicate()))

    def others(cotangent, factors):
        result = cotangent
        for row in range(size):
            if row != here:
                factor = factors[row]
                result = result * (factor.conj() if factor.dtype.kind == "c" else factor)
        return result

    return map_local(others, [g, gathered], _own_where(g._spec.layout, axis, layout))


def relabel_own(x, axis):
    """The pieces of a Partial tensor as what they are: each rank's own."""
    return relabel(x, [OWN if p.kind == "partial" else p for p in x._spec.placements])


def unmix(g, axis, op):
    """Backward of Replicate into Partial(op) along an axis: the gradient of the replicated value.

    For sum and prod the first rank alone put the value in, for avg, max and
    min all did.  `g` holds shares (Own, or Replicate where all are the same);
    the result is Replicate, or Partial('sum') still to be added.
    """
    mesh, layout = g._spec.mesh, g._spec.layout
    same = layout.placements[axis].kind == "replicate"
    if op in ("sum", "prod"):
        if same:
            return g
        first = mesh.coordinate[axis] == 0
        return map_local(lambda piece: weigh(piece, int(first)), [g], _with(layout, axis, SUM))
    if same:
        size = mesh.shape[axis]
        return map_local(lambda piece: piece * size, [g], layout)
    return relabel(g, [SUM if k == axis else p for k, p in enumerate(layout.placements)])
