"""`schedule.like` takes every reference that a kernel can run, and leaves a fusion that every target emits, rightly."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, event, given, note, reject, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.index.predicate import is_partial
from idgraph.ir import Fusion, Tensor
from idgraph.testing import fusions
from idgraph.validate import check_addresses, check_values, random_inputs
from tests.property.budget import examples

WAYS = ("blockIdx.x", "threadIdx.x", "threadIdx.y", "vectorize", "unroll")
MANY = 5_000


def scheduled(data: st.DataObject, t: Tensor) -> None:
    """A few steps on the loops of the reference; some loops run in parallel."""
    for _ in range(data.draw(st.integers(0, 4))):
        count = len(t.loop)
        p, q = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, count - 1))
        alike = (t.loop[p].kind == "reduction") == (t.loop[q].kind == "reduction")
        match data.draw(st.sampled_from(("split", "merge", "reorder"))):
            case "split" if count < 6:
                t.split(p, data.draw(st.integers(1, 5)), inner=data.draw(st.booleans()))
            case "merge" if p != q and alike:
                t.merge(p, q)
            case _:
                t.reorder(data.draw(st.permutations(range(count))))
    if data.draw(st.booleans()):
        ways = data.draw(st.permutations(WAYS))
        for p, way in zip(data.draw(st.permutations(range(len(t.loop)))), ways[:2], strict=False):
            if t.loop[p].kind != "reduction":
                t.parallelize(p, way)


def emitted(f: Fusion) -> None:
    for target in ("cpu", "cuda"):
        ig.emit(f, target=target)


def right(f: Fusion, inputs: dict[str, object]) -> None:
    addresses = check_addresses(f, inputs=inputs)  # type: ignore[arg-type]
    assert addresses.ok, str(addresses.mismatch)
    values = check_values(f, "numpy", inputs=inputs)
    assert values.ok, str(values.mismatch)


def like_is_legal(data: st.DataObject) -> None:
    f = data.draw(fusions(max_steps=8))
    reference = data.draw(
        st.sampled_from([t for t in reversed(f.tensors) if t.definition is not None and t.loop] or [None])
    )
    if reference is None:
        reject()
    scheduled(data, reference)
    note(f"{f}\nlike {reference.name}")
    try:
        emitted(f)
    except ig.ScheduleError:
        reject()  # the user's own loops are refused, whatever follows them
    inputs = random_inputs(f, 0, {})
    ig.schedule.like(f, reference)
    event("cut" if any(is_partial(x) for t in f.tensors for x in t.domain.loop_exprs) else "whole")
    emitted(f)
    right(f, inputs)  # type: ignore[arg-type]


def inlining_is_legal(data: st.DataObject) -> None:
    f = data.draw(fusions(max_steps=8))
    made = [t for t in reversed(f.tensors) if t.definition is not None and t.loop]
    if not made:
        reject()
    reference = _reference(data, made)
    if reference is not None:
        ig.schedule.like(f, reference)
    way = data.draw(st.sampled_from((None, "threadIdx.x", "blockIdx.x")))
    for t in made:
        p = data.draw(st.sampled_from((0, len(t.loop) - 1)))
        if way is not None and t.loop[p].kind != "reduction" and t.loop[p].parallel == "serial":
            t.parallelize(p, way)
    note(str(f))
    try:
        emitted(f)
    except ig.ScheduleError:
        reject()  # loops that no kernel can have, whatever is inlined
    inputs = random_inputs(f, 0, {})
    ig.schedule.inline_most(f)
    event("inlined" if any(t.inline_position for t in made) else "nothing to inline")
    note(str(f))
    emitted(f)
    right(f, inputs)  # type: ignore[arg-type]


def _reference(data: st.DataObject, made: list[Tensor]) -> Tensor | None:
    reference = data.draw(st.sampled_from(made))
    if data.draw(st.booleans()):
        reference.split(data.draw(st.integers(0, len(reference.loop) - 1)), 2)
    return reference if data.draw(st.booleans()) else None


@settings(max_examples=examples(100))
@given(st.data())
def test_inlining_leaves_nothing_that_is_refused(data: st.DataObject) -> None:
    """Where kernels can be made without inlining, they can be with `inline_most`, whatever runs in parallel."""
    inlining_is_legal(data)


@settings(max_examples=examples(100))
@given(st.data())
def test_like_leaves_nothing_that_is_refused(data: st.DataObject) -> None:
    like_is_legal(data)


@pytest.mark.nightly
@settings(
    max_examples=MANY,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
@given(st.data())
def test_like_on_many(data: st.DataObject) -> None:
    like_is_legal(data)


@pytest.mark.nightly
@settings(
    max_examples=MANY,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
@given(st.data())
def test_inlining_on_many(data: st.DataObject) -> None:
    inlining_is_legal(data)


def parts_of(kind: str) -> tuple[Fusion, Tensor]:
    """Readers of different parts of one tensor."""
    f = ig.Fusion("f")
    p = ig.exp(f.input("x", (6, 8)), name="p")
    match kind:
        case "select":
            o = ig.select(p, 1, 0) + ig.select(p, 1, 1)
        case "stack":
            o = ig.stack([ig.select(p, 1, 0), ig.select(p, 1, 3)], 1)
        case "halves":
            h = ig.reshape(p, (6, 2, 4))
            o = ig.reshape(ig.cat([-ig.select(h, 1, 1), ig.select(h, 1, 0)], 1), (48,))
        case _:
            o = ig.reshape(ig.cat([p[:, 5:], p[:, :5]], 1), (48,))
    return f, f.output(o)


@pytest.mark.parametrize("kind", ["select", "stack", "halves", "cat"])
@pytest.mark.parametrize("split", [False, True])
def test_parts_of_one_tensor(kind: str, split: bool) -> None:
    f, o = parts_of(kind)
    if split:
        o.split(0, 4)
    ig.schedule.like(f, o)
    assert not any(is_partial(x) for x in f["p"].domain.loop_exprs), "all of p is computed"
    ig.schedule.inline_most(f)
    emitted(f)
    assert ig.validate(f, target="numpy").ok


def test_one_reader_of_a_part_still_cuts() -> None:
    f = ig.Fusion("f")
    p = ig.exp(f.input("x", (6, 8)), name="p")
    o = f.output(ig.select(p, 1, 3) * 2.0)
    ig.schedule.like(f, o)
    assert any(is_partial(x) for x in p.domain.loop_exprs), "one column is computed, not eight"
    assert ig.validate(f, target="numpy").ok


@pytest.mark.parametrize("way", ["serial", "threadIdx.x"])
def test_a_scan_keeps_its_order(way: str) -> None:
    """The reference's loops would visit the scanned axis backwards in blocks, or on threads."""
    f = ig.Fusion("f")
    s = ig.cumsum(f.input("x", (6, 8)), 1, name="s")
    o = f.output(s * 2.0)
    o.split(1, 4).reorder({1: 2}).parallelize(2, way)
    ig.schedule.like(f, o)
    assert s.loop == s.logical and len(o.loop) == 3
    emitted(f)
    assert ig.validate(f, target="numpy").ok


def test_a_scatter_keeps_its_order() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", (6, 8)), f.input("i", (5, 8), "int64")
    s = ig.scatter(x, 0, i, 2.5, name="s")
    o = f.output(ig.flip(s, 0) * 2.0)
    o.merge(0).split(0, 5).reorder({0: 1})
    ig.schedule.like(f, o)
    emitted(f)
    assert ig.validate(f, target="numpy").ok


def test_an_inlined_reference_whose_reader_cannot_share_its_loop() -> None:
    f = ig.Fusion("f")
    r = ig.copy(f.input("x", (6, 8)), name="r")
    f.output(ig.flip(r, 0) + r)
    r.inline(1)
    ig.schedule.like(f, r)
    assert r.inline_position == 0
    emitted(f)
    assert ig.validate(f, target="numpy").ok
