"""Axes over devices: who owns which element, which steps are local, and what must move where they are not.

ownership -> reads -> moves -> locality -> propagation -> regions -> steps -> program; transfers, execution, processes

A tensor's placement (`Tensor.shard`, `Tensor.partial`) splits its axes over a mesh; everything here is decided from the
maps of those splits and of the operations, not from a table of operations.
"""

from idgraph.errors import suggesting
from idgraph.shard.locality import Locality
from idgraph.shard.moves import ForeignRead, Move
from idgraph.shard.ownership import Home, LocalTensor, Ownership, local, owner
from idgraph.shard.program import DeviceProgram
from idgraph.shard.program import emit_devices as emit
from idgraph.shard.propagation import Placements, TensorPlacement, explain, propagate
from idgraph.shard.steps import DeviceSteps, Exchange, Kernels

__all__ = [
    "DeviceProgram", "DeviceSteps", "Exchange", "ForeignRead", "Home", "Kernels", "LocalTensor", "Locality", "Move",
    "Ownership", "Placements", "TensorPlacement", "emit", "explain", "local", "owner", "propagate",
]  # fmt: skip

__getattr__ = suggesting(__name__)
