"""Indices that leave a loop: only where what they are loaded from, or made of, is the same at all of its steps."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.passes.load_hoisting import licm_loads

ROW = """
kernel k():
  where ld0 in _, _
  buffer i: int64[4] {place} "i"
  buffer x: float32[448] input "x"
  buffer y: float32[256] output "y"
  for r < 4:
    for c < 64:
{before}      t0: int64 = i[{at}]{when}
      let ld0 = t0
      check (ld0 >= 0) & (ld0 < 7), of ld0, site "x", axis 0, extent 7, index "i", in "y", at "f.py:1":
        t1: float32 = x[ld0*64 + c]
        y[r*64 + c] = t1
"""
CHAIN = """
kernel k():
  where ld0 in _, _
  where ld1 in _, _
  buffer i: int64[64] input "i"
  buffer j: int64[7] input "j"
  buffer x: float32[448] input "x"
  buffer y: float32[256] output "y"
  for r < 4:
    for c < 64:
      t0: int64 = i[{at}]
      let ld0 = t0
      check (ld0 >= 0) & (ld0 < 7), of ld0, site "j", axis 0, extent 7, index "i", in "y", at "f.py:1":
        t1: int64 = j[ld0]
        let ld1 = t1
        check (ld1 >= 0) & (ld1 < 7), of ld1, site "x", axis 0, extent 7, index "j", in "y", at "f.py:1":
          t2: float32 = x[ld1*64 + c]
          y[r*64 + c] = t2
"""


def moved(text: str) -> bool:
    """Whether a load of an index stands in front of the inner loop now; the kernel is well formed."""
    k = ig.kernel.parse(text)
    made = licm_loads(k)
    made.check_structure()
    lines = str(made).splitlines()
    inner = next(n for n, line in enumerate(lines) if "for c < 64" in line)
    return any(": int64 =" in line for line in lines[:inner])


def test_an_index_of_a_row_leaves_the_loop_over_its_columns() -> None:
    assert moved(ROW.format(place="input", before="", at="r", when=""))


@pytest.mark.parametrize(
    ("place", "before", "at"),
    [
        ("input", "", "c%4"),
        ("output", "      i[r] = 3\n", "r"),  # written in the loop
        ("output", "      i[c%4] = 3\n", "r"),
    ],
)
def test_an_index_that_changes_in_the_loop_stays_there(place: str, before: str, at: str) -> None:
    assert not moved(ROW.format(place=place, before=before, at=at, when=""))


def test_an_index_that_is_loaded_at_some_steps_stays_in_the_loop() -> None:
    assert not moved(ROW.format(place="input", before="", at="r", when=" if c > 2"))


def test_an_index_written_behind_the_loop_stays_in_it() -> None:
    text = ROW.format(place="output", before="", at="r", when="") + "    i[(r + 1)%4] = 2\n"
    assert not moved(text)


def test_an_index_of_an_index_leaves_with_it() -> None:
    assert moved(CHAIN.format(at="r"))


def test_an_index_of_an_index_that_stays_stays_with_it() -> None:
    assert not moved(CHAIN.format(at="c"))
