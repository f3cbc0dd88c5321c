"""Vector widths that a schedule asks for, and those that the kernels of a GPU have: by operation, access and loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.errors import EmitError
from idgraph.index.loop_tree import IndexMaps
from idgraph.ir import Fusion, Tensor, item_size
from idgraph.ir.device import current_device
from idgraph.ir.loop_transforms import has_strict_width
from idgraph.kernel.ir import (
    Accumulate,
    Kernel,
    KernelModule,
    LaneWidth,
    Load,
    Store,
    VectorAdd,
    VectorLoad,
    VectorStore,
    walk,
)

Site = tuple[str, int | None]  # an operation by its output, and its operand; None: the result


def with_widths(fusion: Fusion, maps: IndexMaps, plan: KernelModule) -> KernelModule:
    """The plan with `Kernel.widths`."""
    asked = _asked_widths(fusion, maps)
    if not asked:
        return plan
    made = replace(plan, kernels=tuple([replace(k, widths=_widths_of_kernel(k, plan, asked)) for k in plan.kernels]))
    _check_strict(fusion, maps, made)
    return made


def _check_strict(fusion: Fusion, maps: IndexMaps, plan: KernelModule) -> None:
    """Raise `EmitError` for an access that is narrower than a strict loop asks for."""
    narrow = [w for k in plan.kernels for w in k.widths if w.is_narrow]
    if not narrow or not any(has_strict_width(t) for t in fusion.tensors):
        return
    for w in narrow:
        e = next(x for x in fusion.exprs if x.output.name == w.operation)
        at = next(p for p, x in enumerate(maps.loops(e)) if x.name == w.loop)
        strict, extent = _strict_loop(e.output, at), maps.loops(e)[at].extent
        if strict is not None:
            because = [f"{strict.name} asks for its vector width strictly"]
            if not extent.is_const:
                because.append(f"loop {w.loop} has {extent} steps: no vector is as long as a symbol")
            ways = [f"split by {w.got}"] if extent.is_const and w.got > 1 else []
            if not extent.is_const:
                ways = [f"split by {w.most}, with a symbol that is a multiple: f.symbol(name, multiple_of={w.most})"]
            more = f"`IdModel.access(e, t).explain_vector_width({w.loop!r})` says what would allow more"
            raise EmitError(
                f"the strict vector width is not given: {w}",
                where=next((s.line for s in reversed(strict.log) if s.kwargs.get("strict")), None),
                because=because,
                hint=", or ".join([*ways, f"leave strict out: {more}"]),
            )


def _strict_loop(t: Tensor, at: int) -> Tensor | None:
    """The tensor that asks for a strict width of the vector loop at ``at``, which ``t`` runs in."""
    if at < len(t.loop) and t.loop[at].parallel == "vectorize" and has_strict_width(t):
        return t
    if t.inline_position <= at:
        return None
    found = (_strict_loop(e.output, at) for e in t.uses)
    return next((s for s in found if s is not None), None)


def _asked_widths(fusion: Fusion, maps: IndexMaps) -> dict[Site, tuple[str, str, int, int]]:
    """For each access that moves along a vectorised loop: see `_asked_width`."""
    found: dict[Site, tuple[str, str, int, int]] = {}
    for e in fusion.exprs:
        lanes = [x for x in maps.loops(e) if x.parallel == "vectorize" and x.extent != 1]
        if not lanes:
            continue
        (loop,) = lanes[:1]
        name, steps = loop.symbol.name, int(loop.extent) if loop.extent.is_const else None
        write = maps.write(e)
        if name in write.tensor_address.names:
            found[e.output.name, None] = _asked_width(e.output, loop.name, steps)
        for k, t in enumerate(e.inputs):
            if name in maps.read(e, k).tensor_address.names:
                found[e.output.name, k] = _asked_width(t, loop.name, steps)
    return found


def _asked_width(t: Tensor, loop: str, steps: int | None) -> tuple[str, str, int, int]:
    """Tensor, loop, its steps (where a symbol says how many: the most of one access), the most of one access."""
    most = current_device().lanes(item_size(t.dtype))
    return t.name, loop, most if steps is None else steps, most if steps is None else min(steps, most)


def _widths_of_kernel(
    kernel: Kernel, plan: KernelModule, asked: dict[Site, tuple[str, str, int, int]]
) -> tuple[LaneWidth, ...]:
    widest: dict[Site, int] = {}
    for s in walk(kernel.body):
        if not isinstance(s, Load | Store | VectorLoad | VectorStore | VectorAdd | Accumulate):
            continue
        for p in s.serves:
            site = plan.titles.get(p.tensor, p.tensor), p.operand
            widest[site] = max(widest.get(site, 1), _elements_moved(s))
    rows = [(site, asked[site], got) for site, got in widest.items() if site in asked]
    return tuple(LaneWidth(site[0], tensor, loop, steps, got, most) for site, (tensor, loop, steps, most), got in rows)


def _elements_moved(s: object) -> int:
    """Elements that a statement moves at once."""
    moved: Sequence[object]
    match s:
        case VectorLoad():
            moved = s.locals
        case VectorStore() | VectorAdd():
            moved = s.values
        case _:
            return 1
    return len(moved) * (2 if not isinstance(s, VectorAdd) and s.pairs else 1)
