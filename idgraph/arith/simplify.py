"""The simplifier's public verbs: ``simplify``, ``trace``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, cast

# the rule modules enter their rules into the engine's table, in this order
from idgraph.arith import mixed_radix, rules_compare, rules_divmod, rules_divmod_symbolic, rules_sum, rules_xor
from idgraph.arith.enumeration import closure
from idgraph.arith.expr import (
    FALSE,
    TRUE,
    VERBS,
    ArithError,
    ArithTypeError,
    BudgetExceeded,
    Expr,
    and_,
    as_expr,
    budget,
    const,
    floordiv,
    from_terms,
    not_,
    postorder,
    rebuild,
    where,
)
from idgraph.arith.factor import cheapest
from idgraph.arith.facts import assume
from idgraph.arith.interop import from_sympy, is_sympy
from idgraph.arith.linear import content, terms
from idgraph.arith.mixed_radix import cost
from idgraph.arith.rewriter import RuleApplication, derivation, normal
from idgraph.arith.text import RangeLike, check_ranges, parse, ranged_symbols
from idgraph.errors import short_repr

RULE_MODULES = (mixed_radix, rules_compare, rules_divmod, rules_divmod_symbolic, rules_sum, rules_xor)
_ROUNDS = 6
_MAX_TEXTS = 4096


def read(e: Expr | int | str | Any, ranges: Mapping[str, RangeLike] | None = None) -> Expr:
    """Text, sympy or an own expression as an expression whose symbols have the given ranges."""
    if isinstance(e, str):
        return parse(e, ranges)
    if isinstance(e, Expr):
        if not ranges:
            return e
        scope = ranged_symbols(ranges)
        return e.substitute({name: scope[name] for name in e.names if name in scope})
    if is_sympy(e):
        return from_sympy(e, ranges)
    return as_expr(e)


Facts = Iterable[Expr | str] | Expr | str


MOST_FACTS = 10_000


def read_facts(facts: Facts, ranges: Mapping[str, RangeLike] | None, *about: Expr) -> tuple[Expr, ...]:
    """Conditions (one or several), their symbols by name: as ``ranges`` gives them, else as ``about`` has them.

    A name that only the facts mention keeps the range that ``ranges`` gives it; one that nothing bounds is any integer.
    """
    # a 0-d array is one value, not several
    several = isinstance(facts, Iterable) and getattr(facts, "ndim", 1) != 0  # pyright: ignore[reportUnnecessaryIsInstance]
    if isinstance(facts, (Mapping, bytes)) or not (several or isinstance(facts, Expr)):
        raise ArithTypeError(f"facts is {short_repr(cast(object, facts))}, not a condition", hint='facts="i < n"')
    given: tuple[Any, ...] = (facts,) if isinstance(facts, (Expr, str)) else tuple(islice(facts, MOST_FACTS + 1))
    if len(given) > MOST_FACTS:
        raise ArithError(f"more than {MOST_FACTS} facts")
    scope = {s.name: s for s in closure(*about)} | ranged_symbols(ranges)
    ranged = {} if ranges is None else {name: scope[name] for name in ranges}
    out: list[Expr] = []
    for f in given:
        x = parse(f).substitute(scope) if isinstance(f, str) else f
        if isinstance(x, Expr) and ranged:
            x = x.substitute({name: ranged[name] for name in x.names if name in ranged})
        if not isinstance(x, Expr) or not x.cond:
            raise ArithTypeError(
                f"a fact must be a condition, got `{short_repr(f)}`", hint='such as i < 4, or its text "i < 4"'
            )
        out.append(x)
    return tuple(out)


def simplify(e: Expr | int | str | Any, ranges: Mapping[str, RangeLike] | None = None, facts: Facts = ()) -> Expr:
    """The cheapest equal form known, under the symbols' ranges and conditions known to hold.

    Never costs more than ``e``, never has more divisions and modulos, and is a fixed point: simplifying it again
    gives the same node.

    >>> str(simplify("(i*32 + j)//32", {"i": 4, "j": 32}))
    'i'
    >>> str(simplify("((i + 32)%64 + 32)%64", {"i": 64}))
    'i'
    >>> str(simplify("(2*i + j)//3", {"i": 2, "j": 2}, facts="2*i + j < 3"))
    '0'
    """
    plain = isinstance(facts, (tuple, list)) and not facts
    if plain and isinstance(e, str):
        return _simplified_text(e, ranges)
    node = read(e, ranges)
    if not plain:
        return _under(node, read_facts(facts, ranges, node))
    found = node.simplest
    if found is None:
        found = _within_budget(node, lambda: _fixed_point(node))
        node.simplest = found
    return found


def _within_budget(node: Expr, work: Callable[[], Expr]) -> Expr:
    """The result of ``work`` on a node; the node itself where the work exceeds a call's budget (`work.BUDGET`)."""
    with budget() as is_outermost:
        try:
            return work()
        except BudgetExceeded:
            if not is_outermost:
                raise
            return node


_TEXTS: dict[tuple[str, tuple[tuple[str, object], ...]], Expr] = {}


def _simplified_text(text: str, ranges: Mapping[str, RangeLike] | None) -> Expr:
    """As ``simplify``; a text seen before with the same ranges is not read again."""
    key = (text, tuple(check_ranges(ranges).items()) if ranges is not None else ())
    try:
        found = _TEXTS.get(key)
    except TypeError:  # a range given as a list
        return simplify(parse(text, ranges))
    if found is None:
        found = simplify(parse(text, ranges))
        if len(_TEXTS) >= _MAX_TEXTS:
            _TEXTS.clear()
        _TEXTS[key] = found
    return found


def _under(node: Expr, facts: tuple[Expr, ...]) -> Expr:
    given = normal(and_(*facts))
    if given is TRUE:
        return simplify(node)
    out = _within_budget(node, lambda: _fixed_point(assume(normal(node), given)))
    plain = simplify(node)
    return out if (cost(out), out.cached_divmods) <= (cost(plain), plain.cached_divmods) else plain


def _fixed_point(node: Expr) -> Expr:
    seen = [node]
    for _ in range(_ROUNDS):
        last = seen[-1]
        new = _simplify_once(last)
        if new == last or (normal(new) is normal(last) and cost(new) < cost(last)):
            return new  # the same normal form has the same cheapest form
        if new in seen:  # a ring of forms of equal cost: its least one is taken, wherever the search began
            return min(seen[seen.index(new) :], key=lambda x: (x.cached_cost, x.cached_divmods, x.key))
        seen.append(new)
    return seen[-1]


def _simplify_once(node: Expr) -> Expr:
    out = cheapest(normal(node))
    limit = cost(node)
    if cost(out) <= limit and out.cached_divmods <= node.cached_divmods:
        return out
    plain = _by_operands(node)
    return plain if cost(plain) <= limit and plain.cached_divmods <= node.cached_divmods else node


def _by_operands(node: Expr) -> Expr:
    """The node with its operands simplified, for the rare node whose own normal form is not a gain."""
    done: dict[Expr, Expr] = {}
    for n in postorder(node):
        if n is node or not n.args:
            new = n if not n.args else rebuild(n, tuple(done[a] for a in n.args))
        else:
            new = cheapest(normal(n))
            if cost(new) > cost(n) or new.cached_divmods > n.cached_divmods:
                new = rebuild(n, tuple(done[a] for a in n.args))
                if cost(new) > cost(n) or new.cached_divmods > n.cached_divmods:
                    new = n
        done[n] = _asked(new, TRUE) if n.op == "where" else _in_lowest_terms(new)
    return done[node]


def _in_lowest_terms(e: Expr) -> Expr:
    """``(g*x + c)//(g*d)`` as ``(x + c//g)//d``; the rule div-common also makes the dividend natural, at a cost."""
    if e.op != "floordiv" or e.args[1].op != "const" or e.args[1].value <= 0:
        return e
    (t, c), d = terms(e.args[0]), e.args[1].value
    g = content(t, d)
    return e if g == 1 or not t else floordiv(from_terms({b: v // g for b, v in t.items()}, c // g), const(d // g))


def _asked(e: Expr, given: Expr) -> Expr:
    """Choices inside choices, each condition under those around it; for forms whose branches stay as they are."""
    if e.op != "where":
        return e
    c, a, b = e.args
    held = cheapest(assume(normal(c), normal(given))) if given is not TRUE else c
    if cost(held) > cost(c) or held.cached_divmods > c.cached_divmods:
        held = c
    if held is TRUE or held is FALSE:
        return _asked(a if held is TRUE else b, given)
    return where(held, _asked(a, and_(given, c)), _asked(b, and_(given, not_(c))))


def trace(e: Expr | str, ranges: Mapping[str, RangeLike] | None = None) -> list[RuleApplication]:
    """The rules that fire on the way to the normal form, in order, each with its two sides.

    >>> [step.rule for step in trace("(i*32 + j)//32", {"i": 4, "j": 32})]
    ['div-whole', 'one-value']
    """
    return list(derivation(read(e, ranges)))


def _verb(e: Expr, facts: Iterable[Expr]) -> Expr:
    return simplify(e, facts=facts)


def is_simplified(e: Expr) -> bool:
    """See `Expr.is_simplified`: a normal form has sums multiplied out, but for those beyond `linear.MAX_TERMS`.

    An expression that takes more than `work.BUDGET` has none.
    """
    if simplify(e) != e:
        return False
    if e.normal_form is None:  # that was more work than one call may do
        return False
    return not any(n.op == "mul" and any(a.op == "add" for a in n.args) for n in postorder(e.normal_form))


VERBS.simplify = _verb
VERBS.is_simplified = is_simplified
