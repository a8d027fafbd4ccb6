"""The one small record that ranks exchange in a region call.

A rank cannot know that the others' outputs have other sizes.  The record
holds, for each output, shape, dtype, whether it requires grad, and where
values are compared their fingerprint; of an output that stays local only
whether it requires grad.  It makes requires-grad the same on all
ranks and turns a rank-dependent structure into an error on every rank; a rank
whose code raised says so in it, so that the others do not wait.
"""

import struct
import threading
import zlib
from functools import cache
from typing import NamedTuple

from ..array import array_module
from ..config import state
from ..errors import runtime_error, type_error, value_error
from ..redistribute.agree import fingerprint

WEAK = "~"  # before the dtype of a Python number, which takes that of the other ranks' values
_FINE, _COMPARED, _FAILED = 0, 1, 2  # the first byte
_AGREED = "_spmdlayer_agreed"  # set on an exception that all ranks of the mesh know of
_MOST_TEXT = 400  # characters of a failure's message that the others are told
_new = tuple.__new__
_GRACE = 2.0  # seconds that a failing rank waits for the others to take notice


class Row(NamedTuple):
    """What one rank reports of one output."""

    shape: tuple
    dtype: str
    requires_grad: bool
    nonzero: bool = False
    fingerprint: int = 0


def pack_record(structure, rows, compared=False):
    """This rank's record as bytes: the structure of its outputs (hashed), and their rows."""
    structure = zlib.crc32(str(structure).encode())
    parts = [struct.pack("<BIH", _COMPARED if compared else _FINE, structure, len(rows))]
    for row in rows:
        name = row.dtype.encode()
        flags = row.requires_grad | (row.nonzero << 1)
        parts.append(struct.pack("<BBBQ", len(name), len(row.shape), flags, row.fingerprint))
        parts.append(name)
        parts.append(struct.pack(f"<{len(row.shape)}q", *row.shape))
    return b"".join(parts)


def _unpack(data):
    structure, count = struct.unpack_from("<IH", data, 1)
    offset, rows = 7, []
    for _ in range(count):
        name_length, ndim, flags, fingerprint = struct.unpack_from("<BBBQ", data, offset)
        offset += 11
        name = bytes(data[offset : offset + name_length]).decode()
        offset += name_length
        shape = struct.unpack_from(f"<{ndim}q", data, offset)
        offset += 8 * ndim
        rows.append(Row(shape, name, bool(flags & 1), bool(flags & 2), fingerprint))
    return structure, tuple(rows)


def exchange_record(line, mine, outputs, label):
    """Every rank's rows, by rank of the Channel `line`; `mine` is this rank's record, of the rows `outputs`.

    Where all ranks' are equal they are that one tuple.  Raises on every rank
    where ranks differ in structure, number or dtype of the outputs or in
    whether values are compared, or where a rank's code has raised.
    """
    if line.size == 1:
        return [outputs]
    packed = line.record(mine)
    if packed.count(mine) == len(packed):
        return [outputs] * len(packed)
    tables, first = [], None
    for rank, data in enumerate(packed):
        if data == mine:
            rows = (_unpack(mine)[0], outputs)
        elif data[0] == _FAILED:
            raise _failed_elsewhere(rank, bytes(data[1:]).decode(errors="replace"), label)
        elif data[0] != mine[0]:
            raise _agreed(value_error(f"{label}: config(debug=) and config(verify=) must be the same on every rank"))
        else:
            rows = _unpack(data)
        first = first or rows
        _check_same(first, rows, rank, label)
        tables.append(rows[1])
    return tables


def _check_same(first, other, rank, label):
    if first[0] != other[0] or len(first[1]) != len(other[1]):
        raise _agreed(
            value_error(
                f"{label}: the outputs have another structure on mesh rank {rank} than on mesh rank 0 "
                f"({len(other[1])} and {len(first[1])} outputs); every rank must return the same structure, of lists, "
                "tuples and dicts with the same keys"
            )
        )
    for index, (a, b) in enumerate(zip(first[1], other[1])):
        if a.dtype != b.dtype and WEAK not in (a.dtype[:1], b.dtype[:1]):
            raise _agreed(
                value_error(
                    f"{label}: output {index} has dtype {b.dtype} on mesh rank {rank} and {a.dtype} on mesh rank 0; "
                    "every rank must return the same dtype"
                )
            )


def _failed_elsewhere(rank, text, label):
    kind = {"ValueError": value_error, "TypeError": type_error}.get(text.partition(":")[0], runtime_error)
    return _agreed(kind(f"{label}: the code of mesh rank {rank} raised {text}"))


def strong_dtype(tables, index):
    """The dtype name that an output has on the ranks where it is no Python number; None where it is one on all."""
    return next((rows[index].dtype for rows in tables if rows[index].dtype[:1] != WEAK), None)


def _agreed(error):
    setattr(error, _AGREED, True)
    return error


def report_failure(line, error):
    """Tell the other ranks, in the record they wait for, that this rank's code raised.

    They may be in another collective instead; so this waits for a short time
    only, in a thread, and then lets the exception go on (it ends the job).
    """
    known = getattr(error, _AGREED, False)
    if line.size == 1 or known or not line.threads or not isinstance(error, Exception):
        return
    text = f"{type(error).__name__}: {error}"[:_MOST_TEXT]
    thread = threading.Thread(target=line.record, args=(bytes([_FAILED]) + text.encode(),), daemon=True)
    thread.start()
    thread.join(_GRACE)


def row_of(tensor, compared, weak=False):
    """The row for an output that becomes distributed; with a fingerprint where its values are compared."""
    data = tensor._data
    name = dtype_name(data.dtype)
    if weak:
        name = WEAK + name
    wanted = tensor._node is not None and state.grad_enabled
    if not compared:
        return _new(Row, (data.shape, name, wanted, False, 0))  # without NamedTuple's own way of making one
    return Row(data.shape, name, wanted, is_nonzero(data), fingerprint(data))


def local_row(tensor):
    """The row for an output that stays local."""
    return Row((), "", tensor._node is not None and state.grad_enabled)


@cache
def dtype_name(dtype):
    """`dtype.name`, which NumPy composes at each question."""
    return dtype.name


def is_nonzero(array):
    """Whether any element is not zero."""
    return bool(array_module(array).any(array != 0))
