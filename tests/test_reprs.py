"""What a prompt shows: the repr of what users hold is short and agrees with the printed text."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import idgraph as ig
from idgraph.arith import symbol
from idgraph.errors import ArgumentError


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
    assert repr(kernel) == "Kernel('kernel0', 8 statements: input x, output t2)"
    assert repr(found["report"]) == "IndexReport('half', 2 operations, scheduled as given)"


def test_the_repr_of_an_answer_is_its_text() -> None:
    """Answers to questions about a fusion: none shows the fields that it was made of."""
    f = ig.Fusion("crossed")
    q = f.input("q", (64, 32))
    a = ig.exp(q)
    b = ig.sum(a, 1)
    f.output(b * 2.0)
    f.output(a.T + 1.0)
    m, exp = ig.IdModel(f), f.exprs[0]
    obstacle = ig.fuse.obstacles(f)[0]
    decisions, access = ig.layout.infer(f), m.access(exp, q)
    answers: list[object] = [
        m.exact.explain(q.logical[0], a.logical[0]), obstacle, obstacle.alignment,
        obstacle.accesses[0], ig.fuse.obstacles(f), ig.fuse.plan(f), decisions, decisions[a], ig.layout.alias(f, b),
        access.buffer, access.explain_predicate(), access.explain_vector_width(m.loops(exp)[-1]),
        access.explain_contiguous(m.loops(exp)[-1]), ig.layout.pad_strides(f), ig.emit(f, "numpy").report,
    ]  # fmt: skip
    for x in answers:
        assert repr(x) == str(x), type(x)
        assert "object at 0x" not in repr(x)


@pytest.mark.parametrize(
    ("where", "name", "meant"),
    [
        ("", "softmx", "softmax"), (".cost", "Kost", "Cost"), (".validate", "chek_values", "check_values"),
        (".viz", "explor", "explore"), (".reports", "IndexReprt", "IndexReport"), (".runtime", "Progam", "Program"),
        (".schedule", "atuo", "auto"), (".fuse", "explian", "explain"), (".layout", "infr", "infer"),
        (".check", "indutcor", "inductor"), (".kernel", "prase", "parse"), (".shard", "ownr", "owner"),
        (".arith", "simplfy", "simplify"), (".testing", "fusion", "fusions"), (".frontends", "from_trch", "from_torch"),
    ],
)  # fmt: skip
def test_a_misspelt_name_suggests_the_right_one(where: str, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"did you mean '{meant}'\?"):
        getattr(importlib.import_module(f"idgraph{where}"), name)


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("einsum", "ig.matmul(x, y)"), ("masked_fill", "ig.where(mask, value, x)"), ("max", "ig.amax(x)"),
        ("arange", "ig.iota(n, fusion=f)"), ("zeros", "ig.full(shape, 0.0, fusion=f)"),
        ("view", "ig.reshape(x, shape)"), ("split", "x[:n]"),
        ("gelu", "x * 0.5 * (1.0 + ig.erf(x * 0.7071067811865476))"),
        ("logsumexp", "ig.log(ig.sum(ig.exp(x), 1))"), ("outer", "ig.unsqueeze(x, 1) * y"),
    ],
)  # fmt: skip
def test_a_name_of_another_library_is_written_here(name: str, here: str) -> None:
    """The words that attributes of a tensor know, the module knows: a near name that means something else is none."""
    with pytest.raises(AttributeError) as caught:
        getattr(ig, name)
    assert f"here it is {here}" in str(caught.value)
    f = ig.Fusion("f")
    x = y = f.input("x", (4, 4))
    names: dict[str, Any] = {"ig": ig, "f": f, "x": x, "y": y, "mask": x > 0.0, "value": 1.0, "n": 4, "shape": (2, 8)}
    exec(f"made = {here}", names)
    assert isinstance(names["made"], ig.Tensor)


@pytest.mark.parametrize("name", ["sort", "argsort", "median", "argmax", "acos"])
def test_a_function_that_torch_alone_has_is_imported(name: str) -> None:
    with pytest.raises(AttributeError, match=r"here it is ig\.from_torch"):
        getattr(ig, name)


def test_a_program_that_is_called_says_how_it_is_run() -> None:
    f = ig.Fusion("f")
    f.output(ig.exp(f.input("x", (4,))))
    with pytest.raises(ArgumentError, match="not called") as caught:
        ig.emit(f, "python")(1)
    assert caught.value.hint == 'run({"x": ...})' and caught.value.where
