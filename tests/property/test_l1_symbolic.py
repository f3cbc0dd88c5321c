"""L1 with symbolic extents: the same random fusions, one extent made a symbol, checked at several of its values."""

from __future__ import annotations

import re

from hypothesis import assume, event, given, note, reject, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import Fusion
from idgraph.testing import scheduled_fusions
from idgraph.validate import check_addresses
from tests.property.budget import examples


def with_symbol(f: Fusion, extent: int, multiple: int) -> Fusion | None:
    """``f`` with every input extent ``extent`` a symbol n of at least that; None where the rest does not fit it."""

    def symbolic(line: str) -> str:
        shape = re.search(r"shape=\(([^)]*)\)", line)
        if " = input(" not in line or shape is None:
            return line
        sizes = [x.strip() for x in shape.group(1).split(",") if x.strip()]
        named = ", ".join("`n`" if x == str(extent) else x for x in sizes)
        return line.replace(shape.group(0), f"shape=({named},)")

    first, *rest = str(f).splitlines()
    declared = f"  symbol n min={extent} multiple_of={multiple}"
    try:
        return ig.parse("\n".join([first, declared, *map(symbolic, rest)]))
    except ig.IdGraphError:
        return None


@settings(max_examples=examples(60))
@given(scheduled_fusions(max_steps=4), st.data())
def test_index_maps_with_a_symbol(f: Fusion, data: st.DataObject) -> None:
    """At its least value and two others; what concrete extents allow and a symbol does not is refused, not wrong."""
    sizes = sorted({int(d.extent) for t in f.inputs for d in t.logical if int(d.extent) > 1})
    assume(sizes and not any(t.domain.strides[0] is not None for t in f.inputs if t.domain.strides))
    extent = data.draw(st.sampled_from(sizes))
    multiple = data.draw(st.sampled_from([k for k in (1, 2, 3, 4) if extent % k == 0]))
    g = with_symbol(f, extent, multiple)
    event("fits a symbol" if g is not None else "needs the number")
    assume(g is not None)
    assert g is not None
    note(str(g))
    m = ig.IdModel(g)
    try:
        m.verify()
    except ig.ScheduleError:
        reject()
    for n in (extent, extent + multiple, extent + 3 * multiple):
        report = check_addresses(g, model=m, symbols={"n": n})
        assert report.ok, f"n = {n}: {report.mismatch}"
