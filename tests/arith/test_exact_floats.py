"""Whole numbers that are computed with floats: what an expression gives is what double precision gives, or there is no
expression."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sympy as real_sympy
from hypothesis import given
from hypothesis import strategies as st

from idgraph.arith import ArithError, from_sympy

sympy: Any = real_sympy
torch_functions: Any = pytest.importorskip("torch.utils._sympy.functions")
N, M = (sympy.Symbol(name, integer=True, positive=True) for name in "nm")
ROUND: dict[str, Callable[[float], int]] = {"CeilToInt": math.ceil, "FloorToInt": math.floor, "TruncToInt": math.trunc}
STEPS = (0.5, 2.0, -1.0, 0.25, 3.0, 1.5, -0.75, 0.1, 0.3, 1.3, 7.0, -3.0)
SIZES = (1, 2, 3, 5, 7, 8, 9, 10, 30, 1001, 2**31 - 1)

LEAVES = (
    torch_functions.ToFloat(N),
    torch_functions.ToFloat(M - 3),
    torch_functions.IntTrueDiv(N, M),
    torch_functions.IntTrueDiv(N + 1, sympy.Integer(2)),
)


def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    steps = st.sampled_from(STEPS).map(sympy.Float)
    return st.one_of(
        st.builds(torch_functions.FloatTrueDiv, inner, steps),
        st.builds(sympy.Mul, steps, inner),
        st.builds(sympy.Add, inner, inner),
    )


def double(tree: Any, env: dict[Any, int]) -> float | int:
    """The tree in Python's numbers."""
    if tree in env:
        return env[tree]
    if not tree.args:
        return int(tree) if tree.is_Integer else float(tree)
    parts = [double(a, env) for a in tree.args]
    match type(tree).__name__:
        case "ToFloat":
            return float(parts[0])
        case "FloatTrueDiv" | "IntTrueDiv":
            return parts[0] / parts[1]
        case "Add":
            return sum(parts)
        case "Mul":
            return math.prod(parts)
        case name:
            raise AssertionError(name)


@given(st.recursive(st.sampled_from(LEAVES), grow, max_leaves=4), st.sampled_from(sorted(ROUND)))
def test_what_double_precision_gives(tree: Any, kind: str) -> None:
    node = getattr(torch_functions, kind)(tree)
    try:
        found = from_sympy(node)
    except ArithError:
        return
    for n in SIZES:
        for m in (1, 3, 4, 49):
            assert found.evaluate({"n": n, "m": m}) == ROUND[kind](double(tree, {N: n, M: m})), (node, n, m)


def test_forms() -> None:
    """Ranges with a float step have an expression; a step that doubles only come near has none."""
    ceil, divide, size = torch_functions.CeilToInt, torch_functions.FloatTrueDiv, torch_functions.ToFloat(N)
    assert from_sympy(ceil(divide(size, sympy.Float(0.5)))).simplify() == from_sympy(2 * N).simplify()
    assert from_sympy(ceil(divide(size, sympy.Float(3.0)))).evaluate({"n": 7}) == 3
    assert from_sympy(ceil(divide(-size, sympy.Float(-1.0)))).simplify() == from_sympy(N)
    with pytest.raises(ArithError, match="rounded as a float"):
        from_sympy(ceil(divide(size, sympy.Float(0.3))))  # 3 / 0.3 is 10.0, and 3 over the double 0.3 is more
    with pytest.raises(ArithError, match="rounded as a float"):
        from_sympy(ceil(torch_functions.IntTrueDiv(N, M) * sympy.Float(3.0)))
    with pytest.raises(ArithError):
        from_sympy(torch_functions.IntTrueDiv(N, M))
