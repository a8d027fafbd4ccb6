"""Functions of matrices.

The derivative of expm in a direction stands in the corner of the exponential
of a matrix of twice the size (Najfeld and Havel 1995; Higham, "Functions of
matrices", 2008), so gradients of any order are exponentials.
"""

from importlib import import_module

from ..autograd.tensor import asarray
from ..ops.precision import computable, rounding
from ..ops.registry import define
from .stacks import adjoint, apply_on_stacks, check_stack, stack_rule


def _expm_forward(np, a):
    module = "scipy.linalg" if np.__name__ == "numpy" else "cupyx.scipy.linalg"
    try:
        return import_module(module).expm(a)
    except ImportError:
        raise ImportError(f"expm needs {module}: pip install 'spmdlayer[scipy]' brings SciPy") from None


def _expm_vjp(g, a, xp):
    back, n = adjoint(a, xp), a.shape[-1]
    upper = xp.concat([back, g], axis=a.ndim - 1)
    lower = xp.concat([xp.zeros_like(g), back], axis=a.ndim - 1)
    return xp.expm(xp.concat([upper, lower], axis=a.ndim - 2))[..., :n, n:]


_expm = define("expm", _expm_forward, (_expm_vjp,), rule=stack_rule("MM->MM"))


def expm(x):
    """The exponentials of square matrices (..., n, n), as scipy.linalg.expm.

    Distributed: the leading dims may be sharded, the matrices are gathered.
    """
    x = asarray(x)
    check_stack("expm", x, square=True)
    return rounding(x)(apply_on_stacks(_expm, (computable(x),)))


_expm.public = expm
