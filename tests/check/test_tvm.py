"""TVM's scheduled functions in the neutral form: read where apache-tvm is installed, and by stand-ins for its nodes."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import idgraph as ig
from idgraph.check.tir import exported, neutral

MOVED = """fusion "t" {
  x = input(shape=(10, 7), dtype="float32")
  y = permute(x, dims=(1, 0))
  output y
}"""
TOTAL = 'fusion "t" {\n  x = input(shape=(6, 8), dtype="float32")\n  y = sum(x, dims=(1,))\n  output y\n}'


def node(kind: str, **fields: Any) -> Any:
    return type(kind, (SimpleNamespace,), {})(**fields, span=None)


def number(n: int) -> Any:
    return type("IntImm", (int,), {})(n)


def loop(name: str, extent: int, body: Any) -> Any:
    return node("For", loop_var=node("Var", name=name), min=0, extent=extent, body=body)


def stand_in(stride: int) -> Any:
    """A transposition in tiles of 4 as TVM lowers it; the tile of the second axis steps by ``stride``."""
    x = SimpleNamespace(name="x", shape=[number(10), number(7)])
    y = SimpleNamespace(name="y", shape=[number(7), number(10)])

    def at(outer: str, inner: str, step: int) -> Any:
        return node("Add", a=node("Mul", a=node("Var", name=outer), b=number(step)), b=node("Var", name=inner))

    i, j = at("i_0", "i_1", 4), at("j_0", "j_1", 4)
    load = node("BufferLoad", buffer=x, indices=[at("j_0", "j_1", stride), i])
    store = node("BufferStore", buffer=y, indices=[i, j], value=node("Mul", a=load, b=node("FloatImm", value=2.0)))
    inside = node("And", a=node("LT", a=i, b=number(7)), b=node("LT", a=j, b=number(10)))
    body = node("IfThenElse", condition=inside, then_case=store, else_case=None)
    for name, extent in (("j_1", 4), ("i_1", 4), ("j_0", 3), ("i_0", 2)):
        body = loop(name, extent, body)
    return SimpleNamespace(body=body)


def test_nodes_are_read_by_their_names() -> None:
    r = ig.check.program(neutral(stand_in(4), MOVED))
    assert r.ok and r.decided, str(r)
    assert ig.check.program(neutral(stand_in(3), MOVED)).refuted


def test_what_is_not_known_is_an_error() -> None:
    with pytest.raises(ig.check.CheckError, match="While"):
        neutral(SimpleNamespace(body=node("While")), MOVED)


def test_stores_that_share_a_loop_are_refused() -> None:
    """As nests they would run one after the other: a tile without its halo would be called right."""
    x, t, y = (SimpleNamespace(name=n, shape=[number(8)]) for n in ("x", "t", "y"))
    at = node("Var", name="i")
    first = node("BufferStore", buffer=t, indices=[at], value=node("BufferLoad", buffer=x, indices=[at]))
    ahead = node("Add", a=at, b=number(1))
    second = node("BufferStore", buffer=y, indices=[at], value=node("BufferLoad", buffer=t, indices=[ahead]))
    with pytest.raises(ig.check.CheckError, match="share the loop i"):
        neutral(SimpleNamespace(body=loop("i", 7, node("SeqStmt", seq=[first, second]))), MOVED)


def test_functions_of_tvm() -> None:
    tvm: Any = pytest.importorskip("tvm", reason="apache-tvm is not installed (extra tvm)")
    te: Any = pytest.importorskip("tvm.te")
    tir: Any = pytest.importorskip("tvm.s_tir")
    x = te.placeholder((10, 7), name="x")
    moved = te.compute((7, 10), lambda i, j: x[j, i], name="y")  # pyright: ignore[reportUnknownLambdaType]
    s = tir.Schedule(tvm.IRModule({"main": te.create_prim_func([x, moved])}))
    i, j = s.get_loops(s.get_sblock("y"))
    (a, b), (c, d) = s.split(i, [None, 4]), s.split(j, [None, 4])
    s.reorder(a, c, b, d)
    r = ig.check.program(exported(s.mod["main"], MOVED))
    assert r.ok and r.decided, str(r)
    wrong = MOVED.replace("y = permute(x, dims=(1, 0))", "z = permute(x, dims=(1, 0))\n  y = flip(z, dims=(0,))")
    assert ig.check.program(exported(s.mod["main"], wrong)).refuted
    x, k = te.placeholder((6, 8), name="x"), te.reduce_axis((0, 8), name="k")
    total = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="y")  # pyright: ignore[reportUnknownLambdaType]
    s = tir.Schedule(tvm.IRModule({"main": te.create_prim_func([x, total])}))
    loops = s.get_loops(s.get_sblock("y"))
    s.split(loops[0], [None, 4])
    s.split(loops[1], [2, 4])
    r = ig.check.program(exported(s.mod["main"], TOTAL))
    assert r.ok and r.decided, str(r)
