"""Digits of one index: however they are written and nested, the result has at most one digit for each mode."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.arith import Expr, cost, parse, prove_equal
from idgraph.arith.mixed_radix import mixed_radix_form
from idgraph.arith.prove import Proof
from idgraph.arith.rewriter import normal
from tools.judges.expressions import evaluate

Array = npt.NDArray[np.int64]
STYLES = 5  # ways to write a digit


def permuted(pick: random.Random, groups: int, sizes: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Sizes of the digits of an index, the lowest first, and their strides in another order."""
    shape = [pick.choice(sizes) for _ in range(groups)]
    order = pick.sample(range(groups), groups)
    stride = [0] * groups
    weight = 1
    for k in order:
        stride[k] = weight
        weight *= shape[k]
    return shape, stride


def least(shape: list[int], stride: list[int]) -> int:
    """Operations of the sum of digits times strides, modes of one run joined."""
    modes: list[list[int]] = []
    for n, d in zip(shape, stride, strict=True):
        if modes and modes[-1][0] * modes[-1][1] == d:
            modes[-1][0] *= n
        else:
            modes.append([n, d])
    last = len(modes) - 1
    return sum((k > 0) + (k < last) + (d != 1) + (k > 0) for k, (_, d) in enumerate(modes))


def digit(x: str, s: int, n: int, style: int) -> str:
    match style:
        case 0:
            return f"({x}//{s}%{n})"
        case 1:
            return f"({x}%{s * n}//{s})"
        case 2:
            return f"({x}//{s} - {x}//{s * n}*{n})"
        case 3:
            return f"(({x} - {x}%{s})//{s}%{n})"
        case _:
            return f"(({x}//{s * n}*{n} + {x}//{s}%{n})%{n})"


def text_of(shape: list[int], stride: list[int], styles: list[int], x: str = "x") -> list[str]:
    weights = [prod(shape[:k]) for k in range(len(shape))]
    return [f"{digit(x, s, n, m)}*{d}" for s, n, d, m in zip(weights, shape, stride, styles, strict=True)]


def values(text: str, x: Array) -> Array:
    return np.broadcast_to(evaluate(text, {"x": x}), x.shape)


def judged(text: str, size: int, most: int) -> None:
    found = ig.simplify(text, {"x": size})
    x = np.arange(size, dtype=np.int64)
    assert (values(str(found), x) == values(text, x)).all(), found
    assert cost(found) <= most, f"{found}: {cost(found)} operations, {most} do"
    assert ig.simplify(found) == found


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("sizes", [(2,), (2, 4, 8), (2, 3, 4, 5)])
def test_digits_of_any_spelling(seed: int, sizes: tuple[int, ...]) -> None:
    pick = random.Random(seed)
    shape, stride = permuted(pick, pick.randint(4, 8), sizes)
    style = pick.randrange(STYLES + 1)
    styles = [pick.randrange(STYLES) if style == STYLES else style for _ in shape]
    parts = text_of(shape, stride, styles)
    pick.shuffle(parts)
    if prod(shape) <= 1 << 18:
        judged(" + ".join(parts), prod(shape), least(shape, stride))


def modes_of(offsets: Array) -> tuple[list[int], list[int]]:
    """The layout that maps 0, 1, 2, ... to ``offsets``, found in them: the longest run, then the next."""
    shape: list[int] = []
    stride: list[int] = []
    s, size = 1, len(offsets)
    while s < size:
        d = int(offsets[s])
        runs = [n for n in range(2, size // s + 1) if size % (s * n) == 0]
        n = max(n for n in runs if (offsets[: s * n : s] == d * np.arange(n)).all())
        shape.append(n)
        stride.append(d)
        s *= n
    return shape, stride


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("sizes", [(2,), (2, 4), (2, 4, 8)])
def test_one_layout_after_another(seed: int, sizes: tuple[int, ...]) -> None:
    """Taken apart, permuted and put together, twice: as nested as it is written, it is one layout again."""
    pick = random.Random(seed)
    shape, stride = permuted(pick, pick.randint(4, 7), sizes)
    size = prod(shape)
    first = " + ".join(text_of(shape, stride, [pick.randrange(2) for _ in shape]))
    order = sorted(range(len(shape)), key=lambda k: stride[k])
    cut = [shape[k] for k in order]  # the digits of what `first` makes, the lowest first
    again = pick.sample(range(len(cut)), len(cut))
    weights = [0] * len(cut)
    weight = 1
    for k in again:
        weights[k] = weight
        weight *= cut[k]
    text = " + ".join(text_of(cut, weights, [pick.randrange(2) for _ in cut], f"({first})"))
    offsets = values(text, np.arange(size, dtype=np.int64))
    judged(text, size, least(*modes_of(offsets)))


NESTED = {
    "(x - x%2)//2": "x//2",
    "(x%4*6 + x//4)//6": "x%4",
    "(x%4*6 + x//4)%6": "x//4",
    "((x//3 + x%3*8)//2*2 + (x//3 + x%3*8)%2)//8": "x%3",
    "(x//12*12 + x%12//4*4 + x%4)//2": "x//2",
    "((i*8 + j)//4*4 + (i*8 + j)%4)//8": "i",
    "((j%2*3 + i)*4 + j//2)//4%3": "i",
    "((j%2*3 + i)*4 + j//2)//12": "j%2",
    "((s + 1)%4*6 + i)//6%4": "(s + 1)%4",
}


@pytest.mark.parametrize("text", NESTED)
def test_cuts_between_digits(text: str) -> None:
    ranges = {"x": 24, "i": 3, "j": 8, "s": (-50, 50)}
    found = ig.simplify(text, {k: v for k, v in ranges.items() if k in text})
    wanted = ig.simplify(NESTED[text], {k: v for k, v in ranges.items() if k in text})
    assert cost(found) <= cost(wanted) and isinstance(prove_equal(found, wanted), Proof)


@pytest.mark.parametrize(
    "text", ["(x%4*5 + x//4)//6", "(x*3 + 1)//7", "(x//6*8 + x%6*2)%6", "(x//4 + x//6)//2", "(s%3 - 1)//2"]
)
def test_a_cut_through_a_digit_is_left(text: str) -> None:
    """Where the digits below do not fit, or divisors do not divide each other, nothing is claimed."""
    low, high = (0, 23) if "x" in text else (-9, 9)
    e = parse(text, {"x": 24, "s": (-9, 9)})
    for form in (normal(e), ig.simplify(e)):
        for k in range(low, high + 1):
            point: dict[str, Expr | int] = dict.fromkeys(e.names, k)
            assert form.substitute(point) == e.substitute(point), (text, k)


def test_a_sum_that_grows_is_given_up() -> None:
    many = " + ".join(f"x//{n}*{n}" for n in range(2, 90))
    assert mixed_radix_form(parse(many, {"x": 10**9})) is None
    assert cost(ig.simplify(many, {"x": 10**9})) <= cost(parse(many))
