"""NumPy's functions on tensors: on the tape, local and distributed, or an error that says what to do."""

import inspect

import numpy as np
import placed
import pytest
from finite_differences import check_first
from mpi_helpers import assert_all

import spmdlayer as spmd
from spmdlayer.ops import protocols

A = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]])
B = np.array([1.5, 2.0, -0.5])

UNARY = """absolute negative sin cos tan arctan sinh cosh tanh arcsinh exp exp2 expm1 cbrt square reciprocal floor ceil
trunc rint sign isnan isfinite signbit logical_not positive deg2rad radians degrees""".split()
BINARY = """add subtract multiply divide true_divide floor_divide remainder mod arctan2 maximum minimum fmax fmin hypot
copysign logaddexp nextafter equal less greater_equal not_equal logical_and""".split()
FUNCTIONS = {
    "sum": lambda x: np.sum(x, axis=0),
    "sum of all": lambda x: np.sum(x),
    "mean": lambda x: np.mean(x, 1, keepdims=True),
    "std": lambda x: np.std(x, axis=0, ddof=1),
    "var": lambda x: np.var(x, 1),
    "amax": lambda x: np.amax(x, axis=0),
    "prod": lambda x: np.prod(x, axis=1),
    "argmax": lambda x: np.argmax(x, axis=1),
    "any": lambda x: np.any(x > 1, axis=0),
    "count_nonzero": lambda x: np.count_nonzero(x, axis=1),
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "cumsum of all": lambda x: np.cumsum(x) + x.cumsum(),
    "cumprod of all": lambda x: np.cumprod(x),
    "kron": lambda x: np.kron(x, B),
    "cross": lambda x: np.cross(x, B),
    "flipud": lambda x: np.flipud(x),
    "fliplr": lambda x: np.fliplr(x),
    "where": lambda x: np.where(x > 0, x, 2 * x),
    "nonzero": lambda x: np.where(x > 0)[1],
    "concatenate": lambda x: np.concatenate([x, A, x], axis=0),
    "stack": lambda x: np.stack((x, x), axis=1),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, A, optimize=True),
    "tensordot": lambda x: np.tensordot(x, A, axes=((1,), (1,))),
    "dot": lambda x: np.dot(x, B),
    "outer": lambda x: np.outer(x, B),
    "transpose": lambda x: np.transpose(x, (1, 0)),
    "moveaxis": lambda x: np.moveaxis(x, 0, -1),
    "reshape": lambda x: np.reshape(x, (3, 2)),
    "ravel": lambda x: np.ravel(x),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 2, 3)),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x, B)[1],
    "split": lambda x: np.split(x, 3, axis=1)[1],
    "roll": lambda x: np.roll(x, 1, axis=0),
    "flip": lambda x: np.flip(x, 1),
    "tile": lambda x: np.tile(x, (2, 1)),
    "repeat": lambda x: np.repeat(x, 2, axis=1),
    "take": lambda x: np.take(x, [2, 0], axis=1),
    "clip": lambda x: np.clip(x, -1, 1),
    "clip by names": lambda x: np.clip(x, a_min=None, a_max=1),
    "round": lambda x: np.round(x * 1.234, 1),
    "diff": lambda x: np.diff(x, axis=1),
    "sort": lambda x: np.sort(x, axis=1, kind="stable"),
    "tril": lambda x: np.tril(x, 1),
    "zeros_like": lambda x: np.zeros_like(x),
    "full_like": lambda x: np.full_like(x, 3.0),
    "real": lambda x: np.real(x),
    "atleast_1d": lambda x: np.atleast_1d(x[0, 0]),
    "atleast_2d": lambda x: np.atleast_2d(x[0]),
    "atleast_3d": lambda x: np.atleast_3d(x)[:, 0],
    "vstack": lambda x: np.vstack([x, x[0], B]),
    "hstack": lambda x: np.hstack([x, A]),
    "hstack of lines": lambda x: np.hstack((x[0], B)),
    "dstack": lambda x: np.dstack([x, A]),
    "column_stack": lambda x: np.column_stack([x[0], B]),
    "append": lambda x: np.append(x, B),
    "array_split": lambda x: np.array_split(x, 2, axis=1)[1],
    "diagonal": lambda x: np.diagonal(x, 1),
    "trace": lambda x: np.trace(np.stack([x, x + 1], axis=1), offset=-1, axis1=2, axis2=0),
    "diag above": lambda x: np.diag(x[0], 2),
    "diag below": lambda x: np.diag(x[0], -1),
    "inner": lambda x: np.inner(x, A),
    "vdot": lambda x: np.vdot(x * 1j, A),
    "average": lambda x: np.average(x, axis=1, weights=B),
    "average by weights like x": lambda x: np.average(x, axis=0, weights=np.abs(A), keepdims=True),
    "average without weights": lambda x: np.average(x),
    "ptp": lambda x: np.ptp(x, axis=1),
    "angle": lambda x: np.angle(x + 2j, deg=True),
    "nan_to_num": lambda x: np.nan_to_num(np.where(x == 2.0, np.nan, np.where(x == 3.0, np.inf, x)), nan=7.0),
    "nansum": lambda x: np.nansum(np.where(x > 0, x, np.nan), axis=0),
    "nanmean": lambda x: np.nanmean(np.where(x > 0, x, np.nan), axis=1, keepdims=True),
    "nanmax": lambda x: np.nanmax(np.where(x < 2.5, x, np.nan), axis=1),
    "nanmin": lambda x: np.nanmin(np.where(x > 0, x, np.nan)),
    "linspace": lambda x: np.linspace(x, B, 4),
    "linspace to a number": lambda x: np.linspace(1.0, x[0], 4, endpoint=False),
    "divmod of Python": lambda x: divmod(x, B)[0] + divmod(2.0, x)[1],
    "fft": lambda x: np.fft.fft(x, axis=1),
    "linalg": lambda x: np.linalg.norm(x, axis=1),
    "add.reduce": lambda x: np.add.reduce(x),
    "multiply.reduce": lambda x: np.multiply.reduce(x, axis=1, keepdims=True),
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=None),
    "add.accumulate": lambda x: np.add.accumulate(x, axis=1),
    "multiply.outer": lambda x: np.multiply.outer(x, B),
    "matmul": lambda x: np.matmul(x, B),
    "divmod": lambda x: np.divmod(x, B)[1],
    "array on the left": lambda x: A + x,
    "array @ tensor": lambda x: A.T @ x,
    "number on the left": lambda x: np.float64(2) * x,
}


@pytest.mark.parametrize("name", UNARY)
def test_ufunc_of_one(name):
    x = spmd.tensor(A, requires_grad=True)
    found = getattr(np, name)(x)
    assert isinstance(found, spmd.Tensor)
    np.testing.assert_array_equal(found.detach(), getattr(np, name)(A))
    assert found.requires_grad == (found.dtype.kind == "f")


@pytest.mark.parametrize("name", BINARY)
def test_ufunc_of_two(name):
    x = spmd.tensor(A, requires_grad=True)
    for operands, plain in (((x, B), (A, B)), ((B, x), (B, A)), ((x, 2.0), (A, 2.0)), ((x, x), (A, A))):
        found = getattr(np, name)(*operands)
        assert isinstance(found, spmd.Tensor)
        np.testing.assert_array_equal(found.detach(), getattr(np, name)(*plain))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    x = spmd.tensor(A, requires_grad=True)
    found, expected = FUNCTIONS[name](x), FUNCTIONS[name](A)
    assert isinstance(found, spmd.Tensor)
    np.testing.assert_allclose(found.detach(), expected)
    assert found.dtype == expected.dtype
    constant = expected.dtype.kind in "bi" or name in ("zeros_like", "full_like", "broadcast_arrays")
    assert found.requires_grad == (not constant)
    if not constant and name not in ("round", "nan_to_num") and "divmod" not in name:  # these jump here
        check_first(FUNCTIONS[name], [A])


@pytest.mark.mpi
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_distributed_tensors(name):
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    for placement in (spmd.Shard(0), spmd.Shard(1), spmd.Partial()):
        x = spmd.tensor(A, requires_grad=True)
        x = spmd.reshard(spmd.shard_tensor(x, mesh, [spmd.Replicate()]), mesh, [placement])
        found = FUNCTIONS[name](x)
        assert found.is_dist()
        value, expected = found.numpy(), FUNCTIONS[name](A)
        assert_all(np.allclose(value, expected) and value.dtype == expected.dtype, (placement, value, expected))


def test_questions_about_tensors():
    x = spmd.tensor(A, requires_grad=True)
    assert (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1)) == ((2, 3), 2, 6, 3)
    assert np.isrealobj(x) and np.iscomplexobj(x * 1j)
    assert np.allclose(x, A) is True and np.array_equal(x, A[0]) is False
    assert np.result_type(x, np.float32) == np.float64


def test_scipys_ufuncs():
    special = pytest.importorskip("scipy.special")
    x = spmd.tensor(B, requires_grad=True)
    for name in ("erf", "expit", "gammaln", "exp2", "sinc", "log1p"):
        if isinstance(getattr(special, name), np.ufunc):
            found = getattr(special, name)(x)
            assert found.requires_grad
            np.testing.assert_allclose(found.detach(), getattr(special, name)(B))


def test_gradients_through_numpys_names():
    x = spmd.tensor(A, requires_grad=True)
    (np.sum(np.sin(x) * B) + np.mean(np.concatenate([x, A]))).backward()
    np.testing.assert_allclose(x.grad, np.cos(A) * B + 1 / 12)


@pytest.mark.parametrize(
    "call, match",
    [
        (
            lambda x: np.apply_along_axis(sum, 0, x),
            r"numpy\.apply_along_axis: spmdlayer has no counterpart .* \.numpy\(\)",
        ),
        (lambda x: np.spacing(x), r"numpy\.spacing: .* \.numpy\(\)"),
        (lambda x: np.add.at(x, [0], 1.0), r"numpy\.add\.at: "),
        (lambda x: np.add.reduceat(x, [0, 1]), r"numpy\.add\.reduceat: "),
        (lambda x: np.hypot.reduce(x), r"numpy\.hypot\.reduce: "),
        (lambda x: np.add(x, 1, out=np.ones((2, 3))), r"numpy\.add: out= .*values; write y\[\.\.\.\] =|y = numpy\.add"),
        (lambda x: np.add(x, 1, where=A > 0), r"numpy\.add: where= .* spmdlayer\.where"),
        (lambda x: np.sum(x, initial=2.0), r"numpy\.sum: initial= "),
        (lambda x: np.sum(x, out=np.ones(())), r"numpy\.sum: out= "),
        (lambda x: np.reshape(x, (3, 2), order="F"), r"numpy\.reshape: order= "),
        (lambda x: np.save("nowhere", x), r"numpy\.save: "),
        (lambda x: np.linalg.tensorinv(x), r"numpy\.linalg\.tensorinv: "),
        (lambda x: np.linalg.svd(x, compute_uv=False), r"numpy\.linalg\.svd: compute_uv= "),
        (lambda x: np.asarray(x), r"requires grad .* \.detach\(\)\.numpy\(\)"),
    ],
)
def test_what_has_no_counterpart_says_so(call, match):
    with pytest.raises(TypeError, match=match):
        call(spmd.tensor(A, requires_grad=True))


def test_an_array_takes_no_tensor_in_place():
    a = A.copy()
    with pytest.raises(TypeError, match="out="):
        a += spmd.tensor(A)
    np.testing.assert_array_equal(a, A)


def test_others_protocols_are_asked():
    class Other:
        def __array_ufunc__(self, ufunc, method, *inputs, **options):
            return "other"

        def __array_function__(self, function, types, args, keywords):
            return "other"

    assert np.add(spmd.tensor(A), Other()) == "other"
    assert np.concatenate([spmd.tensor(A), Other()]) == "other"


def test_a_ufunc_of_the_users_is_not_ours():
    def add(a, b):
        return 0

    with pytest.raises(TypeError, match="no counterpart"):
        np.frompyfunc(add, 2, 1)(spmd.tensor(A), 1)


def test_asarray_of_a_tensor():
    x = spmd.tensor(B)
    assert not np.asarray(x).flags.writeable
    assert np.shares_memory(np.asarray(x), np.asarray(x, copy=False))
    copied = np.array(x)
    copied[0] = 7.0
    np.testing.assert_array_equal(x, B)
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError):
        np.asarray(x, dtype=np.float32, copy=False)


@pytest.mark.mpi
def test_asarray_of_a_distributed_tensor():
    mesh = spmd.init_mesh((spmd.get_world_size(),))
    with pytest.raises(TypeError, match=r"\.numpy\(\) on every rank"):
        np.asarray(spmd.shard_tensor(A, mesh, [spmd.Shard(0)]))


@pytest.mark.mpi
def test_programs_in_numpys_names():
    """One program on arrays, on a local tensor and on random placements of it; value and gradient."""
    random = np.random.default_rng(5)

    def program(np_, x, w):
        y = np.tanh(np.einsum("ij,kj->ik", x, w) + B[:2])
        z = np.concatenate([y, np.cumsum(y, axis=0)], axis=1)
        return np.sum(np.where(z > 0, z, np.square(z))) + np.linalg.norm(np.stack([x, x]))

    expected = program(np, A, A)
    local = spmd.tensor(A, requires_grad=True)
    program(np, local, A).backward()
    for mesh in placed.meshes():
        x = placed.distribute(random, mesh, A, placed.placements_for(random, mesh, A, partial=False)).requires_grad_()
        value = program(np, x, A)
        gradient = spmd.grad(value, x).numpy()
        assert_all(np.allclose(float(value), expected) and np.allclose(gradient, local.grad.numpy()), x.placements)


def dispatched(module):
    """NumPy's functions that ask `__array_function__` and have a counterpart."""
    kind = type(np.concatenate)
    found = {name: value for name, value in vars(module).items() if type(value) is kind}
    return [value for value in found.values() if protocols._function(value) is not None]


@pytest.mark.parametrize("module", [np, np.linalg, np.fft], ids=lambda module: module.__name__)
def test_defaults_are_numpys(module):
    """An argument that is left out means the same here and there."""
    functions = dispatched(module)
    assert functions
    for function in functions:
        ours = inspect.signature(protocols._function(function)).parameters
        for parameter in inspect.signature(function).parameters.values():
            name = protocols._OTHER_PARAMETERS.get(parameter.name, parameter.name)
            own = ours[name].default if name in ours else inspect.Parameter.empty
            unsaid = parameter.default is np._NoValue
            unsaid |= function is np.cross  # None: the last axis, as axisa and axisb say
            unsaid |= parameter.default is None and (name in ("norm", "stable") or own is False)  # None for "as usual"
            if not unsaid and inspect.Parameter.empty not in (own, parameter.default):
                assert own == parameter.default, (function.__name__, name)


def test_wrong_arguments_are_numpys_errors():
    x = spmd.tensor(A)
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        np.sum(x, wrong=1)
    with pytest.raises(TypeError, match="missing a required argument|required positional"):
        np.moveaxis(x, 0)
