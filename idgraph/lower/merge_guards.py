"""Neighbouring statements under one condition merged; loads whose value a variable already holds dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.kernel.defuse import defs, names
from idgraph.kernel.ir import Accumulate, Barrier, Comment, If, InitAccumulator, Load, Stmt, Store, bodies, walk

Body = tuple[Stmt, ...]


def merge_adjacent_ifs(body: Sequence[Stmt]) -> Body:
    """Neighbouring statements under one condition share it; variables that only they use need no first value."""
    out: list[Stmt] = []
    between: list[InitAccumulator | Comment] = []
    for s in body:
        last = out[-1] if out else None
        if isinstance(s, (InitAccumulator, Comment)):
            between.append(s)
        elif isinstance(s, If) and isinstance(last, If) and s.condition == last.condition:
            out[-1:] = [d for d in between if isinstance(d, InitAccumulator)]
            out.append(If(s.condition, (*last.body, *(n for n in between if isinstance(n, Comment)), *s.body)))
            between = []
        else:
            out += [*between, s]
            between = []
    out += between
    kept = [s for s in out if not (isinstance(s, InitAccumulator) and _within_one(s.name, out))]
    return _loaded_once(tuple(If(s.condition, _loaded_once(s.body)) if isinstance(s, If) else s for s in kept))


def _loaded_once(body: Body) -> Body:
    """``body`` without loads of a value that the variable already holds."""
    held: dict[str, Load] = {}
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Load):
            known = held.get(s.local.name)
            if known is not None and known == s:
                also = replace(known, serves=(*known.serves, *s.serves))
                out[next(n for n, x in enumerate(out) if x is known)] = held[s.local.name] = also
                continue
            held[s.local.name] = s
        elif bodies(s) or isinstance(s, Barrier):
            held = {}
        else:
            for x in defs(s):
                held.pop(x.name, None)
            if isinstance(s, (Store, Accumulate)):
                held = {n: x for n, x in held.items() if x.buffer != s.buffer}
        out.append(s)
    return tuple(out)


def _within_one(name: str, body: Sequence[Stmt]) -> bool:
    """True when the variable is set, before it is read, inside a single condition; an accumulation counts as a read."""
    users = [s for s in body if not isinstance(s, InitAccumulator) and any(name in names(x) for x in walk((s,)))]
    if len(users) != 1 or not isinstance(users[0], If):
        return False
    first = next(x for x in walk(users[0].body) if name in names(x))
    return name in {x.name for x in defs(first)}
