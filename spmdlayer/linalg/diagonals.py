"""Diagonals and triangles of matrices: linear operations, each the adjoint of another or of itself."""

from ..autograd.tensor import asarray
from ..ops import reductions
from ..ops.registry import apply, define
from .stacks import check_stack, stack_rule


def _length(shape, offset):
    """The number of elements of a diagonal of a matrix of this shape."""
    rows, columns = shape[-2:]
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


def _place_forward(np, values, offset=0, rows=None, columns=None):
    n = values.shape[-1]
    out = np.zeros((*values.shape[:-1], rows or n, columns or n), values.dtype)
    places = np.arange(n)
    out[..., places + max(-offset, 0), places + max(offset, 0)] = values
    return out


def _diagonal_vjp(g, p, xp):
    rows, columns = p.shapes[0][-2:]
    return xp.place_diagonal(g, offset=p.get("offset", 0), rows=rows, columns=columns)


_diagonal = define(
    "diagonal",
    lambda np, x, offset=0: np.diagonal(x, offset, -2, -1),
    (_diagonal_vjp,),
    rule=stack_rule("MN->k", (0,), lambda call: [("k", _length(call.shapes[0], call.params.get("offset", 0)))]),
)
_place = define(
    "place_diagonal",
    _place_forward,
    (lambda g, p, xp: xp.diagonal(g, offset=p.get("offset", 0)),),
    rule=stack_rule(
        "K->MN",
        (0,),
        lambda call: [(d, call.params.get(k) or call.shapes[0][-1]) for d, k in (("M", "rows"), ("N", "columns"))],
    ),
)
_lower = define(
    "lower_triangle",
    lambda np, x, k=0: np.tril(x, k),
    (lambda g, p, xp: xp.lower_triangle(g, k=p.get("k", 0)),),
    rule=stack_rule("MN->MN", (0,)),
)


def half_lower(x, xp):
    """The lower triangle with half of the diagonal."""
    return (xp.lower_triangle(x) + xp.lower_triangle(x, k=-1)) * 0.5


def diagonal(x, offset=0):
    """The diagonals of matrices, (..., k): the main ones, those above (offset > 0) or below (offset < 0).

    Distributed: the leading dims may be sharded, the matrices are gathered.
    """
    x = asarray(x)
    check_stack("linalg.diagonal", x)
    return apply(_diagonal, (x,), {"offset": int(offset)})


def trace(x, offset=0, dtype=None):
    """The sums of the diagonals of matrices, (...); dtype as in `sum`.

    Distributed: the leading dims may be sharded, the matrices are gathered.
    """
    return reductions.sum(diagonal(x, offset), axis=-1, dtype=dtype)
