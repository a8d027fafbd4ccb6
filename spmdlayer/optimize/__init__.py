"""Minimisation of functions of local or distributed tensors.

    result = spmd.optimize.lbfgs(loss, w)

The methods work on each rank's pieces; a step costs the evaluations of the
function and its gradient, and a few reductions of dot products.  All ranks take
the same steps.
"""

from .gauss_newton import gauss_newton
from .lbfgs import lbfgs
from .newton_cg import newton_cg
from .result import OptimizeResult
from .scipy_driver import to_scipy

__all__ = ["OptimizeResult", "gauss_newton", "lbfgs", "newton_cg", "to_scipy"]
