"""Straight code made shorter: copies read through, equal computations done once, what nobody reads left out.

Statements keep their order and their meaning; only locals disappear. Lanes need it: a value that two parts of one loop
nest compute privately is one value once both parts stand in one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from idgraph.kernel.defuse import locals_read, made_by, rewritten
from idgraph.kernel.ir import Accumulate, Checked, Choose, Compute, If, Index, Let, Local, Operand, Stmt, walk

Body = Sequence[Stmt]
Key = tuple[str, tuple[Operand, ...], str, str]


def tidy(body: Body) -> list[Stmt]:
    """``body``, in which every local that is set is also read inside it only."""
    return live(_Values().forward(body), set())


@dataclass(slots=True)
class _Values:
    """The facts at a statement: ``same`` local -> what it copies, ``made`` computation -> the local that has it."""

    same: dict[str, Operand] = field(default_factory=dict[str, Operand])
    made: dict[Key, Local] = field(default_factory=dict["Key", Local])
    seen: set[str] = field(default_factory=set[str])

    def operand(self, o: Operand) -> Operand:
        return self.same.get(o.name, o) if isinstance(o, Local) else o

    def forward(self, body: Body) -> list[Stmt]:
        out: list[Stmt] = []
        for s in body:
            s = rewritten(s, read=self.operand)
            if isinstance(s, (If, Checked)):
                inner = _Values(dict(self.same), dict(self.made), set(self.seen))
                out.append(replace(s, body=tuple(inner.forward(s.body))))
                for name in {x.name for y in walk(s.body) for x in made_by(y)}:
                    self.forget(name)
                continue
            if isinstance(s, Accumulate):  # it changes a variable that had a value before
                self.seen.add(s.acc.name)
                self.forget(s.acc.name)
            for x in made_by(s):
                self.forget(x.name)
            self.learn(s)
            out.append(s)
        return out

    def learn(self, s: Stmt) -> None:
        """The facts after ``s``."""
        match s:
            case Compute(local, "cast", (Local() as source,)) if source.dtype == local.dtype and source != local:
                self.same[local.name] = source
            case Choose(local, (), Local() as source) if source.dtype == local.dtype and source != local:
                self.same[local.name] = source
            case Compute(local, op, operands, compute) if local not in operands:
                key: Key = (op, operands, compute, local.dtype)
                known = self.made.setdefault(key, local)
                if known != local:
                    self.same[local.name] = known
            case _:
                pass

    def forget(self, name: str) -> None:
        """``name`` gets a new value."""
        if name not in self.seen:
            self.seen.add(name)
            return
        self.same = {k: v for k, v in self.same.items() if k != name and not (isinstance(v, Local) and v.name == name)}
        gone = [k for k, v in self.made.items() if v.name == name or _mentions(k, name)]
        for k in gone:
            del self.made[k]


def _mentions(key: Key, name: str) -> bool:
    return any(
        (isinstance(o, Local) and o.name == name) or (isinstance(o, Index) and name in o.value.names) for o in key[1]
    )


def live(body: Body, needed: set[str]) -> list[Stmt]:
    """``body`` without locals that nobody reads; ``needed``: names read after it, becomes those read from it on."""
    kept: list[Stmt] = []
    for s in reversed(body):
        if isinstance(s, (If, Checked)):
            before = set(needed)
            inner = live(s.body, before)
            needed |= before
            if inner or isinstance(s, Checked):
                kept.append(replace(s, body=tuple(inner)))
            continue
        made = {x.name for x in made_by(s)}
        if made and not isinstance(s, (Let, Accumulate)):
            if not needed.intersection(made):
                continue
            needed.difference_update(made)
        needed.update(locals_read(s))
        kept.append(s)
    return kept[::-1]
