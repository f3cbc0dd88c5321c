"""Single assignment: one definition for each value, after lowering and after every pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

import idgraph as ig
from idgraph.kernel.ssa import is_single, simplify_selects, to_ssa
from idgraph.runtime import Target
from idgraph.runtime.program import stages
from tools.programs.class_rows import CLASSES

TWO_SIDES = """
kernel k():
  buffer x: float32[8] input "x"
  buffer y: float32[8] output "y"
  for i < 8:
    if i < 4:
      v: float32 = x[i]
      u: float32 = neg(v)
    if i >= 4:
      v: float32 = x[7 - i]
      u: float32 = exp(v)
    y[i] = u
"""


def made(text: str) -> str:
    """The text with one definition for each value; without the first lines."""
    k = ig.kernel.parse(text)
    once = replace(k, body=to_ssa(k.body))
    assert ig.kernel.parse(str(once)) == once
    return "\n".join(str(once).splitlines()[4:])


def test_each_side_has_its_own_and_a_read_of_both_is_a_choice() -> None:
    assert (
        made(TWO_SIDES)
        == """    if i < 4:
      v: float32 = x[i]
      u: float32 = neg(v)
    if i >= 4:
      v_s2: float32 = x[7 - i]
      u_s2: float32 = exp(v_s2)
    u_s3: float32 = choose(i >= 4 ? u_s2, u)
    y[i] = u_s3"""
    )


def test_a_read_under_the_condition_needs_no_choice() -> None:
    text = TWO_SIDES.replace("    y[i] = u", "    if i >= 6:\n      y[i] = u")
    assert "choose" not in made(text) and "y[i] = u_s2" in made(text)


def test_a_read_where_the_condition_does_not_hold_takes_the_value_before_it() -> None:
    text = TWO_SIDES.replace("    if i >= 4:\n", "    if i < 2:\n").replace(
        "    y[i] = u", "    if i >= 2:\n      y[i] = u"
    )
    assert made(text).endswith("if i >= 2:\n      y[i] = u") and "choose" not in made(text)


def test_an_index_of_its_own_for_each_loaded_value() -> None:
    text = """
kernel k():
  where ld0 in _, _
  buffer x: int64[8] input "x"
  buffer y: int64[8] output "y"
  for i < 2:
    a: int64 = x[i]
    let ld0 = a
    y[ld0] = 1
    a: int64 = x[i + 2]
    let ld0 = a
    y[ld0] = 2
"""
    assert "let ld0_s2 = a_s2\n    y[ld0_s2] = 2" in made(text)


def test_a_value_that_steps_hand_on_is_an_accumulator() -> None:
    text = """
kernel k():
  buffer x: float32[8] input "x"
  buffer y: float32[8] output "y"
  a: float32 = cast(0.0)
  for i < 8:
    b: float32 = x[i]
    a: float32 = add(a, b)
  y[0] = a
"""
    with pytest.raises(AssertionError, match="a goes from one step of loop i to the next"):
        made(text)
    last = text.replace("    a: float32 = add(a, b)", "    if i < 4:\n      a: float32 = neg(b)")
    with pytest.raises(AssertionError, match="a goes from one step of loop i to the next"):
        made(last)


CHOICE = """
kernel k():
  buffer x: float32[8] input "x"
  buffer y: float32[8] output "y"
  for i < 8:
    acc s: float32 = 1.0
    if i < 4:
      a: float32 = x[i]
    if i >= 4:
      b: float32 = x[7 - i]
    v: float32 = choose(i < 4 ? a, b)
    s <- sum v
    if i < 8:
      y[i] = v
"""


@pytest.mark.parametrize(
    ("condition", "read"), [("i < 4", "a"), ("i < 3", "a"), ("i >= 5", "b"), ("i >= 3", "v"), ("i < 5", "v")]
)
def test_a_read_of_a_choice_takes_the_case_that_holds(condition: str, read: str) -> None:
    k = ig.kernel.parse(CHOICE.replace("    if i < 8:", f"    if {condition}:"))
    found = replace(k, body=simplify_selects(k.body))
    assert f"y[i] = {read}" in str(found) and "v: float32 = choose" in str(found)  # the sum reads it
    assert found.verify().races


def test_a_choice_of_an_accumulator_is_what_it_was_there() -> None:
    text = CHOICE.replace("choose(i < 4 ? a, b)", "choose(i < 4 ? s, 0.0)").replace("if i < 8:", "if i < 4:")
    k = ig.kernel.parse(text)
    assert simplify_selects(k.body) == k.body


def test_a_choice_that_nobody_reads_any_more_goes() -> None:
    k = ig.kernel.parse(CHOICE.replace("    s <- sum v\n", "").replace("if i < 8:", "if i < 2:"))
    assert "choose" not in str(replace(k, body=simplify_selects(k.body)))


@pytest.mark.sampled
@pytest.mark.parametrize("key", ["rope_sections", "reflected", "smoothed_loss", "table_norm", "sum_leading", "bags"])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_kernels_have_one_definition_for_each_value_after_every_pass(key: str, target: Target) -> None:
    f = CLASSES[key]()
    ig.schedule.auto(f)
    assert [name for name, plan in stages(f, target) if not all(is_single(k.body) for k in plan.kernels)] == []
