"""What a minimiser gives."""

from typing import NamedTuple


class OptimizeResult(NamedTuple):
    """The end of a minimisation; names as scipy.optimize's.

    Attributes
    ----------
    x : the Tensor, or list of Tensors, off the tape
    fun : float, the value there
    grad_norm : float, the Euclidean norm of the gradient there
    nit, nfev : int, steps taken, and evaluations of the function with its gradient
    success : bool
    message : str, why it ended
    """

    x: object
    fun: float
    grad_norm: float
    nit: int
    nfev: int
    success: bool
    message: str
