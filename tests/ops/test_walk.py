"""Every operation of the registry, on random shapes, meshes and placements, against the same on whole arrays.

The value and the gradients of first and (for every other example) second
order are those of local tensors, the result lies as the rule says, and what is
sent is what the plans of the rule say (`walking`).  More examples, or one
again: WALK=begin:end, the numbers of the examples.
"""

import os

import numpy as np
import pytest
from samples import SAMPLES, example
from walking import check

from spmdlayer.ops.registry import REGISTRY

MORE = 20  # examples until the operation itself has run, where what is sharded goes another way (softmax)
BEGIN, END = map(int, os.environ.get("WALK", "0:3").split(":"))


def test_every_operation_has_samples():
    missing = set(REGISTRY) - set(SAMPLES)
    assert missing == set(), "give these cases, in gradient_cases.py if they have gradients, else in value_cases.py"
    assert set(SAMPLES) - set(REGISTRY) == set()


@pytest.mark.mpi
@pytest.mark.parametrize("name", list(REGISTRY))
def test_operation(name):
    seen, number = set(), BEGIN
    while number < END or (name not in seen and number < END + MORE):
        seed = [number, *name.encode()]
        function, arrays = example(np.random.default_rng(seed), name)
        print(f"WALK={number}:{number + 1} pytest -k 'test_operation and {name}'")
        seen |= check(seed, function, arrays, REGISTRY[name].differentiable, second=number % 2 == 0, plain=0.15)
        number += 1
    assert name in seen or END - BEGIN < 3, f"no example of {name} ran it on distributed tensors"
