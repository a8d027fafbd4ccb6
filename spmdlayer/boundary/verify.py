"""Trust, but verify: what is declared Replicate is compared now and then.

Declaring Replicate where ranks differ is the commonest silent error at such a
boundary.  At calls 1, 2, 4, 8, ... of a layer on a mesh, and while all its
values so far were zero, outputs and gradients declared Replicate are compared
between the ranks: first a fingerprint, and only where these differ the values.
Debug mode compares at every call.
"""

import struct
import warnings
from weakref import WeakKeyDictionary

from ..array import array_module
from ..comm import channel
from ..config import settings
from ..dtypes import is_inexact
from ..errors import value_error
from ..redistribute.agree import fingerprint, same_values, spread
from .record import is_nonzero

_GRADIENT = struct.Struct("<d?Q")  # the largest cotangent that entered, whether the gradient is nonzero, fingerprint


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


class Sites:
    """The `Site` of each mesh (and attrs), for as long as the mesh lives."""

    __slots__ = ("_label", "_of_mesh")

    def __init__(self, label):
        self._label = label
        self._of_mesh = WeakKeyDictionary()

    def of(self, mesh, attrs=None):
        """The Site for a mesh, and for attrs where these are not always the same."""
        sites = self._of_mesh.get(mesh)
        if sites is None:
            sites = self._of_mesh[mesh] = {}
        found = sites.get(attrs)
        if found is None:
            found = sites[attrs] = Site(self._label)
        return found


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


def check_gradient(check, array, mesh, axes, name):
    """Raise, on every rank, unless a gradient declared Replicate is equal along the axes.

    One small record along the mesh; values are compared only where
    fingerprints differ.
    """
    line = channel(mesh, None)
    mine = _GRADIENT.pack(check.entered, is_nonzero(array), fingerprint(array))
    entered, nonzero, fingerprints = zip(*(_GRADIENT.unpack(data) for data in line.record(mine)))
    if any(nonzero):
        check.site.gradients_zero = False
    for axis in axes:
        difference = _difference(array, mesh, axis, fingerprints, max(entered))
        if difference is not None:
            raise value_error(
                f"{check.site.label}: {name} declares Replicate() along mesh axis {axis_name(mesh, axis)}, but the "
                f"gradients of the ranks differ there (by up to {difference:.6g}); Partial('sum') adds them up"
            )


def warn_of_copies(check, array, mesh, axes, name):
    """In debug mode: warn where gradients that are to be summed are the same on every rank.

    That is what a body leaves that has summed them itself.  One small record.
    """
    line = channel(mesh, None)
    rows = [_GRADIENT.unpack(data) for data in line.record(_GRADIENT.pack(0.0, is_nonzero(array), fingerprint(array)))]
    if rows[0][1] and all(row == rows[0] for row in rows):
        where = ", ".join(axis_name(mesh, axis) for axis in axes)
        warnings.warn(
            f"{check.site.label}: {name} declares Partial('sum') along mesh axis {where}, and the gradients of all "
            "ranks there are equal bit for bit: their sum counts them once a rank.  If each is the whole gradient "
            "already (the code has summed it), Replicate() fits",
            stacklevel=2,
        )


def check_outputs(site, tables, outputs, placed, mesh, name):
    """Raise, on every rank, where an output declared Replicate differs between ranks.

    `tables` holds every rank's rows, `placed` each output's Spec or Layout
    (None: it stays local); only where fingerprints differ are the values
    compared.
    """
    if any(row.nonzero for rows in tables for row in rows):
        site.outputs_zero = False
    for index, where in enumerate(placed):
        for axis, placement in enumerate(where.placements if where is not None else ()):
            if placement.kind != "replicate":
                continue
            fingerprints = [rows[index].fingerprint for rows in tables]
            difference = _difference(outputs[index]._data, mesh, axis, fingerprints)
            if difference is not None:
                declared = name if name == "placements" else f"{name}[{index}]"
                raise value_error(
                    f"{site.label}: {declared} declares Replicate() along mesh axis {axis_name(mesh, axis)}, but the "
                    f"ranks' values differ there (by up to {difference:.6g}); if the values are parts of a sum, "
                    "Partial('sum') fits, if they are slices, Shard(d)"
                )


def _difference(array, mesh, axis, fingerprints, entered=0.0):
    """By how much this rank's values differ from others' along an axis, if any rank's do; else None.

    The fingerprints of all ranks of the mesh are known, so all of them decide
    the same way whether to compare values, which is collective.
    """
    if not _differ(fingerprints, mesh.shape, axis):
        return None
    line = channel(mesh, axis)
    differs = not same_values(array, line, entered)
    if mesh.ndim > 1:
        # The ranks of the axis agree already; the others must raise together with them.
        differs = any(data[0] for data in channel(mesh, None).record(bytes([differs])))
    return spread(array, line)[0] if differs else None


def _differ(fingerprints, shape, axis):
    stride = 1
    for size in shape[axis + 1 :]:
        stride *= size
    for rank, found in enumerate(fingerprints):
        coordinate = rank // stride % shape[axis]
        if found != fingerprints[rank - coordinate * stride]:
            return True
    return False


def axis_name(mesh, axis):
    """How messages name a mesh axis."""
    return repr(mesh.dim_names[axis]) if mesh.dim_names else str(axis)
