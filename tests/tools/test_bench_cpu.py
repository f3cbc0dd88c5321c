"""The table of kernels on the CPU: values are compared before anything is timed, JSON names the machine."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

import idgraph as ig
from tools.bench import cpu
from tools.bench.cpu import facts_of, measure
from tools.programs import cpu_functions
from tools.programs.cpu_rows import CASES, CpuCase

torch: Any = pytest.importorskip("torch")
QUICK = argparse.Namespace(rounds=1, no_compile=True)


def small() -> ig.Fusion:
    f = ig.Fusion("small")
    f.output(ig.embedding(f.input("ids", (6,), "int64"), f.input("table", (9, 4), "bfloat16")))
    return f


def test_a_row_holds_values_and_times() -> None:
    case = CpuCase("small", small, lambda torch, x: (torch.nn.functional.embedding(x["ids"], x["table"]),))
    row = measure(torch, case, QUICK)
    assert row.ok and row.us.keys() == row.of.keys() == {"idgraph", "eager"} and row.of["idgraph"] == 1.0
    facts = facts_of(torch, [row], 1)
    assert "cores" in facts["machine"] and facts["load"] >= 0 and facts["rows"][0]["key"] == "small"


def test_a_wrong_value_is_told() -> None:
    case = CpuCase("small", small, lambda torch, x: (2 * torch.nn.functional.embedding(x["ids"], x["table"]),))
    assert not measure(torch, case, QUICK).ok


def test_every_row_is_a_fusion() -> None:
    assert len({c.key for c in CASES}) == len(CASES)
    for case in CASES:
        f = case.build()
        ig.schedule.auto(f)
        assert ig.emit(f, target="cpu").kernels


def test_functions_are_compared_with_eager(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [cpu.measure_function(name, 3, 1, 0.0) for name in ("roll", "where")]
    assert all(r.right and r.share > 0 for r in rows)
    names = [*cpu_functions.OF_ONE, *cpu_functions.OF_TWO, *cpu_functions.OTHER]
    assert len(set(names)) == len(names)
    cpu.show_functions(rows)
    assert all(r.name in capsys.readouterr().out for r in rows[:1])
    other = [cpu.measure_function(name, 0, 1, 0.0) for name in ("maximum with places", "gated", "x + y bfloat16")]
    assert all(r.right and r.share > 0 for r in other)


def test_a_function_that_is_not_eagers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def thrice(x: Any) -> Any:
        return x * 3

    kept: Any = ig.compile(ig.from_torch(thrice, (torch.ones(3, 1003),)), "cpu")

    def compiled(*_: object) -> Any:
        return kept

    monkeypatch.setattr(cpu.ig, "compile", compiled)
    assert not cpu.measure_function("x * 2", 3, 1, 0.0).right
