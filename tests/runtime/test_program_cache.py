"""Programs on disk: the same kernels, calls and reports as those that were made, and nothing where anything differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import idgraph as ig
from idgraph.errors import IndexingError
from idgraph.frontends import from_torch
from idgraph.frontends.import_ import Import
from idgraph.index import strides
from idgraph.ir import Fusion
from idgraph.ir.device import TargetName as Target
from idgraph.runtime import fusion_call, program_cache
from idgraph.runtime.call_signature import CallSignature
from idgraph.runtime.fusion_call import scheduled_or_stored
from idgraph.runtime.kernel_cache import KernelCache
from idgraph.runtime.program import Program
from idgraph.testing import fusions

torch: Any = pytest.importorskip("torch")


def softmax(x: str = "x", extent: int = 300) -> Fusion:
    f = ig.Fusion("rows")
    f.output(ig.softmax(f.input(x, (64, extent)), 1))
    return f


def rows(source: str = "x") -> Fusion:
    f = ig.Fusion("gathers")
    x, i = f.input(source, (64, 4096)), f.input("i", (64, 1), "int64")
    f.output(ig.gather(ig.exp(x), 1, i))
    return f


def dynamic() -> Fusion:
    f = ig.Fusion("dynamic")
    n = f.symbol("n", min=1)
    x = f.input("x", (n, n * 2))
    f.output(ig.cat([x[:, 1:], x[:, :1]], 1) * 2.0)
    f.output(ig.sum(x, 1))
    return f


def strided() -> Fusion:
    f = ig.Fusion("strided")
    x, y = f.input("x", (32, 48), strides=(1, 32)), f.input("y", (32, 48), "bfloat16")
    t = f.output(x * 2.0 + y)
    t.set_allocation([t.logical[1], t.logical[0]])
    f.output(ig.exp(t))
    return f


def assert_same(found: Program, made: Program) -> None:
    """Everything of a program that calls, compilers and reports read."""
    assert found.plan == made.plan
    assert str(found.plan) == str(made.plan)
    assert found.plan.needed == made.plan.needed
    assert [k.widths for k in found.kernels] == [k.widths for k in made.kernels]
    for checked in (True, False):
        for a, b in zip(found.kernels, made.kernels, strict=True):
            assert found.kernel_source(a, checked) == made.kernel_source(b, checked)
    assert found.report.gathers == made.report.gathers
    assert str(found.report) == str(made.report)
    assert [(s.tensor.name, s.what, s.value, s.line) for s in found.sizes] == [
        (s.tensor.name, s.what, s.value, s.line) for s in made.sizes
    ]
    one, other = CallSignature(found), CallSignature(made)
    assert one.exprs == other.exprs
    assert (one.names, one.outputs, one.input_names) == (other.names, other.outputs, other.input_names)
    assert [k.buffers for k in one.kernels] == [k.buffers for k in other.kernels]
    for t, u in zip((*found.fusion.inputs, *found.outputs), (*made.fusion.inputs, *made.outputs), strict=True):
        assert (t.name, t.dtype, strides(t), t.offset) == (u.name, u.dtype, strides(u), u.offset)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("build", [softmax, rows, dynamic, strided])
def test_a_program_comes_back_as_it_was(tmp_path: Path, build: Callable[[], Fusion], target: Target) -> None:
    f = build()
    made, found = (scheduled_or_stored(f, target, tmp_path) for _ in range(2))
    assert (made.loaded, found.loaded) == (False, True)
    assert made.names == found.names == tuple(t.name for t in f.tensors)
    assert_same(found.program, made.program)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(f=fusions(max_steps=5))
def test_random_programs_come_back(tmp_path: Path, f: Fusion) -> None:
    for target in ("cpu", "cuda"):
        made = scheduled_or_stored(f, target, tmp_path)
        found = scheduled_or_stored(f, target, tmp_path)
        if made.program.fusion.name == f.name and not made.loaded:
            assert found.loaded
        assert_same(found.program, made.program)


def test_names_are_part_of_a_key_only_where_errors_tell_them(tmp_path: Path) -> None:
    assert not scheduled_or_stored(softmax("a"), "cpu", tmp_path, None, True).loaded
    equal = scheduled_or_stored(softmax("b"), "cpu", tmp_path, None, True)
    assert equal.loaded
    assert equal.names[0] == "a"
    assert not scheduled_or_stored(softmax("b"), "cpu", tmp_path).loaded  # `compile` calls inputs by their names
    assert not scheduled_or_stored(rows("a"), "cpu", tmp_path, None, True).loaded
    assert not scheduled_or_stored(rows("b"), "cpu", tmp_path, None, True).loaded  # its check names b
    assert scheduled_or_stored(rows("b"), "cpu", tmp_path, None, True).names[0] == "b"


def test_another_size_device_or_library_is_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduled_or_stored(softmax(), "cuda", tmp_path)
    assert scheduled_or_stored(softmax(), "cuda", tmp_path).loaded
    assert not scheduled_or_stored(softmax(extent=301), "cuda", tmp_path).loaded
    assert not scheduled_or_stored(softmax(), "cpu", tmp_path).loaded
    with ig.cost.use_device("A100"):
        assert not scheduled_or_stored(softmax(), "cuda", tmp_path).loaded
    monkeypatch.setattr(program_cache, "library_digest", lambda: "another")
    assert not scheduled_or_stored(softmax(), "cuda", tmp_path).loaded


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied"])
def test_a_damaged_entry_is_made_again(tmp_path: Path, damage: str) -> None:
    f = softmax()
    good = scheduled_or_stored(f, "cpu", tmp_path).program
    (place,) = tmp_path.glob(f"*{program_cache.SUFFIX}")
    text = place.read_text()
    changed = {"cut": text[: len(text) // 2], "changed": text.replace("float32", "float64"), "emptied": ""}
    place.write_text(changed[damage])
    again = scheduled_or_stored(f, "cpu", tmp_path)
    assert not again.loaded
    assert again.program.source == good.source
    assert scheduled_or_stored(f, "cpu", tmp_path).loaded


@pytest.mark.parametrize(
    "change",
    [{"kernels": ["kernel"]}, {"widths": []}, {"fusion": "fusion f {"}, {"checks": [["x", "y", None]]}, {"names": []}],
)  # fmt: skip
def test_an_entry_of_another_form_is_made_again(tmp_path: Path, change: dict[str, object]) -> None:
    f = softmax()
    scheduled_or_stored(f, "cpu", tmp_path)
    key, kept = program_cache.program_key(f, "cpu", False), KernelCache(tmp_path, program_cache.SUFFIX)
    entry = json.loads(kept.find(key) or "")
    kept.put(key, json.dumps({**entry, **change}))
    assert not scheduled_or_stored(f, "cpu", tmp_path).loaded


def test_a_scheduled_fusion_is_taken_as_it_is(tmp_path: Path) -> None:
    f = softmax()
    ig.schedule.auto(f)
    assert scheduled_or_stored(f, "cpu", tmp_path).program.fusion is f
    assert not [*tmp_path.glob(f"*{program_cache.SUFFIX}")]


def test_a_call_names_its_own_tensors(tmp_path: Path) -> None:
    for source in ("a", "b", "b"):
        call = ig.compile(rows(source), "cpu", cache=tmp_path)
        arrays = {source: np.zeros((64, 4096), np.float32), "i": np.full((64, 1), 5000)}
        with pytest.raises(IndexingError, match="5000") as told:
            call(**arrays)
        assert "exp" in str(told.value) or source in str(told.value)


def test_a_later_torch_compile_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def layer(x: Any, i: Any) -> Any:
        return torch.exp(x @ x)[i] * 2

    def result() -> tuple[Any, list[str]]:
        said = list[str]()
        torch.compiler.reset()
        options = {"cache": str(tmp_path), "log": said.append, "workers": 0}
        x = torch.linspace(0, 1, 64).reshape(8, 8)
        return torch.compile(layer, backend="idgraph", options=options)(x, torch.tensor([1, 1, 7])), said

    want, first = result()
    monkeypatch.setattr(fusion_call, "auto", None)
    monkeypatch.setattr(fusion_call, "emit", None)
    found, again = result()
    assert torch.equal(found, want)
    assert not any("from disk" in t for t in first)
    assert sum("1 part from disk; load" in t for t in again) == 1


def test_an_import_says_what_came_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Any) -> Any:
        return ((x @ x).relu() @ x).relu() + 1

    def imported() -> Import:
        return from_torch(program, (torch.eye(8),)).calling("aten.mm.default")

    first = imported().compiled("cpu", cache=tmp_path)
    want = first(torch.eye(8))
    monkeypatch.setattr(fusion_call, "emit", None)
    again = imported().compiled("cpu", cache=tmp_path)
    assert torch.equal(again(torch.eye(8)), want)
    assert again.runner.imported.loaded == 2
    assert "load" in again.runner.imported.stages.seconds


def test_a_folder_keeps_what_was_used_last(tmp_path: Path) -> None:
    kept = KernelCache(tmp_path, limit=4000)
    (tmp_path / "mine.txt").write_text("x" * 9000)
    for n in range(6):
        kept.put(str(n), "t" * 1000)
    kept.shrink()
    assert 1 <= sum(kept.find(str(n)) is not None for n in range(6)) <= 3
    assert (tmp_path / "mine.txt").exists()
