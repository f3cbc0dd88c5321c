"""Loops of two lengths at one coordinate: one where all readers run alike; else where the shorter is widened."""

from __future__ import annotations

import itertools
import re

import pytest

import idgraph as ig


def fusion(kind: str, n: int, cut: int, *, also: bool) -> ig.Fusion:
    """``p`` of ``n`` elements read by a slice of ``cut`` of them (or padded to ``n + cut``), and by another or not."""
    f = ig.Fusion("lengths")
    p = ig.exp(f.input("x", (n,)), name="p")
    match kind:
        case "front":
            r = ig.slice(p, 0, 0, cut, name="r")
        case "back":
            r = ig.slice(p, 0, n - cut, n, name="r")
        case "padded after":
            r = ig.pad(p, [0, cut], name="r")
        case _:
            r = ig.pad(p, [cut, 0], name="r")
    f.output(ig.neg(r))
    if also:
        f.output(p * 2.0)
    p.inline(1)
    return f


KINDS = ("front", "back", "padded after", "padded before")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("also", [False, True])
def test_widened_as_the_hint_says(kind: str, also: bool) -> None:
    """One loop, or refused with both named: then the step in the hint makes it legal, and right at every point."""
    for n, cut in itertools.product((4, 7), (1, 2, 3)):
        f = fusion(kind, n, cut, also=also)
        if kind in ("front", "padded after") and not also:
            (loop,) = ig.IdModel(f).loops(f["p"].definition)  # type: ignore[arg-type]
            assert loop.extent == (cut if kind == "front" else n + cut)
            assert ig.validate(f, target="python", exhaustive=True).ok
            continue
        before = str(f)
        with pytest.raises(ig.ScheduleError) as caught:
            ig.emit(f, target="numpy")
        assert str(f) == before
        told = str(caught.value)
        other = cut if kind in ("front", "back") else n + cut
        assert f"its loop 0, I1[{n}], is not loop 0, " in told and f"[{other}], of its consumer r" in told
        at_once = kind in ("front", "padded after")
        assert (f"but a loop has one length: {n} or {other}" in told) == at_once
        if also and kind.startswith("padded"):  # a wider p is too long for its other reader
            assert "widen" not in told and "give this use its own copy: ig.schedule.recompute(p, r.definition)" in told
            continue
        name, left, right = re.findall(r"widen loop 0 of \w+: (\w+)\.resize\(0, (\d+), (\d+)\)", told)[0]
        f[name].resize(0, int(left), int(right))
        assert f["p"].inline_position == 1 and ig.validate(f, target="python").ok, told


def test_no_length_is_known_to_be_the_longer() -> None:
    f = ig.Fusion("lengths")
    n = f.symbol("n", min=1)
    p = ig.exp(f.input("x", (n + 4,)), name="p")
    m = f.symbol("m", max=n)
    f.output(ig.neg(ig.slice(p, 0, 0, m, name="r")))
    f.output(p * 2.0)
    p.inline(1)
    with pytest.raises(ig.ScheduleError, match=r"a loop has one length: n \+ 4 or m") as caught:
        ig.emit(f, target="numpy")
    assert "r.resize(0, 0, n + 4 - m)" in str(caught.value)


def test_other_coordinates_of_one_length_are_no_matter_of_length() -> None:
    f = ig.Fusion("lengths")
    p = ig.exp(f.input("x", (8,)), name="p")
    f.output(ig.flip(p, 0, name="r"))
    p.inline(1)
    with pytest.raises(ig.ScheduleError, match=r"does not read it at the coordinate of that loop: where that is at i0"):
        ig.emit(f, target="numpy")
