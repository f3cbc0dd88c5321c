"""Faults planted in the formulas that TorchInductor made: each must be refuted, at a point that shows it.

    python -m tests.check.planted_index_faults [--json FILE] [--only KIND]

Programs are captured as they are, then one formula is changed: variables swapped, an offset or a modulus off by one, a
lost ``% m``, a stride wrong after padding, a mask off by one, a range too long or too short, two buffers exchanged, a
write misplaced. A change that changes no element read or written (found by evaluating both formulas at every point,
sets made in plain Python without any code of the check) is not a fault and is not counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from idgraph.arith import Expr, as_expr, const
from idgraph.arith.expr import rebuild
from idgraph.check.decide import Checker
from idgraph.check.inductor_capture import Capture
from idgraph.check.program import Axis, IndirectIndex, LoadedValue, Nest, NeutralProgram, Read, Write
from idgraph.check.report import CheckRow
from tools.programs.inductor_programs import programs

NAMES = (
    "rope half", "rope interleaved", "rope partial", "swin", "swin back", "pixel shuffle", "qkv", "cross entropy",
    "softmax", "cat", "cat transposed", "transpose batched", "sum both ways", "pad reflect", "gather", "strided",
    "roll", "misaligned reshape", "layer norm", "channels last",
)  # fmt: skip
EACH = 8  # faults planted of each kind, over as many programs as possible
FEW = 2  # faults of a kind in one program
POINTS = 3000  # a nest with more points is left out: plain Python tells whether a change changes anything


@dataclass(frozen=True, slots=True)
class Fault:
    """One change: of which kind, where, and the nest it makes."""

    kind: str
    program: str
    nest: Nest
    original: str
    changed: str
    whole: NeutralProgram


def parts(x: Expr) -> Iterator[Expr]:
    """All parts of a formula, once."""
    seen: set[Expr] = set()
    work = [x]
    while work:
        e = work.pop()
        if e not in seen:
            seen.add(e)
            yield e
            work.extend(e.args)


def exchange(x: Expr, old: Expr, new: Expr) -> Expr:
    """``x`` with a part replaced."""
    if x == old:
        return new
    args = tuple(exchange(a, old, new) for a in x.args)
    return x if args == x.args else rebuild(x, args)


def _swapped(x: Expr, n: Nest) -> Iterator[Expr]:
    loops = [a.symbol for a in n.axes if a.symbol in x.symbols]
    for a, b in itertools.combinations(loops, 2):
        yield x.substitute({a.name: b, b.name: a})


def _offset(x: Expr, n: Nest) -> Iterator[Expr]:
    yield x + 1


def _modulus(x: Expr, n: Nest) -> Iterator[Expr]:
    for e in parts(x):
        if e.op == "mod" and e.args[1].is_const:
            yield exchange(x, e, e.args[0] % (e.args[1] - 1))
            yield exchange(x, e, e.args[0] % (e.args[1] + 1))


def _lost(x: Expr, n: Nest) -> Iterator[Expr]:
    for e in parts(x):
        if e.op == "mod":
            yield exchange(x, e, e.args[0])


def _stride(x: Expr, n: Nest) -> Iterator[Expr]:
    for e in parts(x):
        if e.op == "mul" and any(a.is_const and int(a) > 1 for a in e.args):
            k = next(a for a in e.args if a.is_const)
            yield exchange(x, e, exchange(e, k, const(int(k) + 1)))


FORMULAS: Mapping[str, Callable[[Expr, Nest], Iterator[Expr]]] = {
    "variables swapped": _swapped, "offset off by one": _offset, "modulus off by one": _modulus, "lost % m": _lost,
    "wrong stride": _stride,
}  # fmt: skip


def changes(n: Nest) -> Iterator[tuple[str, Nest, str, str]]:
    """Changed nests: (kind, nest, formula before, formula after)."""
    for k, w in enumerate(n.writes):
        for j, r in enumerate(w.reads):
            for kind, change in FORMULAS.items():
                for x in change(r.index, n):
                    yield kind, _with_read(n, k, j, replace(r, index=x)), str(r.index), str(x)
            for e in parts(r.when):
                if e.op in ("lt", "le") and e.args[1].is_const:
                    x = exchange(r.when, e, rebuild(e, (e.args[0], e.args[1] + 1)))
                    yield "mask off by one", _with_read(n, k, j, replace(r, when=x)), str(r.when), str(x)
            for other in w.reads[:j]:
                if other.buffer != r.buffer:
                    reads = list(w.reads)
                    reads[j] = replace(r, buffer=other.buffer)
                    told = f"{r.buffer}, {other.buffer}", f"{other.buffer}, {other.buffer}"
                    yield "buffers exchanged", _with_write(n, k, replace(w, reads=tuple(reads))), *told
        for x in (w.index + 1, *_swapped(w.index, n)):
            yield "write misplaced", _with_write(n, k, replace(w, index=x)), str(w.index), str(x)
    for group in ("reduce", "loops"):
        axes: tuple[Axis, ...] = getattr(n, group)
        for p, a in enumerate(axes):
            for step in (1, -1) if group == "reduce" else (-1,):
                if a.extent.is_const and int(a.extent) + step > 0:
                    made = list(axes)
                    made[p] = Axis(a.name, as_expr(int(a.extent) + step))
                    kind = "reduction range" if group == "reduce" else "loop too short"
                    yield kind, _renewed(replace(n, **{group: tuple(made)})), str(a.extent), str(int(a.extent) + step)


def _renewed(n: Nest) -> Nest:
    """Formulas over the loops' new ranges."""
    new = {a.name: a.symbol for a in n.axes}

    def read(r: Read) -> Read:
        return Read(r.buffer, r.index.substitute(new), r.when.substitute(new))

    writes = tuple(
        replace(w, index=w.index.substitute(new), when=w.when.substitute(new), reads=tuple(map(read, w.reads)))
        for w in n.writes
    )
    loads = {k: replace(x, index=x.index.substitute(new)) for k, x in n.loads.items()}
    return replace(n, writes=writes, loads=loads)


def _with_write(n: Nest, k: int, w: Write) -> Nest:
    return replace(n, writes=(*n.writes[:k], w, *n.writes[k + 1 :]))


def _with_read(n: Nest, k: int, j: int, r: Read) -> Nest:
    w = n.writes[k]
    return _with_write(n, k, replace(w, reads=(*w.reads[:j], r, *w.reads[j + 1 :])))


def touched(n: Nest, p: NeutralProgram) -> object:
    """For each write: address -> what is read for it at each of its points, sorted."""
    homes = {b.name: (b.home, int(b.base)) for b in p.buffers}
    sizes = [int(a.extent) for a in n.axes]
    grid = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), np.int64)
    env: dict[str, Any] = {a.name: row for a, row in zip(n.axes, grid, strict=True)}
    left: list[tuple[str, LoadedValue | IndirectIndex]] = [*n.loads.items(), *n.places.items()]
    for _ in range(len(left)):  # each uses only what is known before it
        for name, x in left:
            if name not in env and isinstance(x, LoadedValue) and x.index.names <= env.keys():
                env[name] = (x.index.evaluate_array(env) * 7919 + 13) % 97
            if name not in env and isinstance(x, IndirectIndex) and x.value.names <= env.keys():
                env[name] = x.value.evaluate_array(env) % int(x.size)
    count = grid.shape[1]

    def column(x: Expr) -> list[int]:
        return np.broadcast_to(x.evaluate_array(env), (count,)).tolist()

    out: list[object] = []
    for w in n.writes:
        reads = [(homes[r.buffer], column(r.index), column(r.when)) for r in w.reads if r.buffer in homes]
        found: dict[int, list[list[tuple[str, int]]]] = {}
        for k, (at, held) in enumerate(zip(column(w.index), column(w.when), strict=True)):
            if held:
                here = {(home, index[k] + base) for (home, base), index, when in reads if when[k]}
                found.setdefault(at, []).append(sorted(here))
        out.append({at: sorted(rows) for at, rows in found.items()})
    return out


def planted(name: str, p: NeutralProgram, seen: dict[str, int]) -> Iterator[Fault]:
    """The faults of one program, those that change something; `FEW` of a kind."""
    for n in p.nests:
        size = 1
        for a in n.axes:
            size *= int(a.extent) if a.extent.is_const else POINTS
        if size > POINTS or n.unread or any(w.buffer not in {b.name for b in p.buffers} for w in n.writes):
            continue
        before = touched(n, p)
        for kind, made, old, new in changes(n):
            if seen.get(kind, 0) < FEW and touched(made, p) != before:
                seen[kind] = seen.get(kind, 0) + 1
                nests = tuple(made if x.name == n.name else x for x in p.nests)
                yield Fault(kind, name, made, old, new, replace(p, nests=nests))


def chosen(names: tuple[str, ...] = NAMES, each: int = EACH) -> list[Fault]:
    """`EACH` faults of every kind, from as many programs as there are."""
    table = programs("cpu")
    by_kind: dict[str, dict[str, list[Fault]]] = {}
    for name in names:
        watched = Capture(name=name)
        watched.run(*table[name])
        seen: dict[str, int] = {}
        for lowered in watched.lowered:
            for fault in planted(f"{name}, {lowered.name.rsplit(' ', 1)[-1]}", lowered.after, seen):
                by_kind.setdefault(fault.kind, {}).setdefault(name, []).append(fault)
    out: list[Fault] = []
    for found in by_kind.values():
        rows = itertools.zip_longest(*found.values())
        out += [f for f in itertools.chain.from_iterable(rows) if f is not None][:each]
    return out


def judged(fault: Fault) -> list[CheckRow]:
    """The rows of the changed nest that are refuted."""
    rows = Checker(fault.whole).rows(fault.nest)
    return [r for r in rows if r.verdict == "refuted"]


def main() -> int:
    """The table of kinds; 1 where a fault is not refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    table: dict[str, list[dict[str, Any]]] = {}
    missed = 0
    for fault in chosen():
        if args.only in fault.kind:
            rows = judged(fault)
            missed += not rows
            shown = str(rows[0].counterexample) if rows else "NOT REFUTED"
            row = {"program": fault.program, "nest": fault.nest.name, "was": fault.original, "is": fault.changed}
            table.setdefault(fault.kind, []).append({**row, "refuted": bool(rows), "counterexample": shown})
            if not rows:
                print(f"NOT REFUTED: {fault.kind} in {fault.program}: {fault.original} -> {fault.changed}")
    for kind, rows in table.items():
        graphs = len({r["program"] for r in rows})
        print(f"{kind:<22} {sum(r['refuted'] for r in rows)} of {len(rows)} refuted, in {graphs} graphs")
    total = sum(map(len, table.values()))
    print(f"{'all':<22} {total - missed} of {total} refuted")
    if args.json:
        Path(args.json).write_text(json.dumps({"planted": total, "refuted": total - missed, "kinds": table}, indent=1))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
