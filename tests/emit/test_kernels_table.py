"""The kernels of a program as a table: every kernel a row, and the same as data."""

from __future__ import annotations

import json

import pytest

import idgraph as ig
from idgraph.kernel.ir import walk


def test_a_row_a_kernel() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 4))
    s = ig.sum(x, 1)
    f.output(s * 2.0, x + 1.0)
    p = ig.emit(f, "cuda")
    rows = json.loads(p.kernels.to_json())
    assert [r["kernel"] for r in rows] == [k.name for k in p.plan.kernels] == [k.name for k in p.kernels]
    assert [r["statements"] for r in rows] == [sum(1 for _ in walk(k.body)) for k in p.kernels]
    assert [r["ir"] for r in rows] == [str(k) for k in p.kernels]
    lines = str(p.kernels).splitlines()
    assert len(lines) == 1 + len(p.kernels) and all(
        k.name in line for k, line in zip(p.kernels, lines[1:], strict=True)
    )
    assert p.kernels == p.plan.kernels


def test_formats_in_words() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(2, 3), strides=(1, 2))
    t = f.output(x * 2.0)
    d = ig.layout.infer(f)
    assert d.explain(t).startswith(d[t].explain()) and "made by mul at test_kernels_table.py" in d.explain(t)
    with pytest.raises(ig.OperationError, match="x has no memory format here"):
        d.explain(x)
