"""What leaves a region: local results, checked, agreed on by all ranks, and made distributed."""

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..dtypes import is_inexact, supported
from ..errors import type_error, value_error
from ..redistribute.crossing import make_spec
from ..redistribute.reshard import check_target
from .attrs import layout_of
from .fence import leave, leave_local
from .record import local_row, row_of


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
        local_row(tensor)
        if placements is None
        else row_of(tensor, compared and any(p.kind == "replicate" for p in placements))
        for tensor, placements in zip(outputs, declared)
    ]


def layouts_of(outputs, declared, tables, mesh, label, name):
    """The Layout of each output from every rank's rows; None for one that stays local."""
    layouts = []
    for index, (tensor, placements) in enumerate(zip(outputs, declared)):
        layout = None
        if placements is not None:
            layout = layout_of(mesh, placements, [rows[index].shape for rows in tables], f"{label}: {name}[{index}]")
            check_target(tensor.dtype, layout)
        layouts.append(layout)
    return layouts


def leave_region(outputs, layouts, tables, mesh, fence, auto):
    """The outputs as they are outside; recorded on all ranks where any rank's requires grad."""
    results = []
    for index, (tensor, layout) in enumerate(zip(outputs, layouts)):
        recorded = state.grad_enabled and is_inexact(tensor.dtype) and any(rows[index].requires_grad for rows in tables)
        if layout is None:
            results.append(leave_local(tensor, fence) if recorded else tensor)
        elif recorded:
            results.append(leave(tensor, make_spec(mesh, layout), fence, _copies(layout) if auto else 1))
        else:
            results.append(wrap(tensor._data, None, make_spec(mesh, layout)))
    return results


def _copies(layout):
    """How many copies of an output are one variable: the auto rule divides its cotangent by that."""
    copies = 1
    for size, placement in zip(layout.mesh_shape, layout.placements):
        if placement.kind == "replicate":
            copies *= size
    return copies
