"""Names for index expressions that a kernel's text has several times.

numba types each call, so text that stands twice costs twice. Expressions of block and thread numbers are computed once,
where the numbers are known; the machine code stays the same, since its optimiser merges equal parts (CSE).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set

from idgraph.arith import Expr
from idgraph.arith.nodes import postorder

_TOTAL = frozenset(("add", "mul", "xor", "min", "max", "sym", "const"))  # defined wherever their parts are


def repeated(texts: Iterable[Expr], known: Set[str], named: Collection[Expr] = ()) -> list[Expr]:
    """The parts of ``texts`` that are worth a name, each before those that it is a part of.

    ``known`` are the variables that they may be made of. A part that is always inside a larger one gets none;
    ``named`` have theirs.

    >>> from idgraph.arith import symbol
    >>> i, j, q = symbol("i", 0, 9), symbol("j", 0, 99), symbol("q", 0, 3)
    >>> row = (i * 100 + j) // 7
    >>> [str(e) for e in repeated([row * 8 + q, row * 8 + i, q * 3 + 1], {"i", "j"})]
    ['(i*100 + j)//7*8']
    >>> [str(e) for e in repeated([row + q, row * 8 + q, i * 100 + j + q], {"i", "j"})]
    ['i*100', '(i*100 + j)//7']
    """
    times: Counter[Expr] = Counter()
    for e in texts:
        times.update(_within(e, named))
    total: dict[Expr, bool] = {}
    size: dict[Expr, int] = {}
    for e in times:
        for node in postorder(e):
            if node not in size:
                divides = node.op in ("floordiv", "mod") and node.args[1].is_const and int(node.args[1]) > 0
                total[node] = (divides or node.op in _TOTAL) and all(total[a] for a in node.args)
                size[node] = sum(size[a] for a in node.args) + bool(node.args)
    candidates = [e for e in times if e not in named and size[e] and total[e] and e.names and e.names <= known]
    chosen: list[Expr] = []
    for e in sorted(candidates, key=lambda e: -size[e]):  # a stable order: parts come after what they are parts of
        extra = times[e] - 1
        if extra < 1:
            continue
        chosen.append(e)
        for part, n in _within(e, named).items():
            if part is not e:
                times[part] -= extra * n
    return chosen[::-1]


def _within(e: Expr, named: Collection[Expr]) -> Counter[Expr]:
    """How often each part stands in the text of ``e``, itself among them; a subtracted term counts without its sign."""
    times: Counter[Expr] = Counter({e: 1})
    todo = [e]
    while todo:
        node = todo.pop()
        if node.is_const or node.op == "sym" or node in named:
            continue
        for a in node.args:
            part = a * -1 if node.op == "add" and a.coef < 0 else a
            times[part] += 1
            todo.append(part)
    return times
