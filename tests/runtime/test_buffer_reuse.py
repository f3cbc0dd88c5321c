"""Tensors between kernels take one memory in turn: few buffers for long chains, and never two values at once."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import is_float
from idgraph.runtime import Target
from idgraph.runtime.program import Program
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import compare, rounding_error
from tests.property.budget import examples
from tests.property.launches import joined_launches


def chain(count: int, fixed: bool) -> ig.Fusion:
    """Pairs of operations in a row, none of them scheduled: a kernel each. ``fixed``: of 8 rows, else of any number."""
    f = ig.Fusion("chain")
    t = f.input("x", shape=(8 if fixed else f.symbol("n", min=1), 4))
    for _ in range(count):
        t = ig.sin(t) + 1.0
    f.output(t)
    return f


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_chain_needs_two_buffers_between_its_kernels(target: Target) -> None:
    for count in (3, 9):
        for fixed in (True, False):
            program = ig.emit(chain(count, fixed), target)
            assert len(program.kernels) == 2 * count
            assert len(program.mold.made) == 3  # with the output


def test_calls_of_other_sizes_share_memory_too() -> None:
    program = ig.emit(chain(2, False), "cpu")
    for rows in (8, 3, 40):
        x = np.random.default_rng(rows).random((rows, 4), np.float32)
        (got,) = program.run({"x": x}).values()
        assert np.allclose(got, np.sin(np.sin(x) + 1) + 1, rtol=1e-6)


def test_values_of_other_sizes_and_types_have_their_own() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 4))
    a = ig.exp(x)
    b = ig.sum(a, dim=1)  # of another size
    c = ig.tanh(b)
    d = ig.cast(c, "float64")  # of another type
    f.output(ig.sin(ig.sin(d)))
    program = ig.emit(f, "cpu")
    assert len(program.kernels) == len(program.mold.made) == 6  # no two that could share
    x_value = np.random.default_rng(0).random((8, 4), np.float32)
    got = program.run({"x": x_value})[f.outputs[0].name]
    assert np.allclose(got, np.sin(np.sin(np.tanh(np.exp(x_value).sum(1)).astype(np.float64))), rtol=1e-4)


def disjoint(program: Program) -> None:
    """Of two buffers with one number all kernels of one have ended when those of the other begin; inputs and outputs
    have numbers of their own."""
    at: dict[str, list[int]] = {}
    for number, k in enumerate(program.kernels):
        for b in k.buffers:
            at.setdefault(b.name, []).append(number)
    places = {b.name: b.place for b in program.plan.buffers}
    for a, b in itertools.combinations(program.mold.names, 2):
        if program.mold.names[a] == program.mold.names[b]:
            assert places[a] == places[b] == "global", (a, b)
            assert max(at[a]) < min(at[b]) or max(at[b]) < min(at[a]), (a, b)


@settings(max_examples=examples(60), deadline=None)
@given(joined_launches(max_steps=12, max_columns=24), st.booleans(), st.integers(0, 1 << 16))
def test_random_programs_in_shared_memory(f: ig.Fusion, scheduled: bool, seed: int) -> None:
    note(str(f))
    inputs: dict[str, Any] = random_inputs(f, seed)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        want, exact = evaluate(f, inputs, {}), evaluate(f, inputs, {}, rounded=False)
        if scheduled:
            ig.schedule.auto(f, device="cpu")
        for target in ("cpu", "cuda"):
            disjoint(ig.emit(f, target))
        got = ig.emit(f, "python").run(inputs)  # nothing is filled: memory is shared there too
        for t in f.outputs:
            slack = rounding_error(want[t.name], exact[t.name]) if is_float(t.dtype) else 0.0
            found = compare(t.name, t.dtype, got[t.name], want[t.name], slack)
            assert found.mismatch is None, str(found.mismatch)
