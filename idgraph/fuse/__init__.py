"""Fusion: why operations do not share a kernel, what would align them, and which are put together.

touch (accesses as index maps) -> digits -> causes -> align (tried on a copy) -> explain
"""

from idgraph.fuse.causes import CAUSES, Cause
from idgraph.fuse.explanations import explain, obstacles
from idgraph.fuse.fusion_plan import FusionPlan, plan
from idgraph.fuse.gather_ways import GatherStrategy, GatherWays, gathers
from idgraph.fuse.obstacle import Obstacle, Obstacles
from idgraph.fuse.steps import Alignment, AlignmentStep
from idgraph.fuse.touch import AccessRelation

__all__ = [
    "CAUSES",
    "Alignment",
    "Cause",
    "GatherWays",
    "Obstacle",
    "Obstacles",
    "FusionPlan",
    "AlignmentStep",
    "AccessRelation",
    "GatherStrategy",
    "explain",
    "gathers",
    "obstacles",
    "plan",
]
