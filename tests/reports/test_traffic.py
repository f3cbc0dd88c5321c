"""Bytes moved, against counting every address that the index maps touch, point by point."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

import idgraph as ig
from idgraph.ir import item_size
from idgraph.reports import Traffic, diff
from idgraph.testing import fusions


def build(make: Callable[[ig.Fusion], ig.Tensor]) -> ig.Fusion:
    f = ig.Fusion("f")
    f.output(make(f))
    return f


def x(f: ig.Fusion, *shape: int, **options: object) -> ig.Tensor:
    return f.input("x", shape, **options)  # pyright: ignore[reportArgumentType]


def half_turn(f: ig.Fusion) -> ig.Tensor:
    t = x(f, 8, 64)
    return t + ig.cat([t[:, 32:], t[:, :32]], dim=1)


def columns(f: ig.Fusion) -> ig.Tensor:
    t = x(f, 8, 10)
    return t[:, 1:4] + t[:, 3:9:2] * t[::-1, 9:3:-2]


def corners(f: ig.Fusion) -> ig.Tensor:
    t = x(f, 6, 7)
    return t[:3, :4] + t[3:, 3:]


def embedding(f: ig.Fusion) -> ig.Tensor:
    return ig.embedding(f.input("i", (5,), "int64"), x(f, 100, 4))


EXACT: dict[str, Callable[[ig.Fusion], ig.Tensor]] = {
    "half turn": half_turn,
    "columns": columns,
    "corners": corners,
    "whole and part": lambda f: (t := x(f, 6, 7))[0] + ig.sum(t, 0),
    "select": lambda f: x(f, 6, 7)[2, 3:5] * 2.0,
    "reshape": lambda f: ig.reshape(x(f, 6, 8), 4, 12) * 2.0,
    "pad": lambda f: ig.pad(x(f, 6, 8), (2, -3, -1, 4)),
    "roll": lambda f: ig.roll(x(f, 6, 8), 3, 1),
    "expanded input": lambda f: x(f, 6, 8, strides=(0, 1))[1:3] + 1.0,
    "transposed input": lambda f: x(f, 6, 8, strides=(1, 6))[:, 2:] + 1.0,
    "gapped input": lambda f: x(f, 6, 8, strides=(20, 2), offset=3)[1:4] + 1.0,
    "broadcast": lambda f: x(f, 6, 1) + f.input("y", (6, 5)),
    "matmul": lambda f: ig.matmul(x(f, 6, 8), f.input("y", (8, 4))),
    "double": lambda f: x(f, 6, 8, dtype="float64")[:, ::3] + 1.0,
    "empty": lambda f: x(f, 6, 0) + 1.0,
    "slice_scatter": lambda f: ig.slice_scatter(x(f, 9, 4), f.input("y", (3, 4)), 0, 2, 8, 2),
    "unread part": lambda f: ig.flip(x(f, 9)[2:7], (0,)),
}


def traffic_of(f: ig.Fusion) -> tuple[Traffic, ...]:
    """As reported, one kernel for each operation."""
    (s,) = ig.report(f, suggestions=0, target="python").segments
    assert not s.refused
    return s.traffic


def counted(f: ig.Fusion, t: ig.Tensor) -> tuple[int, int]:
    """Distinct elements of t that each operation reads, added up; and those that its own writes."""
    m = ig.IdModel(f)
    read = 0
    for e in t.uses:
        read += len(set[int]().union(*(touched(m.read(e, k)) for k in e.operands_of(t))))
    return read, 0 if t.definition is None else len(touched(m.write(t.definition)))


def touched(a: ig.Access) -> set[int]:
    free = {n: 1 for n in a.address.names if n.startswith("stride")}
    seen = set[int]()
    for point in itertools.product(*(range(int(loop.extent)) for loop in a.loops)):
        at = {loop.name: v for loop, v in zip(a.loops, point, strict=True)} | free
        if a.predicate.evaluate(at):
            seen.add(int(a.address.evaluate(at)))
    return seen


@pytest.mark.parametrize("name", EXACT)
def test_bytes_are_the_distinct_elements_of_each_kernel(name: str) -> None:
    f = build(EXACT[name])
    for row in traffic_of(f):
        t = f[row.tensor]
        assert row.exact, row
        read, written = counted(f, t)
        assert (row.read, row.written) == (read * item_size(t.dtype), written * item_size(t.dtype)), row


def test_a_gather_without_its_indices_says_so() -> None:
    f = build(embedding)
    table = next(r for r in traffic_of(f) if r.tensor == "x")
    assert (table.read, table.exact) == (5 * 4 * 4, False)
    assert "loaded indices" in table.why


def test_inlined_tensors_cost_nothing() -> None:
    f = build(half_turn)
    before = ig.report(f)
    ig.schedule.auto(f)
    after = ig.report(f)
    assert isinstance(before.bytes_between, int) and before.bytes_between > 0
    assert after.bytes_between == 0
    assert (before.bytes_read, before.bytes_written) == (2 * 2048, 2048)  # by the halves' kernels, and by the sum's
    assert (after.bytes_read, after.bytes_written) == (2048, 2048)
    assert ig.report(build(half_turn), auto=True).bytes_between == 0


def test_sizes_without_numbers_are_not_known() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=4)
    f.output(f.input("t", shape=(n, 8)) + 1.0)
    r = ig.report(f)
    assert (r.bytes_read, r.bytes_written, r.exact, r.kernels) == (None, None, False, ())
    assert "symbol n has no number" in r.segments[0].refused
    assert "not known" in str(r)
    assert ig.report(f, symbols={"n": 10}).bytes_read == 320


def test_two_kernels_that_read_a_tensor_read_it_twice() -> None:
    f = ig.Fusion("sums")
    t = f.input("x", (1024, 1024))
    f.output(ig.sum(t, 0))
    f.output(ig.sum(t, 1))
    assert ig.report(f).bytes_read == 8 << 20


def test_values_in_registers_are_not_stored() -> None:
    """131 072 bytes that no kernel stores, between 4 bytes read and 4 written."""
    f = ig.Fusion("inlined")
    f.output(ig.sum(ig.exp(ig.expand(f.input("x", (1, 1)), (128, 256)))))
    ig.schedule.inline_most(f)
    r = ig.report(f, target="python")
    assert (r.bytes_read, r.bytes_written, r.bytes_between) == (4, 4, 0)
    assert {a.tensor for a in r.memory_accesses} <= {"x", f.outputs[0].name}


def test_every_kernel_says_why_it_begins() -> None:
    f = ig.Fusion("sums")
    t = f.input("x", (64, 64))
    f.output(ig.sum(t, 0))
    f.output(ig.sum(t, 1))
    f.output(ig.exp(f.input("y", (9,))))
    r = ig.report(f, target="python")
    first, second, third = r.kernels
    assert first.boundaries == third.boundaries == ()
    (why,) = second.boundaries
    assert (why.earlier, why.tensor, why.how, why.cause) == (first.name, "x", "reads", "loop order")
    text = r.to_text(rows=None)
    assert "loop order" in text and "nothing shared with an earlier one" in text
    assert all(line.strip() in text.replace("│", "") or len(line) > 40 for line in second.source.splitlines()[:1])
    assert "<pre>" in r.to_html() and "loop order" in r.to_html()


def test_two_schedules_side_by_side() -> None:
    f = ig.Fusion("chain")
    y = ig.exp(f.input("x", (64, 64)) * 2.0)
    f.output(y + 1.0)
    before, after = ig.report(f), ig.report(f, auto=True)
    found = diff(before, after)
    told = {(c.what, c.where): (c.before, c.after) for c in found.changes}
    assert told["bytes between", "chain"] == (4 * 64 * 64 * 4, 0)
    assert told["kernels", "chain"] == (3, 1)
    assert ("bytes read", "x") not in told
    assert "estimated us" in str(found)
    assert diff(after, after).changes == ()
    with pytest.raises(ig.IdGraphError, match="two programs"):
        diff(before, ig.report(build(half_turn)))


@pytest.mark.slow
def test_kernels_are_timed_where_they_run() -> None:
    r = ig.report(build(half_turn), target="cpu", measure=True)
    assert r.kernels and all(k.measured_us is not None for k in r.kernels)


@given(fusions())
@settings(max_examples=20)
def test_bytes_of_random_fusions(f: ig.Fusion) -> None:
    if f.symbols or any("Loaded" in str(e.reads) for e in f.exprs):
        return
    if any(t.inline_position for t in f.tensors):
        return  # operations that share a kernel share their reads
    if any(not s.is_const for t in f.inputs for s in t.domain.strides if s is not None):
        return  # addresses follow from the array
    for row in traffic_of(f):
        t = f[row.tensor]
        if sum(int(np.prod([int(d.extent) for d in e.output.logical])) for e in t.uses) <= 1500 and row.exact:
            read, written = counted(f, t)
            assert (row.read, row.written) == (read * item_size(t.dtype), written * item_size(t.dtype)), row
