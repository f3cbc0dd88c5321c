"""Symbols whose bounds are expressions in other symbols: ranges, text, run-time values, proofs."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import Fusion


def rows() -> Fusion:
    """The first k of n rows, k at most n - 1."""
    f = Fusion("rows")
    n = f.symbol("n", min=2)
    k = f.symbol("k", min=1, max=n - 1)
    f.output(ig.slice(f.input("x", (n, 4)), 0, 0, k) * 2.0)
    return f


def test_text_goes_round() -> None:
    f = rows()
    g = ig.parse(str(f))
    assert str(g) == str(f) and "max=`n - 1`" in str(f)
    assert g.symbols["k"] == f.symbols["k"]


def test_a_claim_that_needs_the_bound() -> None:
    f = rows()
    n, k = f.symbols["n"], f.symbols["k"]
    assert ig.prove(k < n) and ig.prove(k <= n - 1) and not ig.prove(k < n - 1)


def test_run_time_values() -> None:
    f = rows()
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    for target in ("python", "cpu"):
        program = ig.emit(f, target=target)
        got = program.run({"x": x}, symbols={"k": 4})
        np.testing.assert_array_equal(got[f.outputs[0].name], x[:4] * 2)
        with pytest.raises(ig.EmitError, match="symbol k = 5 is outside its declaration: 1 to 4"):
            program.run({"x": x}, symbols={"k": 5})
    assert ig.validate(f, target="numpy", symbols={"n": 5, "k": 4}).ok
    with pytest.raises(ig.IdGraphError, match="k = 5 is outside"):
        ig.validate(f, target="numpy", symbols={"n": 5, "k": 5})


def test_strange_bounds() -> None:
    f, g = Fusion("f"), Fusion("g")
    m = g.symbol("m")
    for bad in (m - 1, "n", 2.5, m < 3):
        with pytest.raises(ig.OperationError, match="symbol k"):
            f.symbol("k", max=bad)  # type: ignore[arg-type]
    assert not f.symbols
