"""Straight code made shorter: copies read through, equal computations done once, what nobody reads left out.

Statements keep their order and their meaning; only locals disappear. Lanes need it: a value that two parts of one loop
nest compute privately is one value once both parts stand in one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from idgraph.emit.plan import (
    Accumulate,
    Checked,
    Choose,
    Compute,
    Declare,
    Half,
    If,
    Index,
    Let,
    Load,
    Local,
    Number,
    Operand,
    PairCompute,
    Stmt,
    Store,
    VectorAdd,
    VectorLoad,
    VectorStore,
    names,
)

Body = Sequence[Stmt]
Key = tuple[str, tuple[object, ...], str, str]


def tidy(body: Body) -> list[Stmt]:
    """``body``, in which every local that is set is also read inside it only."""
    return live(_Values().forward(body), set())


@dataclass(slots=True)
class _Values:
    """What is known at a statement: ``same`` local -> what it copies, ``made`` computation -> the local that has it."""

    same: dict[str, Operand] = field(default_factory=dict[str, Operand])
    made: dict[Key, Local] = field(default_factory=dict["Key", Local])
    seen: set[str] = field(default_factory=set[str])

    def operand(self, o: Operand) -> Operand:
        return self.same.get(o.name, o) if isinstance(o, Local) else o

    def forward(self, body: Body) -> list[Stmt]:
        out: list[Stmt] = []
        for s in body:
            s = self.renamed(s)
            if isinstance(s, (If, Checked)):
                inner = _Values(dict(self.same), dict(self.made), set(self.seen))
                out.append(replace(s, body=tuple(inner.forward(s.body))))
                for name in {n for x in _flat(s.body) for n in set_by(x)}:
                    self.forget(name)
                continue
            if isinstance(s, Accumulate):  # it changes a variable that had a value before
                self.seen.add(s.acc.name)
                self.forget(s.acc.name)
            for name in set_by(s):
                self.forget(name)
            self.learn(s)
            out.append(s)
        return out

    def learn(self, s: Stmt) -> None:
        """What holds after ``s``."""
        match s:
            case Compute(local, "cast", (Local() as source,)) if source.dtype == local.dtype and source != local:
                self.same[local.name] = source
            case Choose(local, (), Local() as source) if source.dtype == local.dtype and source != local:
                self.same[local.name] = source
            case Compute(local, op, operands, compute) if local not in operands:
                key: Key = (op, tuple(map(_key, operands)), compute, local.dtype)
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

    def renamed(self, s: Stmt) -> Stmt:
        match s:
            case Compute(operands=operands):
                return replace(s, operands=tuple(map(self.operand, operands)))
            case Choose(cases=cases, default=default):
                chosen = tuple((c, self.operand(o)) for c, o in cases)
                return replace(s, cases=chosen, default=self.operand(default))
            case Store(value=value) | Let(value=value) | Accumulate(value=value):
                return replace(s, value=self.operand(value))
            case VectorStore(values=values) | VectorAdd(values=values):
                return replace(s, values=tuple(map(self.operand, values)))
            case _:
                return s


def _key(o: Operand) -> object:
    """Equal for equal operands only: 0.0 and -0.0 are equal numbers."""
    return ("number", type(o.value).__name__, repr(o.value)) if isinstance(o, Number) else o


def _mentions(key: Key, name: str) -> bool:
    return any(
        (isinstance(o, Local) and o.name == name) or (isinstance(o, Index) and name in o.value.names) for o in key[1]
    )


def _flat(body: Body) -> list[Stmt]:
    return [x for s in body for x in ((s, *_flat(s.body)) if isinstance(s, (If, Checked)) else (s,))]


def set_by(s: Stmt) -> tuple[str, ...]:
    """The variables that one statement sets, not those inside it."""
    match s:
        case Load(local) | Compute(local) | Choose(local):
            return (local.name,)
        case Declare(name) | Let(name):
            return (name,)
        case VectorLoad(made):
            return tuple(x.name for x in made)
        case PairCompute(local) | Half(local):
            return (local.name,)
        case _:
            return ()


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
        made = set_by(s)
        if made and not isinstance(s, Let):
            if not needed.intersection(made):
                continue
            needed.difference_update(made)
        needed.update(read_by(s))
        kept.append(s)
    return kept[::-1]


def read_by(s: Stmt) -> frozenset[str]:
    """The locals that one statement reads; names in index expressions are no locals."""
    match s:
        case Compute(operands=operands):
            return frozenset(o.name for o in operands if isinstance(o, Local))
        case Choose(cases=cases, default=default):
            return frozenset(o.name for o in (default, *(v for _, v in cases)) if isinstance(o, Local))
        case PairCompute(operands=operands):
            return frozenset(o.name for o in operands)
        case Half(word=word):
            return frozenset({word.name})
        case Load() | VectorLoad() | Declare():
            return frozenset()
        case _:
            return names(s)
