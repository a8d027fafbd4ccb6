"""What leaves a region: local results, checked, agreed on by all ranks, and made distributed."""

import numpy as np

from ..array import is_array
from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..dtypes import dtype as as_dtype
from ..dtypes import supported
from ..errors import type_error, value_error
from ..redistribute.crossing import REPLICATE, make_spec
from ..redistribute.reshard import check_target
from .attrs import layout_of
from .fence import leave, leave_local
from .record import local_row, row_of, strong_dtype

NUMBERS = (bool, int, float, complex)
_RANK_OF_KIND = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # Python numbers go into a dtype of their kind or a later one


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


def collect(found, declared, compared, label, name):
    """Local Tensors from what the code returned, this rank's rows of the record, and the indices of Python numbers.

    Raises unless there is one entry per output.
    """
    if len(found) != len(declared):
        raise value_error(
            f"{label}: {len(found)} outputs were returned, but {name} has {len(declared)} entries; "
            "one per output is needed"
        )
    tensors, rows, numbers = [], [], []
    for index, (value, placements) in enumerate(zip(found, declared)):
        weak = False
        if type(value) is not Tensor or value._spec is not None:
            weak = type(value) in NUMBERS
            if weak:
                numbers.append(index)
            value = as_tensor(value, index, label)
        tensors.append(value)
        if placements is None:
            rows.append(local_row(value))
        else:
            rows.append(row_of(value, compared and REPLICATE in placements, weak))
    return tensors, tuple(rows), numbers


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


def specs_of(outputs, declared, tables, mesh, label, name):
    """The Spec of each output from every rank's rows; None for one that stays local."""
    specs = []
    for index, (tensor, placements) in enumerate(zip(outputs, declared)):
        if placements is None:
            specs.append(None)
            continue
        layout = layout_of(mesh, placements, [rows[index].shape for rows in tables], f"{label}: {name}[{index}]")
        check_target(tensor.dtype, layout)
        specs.append(make_spec(mesh, layout))
    return specs


def leave_region(outputs, specs, recorded, fence, auto):
    """The outputs as they are outside; on the tape, on all ranks, where `recorded` says so."""
    results, enabled = [], state.grad_enabled
    for tensor, spec, asked in zip(outputs, specs, recorded):
        if asked and enabled:
            results.append(leave_local(tensor, fence) if spec is None else leave(tensor, spec, fence, auto))
        else:
            results.append(tensor if spec is None else wrap(tensor._data, None, spec))
    return results
