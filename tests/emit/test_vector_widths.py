"""A vector width that was asked for and not given is in the kernel's `widths`, by operation, access and loop."""

from __future__ import annotations

import re
from typing import Literal

import pytest

import idgraph as ig


def rows(dtype: Literal["float16", "float32"], columns: int, lanes: int) -> ig.Fusion:
    f = ig.Fusion("f")
    y = f.output(ig.mul(f.input("x", shape=(6, columns), dtype=dtype), 2.0, name="y"))
    y.split(1, lanes).parallelize(0, "blockIdx.x").parallelize(2, "vectorize")
    return f


@pytest.mark.parametrize(
    ("dtype", "columns", "lanes", "got"),
    [("float16", 50, 16, 2), ("float16", 64, 16, 8), ("float16", 64, 8, 8), ("float32", 50, 4, 2),
     ("float32", 51, 4, 1), ("float32", 64, 8, 4), ("float32", 60, 4, 4)],
)  # fmt: skip
def test_asked_and_got(dtype: Literal["float16", "float32"], columns: int, lanes: int, got: int) -> None:
    p = ig.emit(rows(dtype, columns, lanes), target="cuda")
    (kernel,) = p.kernels
    size = 2 if dtype == "float16" else 4
    assert {(w.operation, w.tensor, w.asked, w.got) for w in kernel.widths} == {
        ("y", t, lanes, got) for t in ("x", "y")
    }
    assert {w.is_narrow for w in kernel.widths} == {got < min(lanes, 16 // size)}
    loads = [int(n) * (4 if kind == "w" else size) for kind, n in re.findall(r"([vw])load(\d+)\(", p.source)]
    assert max(loads, default=size) == got * size


def test_what_does_not_move_along_the_loop_is_left_out() -> None:
    f = ig.Fusion("f")
    x, w = f.input("x", shape=(6, 64)), f.input("w", shape=(6, 1))
    y = f.output(ig.mul(x, w, name="y"))
    y.split(1, 4).parallelize(2, "vectorize")
    (kernel,) = ig.emit(f, target="cuda").kernels
    assert {w.tensor for w in kernel.widths} == {"x", "y"} and not any(w.is_narrow for w in kernel.widths)
    assert str(kernel.widths[0]).endswith("asked 4, got 4")


def test_a_transposed_read_gets_single_elements() -> None:
    f = ig.Fusion("f")
    y = f.output(ig.mul(ig.transpose(f.input("x", shape=(64, 6)), 0, 1), 2.0, name="y"))
    y.split(1, 4).parallelize(2, "vectorize")
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    (kernel,) = ig.emit(f, target="cuda").kernels
    assert {(w.tensor, w.got) for w in kernel.widths} == {("x", 1), ("y", 4)}
    assert not ig.emit(f, target="cpu").kernels[0].widths


def test_verify_says_what_emit_would() -> None:
    f = rows("float16", 50, 16)
    report = f.verify()
    assert report.ok and report and "asked 16, got 2" in repr(report)
    assert {str(w) for w in report.widths} == {f"y: i2 over {t}: asked 16, got 2" for t in ("x", "y")}
    g = ig.Fusion("g")
    a = ig.exp(g.input("x", shape=(20, 20)), name="a")
    b = g.output(ig.flip(a, 1))
    g.output(-a)
    ig.schedule.like(g, b)
    a.merge(0).inline(1)
    refused = g.verify()
    assert not refused and set(refused.refusals) == {"python", "numpy", "cpu", "cuda"}
    for target, error in refused.refusals.items():
        with pytest.raises(type(error)) as caught:
            ig.emit(g, target=target)  # type: ignore[arg-type] - a name of the table
        assert str(caught.value) == str(error)
    assert "refused for python, numpy, cpu, cuda" in str(refused)


@pytest.mark.parametrize(("columns", "lanes", "got"), [(50, 16, 2), (64, 16, 8), (64, 8, 8), (51, 4, 1), (52, 4, 4)])
def test_a_strict_width_is_given_or_refused(columns: int, lanes: int, got: int) -> None:
    f = ig.Fusion("f")
    y = f.output(ig.mul(f.input("x", shape=(6, columns), dtype="float16"), 2.0, name="y"))
    y.split(1, lanes).parallelize(0, "blockIdx.x").vectorize(2, strict=True)
    again = ig.parse(str(f))
    for g in (f, again):
        if got == min(lanes, 8):
            assert {w.got for k in ig.emit(g, "cuda").kernels for w in k.widths} == {got}
            continue
        with pytest.raises(ig.EmitError, match=f"y: i2 over .: asked {lanes}, got {got}"):
            ig.emit(g, target="cuda")
        assert "cuda" in g.verify().refusals and "cpu" not in g.verify().refusals
    f["y"].vectorize(2)
    ig.emit(f, target="cuda")


def test_a_strict_loop_is_that_of_what_is_inlined_there_too() -> None:
    for strict in (False, True):
        f = ig.Fusion("f")
        a = ig.exp(ig.transpose(f.input("x", shape=(64, 6)), 0, 1), name="a")
        y = f.output(ig.mul(a, 2.0, name="y"))
        y.split(1, 4).vectorize(2, strict=strict)
        ig.schedule.like(f, y)
        ig.schedule.inline_most(f)
        if not strict:
            ig.emit(f, target="cuda")
            continue
        with pytest.raises(ig.EmitError, match="over x: asked 4, got 1") as caught:
            ig.emit(f, target="cuda")
        assert "y asks for its vector width strictly" in str(caught.value)
        assert "test_vector_widths.py" in str(caught.value)


def test_strict_is_of_vector_loops() -> None:
    f = rows("float32", 64, 4)
    with pytest.raises(ig.ScheduleError, match="strict is of vector widths"):
        f["y"].parallelize(1, "unroll", strict=True)
    f["y"].split(0, 2)  # the vector loop is another axis now
    f["y"].parallelize(3, "serial").reorder({1: 3}).vectorize(3, strict=True)
    with pytest.raises(ig.EmitError, match="asked 2, got 1"):
        ig.emit(f, target="cuda")


def test_a_loop_as_long_as_a_symbol_is_no_vector() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    y = f.output(ig.mul(f.input("x", shape=(n,)), 2.0, name="y")).parallelize(0, "vectorize")
    report = f.verify()
    assert report.ok and sorted(map(str, report.widths)) == [f"y: i0 over {t}: asked 4, got 1" for t in "xy"]
    y.vectorize(0, strict=True)
    with pytest.raises(ig.EmitError, match="no vector is as long as a symbol") as caught:
        ig.emit(f, target="cuda")
    assert "split by 4" in str(caught.value) and "multiple_of=4" in str(caught.value)
    assert sorted(f.verify().refusals) == ["cuda"]
    g = ig.Fusion("g")
    z = g.output(ig.mul(g.input("x", shape=(g.symbol("n", min=1, multiple_of=4),)), 2.0))
    z.split(0, 4).vectorize(1, strict=True)
    assert g.verify().ok and not g.verify().widths


def test_no_way_out_is_a_split_by_one() -> None:
    f = ig.Fusion("f")
    y = f.output(ig.mul(f.input("x", shape=(8, 96)), 2.0, name="y"))
    y.split(1, 3).vectorize(2, strict=True)
    with pytest.raises(ig.EmitError, match="the strict vector width is not given: y: i2 over x: asked 3") as caught:
        ig.emit(f, target="cuda")
    assert caught.value.hint.startswith("leave strict out")
    assert str(caught.value) == str(f.verify().refusals["cuda"])


@pytest.mark.parametrize(("memory", "targets"), [("local", ["cpu", "cuda", "numpy", "python"]), ("shared", ["cuda"])])
def test_an_output_is_in_global_memory(memory: str, targets: list[str]) -> None:
    f = ig.Fusion("f")
    f.output(ig.mul(f.input("x", shape=(8, 64)), 2.0, name="y")).set_memory(memory)
    report = f.verify()
    assert sorted(report.refusals) == targets
    assert f"y asks for {memory} memory, but is an output" in str(report)
    with pytest.raises(ig.ScheduleError, match="but is an output"):
        ig.emit(f, target="cuda")
