"""dead_code: straight code without the values that nobody reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.kernel.defuse import all_reads, made_by, reads
from idgraph.kernel.ir import Accumulate, Checked, If, Let, Stmt, bodies


def without_dead(body: Sequence[Stmt], needed: set[str]) -> list[Stmt]:
    """``body`` without locals that nobody reads; ``needed``: names read after it, becomes those read from it on.

    >>> from idgraph.kernel.ir import Compute, Local
    >>> x, y, z = (Local(n, "float32") for n in "xyz")
    >>> body = [Compute(y, "neg", (x,), "float32"), Compute(z, "exp", (x,), "float32")]
    >>> [s.op for s in without_dead(body, {"z"})]
    ['exp']
    """
    kept: list[Stmt] = []
    for s in reversed(body):
        if isinstance(s, (If, Checked)):
            before = set(needed)
            inner = without_dead(s.body, before)
            needed |= before
            if inner or isinstance(s, Checked):
                kept.append(replace(s, body=tuple(inner)))
            continue
        made = {x.name for x in made_by(s)}
        if made and not isinstance(s, (Let, Accumulate)):
            if not needed.intersection(made):
                continue
            needed.difference_update(made)
        needed.update(all_reads((s,)) if bodies(s) else reads(s))
        kept.append(s)
    return kept[::-1]
