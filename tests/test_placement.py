import copy
import pickle

import pytest

from spmdlayer.placement import Own, Partial, Placement, ReduceType, Replicate, Shard, normalise

EVERY = [Shard(0), Shard(1), Shard(-1), Shard(0, block=2), Replicate(), Partial(), Partial("max"), Own()]


def test_equal_by_value_and_hashable():
    assert Shard(1, block=2) == Shard(1, block=2)
    assert Shard(1) != Shard(0) and Shard(1) != Shard(1, block=1) and Shard(-1) != Shard(1)
    assert Replicate() == Replicate() and Replicate() != Own()
    assert Partial() == Partial("sum") == Partial(ReduceType.kRedSum) != Partial("avg")
    assert len({*EVERY, *map(copy.deepcopy, EVERY)}) == len(EVERY)


@pytest.mark.parametrize("placement", EVERY, ids=repr)
def test_copies_and_pickles_are_equal(placement):
    assert pickle.loads(pickle.dumps(placement)) == placement
    assert copy.copy(placement) == placement


def test_repr():
    assert [repr(p) for p in EVERY] == [
        "Shard(0)",
        "Shard(1)",
        "Shard(-1)",
        "Shard(0, block=2)",
        "Replicate()",
        "Partial('sum')",
        "Partial('max')",
        "Own()",
    ]


def test_immutable():
    with pytest.raises(AttributeError, match="immutable"):
        Shard(0).dim = 1
    with pytest.raises(AttributeError, match="immutable"):
        del Partial().op
    assert Shard(0).dim == 0


def test_questions():
    assert Shard(1).is_shard() and Shard(1).is_shard(1) and not Shard(1).is_shard(0)
    assert Replicate().is_replicated() and Replicate().is_replicate() and not Replicate().is_shard()
    assert Partial("max").is_partial() and Partial("max").is_partial("max") and not Partial("max").is_partial("sum")
    assert Partial("max").is_partial(ReduceType.kRedMax) and not Own().is_partial()
    assert Shard(2).get_dim() == 2 and Partial("prod").reduce_type() is ReduceType.kRedProd
    assert [p.kind for p in (Shard(0), Replicate(), Partial(), Own())] == ["shard", "replicate", "partial", "own"]


@pytest.mark.parametrize("name", ["Sum", "Max", "Min", "Prod", "Avg", "Any", "All"])
def test_every_reduce_type(name):
    placement = Partial(ReduceType[f"kRed{name}"])
    assert placement.op == name.lower() and placement == Partial(name.lower())


def test_bad_reductions():
    with pytest.raises(ValueError, match="'mean' is not a reduction.*'sum', 'max', 'min', 'prod', 'avg', 'any', 'all'"):
        Partial("mean")
    with pytest.raises(TypeError, match="3 is not a reduction"):
        Partial(3)


def test_bad_shards():
    for dim in (1.0, "0", None, True):
        with pytest.raises(TypeError, match="an int is needed"):
            Shard(dim)
    with pytest.raises(ValueError, match="block is 0"):
        Shard(0, block=0)
    with pytest.raises(TypeError, match="base class"):
        Placement()


def test_normalise_wraps_negative_dims():
    assert normalise([Shard(-1, block=3), Replicate()], 2, 3) == (Shard(2, block=3), Replicate())
    assert normalise((Shard(-1),), 1) == (Shard(-1),)
    assert normalise([], 0, 2) == ()


def test_normalise_says_what_is_wrong():
    with pytest.raises(ValueError, match=r"attrs: 1 given, \[Shard\(0\)\]; the mesh has 2 axes \(x, y\)"):
        normalise([Shard(0)], 2, 1, ("x", "y"), "attrs")
    with pytest.raises(ValueError, match="2 given.*the mesh has 1 axis and"):
        normalise([Shard(0), Replicate()], 1)
    with pytest.raises(TypeError, match=r"placements: Shard\(0\) was given; a list .* like \[Shard\(0\)\]"):
        normalise(Shard(0), 1)
    with pytest.raises(TypeError, match=r"placements\[1\]: 0 is not a placement"):
        normalise([Shard(0), 0], 2)
    for dim in (2, -3):
        with pytest.raises(ValueError, match=rf"placements\[0\]: Shard\({dim}\) is outside .* a dim from -2 to 1"):
            normalise([Shard(dim)], 1, 2)
    with pytest.raises(ValueError, match="0-d tensor has nothing to slice"):
        normalise([Shard(0)], 1, 0)
