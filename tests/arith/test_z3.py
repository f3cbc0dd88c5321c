"""A second opinion: z3, where it is installed, agrees that simplification keeps values, for every integer in range."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from idgraph.arith import Expr, parse, simplify
from idgraph.arith.expr import postorder
from tools.judges.expressions import Case, load
from tools.judges.random_expressions import Generator, all_symbols

z3: Any = pytest.importorskip("z3", reason="z3-solver is an optional second opinion")
TIMEOUT_MS = 2000


def to_z3(e: Expr) -> Any:
    """``e`` as a z3 term; z3's div and mod floor for positive divisors, and constants here are made positive."""
    done: dict[Expr, Any] = {}
    for node in postorder(e):
        args = [done[a] for a in node.args]
        match node.op:
            case "const":
                out: Any = z3.BoolVal(bool(node.value)) if node.cond else z3.IntVal(node.value)
            case "sym":
                out = z3.Int(node.name)
            case "add":
                out = z3.Sum(args)
            case "mul":
                out = z3.Product(args)
            case "floordiv":
                out = z3.If(args[1] > 0, args[0] / args[1], (-args[0]) / (-args[1]))
            case "mod":
                out = z3.If(args[1] > 0, args[0] % args[1], -((-args[0]) % (-args[1])))
            case "min" | "max":
                out = args[0]
                for a in args[1:]:
                    out = z3.If(out < a, out, a) if node.op == "min" else z3.If(out > a, out, a)
            case "where":
                out = z3.If(*args)
            case "lt":
                out = args[0] < args[1]
            case "le":
                out = args[0] <= args[1]
            case "eq":
                out = args[0] == args[1]
            case "ne":
                out = args[0] != args[1]
            case "and":
                out = z3.And(*args)
            case "or":
                out = z3.Or(*args)
            case "not":
                out = z3.Not(args[0])
            case "xor":
                pytest.skip("z3's integers have no exclusive or")
        done[node] = out
    return done[e]


def agrees(before: Expr, after: Expr) -> None:
    """No counterexample is found in the time given; an undefined point is not a counterexample."""
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT_MS)
    for s in all_symbols(before, after):
        lo, hi, step, first = s.symbol_bounds
        x = z3.Int(s.name)
        for bound, low in ((lo, True), (hi, False)):
            if bound is not None:
                b = to_z3(bound) if isinstance(bound, Expr) else z3.IntVal(bound)
                solver.add(x >= b if low else x <= b)
        solver.add(x % step == first)
    for node in postorder(before):
        if node.op in ("floordiv", "mod"):
            solver.add(to_z3(node.args[1]) != 0)
    solver.add(to_z3(before) != to_z3(after))
    assert solver.check() != z3.sat, (str(before), str(after), solver.model())


KNOWN = [c for c in load() if c.kind in ("symbolic", "signed", "carry", "rotation", "where", "condition")]


@pytest.mark.slow
@pytest.mark.parametrize("case", KNOWN, ids=[f"{c.kind}: {c.text}" for c in KNOWN])
def test_known_expressions(case: Case) -> None:
    e = parse(case.text, case.api_ranges)
    agrees(e, simplify(e))


@pytest.mark.slow
def test_random_expressions() -> None:
    found = (e for e in Generator(99).expressions() if all(n.op != "xor" for n in postorder(e)))
    for e in itertools.islice(found, 60):
        agrees(e, simplify(e))
