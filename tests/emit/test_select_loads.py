"""Choices between pieces of one tensor as one load: only of pieces that provably are where they are chosen."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.passes.load_hoisting import select_address_then_load

PIECES = """
kernel k():
  buffer x: float32[96] input "x"
  buffer y: float32[24] output "y"
  for i < 24:
    if i < 8:
      a: float32 = x[i]
    if (i >= 8) & (i < 16):
      b: float32 = x[i + 32]
    if i >= 16:
      c: float32 = x[i + 64]
    t: float32 = choose(i < 8 ? a, i < 16 ? b, c)
    y[i] = t
"""
LOADED = """
kernel k():
  where ld in _, _
  buffer n: int64[3] input "n"
  buffer x: float32[96] input "x"
  buffer y: float32[24] output "y"
  for i < 24:
    n0: int64 = n[0]
    let ld = n0
    a: float32 = x[ld + i]
    n1: int64 = n[1]
    let ld = n1
    b: float32 = x[ld + i]
    c: float32 = x[i]
    t: float32 = choose(i < 8 ? a, i < 16 ? b, c)
    y[i] = t
"""


def _chooses(text: str) -> bool:
    return "choose(" in str(select_address_then_load(ig.kernel.parse(text)))


def test_three_pieces_are_one_load() -> None:
    assert not _chooses(PIECES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("i < 16 ? b", "i < 17 ? b"),  # b is not loaded at 16
        ("if i >= 16:", "if i >= 17:"),  # nor c
        ("b: float32 = x[i + 32]", "b: float32 = neg(3.0)"),  # not a load
        ("i < 8 ? a, i < 16 ? b, c", "i < 8 ? a, c"),  # two: sides of a test
    ],
)
def test_what_stays_a_choice(old: str, new: str) -> None:
    assert old in PIECES and _chooses(PIECES.replace(old, new))


def test_an_index_that_is_loaded_anew_is_another_address() -> None:
    assert _chooses(LOADED)
    assert not _chooses(LOADED.replace("    let ld = n1\n", ""))
