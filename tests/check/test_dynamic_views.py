"""Views, pads and samplings of dynamic sizes: TorchInductor's loops are proved for all sizes, each planted change of
a formula is refuted at sizes that show it. What a change changes is told by plain Python, at sizes of its own.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import idgraph as ig
from idgraph.arith import TRUE, and_, maximum, symbol, where
from idgraph.check.algebraic import same
from idgraph.check.decide import Checker, decide
from idgraph.check.index_values import ValueTable
from idgraph.check.inductor_capture import Capture
from idgraph.check.program import Nest
from idgraph.check.semantics import ElementRead
from tests.check.planted_index_faults import changes

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional


def rand(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


VIEWS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "half": (lambda x: x.view(x.shape[0] // 2, -1) + 1, (6, 5)),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2), (2, 8, 6, 5)),
    "pixel unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (2, 8, 6, 4)),
    "channel shuffle": (lambda x: F.channel_shuffle(x, 2) * 1, (2, 6, 5, 4)),
    "windows": (lambda x: F.unfold(x[None], 3, padding=1), (4, 6, 5)),
    "reflect": (lambda x: F.pad(x, (2, 1), mode="reflect"), (3, 7)),
    "reflect both": (lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), (3, 7, 6)),
    "rolled, mirrored": (lambda x: x.roll((1, 2), (0, 1)).flip(0) + x, (4, 6)),
    "circular": (lambda x: F.pad(x, (2, 1), mode="circular"), (3, 7)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), (2, 3, 6, 5)),
    "nearest to a size": (lambda x: F.interpolate(x, size=(11, 7), mode="nearest"), (2, 3, 6, 5)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (2, 3, 6, 5)),
    "adaptive mean": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (2, 3, 6, 8)),
    "adaptive mean, uneven": (lambda x: F.adaptive_avg_pool1d(x, 4), (2, 3, 9)),
    "adaptive maximum": (lambda x: F.adaptive_max_pool2d(x, (3, 2)), (2, 3, 6, 8)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_dynamic_sizes_are_proved(name: str) -> None:
    fn, shape = VIEWS[name]
    r = ig.check.inductor(fn, (rand(*shape),), dynamic=True, name=name)
    assert {x.verdict for x in r.rows} == {"proved", "tested"}, str(r)


def touched(n: Nest, sizes: dict[str, int]) -> list[tuple[int, tuple[tuple[str, int], ...]]]:
    """For each point the address written and what is read for it; of nests without loaded values in addresses."""
    out: list[tuple[int, tuple[tuple[str, int], ...]]] = []
    for p in itertools.product(*(range(int(a.extent.evaluate(sizes))) for a in n.axes)):
        env = {**sizes, **{a.name: v for a, v in zip(n.axes, p, strict=True)}}
        for w in n.writes:
            reads = {(r.buffer, int(r.index.evaluate(env))) for r in w.reads if r.when.evaluate(env)}
            out.append((int(w.index.evaluate(env)), tuple(sorted(reads))))
    return sorted(out)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["half", "reflect", "circular", "windows"])
def test_a_changed_formula_of_dynamic_sizes_is_refuted(name: str) -> None:
    fn, shape = VIEWS[name]
    capture = Capture(name=name)
    capture.run(fn, (rand(*shape),), dynamic=True)
    (lowered,) = capture.lowered
    p = lowered.after
    sizes = Checker(p).samples[0]
    tried = 0
    for k, n in enumerate(p.nests):
        for kind, changed, _, _ in changes(n):
            if touched(n, sizes) == touched(changed, sizes):
                continue
            rows = decide(replace(p, nests=(*p.nests[:k], changed, *p.nests[k + 1 :]))).rows
            bad = [r.counterexample for r in rows if r.verdict == "refuted"]
            assert bad and all(c is not None and (c.read or c.written or c.meant) for c in bad), (kind, rows)
            tried += 1
            if tried == 6:
                return
    assert tried


def test_each_case_of_a_choice_is_compared() -> None:
    i = symbol("i", 0, 7)

    def at(x: Any) -> list[ElementRead]:
        return [ElementRead("x", x, TRUE)]

    far = at(maximum(i - 2, 2 - i))
    assert same(far, at(where(i < 2, 2 - i, i - 2)), TRUE)
    assert not same(far, at(where(i < 2, 2 - i, i - 1)), TRUE)
    assert not same(far, at(where(i < 2, 3 - i, i - 2)), TRUE)


def test_a_place_is_its_value_only_where_that_is_in_range() -> None:
    table, n = ValueTable(), symbol("n", 1)
    v = table.load("k", symbol("i", 0, 3))
    place = table.place(v, n)
    assert table.settled(place, and_(v >= 0, v < n)) == v
    assert table.settled(place, v < n) == place and table.settled(place, v >= 0) == place
