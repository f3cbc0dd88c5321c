"""Loaded values in a write of the neutral form: what it reads for them, and masks of them.

A store where a loaded value says so (`tl.store(mask=...)`) keeps, elsewhere, what is there: it is a write of one or the
other. So elements and numbers are judged as those of any write; only whether masks keep iterations apart, or away from
other memory, is not known then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from idgraph.arith import TRUE, Expr, and_, simplify, symbol
from idgraph.check.program import IndirectIndex, LoadedValue, Read, Write
from idgraph.check.statement_values import parse_value


def formula_names(w: Write) -> frozenset[str]:
    """The names in the addresses and conditions of a write."""
    return frozenset[str]().union(w.index.names, w.when.names, *(x.names for r in w.reads for x in (r.index, r.when)))


def unmasked(w: Write, loads: Mapping[str, LoadedValue], scope: Mapping[str, Expr]) -> Write:
    """A write that says what it stores, and is masked by loaded values, as one of the value that is there already
    where the mask does not hold.
    """
    mask = and_(*(c for c in w.when.conjuncts if c.names & loads.keys()))
    names = sorted(mask.names & loads.keys())
    plain = all(not x.text and not x.index.names & loads.keys() for x in (loads[n] for n in names))
    if w.value is None or not names or w.mode == "add" or not plain:
        return w
    count = len(w.reads)
    reads = (*w.reads, Read(w.buffer, w.index), *(Read(loads[n].buffer, loads[n].index) for n in names))
    shown = mask.substitute({n: symbol(f"r{count + 1 + k}") for k, n in enumerate(names)})
    known = frozenset(scope) | {f"r{k}" for k in range(len(reads))}
    value = parse_value(f"where({shown}, {w.value.text}, r{count})", known, "a mask")
    rest = and_(*(c for c in w.when.conjuncts if not c.names & loads.keys()))
    return replace(w, reads=reads, when=rest, value=value)


def with_loads(w: Write, loads: Mapping[str, LoadedValue], places: Mapping[str, IndirectIndex]) -> Write:
    """A write reads the loaded values that its formulas use, whether its reads say so or not."""
    found = {(r.buffer, simplify(r.index)) for r in w.reads}
    more: list[Read] = []
    uses = [(w.index, TRUE), (w.when, TRUE), *((r.when, TRUE) for r in w.reads), *((r.index, r.when) for r in w.reads)]
    seen: set[str] = set()
    while uses:
        e, when = uses.pop(0)
        for name in sorted(e.names - seen):
            seen.add(name)
            if name in places:
                uses.append((places[name].value, when))
            x = loads.get(name)
            if x is None or x.text:
                continue
            uses.append((x.index, when))
            if (x.buffer, simplify(x.index)) not in found:
                found.add((x.buffer, simplify(x.index)))
                more.append(Read(x.buffer, x.index, when))
    return replace(w, reads=(*w.reads, *more)) if more else w
