"""`Layer`: parameters and sublayers."""

from ..autograd.tensor import Tensor


class Layer:
    """Base of things with parameters: attributes that are tensors, layers, or lists, tuples and dicts of them.

    A parameter is a leaf tensor that requires grad.  Subclasses define
    `forward`; a call runs it.
    """

    def forward(self, *inputs, **kwargs):
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *inputs, **kwargs):
        return self.forward(*inputs, **kwargs)

    def named_tensors(self, prefix=""):
        """(name, tensor) of all tensors in attributes, sublayers' included; each tensor once."""
        seen = set()
        for name, tensor in _tensors(self, prefix, set()):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def named_parameters(self, prefix=""):
        """(name, parameter) of this layer and its sublayers, in the order of assignment."""
        return ((name, t) for name, t in self.named_tensors(prefix) if t.requires_grad and t.is_leaf)

    def parameters(self):
        """The parameters of this layer and its sublayers."""
        return [parameter for _, parameter in self.named_parameters()]

    def sublayers(self):
        """The layers in attributes, and theirs; each once."""
        return list(_sublayers(self, set()))

    def clear_gradients(self):
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.clear_grad()


def _items(value):
    if isinstance(value, Layer):
        return vars(value).items()
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    return ()


def _tensors(value, prefix, visited):
    if id(value) in visited:
        return
    visited.add(id(value))
    for key, item in _items(value):
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(item, Tensor):
            yield name, item
        else:
            yield from _tensors(item, name, visited)


def _sublayers(value, visited):
    if id(value) in visited:
        return
    visited.add(id(value))
    for _, item in _items(value):
        if isinstance(item, Layer) and id(item) not in visited:
            yield item
        yield from _sublayers(item, visited)
