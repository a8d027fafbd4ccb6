"""How the benchmarks measure: in pairs, interleaved, so that a drift of the machine's speed hits both sides.

Figures are medians over rounds, with the smallest and largest; a round is the
mean of many calls.
"""

import gc
import os
import platform
import statistics
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """Seconds a call: the median over rounds, the smallest and the largest."""

    median: float
    low: float
    high: float

    def __str__(self):
        return f"{1e6 * self.median:9.2f} us ({1e6 * self.low:.2f} - {1e6 * self.high:.2f})"


def figure(samples):
    """The Figure of a list of seconds."""
    return Figure(statistics.median(samples), min(samples), max(samples))


def interleaved(functions, calls=200, rounds=15, before=None):
    """Time functions in turn, round by round; returns a Figure each.

    Parameters
    ----------
    functions : callables without arguments
    calls : calls a round
    rounds : rounds that count, after one that does not
    before : called before each function's round (a barrier, say)
    """
    samples = [[] for _ in functions]
    for round_ in range(rounds + 1):
        for function, kept in zip(functions, samples, strict=True):
            gc.collect()
            if before is not None:
                before()
            start = time.perf_counter()
            for _ in range(calls):
                function()
            seconds = (time.perf_counter() - start) / calls
            if round_:
                kept.append(seconds)
    return [figure(kept) for kept in samples]


def machine(mpi_library=""):
    """One line about where the figures come from."""
    import numpy

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), model)
    except OSError as error:
        model = f"{model} (/proc/cpuinfo: {error.strerror})"
    cores = len(os.sched_getaffinity(0))
    parts = [
        f"{model}, {cores} cores for this rank",
        f"Python {platform.python_version()}",
        f"numpy {numpy.__version__}",
    ]
    return ", ".join(parts + ([mpi_library] if mpi_library else []))
