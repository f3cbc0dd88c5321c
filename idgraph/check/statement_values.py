"""Statements as numbers: a write's ``value`` is a formula of its reads, run in float64 at random inputs.

A formula is text in Python's syntax: ``r0``, ``r1`` ... are the write's reads in their order (0 where one does not
happen), names of loops are their numbers; it is parsed here, with limits, and evaluated only by this module. A program
whose writes all say what they compute is run in order; where a result is another number than the program means, a
constant or an operation is wrong.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from idgraph.check.program import (
    ZERO,
    BufferLayout,
    CheckError,
    Nest,
    NeutralProgram,
    StatementValue,
    TreeGuard,
    TreeNode,
    Write,
    leaves,
    tree_of,
)
from idgraph.errors import IdGraphError
from idgraph.ir import Tensor
from idgraph.validate.oracle import evaluate, shape_of

DEPTH = 60
NODES = 2000
POINTS = 1 << 16
OPAQUE = "opaque"  # a computation that is not known
DRAWS = ((0.5, 1.5), (-2.0, 2.0), (-30.0, 30.0))  # of inputs: functions of positive numbers, both signs, large ones
SCALES = (1e-8, 1e4)  # constants are met by inputs as large; larger ones stand for infinity
CLOSE = 1e-3  # of the larger number: approximations of functions and orders of sums differ by less


def _float_power(a: float, b: float) -> float:
    return math.pow(a, b)


def _float_quotient(a: float, b: float) -> float:
    return a / b


def _floor_quotient(a: float, b: float) -> float:
    return a // b


def _rsqrt(a: float) -> float:
    return 1 / math.sqrt(a)


def _conditional(c: float, a: float, b: float) -> float:
    return a if c else b


def _logical_and(a: float, b: float) -> bool:
    return bool(a) and bool(b)


def _logical_or(a: float, b: float) -> bool:
    return bool(a) or bool(b)


def _exp2(a: float) -> float:
    return math.pow(2.0, a)


def _sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a))


def _product_and_sum(a: float, b: float, c: float) -> float:
    return a * b + c


def _infinity() -> float:
    return math.inf


def _opaque() -> float:
    return math.nan


FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "neg": (1, operator.neg), "add": (2, operator.add), "sub": (2, operator.sub), "mul": (2, operator.mul),
    "div": (2, _float_quotient), "mod": (2, operator.mod), "floordiv": (2, _floor_quotient), "min": (2, min),
    "max": (2, max), "abs": (1, abs), "exp": (1, math.exp), "log": (1, math.log), "sqrt": (1, math.sqrt),
    "rsqrt": (1, _rsqrt), "tanh": (1, math.tanh), "sin": (1, math.sin), "cos": (1, math.cos), "erf": (1, math.erf),
    "floor": (1, math.floor), "ceil": (1, math.ceil), "pow": (2, _float_power), "where": (3, _conditional),
    "lt": (2, operator.lt), "le": (2, operator.le), "gt": (2, operator.gt), "ge": (2, operator.ge),
    "eq": (2, operator.eq), "ne": (2, operator.ne), "and": (2, _logical_and), "or": (2, _logical_or),
    "not": (1, operator.not_), "exp2": (1, _exp2), "expm1": (1, math.expm1), "log2": (1, math.log2),
    "log10": (1, math.log10), "log1p": (1, math.log1p), "tan": (1, math.tan), "asin": (1, math.asin),
    "acos": (1, math.acos), "atan": (1, math.atan), "atan2": (2, math.atan2), "sinh": (1, math.sinh),
    "cosh": (1, math.cosh), "sigmoid": (1, _sigmoid), "round": (1, round), "trunc": (1, math.trunc),
    "fma": (3, _product_and_sum), "inf": (0, _infinity), OPAQUE: (0, _opaque),
}  # fmt: skip
"""By name: the number of operands and the function, on floats."""
_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.BitAnd: "and", ast.BitOr: "or",
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
_WIDE = frozenset({"bool", "int32", "int64"})  # no number of a run is as large as these end
_EXACT = frozenset(
    {"neg", "add", "sub", "mul", "fma", "min", "max", "where", "lt", "le", "gt", "ge", "eq", "ne", "trunc"}
)
_COMBINED: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": math.fsum, "amax": max, "amin": min, "prod": math.prod,
}  # fmt: skip


def parse_value(text: str, names: frozenset[str], where: str) -> StatementValue:
    """A formula of ``names``; raises `CheckError`.

    >>> parse_value("r0*2.5 + max(r1, 0)", frozenset({"r0", "r1"}), "value").text
    'r0*2.5 + max(r1, 0)'
    """
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise CheckError(f"{where}: {text[:80]!r} is not a formula") from None
    count = [0]

    def node(e: ast.expr, depth: int) -> StatementValue:
        count[0] += 1
        if depth > DEPTH or count[0] > NODES:
            raise CheckError(f"{where}: the formula is too large")

        def inner(op: str, *parts: ast.expr) -> StatementValue:
            return StatementValue(op, tuple(node(x, depth + 1) for x in parts))

        match e:
            case ast.Constant(value=bool() | int() | float() as number) if abs(number) < 1e300:
                return StatementValue("number", number=float(number))
            case ast.Name(id=name) if name in names:
                return StatementValue("name", name=name)
            case ast.UnaryOp(op=ast.USub(), operand=x):
                return inner("neg", x)
            case ast.UnaryOp(op=ast.Not(), operand=x):
                return inner("not", x)
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _BINARY:
                return inner(_BINARY[type(op)], a, b)
            case ast.BoolOp(op=op, values=[a, b]):
                return inner("and" if isinstance(op, ast.And) else "or", a, b)
            case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _COMPARE:
                return inner(_COMPARE[type(op)], a, b)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
                name in FUNCTIONS and len(args) == FUNCTIONS[name][0]
            ):
                return inner(name, *args)
            case _:
                what = ast.unparse(e)[:80]
                known = f"{', '.join(sorted(names)[:8]) or 'no names'} (the reads are r0, r1, ...)"
                hint = f"{known}; functions: {', '.join(FUNCTIONS)}"
                raise CheckError(f"{where}: {what!r} is not known here", hint=hint)

    return replace(node(tree.body, 0), text=text)


def number_of(v: StatementValue, env: Mapping[str, float]) -> float:
    """The value of a formula; not a number where it has none.

    >>> number_of(parse_value("r0*2", frozenset({"r0"}), "value"), {"r0": 1.5})
    3.0
    """
    if v.op == "number":
        return v.number
    if v.op == "name":
        if v.name not in env:
            raise CheckError(f"{v.name} has no number here")
        return env[v.name]
    try:
        found = FUNCTIONS[v.op][1](*(number_of(x, env) for x in v.parts))
    except (ArithmeticError, ValueError):
        return math.nan
    return math.nan if isinstance(found, complex) else float(found)


@dataclass(frozen=True, slots=True)
class OtherNumber:
    """A result that holds another number than the program means: which element, who wrote it where, both numbers."""

    tensor: str
    element: tuple[int, ...]
    nest: Nest
    write: Write
    point: Mapping[str, int]
    found: float
    meant: float


def computed(p: NeutralProgram) -> bool:
    """Whether all writes say what they compute; of integers and conditions, where floats compute the same."""
    every = [w for n in leaves(p.body or p.nests) for w in n.writes]
    types = {t.dtype for t in p.fusion.tensors}
    floats = all(t.startswith("float") for t in types)
    known = floats or all(t in _WIDE or t.startswith("float") for t in types)
    exact = floats or (known and all(w.value is None or _exact(w.value) for w in every))
    return exact and bool(every) and all(w.value is not None for w in every)


def _exact(v: StatementValue) -> bool:
    """Whether a formula has the same value of floats as of integers, which one of loops only always has."""
    return not _has_read(v) or v.op == "name" or (v.op in _EXACT and all(map(_exact, v.parts)))


def _has_read(v: StatementValue) -> bool:
    return re.fullmatch(r"r\d+", v.name) is not None or any(map(_has_read, v.parts))


def opaque_write(p: NeutralProgram) -> tuple[Nest, Write] | None:
    """The first write whose value names a computation that is not known."""

    def opaque(v: StatementValue) -> bool:
        return v.op == OPAQUE or any(opaque(x) for x in v.parts)

    if not computed(p):
        return None
    every = ((n, w) for n in leaves(p.body or p.nests) for w in n.writes)
    return next(((n, w) for n, w in every if w.value is not None and opaque(w.value)), None)


def other_number(p: NeutralProgram, sizes: Mapping[str, int]) -> OtherNumber | None:
    """The first element whose number is wrong at random inputs, twice drawn from one range; None where none is, or
    where not all is known. Inputs are as large as each constant once: `min(x, 50)` is not a copy of x.
    """
    if not computed(p):
        return None
    for low, high in (*DRAWS, *((-4 * c, 4 * c) for c in _scales(p))):
        try:
            found = _Run(p, dict(sizes), 0, low, high).wrong()
            if found is not None and _Run(p, dict(sizes), 1, low, high).wrong() is not None:
                return found
        except (IdGraphError, ArithmeticError):
            continue
    return None


def _scales(p: NeutralProgram) -> list[float]:
    """Powers of ten near the constants of a program and of what it should mean, of those that `DRAWS` do not meet."""
    found = {abs(float(c)) for e in p.fusion.exprs for c in (*e.args, *e.attrs.values()) if isinstance(c, (int, float))}
    work = [w.value for n in leaves(p.body or p.nests) for w in n.writes if w.value is not None]
    while work:
        v = work.pop()
        work += v.parts
        if v.op == "number":
            found.add(abs(v.number))
    least, most = SCALES
    found = {c for c in found if least <= c <= most} | {1.0}  # functions bend near one
    found |= {r for a in found for b in found for r in (a / b, a * b)}  # `min(0.001*x, 0.5)` bends at 500
    return sorted({10.0 ** math.ceil(math.log10(c)) for c in found if not 0.1 <= c <= 10})


def _typical(x: Any) -> float:
    """The root of the mean square of the numbers that are finite."""
    finite = np.asarray(x, np.float64)
    finite = finite[np.isfinite(finite)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


@dataclass(slots=True)
class _Run:
    program: NeutralProgram
    sizes: dict[str, int]
    seed: int
    low: float
    high: float
    memory: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    last: dict[tuple[str, int], tuple[Nest, Write, Mapping[str, int]]] = field(
        default_factory=dict[tuple[str, int], tuple[Nest, Write, Mapping[str, int]]]
    )
    steps: int = 0
    whole: bool = False  # there are integers

    def __post_init__(self) -> None:
        self.whole = any(not t.dtype.startswith("float") for t in self.program.fusion.tensors)

    def places(self, b: BufferLayout) -> Iterator[tuple[tuple[int, ...], int]]:
        t = next(t for t in self.program.fusion.tensors if t.name == b.tensor)
        start, steps = int(b.offset.evaluate(self.sizes)), [int(s.evaluate(self.sizes)) for s in b.strides]
        for c in product(*map(range, shape_of(t, self.sizes))):
            yield c, start + sum(x * s for x, s in zip(c, steps, strict=True))

    def wrong(self) -> OtherNumber | None:
        f, draw = self.program.fusion, np.random.default_rng(self.seed)
        if sum(math.prod(shape_of(t, self.sizes)) for t in f.tensors) > POINTS:
            raise CheckError("too many elements are computed")
        inputs = {t.name: self.numbers(draw, t) for t in f.inputs}
        meant = evaluate(f, inputs, self.sizes, rounded=False)
        for b in self.program.buffers:
            if b.tensor in inputs:
                self.memory.update({(b.home, at): float(inputs[b.tensor][c]) for c, at in self.places(b)})
        self.nodes(tree_of(self.program), {})
        for t in f.outputs:
            b = next((b for b in self.program.buffers if b.tensor == t.name), None)
            least = 1e-2 * max(_typical(meant[t.name]), min(self.high, 1.0))
            for c, at in self.places(b) if b is not None else ():
                place = b.home if b is not None else "", at
                has, should = self.memory.get(place, math.nan), float(meant[t.name][c])
                near = not abs(has - should) > CLOSE * max(abs(has), abs(should), least)  # not a number: not known
                near = near and (math.isinf(has) == math.isinf(should) or math.isnan(has + should))
                if not near and place in self.last:
                    return OtherNumber(t.name, c, *self.last[place], has, should)
        return None

    def numbers(self, draw: np.random.Generator, t: Tensor) -> Any:
        found = draw.uniform(self.low, self.high, shape_of(t, self.sizes))
        if t.dtype.startswith("float"):
            return found
        return found > (self.low + self.high) / 2 if t.dtype == "bool" else np.trunc(found).astype(np.int64)

    def nodes(self, body: Sequence[TreeNode], at: Mapping[str, int]) -> None:
        for node in body:
            if isinstance(node, TreeGuard):
                if node.when.evaluate({**self.sizes, **at}):
                    self.nodes(node.body, at)
            elif isinstance(node, Nest):
                spans = [range(int(a.extent.evaluate(self.sizes))) for a in node.loops]
                for c in product(*spans):
                    self.nest(node, {**at, **dict(zip((a.name for a in node.loops), c, strict=True))})
            else:
                for k in range(int(node.axis.extent.evaluate(self.sizes))):
                    self.nodes(node.body, {**at, node.axis.name: k})

    def nest(self, n: Nest, at: Mapping[str, int]) -> None:
        if n.loads or n.places or n.position is not None or n.unread or n.loose:
            raise CheckError(f"{n.name} is not run on numbers")
        for w in n.writes:
            values: list[float] = []
            env = {**self.sizes, **at}
            for c in product(*(range(int(a.extent.evaluate(self.sizes))) for a in n.reduce)):
                self.steps += 1
                if self.steps > POINTS:
                    raise CheckError("too many points are run")
                env = {**self.sizes, **at, **dict(zip((a.name for a in n.reduce), c, strict=True))}
                if w.when.evaluate(env) and w.value is not None:
                    values.append(number_of(w.value, {**env, **self.read(w, env)}))
            if not values:
                continue
            to = self.place(w.buffer, int(w.index.evaluate(env)))
            total = self.combined(w, values) if n.reduce else values[0]
            if self.whole and abs(total) >= 1 << 31:
                raise CheckError("an integer may wrap")
            self.memory[to] = total + (self.memory.get(to, math.nan) if w.mode == "add" else 0.0)
            self.last[to] = n, w, dict(at)

    def read(self, w: Write, env: Mapping[str, int]) -> dict[str, float]:
        out: dict[str, float] = {}
        for k, r in enumerate(w.reads):
            live = r.when.evaluate(env)
            out[f"r{k}"] = self.memory.get(self.place(r.buffer, int(r.index.evaluate(env))), math.nan) if live else 0.0
        return out

    def place(self, name: str, index: int) -> tuple[str, int]:
        b = next((b for b in self.program.buffers if b.name == name), None)
        home, base = (b.home, b.base) if b is not None else self.program.memory.get(name, (name, ZERO))
        return home, index + int(base.evaluate(self.sizes))

    def combined(self, w: Write, values: Sequence[float]) -> float:
        b = next((b for b in self.program.buffers if b.name == w.buffer), None)
        t = next((t for t in self.program.fusion.tensors if b is not None and t.name == b.tensor), None)
        op = t.definition.op if t is not None and t.definition is not None else ""
        if op not in _COMBINED:
            raise CheckError(f"how {w.buffer} is combined is not known")
        return _COMBINED[op](values)
