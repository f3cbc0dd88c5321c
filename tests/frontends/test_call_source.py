"""The function that a call of an import runs: what it does, what it leaves out, and that it says so."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

import idgraph as ig
from idgraph.errors import FrontendError
from idgraph.frontends import call_source, from_torch
from idgraph.frontends.call_plan import CallPlan
from idgraph.frontends.callable_import import Runner
from idgraph.frontends.graph import CapturedProgram, Node, Ref, TensorMeta
from idgraph.frontends.import_ import import_program
from idgraph.frontends.session import CompileOptions

torch = pytest.importorskip("torch")


class Layer(torch.nn.Module):
    """A layer with a product in it, so that a stack of them has many parts."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.gelu(self.linear(self.norm(x))) + x


def layers(count: int) -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Layer() for _ in range(count))).eval(), torch.randn(4, 8)


def test_a_second_call_runs_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = layers(3)
    imported = from_torch(model, (x,)).calling("aten.addmm.default")
    assert not imported.written
    torch.testing.assert_close(imported.run(x), model(x))
    text = imported.wrapper
    assert (
        text.count("aten_addmm(") == 3 and text.count("launch") == text.count("launch1(") + text.count("launch0(") + 2
    )
    assert "empty_strided((4, 8), (8, 1), torch_float32)" in text
    assert not {"linear", "norm", "weight"} & set(text.replace("(", " ").split())  # no name of the user's

    def never(*_: Any) -> Any:
        raise AssertionError("a step at a time")

    monkeypatch.setattr(CallPlan, "__call__", never)
    monkeypatch.setattr(CallPlan, "written", never)
    for _ in range(2):
        y = torch.randn(4, 8)
        torch.testing.assert_close(imported.run(y), model(y))


def test_arguments_are_compared_at_once() -> None:
    given = [torch.randn(4, 6) for _ in range(9)]
    guard: Any = call_source.argument_guard(torch, given)

    def refused(other: Any) -> bool:
        try:
            return not guard([*given[:4], other, *given[5:]])
        except AssertionError:
            return True

    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(event) if "call" in event else None)
    try:
        assert guard(given)
    finally:
        sys.setprofile(None)
    assert len(calls) < len(given), "none for each argument"
    assert refused(torch.randn(4, 7)) and refused(torch.randn(6, 4).t())
    assert refused(torch.randn(4, 6, dtype=torch.float64)) and refused(torch._neg_view(given[0]))
    assert not refused(torch.nn.Parameter(torch.randn(4, 6))), "a gradient changes nothing"
    with torch.inference_mode():
        assert not refused(torch.randn(4, 6))


def test_equal_layers_have_the_kernels_of_the_first() -> None:
    model, x = layers(4)
    imported = from_torch(model, (x,)).calling("aten.addmm.default")
    torch.testing.assert_close(imported.run(x), model(x))
    made = list(imported.kernels.values())
    assert len(made) == 5 and len({id(k) for k in made}) == 3  # before, between (three times) and behind the products
    y = torch.randn(4, 8)
    torch.testing.assert_close(imported.run(y), model(y))


def test_layers_that_check_indices_name_their_own() -> None:
    def f(x: Any, first: Any, second: Any, w: Any) -> Any:
        return (x[first] @ w)[second] @ w

    x, w = torch.randn(4, 4), torch.eye(4)
    at = torch.tensor([3, 2, 1, 0])
    imported = from_torch(f, (x, at, at.clone(), w)).calling("aten.mm.default")  # two tensors: torch joins equal ones
    torch.testing.assert_close(imported.run(x, at, at, w), f(x, at, at, w))
    for _ in range(2):
        with pytest.raises(ig.IndexingError, match="made of second"):
            imported.run(x, at, at + 2, w)


def test_the_graph_of_a_backend_is_freed_as_it_goes() -> None:
    """What only the list of arguments holds is freed by a call, and what the caller holds is not touched."""
    from idgraph.frontends.callable_import import Runner
    from idgraph.frontends.session import CompileOptions

    def f(x: Any, w: Any) -> Any:
        return (x * 2) @ w + 1

    imported = from_torch(f, (torch.randn(4, 8), torch.eye(8))).calling("aten.mm.default")
    runner = Runner(imported, CompileOptions("cpu", home=torch.device("cpu")))
    for _ in range(3):
        kept, lost = torch.randn(4, 8), torch.eye(8)
        gone = weakref.ref(lost)
        args = [kept, lost]
        del lost
        (found,) = runner.boxed(args)
        assert not args
        gc.collect()
        assert gone() is None
        torch.testing.assert_close(found, kept * 2 + 1)
    wide = torch.randn(8, 4).t()  # lies otherwise than in the calls before
    (found,) = runner.boxed([wide, torch.eye(8)])
    torch.testing.assert_close(found, wide * 2 + 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_views_changed_arguments_and_copies_of_results(dtype: str) -> None:
    kind = getattr(torch, dtype)

    def f(x: Any, y: Any, w: Any) -> Any:
        y.add_(1)
        z = x @ w
        return x.t(), z, z.t(), z.sum(0), y[1:], y

    imported = from_torch(f, (torch.ones(3, 3, dtype=kind), torch.ones(3, dtype=kind), torch.eye(3, dtype=kind)))
    imported = imported.calling("aten.mm.default")
    for _ in range(4):
        x, y, w = torch.randn(3, 3, dtype=kind), torch.randn(3, dtype=kind), torch.randn(3, 3, dtype=kind)
        other = y.clone()
        found: Any = imported.run(x, y, w)
        wanted = f(x, other, w)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
        torch.testing.assert_close(y, other)
        assert found[0].data_ptr() == x.data_ptr() and found[4].data_ptr() == y[1:].data_ptr() and found[5] is y
        assert found[1].data_ptr() == found[2].data_ptr()


def test_what_torch_refuses_later_is_told_with_its_node() -> None:
    program, calls = _two_results()

    def fails(x: Any) -> Any:
        if calls:
            raise RuntimeError("no kernel image")
        calls.append(1)
        return x * 2, x

    imported = import_program(program, operations={"pair": fails})
    x = torch.ones(4)
    imported.run(x)
    with pytest.raises(FrontendError, match=r"pair.*no kernel image"):
        imported.run(x)


def _two_results() -> tuple[CapturedProgram, list[int]]:
    meta = TensorMeta((4,), "float32", (1,))
    nodes = (
        Node("x", "placeholder", "x", meta=meta),
        Node("pair", "call", "aten.pair_of.default", (Ref("x"),), meta=(meta, meta)),
        Node("first", "call", "_operator.getitem", (Ref("pair"), 0), meta=meta),
        Node("second", "call", "_operator.getitem", (Ref("pair"), 1), meta=meta),
        Node("y", "call", "aten.neg.default", (Ref("first"),), meta=meta),
    )
    return CapturedProgram("two", nodes, (Ref("y"),)), []


def test_a_result_that_nobody_reads_may_not_be_there() -> None:
    """Attention without gradients gives no log-sum-exp, whatever its description says."""
    program, _ = _two_results()

    def pair(x: Any) -> Any:
        return x * 2, None

    imported = import_program(program, operations={"pair": pair})
    x = torch.arange(4.0)
    for _ in range(3):
        results: Any = imported.run(x)
        (found,) = results
        torch.testing.assert_close(found, x * -2)


def test_strides_that_change_from_call_to_call_are_mended() -> None:
    """An operation of torch's may choose how its result lies anew in each call."""
    program, calls = _two_results()
    wide = TensorMeta((4, 4), "float32", (4, 1))
    nodes = tuple(n if n.meta is None else _replaced(n, wide) for n in program.nodes)

    def turning(x: Any) -> Any:
        calls.append(1)
        return (x * 2, x) if len(calls) == 1 else ((x * 2).t().contiguous().t(), x)

    imported = import_program(CapturedProgram("two", nodes, program.results), operations={"pair": turning})
    for _ in range(3):
        x = torch.randn(4, 4)
        results: Any = imported.run(x)
        (found,) = results
        torch.testing.assert_close(found, x * -2)


def _replaced(node: Node, meta: TensorMeta) -> Node:
    many = isinstance(node.meta, tuple)
    return Node(node.name, node.kind, node.target, node.args, meta=(meta, meta) if many else meta)


def test_later_steps_run_two_functions_and_their_gradients_are_eager_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters are saved for the backward pass: results that are arguments without their gradients."""
    model, _ = layers(2)
    compiled: Any = torch.compile(model, backend="idgraph")
    calls: list[int] = []
    whole: Any = CallPlan.written

    def counted(self: CallPlan, given: Any) -> Any:
        calls.append(1)
        return whole(self, given)

    monkeypatch.setattr(CallPlan, "written", counted)
    monkeypatch.delattr(CallPlan, "__call__")
    for n in range(3):
        assert len(calls) == (2 if n else 0)
        y = torch.randn(4, 8)
        model.zero_grad()
        compiled(y).square().sum().backward()
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(y).square().sum().backward()
        for a, p in zip(found, model.parameters(), strict=True):
            torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-5)


def test_an_argument_is_freed_after_its_last_use_and_not_after_the_call() -> None:
    meta = TensorMeta((4,), "float32", (1,))
    nodes = (
        Node("w", "placeholder", "w", meta=meta),
        Node("twice", "call", "aten.twice_of.default", (Ref("w"),), meta=meta),
        Node("seen", "call", "aten.seen_of.default", (Ref("twice"),), meta=meta),
    )
    gone: list[Any] = []
    alive: list[bool] = []

    def twice(x: Any) -> Any:
        return x * 2

    def seen(x: Any) -> Any:
        alive.append(gone[-1]() is not None)
        return x + 1

    program = CapturedProgram("seen", nodes, (Ref("seen"),))
    runner = Runner(
        import_program(program, operations={"twice": twice, "seen": seen}),
        CompileOptions("cpu", home=torch.device("cpu")),
    )
    for _ in range(3):
        args = [torch.ones(4)]
        gone.append(weakref.ref(args[0]))
        assert runner.boxed(args)[0].tolist() == [3.0] * 4
    assert alive == [True, False, False]


def test_the_call_prints_without_arguments() -> None:
    imp = from_torch(Layer(), (torch.ones(2, 8),))
    imp = imp.calling("aten.addmm.default") if "aten.addmm.default" in imp.coverage.mapped else imp
    text = imp.call_source()
    assert text.startswith("def call(args, tell, wait):") and "launch0(" in text and text == imp.wrapper
    assert imp.call_source() == text
    fresh = from_torch(Layer(), (torch.ones(2, 8),))
    assert fresh.wrapper == fresh.call_source(), "not empty before a call"
    fresh.written = {"cuda": "a call on a GPU"}
    assert fresh.call_source().startswith("def call("), "each target has its own text"


def test_a_program_of_open_sizes_has_no_call_to_print() -> None:
    sizes = ({0: torch.export.Dim("n", max=8)},)
    imp = from_torch(Layer(), (torch.ones(2, 8),), dynamic_shapes=sizes)
    with pytest.raises(FrontendError, match="its size is open"):
        imp.call_source()


def test_a_chain_of_views_is_one() -> None:
    """Slices of a product, transposed for the next product: each is read from the product itself."""

    def f(x: Any, w: Any) -> Any:
        y = x @ w
        return (y[:, :8] @ y[:, 8:16].t()).relu()

    x, w = torch.randn(6, 5), torch.randn(5, 16)
    imported = from_torch(f, (x, w)).calling("aten.mm.default")
    torch.testing.assert_close(imported.run(x, w), f(x, w))
    text = imported.wrapper
    assert "transpose" not in text and "slice" not in text and "permute" not in text
    views = [line.partition("reinterpret(")[2] for line in text.splitlines() if "reinterpret(" in line]
    assert len(views) == 2 and len({v.partition(",")[0] for v in views}) == 1
    for _ in range(2):
        x, w = torch.randn(6, 5), torch.randn(5, 16)
        torch.testing.assert_close(imported.run(x, w), f(x, w))


def test_views_of_an_operation_that_lays_its_result_out_otherwise_later() -> None:
    def f(x: Any) -> Any:
        return (torch.linalg.matrix_exp(x).transpose(0, 1)[1:] @ x) * 2.0

    x = torch.eye(4) + torch.arange(16.0).reshape(4, 4) / 32
    imported = from_torch(f, (x,)).calling("aten.mm.default")
    (name,) = [n.name for n in imported.program.nodes if "matrix_exp" in n.target]
    order: list[bool] = [False]

    def exponential(value: Any, *_: Any, **__: Any) -> Any:
        found = torch.linalg.matrix_exp(value)
        return found.t().contiguous().t() if order[0] else found.contiguous()

    imported.operations = {**imported.operations, name: exponential}
    for turned in (False, False, True, False):
        order[0] = turned
        torch.testing.assert_close(imported.run(x), f(x))
    assert "reinterpret(" in imported.wrapper


def test_arguments_with_gradients_are_read_as_they_are_and_returned_without() -> None:
    def f(x: Any, w: Any) -> Any:
        return x @ w, w.t(), w

    x, w = torch.randn(3, 4), torch.nn.Parameter(torch.randn(4, 5))
    imported = from_torch(f, (x, w)).calling("aten.mm.default")
    for _ in range(3):
        got: Any = imported.run(x, w)
        wanted = f(x, w)
        for a, b in zip(got, wanted, strict=True):
            torch.testing.assert_close(a, b.detach())
            assert not a.requires_grad
    assert "d1 = a1.detach()" in imported.wrapper and "aten_mm(a0, a1)" in imported.wrapper
