"""Values of elements that a thread does not have, and of branches that it does not take, reach no statement."""

from __future__ import annotations

import math

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel import parse
from idgraph.kernel.ir import If, Load, Select, VectorLoad, walk
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.statements import bodies
from idgraph.passes.vectorize_memory import with_vector_loads
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import compare
from tests.emit.cuda_interpreter import interpret


def interpreted(f: ig.Fusion) -> None:
    inputs = random_inputs(f, 3)
    expected = evaluate(f, inputs, {})
    ig.schedule.auto(f)
    found = interpret(ig.emit(f, "cuda"), inputs, 3)
    for t in f.outputs:
        report = compare(t.name, t.dtype, np.asarray(found[t.name]), expected[t.name])
        assert report.mismatch is None, str(report.mismatch)


@pytest.mark.parametrize(
    ("op", "dtype"), [("cummin", "float64"), ("cummax", "int32"), ("cumsum", "float32"), ("cummin", "bool")]
)
@pytest.mark.parametrize("shape", [(1, 5, 1), (3, 30), (2, 7)])
def test_a_row_is_read_again_behind_its_scan(op: str, dtype: DType, shape: tuple[int, ...]) -> None:
    """The last threads have no element, or some: what they keep of the row is read by nobody, but copied."""
    f = ig.Fusion("again")
    x = f.input("x", shape, dtype)
    row = ig.where(x, 1, 0) if dtype == "bool" else x
    f.output(ig.maximum(getattr(ig, op)(row, 1), row))
    interpreted(f)


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", [(5, 10), (7, 4), (9, 11), (3, 50)])
@pytest.mark.parametrize("dtype", ["int32", "float16"])
def test_one_tensor_stacked_with_itself(shape: tuple[int, int], dim: int, dtype: DType) -> None:
    f = ig.Fusion("stacked")
    x = f.input("x", shape, dtype)
    wide = ig.expand(ig.unsqueeze(ig.unsqueeze(x, 0), 2), 2, shape[0], 1, shape[1])
    f.output(ig.stack([wide, wide], dim))
    assert math.prod(shape) * 4 == math.prod(int(n) for n in f.outputs[0].shape)
    interpreted(f)


HEAD = """
kernel k():
  buffer x: float32[80] input "x"
  buffer y: float32[80] output "y"
  for i < 80:
    v: float32 = x[i]
"""
ELSEWHERE = """
    if i//50 < 1:
      u: float32 = neg(v)
      y[i] = u
    if i//50 >= 1:
      if i < 72:
        u: float32 = exp(v)
      if i < 75:
        y[i] = u
"""
HERE = """
    if i%2 < 1:
      u: float32 = neg(v)
      y[i] = u
    if i < 72:
      u: float32 = exp(v)
    y[i] = u
"""


@pytest.mark.parametrize(("text", "choices"), [(ELSEWHERE, 0), (HERE, 1)])
def test_a_choice_has_no_value_of_another_branch(text: str, choices: int) -> None:
    body = to_ssa(parse(HEAD.strip() + text).body)
    assert sum(isinstance(s, Select) for s in walk(body)) == choices


PADS = """
kernel k():
  buffer x: float32[64] input "x"
  buffer y: float32[64] output "y"
  for i < 16:
    lanes:
      a0: float32 = x[i*4 - 4] if i >= 1; a1: float32 = x[i*4 - 3] if i >= 1
      p0: float32 = choose(i >= 1 ? a0, -inf); p1: float32 = choose(i >= 1 ? a1, -inf)
      b0: float32 = x[i*4 - 3] if i >= 1; b1: float32 = x[i*4 - 2] if i >= 1
      q0: float32 = choose(i >= 1 ? b0, 0.0); q1: float32 = choose(i >= 1 ? b1, 0.0)
      c: float32 = x[i*4 - 1] if i >= 1
      r: float32 = choose(i >= 1 ? c, 0.0)
      y[i*4] = p0; y[i*4 + 1] = p1; y[i*4 + 2] = q0; y[i*4 + 3] = q1
      y[i*4] = r
"""


def test_loads_under_one_guard_join_between_other_statements() -> None:
    """A maximum and a sum over windows with different pads: neighbours are one load, equal ones too."""
    made = with_vector_loads(parse(PADS))
    loads = [s for s in walk(made.body) if isinstance(s, (Load, VectorLoad))]
    assert [len(s.locals) for s in loads if isinstance(s, VectorLoad)] == [4] and len(loads) == 1, made
    again = PADS.replace("b0: float32 = x[i*4 - 3] if i >= 1", "b0: float32 = x[i*4 - 3] if i >= 2")
    apart = with_vector_loads(parse(again.replace("i >= 1 ? b0", "i >= 2 ? b0")))
    assert sum(isinstance(s, (Load, VectorLoad)) for s in walk(apart.body)) == 2, apart


OPPOSITE = """
kernel k():
  buffer x: float32[64] input "x"
  buffer y: float32[16] output "y"
  for i < 16:
    lanes:
      if i >= 8:
        a: float32 = x[i + 30]
        b: float32 = neg(a)
      c: float32 = x[i] if i < 8
      d: float32 = choose(i < 8 ? c, b)
      y[i] = d
"""


def test_a_load_stays_behind_the_test_of_the_opposite_of_its_guard() -> None:
    """Compilers make two branches of both; in front of the test, the choice would wait for the load."""
    (loop,) = with_vector_loads(parse(OPPOSITE)).body
    (lanes,) = bodies(loop)
    kinds = [type(s).__name__ for s in bodies(lanes) if isinstance(s, (If, Load))]
    assert kinds == ["If", "Load"]
