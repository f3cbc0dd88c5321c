"""L10: parse(print(x)) == x for fusions and index expressions, and the printed form is the same in every run."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given, note, settings

import idgraph as ig
from idgraph import arith
from idgraph.arith import Expr
from idgraph.ir import Fusion
from idgraph.testing import index_expressions, scheduled_fusions

PROFILE = settings().max_examples


@settings(max_examples=PROFILE)
@given(scheduled_fusions())
def test_fusions(f: Fusion) -> None:
    """Operations, inputs and schedule come back, and print the same again."""
    text = str(f)
    note(text)
    again = ig.parse(text)
    assert again == f
    assert str(again) == text
    assert [list(map(repr, t.loop)) for t in again.tensors] == [list(map(repr, t.loop)) for t in f.tensors]


@settings(max_examples=PROFILE)
@given(index_expressions())
def test_index_expressions(found: tuple[Expr, dict[str, int]]) -> None:
    """The text of an expression reads back as the same expression, by value at every point and by structure."""
    e, ranges = found
    again = arith.parse(str(e), ranges)
    assert str(again) == str(e)
    assert again == e


_SCRIPT = """
import idgraph as ig
f = ig.Fusion("f")
x = f.input("x", shape=(6, 8))
y = ig.cat([x[:, 4:], x[:, :4]], 1)
t = f.output(ig.sum(x * y + ig.flip(x, 0), 1))
y.split(1, 3).merge(0)
m = ig.IdModel(f)
print(f)
for e in f.exprs:
    print(m.index_map(e))
print(m.index)
"""


def test_prints_the_same_in_every_run() -> None:
    """Text does not depend on hash seeds, addresses or what ran before."""
    runs = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(runs) == 1
    assert "cat" in runs.pop()
