"""unique_values, unique_counts, unique_inverse, unique_all, and NumPy's unique.

Each rank reduces what it has to a table: its different values, where in the
(flattened, global) array each occurs first, and how often.  The tables are
gathered and merged, so what travels is as much as there are different values.
NaN differs from NaN, as the Array API wants it (but for NumPy's `unique`).
"""

from typing import NamedTuple

import numpy as np

from ..array import array_module
from ..autograd.tensor import Tensor, asarray, wrap
from ..redistribute.crossing import make_spec
from .owners import global_flat, group, group_rows
from .registry import apply, define
from .rules import REPLICATE, Rule, replicated, replicated_layout, stated
from .stable_sort import stable_order


class UniqueAllResult(NamedTuple):
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


# Tables: structured arrays, one row for each different value, ascending -------


def _merged(np, values, places, counts):
    """The table of values (1-d) that occur first at places, so often; both in any order."""
    order = np.argsort(places, kind="stable")
    order = order[stable_order(values[order], False)]
    values, places, counts = values[order], places[order], counts[order]
    begins = np.ones(len(values), bool)
    begins[1:] = values[1:] != values[:-1]
    first = np.flatnonzero(begins)
    table = np.empty(len(first), [("value", values.dtype), ("place", np.int64), ("count", np.int64)])
    table["value"], table["place"] = values[first], places[first]
    table["count"] = np.add.reduceat(counts, first) if len(first) else 0
    return table


def _table_of(np, x, places):
    flat = x.reshape(-1)
    return _merged(np, flat, places, np.ones(flat.shape, np.int64))


def _whole_table(np, x):
    return _table_of(np, x, np.arange(x.size))


def _sharding(layout):
    """The mesh axes that shard anything, and the layout without Partials."""
    axes = tuple(k for k, p in enumerate(layout.placements) if p.kind == "shard")
    return axes, layout.with_placements(tuple(p if p.kind == "shard" else REPLICATE for p in layout.placements))


@stated("each rank makes a table of what it has", "the tables of different values")
def _table_rule(call):
    axes, source = _sharding(call.layouts[0])
    if not axes:
        return replicated(call)

    def across(mesh, arrays, params):
        (x,) = arrays
        line = group(mesh, axes)
        table = _table_of(array_module(x), x, global_flat(source, mesh.coordinate, np.arange(x.size)))
        nbytes = group_rows(line, [table.nbytes])[:, 0].tolist()
        parts = line.allgather(table.view(np.uint8), [(n,) for n in nbytes])
        gathered = np.concatenate([part.view(table.dtype) for part in parts])
        merged = _merged(np, gathered["value"], gathered["place"], gathered["count"])
        return merged, replicated_layout(source.mesh_shape, merged.shape)

    return Rule((source,), None, across=across)


# Structured arrays are for the functions of this file alone: users see their columns.
_unique_table = define("unique_table", _whole_table, rule=_table_rule)


def _column(table, name):
    """A column of a table as a tensor of its own."""
    if table._data.dtype.names is None:  # outside the mesh
        return table
    return wrap(np.ascontiguousarray(table._data[name]), None, table._spec)


# Inverse: which row of the table an element has ------------------------------


def _rows(np, x, table, places):
    """The row of each element (flat); NaN, which no comparison finds, by its place."""
    values = table["value"]
    numbers = int(np.sum(values == values))  # NaN is last
    rows = np.searchsorted(values[:numbers], x)
    nan = np.flatnonzero(x != x)
    if nan.size:
        own = table["place"][numbers:]
        order = np.argsort(own)
        # Where all NaN are one row, their places come behind its own.
        found = np.searchsorted(own[order], places[nan], side="right") - 1
        rows[nan] = numbers + order[found]
    return np.asarray(rows, np.int64)


def _inverse(np, x, table):
    return _rows(np, x.reshape(-1), table, np.arange(x.size)).reshape(x.shape)


@stated("each rank looks up its elements", "nothing")
def _inverse_rule(call):
    """Each rank looks up its elements; nothing communicates."""
    _, source = _sharding(call.layouts[0])
    whole = replicated_layout(call.mesh_shape, call.shapes[1])

    def across(mesh, arrays, params):
        x, table = arrays
        places = global_flat(source, mesh.coordinate, np.arange(x.size))
        return _rows(array_module(x), x.reshape(-1), table, places).reshape(x.shape)

    return Rule((source, whole), source, across=across, sends=lambda coord: 0)


_unique_rows = define("unique_rows", _inverse, rule=_inverse_rule)


# The functions ---------------------------------------------------------------


def unique_all(x):
    """The different elements of x, of any shape.

    Returns
    -------
    UniqueAllResult(values, indices, inverse_indices, counts)
        values : 1-d, ascending, dtype of x
        indices : where each occurs first in the flattened x, int64
        inverse_indices : values[inverse_indices] is x; shape and layout of x
        counts : how often each occurs, int64

    Of a distributed x all but inverse_indices are whole on every rank; the
    ranks' different elements are gathered.  Every NaN counts as different.
    Not differentiable.
    """
    x, table = _tabulated(x)
    inverse = apply(_unique_rows, (x, table))
    return UniqueAllResult(_column(table, "value"), _column(table, "place"), inverse, _column(table, "count"))


def unique_counts(x):
    """The different elements of x and how often each occurs: UniqueCountsResult(values, counts); see `unique_all`."""
    _, table = _tabulated(x)
    return UniqueCountsResult(_column(table, "value"), _column(table, "count"))


def unique_inverse(x):
    """The different elements of x and the position among them of each element of x; see `unique_all`.

    Returns
    -------
    UniqueInverseResult(values, inverse_indices), the latter with the shape and layout of x.
    """
    x, table = _tabulated(x)
    return UniqueInverseResult(_column(table, "value"), apply(_unique_rows, (x, table)))


def unique_values(x):
    """The different elements of x, ascending; see `unique_all`."""
    return _column(_tabulated(x)[1], "value")


def unique(x, return_index=False, return_inverse=False, return_counts=False):
    """The different elements of x, ascending, as `numpy.unique`: all NaN count as one.

    Returns
    -------
    values, or a tuple of them and what is asked for, in this order: indices,
    inverse_indices, counts as of `unique_all`, which says what communicates.
    """
    x, table = _tabulated(x)
    table = _with_one_nan(table)
    results = [_column(table, "value")]
    if return_index:
        results.append(_column(table, "place"))
    if return_inverse:
        results.append(apply(_unique_rows, (x, table)))
    if return_counts:
        results.append(_column(table, "count"))
    return tuple(results) if len(results) > 1 else results[0]


def _with_one_nan(table):
    """A table, as a tensor, with the rows of all NaN as one."""
    rows, spec = table._data, table._spec
    if rows.dtype.names is None:  # outside the mesh
        return table
    numbers = int((rows["value"] == rows["value"]).sum())
    if len(rows) - numbers < 2:
        return table
    rest = rows[numbers:]
    rows = rows[: numbers + 1].copy()
    rows["count"][-1], rows["place"][-1] = rest["count"].sum(), rest["place"].min()
    return wrap(rows, None, spec and make_spec(spec.mesh, replicated_layout(spec.layout.mesh_shape, rows.shape)))


def _tabulated(x):
    x = asarray(x)
    return x, apply(_unique_table, (x,))
