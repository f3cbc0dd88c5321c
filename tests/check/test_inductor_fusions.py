"""TorchInductor's scheduler made to fuse what it must not: refuted with both points, and wrong where it is compiled.

Nodes of one kernel are one loop in any order; what it reduces is reduced in order inside.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig
from idgraph.check.program_json import read_any
from idgraph.check.races import shared_loop

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional


def rand(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def after(g: Callable[[Any], Any], f: Callable[[Any], Any] = torch.sin) -> Callable[..., Any]:
    """A value that is stored, and what is made of it."""

    def fn(x: Any) -> Any:
        b = f(x)
        return b, g(b)

    return fn


def of_rows(reduced: Callable[[Any], Any], g: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A result for each row, and what is made of it and the rows."""

    def fn(x: Any) -> Any:
        s = reduced(x)
        return s, g(x, s)

    return fn


def mirrored_then_added(x: Any) -> Any:
    s = x.flip(0) * 2
    x.add_(1.0)
    return s


def doubled_then_mirrored(x: Any, y: Any) -> Any:
    x.mul_(2.0)
    return x.flip(0) + y


def rolled_then_cleared(x: Any) -> Any:
    s = x.roll(3, 0).exp()
    x.mul_(0.0)
    return s


def differences_then_written(x: Any) -> Any:
    s = F.pad(x[1:], (0, 1)) - x
    x.copy_(s)
    return s * 2


VECTOR, MATRIX = lambda: (rand(64),), lambda: (rand(8, 16),)
WRONG: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "flip": (after(lambda b: b.flip(0) + 1), VECTOR),
    "shift": (after(lambda b: b.roll(1, 0) + 1), VECTOR),
    "shift by five": (after(lambda b: b.roll(-5, 0) * 3), VECTOR),
    "stencil": (after(lambda b: F.pad(b[1:], (0, 1)) - b), VECTOR),
    "stencil of three": (after(lambda b: F.pad(b[1:], (0, 1)) + b + F.pad(b[:-1], (1, 0))), VECTOR),
    "first element": (after(lambda b: b + b[0]), VECTOR),
    "last element": (after(lambda b: b * b[-1]), VECTOR),
    "columns of a square": (after(lambda b: b.view(8, 8).t().reshape(-1) + 1), VECTOR),
    "halves exchanged": (after(lambda b: b.view(2, 32).flip(0).reshape(-1).exp()), VECTOR),
    "flip of columns": (after(lambda b: b.flip(1) * 2), MATRIX),
    "flip of both": (after(lambda b: b.flip(0, 1).exp()), MATRIX),
    "shift of rows": (after(lambda b: b.roll(1, 0) - 2), MATRIX),
    "row before": (of_rows(lambda x: x.sum(1, keepdim=True), lambda x, s: x - s.flip(0)), MATRIX),
    "maximum of another row": (of_rows(lambda x: x.abs().amax(1, keepdim=True), lambda x, s: x / s.flip(0)), MATRIX),
    "softmax by another row": (
        of_rows(lambda x: x.amax(1, keepdim=True), lambda x, s: (x - s.roll(2, 0)).exp().sum(1)), MATRIX,
    ),
    "product of the row after": (of_rows(lambda x: x.prod(1, keepdim=True), lambda x, s: x * s.roll(-1, 0)), MATRIX),
    "read, then added to": (mirrored_then_added, VECTOR),
    "doubled, then read": (doubled_then_mirrored, lambda: (rand(64), rand(64))),
    "rolled, then cleared": (rolled_then_cleared, VECTOR),
    "sum of a row mirrored": (
        after(lambda b: (b.flip(1) * torch.arange(16.0)).sum(1), lambda x: x.flip(1).sin()), MATRIX,
    ),
}  # fmt: skip


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that fuses whatever the backend takes."""
    scheduler: Any = pytest.importorskip("torch._inductor.scheduler")
    choices: Any = pytest.importorskip("torch._inductor.choices")
    monkeypatch.setattr(scheduler.Scheduler, "can_fuse_vertical", lambda *_args, **_kwargs: True)
    monkeypatch.setattr(choices.InductorChoices, "can_fuse", staticmethod(lambda *_args, **_kwargs: True))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_fusion_is_refuted_with_both_points(name: str, careless: None) -> None:
    fn, args = WRONG[name]
    r = ig.check.inductor(fn, args())
    assert r.refuted and {row.stage for row in r.refuted} == {"after"}, str(r)
    for row in r.refuted:
        found = row.counterexample
        assert found is not None and found.read and found.meant
        other = re.search(r"the point (.*) of op\d+ (over)?writes it", found.meant)
        assert other is not None, str(r)
        assert dict(p.split("=") for p in other[1].split(", ")) != {k: str(v) for k, v in found.point.items()}


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_fusion_gives_wrong_numbers(name: str, careless: None) -> None:
    confirmed(name)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_one_wrong_fusion_gives_wrong_numbers(careless: None) -> None:
    confirmed("flip")


def confirmed(name: str) -> None:
    config: Any = pytest.importorskip("torch._inductor.config")

    fn, args = WRONG[name]
    torch._dynamo.reset()
    try:
        with config.patch(fx_graph_cache=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own
            found = torch.compile(fn)(*args())
    finally:
        torch._dynamo.reset()
    meant = fn(*args())
    pairs = zip(found, meant, strict=True) if isinstance(meant, tuple) else [(found, meant)]
    assert any(not torch.allclose(a, b, atol=1e-4) for a, b in pairs)


RIGHT: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "flip": (after(lambda b: b.flip(0) + 1), VECTOR),
    "layer norm": (lambda x: F.layer_norm(x * 2, (16,)) + 1, MATRIX),
    "softmax": (lambda x: torch.softmax(x + 1, 1), MATRIX),
    "softmax of columns": (lambda x: torch.softmax(x + 1, 0), MATRIX),
    "sum of what is stored": (after(lambda b: b.sum(1)), MATRIX),
    "result of a row": (of_rows(lambda x: x.sum(1, keepdim=True), lambda x, s: x - s), MATRIX),
    "result of another row": (of_rows(lambda x: x.sum(1, keepdim=True), lambda x, s: x - s.flip(0)), MATRIX),
    "normed in place": (lambda x: x.copy_(x / x.sum(1, keepdim=True)), MATRIX),
    "updated in place": (lambda x: x.add_(1.0).mul_(x), VECTOR),
    "read, then added to": (mirrored_then_added, VECTOR),
    "differences, then written": (differences_then_written, VECTOR),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_inductor_fuses_itself_is_right(name: str) -> None:
    fn, args = RIGHT[name]
    r = ig.check.inductor(fn, args())
    assert r.ok and r.decided, str(r)


def test_what_a_kernel_reduces_and_reads_is_proved_for_all_sizes() -> None:
    r = ig.check.inductor(lambda x: torch.softmax(x + 1, 1), (rand(6, 10),), dynamic=True)
    assert r.ok and r.decided, str(r)


def test_a_result_is_there_after_its_loop() -> None:
    """Columns that are reduced and columns that read the result are as many: two loops all the same."""
    text = "\n".join((
        'fusion "rows" {', '  x = input(shape=(4, 8), dtype="float32")', "  s = sum(x, dims=(1,), keepdim=true)",
        "  y = mul(x, s)", "  output s", "  output y", "}",
    ))  # fmt: skip
    sums = {"buffer": "s", "index": "i", "reads": [{"buffer": "x", "index": "i*8 + k"}]}
    products = {"buffer": "y", "index": "i*8 + j", "reads": [
        {"buffer": "x", "index": "i*8 + j"}, {"buffer": "s", "index": "i"},
    ]}  # fmt: skip
    data = {"version": 1, "program": text, "nests": [
        {"name": "s", "kernel": "k", "loops": [["i", 4]], "reduce": [["k", 8]], "writes": [sums]},
        {"name": "y", "kernel": "k", "loops": [["i", 4], ["j", 8]], "writes": [products]},
    ]}  # fmt: skip
    loop = shared_loop(read_any(data).nests, {}, {})
    assert loop is not None
    assert loop.slot(1) > loop.slot(0, result=True) > loop.slot(0)
