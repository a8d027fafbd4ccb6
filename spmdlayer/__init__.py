"""spmdlayer: distributed tensors on MPI ranks, local Python between them, and gradients through both.

    import spmdlayer as spmd

    mesh = spmd.init_mesh((spmd.get_world_size(),), ("x",))
    x = spmd.dtensor_from_local(local_array, mesh, [spmd.Shard(0)])

Importing this initialises no MPI; the first mesh or question about ranks does.
"""

from importlib import import_module as _import_module
from math import e, inf, nan, pi

from .autograd.backward import backward, enable_grad, grad, no_grad
from .autograd.function import Function, once_differentiable
from .autograd.recompute import recompute
from .autograd.tensor import Tensor, tensor
from .boundary.api import (
    all_gather,
    dtensor_from_fn,
    dtensor_from_local,
    dtensor_to_local,
    print_once,
    reshard,
    shard_tensor,
    unshard_dtensor,
)
from .boundary.local_map import local_map
from .config import config
from .debug.tracing import trace
from .dtypes import (
    bool_,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .halo import halo_exchange, stencil
from .local_layer import LocalLayer
from .mesh import ProcessMesh, init_mesh
from .nn.activations import elu, gelu, leaky_relu, relu, silu
from .nn.layer import Layer
from .ops import distributed, methods  # noqa: F401: they install themselves
from .ops.cardinal_sine import sinc
from .ops.composed import allclose, array_equal, broadcast_arrays, count_nonzero, diff, isclose, unstack
from .ops.contraction import dot, einsum, tensordot
from .ops.convolution import conv, conv_transpose, convolve, correlate
from .ops.counting import bincount, histogram
from .ops.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from .ops.cumulative import cumulative_prod, cumulative_sum
from .ops.device import to_device
from .ops.elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    astype,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    cbrt,
    ceil,
    clip,
    conj,
    copy,
    copysign,
    cos,
    cosh,
    deg2rad,
    divide,
    equal,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    fmax,
    fmin,
    greater,
    greater_equal,
    hypot,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    power,
    rad2deg,
    real,
    reciprocal,
    remainder,
    round,
    sigmoid,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
    where,
)
from .ops.inspection import can_cast, finfo, iinfo, isdtype, result_type
from .ops.inspection import namespace_info as __array_namespace_info__
from .ops.linear import matmul, outer, vecdot
from .ops.lookup import interp, one_hot, select, trapezoid
from .ops.numpy_names import (
    angle,
    append,
    array_split,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    average,
    column_stack,
    diag,
    diagonal,
    dstack,
    hstack,
    inner,
    nan_to_num,
    nanmax,
    nanmean,
    nanmin,
    nansum,
    ptp,
    vdot,
    vstack,
)
from .ops.padding import pad
from .ops.pooling import avg_pool, max_pool
from .ops.positions import argmax, argmin
from .ops.quantiles import median, percentile, quantile
from .ops.reductions import (
    all,
    any,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from .ops.searching import argwhere, digitize, flatnonzero, isin, nonzero, searchsorted
from .ops.segments import index_add, segment_max, segment_mean, segment_min, segment_sum
from .ops.sets import unique, unique_all, unique_counts, unique_inverse, unique_values
from .ops.shape import (
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    permute_dims,
    ravel,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
)
from .ops.softmax import log_softmax, logsumexp, softmax
from .ops.sorting import argsort, sort, topk
from .ops.taking import take, take_along_axis
from .ops.transforms import hessian, hvp, jacobian, jvp, vjp
from .placement import Partial, ReduceType, Replicate, Shard
from .runtime import barrier, get_rank, get_world_size, init_parallel_env
from .special import softplus

bool = bool_
newaxis = None
to_tensor = tensor
concatenate = concat

__version__ = "0.1.0"
__array_api_version__ = "2024.12"


_LATE = ("fft", "linalg", "mpi", "optimize", "random", "special")


def __getattr__(name):
    # What is imported when first used: namespaces of their own, and ml_dtypes, which brings bfloat16.
    if name in _LATE:
        return _import_module(f"{__name__}.{name}")
    if name == "bfloat16":
        return dtype("bfloat16")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_LATE, "bfloat16"})
