"""The text form: printing, reading, ranges, and what ends in one clear error."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from idgraph.arith import ArithError, Expr, Range, parse, ranged_symbols, symbol
from idgraph.arith import expr as nodes
from idgraph.arith import text as text_module

TEXTS = [
    "i", "-i", "8 - i", "i*-4", "i//4", "i//(-4)", "(-i)//4", "-(i//4)", "(i + j)*2", "i*32 + j%8", "i%4*8",
    "i//4%8", "i - (i//4 + 1)//2", "n*(i//4)//3", "(i*n + j)//(n*m)", "min(i, 3)", "max(i, min(j, 4))", "i ^ 3",
    "(i ^ j)%8", "(i + 1) ^ j ^ 5", "where(i < 4, i, j)", "where((i < 4) & (j >= 2), i, -j)", "i < 4", "i > 4",
    "i <= j", "i == j", "i != 3", "(i < 4) & (j < 2)", "(i < 4) | ((j < 2) & (k == 1))", "-i - j", "i*-3 - 2",
    "i*j*-1 + 4", "0", "-5", "`a b` + `min`*2", "x.y + 1", "True", "12345678901234567890*i",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(text: str) -> None:
    e = parse(text)
    assert parse(str(e)) == e
    assert str(parse(str(e))) == str(e)


def test_precedence_is_pythons() -> None:
    env = {"a": 13, "b": 5, "c": 3}
    for text in ("a - b - c", "a // b * c", "a * b // c % 4", "-a // b", "a ^ b + c", "a - -b", "a % b - c * 2"):
        assert parse(text).evaluate(env) == eval(text, {}, dict(env)), text  # noqa: S307  # our own texts
    assert str(parse("0 <= a < 8")) == "(a >= 0) & (a < 8)"
    assert parse("not a < b or c == 3") == parse("(a >= b) | (c == 3)")


def test_ranges() -> None:
    scope = ranged_symbols({"i": 64, "j": "n", "n": (1, None), "k": (-4, 4), "m": (0, None, 8), "r": Range(2, 5)})
    assert scope["i"].range == Range(0, 63)
    assert str(scope["j"].symbol_bounds[1]) == "n - 1"
    assert scope["k"].range == Range(-4, 3)
    assert scope["m"].symbol_bounds[2] == 8
    assert scope["r"].range == Range(2, 5)
    assert ranged_symbols({"i": range(0, 10, 2)})["i"].range == Range(0, 8)
    assert ranged_symbols({"j": symbol("q", 4, 4)})["j"].range == Range(0, 3)
    assert ranged_symbols({"j": "n*m", "n": 4, "m": 5})["j"].range == Range(0, 11)


@pytest.mark.parametrize(
    "ranges",
    [{"i": "j", "j": "i"}, {"i": "i"}, {"i": (1, 2, 0)}, {"i": 1.5}, {"i": "4 +"}, {"i": (1,)}, {"i": range(9, 0, -1)}],
)
def test_bad_ranges(ranges: dict[str, object]) -> None:
    with pytest.raises(ArithError):
        parse("i", ranges)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "(", ")", "i j", "i +", "+", "i + * j", "min(", "min()", "min i", "where(i, j)", "i, j", "i $ j", "()",
        "1 2", "`i", "(" * 1000 + "i" + ")" * 1000, "-" * 5000 + "i", "9" * 5000, "(i < 3) + 1", "i & j", "lambda: 1",
        "__import__('os')", "i[0]", "'i'", "i ** 2", "i / 2", "1.5", "i; j", "where(1, 2, 3)", "i" + " + i" * 400_000,
        "min(i,)", "~", "not", "i < ", "0x10", "i = 3", "\x00",
    ],
)  # fmt: skip
def test_bad_text_is_one_clear_error(text: str) -> None:
    with pytest.raises(ArithError) as error:
        parse(text)
    assert len(str(error.value)) < 1000


def test_long_flat_text_is_read() -> None:
    assert parse(" + ".join(f"i{k}" for k in range(3000))).cost == 2999
    assert str(parse("-" * 400 + "i")) == "i"


def test_a_long_sum_is_made_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3 000 terms no shorter sum is made: work that grew with the square of their number."""
    made, add = list[int](), text_module.add

    def counted(args: Iterable[Expr]) -> Expr:
        terms = tuple(args)
        made.append(len(terms))
        return add(terms)

    monkeypatch.setattr(text_module, "add", counted)
    long = parse("+".join(f"n%{k}" for k in range(2, 3002)))
    assert made == [3000] and len(long.args) == 3000


@pytest.mark.parametrize("text", ["a - b - c + d", "a - (b - c) - -d", "-a + b*c - d//2 + 3 - 3", "a - b < c + d - 1"])
def test_signs_of_a_sum_go_from_left_to_right(text: str) -> None:
    e = parse(text)
    for point in itertools.product((-3, 0, 2, 7), repeat=4):
        at = dict(zip("abcd", point, strict=True))
        assert e.evaluate(at) == eval(text, dict(at))  # noqa: S307 - Python's own reading of the test's own text


def test_a_product_is_made_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    make, made = nodes.make, list[str]()

    def counted(op: nodes.Op, args: tuple[Expr, ...]) -> Expr:
        made.append(op)
        return make(op, args)

    monkeypatch.setattr(nodes, "make", counted)
    assert len(parse("*".join(f"n{k}" for k in range(600))).args) == 600
    assert made == ["mul"]


@pytest.mark.parametrize("text", ["a*b//c*b", "a//b*c", "-a*b*c", "a*b%c*a", "2*a*b*3 - a*b*(c*b)", "a*b*c//(b*c)*a"])
def test_products_stand_from_left_to_right(text: str) -> None:
    for a, b, c in ((5, 3, 2), (-7, 2, 4), (6, 5, 3)):
        at = {"a": a, "b": b, "c": c}
        assert parse(text).evaluate(at) == eval(text, {}, at)  # noqa: S307 - the texts of this test
