"""The type of a distributed tensor: a mesh and a layout on it."""

from functools import lru_cache


class Spec:
    """Where the pieces of one global array are: a `ProcessMesh` and a `Layout`.

    Equal specs are one object where `spec_of` made them, so `is` usually
    decides; `==` always does.  A tensor made inside a boundary region has a
    Spec of its own, which names the region.
    """

    __slots__ = ("mesh", "layout", "placements", "shape", "local_shape", "region", "routes", "_hash", "__weakref__")

    def __init__(self, mesh, layout):
        self.mesh = mesh
        self.layout = layout
        self.placements = layout.placements
        self.shape = layout.shape
        self.local_shape = None if mesh.coordinate is None else layout.local_shape(mesh.coordinate)
        self.region = None  # the boundary region in which the tensor was made
        self.routes = {}  # what `reshard` has worked out from here
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


@lru_cache(maxsize=4096)
def spec_of(mesh, layout):
    """The one Spec of a mesh and a layout."""
    return Spec(mesh, layout)
