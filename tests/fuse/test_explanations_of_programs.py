"""Programs of torch that `tests.fuse.explained_programs` judges: causes, alignments, bytes, factors against
programs and oracle."""

from __future__ import annotations

import pytest

import idgraph as ig
from tests.fuse.explained_programs import PROGRAMS, Program, pairs_of, reads_of_each

QUICK = ("heads_apart", "maxout", "decayed_scan", "expert_gather", "space_to_depth", "rope_pairs")

READ_ELSEWHERE = ("decayed_scan", "cumsum", "slice_1")  # the last element of a scan, all of which is read beside it


def _marked(program: Program) -> object:
    name = program[0].__name__
    return pytest.param(program, id=name, marks=() if name in QUICK else pytest.mark.nightly)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("program", [_marked(p) for p in PROGRAMS])
def test_all_that_is_told_of_a_program_is_so(program: Program) -> None:
    rows = pairs_of(program)
    assert not [r for r in rows if r["wrong"]]
    outcomes = {(program[0].__name__, r["a"], r["b"]): r["outcome"] for r in rows}
    assert outcomes.pop(READ_ELSEWHERE, "none found") == "none found"
    assert set(outcomes.values()) <= {"aligned", "proved that none", "one nest, kernels apart"}


@pytest.mark.parametrize("steps", [1, 2])
def test_reads_are_counted_by_the_oracle(steps: int) -> None:
    f = ig.Fusion("f")
    u = ig.exp(f.input("u", shape=(8,)))
    b = f.output(f.input("m", shape=(4, 8)) + ig.pad(u[::steps], [0, 8 - 8 // steps]))
    o = ig.fuse.explain(f, u, b)
    assert o is not None and reads_of_each(o) == o.recompute_factor == 4 / steps
