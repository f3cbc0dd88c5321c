"""L6: groups depend neither on the order in which expressions are visited nor on that in which mappings are added."""

from __future__ import annotations

import re
from random import Random

from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.graphs import CongruenceClosure, DomainGraph, TensorTemplates, own_domains
from idgraph.graphs.proof import Told
from idgraph.graphs.signature import KeyList
from idgraph.ir import DomainExpr, Fusion, IterDomain, Mapped
from idgraph.testing import scheduled_fusions
from tests.property.budget import examples

Partition = set[frozenset[str]]


@settings(max_examples=examples(250))
@given(scheduled_fusions(), st.randoms(use_true_random=False))
def test_mappings_in_any_order(f: Fusion, random: Random) -> None:
    """Keys, domain expressions and mappings, shuffled and interleaved, close to the same groups."""
    note(str(f))
    steps: list[DomainExpr | tuple[IterDomain, IterDomain, Told]] = []
    domains = [d for t in f.tensors for d in own_domains(t)]
    for t in f.tensors:
        steps += [form.expr for form, _, _ in TensorTemplates().of(t).exprs]
    for e in f.exprs:
        for t, row in zip(e.inputs, e.reads, strict=True):
            for p, (axis, read) in enumerate(zip(t.axes, row, strict=True)):
                if isinstance(read, Mapped) and axis.is_broadcast == read.domain.is_broadcast:
                    steps.append((axis, read.domain, ("access", e, t, p, ())))
    random.shuffle(steps)
    random.shuffle(domains)
    keys: KeyList[IterDomain] = KeyList()
    keys.enter(domains)
    builder = CongruenceClosure("shuffled", keys, TensorTemplates().forms)
    for n, step in enumerate(steps):
        if isinstance(step, tuple):
            builder.map(*step)
        else:
            builder.add_expr(step, lambda d: d)
        if n % 5 == 0:
            builder.rebuild()  # asked in between
    made = builder.build()
    assert {frozenset(g) for g in made.groups} == {frozenset(g) for g in ig.IdModel(f).exact.groups}


def reordered(f: Fusion, draw: st.DataObject) -> Fusion:
    """The same fusion with its operations written down in another order, producers before consumers."""
    lines = str(f).splitlines()
    makes = {m.group(1): line for line in lines if (m := re.match(r"  (\w+) = (?!input)", line))}
    rest = [line for line in lines if line not in makes.values()]
    before = sum(" = input(" in line for line in rest) + 1
    needs = {name: [t.name for t in e.inputs if t.name in makes] for e in f.exprs for name in [e.output.name]}
    done: list[str] = []
    while len(done) < len(makes):
        ready = [n for n in makes if n not in done and all(d in done for d in needs[n])]
        done.append(draw.draw(st.sampled_from(ready)))
    return ig.parse("\n".join([*rest[:before], *(makes[n] for n in done), *rest[before:]]))


def domain_partition(g: DomainGraph) -> Partition:
    """Groups by tensor and place, whatever numbers the axes have."""
    named = {d: f"{t.name}.{p}" for t in g.fusion.tensors for p, d in enumerate(own_domains(t))}
    return {frozenset(named[d] for d in group) for group in g.groups}


def index_partition(f: Fusion, m: ig.IdModel) -> Partition:
    """Groups of the index graph by tensor, place and operation; replays stand under no tensor and are left out."""
    named = {d: f"{t.name}.{p}" for t in f.tensors for p, d in enumerate(own_domains(t))}
    return {
        frozenset(f"{named[k[0]]} {k[1].output.name} {k[2:]}" for k in group if k[0] in named)
        for group in m.index.groups
    }


@settings(max_examples=examples(250))
@given(scheduled_fusions(), st.data())
def test_operations_in_any_order(f: Fusion, data: st.DataObject) -> None:
    """Every graph of a fusion whose operations are written down in another order has the same groups."""
    other = reordered(f, data)
    note(f"{f}\n{other}")
    m, n = ig.IdModel(f), ig.IdModel(other)
    for name in ("exact", "almost_exact", "broadcast", "permissive", "permissive_resize"):
        assert domain_partition(getattr(m, name)) == domain_partition(getattr(n, name)), name
    assert m.exact.is_cyclic == n.exact.is_cyclic
    try:
        mine = index_partition(f, m)
    except ig.ScheduleError:
        return
    assert mine == index_partition(other, n)
    assert domain_partition(m.loop) == domain_partition(n.loop)


@settings(max_examples=examples(50))
@given(scheduled_fusions())
def test_the_same_fusion_prints_the_same_graphs(f: Fusion) -> None:
    """Groups, their order, cycles and explanations are those of the run before."""
    again = ig.parse(str(f))
    m, n = ig.IdModel(f), ig.IdModel(again)
    for a, b in ((m.exact, n.exact), (m.almost_exact, n.almost_exact), (m.permissive_resize, n.permissive_resize)):
        assert list(map(repr, a.groups)) == list(map(repr, b.groups))
        assert list(map(repr, a.expr_groups)) == list(map(repr, b.expr_groups))
        mine, theirs = ([repr((c.kind, c.map, c.holds, c.exprs, c.groups)) for c in g.cycles()] for g in (a, b))
        assert mine == theirs  # all but the lines: one is built by a strategy, the other read from text
