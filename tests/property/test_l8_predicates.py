"""L8: a predicate is true exactly where the element exists; dropped conjuncts are implied, kept ones needed.

That every element is visited once, and nothing else, is checked with L1 against the oracle. Here each conjunct is
looked at by itself, at every point.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import event, given, settings

from idgraph.arith import FALSE
from idgraph.index import Access
from idgraph.ir import Fusion
from idgraph.testing import scheduled_fusions
from tests.property.budget import examples
from tests.property.legal import model_of


def points(a: Access) -> Iterator[dict[str, int]]:
    """Every loop point."""
    for at in itertools.product(*(range(int(x.extent)) for x in a.loops)):
        yield {x.name: v for x, v in zip(a.loops, at, strict=True)}


@settings(max_examples=examples(200))
@given(scheduled_fusions(max_steps=4))
def test_conjuncts(f: Fusion) -> None:
    """The conjuncts reported are those that are tested; the dropped ones hold wherever the predicate does."""
    m = model_of(f)
    for e in f.exprs:
        for a in m.index_map(e).accesses:
            why = a.explain_predicate()
            told = tuple(c.condition for c in why.conjuncts)
            assert all(c.cause and not c.dropped for c in why.conjuncts)
            if a.conditions == (FALSE,):  # never true: conjuncts that exclude each other are reported
                assert told and not any(all(c.evaluate(at) for c in told) for at in points(a))
                continue
            assert told == a.conditions
            needed = [False] * len(a.conditions)
            for at in points(a):
                values = [bool(c.evaluate(at)) for c in a.conditions]
                if all(values):
                    wrong = [str(c) for c in why.dropped if not c.condition.evaluate(at)]
                    assert not wrong, f"{a}: {wrong[0]} at {at}"
                elif values.count(False) == 1:
                    needed[values.index(False)] = True
            for c, is_needed in zip(a.conditions, needed, strict=True):
                event("needed" if is_needed else "not needed")
                assert is_needed or len(a.conditions) > 1, f"{a}: {c} is false nowhere"


@settings(max_examples=examples(50))
@given(scheduled_fusions(max_steps=4))
def test_guarded_accesses_are_equal_where_the_predicate_holds(f: Fusion) -> None:
    """Coordinates, allocation, address and slots; and they never cost more."""
    m = model_of(f)
    for e in f.exprs:
        for a in m.index_map(e).accesses:
            small = a.guarded()
            pairs = [*zip(a.logical, small.logical, strict=True), *zip(a.allocation, small.allocation, strict=True)]
            pairs += [(x, y) for x, y in zip(a.slots, small.slots, strict=True) if x is not None and y is not None]
            pairs.append((a.address, small.address))
            assert all(y.cost <= x.cost for x, y in pairs)
            loaded = {n: 3 for x, y in pairs for n in (*x.names, *y.names) if n.startswith(("ld", "stride"))}
            for at in points(a):
                if a.predicate.evaluate(at):
                    values = {**loaded, **at}
                    wrong = [(str(x), str(y)) for x, y in pairs if x.evaluate(values) != y.evaluate(values)]
                    assert not wrong, f"{a}: {wrong[0]} at {at}"
