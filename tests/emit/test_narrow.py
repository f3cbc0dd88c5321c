"""32-bit index text: at every point the value of the expression modulo 2**32, whatever its parts are."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.arith import Expr, as_expr, maximum, minimum, parse, symbol, where
from idgraph.codegen.printers.index32 import Narrow, fits
from idgraph.codegen.runtime_lib import python_ops as scalars
from idgraph.runtime.program import emit
from idgraph.runtime.source_function import function_of
from tests.property.budget import examples

SYMBOLS = [symbol("i0", 0, 4095), symbol("i1", 0, 255), symbol("i2", 0, 2**20), symbol("m", -5, 100), symbol("ld0")]


def grown(rng: random.Random, depth: int) -> Expr:
    """A random expression; the sizes of addresses and beyond 32 bits."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice([*SYMBOLS, as_expr(rng.choice([0, 1, 3, 7, 64, 4096, -4, 2**31, 2**33, 25165696]))])
    a, b = grown(rng, depth - 1), grown(rng, depth - 1)
    n = rng.choice([1, 2, 3, 7, 64, 100, 4096, 2**32])
    match rng.randrange(9):
        case 0 | 1:
            return a + b
        case 2:
            return a - b
        case 3:
            return a * rng.choice([2, 8, 4096, 524288, -1, -64])
        case 4:
            return a // n
        case 5:
            return a % n
        case 6:
            return minimum(a, b) if rng.random() < 0.5 else maximum(a, b)
        case 7:
            return where(a < b, a, b) if rng.random() < 0.5 else where((a >= n) & (b <= a), b, a)
        case _:
            return a ^ abs(n) if fits(a) else (a + 32) % (n + 1)


def value(text: str, at: dict[str, int], short: bool) -> int:
    names: dict[str, Any] = {**vars(scalars)}
    source = f"def found(i0, i1, i2, m, ld0):\n    return {text}\n"
    return int(function_of(source, "found", names, "test")(**at)) % 2**32 if short else 0


@given(st.integers(0, 2**32))
@example(32688524)  # a negative number modulo 2**32, which no 32 bits hold
@settings(max_examples=examples(300))
def test_text_is_the_value_modulo_32_bits(seed: int) -> None:
    rng = random.Random(seed)
    e = grown(rng, rng.randrange(1, 5))
    narrow = Narrow({}, {"i0", "i1"})
    text = narrow.text(e)
    for _ in range(5):
        at = {"i0": rng.randrange(4096), "i1": rng.randrange(256), "i2": rng.randrange(2**20 + 1)}
        at |= {"m": rng.randrange(-5, 101), "ld0": rng.randrange(-(2**35), 2**35)}
        assert value(text, at, True) == int(e.evaluate(at)) % 2**32, (str(e), text, at)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("(i + 32) % 64", "wrapped(u32(i + u32(32)), u32(64))"),
        ("(i + 32) // 64", "u32(u32(i + u32(32)) >= u32(64))"),
        ("(i*7) // 9", "u32(u32(i * u32(7)) // u32(9))"),
        ("(i - 4) // 8", "u32(((i64(i) - 4) // 8))"),
        ("i*8 - 4", "u32(u32(i * u32(8)) - u32(4))"),
    ],
)
def test_forms(text: str, wanted: str) -> None:
    assert Narrow({}, {"i"}).text(parse(text, {"i": symbol("i", 0, 63)})) == wanted


def test_a_buffer_beyond_32_bits_keeps_64() -> None:
    f = ig.Fusion("large")
    f.output(f.input("x", shape=(2**17, 2**16), dtype="int8")[1:] + 1)
    ig.schedule.auto(f)
    source = emit(f, target="cuda").source
    assert "i64(i0)" in source and "u64(u32" not in source
