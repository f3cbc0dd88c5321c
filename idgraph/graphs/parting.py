"""Why two keys are not the same: the operation, or the axis expression, between their groups that keeps them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import cast

from idgraph.graphs.keys import key_text
from idgraph.ir import Fixed, IterDomain, Loaded, TensorExpr

Part = tuple[IterDomain, TensorExpr | None]
_KEYS = 500  # keys of a group that are looked at


def place_of(e: TensorExpr) -> str:
    """``slice -> t1 (file:line: code)``."""
    return f"{e.op} -> {e.output.name}" + (f" ({e.source_line})" if e.source_line else "")


def _parts(key: object) -> Part | None:
    if isinstance(key, IterDomain):
        return key, None
    parts = cast("tuple[object, ...]", key) if isinstance(key, tuple) else ()
    match parts[:2]:
        case (IterDomain() as d, TensorExpr() as e):
            return d, e
        case _:
            return None


def apart(mine: Iterable[object], theirs: Iterable[object]) -> str | None:
    """One sentence about a read between two groups of keys that maps nothing; None where there is none."""
    left, right = ([p for k in islice(keys, _KEYS) if (p := _parts(k)) is not None] for keys in (mine, theirs))
    return next(iter((*_reads(left, right), *_reads(right, left), *_nests(left, right))), None)


def _reads(sources: list[Part], readers: list[Part]) -> Iterator[str]:
    """An axis on one side that an operation reads, but not at the coordinate of its own axis on the other side."""
    made = {d for d, _ in readers}
    for d, under in sources:
        t = d.tensor
        if t is None or d not in t.axes:
            continue
        p = t.axes.index(d)
        for e in t.uses if under is None else (under,):
            for k in e.operands_of(t):
                match e.reads[k][p]:
                    case Fixed(resolves=IterDomain() as to) if to in made:
                        yield f"{place_of(e)} reads {key_text(d)} at 0 along {key_text(to)}: it has one element"
                    case Loaded(operand) if made & set(e.output.logical):
                        index = e.inputs[operand].name
                        yield f"{place_of(e)} reads {key_text(d)} at values loaded from {index}, at no axis of its own"
                    case _:
                        pass


def _nests(left: list[Part], right: list[Part]) -> Iterator[str]:
    """The same axis under the operation that makes its tensor and under one that reads it: how far loops are shared."""
    under: dict[IterDomain, list[TensorExpr]] = {}
    for d, e in right:
        if e is not None:
            under.setdefault(d, []).append(e)
    for d, e in left:
        t = d.tensor
        if e is None or t is None:
            continue
        for other in under.get(d, ()):
            maker, reader = (e, other) if t.definition is e else (other, e)
            if t.definition is not maker:
                yield f"{place_of(e)} and {place_of(other)} read {t.name}, each in loops of its own"
            elif not t.inline_position:
                yield f"{t.name} is not inlined, so {place_of(maker)} and {place_of(reader)} share no loop"
            else:
                shares = f"{t.name} is inlined at {t.inline_position}"
                yield f"{shares}: {key_text(d)} depends on a loop that {place_of(reader)} does not share with it"
