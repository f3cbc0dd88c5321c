"""Hints of an inlining that is not legal: each was tried, so following it leads to no such error."""

from __future__ import annotations

import re

from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import ScheduleError
from idgraph.ir.parser import copy_fusion
from idgraph.testing import fusions
from tests.property.budget import examples


def refusal(f: ig.Fusion) -> ScheduleError | None:
    try:
        ig.IdModel(f).index  # noqa: B018 - building it checks the nests
    except ScheduleError as error:
        return error
    return None


def follow(f: ig.Fusion, way: str) -> None:
    """Do what one way out says."""
    if found := re.fullmatch(r"inline (\w+) (?:at most )?at (\d+)", way):
        f[found[1]].inline_position = int(found[2])
    elif found := re.fullmatch(r"schedule it like (\w+): ig.schedule.like\(f, \1\)", way):
        positions = {t: t.inline_position for t in f.tensors}
        ig.schedule.like(f, f[found[1]])
        for t, k in positions.items():
            t.inline_position = k
    elif way.startswith(("give this use its own copy: ", "give each of these uses its own copy: ")):
        for name, reader in re.findall(r"ig.schedule.recompute\((\w+), (\w+).definition\)", way):
            use = f[reader].definition
            assert use
            ig.schedule.recompute(f[name], use)
    elif found := re.fullmatch(r"widen loop (\d+) of (\w+): \2\.resize\(\1, (\d+), (\d+)\)", way):
        f[found[2]].resize(int(found[1]), int(found[3]), int(found[4]))
    elif found := re.fullmatch(r'keep it in shared memory: (\w+)\.set_memory\("shared"\)', way):
        f[found[1]].set_memory("shared")
    elif found := re.fullmatch(r"do not inline (\w+) \(global memory and a new launch\)", way):
        f[found[1]].inline_position = 0
    elif found := re.fullmatch(r'run loop (\d+) serially: (\w+)\.parallelize\(\1, "serial"\)', way):
        f[found[2]].parallelize(int(found[1]), "serial")
    elif found := re.fullmatch(r"inline no tensor past (\d+)", way):
        for t in f.tensors:
            t.inline_position = min(t.inline_position, int(found[1]))
    else:
        raise AssertionError(f"no such way is known here: {way}")


def test_the_index_of_a_gather() -> None:
    """Loops like those of the gather do not help where the index is read at other elements in each step."""
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(8, 6)), ig.copy(f.input("i", shape=(8, 3), dtype="int64"), name="c")
    g = f.output(ig.gather(ig.exp(x, name="e"), 1, i, name="g"))
    f["e"].inline(2)
    error = refusal(f)
    assert error is not None
    assert error.hint == "inline e at most at 1"
    f["e"].inline(1)
    assert refusal(f) is None
    g.merge(0)
    f["e"].inline(0)
    i.inline(1)
    error = refusal(f)
    assert error is not None
    assert "like(f, g)" in error.hint
    ig.schedule.like(f, g)
    i.inline(1)
    assert refusal(f) is None


def test_a_copy_is_offered_where_it_helps() -> None:
    f = ig.Fusion("f")
    c = ig.copy(f.input("x", shape=(8,)), name="c")
    f.output(ig.add(c, ig.flip(c, 0, name="r"), name="o"))
    c.inline(1)
    f["r"].inline(1)
    error = refusal(f)
    assert error is not None
    assert "ig.schedule.recompute(c, r.definition)" in error.hint
    for way in error.hint.split(", or "):
        g = copy_fusion(f)
        follow(g, way)
        assert refusal(g) is None


@settings(max_examples=examples(150))
@given(fusions(max_steps=5), st.data())
def test_every_way_out_is_one(f: ig.Fusion, data: st.DataObject) -> None:
    """Random inlinings: each way out offered works, and the fusion is as it was."""
    made = [t for t in f.tensors if t.definition is not None and t.loop]
    if made and data.draw(st.booleans()):
        reference = data.draw(st.sampled_from(made))
        reference.split(0, 2)
        ig.schedule.like(f, reference)
    for t in made:
        limit = min([len(t.loop), *(len(e.output.loop) for e in t.uses)])
        kept = next((p for p, d in enumerate(t.loop[:limit]) if d.kind == "reduction"), limit)
        if t.uses:
            t.inline_position = data.draw(st.integers(0, kept))
    note(before := str(f))
    error = refusal(f)
    assert str(f) == before
    for way in error.hint.split(", or ") if error is not None and error.hint else ():
        g = copy_fusion(f)
        follow(g, way)
        again = refusal(g)
        assert again is None, f"{error}\n{way} leads to\n{again}"


def race(f: ig.Fusion) -> ScheduleError | None:
    try:
        ig.emit(f, target="cuda")
    except ScheduleError as error:
        return error
    return None


@settings(max_examples=examples(60))
@given(fusions(max_steps=6), st.data())
def test_every_way_out_of_a_race_is_one(f: ig.Fusion, data: st.DataObject) -> None:
    """Random inlinings of loops on threads: after a way out is taken, the same error does not return."""
    for t in f.tensors:
        if t.definition is None or not t.loop:
            continue
        if all(d.kind != "reduction" for d in t.loop) and data.draw(st.integers(0, 3)):
            t.parallelize(len(t.loop) - 1, "threadIdx.x")
        if t.uses:
            limit = min([len(t.loop), *(len(e.output.loop) for e in t.uses)])
            t.inline_position = data.draw(st.integers(0, limit))
    note(before := str(f))
    error = race(f)
    assert str(f) == before
    if error is None or not error.subject:
        return
    for way in error.hint.split(", or ") if error.hint else ():
        g = copy_fusion(f)
        follow(g, way)
        again = race(g)
        assert again is None or again.what != error.what, f"{error}\n{way} leads to\n{again}"


def test_what_other_threads_read() -> None:
    """Shared memory, no threads along that axis, or less inlining: each of them ends the race."""
    f = ig.Fusion("f")
    c = ig.exp(f.input("x", shape=(4, 32)), name="c")
    f.output(ig.flip(c, 1, name="r"))
    for t in (c, f["r"]):
        t.parallelize(1, "threadIdx.x")
    c.inline(1)
    error = race(f)
    assert error is not None and "c would race: other threads read it" in str(error)
    ways = error.hint.split(", or ")
    assert ways == [
        'keep it in shared memory: c.set_memory("shared")',
        "do not inline c (global memory and a new launch)",
        'run loop 1 serially: c.parallelize(1, "serial")',
    ]
    for way in ways:
        g = copy_fusion(f)
        follow(g, way)
        assert race(g) is None, way


def test_memory_of_a_block_is_not_offered_to_other_blocks() -> None:
    f = ig.Fusion("f")
    c = ig.exp(f.input("x", shape=(4, 32)), name="c")
    f.output(ig.flip(c, 1, name="r"))
    for t in (c, f["r"]):
        t.parallelize(1, "blockIdx.x")
    c.inline(1)
    error = race(f)
    assert error is not None and "other blocks read it" in str(error)
    assert "shared" not in error.hint and "do not inline c" in error.hint
