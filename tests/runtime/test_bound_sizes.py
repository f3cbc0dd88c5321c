"""Symbols of larger extents, ``n*4`` or ``n + 1``, follow from arrays; what fits no value is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import Expr
from idgraph.validate.oracle import bind

EXTENTS: dict[str, tuple[Callable[[Expr], Expr], Callable[[int], int]]] = {
    "n*4": (lambda n: n * 4, lambda n: n * 4),
    "6*n": (lambda n: 6 * n, lambda n: 6 * n),
    "n+1": (lambda n: n + 1, lambda n: n + 1),
    "n*n": (lambda n: n * n, lambda n: n * n),
    "3*n-2": (lambda n: 3 * n - 2, lambda n: 3 * n - 2),
    "n*(n+1)": (lambda n: n * (n + 1), lambda n: n * (n + 1)),
}


@pytest.mark.parametrize("which", EXTENTS)
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_the_symbol_is_solved_for(which: str, target: str) -> None:
    extent, size = EXTENTS[which]
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    x = f.input("x", shape=(extent(n), 3))
    y = f.output(ig.exp(x) + 1.0)
    program = ig.emit(f, target)  # pyright: ignore[reportArgumentType]
    sizes = {size(k) for k in range(1, 12)}
    for rows in range(1, 13):
        value = np.linspace(0, 1, 3 * rows, dtype=np.float32).reshape(rows, 3)
        if rows in sizes:
            assert np.allclose(program.run({"x": value})[y.name], np.exp(value) + 1)
            assert bind(f, {"x": (rows, 3)})["n"] in range(1, 13)
        else:
            with pytest.raises(ig.EmitError, match=r"input x of shape .* for no n") as told:
                program.run({"x": value})
            assert "axis 0" in str(told.value)


def test_symbols_one_after_another() -> None:
    f = ig.Fusion("f")
    n, m, k = f.symbol("n", min=1), f.symbol("m", min=1), f.symbol("k", min=1)
    x, z = f.input("x", shape=(n * m + k,)), f.input("z", shape=(n, k * 2))
    w = f.output(ig.sum(x, 0) + z)
    got = ig.emit(f, "python").run({"x": np.ones(11, np.float32), "z": np.zeros((3, 4), np.float32)})
    assert np.allclose(got[w.name], 11)
    with pytest.raises(ig.EmitError, match="for no m"):
        ig.emit(f, "python").run({"x": np.ones(12, np.float32), "z": np.zeros((3, 4), np.float32)})


def test_several_values_fit() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    y = f.output(f.input("x", shape=((n + 3) // 4,)) * 2.0)
    with pytest.raises(ig.EmitError, match="symbol n follows from no input's shape") as told:
        ig.emit(f, "python").run({"x": np.ones(3, np.float32)})
    assert "axis 0 of x" in str(told.value)
    assert len(ig.emit(f, "python").run({"x": np.ones(3, np.float32)}, symbols={"n": 9})[y.name]) == 3


@pytest.mark.parametrize(("step", "factor", "wanted"), [(1, 1, 6), (4, 1, 12), (1, 2, 3), (1, 5, 6), (2, 3, None)])
def test_a_reshape_says_what_must_divide(step: int, factor: int, wanted: int | None) -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1, multiple_of=step)
    x = f.input("x", shape=(n * factor,))
    if wanted is None:
        assert ig.reshape(x, -1, 6).shape[1] == 6
        return
    with pytest.raises(ig.OperationError, match="not a multiple of 6") as told:
        ig.reshape(x, -1, 6)
    assert f"multiple_of={wanted})" in str(told.value)
    g = ig.Fusion("g")
    x = g.input("x", shape=(g.symbol("n", min=1, multiple_of=wanted) * factor,))
    y = g.output(ig.reshape(x, -1, 6))
    value = np.arange(60 * factor, dtype=np.float32)
    assert np.array_equal(ig.emit(g, "python").run({"x": value})[y.name], value.reshape(-1, 6))


def test_a_reshape_says_what_must_divide_beside_another_symbol() -> None:
    f = ig.Fusion("f")
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    x = f.input("x", shape=(n, m))
    with pytest.raises(ig.OperationError, match=r"not a multiple of n\*2") as told:
        ig.reshape(x, n, 2, -1)
    assert 'm = f.symbol("m", ..., multiple_of=2)' in str(told.value)
    g = ig.Fusion("g")
    n, m = g.symbol("n", min=1), g.symbol("m", min=1, multiple_of=2)
    y = g.output(ig.reshape(g.input("x", shape=(n, m)), n, 2, -1))
    value = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert np.array_equal(ig.emit(g, "python").run({"x": value})[y.name], value.reshape(4, 2, 3))
