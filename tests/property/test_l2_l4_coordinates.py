"""L2 and L4: two nodes in one index group have equal values at every loop point, and only shared loops lead across.

The values are computed here, not asked for: from the elements that the operation touches at a point (which L1 checks
against the oracle) through the axis expressions of each tensor, in plain integers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import given, settings

import idgraph as ig
from idgraph.graphs.index_graph import Key, key_of
from idgraph.index import Access
from idgraph.ir import (
    DomainExpr,
    Fusion,
    IterDomain,
    Merge,
    Resize,
    Roll,
    RowPartition,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
)
from idgraph.testing import scheduled_fusions
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from tests.property.budget import examples
from tests.property.legal import model_of

CROSSING = {"inline", "promotion", "congruence", "backward"}
Point = dict[str, int]
Values = dict[Key, dict[tuple[int, ...], int]]


def forward(x: DomainExpr, v: list[int]) -> list[int]:
    """Outputs of an axis expression from its inputs."""
    match x:
        case Split():
            return list(divmod(v[0], int(x.inner.extent)))
        case Merge():
            return [v[0] * int(x.inner.extent) + v[1]]
        case Resize():
            return [v[0] + int(x.left)]
        case Stride():
            return [(v[0] - int(x.start)) // int(x.step)]
        case Roll():
            return [(v[0] + int(x.shift)) % int(x.source.extent)]
        case Swizzle():
            return [v[0], v[0] ^ v[1] if x.kind == "xor" else (v[0] + v[1]) % int(x.y.extent)]
        case RowPartition():
            raise AssertionError("these fusions have no rows")


def axes_of(t: Tensor, logical: dict[IterDomain, int]) -> dict[IterDomain, int]:
    """Coordinates of the axes that the schedule makes of the logical ones."""
    known = dict(logical)
    for x in t.domain.loop_exprs:
        if all(d in known for d in x.inputs):
            known.update(zip(x.outputs, forward(x, [known[d] for d in x.inputs]), strict=True))
    return known


def points(m: ig.IdModel, e: TensorExpr) -> Iterator[Point]:
    """All points of the loops of an operation."""
    loops = m.loops(e)
    for at in itertools.product(*(range(int(loop.extent)) for loop in loops)):
        yield {loop.name: v for loop, v in zip(loops, at, strict=True)}


def touched(a: Access, at: Point, arrays: dict[str, list[int]]) -> dict[IterDomain, int] | None:
    """Logical axes of the tensor at a point, None where the access does not happen."""
    if not a.predicate.evaluate(at):
        return None
    loaded = dict(at)
    for name, (t, where) in a.loads.items():
        number = 0
        for c, d in zip(where, t.axes, strict=True):
            number = number * int(d.extent) + int(c.evaluate(at))
        loaded[name] = arrays[t.name][number]
    pairs = zip(a.tensor.logical, a.logical, strict=True)
    return {d: int(c.evaluate(loaded)) for d, c in pairs if a.is_write or d.kind != "reduction"}


def all_values(m: ig.IdModel, f: Fusion) -> Values:
    """The value of every index node at every loop point at which its access happens."""
    names = sorted({t.name for e in f.exprs for a in m.index_map(e).accesses for t, _ in a.loads.values()})
    arrays = {n: v.reshape(-1).tolist() for n, v in evaluate(f, random_inputs(f), wanted=names).items()}
    found: Values = {}
    for e in f.exprs:
        for a in m.index_map(e).accesses:
            for at in points(m, e):
                logical = touched(a, at, arrays)
                if logical is None:
                    continue
                for d, value in axes_of(a.tensor, logical).items():
                    key = key_of(e, a.operand)(d)
                    if m.index.graph.holds(key):
                        found.setdefault(key, {})[tuple(at.values())] = value
    return found


def shared_loops(m: ig.IdModel, a: TensorExpr, b: TensorExpr) -> int:
    """The number of loops, from the outermost, that two operations share."""
    pairs = itertools.takewhile(lambda p: m.loop.mapped(*p), zip(a.output.loop, b.output.loop, strict=False))
    return sum(1 for _ in pairs)


def by_prefix(values: dict[tuple[int, ...], int], depth: int) -> dict[tuple[int, ...], set[int]]:
    """Values by the shared part of the point."""
    found: dict[tuple[int, ...], set[int]] = {}
    for at, value in values.items():
        found.setdefault(at[:depth], set()).add(value)
    return found


def check_groups(m: ig.IdModel, f: Fusion) -> None:
    """Equal values within an operation point by point, across operations wherever their shared loops agree."""
    values = all_values(m, f)
    for group in m.index.groups:
        known = [k for k in group if k in values]
        for a, b in itertools.pairwise(known):
            if a[1] is b[1]:
                both = values[a].keys() & values[b].keys()
                wrong = [at for at in both if values[a][at] != values[b][at]]
                assert not wrong, f"{a} and {b} differ at {wrong[0]}"
                continue
            depth = shared_loops(m, a[1], b[1])
            left, right = by_prefix(values[a], depth), by_prefix(values[b], depth)
            for prefix in left.keys() & right.keys():
                assert left[prefix] == right[prefix], f"{a} and {b} differ where their shared loops are {prefix}"
                assert len(left[prefix]) == 1, f"{a} depends on a loop that is not shared with {b[1]}"


@settings(max_examples=examples(500))
@given(scheduled_fusions(max_steps=4, max_changes=3))
def test_nodes_of_one_group_have_equal_values(f: Fusion) -> None:
    """L4: within an operation point by point, across operations wherever their shared loops agree."""
    check_groups(model_of(f), f)


def scattered(n: int, start: int, stop: int, step: int) -> Fusion:
    """Every ``step``-th element negated in place."""
    f = ig.Fusion("f")
    x = ig.copy(f.input("x", shape=(n,)), name="c")
    y = ig.neg(ig.slice(x, 0, start, stop, step, name="s"), name="y")
    f.output(ig.slice_scatter(x, y, 0, start, stop, step, name="o"))
    return f


def in_loops_of_the_whole(n: int, start: int, stop: int, step: int, size: int) -> Fusion:
    """The slice is made in an outer loop over pieces of what it is written back to."""
    f = scattered(n, start, stop, step)
    f["o"].split(0, size)
    for name in "ys":
        f[name].inline(1)
    return f


def one_element_that_grows() -> Fusion:
    """One element in a loop of one step around a loop over what it is written to; what it reads has loops of two."""
    f = ig.Fusion("f")
    c = ig.copy(f.input("x", shape=(1,)), name="c").resize(0, 0, 1)
    y = ig.neg(c, name="y")
    f.output(ig.slice_scatter(f.input("z", shape=(2,)), y, 0, 0, 1, name="o")).split(0, 1, inner=False)
    y.inline(1)
    return f


def read_in_the_first_half() -> Fusion:
    """The loop of the pad is the number modulo 5, and the operand is read where that is the number."""
    f = ig.Fusion("f")
    c = ig.copy(f.input("x", shape=(5,)), name="c").resize(0, 0, 5)
    y = ig.neg(c, name="y")
    f.output(ig.pad(y, (0, 5), name="o")).split(0, 5).reorder([1, 0])
    y.inline(1)
    return f


STRIDED = [(2, 0, 1, 2, 2), (6, 0, 6, 2, 2), (6, 1, 6, 2, 2), (7, 0, 7, 3, 3), (7, 3, 4, 3, 7)]


@pytest.mark.parametrize(
    "make", [*(partial(in_loops_of_the_whole, *at) for at in STRIDED), one_element_that_grows, read_in_the_first_half]
)
def test_one_loop_where_the_operand_is_read_says_nothing_of_other_points(make: Callable[[], Fusion]) -> None:
    """L4: the reader's axis is the shared loop only where it reads the operand; beside that it takes other values."""
    f = make()
    m = ig.IdModel(f)
    check_groups(m, f)
    for target in ("python", "numpy"):
        report = ig.validate(f, target)
        assert report.ok, str(report)


@settings(max_examples=examples(500))
@given(scheduled_fusions())
def test_only_shared_loops_lead_from_one_operation_to_another(f: Fusion) -> None:
    """L2: an operation's coordinates are solved with its own axis expressions, and reads never cross."""
    m = model_of(f)
    for e in f.exprs:
        for _, ins, outs, _ in m.index.local[e]:
            assert all(k[1] is e for k in (*ins, *outs))
    for group in m.index.groups:
        for a, b in itertools.pairwise(group):
            if a[1] is b[1]:
                continue
            for fact in m.index.graph.chain(a, b):
                left, right = fact.left, fact.right
                assert isinstance(left, tuple)
                assert isinstance(right, tuple)
                if left[1] is not right[1]:
                    assert fact.reason.because in CROSSING, str(fact)
