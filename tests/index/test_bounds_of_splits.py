"""Many splits of one axis: of the bounds one is left for each split chain, and each element is met once."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from tests.property.budget import examples

MOST = 20_000  # points of the loops


@settings(max_examples=examples(60))
@given(st.integers(2, 40), st.data())
def test_each_element_is_written_once(n: int, data: st.DataObject) -> None:
    """Splits of splits and merges of their parts, with remainders or without; gone through point by point."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(n,))
    t = f.output(x + 1.0)
    for _ in range(data.draw(st.integers(4, 6))):
        last = len(t.loop) - 1
        if last and data.draw(st.integers(0, 4)) == 0:
            t.merge(data.draw(st.integers(0, last - 1)))
        else:
            p = data.draw(st.one_of(st.just(0), st.integers(0, last)))
            t.split(p, data.draw(st.integers(2, 3)), inner=data.draw(st.booleans()))
    note(str(f))
    m, e = ig.IdModel(f), f.exprs[-1]
    extents = [int(v.extent) for v in m.loops(e)]
    if math.prod(extents) > MOST:
        return
    for a in (m.write(e), m.read(e, 0)):
        met: list[int] = []
        for point in itertools.product(*map(range, extents)):
            at = {f"i{j}": v for j, v in enumerate(point)}
            if all(c.evaluate(at) for c in a.conditions):
                met.append(int(a.address.evaluate(at)))
        assert sorted(met) == list(range(n)), a


def test_one_condition_of_many_symbolic_splits() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n")
    t = f.output(f.input("x", shape=(n,)) + 1.0)
    for _ in range(24):
        t.split(0, 2)
    a = ig.IdModel(f).write(f.exprs[-1])
    assert len(a.conditions) == 1 and a.conditions[0].names >= {"n", "i0", "i24"}
    assert len(a.explain_predicate().dropped) > 24


def test_even_splits_ask_for_the_outermost_part() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", multiple_of=2**12)
    t = f.output(f.input("x", shape=(n,)) + 1.0)
    for _ in range(12):
        t.split(0, 2)
    t.split(0, 32)
    (condition,) = ig.IdModel(f).write(f.exprs[-1]).conditions
    assert condition.names == {"n", "i0", "i1"}
