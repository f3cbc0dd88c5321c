"""Statements as numbers: a write's ``value`` is a formula of its reads, run in float64 at random inputs.

A formula is text in Python's syntax: ``r0``, ``r1`` ... are the write's reads in their order (0 where one does not
happen), names of loops are their numbers; it is parsed here, with limits, and evaluated only by this module. A program
whose writes all say what they compute is run in order; where a result is another number than the program means, a
constant or an operation is wrong.
"""

from __future__ import annotations

import ast
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.arith import TRUE, Expr, and_, simplify, symbol
from idgraph.check.program import (
    CheckError,
    IndirectIndex,
    LoadedValue,
    Nest,
    NeutralProgram,
    Read,
    StatementValue,
    Write,
    leaves,
    tree_of,
)
from idgraph.check.tree_machine import ORDERS, Place, Steps, TreeMachine
from idgraph.errors import IdGraphError
from idgraph.ir import Tensor
from idgraph.validate.oracle import evaluate, shape_of


def formula_names(w: Write) -> frozenset[str]:
    """The names in the addresses and conditions of a write."""
    return frozenset[str]().union(w.index.names, w.when.names, *(x.names for r in w.reads for x in (r.index, r.when)))


def unmasked(w: Write, loads: Mapping[str, LoadedValue], scope: Mapping[str, Expr]) -> Write:
    """A write that says what it stores, and is masked by loaded values, as one of the value that is there already
    where the mask does not hold.
    """
    mask = and_(*(c for c in w.when.conjuncts if c.names & loads.keys()))
    names = sorted(mask.names & loads.keys())
    plain = all(not x.text and not x.index.names & loads.keys() for x in (loads[n] for n in names))
    if w.value is None or not names or w.mode == "add" or not plain:
        return w
    count = len(w.reads)
    reads = (*w.reads, Read(w.buffer, w.index), *(Read(loads[n].buffer, loads[n].index) for n in names))
    shown = mask.substitute({n: symbol(f"r{count + 1 + k}") for k, n in enumerate(names)})
    known = frozenset(scope) | {f"r{k}" for k in range(len(reads))}
    value = parse_value(f"where({shown}, {w.value.text}, r{count})", known, "a mask")
    rest = and_(*(c for c in w.when.conjuncts if not c.names & loads.keys()))
    return replace(w, reads=reads, when=rest, value=value)


def with_loads(w: Write, loads: Mapping[str, LoadedValue], places: Mapping[str, IndirectIndex]) -> Write:
    """A write reads the loaded values that its formulas use, whether its reads say so or not."""
    found = {(r.buffer, simplify(r.index)) for r in w.reads}
    more: list[Read] = []
    uses = [(w.index, TRUE), (w.when, TRUE), *((r.when, TRUE) for r in w.reads), *((r.index, r.when) for r in w.reads)]
    seen: set[str] = set()
    while uses:
        e, when = uses.pop(0)
        for name in sorted(e.names - seen):
            seen.add(name)
            if name in places:
                uses.append((places[name].value, when))
            x = loads.get(name)
            if x is None or x.text:
                continue
            uses.append((x.index, when))
            if (x.buffer, simplify(x.index)) not in found:
                found.add((x.buffer, simplify(x.index)))
                more.append(Read(x.buffer, x.index, when))
    return replace(w, reads=(*w.reads, *more)) if more else w


Numbers = npt.NDArray[Any]
Draw = tuple[float, float, float | None]  # bounds of inputs, and the number that half of them are
Writer = tuple[Nest, Write, Mapping[str, int]]  # and where
DEPTH = 60
NODES = 2000
POINTS = 1 << 16
OPAQUE = "opaque"  # a computation that is not known
DRAWS = ((0.5, 1.5), (-2.0, 2.0), (-30.0, 30.0))  # of inputs: functions of positive numbers, both signs, large ones
SCALES = (1e-8, 1e4)  # constants are met by inputs as large; larger ones stand for infinity
EDGES = 12  # constants that inputs are equal to, where conditions change
SAMPLES, MOST_TRIES = 96, 24  # elements of inputs that are drawn of one kind, small inputs more often
CLOSE = 1e-3  # of the larger number: approximations of functions and orders of sums differ by less


def _rsqrt(a: Any) -> Any:
    return 1 / np.sqrt(a)


def _sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


def _product_and_sum(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _infinity() -> float:
    return math.inf


def _opaque() -> float:
    return math.nan


FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "neg": (1, np.negative), "add": (2, np.add), "sub": (2, np.subtract), "mul": (2, np.multiply),
    "div": (2, np.divide), "mod": (2, np.mod), "floordiv": (2, np.floor_divide), "min": (2, np.minimum),
    "max": (2, np.maximum), "abs": (1, np.abs), "exp": (1, np.exp), "log": (1, np.log), "sqrt": (1, np.sqrt),
    "rsqrt": (1, _rsqrt), "tanh": (1, np.tanh), "sin": (1, np.sin), "cos": (1, np.cos),
    "erf": (1, np.vectorize(math.erf, otypes=[float])), "floor": (1, np.floor), "ceil": (1, np.ceil),
    "pow": (2, np.power), "where": (3, np.where), "lt": (2, np.less), "le": (2, np.less_equal), "gt": (2, np.greater),
    "ge": (2, np.greater_equal), "eq": (2, np.equal), "ne": (2, np.not_equal), "and": (2, np.logical_and),
    "or": (2, np.logical_or), "not": (1, np.logical_not), "exp2": (1, np.exp2), "expm1": (1, np.expm1),
    "log2": (1, np.log2), "log10": (1, np.log10), "log1p": (1, np.log1p), "tan": (1, np.tan), "asin": (1, np.arcsin),
    "acos": (1, np.arccos), "atan": (1, np.arctan), "atan2": (2, np.arctan2), "sinh": (1, np.sinh),
    "cosh": (1, np.cosh), "sigmoid": (1, _sigmoid), "round": (1, np.round), "trunc": (1, np.trunc),
    "fma": (3, _product_and_sum), "inf": (0, _infinity), OPAQUE: (0, _opaque),
}  # fmt: skip
"""By name: the number of operands and the function, on float64."""
_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.BitAnd: "and", ast.BitOr: "or",
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
_WIDE = frozenset({"bool", "int32", "int64"})  # no number of a run is as large as these end
_EXACT = frozenset({
    "neg", "abs", "add", "sub", "mul", "fma", "min", "max", "where", "lt", "le", "gt", "ge", "eq", "ne", "trunc", "and",
    "or", "not",
})  # fmt: skip
_COMBINED: Mapping[str, Callable[..., Any]] = {"sum": np.sum, "amax": np.max, "amin": np.min, "prod": np.prod}


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


def number_of(v: StatementValue, env: Mapping[str, Any]) -> Any:
    """The value of a formula, of numbers or of arrays of draws; not a number where it has none.

    >>> float(number_of(parse_value("r0*2", frozenset({"r0"}), "value"), {"r0": 1.5}))
    3.0
    """
    if v.op == "number":
        return v.number
    if v.op == "name":
        if v.name not in env:
            raise CheckError(f"{v.name} has no number here")
        return env[v.name]
    return np.asarray(FUNCTIONS[v.op][1](*(number_of(x, env) for x in v.parts)), np.float64)


@dataclass(frozen=True, slots=True)
class OtherNumber:
    """A result that holds another number than the program means: which element, both numbers, who wrote it where."""

    tensor: str
    element: tuple[int, ...]
    found: float
    meant: float
    last: Writer


def computed(p: NeutralProgram) -> bool:
    """Whether all writes say what they compute; of integers and conditions, where floats compute the same."""
    every = [w for n in leaves(p.body or p.nests) for w in n.writes]
    stored = {b.tensor for b in p.buffers}
    types = {t.dtype for t in p.fusion.tensors if t.name in stored or not (t.dtype == "bool" or _is_position(t))}
    floats = all(t.startswith("float") for t in types)
    known = floats or all(t in _WIDE or t.startswith("float") for t in types)
    exact = floats or (known and all(w.value is None or _exact(w.value) for w in every))
    return exact and all(w.value is not None for w in every)


def _is_position(t: Tensor) -> bool:
    """Whether a tensor is made of no element: of floats, its numbers are those of loops."""
    return t.definition is not None and all(map(_is_position, t.definition.inputs))


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
    """The first element whose number is wrong at random inputs, at two draws of one range; None where none is, or where
    not all is known. Inputs are as large as each constant once: `min(x, 50)` is not a copy of x.
    """
    if not computed(p):
        return None
    elements = sum(math.prod(shape_of(t, sizes)) for t in p.fusion.inputs)
    tries = min(max(2, SAMPLES // max(elements, 1)), MOST_TRIES)
    m = _ValueMachine(p, dict(sizes), random.Random(0), ORDERS[0], ranges=_ranges(p, tries))
    found: dict[int, OtherNumber] = {}  # of each draw, the first
    try:
        for t, c, last, has, should, near in m.results():
            if last is not None:
                for k in np.flatnonzero(~near & ~np.isnan(has + should) & ~m.wraps):
                    found.setdefault(int(k), OtherNumber(t, c, float(has[k]), float(should[k]), last))
    except (IdGraphError, ArithmeticError):
        return None
    count = Counter(k // tries for k in found)
    return next((found[k] for k in sorted(found) if count[k // tries] > 1), None)


def numbers_agree(p: NeutralProgram, sizes: Mapping[str, int]) -> bool:
    """Whether all runs of what statements compute end with the program's numbers, in all orders, and touch nothing
    outside of a memory; False where not all is known.
    """
    if not computed(p):
        return False
    for seed, order in enumerate(ORDERS):
        m = _ValueMachine(p, dict(sizes), random.Random(seed), order, ranges=_ranges(p, 2))
        try:
            if not all((near | m.wraps).all() for *_, near in m.results()) or m.outside or m.wraps.all():
                return False
        except (IdGraphError, ArithmeticError):
            return False
    return True


def _ranges(p: NeutralProgram, tries: int) -> list[Draw]:
    """The draws, those of one kind side by side: of ranges, then with half of the inputs equal to a constant."""
    edges = sorted({s * c for c in (0.0, *_stated_constants(p)) for s in (-1, 1) if c <= SCALES[1]}, key=abs)[:EDGES]
    within = (*DRAWS, *((-4 * c, 4 * c) for c in _scales(p)))
    return [x for x in (*((*r, None) for r in within), *((-2.0, 2.0, c) for c in edges)) for _ in range(tries)]


def _stated_constants(p: NeutralProgram) -> set[float]:
    """The constants of a program and of what it should mean, without their signs."""
    found = {abs(float(c)) for e in p.fusion.exprs for c in (*e.args, *e.attrs.values()) if isinstance(c, (int, float))}
    work = [w.value for n in leaves(p.body or p.nests) for w in n.writes if w.value is not None]
    while work:
        v = work.pop()
        work += v.parts
        if v.op == "number":
            found.add(abs(v.number))
    return found


def _scales(p: NeutralProgram) -> list[float]:
    """Powers of ten near the constants, of those that `DRAWS` do not meet."""
    found = _stated_constants(p)
    least, most = SCALES
    found = {c for c in found if least <= c <= most} | {1.0}  # functions bend near one
    found |= {r for a in found for b in found for r in (a / b, a * b)}  # `min(0.001*x, 0.5)` bends at 500
    return sorted({10.0 ** math.ceil(math.log10(c)) for c in found if not 0.1 <= c <= 10})


def _typical(x: Any) -> float:
    """The root of the mean square of the numbers that are finite."""
    finite = np.asarray(x, np.float64)
    finite = finite[np.abs(finite) < 1e150]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


@dataclass(slots=True)
class _ValueMachine(TreeMachine):
    """Statements compute what they say, in float64: a place holds one number for each draw of the inputs."""

    ranges: Sequence[Draw] = ()
    last: dict[Place, Writer] = field(default_factory=dict[Place, Writer])
    whole: bool = False  # there are integers
    wraps: Numbers = field(default_factory=lambda: np.zeros(0, bool))  # at a draw, in some type

    def results(self) -> Iterator[tuple[str, tuple[int, ...], Writer | None, Numbers, Numbers, Numbers]]:
        """Of each element of a result: who wrote it, its numbers, those that it should have, and which are close."""
        f, draw = self.program.fusion, np.random.default_rng(self.draw.getrandbits(32))
        self.whole = any(not (t.dtype.startswith(("bool", "float")) or _is_position(t)) for t in f.tensors)
        self.wraps = np.zeros(len(self.ranges), bool)
        if sum(math.prod(shape_of(t, self.sizes)) for t in f.tensors) > POINTS:
            raise CheckError("too many elements are computed")
        with np.errstate(all="ignore"):
            drawn = [{t.name: self.numbers(draw, t, *r) for t in f.inputs} for r in self.ranges]
            meant = [evaluate(f, inputs, self.sizes, rounded=False) for inputs in drawn]
            self.start({t.name: np.stack([d[t.name] for d in drawn], axis=-1) for t in f.inputs})
            for _ in self.nodes(tree_of(self.program), {}, {}):
                pass
            for t in f.outputs:
                b = next((b for b in self.program.buffers if b.tensor == t.name), None)
                if b is None:
                    raise CheckError(f"no buffer says where {t.name}, a result, lies")
                all_meant = np.stack([np.asarray(x[t.name], np.float64) for x in meant], axis=-1)
                typical = [_typical(all_meant[..., k]) for k in range(len(self.ranges))]
                least = 1e-2 * np.maximum(typical, [min(high, 1.0) for _, high, _ in self.ranges])
                for c, at in self.places(b, shape_of(t, self.sizes)):
                    has, should = np.asarray(self.load(b.home, at), np.float64), all_meant[c]
                    near = np.abs(has - should) <= CLOSE * np.maximum(np.maximum(np.abs(has), np.abs(should)), least)
                    same = (has == should) | (np.isnan(has) & np.isnan(should))
                    near: Numbers = same | (near & np.isfinite(has) & np.isfinite(should))
                    yield t.name, c, self.last.get((b.home, at)), has, should, near

    def numbers(self, draw: np.random.Generator, t: Tensor, low: float, high: float, edge: float | None) -> Numbers:
        """Numbers of a range, half of them ``edge``; of integers, half are a constant or one beside it."""
        shape = shape_of(t, self.sizes)
        found = draw.uniform(low, high, shape)
        if t.dtype == "bool":
            return found > (low + high) / 2
        if t.dtype.startswith("float"):
            return found if edge is None else np.where(draw.random(shape) < 0.5, edge, found)
        near = [
            s * int(c) + k
            for c in _stated_constants(self.program)
            if c <= max(abs(low), 9)
            for s in (-1, 1)
            for k in (-1, 0, 1)
        ]
        some = draw.choice(np.array([*near, 0]), shape)
        return np.where(draw.random(shape) < 0.5, some, np.trunc(found)).astype(np.int64)

    def unwritten(self) -> Numbers:
        found = np.array([self.draw.uniform(-99, 99) for _ in self.ranges])
        return np.trunc(found) if self.whole else found

    def point(self, n: Nest, at: Mapping[str, int], homes: Mapping[str, str]) -> Steps:
        if n.loads or n.places or n.position is not None or n.unread or n.loose:
            raise CheckError(f"{n.name} is not run on numbers")
        if self.steps > POINTS:
            raise CheckError("too many points are run")
        for w in n.writes:
            values: list[Any] = []
            env = {**self.sizes, **at}
            for inner in self.points(n.reduce):
                env = {**self.sizes, **at, **inner}
                if w.when.evaluate(env) and w.value is not None:
                    values.append(number_of(w.value, {**env, **self.read(w, env, homes)}))
            yield bool(values)
            if values:
                to = self.place(w.buffer, w.index, env, homes)
                total = self.combined(w, values) if n.reduce else values[0]
                if self.whole:
                    self.wraps = self.wraps | (np.isfinite(total) & (np.abs(total) >= 1 << 31))
                total = total + (self.load(*to) if w.mode == "add" else 0.0)
                self.memory[to] = np.broadcast_to(total, self.wraps.shape)
                self.last[to] = n, w, dict(at)
            yield False

    def read(self, w: Write, env: Mapping[str, int], homes: Mapping[str, str]) -> dict[str, Any]:
        return {
            f"r{k}": self.load(*self.place(r.buffer, r.index, env, homes)) if r.when.evaluate(env) else 0.0
            for k, r in enumerate(w.reads)
        }

    def combined(self, w: Write, values: Sequence[Any]) -> Any:
        b = self.buffers.get(w.buffer)
        t = next((t for t in self.program.fusion.tensors if b is not None and t.name == b.tensor), None)
        op = t.definition.op if t is not None and t.definition is not None else ""
        if op not in _COMBINED:
            raise CheckError(f"how {w.buffer} is combined is not known")
        return _COMBINED[op](np.broadcast_arrays(*values), axis=0)
