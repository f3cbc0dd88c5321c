"""TorchInductor's positions of maxima, updates in place, wrapped indices: right ones decided, wrong ones refuted."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import idgraph as ig
from idgraph.arith import Expr, as_expr
from idgraph.check import decide as deciding
from idgraph.check.inductor_capture import Capture
from idgraph.check.inductor_graph_passes import differs
from idgraph.check.program_json import read_any, to_json

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional


def rand(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


POSITIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "all": (lambda x: x.argmax(), rand(9, 12)),
    "transposed": (lambda x: x.t().argmax(), rand(9, 12)),
    "least of transposed rows": (lambda x: x.t().argmin(1), rand(9, 12)),
    "channels last": (lambda x: x.argmax(), rand(2, 3, 4, 5).to(memory_format=torch.channels_last)),
    "channels": (lambda x: x.argmin(1), rand(2, 13, 4, 5).to(memory_format=torch.channels_last)),
    "mirrored": (lambda x: x.flip(1).argmax(1), rand(3, 14)),
    "with the value": (lambda x: x.t().max(0), rand(3, 14)),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_where_a_maximum_lies_is_decided(name: str) -> None:
    fn, x = POSITIONS[name]
    r = ig.check.inductor(fn, (x,))
    assert r.ok and r.decided, str(r)


def loops(fn: Callable[..., Any], x: Any) -> Any:
    capture = Capture(name="f")
    capture.run(fn, (x,))
    return capture.lowered[0].after


@pytest.mark.parametrize("name", ["all", "transposed", "channels last", "least of transposed rows"])
def test_another_position_is_refuted(name: str) -> None:
    """The loop's own number where the program counts along other axes, one too many, and counted from the end."""
    program = loops(*POSITIONS[name])
    (nest,) = (n for n in program.nests if n.position is not None)
    total = as_expr(1)
    number = as_expr(0)
    for a in reversed(nest.reduce):
        number, total = number + a.symbol * total, total * a.extent

    def judged(position: Expr) -> ig.check.CheckReport:
        return deciding.decide(replace(program, nests=(replace(nest, position=position),)))

    assert nest.position is not None and judged(nest.position).ok
    assert judged(total - 1 - nest.position).refuted
    assert judged((nest.position + 1) % total).refuted
    if name in ("transposed", "channels last"):
        assert judged(number).refuted
    assert not judged(as_expr(0) * total).decided
    again = read_any(to_json(replace(program, nests=(nest,))))
    assert again.nests[0].position is not None


def test_a_result_of_another_element_type_is_another_result() -> None:
    found = differs(torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.int64))
    assert found is not None and found[1:] == ("torch.bfloat16", "torch.int64")


def put_twice(x: Any, i: Any) -> Any:
    y = x + 1
    y[0] = 3.0
    y[i] = 5.0
    return y


def strided_then_row(x: Any) -> Any:
    y = x * 2
    y.as_strided((3,), (5,), 1).add_(1.0)
    y[1] = 2.0
    return y * 3


def diagonal_then_row(x: Any) -> Any:
    y = x * 2
    y.fill_diagonal_(1.0)
    y[0] += 1
    return y


def diagonal(x: Any) -> Any:
    y = x + 1
    y.diagonal().fill_(2.0)
    return y * 2


def diagonal_of_clone(x: Any) -> Any:
    y = x.clone()
    y.diagonal().add_(1)
    return y


def halves(x: Any) -> Any:
    n = x.shape[0] // 2
    x[:n].add_(1.0)
    x[n:].mul_(2.0)
    return x * 1


UPDATES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool]] = {
    "row, then places": (put_twice, (rand(4), torch.tensor([1, 2])), False),
    "strided, then row": (strided_then_row, (rand(4, 4),), False),
    "diagonal, then row": (diagonal_then_row, (rand(4, 4),), False),
    "diagonal": (diagonal, (rand(5, 5),), False),
    "rolled, then mirrored": (lambda x: x.roll(1, 0).flip(0), (rand(5),), False),
    "an index taken modulo": (lambda x: x[(1 - torch.arange(5)) % 5], (rand(5),), False),
    "relative positions": (lambda x: x[(torch.arange(4)[:, None] - torch.arange(4)[None]) % 7], (rand(7),), False),
    "gathered from a pad": (lambda x, i: F.pad(x, (0, 1))[i], (rand(5), torch.tensor([1, 5, 0])), False),
    "halves, for all sizes": (halves, (rand(6),), True),
    "diagonal of a clone": (diagonal_of_clone, (rand(5, 5),), False),
}


@pytest.mark.parametrize("name", UPDATES)
def test_what_is_right_is_decided(name: str) -> None:
    fn, args, dynamic = UPDATES[name]
    r = ig.check.inductor(fn, args, dynamic=dynamic)
    assert r.ok and r.decided, str(r)


STEPS: dict[str, Callable[[Any, Any, Any, int, int], Any]] = {
    "row": lambda x, y, i, n, a: y[a].fill_(3.0),
    "column": lambda x, y, i, n, a: y.t()[a].fill_(3.0),
    "slice": lambda x, y, i, n, a: y[a : a + 2].copy_(x[:2] * 2),
    "columns": lambda x, y, i, n, a: y.t()[a : a + 2].copy_(x[:2] * 2),
    "diagonal": lambda x, y, i, n, a: y.diagonal().fill_(2.0),
    "places": lambda x, y, i, n, a: y.index_put_((i,), torch.tensor(5.0)),
    "strided": lambda x, y, i, n, a: y.as_strided((n,), (n + 1,), 0).add_(1.0),
    "all": lambda x, y, i, n, a: y.mul_(2.0),
}


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(10))
def test_random_updates_are_right_before_loops_are_fused(seed: int) -> None:
    r = random.Random(seed)
    n = r.choice((4, 5, 6))
    steps = [(STEPS[r.choice(sorted(STEPS))], r.randrange(n - 1)) for _ in range(r.randint(1, 4))]

    def fn(x: Any, i: Any) -> Any:
        y = x + 1 if seed % 3 else x
        for step, a in steps:
            step(x, y, i, n, a)
        return y * 2, y

    report = ig.check.inductor(fn, (rand(n, n), torch.tensor([1, 2])))
    assert not [row for row in report.refuted if row.stage == "before"], str(report)


def added(x: Any) -> Any:
    y = torch.sin(x)
    y.add_(x.permute(1, 0))
    return (y.permute(1, 0) * 2,)


def multiplied(x: Any) -> Any:
    y = torch.sin(x)
    z = y.sum(1)
    y.mul_(x.permute(1, 0))
    return z, y * 2


@pytest.mark.parametrize("fn", [added, multiplied])
def test_an_update_of_what_is_in_no_memory_yet(fn: Callable[..., Any]) -> None:
    """A graph that still updates in place: Inductor puts the new value into the old one's box, in no buffer so far."""
    tracing: Any = pytest.importorskip("torch.fx.experimental.proxy_tensor")
    x = rand(4, 4)
    capture = Capture(name="f")
    capture.graph(tracing.make_fx(fn)(x), [x], "f")
    r = deciding.decide(capture.lowered[0].after)
    assert r.ok and r.decided, str(r)


def test_a_fault_of_the_checker_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """One write that it stumbles over: the row says so, and whose fault it is; others are decided."""
    good = deciding.StoreCoverage.verdict

    def broken(self: Any, samples: Any) -> Any:
        if self.nest.name == "op1":
            raise KeyError("s27")
        return good(self, samples)

    monkeypatch.setattr(deciding.StoreCoverage, "verdict", broken)
    r = ig.check.inductor(lambda x: ((b := torch.sin(x)), b.flip(0) + 1), (rand(8),))
    assert {row.node for row in r.unknown} == {"op1"} and "a fault of idgraph" in r.unknown[0].because
    assert {row.verdict for row in r.rows if row.node == "op0"} == {"proved"}


def test_dynamic_sizes_end_in_rows() -> None:
    for fn, x in ((lambda x: x.roll(1, 0).sum(1), rand(5, 6)), (lambda x: x.t().argmax(), rand(3, 4))):
        r = ig.check.inductor(fn, (x,), dynamic=True)
        assert r.ok and all("fault of idgraph" not in row.because for row in r.rows), str(r)
