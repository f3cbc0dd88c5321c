"""The table of passes: each has an example before and after, and what stands in lanes never leaves the table."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import idgraph as ig
from idgraph import passes
from idgraph.kernel.ir import StraightLineBlock, walk
from idgraph.passes.pipeline import PASSES, TABLE
from idgraph.runtime.program import stages
from tests.emit.cases import CASES


def docs() -> list[str]:
    """The docstrings of all functions of the room."""
    found: list[str] = []
    for m in pkgutil.walk_packages(passes.__path__, "idgraph.passes."):
        values = vars(importlib.import_module(m.name)).values()
        found += [v.__doc__ for v in values if callable(v) and getattr(v, "__module__", "") == m.name and v.__doc__]
    return found


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_shows_a_kernel_before_and_after(name: str) -> None:
    mine = [d for d in docs() if any(line.strip().startswith(f"{name}: ") for line in d.splitlines())]
    assert len(mine) == 1, name
    assert ">>> print(" in mine[0] and "kernel.parse(" in mine[0]


def test_a_pass_is_a_step_of_its_own() -> None:
    """No pass of the table runs another one: the kernel after it shows its own work."""
    names = [p.name for p in TABLE["cuda"]]
    assert names.index("unroll") < names.index("vectorize_loads") < names.index("cse") < names.index("pack_half2")


@pytest.mark.parametrize("name", ["rotation_auto", "pairs_float16", "vectorized_and_unrolled"])
def test_lanes_are_dissolved_in_the_end(name: str) -> None:
    f = CASES[name]().fusion
    p = ig.emit(f, "cuda")
    assert not any(isinstance(s, StraightLineBlock) for k in p.kernels for s in walk(k.body))
    shown = [str(k) for _, plan in stages(f, "cuda") for k in plan.kernels]
    assert any("lanes:" in text for text in shown)


def checked_with(name: str, f: ig.Fusion) -> None:
    """Every address and value of a kernel of the CPU that the pass has changed."""
    ig.schedule.auto(f)
    assert any(name in k.passes for k in ig.emit(f, "cpu").kernels)
    assert ig.validate(f, "cpu").ok


@pytest.mark.parametrize(("rows", "columns"), [(60, 512), (72, 544), (52, 1056)])
def test_rows_side_by_side_are_reduced_as_rows_apart(rows: int, columns: int) -> None:
    """Every sum of a column, block by block and in the last one, which is not full."""
    f = ig.Fusion("columns")
    f.output(ig.sum(f.input("x", shape=(rows, columns)), 0))
    checked_with("interchange", f)


@pytest.mark.parametrize("columns", [2001, 8195, 16389])
def test_a_cut_row_is_one_loop(columns: int) -> None:
    """Every column up to the last one, of one block and of several."""
    f = ig.Fusion("cut")
    x, b = f.input("x", shape=(3, columns)), f.input("b", shape=(columns,))
    f.output(ig.relu(x + b))
    checked_with("collapse", f)
