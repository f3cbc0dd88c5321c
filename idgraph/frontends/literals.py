"""Numbers that torch lifts out of a program as tensors."""

from __future__ import annotations

from typing import Any


def as_number(torch: Any, graph: Any, name: str, value: Any) -> bool:
    """Whether a constant has no axes (`torch.tensor(3)` in a program); it is then made a number of the graph."""
    if getattr(value, "ndim", None) != 0 or value.dtype.is_complex or value.is_quantized:
        return False
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    (old,) = (n for n in placeholders if n.name == name)
    with graph.inserting_after(placeholders[-1]):
        new = graph.call_function(torch.ops.aten.full.default, ([], value.item()), {"dtype": value.dtype})
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)
    graph.erase_node(old)
    return True
