"""Alignments of random pairs in random fusions: `emit` takes what `apply` has left, with every value right, and steps
that cannot be taken leave the fusion as it was."""

from __future__ import annotations

import itertools
import random
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import IdGraphError
from idgraph.fuse.common_loops import Alignment
from idgraph.ir.parser import copy_fusion
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import compare, rounding_error
from tests.emit.cuda_interpreter import interpret
from tests.property.budget import examples

KINDS = (
    "unary", "unary", "both", "both", "flip", "permute", "reshape", "slice", "pad", "cat", "sum", "amax", "softmax",
    "gather", "select", "scan", "wide", "roll",
)  # fmt: skip


def graph(r: random.Random) -> ig.Fusion:
    """2 to 12 operations on matrices, many of which have readers beside the pair that is asked about."""
    f = ig.Fusion("f")
    rows, columns = r.choice((2, 3, 4, 6, 8)), r.choice((2, 3, 4, 6, 12))
    made = [f.input("x", (rows, columns)), f.input("w", (r.choice((1, rows)), columns))]
    for n in range(r.randrange(2, 13)):
        made.append(_grown(r, f, n, made))
    for t in made[2:]:
        if not t.uses or r.random() < 0.2:
            f.output(t)
    return f


def _grown(r: random.Random, f: ig.Fusion, n: int, made: list[ig.Tensor]) -> ig.Tensor:
    t = r.choice(made[-4:])
    d = r.randrange(t.ndim)
    size = int(t.shape[d])
    match r.choice(KINDS):
        case "both":
            fitting = [u for u in made if u.shape == t.shape]
            return t + r.choice(fitting)
        case "flip":
            return ig.flip(t, d)
        case "permute":
            return ig.permute(t, *r.sample(range(t.ndim), t.ndim))
        case "reshape":
            total = int(np.prod([int(s) for s in t.shape]))
            parts = [k for k in range(1, total + 1) if total % k == 0]
            k = r.choice(parts)
            return ig.reshape(t, k, total // k)
        case "slice" if size > 1:
            low = r.randrange(size)
            return ig.slice(t, d, low, r.randrange(low + 1, size + 1))
        case "pad":
            return ig.pad(t, (r.randrange(3), r.randrange(3)))
        case "cat" if size < 20:
            return ig.cat([t, t * 0.5] if r.random() < 0.5 else [t, t], d)
        case "sum":
            return ig.sum(t, d, keepdim=True)
        case "amax":
            return t - ig.amax(t, d, keepdim=True)
        case "softmax":
            return ig.softmax(t, d)
        case "gather":
            shape = tuple(r.randrange(1, int(s) + 1) for s in t.shape)
            return ig.gather(t, d, f.input(f"i{n}", shape, "int64"))
        case "select":
            return ig.index_select(t, d, f.input(f"j{n}", (r.randrange(1, 6),), "int64"))
        case "scan":
            return ig.cumsum(t, d)
        case "wide":
            single = tuple(int(s) if p != d else 1 for p, s in enumerate(t.shape))
            return t * f.input(f"v{n}", single)
        case "roll":
            return ig.roll(t, r.randrange(size), d)
        case _:
            return ig.exp(t * 0.125)


def right(f: ig.Fusion, told: Alignment, seed: int) -> None:
    """The alignment on a copy: emitted for each target, and run; and with a step that cannot be taken."""
    made = copy_fusion(f)
    told.apply(made)
    inputs: dict[str, Any] = random_inputs(f, seed)
    programs = [ig.emit(made, "python"), ig.emit(made, "numpy")]
    cuda = ig.emit(made, "cuda") if told.one_kernel else None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        want, exact = evaluate(f, inputs, {}), evaluate(f, inputs, {}, rounded=False)
        results = [p.run(inputs) for p in programs]
        if cuda is not None:
            results.append(interpret(cuda, inputs, seed))
        for got in results:
            for t in f.outputs:
                found = compare(t.name, t.dtype, got[t.name], want[t.name], rounding_error(want[t.name], exact[t.name]))
                assert found.mismatch is None, f"{told}\n{found.mismatch}"


def refused(f: ig.Fusion, told: Alignment, r: random.Random) -> None:
    """Steps of which one is changed are taken wholly, or the fusion is as it was."""
    if not told.steps:
        return
    steps, at = list(told.steps), r.randrange(len(told.steps))
    steps[at] = replace(steps[at], tensor=r.choice([t.name for t in f.tensors]))
    made = copy_fusion(f)
    before = str(made)
    try:
        replace(told, steps=tuple(steps)).apply(made)
    except IdGraphError:
        assert str(made) == before
        return
    ig.emit(made, "python")


def pair(seed: int) -> Alignment | None:
    """One random pair of operations; what is told of it is judged."""
    r = random.Random(seed)
    f = graph(r)
    note(str(f))
    before = str(f)
    pairs = [(a, b) for a, b in itertools.combinations(f.exprs, 2) if {a.output, *a.inputs} & {*b.inputs}]
    a, b = r.choice(pairs or [(f.exprs[0], f.exprs[0])])
    o = ig.fuse.explain(f, a.output, b.output) if a is not b else None
    told = o.alignment if o is not None else None
    if told is None:
        near = [o.alignment for o in ig.fuse.obstacles(f) if o.alignment is not None]
        told = r.choice(near) if near else None
    assert str(f) == before
    if told is not None:
        note(str(told))
        right(f, told, seed)
        refused(f, told, r)
    return told


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 30))
def test_what_is_told_of_a_random_pair_can_be_applied(seed: int) -> None:
    pair(seed)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_two_thousand_pairs(part: int) -> None:
    assert sum(pair(seed) is not None for seed in range(50 * part, 50 * part + 50)) > 5
