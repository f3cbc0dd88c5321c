"""Fusion: why operations do not share a kernel, what would align them, and which are put together.

touch (accesses as index maps) -> digits -> causes -> align (tried on a copy) -> explain
"""

from idgraph.errors import suggesting
from idgraph.fuse.access_relation import AccessRelation
from idgraph.fuse.common_loops import Alignment, AlignmentStep
from idgraph.fuse.explain import explain, obstacles
from idgraph.fuse.mismatch import CAUSES, Cause
from idgraph.fuse.obstacle import Obstacle, Obstacles
from idgraph.fuse.plan import FusionPlan, GatherStrategy, GatherWays, gathers, plan

__all__ = [
    "CAUSES", "Alignment", "Cause", "GatherWays", "Obstacle", "Obstacles", "FusionPlan", "AlignmentStep",
    "AccessRelation", "GatherStrategy", "explain", "gathers", "obstacles", "plan",
]  # fmt: skip

__getattr__ = suggesting(__name__)
