"""Aligned and extents graphs: axes with one coordinate, and axes with one extent; judged by enumeration.

The oracle that applies operations to arrays of element numbers says which element an operation reads at a point; axis
expressions are followed here in plain integers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import networkx as nx
import numpy as np
import numpy.typing as npt
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.graphs import AlignedGraph, DomainGraph, ExactBuilder, own_exprs
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
    TensorExpr,
)
from idgraph.testing import scheduled_fusions
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from idgraph.validate.oracle.evaluate import reads
from tests.property.budget import examples
from tests.property.test_l5_refinement import check_refines
from tests.property.test_l6_order import domain_partition, reordered

Array = npt.NDArray[np.int64]
NONE = -(1 << 40)  # no element there


def forward(x: DomainExpr, v: list[Array]) -> list[Array]:
    """Outputs of an axis expression from its inputs, `NONE` where there is no element."""
    inside = np.logical_and.reduce([(a >= 0) & (a < int(d.extent)) for a, d in zip(v, x.inputs, strict=True)])
    match x:
        case Split():
            n = int(x.inner.extent)
            made = [v[0] // n, v[0] % n] if n else v * 2
        case Merge():
            made = [v[0] * int(x.inner.extent) + v[1]]
        case Resize():
            made = [v[0] + int(x.left)]
        case Stride():
            made = [(v[0] - int(x.start)) // int(x.step)]
            inside &= (v[0] - int(x.start)) % int(x.step) == 0
        case Roll():
            made = [(v[0] + int(x.shift)) % max(1, int(x.source.extent))]
        case Swizzle():
            made = [v[0], v[0] ^ v[1] if x.kind == "xor" else (v[0] + v[1]) % int(x.y.extent)]
        case RowPartition():
            raise AssertionError("these fusions have no rows")
    bounds = zip(made, x.outputs, strict=True)
    return [np.where(inside & (a >= 0) & (a < int(d.extent)), a, NONE) for a, d in bounds]


def touched(e: TensorExpr, k: int, values: dict[str, npt.NDArray[np.generic]]) -> dict[IterDomain, Array]:
    """Coordinates of the axes that an operation touches at each of its points, through one operand."""
    out = e.output
    shape = tuple(int(d.extent) for d in out.logical)
    at = dict(zip(out.logical, np.indices(shape).astype(np.int64), strict=True))
    mine = e.inputs[k]
    element = np.asarray(reads(e, k, {name: np.asarray(v) for name, v in values.items()}), np.int64)
    element = np.broadcast_to(element, shape)
    there = np.unravel_index(np.maximum(element, 0), tuple(int(d.extent) for d in mine.axes)) if mine.axes else ()
    found = {d: np.where(element >= 0, c, NONE) for d, c in zip(mine.axes, there, strict=True)}
    for d, c in at.items():
        found.setdefault(d, np.where(element >= 0, c, NONE))
    exprs = own_exprs(out)
    for x in (*exprs[::-1], *exprs):  # what the output's own axes are made of is known from reads of its root
        if all(d in found for d in x.inputs):
            for d, c in zip(x.outputs, forward(x, [found[d] for d in x.inputs]), strict=True):
                found.setdefault(d, c)
    return found


def check_points(f: Fusion, g: DomainGraph) -> None:
    """Axes of one group that an operation touches have one coordinate at each of its points."""
    names = sorted({t.name for e in f.exprs for t in e.inputs if t.dtype.startswith("int")})
    values = evaluate(f, random_inputs(f), wanted=names) if names else {}
    for e in f.exprs:
        if e.op in ("scatter", "scatter_add", "index_put"):
            continue  # its points are those of what it writes, at loaded places
        for k in range(len(e.inputs)):
            seen: dict[int, tuple[IterDomain, Array]] = {}
            for d, at in touched(e, k, values).items():
                if d not in g:
                    continue
                other, there = seen.setdefault(g.graph.number(d), (d, at))
                both = (at != NONE) & (there != NONE)
                assert (at == there)[both].all(), f"{e!r}: {other.label} and {d.label}\n{g.explain(other, d)}"


def ways_around(g: DomainGraph) -> Iterator[list[DomainExpr]]:
    """Cycles of groups by networkx, each as the expressions on it; every choice between parallel ones."""
    made: nx.DiGraph[int] = nx.DiGraph()
    between: dict[tuple[int, int], list[DomainExpr]] = {}
    for x in g.expr_groups:
        for a, b in itertools.product({i.number for i in x.inputs}, {o.number for o in x.outputs}):
            made.add_edge(a, b)
            between.setdefault((a, b), []).append(x.expr)
    for cycle in itertools.islice(nx.simple_cycles(made), 200):
        pairs = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        yield from map(list, itertools.islice(itertools.product(*(between[p] for p in pairs)), 20))


def check_ways(g: DomainGraph) -> None:
    """A coordinate that goes round comes back unchanged, from wherever it starts."""
    for way in ways_around(g):
        if not all(isinstance(x, (Resize, Stride, Roll)) for x in way):
            continue
        for k in range(len(way)):
            start = np.arange(int(way[k].inputs[0].extent), dtype=np.int64)
            at = start
            for x in way[k:] + way[:k]:
                (at,) = forward(x, [at])
            assert (at == start)[at != NONE].all(), f"{way[k:] + way[:k]}"


def joined(g: AlignedGraph) -> set[frozenset[IterDomain]]:
    """The groups of the aligned graph, joined along its edges."""
    made: nx.Graph[int] = nx.Graph()
    made.add_nodes_from(group.number for group in g.groups)
    made.add_edges_from((edge.left.number, edge.right.number) for edge in g.align_edges)
    keys = {group.number: group.keys for group in g.groups}
    return {frozenset(d for n in part for d in keys[n]) for part in nx.connected_components(made)}


def moved(draw: st.DrawFn, t: ig.Tensor) -> ig.Tensor:
    """The same shape, elements elsewhere."""
    axis = draw(st.integers(0, t.ndim - 1))
    n = int(t.shape[axis])
    match draw(st.sampled_from(("rotate", "roll", "pad", "flip", "transpose", "reshape", "part", "windows"))):
        case "rotate" if n > 1:
            cut = draw(st.integers(1, n - 1))
            return ig.cat([ig.slice(t, axis, cut, n), ig.slice(t, axis, 0, cut)], axis)
        case "roll":
            return ig.roll(t, draw(st.integers(-3, 3)), axis)
        case "pad" if n > 1:
            by = draw(st.integers(1 - n, n - 1))
            return ig.pad(t, [0, 0] * (t.ndim - 1 - axis) + [by, -by])
        case "flip":
            return ig.flip(t, axis)
        case "transpose" if t.ndim == 2:
            return ig.reshape(ig.transpose(t, 0, 1), *t.shape)
        case "reshape":
            inner = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
            split = ig.reshape(t, *t.shape[:axis], n // inner, inner, *t.shape[axis + 1 :])
            other = ig.flip(split, axis) if draw(st.booleans()) else split
            return ig.reshape(other, *t.shape)
        case "part" if n > 1:
            cut = draw(st.integers(1, n - 1))
            zeros = [0, 0] * (t.ndim - 1 - axis)
            part = ig.neg(ig.slice(t, axis, 0, cut))
            return ig.pad(part, [*zeros, *((0, n - cut) if draw(st.booleans()) else (n - cut, 0))])
        case "windows" if t.ndim == 2 and all(int(d) % 2 == 0 for d in t.shape):
            h, w = (int(d) for d in t.shape)
            y = ig.permute(ig.reshape(t, h // 2, 2, w // 2, 2), (0, 2, 1, 3))
            return ig.reshape(y if draw(st.booleans()) else ig.permute(y, (0, 2, 1, 3)), h, w)
        case _:
            return ig.neg(t)


@st.composite
def residuals(draw: st.DrawFn) -> Fusion:
    """Tensors of one shape, moved about and added to each other, scheduled or not."""
    f = ig.Fusion("residuals")
    shape = draw(st.sampled_from(((6,), (8,), (5,), (2, 3), (4, 4), (3, 3), (2, 4))))
    made = [f.input("a", shape=shape)]
    if draw(st.booleans()):
        made.append(f.input("b", shape=shape))
    for _ in range(draw(st.integers(2, 6))):
        t = draw(st.sampled_from(made[-3:]))
        if draw(st.booleans()):
            made.append(moved(draw, t))
        else:
            made.append(ig.add(*draw(st.permutations((t, draw(st.sampled_from(made)))))))
    out = f.output(ig.add(made[-1], draw(st.sampled_from(made))))
    if draw(st.booleans()):
        out.split(0, 2)
        ig.schedule.like(f, out)
    return f


def breaks_the_law(f: Fusion, g: DomainGraph) -> bool:
    """By enumeration, or by a cycle whose map is not the identity."""
    try:
        check_points(f, g)
        check_ways(g)
    except AssertionError:
        return True
    return any(c.changes_index for c in g.cycles())


def check_laws(f: Fusion) -> None:
    """One coordinate in each aligned group, no cycle but identities; with its edges it gives extents, as exact does."""
    note(str(f))
    m = ig.IdModel(f)
    check_refines(m.aligned, m.exact)
    check_refines(m.exact, m.extents)
    assert joined(m.aligned) == {frozenset(group) for group in m.extents.groups}
    assert all(len({int(d.extent) for d in group}) == 1 for group in m.extents.groups)
    assert not breaks_the_law(f, m.aligned)
    for edge in m.aligned.align_edges:
        assert edge.operation in f.exprs and edge.left is not edge.right
        why = m.aligned.explain(edge.left.first, edge.right.first)
        assert not why and "are not aligned: same extent by " in str(why)
        assert "same extent by " in str(m.extents.explain(edge.left.first, edge.right.first))


@settings(max_examples=examples(300))
@given(scheduled_fusions())
def test_the_laws_of_random_fusions(f: Fusion) -> None:
    check_laws(f)


@settings(max_examples=examples(300))
@given(residuals())
def test_the_laws_of_residuals(f: Fusion) -> None:
    check_laws(f)


@settings(max_examples=examples(150))
@given(residuals())
def test_nothing_is_left_out_without_need(f: Fusion) -> None:
    """Unions that are left out would break the law beside those that are kept: each of them, and any of them together.

    Two may keep it where either alone does not: of axes cut out of one, either leaves the other open beside it.
    """
    note(str(f))
    m = ig.IdModel(f)
    left_out = frozenset((u.left, u.right) for u in m.aligned.left_out)
    assert bool(left_out) == breaks_the_law(f, m.exact)
    tried = sorted(left_out)[:5]
    for count in range(1, len(tried) + 1):
        for some in itertools.combinations(tried, count):
            more = DomainGraph("more", f, ExactBuilder(f).without(left_out - set(some), "more").build())
            assert breaks_the_law(f, more), f"{some}"


@settings(max_examples=examples(100))
@given(residuals() | scheduled_fusions(), st.data())
def test_neither_order_nor_operands_have_a_say(f: Fusion, data: st.DataObject) -> None:
    """Operations written down in another order, and sums the other way round, align the same axes."""
    text = str(reordered(f, data))
    if data.draw(st.booleans()):
        text = re.sub(r"= add\((\w+), (\w+)\)", r"= add(\2, \1)", text)
    other = ig.parse(text)
    note(f"{f}\n{other}")
    m, n = ig.IdModel(f), ig.IdModel(other)
    assert domain_partition(m.aligned) == domain_partition(n.aligned)
    assert domain_partition(m.extents) == domain_partition(n.extents)
