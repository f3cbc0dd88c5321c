"""Parts of a cat that are updates in place, or that a library call writes: right ones decided, wrong ones refuted."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import idgraph as ig
from idgraph.check.decide import decide
from idgraph.check.inductor_capture import Capture
from idgraph.check.program import Axis, NeutralProgram

torch: Any = pytest.importorskip("torch")
cat, stack = torch.cat, torch.stack
AT, ROWS, ROW = torch.tensor([0, 1, 0]), torch.tensor([2, 0]), torch.tensor([[0, 1, 2, 1]])
COLUMNS = torch.tensor([[0, 1], [3, 1], [0, 2]])
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def put(v: Any) -> Any:
    return v.index_put((AT,), torch.ones(()), accumulate=True)


def added(v: Any) -> Any:
    return v.index_add(0, ROWS, v[1:] * 2)


def square(x: Any) -> Any:
    return x @ x.t()


PARTS: dict[str, Callable[[Any], Any]] = {
    "added at places": lambda x: cat([put(x), x]),
    "stored at places": lambda x: cat([x.index_put((ROWS,), torch.ones(())), x]),
    "a scatter": lambda x: cat([x.scatter(0, ROW, x[1:2] * 2), x]),
    "a scatter that adds": lambda x: cat([x.scatter_add(1, COLUMNS, x[:, 2:] * 2), x]),
    "a scatter of the largest": lambda x: cat([x.scatter_reduce(0, ROW, x[1:2] * 2, "amax"), x]),
    "rows added": lambda x: cat([added(x), x]),
    "a slice": lambda x: cat([x.slice_scatter(x[:1] * 2, 0, 1, 2), x]),
    "into zeros": lambda x: cat([torch.zeros_like(x).index_put((AT,), x, accumulate=True), x]),
    "one after the other": lambda x: cat([added(put(x)), x]),
    "the last part": lambda x: cat([x * 2, put(x)]),
    "between columns": lambda x: cat([x, put(x), x + 1], 1),
    "several": lambda x: cat([put(x), x, added(x + 1)]),
    "stacked": lambda x: stack([put(x), x, added(x)], 1),
    "a cat of a cat": lambda x: cat([cat([put(x), x]), x + 1]),
    "used again": lambda x: (cat([u := put(x), x]), u * 2),
    "a product": lambda x: cat([square(x), x], 1),
    "products": lambda x: cat([x, square(x), square(x) * 2, x[:, :3] @ x], 1),
    "stacked products": lambda x: stack([x, x[:, :3] @ x, x + 1]),
    "an update of a product": lambda x: cat([put(x[:, :3] @ x), x]),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_a_cat_are_decided(name: str) -> None:
    r = ig.check.inductor(PARTS[name], (X,))
    assert r.ok and r.decided, str(r)


@pytest.mark.parametrize("name", ["added at places", "between columns", "a product", "an update of a product"])
def test_parts_of_a_cat_are_decided_for_all_sizes(name: str) -> None:
    r = ig.check.inductor(PARTS[name], (X,), dynamic=True)
    assert r.ok and r.decided, str(r)


def loops(name: str) -> NeutralProgram:
    capture = Capture(name="f")
    capture.run(PARTS[name], (X,))
    return capture.lowered[0].after


def writer(p: NeutralProgram, buffer: str) -> str:
    return next(n.name for n in p.nests if n.writes[0].buffer == buffer)


def without(p: NeutralProgram, node: str) -> NeutralProgram:
    nests = tuple(n for n in p.nests if n.name != node)
    return replace(p, nests=nests, order=tuple(x for x in p.order if x != node))


def shorter(p: NeutralProgram, node: str) -> NeutralProgram:
    """The last step of the nest's outermost loop is left out."""
    (nest,) = (n for n in p.nests if n.name == node)
    first, *others = nest.loops
    cut = replace(nest, loops=(Axis(first.name, first.extent - 1), *others))
    return replace(p, nests=tuple(cut if n is nest else n for n in p.nests))


def unwritten(p: NeutralProgram) -> list[str]:
    return [r.because for r in decide(p).refuted if r.because.endswith("are not written")]


@pytest.mark.parametrize("name", ["added at places", "between columns", "a scatter", "rows added", "stacked"])
def test_a_part_that_nothing_fills_is_refuted(name: str) -> None:
    """Neither what an update is laid over without the update, nor the update alone, is the part."""
    p = loops(name)
    updates = [b for b in p.buffers if b.over]
    below = [b for b in p.buffers if any((x.over, x.home, x.offset) == (b.tensor, b.home, b.offset) for x in updates)]
    assert len(updates) == len(below) == (2 if name == "stacked" else 1) and not unwritten(p)
    for b in (*updates, *below):
        node = writer(p, b.name)
        assert unwritten(without(p, node)), node
    for b in below:
        assert unwritten(shorter(p, writer(p, b.name))) or decide(shorter(p, writer(p, b.name))).refuted


def test_what_lies_below_another_part_fills_that_alone() -> None:
    """Two updates of copies of one tensor: the copy below the one is not the copy below the other."""
    capture = Capture(name="f")
    capture.run(lambda x: cat([put(x), added(x), x]), (X,))
    p = capture.lowered[0].after
    copies = [b for b in p.buffers if b.copy]
    assert len({b.tensor for b in copies}) == 1 and len(copies) == 2 and not unwritten(p)
    for b in copies:
        assert unwritten(without(p, writer(p, b.name))) == ["12 of 36 elements are not written"]


@pytest.mark.parametrize("name", ["a product", "products", "stacked products", "an update of a product"])
def test_a_part_that_no_call_writes_is_refuted(name: str) -> None:
    p = loops(name)
    names = {b.tensor for b in p.buffers if b.tensor.startswith("mm")}
    made = {b.after for b in p.buffers if b.tensor in names} - {n.name for n in p.nests}
    filled = [b for b in p.buffers if b.tensor in names and b.after in made and b.home != b.name]
    assert filled and not unwritten(p)
    for b in filled:
        assert unwritten(without(p, b.after)), b
        aside = replace(b, offset=b.offset + 1)
        assert unwritten(replace(p, buffers=tuple(aside if x is b else x for x in p.buffers))), b


@pytest.mark.parametrize("name", ["added at places", "a product"])
def test_a_part_beside_another_that_is_not_whole_is_refuted(name: str) -> None:
    p = loops(name)
    piece = next(b for b in p.buffers if b.tensor == "cat" and b.base != 0)
    assert unwritten(shorter(p, writer(p, piece.name)))


@pytest.mark.parametrize("dim", [0, 1])
def test_a_cat_without_one_of_its_nests_is_refuted(dim: int) -> None:
    """Also where no nest that is left writes under the name of the cat."""
    capture = Capture(name="f")
    capture.run(lambda x: cat([x * 2, x, x + 1], dim), (X,))
    p = capture.lowered[0].after
    assert len(p.nests) == 3 and not unwritten(p)
    for n in p.nests:
        assert "12 of 36 elements are not written" in unwritten(without(p, n.name)), n.name


def test_parts_of_other_types_fill_their_cat() -> None:
    """One part has the cat's type and is the cat's memory, the other is converted on the way."""
    r = ig.check.inductor(lambda x: torch.cat([x.to(torch.int64), x > 0], 1), (torch.rand(4, 6),))
    assert r.ok and r.decided, str(r)
