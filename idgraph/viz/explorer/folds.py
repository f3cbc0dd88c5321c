"""Nests of a fusion, and runs of nests that repeat, as a tree: the explorer draws a closed branch as one box."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from idgraph.ir import Fusion, Tensor, TensorExpr
from idgraph.viz.captions import category

LONGEST = 64  # nests of one period
FEWEST = 6  # operations of a repetition: fewer are easier to read as they are


@dataclass(slots=True)
class Fold:
    """A branch: ``exprs`` of one nest, or ``parts`` of a repetition. ``title`` is its first line."""

    title: str
    exprs: list[TensorExpr] = field(default_factory=list[TensorExpr])
    parts: list[Fold] = field(default_factory=list["Fold"])
    note: str = ""


def folds_of(fusion: Fusion) -> list[Fold]:
    """The nests in the order of the program; a run of nests that repeats is one branch with the rounds in it.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("x", (8, 8))
    >>> for _ in range(3):
    ...     t = ig.sum(t * 2.0, 1, keepdim=True) + t
    >>> _ = f.output(t)
    >>> [(b.title, len(b.parts)) for b in folds_of(f)]
    [('3 x (mul, sum, add)', 3)]
    """
    nests = _nests(fusion)
    keys = [_key(n) for n in nests]
    out: list[Fold] = []
    at = 0
    while at < len(nests):
        period, times = _period(keys, at)
        if sum(map(len, nests[at : at + period * times])) < FEWEST:
            period, times = 1, 1
        if times > 1:
            rounds = [nests[at + r * period : at + (r + 1) * period] for r in range(times)]
            parts = [_round(n, part) for n, part in enumerate(rounds)]
            names = [e.op for part in rounds[0] for e in part]
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            out.append(Fold(f"{times} x ({shown})", parts=parts, note="rounds with the same operations and extents"))
        else:
            out.append(_nest(nests[at]))
        at += period * times
    return out


def _round(number: int, nests: Sequence[list[TensorExpr]]) -> Fold:
    if len(nests) == 1:
        return _nest(nests[0])
    return Fold(f"round {number}", parts=[_nest(n) for n in nests])


def _nest(exprs: list[TensorExpr]) -> Fold:
    last = exprs[-1].output
    names = [e.op for e in exprs]
    shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return Fold(f"nest of {last.name}", exprs, note=shown)


def _key(nest: Sequence[TensorExpr]) -> Hashable:
    return tuple((e.op, e.output.dtype, tuple(str(d.extent) for d in e.output.logical)) for e in nest)


def _period(keys: Sequence[Hashable], at: int) -> tuple[int, int]:
    """The period of the longest repetition that starts at ``at``, and how often it comes; (1, 1) for none."""
    best, covered = (1, 1), 1
    for p in range(1, min(LONGEST, (len(keys) - at) // 2) + 1):
        times = 1
        while keys[at + times * p : at + (times + 1) * p] == keys[at : at + p]:
            times += 1
        if times > 1 and times * p > covered:
            best, covered = (p, times), times * p
    return best


def _nests(fusion: Fusion) -> list[list[TensorExpr]]:
    """Operations that share loops, in the order of the program; without a schedule, pointwise chains."""
    leader: dict[Tensor, Tensor] = {t: t for t in fusion.tensors}

    def find(t: Tensor) -> Tensor:
        while leader[t] is not t:
            leader[t] = leader[leader[t]]
            t = leader[t]
        return t

    inlined = any(t.inline_position for t in fusion.tensors)
    kept = set(fusion.outputs)
    for t in fusion.tensors:
        uses = list(dict.fromkeys(u.output for u in t.uses))
        if inlined:
            joined = uses if t.inline_position else []
        else:
            plain = category(t) == "pointwise" and t not in kept and len(uses) == 1
            joined = [u for u in uses if plain and category(u) == "pointwise"]
        for u in joined:
            leader[find(t)] = find(u)
    found: dict[Tensor, list[TensorExpr]] = {}
    for e in fusion.exprs:
        found.setdefault(find(e.output), []).append(e)
    return list(found.values())
