"""Schedules for whole fusions: like a reference, resizes moved upstream, inlining, private copies, automatic."""

from idgraph.errors import suggesting
from idgraph.ir.hooks import advise_with
from idgraph.ir.schedule_log import Decision, Option, Saving
from idgraph.rewrite.gather_strategy import apply_gather_plan, gather_plan
from idgraph.rewrite.one_hot_to_gather import fold_one_hots
from idgraph.schedule.auto import auto
from idgraph.schedule.config import KernelConfig
from idgraph.schedule.inline_advice import bisect_illegal_step, ways_out
from idgraph.schedule.inlining import inline_most, recompute
from idgraph.schedule.legality import InlineStop
from idgraph.schedule.resize_scheduling import resize_to_inputs
from idgraph.schedule.scatter_scheduling import apply_scatter_plan, scatter_plan
from idgraph.schedule.transform_replay import like

__all__ = [
    "Decision", "InlineStop", "KernelConfig", "Option", "Saving", "apply_gather_plan", "apply_scatter_plan", "auto",
    "fold_one_hots", "gather_plan", "inline_most", "like", "recompute", "resize_to_inputs", "scatter_plan",
]  # fmt: skip

advise_with(lambda fusion, error: bisect_illegal_step(fusion, error, ways_out(fusion, error)))

__getattr__ = suggesting(__name__)
