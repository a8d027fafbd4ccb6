"""`Tensor`: an array on the tape, local or distributed.

A local tensor wraps this rank's own array.  A distributed tensor wraps this
rank's piece of a global array and knows its `Spec` (mesh and layout).  The
arithmetic and the distributed methods are installed by upper floors.

A tensor is a value: what indexing or reshape returns never changes with a
later write to the tensor it came from, nor the other way round.
"""

import numpy as np

from .. import dtypes
from ..array import array_module, is_array, to_numpy
from ..config import state
from ..errors import runtime_error, type_error, value_error
from .tape import Node, NodeOp, upper

_new = object.__new__


class Tensor:
    """A local or distributed array that operations can be recorded on.

    Not called directly: see `tensor`, `asarray`, `dtensor_from_local` and
    `shard_tensor`.

    Attributes
    ----------
    shape, ndim, size : of the global array
    local_shape : of this rank's piece (the same as shape for a local tensor)
    dtype : numpy.dtype
    requires_grad : bool, whether operations on it are recorded
    stop_gradient : bool, its opposite (Paddle's word)
    grad : Tensor or None, what `backward` accumulated in a leaf
    """

    __slots__ = ("_data", "_node", "_spec", "__weakref__")

    __array_priority__ = 1000

    def __init__(self, *args, **kwargs):
        raise type_error("Tensor() is not called directly: use spmdlayer.tensor(data) or spmdlayer.asarray(array)")

    # What it is ---------------------------------------------------------

    @property
    def shape(self):
        if self._spec is None:
            return self._data.shape
        if self._spec.shape is None:
            raise runtime_error(
                "shape: not known on this rank, which the tensor's mesh does not contain; reshard brings it"
            )
        return self._spec.shape

    @property
    def local_shape(self):
        return self._data.shape

    @property
    def dtype(self):
        return self._data.dtype

    @property
    def ndim(self):
        return self._data.ndim if self._spec is None else len(self.shape)

    @property
    def size(self):
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def process_mesh(self):
        """The ProcessMesh of a distributed tensor; None for a local one."""
        return None if self._spec is None else self._spec.mesh

    @property
    def placements(self):
        """The placements of a distributed tensor, one per mesh axis; None for a local one."""
        return None if self._spec is None else list(self._spec.placements)

    def is_dist(self):
        """Whether this is a distributed tensor."""
        return self._spec is not None

    # Gradients ----------------------------------------------------------

    @property
    def requires_grad(self):
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, wanted):
        if not isinstance(wanted, (bool, np.bool_)):
            raise type_error(f"requires_grad: a bool is needed, {wanted!r} was given")
        if wanted and self._node is None:
            if not dtypes.is_inexact(self.dtype):
                raise value_error(
                    f"requires_grad: only floating point and complex tensors have gradients, not {self.dtype.name}"
                )
            self._node = make_leaf(self)
        elif not wanted and self._node is not None:
            if not self.is_leaf:
                raise value_error("requires_grad: this tensor is the result of a recorded operation; use detach()")
            self._node = None

    def requires_grad_(self, wanted=True):
        """Set `requires_grad` and return the tensor."""
        self.requires_grad = wanted
        return self

    @property
    def stop_gradient(self):
        return self._node is None

    @stop_gradient.setter
    def stop_gradient(self, wanted):
        self.requires_grad = not wanted

    @property
    def is_leaf(self):
        """Whether no recorded operation made this tensor."""
        return self._node is None or isinstance(self._node, LeafNode)

    @property
    def grad(self):
        return self._node.grad if isinstance(self._node, LeafNode) else None

    @grad.setter
    def grad(self, value):
        if not isinstance(self._node, LeafNode):
            raise value_error("grad: only a leaf that requires grad has one")
        if value is not None and not isinstance(value, Tensor):
            raise type_error(f"grad: a Tensor or None is needed, {type(value).__name__} was given")
        self._node.grad = value

    def clear_grad(self):
        """Forget the accumulated gradient."""
        if isinstance(self._node, LeafNode):
            self._node.grad = None

    def detach(self):
        """The same value, off the tape; shares the buffer."""
        return wrap(self._data, None, self._spec)

    def register_hook(self, hook):
        """Call `hook(grad)` in each backward pass with this tensor's gradient.

        The hook may return a replacement.  For a distributed tensor the
        gradient is a distributed tensor (global view), and the hook must be
        registered on all ranks of the mesh.  Returns a handle with `remove()`.
        """
        if self._node is None:
            raise value_error("register_hook: this tensor does not require grad")
        return HookHandle(self, hook)

    # Values -------------------------------------------------------------

    def numpy(self):
        """The global value as a NumPy array.

        For a distributed tensor this is collective over its mesh.  For a local
        tensor in host memory it is a read-only view of the buffer.
        """
        if self._spec is not None:
            return self._to_global()
        host = to_numpy(self._data)
        view = host.view()
        view.flags.writeable = False
        return view

    def item(self):
        """The only element, as a Python scalar; collective for a distributed tensor."""
        if self.size != 1:
            raise value_error(f"item(): the tensor has shape {self.shape}; only one element converts to a scalar")
        return self.numpy().item()

    def tolist(self):
        """The global value as nested lists; collective for a distributed tensor."""
        return self.numpy().tolist()

    def __array__(self, dtype=None, copy=None):
        if self._spec is not None:
            raise type_error("numpy.asarray of a distributed tensor: call .numpy() on every rank (it is collective)")
        if self._node is not None:
            raise type_error("numpy.asarray of a tensor that requires grad would leave the tape: use .detach().numpy()")
        if copy is False and not isinstance(self._data, np.ndarray):
            raise value_error("numpy.asarray(copy=False) of a tensor on a device: only a copy is in host memory")
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __bool__(self):
        if self.size != 1:
            raise value_error(f"bool(): the tensor has shape {self.shape}; take any() or all() of it")
        return bool(self.item())

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __complex__(self):
        return complex(self.item())

    def __index__(self):
        if self.dtype.kind not in "iu" or self.ndim != 0:
            raise type_error(f"only a 0-d integer tensor is an index, not {self.dtype.name} of shape {self.shape}")
        return int(self.item())

    def __len__(self):
        if self.ndim == 0:
            raise type_error("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    __hash__ = object.__hash__

    def __repr__(self):
        grad = ", requires_grad=True" if self._node is not None else ""
        if self._spec is None:
            body = np.array2string(to_numpy(self._data), separator=", ", prefix="Tensor(")
            return f"Tensor({body}, dtype={self.dtype.name}{grad})"
        if self._spec.shape is None:
            return f"Tensor(placements={self.placements}, mesh={self._spec.mesh!r}, outside the mesh{grad})"
        return (
            f"Tensor(shape={self.shape}, local_shape={self.local_shape}, dtype={self.dtype.name}, "
            f"placements={self.placements}, mesh={self._spec.mesh!r}{grad})"
        )

    def __str__(self):
        return str(self.numpy())

    def __format__(self, spec):
        if not spec:
            return str(self)
        return format(self.item(), spec) if self.size == 1 else format(self.numpy(), spec)


class LeafNode(Node):
    """The node of a tensor that the user made; keeps its gradient."""

    __slots__ = ("grad",)

    def __init__(self, op, spec=None):
        super().__init__(op, (), spec=spec)
        self.region = None  # visible everywhere: a rank's own tensors get their own gradients
        self.grad = None


class _Leaf(NodeOp):
    name = "leaf"
    keeps = True

    @staticmethod
    def pull(node, g):
        if state.engine.wanted is None:
            old = node.grad
            node.grad = wrap_array(g if old is None else old._data + g)
        return ()

    @staticmethod
    def pull_graph(node, g):
        if state.engine.wanted is None:
            node.grad = g if node.grad is None else node.grad + g
        return ()


LEAF = _Leaf()


def make_leaf(tensor):
    """The leaf node of a tensor that starts to require grad."""
    return LeafNode(LEAF) if tensor._spec is None else LeafNode(upper.leaf, tensor._spec)


class HookHandle:
    """A registered hook; `remove()` ends it."""

    def __init__(self, tensor, hook):
        if not callable(hook):
            raise type_error(f"register_hook: a callable is needed, {hook!r} was given")
        node = self._node = tensor._node
        dtype, module = tensor.dtype, array_module(tensor._data)
        if node.spec is None:
            self._entry = lambda node, g: _call_hook(hook, g)
        else:
            self._entry = lambda node, g: _call_distributed_hook(hook, node.spec, g, dtype, module)
        node.hooks = [*(node.hooks or ()), self._entry]

    def remove(self):
        """Do not call the hook any more."""
        left = [entry for entry in self._node.hooks or () if entry is not self._entry]
        self._node.hooks = left or None


def _call_hook(hook, g):
    shown = g if isinstance(g, Tensor) else wrap_array(g)
    result = _checked(hook(shown), shown)
    return g if result is None else result if isinstance(g, Tensor) else result._data


def _call_distributed_hook(hook, spec, g, dtype, module):
    if spec.mesh.coordinate is None:
        return g  # a rank outside the mesh takes no part
    shown = upper.natural(spec, upper.blank(spec, dtype, module) if g is None else g)
    result = _checked(hook(shown), shown)
    return g if result is None else upper.from_natural(spec, result)


def _checked(result, shown):
    """What a hook returned, None or a gradient like the one shown to it."""
    if result is None or (
        isinstance(result, Tensor)
        and (result.shape, result.dtype, result.process_mesh) == (shown.shape, shown.dtype, shown.process_mesh)
    ):
        return result
    raise value_error(
        f"hook: it must return None or a tensor like its argument (shape {shown.shape}, {shown.dtype.name}, "
        f"{'distributed' if shown.is_dist() else 'local'}), not {result!r}"
    )


def wrap(data, node, spec):
    """A Tensor around a raw array, without checks."""
    tensor = _new(Tensor)
    tensor._data = data
    tensor._node = node
    tensor._spec = spec
    return tensor


def wrap_array(value):
    """A local Tensor around a raw array, or around the scalar that NumPy made of a 0-d one."""
    return wrap(np.asarray(value) if isinstance(value, np.generic) else value, None, None)


def install(**methods):
    """Give Tensor methods that upper floors define."""
    for name, method in methods.items():
        setattr(Tensor, name, method)


def as_raw(value, argument="data", dtype=None, copy=False):
    """A raw array from a local Tensor, array, number or nested list."""
    if isinstance(value, Tensor):
        if value._spec is not None:
            raise type_error(
                f"{argument}: a distributed tensor was given where a local value is needed; use to_local()"
            )
        raw = value._data
    elif is_array(value) and not isinstance(value, np.generic):
        raw = value
    else:
        raw = np.asarray(value, None if dtype is None else dtypes.dtype(dtype))  # checks that numbers fit
    if dtype is not None and raw.dtype != dtypes.dtype(dtype):
        raw, copy = raw.astype(dtypes.dtype(dtype)), False
    if not raw.dtype.isnative:
        raw, copy = raw.astype(raw.dtype.newbyteorder("=")), False
    if not dtypes.supported(raw.dtype):
        raise type_error(f"{argument}: dtype {raw.dtype} is not supported; bool, integers, floats and complex are")
    return raw.copy() if copy else raw


def wants_grad(requires_grad, stop_gradient):
    """Whether a new tensor is to require grad, by either word; stop_gradient None leaves it to the other."""
    for name, value in (("requires_grad", requires_grad), ("stop_gradient", stop_gradient)):
        if not isinstance(value, (bool, np.bool_, type(None))):
            raise type_error(f"{name}: a bool is needed, {value!r} was given")
    return bool(requires_grad) if stop_gradient is None else not stop_gradient


def tensor(data, dtype=None, requires_grad=False, stop_gradient=None):
    """A local tensor with a copy of `data` (array, number, nested list, local Tensor).

    `stop_gradient` is Paddle's word for the opposite of `requires_grad`.
    """
    requires_grad = wants_grad(requires_grad, stop_gradient)
    result = wrap(as_raw(data, "data", dtype, copy=True), None, None)
    if requires_grad:
        result.requires_grad = True
    return result


def asarray(data, dtype=None):
    """A local tensor that shares the buffer of an array where it can.

    A Tensor of the wanted dtype is returned as it is.  Writing to the array
    afterwards changes what the tensor holds; `tensor` copies.
    """
    if isinstance(data, Tensor) and (dtype is None or data.dtype == dtypes.dtype(dtype)):
        return data
    return wrap(as_raw(data, "data", dtype), None, None)


def check_not_in_region(what):
    """Raise where a collective question is asked in code that ranks run apart."""
    if state.region is not None:
        raise runtime_error(
            f"{what} of a distributed tensor inside {state.region.label}: it is collective, and here each rank runs "
            "its own code.  Pass the tensor as an input (or in captures=) to see this rank's piece"
        )
