"""What is wrong raises on every rank, before communication where that can be, and says what would be right."""

import numpy as np
import pytest
from boundary_helpers import P, R, S, check, layer, replicated, sharded
from mpi_helpers import launch, parallel_raises

import spmdlayer as spmd

pytestmark = pytest.mark.mpi


def silent(kind, match):
    """Every rank raises, and nothing was communicated."""

    class Silent:
        def __enter__(self):
            self.trace = spmd.trace()
            self.events = self.trace.__enter__()
            self.raises = parallel_raises(kind, match)
            return self.raises.__enter__()

        def __exit__(self, *exc):
            self.trace.__exit__(*exc)
            caught = self.raises.__exit__(*exc)
            assert self.events.count(records=True) == 0
            return caught

    return Silent()


# Attrs ----------------------------------------------------------------------


def test_the_rank_is_in_the_message(mesh):
    x, _ = sharded(mesh)
    with parallel_raises(ValueError, rf"\[rank {mesh.rank}\] LocalLayer"):
        layer(lambda x: x, [[S()], [S()]])(x)


def test_wrong_numbers_of_attrs(mesh):
    x, _ = sharded(mesh)
    with silent(ValueError, "grad_dist_attrs has 2 entries for 1 positional inputs; one per input"):
        layer(lambda x: x, [[S()]], [[S()], [S()]])(x)
    with silent(ValueError, "grad_dist_attrs has 1 entries for 2 positional inputs"):
        layer(lambda x, y: x, [[S()]], [[S()]])(x, 3)
    for outputs in (1, 3):
        with parallel_raises(ValueError, rf"{outputs} outputs were returned, but out_dist_attrs has 2 entries"):
            layer(lambda x: (x,) * outputs, [[S()], [S()]])(x)
    with parallel_raises(ValueError, "0 outputs"):
        layer(lambda x: None, [[S()]])(x)


@pytest.mark.parametrize("placements", [[], [S(), R]])
def test_wrong_numbers_of_placements(mesh, placements):
    x, _ = sharded(mesh)
    number = len(placements)
    for call in (
        lambda: spmd.dtensor_from_local(np.ones(2), mesh, placements),
        lambda: spmd.shard_tensor(np.ones(2), mesh, placements),
        lambda: spmd.reshard(x, mesh, placements),
        lambda: x.to_local(placements),
        lambda: layer(lambda x: x, [(mesh, placements)])(x),
        lambda: layer(lambda x: x, [[S()]], [(mesh, placements)])(x),
        lambda: spmd.local_map(lambda x: x, [[S()]], in_placements=[(mesh, placements)])(x),
    ):
        with silent(ValueError, rf"{number} given.*1 axis"):
            call()


def test_shard_dims_outside_the_tensor(mesh):
    x, _ = sharded(mesh)
    for dim in (1, -2):
        for call in (
            lambda: spmd.shard_tensor(np.ones(2), mesh, [S(dim)]),
            lambda: spmd.reshard(x, mesh, [S(dim)]),
            lambda: x.to_local([S(dim)]),
            lambda: layer(lambda x: x, [[S()]], [[S(dim)]])(x),
            lambda: spmd.local_map(lambda x: x, [[S()]], in_placements=[[S(dim)]])(x),
        ):
            with silent(ValueError, rf"Shard\({dim}\) is outside the tensor's 1 dimensions"):
                call()
        # Of these the dimensions are known when all ranks have told them.
        for call in (
            lambda: spmd.dtensor_from_local(np.ones(2), mesh, [S(dim)]),
            lambda: layer(lambda x: x, [[S(dim)]])(x),
        ):
            with parallel_raises(ValueError, rf"Shard\({dim}\) is outside the tensor's 1 dimensions"):
                call()
    with parallel_raises(ValueError, "0-d"):
        spmd.dtensor_from_local(1.0, mesh, [S()])


def test_what_is_no_placement(mesh):
    x, _ = sharded(mesh)
    with silent(TypeError, r"\[Shard\(0\)\]"):
        spmd.dtensor_from_local(np.ones(2), mesh, S())
    with silent(TypeError, "'sum' is not a placement"):
        spmd.dtensor_from_local(np.ones(2), mesh, ["sum"])
    with silent(TypeError, "grad_placements"):
        x.to_local(S())
    with silent(TypeError, r"out_dist_attrs\[0\].*\[Shard\(0\)\]"):
        spmd.LocalLayer([S(), [S()]])
    with silent(TypeError, r"out_dist_attrs\[1\]"):
        spmd.LocalLayer([[S()], "sum"])
    with silent(TypeError, "out_dist_attrs"):
        spmd.LocalLayer(None)
    with silent(TypeError, "grad_dist_attrs.*not int"):
        spmd.LocalLayer([[S()]], 3)
    with silent(ValueError, "only word is 'auto'"):
        spmd.LocalLayer([[S()]], "automatic")
    with silent(TypeError, "one per mesh axis"):
        spmd.LocalLayer([(mesh, S())])


def test_what_is_no_mesh(mesh):
    x, _ = sharded(mesh)
    for call in (
        lambda: spmd.dtensor_from_local(np.ones(2), [0], [S()]),
        lambda: spmd.shard_tensor(np.ones(2), None, [S()]),
        lambda: spmd.reshard(x, "x", [S()]),
        lambda: spmd.dtensor_to_local(x, 3),
    ):
        with silent(TypeError, "mesh: a ProcessMesh is needed"):
            call()
    other = spmd.init_mesh((1, mesh.size))
    with silent(ValueError, "not the tensor's"):
        spmd.dtensor_to_local(x, other)
    with silent(ValueError, r"grad_dist_attrs\[0\]: its mesh is"):
        layer(lambda x: x, [[S()]], [(other, [R, S()])])(x)
    with silent(ValueError, r"out_dist_attrs\[1\].*one mesh"):
        layer(lambda x: (x, x), [(mesh, [S()]), (other, [R, S()])])(x)


def test_axes_and_ranks_that_a_mesh_has_not(mesh):
    n = mesh.size
    with silent(ValueError, "'y'.*"):
        mesh.get_group("y")
    with silent(ValueError, "1 was given"):
        mesh.get_group(1)
    with silent(ValueError, "more than once"):
        spmd.ProcessMesh([0, 0])
    with silent(ValueError, rf"\[{n}\] are not in the communicator"):
        spmd.ProcessMesh([0, n])


# Shapes and dtypes --------------------------------------------------------------


def test_local_shapes_that_disagree_outside_the_sharded_dim(mesh):
    r = mesh.rank
    if mesh.size == 1:
        pytest.skip("one rank agrees with itself")
    odd = r == mesh.size - 1
    x, _ = sharded(mesh)
    for local, placement in [
        (np.ones((2, 3 + odd)), S(0)),
        (np.ones((2 + odd, 3)), R),
        (np.ones((2 + odd, 3)), P),
        (np.ones((2, 3, 1) if odd else (2, 3)), S(0)),
        (np.ones(()) if odd else np.ones(2), P),
    ]:
        with parallel_raises(ValueError, r"have shapes .* and "):
            spmd.dtensor_from_local(local, mesh, [placement])
        with parallel_raises(ValueError, r"have shapes .* and "):
            layer(lambda x: local, [[placement]])(x)


def test_a_given_shape_that_does_not_fit(mesh):
    with silent(ValueError, r"this rank holds"):
        spmd.dtensor_from_local(np.ones(3), mesh, [S()], shape=(3 * mesh.size + 4,))


def test_outputs_that_differ_between_ranks_in_structure_or_dtype(mesh):
    x, _ = sharded(mesh)
    r = mesh.rank
    if mesh.size == 1:
        pytest.skip("one rank agrees with itself")
    with parallel_raises(ValueError, "another structure"):
        layer(lambda x: {"a": x} if r else [x], [[S()]])(x)
    with parallel_raises(ValueError, "another structure"):
        layer(lambda x: {"a": x} if r else {"b": x}, [[S()]])(x)
    with parallel_raises(ValueError, "output 0 has dtype (float32|float64)"):
        layer(lambda x: x.astype("float32") if r else x, [[S()]])(x)
    with parallel_raises(ValueError, "dtype (float32|float64)"):
        spmd.dtensor_from_local(np.ones(2, np.float32 if r else np.float64), mesh, [S()])
    # What stays local may be of another dtype on each rank.
    y = layer(lambda x: x.astype("float32") if r else x, [None])(x)
    assert y.dtype == (np.float32 if r else np.float64)


@pytest.mark.parametrize(
    "value, op, message",
    [
        (True, "sum", "bool.*cast to an integer"),
        (True, "avg", "bool"),
        (1, "avg", "mean of integers"),
        (1j, "max", "complex"),
        (1j, "min", "complex"),
        (1.0, "any", "only bool"),
        (1, "all", "only bool"),
    ],
)
def test_dtypes_unfit_for_a_reduction(mesh, value, op, message):
    partial = spmd.Partial(op)
    with parallel_raises(TypeError, message):
        spmd.dtensor_from_local(np.array([value]), mesh, [partial])
    with silent(TypeError, message):
        spmd.shard_tensor(np.array([value]), mesh, [partial])
    with parallel_raises(TypeError, message):
        layer(lambda: np.array([value]), [(mesh, [partial])])()
    with silent(TypeError, message):
        spmd.shard_tensor(np.array([value]), mesh, [R]).reshard([partial])
    with silent(ValueError, "'median' is not a reduction"):
        spmd.Partial("median")


def test_arrays_of_no_supported_dtype(mesh):
    for bad in (np.array(["a"]), np.array([None]), np.array([1], dtype="datetime64[s]")):
        with silent(TypeError, "local: dtype"):
            spmd.dtensor_from_local(bad, mesh, [R])
        with parallel_raises(TypeError, "output 0 is an array of"):
            layer(lambda: bad, [(mesh, [R])])()


# Gradients ------------------------------------------------------------------------


def test_gradient_attrs_that_cannot_hold_the_local_gradient(mesh):
    n = mesh.size
    x, whole = sharded(mesh, k=2)
    w = replicated([1.0, 2.0], mesh)
    if n == 1:
        pytest.skip("on one rank every placement holds everything")
    for grads in ([P], [R]):
        with silent(ValueError, rf"needs local shape \({2 * n},\).*has local shape \(2,\).*Shard\(0\)"):
            layer(lambda x: x, [[S()]], [grads])(x)
        with silent(ValueError, "needs local shape"):
            x.to_local(grads)
    with silent(ValueError, "needs local shape"):
        layer(lambda w: w, [[R]], [[S()]])(w)
    # Nothing is wrong while no gradient is asked for.
    plain, _ = sharded(mesh, requires_grad=False)
    check(layer(lambda x: x, [[S()]], [[P]])(plain), whole)


def test_gradient_attrs_of_partial_inputs(mesh):
    local = spmd.tensor([1.0], requires_grad=True)
    x = spmd.dtensor_from_local(local, mesh, [P])
    for grads in ([R], [spmd.Partial("avg")]):
        with silent(ValueError, r"share for share.*Partial\('sum'\) or None is right"):
            layer(lambda x: x, [[P]], [grads])(x)
    w = replicated([1.0], mesh)
    with silent(ValueError, r"read as Shard, Replicate or Partial\('sum'\)"):
        layer(lambda w: w, [[R]], [[spmd.Partial("max")]])(w)


# Local and distributed --------------------------------------------------------------


def test_local_and_distributed_tensors_in_one_operation(mesh):
    x, _ = sharded(mesh)
    own = spmd.tensor(np.ones(2 * mesh.size))
    for call in (lambda: x + own, lambda: own * x, lambda: spmd.where(x > 0, own, x), lambda: spmd.concat([own, x])):
        with silent(TypeError, "local tensor.*distributed.*dtensor_from_local"):
            call()
    # Arrays and numbers count as Replicate.
    check(x + np.ones(2 * mesh.size) + 1, 3.0 + np.arange(2.0 * mesh.size))


def test_distributed_tensors_used_inside_a_region_as_if_they_were_local(mesh):
    x, _ = sharded(mesh)
    w = replicated([1.0], mesh)
    plain = replicated([1.0], mesh, requires_grad=False)
    other = layer(lambda x: x, [[S()]])
    uses = {
        "operation": lambda y: y * w,
        "method": lambda y: w.sum(),
        "index": lambda y: w[0],
        "value": lambda y: w.item(),
        "text": lambda y: f"{w}",
        "truth": lambda y: 1 if w else 2,
        "array": lambda y: w.numpy(),
        "piece": lambda y: w.to_local(),
        "reshard": lambda y: w.reshard([P]),
        "layer": lambda y: other(w),
        "output": lambda y: w,
        "write": lambda y: plain.__setitem__(0, 1.0),
        "gradient": lambda y: w.backward(),
    }
    for name, use in uses.items():
        with parallel_raises((RuntimeError, TypeError), "region|LocalLayer|inside") as caught:
            layer(use, [[S()]])(x)
        assert "LocalLayer" in str(caught.value), name


def test_distributed_tensors_made_inside_a_region_have_no_meaning_outside(mesh):
    x, _ = sharded(mesh)
    kept = []

    def forward(x):
        kept.append(spmd.dtensor_from_local(x, mesh, [S()]))
        return x

    layer(forward, [[S()]])(x)
    for use in (lambda y: y * 2.0, lambda y: y.to_local(), lambda y: y.reshard([R]), layer(lambda y: y, [[S()]])):
        with parallel_raises(RuntimeError, "made inside|ended"):
            use(kept[0])


@pytest.mark.parametrize("value", ["text", object(), {1, 2}, np.array(["a"])])
def test_outputs_that_are_no_tensors(mesh, value):
    with parallel_raises(TypeError, "output 1 is .*; tensors, arrays and numbers can leave a region"):
        layer(lambda: [1.0, value], [(mesh, [P]), None])()


def test_crossings_of_what_is_local_or_distributed_already(mesh):
    x, _ = sharded(mesh)
    with silent(TypeError, "distributed tensor already"):
        spmd.dtensor_from_local(x, mesh, [S()])
    for function in (spmd.dtensor_to_local, spmd.unshard_dtensor, lambda y: spmd.reshard(y, mesh, [R])):
        with silent(TypeError, "local tensor"):
            function(spmd.tensor([1.0]))
        with silent(TypeError, "ndarray was given"):
            function(np.ones(2))
    with silent(TypeError, "callable"):
        spmd.dtensor_from_fn(3, mesh, [R])


def test_a_layer_without_its_own_init(mesh):
    class Forgetful(spmd.LocalLayer):
        def __init__(self):
            pass

    with silent(TypeError, r"super\(\).__init__"):
        Forgetful()(1.0)
    with parallel_raises(NotImplementedError, "no forward"):
        spmd.LocalLayer([(mesh, [R])])(1.0)


# One rank fails -----------------------------------------------------------------------


@pytest.mark.parametrize("error", [ZeroDivisionError("by nothing"), KeyError("k" * 1000), ValueError("é" * 300)])
def test_an_exception_in_one_ranks_code_is_an_error_on_all(mesh, error):
    if mesh.size == 1:
        pytest.skip("needs a rank that doesn't fail")
    x, whole = sharded(mesh)
    last = mesh.size - 1

    def forward(x):
        if mesh.rank == last:
            raise error
        return x.sum()

    kind = type(error) if mesh.rank == last or type(error) in (ValueError, TypeError) else RuntimeError
    told = "" if mesh.rank == last else rf"the code of mesh rank {last} raised {type(error).__name__}"
    with parallel_raises(kind, told):
        layer(forward, [[P]])(x)
    check(layer(lambda x: x.sum(), [[P]])(x), whole.sum())  # and the next call works


def test_the_maximum_of_an_empty_shard(mesh):
    """Only the ranks that have nothing cannot take a maximum."""
    if mesh.size == 1:
        pytest.skip("needs an empty shard")
    x = spmd.shard_tensor(np.arange(1.0), mesh, [S()])
    with parallel_raises((ValueError, RuntimeError), "mesh rank 1 raised ValueError" if mesh.rank == 0 else None):
        layer(lambda x: x.max(), [[spmd.Partial("max")]])(x)


def test_wrong_output_on_one_rank_alone(mesh):
    if mesh.size == 1:
        pytest.skip("needs a rank that is right")
    x, _ = sharded(mesh)
    with parallel_raises((TypeError, RuntimeError), "output 0 is a str"):
        layer(lambda x: "text" if mesh.rank == 0 else x, [[S()]])(x)
    with parallel_raises((ValueError, RuntimeError), "2 outputs were returned"):
        layer(lambda x: (x, x) if mesh.rank == 0 else x, [[S()]])(x)


_FAILING = """
import spmdlayer as spmd
mesh = spmd.init_mesh((spmd.get_world_size(),))
layer = spmd.LocalLayer([(mesh, [spmd.Partial()])])
def forward():
    {body}
    return 1.0
layer.forward = forward
layer()
print("went on")
"""


@pytest.mark.parametrize(
    "body",
    [
        "assert mesh.rank != 1, 'this went wrong'",
        "if mesh.rank == 1: raise KeyError('this went wrong')\n"
        "    spmd.dtensor_from_local(1.0, mesh, [spmd.Partial()])",
    ],
    ids=["beside the record", "beside another collective"],
)
def test_an_uncaught_exception_ends_the_job(body):
    if spmd.get_world_size() != 1:
        pytest.skip("starts a job of its own")
    job = launch(2, _FAILING.format(body=body), timeout=60)
    assert job.status not in (0, None) and "this went wrong" in job.stderr and "Traceback" in job.stderr
    assert "went on" not in job.stdout and job.seconds < 30
