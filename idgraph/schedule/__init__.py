"""Schedules for whole fusions: like a reference, resizes moved upstream, inlining, private copies, automatic."""

from idgraph.schedule.auto import auto
from idgraph.schedule.inline import inline_most, order_nests, recompute
from idgraph.schedule.replay import like, resize_to_inputs

__all__ = ["auto", "inline_most", "like", "order_nests", "recompute", "resize_to_inputs"]
