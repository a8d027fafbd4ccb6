"""How much work a function does, in calls of Python functions: the same on every machine, busy or not."""

import sys


def calls_of(function):
    """The result of a function, and how many Python functions it has called."""
    count = 0

    def watch(frame, event, argument):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        result = function()
    finally:
        sys.setprofile(before)
    return result, count
