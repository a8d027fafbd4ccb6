"""What leaves a region: local results, checked, agreed on by all ranks, and made distributed."""

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..dtypes import dtype as as_dtype
from ..dtypes import is_inexact, supported
from ..errors import type_error, value_error
from ..redistribute.crossing import REPLICATE, make_spec
from ..redistribute.reshard import check_target
from ..spec import spec_of
from .attrs import layout_of
from .fence import leave, leave_local
from .record import local_row, row_of, strong_dtype

NUMBERS = (bool, int, float, complex)
_RANK_OF_KIND = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # Python numbers go into a dtype of their kind or a later one
_MOST_KNOWN = 64  # Specs that are kept for calls with the same inputs


def as_tensor(value, index, label):
    """An output as a local Tensor; arrays and numbers may leave a region too."""
    if isinstance(value, Tensor):
        if value._spec is not None:
            raise type_error(f"{label}: output {index} is a distributed tensor; inside a region everything is local")
        return value
    if isinstance(value, (*NUMBERS, np.generic)):
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


def rows_of(outputs, declared, compared, numbers):
    """This rank's rows of the record; `numbers` has the indices of outputs that are Python numbers."""
    return [
        local_row(tensor)
        if placements is None
        else row_of(tensor, compared and REPLICATE in placements, index in numbers)
        for index, (tensor, placements) in enumerate(zip(outputs, declared))
    ]


def with_agreed_dtypes(outputs, numbers, tables, label, name):
    """The outputs, with Python numbers in the dtype that the other ranks' values have.

    Raises on every rank where that dtype cannot hold such a number.
    """
    outputs = list(outputs)
    for index in range(len(outputs)):
        strong = strong_dtype(tables, index)
        kinds = {rows[index].dtype for rows in tables}
        if strong is None and len(kinds) > 1:
            strong = np.result_type(*(as_dtype(kind[1:]) for kind in kinds)).name
        if strong is None or len(kinds) == 1:
            continue
        wanted = as_dtype(strong)
        for kind in sorted(kinds - {strong}):
            if _RANK_OF_KIND[as_dtype(kind[1:]).kind] > _RANK_OF_KIND.get(wanted.kind, 2):
                raise type_error(
                    f"{label}: {name}[{index}] is a number of {kind[1:]} on some ranks and {strong} on others, which "
                    "cannot hold it; every rank must return the same dtype"
                )
        if index in numbers:
            outputs[index] = wrap(outputs[index]._data.astype(wanted), None, None)
    return outputs


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
            state.grad_enabled and any(rows[index].requires_grad for rows in tables) and is_inexact(tensor._data.dtype)
        )
        if spec is None:
            results.append(leave_local(tensor, fence) if recorded else tensor)
        elif recorded:
            results.append(leave(tensor, spec, fence, auto))
        else:
            results.append(wrap(tensor._data, None, spec))
    return results
