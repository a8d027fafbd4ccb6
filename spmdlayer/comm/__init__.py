"""Communication: the only place that touches MPI for data."""

from .channel import Channel, channel

__all__ = ["Channel", "channel"]
