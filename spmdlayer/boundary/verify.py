"""Trust, but verify: what is declared Replicate is compared now and then.

Declaring Replicate where ranks differ is the commonest silent error at such a
boundary.  At calls 1, 2, 4, 8, ... of a layer on a mesh, and while all its
values so far were zero, outputs and gradients declared Replicate are compared
between the ranks: first a fingerprint, and only where these differ the values.
Debug mode compares at every call.
"""

from ..array import array_module
from ..comm import channel
from ..config import settings
from ..dtypes import is_inexact
from ..errors import value_error
from ..redistribute.agree import same_values, spread
from .record import is_nonzero


class Site:
    """The counters of one layer (or local_map function) on one mesh, with one set of attrs."""

    __slots__ = ("label", "calls", "backwards", "outputs_zero", "gradients_zero")

    def __init__(self, label):
        self.label = label
        self.calls = 0
        self.backwards = 0
        self.outputs_zero = True
        self.gradients_zero = True

    def begin_call(self):
        """Whether this call's outputs are to be compared; the same on every rank."""
        self.calls += 1
        return _due(self.calls, self.outputs_zero)

    def begin_backward(self):
        """A Check when this backward pass is to compare gradients, else None."""
        self.backwards += 1
        return Check(self) if _due(self.backwards, self.gradients_zero) else None


def _due(count, zero_so_far):
    if settings.debug:
        return True
    return settings.verify and (zero_so_far or count & (count - 1) == 0)


class Check:
    """One compared backward pass: how large the cotangents were that entered."""

    __slots__ = ("site", "entered")

    def __init__(self, site):
        self.site = site
        self.entered = 0.0

    def entering(self, array):
        """Remember the magnitude of a cotangent that enters the region."""
        if array.size and is_inexact(array.dtype):
            np = array_module(array)
            magnitude = np.abs(array).astype("float64")
            self.entered = max(self.entered, float(np.max(np.where(np.isfinite(magnitude), magnitude, 0))))


def check_gradient(check, array, mesh, axes, name, dim_names):
    """Raise, on every rank, unless a gradient declared Replicate is equal along the axes.

    One small record an axis; values are compared only where fingerprints
    differ.
    """
    for axis in axes:
        line = channel(mesh, axis)
        if line.size == 1:
            continue
        entered = max(float(x) for x in _gathered(line, check.entered))
        nonzero = line.record(bytes([is_nonzero(array)]))
        if any(data[0] for data in nonzero):
            check.site.gradients_zero = False
        if _anywhere(mesh, not same_values(array, line, entered)):
            difference, _ = spread(array, line)
            raise value_error(
                f"{check.site.label}: {name} declares Replicate() along mesh axis {axis_name(dim_names, axis)}, but the "
                f"gradients of the ranks differ there (by up to {difference:.6g}); Partial('sum') adds them up"
            )


def _anywhere(mesh, found):
    """Whether any rank of the mesh found it, so that all raise together."""
    if mesh.ndim == 1:
        return found  # the ranks of the axis, which agree already, are the whole mesh
    return any(data[0] for data in channel(mesh, None).record(bytes([found])))


def _gathered(line, value):
    return [bytes(data).decode() for data in line.record(repr(value).encode())]


def axis_name(dim_names, axis):
    """How messages name a mesh axis."""
    return repr(dim_names[axis]) if dim_names else str(axis)


def check_outputs(site, tables, outputs, layouts, mesh, name):
    """Raise, on every rank, where an output declared Replicate differs between ranks.

    `tables` holds every rank's rows; only where fingerprints differ are the
    values compared.
    """
    if any(row.nonzero for rows in tables for row in rows):
        site.outputs_zero = False
    for index, layout in enumerate(layouts):
        for axis, placement in enumerate(layout.placements if layout is not None else ()):
            if placement.kind != "replicate" or mesh.shape[axis] == 1:
                continue
            if not _fingerprints_differ(tables, index, mesh.shape, axis):
                continue
            array, line = outputs[index]._data, channel(mesh, axis)
            if _anywhere(mesh, not same_values(array, line)):
                difference, _ = spread(array, line)
                declared = name if name == "placements" else f"{name}[{index}]"
                raise value_error(
                    f"{site.label}: {declared} declares Replicate() along mesh axis "
                    f"{axis_name(mesh.dim_names, axis)}, but the ranks' values differ there (by up to {difference:.6g}); "
                    "if the values are parts of a sum, Partial('sum') fits, if they are slices, Shard(d)"
                )


def _fingerprints_differ(tables, index, shape, axis):
    stride = 1
    for size in shape[axis + 1 :]:
        stride *= size
    for rank, rows in enumerate(tables):
        coordinate = rank // stride % shape[axis]
        first = rank - coordinate * stride
        if tables[first][index].fingerprint != rows[index].fingerprint:
            return True
    return False
