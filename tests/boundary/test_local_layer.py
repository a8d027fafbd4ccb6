"""LocalLayer: what may go in and out, how attrs are written, and which gradients come back."""

from collections import namedtuple

import numpy as np
import pytest
from boundary_helpers import P, R, S, check, layer, own_part, replicated, sharded

import spmdlayer as spmd

pytestmark = pytest.mark.mpi


class MaskedMean(spmd.LocalLayer):
    """Each rank's mean over items of its own choice."""

    def __init__(self, mesh, grad_attrs=None):
        super().__init__([(mesh, [P])], grad_attrs)
        self.mesh = mesh

    def forward(self, x):
        mask = spmd.zeros_like(x)
        first = 1 + self.mesh.rank
        mask[first : first + 2 + self.mesh.rank] = 1
        self.local_result = (x * mask).sum() / mask.sum()
        return self.local_result


def test_a_subclass_with_a_mask_of_each_ranks_own(mesh):
    n, r = mesh.size, mesh.rank
    local = spmd.tensor(np.arange(10, dtype=np.float32) + r, requires_grad=True)
    x = spmd.dtensor_from_local(local, mesh, [S()])
    made = MaskedMean(mesh, [(mesh, [S()])])
    loss = made(x)
    # Rank k takes items 1+k to 2+2k of arange(10) + k.
    means = [k + np.arange(1 + k, 3 + 2 * k).mean() for k in range(n)]
    assert loss.placements == [P] and loss.shape == () and loss.dtype == np.float32
    np.testing.assert_allclose(made.local_result.item(), means[r], rtol=1e-6)
    np.testing.assert_allclose(loss.item(), sum(means), rtol=1e-6)
    loss.backward()
    expected = np.zeros(10)
    expected[1 + r : 3 + 2 * r] = 1 / (2 + r)
    np.testing.assert_allclose(local.grad.numpy(), expected, rtol=1e-6)


def forms(mesh):
    return {
        "pairs": ([(mesh, [S()])], [(mesh, [S()])]),
        "bare placements": ([[S()]], [[S()]]),
        "one flat list": ([S()], [S()]),
        "one pair": ((mesh, [S()]), (mesh, [S()])),
        "tuples": (((mesh, (S(),)),), ((mesh, (S(),)),)),
        "negative dims": ([[S(-1)]], [[S(-1)]]),
        "None for one": ([[S()]], [None]),
        "None for all": ([[S()]], None),
        "None along an axis": ([[S()]], [[None]]),
        "auto": ([[S()]], "auto"),
    }


@pytest.mark.parametrize("form", sorted(forms(None)))
def test_forms_of_attrs(mesh, form):
    x, whole = sharded(mesh)
    outs, grads = forms(mesh)[form]
    y = layer(lambda x: x * x, outs, grads)(x)
    check(y, whole**2)
    assert y.placements == [S()] and y.process_mesh == mesh
    y.sum().backward()
    check(x.grad, 2 * whole)
    assert x.grad.placements == [S()]


def test_attrs_are_readable(mesh):
    made = spmd.LocalLayer([(mesh, [P]), None], [[S()]])
    assert made.out_dist_attrs == [(mesh, (P,)), None]
    assert made.grad_dist_attrs == [(None, (S(),))]


@pytest.mark.parametrize("grads", [[[P]], "auto"])
def test_a_replicated_input_whose_ranks_do_different_work(mesh, grads):
    n, r = mesh.size, mesh.rank
    w = replicated([2.0, 3.0], mesh)
    layer(lambda w: (w * w).sum() * (1.0 + r), [(mesh, [P])], grads)(w).backward()
    check(w.grad, 2 * np.array([2.0, 3.0]) * sum(1.0 + k for k in range(n)))
    assert w.grad.placements == [R]


@pytest.mark.parametrize("grads", [[[R]], [None], None, "auto"])
def test_a_replicated_input_whose_ranks_do_the_same(mesh, grads):
    w = replicated([2.0, 3.0], mesh)
    y = layer(lambda w: w * w, [(mesh, [R])], grads)(w)
    assert y.placements == [R]
    y.sum().backward()
    check(w.grad, [4.0, 6.0])


def test_auto_with_outputs_of_each_placement(mesh):
    """Copies count once, slices and parts of a sum each for themselves."""
    n, r = mesh.size, mesh.rank
    w = replicated([2.0, 3.0], mesh)

    def forward(w):
        return w * 5.0, w * (1.0 + r), w.sum() * (2.0 + r)

    copies, slices, parts = layer(forward, [(mesh, [R]), (mesh, [S()]), (mesh, [P])], "auto")(w)
    weights = np.arange(1.0, 1 + 2 * n)
    (copies.sum() + (slices * weights).sum() + parts * 7.0).backward()
    by_rank = weights.reshape(n, 2)
    expected = 5.0 + sum((1.0 + k) * by_rank[k] + 7.0 * (2.0 + k) for k in range(n))
    check(w.grad, expected)


def test_auto_of_partial_inputs_goes_share_for_share(mesh):
    r = mesh.rank
    local = spmd.tensor([1.0 + r, 2.0], requires_grad=True)
    x = spmd.dtensor_from_local(local, mesh, [P])
    layer(lambda x: (x * x).sum(), [(mesh, [P])], "auto")(x).backward()
    check(local.grad, 2 * np.array([1.0 + r, 2.0]))


def test_two_mesh_axes():
    n = spmd.get_world_size()
    shape = (2, n // 2) if n % 2 == 0 else (1, n)
    mesh = spmd.init_mesh(shape, ("rows", "columns"))
    i, j = mesh.coordinate
    values = np.arange(1.0, 1 + 4 * shape[0])
    x = spmd.shard_tensor(values, mesh, [S(), R], requires_grad=True)
    # Each column of the mesh works on the same rows with a factor of its own.
    out = layer(lambda x: (x * x).sum() * (1.0 + j), [(mesh, [P, P])], [(mesh, [None, P])])(x)
    factor = sum(1.0 + k for k in range(shape[1]))
    np.testing.assert_allclose(out.item(), factor * (values**2).sum())
    out.backward()
    check(x.grad, 2 * factor * values)
    assert x.grad.placements == [S(), R]


def test_nested_outputs_in_sorted_key_order(mesh):
    x, whole = sharded(mesh)
    Pair = namedtuple("Pair", "left right")

    def forward(x):
        return {"z": [x, (x * 2.0, None)], "a": Pair(x.sum(), x.max()), "m": {"k": x * 3.0}}

    outs = [[P], [spmd.Partial("max")], [S()], [S()], [S()]]  # a.left a.right m.k z[0] z[1][0]
    result = layer(forward, outs)(x)
    assert set(result) == {"a", "m", "z"} and isinstance(result["a"], Pair)
    assert result["z"][1][1] is None
    check(result["a"].left, whole.sum())
    check(result["a"].right, whole.max())
    check(result["m"]["k"], 3 * whole)
    check(result["z"][0], whole)
    check(result["z"][1][0], 2 * whole)
    (result["a"].left + result["m"]["k"].sum()).backward()
    check(x.grad, np.full(whole.size, 4.0))


@pytest.mark.parametrize("kind", [list, tuple])
def test_flat_sequences_keep_their_type(mesh, kind):
    x, whole = sharded(mesh)
    result = layer(lambda x: kind([x, x * 2.0]), [[S()], [S()]])(x)
    assert type(result) is kind and len(result) == 2
    check(result[1], 2 * whole)


def test_nested_inputs(mesh):
    x, whole = sharded(mesh)
    w = replicated([2.0], mesh)
    made = layer(lambda pair, extra: (pair["w"] * pair["x"][0]).sum() + extra, [[P]], [[S()], None])
    # One attr for each argument holds for all its leaves.
    y, _ = sharded(mesh)
    total = layer(lambda pair, k: (pair[0] * pair[1]).sum() * k, [[P]], [[S()], None])([x, y], 2.0)
    total.backward()
    check(x.grad, 2 * whole)
    check(y.grad, 2 * whole)
    # One attr for each leaf, in the order of flattening (keys sorted: w, x, then extra).
    made = layer(lambda pair, extra: (pair["w"] * pair["x"][0]).sum() + extra, [[P]], [[P], [S()], None])
    x.clear_grad()
    made({"x": [x], "w": w}, 0.0).backward()
    check(w.grad, [whole.sum()])
    check(x.grad, np.full(whole.size, 2.0))


def test_inputs_that_are_no_tensors_pass_through(mesh):
    x, whole = sharded(mesh)
    seen = []

    def forward(x, text, number, nothing, array, *rest, flag=False, function=None):
        seen.append((text, number, nothing, array, rest, flag, function))
        return x * number

    array = np.arange(3)
    y = layer(forward, [[S()]], [[S()], None, None, None, None, None])(
        x, "text", 3, None, array, object, flag=True, function=len
    )
    check(y, 3 * whole)
    text, number, nothing, given, rest, flag, function = seen[0]
    assert (text, number, nothing, rest, flag, function) == ("text", 3, None, (object,), True, len)
    assert given is array


def test_distributed_keyword_arguments_are_inputs(mesh):
    x, whole = sharded(mesh)
    y, _ = sharded(mesh)
    layer(lambda x, other=None: (x * other["y"]).sum(), [[P]], [[S()]])(x, other={"y": y}).backward()
    check(x.grad, whole)
    check(y.grad, whole)


def test_local_inputs_keep_their_own_gradients(mesh):
    n, r = mesh.size, mesh.rank
    x, whole = sharded(mesh)
    own = spmd.tensor([1.0 + r], requires_grad=True)
    made = layer(lambda x, own: (x * own * own).sum(), [[P]], [[S()], None])
    made(x, own).backward()
    check(own.grad, [2 * (1.0 + r) * own_part(whole, mesh).sum()])
    check(x.grad, np.repeat((1.0 + np.arange(n)) ** 2, 2))


def test_second_derivatives_of_local_inputs(mesh):
    r = mesh.rank
    w = replicated([3.0], mesh)
    own = spmd.tensor([1.0 + r], requires_grad=True)
    loss = layer(lambda w, own: (w * own * own * own).sum(), [[P]], "auto")(w, own)
    first = spmd.grad(loss, own, create_graph=True)
    check(first, [9.0 * (1.0 + r) ** 2])
    second = spmd.grad(first.sum(), own, create_graph=True)
    check(second, [18.0 * (1.0 + r)])
    check(spmd.grad(second.sum(), own, retain_graph=True), [18.0])
    check(spmd.grad(second.sum(), w), [6.0 * sum(1.0 + k for k in range(mesh.size))])


def test_outputs_that_stay_local_have_gradients(mesh):
    n, r = mesh.size, mesh.rank
    w = replicated([2.0], mesh)
    own = spmd.tensor([1.0 + r], requires_grad=True)
    total, local, text_length = layer(
        lambda w, own: ((w * own).sum(), w * w * own, len("text")), [(mesh, [P]), None, None], "auto"
    )(w, own)
    assert total.is_dist() and not local.is_dist()
    assert text_length.item() == 4 and not text_length.requires_grad
    check(local, [4.0 * (1.0 + r)])
    # The loss is the sum of what the ranks hold.
    local.sum().backward(retain_graph=True)
    check(w.grad, [4.0 * sum(1.0 + k for k in range(n))])
    check(own.grad, [4.0])
    first = spmd.grad(local.sum(), w, create_graph=True)
    check(spmd.grad(first.sum(), w), [2.0 * sum(1.0 + k for k in range(n))])


def test_numbers_and_arrays_as_outputs(mesh):
    n, r = mesh.size, mesh.rank
    x, whole = sharded(mesh)

    def forward(x):
        return 1, 2.5, True, 1 + 2j, np.float32(3), x.detach().numpy() * 2, np.arange(r), np.int16(r)

    outs = [[P], [P], [spmd.Partial("all")], [P], [R], [S()], [S()], [spmd.Partial("max")]]
    results = layer(forward, outs)(x)
    assert [y.dtype.name for y in results] == [
        "int64",
        "float64",
        "bool",
        "complex128",
        "float32",
        "float64",
        "int64",
        "int16",
    ]
    expected = [n, 2.5 * n, True, n * (1 + 2j), 3, 2 * whole, np.concatenate([np.arange(k) for k in range(n)]), n - 1]
    for got, right in zip(results, expected):
        np.testing.assert_array_equal(got.numpy(), right)
        assert not got.requires_grad


def test_outputs_of_other_sizes_are_uneven_shards(mesh):
    n, r = mesh.size, mesh.rank
    x, whole = sharded(mesh)
    y = layer(lambda x: spmd.concat([x] * r) if r else x[:0], [[S()]])(x)
    pieces = [np.tile(whole[2 * k : 2 * k + 2], k) for k in range(n)]
    assert y.shape == (sum(p.size for p in pieces),) and y.local_shape == (2 * r,)
    check(y, np.concatenate(pieces))
    y.sum().backward()
    check(x.grad, np.repeat(np.arange(n) * 1.0, 2))


def test_requires_grad_is_the_same_on_all_ranks(mesh):
    r = mesh.rank
    own = spmd.tensor([2.0], requires_grad=(r == mesh.size - 1))
    y = layer(lambda own: own * 3.0, [(mesh, [P])])(own)
    assert y.requires_grad
    y.sum().backward()
    if own.requires_grad:
        check(own.grad, [3.0])
    x, _ = sharded(mesh, requires_grad=False)
    assert not layer(lambda x: x * 3.0, [[S()]])(x).requires_grad
    with spmd.no_grad():
        assert not layer(lambda own: own * 3.0, [(mesh, [P])])(own).requires_grad


def test_an_input_may_be_returned_as_it_is(mesh):
    x, whole = sharded(mesh)
    y, z = layer(lambda x: (x, x), [[S()], [S()]])(x)
    check(y, whole)
    (y * 2.0 + z).sum().backward()
    check(x.grad, np.full(whole.size, 3.0))


def test_writing_to_an_input_changes_nothing_outside(mesh):
    x, whole = sharded(mesh)

    def forward(x):
        x[0] = 100.0
        x *= 2.0
        return x

    expected = 2 * whole
    expected[::2] = 200.0
    y = layer(forward, [[S()]])(x)
    check(y, expected)
    check(x, whole)
    y.sum().backward()
    check(x.grad, np.tile([0.0, 2.0], mesh.size))
    with spmd.no_grad():
        check(layer(forward, [[S()]])(x.detach()), expected)
    check(x, whole)


# Captures and the layer's own parameters ------------------------------------


class Scale(spmd.LocalLayer):
    """The layer's own replicated weight times its input."""

    def __init__(self, mesh, outs, grads, body=lambda w, x: w * x):
        super().__init__(outs, grads)
        self.weight = replicated([2.0], mesh)
        self.table = {"rows": [spmd.shard_tensor(np.arange(1.0, 1 + 2 * mesh.size), mesh, [S()])]}
        self.body = body

    def forward(self, x):
        assert not self.weight.is_dist() and not self.table["rows"][0].is_dist()
        return self.body(self.weight, x)


@pytest.mark.parametrize("grads", [None, [[S()]], "auto"])
def test_a_replicated_weight_of_the_layer_is_summed_over_the_ranks(mesh, grads):
    x, whole = sharded(mesh)
    made = Scale(mesh, [[P]], grads, lambda w, x: (w * x).sum())
    made(x).backward()
    check(made.weight.grad, [whole.sum()])
    check(x.grad, np.full(whole.size, 2.0))
    assert made.weight.is_dist() and made.weight.placements == [R]
    assert [name for name, _ in made.named_parameters()] == ["weight"]


@pytest.mark.parametrize("grads", [None, [[R]], "auto"])
def test_where_all_outputs_are_replicated_every_rank_has_the_whole_gradient(mesh, grads):
    x = replicated([3.0], mesh)
    made = Scale(mesh, [[R]], grads)
    made(x).sum().backward()
    check(made.weight.grad, [3.0])
    check(x.grad, [2.0])


def test_shards_of_the_layer_need_no_sum(mesh):
    x, whole = sharded(mesh)
    made = Scale(mesh, [[S()]], None)
    made.table["rows"][0].requires_grad = True
    made.forward = lambda x: x * made.table["rows"][0]
    made(x).sum().backward()
    check(made.table["rows"][0].grad, whole)


def test_replicated_and_other_outputs_together_ask_for_auto(mesh):
    x = replicated([3.0], mesh)
    made = Scale(mesh, [[R], [P]], None, lambda w, x: (w * x, w * x * 2.0))
    if mesh.size > 1:
        with pytest.raises(ValueError, match="auto"):
            made(x)
    made = Scale(mesh, [[R], [P]], "auto", lambda w, x: (w * x, w * x * 2.0))
    copies, parts = made(x)
    (copies.sum() + parts.sum()).backward()
    check(made.weight.grad, [3.0 + 6.0 * mesh.size])
    # An integer output has no gradient, so it mixes with nothing; nor does a weight that needs none.
    made = Scale(mesh, [[R], [P]], None, lambda w, x: (w * x, 1))
    made(x)[0].sum().backward()
    check(made.weight.grad, [3.0])
    made = Scale(mesh, [[R], [P]], None, lambda w, x: (w * x, w * x * 2.0))
    made.weight.requires_grad = False
    made(x)


def test_an_output_that_stays_local_mixes_with_replicated_ones(mesh):
    x = replicated([3.0], mesh)
    made = Scale(mesh, [[R], None], None, lambda w, x: (w * x, w * x))
    if mesh.size > 1:
        with pytest.raises(ValueError, match="auto"):
            made(x)
    made = Scale(mesh, [(mesh, [P]), None], None, lambda w, x: ((w * x).sum(), w * x))
    _, local = made(x)
    local.sum().backward()
    check(made.weight.grad, [3.0 * mesh.size])


def test_parameters_of_sublayers_are_local_too(mesh):
    x, whole = sharded(mesh)

    class Inner(spmd.Layer):
        def __init__(self):
            self.weight = replicated([3.0], mesh)

        def forward(self, x):
            return self.weight * x

    made = Scale(mesh, [[P]], None)
    made.inner = Inner()
    made.body = lambda w, x: (w * made.inner(x)).sum()
    made(x).backward()
    check(made.weight.grad, [3 * whole.sum()])
    check(made.inner.weight.grad, [2 * whole.sum()])


def test_a_layers_own_local_tensors_get_their_own_gradients(mesh):
    x, whole = sharded(mesh)
    made = layer(lambda x: (x * made.own).sum(), [[P]])
    made.own = spmd.tensor([5.0], requires_grad=True)
    made(x).backward()
    check(made.own.grad, [own_part(whole, mesh).sum()])


def test_writing_to_a_parameter_inside_raises(mesh):
    x, _ = sharded(mesh)

    def body(w, x):
        with spmd.no_grad():
            w[0] = 7.0
        return w * x

    made = Scale(mesh, [[S()]], None, body)
    made.weight.requires_grad = False
    with pytest.raises(RuntimeError, match="write"):
        made(x)
    check(made.weight, [2.0])
    assert made.weight.is_dist()


def test_a_parameter_is_distributed_again_after_an_error(mesh):
    x, whole = sharded(mesh)

    def body(w, x):
        raise KeyError("no")

    made = Scale(mesh, [[S()]], None, body)
    with pytest.raises(KeyError):
        made(x)
    assert made.weight.is_dist()
    made.body = lambda w, x: w * x
    check(made(x), 2 * whole)


def test_a_result_kept_in_an_attribute_is_harmless(mesh):
    x, whole = sharded(mesh)
    made = layer(lambda x: (x * x).sum(), [[P]])
    for _ in range(3):
        x.clear_grad()
        made.local_result = None
        loss = made(x)
        made.kept = loss.detach()
        loss.backward()
        check(x.grad, 2 * whole)


# Recomputation ---------------------------------------------------------------


def test_recompute_runs_forward_again_and_gives_the_same(mesh):
    r = mesh.rank
    x, whole = sharded(mesh)
    w = replicated([2.0], mesh)
    own = spmd.tensor([1.0 + r], requires_grad=True)
    calls = []

    def forward(x, w, factor, own=None):
        calls.append(factor)
        y = spmd.exp(x * 0.01) * w
        y[:1] = y[1:2] * own
        return {"sum": (y * factor).sum(), "all": y}

    grads = {}
    for recompute in (False, True):
        for tensor in (x, w, own):
            tensor.clear_grad()
        made = layer(forward, [[S()], [P]], "auto", recompute=recompute)
        out = made(x, w, 3.0, own=own)
        (out["sum"] + out["all"].sum()).backward()
        grads[recompute] = [t.grad.numpy().copy() for t in (x, w, own)]
    assert calls == [3.0] * 3
    for one, other in zip(grads[False], grads[True]):
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_recompute_with_parameters_and_second_derivatives(mesh):
    x, whole = sharded(mesh)

    class Cube(spmd.LocalLayer):
        def __init__(self):
            super().__init__([[P]], recompute=True)
            self.weight = replicated([2.0], mesh)

        def forward(self, x):
            return (self.weight * self.weight * self.weight * x).sum()

    made = Cube()
    first = spmd.grad(made(x), made.weight, create_graph=True)
    check(first, [12.0 * whole.sum()])
    check(spmd.grad(first.sum(), made.weight), [12.0 * whole.sum()])


# Local gradients inside ------------------------------------------------------


def test_grad_inside_a_region(mesh):
    """Forces from an energy: each rank differentiates its own energy by its own piece."""
    x, whole = sharded(mesh)

    def forward(x):
        energy = (x * x * x).sum()
        force = spmd.grad(energy, x, create_graph=True)
        return force, (force * force).sum()

    force, total = layer(forward, [[S()], [P]])(x)
    check(force, 3 * whole**2)
    total.backward()
    check(x.grad, 36 * whole**3)
    plain = layer(lambda x: spmd.grad((x * x).sum(), x), [[S()]])(x)
    check(plain, 2 * whole)


def test_grad_inside_a_region_leaves_the_graph_usable(mesh):
    x, whole = sharded(mesh)

    def forward(x):
        slope = spmd.grad((x * x).sum(), x)  # frees its own graph, not the input
        return (slope * x).sum()

    layer(forward, [[P]])(x).backward()
    check(x.grad, 2 * whole)


def test_backward_inside_a_region_says_that_it_cannot_cross(mesh):
    x, _ = sharded(mesh)

    def forward(x):
        (x * x).sum().backward()
        return x

    with pytest.raises(RuntimeError, match=r"grad\(loss, inputs\)"):
        layer(forward, [[S()]])(x)


def test_a_local_model_may_be_trained_inside_a_region(mesh):
    x, whole = sharded(mesh, requires_grad=False)

    def forward(x):
        slope = spmd.tensor(0.0, requires_grad=True)
        for _ in range(20):
            ((slope * x - 3.0 * x) ** 2).mean().backward()
            with spmd.no_grad():
                slope -= slope.grad / (2 * (x * x).mean())
            slope.clear_grad()
        return slope.detach()

    check(layer(forward, [[spmd.Partial("avg")]])(x), 3.0)


@pytest.mark.parametrize("grads", ["auto", None])
def test_copies_of_a_tensor_of_the_region_around(mesh, grads):
    """What an "auto" region got is summed over the ranks, so its copies in a layer inside must not all take G."""
    w = replicated([2.0], mesh)

    def outer(w):
        def again(own):
            everywhere = spmd.dtensor_from_local(w, mesh, [R])
            return own * (everywhere * everywhere).to_local([P])

        return layer(again, [(mesh, [P])], grads)(spmd.tensor([1.0])).to_local()

    call = layer(outer, [[P]], "auto")
    if grads is None and mesh.size > 1:
        with pytest.raises(ValueError, match='"auto" for the gradients'):
            call(w)
    elif grads == "auto":
        call(w).sum().backward()
        check(w.grad, [2 * 2.0 * mesh.size])
