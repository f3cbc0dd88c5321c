"""Replays that are done once: the loops of all that is the same are those that each would have been replayed to."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

import idgraph as ig
from idgraph.schedule import transform_replay as replay
from idgraph.schedule.replay_cache import ReplayRecipe
from idgraph.schedule.transform_replay import like_consumer


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
    recipes: dict[Hashable, ReplayRecipe] = {}
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


def test_loops_by_one_recipe_have_its_pattern_until_they_are_changed() -> None:
    f, recipes = _two_chains(64), dict[Hashable, ReplayRecipe]()
    for e in reversed(f.exprs):
        if e.inputs[0].definition is not None:
            like_consumer(e.inputs[0], e, 0, recipes=recipes)
    pairs = [(t, u) for t, u in zip(f.tensors[1:4], f.tensors[6:9], strict=True)]
    for t, u in pairs:
        assert t.domain.made_after() is u.domain.made_after() is not None
    (t, u), *_ = pairs
    u.split(0, 2)
    assert u.domain.made_after() is None
    t.set_loop(t.loop[::-1])
    assert t.domain.made_after() is None


def test_steps_that_tensors_share_are_told_like_steps_of_their_own() -> None:
    by_step, by_recipe = _two_chains(64), _two_chains(64)
    for f, known in ((by_step, None), (by_recipe, dict[Hashable, ReplayRecipe]())):
        for e in reversed(f.exprs):
            if e.inputs[0].definition is not None:
                like_consumer(e.inputs[0], e, 0, recipes=known)
    for t, u in zip(by_step.tensors, by_recipe.tensors, strict=True):
        assert u.log == t.log and len({s.at for s in u.log}) == len(u.log)
        before = t.log
        kept = u.saved()
        for x in (t, u):
            x.forget("parallelize")
        assert u.log == t.log
        u.put_back(kept)
        assert u.log == before
        u.keep_first(1)
        assert u.log == before[:1]


def test_copies_of_one_kind_are_replayed_by_few_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many recipes for six kernels of eight blocks as for three: what is scheduled alike is told by its pattern."""
    made: list[int] = []

    def counted(*args: object) -> None:
        made[-1] += 1
        replayed(*args)  # type: ignore[arg-type]

    replayed = replay._replay  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(replay, "_replay", counted)
    for blocks in (24, 48):
        made.append(0)
        f = ig.Fusion("f")
        t = f.input("x", shape=(16, 32))
        for _ in range(blocks):
            t = t + ig.exp(t * ig.sum(t * t, 1, keepdim=True)) * 0.5
        f.output(t)
        ig.schedule.auto(f)
    assert made[0] == made[1] < 100
