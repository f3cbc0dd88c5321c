"""Inlining finds what trying every position of every tensor finds, with few looks at the whole."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import ScheduleError
from idgraph.graphs import build_index_graph
from idgraph.graphs.broadcast_forwarding import BroadcastForwarding, shared_reads
from idgraph.index.predicate import check_written
from idgraph.ir import Fusion, TensorExpr
from idgraph.schedule import legality as legal
from idgraph.schedule.inlining import inline_far
from idgraph.testing import STEPS, fusions
from tests.property.budget import examples


def one_by_one(f: Fusion) -> dict[str, int]:
    """The definition: consumers first, each tensor as far right as is legal with those before it.

    No loop is made longer or shorter for that: it takes an `inline` of one's own.
    """
    order = {e.output: n for n, e in enumerate(f.exprs)}
    made = [t for t in f.tensors if t in order and t.uses]
    for t in made:
        t.inline_position = 0
    for t in sorted(made, key=lambda t: -order[t]):
        for position in range(len(t.loop), 0, -1):
            t.inline_position = position
            try:
                nests = build_index_graph(f).nests
                if any(nests.lengths(u) for u in made):
                    raise ScheduleError("other lengths")
                if t in f.outputs:
                    check_written(ig.IdModel(f))
            except ScheduleError:
                t.inline_position = 0
                continue
            break
    return {t.name: t.inline_position for t in f.tensors}


@settings(max_examples=examples(60))
@given(fusions(max_steps=8, steps=[s for s in STEPS if s != "scan"]), st.data())  # a scan waits for its end
def test_the_same_positions_as_one_by_one(f: Fusion, data: Any) -> None:
    made = [t for t in f.tensors if t.definition is not None and t.loop]
    if made:
        reference = data.draw(st.sampled_from(list(reversed(made))))
        reference.split(len(reference.loop) - 1, 2)
        ig.schedule.like(f, reference)
    note(str(f))
    want = one_by_one(f)
    inline_far(f, f.tensors)
    assert {t.name: t.inline_position for t in f.tensors} == want


def chain(n: int) -> Fusion:
    f = Fusion("chain")
    x = f.input("x", shape=(8, 32))
    for _ in range(n):
        x = ig.exp(x)
    f.output(x)
    return f


def rotations(n: int) -> Fusion:
    """Each rotation reads what it is added to in parts, so every fourth tensor stops at the rows."""
    f = Fusion("rotations")
    x = f.input("x", shape=(8, 32))
    for _ in range(n // 4):
        y = ig.exp(x)
        x = x + ig.cat([y[:, 16:], y[:, :16]], dim=1)
    f.output(x)
    return f


@pytest.mark.parametrize("make", [chain, rotations])
def test_few_looks_at_the_whole(make: Callable[[int], Fusion], monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def counted(*args: Any) -> Any:
        looked.append(len(args[1]))
        return build_index_graph(*args)

    monkeypatch.setattr(legal, "build_index_graph", counted)
    f = make(400)
    ig.schedule.like(f, f.outputs[0])
    inline_far(f, f.tensors)
    assert sum(looked) < 4 * 400
    assert all(t.inline_position for t in f.tensors if t.uses and t.definition is not None)


def test_no_thread_reads_what_another_one_computes() -> None:
    """Inlined as far as coordinates allow, t1 would be read along its parallel axis; less deep it is whole."""
    f = ig.Fusion("f")
    t1 = ig.neg(f.input("x", shape=(7, 5, 2)), name="t1")
    total = ig.sum(t1, 1, name="total")
    wide = ig.reshape(ig.expand(ig.unsqueeze(t1, 2), (7, 5, 3, 2)), 7, 15, 2, name="wide")
    f.output(total, wide)
    wide.split(0, 2)
    ig.schedule.like(f, wide)
    for t in f.tensors:
        if t.definition is not None and t is not total:
            t.parallelize(len(t.loop) - 1, "threadIdx.x")
    inline_far(f, f.tensors)
    with pytest.raises(ig.ScheduleError, match="would race: other threads read it"):
        ig.emit(f, target="cuda")
    ig.schedule.inline_most(f)
    assert "inline" in str(f)
    assert ig.emit(f, target="cuda").source and ig.validate(f, target="python").ok


def test_a_scan_keeps_its_order_beside_what_is_expanded() -> None:
    """Sharing the loops of the expanded copy, the scan would visit each of its elements three times."""
    f = ig.Fusion("f")
    c = ig.copy(f.input("x", shape=(2, 2)), name="c")
    wide = ig.reshape(ig.expand(ig.unsqueeze(c, 1), (2, 3, 2)), 6, 2, name="wide")
    f.output(wide, ig.cumsum(c, 0))
    wide.split(0, 2)
    ig.schedule.like(f, wide)
    ig.schedule.inline_most(f)
    for target in ("python", "cpu"):
        assert ig.validate(f, target=target).ok


def test_loops_that_the_user_put_on_threads_stay_as_they_are() -> None:
    """A scan over blocks is refused with inlining and without: other tensors are inlined all the same."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(8,))
    f.output(ig.cumsum(ig.exp(x), 0, name="s").parallelize(0, "blockIdx.x"))
    f.output(ig.exp(ig.neg(x, name="n")))
    ig.schedule.inline_most(f)
    assert f["n"].inline_position == 1
    with pytest.raises(ig.ScheduleError, match="s would race: its scanned axis 0"):
        ig.emit(f, target="cuda")


def widening(more: int) -> ig.Fusion:
    """Each of two axes is merged with the other, through a broadcast of it: no extent is long enough for both."""
    f = ig.Fusion("f")
    t1 = ig.neg(f.input("x0", shape=(1, 2)))
    t4, t5 = (ig.unsqueeze(ig.select(t1, 0, 0), 1) for _ in range(2))
    f.output(ig.cat([t4, t5], 1))
    ends = [ig.add(t5, t1)]
    for _ in range(more):  # longer ways around: extents that outgrow all numbers
        ends.append(ig.neg(ends[-1]))
    f.output(ends[-1])
    for t in (*reversed(ends), t5, t1):
        t.merge(0)
    for t in f.tensors:
        if t.definition is not None and t.uses:
            t.inline(2 if t is t4 else 1)
    return f


@pytest.mark.parametrize("more", [0, 12])
def test_loops_that_widen_themselves_are_refused(more: int) -> None:
    f = widening(more)
    with pytest.raises(ScheduleError, match="that widen it without end"):
        build_index_graph(f)
    ig.schedule.inline_most(f)
    assert ig.validate(f, "python").ok


def test_loops_that_widen_themselves_are_found_in_a_long_nest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside two hundred tensors that they take along: work grows with the nest, not with its square."""
    walks: list[int] = []
    walk = BroadcastForwarding.walk

    def counted(self: BroadcastForwarding, t: ig.Tensor, e: TensorExpr, k: int) -> object:
        walks[-1] += 1
        return walk(self, t, e, k)

    monkeypatch.setattr(BroadcastForwarding, "walk", counted)
    for more in (50, 200):
        f = widening(more)
        walks.append(0)
        with pytest.raises(ScheduleError, match="that widen it without end"):
            build_index_graph(f)
    assert walks[1] < 5 * walks[0], walks


def not_aligned(fusion: Fusion) -> None:
    """Leave indices as they are."""


def test_loops_that_grow_longer_round_a_nest_are_found_in_a_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lap adds a factor of two: the extents would be beyond 64 bits after sixty rounds of the whole nest."""
    torch: Any = importlib.import_module("torch")
    walks: list[float] = []
    walk, rounds = BroadcastForwarding.walk, BroadcastForwarding.__init__

    def counted(self: BroadcastForwarding, t: ig.Tensor, e: TensorExpr, k: int) -> object:
        walks[-1] += 1
        return walk(self, t, e, k)

    def begun(
        self: BroadcastForwarding, exprs: Sequence[TensorExpr], shared: Callable[[ig.Tensor], int], standing: Any
    ) -> None:
        walks.append(0)
        try:
            rounds(self, exprs, shared, standing)
        finally:
            walks[-1] /= len(list(shared_reads(exprs, shared)))

    monkeypatch.setattr(BroadcastForwarding, "walk", counted)
    monkeypatch.setattr(BroadcastForwarding, "__init__", begun)
    # Aligned indices leave no such loops in a pool.
    monkeypatch.setattr(import_module("idgraph.schedule.auto"), "align_indices", not_aligned)

    def pooled(x: Any) -> Any:
        return torch.nn.functional.adaptive_avg_pool2d(x, (2, 3))

    ig.schedule.auto(ig.from_torch(pooled, (torch.ones(1, 5, 5),)).fusion)
    assert walks and max(walks) < 45, max(walks)
    assert sum(walks) < 8 * 20, sum(walks)  # a ring is gone round alone, not with the nest


def lookups(n: int) -> ig.Fusion:
    """A sum of ``n`` gathers, each at indices that are computed, which lack axes of the gather's merged loops."""
    f = ig.Fusion("lookups")
    x, i = f.input("x", shape=(2, 3, 40, 40)), f.input("i", shape=(20,), dtype="int64")
    found: list[ig.Tensor] = []
    for k in range(n):
        rows, columns = (ig.where(ig.lt(i + k, 0), i + k + 40, i + k + p) for p in (0, 1))
        found.append(ig.index_get(x, [None, None, ig.unsqueeze(rows, 1), columns]) * float(k + 2))
    total = found[0]
    for t in found[1:]:
        total = total + t
    f.output(total)
    return f


def own_limit(alike: Any, t: ig.Tensor) -> int:
    """The limit of a tensor where nothing is known of its kind."""
    return alike.limits[t]


def test_computed_indices_are_inlined_into_merged_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked about once, and one kernel is right, whatever is known of their kind."""
    inline = importlib.import_module("idgraph.schedule.inlining")
    tried: list[int] = []
    whole = inline._try

    def counted(*args: Any) -> bool:
        tried.append(1)
        return whole(*args)

    monkeypatch.setattr(inline, "_try", counted)
    monkeypatch.setattr(import_module("idgraph.schedule.auto"), "align_indices", not_aligned)  # else all of them can be
    few, made = [0, 0], [lookups(2), lookups(6)]
    for n, f in enumerate(made):
        tried.clear()
        ig.schedule.auto(f)
        few[n] = len(tried)
    assert few == [1, 1]  # the indices run over what they lack: all are inlined at once
    for f in made:
        assert len(ig.emit(f, "cuda").kernels) == 1 and ig.validate(f).ok
    tried.clear()
    monkeypatch.setattr(inline._InlineLimits, "limit", own_limit)
    one = lookups(6)
    ig.schedule.auto(one)
    assert str(one) == str(made[1]) and len(tried) == 1


@settings(max_examples=examples(30))
@given(fusions())
def test_what_is_known_of_a_kind_changes_no_position(f: ig.Fusion) -> None:
    inline = importlib.import_module("idgraph.schedule.inlining")
    g = ig.parse(str(f))
    ig.schedule.auto(f)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline._InlineLimits, "limit", own_limit)
        ig.schedule.auto(g)
    assert str(f) == str(g)


def refused_alone(n: int) -> ig.Fusion:
    """``n`` equal parts with halves whose readers' loops are split: not even alone may all be inlined there."""
    f = ig.Fusion("parts")
    for k in range(n):
        x = ig.exp(f.input(f"x{k}", shape=(5,)))
        halves: list[ig.Tensor] = []
        for _ in range(2):
            a, b = x[1:], x[:1]
            b.split(0, 2)
            f.output(ig.cat([a, b], dim=0))
            halves.append(a)
        f.output(ig.where(ig.gt(halves[0], 0), halves[0], 0.5)).split(0, 2)
    return f


def test_what_a_tensor_is_refused_alone_is_asked_once_for_all_like_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model of many equal parts the first is looked at: more parts take the doubling of a search, no more."""
    inline = importlib.import_module("idgraph.schedule.inlining")
    tried: list[int] = []
    whole = inline._try

    def counted(*args: Any) -> bool:
        tried.append(1)
        return whole(*args)

    monkeypatch.setattr(inline, "_try", counted)

    def asked(n: int) -> tuple[int, str]:
        f = refused_alone(n)
        tried.clear()
        ig.schedule.inline_most(f)
        return len(tried), str(f)

    few, many = asked(4), asked(16)
    assert many[0] <= few[0] + 4
    monkeypatch.setattr(inline._InlineLimits, "limit", own_limit)
    one_by_one = asked(16)
    assert one_by_one[1] == many[1] and one_by_one[0] > 4 * many[0]


def refusal(f: Fusion, name: str, position: int, *, by_hand: bool) -> ScheduleError | None:
    """The error of a copy of ``f`` with a tensor inlined there, in the loops that it has or in those `inline` adds."""
    copied = ig.parse(str(f))
    try:
        if by_hand:
            copied[name].inline(position)
        else:
            copied[name].inline_position = position
        ig.emit(copied, target="python")
    except ScheduleError as error:
        return error
    return None


@settings(max_examples=examples(40))
@given(fusions(max_steps=8), st.data())
def test_what_is_left_outside_a_loop_has_its_reason(f: Fusion, data: Any) -> None:
    """Each tensor that could run in one loop more says why it does not: `emit` refuses that loop in the same words."""
    made = [t for t in f.tensors if t.definition is not None and t.loop]
    if made:
        reference = data.draw(st.sampled_from(made))
        reference.split(len(reference.loop) - 1, 2)
        ig.schedule.like(f, reference)
    note(str(f))
    stops = {stop.tensor: stop for stop in ig.schedule.inline_most(f)}
    for t in made:
        left = [d for d in t.loop[t.inline_position :] if d.kind != "reduction" and d.extent != 1]
        assert (t in stops) == bool(t.uses and left), t
    for t, stop in stops.items():
        at, said = stop.position + 1, stop.refusal
        assert at == t.inline_position + 1
        own, added = (refusal(f, t.name, at, by_hand=by_hand) for by_hand in (False, True))
        lacks = at > min(len(e.output.loop) for e in t.uses)  # a reader has fewer loops: only those added could do
        by_inline = said.what.startswith("inline: ")
        error = added if lacks or by_inline else own
        longer = "would be longer or shorter" in said.what  # `emit` takes loops that are widened, and those of one step
        assert longer == ((own if added is None else error) is None)
        if added is None:
            assert f"{t.name}.inline({at})" in said.hint
            assert own is None or said.what == own.what or (lacks and by_inline)
        else:
            assert f"{t.name}.inline({at})" not in said.hint  # a way out works
            assert error is None or error.what == said.what


def test_the_way_out_of_a_stop_was_tried() -> None:
    f = ig.Fusion("halves")
    x = ig.exp(f.input("x", shape=(4, 8)))
    f.output(x[:, :4] + x[:, 4:])
    (stop,) = ig.schedule.inline_most(f)
    assert str(stop).startswith("t1 is inlined at 1 of its 2 loops; one more: tensor t1 is inlined at 2, but its loop")
    assert "where that is at i1, it reads what t1 computes at i1 + 4" in str(stop)
    assert "ig.schedule.recompute(t1, t3.definition)" in stop.refusal.hint
    ig.schedule.recompute(x, f.exprs[2])
    x.inline(2)
    assert ig.validate(f, target="python").ok
    assert stop.refusal.what  # of the fusion as it was


def test_a_loop_of_another_length_is_taken_by_hand() -> None:
    f = ig.Fusion("longer")
    x = ig.exp(f.input("x", shape=(4,)))
    f.output(ig.pad(x, (0, 4)))
    (stop,) = ig.schedule.inline_most(f)
    assert (stop.refusal.what, stop.refusal.hint) == ("loop 0 of t1 would be longer or shorter", "t1.inline(1)")
    x.inline(1)
    assert ig.validate(f, target="python").ok
