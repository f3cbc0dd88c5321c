"""L10: parse(print(x)) == x for fusions and index expressions, and the printed form is the same in every run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable

from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph import arith
from idgraph.arith import Expr
from idgraph.ir import Fusion
from idgraph.testing import index_expressions, scheduled_fusions

PROFILE = settings().max_examples


@settings(max_examples=PROFILE)
@given(scheduled_fusions())
def test_fusions(f: Fusion) -> None:
    """Operations, inputs and schedule come back, and print the same again."""
    text = str(f)
    note(text)
    again = ig.parse(text)
    assert again == f
    assert str(again) == text
    assert [list(map(repr, t.loop)) for t in again.tensors] == [list(map(repr, t.loop)) for t in f.tensors]


@settings(max_examples=PROFILE)
@given(index_expressions())
def test_index_expressions(found: tuple[Expr, dict[str, int]]) -> None:
    """The text of an expression reads back as the same expression, by value at every point and by structure."""
    e, ranges = found
    again = arith.parse(str(e), ranges)
    assert str(again) == str(e)
    assert again == e


_SCRIPT = """
import idgraph as ig
f = ig.Fusion("f")
x = f.input("x", shape=(6, 8))
y = ig.cat([x[:, 4:], x[:, :4]], 1)
t = f.output(ig.sum(x * y + ig.flip(x, 0), 1))
y.split(1, 3).merge(0)
m = ig.IdModel(f)
print(f)
for e in f.exprs:
    print(m.index_map(e))
print(m.index)
"""


def test_prints_the_same_in_every_run() -> None:
    """Text does not depend on hash seeds, addresses or what ran before."""
    runs = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(runs) == 1
    assert "cat" in runs.pop()


def _recompute(f: Fusion, data: st.DataObject) -> None:
    made = [t for t in f.tensors if t.definition is not None and t.uses]
    if made:
        t = data.draw(st.sampled_from(made))
        ig.schedule.recompute(t, data.draw(st.sampled_from(t.uses)))


def _rename(f: Fusion, data: st.DataObject) -> None:
    t = data.draw(st.sampled_from(f.tensors))
    t.name = data.draw(st.sampled_from(("fusion", "a b", 'quo"te', "é", "root0", f"{t.name}_again")))


def _lay_out(f: Fusion, data: st.DataObject) -> None:
    t = data.draw(st.sampled_from(f.tensors))
    axes = [d for d in data.draw(st.permutations(t.loop)) if d.kind != "reduction"]
    t.set_allocation(axes, [data.draw(st.booleans()) for _ in axes])


def _go_on(f: Fusion, data: st.DataObject) -> None:
    f.output(ig.exp(data.draw(st.sampled_from(f.tensors))) * 2.0)


def _loops(f: Fusion, data: st.DataObject) -> None:
    t = data.draw(st.sampled_from(f.tensors))
    t.set_loop(data.draw(st.permutations(t.loop)))


def _roll(f: Fusion, data: st.DataObject) -> None:
    data.draw(st.sampled_from([t for t in f.tensors if t.loop])).roll(0, 1).stride(0, 0, 1, 1)


MOVES: tuple[Callable[[Fusion, st.DataObject], object], ...] = (
    _recompute, _rename, _lay_out, _go_on, _loops, _roll,
    lambda f, _: ig.layout.apply(f, ig.layout.infer(f)),
    lambda f, data: ig.schedule.resize_to_inputs(f, data.draw(st.sampled_from(f.exprs))),
    lambda f, _: ig.schedule.auto(f), lambda f, _: ig.schedule.inline_most(f),
    lambda f, data: data.draw(st.sampled_from(f.tensors)).set_memory("shared"),
    lambda f, data: data.draw(st.sampled_from(f.tensors)).parallel(data.draw(st.booleans())),
    lambda f, data: data.draw(st.sampled_from(f.tensors)).persistent().items_per_thread(8).online(False),
    lambda f, data: ig.schedule.like(f, data.draw(st.sampled_from(f.tensors))),
    lambda f, data: data.draw(st.sampled_from(f.tensors)).inline(data.draw(st.integers(0, 2))),
)  # fmt: skip


@settings(max_examples=PROFILE)
@given(scheduled_fusions(), st.data())
def test_what_is_shown_of_a_failure_can_be_pasted(f: Fusion, data: st.DataObject) -> None:
    """The repr reads back as the same fusion with the same schedule, whatever was done to it and in which order."""
    for move in data.draw(st.lists(st.sampled_from(MOVES), max_size=4)):
        with contextlib.suppress(ig.IdGraphError, IndexError):  # a move that is not legal now
            move(f, data)
    text = repr(f)
    note(text)
    again = ig.parse(text)
    assert repr(again) == text and again == f
    for t, u in zip(f.tensors, again.tensors, strict=True):
        assert (u.name, u.shape, u.dtype, u.memory, u.inline_position) == (
            t.name, t.shape, t.dtype, t.memory, t.inline_position,
        )  # fmt: skip
        for mine, theirs in ((t.loop, u.loop), (t.allocation, u.allocation), (t.logical, u.logical)):
            assert [(str(d.extent), d.kind, d.parallel) for d in mine] == [
                (str(d.extent), d.kind, d.parallel) for d in theirs
            ]
        assert [s is None for s in t.domain.strides] == [s is None for s in u.domain.strides]
