"""A refusal names the caller's line and a way out: of every package, of constructors, of other compilers' words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig
from idgraph.ir import Fusion, Tensor


def tensors() -> tuple[Fusion, Tensor, Tensor, Any]:
    f = ig.Fusion("demo")
    x, i = f.input("x", shape=(4, 8)), f.input("i", shape=(4,), dtype="int64")
    t: Any = f.output(ig.exp(x))
    return f, x, i, t


REFUSED: dict[str, Callable[[Any, Any, Any, Any], object]] = {
    "operation, axis": lambda f, x, i, t: ig.sum(x, 5),
    "operation, shapes": lambda f, x, i, t: x + i,
    "operation, type": lambda f, x, i, t: ig.gather(x, 0, x),
    "input, name": lambda f, x, i, t: f.input("x", shape=(3,)),
    "input, type": lambda f, x, i, t: f.input("z", shape=(3,), dtype="float31"),
    "tensor": lambda f, x, i, t: f["nope"],
    "step, axis": lambda f, x, i, t: t.split(3, 2),
    "step, word": lambda f, x, i, t: t.parallelize(0, "TIDq"),
    "memory": lambda f, x, i, t: t.set_memory("sharedd"),
    "like": lambda f, x, i, t: ig.schedule.like(f, x),
    "target": lambda f, x, i, t: ig.emit(f, target="metal"),  # type: ignore[arg-type]
    "keyword": lambda f, x, i, t: ig.emit(f, targett="cuda"),  # type: ignore[call-arg]
    "device": lambda f, x, i, t: ig.schedule.auto(f, device="H900"),
    "cost": lambda f, x, i, t: ig.cost(f),
    "program, key": lambda f, x, i, t: ig.check.program({"version": 1, "bufers": {}}),
    "program, version": lambda f, x, i, t: ig.check.program({"version": 2}),
    "explain": lambda f, x, i, t: ig.fuse.explain(f, x, t),
    "access": lambda f, x, i, t: ig.IdModel(f).access(t.definition, i),
    "layout": lambda f, x, i, t: ig.layout.infer(f, prefer="nchw"),  # type: ignore[call-arg]
    "partition": lambda f, x, i, t: ig.partition(x, 0, x),
    "explorer": lambda f, x, i, t: ig.viz.explore(f, theme="blue"),  # type: ignore[call-arg]
    "a mesh": lambda f, x, i, t: ig.Mesh((2,), ("a",)),  # type: ignore[call-arg]
    "a fusion": lambda f, x, i, t: ig.Fusion("a", device="cuda"),  # type: ignore[call-arg]
    "a model": lambda f, x, i, t: ig.IdModel(),  # type: ignore[call-arg]
    "TVM's compute_at": lambda f, x, i, t: t.compute_at(x, 1),
    "nvFuser's rFactor": lambda f, x, i, t: t.rfactor(0),
    "TVM's bind": lambda f, x, i, t: t.bind(0, "threadIdx.x"),
    "nothing's word": lambda f, x, i, t: t.zzz,
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_line_and_a_way_out(name: str) -> None:
    f, x, i, t = tensors()
    before = str(f)
    with pytest.raises(ig.IdGraphError) as caught:
        REFUSED[name](f, x, i, t)
    assert "test_user_lines.py:" in str(caught.value)
    assert caught.value.hint and str(f) == before


def test_words_of_other_compilers_lead_to_the_step_here() -> None:
    _, _, _, t = tensors()
    words = {
        "compute_at": ".inline(position)",
        "unroll": '.parallelize(axis, "unroll")',
        "fuse": ".merge(outer, inner)",
    }
    for word, step in words.items():
        with pytest.raises(AttributeError) as caught:
            getattr(t, word)
        assert step in str(caught.value) and "operations are functions" not in str(caught.value)
