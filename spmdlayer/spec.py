"""The type of a distributed tensor: a mesh and a layout on it."""

from functools import lru_cache

from .layout import Layout


class Spec:
    """Where the pieces of one global array are: a `ProcessMesh` and a `Layout`.

    Equal specs are one object where `spec()` made them, so `is` usually
    decides; `==` always does.
    """

    __slots__ = ("mesh", "layout", "placements", "shape", "local_shape", "_hash", "__weakref__")

    def __init__(self, mesh, layout):
        self.mesh = mesh
        self.layout = layout
        self.placements = layout.placements
        self.shape = layout.shape
        self.local_shape = None if mesh.coordinate is None else layout.local_shape(mesh.coordinate)
        self._hash = hash((mesh, layout))

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, Spec):
            return NotImplemented
        return self._hash == other._hash and self.mesh == other.mesh and self.layout == other.layout

    def __hash__(self):
        return self._hash

    def __repr__(self):
        return f"Spec(mesh={self.mesh!r}, placements={list(self.placements)}, shape={self.shape})"

    def with_placements(self, placements):
        """The same mesh and global shape under other placements."""
        return spec_of(self.mesh, self.layout.with_placements(tuple(placements)))


@lru_cache(maxsize=4096)
def spec_of(mesh, layout):
    """The one Spec of a mesh and a layout."""
    return Spec(mesh, layout)


@lru_cache(maxsize=4096)
def spec(mesh, placements, shape):
    """The Spec of array_split pieces (or blocks) of a global shape."""
    return spec_of(mesh, Layout(mesh.shape, placements, shape))
