"""Halo exchange and stencils on sharded grids."""

from .neighbours import halo_exchange
from .stencils import stencil
