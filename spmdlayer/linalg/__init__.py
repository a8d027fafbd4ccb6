"""Linear algebra: the Array API's extension, and what solvers need besides.

Matrices are the last two dimensions; the ones before them are a stack of
matrices.  Local and distributed: leading dimensions may be sharded, the
matrices of factorisations and solvers are gathered.  All are differentiable
to any order, except what counts (`matrix_rank`).  Half precision is computed
in float32 and rounded.
"""

from ..ops.contraction import tensordot
from ..ops.linear import matmul, vecdot
from ..ops.shape import matrix_transpose
from .determinants import SlogdetResult, det, slogdet
from .diagonals import diagonal, trace
from .krylov import bicgstab, cg, gmres
from .matrix_functions import expm
from .norms import cond, matrix_norm, norm, vector_norm
from .products import cross, kron, matrix_power, multi_dot, outer
from .solving import LstsqResult, inv, lstsq, matrix_rank, pinv, solve, solve_triangular
from .spectra import EighResult, EigResult, SVDResult, eig, eigh, eigvals, eigvalsh, svd, svdvals
from .stacks import LinAlgError
from .triangular_factors import QRResult, cholesky, qr
