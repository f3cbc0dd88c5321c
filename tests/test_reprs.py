"""What a prompt shows: the repr of what users hold is short and agrees with the printed text."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import idgraph as ig
from idgraph.arith import symbol


def shown() -> dict[str, Any]:
    f = ig.Fusion("half")
    x = f.input("x", (64, 8))
    f.output(x[32:] * 2.0)
    ig.schedule.auto(f)
    i = symbol("i", 0, 63)
    model, program, report = ig.IdModel(f), ig.emit(f, "cpu"), ig.report(f)
    access = model.access(f.exprs[-1], f["t1"])
    return {
        "access": access, "model": model, "program": program, "cost": ig.cost(program), "report": report,
        "segment": report.segments[0], "operation": report.segments[0].operations[0], "plan": program.plan,
        "kernel cost": ig.cost(program).kernels[0], "validation": ig.validate(f, "python", exhaustive=False),
        "explorer": ig.viz.explore(f),
        "map": ig.IndexMap((i,), ((i + 32) % 64,), (64,)),
    }  # fmt: skip


def test_no_repr_is_a_dump() -> None:
    for name, x in shown().items():
        text = repr(x)
        assert len(text) < 640 and "object at 0x" not in text, (name, text)


def test_a_repr_says_what_the_text_says() -> None:
    found = shown()
    for name in ("access", "model", "cost", "validation"):
        assert repr(found[name]) == str(found[name]), name
    kernel = found["program"].kernels[0]
    assert repr(kernel) == str(kernel)
    assert repr(found["report"]) == "IndexReport('half', 2 operations, scheduled as given)"


@pytest.mark.parametrize(
    ("where", "name", "meant"),
    [
        ("", "softmx", "softmax"), (".cost", "Kost", "Cost"), (".validate", "chek_values", "check_values"),
        (".viz", "explor", "explore"), (".reports", "IndexReprt", "IndexReport"), (".runtime", "Progam", "Program"),
    ],
)  # fmt: skip
def test_a_misspelt_name_suggests_the_right_one(where: str, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"did you mean '{meant}'\?"):
        getattr(importlib.import_module(f"idgraph{where}"), name)
