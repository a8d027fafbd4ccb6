"""scipy.optimize.minimize for losses of distributed tensors."""

import numpy as np

from ..autograd.tensor import wrap_array
from ..boundary.api import shard_tensor
from .point import Objective, Space


class ScipyProblem:
    """A loss as scipy.optimize takes it; see `to_scipy`.

    Attributes
    ----------
    x0 : numpy.ndarray, float64, 1-d: the start, equal on all ranks
    """

    def __init__(self, fn, x0):
        self._space = Space("to_scipy", x0)
        self._objective = Objective("to_scipy", fn, self._space)
        whole = [space.tensor(raw).numpy() for space, raw in zip(self._space.spaces, self._space.start)]
        self._sizes = np.cumsum([part.size for part in whole])[:-1]
        self.x0 = np.concatenate([part.reshape(-1).astype(np.float64) for part in whole])

    def fun(self, x):
        """The value and the gradient (jac=True), for a vector equal on all ranks; collective."""
        vector = self._space.raw(self._tensors(x), "x")
        value, gradient = self._objective.value_and_gradient(vector)
        parts = [space.tensor(raw).numpy() for space, raw in zip(self._space.spaces, gradient)]
        return value, np.concatenate([part.reshape(-1).astype(np.float64) for part in parts])

    def unpack(self, x):
        """The Tensor, or list of Tensors, of a vector, placed as x0 was."""
        found = self._tensors(x)
        return found[0] if self._space.single else found

    def _tensors(self, x):
        found = []
        for part, space in zip(np.split(np.asarray(x), self._sizes), self._space.spaces):
            array = part.reshape(space.shape).astype(space.dtype)
            if space.layout is None:
                found.append(wrap_array(array))
            else:
                found.append(shard_tensor(array, space.mesh, space.layout.placements))
        return found


def to_scipy(fn, x0):
    """A loss of local or distributed tensors as scipy.optimize takes it.

        problem = spmd.optimize.to_scipy(loss, w)
        result = scipy.optimize.minimize(problem.fun, problem.x0, jac=True)
        w = problem.unpack(result.x)

    Every rank runs the same minimiser on the whole vector, in float64; the loss
    and its gradient are computed distributed.  fn and x0 as for `lbfgs`.
    """
    return ScipyProblem(fn, x0)
