"""What a compilation does not do: plan a graph again, schedule what no result reads."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
from __future__ import annotations

import importlib
from typing import Any

import pytest

import idgraph as ig
from idgraph.frontends import from_torch, partition
from idgraph.frontends.graph import CapturedProgram, Node, Ref, TensorMeta
from idgraph.frontends.import_ import import_program
from idgraph.frontends.torch_compile import PRODUCTS
from idgraph.frontends.torch_export import capture
from idgraph.ir import Fusion
from idgraph.runtime import fusion_call

torch: Any = importlib.import_module("torch")


@pytest.fixture(name="attempts")
def _attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    attempt: Any = partition._attempt  # pyright: ignore[reportPrivateUsage]

    def counted(program: CapturedProgram, *rest: Any) -> Any:
        made.append(program.name)
        return attempt(program, *rest)

    monkeypatch.setattr(partition, "_attempt", counted)
    return made


def test_operations_that_are_left_to_torch_are_known_before_the_fusion_is_built(attempts: list[str]) -> None:
    x = torch.randn(4, 4)

    def program(x: Any) -> Any:
        return torch.linalg.det((x + 1) @ x) * 2

    graph = from_torch(program, (x,))
    assert attempts == ["program"], "nothing of the determinant stands in the fusion: it is built once"
    wanted = graph.calling("aten.mm.default")
    attempts.clear()
    made = capture(torch.export.export(_module(program), (x,)), None, None, "program", False, calling=PRODUCTS)
    assert attempts == ["program"]
    assert made.coverage == wanted.coverage
    assert [str(s.fusion) for s in made.segments] == [str(s.fusion) for s in wanted.segments]


def _module(program: Any) -> Any:
    made: Any = torch.nn.Module()
    made.forward = program
    return made


def test_what_only_a_copy_writes_over_is_not_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recurrence that writes its rows into a tensor reads each row there before, by the graph: an inlining that such
    a read refuses is searched for anew in each step."""
    scheduled: list[set[str]] = []
    auto = fusion_call.auto

    def seen(f: Fusion, **named: Any) -> None:
        scheduled.append({e.op for e in f.exprs})
        auto(f, **named)

    monkeypatch.setattr(fusion_call, "auto", seen)

    def recurrence(x: Any) -> Any:
        state, rows = torch.zeros_like(x[:, 0]), torch.zeros_like(x)
        for t in range(x.shape[1]):
            state = torch.exp(-state) * x[:, t]
            rows[:, t] = state
        return rows

    x = torch.randn(3, 4, 5)
    torch._dynamo.reset()
    found = torch.compile(recurrence, backend="idgraph", options={"cache": False})(x)
    torch.testing.assert_close(found, recurrence(x))
    (operations,) = scheduled
    assert "slice_scatter" in operations
    f = Fusion("f")
    y = ig.exp(f.input("x", (4, 8)))
    ig.select(y, 1, 1)
    f.output(y * 2)
    scheduled.clear()
    made = fusion_call.scheduled_or_stored(f, "cpu")
    assert scheduled == [{"exp", "mul"}]
    assert [t.name for t in made.program.fusion.inputs] == ["x"]
    assert made.names == tuple(t.name for t in f.tensors), "all that was asked for, as a stored program has them"


def test_nothing_remains_of_an_operation_that_turned_out_to_be_opaque(attempts: list[str]) -> None:
    meta = TensorMeta((4,), "float32", (1,), 0)
    x = Node("x", "placeholder", "x", (), {}, meta)
    odd = Node("odd", "call", "aten.add.Tensor", (Ref("x"), Ref("x")), {"unknown": 1}, meta)
    last = Node("last", "call", "aten.neg.default", (Ref("odd"),), {}, meta)
    made = import_program(CapturedProgram("f", (x, odd, last), (Ref("last"),)))
    assert made.coverage.opaque == {"aten.add.Tensor": "argument unknown is not understood"}
    assert [e.op for e in made.fusion.exprs] == ["neg"], "the sum was built before its argument was refused"
    assert attempts == ["f", "f"]
