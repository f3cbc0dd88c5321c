"""Questions of a wrong type: one error of this library each, never a raw Python error and never a wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import find

import idgraph as ig
from idgraph.testing import fusions

WRONG: list[Any] = [None, 1.5, 3, "x", [], {}, (), object(), ig.Fusion("other")]


class Case:
    """A small fusion with a second one, whose axes and groups do not belong to the first."""

    def __init__(self) -> None:
        self.f, self.other = ig.Fusion("f"), ig.Fusion("g")
        self.t = self.f.input("t", shape=(4, 8))
        self.u = self.f.output(ig.exp(self.t, name="u"))
        self.foreign = self.other.output(ig.exp(self.other.input("t", shape=(4, 8)), name="u"))
        self.m = ig.IdModel(self.f)
        self.d, self.e = self.t.logical[0], self.u.definition


def but(v: Any, instead: Any, *right: Any) -> Any:
    """``v``, or something else in place of the values that are right for this question."""
    return instead if any(type(v) is type(r) and v == r for r in right) else v


def no_fusion(v: Any) -> Any:
    return 1 if isinstance(v, ig.Fusion) else v


def no_name(v: Any) -> Any:
    return {v if isinstance(v, (int, float)) else 1: 4}


QUESTIONS: dict[str, Callable[[Any, Any], object]] = {
    "group": lambda c, v: c.m.exact.group(v),
    "mapped, left": lambda c, v: c.m.almost_exact.mapped(v, c.d),
    "mapped, right": lambda c, v: c.m.permissive.mapped(c.d, v),
    "explain": lambda c, v: c.m.exact.explain(c.d, v),
    "definitions": lambda c, v: c.m.exact.definitions(v),
    "uses": lambda c, v: c.m.loop.uses(v),
    "index definitions": lambda c, v: c.m.index.definitions(v),
    "index group, axis": lambda c, v: c.m.index.group(v, c.e),
    "index group, operation": lambda c, v: c.m.index.group(c.d, v),
    "index mapped": lambda c, v: c.m.index.mapped(v, (c.d, c.e)),
    "index mapped, axis": lambda c, v: c.m.index.mapped((v, c.e), (c.d, c.e)),
    "index explain": lambda c, v: c.m.index.explain((c.d, c.e), v),
    "promotion": lambda c, v: c.m.promotion(v),
    "loops": lambda c, v: c.m.loops(v),
    "index_map": lambda c, v: c.m.index_map(v),
    "access, operation": lambda c, v: c.m.access(v, c.t),
    "access, tensor": lambda c, v: c.m.access(c.e, v),
    "evaluate": lambda c, v: c.m.access(c.e, c.t).address.evaluate(v),
    "evaluate, value": lambda c, v: c.m.access(c.e, c.t).address.evaluate({"i0": but(v, 1.0, 3), "i1": 0}),
    "IdModel": lambda c, v: ig.IdModel(no_fusion(v)),
    "emit": lambda c, v: ig.emit(no_fusion(v)),
    "validate": lambda c, v: ig.validate(no_fusion(v)),
    "simplify ranges": lambda c, v: ig.simplify("i", but(v, 7, None, {})),
    "prove_equal ranges": lambda c, v: ig.prove_equal("i", "i", but(v, 7, None, {})),
    "range": lambda c, v: ig.simplify("i", {"i": but(v, 1.5, 3, "x")}),
    "name of a range": lambda c, v: ig.simplify("i", no_name(v)),
    "like": lambda c, v: ig.schedule.like(c.f, v),
    "inline_most": lambda c, v: ig.schedule.inline_most(c.f, [v]),
    "recompute": lambda c, v: ig.schedule.recompute(v, c.e),
    "auto": lambda c, v: ig.schedule.auto(no_fusion(v)),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_one_clear_error(name: str) -> None:
    for value in WRONG:
        with pytest.raises(ig.IdGraphError) as caught:
            QUESTIONS[name](Case(), value)
        assert len(str(caught.value)) > 10, f"{name}({value!r})"


@pytest.mark.parametrize("operand", [-1, 1, 9, 1.0, "x", True, [0]])
def test_an_operand_that_is_not_there(operand: Any) -> None:
    c: Any = Case()
    for ask in (
        lambda: c.m.index.group(c.d, c.e, operand),
        lambda: c.m.access(c.e, c.t, operand=operand),
        lambda: c.m.read(c.e, operand),
    ):
        with pytest.raises(ig.IndexingError, match="operand"):
            ask()


def test_what_belongs_to_another_fusion_or_graph() -> None:
    """A group of another graph may have the number of one of ours: it must not get its answer."""
    c: Any = Case()
    theirs = ig.IdModel(c.other)
    with pytest.raises(ig.IndexingError, match="is a group of another graph"):
        c.m.exact.uses(theirs.exact.groups[0])
    with pytest.raises(ig.IndexingError, match="is a group of another graph"):
        c.m.index.definitions(c.m.exact.groups[0])
    with pytest.raises(ig.IndexingError, match="is a group of another graph"):
        c.m.exact.definitions(c.m.index.groups[0])
    with pytest.raises(ig.IndexingError, match="is not in the exact graph"):
        c.m.exact.mapped(c.d, c.foreign.logical[0])
    with pytest.raises(ig.IndexingError, match="is not in the index graph"):
        c.m.index.group(c.foreign.logical[0], c.foreign.definition)
    before = c.m.exact.groups[0]
    c.u.split(0, 2)
    with pytest.raises(ig.IndexingError, match="before the fusion changed"):
        c.m.exact.uses(before)


def test_integers_of_numpy_are_values() -> None:
    c: Any = Case()
    assert c.m.access(c.e, c.t).address.evaluate({"i0": np.int32(2), "i1": np.int64(3)}) == 19


@pytest.mark.parametrize(
    "ask",
    [
        lambda: ig.frontends.fx.from_json(5),  # pyright: ignore[reportArgumentType]
        lambda: ig.sweep(5),  # pyright: ignore[reportArgumentType]
        lambda: ig.sweep(None),  # pyright: ignore[reportArgumentType]
        lambda: ig.report(Case().f, suggestions=-1),
        lambda: find(fusions(steps=("nothing",)), lambda f: True),
    ],
)
def test_programs_files_and_strategies(ask: Callable[[], object]) -> None:
    with pytest.raises(ig.IdGraphError, match=r"path is 5|graphs is 5|graphs is None|suggestions is -1|steps: "):
        ask()
