"""Calls of compiled graphs as CUDA graphs: queued once, then replayed as a whole, for models of many small kernels.

torch's own trees of CUDA graphs do it, as for Inductor: they warm a call up, capture it, give all graphs of a process
one pool of memory, and run what cannot be captured as before. A replay runs no Python of a call; failed checks of
loaded indices, which kernels write to the host's memory, are looked at before each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from idgraph.frontends.torch_arrays import load_torch
from idgraph.loading import load

Call = Callable[[list[Any]], Any]


class CudaGraphs:
    """The graphs of one module of the user's, which takes ``count`` arguments: forward, then backward."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._device: int | None = None  # of the forward graph, where that is captured

    def wrap(self, work: Call, part: str, graph: Any, examples: Sequence[Any], poll: Callable[[], None]) -> Call | str:
        """``work`` as a CUDA graph for each set of its integers; or why it is none. ``poll`` raises what replays failed
        at.

        A backward graph that cannot be captured runs as it is, and says so to torch, whose memory it frees.
        """
        torch: Any = load_torch("whose CUDA graphs are asked for")
        backend: Any = load("torch._dynamo.backends.cudagraphs")
        trees: Any = load("torch._inductor.cudagraph_trees")
        backward = part == "backward"
        fixed = self._fixed(torch, graph, len(examples), backward)
        skipped = backend.check_for_skip(graph, len(fixed))
        if skipped:
            device, self._device = self._device, None
            if not backward or device is None:
                return str(skipped)
            manager = trees.get_manager(device, create_if_none_exists=False)

            def plain(args: list[Any]) -> Any:
                manager.set_to_running_backward()
                return work(args)

            return plain if manager is not None else str(skipped)
        if backward and self._device is None:
            return "the forward graph is none"
        self._device = backend.get_device_index(graph)
        replayed = trees.cudagraphify_impl(
            work, list(examples), fixed, device_index=self._device, is_backward=backward,
            is_inference=part == "inference", stack_traces=backend.get_stack_traces(graph),
            placeholders=backend.get_placeholder_info(graph.graph),
            mutated_input_idxs=backend.find_input_mutations(graph.graph),
        )  # fmt: skip

        def call(args: list[Any]) -> Any:
            poll()
            return replayed(args)

        return call

    def _fixed(self, torch: Any, graph: Any, count: int, backward: bool) -> Sequence[int]:
        """The arguments that have the same address in every call: parameters, and what forward graphs leave."""
        utils: Any = load("torch._inductor.utils")
        if backward:
            return range(utils.count_tangents(graph))
        context = torch._guards.TracingContext.try_get()
        facts = None if context is None else context.fw_metadata
        if facts is not None and facts.static_input_indices:
            return tuple(facts.static_input_indices)
        return range(max(0, utils.num_fw_fixed_arguments(self._count, count)))
