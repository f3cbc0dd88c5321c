"""The claims of a report, held against the index maps point by point; its JSON, text and totals."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import idgraph as ig
from idgraph.index import Access
from idgraph.ir import item_size
from idgraph.reports import AccessFacts, IndexReport
from idgraph.runtime.program import Program
from idgraph.testing import scheduled_fusions

GRAPHS = Path(__file__).parents[1] / "frontends" / "graphs"
NAMES = ("rope_half_residual", "gather_logsoftmax", "sort_gather", "rope_partial_neox")
POINTS = 600


def imported(name: str) -> IndexReport:
    return ig.frontends.fx.from_json(GRAPHS / f"{name}.core.json").report()


def pairs(f: ig.Fusion, r: IndexReport) -> Iterator[tuple[Access, AccessFacts]]:
    """Each access of the model with what the report says of it."""
    m = ig.IdModel(f)
    for e, told in zip(f.exprs, r.segments[0].operations, strict=True):
        found = m.index_map(e)
        assert [x.name for x in found.loops] == [x.name for x in told.loops]
        yield from zip(found.accesses, told.accesses, strict=True)


def held(a: Access, told: AccessFacts) -> None:
    """Steps, contiguity and vectors of one access, by walking the lanes of every point of the other loops."""
    lane = next((x for x in a.loops if x.name == told.loop), None)
    if lane is None:
        assert told.pattern == "one element" and all(x.extent == 1 for x in a.loops)
        return
    if a.buffer.place == "register":
        assert told.place == told.where == "register" and not told.narrow
        return
    if a.loads:
        return  # addresses depend on values: tests/index holds those
    n = int(lane.extent)
    others = [x for x in a.loops if x is not lane]
    width = told.vector_width
    assert n % width == 0 or width == 1
    steps: set[int] = set()
    for point in itertools.product(*(range(int(x.extent)) for x in others)):
        at = {x.name: v for x, v in zip(others, point, strict=True)}
        happens = [bool(a.predicate.evaluate({**at, lane.name: i})) for i in range(n)]
        address = [int(a.address.evaluate({**at, lane.name: i})) for i in range(n)]
        steps |= {address[i + 1] - address[i] for i in range(n - 1) if happens[i] and happens[i + 1]}
        for first in range(0, n, width):
            lanes = range(first, first + width)
            assert len({happens[i] for i in lanes}) == 1  # as a whole or not at all
            if happens[first] and width > 1:
                assert [address[i] for i in lanes] == list(range(address[first], address[first] + width))
                assert address[first] % width == 0
    match told.pattern:
        case "contiguous":
            assert steps <= {1}
        case "same element":
            assert steps <= {0}
        case "strided":
            assert told.step is not None
        case "irregular":
            assert told.step is None
        case _:
            raise AssertionError(told.pattern)
    if told.step is not None and told.step.lstrip("-").isdigit() and told.pattern != "contiguous":
        assert steps <= {int(told.step)}
    assert told.vector_bytes == width * item_size(a.tensor.dtype) <= 16


@given(scheduled_fusions())
@settings(max_examples=12)
def test_claims_hold_at_every_point(f: ig.Fusion) -> None:
    try:
        r = ig.report(f)
    except ig.ScheduleError:
        return  # an inlining no loop nest can do
    for a, told in pairs(f, r):
        if f.symbols or any(not x.extent.is_const for x in a.loops) or "stride" in told.address:
            continue
        points = 1
        for x in a.loops:
            points *= int(x.extent)
        assert told.points == points
        if points <= POINTS:
            held(a, told)


@pytest.mark.parametrize("name", ["rope_half_residual", "rope_partial_neox"])
def test_claims_of_a_captured_graph_hold(name: str) -> None:
    imp = ig.frontends.fx.from_json(GRAPHS / f"{name}.core.json")
    for a, told in pairs(imp.fusion, imp.report()):
        if isinstance(told.points, int) and told.points <= POINTS:
            held(a, told)
        assert told.coordinates == tuple(map(str, a.coordinates)) and told.address == str(a.address)


KEYS: dict[str, Any] = {
    "": ["schema", "name", "schedule", "totals", "seconds", "mapped", "opaque", "segments"],
    "totals": ["operations", "accesses", "contiguous", "vectorisable", "data_dependent", "cycles", "resize_cycles",
               "changing_cycles", "opaque_calls", "kernels", "distinct_kernels", "bytes_read", "bytes_written",
               "bytes_between", "exact"],
    "segments": ["number", "name", "tensors", "operations", "cycles", "self_mappings", "traffic", "bytes_read",
                 "bytes_written", "bytes_between", "kernels", "refused", "calls"],
    "kernels": ["name", "operations", "boundaries", "source", "cost", "measured_us"],
    "boundaries": ["earlier", "tensor", "how", "cause", "because"],
    "cost": ["name", "blocks", "threads", "bytes_asked", "bytes_read", "bytes_written", "bytes_cached", "bytes_moved",
             "sectors", "bytes_shared", "bytes_private", "flops", "special", "atomics", "time_us", "shared", "bound",
             "exact", "collisions", "registers", "spills", "occupancy"],
    "tensors": ["name", "role", "shape", "dtype", "strides", "line"],
    "operations": ["name", "op", "text", "line", "inlined_at", "loops", "accesses"],
    "loops": ["name", "extent", "parallel"],
    "accesses": ["kind", "operand", "tensor", "shape", "dtype", "coordinates", "address", "place", "predicate", "loop",
                 "step", "pattern", "contiguous", "contiguous_along", "vector_width", "vector_bytes", "limit", "why",
                 "index_bits", "points", "loads", "bounds", "suggestions"],
    "suggestions": ["text", "width", "loop", "keeps_result"],
    "loads": ["name", "tensor", "coordinates"],
    "cycles": ["graph", "kind", "shift", "modulus", "map", "holds", "resizes", "changes_index", "tensors", "steps",
               "lines", "closed_by", "closing_line", "consequence"],
    "self_mappings": ["tensor", "first", "second", "reason"],
    "traffic": ["tensor", "role", "read", "written", "size", "exact", "why"],
    "calls": ["name", "op", "reason", "line"],
    "line": ["file", "line", "code"],
    "lines": ["file", "line", "code"],
    "closing_line": ["file", "line", "code"],
}  # fmt: skip


def keyed(value: object, name: str, seen: set[str]) -> None:
    """Every object has exactly the keys of its place, in their order."""
    if isinstance(value, list):
        for x in value:  # pyright: ignore[reportUnknownVariableType]
            keyed(x, name, seen)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, dict) and name not in ("mapped", "opaque", "seconds"):
        assert list(value) == KEYS[name], name  # pyright: ignore[reportUnknownArgumentType]
        seen.add(name)
        for k, x in value.items():  # pyright: ignore[reportUnknownVariableType]
            keyed(x, str(k), seen)  # pyright: ignore[reportUnknownArgumentType]


def test_the_schema_of_the_json() -> None:
    seen: set[str] = set()
    transposed = ig.Fusion("f")
    s = transposed.input("s", (8, 8))
    transposed.output(s + s.T)
    for r in (*map(imported, NAMES), ig.report(transposed)):
        found = json.loads(r.to_json())
        assert found["schema"] == "idgraph-report/4"
        keyed(found, "", seen)
    assert seen == KEYS.keys()  # each kind of object was there


def test_a_report_is_the_same_every_time() -> None:
    assert imported(NAMES[0]).to_json() == imported(NAMES[0]).to_json()
    assert imported(NAMES[0]).to_html() == imported(NAMES[0]).to_html()


def test_what_a_report_of_rope_says() -> None:
    r = imported("rope_half_residual")
    assert {(c.kind, c.shift) for c in r.resize_cycles} == {("shift", "4"), ("shift", "-4")}
    for c in r.resize_cycles:
        assert c.closed_by is not None and c.closing_line is not None and len(c.lines) >= 3
        assert all(x.file == "rope_half_residual.core.json" for x in c.lines)
        assert "index graph" in c.consequence
    inputs = ig.frontends.fx.from_json(GRAPHS / "rope_half_residual.core.json").fusion.inputs
    whole = 0
    for t in inputs:
        size = item_size(t.dtype)
        for n in t.shape:
            size *= int(n)
        whole += size
    assert r.exact and r.bytes_read is not None and r.bytes_read >= whole  # once for each kernel
    text = str(r)
    assert "shift by 4" in text and "bytes read" in text
    assert max(map(len, text.splitlines())) <= 120
    assert all(e.name in r.to_text(rows=None) for s in r.segments for e in s.operations)


def test_a_scheduled_copy_keeps_the_lines() -> None:
    imp = ig.frontends.fx.from_json(GRAPHS / "rope_half_residual.core.json")
    before, after = imp.report(), imp.report(auto=True)
    assert [c.lines for c in before.cycles] == [c.lines for c in after.cycles]
    assert after.bytes_between == 0 and after.schedule == "auto"
    assert not any(t.inline_position for t in imp.fusion.tensors)  # the program itself is as it was


def test_segments_and_opaque_calls() -> None:
    r = imported("sort_gather")
    assert [c.op for c in r.calls] == ["aten.sort.default"]
    assert "order" in r.calls[0].reason and r.calls[0].line is not None
    assert [bool(s.operations) for s in r.segments] == [False, True]
    assert "aten.sort.default" in r.opaque and r.mapped


def test_loaded_indices() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", (10, 4)), f.input("i", (6,), "int64")
    f.output(ig.index_select(x, 0, i))
    (a,) = ig.report(f).data_dependent
    assert (a.tensor, a.coordinates) == ("x", ("ld1", "i1"))
    assert [(x.name, x.tensor, x.coordinates) for x in a.loads] == [("ld1", "i", ("i0",))]
    assert a.bounds == ("ld1 >= 0", "ld1 < 10")
    assert a.pattern == "contiguous"  # along i1; which row, a value says


def test_what_is_not_vectorised_and_why() -> None:
    f = ig.Fusion("f")
    x = f.input("x", (8, 30))
    f.output(x.T + 1.0, x[:, 1:29] + 1.0, x[:, :1] * x)
    told = {(e.name, a.tensor, a.kind): a for s in ig.report(f).segments for e in s.operations for a in e.accesses}
    shifted = next(a for (_, t, kind), a in told.items() if t == "x" and kind == "read" and "i1 + 1" in a.coordinates)
    assert (shifted.pattern, shifted.vector_width) == ("contiguous", 1)
    assert "offset 1" in shifted.why
    turned = next(a for (_, t, kind), a in told.items() if t == "x" and kind == "read" and a.pattern == "strided")
    assert (turned.step, turned.contiguous_along) == ("30", ("i0",))


def test_bad_requests(tmp_path: Path) -> None:
    f = ig.Fusion("f")
    with pytest.raises(ig.IdGraphError, match="report: f is 3, an int"):
        ig.report(3)  # pyright: ignore[reportArgumentType]
    t = ig.exp(f.input("x", (4, 4)))
    with pytest.raises(ig.FusionError, match="not well formed"):
        ig.report(f)
    f.output(t.T)
    with pytest.raises(ig.IdGraphError, match=r"not written as \.pdf"):
        ig.report(f).save(tmp_path / "x.pdf")
    t.inline(1)
    with pytest.raises(ig.ScheduleError):
        ig.report(f)


def test_saved_forms(tmp_path: Path) -> None:
    r = imported("rope_half_residual")
    assert json.loads(r.save(tmp_path / "r.json").read_text()) == r.to_dict()
    assert r.save(tmp_path / "r.html").read_text() == r.to_html()
    assert r.save(tmp_path / "r.txt").read_text() == r.to_text(rows=None) + "\n"


def test_what_would_allow_more_is_told_and_true() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(8, 30))
    f.output(ig.exp(a[:, :28]))
    r = ig.report(f)
    read = r.segments[0].operations[0].accesses[1]
    assert read.narrow and read.suggestions
    access = ig.IdModel(f).access(f.exprs[0], a)
    tried = access.explain_vector_width(read.loop).suggestions()
    assert [(c.text, c.width, c.keeps_result) for c in read.suggestions] == [
        (c.text, c.width, c.keeps_result) for c in tried
    ]
    changed = tried[0].apply(f)
    assert (
        ig.report(changed).segments[0].operations[0].accesses[1].vector_width
        == read.suggestions[0].width
        > read.vector_width
    )
    text = "padded to 32 elements: strides (32, 1)"
    assert text in " ".join(r.to_text(200).split()) and text in r.to_html() and text in r.to_json()
    wide = r.segments[0].operations[1].accesses[0]
    assert wide.suggestions is None and not wide.narrow
    assert all(x.suggestions is None for x in ig.report(f, suggestions=0).accesses)


def test_accesses_that_look_alike_are_asked_about_once() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(8, 30))
    for _ in range(6):
        t = ig.exp(t[:, :29]) if t.shape[1] == 30 else ig.pad(t, (1, 0))
    f.output(t)
    every = [(e.op, a) for s in ig.report(f).segments for e in s.operations for a in e.accesses]
    asked = [(op, a) for op, a in every if a.suggestions is not None]
    looks = {(op, a.kind, a.shape, a.address, a.why) for op, a in asked}
    assert 0 < len(asked) < sum(a.narrow for _, a in every) and len(looks) == len(asked)
    assert len([a for a in ig.report(f, suggestions=1).accesses if a.suggestions is not None]) == 1


def test_kernels_are_counted_as_calls_compile_them() -> None:
    torch = pytest.importorskip("torch")

    def layers(x: Any, table: Any) -> Any:
        for _ in range(3):
            x = (x @ x).relu() * 2.0
            y = x @ x
            x = y + table[y[0].long()]  # indices that are checked, with the names of their tensors
        return x

    args = torch.eye(8), torch.ones(4, 8)
    imp = ig.frontends.from_torch(layers, args).calling("aten.mm.default")
    runner = imp.compiled("cpu").runner
    for number, s in enumerate(imp.segments):
        if s.scheduled is not None and s.outputs:
            runner.kernels(number, s.scheduled, s, {}, {})
    made = {id(k): k for k in imp.kernels.values() if isinstance(k, Program)}
    r = imp.report(auto=True, target="cpu", suggestions=0)
    assert r.kernels.distinct == sum(len(p.kernels) for p in made.values()) == 4
    assert (len(r.kernels), r.kernels.reused) == (6, 2)
    assert set(r.kernels.seconds) == {"schedule", "emit"} and all(s >= 0 for s in r.kernels.seconds.values())
    assert "4 distinct kernels, 2 reused, schedule" in str(r.kernels) and "4 distinct kernels" in r.to_html()
    told: Any = r.to_dict()
    assert (told["totals"]["kernels"], told["totals"]["distinct_kernels"]) == (6, 4)
    assert told["seconds"].keys() == {"schedule", "emit"}
