"""Replays that are done once: the loops of all that is the same are those that each would have been replayed to."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

import idgraph as ig
from idgraph.schedule.recipes import Recipe
from idgraph.schedule.replay import like_consumer


def _two_chains(second: int) -> ig.Fusion:
    f = ig.Fusion("f")
    for n in (64, second):
        x = f.input(f"x{n}_{len(f.inputs)}", shape=(n, 32))
        t = f.output(ig.reshape(ig.exp(x).T, (32 * n,)) * 2.0)
        t.split(0, 8)
        t.parallelize(0, "blockIdx.x")
        t.parallelize(1, "vectorize")
    return f


@pytest.mark.parametrize("second", [64, 48])
def test_loops_by_recipe_are_those_of_the_replay(second: int) -> None:
    by_step, by_recipe = _two_chains(second), _two_chains(second)
    recipes: dict[Hashable, Recipe] = {}
    for f, known in ((by_step, None), (by_recipe, recipes)):
        for e in reversed(f.exprs):
            if e.inputs[0].definition is not None:
                like_consumer(e.inputs[0], e, 0, recipes=known)
    assert str(by_recipe) == str(by_step)
    for t, u in zip(by_step.tensors, by_recipe.tensors, strict=True):
        assert list(map(repr, u.domain.loop_exprs)) == list(map(repr, t.domain.loop_exprs))
        assert [(repr(d), d.kind, d.parallel) for d in u.loop] == [(repr(d), d.kind, d.parallel) for d in t.loop]
    steps = len(by_step.exprs) - 2
    assert len(recipes) == (steps // 2 if second == 64 else steps)
