"""Gradient cases of convolutions, pooling, padding and segments, for `gradient_cases`."""

import numpy as np
from case_arrays import cmplx, signed

from spmdlayer import stencil
from spmdlayer.nn import activations
from spmdlayer.ops import convolution, lookup, padding, pooling, segments
from spmdlayer.ops.ghosts import BOUNDARIES
from spmdlayer.ops.registry import REGISTRY

CASES = {}


def _functions(name, *cases):
    CASES.setdefault(name, []).extend(cases)


# Convolutions ------------------------------------------------------------


def _convolutions(function, *cases):
    return [(lambda x, w, o=options: function(x, w, **o), (x, w)) for x, w, options in cases]


_functions(
    "conv_output",
    *_convolutions(
        convolution.conv,
        (signed(2, 3, 6), signed(2, 3, 3), {}),
        (cmplx(2, 2, 5), signed(2, 2, 2), {"padding": ((2, 1),), "dilation": 2}),
        (signed(1, 2, 3, 4), cmplx(4, 1, 2, 3), {"stride": (1, 2), "padding": 1, "groups": 2}),
        (signed(1, 1, 3, 3, 3), signed(2, 1, 2, 1, 2), {"padding": "same"}),
    ),
    (lambda a, v: convolution.correlate(a, v, "same"), (signed(4), cmplx(3))),
    (lambda a, v: convolution.convolve(a, v), (signed(2), signed(3))),
)
_functions(
    "conv_input",
    *_convolutions(
        convolution.conv_transpose,
        (signed(2, 3, 3), signed(3, 2, 2), {"stride": 2, "output_padding": 1}),
        (cmplx(1, 2, 2, 3), signed(2, 1, 2, 2), {"padding": 1, "groups": 2, "dilation": (2, 1), "stride": (2, 1)}),
    ),
)
_GEOMETRY = convolution.Geometry((2, 2), (1, 2), ((0, 1), (0, 0)), (1, 1), 2, (3, 4))
_functions(
    "conv_weight",
    (lambda x, y: REGISTRY["conv_weight"].public(x, y, geometry=_GEOMETRY), (signed(2, 2, 3, 4), cmplx(2, 4, 3, 2))),
)
_functions(
    "windows", (lambda x: REGISTRY["windows"].public(x, window=(2,), stride=(1,), dilation=(2,)), (signed(2, 5),))
)
_functions("fold", (lambda x: REGISTRY["fold"].public(x, extents=(5,), stride=(2,), dilation=(1,)), (cmplx(2, 3, 2),)))


# Pooling and padding -----------------------------------------------------

_functions(
    "window_max",
    (lambda x: pooling.max_pool(x, 2), (signed(2, 2, 5),)),
    (lambda x: pooling.max_pool(x, (2, 3), stride=1, padding=(1, (0, 1)), dilation=(2, 1)), (signed(2, 3, 4),)),
)
_functions(
    "window_sum",
    (lambda x: pooling.avg_pool(x, 2, padding="same", stride=1), (cmplx(1, 2, 3),)),
    (lambda x: pooling.avg_pool(x, (2, 2), padding=1, count_include_pad=False), (signed(3, 4),)),
)
_POOLED, _PARAMS = signed(2, 5), {"window": (2,), "stride": (2,), "dilation": (2,)}
_MAXIMA = np.maximum(_POOLED[:, [0, 2]], _POOLED[:, [2, 4]])
for _name, _shape in (("window_max_shares", (2, 2)), ("window_max_means", (2, 5))):
    _functions(
        _name,
        (lambda g, n=_name: REGISTRY[n].public(g, _POOLED, _MAXIMA, **_PARAMS), (signed(*_shape),)),
    )
_functions("padded", (lambda x: padding.pad(x, ((1, 2), (0, 1)), constant_values=3), (signed(2, 3),)))
for _mode in ("edge", "reflect", "symmetric", "wrap"):
    _functions("padded", (lambda x, m=_mode: padding.pad(x, ((3, 4), (0, 1)), m), (cmplx(3, 2),)))
    _functions(
        "unpadded",
        (lambda g, m=_mode: REGISTRY["unpadded"].public(g, widths=((2, 0), (1, 4)), mode=m), (signed(4, 8),)),
    )


# Halos and stencils ------------------------------------------------------


def _ranges(n, pieces, before, after):
    """The ranges of n positions in so many pieces, as far as a reflection reaches."""
    ends = [n * k // pieces for k in range(pieces + 1)]
    least = max(n - 1, 0)
    return tuple((low - min(before, least), high + min(after, least)) for low, high in zip(ends, ends[1:]))


for _boundary in BOUNDARIES:
    for _pieces, _around in ((2, (0, 1)), (4, (3, 2))):

        def _extended(x, b=_boundary, n=_pieces, around=_around):
            ranges = (_ranges(x.shape[0], n, *around), *(None,) * (x.ndim - 2), _ranges(x.shape[-1], 1, 1, 1))
            return REGISTRY["with_ghosts"].public(x, ranges=ranges[: x.ndim], boundary=b)

        def _folded(g, b=_boundary, n=_pieces, around=_around):
            (low, high), extent = around, g.shape[0] - n * sum(around)
            if extent <= max(around):
                raise ValueError("too few elements")
            ranges = (_ranges(extent, n, low, high), *(None,) * (g.ndim - 1))
            return REGISTRY["add_ghosts"].public(g, ranges=ranges, boundary=b, extents=(extent, *g.shape[1:]))

        _functions("with_ghosts", (_extended, (cmplx(5, 2),)))
        _functions("add_ghosts", (_folded, (signed(4 + _pieces * sum(_around), 2),)))

    def _adjoint(g, w, b=_boundary):
        stencil(g * 1.0, w, b)  # raises for what does not fit
        return REGISTRY["stencil_adjoint"].public(g, w, boundary=b)

    def _weights(x, g, b=_boundary):
        if x.shape != g.shape:
            raise ValueError("the shapes differ")
        stencil(x * g, np.ones((3, 1)), b)
        return REGISTRY["stencil_weights"].public(x, g, window=(3, 1), boundary=b)

    _functions(
        "stencil",
        (lambda x, w, b=_boundary: stencil(x, w, b), (signed(4, 3), signed(3, 3))),
        (lambda x, w, b=_boundary: stencil(x, w, b), (cmplx(2, 4), signed(5))),
    )
    _functions("stencil_adjoint", (_adjoint, (signed(4, 3), signed(3, 1))), (_adjoint, (signed(2, 5), cmplx(3))))
    _functions("stencil_weights", (_weights, (signed(4, 3), cmplx(4, 3))), (_weights, (signed(3, 2), signed(3, 2))))


# Segments, tables, activations -------------------------------------------

IDS = np.array([2, 0, 2, 3, 0])
_functions("segment_sum", *((lambda x: segments.segment_sum(x, IDS, 5), (x,)) for x in (signed(5), cmplx(5, 2))))
_functions("segment_sum", (lambda x: segments.segment_mean(x, IDS, 5), (cmplx(5, 2),)))
_functions("segment_sum", (lambda x, v: segments.index_add(x, [[1, -1]], v, 1), (signed(2, 3), signed(2, 1, 2))))
for _function in (segments.segment_max, segments.segment_min):
    # A segment without rows would be infinite.
    _functions(_function.__name__, (lambda x, f=_function: f(x, IDS, 5)[np.unique(IDS)], (signed(5, 2),)))
_functions(
    "gather",
    (lambda x, p, f: lookup.interp(x, p + np.arange(4.0), f), (2 * signed(6), signed(4) / 9, signed(4))),
    (lambda x, f: lookup.interp(x, [-1.0, 0.5, 2.0], f, left=0.0), (3 * signed(5), cmplx(3))),
)
_functions("multiply", (lambda y, x: lookup.trapezoid(y, x, axis=0), (cmplx(4, 2), signed(4))))
_functions("where", (lambda x, y: lookup.select([x > 1, x > 0], [x * y, y], 2.0), (signed(5), signed(5))))
for _name in ("relu", "silu", "gelu"):
    _functions(_name, (REGISTRY[_name].public, (signed(4),)))
_functions("expm1", (lambda x: activations.elu(x, 1.3), (signed(4),)))
_functions("where", (activations.leaky_relu, (signed(4),)))
