"""Statements read and rebuilt: what one sets, what it reads, the same statement over other indices and variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from idgraph.arith import Expr
from idgraph.emit.plan import (
    Accumulate,
    Choose,
    Combine,
    Compute,
    Declare,
    Index,
    Let,
    Load,
    Local,
    Loop,
    Note,
    Operand,
    Stmt,
    Store,
    index_exprs,
    names,
    walk,
)

Plain = Note | Load | Compute | Choose | Accumulate | Store


def same_local(x: Local) -> Local:
    """The variable itself."""
    return x


def mapped(
    s: Plain, index: Callable[[Expr], Expr], read: Callable[[Local], Local], made: Callable[[Local], Local] = same_local
) -> Plain:
    """``s`` with its index expressions through ``index``, the variables it reads through ``read``, what it sets through
    ``made``."""

    def operand(o: Operand) -> Operand:
        if isinstance(o, Local):
            return read(o)
        return Index(index(o.value)) if isinstance(o, Index) else o

    match s:
        case Note():
            return s
        case Load(local, buffer, address, guard):
            return Load(made(local), buffer, index(address), index(guard))
        case Compute(local, op, operands, compute):
            return Compute(made(local), op, tuple(map(operand, operands)), compute)
        case Choose(local, cases, default):
            return Choose(made(local), tuple((index(c), operand(o)) for c, o in cases), operand(default))
        case Accumulate():
            address = None if s.address is None else index(s.address)
            return replace(s, value=operand(s.value), address=address)
        case Store(buffer, address, value):
            return Store(buffer, index(address), operand(value))


def sets(s: Stmt) -> frozenset[str]:
    """Variables that one statement sets, not those inside it."""
    match s:
        case Declare(name) | Let(name):
            return frozenset({name})
        case Load(local) | Compute(local) | Choose(local):
            return frozenset({local.name})
        case Accumulate(acc, buffer=None) | Combine(acc):
            return frozenset({acc.name})
        case Loop(var):
            return frozenset({var})
        case _:
            return frozenset()


def reads(s: Stmt) -> frozenset[str]:
    """Variables that one statement reads, in operands and indices, not those inside it."""
    indices = frozenset(n for e in index_exprs(s) for n in e.names)
    match s:
        case Compute(operands=operands):
            own = [o.name for o in operands if isinstance(o, Local)]
        case Choose(cases=cases, default=default):
            own = [o.name for o in (default, *(o for _, o in cases)) if isinstance(o, Local)]
        case Accumulate(acc, _, value):
            own = [o.name for o in (acc, value) if isinstance(o, Local)]
        case Combine(acc):
            own = [acc.name]
        case Load() | Declare():
            own = []
        case Let(value=value) | Store(value=value):
            own = [value.name] if isinstance(value, Local) else []
        case _:
            own = list(names(s))
    return indices | frozenset(own)


def all_sets(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Variables set anywhere in ``body``."""
    return frozenset(n for s in walk(body) for n in sets(s))


def all_reads(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Variables read anywhere in ``body``."""
    return frozenset(n for s in walk(body) for n in reads(s))


def stored_in(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Buffers written anywhere in ``body``."""
    found: set[str] = set()
    for s in walk(body):
        match s:
            case Store(buffer=b):
                found.add(b.name)
            case Accumulate(buffer=b) if b is not None:
                found.add(b.name)
            case _:
                pass
    return frozenset(found)


def loaded_in(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Buffers read anywhere in ``body``."""
    return frozenset(s.buffer.name for s in walk(body) if isinstance(s, Load))
