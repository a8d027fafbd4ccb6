"""Iterative solvers of linear systems: cg, bicgstab, gmres.

Names, arguments and results as scipy.sparse.linalg's.  They work on local and
distributed tensors of any shape, communicate in what the operator does and in
one reduction for the dot products of a step, and are differentiable in the
right side and in all that the operator depends on, by one adjoint solve.
"""

import math
import sys
import warnings

import numpy as np

from ..errors import runtime_error, value_error
from ..runtime import get_rank
from .implicit import adjoint_of, solution_of
from .vectors import Vectors, applied, operator, right_side


class _Watch:
    """Counts the steps of one solve, reports them, and says when to stop."""

    def __init__(self, name, space, b, rtol, atol, maxiter, callback, progress):
        if not (rtol >= 0 and atol >= 0):
            raise value_error(f"{name}: rtol {rtol!r} and atol {atol!r} were given; they are 0 or more")
        self.name, self.space, self.callback, self.progress = name, space, callback, progress
        self.maxiter = 10 * math.prod(space.shape) if maxiter is None else maxiter
        self.scale = space.norm(b)
        self.goal = max(rtol * self.scale, atol)
        self.step = 0
        self.check(self.scale)

    def check(self, number):
        """Raise where a number that the step computed is NaN or infinite; the same on every rank."""
        if not math.isfinite(abs(number)):
            raise runtime_error(
                f"{self.name}: NaN or infinity after {self.step} steps; look at b, the operator and the preconditioner"
            )

    def reached(self, norm):
        """Whether the residual is small enough; counted as a step done."""
        self.check(norm)
        if self.progress and get_rank() == 0:
            relative = norm / self.scale if self.scale else norm
            sys.stderr.write(f"\r{self.name}: step {self.step}, residual {relative:.2e}   ")
        return norm <= self.goal

    def done(self, x):
        self.step += 1
        if self.callback is not None:
            self.callback(self.space.tensor(x.copy()))

    def info(self, converged):
        """0, or the number of steps that were not enough, with a warning."""
        if self.progress and get_rank() == 0:
            sys.stderr.write("\n")
        if converged:
            return 0
        warnings.warn(f"{self.name} has not converged in {self.step} steps", RuntimeWarning, stacklevel=5)
        return self.step


def _solve(core, name, A, b, x0, rtol, atol, maxiter, M, callback, progress, hermitian, extra):
    b = right_side(b, name)
    function = operator(A, name)
    space = Vectors(b)
    precondition = None if M is None else applied(operator(M, name, "M"), space, f"{name}: M(x)")
    apply = applied(function, space, f"{name}: A(x)")
    raw_b = space.raw(b.detach(), f"{name}: b")
    watch = _Watch(name, space, raw_b, rtol, atol, maxiter, callback, progress)
    x = space.module.zeros_like(raw_b) if x0 is None else space.raw(x0.detach(), f"{name}: x0").copy()
    residual = raw_b - apply(x) if x0 is not None else raw_b.copy()
    converged = core(space, apply, precondition, x, residual, watch, **extra)

    def adjoint_solve(g):
        # A preconditioner of A is none of its adjoint, unless both are Hermitian.
        adjoint = function if hermitian else adjoint_of(function, space.tensor(x))
        preconditioner = M if hermitian else None
        options = (rtol, 0.0, maxiter, preconditioner, None, False, hermitian, extra)
        return _solve(core, f"{name} (adjoint)", adjoint, g, None, *options)[0]

    return solution_of(function, b, x, space, adjoint_solve), watch.info(converged)


def cg(A, b, x0=None, *, rtol=1e-5, atol=0.0, maxiter=None, M=None, callback=None, progress=False):
    """Solve A x = b for a Hermitian positive definite A by conjugate gradients.

    Parameters
    ----------
    A : function of a Tensor like b, linear, or a square matrix
    b : Tensor of any shape, local or distributed (Partial ones are reduced first)
    x0 : where to start; zeros
    rtol, atol : stop when norm(b - A x) <= max(rtol * norm(b), atol)
    maxiter : the most steps; 10 times the number of unknowns
    M : an approximate inverse of A, Hermitian positive definite: a function or a matrix
    callback : called with the x of each step
    progress : whether rank 0 writes a line on standard error

    Returns
    -------
    (x, info): x in b's layout; info is 0, or the number of steps where these
    were not enough (and a warning says so).

    Two reductions a step.  M. R. Hestenes, E. Stiefel, 1952.

    Raises, on every rank: ValueError where A or M turns out not to be positive
    definite, RuntimeError for NaN.
    """
    return _solve(_cg, "cg", A, b, x0, rtol, atol, maxiter, M, callback, progress, True, {})


def _cg(space, apply, precondition, x, r, watch):
    z = r if precondition is None else precondition(r)
    p = z.copy()
    rz, rr = space.dots((r, z), (r, r))
    while not watch.reached(math.sqrt(rr.real)):
        if watch.step == watch.maxiter:
            return False
        _positive(rz, "M", watch)
        q = apply(p)
        pq = space.dots((p, q))[0]
        watch.check(pq)
        _positive(pq, "A", watch)
        alpha = rz.real / pq.real
        x += alpha * p
        r -= alpha * q
        z = r if precondition is None else precondition(r)
        before = rz.real
        rz, rr = space.dots((r, z), (r, r)) if precondition is not None else space.dots((r, r)) * 2
        p *= rz.real / before
        p += z
        watch.done(x)
    return True


def _positive(number, what, watch):
    if not number.real > 0 or abs(complex(number).imag) > 1e-6 * abs(number):
        raise value_error(
            f"{watch.name}: {what} is not Hermitian positive definite: <v, {what} v> is {number} for a v in step "
            f"{watch.step + 1}; bicgstab and gmres take any A"
        )


def bicgstab(A, b, x0=None, *, rtol=1e-5, atol=0.0, maxiter=None, M=None, callback=None, progress=False):
    """Solve A x = b by the stabilised bi-conjugate gradient method; arguments and results as `cg`, for any A.

    M preconditions from the right.  Three reductions a step.  H. A. van der
    Vorst, 1992.  Raises ValueError where the method breaks down.
    """
    return _solve(_bicgstab, "bicgstab", A, b, x0, rtol, atol, maxiter, M, callback, progress, False, {})


def _bicgstab(space, apply, precondition, x, r, watch):
    shadow, p = r.copy(), r.copy()
    rho, rr = space.dots((shadow, r), (r, r))
    while not watch.reached(math.sqrt(rr.real)):
        if watch.step == watch.maxiter:
            return False
        y = p if precondition is None else precondition(p)
        v = apply(y)
        alpha = _quotient(rho, space.dots((shadow, v))[0], watch)
        x += alpha * y
        r -= alpha * v
        z = r if precondition is None else precondition(r)
        t = apply(z)
        tt, tr = space.dots((t, t), (t, r))
        if tt == 0:  # r is 0 already
            rr = space.dots((r, r))[0]
            watch.done(x)
            continue
        omega = _quotient(tr, tt, watch)
        x += omega * z
        r -= omega * t
        before = rho
        rho, rr = space.dots((shadow, r), (r, r))
        watch.done(x)
        if math.sqrt(rr.real) <= watch.goal:
            continue
        p -= omega * v
        p *= _quotient(rho, before, watch) * _quotient(alpha, omega, watch)
        p += r
    return True


def _quotient(above, below, watch):
    watch.check(above)
    watch.check(below)
    if below == 0:
        raise value_error(f"{watch.name}: the method breaks down in step {watch.step + 1} (division by 0); try gmres")
    return above / below


def gmres(A, b, x0=None, *, rtol=1e-5, atol=0.0, restart=20, maxiter=None, M=None, callback=None, progress=False):
    """Solve A x = b by the generalised minimal residual method; arguments and results as `cg`, for any A.

    restart : so many vectors are kept before it starts again.  M preconditions
    from the right.  Orthogonalised twice by classical Gram-Schmidt: three
    reductions a step.  Y. Saad, M. H. Schultz, 1986.
    """
    if restart < 1:
        raise value_error(f"gmres: restart {restart!r} was given; it is 1 or more")
    extra = {"restart": restart}
    return _solve(_gmres, "gmres", A, b, x0, rtol, atol, maxiter, M, callback, progress, False, extra)


def _gmres(space, apply, precondition, x, r, watch, restart):
    norm = space.norm(r)
    while not watch.reached(norm):
        if watch.step >= watch.maxiter:
            return False
        basis, triangle, rotated = _arnoldi(space, apply, precondition, r / norm, norm, watch, restart)
        if not triangle:
            raise value_error("gmres: the operator gives 0 for the residual: it is singular, and no step is possible")
        count = len(triangle)
        table = np.zeros((count, count), np.result_type(*[column.dtype for column in triangle]))
        for k, column in enumerate(triangle):
            table[: k + 1, k] = column[: k + 1]
        weights = np.linalg.solve(table, rotated[:count])
        change = sum(weight * v for weight, v in zip(weights.astype(space.dtype), basis))
        change = change if precondition is None else precondition(change)
        x += change
        r -= apply(change)
        norm = space.norm(r)
        if watch.callback is not None:
            watch.callback(space.tensor(x.copy()))
    return True


def _arnoldi(space, apply, precondition, v, norm, watch, restart):
    """A basis of the Krylov space, and the least-squares problem in it, triangular by Givens rotations."""
    basis, triangle, rotations, right = [v], [], [], [norm]
    for k in range(restart):
        if watch.step >= watch.maxiter:
            break
        w = apply(basis[k] if precondition is None else precondition(basis[k])).copy()
        column = np.zeros(k + 2, np.result_type(space.dtype, np.float64))
        for _ in range(2):
            parts = space.dots(*[(u, w) for u in basis])
            for part, u in zip(parts, basis):
                w -= np.asarray(part, space.dtype) * u
            column[: k + 1] += parts
        length = space.norm(w)
        watch.check(length)
        column[k + 1] = length
        for j, (c, s) in enumerate(rotations):
            column[j], column[j + 1] = c * column[j] + s * column[j + 1], -np.conj(s) * column[j] + c * column[j + 1]
        size = math.hypot(abs(column[k]), abs(column[k + 1]))
        if size == 0:
            break  # singular in this space
        phase = column[k] / abs(column[k]) if column[k] != 0 else 1.0
        c, s = abs(column[k]) / size, phase * np.conj(column[k + 1]) / size
        rotations.append((c, s))
        column[k] = phase * size
        triangle.append(column[: k + 1])
        right[k:] = [c * right[k], -np.conj(s) * right[k]]
        watch.step += 1
        if watch.reached(abs(right[k + 1])) or length <= np.finfo(space.dtype).eps * size:
            break
        basis.append(w / np.asarray(length, space.dtype))
    return basis, triangle, np.array(right)
