"""Values that formulas load are read; entries that are added need something to be added to."""

from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig

ROWS = """fusion "f" {
  x = input(shape=(10, 4), dtype="float32")
  i = input(shape=(3,), dtype="int64")
  y = index_select(x, i, dim=0)
  output y
}"""
LOADS = {"v": {"buffer": "i", "index": "a"}}
PLACES = {"p": {"value": "v", "size": 10}}


def rows(index: str, *, own: bool = False, **more: Any) -> ig.check.CheckReport:
    reads = [{"buffer": "x", "index": index}, *([{"buffer": "i", "index": "a"}] if own else [])]
    write = {"buffer": "y", "index": "a*4 + c", "reads": reads}
    nest = {"name": "k", "loops": [["a", 3], ["c", 4]], "loads": LOADS, "places": PLACES, "writes": [write], **more}
    return ig.check.program({"program": ROWS, "nests": [nest]})


@pytest.mark.parametrize("own", [False, True])
def test_a_loaded_index_is_a_read(own: bool) -> None:
    r = rows("p*4 + c", own=own)
    assert r.ok and r.decided, str(r)
    assert rows("(p + 1)*4 + c", own=own).refuted
    assert rows("p*4 + c", own=own, loads={"v": {"buffer": "i", "index": "2 - a"}}).refuted


ADDED = """fusion "f" {
  x = input(shape=(10,), dtype="float32")
  i = input(shape=(3,), dtype="int64")
  s = input(shape=(3,), dtype="float32")
  y = scatter_add(x, i, s, dim=0)
  output y
}"""
ADD: dict[str, Any] = {
    "name": "add", "loops": [["a", 3]], "loads": LOADS, "places": PLACES,
    "writes": [{"buffer": "y", "index": "p", "mode": "add", "reads": [{"buffer": "s", "index": "a"}]}],
}  # fmt: skip
COPY: dict[str, Any] = {
    "name": "copy", "loops": [["k", 10]],
    "writes": [{"buffer": "y", "index": "k", "reads": [{"buffer": "x", "index": "k"}]}],
}  # fmt: skip


def test_entries_are_not_added_to_nothing() -> None:
    r = ig.check.program({"program": ADDED, "nests": [ADD]})
    assert not r.decided and "adds to what nothing has written before" in str(r), str(r)
    r = ig.check.program({"program": ADDED, "nests": [COPY, ADD]})
    assert r.ok and "nothing has written" not in str(r), str(r)
    assert "no value for symbol" not in str(r) and "of loaded values" in str(r), str(r)
    assert "nothing has written" in str(ig.check.program({"program": ADDED, "nests": [ADD, COPY]}))


def test_a_negated_remainder_of_a_dynamic_length_is_an_integer() -> None:
    torch: Any = pytest.importorskip("torch")

    def fn(x: Any) -> Any:
        return x.roll((1, -2), (0, 1)) * 2

    r = ig.check.inductor(fn, (torch.ones(6, 8),), dynamic=True)
    assert r.ok and r.decided, str(r)
