"""For every operation without a gradient: functions that use it, and arrays to try them on; as in `gradient_cases`."""

import matrix_cases
import numpy as np

from spmdlayer import linalg
from spmdlayer.ops import composed, counting, elementwise, index_form, quantiles, searching, sets, sorting
from spmdlayer.ops.registry import REGISTRY

_random = np.random.default_rng(1)


def integers(*extents):
    return _random.integers(-4, 5, extents)


def floats(*extents):
    """Quarters, some of them equal, and values that are no numbers."""
    return _random.choice([-1.5, -0.25, 0.0, 0.5, 0.5, 2.0, np.inf, -np.inf, np.nan], extents)


def bools(*extents):
    return _random.random(extents) < 0.5


VALUES = {}


def _register(names, *cases):
    for name in names.split():
        VALUES.setdefault(name, []).extend(cases or [])


def _pairs(names, *pairs):
    for name in names.split():
        _register(name, *((REGISTRY[name].public, pair) for pair in pairs))


def _singles(names, *arrays):
    _pairs(names, *((array,) for array in arrays))


# Elementwise -------------------------------------------------------------

_pairs("equal not_equal", (floats(3, 4), floats(4)), (integers(2, 1), integers(5)), (bools(3), bools(2, 1)))
_pairs("less less_equal greater greater_equal", (floats(3, 4), floats(4)), (integers(2, 1), integers(5)))
_pairs("logical_and logical_or logical_xor", (bools(3, 4), bools(4)), (integers(5), bools(2, 1)))
_singles("logical_not", bools(3, 4), integers(5))
_singles("isnan isfinite isinf", floats(3, 4), np.stack([floats(5), floats(5)], -1).view(complex)[:, 0], integers(3))
_singles("signbit", floats(3, 4))
_pairs("bitwise_and bitwise_or bitwise_xor", (integers(3, 4), integers(4)), (bools(2, 1), bools(3)))
_singles("bitwise_invert", integers(3, 4), bools(5))
_pairs("bitwise_left_shift bitwise_right_shift", (integers(3, 4), abs(integers(4))))
_pairs("nextafter isclose", (floats(3, 4), floats(4)))
_register("isclose", (lambda a, b: composed.isclose(a, b, atol=1.0, equal_nan=True), (floats(3, 4), floats(4))))


# Reductions and positions ------------------------------------------------

for _name in ("any", "all"):
    _function = REGISTRY[_name].public
    for _options in ({}, {"axis": 0}, {"axis": (0, -1), "keepdims": True}, {"axis": ()}):
        _register(
            _name, *((lambda x, f=_function, o=_options: f(x, **o), (x,)) for x in (bools(2, 3, 4), floats(4, 2)))
        )
for _name in ("argmax", "argmin"):
    _function = REGISTRY[_name].public
    for _options in ({}, {"axis": 0}, {"axis": -1, "keepdims": True}):
        _register(
            _name, *((lambda x, f=_function, o=_options: f(x, **o), (x,)) for x in (integers(3, 4), floats(4, 5)))
        )


_register(
    "argsort",
    (sorting.argsort, (floats(3, 4),)),
    (lambda x: sorting.argsort(x, axis=0, descending=True), (integers(3, 4),)),
)
_register(
    "topk_positions",
    (lambda x: sorting.topk(x, 2)[1], (integers(3, 4),)),
    (lambda x: sorting.topk(x, 1, axis=0, largest=False)[1], (floats(4, 5),)),
)
_register(
    "ranked_positions",
    (lambda x: quantiles.median(x, axis=-1), (integers(3, 4),)),
    (lambda x: quantiles.quantile(x, [0.2, 0.5]), (integers(5),)),
)


# Values that are compared are rounded, because a product of pieces is.


def _sorted(x):
    return np.sort(x.round()) if isinstance(x, np.ndarray) else sorting.sort(x.round())


def _is_among(x, y, invert):
    return searching.isin(x.round(), y.round(), invert=invert)


_register(
    "searchsorted",
    (lambda x, v: searching.searchsorted(_sorted(x), v.round()), (integers(7), integers(3, 4))),
    (lambda x, v: searching.searchsorted(_sorted(x), v.round(), side="right"), (floats(5), floats(4))),
)
_singles("argwhere", integers(3, 4), bools(5), floats(4, 2, 3))
_pairs_of_sets = [(integers(3, 4), integers(5)), (floats(4), floats(2, 3)), (bools(3), bools(2))]
_register("isin", *((lambda x, y: _is_among(x, y, False), pair) for pair in _pairs_of_sets))
_register("isin", *((lambda x, y: _is_among(x, y, True), pair) for pair in _pairs_of_sets))
_register(
    "bincount",
    (lambda x: counting.bincount(elementwise.abs(x), minlength=3), (integers(7),)),
    (lambda x: counting.histogram(x, 3, (-2, 2))[0], (integers(3, 4),)),
)
for _name in ("unique_table", "unique_rows"):  # seen through the functions that use them
    _register(
        _name, *((lambda x: sets.unique_inverse(x.round())[1], (x,)) for x in (integers(3, 4), floats(7), bools(4)))
    )
_register("unique_table", *((lambda x: sets.unique_counts(x.round())[1], (x,)) for x in (integers(3, 4), floats(2, 3))))


# Matrices ----------------------------------------------------------------

_register("eigvalsh", (linalg.eigvalsh, (_random.normal(size=(2, 3, 3)),)))
_register("svdvals", (linalg.svdvals, (_random.normal(size=(2, 3, 4)),)))


# What vjps use, and others ------------------------------------------------

_register("eye_like", (lambda x: REGISTRY["eye_like"].public(x, size=3), (integers(2, 2),)))
_rows = np.array([2, 0, 2, 2])
_form, _arrays = index_form.index_form((_rows,), (3, 2))
_register(
    "last_writes",
    (lambda rows: REGISTRY["last_writes"].public(rows, index=_form, shape=(3, 2)), (_rows,)),
)
_phases = (np.zeros((2, 3)), floats(2, 3, 3))
_register("check_phases", (lambda x, scale: REGISTRY["check_phases"].public(x, scale, name="eigh"), _phases))
_register("check_unused", (lambda x: REGISTRY["check_unused"].public(x, name="svd"), (np.zeros((2, 3)),)))
_register("full_like", (lambda x: REGISTRY["full_like"].public(x, 7), (integers(3, 4),)))
_register("full_like", (lambda x: REGISTRY["full_like"].public(x, 0.5, dtype="complex128"), (floats(5),)))
_singles("zeros_like ones_like", integers(3, 4), floats(5), bools(2))
_register("zeros_like", (lambda x: REGISTRY["zeros_like"].public(x, dtype="int8"), (floats(3, 4),)))


# Linear algebra ----------------------------------------------------------

for _name, _cases in matrix_cases.VALUES.items():
    _register(_name, *_cases)
