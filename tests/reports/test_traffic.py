"""Bytes moved, against counting every address that the index maps touch, point by point."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

import idgraph as ig
from idgraph.ir import item_size
from idgraph.reports import traffic_of
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


def counted(f: ig.Fusion, t: ig.Tensor) -> int:
    """Distinct addresses (coordinates, where strides are free) of t that are read, by walking all loops."""
    m = ig.IdModel(f)
    seen: set[tuple[int, ...]] = set()
    free = any(s is not None and not s.is_const for s in t.domain.strides)
    for e in t.uses:
        for k in e.operands_of(t):
            a = m.read(e, k)
            for point in itertools.product(*(range(int(loop.extent)) for loop in a.loops)):
                at = {loop.name: v for loop, v in zip(a.loops, point, strict=True)}
                if a.predicate.evaluate(at):
                    seen.add(tuple(int(c.evaluate(at)) for c in (a.coordinates if free else (a.address,))))
    return len(seen)


@pytest.mark.parametrize("name", EXACT)
def test_reads_are_the_distinct_elements(name: str) -> None:
    f = build(EXACT[name])
    for row in traffic_of(f):
        t = f[row.tensor]
        assert row.exact, row
        assert row.read == counted(f, t) * item_size(t.dtype), row
        size = int(np.prod([int(n) for n in t.shape])) * item_size(t.dtype)
        assert row.written == (0 if t.definition is None else size)


def test_a_gather_reads_at_most_what_its_indices_name() -> None:
    f = build(embedding)
    table = next(r for r in traffic_of(f) if r.tensor == "x")
    assert (table.read, table.exact) == (5 * 4 * 4, False)
    assert "values" in table.why


def test_a_part_of_a_reshape_is_a_bound() -> None:
    f = ig.Fusion("f")
    t = x(f, 4, 8)
    f.output(ig.sum(t, 1) + ig.sum(ig.reshape(t, 8, 4)[:4], 1))
    (row,) = (r for r in traffic_of(f) if r.role == "input")
    assert (row.read, row.exact) == (4 * 8 * 4, True)  # the reshape is an operation of its own and reads all


def test_inlined_tensors_cost_nothing() -> None:
    f = build(half_turn)
    before = ig.report(f)
    ig.schedule.auto(f)
    after = ig.report(f)
    assert isinstance(before.bytes_between, int) and before.bytes_between > 0
    assert after.bytes_between == 0
    assert (before.bytes_read, before.bytes_written) == (after.bytes_read, after.bytes_written) == (2048, 2048)
    assert ig.report(build(half_turn), auto=True).bytes_between == 0


def test_symbols_give_expressions() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=4)
    t = f.input("t", shape=(n, 8))
    f.output(t + 1.0)
    r = ig.report(f)
    assert (str(r.bytes_read), r.exact) == ("n*32", True)
    f.output(t[1:3])
    assert str(ig.report(f).bytes_read) == "n*32"
    g = ig.Fusion("g")
    n = g.symbol("n", min=4)
    g.output(g.input("t", shape=(n, 8))[1:3])
    assert not ig.report(g).exact


@given(fusions())
@settings(max_examples=20)
def test_never_less_than_what_is_read(f: ig.Fusion) -> None:
    for row in traffic_of(f):
        t = f[row.tensor]
        gathers = any("Loaded" in str(e.reads) for e in t.uses)
        if f.symbols or gathers or sum(int(np.prod([int(d.extent) for d in e.output.logical])) for e in t.uses) > 1500:
            continue
        found = counted(f, t) * item_size(t.dtype)
        assert isinstance(row.read, int)
        assert row.read >= found
        assert not row.exact or row.read == found
