"""Kernels of a CPU over the same loops are one nest: values, the reading of each input, and what must stay apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel.ir import Kernel, Load, Loop, walk
from idgraph.runtime.program import stages
from idgraph.validate.kernel_check import check_kernel_addresses
from tests.property.budget import examples

Outputs = Callable[[ig.Tensor, ig.Tensor], list[ig.Tensor]]

SIDE_BY_SIDE: dict[str, Outputs] = {
    "sum, difference, product": lambda a, b: [a + b, a - b, a * b],
    "two functions of one": lambda a, b: [ig.exp(a), ig.tanh(a)],
    "a gradient": lambda a, b: [ig.where(a > 0, b, 0.0), b * a, -b],
    "sums of rows": lambda a, b: [ig.sum(a, 1), ig.amax(a, 1), ig.sum(a * b, 1)],
    "sums of columns": lambda a, b: [ig.sum(a, 0), ig.amin(a, 0)],
    "scans of rows": lambda a, b: [ig.cumsum(a, 1), ig.cummax(a, 1)],
    "reversed": lambda a, b: [ig.flip(a, 1), ig.flip(a, 0) + b],
    "parts of several lengths": lambda a, b: [ig.exp(a), ig.exp(a[1:])],
}


def kernels(f: ig.Fusion) -> tuple[Kernel, ...]:
    """The kernels behind the pass."""
    made = dict(stages(f, "cpu"))
    return made.get("fuse_nests", made["lower"]).kernels


def fusion(outputs: Outputs, shape: tuple[int, ...] = (37, 65), dtype: DType = "float32") -> ig.Fusion:
    """Outputs of two inputs, scheduled."""
    f = ig.Fusion("f")
    for t in outputs(f.input("a", shape, dtype), f.input("b", shape, dtype)):
        f.output(t)
    ig.schedule.auto(f)
    return f


@pytest.mark.parametrize("case", SIDE_BY_SIDE)
def test_outputs_of_the_same_loops_are_one_kernel(case: str) -> None:
    f = fusion(SIDE_BY_SIDE[case])
    assert len(ig.emit(f, "cpu").kernels) == 1
    assert ig.validate(f, target="cpu").ok


def test_each_input_is_read_once() -> None:
    """A statement reads each operand; the three operations take it from there."""
    (k,) = kernels(fusion(SIDE_BY_SIDE["sum, difference, product"]))
    assert sorted(s.buffer.title for s in walk(k.body) if isinstance(s, Load)) == ["a", "b"]


def test_an_output_that_another_reads_is_written_before() -> None:
    """The sum of everything needs the rows' sums: it stays behind them."""
    f = fusion(lambda a, b: [s := ig.sum(a, 1), ig.sum(s * 2.0, 0), ig.amax(a, 1)])
    assert len(kernels(f)) > 1
    assert ig.validate(f, target="cpu").ok


def test_a_row_that_one_holds_is_not_read_again() -> None:
    """A softmax holds what it exponentiates; one nest with a plain sum would compute that twice."""
    f = fusion(lambda a, b: [ig.softmax(a, 1), ig.sum(a, 1)])
    assert len(kernels(f)) == 2


def test_kernels_without_a_common_input_stay_apart() -> None:
    assert len(kernels(fusion(lambda a, b: [ig.exp(a), ig.exp(b)]))) == 2


def test_loops_of_other_lengths_stand_one_after_the_other() -> None:
    """One loop on the cores holds both: no element is computed that only the longer one has."""
    (k,) = kernels(fusion(SIDE_BY_SIDE["parts of several lengths"]))
    assert sorted(str(s.extent) for s in walk(k.body) if isinstance(s, Loop)) == ["1", "2340", "2405"]


def test_at_most_four_nests_are_one() -> None:
    f = fusion(lambda a, b: [a + float(n) for n in range(7)])
    assert sorted(len([s for s in walk(k.body) if "Store" in type(s).__name__]) for k in kernels(f)) == [3, 4]


@settings(max_examples=examples(25))
@given(st.lists(st.sampled_from(sorted(SIDE_BY_SIDE)), min_size=2, max_size=3, unique=True), st.integers(0, 2**32 - 1))
def test_any_side_by_side(cases: list[str], seed: int) -> None:
    """Values of several kinds in one fusion are those of the definition."""
    shape = tuple(int(n) for n in np.random.default_rng(seed).integers(1, 9, 2))
    f = fusion(lambda a, b: [t for c in cases for t in SIDE_BY_SIDE[c](a, b)], shape)
    note(str(f))
    program = ig.emit(f, "cpu")
    assert len(program.kernels) <= len(f.outputs)
    for k in program.kernels:
        k.verify()
    assert check_kernel_addresses(program, {}, {}, engine="numpy").ok
