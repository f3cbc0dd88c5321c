"""The rules a fusion must keep; every violation is reported, each with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from idgraph.ir.exprs import Loaded, Mapped, TensorExpr

if TYPE_CHECKING:
    from idgraph.ir.fusion import Fusion


def _reads(e: TensorExpr) -> list[str]:
    found: list[str] = []
    own = {*e.output.root, *e.output.logical}
    for x in e.output.domain.exprs:
        own |= {*x.inputs, *x.outputs}
    for k, (t, row) in enumerate(zip(e.inputs, e.reads, strict=True)):
        if len(row) != t.ndim:
            found.append(f"{e.name} reads {len(row)} axes of {t.name}, which has {t.ndim}")
        for p, read in enumerate(row):
            match read:
                case Mapped(domain) if domain not in own:
                    found.append(f"{e.name} maps axis {p} of {t.name} to {domain.label}, no axis of {e.output.name}")
                case Loaded(operand) if not 0 <= operand < len(e.inputs) or operand == k:
                    found.append(f"{e.name} reads axis {p} of {t.name} at a value of operand {operand}")
                case _:
                    pass
    return found


def violations(fusion: Fusion) -> list[str]:
    """All violations of a fusion: operands made before their uses, outputs reachable, reads of the right rank."""
    found: list[str] = []
    made = {t.name for t in fusion.inputs}
    for e in fusion.exprs:
        line = f" ({e.source_line})" if e.source_line else ""
        found += [f"{e.name} reads {t.name} before it is made{line}" for t in e.inputs if t.name not in made]
        found += [f"{finding}{line}" for finding in _reads(e)]
        made |= {t.name for t in e.outputs}
    found += [f"output {t.name} is no tensor of the fusion" for t in fusion.outputs if t not in fusion]
    if fusion.exprs and not fusion.outputs:
        found.append(f"fusion {fusion.name} has no output: f.output(tensor)")
    return found
