"""Faults planted in formulas that Inductor made: every one is refuted, at a point that plain Python confirms."""

from __future__ import annotations

import pytest

from idgraph.check.decide import Checker

pytest.importorskip("torch")

from tests.check.planted_index_faults import NAMES, Fault, chosen, judged

QUICK = ("rope half", "swin", "pixel shuffle", "sum both ways", "cat", "pad reflect")


def _check(faults: list[Fault]) -> None:
    for fault in faults:
        rows = judged(fault)
        assert rows, f"{fault.kind} in {fault.program} {fault.nest.name}: {fault.original} -> {fault.changed}"
        found = rows[0].counterexample
        assert found is not None and (found.read or found.meant or found.written)
        own = {a.name for a in fault.nest.loops}
        assert own <= found.point.keys() or not found.point
        assert all(found.point.get(a.name, 0) < int(a.extent) for a in fault.nest.loops)


def test_planted_faults_are_refuted() -> None:
    faults = chosen(QUICK, 3)
    assert len(faults) >= 20 and len({f.kind for f in faults}) >= 8
    _check(faults)


@pytest.mark.nightly
def test_sixty_planted_faults_are_refuted() -> None:
    faults = chosen()
    assert len(faults) >= 60
    _check(faults)


def test_what_was_not_changed_is_not_refuted() -> None:
    for fault in chosen(("rope half",), 1)[:1]:
        for nest in fault.whole.nests:
            if nest.name != fault.nest.name:
                assert all(r.verdict != "refuted" or r.role == "write" for r in Checker(fault.whole).rows(nest))
    assert set(QUICK) <= set(NAMES)
