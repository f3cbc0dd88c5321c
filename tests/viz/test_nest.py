"""Loop nests as text, and text in colour."""

from __future__ import annotations

import io
import sys

import pytest

import idgraph as ig
from idgraph.viz import loop_nest
from idgraph.viz.notebook import coloured


def tiled() -> ig.Fusion:
    f = ig.Fusion("tile")
    t = ig.copy(f.input("a", shape=(2, 32, 32)), name="t").set_memory("shared")
    u = f.output(ig.permute(t, (0, 2, 1)))
    for x in (t, u):
        x.parallelize(0, "blockIdx.x").parallelize(2, "threadIdx.x")
    t.inline(1)
    return f


def test_loops_arrays_and_operations(capsys: pytest.CaptureFixture[str]) -> None:
    tiled().show(loops=True)
    assert capsys.readouterr().out.splitlines() == [
        "for i0 < 2 on blockIdx.x:",
        "  allocate t: 1024 float32, shared",
        "  for i1 < 32:",
        "    for i2 < 32 on threadIdx.x:",
        "      t = copy(a)",
        "  for i1 < 32:",
        "    for i2 < 32 on threadIdx.x:",
        "      t2 = permute(t)",
    ]


def test_what_is_not_inlined_is_allocated_first() -> None:
    f = ig.Fusion("f")
    f.output(ig.sum(ig.exp(f.input("x", shape=(4, 6)), name="t"), 1))
    assert loop_nest(f).splitlines() == [
        "allocate t: 24 float32, global", "for i0 < 4:", "  for i1 < 6:", "    t = exp(x)",
        "for i0 < 4:", "  for i1 < 6:", "    t2 = sum(t) over i1",
    ]  # fmt: skip
    assert loop_nest(ig.Fusion("empty")) == "# no operation"


def test_a_schedule_that_no_nest_does_is_an_error() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(64,))
    t = ig.exp(x, name="t")
    f.output(t + ig.flip(t, 0))
    ig.schedule.like(f, f.outputs[0])
    for u in f.tensors:
        if u.definition is not None and u.uses:
            u.inline(1)
    with pytest.raises(ig.ScheduleError, match="is not loop 0"):
        f.show(loops=True)


def test_the_text_and_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    f = tiled()
    f.show()
    assert capsys.readouterr().out == f"{f}\n"
    program = ig.emit(f, target="cuda")
    program.show()
    assert capsys.readouterr().out == f"{program.source}\n"


def test_a_terminal_gets_colours_that_change_no_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    source = ig.emit(tiled(), target="cuda").source
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    told = coloured(source)
    assert "\x1b[" in told
    assert Text.from_ansi(told).plain.rstrip() == source.rstrip()
    monkeypatch.setenv("TERM", "dumb")
    assert coloured(source) == source
