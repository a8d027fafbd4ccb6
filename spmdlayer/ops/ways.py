"""What distributed operations remember of calls that they have seen.

Where nothing moves, everything but the arithmetic follows from the operation,
the Specs and dtypes of its operands, and its parameters: it is worked out at
the first such call.  A call inside of a region, or with a plain array among
the operands, is worked out each time.
"""

from functools import partial

import numpy as np

from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..dtypes import is_inexact
from .recorded import node_of, what_is_kept
from .registry import run_forward

_SCALARS = frozenset({bool, int, float, complex})
_MOST = 4096
_ways = {}


def look_up(op, operands, params):
    """(key, Way) of a call: what decides how it runs, None where it is not remembered, and the Way if there is one."""
    key = [op]
    for operand in operands:
        if type(operand) is Tensor:
            spec = operand._spec
            if spec is None or spec.region is not None:
                return None, None
            # A way keeps its Specs alive, so their identity is enough.
            key += (id(spec), operand._data.dtype)
        elif type(operand) in _SCALARS:
            key.append(type(operand))
        else:
            return None, None
    for name, value in params.items():
        # Equal numbers need not be the same parameter: 1 and True, 0.0 and -0.0.
        key += (name, type(value), repr(value) if type(value) in (float, complex) else value)
    key = tuple(key)
    try:
        return key, _ways.get(key)
    except TypeError:  # a parameter that cannot be hashed
        return None, None


def remember(key, op, operands, params, spec):
    """Keep how a call ran in which nothing moved."""
    try:
        if len(_ways) >= _MOST:
            _ways.clear()
        _ways[key] = Way(op, operands, params, spec)
    except TypeError:
        return


def _function_of(op, operands, params):
    """What forward does with NumPy's arrays, as directly as can be."""
    if op.numpy_function is not None:
        return op.numpy_function
    found = None if op.direct is None else op.direct([getattr(x, "_data", x) for x in operands], params)
    return partial(op.forward, np, **params) if found is None else found


class Way:
    """How an operation runs on operands of certain Specs, where nothing moves.

    Attributes
    ----------
    op, params : the operation, and the parameters of its local call
    spec : of the result
    specs : of the operands, kept alive
    function : of NumPy's arrays, what forward does with them
    records : by which operands require grad: the flags of what is saved, and the Record
    """

    __slots__ = ("op", "params", "spec", "specs", "function", "records")

    def __init__(self, op, operands, params, spec):
        self.op = op
        self.params = params
        self.spec = spec
        self.specs = [getattr(operand, "_spec", None) for operand in operands]
        self.function = _function_of(op, operands, params)
        self.records = {}

    def run(self, operands):
        """The result, recorded where an operand is."""
        arrays, edges, pattern = [], [], 1
        for operand in operands:
            if type(operand) is Tensor:
                arrays.append(operand._data)
                edges.append(operand._node)
                pattern = 2 * pattern + (operand._node is not None)
            else:
                arrays.append(operand)
                edges.append(None)
                pattern *= 2
        op = self.op
        if type(arrays[0]) is np.ndarray:
            result = self.function(*arrays)
            if type(result) is not np.ndarray:
                result = np.asarray(result)
        else:
            result = run_forward(op, arrays, self.params)
        if pattern & (pattern - 1) == 0 or not (op.differentiable and state.grad_enabled):
            return wrap(result, None, self.spec)
        found = self.records.get(pattern)
        if found is None:
            found = self.records[pattern] = self._record(operands, arrays, edges, result)
        flags, record = found
        if flags is None:
            return wrap(result, None, self.spec)
        return wrap(result, node_of(flags, record, tuple(edges), arrays, result, self.spec), self.spec)

    def _record(self, operands, arrays, edges, result):
        if not is_inexact(result.dtype):
            return None, None
        flags = self.op.saves(tuple(edge is not None for edge in edges))
        return flags, what_is_kept(self.op, operands, arrays, edges, result, self.params)
