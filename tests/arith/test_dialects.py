"""Texts for other compilers say the same function: read back by a small evaluator of its own, at every point."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import pytest

import idgraph as ig
from idgraph.arith import affine_map, affine_set, maximum, minimum, parse, symbol, tvm_index_map, where


def value(text: str, names: Mapping[str, int]) -> int:
    """MLIR's affine expression: `*`, `floordiv` and `mod` bind tighter than `+` and `-`, all from the left."""
    tokens = re.findall(r"\d+|\w+|[-+*()]", text)
    place = 0

    def atom() -> int:
        nonlocal place
        token = tokens[place]
        place += 1
        if token == "(":
            out = total()
            assert tokens[place] == ")"
            place += 1
            return out
        if token == "-":
            return -atom()
        return int(token) if token.isdigit() else names[token]

    def product() -> int:
        nonlocal place
        out = atom()
        while place < len(tokens) and tokens[place] in ("*", "floordiv", "mod"):
            op = tokens[place]
            place += 1
            b = atom()
            out = out * b if op == "*" else out // b if op == "floordiv" else out % b
        return out

    def total() -> int:
        nonlocal place
        out = product()
        while place < len(tokens) and tokens[place] in "+-":
            sign = 1 if tokens[place] == "+" else -1
            place += 1
            out += sign * product()
        return out

    out = total()
    assert place == len(tokens), text
    return out


def parts(text: str) -> list[str]:
    """The comma-separated pieces of the last pair of parentheses at depth one."""
    inside = text[text.rindex("-> (") + 4 : -2] if "->" in text else text[text.index(" : (") + 4 : -2]
    pieces, depth = [""], 0
    for c in inside:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += c
    return [p.strip() for p in pieces]


def holds(text: str, names: Mapping[str, int]) -> bool:
    """Whether a point lies in an affine set."""
    for c in parts(text):
        left, op = c.removesuffix(" 0").rsplit(" ", 1)
        got = value(left, names)
        if not (got >= 0 if op == ">=" else got == 0):
            return False
    return True


def test_an_affine_map_says_the_function() -> None:
    i, j, n = symbol("i", 0, 15), symbol("j", 0, 7), symbol("n", 1, 5)
    results = [
        i // 4,
        (i * 8 + j) % 24,
        (i - j * 3 - 5) // 4 * -2 + 1,
        i * n + j,
        (i + 2 * j) // n,
        (i % 4 * 2 + j) // 3 * 5,
    ]
    text = affine_map(["i", "j"], results, ["n"])
    assert text.startswith("affine_map<(d0, d1)[s0] -> (")
    for a, b, c in itertools.product(range(16), range(8), range(1, 6)):
        got = [value(t, {"d0": a, "d1": b, "s0": c}) for t in parts(text)]
        assert got == [x.evaluate({"i": a, "j": b, "n": c}) for x in results]


def test_an_affine_set_says_the_condition() -> None:
    i, j = symbol("i", 0, 15), symbol("j", 0, 7)
    conditions = [(i * 8 + j < 100) & (i >= 2), i.eq(j * 2) | i.eq(j * 2)]
    text = affine_set(["i", "j"], conditions)
    for a, b in itertools.product(range(16), range(8)):
        assert holds(text, {"d0": a, "d1": b}) == all(bool(c.evaluate({"i": a, "j": b})) for c in conditions)


@pytest.mark.parametrize(
    ("result", "word"),
    [
        ("i ^ j", "xor"),
        ("i*j", "product of two dimensions"),
        ("i//(j + 1)", "divides by"),
        ("where(i < 3, i, j)", "where"),
        ("i + stranger", "stranger is neither"),
    ],
)
def test_what_is_not_affine_is_refused_by_name(result: str, word: str) -> None:
    with pytest.raises(ig.IdGraphError, match=word):
        affine_map(["i", "j"], [parse(result, {"i": 16, "j": 8})])


def test_alternatives_have_no_affine_set() -> None:
    i = symbol("i", 0, 15)
    with pytest.raises(ig.IdGraphError, match="conjunction"):
        affine_set(["i"], [(i < 3) | (i > 9)])
    assert affine_set(["i"], []) == "affine_set<(d0) : (0 == 0)>"


class _T:
    """The functions of TVM's script that the text needs, on numbers."""

    @staticmethod
    def if_then_else(c: bool, a: int, b: int) -> int:
        return a if c else b

    @staticmethod
    def And(a: bool, b: bool) -> bool:
        return a and b

    @staticmethod
    def Or(a: bool, b: bool) -> bool:
        return a or b

    @staticmethod
    def Not(a: bool) -> bool:
        return not a

    min = staticmethod(min)
    max = staticmethod(max)


def test_a_tvm_index_map_says_the_function() -> None:
    i, j = symbol("i", 0, 15), symbol("j", 0, 7)
    both = (i < 3) & (j < 5) & (i + j > 2)
    results = [i // 4 ^ j, where(both, i - 9, j), (i * 8 + j) % 24, minimum(i, j, 5), maximum(i, 3)]
    scope: dict[str, Any] = {}
    exec(f"out = {tvm_index_map(['i', 'j'], results)}", {"T": _T}, scope)
    for a, b in itertools.product(range(16), range(8)):
        assert scope["out"](a, b) == [x.evaluate({"i": a, "j": b}) for x in results]


@pytest.mark.parametrize("name", ["lambda", "a b", "T", "x)y", "1i"])
def test_a_name_that_python_would_not_take_is_refused(name: str) -> None:
    with pytest.raises(ig.IdGraphError, match="is not a name that Python takes"):
        tvm_index_map([name], [symbol("i")])


def test_an_access_writes_itself_down() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    x = f.input("x", shape=(n, 10))
    y = f.output(ig.exp(ig.pad(x, (2, 1))))
    y.merge(0)
    y.split(0, 4)
    ig.schedule.like(f, y)
    m = ig.IdModel(f)
    pad = x.uses[0]
    for e, t in ((pad, x), (pad, pad.output), (y.definition, y)):
        assert e is not None
        a = m.access(e, t)
        names = [loop.name for loop in a.loops]
        for size in (1, 3):
            for point in itertools.product(range((size * 13 + 3) // 4), range(4)):
                env = {**dict(zip(names, point, strict=True)), "n": size}
                spelled = {"d0": point[0], "d1": point[1], "s0": size}
                assert holds(a.affine_set(), spelled) == bool(a.predicate.evaluate(env))
                assert value(parts(a.affine_map("address"))[0], spelled) == a.address.evaluate(env)
                assert [value(t, spelled) for t in parts(a.affine_map())] == [c.evaluate(env) for c in a.coordinates]


def test_a_loaded_value_is_no_affine_index() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(9, 4)), f.input("i", shape=(3,), dtype="int64")
    y = f.output(ig.index_select(x, 0, i))
    assert y.definition is not None
    with pytest.raises(ig.IdGraphError, match="this is not an affine map"):
        ig.IdModel(f).access(y.definition, x).affine_map()


def test_an_access_that_loads_its_index_is_refused_by_name() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(8, 5)), f.input("rows", shape=(3,), dtype="int64")
    y = f.output(ig.index_select(x, 0, i))
    assert y.definition is not None
    a = ig.IdModel(f).access(y.definition, x)
    for ask in (a.tvm_index_map, a.affine_map, a.inverse, a.as_map):
        with pytest.raises(ig.IndexingError, match=r"index_select reads x where rows\[i0\] says"):
            ask()
    bounds = a.affine_set()
    assert bounds == "affine_set<(d0, d1)[s0] : (s0 >= 0, s0 * -1 + 7 >= 0)>"
    inside = [s for s in range(-3, 12) if all(value(p.split(">=")[0].strip(), {"s0": s}) >= 0 for p in parts(bounds))]
    assert inside == list(range(8))
