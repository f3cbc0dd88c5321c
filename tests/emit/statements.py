"""The statements of a kernel as one thread runs them."""

from __future__ import annotations

from collections.abc import Iterator

from idgraph.kernel.ir import Stmt, bodies
from idgraph.passes.lane_loop_fusion import is_lanes


def repeated(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, outer ones first; those of a loop over lanes once for each lane."""
    for s in body:
        yield s
        for _ in range(int(s.extent) if is_lanes(s) else 1):
            yield from repeated(bodies(s))
