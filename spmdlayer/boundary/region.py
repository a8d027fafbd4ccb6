"""A region of local code between distributed inputs and outputs: how one runs.

`Boundary` holds what is declared, `LocalLayer` and `local_map` wrap one.  A
call checks everything that can be checked, opens the region, runs the local
code, exchanges one record along the mesh, and makes the outputs distributed.
"""

from ..array import array_module, is_array
from ..autograd.recompute import recompute as recomputed
from ..autograd.tensor import Tensor, wrap
from ..comm import channel
from ..config import state
from ..dtypes import is_inexact, supported
from ..errors import runtime_error, type_error, value_error
from ..redistribute.agree import fingerprint
from ..redistribute.crossing import SUM, make_spec
from ..redistribute.reshard import check_target, reshard_spec
from .attrs import AUTO, capture_layout, check_out_placements, gradient_layout, layout_of
from .fence import Fence, leave, pass_in
from .placeholder import placeholder
from .record import exchange_record, is_nonzero, report_failure, row_of
from .trees import flatten, unflatten
from .verify import Site, check_gradient, check_outputs


class Crossing:
    """How the gradient of one input leaves the region.

    Attributes
    ----------
    name : what declares it, for messages
    spec : of the input
    claimed : mesh axes along which it is declared Replicate, to be verified
    factor : what the local gradient is multiplied with
    """

    __slots__ = ("name", "spec", "claimed", "factor")

    def __init__(self, name, spec, layout, verified):
        self.name = name
        self.spec = spec
        self.claimed = ()
        if verified:
            self.claimed = tuple(
                axis
                for axis, (p, own) in enumerate(zip(layout.placements, spec.placements))
                if p.kind == "replicate" and own.kind == "replicate"
            )
        self.factor = 1

    def gradient(self, g, entry):
        """The local gradient as it crosses; compared between ranks when that is due."""
        if entry.check is not None and self.claimed:
            mesh = self.spec.mesh
            check_gradient(entry.check, g._data if isinstance(g, Tensor) else g, mesh, self.claimed, self.name, mesh.dim_names)
        return g if self.factor == 1 else g * self.factor


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

    def __init__(self, label, outs, grads, ins=None, reshard_inputs=False, mesh=None, recompute=False,
                 names=("out_dist_attrs", "grad_dist_attrs", "in_placements")):
        self.label = label
        self.outs = outs
        self.grads = grads
        self.ins = ins
        self.reshard_inputs = reshard_inputs
        self.mesh = mesh
        self.recompute = recompute
        self.names = names
        self.auto = grads == AUTO
        self._sites = {}

    def __call__(self, function, args, kwargs, captures=()):
        """Run `function` as a region; distributed tensors in args, kwargs and captures are its inputs."""
        leaves, structure = flatten((list(args), kwargs))
        entries = self._entries(args, leaves)
        self._check_inputs(leaves, captures)
        mesh = self._region_mesh(leaves, captures)
        if self.ins is not None:
            leaves = self._as_declared(args, leaves, mesh)
        crossings = self._crossings(leaves, entries, captures)
        if mesh.coordinate is None:
            return self._outside(mesh)
        site = self._sites.get(mesh)
        if site is None:
            site = self._sites[mesh] = Site(self.label)
        compare = site.begin_call()
        fence = Fence(self.label, state.region, site=site)
        line = channel(mesh, None)
        try:
            outputs, out_structure, local = self._run(function, leaves, structure, captures, crossings, fence)
            specs_placements = self._out_placements(outputs, mesh)
        except BaseException as error:
            report_failure(line, error)
            raise
        rows = [self._row(tensor, placements, compare) for tensor, placements in zip(outputs, specs_placements)]
        tables = exchange_record(line, out_structure, rows, self.label)
        return self._finish(outputs, specs_placements, tables, mesh, fence, site if compare else None, local, out_structure)

    # Before -------------------------------------------------------------

    def _entries(self, args, leaves):
        """The gradient attr of each leaf of the positional arguments, then None for each of the others."""
        if self.grads is None or self.auto:
            return [None] * len(leaves)
        per_argument = [len(flatten(argument)[0]) for argument in args]
        positional = sum(per_argument)
        if len(self.grads) == len(args):
            entries = [entry for entry, count in zip(self.grads, per_argument) for _ in range(count)]
        elif len(self.grads) == positional:
            entries = list(self.grads)
        else:
            raise value_error(
                f"{self.label}: {self.names[1]} has {len(self.grads)} entries for {len(args)} positional inputs; "
                "one per input is needed (None where nothing is declared)"
            )
        return entries + [None] * (len(leaves) - positional)

    def _check_inputs(self, leaves, captures):
        for leaf in (*leaves, *captures):
            if isinstance(leaf, Tensor) and leaf._spec is not None and leaf._spec.region is not state.region:
                inside = state.region.label if state.region is not None else None
                raise runtime_error(
                    f"{self.label}: an input is a distributed tensor from outside {inside}, where it has no meaning; pass "
                    "it as an input of the outer region" if inside else
                    f"{self.label}: an input is a distributed tensor made inside a region that has ended"
                )
        for position, capture in enumerate(captures):
            if not isinstance(capture, Tensor):
                raise type_error(f"{self.label}: captures[{position}] is a {type(capture).__name__}, a Tensor is needed")

    def _region_mesh(self, leaves, captures):
        for entry in self.outs:
            if entry is not None and entry[0] is not None:
                return entry[0]
        if self.mesh is not None:
            return self.mesh
        for leaf in (*leaves, *captures):
            if isinstance(leaf, Tensor) and leaf._spec is not None:
                return leaf._spec.mesh
        raise value_error(
            f"{self.label}: no mesh is known: {self.names[0]} gives placements alone and no input is distributed; "
            "write (mesh, placements)"
        )

    def _as_declared(self, args, leaves, mesh):
        """Inputs in the placements that in_placements asks for."""
        from .inputs import as_declared

        return as_declared(self, args, leaves, mesh)

    def _crossings(self, leaves, entries, captures):
        """For each distributed input (by position in leaves, then captures): Layout and Crossing."""
        found = []
        for position, (leaf, entry) in enumerate(zip(leaves, entries)):
            if not isinstance(leaf, Tensor) or leaf._spec is None:
                found.append(None)
                continue
            name = f"{self.names[1]}[{position}]"
            if leaf._spec.layout is None or leaf._spec.mesh.coordinate is None:
                found.append((None, None))
                continue
            if self.auto:
                layout, _ = capture_layout(leaf._spec, True, (), name)
            else:
                layout = gradient_layout(entry, leaf._spec, f"{self.label}: {name}", leaf._node is not None)
            found.append((layout, Crossing(name, leaf._spec, layout, not self.auto)))
        for capture in captures:
            if capture._spec is None:
                found.append(None)
                continue
            layout, _ = capture_layout(capture._spec, True, (), "captures")
            found.append((layout, Crossing("captures", capture._spec, layout, False)))
        return found

    def _outside(self, mesh):
        """Placeholders for a rank that the mesh does not contain, in the form of the out attrs."""
        made = [placeholder(mesh if entry[0] is None else entry[0], entry[1]) for entry in self.outs if entry is not None]
        return made[0] if len(self.outs) == 1 and made else tuple(made)

    # Inside -------------------------------------------------------------

    def _run(self, function, leaves, structure, captures, crossings, fence):
        """The local outputs, as Tensors, and their structure."""
        outside, state.region = state.region, fence.region
        swapped = []
        try:
            local = list(leaves)
            for position, leaf in enumerate(leaves):
                if crossings[position] is not None:
                    local[position] = pass_in(leaf, *crossings[position])
            pieces = []
            for capture, crossing in zip(captures, crossings[len(leaves) :]):
                if crossing is not None:
                    pieces.append((capture, pass_in(capture, *crossing)))

            def body(arguments, captured):
                # A captured tensor *is* local while the region is open, whoever refers to it.
                for (tensor, _), piece in zip(pieces, captured):
                    swapped.append((tensor, tensor._data, tensor._node, tensor._spec))
                    tensor._data, tensor._node, tensor._spec = piece._data, piece._node, None
                try:
                    args, kwargs = unflatten(structure, arguments)
                    return function(*args, **kwargs)
                finally:
                    while swapped:
                        tensor, data, node, spec = swapped.pop()
                        tensor._data, tensor._node, tensor._spec = data, node, spec

            if self.recompute:
                body = recomputed(body)
            result = body(local, [piece for _, piece in pieces])
            outputs, out_structure = flatten(result)
            return [self._as_tensor(value, index) for index, value in enumerate(outputs)], out_structure, crossings
        finally:
            state.region = outside

    def _as_tensor(self, value, index):
        if isinstance(value, Tensor):
            if value._spec is not None:
                raise type_error(f"{self.label}: output {index} is a distributed tensor; inside a region everything is local")
            return value
        if isinstance(value, (bool, int, float, complex)) or is_array(value):
            import numpy as np

            array = value if isinstance(value, np.ndarray) or not isinstance(value, np.generic) and is_array(value) else np.asarray(value)
            if supported(array.dtype):
                return wrap(array, None, None)
        raise type_error(
            f"{self.label}: output {index} is a {type(value).__name__}; tensors, arrays and numbers can leave a region"
        )

    def _out_placements(self, outputs, mesh):
        if len(outputs) != len(self.outs):
            raise value_error(
                f"{self.label}: {len(outputs)} outputs were returned, but {self.names[0]} has {len(self.outs)} entries; "
                "one per output is needed"
            )
        checked = []
        for index, entry in enumerate(self.outs):
            if entry is None:
                checked.append(None)
                continue
            own = mesh if entry[0] is None else entry[0]
            if own != mesh:
                raise value_error(
                    f"{self.label}: {self.names[0]}[{index}] is on {own!r} and another output on {mesh!r}; the outputs of "
                    "one layer have one mesh (reshard moves a tensor to another)"
                )
            checked.append(check_out_placements(entry[1], mesh, f"{self.label}: {self.names[0]}[{index}]"))
        return checked

    # After --------------------------------------------------------------

    @staticmethod
    def _row(tensor, placements, compare):
        claimed = compare and placements is not None and any(p.kind == "replicate" for p in placements)
        return row_of(tensor, fingerprint(tensor._data) if claimed else 0, claimed and is_nonzero(tensor._data))

    def _finish(self, outputs, placements, tables, mesh, fence, site, crossings, structure):
        layouts, specs = [], []
        for index, declared in enumerate(placements):
            if declared is None:
                layouts.append(None)
                specs.append(None)
                continue
            name = f"{self.label}: {self.names[0]}[{index}]"
            layout = layout_of(mesh, declared, [rows[index].shape for rows in tables], name)
            check_target(outputs[index].dtype, layout)
            layouts.append(layout)
            specs.append(make_spec(mesh, layout))
        if site is not None:
            check_outputs(site, tables, outputs, layouts, mesh, self.names[0])
        self._divide_captures(crossings, outputs, layouts)
        results = []
        for index, (tensor, layout) in enumerate(zip(outputs, layouts)):
            if layout is None:
                results.append(tensor)
                continue
            wanted = any(rows[index].requires_grad for rows in tables) and is_inexact(tensor.dtype) and state.grad_enabled
            if wanted:
                results.append(leave(tensor, specs[index], fence, self._copies(layout)))
            else:
                results.append(wrap(tensor._data, None, specs[index]))
        return unflatten(structure, results)

    def _copies(self, layout):
        copies = 1
        if self.auto:
            for size, placement in zip(layout.mesh_shape, layout.placements):
                if placement.kind == "replicate":
                    copies *= size
        return copies

    def _divide_captures(self, crossings, outputs, layouts):
        if self.auto:
            return
        floating = [
            layout.placements for tensor, layout in zip(outputs, layouts) if layout is not None and is_inexact(tensor.dtype)
        ]
        for found in crossings:
            if found is not None and found[1] is not None and found[1].name == "captures":
                _, divisor = capture_layout(found[1].spec, False, floating, f"{self.label}: captures")
                found[1].factor = 1 if divisor == 1 else 1.0 / divisor
