"""Two symbols, or a symbol and a number, that meet in one elementwise operation are equal from then on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import Expr
from idgraph.ir.op_builders import same_extent

Size = Callable[[Expr], Expr]
TARGETS: tuple[Literal["python", "numpy", "cpu"], ...] = ("python", "numpy", "cpu")


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_two_symbols() -> None:
    f = ig.Fusion("f")
    n, m = f.symbol("n", min=1, max=99), f.symbol("m", min=2)
    x, z = f.input("x", shape=(n,)), f.input("z", shape=(m,))
    y = f.output(ig.exp(x) + z)
    assert x.shape == z.shape == y.shape and list(f.symbols) == ["n"]
    assert f.symbols["n"].range.lo == 2 and f.symbols["n"].range.hi == 99
    y.split(0, 4)
    for target in TARGETS:
        program = ig.emit(f, target)
        assert np.allclose(program.run({"x": ones(5), "z": ones(5)})[y.name], np.e + 1)
        with pytest.raises(ig.EmitError, match=r"axis 0 is declared 5 = n, the array has 6") as told:
            program.run({"x": ones(5), "z": ones(6)})
        assert "m = n: axis 0 of z meets axis 0 of t" in str(told.value) and "test_equalities.py" in str(told.value)
        with pytest.raises(ig.EmitError, match="symbol m = 1 is outside"):
            program.run({"x": ones(1), "z": ones(1)})
    assert ig.validate(f, symbols={"n": 7}).ok
    assert ig.validate(f, symbols={"n": 7, "m": 7}).ok
    assert str(ig.parse(str(f))) == str(f)


def test_a_symbol_and_a_number() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1, multiple_of=2)
    x = f.input("x", shape=(n, 3))
    y = f.output(x * f.input("z", shape=(8, 3)) + ig.reshape(ig.sum(x, 1), n, 1))
    assert x.shape == y.shape == (8, 3) and not f.symbols
    program = ig.emit(f, "python")
    assert np.allclose(program.run({"x": ones(8, 3), "z": ones(8, 3)})[y.name], 4)
    with pytest.raises(ig.EmitError, match="declared 8, the array has 6") as told:
        program.run({"x": ones(6, 3), "z": ones(8, 3)})
    assert "n = 8: axis 0 of z meets axis 0 of x" in str(told.value)
    program.run({"x": ones(8, 3), "z": ones(8, 3)}, symbols={"n": 8})
    with pytest.raises(ig.EmitError, match="they are equal"):
        program.run({"x": ones(8, 3), "z": ones(8, 3)}, symbols={"n": 6})


@pytest.mark.parametrize(("first", "second"), [((1, 4, 1), 8), ((1, None, 3), 8), ((9, None, 1), 8)])
def test_what_is_never_equal_is_refused(first: tuple[int, int | None, int], second: int) -> None:
    f = ig.Fusion("f")
    low, high, step = first
    x = f.input("x", shape=(f.symbol("n", min=low, max=high, multiple_of=step),))
    z = f.input("z", shape=(second,))
    before = str(f)
    with pytest.raises(ig.OperationError, match="neither is a broadcast"):
        ig.add(x, z)
    assert str(f) == before and not f.equalities
    g = ig.Fusion("g")
    x = g.input("x", shape=(g.symbol("n", min=1, max=4),))
    z = g.input("z", shape=(g.symbol("m", min=5),))
    with pytest.raises(ig.OperationError, match="neither is a broadcast"):
        ig.add(x, z)


def test_a_call_that_fails_makes_nothing_equal() -> None:
    f = ig.Fusion("f")
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    x, z = f.input("x", shape=(n, n, 4)), f.input("z", shape=(m, 7, 5))
    for _ in range(2):
        with pytest.raises(ig.OperationError):
            ig.add(x, z)
        with pytest.raises(ig.OperationError, match="already has"):
            ig.add(x, f["z"][:, :, :4], name="x")
        assert x.shape == (n, n, 4) and z.shape == (m, 7, 5) and not f.equalities
    assert list(f.symbols) == ["n", "m"]


def test_symbols_in_steps_bounds_and_attributes() -> None:
    f = ig.Fusion("f")
    n, m = f.symbol("n", min=4), f.symbol("m", min=4)
    k = f.symbol("k", min=1, max=m - 1)
    z = f.input("z", shape=(m, 4))
    part = z[:, :2]
    early = ig.reshape(z, m * 2, 2)
    early.split(0, m)
    x = f.input("x", shape=(n, 4))
    y = f.output(x + z)
    late = f.output(ig.reshape(y, 2 * m, 2) + early)
    cut = f.output(y[: m - 1] * 2.0, part)
    late.split(0, m)
    assert "`m`" not in str(f) and "m - 1" not in str(f)
    assert ig.validate(f, symbols={"n": 6, "k": 3}).ok
    assert ig.validate(ig.parse(str(f)), symbols={"n": 6, "k": 3}).ok
    assert "n" in str(f.symbols["k"].symbol_bounds[1])
    assert cut.shape[0] is not None and k.name == "k"


@pytest.mark.parametrize("seed", range(40))
def test_chains_of_equalities(seed: int) -> None:
    """Random sums of tensors over symbols, their multiples and numbers: NumPy's values at the sizes that fit, and a
    refusal by name at others."""
    r = random.Random(seed)
    f = ig.Fusion("f")
    names = [f.symbol(s, min=1) for s in "abc"]
    size = r.choice((6, 12))
    step = {s.name: r.choice((1, 1, 2)) for s in names}
    t: ig.Tensor | None = None
    order = [*names, *r.sample(names, 2)]
    r.shuffle(order)
    for p, s in enumerate(order):
        x = ig.exp(f.input(f"x{p}", shape=(s * step[s.name],)))
        t = x if t is None else t + x
    if r.random() < 0.5 and t is not None:
        t = t + f.input("fixed", shape=(size,))
    assert t is not None
    y = f.output(t * 2.0)
    if r.random() < 0.5:
        y.split(0, 4)
    target = r.choice(TARGETS)
    program = ig.emit(f, target)
    value = {x.name: np.linspace(0, 1, size, dtype=np.float32) for x in f.inputs}
    want = 2 * sum(v if name == "fixed" else np.exp(v) for name, v in value.items())
    assert np.allclose(program.run(value)[y.name], want, rtol=1e-5)
    assert len(f.equalities) >= 2
    wrong = r.choice([x.name for x in f.inputs])
    with pytest.raises(ig.EmitError, match="does not fit"):
        program.run({**value, wrong: ones(size + 2)})


SAME: list[tuple[Size, Size]] = [
    (lambda n: (n + n % 2) // 2, lambda n: (n + 1) // 2),
    (lambda n: (n + -n % 4) // 4, lambda n: (n + 3) // 4),
    (lambda n: (n + -n % 3) // 3 * 3, lambda n: (n + 2) // 3 * 3),
    (lambda n: n - n // 2, lambda n: (n + 1) // 2),
    (lambda n: (n - 1) // 2 + 1, lambda n: (n + 1) // 2),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_extents_are_equal_by_proof_whatever_they_are_written_as(one: Size, other: Size) -> None:
    f = ig.Fusion("f")
    n = f.symbol("n")
    x, y = f.input("x", shape=(one(n), 2)), f.input("y", shape=(other(n), 2))
    f.output(x + y)
    assert not f.equalities


def test_extents_that_differ_at_some_size_are_not_equal_by_proof() -> None:
    n = ig.Fusion("f").symbol("n")
    assert not same_extent(n // 2, (n + 1) // 2)
    assert not same_extent((n + n % 4) // 2, (n + 1) // 2)
