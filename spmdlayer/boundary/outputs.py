"""What leaves a region: local results, checked, agreed on by all ranks, and made distributed."""

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..dtypes import is_inexact, supported
from ..errors import type_error, value_error
from ..redistribute.crossing import REPLICATE, make_spec
from ..redistribute.reshard import check_target
from ..spec import spec_of
from .attrs import layout_of
from .fence import leave, leave_local
from .record import local_row, row_of

_MOST_KNOWN = 64  # Specs that are kept for calls with the same inputs


def as_tensor(value, index, label):
    """An output as a local Tensor; arrays and numbers may leave a region too."""
    if isinstance(value, Tensor):
        if value._spec is not None:
            raise type_error(f"{label}: output {index} is a distributed tensor; inside a region everything is local")
        return value
    if isinstance(value, (bool, int, float, complex, np.generic)):
        value = np.asarray(value)
    if is_array(value) and supported(value.dtype):
        return wrap(value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("=")), None, None)
    what = f"an array of {value.dtype}" if is_array(value) else f"a {type(value).__name__}"
    raise type_error(f"{label}: output {index} is {what}; tensors, arrays and numbers can leave a region")


def check_count(outputs, declared, label, name):
    """Raise unless there is one entry per output."""
    if len(outputs) != len(declared):
        raise value_error(
            f"{label}: {len(outputs)} outputs were returned, but {name} has {len(declared)} entries; "
            "one per output is needed"
        )


def rows_of(outputs, declared, compared):
    """This rank's rows of the record."""
    return [
        local_row(tensor) if placements is None else row_of(tensor, compared and REPLICATE in placements)
        for tensor, placements in zip(outputs, declared)
    ]


def specs_of(outputs, declared, tables, known, mesh, label, name):
    """The Spec of each output from every rank's rows; None for one that stays local.

    `known` is a dict that keeps them, for calls with the same inputs.
    """
    specs = []
    for index, (tensor, placements) in enumerate(zip(outputs, declared)):
        spec = None
        if placements is not None:
            key = (index, tensor._data.dtype, *[rows[index].shape for rows in tables])
            spec = known.get(key)
            if spec is None:
                layout = layout_of(mesh, placements, key[2:], f"{label}: {name}[{index}]")
                check_target(tensor.dtype, layout)
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                spec = known[key] = spec_of(mesh, layout)
            spec = spec if state.region is None else make_spec(mesh, spec.layout)
        specs.append(spec)
    return specs


def leave_region(outputs, specs, tables, fence, auto):
    """The outputs as they are outside; recorded on all ranks where any rank's requires grad."""
    results = []
    for index, (tensor, spec) in enumerate(zip(outputs, specs)):
        recorded = (
            state.grad_enabled
            and any(rows[index].requires_grad for rows in tables)
            and is_inexact(tensor._data.dtype)
        )
        if spec is None:
            results.append(leave_local(tensor, fence) if recorded else tensor)
        elif recorded:
            results.append(leave(tensor, spec, fence, _copies(spec.layout) if auto else 1))
        else:
            results.append(wrap(tensor._data, None, spec))
    return results


def _copies(layout):
    """How many copies of an output are one variable: the auto rule divides its cotangent by that."""
    copies = 1
    for size, placement in zip(layout.mesh_shape, layout.placements):
        if placement.kind == "replicate":
            copies *= size
    return copies
