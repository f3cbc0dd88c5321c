"""Memory in the order of root axes: what the oracle expects there comes from going back through axis expressions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import idgraph as ig

MOVES: dict[str, Callable[[ig.Tensor], ig.Tensor]] = {
    "slice": lambda x: x[1:4],
    "step": lambda x: x[1::2],
    "flip": lambda x: ig.flip(x, 0),
    "roll": lambda x: ig.roll(x, 2, 0),
    "merge": lambda x: ig.reshape(x, (30,)),
    "split": lambda x: ig.reshape(x, (5, 2, 3)),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("turned", [False, True])
def test_a_stored_tensor_in_the_order_of_its_root(name: str, turned: bool) -> None:
    f = ig.Fusion("root")
    t = MOVES[name](f.input("x", (5, 6)))
    f.output(ig.exp(t))
    assert t.root != t.logical
    t.set_allocation(list(reversed(t.root)) if turned else list(t.root))
    for target in ("python", "numpy"):
        report = ig.validate(f, target=target)
        assert report.ok, report.counterexample


def test_the_rows_of_a_sliced_tensor_keep_their_distance() -> None:
    f = ig.Fusion("root")
    t = f.input("x", (5, 6))[:, 1:4]
    f.output(ig.exp(t))
    t.set_allocation(list(t.root))
    assert t.definition is not None
    assert str(ig.IdModel(f).access(t.definition, t).address) == "i0*6 + i1 + 1"
