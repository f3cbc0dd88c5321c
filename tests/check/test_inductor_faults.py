"""Loop bodies of TorchInductor read with one fault: refuted; and right programs, parts stored in other ways."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig
from idgraph.check import inductor_capture as capture

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional
Notes: Any = capture.Notes
Hooks = dict[str, Callable[..., Any]]


def rand(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def numbers(most: int, *shape: int) -> Any:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(0))


def exchanged(index: Any) -> Any:
    """The index with its first two variables exchanged."""
    names = sorted(index.free_symbols, key=str)
    return index.subs({names[0]: names[1], names[1]: names[0]}, simultaneous=True) if len(names) > 1 else index


def loads(change: Callable[[str, Any], Any]) -> Hooks:
    return {"load": lambda self, name, index: Notes.load(self, name, change(name, index))}


def combines(other: str) -> Hooks:
    return {"reduction": lambda self, dtype, of, kind, value: Notes.reduction(self, dtype, of, other, value)}


def stores(mode: str | None) -> Hooks:
    def store(self: Any, name: str, index: Any, value: Any, old: Any = None) -> None:
        Notes.store(self, name, index, value, mode if name == "buf1" else old)

    return {"store": store}


def smaller(self: Any, value: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> Any:
    return Notes.indirect_indexing(self, value, size - 1, check, wrap_neg)


def added(x: Any, i: Any, v: Any) -> Any:
    return x.index_put((i,), v, accumulate=True)


ENTRIES = (rand(8, 6), numbers(8, 3), rand(3, 6))
WRONG: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Hooks]] = {
    "a sum as a maximum": (lambda x: x.sum(1), (rand(4, 60),), combines("max")),
    "a maximum as a minimum": (lambda x: x.amax(1), (rand(4, 60),), combines("min")),
    "a product as a sum": (lambda x: x.prod(1), (rand(4, 60),), combines("sum")),
    "entries stored that are added": (added, ENTRIES, stores(None)),
    "entries added that are stored": (lambda x, i, v: x.index_put((i,), v), ENTRIES, stores("atomic_add")),
    "an index of a shorter axis": (lambda x, i: x[i] + 1, (rand(9, 6), numbers(9, 4)), {"indirect_indexing": smaller}),
    "another index": (
        lambda x, i: x[i] + 1, (rand(9, 6), numbers(9, 4)), loads(lambda n, i: 3 - i if n == "arg1_1" else i),
    ),
    "entries of another index": (added, ENTRIES, loads(lambda n, i: i + 1 if n == "arg2_1" else i)),
    "strides exchanged": (lambda x: x.t().contiguous() + 1, (rand(4, 6),), loads(lambda _, i: exchanged(i))),
    "positions of columns": (lambda x: x.argmax(1), (rand(40, 40),), loads(lambda _, i: exchanged(i))),
    "no mask": (lambda x: F.pad(x, (1, 1)), (rand(4, 6),), {"masked": lambda self, mask, body, other: body()}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_in_a_loop_body_is_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, args, hooks = WRONG[name]
    monkeypatch.setattr(capture, "Notes", type("Wrong", (Notes,), dict(hooks)))
    r = ig.check.inductor(fn, args)
    assert r.refuted and {row.stage for row in r.refuted} == {"before", "after"}, str(r)
    assert all(row.counterexample is not None for row in r.refuted)


RIGHT: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool | None]] = {
    "gradients of a pool": (lambda x: F.max_pool2d(x, 2), (rand(1, 2, 6, 8).requires_grad_(),), None),
    "gradients of a padded pool": (lambda x: F.max_pool2d(x, 3, 2, 1), (rand(1, 2, 7, 8).requires_grad_(),), None),
    "a mean that is stored under another shape": (lambda x: torch.var_mean(x, 0, correction=0), (rand(4, 6),), None),
    "a scan of conditions": (lambda x: (x > 0).cumsum(1), (rand(4, 6),), None),
    "offsets made for a library call": (
        lambda w, i: F.embedding_bag(i, w, mode="sum"), (rand(10, 4), numbers(10, 3, 5)), None,
    ),
    "an image copied for a library call": (
        lambda x, w: F.conv2d(x, w).relu() + 1, (rand(1, 2, 5, 5), rand(3, 2, 3, 3)), None,
    ),
    "a check at run time": (lambda i: F.one_hot(i, 7) + 1, (numbers(7, 5),), None),
    "two updates of copies": (
        lambda x, i, v: (x.index_put((i,), v) + x).index_put((i,), v * 2),
        (rand(8, 6), torch.tensor([1, 3]), rand(2, 6)),
        None,
    ),
    "parts of a dynamic cat": (lambda x: torch.cat([x, x[:, :2]], 1) + 1, (rand(3, 7),), True),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_decided(name: str) -> None:
    fn, args, dynamic = RIGHT[name]
    r = ig.check.inductor(fn, args, dynamic=dynamic)
    assert r.ok and r.decided, str(r)


def test_what_runs_after_its_memory_is_overwritten_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of a schedule in the other order: a read of an argument comes after its update."""
    read = capture._GraphImporter.read  # pyright: ignore[reportPrivateUsage]

    def reversed_order(self: Any) -> Any:
        self.graph.scheduler.nodes.reverse()
        return read(self)

    def fn(x: Any, y: Any) -> Any:
        y.copy_(x.roll(1, 0))
        x.mul_(2)
        return x.flip(0).contiguous(), y

    assert ig.check.inductor(fn, (rand(64), rand(64))).decided
    monkeypatch.setattr(capture._GraphImporter, "read", reversed_order)  # pyright: ignore[reportPrivateUsage]
    r = ig.check.inductor(fn, (rand(64), rand(64)))
    assert any(row.because == "it reads what was overwritten before" for row in r.refuted), str(r)
