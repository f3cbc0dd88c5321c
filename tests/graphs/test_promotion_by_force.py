"""Promotion by force: vectors broadcast, reshaped, broadcast again, merged, split, inlined; every address checked."""

from __future__ import annotations

from hypothesis import example, given, note, settings
from hypothesis import strategies as st

import idgraph as ig

PROFILE = settings().max_examples


def widened_three_times() -> ig.Fusion:
    """[2] to [2, 2], [2, 2, 2] and [2, 3, 2, 2]: a broadcast that the first lacks is itself merged with a lacking 3."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(2,)))
    for dim, shape in ((1, (2, 2)), (0, (2, 2, 2)), (1, (2, 3, 2, 2))):
        t = ig.add(ig.unsqueeze(t, dim), f.input(f"y{len(shape)}", shape=shape))
    out = f.output(ig.mul(ig.reshape(ig.reshape(t, 6, 2, 2), 12, 2), 2.0))
    ig.schedule.like(f, out)
    ig.schedule.inline_most(f)
    return f


@st.composite
def widened(draw: st.DrawFn) -> ig.Fusion:
    """A chain of broadcasts, reshapes and pointwise operations, everything scheduled like its end and inlined."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))))
    for n in range(draw(st.integers(2, 5))):
        shape = [int(d) for d in t.shape]
        match draw(st.sampled_from(("widen", "widen", "merge", "merge", "split", "neg"))):
            case "widen" if len(shape) < 4:
                shape.insert(dim := draw(st.integers(0, len(shape))), 1)
                wide = tuple(d if d > 1 else draw(st.integers(1, 3)) for d in shape)
                t = ig.add(ig.unsqueeze(t, dim), f.input(f"y{n}", shape=wide))
            case "merge" if len(shape) > 1:
                p = draw(st.integers(0, len(shape) - 2))
                t = ig.reshape(t, *shape[:p], shape[p] * shape[p + 1], *shape[p + 2 :])
            case "split" if len(shape) < 4 and any(d == 4 or d > 5 for d in shape):
                p = next(p for p, d in enumerate(shape) if d == 4 or d > 5)
                by = next((d for d in range(2, shape[p]) if shape[p] % d == 0), 1)
                t = ig.reshape(t, *shape[:p], by, shape[p] // by, *shape[p + 1 :])
            case _:
                t = ig.neg(t)
    out = f.output(ig.mul(t, 2.0))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(out.loop) - 1))
        if draw(st.booleans()) and place + 1 < len(out.loop):
            out.merge(place)
        else:
            out.split(place, draw(st.integers(2, 4)), inner=draw(st.booleans()))
    ig.schedule.like(f, out)
    ig.schedule.inline_most(f)
    return f


@settings(max_examples=PROFILE // 2)
@example(widened_three_times())
@given(widened())
def test_whatever_is_inlined_into_wider_loops_is_right(f: ig.Fusion) -> None:
    note(str(f))
    ig.IdModel(f).verify()
    report = ig.validate(f, target="python")
    assert report.ok, str(report)
