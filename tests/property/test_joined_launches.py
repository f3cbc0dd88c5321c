"""Random fusions whose kernels share launches: their CUDA source, interpreted, gives the oracle's values.

The interpreter reads the printed text alone (`tests.emit.cuda_interpreter`); each way of scheduling gets its own law.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import is_float
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import compare, rounding_error
from tests.emit.cuda_interpreter import interpret
from tests.property.budget import examples
from tests.property.launches import joined_launches

SMALL = joined_launches(max_steps=8, max_columns=160)
LARGE = joined_launches(max_steps=25, max_columns=40)


def plain(_: ig.Fusion) -> None:
    """One loop nest for each operation."""


def auto(f: ig.Fusion) -> None:
    ig.schedule.auto(f)


def inline_most(f: ig.Fusion) -> None:
    ig.schedule.inline_most(f)


def like(f: ig.Fusion) -> None:
    for t in f.outputs:
        ig.schedule.like(f, t)
    ig.schedule.inline_most(f)


def threads(f: ig.Fusion) -> None:
    """Rows on blocks, columns on threads, where an operation has them."""
    for t in [e.output for e in f.exprs]:
        kept = [p for p, d in enumerate(t.loop) if d.kind != "reduction"]
        if kept:
            t.parallelize(kept[0], "blockIdx.x")
        if len(kept) > 1:
            t.split(kept[-1], 32).parallelize(kept[-1] + 1, "threadIdx.x")


def recompute(f: ig.Fusion) -> None:
    """Each reader has a producer of its own."""
    for t in [e.output for e in f.exprs]:
        if len(t.uses) > 1:
            ig.schedule.recompute(t, t.uses[0])
    ig.schedule.inline_most(f)


WAYS: dict[str, Callable[[ig.Fusion], None]] = {
    w.__name__: w for w in (auto, plain, like, inline_most, threads, recompute)
}


def right(f: ig.Fusion, way: str, seed: int) -> None:
    """Scheduled, emitted, interpreted, and compared with the definition of the fusion as it was."""
    note(str(f))
    inputs: dict[str, Any] = random_inputs(f, seed)
    with np.errstate(all="ignore"):
        want = evaluate(f, inputs, {})
        exact = evaluate(f, inputs, {}, rounded=False)
    try:
        WAYS[way](f)
        program = ig.emit(f, "cuda")
    except (ig.ScheduleError, ig.EmitError) as error:
        if way == "auto" or "not well formed" in str(error):
            raise
        reject()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        got = interpret(program, inputs, seed)
        for t in f.outputs:
            slack = rounding_error(want[t.name], exact[t.name]) if is_float(t.dtype) else 0.0
            found = compare(t.name, t.dtype, got[t.name], want[t.name], slack)
            assert found.mismatch is None, str(found.mismatch)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(200), deadline=None)
@given(f=SMALL, seed=st.integers(0, 1 << 16))
def test_kernels_that_share_launches(way: str, f: ig.Fusion, seed: int) -> None:
    right(f, way, seed)


@settings(max_examples=examples(200), deadline=None)
@given(LARGE, st.integers(0, 1 << 16))
def test_many_operations_under_auto(f: ig.Fusion, seed: int) -> None:
    right(f, "auto", seed)
