"""Many expressions as one list of steps, so that all of their values at a point take a microsecond or two.

`evaluate` looks at each node each time. A caller that wants the same expressions at other points again and again, as
calls with other sizes do, has them laid out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from idgraph.arith.evaluation import evaluate
from idgraph.arith.nodes import ArithZeroDivisionError, Expr

Value = int | bool | None
_Step = Callable[[list[Any]], Any]


class CompiledExprs:
    """The values of ``exprs`` at a point, in their order; None for one that divides by zero there.

    >>> from idgraph.arith import symbol
    >>> n = symbol("n", 0)
    >>> Tape((n + 1, n * n, 7 // n))({"n": 3}), Tape((n + 1, 7 // n))({"n": 0})
    ([4, 9, 2], [1, None])
    """

    __slots__ = ("_constants", "_exprs", "_names", "_places", "_steps", "_symbols")

    def __init__(self, exprs: Sequence[Expr]) -> None:
        self._exprs = tuple(exprs)
        nodes = dict.fromkeys(_in_order(self._exprs))
        symbols = [n for n in nodes if n.op == "sym"]
        constants = [n for n in nodes if n.op == "const"]
        at = {n: k for k, n in enumerate([*symbols, *constants])}
        self._names = tuple(n.name for n in symbols)
        self._symbols = tuple(symbols)
        self._constants = tuple(bool(n.value) if n.cond else n.value for n in constants)
        steps: list[_Step] = []
        for n in nodes:
            if n not in at:
                steps.append(_step(n, tuple(at[a] for a in n.args)))
                at[n] = len(at)
        self._steps = tuple(steps)
        self._places = tuple(at[e] for e in self._exprs)

    def __call__(self, env: Mapping[str, int]) -> list[Value]:
        """The values where symbols have those of ``env``; raises `ArithError` for one that has none."""
        try:
            values: list[Any] = [env[n] for n in self._names]
        except KeyError:
            values = [evaluate(s, env) for s in self._symbols]
        values += self._constants
        try:
            for step in self._steps:
                values.append(step(values))
        except ZeroDivisionError:  # perhaps in a branch not taken: each alone
            return [_alone(e, env) for e in self._exprs]
        return [values[k] for k in self._places]

    def function(self) -> Callable[..., tuple[Any, ...]]:
        """The same as one Python function of the symbols, in the order of `names`: some times faster, and dearer to
        make. It raises `ZeroDivisionError` where an expression divides by zero.

        >>> from idgraph.arith import symbol
        >>> n, m = symbol("n", 0), symbol("m", 0)
        >>> tape = Tape((n + 1, n * m, 7 // n))
        >>> tape.names, tape.function()(3, 4)
        (('n', 'm'), (4, 12, 2))
        """
        names = {n: f"s{k}" for k, n in enumerate(self._names)}
        lines = SourceLines(names)
        found = "".join([f"{lines.text(e)}, " for e in self._exprs])
        head = f"def numbers({', '.join(names.values())}):"
        space = dict(SPACE)
        exec("\n".join([head, *(f"    {line}" for line in lines.lines), f"    return ({found})"]), space)  # noqa: S102 - words of ours and integers
        return space["numbers"]

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols that the expressions have."""
        return self._names


class SourceLines:
    """Lines of Python that compute expressions, each once; ``names`` are the texts of symbols that have values.

    >>> from idgraph.arith import symbol
    >>> n = symbol("n", 0)
    >>> lines = Lines({"n": "s0"})
    >>> lines.text(n * 2 + 1), lines.text(n * 2), lines.lines
    ('v1', 'v0', ['v0 = 2 * s0', 'v1 = v0 + 1'])
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names, self.lines = dict(names), list[str]()
        self._texts: dict[Expr, str] = {}

    def text(self, e: Expr) -> str:
        """A name or a number with the value of ``e``; raises `KeyError` for a symbol without a name."""
        for n in _in_order([e]):
            if n in self._texts:
                continue
            if n.op == "const":
                self._texts[n] = repr(bool(n.value) if n.cond else n.value)
            elif n.op == "sym":
                self._texts[n] = self.names[n.name]
            else:
                found = _text(n, [self._texts[a] for a in n.args])
                self._texts[n] = name = f"v{len(self.lines)}"
                self.lines.append(f"{name} = {found}")
        return self._texts[e]


SPACE: Mapping[str, Any] = {"min": min, "max": max, "bool": bool}  # what the lines call
_INFIX = {
    "add": "+", "mul": "*", "floordiv": "//", "mod": "%", "xor": "^", "lt": "<", "le": "<=", "eq": "==", "ne": "!=",
    "and": "and", "or": "or",
}  # fmt: skip


def _text(node: Expr, operands: Sequence[str]) -> str:
    """The node's value as Python."""
    match node.op:
        case "min" | "max":
            return f"{node.op}({', '.join(operands)})"
        case "not":
            return f"not {operands[0]}"
        case "where":
            return f"{operands[1]} if {operands[0]} else {operands[2]}"
        case "and" | "or":
            return f"bool({_INFIX[node.op].join(f' {o} ' for o in operands)})"
        case _:
            return f" {_INFIX[node.op]} ".join(operands)


def _alone(e: Expr, env: Mapping[str, int]) -> Value:
    try:
        return evaluate(e, env)
    except ArithZeroDivisionError:
        return None


def _in_order(exprs: Sequence[Expr]) -> list[Expr]:
    """All nodes, each behind its operands; shared ones once."""
    found: dict[Expr, None] = {}
    work = list(reversed(exprs))
    while work:
        node = work[-1]
        missing = [a for a in node.args if a not in found]
        if missing:
            work.extend(missing)
            continue
        found[node] = None
        work.pop()
    return list(found)


def _step(node: Expr, at: tuple[int, ...]) -> _Step:
    """The node's value from those of its operands, which stand at these places."""
    if len(at) == 2:
        return _pair(node, *at)
    match node.op:
        case "add":
            return lambda v: sum([v[k] for k in at])
        case "mul":
            return lambda v: reduce(int.__mul__, [v[k] for k in at])
        case "min":
            return lambda v: min([v[k] for k in at])
        case "max":
            return lambda v: max([v[k] for k in at])
        case "xor":
            return lambda v: reduce(int.__xor__, [v[k] for k in at])
        case "and":
            return lambda v: all(v[k] for k in at)
        case "or":
            return lambda v: any(v[k] for k in at)
        case "not":
            return lambda v: not v[at[0]]
        case "where":
            return lambda v: v[at[1]] if v[at[0]] else v[at[2]]
        case _:
            raise ValueError(f"{node.op} has no step of {len(at)} operands")


def _pair(node: Expr, a: int, b: int) -> _Step:
    """A step of two operands."""
    match node.op:
        case "add":
            return lambda v: v[a] + v[b]
        case "mul":
            return lambda v: v[a] * v[b]
        case "floordiv":
            return lambda v: v[a] // v[b]
        case "mod":
            return lambda v: v[a] % v[b]
        case "min":
            return lambda v: min(v[a], v[b])
        case "max":
            return lambda v: max(v[a], v[b])
        case "xor":
            return lambda v: v[a] ^ v[b]
        case "lt":
            return lambda v: v[a] < v[b]
        case "le":
            return lambda v: v[a] <= v[b]
        case "eq":
            return lambda v: v[a] == v[b]
        case "ne":
            return lambda v: v[a] != v[b]
        case "and":
            return lambda v: bool(v[a] and v[b])
        case "or":
            return lambda v: bool(v[a] or v[b])
        case _:
            raise ValueError(f"{node.op} has no step of two operands")
