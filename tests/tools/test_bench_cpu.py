"""The table of kernels on the CPU: values are compared before anything is timed, JSON names the machine."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

import idgraph as ig
from tools.bench.cpu import facts_of, measure
from tools.bench.cpu_rows import CASES, CpuCase

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
