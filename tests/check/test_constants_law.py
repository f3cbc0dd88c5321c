"""The law for constants: a chain of operations, and what a compiler makes of it, right or with another number in it."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import idgraph as ig
from tests.check.tree_lowerings import loop, put, text

Step = tuple[str, float]
CONSTANTS = (0.0, 0.001, 0.02, 0.5, 1.0, 1.5, 2.0, 3.0, 12.0, 64.0, 700.0)
NUMBERS = np.concatenate([s * np.linspace(-1, 1, 4001) for s in (0.01, 1.0, 30.0, 1000.0, 40000.0)])


def computed(steps: list[Step]) -> Any:
    """The chain on `NUMBERS`, by NumPy alone."""
    x = NUMBERS
    for op, c in steps:
        match op:
            case "add":
                x = x + c
            case "mul":
                x = x * c
            case "minimum":
                x = np.minimum(x, c)
            case "maximum":
                x = np.maximum(x, c)
            case "tanh":
                x = np.tanh(x)
            case _:
                x = np.abs(x)
    return x


def drawn(r: random.Random) -> Step:
    return r.choice(("add", "mul", "minimum", "maximum", "tanh", "abs")), r.choice(CONSTANTS) * r.choice((1, -1))


def value(steps: list[Step], r: random.Random) -> str:
    """The chain as a formula, written in one of several ways."""
    out = "r0"
    for op, c in steps:
        ways = {
            "add": (f"({out} + {c})", f"({c} + {out})", f"({out} - {-c})"), "mul": (f"({out} * {c})", f"({c} * {out})"),
            "minimum": (f"min({out}, {c})", f"where({out} < {c}, {out}, {c})"),
            "maximum": (f"max({out}, {c})", f"where({out} > {c}, {out}, {c})"), "tanh": (f"tanh({out})",),
            "abs": (f"abs({out})", f"max({out}, -{out})"),
        }  # fmt: skip
        out = r.choice(ways[op] if len(out) < 200 else ways[op][:1])
    return out


def changed(steps: list[Step], r: random.Random) -> list[Step]:
    out, k = list(steps), r.randrange(len(steps))
    match r.randrange(4):
        case 0:
            out[k] = drawn(r)
        case 1:
            out[k] = out[k][0], out[k][1] + r.choice((0.5, -0.02, 3.0))
        case 2 if len(out) > 1:
            del out[k]
        case _:
            r.shuffle(out)
    return out


def judged(seed: int) -> str:
    r = random.Random(seed)
    steps = [drawn(r) for _ in range(r.randint(1, 4))]
    stored = changed(steps, r) if r.random() < 0.5 else steps
    lines = [f"  t{k + 1} = {op}(t{k}{'' if op in ('tanh', 'abs') else f', {c}'})" for k, (op, c) in enumerate(steps)]
    program = text("(6, 8)", *lines, output=f"t{len(steps)}").replace("t0", "x")
    nest = put("k", f"t{len(steps)}", "i*8 + j", ("x", "i*8 + j"))
    nest["writes"][0]["value"] = value(stored, r)
    found = ig.check.program({"version": 1, "program": program, "body": [loop("i", 6, loop("j", 8, nest))]})
    a, b = computed(steps), computed(stored)
    gap = np.abs(a - b)
    shown = f"seed {seed}: {steps}\n{json.dumps(nest)}\n{found}"
    if found.refuted:
        assert gap.max() > 0, shown
        return "refuted"
    assert found.ok and found.decided, shown
    if (gap > 0.05 * np.maximum(np.abs(a), np.abs(b)) + 0.05 * np.abs(a).max()).mean() > 0.02:  # not in a corner alone
        raise AssertionError(shown)
    return "right"


def test_constants_are_compared() -> None:
    count = 1000 if settings.get_current_profile_name() == "ci" else 60
    found = [judged(seed) for seed in range(count)]
    assert found.count("refuted") > count // 8 and found.count("right") > count // 8


CHOICES = {
    "lt": ("r0 < {c}", "{c} > r0"), "le": ("r0 <= {c}", "{c} >= r0"),
    "gt": ("r0 > {c}", "{c} < r0"), "ge": ("r0 >= {c}", "{c} <= r0"),
}  # fmt: skip
OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


@pytest.mark.parametrize("constant", [0.0, 1.5, -0.3, 120.0])
@pytest.mark.parametrize("op", CHOICES)
def test_conditions_are_compared_where_both_sides_are_equal(op: str, constant: float) -> None:
    """One number in a continuum tells `x < c` from `x <= c`."""
    lines = (
        f"  c = {op}(x, {constant})",
        '  z = full(shape=(6, 8), value=7.0, dtype="float32")',
        "  y = where(c, x, z)",
    )
    for other, ways in CHOICES.items():
        for way in ways:
            condition = way.format(c=constant)
            chosen = f"where({condition}, r0, 7.0)" if other != OPPOSITE[op] else f"where({condition}, 7.0, r0)"
            nest = put("k", "y", "i*8 + j", ("x", "i*8 + j"))
            nest["writes"][0]["value"] = chosen
            body = [loop("i", 6, loop("j", 8, nest))]
            found = ig.check.program({"version": 1, "program": text("(6, 8)", *lines, output="y"), "body": body})
            assert bool(found.refuted) == (other not in (op, OPPOSITE[op])), f"{op}: {chosen}\n{found}"


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(10))
def test_constants_of_ten_thousand_programs_are_compared(part: int) -> None:
    for seed in range(1000 * (part + 1), 1000 * (part + 2)):
        judged(seed)
