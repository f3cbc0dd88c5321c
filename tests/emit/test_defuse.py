"""Definitions, uses and values of statements; two numbers are one only where nothing can tell them apart."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import TRUE, as_expr, symbol
from idgraph.kernel import def_use as defuse
from idgraph.kernel import ir as plan
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Buffer,
    CheckSite,
    Comment,
    Compute,
    Constant,
    ExtractHalf,
    Half2Op,
    If,
    Index,
    InitAccumulator,
    Let,
    Load,
    Local,
    Loop,
    Provenance,
    RegisterArray,
    Select,
    SingleThread,
    Stmt,
    Store,
    StraightLineBlock,
    VectorAdd,
    VectorLoad,
    VectorStore,
)
from idgraph.kernel.statements import Access
from idgraph.kernel.value_numbering import ValueNumbering

ROW, COL = symbol("i", 0, 9), symbol("j", 0, 9)
X, Y, Z = (Local(n, "float32") for n in "xyz")
OUT = Buffer("b", "out", "float32", as_expr(10), "output")
SITE = CheckSite("t", 0, COL, "i", "t1", "", ())
# each kind of statement: what it makes, updates, reads, and the symbols of its indices
KINDS: list[tuple[Stmt, str, str, str, str]] = [
    (Loop("k", ROW, "serial", (), first=COL), "", "", "", "ij"),
    (If(ROW < COL, ()), "", "", "", "ij"),
    (SingleThread(("threadIdx.x",), ()), "", "", "", ""),
    (StraightLineBlock(()), "", "", "", ""),
    (BoundsCheck(ROW < 3, "ld0", SITE, ()), "", "", "", "ij"),
    (Comment("x"), "", "", "", ""),
    (InitAccumulator("x", "float32", 0), "x", "", "", ""),
    (RegisterArray("x", "float32", 4), "", "", "", ""),
    (Alloc(dataclasses.replace(OUT, size=ROW)), "", "", "", "i"),
    (Barrier("x"), "", "", "", ""),
    (Let("x", Y), "x", "", "y", ""),
    (Let("x", Index(ROW)), "x", "", "", "i"),
    (Load(X, OUT, ROW, COL < 3), "x", "", "", "ij"),
    (Compute(X, "add", (Y, Index(ROW)), "float32"), "x", "", "y", "i"),
    (Select(X, ((ROW < 3, Y),), Z), "x", "", "yz", "i"),
    (Accumulate(X, "sum", Y), "", "x", "y", ""),
    (Accumulate(X, "sum", Y, OUT, ROW, running=Z), "z", "", "y", "i"),
    (BlockReduce(X, "sum", ("threadIdx.x",)), "", "x", "", ""),
    (Store(OUT, ROW, Y), "", "", "y", "i"),
    (VectorLoad((X, Y), OUT, ROW), "xy", "", "", "i"),
    (VectorStore(OUT, ROW, (X, Y)), "", "", "xy", "i"),
    (VectorAdd(OUT, ROW, (X, Y)), "", "", "xy", "i"),
    (Half2Op(X, "add", (Y, Z)), "x", "", "yz", ""),
    (ExtractHalf(X, Y, high=True), "x", "", "y", ""),
]


@pytest.mark.parametrize(("s", "made", "updated", "read", "indices"), KINDS, ids=lambda v: type(v).__name__)
def test_parts_of_each_kind(s: Stmt, made: str, updated: str, read: str, indices: str) -> None:
    def joined(found: Any) -> str:
        return "".join(sorted(x.name for x in found if isinstance(x, Local)))

    assert joined(defuse.defs(s)) == made and joined(defuse.updates(s)) == updated
    assert joined(defuse.operands_of(s)) == read
    assert {n for e in defuse.index_exprs(s) for n in e.names} == set(indices)
    loop = {s.var} if isinstance(s, Loop) else set[str]()
    assert defuse.sets(s) == set(made) | set(updated) | loop
    assert defuse.reads(s) == set(read) | set(updated) | set(indices)
    assert defuse.map_statement(s) is s


@pytest.mark.parametrize("s", [s for s, *_ in KINDS], ids=lambda v: type(v).__name__)
def test_what_does_not_change_stays_the_same_object(s: Stmt) -> None:
    """Passes look at identity to leave out what none of them changed."""
    served = (Provenance("t0", None, (ROW,), (("r", COL),), ROW < COL),)
    s = dataclasses.replace(s, serves=served) if isinstance(s, Access | Let) else s
    body = (If(ROW < COL, (s,)), s)
    assert defuse.map_statement(s, index=lambda e: e.substitute({"k": ROW})) is s
    assert defuse.map_body(body, lambda x: defuse.map_statement(x, index=lambda e: e.substitute({"k": ROW}))) is body
    if served == getattr(s, "serves", None):
        assert defuse.map_statement(s, point=lambda e: e.substitute({"i": 1})).serves != served  # type: ignore[union-attr]


@pytest.mark.parametrize(("s", "made", "updated", "read", "indices"), KINDS, ids=lambda v: type(v).__name__)
def test_rewriting_reaches_every_part(s: Stmt, made: str, updated: str, read: str, indices: str) -> None:
    def named(x: Any) -> Any:
        return Local(f"{x.name}_2", x.dtype) if isinstance(x, Local) else x

    moved = defuse.map_statement(
        s, made=named, updated=named, read=named, index=lambda e: e.substitute({n: symbol(f"{n}_2") for n in e.names})
    )
    found = defuse.sets(moved) | defuse.reads(moved)
    kept = {"j"} if isinstance(s, BoundsCheck) else set[str]()  # the extent that a message tells
    loop = {"k"} if isinstance(s, Loop) else set[str]()
    assert found - kept - loop == {f"{n}_2" for n in (made + updated + read + indices) if n not in kept}


def test_every_kind_is_listed() -> None:
    assert {type(s) for s, *_ in KINDS} == set(get_args(plan.Stmt))


def test_equal_values_are_equal_statements() -> None:
    a, b = Compute(X, "add", (Y, Constant(0.0)), "float32"), Compute(Z, "add", (Y, Constant(0.0)), "float32")
    key = ValueNumbering(read_only=None).key
    assert key(a) == key(b) != key(Compute(X, "sub", (Y, Constant(0.0)), "float32"))
    assert key(Compute(X, "add", (Y, Constant(-0.0)), "float32")) != key(a)
    assert key(Load(X, OUT, ROW, TRUE)) == key(Load(Y, OUT, ROW)) is not None
    assert key(Store(OUT, ROW, X)) is None


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize(("signs", "larger"), [((0.0, -0.0), 1.0), ((-0.0, 0.0), 0.0), ((0.0, 0.0), 0.0)])
def test_sums_over_quotients_by_zeros_of_either_sign(target: Any, signs: tuple[float, float], larger: float) -> None:
    """The sums are joined in one pass over the row; their terms are two values where the zeros differ in sign."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 64))
    a, b = (ig.sum(x / zero, 1) for zero in signs)
    f.output(ig.where(a > b, f.full((4,), 1.0), 0.0))
    ig.schedule.auto(f)
    (found,) = ig.emit(f, target=target).run({"x": np.ones((4, 64), np.float32)}).values()
    np.testing.assert_array_equal(found, np.full(4, larger, np.float32))
