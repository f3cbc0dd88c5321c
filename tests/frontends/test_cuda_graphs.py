"""CUDA graphs by option: what is asked of torch, and that graphs that cannot be captured run as before."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any

import pytest

from idgraph.errors import FrontendError
from idgraph.frontends.torch_compile import CudaGraphs

torch = pytest.importorskip("torch")
backend = pytest.importorskip("idgraph.frontends.torch_compile").backend


def square(x: Any, w: Any) -> Any:
    return torch.tanh(x * w) * 2.0


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What torch is asked to capture, by a stand-in that replays nothing: graphs of the host pass for a device's."""
    backend = pytest.importorskip("torch._dynamo.backends.cudagraphs")
    trees = pytest.importorskip("torch._inductor.cudagraph_trees")
    asked: list[dict[str, Any]] = []

    def captures(work: Any, inputs: Any, fixed: Any, **named: Any) -> Any:
        asked.append({"count": len(inputs), "fixed": tuple(fixed), **named})
        return work

    def fits(graph: Any, fixed: int) -> None:
        """Every graph can be captured."""

    def first(graph: Any) -> int:
        return 0

    monkeypatch.setattr(trees, "cudagraphify_impl", captures)
    monkeypatch.setattr(backend, "check_for_skip", fits)
    monkeypatch.setattr(backend, "get_device_index", first)
    torch._dynamo.reset()
    return asked


@pytest.mark.parametrize("how", [{"options": {"cudagraphs": True}}, {"mode": "reduce-overhead"}])
def test_forward_and_backward_are_captured(captured: list[dict[str, Any]], how: dict[str, Any]) -> None:
    x, w = torch.rand(4, 5), torch.rand(4, 5, requires_grad=True)
    call = torch.compile(square, backend="idgraph", **how)
    for _ in range(2):
        w.grad = None
        y = call(x, w)
        torch.testing.assert_close(y, square(x, w))
        y.sum().backward()
    torch.testing.assert_close(w.grad, 2 * x * (1 - torch.tanh(x * w) ** 2))
    assert [(c["is_backward"], c["is_inference"], c["device_index"]) for c in captured] == [
        (False, False, 0), (True, False, 0),
    ]  # fmt: skip
    with torch.no_grad():
        call(x, w)
    assert captured[-1]["is_inference"]


def test_parameters_lie_at_fixed_places(captured: list[dict[str, Any]]) -> None:
    model = torch.nn.LayerNorm(6)
    call = torch.compile(model, backend="idgraph", options={"cudagraphs": True})
    x = torch.rand(3, 6)
    torch.testing.assert_close(call(x), model(x))
    assert captured[0]["count"] == 3 and len(captured[0]["fixed"]) == 2


class Lines(logging.Handler):
    """What the logger of the backend gets."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.levelname, record.getMessage()))


@pytest.fixture(name="logged")
def _logged() -> Generator[list[tuple[str, str]]]:
    lines, logger = Lines(), logging.getLogger("idgraph.backend")
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel("DEBUG")
    yield lines.records
    logger.removeHandler(lines)
    logger.setLevel(level)


def test_graphs_of_the_host_run_as_before(logged: list[tuple[str, str]]) -> None:
    torch._dynamo.reset()
    said: list[str] = []
    x, w = torch.rand(4, 5), torch.rand(4, 5, requires_grad=True)
    call = torch.compile(square, backend="idgraph", options={"cudagraphs": True, "log": said.append})
    y = call(x, w)
    y.sum().backward()
    torch.testing.assert_close(y, square(x, w))
    assert sum("no CUDA graph" in s for s in said) == 2
    shown = [level for level, text in logged if "no CUDA graph" in text]
    assert shown == ["WARNING"] * 2, "whoever asks by the mode sees it too"
    assert any(level == "DEBUG" and "forward: a call runs\ndef call(" in text for level, text in logged)


def test_failures_of_replays_are_looked_at(captured: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def none(graph: Any) -> tuple[()]:
        return ()

    for name in ("find_input_mutations", "get_placeholder_info", "get_stack_traces"):
        monkeypatch.setattr(f"torch._dynamo.backends.cudagraphs.{name}", none)

    def work(args: list[Any]) -> Any:
        return args

    def poll() -> None:
        looked.append(1)

    graph = torch.fx.symbolic_trace(square)
    call = CudaGraphs(2).wrap(work, "inference", graph, [torch.ones(1), torch.ones(1)], poll)
    assert not isinstance(call, str)
    call([1])
    call([2])
    assert len(looked) == 2


def test_a_mode_that_is_not_known_is_refused() -> None:
    torch._dynamo.reset()
    with pytest.raises(FrontendError, match="mode 'max-autotune' is not known"):
        backend(torch.fx.symbolic_trace(square), [torch.ones(2), torch.ones(2)], mode="max-autotune")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The CUDA Graph is empty")  # torch's own
def test_replays_give_eager_values() -> None:
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).cuda()
    call = torch.compile(model, backend="idgraph", mode="reduce-overhead")
    for n in range(6):
        x = torch.randn(8, 64, device="cuda") + n
        model.zero_grad()
        wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        torch.compiler.cudagraph_mark_step_begin()
        found = torch.autograd.grad(call(x).square().sum(), list(model.parameters()))
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
