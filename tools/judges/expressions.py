"""The expressions of ``expressions.txt``: read, evaluated and costed with nothing of the library.

Texts are read by Python's own parser and evaluated by a walk over its tree with NumPy, at every point of the ranges
where they are finite and at a box around zero where they are not.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FILE = Path(__file__).with_name("expressions.txt")
MAX_POINTS = 400_000
Values = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """``lo <= s < hi`` (None: no bound; a name: that symbol), and ``s`` a multiple of ``step``."""

    lo: int | None
    hi: int | str | None
    step: int = 1


@dataclass(frozen=True, slots=True)
class Case:
    """One expression with its ranges and its known minimal form."""

    kind: str
    text: str
    ranges: dict[str, Bounds]
    minimal: str

    @property
    def api_ranges(self) -> dict[str, Any]:
        """The ranges as the library's API takes them."""
        out: dict[str, Any] = {}
        for name, b in self.ranges.items():
            if b.lo is None and b.hi is None:
                continue
            out[name] = (b.lo, b.hi) if b.step == 1 else (b.lo, b.hi, b.step)
        return out


def read_ranges(text: str) -> dict[str, Bounds]:
    """``i:64 j:n n:1..%8`` as bounds by name."""
    out: dict[str, Bounds] = {}
    for part in text.split():
        name, _, spec = part.partition(":")
        spec, _, step = spec.partition("%")
        lo, dots, hi = spec.partition("..")
        if not dots:
            lo, hi = "0", lo
        out[name] = Bounds(
            int(lo) if lo else None, int(hi) if hi.lstrip("-").isdigit() else hi or None, int(step) if step else 1
        )
    return out


def load(path: Path = FILE) -> list[Case]:
    """All cases of the file."""
    out: list[Case] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            # `|` also joins conditions, there always between parentheses
            first, text, *middle, ranges, minimal = _columns(line)
            text = " | ".join([text, *middle])
            out.append(Case(first, text, read_ranges(ranges), minimal))
    return out


def _columns(line: str) -> list[str]:
    parts = [p.strip() for p in line.split(" | ")]
    merged: list[str] = []
    for p in parts:
        if merged and merged[-1].endswith(")") and p.startswith("(") and len(merged) >= 2:
            merged[-1] += " | " + p
        else:
            merged.append(p)
    return merged


# ---- values ----------------------------------------------------------------------------------------------------
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.FloorDiv: np.floor_divide, ast.Mod: np.remainder,
    ast.BitXor: np.bitwise_xor, ast.BitAnd: np.bitwise_and, ast.BitOr: np.bitwise_or,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal, ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}  # fmt: skip


def evaluate(text: str, env: dict[str, Values]) -> Any:
    """The values of ``text`` (divisors must not be zero)."""
    return _value(ast.parse(text.strip(), mode="eval").body, env)


def _value(node: ast.expr, env: dict[str, Values]) -> Any:
    match node:
        case ast.Constant(value=value):
            return bool(value) if isinstance(value, bool) else int(str(value))
        case ast.Name(id=name):
            return env[name]
        case ast.BinOp(left=a, op=op, right=b):
            return _BINARY[type(op)](_value(a, env), _value(b, env))
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return -_value(a, env)
        case ast.UnaryOp(op=ast.Invert(), operand=a):
            return np.logical_not(_value(a, env))
        case ast.Compare(left=a, ops=[op], comparators=[b]):
            return _COMPARE[type(op)](_value(a, env), _value(b, env))
        case ast.Call(func=ast.Name(id="where"), args=[c, a, b]):
            choose: Any = np.where  # its stub types no mixed branches
            return choose(_value(c, env), _value(a, env), _value(b, env))
        case ast.Call(func=ast.Name(id=("min" | "max") as name), args=args):
            pick = np.minimum if name == "min" else np.maximum
            out = _value(args[0], env)
            for a in args[1:]:
                out = pick(out, _value(a, env))
            return out
        case _:
            raise ValueError(f"not index syntax: {ast.dump(node)}")


def cost(text: str) -> int:
    """+ - * // % min max where compare xor in the text; a minus before a number is part of the number."""
    total = 0
    for node in ast.walk(ast.parse(text.strip(), mode="eval")):
        match node:
            case ast.BinOp(op=op):
                total += not isinstance(op, ast.BitAnd | ast.BitOr)
            case ast.UnaryOp(op=ast.USub(), operand=a):
                total += not isinstance(a, ast.Constant)
            case ast.Compare(ops=ops):
                total += len(ops)
            case ast.Call(func=ast.Name(id="where")):
                total += 1
            case ast.Call(args=args):
                total += len(args) - 1
            case _:
                pass
    return total


def divmods(text: str) -> int:
    """Divisions and modulos in the text."""
    found = ast.walk(ast.parse(text.strip(), mode="eval"))
    return sum(isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv | ast.Mod) for n in found)


def points(ranges: dict[str, Bounds]) -> dict[str, Values]:
    """Every point of the ranges; an unbounded side is cut some way from zero, large boxes are thinned."""
    extents = [n for n in ranges if any(o.hi == n for o in ranges.values())]
    names = [*extents, *(n for n in ranges if n not in extents)]
    reach = 5 if len(extents) > 1 else 9
    options: list[list[int]] = []
    for name in names:
        b = ranges[name]
        symbolic = isinstance(b.hi, str)
        lo = b.lo if b.lo is not None else -40
        hi = b.hi if isinstance(b.hi, int) else reach if symbolic else lo + (reach if name in extents else 80)
        values = [v for v in range(lo, hi * b.step if name in extents else hi) if v % b.step == 0]
        options.append(values)
    total = int(np.prod([float(len(o)) for o in options]))
    thin = max(1, -(-total // MAX_POINTS))
    grid = itertools.islice(itertools.product(*options), 0, None, thin)
    table = np.array(list(grid), dtype=np.int64).reshape(-1, len(names))
    env = {name: table[:, k] for k, name in enumerate(names)}
    keep = np.ones(len(table), np.bool_)
    for name, bounds in ranges.items():
        if isinstance(bounds.hi, str):
            keep &= env[name] < env[bounds.hi]
    return {name: v[keep] for name, v in env.items()}


def differs(case: Case, text: str) -> str | None:
    """Where ``text`` is not equal to the case's expression, or None."""
    env = points(case.ranges)
    a, b = evaluate(case.text, env), evaluate(text, env)
    bad: Any = np.flatnonzero(np.broadcast_to(a, b.shape) != b) if np.ndim(b) else np.flatnonzero(a != b)
    if not len(bad):
        return None
    at = {name: int(v[bad[0]]) for name, v in env.items()}
    return f"{case.text} against {text} at {at}"
