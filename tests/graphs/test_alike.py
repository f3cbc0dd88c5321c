"""Nests of equal structure are judged once: the verdict is that of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import ScheduleError
from idgraph.graphs import index_graph
from idgraph.graphs.index_graph import build_index_graph, common_loops, legal_nests
from idgraph.graphs.loop_nest import LoopNests
from idgraph.graphs.loop_promotion import Promotion
from idgraph.graphs.nest_order import isomorphic_exprs, structural_key, unique_nests
from idgraph.ir import TensorExpr
from idgraph.testing import fusions
from tests.property.budget import examples


def legal(f: ig.Fusion, *, whole: bool) -> bool:
    try:
        _ = build_index_graph(f) if whole else legal_nests(f, f.exprs)
    except ScheduleError:
        return False
    return True


@settings(max_examples=examples(150))
@given(fusions(), fusions(), st.data())
def test_the_verdict_is_that_of_every_nest(f: ig.Fusion, other: ig.Fusion, data: st.DataObject) -> None:
    """Two copies of one program beside each other, scheduled alike or not."""
    made = ig.parse(str(f))
    twice = twin(made)
    for t in twice.tensors:
        if t.definition is not None and t.uses:
            most = min(len(t.loop), *(len(e.output.loop) for e in t.uses))
            t.inline_position = data.draw(st.integers(0, most), label=t.name)
    twice.touch()
    assert legal(twice, whole=True) == legal(twice, whole=False)


def twin(f: ig.Fusion) -> ig.Fusion:
    """The program of ``f``, written twice."""
    lines = [line for line in str(f).splitlines()[1:-1] if not line.strip().startswith("schedule")]
    names = {t.name for t in f.tensors}

    def renamed(line: str) -> str:
        out, word = "", ""
        for c in line + "\n":
            if c.isalnum() or c == "_":
                word += c
                continue
            out += (f"second_{word}" if word in names else word) + c
            word = ""
        return out.rstrip("\n")

    symbols = [line for line in lines if line.strip().startswith("symbol")]
    rest = [line for line in lines if line not in symbols]
    return ig.parse("\n".join(["fusion twice {", *symbols, *rest, *map(renamed, rest), "}"]))


def itself(exprs: Sequence[ig.TensorExpr], *_: object) -> ig.TensorExpr:
    """No two operations are taken for alike."""
    return exprs[0]


@settings(max_examples=examples(100))
@given(fusions())
def test_common_loops_are_those_of_each_operation_alone(f: ig.Fusion) -> None:
    tensors = [t for t in f.tensors if t.uses and t.definition is not None]
    with patch.object(index_graph, "structural_key", itself):
        wanted = common_loops(f, tensors)
    assert common_loops(f, tensors) == wanted


def blocks(n: int, shape: tuple[int, int] = (4, 8)) -> ig.Fusion:
    f = ig.Fusion("blocks")
    x = f.input("x", shape=shape)
    for _ in range(n):
        x = x / ig.sum(ig.exp(x), 1, keepdim=True)
        f.output(x)
    return f


def test_of_equal_blocks_one_is_judged() -> None:
    f = blocks(12)
    for t in f.tensors:
        if t.uses and t not in f.outputs and t.definition is not None:
            t.inline_position = 1
    f.touch()
    nests = LoopNests(f)
    # The first block reads an input, the others what the one before stores: two structures where that counts at most.
    assert len(unique_nests(f.exprs, nests, Promotion(nests))) <= 2 * 4


@pytest.mark.parametrize("change", ["extent", "split", "position", "read", "operation"])
def test_what_the_graph_is_made_of_tells_two_operations_apart(change: str) -> None:
    f = ig.Fusion("f")
    x, y = f.input("x", shape=(8, 8)), f.input("y", shape=(8, 8 if change != "extent" else 9))
    a = ig.exp(x)
    b = ig.sqrt(y) if change == "operation" else ig.exp(y)
    f.output(ig.permute(a, 0, 1), ig.permute(b, 1, 0) if change == "read" else ig.permute(b, 0, 1))
    if change == "split":
        b.split(0, 2)
    if change == "position":
        b.inline_position = 1
        f.touch()
    nests = LoopNests(f)
    told = [
        structural_key([e for t in (u, *(e.output for e in u.uses)) if (e := t.definition)], nests, Promotion(nests))
        for u in (a, b)
    ]
    assert told[0] != told[1]


def test_one_nest_that_is_not_legal_is_found_among_equal_ones() -> None:
    f = blocks(3)
    x = f.input("z", shape=(4, 4))
    t = ig.exp(x)
    f.output(t.T + 1.0)
    for u in f.tensors:
        if u.uses and u not in f.outputs and u.definition is not None:
            u.inline_position = 1
    f.touch()
    assert not legal(f, whole=True)
    assert not legal(f, whole=False)


def test_broadcasts_and_nests_are_resolved_in_one_of_equal_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nests and their graph have as many operations for thirty blocks as for ten."""
    looks: list[int] = []

    def counted(fusion: ig.Fusion, exprs: Sequence[TensorExpr] | None = None) -> LoopNests:
        looks.append(len(fusion.exprs if exprs is None else exprs))
        return LoopNests(fusion, exprs)

    monkeypatch.setattr(index_graph, "LoopNests", counted)
    for n in (10, 30):
        f = blocks(n)
        for t in f.tensors:
            if t.uses and t not in f.outputs and t.definition is not None:
                t.inline_position = 1
        f.touch()
        assert legal_nests(f, f.exprs).ways(f.exprs) == {e: ("serial",) * len(e.output.loop) for e in f.exprs}
    assert looks[0] == looks[1] < 10


@pytest.mark.parametrize("change", ["way", "output"])
def test_what_nests_are_made_of_tells_two_of_them_apart(change: str) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 8))
    a, b = ig.exp(x), ig.exp(x)
    f.output(*((b,) if change == "output" else ()), ig.copy(a), ig.copy(b))
    a.inline(1)
    b.inline(1)
    assert isomorphic_exprs(f.exprs)[f.exprs[1]] is (f.exprs[1] if change == "output" else f.exprs[0])
    if change == "way":
        b.parallelize(0, "blockIdx.x")
        assert isomorphic_exprs(f.exprs)[f.exprs[1]] is f.exprs[1]


def test_a_way_is_that_of_any_loop_that_is_shared() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 8))
    for _ in range(2):
        t = ig.exp(x)
        f.output(ig.copy(t)).parallelize(0, "blockIdx.x")
        t.inline(1)
    assert legal_nests(f, f.exprs).ways(f.exprs) == dict.fromkeys(f.exprs, ("blockIdx.x", "serial"))
