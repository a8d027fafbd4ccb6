"""For every differentiable operation: functions that use it, and arrays to try them on."""

import matrix_cases
import numpy as np
import sliding_cases
import special_cases
from case_arrays import cmplx, real, signed, small

from spmdlayer.ops import (
    contraction,
    cumulative,
    elementwise,
    index_form,
    linear,
    reductions,
    shape,
    softmax,
    sorting,
    taking,
)
from spmdlayer.ops.registry import REGISTRY


def _unary(*inputs):
    return lambda name: [(REGISTRY[name].public, (x,)) for x in inputs]


def _binary(*pairs):
    return lambda name: [(REGISTRY[name].public, pair) for pair in pairs]


BROADCASTING = [(signed(2, 3), signed(3)), (signed(2, 1), signed(1, 3)), (signed(), signed(2)), (real(0, 3), real(1))]
MIXED = [(signed(3), cmplx(2, 3)), (cmplx(3), signed(2, 1)), (cmplx(2, 3), cmplx(3))]
CASES = {}


def _register(names, cases):
    for name in names.split():
        CASES.setdefault(name, []).extend(cases(name))


def _functions(name, *cases):
    CASES.setdefault(name, []).extend(cases)


# Elementwise -------------------------------------------------------------

_register("add subtract multiply divide", _binary(*BROADCASTING, *MIXED))
_register("floor_divide remainder", _binary((real(2, 3), real(3)), (signed(3) * 5, signed(2, 1))))
_register("power", _binary((real(2, 3), signed(3)), (real(), signed(2)), (cmplx(2), cmplx(2, 1)), (real(3), cmplx(3))))
_functions(
    "power",
    *((lambda x, n=n: x**n, (signed(3),)) for n in (0, 1, 2, 3, -1)),
    (lambda x: x**0.5, (real(3),)),
    (lambda x: 2.0**x, (signed(3),)),
    (lambda x: (-2.0) ** x, (cmplx(3),)),
    (lambda x: 0.0**x, (real(3),)),
    (lambda x: x**3, (np.array([0.0, 1.0]),)),
    (lambda x: x ** np.array([0.0, 3.0, 2.0]), (np.array([0.0, 0.0, -1.0]),)),
)
_register("atan2 hypot copysign logaddexp", _binary((signed(2, 3), signed(3)), (signed(2, 1), real(3))))
_functions("logaddexp", (lambda x: elementwise.logaddexp(x, x * 1.0), (signed(3),)))
_register("maximum minimum fmax fmin", _binary((signed(2, 3), signed(3)), (np.array([1.0, 4.0]), np.array([2.0, 3.0]))))
_functions("maximum", (lambda x: elementwise.clip(x, -1, 1), (signed(5) * 1.3,)))
_register("negative positive copy square reciprocal abs sign real imag conj", _unary(signed(3), cmplx(2, 2), signed()))
_register("exp exp2 expm1 sin cos sinh cosh tan tanh sigmoid", _unary(small(3), small(2) + 1j * small(2), small()))
_register("log log2 log10 log1p sqrt", _unary(real(3), cmplx(3), real()))
_register("asin acos atanh", _unary(small(3), small(2) + 1j * small(2)))
_register("cbrt deg2rad rad2deg", _unary(signed(3)))
_register("atan asinh", _unary(signed(3), cmplx(2)))
_register("acosh", _unary(1.2 + real(3), cmplx(3)))
_register("floor ceil trunc round", _unary(np.array([0.2, 1.7, -2.3])))
_functions(
    "where",
    (lambda x, y: elementwise.where(np.array([True, False, True]), x, y), (signed(2, 3), signed(3))),
    (lambda x, y: elementwise.where(x > 0, x * y, y), (signed(2, 1), cmplx(3))),
    (lambda c, y: elementwise.where(c, y, 1.0), (signed(3), signed(3))),
)
_functions("to_device", (lambda x: REGISTRY["to_device"].public(x, device="cpu", source="cpu"), (signed(3),)))
_functions(
    "astype",
    (lambda x: elementwise.astype(x, "complex128") * 2j, (signed(3),)),
    (lambda x: elementwise.astype(x, "float64") * x, (signed(3),)),
)


# Reductions --------------------------------------------------------------


def _reductions(function, *inputs):
    options = [{}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 2)}, {"axis": ()}]
    cases = [(lambda x, o=o: function(x, **o), (x,)) for x in inputs for o in options]
    return lambda name: [*cases, (function, (signed(),))]


_register("sum", _reductions(reductions.sum, signed(2, 3, 2), cmplx(2, 1, 2)))
_register("sum", _reductions(reductions.mean, signed(2, 3, 2), cmplx(2, 1, 2)))
_register("sum", _reductions(reductions.var, signed(2, 3, 2), cmplx(2, 2, 2)))
_functions("sum", (lambda x: reductions.std(x, axis=0, correction=1), (signed(4, 2),)))
_functions("sum", (lambda x: reductions.sum(x, dtype="complex128"), (signed(4, 2),)))
_register("max", _reductions(reductions.max, signed(2, 3, 2)))
_register("min", _reductions(reductions.min, signed(2, 3, 2)))
_register("prod", _reductions(reductions.prod, signed(2, 3, 2), cmplx(2, 1, 2)))
_functions(
    "prod",
    *((reductions.prod, (np.array(values),)) for values in ([2.0, 0.0, 3.0], [0.0, 0.0, 3.0, 2.0], [0.0] * 5, [7.0])),
    (lambda x: reductions.prod(x, axis=1), (np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]),)),
    (lambda x: reductions.prod(x, axis=0), (signed(0, 2),)),
)
_functions(
    "cumulative_sum",
    (lambda x: cumulative.cumulative_sum(x, axis=1), (signed(2, 3),)),
    (cumulative.cumulative_sum, (cmplx(3),)),
    (lambda x: cumulative.cumulative_sum(x, dtype="complex128"), (signed(3),)),
    (lambda x: cumulative.cumulative_sum(x, axis=0, include_initial=True), (signed(3, 2),)),
)
_functions(
    "cumulative_prod",
    (lambda x: cumulative.cumulative_prod(x, axis=1), (signed(2, 3),)),
    (cumulative.cumulative_prod, (cmplx(4),)),
    (cumulative.cumulative_prod, (np.array([2.0, 0.0, 3.0, 0.0, 1.0]),)),
    (lambda x: cumulative.cumulative_prod(x, dtype="complex128", include_initial=True), (signed(3),)),
    (lambda x: cumulative.cumulative_prod(x, axis=0), (signed(0, 2),)),
)
_functions(
    "recurrence",
    *(
        (lambda a, b, axis=axis, back=back: REGISTRY["recurrence"].public(a, b, axis=axis, reverse=back), pair)
        for axis, back, pair in (
            (0, False, (signed(5), signed(5))),
            (1, True, (signed(2, 4), cmplx(2, 4))),
            (0, True, (cmplx(3, 2), signed(3, 2))),
        )
    ),
)


# Shape -------------------------------------------------------------------

_functions("reshape", (lambda x: shape.reshape(x, (3, -1)), (signed(2, 3),)), (shape.ravel, (cmplx(2, 2),)))
_functions("squeeze", (shape.squeeze, (signed(1, 3, 1),)), (lambda x: shape.squeeze(x, -1), (signed(2, 1),)))
_functions("expand_dims", (lambda x: shape.expand_dims(x, (0, -1)), (signed(2, 3),)))
_functions(
    "permute_dims",
    (lambda x: shape.permute_dims(x, (2, 0, 1)), (signed(2, 3, 2),)),
    (lambda x: shape.moveaxis(x, 0, -1), (cmplx(2, 3, 1),)),
)
_functions("flip", (shape.flip, (signed(2, 3),)), (lambda x: shape.flip(x, 1), (signed(2, 3),)))
_functions(
    "roll", (lambda x: shape.roll(x, 2), (signed(2, 3),)), (lambda x: shape.roll(x, (1, -1), (0, 1)), (signed(2, 3),))
)
_functions(
    "broadcast_to",
    (lambda x: shape.broadcast_to(x, (2, 2, 3)), (signed(2, 1),)),
    (lambda x: shape.tile(x, (2, 2)), (signed(3),)),
    (lambda x: shape.repeat(x, 2, axis=0), (signed(2, 2),)),
)
_functions(
    "concat",
    (lambda x, y: shape.concat([x, y, x], axis=1), (signed(2, 3), cmplx(2, 1))),
    (lambda x, y: shape.concat([x, y], axis=None), (signed(2), signed(0, 3))),
    (lambda x, y: shape.stack([x, y], axis=-1), (signed(2), signed(2))),
)


# Products ----------------------------------------------------------------

MATRICES = [
    (signed(2, 3), signed(3, 4)),
    (signed(3), signed(3)),
    (signed(3), signed(3, 2)),
    (signed(2, 3), signed(3)),
    (signed(4, 1, 2, 3), signed(2, 3, 2)),
    (signed(3), signed(2, 3, 2)),
    (signed(2, 2, 3), signed(3)),
    (cmplx(2, 3), signed(3, 2)),
    (signed(2, 0), signed(0, 3)),
]
_functions("matmul", *((linear.matmul, pair) for pair in MATRICES))
_functions(
    "einsum",
    *(
        (lambda a, b, s=s: contraction.einsum(s, a, b), pair)
        for s, pair in (
            ("ij,jk->ik", (signed(2, 3), cmplx(3, 2))),
            ("ij,jk", (signed(2, 3), signed(3, 2))),
            ("i,j->ij", (signed(2), signed(3))),
            ("bij,bjk->bki", (signed(2, 2, 3), signed(2, 3, 2))),
            ("ij,kl->", (signed(2, 3), signed(2, 2))),
            ("ii,i->i", (signed(3, 3), signed(3))),
            ("...ij,...j->...i", (signed(2, 2, 3), signed(1, 3))),
            ("ij,ij->ij", (signed(2, 1), signed(1, 3))),
        )
    ),
    *(
        (lambda a, s=s: contraction.einsum(s, a), (x,))
        for s, x in (
            ("ii->i", signed(3, 3)),
            ("ii", cmplx(3, 3)),
            ("ij->j", signed(2, 3)),
            ("ijk->ki", signed(2, 3, 2)),
            ("iij->j", signed(2, 2, 3)),
        )
    ),
    (lambda a, b, c: contraction.einsum("ij,jk,kl->il", a, b, c), (signed(2, 3), signed(3, 2), signed(2, 2))),
    (lambda a, b, c: contraction.einsum("i,ij,j->", a, b, c), (signed(2), cmplx(2, 3), signed(3))),
    (lambda a, b: contraction.tensordot(a, b, ((0, 2), (1, 0))), (signed(2, 3, 2), signed(2, 2, 3))),
)
_functions(
    "multiply",
    (linear.vecdot, (cmplx(2, 3), cmplx(3))),
    (linear.outer, (signed(2), signed(2, 2))),
    (contraction.dot, (signed(), signed(3))),
)


# Indexing ----------------------------------------------------------------

MASK = np.array([[True, False, True], [False, True, True]])
TWICE = np.array([[0, 2], [2, 0]])
INDICES = {
    "getitem": [1, (slice(None), -1), (..., None, slice(2, None, -2)), ()],
    "gather": [MASK, (1, TWICE), (TWICE, 1)],
}
INDICES["gather"] += [(slice(None), [2, 0, 0]), (None, MASK[0].nonzero()[0] % 2, ...)]
_SHAPES = {"getitem": (2, 3), "gather": (2, 3)}


def _written(x, value, index):
    y = elementwise.copy(x)
    y[index] = value
    return y * y


for _name, _indices in INDICES.items():
    _write = {"getitem": "setitem", "gather": "setitem_at"}[_name]
    for _index in _indices:
        _base = signed(3, 3) if isinstance(_index, tuple) and _index and _index[0] is TWICE else signed(2, 3)
        _piece = _base[_index]
        _functions(_name, (lambda x, i=_index: x[i] * 1.0, (_base,)))
        _functions(_write, (lambda x, v, i=_index: _written(x, v, i), (_base, signed(*_piece.shape))))
        _one = signed(1) if _index is MASK else signed(1, 1, 1, 1)
        _functions(_write, (lambda x, v, i=_index: _written(x, v, i), (cmplx(*_base.shape), _one)))
for _operation in ("spread", "spread_at"):  # the gradients of reading, tested as such and as operations of their own
    _source = {"spread": "getitem", "spread_at": "gather"}[_operation]
    for _index in INDICES[_source][:3]:
        _form, _arrays = index_form.index_form(_index, (3, 3) if _index is not MASK else (2, 3))
        _target = (3, 3) if _index is not MASK else (2, 3)
        _functions(
            _operation,
            (
                lambda g, n=_operation, f=_form, a=_arrays, t=_target: REGISTRY[n].public(g, *a, index=f, shape=t),
                (signed(*np.zeros(_target)[_index].shape),),
            ),
        )
_functions("gather", (lambda x: taking.take(x, [1, 1, 0], axis=1), (signed(2, 3),)))
_functions(
    "gather_along",
    (lambda x: taking.take_along_axis(x, np.array([[0, 0, 2], [1, 0, 1]]), axis=1), (signed(2, 3),)),
)
for _name in ("gather_mask", "spread_mask"):  # masks of distributed tensors
    _functions(
        _name,
        (
            lambda x, n=_name: REGISTRY[n].public(x, MASK, at=0),
            (signed(*((2, 3) if _name == "gather_mask" else (4,)), 2),),
        ),
        (lambda x, n=_name: REGISTRY[n].public(x, MASK[0], at=1), (signed(2, 3 if _name == "gather_mask" else 2, 2),)),
    )


# Softmax -----------------------------------------------------------------

_functions("softmax", (softmax.softmax, (signed(2, 3),)), (lambda x: softmax.softmax(x, 0), (signed(3, 2),)))
_functions(
    "log_softmax", (softmax.log_softmax, (signed(2, 3),)), (lambda x: softmax.log_softmax(x, 0), (signed(3, 2),))
)
_functions("exp", (softmax.logsumexp, (signed(2, 3),)), (lambda x: softmax.logsumexp(x, 1, True), (signed(2, 3),)))


# Special functions, convolutions ------------------------------------------

for _more in (special_cases.CASES, sliding_cases.CASES):
    for _name, _cases in _more.items():
        _functions(_name, *_cases)


# Linear algebra and Fourier transforms -----------------------------------

for _name, _cases in matrix_cases.CASES.items():
    _functions(_name, *_cases)


# Sorting and selecting ---------------------------------------------------


def positions(shape, axis, count, extent):
    """So many positions on an axis for each line of a shape, some of them equal."""
    shape = (*shape[:axis], count, *shape[axis + 1 :])
    return np.arange(np.prod(shape, dtype=int)).reshape(shape) * 7 // 3 % extent


def _gathered(x, axis):
    return REGISTRY["gather_along"].public(x, positions(x.shape, axis, 4, x.shape[axis]), axis=axis)


def _added(g, axis):
    return REGISTRY["spread_along"].public(g, positions(g.shape, axis, g.shape[axis], 5), axis=axis, extent=5)


_functions(
    "gather_along",
    (lambda x: _gathered(x, 1), (signed(2, 3),)),
    (lambda x: _gathered(x, 0), (cmplx(3, 2),)),
    (lambda x: sorting.topk(x, 2)[0], (signed(2, 5),)),
    (lambda x: sorting.topk(x, 2, axis=0, largest=False)[0], (signed(9, 2),)),
)
_functions(
    "spread_along",
    (lambda g: _added(g, 1), (signed(2, 4),)),
    (lambda g: _added(g, 0), (cmplx(4, 2),)),
)
_functions(
    "sort",
    (sorting.sort, (signed(7),)),
    (lambda x: sorting.sort(x, axis=0, descending=True), (signed(5, 2),)),
    (lambda x: sorting.sort(x, stable=False), (signed(2, 3),)),
    (sorting.sort, (cmplx(4),)),
)
