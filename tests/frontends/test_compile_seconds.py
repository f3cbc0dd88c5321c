"""What a compilation does not do: plan a graph again."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
from __future__ import annotations

import importlib
from typing import Any

import pytest

from idgraph.frontends import from_torch, partition
from idgraph.frontends.graph import CapturedProgram, Node, Ref, TensorMeta
from idgraph.frontends.import_ import import_program
from idgraph.frontends.torch_compile import PRODUCTS
from idgraph.frontends.torch_export import capture

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


def test_nothing_remains_of_an_operation_that_turned_out_to_be_opaque(attempts: list[str]) -> None:
    meta = TensorMeta((4,), "float32", (1,), 0)
    x = Node("x", "placeholder", "x", (), {}, meta)
    odd = Node("odd", "call", "aten.add.Tensor", (Ref("x"), Ref("x")), {"unknown": 1}, meta)
    last = Node("last", "call", "aten.neg.default", (Ref("odd"),), {}, meta)
    made = import_program(CapturedProgram("f", (x, odd, last), (Ref("last"),)))
    assert made.coverage.opaque == {"aten.add.Tensor": "argument unknown is not understood"}
    assert [e.op for e in made.fusion.exprs] == ["neg"], "the sum was built before its argument was refused"
    assert attempts == ["f", "f"]
