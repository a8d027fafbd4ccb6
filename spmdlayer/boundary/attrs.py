"""What a layer declares: attrs of its outputs and of its inputs' gradients.

An attr is `(mesh, placements)`, as in Paddle, a bare list of placements where
the mesh can be taken from elsewhere, or None.  In the placements of a gradient
None stands for the input's own along that axis.
"""

from functools import lru_cache
from itertools import product

from ..errors import type_error, value_error
from ..layout import Layout
from ..mesh import ProcessMesh
from ..placement import Placement, normalise
from ..redistribute.crossing import OWN, SUM, cotangent_layout

AUTO = "auto"


def parse_attrs(attrs, argument):
    """A list of (mesh or None, placements or None), or AUTO, or None for "None for each".

    A flat list of placements is one entry.
    """
    if attrs is None or (isinstance(attrs, str) and attrs == AUTO):
        return attrs
    if isinstance(attrs, str):
        raise value_error(f"{argument}: {attrs!r} was given; the only word is 'auto', else a list of attrs")
    if not isinstance(attrs, (list, tuple)):
        raise type_error(
            f"{argument}: a list with one (mesh, placements) or None per tensor is needed, not {type(attrs).__name__}"
        )
    if attrs and all(isinstance(entry, Placement) for entry in attrs):
        return [(None, tuple(attrs))]
    if len(attrs) == 2 and isinstance(attrs[0], ProcessMesh):
        return [(attrs[0], placement_list(attrs[1], argument))]
    return [_entry(entry, f"{argument}[{index}]") for index, entry in enumerate(attrs)]


def parse_outs(attrs, argument):
    """The attrs of outputs: a list with an entry for each."""
    parsed = parse_attrs(attrs, argument)
    if parsed is None or parsed == AUTO:
        raise type_error(f"{argument}: a list with an entry per output is needed, {attrs!r} was given")
    return parsed


def _entry(entry, argument):
    if entry is None:
        return None
    if isinstance(entry, (list, tuple)):
        if len(entry) == 2 and isinstance(entry[0], ProcessMesh):
            return entry[0], placement_list(entry[1], argument)
        if entry and all(item is None or isinstance(item, Placement) for item in entry):
            return None, tuple(entry)
    if isinstance(entry, Placement):
        raise type_error(f"{argument}: a list of placements is needed, one per mesh axis; write [{entry!r}]")
    raise type_error(f"{argument}: (mesh, placements), a list of placements or None is needed, not {entry!r}")


def placement_list(placements, argument):
    """The placements as a tuple; raises for what is no list."""
    if isinstance(placements, Placement) or not isinstance(placements, (list, tuple)):
        raise type_error(f"{argument}: a list of placements is needed, one per mesh axis, not {placements!r}")
    return tuple(placements)


def check_out_placements(placements, mesh, argument):
    """Checked placements of an output; its dimensions are checked when they are known."""
    return normalise(placements, mesh.ndim, None, mesh.dim_names, argument)


def gradient_layout(entry, spec, argument, requires_grad):
    """How the local gradient of an input is read, as a Layout.

    Raises, before any communication, for an attr that cannot hold the local
    gradient, when the input requires grad.
    """
    layout = spec.layout
    if entry is None or entry[1] is None:
        return cotangent_layout(layout)
    mesh, placements = entry
    if mesh is not None and mesh != spec.mesh:
        raise value_error(f"{argument}: its mesh is {mesh!r}, but the input is on {spec.mesh!r}; give the input's mesh")
    if len(placements) == spec.mesh.ndim:
        placements = [own if item is None else item for own, item in zip(spec.placements, placements)]
    ndim = len(spec.shape) if requires_grad else None
    wanted = normalise(placements, spec.mesh.ndim, ndim, spec.mesh.dim_names, argument)
    if not requires_grad:
        return cotangent_layout(layout)
    return _readable(layout, wanted, argument, spec.mesh.dim_names)


@lru_cache(maxsize=4096)
def _readable(layout, wanted, argument, dim_names):
    placements = []
    for axis, (own, declared) in enumerate(zip(layout.placements, wanted)):
        where = repr(dim_names[axis]) if dim_names else str(axis)
        if own.kind in ("partial", "own"):
            if declared != own:
                raise value_error(
                    f"{argument}: along mesh axis {where} the input is {own!r}, so its gradient goes back share for "
                    f"share; {declared!r} was declared, {own!r} or None is right"
                )
            placements.append(OWN)
            continue
        if declared.kind == "partial" and declared.op != "sum":
            raise value_error(
                f"{argument}: gradients are read as Shard, Replicate or Partial('sum'); {declared!r} was declared "
                f"along mesh axis {where}"
            )
        placements.append(declared)
    result = layout.with_placements(tuple(placements))
    for coord in product(*map(range, layout.mesh_shape)):
        have, need = layout.local_shape(coord), result.local_shape(coord)
        if have != need:
            raise value_error(
                f"{argument}: the gradient is declared {list(wanted)}, which needs local shape {need} of global shape "
                f"{layout.shape}, but the input, and so its local gradient, has local shape {have} at mesh coordinate "
                f"{coord}; {list(layout.placements)} or None fits"
            )
    return result


@lru_cache(maxsize=4096)
def auto_layout(layout):
    """How the gradient of an input is read by the auto rule: what is Replicate is summed."""
    placements = {"replicate": SUM, "partial": OWN}
    return layout.with_placements(tuple(placements.get(own.kind, own) for own in layout.placements))


def check_inside_auto(layout, placements, region, argument):
    """Raise where the gradient of copies is declared Replicate inside a region with the auto rule.

    There the gradient that each rank has is its part, so `placements`, those
    declared, cannot say that all ranks have the whole.
    """
    for axis, (own, declared, size) in enumerate(zip(layout.placements, placements, layout.mesh_shape)):
        if size > 1 and own.kind == "replicate" and declared is not None and declared.kind == "replicate":
            raise value_error(
                f"{argument}: Replicate() was declared along mesh axis {axis} inside {region.label}, which declares "
                "\"auto\": there each rank's gradient is its part of the whole, and Partial('sum') or None is right"
            )


def capture_divisor(spec, mesh, outputs, argument):
    """What the sum of a captured tensor's gradients is divided by, with explicit attrs.

    `outputs` are the floating outputs' placements (None: it stays local).
    Where all of them are Replicate along an axis every rank got the whole
    cotangent, so the sum counts it n times.
    """
    if not outputs:
        return 1
    axes = [axis for axis, size in enumerate(mesh.shape) if size > 1]
    copies = {axis: [o is not None and o[axis].kind == "replicate" for o in outputs] for axis in axes}
    if spec.mesh != mesh:
        if not any(any(found) for found in copies.values()):
            return 1
        raise value_error(
            f"{argument}: it is on {spec.mesh!r} and a Replicate output on {mesh!r}, so it is not known what each rank "
            'contributes to its gradient; use "auto" for the gradients, or one mesh'
        )
    divisor = 1
    for axis in axes:
        if spec.placements[axis].kind != "replicate":
            continue
        if all(copies[axis]):
            divisor *= mesh.shape[axis]
        elif any(copies[axis]):
            where = repr(mesh.dim_names[axis]) if mesh.dim_names else str(axis)
            raise value_error(
                f"{argument}: some outputs are Replicate along mesh axis {where} and some are not, so it is not known "
                'what each rank contributes to its gradient; use "auto" for the gradients'
            )
    return divisor


def layout_of(mesh, placements, local_shapes, argument):
    """The Layout of an output, from every rank's local shape."""
    ndims = {len(shape) for shape in local_shapes}
    ndim = max(ndims)
    checked = normalise(placements, mesh.ndim, ndim, mesh.dim_names, argument)
    first = local_shapes[0]
    if all(shape == first for shape in local_shapes):
        return _even(mesh.shape, checked, first)
    try:
        return Layout.from_local_shapes(mesh.shape, checked, local_shapes)
    except ValueError as error:
        raise value_error(f"{argument}: {str(error).partition('local: ')[2]}") from None


@lru_cache(maxsize=4096)
def _even(mesh_shape, placements, local_shape):
    coords = product(*map(range, mesh_shape))
    return Layout.from_local_shapes(mesh_shape, placements, dict.fromkeys(coords, local_shape))
