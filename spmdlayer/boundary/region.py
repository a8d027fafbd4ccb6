"""A region of local code between distributed inputs and outputs: how one runs.

`Boundary` holds what is declared, `LocalLayer` and `local_map` wrap one.  A
call checks everything that can be checked, opens the region, runs the local
code, exchanges one record along the mesh, and makes the outputs distributed.
"""

from contextlib import contextmanager

from ..autograd.recompute import recompute as recomputed
from ..comm import channel
from ..config import settings, state
from ..dtypes import is_inexact
from ..errors import value_error
from . import inputs, outputs
from .attrs import AUTO, capture_divisor, check_out_placements
from .fence import Fence
from .placeholder import placeholder
from .record import exchange_record, report_failure
from .trees import flatten, unflatten
from .verify import Sites, check_outputs


class Boundary:
    """What a LocalLayer or local_map declares.

    Parameters
    ----------
    label : str, for messages
    outs : parsed out attrs (a list), see `attrs.parse_attrs`
    grads : parsed gradient attrs (a list, None or "auto")
    ins : placements that the inputs must have, or None
    reshard_inputs : bring inputs to `ins` instead of raising
    mesh : ProcessMesh where neither attrs nor inputs give one
    recompute : run the local code again in backward instead of keeping its graph
    names : what messages call (outs, grads, ins)
    """

    def __init__(
        self,
        label,
        outs,
        grads,
        ins=None,
        reshard_inputs=False,
        mesh=None,
        recompute=False,
        names=("out_dist_attrs", "grad_dist_attrs", "in_placements"),
    ):
        self.label = label
        self.outs = outs
        self.grads = grads
        self.ins = ins
        self.reshard_inputs = reshard_inputs
        self.mesh = mesh
        self.recompute = recompute
        self.names = names
        self.auto = grads == AUTO
        self._sites = Sites(label)
        self._declared = {}

    def __call__(self, function, args, kwargs, captures=()):
        """Run `function` as a region; distributed tensors in args, kwargs and captures are its inputs."""
        leaves, structure = flatten((list(args), kwargs))
        inputs.check_inputs(self.label, leaves, captures)
        mesh = self._region_mesh(leaves, captures)
        declared = self._out_placements(mesh)
        entries = () if self.auto else self._for_each_leaf(self.grads, args, 1)
        if self.ins is not None:
            wanted = self._for_each_leaf(self.ins, args, 2)
            leaves = inputs.as_declared(leaves, wanted, mesh, self.label, self.names[2], self.reshard_inputs)
        inputs.check_meshes(self.label, leaves, captures, mesh)
        if mesh.coordinate is None:
            return self._outside(declared, mesh, leaves, captures)
        call = _Call(self, mesh, declared, leaves, structure, captures)
        call.cross(entries)
        call.run(function)
        return call.finish()

    def _for_each_leaf(self, declared, args, name):
        return inputs.for_each_leaf(declared, args, self.label, self.names[name])

    def _region_mesh(self, leaves, captures):
        for entry in self.outs:
            if entry is not None and entry[0] is not None:
                return entry[0]
        if self.mesh is not None:
            return self.mesh
        for leaf in (*leaves, *captures):
            if inputs.is_distributed(leaf):
                return leaf._spec.mesh
        raise value_error(
            f"{self.label}: no mesh is known: {self.names[0]} gives placements alone and no input is distributed; "
            "write (mesh, placements)"
        )

    def _out_placements(self, mesh):
        """The checked placements of each output, None for one that stays local; dims are checked when they are known."""
        found = self._declared.get(mesh)
        if found is not None:
            return found
        declared = []
        for index, entry in enumerate(self.outs):
            name = f"{self.label}: {self.names[0]}[{index}]"
            if entry is not None and entry[0] is not None and entry[0] != mesh:
                raise value_error(
                    f"{name} is on {entry[0]!r} and another output on {mesh!r}; the outputs of one region have one mesh "
                    "(reshard moves a tensor to another)"
                )
            declared.append(None if entry is None else check_out_placements(entry[1], mesh, name))
        self._declared[mesh] = declared
        return declared

    def _outside(self, declared, mesh, leaves, captures):
        """Placeholders for a rank that the mesh does not contain, in the form of the out attrs."""
        edges = [leaf._node for leaf in (*leaves, *captures) if inputs.is_distributed(leaf)]
        made = [None if placements is None else placeholder(mesh, placements, edges) for placements in declared]
        return made[0] if len(made) == 1 else tuple(made)


class _Call:
    """One call of a Boundary on a rank of the mesh."""

    __slots__ = (
        "boundary",
        "mesh",
        "declared",
        "leaves",
        "structure",
        "captures",
        "crossings",
        "captured",
        "site",
        "compared",
        "fence",
        "line",
        "outputs",
        "out_structure",
    )

    def __init__(self, boundary, mesh, declared, leaves, structure, captures):
        self.boundary = boundary
        self.mesh = mesh
        self.declared = declared
        self.leaves = leaves
        self.structure = structure
        self.captures = captures
        self.line = channel(mesh, None)

    def cross(self, entries):
        """Decide how each input's gradient crosses."""
        own = self.boundary
        self.crossings = inputs.crossings_of(self.leaves, entries, own.auto, own.label, own.names[1])
        self.captured = inputs.captured_crossings(self.captures)
        self.site = own._sites.of(self.mesh)
        self.compared = self.site.begin_call()
        verified = any(way is not None and (way.claimed or settings.debug and way.summed) for way in self.crossings)
        self.fence = Fence(own.label, state.region, site=self.site if verified else None)

    def run(self, function):
        """Run the local code in the open region; a failure is told to the other ranks."""
        label = self.boundary.label
        try:
            with _open(self.fence.region):
                pieces = inputs.enter_region(self.leaves, self.crossings)
                captured = inputs.enter_region(self.captures, self.captured)
                body = recomputed(self._body(function)) if self.boundary.recompute else self._body(function)
                found, self.out_structure = flatten(body(pieces, captured))
                self.outputs = [outputs.as_tensor(value, index, label) for index, value in enumerate(found)]
            outputs.check_count(self.outputs, self.declared, label, self.boundary.names[0])
        except Exception as error:
            report_failure(self.line, error)
            raise

    def _body(self, function):
        captures, structure, label = self.captures, self.structure, self.boundary.label

        def body(pieces, captured):
            args, kwargs = unflatten(structure, pieces)
            if not captures:
                return function(*args, **kwargs)
            with inputs.made_local(captures, captured, label):
                return function(*args, **kwargs)

        return body

    def finish(self):
        """Agree with the other ranks on what the outputs are, and make them distributed."""
        own, name = self.boundary, self.boundary.names[0]
        rows = outputs.rows_of(self.outputs, self.declared, self.compared)
        tables = exchange_record(self.line, self.out_structure, rows, own.label, self.compared)
        layouts = outputs.layouts_of(self.outputs, self.declared, tables, self.mesh, own.label, name)
        if self.compared:
            check_outputs(self.site, tables, self.outputs, layouts, self.mesh, name)
        if not own.auto:
            self._divide_captured(layouts)
        results = outputs.leave_region(self.outputs, layouts, tables, self.mesh, self.fence, own.auto)
        return unflatten(self.out_structure, results)

    def _divide_captured(self, layouts):
        floating = [
            None if layout is None else layout.placements
            for tensor, layout in zip(self.outputs, layouts)
            if is_inexact(tensor.dtype)
        ]
        for position, (tensor, way) in enumerate(zip(self.captures, self.captured)):
            if way is not None and tensor._node is not None:
                name = f"{self.boundary.label}: captures[{position}]"
                divisor = capture_divisor(tensor._spec, self.mesh, floating, name)
                way.factor = 1 if divisor == 1 else 1.0 / divisor


@contextmanager
def _open(region):
    outside, state.region = state.region, region
    try:
        yield
    finally:
        state.region = outside
