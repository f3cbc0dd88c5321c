"""Alignments on the fusion that was asked about: what is told can be applied, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, note, settings

import idgraph as ig
from idgraph.errors import IdGraphError, ScheduleError
from idgraph.fuse.common_loops import Alignment, AlignmentStep
from idgraph.ir import hooks
from idgraph.ir.parser import copy_fusion
from idgraph.testing import fusions
from tests.property.budget import examples

READERS: dict[str, tuple[Callable[[ig.Tensor], ig.Tensor], Callable[[ig.Tensor], ig.Tensor]]] = {
    "flip": (lambda a: ig.flip(a, 1), lambda a: -a),
    "transpose": (lambda a: ig.transpose(a, 0, 1) * 1.5, lambda a: -a),
    "pad": (lambda a: ig.pad(a, (1, 2)), lambda a: -a),
    "reshape": (lambda a: ig.reshape(a, 4, 100), lambda a: a + 1),
    "cat": (lambda a: ig.cat([a, a], 1), lambda a: a * 2),
}


@pytest.mark.parametrize("name", READERS)
def test_the_producer_has_another_reader(name: str) -> None:
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", shape=(20, 20)), name="a")
    b, c = (f.output(reader(a)) for reader in READERS[name])
    pairs = [o for o in ig.fuse.obstacles(f) if o.alignment is not None]
    assert pairs, "a private copy serves one reader"
    for o in pairs:
        made = copy_fusion(f)
        assert o.alignment is not None
        o.alignment.apply(made)
        kernels = ig.emit(made, target="cuda").kernels
        assert kernels and ig.validate(made, target="numpy").ok, (b, c)


def test_a_copy_takes_a_free_name() -> None:
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", shape=(20, 20)), name="a")
    b = f.output(ig.flip(a, 1))
    f.output(-a)
    o = ig.fuse.explain(f, a, b)
    assert o is not None and o.alignment is not None
    copies = [s.copy for s in o.alignment.steps if s.copy]
    assert copies
    f.output(ig.exp(f["x"], name=copies[0]))
    o.alignment.apply(f)
    assert f[copies[0]].definition is not None and ig.validate(f, target="numpy").ok


def test_steps_that_emit_refuses_leave_the_fusion_as_it_was() -> None:
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", shape=(20, 20)), name="a")
    f.output(ig.flip(a, 1))
    f.output(-a)
    before = str(f)
    told = Alignment((AlignmentStep("a", "merge", (0, 1)), AlignmentStep("a", "inline", (1,))), 2, 1, 0)
    with pytest.raises(ig.ScheduleError, match="could not be emitted"):
        told.apply(f)
    assert str(f) == before


def test_a_step_of_axes_that_are_not_there_is_refused() -> None:
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", shape=(20, 20)), name="a")
    f.output(-a)
    before = str(f)
    told = Alignment((AlignmentStep("a", "set_allocation", (("root3", "root0"), (True, True))),), 2, 1, 0)
    with pytest.raises(ig.ScheduleError, match=r"a\.set_allocation.*no axis 'root3'"):
        told.apply(f)
    assert str(f) == before


@pytest.mark.slow
@settings(max_examples=min(examples(20), 2000))
@given(fusions(max_steps=6))
def test_what_is_told_can_be_applied(f: ig.Fusion) -> None:
    note(str(f))
    before = str(f)
    for o in list(ig.fuse.obstacles(f))[:6]:
        told = o.alignment
        if told is None:
            continue
        made = copy_fusion(f)
        told.apply(made)
        ig.emit(made, target="cuda" if told.one_kernel else "python")
        try:
            report = ig.validate(made, target="numpy")
        except IdGraphError:
            continue  # a loaded index lies outside for these numbers
        assert report.ok, f"{told}\n{report.counterexample}"
    assert str(f) == before


def test_a_search_asks_for_no_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial that is refused would try dozens of inlinings for a hint that nobody reads."""
    f = ig.Fusion("rounds")
    x, w = f.input("x", (8, 128)), f.input("w", (128,))
    for _ in range(2):
        h = ig.cat([x[:, 64:], x[:, :64]], 1) * w
        x = x + h * ig.rsqrt(ig.sum(h * h, 1, keepdim=True) / 128.0 + 1e-5)
    f.output(x)
    ig.schedule.auto(f)
    asked: list[ScheduleError] = []

    def advise(of: ig.Fusion, error: ScheduleError) -> ScheduleError:
        asked.append(error)
        return error

    monkeypatch.setattr(hooks, "_ADVISER_LOADERS", [])
    monkeypatch.setattr(hooks, "_ADVISERS", [advise])
    assert [o.bytes_saved for o in ig.fuse.obstacles(f)]
    assert not asked
    hooks.advised(f, ScheduleError("it is not legal", subject=(x.name,)))  # one that a user reads asks
    assert len(asked) == 1
