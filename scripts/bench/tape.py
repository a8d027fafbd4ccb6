"""What recording an operation costs: forward and backward above NumPy's own time, on 4 float64 items."""

import time

import numpy as np
from timing import figure

import spmdlayer as spmd

CHAIN = 500
ROUNDS = 25
# name, operation on tensors, the same in NumPy, its vjp in NumPy (as many calls as backward makes)
CASES = [
    ("multiply", lambda y, w: y * w, np.multiply, lambda g, y, w, out: (g * w, g * y)),
    ("add", lambda y, w: y + w, np.add, lambda g, y, w, out: (g, g)),
    ("tanh", lambda y, w: spmd.tanh(y), lambda y, w: np.tanh(y), lambda g, y, w, out: g * (1 - out * out)),
]


def _timed(function):
    start = time.perf_counter()
    result = function()
    return (time.perf_counter() - start) / CHAIN, result


def _recorded(x, w, operation):
    y = x
    for _ in range(CHAIN):
        y = operation(y, w)
    return y


def _numpy_backward(g, saved, w, vjp):
    for y, out in saved:
        vjp(g, y, w, out)


def measure(operation, forward, vjp):
    """Seconds an operation: recorded forward and backward, and NumPy's forward and vjp."""
    x = spmd.tensor([0.1, 0.2, 0.3, 0.4], requires_grad=True)
    w = spmd.tensor([1.0, 0.99, 1.01, 1.0], requires_grad=True)
    raw, raw_w, g = x.numpy().copy(), w.numpy().copy(), np.ones(4)
    samples = [[], [], [], []]
    for _ in range(ROUNDS):
        ours, y = _timed(lambda: _recorded(x, w, operation))
        back, _ = _timed(lambda y=y: spmd.backward(y, g))
        theirs, out = _timed(lambda: _recorded(raw, raw_w, forward))
        saved = [(raw, out)] * CHAIN
        their_back, _ = _timed(lambda saved=saved: _numpy_backward(g, saved, raw_w, vjp))
        for kept, value in zip(samples, (ours, back, theirs, their_back), strict=True):
            kept.append(value)
    return [figure(kept) for kept in samples]


def main():
    """Print the table; returns rows (name, forward above NumPy, backward above NumPy) in seconds."""
    print(
        "tape: microseconds an operation on 4 float64 items, above NumPy's own time (bars: 2.0 forward, 3.0 backward)"
    )
    rows = []
    for name, operation, forward, vjp in CASES:
        ours, back, theirs, their_back = measure(operation, forward, vjp)
        above, back_above = ours.median - theirs.median, back.median - their_back.median
        rows.append((name, above, back_above))
        print(
            f"  {name:9} forward {1e6 * above:5.2f} (recorded {1e6 * ours.median:.2f}, "
            f"NumPy {1e6 * theirs.median:.2f})   "
            f"backward {1e6 * back_above:5.2f} (recorded {1e6 * back.median:.2f}, NumPy {1e6 * their_back.median:.2f})"
        )
    return rows


if __name__ == "__main__":
    main()
