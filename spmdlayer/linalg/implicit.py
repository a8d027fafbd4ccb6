"""Solutions of linear systems on the tape, whatever way they were found.

If A x = b, then for a cotangent g of x the cotangent of b is the solution y
of A^H y = g, and what A depends on gets the vjp of A(x) at -y: one adjoint
solve, nothing is unrolled.

What A depends on is found on the tape: A is recorded once, and those of the
nodes below that are older are the tensors that it captured.  In backward A is
recorded again, at the solution itself, so that higher orders are right.
"""

from ..autograd.backward import enable_grad
from ..autograd.tape import Engine, Node, NodeOp, upper
from ..autograd.tensor import Tensor, wrap
from ..config import state
from ..ops.elementwise import negative
from ..redistribute.crossing import DistributedOp, communicating_node, make_spec, zeros
from ..redistribute.reshard import conform


class System:
    """What the node of a solution keeps.

    Attributes
    ----------
    function : A, of a Tensor
    adjoint_solve : function of a right side that solves with A^H, differentiable
    solution : raw, this rank's piece
    """

    __slots__ = ("function", "adjoint_solve", "solution", "space")

    def __init__(self, function, adjoint_solve, solution, space):
        self.function = function
        self.adjoint_solve = adjoint_solve
        self.solution = solution
        self.space = space


class _AtSolution(NodeOp):
    """The solution, as the input of A in backward.

    In the pass that asks for the vjp of A it is a constant; in later ones its
    cotangent is the solution's.
    """

    name = "solution"

    @staticmethod
    def pull(node, g):
        return (None if state.engine is node.params else g,)

    pull_graph = pull


class _Solution(DistributedOp):
    name = "solve"

    @staticmethod
    def accumulate(old, new):
        if isinstance(old, Tensor) and old._spec is not None:
            return DistributedOp.accumulate(old, new)
        return old + new

    def pull(self, node, g):
        y, grads = self.solved(node, g, wrap(node.params.solution, None, node.spec).detach().requires_grad_(), None)
        return [y if y._spec is not None else y._data, *grads]

    def pull_graph(self, node, g):
        engine = Engine(create_graph=True, wanted=set(node.edges[1:]))
        late = Node(AT_SOLUTION, (node,), None, engine, node.spec)
        y, grads = self.solved(node, g, wrap(node.params.solution, late, node.spec), engine)
        return [y, *grads]

    @staticmethod
    def solved(node, g, x, engine):
        """The solution of the adjoint system, and the cotangents of what A captured."""
        system, captured = node.params, node.edges[1:]
        space = system.space
        if g is None:
            zero = space.module.zeros(system.solution.shape, space.dtype)
            g = zero if node.spec is None else zeros(node.spec, space.dtype, space.module)
        if node.spec is not None:
            g = conform(g, node.spec)
        g = g if isinstance(g, Tensor) else wrap(g, None, None)
        y = system.adjoint_solve(g)
        if not captured:
            return y, []
        engine = engine or Engine(wanted=set(captured))
        with enable_grad():
            image = system.function(x)
            back = negative(y if engine.create_graph else y.detach())
        if image._spec is not None:
            # A(x) need not lie as b does: where A's columns are sharded it is Partial.
            start, back = upper.seed(image, back)
        else:
            start, back = image._node, back if engine.create_graph else back._data
        engine.add(start, back)
        engine.run()
        return y, [engine.captured.get(edge) for edge in captured]


AT_SOLUTION, SOLUTION = _AtSolution(), _Solution()


def solution_of(function, b, raw, space, adjoint_solve):
    """The Tensor of a raw solution of `function(x) = b`, differentiable in b and in what the function captured."""
    spec = None if space.layout is None else make_spec(space.mesh, space.layout)
    if not state.grad_enabled:
        return wrap(raw, None, spec)
    captured = captured_nodes(function, space.tensor(raw))
    if b._node is None and not captured:
        return wrap(raw, None, spec)
    system = System(function, adjoint_solve, raw, space)
    return wrap(raw, communicating_node(SOLUTION, (b._node, *captured), None, system, spec), spec)


def captured_nodes(function, x):
    """The nodes of the tensors that a function of x uses besides, in the order in which they were made."""
    newest = Node(AT_SOLUTION, ()).order
    with enable_grad():
        waiting = [function(x)._node]
    found, seen = [], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.order > newest:  # negated sequence numbers: older
            found.append(node)
        else:
            waiting.extend(node.edges)
    return sorted(found, key=lambda node: -node.order)


def adjoint_of(function, like):
    """The adjoint of a linear function of tensors like a given one; differentiable."""
    from ..autograd.backward import grad

    def adjoint(v):
        with enable_grad():
            x = like.detach().requires_grad_()
            image = function(x)
            if image._node is None:
                return v * 0
            return grad(image, x, [v], create_graph=state.grad_enabled)

    return adjoint
