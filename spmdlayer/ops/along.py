"""Reading at positions along one axis, line by line, and its adjoint.

    gather_along(x, indices)[i, k] = x[i, indices[i, k]]
    spread_along(g, indices)[i, n] = the sum of the g[i, k] where indices[i, k] == n

Each is the other's gradient.  Sorting and selecting compute positions, which
have no gradient, and read the values with one.  Where the axis is sharded,
positions and the elements that they name travel, nothing else; a few positions
that every rank knows are read where they are, and the result is Partial.
"""

from math import prod

from ..array import array_module
from ..dtypes import is_half
from ..placement import Partial, Shard
from .owners import as_lines, from_lines, group, owners_of, send_blocks, sharded
from .registry import define
from .rules import LINEAR, REPLICATE, Rule, kept_partials, layout_like, stated

# On one rank -----------------------------------------------------------------


def _gather(np, x, indices, axis, start=None):
    """`start`: where x, a piece, begins on the axis; positions outside of it read 0."""
    if start is None:
        return np.take_along_axis(x, indices, axis)
    extent = x.shape[axis]
    if not extent:
        return np.zeros((*x.shape[:axis], indices.shape[axis], *x.shape[axis + 1 :]), x.dtype)
    inside = (indices >= start) & (indices < start + extent)
    found = np.take_along_axis(x, np.clip(indices - start, 0, extent - 1), axis)
    return np.where(inside, found, x.dtype.type(0))


def _spread(np, g, indices, axis, extent, start=None):
    """Zeros of an extent with g added at the positions; those outside of a piece are dropped."""
    lines, places = as_lines(g, axis), as_lines(indices, axis)
    flat = places + extent * np.arange(len(lines))[:, None]
    if start is not None:
        inside = (places >= start) & (places < start + extent)
        lines, flat = lines[inside], (flat - start)[inside]
    out = _added(np, len(places) * extent, [(flat.reshape(-1), lines.reshape(-1))], g.dtype)
    return from_lines(out, (*g.shape[:axis], extent, *g.shape[axis + 1 :]), axis)


def _added(np, size, parts, dtype):
    """Zeros with values added at flat places, part after part; half precision in float32."""
    out = np.zeros(size, np.float32 if is_half(dtype) else dtype)
    for places, values in parts:
        np.add.at(out, places, values)
    return out.astype(dtype, copy=False)


# Rules -----------------------------------------------------------------------


def _elsewhere(call, axis, k):
    """The placement along mesh axis k of a dim other than `axis`, by the first operand that shards one; or None."""
    for operand in (0, 1):
        placement = call.placement(operand, k)
        if placement.kind == "shard":
            return None if placement.dim == axis else placement
    return None


def _kept(call):
    """The mesh axes whose Partial sums pass: those where the indices are the same on all ranks."""
    if call.layouts[0] is None:
        return ()
    kept = kept_partials(call.layouts[0].placements, LINEAR)
    return [k for k in kept if call.placement(1, k).kind == "replicate"]


def _layouts(call, axis, placed, shapes):
    """Layouts of the operands and the result, which differ in extent along `axis` at most."""
    same = list(range(len(shapes[0])))
    apart = [None if dim == axis else dim for dim in same]
    across = same if shapes[0] == shapes[1] else apart  # one operand's cuts along the axis fit the other
    first, second, third = zip(*placed)
    source = layout_like(call.mesh_shape, first, shapes[0], [(call.layouts[0], same), (call.layouts[1], across)])
    indices = layout_like(call.mesh_shape, second, shapes[1], [(source, across), (call.layouts[1], same)])
    result = layout_like(call.mesh_shape, third, shapes[2], [(source, apart), (indices, same)])
    return source, indices, result


@stated(
    "`axis` may be sharded, in the tensor and the positions",
    "positions and the elements that they name; a few positions are read in place, as Partial sums",
)
def _gather_rule(call):
    axis, (shape, wanted) = call.params["axis"], call.shapes
    along = [k for k in call.axes if call.placement(0, k).is_shard(axis)]
    # A few positions that all ranks know are read where they are.
    few = wanted[axis] * prod(call.mesh_shape[k] for k in along) <= shape[axis]
    in_place = few and all(call.placement(0, k).block is None and call.placement(1, k).kind != "shard" for k in along)
    placed, kept = [], _kept(call)
    for k in call.axes:
        own, apart = call.placement(0, k), _elsewhere(call, axis, k)
        if k in along:
            reduced = Partial("any" if call.dtypes[0].kind == "b" else "sum")
            placed.append((own, REPLICATE, reduced) if in_place else (own, Shard(axis), Shard(axis)))
        elif k in kept:
            placed.append((own, REPLICATE, own))
        elif apart is not None:
            placed.append((apart,) * 3)
        else:
            sliced = call.placement(1, k)
            sliced = sliced if sliced.kind == "shard" else REPLICATE
            placed.append((REPLICATE, sliced, sliced))
    source, indices, result = _layouts(call, axis, placed, (shape, wanted, wanted))
    if not sharded(source, axis):
        return Rule((source, indices), result)
    if in_place:
        return Rule((source, indices), result, lambda coord: {"start": source.intervals(coord, axis)[0][0]})
    return Rule((source, indices), result, across=lambda mesh, arrays, params: _ask(mesh, source, axis, *arrays))


@stated(
    "`axis` may be sharded, in the values and the positions",
    "values and their positions; a short result is a Partial sum instead",
)
def _spread_rule(call):
    axis, extent, shape = call.params["axis"], call.params["extent"], call.shapes[0]
    target = (*shape[:axis], extent, *shape[axis + 1 :])
    along = {}
    for k in call.axes:
        shards = [p for p in (call.placement(0, k), call.placement(1, k)) if p.kind == "shard"]
        if shards and shards[0].dim == axis:
            along[k] = shards[0]
    # A short result is cheaper to add up than to be delivered to.
    add_up = extent * prod(call.mesh_shape[k] for k in along) <= shape[axis]
    placed, kept = [], _kept(call)
    for k in call.axes:
        apart = _elsewhere(call, axis, k)
        if k in along:
            placed.append((along[k], along[k], Partial("sum") if add_up else Shard(axis)))
        elif k in kept:
            placed.append((call.placement(0, k), REPLICATE, call.placement(0, k)))
        else:
            placed.append((apart or REPLICATE,) * 3)
    source, indices, result = _layouts(call, axis, placed, (shape, shape, target))
    if not sharded(result, axis):
        return Rule((source, indices), result)
    return Rule((source, indices), result, across=lambda mesh, arrays, params: _deliver(mesh, result, axis, *arrays))


# Across ranks ----------------------------------------------------------------


def _ask(mesh, source, axis, x, indices):
    """The elements that this rank's positions name, from the ranks that hold them."""
    line = group(mesh, source.sharding_axes(axis))
    request = owners_of(source, axis).request(as_lines(indices, axis))
    asked = send_blocks(line, request.flat, request.counts)
    flat = as_lines(x, axis).reshape(-1)
    answers = line.alltoall([flat[places] for places in asked], [(n,) for n in request.counts.tolist()])
    return from_lines(request.restore(answers), indices.shape, axis)


def _deliver(mesh, target, axis, g, indices):
    """This rank's piece of what all ranks add at positions."""
    line = group(mesh, target.sharding_axes(axis))
    request = owners_of(target, axis).request(as_lines(indices, axis))
    values = as_lines(g, axis).reshape(-1)[request.order]
    places = send_blocks(line, request.flat, request.counts)
    values = send_blocks(line, values, request.counts)
    shape = target.local_shape(mesh.coordinate)
    out = _added(array_module(g), prod(shape), zip(places, values), g.dtype)
    return from_lines(out, shape, axis)


# The operations --------------------------------------------------------------


def _gather_vjp(g, b, p, xp):
    options = {"start": p.start} if "start" in p else {}
    return xp.spread_along(g, b, axis=p.axis, extent=p.shapes[0][p.axis], **options)


def _spread_vjp(g, b, p, xp):
    options = {"start": p.start} if "start" in p else {}
    return xp.gather_along(g, b, axis=p.axis, **options)


gather_along = define("gather_along", _gather, (_gather_vjp,), rule=_gather_rule).public
spread_along = define("spread_along", _spread, (_spread_vjp,), rule=_spread_rule).public
