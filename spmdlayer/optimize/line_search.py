"""A step length that meets the strong Wolfe conditions.

J. Nocedal, S. J. Wright, "Numerical Optimization", 2nd edition, algorithms 3.5
and 3.6, with cubic interpolation.  Where the function no longer changes but by
rounding, its slope decides (W. W. Hager, H. Zhang, 2005).  All ranks compute
the same numbers, so they take the same step.
"""

import math

from .point import moved

_DECREASE, _CURVATURE = 1e-4, 0.9
_TRIALS = 25
_ROUNDING = 1e-14  # of the value: differences below are none


def wolfe_step(objective, x, value, gradient, direction, first=1.0):
    """(step, value, gradient at the new point, the new point), or None where no step was found."""
    space = objective.space
    slope = space.dot(gradient, direction)

    def at(step):
        point = moved(x, step, direction)
        new_value, new_gradient = objective.value_and_gradient(point)
        return step, new_value, space.dot(new_gradient, direction), new_gradient, point

    before = (0.0, value, slope, gradient, x)
    step = first
    for trial in range(_TRIALS):
        here = at(step)
        if not math.isfinite(here[1]) or not math.isfinite(here[2]):
            step = (before[0] + step) / 2  # beyond where the function is defined
            continue
        if not _decreases(here, value, slope) or (trial and here[1] > before[1] + _ROUNDING * abs(value)):
            return _zoom(at, before, here, value, slope)
        if abs(here[2]) <= -_CURVATURE * slope:
            return _found(here)
        if here[2] >= 0:
            return _zoom(at, here, before, value, slope)
        before, step = here, 2 * step
    return None


def _decreases(here, value, slope):
    """Whether a step decreases the function enough; as far as rounding shows it, by its slope."""
    if here[1] <= value + _DECREASE * here[0] * slope:
        return True
    return here[1] <= value + _ROUNDING * abs(value) and here[2] <= (2 * _DECREASE - 1) * slope


def _found(here):
    return here[0], here[1], here[3], here[4]


def _zoom(at, low, high, value, slope):
    """A step between one that decreases enough and another."""
    for _ in range(_TRIALS):
        here = at(_between(low, high))
        if not _decreases(here, value, slope) or here[1] > low[1] + _ROUNDING * abs(value):
            high = here
        else:
            if abs(here[2]) <= -_CURVATURE * slope:
                return _found(here)
            if here[2] * (high[0] - low[0]) >= 0:
                high = low
            low = here
        if abs(high[0] - low[0]) <= 1e-12 * max(abs(high[0]), abs(low[0])):
            break
    # Rounding ends the search: what has decreased enough will do.
    return _found(low) if low[0] > 0 and low[1] <= value else None


def _between(low, high):
    """The minimum of the cubic through both ends, kept away from them; else the middle."""
    (a, fa, da), (b, fb, db) = low[:3], high[:3]
    middle, margin = (a + b) / 2, 0.1 * abs(b - a)
    if not all(map(math.isfinite, (fb, db))):
        return middle
    d1 = da + db - 3 * (fa - fb) / (a - b)
    square = d1 * d1 - da * db
    if square < 0:
        return middle
    d2 = math.copysign(math.sqrt(square), b - a)
    below = db - da + 2 * d2
    if below == 0:
        return middle
    step = b - (b - a) * (db + d2 - d1) / below
    return step if min(a, b) + margin <= step <= max(a, b) - margin else middle
