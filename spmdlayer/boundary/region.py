"""A region of local code between distributed inputs and outputs: how one runs.

`Boundary` holds what is declared, `LocalLayer` and `local_map` wrap one.  A
call checks everything that can be checked, opens the region, runs the local
code, exchanges one record along the mesh, and makes the outputs distributed.
"""

from ..autograd.recompute import recompute as recomputed
from ..autograd.tensor import Tensor
from ..comm import channel
from ..config import settings, state
from ..dtypes import is_inexact
from ..errors import value_error
from ..redistribute.crossing import REPLICATE
from . import inputs, outputs
from .attrs import AUTO, capture_divisor, check_out_placements
from .fence import Fence
from .placeholder import placeholder
from .record import exchange_record, pack_record, report_failure
from .trees import SINGLE, flatten, flatten_arguments, unflatten, unflatten_arguments
from .verify import Sites, check_outputs

_MOST_WAYS = 256  # that are remembered, for as many combinations of input layouts


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
        self._ways = {}

    def __call__(self, function, args, kwargs, captures=()):
        """Run `function` as a region; distributed tensors in args, kwargs and captures are its inputs."""
        leaves, structure = flatten_arguments(args, kwargs)
        key = self._key(leaves, structure, captures) if state.region is None and self.ins is None else None
        way = self._ways.get(key) if key is not None else None
        if way is None:
            leaves, way = self._way(args, leaves, captures)
            if key is not None and way.line is not None:
                if len(self._ways) >= _MOST_WAYS:
                    self._ways.clear()
                self._ways[key] = way
        if way.line is None:
            return self._outside(way.declared, way.mesh, leaves, captures)
        call = _Call(self, way, captures)
        call.run(function, leaves, structure)
        return call.finish()

    def _key(self, leaves, structure, captures):
        """What decides how a call's inputs cross; None where that is worked out at each call."""
        key = [structure, len(leaves)]
        for leaf in (*leaves, *captures) if captures else leaves:
            if type(leaf) is not Tensor or leaf._spec is None:
                key.append(None)
                continue
            spec = leaf._spec
            if spec.region is not None:
                return None
            # Specs that a way has been worked out for live as long as it: their identity is enough.
            key += (id(spec), leaf._node is None)
        return tuple(key)

    def _way(self, args, leaves, captures):
        """The leaves as declared, and how they cross: all that is checked before anything is communicated."""
        inputs.check_inputs(self.label, leaves, captures)
        mesh = self._region_mesh(leaves, captures)
        declared = self._out_placements(mesh)
        entries = () if self.auto else self._for_each_leaf(self.grads, args, 1)
        if self.ins is not None:
            wanted = self._for_each_leaf(self.ins, args, 2)
            leaves = inputs.as_declared(leaves, wanted, mesh, self.label, self.names[2], self.reshard_inputs)
        inputs.check_meshes(self.label, leaves, captures, mesh)
        if mesh.coordinate is None:
            return leaves, _Way(mesh, declared, None, None, ())
        crossings = inputs.crossings_of(leaves, entries, self.auto, self.label, self.names[1])
        specs = [x._spec for x in (*leaves, *captures) if isinstance(x, Tensor)]
        return leaves, _Way(mesh, declared, channel(mesh, None), self._sites.of(mesh), crossings, specs)

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
        """The checked placements of each output, None for one that stays local; dims are checked later."""
        found = self._declared.get(mesh)
        if found is not None:
            return found
        declared = []
        for index, entry in enumerate(self.outs):
            name = f"{self.label}: {self.names[0]}[{index}]"
            if entry is not None and entry[0] is not None and entry[0] != mesh:
                raise value_error(
                    f"{name} is on {entry[0]!r} and another output on {mesh!r}; the outputs of one region have one "
                    "mesh (reshard moves a tensor to another)"
                )
            declared.append(None if entry is None else check_out_placements(entry[1], mesh, name))
        self._declared[mesh] = declared
        return declared

    def _outside(self, declared, mesh, leaves, captures):
        """Placeholders for a rank that the mesh does not contain, in the form of the out attrs."""
        edges = [leaf._node for leaf in (*leaves, *captures) if inputs.is_distributed(leaf)]
        made = [None if placements is None else placeholder(mesh, placements, edges) for placements in declared]
        return made[0] if len(made) == 1 else tuple(made)


class _Way:
    """How the inputs of a call cross: worked out once for all calls with inputs of the same layouts.

    Attributes
    ----------
    mesh, declared : of the region, and the placements of each output
    line : the Channel of the mesh; None on a rank outside it
    site : the counters of verification
    crossings : a Crossing for each leaf of the arguments, None for one that isn't distributed
    claimed, summed : whether a gradient is declared Replicate, or Partial('sum')
    copies : whether an output is declared Replicate
    known : the _Known of the last call in which all ranks' records were equal, outside of other regions; or None
    specs : of the inputs, kept alive
    """

    __slots__ = ("mesh", "declared", "line", "site", "crossings", "claimed", "summed", "copies", "known", "specs")

    def __init__(self, mesh, declared, line, site, crossings, specs=()):
        self.mesh = mesh
        self.specs = specs
        self.declared = declared
        self.line = line
        self.site = site
        self.crossings = crossings
        self.known = None
        self.copies = any(placements is not None and REPLICATE in placements for placements in declared)
        self.claimed = any(crossing is not None and crossing.claimed for crossing in crossings)
        self.summed = any(crossing is not None and crossing.summed for crossing in crossings)


class _Known:
    """What all ranks' outputs were, where they were equal: the next call that gives the same need not work it out.

    Attributes
    ----------
    structure : of the outputs
    signature : (shape, dtype, whether it requires grad) of each
    rows, record : this rank's, see `record`
    specs, recorded : the Spec of each output, and whether it is put on the tape
    """

    __slots__ = ("structure", "signature", "rows", "record", "specs", "recorded")

    def __init__(self, structure, tensors, rows, record, specs, recorded):
        self.structure = structure
        self.signature = [(t.shape, t.dtype, row.requires_grad) for t, row in zip(tensors, rows)]
        self.rows = rows
        self.record = record
        self.specs = specs
        self.recorded = recorded


class _Call:
    """One call of a Boundary on a rank of the mesh."""

    __slots__ = ("boundary", "way", "captures", "captured", "compared", "fence", "found", "structure", "same")

    def __init__(self, boundary, way, captures):
        self.boundary = boundary
        self.way = way
        self.captures = captures
        self.same = False
        self.captured = inputs.captured_crossings(captures) if captures else ()
        self.compared = way.copies and way.site.begin_call()
        verified = way.claimed or (way.summed and settings.debug)
        self.fence = Fence(boundary.label, state.region, (), way.site if verified else None, boundary.auto)

    def run(self, function, leaves, structure):
        """Run the local code in the open region; a failure is told to the other ranks."""
        own, way, fence = self.boundary, self.way, self.fence
        outside, state.region = state.region, fence.region
        try:
            pieces = inputs.enter_region(leaves, way.crossings, fence)
            if structure is None and not self.captures and not own.recompute:
                result = function(*pieces)
            else:
                body = self._body(function, structure)
                captured = inputs.enter_region(self.captures, self.captured, fence)
                result = (recomputed(body) if own.recompute else body)(pieces, captured)
            values, self.structure = ([result], SINGLE) if type(result) is Tensor else flatten(result)
            if self.again(values):
                self.found = values
            else:
                self.found = outputs.collect(values, way.declared, self.compared, own.label, own.names[0])
        except Exception as error:
            state.region = outside
            report_failure(way.line, error)
            raise
        finally:
            state.region = outside

    def _body(self, function, structure):
        captures, label = self.captures, self.boundary.label

        def body(pieces, captured):
            args, kwargs = unflatten_arguments(structure, pieces)
            if not captures:
                return function(*args, **kwargs)
            with inputs.made_local(captures, captured, label):
                return function(*args, **kwargs)

        return body

    def again(self, values):
        """Whether the code returned what it did at the last call on which all ranks agreed, up to the numbers."""
        known = self.way.known
        if known is None or self.compared or known.structure != self.structure or self.fence.region.parent is not None:
            return False
        enabled = state.grad_enabled
        for value, (shape, dtype, wanted) in zip(values, known.signature):
            if type(value) is not Tensor or value._spec is not None:
                return False
            data = value._data
            if data.shape != shape or data.dtype != dtype or (enabled and value._node is not None) is not wanted:
                return False
        self.same = True
        return True

    def finish(self):
        """Agree with the other ranks on what the outputs are, and make them distributed."""
        own, way, structure = self.boundary, self.way, self.structure
        if self.same:
            known, tensors = way.known, self.found
            rows, numbers, specs, wanted = known.rows, (), known.specs, known.recorded
            mine = known.record
        else:
            tensors, rows, numbers = self.found
            mine = pack_record(structure, rows, self.compared)
        tables = exchange_record(way.line, mine, rows, own.label)
        if not self.same or tables.count(rows) < len(tables):
            tensors, specs, wanted = self._agree(tables, tensors, rows, numbers, mine)
        if self.captures and not own.auto:
            self._divide_captured(tensors, specs)
        results = outputs.leave_region(tensors, specs, wanted, self.fence, own.auto)
        return results[0] if structure is SINGLE else unflatten(structure, results)

    def _agree(self, tables, tensors, rows, numbers, mine):
        """The outputs with the dtypes, their Specs, and which are recorded, as all ranks' rows say."""
        own, way, name = self.boundary, self.way, self.boundary.names[0]
        equal = tables.count(rows) == len(tables)
        if not equal:
            tensors = outputs.with_agreed_dtypes(tensors, numbers, tables, own.label, name)
        specs = outputs.specs_of(tensors, way.declared, tables, way.mesh, own.label, name)
        wanted = [any(column) for column in zip(*([row.requires_grad for row in table] for table in tables))]
        wanted = [flag and is_inexact(tensor.dtype) for flag, tensor in zip(wanted, tensors)]
        if self.compared:
            check_outputs(way.site, tables, tensors, specs, way.mesh, name)
        elif equal and state.region is None and not numbers:
            way.known = _Known(self.structure, tensors, rows, mine, specs, wanted)
        return tensors, specs, wanted

    def _divide_captured(self, tensors, specs):
        floating = [
            None if spec is None else spec.placements
            for tensor, spec in zip(tensors, specs)
            if is_inexact(tensor.dtype)
        ]
        for position, (tensor, crossing) in enumerate(zip(self.captures, self.captured)):
            if crossing is not None and tensor._node is not None:
                name = f"{self.boundary.label}: captures[{position}]"
                divisor = capture_divisor(tensor._spec, self.way.mesh, floating, name)
                crossing.factor = 1 if divisor == 1 else 1.0 / divisor
