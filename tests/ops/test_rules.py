"""Rules are integer arithmetic: which layouts they ask for and give, without ranks.

A layout is written by its placements; shapes are global.
"""

import numpy as np
import pytest

from spmdlayer.layout import Layout
from spmdlayer.ops.cost import operation_bytes
from spmdlayer.ops.index_form import ARRAY, Span
from spmdlayer.ops.registry import REGISTRY
from spmdlayer.ops.rules import Call, rule_of
from spmdlayer.placement import Partial, Replicate, Shard

R, S, P = Replicate(), Shard, Partial
FLOAT, INT, BOOL = np.dtype("float64"), np.dtype("int64"), np.dtype("bool")


def call_of(name, mesh_shape, operands, splits=None, of=FLOAT, **params):
    """The Call of an operation; operands are (shape, placements), or a shape alone for a plain array."""
    layouts, shapes = [], []
    for operand in operands:
        shape, placements = operand if operand and isinstance(operand[-1], list) else (operand, None)
        shapes.append(shape)
        layouts.append(None if placements is None else Layout(mesh_shape, tuple(placements), shape, splits))
        splits = None  # of the first operand
    return Call(REGISTRY[name], mesh_shape, tuple(layouts), tuple(shapes), (of,) * len(shapes), params)


def rule(*args, **kwargs):
    """The Rule of an operation; see `call_of`."""
    return rule_of(call_of(*args, **kwargs))


def placed(name, mesh_shape, operands, **params):
    """The placements that the rule asks for and gives: [operand, ..., result]."""
    found = rule(name, mesh_shape, operands, **params)
    return [None if layout is None else list(layout.placements) for layout in (*found.inputs, found.output)]


M, N, K = 8, 6, 4


@pytest.mark.parametrize(
    "left, right, expected",
    [
        ([S(0)], [R], [[S(0)], [R], [S(0)]]),
        ([R], [S(1)], [[R], [S(1)], [S(1)]]),
        ([S(1)], [S(0)], [[S(1)], [S(0)], [P("sum")]]),
        ([S(1)], [R], [[S(1)], [S(0)], [P("sum")]]),  # a slice of what is everywhere moves nothing
        ([P("sum")], [R], [[P("sum")], [R], [P("sum")]]),
        ([R], [P("avg")], [[R], [P("avg")], [P("avg")]]),
        ([P("max")], [R], [[R], [R], [R]]),
        ([R], [R], [[R], [R], [R]]),
        ([S(0, 2)], [R], [[S(0, 2)], [R], [S(0, 2)]]),
    ],
)
def test_matmul_on_one_axis(left, right, expected):
    assert placed("matmul", (2,), [((M, K), left), ((K, N), right)]) == expected


def test_matmul_moves_the_smaller_operand():
    # Rows of the large left one stay; the small right one is gathered.
    assert placed("matmul", (2,), [((1000, 4), [S(0)]), ((4, 4), [S(0)])]) == [[S(0)], [R], [S(0)]]
    # The result is small, so both are multiplied where they are contracted and the result is reduced later.
    assert placed("matmul", (2,), [((4, 1000), [S(0)]), ((1000, 4), [S(0)])])[-1] == [P("sum")]


def test_matmul_on_two_axes():
    operands = [((M, K), [S(0), S(1)]), ((K, N), [R, S(0)])]
    assert placed("matmul", (2, 3), operands) == [[S(0), S(1)], [R, S(0)], [S(0), P("sum")]]
    operands = [((5, M, K), [S(0), R]), ((K, N), [R, S(1)])]
    assert placed("matmul", (2, 3), operands) == [[S(0), R], [R, S(1)], [S(0), S(2)]]
    operands = [((1, M, K), [R, S(1)]), ((5, K, N), [S(0), R])]  # a stack of 1 is broadcast
    assert placed("matmul", (2, 3), operands) == [[R, S(1)], [S(0), R], [S(0), S(1)]]
    operands = [((K,), [S(0), R]), ((K, N), [R, R])]
    assert placed("matmul", (2, 3), operands) == [[S(0), R], [S(0), R], [P("sum"), R]]


def test_contracted_offsets_follow_the_left_operand():
    found = rule("matmul", (2,), [((M, 50), [S(1)]), ((50, N), [S(0)])], splits=(None, (20, 30)))
    assert found.inputs[1].splits == ((20, 30), None)
    found = rule("matmul", (2,), [((5, K), [S(0)]), ((K, N), [R])], splits=((1, 4), None))
    assert found.output.splits == ((1, 4), None)


def test_pieces_that_do_not_match_have_their_cost():
    """A's columns and B's rows are cut in other places; rank 0 has none of A."""
    one, two = ((100, 500), [S(1)]), ((500, 100), [S(0)])
    assert placed("matmul", (2,), [one, two])[-1] == [P("sum")]
    # Half of B and a reduction of C are 8 * (250 * 100 + 2 * 100 * 100) bytes, A and B 8 * 2 * 500 * 100.
    found = rule("matmul", (2,), [one, two], splits=(None, (0, 500)))
    assert [layout.placements for layout in (*found.inputs, found.output)] == [(S(1),), (S(0),), (P("sum"),)]
    # Here a reduction of C is 8 * 2 * 100 * 100 bytes, A and B are 8 * 2 * 10 * 100.
    one, two = ((100, 10), [S(1)]), ((10, 100), [S(0)])
    assert placed("matmul", (2,), [one, two])[-1] == [P("sum")]  # nothing moves
    found = rule("matmul", (2,), [one, two], splits=(None, (0, 10)))
    assert [layout.placements for layout in (*found.inputs, found.output)] == [(R,), (R,), (R,)]


def test_what_an_operation_sends():
    x = ((6, 4), [S(0), P("sum")])
    assert operation_bytes(call_of("negative", (2, 3), [x]), (0, 0)) == 0
    # exp needs the sum: of the 12 numbers of a rank's rows two thirds are sent twice.
    assert operation_bytes(call_of("exp", (2, 3), [x]), (0, 0)) == 2 * 12 * 8 * 2 // 3
    # Of 5 rows, 4 and 1, each is gathered by the other rank.
    uneven = call_of("softmax", (2,), [((5, 4), [S(0)])], splits=((4, 1), None), axis=0)
    assert [operation_bytes(uneven, (k,)) for k in range(2)] == [4 * 4 * 8, 4 * 8]
    # Reversed, the first and the last row change their places.
    uneven = call_of("flip", (2,), [((5, 4), [S(0)])], splits=((4, 1), None), axis=(0,))
    assert [operation_bytes(uneven, (k,)) for k in range(2)] == [4 * 8, 4 * 8]
    # A small operand is brought to the large one, which is not moved.
    call = call_of("matmul", (2,), [((1000, 4), [S(0)]), ((4, 4), [S(0)])])
    assert operation_bytes(call, (0,)) == 2 * 4 * 8


def test_bools_are_contracted_to_any():
    assert placed("matmul", (2,), [((M, K), [S(1)]), ((K, N), [S(0)])], of=BOOL)[-1] == [P("any")]


def test_einsum():
    two = [((M, K), [S(1)]), ((K, N), [R])]
    assert placed("einsum", (2,), two, subscripts="ab,bc->ca") == [[S(1)], [S(0)], [P("sum")]]
    assert placed("einsum", (2,), [((M, K), [S(0)])], subscripts="ab->ba") == [[S(0)], [S(1)]]
    assert placed("einsum", (2,), [((M, K), [S(0)])], subscripts="ab->b") == [[S(0)], [P("sum")]]
    # A diagonal needs its dims whole.
    assert placed("einsum", (2,), [((M, M, K), [S(0)])], subscripts="aab->b") == [[R], [R]]
    assert placed("einsum", (2,), [((M, M, K), [S(2)])], subscripts="aab->b") == [[S(2)], [S(0)]]
    three = [((M, K), [R]), ((K, N), [R]), ((N, 3), [S(1)])]
    assert placed("einsum", (2,), three, subscripts="ab,bc,cd->ad") == [[R], [R], [S(1)], [S(1)]]


def test_reductions():
    x = ((M, N), [S(0), S(1)])
    assert placed("sum", (2, 3), [x], axis=(0,), keepdims=False) == [[S(0), S(1)], [P("sum"), S(0)]]
    assert placed("sum", (2, 3), [x], axis=(1,), keepdims=True) == [[S(0), S(1)], [S(0), P("sum")]]
    assert placed("max", (2, 3), [x], axis=(0, 1), keepdims=False) == [[S(0), S(1)], [P("max"), P("max")]]
    assert rule("max", (2, 3), [x], axis=(0, 1), keepdims=False).attaining
    assert not rule("max", (2, 3), [((M, N), [S(0), R])], axis=(1,), keepdims=False).attaining
    assert placed("sum", (2,), [((M,), [P("avg")])], axis=(0,), keepdims=False) == [[P("avg")], [P("avg")]]
    assert placed("sum", (2,), [((M,), [P("max")])], axis=(0,), keepdims=False) == [[R], [R]]
    assert placed("prod", (2,), [((M,), [P("prod")])], axis=(0,), keepdims=False) == [[P("prod")], [P("prod")]]
    assert placed("argmax", (2, 3), [x], axis=0, keepdims=False) == [[S(0), S(1)], [R, S(0)]]
    assert placed("cumulative_sum", (2, 3), [x], axis=0) == [[S(0), S(1)], [S(0), S(1)]]
    assert placed("softmax", (2, 3), [x], axis=1) == [[S(0), R], [S(0), R]]


def test_a_maximum_of_maxima_is_reduced_first_where_ties_share_a_gradient():
    x = ((M,), [P("max")])
    assert placed("max", (2,), [x], axis=(0,), keepdims=False) == [[R], [R]]
    assert placed("max", (2,), [x], of=INT, axis=(0,), keepdims=False) == [[P("max")], [P("max")]]


def test_reducing_one_partial_reduces_those_at_its_right():
    x = ((M,), [P("max"), P("sum")])
    assert placed("sum", (2, 2), [x], axis=(0,), keepdims=False) == [[R, R], [R, R]]
    x = ((M,), [P("sum"), P("max")])
    assert placed("sum", (2, 2), [x], axis=(0,), keepdims=False) == [[P("sum"), R], [P("sum"), R]]


def test_changes_of_dtype():
    x = ((M,), [P("sum")])
    assert placed("astype", (2,), [x], dtype=np.dtype("float32")) == [[P("sum")], [P("sum")]]
    assert placed("astype", (2,), [x], of=INT, dtype=FLOAT) == [[P("sum")], [P("sum")]]
    assert placed("astype", (2,), [x], dtype=INT) == [[R], [R]]  # cutting off is not linear
    assert placed("sum", (2,), [x], axis=(0,), dtype=INT) == [[R], [R]]
    assert placed("sum", (2,), [((M,), [S(0)])], axis=(0,), dtype=BOOL)[-1] == [P("any")]


# Elementwise ---------------------------------------------------------------


def test_elementwise():
    assert placed("exp", (2,), [((M,), [P("sum")])]) == [[R], [R]]
    assert placed("negative", (2,), [((M,), [P("avg")])]) == [[P("avg")], [P("avg")]]
    assert placed("add", (2,), [((M,), [P("sum")]), ((M,), [R])]) == [[P("sum")], [P("sum")], [P("sum")]]
    assert placed("multiply", (2,), [((M,), [P("sum")]), ((M,), [P("sum")])]) == [[R], [R], [R]]
    assert placed("multiply", (2,), [((M,), [P("sum")]), ((M,), [R])]) == [[P("sum")], [R], [P("sum")]]
    assert placed("add", (2,), [((M, N), [S(1)]), ((N,), [S(0)])]) == [[S(1)], [S(0)], [S(1)]]
    assert placed("add", (2,), [((M, 1), [S(0)]), ((M, N), [S(1)])]) == [[S(0)], [S(0)], [S(0)]]
    assert placed("add", (2,), [((M,), [S(0)]), ()]) == [[S(0)], None, [S(0)]]


def test_two_splits_follow_the_left_operand():
    found = rule("add", (2,), [((5,), [S(0)]), ((5,), [S(0)])], splits=((1, 4),))
    assert [layout.splits for layout in (*found.inputs, found.output)] == [((1, 4),)] * 3


def test_like():
    x = ((M, N), [S(0), P("sum")])
    assert placed("ones_like", (2, 2), [x], dtype=None) == [[S(0), P("sum")], [S(0), R]]
    assert placed("zeros_like", (2, 2), [x], dtype=None) == [[S(0), P("sum")], [S(0), P("sum")]]
    assert placed("zeros_like", (2, 2), [x], dtype=INT) == [[S(0), P("sum")], [S(0), R]]


# Shapes --------------------------------------------------------------------


@pytest.mark.parametrize(
    "before, after, source, target",
    [
        ((8, 6), (48,), S(0), S(0)),  # the outermost dim of a merged group
        ((8, 6), (48,), S(1), S(0, 3)),  # each row is dealt out
        ((48,), (8, 6), S(0, 3), S(1)),
        ((8, 6), (48,), S(1, 1), S(0, 1)),
        ((48,), (8, 6), S(0), S(0)),
        ((8, 6), (2, 4, 6), S(1), S(2)),  # a dim of its own
        ((8, 6), (4, 2, 6), S(0), S(0)),
        ((8, 6), (6, 8), S(0), S(0)),
        ((8, 6), (8, 1, 6), S(1), S(2)),
        ((3, 8, 6), (3, 48), S(1), S(1)),
        ((8, 6), (48,), S(0, 2), S(0, 12)),
        ((48,), (8, 6), S(0, 12), S(0, 2)),
        ((0, 6), (6, 0), S(0), R),
    ],
)
def test_reshape_where_pieces_stay(before, after, source, target):
    expected = [[source if target != R else R], [target]]
    assert placed("reshape", (2,), [(before, [source])], shape=after) == expected
    assert rule("reshape", (2,), [(before, [source])], shape=after).across is None


@pytest.mark.parametrize(
    "before, after, source, target",
    [
        ((48,), (3, 16), S(0), S(0)),  # 24 is no multiple of 16
        ((48,), (8, 6), S(0, 4), S(0)),
        ((3, 5), (15,), S(1), S(0)),
        ((1, 6), (6,), S(0), S(0)),
        ((2, 15), (5, 6), S(1), S(0)),
    ],
)
def test_reshape_where_elements_move(before, after, source, target):
    found = rule("reshape", (2,), [(before, [source])], shape=after)
    assert [list(found.inputs[0].placements), list(found.output.placements)] == [[source], [target]]
    assert found.across is not None
    assert sum(found.sends((k,)) for k in range(2)) < 8 * np.prod(before)


def test_reshape_sends_what_changes_its_rank():
    found = rule("reshape", (2,), [((3, 5), [S(1)])], shape=(15,))  # columns 0 1 2 and 3 4, then 0 to 7 and 8 to 14
    assert [found.sends((k,)) for k in range(2)] == [8 * len({10, 11, 12}), 8 * len({3, 4})]


def test_reshape_keeps_the_pieces():
    found = rule("reshape", (3,), [((4, 3), [S(0)])], shape=(12,))  # 2 + 1 + 1 rows of 3
    assert found.output.splits == ((6, 3, 3),)
    assert [found.params((k,))["shape"] for k in range(3)] == [(6,), (3,), (3,)]
    found = rule("reshape", (2, 2), [((8, 3), [S(0), S(0)])], shape=(24,))
    assert [found.params(coord)["shape"] for coord in ((0, 0), (1, 1))] == [(6,), (6,)]


def test_reshape_on_two_axes():
    assert placed("reshape", (2, 2), [((8, 4), [S(0), S(1)])], shape=(32,)) == [[S(0), S(1)], [S(0), S(0)]]
    assert placed("reshape", (2, 2), [((4, 3), [S(0), S(0)])], shape=(2, 6)) == [[S(0), S(0)], [S(0), S(1)]]
    assert placed("reshape", (2,), [((8,), [P("prod")])], shape=(2, 4)) == [[P("prod")], [P("prod")]]


def test_moving_dims():
    x = ((M, N), [S(0), S(1)])
    assert placed("permute_dims", (2, 3), [x], axes=(1, 0)) == [[S(0), S(1)], [S(1), S(0)]]
    assert placed("expand_dims", (2, 3), [x], axis=(0, 2)) == [[S(0), S(1)], [S(1), S(3)]]
    assert placed("squeeze", (2,), [((1, N), [S(1)])], axis=(0,)) == [[S(1)], [S(0)]]
    assert placed("squeeze", (2,), [((1, N), [S(0)])], axis=(0,)) == [[R], [R]]
    assert placed("flip", (2, 3), [x], axis=(0,)) == [[S(0), S(1)], [S(0), S(1)]]
    assert placed("roll", (2, 3), [x], shift=(1,), axis=(1,)) == [[S(0), S(1)], [S(0), S(1)]]
    assert placed("broadcast_to", (2,), [((1, N), [S(1)])], shape=(3, M, N)) == [[S(1)], [S(2)]]
    assert placed("broadcast_to", (2,), [((1, N), [S(0)])], shape=(M, N)) == [[R], [R]]
    assert rule("broadcast_to", (2,), [((1, N), [S(1)])], shape=(3, M, N)).params((0,)) == {"shape": (3, M, N // 2)}


def test_concat():
    one, two = (M, N), (3, N)
    assert placed("concat", (2,), [(one, [S(1)]), (two, [R])], axis=0) == [[S(1)], [S(1)], [S(1)]]
    assert placed("concat", (2,), [(one, [S(0)]), (two, [R])], axis=0) == [[S(0)], [S(0)], [S(0)]]
    assert placed("concat", (2,), [(one, [P("sum")]), two], axis=0) == [[P("sum")], [P("sum")], [P("sum")]]
    assert placed("concat", (2,), [(one, [P("prod")]), (two, [P("prod")])], axis=0)[-1] == [P("prod")]
    assert placed("concat", (2,), [(one, [P("prod")]), (two, [R])], axis=0) == [[R], [R], [R]]


# Indices -------------------------------------------------------------------


def test_slices_are_read_where_they_are():
    index = (Span(1, 10, 1),)
    found = rule("getitem", (2,), [((10,), [S(0)])], index=index)
    assert found.inputs[0].placements == found.output.placements == (S(0),)
    assert found.output.splits == ((4, 5),)
    assert [found.params((k,))["index"] for k in range(2)] == [(Span(1, 5, 1),), (Span(0, 5, 1),)]
    found = rule("getitem", (3,), [((9,), [S(0)])], index=(Span(2, 9, 3),))  # 2, 5, 8: one a rank
    assert found.output.is_default
    found = rule("getitem", (2,), [((10,), [S(0)])], index=(Span(0, 2, 1),))
    assert [found.output.local_shape((k,)) for k in range(2)] == [(2,), (0,)]


def test_ints_need_whole_dims_and_other_slices_do_not():
    x = ((M, N), [S(0), S(1)])
    whole = Span(0, N, 1)
    assert placed("getitem", (2, 3), [x], index=(3, whole)) == [[R, S(1)], [R, S(0)]]
    assert placed("getitem", (2, 3), [x], index=(Span(7, None, -1), None, whole)) == [[S(0), S(1)], [S(0), S(2)]]
    assert placed("getitem", (2,), [((M, N), [S(0, 2)])], index=(Span(0, 4, 1), whole)) == [[S(0, 2)], [S(0, 2)]]
    assert placed("getitem", (2,), [((M, N), [S(0, 2)])], index=(Span(0, M, 1), 0)) == [[S(0, 2)], [S(0, 2)]]


def test_index_arrays():
    table, ids = (1000, 6), (5, 4)
    index = (ARRAY, Span(0, 6, 1))
    assert placed("gather", (2,), [(table, [R]), (ids, [S(0)])], of=INT, index=index) == [[R], [S(0)], [S(0)]]
    assert placed("gather", (2,), [(table, [S(1)]), (ids, [R])], of=INT, index=index) == [[S(1)], [R], [S(2)]]
    assert placed("gather", (2,), [(table, [S(0)]), (ids, [R])], of=INT, index=index) == [[S(0)], [R], [S(0)]]
    assert placed("gather", (2,), [(table, [S(0)]), (ids, [S(1)])], of=INT, index=index) == [[S(0)], [S(1)], [S(1)]]
    assert placed("gather", (2,), [(table, [P("sum")]), ids], of=INT, index=index) == [[P("sum")], [R], [P("sum")]]
    apart = (ARRAY, Span(0, 7, 1), ARRAY)  # the arrays' dims come first
    assert placed("gather", (2,), [((5, 7, 6), [S(1)]), ids, ids], of=INT, index=apart)[-1] == [S(2)]


def test_writing():
    x, index = ((M, N), [S(0), S(1)]), (Span(1, 5, 1), Span(0, N, 1))
    found = placed("setitem", (2, 3), [x, ((4, 1), [R, R])], index=index)
    assert found == [[S(0), S(1)], [S(0), R], [S(0), S(1)]]
    assert placed("setitem", (2, 3), [x, ()], index=index) == [[S(0), S(1)], None, [S(0), S(1)]]
    assert placed("setitem", (2,), [((M,), [P("sum")]), ()], index=(Span(0, 2, 1),)) == [[P("sum")]] * 3
    assert placed("setitem", (2,), [((M,), [R]), ((M,), [P("sum")])], index=(Span(0, M, 1),)) == [[R], [R], [R]]
