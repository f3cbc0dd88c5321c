"""Writes that no graph without writes stands for, found in the function that torch.compile captured.

torch's functionalization refuses some of them; others it takes, and leaves other values than eager mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from idgraph.frontends.torch_arrays import load_torch
from idgraph.frontends.torch_export import OVERLAPPING_VIEWS, refuse_overlap

_VIEWS = frozenset(name.split(".")[1] for name in OVERLAPPING_VIEWS)


def refuse_written_views(module: Any, examples: Sequence[Any]) -> None:
    """Raise `FrontendError` where a captured function writes through a view of which several elements are one in
    memory, or to windows that leave elements out. ``examples`` are its arguments, which stay as they are.

    Only functions with such a view are traced for it; what cannot be traced is torch's to refuse.
    """
    if not any(_name(n.target) in _VIEWS for g in _graphs(module) for n in g.nodes):
        return
    torch: Any = load_torch("whose views are asked about")
    interpreter: Any = torch.fx.Interpreter(module)
    interpreter.extra_traceback = False
    seen = [n.meta.get("example_value", x) for n, x in zip(_arguments(module), examples, strict=False)]
    mode = torch._guards.detect_fake_mode(seen) or torch._subclasses.FakeTensorMode()
    try:
        with torch.no_grad(), mode, torch.fx.traceback.preserve_node_meta():
            given = [_stand_in(torch, x) for x in seen]
            traced = torch.fx.experimental.proxy_tensor.make_fx(interpreter.run)(*given)
    except Exception:  # torch raises many kinds, and again when it compiles
        return
    refuse_overlap("it", traced)


def _arguments(module: Any) -> list[Any]:
    return [n for n in module.graph.nodes if n.op == "placeholder"]


def _stand_in(torch: Any, x: Any) -> Any:
    """An argument without values, which may be written."""
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)


def _graphs(module: Any) -> list[Any]:
    """The graph of a captured function, and those of its branches and loops."""
    return [m.graph for m in module.modules() if hasattr(m, "graph")]


def _name(target: object) -> str:
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return str(name).split(".", maxsplit=1)[0].rstrip("_")
