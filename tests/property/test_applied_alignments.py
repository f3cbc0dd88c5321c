"""Alignments of random pairs in random fusions: `emit` takes what `apply` has left, with every value NumPy's, and steps
that cannot be taken leave the fusion as it was."""

from __future__ import annotations

import itertools
import random
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import ScheduleError
from idgraph.fuse.common_loops import Alignment
from tests.emit.cuda_interpreter import interpret
from tests.property.budget import examples
from tests.property.numpy_programs import Program, wrong


def _program(seed: int) -> tuple[Program, random.Random]:
    """2 to 14 operations, many of which have readers beside the pair that is asked about; the same for one seed."""
    r = random.Random(seed)
    return Program(r, r.randrange(2, 15)), r


def _told(f: ig.Fusion, r: random.Random) -> Alignment | None:
    """What is told of the first pair of operations, in random order, that can be aligned; of four at most."""
    exprs = f.exprs
    pairs = [(a, b) for a, b in itertools.combinations(exprs, 2) if {a.output, *a.inputs} & {*b.inputs}]
    for a, b in r.sample(pairs, min(4, len(pairs))):
        o = ig.fuse.explain(f, a.output, b.output)
        if o is not None and o.alignment is not None:
            return o.alignment
    return None


def _right(p: Program, told: Alignment, interpreted: int | None) -> None:
    """Emitted for each target, and run: by NumPy, and the source for a GPU by an interpreter."""
    names = [t.name for t in p.fusion.outputs]
    programs = [ig.emit(p.fusion, "numpy"), ig.emit(p.fusion, "cpu"), ig.emit(p.fusion, "cuda")]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        results = [programs[0].run(p.inputs)]
        if interpreted is not None:
            results.append(interpret(programs[2], p.inputs, interpreted))
    for got in results:
        assert not (found := wrong(p, got, names)), f"{told}\n{found}"


def _changed(told: Alignment, r: random.Random, names: list[str]) -> Alignment:
    """One step is another tensor's, is left out, or is taken twice."""
    steps, at = list(told.steps), r.randrange(len(told.steps))
    match r.randrange(3):
        case 0:
            steps[at] = replace(steps[at], tensor=r.choice(names))
        case 1:
            del steps[at]
        case _:
            steps.insert(at, steps[at])
    return replace(told, steps=tuple(steps))


def outcome(seed: int, every: int = 10) -> str:
    """One pair: "none" is told, or it is "applied", and "changed" or "changed, refused" with a step of another.

    The source for a GPU is interpreted for one seed in ``every``.
    """
    p, r = _program(seed)
    before = str(p.fusion)
    told = _told(p.fusion, r)
    assert str(p.fusion) == before
    if told is None or not told.steps:
        return "none"
    told.apply(p.fusion)
    _right(p, told, seed if seed % every == 0 else None)
    again, _ = _program(seed)
    other = _changed(told, r, [t.name for t in again.fusion.tensors])
    before = str(again.fusion)
    try:
        other.apply(again.fusion)
    except ScheduleError:
        assert str(again.fusion) == before
        return "changed, refused"
    got = ig.emit(again.fusion, "numpy").run(again.inputs)
    assert not (found := wrong(again, got, [t.name for t in again.fusion.outputs])), f"{other}\n{found}"
    return "changed"


def tally(seeds: Iterable[int]) -> Counter[str]:
    """How often each outcome is met."""
    return Counter(map(outcome, seeds))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 30))
def test_what_is_told_of_a_random_pair_can_be_applied(seed: int) -> None:
    outcome(seed)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_two_thousand_pairs(part: int) -> None:
    found = tally(range(100 * part, 100 * part + 100))
    assert sum(found.values()) - found["none"] > 30
