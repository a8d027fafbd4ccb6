"""Convolutions in 1 to 3 dimensions, channels first, and their transposes.

As everywhere in machine learning, `conv` correlates: the weights are not
flipped.  `convolve` and `correlate` are NumPy's.  The three operations here are
each other's derivatives (see `convolution_sums`), so they are differentiable
to any order.
"""

from ..errors import type_error, value_error
from . import shape as shapes
from .complaints import shown
from .convolution_rules import IMAGE, OUTPUT, WEIGHT, conv_rule
from .convolution_sums import Geometry, input_sum, output_sum, weight_sum
from .registry import apply, define, unbroadcast
from .registry import conj as conjugate
from .shape import operand
from .windows import check_fit, paddings, per_dimension

# Gradients -----------------------------------------------------------------


def _fit(grad, p, i, xp):
    """A gradient in the dtype of its input."""
    return unbroadcast(xp, grad, grad.shape, p.dtypes[i])


def bilinear_vjps(first, second):
    """The vjps of one of three sums that are the derivatives of a trilinear form: the two others.

    `first` and `second` are functions of (xp, cotangent, conjugate operand,
    parameters) that give the gradients of the first and the second operand.
    """

    def of_first(g, b, p, xp):
        return _fit(first(xp, g, conjugate(b), p), p, 0, xp)

    def of_second(g, a, p, xp):
        return _fit(second(xp, g, conjugate(a), p), p, 1, xp)

    return of_first, of_second


_output_vjps = bilinear_vjps(
    lambda xp, g, w, p: xp.conv_input(g, w, geometry=p.geometry),
    lambda xp, g, x, p: xp.conv_weight(x, g, geometry=p.geometry),
)
_input_vjps = bilinear_vjps(
    lambda xp, g, w, p: xp.conv_output(g, w, geometry=p.geometry),
    lambda xp, g, y, p: xp.conv_weight(g, y, geometry=p.geometry),
)
_weight_vjps = bilinear_vjps(
    lambda xp, g, y, p: xp.conv_input(y, g, geometry=p.geometry),
    lambda xp, g, x, p: xp.conv_output(x, g, geometry=p.geometry),
)


# Operations ----------------------------------------------------------------

_conv_output = define(
    "conv_output",
    lambda np, x, w, geometry: output_sum(np, x, w, geometry),
    _output_vjps,
    rule=conv_rule((IMAGE, WEIGHT, OUTPUT), output_sum),
)
_conv_input = define(
    "conv_input",
    lambda np, y, w, geometry: input_sum(np, y, w, geometry),
    _input_vjps,
    rule=conv_rule((OUTPUT, WEIGHT, IMAGE), input_sum),
)
define(
    "conv_weight",
    lambda np, x, y, geometry: weight_sum(np, x, y, geometry),
    _weight_vjps,
    rule=conv_rule((IMAGE, OUTPUT, WEIGHT), weight_sum),
)


# Public --------------------------------------------------------------------


def _operands(name, x, weight, groups):
    """The operands of a convolution, and in how many dimensions it slides."""
    x, weight = operand(x), operand(weight)
    for what, array in (("x", x), ("weight", weight)):
        if array.dtype.kind == "b":
            raise type_error(f"{name}: {what} is bool; numbers are needed")
    if x.ndim not in (3, 4, 5) or weight.ndim != x.ndim:
        raise value_error(
            f"{name}: x of shape {shown(x)} and weight of shape {shown(weight)} were given; both need 2 dimensions and "
            "1 to 3 sliding ones"
        )
    per_dimension(name, "groups", groups, 1)
    outer = weight.shape[0]
    if outer % groups:
        raise value_error(f"{name}: {groups} groups do not divide the first extent of weight, of shape {shown(weight)}")
    return x, weight, x.ndim - 2


def conv(x, weight, stride=1, padding=0, dilation=1, groups=1):
    """The convolution of samples with channels in 1, 2 or 3 dimensions (a cross-correlation).

    y[n, o, i] is the sum over c and k of x[n, c, i * stride + k * dilation] * weight[o, c, k].

    Parameters
    ----------
    x : shape (N, C, *extents)
    weight : shape (O, C / groups, *window)
    stride, dilation : int, or one for each sliding dimension
    padding : zeros around x: an int, an int or pair (before, after) for each sliding dimension, "valid" or "same"
    groups : channels c of group k meet outputs o of group k alone

    Returns
    -------
    tensor of shape (N, O, *places), places = (padded extent - dilation * (window - 1) - 1) // stride + 1

    Samples and output channels stay sharded; input channels sharded in both
    give Partial(sum); a sharded sliding dimension is gathered.  With large
    windows and stride 1 the sums go by Fourier transforms, whose rounding is
    relative to the largest sum.
    """
    x, weight, sliding = _operands("conv", x, weight, groups)
    if x.shape[1] != weight.shape[1] * groups:
        raise value_error(
            f"conv: weight of shape {shown(weight)} with groups={groups} takes {weight.shape[1] * groups} channels; x "
            f"has shape {shown(x)}"
        )
    window, extents = weight.shape[2:], x.shape[2:]
    stride = per_dimension("conv", "stride", stride, sliding)
    dilation = per_dimension("conv", "dilation", dilation, sliding)
    padding = paddings("conv", padding, extents, window, stride, dilation)
    geometry = Geometry(window, stride, padding, dilation, int(groups), extents)
    _check_window("conv", weight)
    check_fit("conv", x.shape, geometry.padded, window, dilation)
    return apply(_conv_output, (x, weight), {"geometry": geometry})


def _check_window(name, weight):
    if 0 in weight.shape[2:]:
        raise value_error(f"{name}: weight of shape {shown(weight)} has an empty window")


def conv_transpose(x, weight, stride=1, padding=0, dilation=1, groups=1, output_padding=0):
    """The transposed convolution: the adjoint of `conv` in its x, which enlarges where conv strides.

    Parameters
    ----------
    x : shape (N, C, *places)
    weight : shape (C, O / groups, *window)
    stride, dilation : int, or one for each sliding dimension
    padding : of the convolution that is transposed: elements cut off the result, as for `conv` without "same"
    groups : channels c of group k meet outputs o of group k alone
    output_padding : int, or one for each sliding dimension, less than the stride: elements added after the result

    Returns
    -------
    tensor of shape (N, O, *extents),
    extents = (places - 1) * stride + dilation * (window - 1) + 1 - padding (both sides) + output_padding

    Distributed as `conv`.
    """
    name = "conv_transpose"
    x, weight, sliding = _operands(name, x, weight, groups)
    if x.shape[1] != weight.shape[0]:
        raise value_error(f"{name}: weight of shape {shown(weight)} takes {weight.shape[0]} channels; x has {shown(x)}")
    _check_window(name, weight)
    window, counts = weight.shape[2:], x.shape[2:]
    stride = per_dimension(name, "stride", stride, sliding)
    dilation = per_dimension(name, "dilation", dilation, sliding)
    if padding == "same":
        raise value_error(f"{name}: padding='same' does not say how much to cut off; give numbers")
    padding = paddings(name, padding, counts, window, stride, dilation)
    extra = per_dimension(name, "output_padding", output_padding, sliding, least=0)
    if any(more >= s for more, s in zip(extra, stride)):
        raise value_error(f"{name}: output_padding {output_padding!r} must be less than the stride {stride}")
    extents = tuple(
        (n - 1) * s + d * (k - 1) + 1 - before - after + more
        for n, s, d, k, (before, after), more in zip(counts, stride, dilation, window, padding, extra)
    )
    if min((*counts, *extents)) < 1:
        raise value_error(f"{name}: the result would have extents {extents}, from x of shape {shown(x)}")
    return apply(
        _conv_input, (x, weight), {"geometry": Geometry(window, stride, padding, dilation, int(groups), extents)}
    )


# NumPy's, of one dimension -------------------------------------------------

_MODES = ("full", "same", "valid")


def _lines(name, a, v, mode):
    a, v = operand(a), operand(v)
    for what, array in (("a", a), ("v", v)):
        if array.ndim != 1 or array.shape[0] == 0:
            raise value_error(f"{name}: {what} must have one dimension and elements, its shape is {array.shape}")
    if mode not in _MODES:
        raise value_error(f"{name}: mode must be one of {_MODES}, {mode!r} was given")
    return a, v


def _slide(a, v, mode):
    """The sums of a[i + k] v[k] for all places i that a mode counts; a is at least as long as v."""
    length = v.shape[0]
    before = {"full": length - 1, "same": length // 2, "valid": 0}[mode]
    after = {"full": length - 1, "same": (length - 1) // 2, "valid": 0}[mode]
    samples, weight = a.reshape((1, 1, a.shape[0])), v.reshape((1, 1, length))  # a raw array stays one
    return shapes.reshape(conv(samples, weight, padding=((before, after),)), (-1,))


def convolve(a, v, mode="full"):
    """The convolution of two sequences, as numpy.convolve: the sum over k of a[i - k] v[k].

    mode: "full" (wherever they overlap), "same" (as many as the longer has) or "valid" (where they overlap wholly).
    """
    a, v = _lines("convolve", a, v, mode)
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    return _slide(a, v[::-1], mode)


def correlate(a, v, mode="valid"):
    """The cross-correlation of two sequences, as numpy.correlate: the sum over i of a[i + k] conj(v[i]).

    mode as for `convolve`.
    """
    a, v = _lines("correlate", a, v, mode)
    if v.shape[0] > a.shape[0]:
        return shapes.flip(_slide(conjugate(v), a, mode))
    return _slide(a, conjugate(v), mode)
