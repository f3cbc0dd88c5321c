"""The rewrite engine: a table of named rules, applied bottom-up to a normal form that each node remembers.

A rule looks at one node whose operands are normal and returns an equal expression, or None.  The rule that fired is
kept on the node, so a derivation can be read back step by step (:func:`derivation`) and each step checked by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from idgraph.arith.expr import ArithZeroDivisionError, BudgetExceeded, Expr, budget, const, rebuild
from idgraph.arith.interval import interval

Apply = Callable[[Expr], Expr | None]
_MAX_DEPTH: Final = 40


@dataclass(frozen=True, slots=True)
class Rule:
    """One equality: at ``op`` nodes, ``lhs`` may be written ``rhs`` provided that ``when``."""

    name: str
    op: str
    lhs: str
    rhs: str
    when: str
    apply: Apply

    def __str__(self) -> str:
        side = f"  if {self.when}" if self.when else ""
        return f"{self.name}: {self.lhs} -> {self.rhs}{side}"


@dataclass(frozen=True, slots=True)
class RuleApplication:
    """One application of a rule: ``before`` equals ``after``."""

    rule: str
    before: Expr
    after: Expr

    def __str__(self) -> str:
        return f"{self.rule}: {self.before} -> {self.after}"


TABLE: Final[dict[str, list[Rule]]] = {}
_BY_OP: Final[dict[str, list[tuple[str, Apply]]]] = {}


class _Call(threading.local):
    """Guards of the calls of ``normal`` that are under way in one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0
        self.busy: set[Expr] = set()  # nodes whose rules are being tried, by this call or by one further out


_call: Final = _Call()


def rule(ops: str, name: str, lhs: str, rhs: str, when: str = "") -> Callable[[Apply], Apply]:
    """Enter a function into the rule table, for the operations named in ``ops``; order of entry is order of trial."""

    def enter(apply: Apply) -> Apply:
        for op in ops.split():
            TABLE.setdefault(op, []).append(Rule(name, op, lhs, rhs, when, apply))
            _BY_OP.setdefault(op, []).append((name, apply))
        return apply

    return enter


@rule("integer", "one-value", "x", "c", "c <= x <= c by range")
def one_value(node: Expr) -> Expr | None:
    """Tried first at every node that is not a condition."""
    if node.cond or node.op == "const":
        return None
    lo, hi = interval(node)
    return const(lo) if lo is not None and lo == hi else None


def rules() -> list[Rule]:
    """The whole table, grouped by operation."""
    return [r for group in TABLE.values() for r in group]


def kind(node: Expr) -> str:
    """The group of rules a node is tried against."""
    op = node.op
    if op in ("floordiv", "mod"):
        d = node.args[1]
        if d.op == "const":
            return op if d.value > 0 else "negative"
        return op + "-sym"
    return op


def normal(e: Expr) -> Expr:
    """The normal form of ``e``: no rule applies to it or to any of its parts."""
    found = e.normal_form
    if found is not None:
        return found
    call = _call
    if call.depth > _MAX_DEPTH:  # rules that ask for normal forms of new expressions nest; stop, soundly, with less
        return e
    if call.depth == 0:
        with budget() as is_outermost:
            try:
                return _rewrite_nested(e, call)
            except BudgetExceeded:
                if not is_outermost:
                    raise
                return e
    return _rewrite_nested(e, call)


def _rewrite_nested(e: Expr, call: _Call) -> Expr:
    call.depth += 1
    try:
        return _normalize(e, call.busy)
    finally:
        call.depth -= 1


def _normalize(root: Expr, busy: set[Expr]) -> Expr:
    work = [root]
    waiting: dict[Expr, Expr] = {}
    while work:
        node = work[-1]
        if node.normal_form is not None:
            work.pop()
            continue
        target = waiting.get(node)
        if target is None:
            args = node.args
            missing = [a for a in args if a.normal_form is None]
            if missing:
                target = _as_written(node)
                if target is None:
                    if not (node.cond and _decided(node)):
                        work.extend(missing)
                    continue
            elif any(a.normal_form is not a for a in args):
                target = None if node.cond and _decided(node) else _rebuilt(node)
            else:
                if node in busy:  # a rule asks for the normal form of what it is trying to rewrite
                    return root
                busy.add(node)
                try:
                    target = _rewrite_once(node)
                finally:
                    busy.discard(node)
            if node.normal_form is not None:
                continue
            if target is None or target == node or (target.normal_form is None and target in waiting):
                node.normal_form = node
                work.pop()
                continue
            waiting[node] = target
        done = target.normal_form
        if done is None:
            work.append(target)
            continue
        node.normal_form = done
        work.pop()
    return root.normal_form if root.normal_form is not None else root


def _as_written(node: Expr) -> Expr | None:
    """A sum, quotient or remainder by the rules that look at it before its operands are normal."""
    if node.op == "add":
        is_tried = any((a if a.base is None else a.base).op in ("floordiv", "mod") for a in node.args)
    else:
        is_tried = node.op in ("floordiv", "mod") and node.args[0].divmods > 0
    if is_tried:
        for name, apply in _BY_OP["written"]:
            found = apply(node)
            if found is not None and found != node:
                node.why = (name, found)
                return found
    return None


def _decided(node: Expr) -> bool:
    """Whether a comparison is decided by the ranges of its operands as written, which may be tighter than normal."""
    if node.op not in ("lt", "le"):
        return False
    for name, apply in _BY_OP[node.op][:1]:
        found = apply(node)
        if found is not None:
            node.why = (name, found)
            node.normal_form = found
            return True
    return False


def _rebuilt(node: Expr) -> Expr | None:
    """``node`` over normal operands; None where its divisor turned out to be zero, so that it has no value at all."""
    try:
        return rebuild(node, tuple((a if a.normal_form is None else a.normal_form) for a in node.args))
    except ArithZeroDivisionError:
        return None


def _rewrite_once(node: Expr) -> Expr | None:
    found = one_value(node)
    if found is not None:
        node.why = ("one-value", found)
        return found
    if node.op == "add" and all(_simple(t) for t in node.args):
        return None  # every rule of sums needs a quotient, a remainder or a selection
    for name, apply in _BY_OP.get(kind(node), ()):
        try:
            found = apply(node)
        except ArithZeroDivisionError:  # some part is undefined under the rule's assumptions: leave it
            continue
        if found is not None and found is not node and found != node:
            node.why = (name, found)
            return found
    return None


def _simple(t: Expr) -> bool:
    base = t if t.base is None else t.base
    return base.op == "sym" or base.op == "const"


def derivation(e: Expr) -> Iterator[RuleApplication]:
    """The rule applications that led from ``e`` to its normal form, each node's once, operands first."""
    normal(e)
    written = {name for name, _ in _BY_OP["written"]}
    seen: set[Expr] = set()
    work: list[tuple[Expr, bool]] = [(e, False)]
    while work:
        node, ready = work.pop()
        if ready:
            target = None if node.why is not None and node.why[0] in written else _rebuilt(node)
            if target is not None and target is not node:
                work.append((target, False))
            elif node.why is not None:
                yield RuleApplication(node.why[0], node, node.why[1])
                work.append((node.why[1], False))
        elif node not in seen:
            seen.add(node)
            work.append((node, True))
            work.extend((a, False) for a in reversed(node.args))
