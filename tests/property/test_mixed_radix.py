"""Compositions of reshape, permute, flip, pitch, slice and roll have inverses: right everywhere, short, also dynamic.

The oracle moves tuples of integers through the steps one by one and never sees an expression.
"""

from __future__ import annotations

import time
from itertools import product
from math import prod
from random import Random

import pytest

from idgraph.arith import Expr, IndexMap, NotInvertible, as_expr, cost, simplify, symbol
from idgraph.arith.digit_solver import QuotientForms, one_to_one

Step = tuple[str, tuple[int, ...], tuple[int, ...]]  # operation, shape before, its numbers


def _factors(n: int, rng: Random) -> list[int]:
    out: list[int] = []
    while n > 1 and len(out) < 3 and rng.random() < 0.85:
        d = rng.choice([k for k in range(2, n + 1) if n % k == 0])
        out.append(d)
        n //= d
    if n > 1 or not out:
        out.append(n)
    rng.shuffle(out)
    return out


def _steps(rng: Random, count: int, size: int) -> tuple[list[int], list[Step], list[int]]:
    """A shape, steps from it, and the shape in the end."""
    first = shape = _factors(size, rng)
    steps: list[Step] = []
    for _ in range(count):
        op = rng.choice(["reshape", "permute", "flip", "roll", "pitch", "slice"])
        k = rng.randrange(len(shape))
        n, new = shape[k], list(shape)
        match op:
            case "reshape":
                new = _factors(prod(shape), rng)
                numbers = tuple(new)
            case "permute":
                order = rng.sample(range(len(shape)), len(shape))
                new, numbers = [shape[p] for p in order], tuple(order)
            case "flip":
                numbers = (k,)
            case "roll":
                numbers = (k, rng.randrange(n))
            case "pitch":
                w, p = rng.randrange(1, 8), rng.randrange(1, 3)
                new[k], numbers = n + (n - 1) // w * p, (k, w, p)
            case _:
                a, s = rng.randrange(3), rng.randrange(1, 3)
                new[k], numbers = (n - 1) * s + 1 + a, (k, a, s)
        steps.append((op, tuple(shape), numbers))
        shape = new
    return first, steps, shape


def _moved(c: list[int], step: Step) -> list[int]:
    """One point through one step, in integers."""
    op, shape, numbers = step
    if op == "reshape":
        flat = 0
        for x, n in zip(c, shape, strict=True):
            flat = flat * n + x
        out: list[int] = []
        for n in reversed(numbers):
            flat, x = divmod(flat, n)
            out.append(x)
        return out[::-1]
    if op == "permute":
        return [c[p] for p in numbers]
    k, n = numbers[0], shape[numbers[0]]
    c = list(c)
    match op:
        case "flip":
            c[k] = n - 1 - c[k]
        case "roll":
            c[k] = (c[k] + numbers[1]) % n
        case "pitch":
            c[k] = c[k] + c[k] // numbers[1] * numbers[2]
        case _:
            c[k] = c[k] * numbers[2] + numbers[1]
    return c


def _expressions(c: list[Expr], step: Step, simple: bool) -> list[Expr]:
    op, shape, numbers = step
    if op == "reshape":
        flat = as_expr(0)
        for x, n in zip(c, shape, strict=True):
            flat = flat * n + x
        out: list[Expr] = []
        weight = prod(numbers)
        for n in numbers:
            weight //= n
            out.append(flat // weight % n)
    elif op == "permute":
        out = [c[p] for p in numbers]
    else:
        k, n = numbers[0], shape[numbers[0]]
        out = list(c)
        match op:
            case "flip":
                out[k] = n - 1 - c[k]
            case "roll":
                out[k] = (c[k] + numbers[1]) % n
            case "pitch":
                out[k] = c[k] + c[k] // numbers[1] * numbers[2]
            case _:
                out[k] = c[k] * numbers[2] + numbers[1]
    return [simplify(x) for x in out] if simple else out


def _case(seed: int, most: int, size: int, simple: bool) -> tuple[IndexMap, list[int], list[Step]]:
    rng = Random(seed)
    first, steps, last = _steps(rng, rng.randrange(1, most + 1), size)
    c: list[Expr] = [symbol(f"i{k}", 0, n - 1) for k, n in enumerate(first)]
    symbols = tuple(c)
    for s in steps:
        c = _expressions(c, s, simple)
    return IndexMap(symbols, tuple(c), tuple(last)), first, steps


def _checked(m: IndexMap, back: IndexMap, shape: list[int], steps: list[Step]) -> None:
    for point in product(*map(range, shape)):
        c = list(point)
        for s in steps:
            c = _moved(c, s)
        image = {y.name: v for y, v in zip(back.symbols, c, strict=True)}
        assert back.condition.evaluate(image), (m, point)
        assert tuple(int(r.evaluate(image)) for r in back.results) == point, (m, back)


def _short(m: IndexMap, back: IndexMap) -> bool:
    return sum(map(cost, back.results)) <= 3 * max(1, sum(map(cost, m.results)))


@pytest.mark.parametrize("simple", [False, True])
def test_inverses_of_up_to_three_steps_are_right_and_short(simple: bool) -> None:
    for seed in range(80):
        m, shape, steps = _case(seed, 3, (24, 36, 48, 60, 64, 96)[seed % 6], simple)
        back = m.inverse()
        _checked(m, back, shape, steps)
        assert m.is_injective
        assert _short(m, back), (m, back)


@pytest.mark.parametrize("seed", [5116, 5260, 7291, 7463, 7505])
def test_what_is_a_number_on_the_way_is_inverted_through_it(seed: int) -> None:
    """Digits read or written through one number, a rotation of what is no digit: piles of choices before."""
    m, shape, steps = _case(seed, 3 if seed % 3 else 5, (24, 36, 48, 60, 64, 72, 96, 120)[seed % 8], bool(seed % 2))
    back = m.inverse()
    _checked(m, back, shape, steps)
    assert _short(m, back), (m, back)


def test_inverses_of_up_to_five_steps_are_right() -> None:
    """Pitches of pitches whose widths do not divide each other are no digits: few of all compositions."""
    missed = 0
    for seed in range(60):
        m, shape, steps = _case(seed, 5, (24, 36, 48, 60)[seed % 4], True)
        assert m.is_injective
        try:
            back = m.inverse()
        except NotInvertible:
            missed += 1
            continue
        _checked(m, back, shape, steps)
        missed += not _short(m, back)
    assert missed <= 4


@pytest.mark.parametrize(
    "text", ["12,15>9,20", "20,6>15,8", "48,3>36,4", "4,768>3,1024", "64,192>96,128", "7,30>21,10"]
)
def test_one_plain_reshape(text: str) -> None:
    (a, b), (c, d) = ([int(n) for n in side.split(",")] for side in text.split(">"))
    i, j = symbol("i", 0, a - 1), symbol("j", 0, b - 1)
    m = IndexMap((i, j), (simplify((i * b + j) // d), simplify((i * b + j) % d)), (c, d))
    back = m.inverse()
    assert str(back.condition) == "True" and _short(m, back)
    _checked(m, back, [a, b], [("reshape", (a, b), (c, d))])


n, w, k = symbol("n", 1), symbol("w", 1), symbol("k", 1)
p, q, f = symbol("p", 0, n - 1), symbol("q", 0, w - 1), symbol("f", 0, n * w - 1)
DYNAMIC = [
    IndexMap((p, q), ((p * w + q) // n, (p * w + q) % n), (w, n)),
    IndexMap((p, q), ((q * n + p) // w, (q * n + p) % w), (n, w)),
    IndexMap((f,), (f % w * n + f // w,), (n * w,)),
    IndexMap((p, q), (n * w - 1 - (p * w + q),), (n * w,)),
    IndexMap((f,), (f // w, w - 1 - f % w), (n, w)),
    IndexMap((p, q), ((p + 3) % n, q), (n, w)),
    IndexMap((f,), (f + f // w * 3,), (n * w + n * 3,)),
    IndexMap((f,), (f + f // w * k,), (n * w + n * k,)),
    IndexMap((p,), (p + p // 5,), (n + n // 5 + 1,)),
    IndexMap((p, q), ((p * 2 + 1) * w * 2 + q,), (n * w * 4 + w * 4,)),
]


@pytest.mark.parametrize("m", DYNAMIC, ids=str)
@pytest.mark.parametrize("simple", [False, True])
def test_dynamic_maps(m: IndexMap, simple: bool) -> None:
    if simple:
        m = IndexMap(m.symbols, tuple(simplify(r) for r in m.results), m.shape)
    back = m.inverse()
    assert m.is_injective and _short(m, back)
    for sizes in ({"n": 1, "w": 1, "k": 2}, {"n": 3, "w": 4, "k": 1}, {"n": 5, "w": 2, "k": 3}):
        tops = [s.symbol_bounds[1] for s in m.symbols]
        spans = [range(int(as_expr(top).evaluate(sizes)) + 1) for top in tops if top is not None]
        for point in product(*spans):
            at = sizes | {s.name: v for s, v in zip(m.symbols, point, strict=True)}
            image = sizes | {y.name: int(r.evaluate(at)) for y, r in zip(back.symbols, m.results, strict=True)}
            assert back.condition.evaluate(image), (m, image)
            assert tuple(int(r.evaluate(image)) for r in back.results) == point


def test_one_to_one_agrees_with_enumeration() -> None:
    """Random sums of digits, most of them not one to one."""
    rng = Random(0)
    proved = 0
    for _ in range(150):
        d, a, b = rng.randrange(2, 6), rng.randrange(1, 7), rng.randrange(-6, 7)
        size = rng.randrange(4, 40)
        x = symbol("x", 0, size - 1)
        results = (x * a + x // d * b,) if rng.random() < 0.6 else ((x + a) // d, (x * a) % (d * 2))
        images = [tuple(int(r.evaluate({"x": v})) for r in results) for v in range(size)]
        distinct = len(set(images)) == size
        if one_to_one([x], results):
            assert distinct, results
            proved += 1
        assert bool(IndexMap((x,), tuple(r + 100 for r in results), (1000,) * len(results)).is_injective) == distinct
    assert proved > 20


def test_sums_of_quotients_keep_values() -> None:
    """A form is the same number, however the expression was nested."""
    rng = Random(1)
    x, y = symbol("x", 0, 47), symbol("y", 0, 10)
    for _ in range(300):
        e = x * rng.randrange(-9, 10) + y * rng.randrange(-9, 10) + rng.randrange(-9, 10)
        for _ in range(rng.randrange(1, 5)):
            d = rng.randrange(1, 13)
            e = rng.choice([e // d, e % d, e // d + x, e % d - y, e // d * 3 + e % d, -e])
        form = QuotientForms().of(e)
        for _ in range(12):
            at = {"x": rng.randrange(48), "y": rng.randrange(11)}
            assert sum(v * int(b.evaluate(at)) for b, v in form[0].items()) + form[1] == e.evaluate(at), e


def test_an_inverse_of_many_elements_takes_no_time() -> None:
    i = symbol("i", 0, 4096 * 4095 - 1)
    m = IndexMap((i,), (simplify(i + i // 4095),), (4096 * 4096,))
    start = time.perf_counter()
    assert m.is_injective and str(m.inverse().results[0]) == "y0 - y0//4096"
    assert time.perf_counter() - start < 1
