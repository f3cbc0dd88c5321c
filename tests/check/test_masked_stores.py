"""Stores that a loaded value masks: what is there already stays where the mask does not hold."""

from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig
from tests.check.tree_lowerings import loop, put

PROGRAM = """fusion "f" {
  x = input(shape=(6,), dtype="float32")
  z = input(shape=(6,), dtype="float32")
  m = input(shape=(6,), dtype="int64")
  t = gt(m, 2)
  y = where(t, x, z)
  output y
}"""


def stored(name: str, value: str | None, *reads: Any, **more: Any) -> dict[str, Any]:
    nest = put(name, "y", "i", *reads, **more)
    if value is not None:
        nest["writes"][0]["value"] = value
    return nest


def masked(
    mask: str, *, at: str = "i", source: str = "i", value: str | None = "r0", order: str = "serial", first: str = "z"
) -> dict[str, Any]:
    """y = z, then y = x where the mask holds of m."""
    base = loop("i", 6, stored("base", value, (first, "i")), order=order)
    store = stored("store", value, ("x", source), when=mask, loads={"v": {"buffer": "m", "index": at}})
    return {"version": 1, "program": PROGRAM, "body": [base, loop("i", 6, store, order=order)]}


@pytest.mark.parametrize("order", ["serial", "any"])
def test_a_masked_store_is_decided(order: str) -> None:
    r = ig.check.program(masked("v > 2", order=order))
    assert r.ok and r.decided, str(r)


@pytest.mark.parametrize(
    "wrong",
    [
        masked("v > 1"), masked("v >= 2"), masked("v < 3"), masked("(v > 2) & (v < 9)"), masked("v > 2", at="5 - i"),
        masked("v > 2", source="5 - i"), masked("v > 2", first="x"), masked("(v > 2) & (i < 5)"),
        masked("v > 2", at="0"),
    ],
)  # fmt: skip
def test_a_wrong_mask_is_refuted(wrong: dict[str, Any]) -> None:
    assert ig.check.program(wrong).refuted


def test_a_mask_that_nothing_was_stored_before_is_refuted() -> None:
    data = masked("v > 2")
    assert ig.check.program({**data, "body": data["body"][::-1]}).refuted
    assert ig.check.program({**data, "body": data["body"][1:]}).refuted


def test_a_mask_is_unknown_where_no_value_is_said() -> None:
    r = ig.check.program(masked("v > 2", value=None))
    assert not r.refuted and r.unknown


def test_masks_may_keep_iterations_apart() -> None:
    """Each iteration of a loop in any order may store to one element; which one does, the mask says."""
    mask = "(v > 2) & (((k == 0) & (v > 4)) | ((k == 1) & (v < 5)))"
    store = stored("store", "r0", ("x", "i"), when=mask, loads={"v": {"buffer": "m", "index": "i"}})
    base = loop("i", 6, stored("base", "r0", ("z", "i")))
    for order in ("serial", "any"):
        body = [base, loop("k", 2, loop("i", 6, store), order=order)]
        r = ig.check.program({"version": 1, "program": PROGRAM, "body": body})
        assert not r.refuted and r.unknown, str(r)


def test_a_mask_may_keep_a_store_inside_of_its_memory() -> None:
    store = stored("store", "r0", ("x", "i"), when="v > 2", loads={"v": {"buffer": "m", "index": "i"}})
    store["writes"][0]["index"] = "i*2"  # the integers may be such that it is right
    base = loop("i", 6, stored("base", "r0", ("z", "i")))
    r = ig.check.program({"version": 1, "program": PROGRAM, "body": [base, loop("i", 6, store)]})
    assert not any("outside" in x.because for x in r.refuted), str(r)
