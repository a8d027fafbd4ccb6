"""Gradient cases of convolutions, pooling, padding and segments, for `gradient_cases`."""

from case_arrays import cmplx, signed

from spmdlayer.ops import convolution
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
        (signed(1, 4, 4, 5), cmplx(4, 2, 2, 3), {"stride": (1, 2), "padding": 1, "groups": 2}),
        (signed(1, 1, 3, 3, 3), signed(2, 1, 2, 1, 2), {"padding": "same"}),
        (signed(2, 2, 40), signed(1, 2, 36), {}),
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
