"""Schedules for whole fusions: like a reference, resizes moved upstream, inlining, private copies, automatic."""

from idgraph.ir.advice import advise_with
from idgraph.ir.decisions import Decision, Option, Saving
from idgraph.rewrite.gathers import apply_gather_plan, gather_plan
from idgraph.rewrite.one_hot import fold_one_hots
from idgraph.schedule.advice import ways_out
from idgraph.schedule.automatic import auto
from idgraph.schedule.cause import bisect_illegal_step
from idgraph.schedule.config import KernelConfig
from idgraph.schedule.inline import inline_most, recompute
from idgraph.schedule.replay import like
from idgraph.schedule.resize import resize_to_inputs
from idgraph.schedule.scatter import apply_scatter_plan, scatter_plan

__all__ = [
    "Decision", "KernelConfig", "Option", "Saving", "apply_gather_plan", "apply_scatter_plan", "auto", "fold_one_hots",
    "gather_plan", "inline_most", "like", "recompute", "resize_to_inputs", "scatter_plan",
]  # fmt: skip

advise_with(lambda fusion, error: bisect_illegal_step(fusion, error, ways_out(fusion, error)))
