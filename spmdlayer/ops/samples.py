"""Samples of sorted lines that lie on several ranks: what each rank knows of the others' elements.

Every rank shows every `step`-th element of its sorted parts.  The order is
total, by value and then by position in the line, so that many equal elements
are no burden.
"""

import numpy as np

from .stable_sort import stable_order

SAMPLES = 64  # a rank and line


class Samples:
    """The samples of lines, the same on all ranks.  Collective: one gather.

    Parameters
    ----------
    line : Channel of the ranks that hold the lines, in order
    values : (lines, size), this rank's part of every line, sorted
    sizes : of all ranks' parts

    Attributes
    ----------
    values : as given
    step : each sample stands for so many elements of its rank, up to itself
    count : int, the number of samples of a line
    """

    def __init__(self, line, values, sizes, descending=False):
        self.values, self.descending, self.rank = values, descending, line.rank
        self.step = step = max(1, sum(sizes) // (len(sizes) * SAMPLES))
        taken = [n // step for n in sizes]
        shapes = [(len(values), n) for n in taken]
        self._samples = np.concatenate(line.allgather(values[:, step - 1 :: step], shapes), axis=1)
        self._holders = np.repeat(np.arange(len(sizes)), taken)
        self._places = np.concatenate([np.arange(n) * step + step - 1 for n in taken])
        self._order = stable_order(self._samples, descending)
        self.count = sum(taken)

    def places_behind(self, number):
        """For each line, how many of this rank's elements come up to the number-th sample (from 1), with itself."""
        if not number:
            return [0] * len(self.values)
        return [self._up_to(row, chosen) for row, chosen in enumerate(self._order[:, number - 1])]

    def _up_to(self, row, chosen):
        values, value, holder = self.values[row], self._samples[row, chosen], self._holders[chosen]
        if holder == self.rank:
            return self._places[chosen] + 1
        equal_too = self.rank < holder  # equal elements of ranks at the left come before it
        if not self.descending:
            return np.searchsorted(values, value, "right" if equal_too else "left")
        return len(values) - np.searchsorted(values[::-1], value, "left" if equal_too else "right")
