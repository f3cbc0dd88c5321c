"""Whether the loop nests that inlining asks for can be put in an order: producers finished before their readers."""

from __future__ import annotations

from idgraph.errors import ScheduleError
from idgraph.ir import Fusion, Tensor, TensorExpr


def order_nests(fusion: Fusion) -> None:
    """Raise `ScheduleError` where operations that share a loop depend on one outside of it that depends on them."""
    depth = max((t.inline_position for t in fusion.tensors), default=0)
    for level in range(depth + 1):
        _order_level(fusion, level)


def _order_level(fusion: Fusion, level: int) -> None:
    """Contract tensors sharing the first ``level + 1`` loops; the rest must be acyclic between the groups."""
    parent = {e: e for e in fusion.exprs}

    def find(e: TensorExpr) -> TensorExpr:
        while parent[e] is not e:
            parent[e] = parent[parent[e]]
            e = parent[e]
        return e

    for t in fusion.tensors:
        if t.inline_position > level and t.definition is not None:
            for use in t.uses:
                parent[find(use)] = find(t.definition)
    after: dict[TensorExpr, set[TensorExpr]] = {}
    for e in fusion.exprs:
        for t in e.inputs:
            if t.definition is None:
                continue
            if find(t.definition) is find(e):
                if t.inline_position <= level:
                    raise _inside(t, e, level)
            else:
                after.setdefault(find(t.definition), set()).add(find(e))
    state: dict[TensorExpr, int] = {}
    for root in list(after):
        stack = [(root, iter(sorted(after.get(root, ()), key=lambda e: e.name)))]
        if state.get(root):
            continue
        state[root] = 1
        while stack:
            node, rest = stack[-1]
            to = next(rest, None)
            if to is None:
                state[node] = 2
                stack.pop()
            elif state.get(to) == 1:
                raise ScheduleError(
                    f"the loop nest of {to.output.name} would have to stand both before and after that of "
                    f"{node.output.name}",
                    where=to.source_line,
                    because=[f"{node!r} stands between operations that share loop {level} with {to!r}"],
                    hint="inline the tensors on both sides of it at the same position, or not at all",
                )
            elif not state.get(to):
                state[to] = 1
                stack.append((to, iter(sorted(after.get(to, ()), key=lambda e: e.name))))


def _inside(t: Tensor, e: TensorExpr, level: int) -> ScheduleError:
    where = f" at {e.source_line}" if e.source_line else ""
    return ScheduleError(
        f"{t.name} is not finished where {e.output.name} reads it: both stand inside one loop {level}, but {t.name} is "
        f"inlined at {t.inline_position} only",
        where=t.source_line,
        because=[f"{e!r}{where}", f"other tensors inlined past loop {level} tie the two into one nest"],
        hint=f"inline {t.name} at {level + 1} too, or the tensors read by both at most at {t.inline_position}, "
        "or recompute one for each use",
    )
