"""sympy in and out, with PyTorch's index functions."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sympy as real_sympy
from hypothesis import given
from hypothesis import strategies as st

from idgraph.arith import ArithError, from_sympy, parse, simplify, symbol, to_sympy
from tools.judges.random_expressions import Generator, difference

sympy: Any = real_sympy
i, j = sympy.symbols("i j", integer=True)


@given(st.integers(0, 2**40))
def test_round_trip_keeps_values(seed: int) -> None:
    pick = random.Random(seed)
    stream = Generator(seed).expressions()
    for _ in range(2):
        e = next(stream)
        back = from_sympy(to_sympy(e)).substitute({s.name: s for s in e.symbols})
        assert difference(e, back, pick) is None
        assert difference(back, e, pick) is None


def test_traps_of_sympy_do_not_bite() -> None:
    e = parse("8*(x//4%6)%32")
    s = to_sympy(e)
    for x in range(-50, 100):
        assert from_sympy(s).evaluate({"x": x}) == 8 * (x // 4 % 6) % 32
        assert int(s.subs({sympy.Symbol("x", integer=True): x})) == 8 * (x // 4 % 6) % 32
    assert from_sympy(to_sympy(parse("a ^ b"))).evaluate({"a": 6, "b": 3}) == 5


def test_sympys_own_functions() -> None:
    for text, expected in (
        (sympy.floor(i / 4) * 4 + sympy.Mod(i, 4), "i//4*4 + i%4"),
        (sympy.ceiling(i / 4), "-((-i)//4)"),
        (sympy.floor((i + j) / 8), "(i + j)//8"),
        (sympy.Min(i, j) + sympy.Max(i, 3), "max(i, 3) + min(i, j)"),
        (i**2, "i*i"),
        (sympy.Piecewise((i, i < 4), (j, True)), "where(i < 4, i, j)"),
        (sympy.And(i < 4, sympy.Ne(j, 2)), "(i < 4) & (j != 2)"),
    ):
        assert parse(str(from_sympy(text))).simplify() == parse(expected).simplify()


def test_signs_of_symbols_become_ranges() -> None:
    assert from_sympy(sympy.Symbol("k", integer=True, positive=True)).range.lo == 1
    assert from_sympy(sympy.Symbol("k", integer=True, nonnegative=True)).range.lo == 0
    assert from_sympy(i, {"i": 8}).range.hi == 7


@pytest.mark.parametrize(
    "bad", [i / 2, sympy.sin(i), sympy.sqrt(i), sympy.Float(1.5) * i, sympy.Symbol("x", real=True) / 3]
)
def test_what_has_no_integer_meaning(bad: Any) -> None:
    with pytest.raises(ArithError):
        from_sympy(bad)


def test_simplify_takes_sympy() -> None:
    assert str(simplify(sympy.floor(i / 4) * 4 + sympy.Mod(i, 4), {"i": 64})) == "i"


def test_torch_functions() -> None:
    functions = pytest.importorskip("torch.utils._sympy.functions")
    x = sympy.Symbol("x", integer=True, nonnegative=True)
    n = sympy.Symbol("n", integer=True, positive=True)
    env = {"x": 77, "n": 5}
    for tree, value in (
        (functions.FloorDiv(x, 4), 77 // 4),
        (functions.ModularIndexing(x, 4, 8), 77 // 4 % 8),
        (functions.ModularIndexing(x, 1, n), 77 % 5),
        (functions.CeilDiv(x, 4), -(-77 // 4)),
        (functions.PythonMod(x - 100, 7), (77 - 100) % 7),
        (functions.Mod(x, 8), 77 % 8),
        (functions.Where(sympy.Lt(x, 10), x, n), 5),
        (functions.Min(x, n), 5),
        (functions.Max(x, n), 77),
        (functions.CleanDiv(x * 4, 4), 77),
        (functions.Identity(x) + 1, 78),
    ):
        assert from_sympy(tree).evaluate(env) == value, tree
    assert symbol("x", 0) == next(iter(from_sympy(functions.FloorDiv(x, 4)).symbols))
