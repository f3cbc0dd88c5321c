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
    store = node("BufferStore", buffer=y, indices=[i, j], value=load)
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


def load(buffer: Any, *at: Any) -> Any:
    return node("BufferLoad", buffer=buffer, indices=list(at))


def plus(a: Any, b: Any) -> Any:
    return node("Add", a=a, b=b)


def var(name: str) -> Any:
    return node("Var", name=name)


def call(name: str, *args: Any) -> Any:
    return node("Call", op=SimpleNamespace(name=f"tirx.{name}"), args=list(args))


SHIFTED = """fusion "s" {
  x = input(shape=(9,), dtype="float32")
  b = exp(x)
  l = slice(b, dims=(0,), starts=(0,), stops=(8,), steps=(1,))
  r = slice(b, dims=(0,), starts=(1,), stops=(9,), steps=(1,))
  y = add(l, r)
  output y
}"""


@pytest.mark.parametrize("kind", [0, 1])
def test_a_producer_computed_at_its_reader(kind: int) -> None:
    """A tile of b for each tile of y: it needs one element more than the tile; each iteration has its own."""

    def function(halo: int) -> Any:
        x, b, y = (SimpleNamespace(name=n, shape=[number(k)]) for n, k in (("x", 9), ("b", 5), ("y", 8)))
        t4 = node("Mul", a=var("t"), b=number(4))
        exp = call("exp", load(x, plus(t4, var("p"))))
        make = node("BufferStore", buffer=b, indices=[var("p")], value=exp)
        pair = plus(load(b, var("i")), load(b, plus(var("i"), number(1))))
        use = node("BufferStore", buffer=y, indices=[plus(t4, var("i"))], value=pair)
        body = node("SeqStmt", seq=[node("AllocBuffer", buffer=b), loop("p", 4 + halo, make), loop("i", 4, use)])
        outer = loop("t", 2, body)
        outer.kind = kind
        return SimpleNamespace(body=outer)

    r = ig.check.program(neutral(function(1), SHIFTED))
    assert r.ok and r.decided, str(r)
    r = ig.check.program(neutral(function(0), SHIFTED))
    assert r.refuted and "nothing has written before" in str(r)


def summed(rows: int, columns: int, guard: str) -> Any:
    x = SimpleNamespace(name="x", shape=[number(rows), number(columns)])
    y = SimpleNamespace(name="y", shape=[number(rows)])
    i, k = var("i"), var("k")
    start = node("BufferStore", buffer=y, indices=[i], value=node("FloatImm", value=0.0))
    first = node("IfThenElse", condition=node(guard, a=k, b=number(0)), then_case=start, else_case=None)
    step = node("BufferStore", buffer=y, indices=[i], value=plus(load(y, i), load(x, i, k)))
    return SimpleNamespace(body=loop("i", rows, loop("k", columns, node("SeqStmt", seq=[first, step]))))


@pytest.mark.parametrize("size", [(6, 8), (3000, 4000)])
def test_a_sum_with_its_start(size: tuple[int, int]) -> None:
    program = TOTAL.replace("(6, 8)", str(size))
    r = ig.check.program(neutral(summed(*size, "EQ"), program))
    assert r.ok and r.decided, str(r)
    wrong = ig.check.program(neutral(summed(*size, "GE"), program))  # it starts again at each step
    assert wrong.refuted if size == (6, 8) else not wrong.decided


def stored(value: Any, operation: str, index: Any = None) -> ig.check.CheckReport:
    y = SimpleNamespace(name="y", shape=[number(8)])
    at = var("i") if index is None else index
    body = loop("i", 8, node("BufferStore", buffer=y, indices=[at], value=value))
    text = f'fusion "f" {{\n  x = input(shape=(8,), dtype="float32")\n  y = {operation}\n  output y\n}}'
    return ig.check.program(neutral(SimpleNamespace(body=body), text))


def cast(value: Any, kind: str) -> Any:
    return node("Cast", value=value, dtype=kind)


X = SimpleNamespace(name="x", shape=[number(8)])
HALF = cast(cast(load(X, var("i")), "float16"), "float32")
RELU = node("Select", condition=node("GT", a=load(X, var("i")), b=node("FloatImm", value=0.0)),
            true_value=load(X, var("i")), false_value=node("FloatImm", value=0.0))  # fmt: skip


def test_a_choice_of_loaded_values_and_casts() -> None:
    assert stored(RELU, "relu(x)").decided and stored(RELU, "copy(x)").refuted
    assert stored(load(X, var("i")), "copy(x)").decided
    r = stored(HALF, "copy(x)")
    assert not r.decided and not r.refuted and "not known" in str(r), str(r)
    assert not stored(call("popcount", load(X, var("i"))), "exp(x)").decided
    with pytest.raises(ig.check.CheckError, match="Cast"):
        stored(load(X, var("i")), "copy(x)", cast(var("i"), "int8"))
    assert stored(load(X, var("i")), "copy(x)", cast(var("i"), "int64")).decided


@pytest.mark.parametrize("more", [0, 1])
def test_a_position_in_a_value(more: int) -> None:
    value = node("Mul", a=load(X, var("i")), b=cast(plus(var("i"), number(more)), "float32"))
    meant = "mul(x, p)\n  output y\n}"
    made = '  i = iota(n=8, start=0, step=1, dtype="int64")\n  p = cast(i, dtype="float32")\n  y = '
    y = SimpleNamespace(name="y", shape=[number(8)])
    body = loop("i", 8, node("BufferStore", buffer=y, indices=[var("i")], value=value))
    text = f'fusion "f" {{\n  x = input(shape=(8,), dtype="float32")\n{made}{meant}'
    r = ig.check.program(neutral(SimpleNamespace(body=body), text))
    assert r.decided == r.ok == (not r.refuted) == (more == 0), str(r)


def test_what_is_no_function_of_tvm_is_an_error() -> None:
    for bad in (None, "main", 3, SimpleNamespace(body=node("While"))):
        with pytest.raises(ig.check.CheckError, match="TVM"):
            ig.check.tvm(bad, MOVED)


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
    r = ig.check.tvm(s.mod["main"], MOVED)
    assert r.ok and r.decided, str(r)
    assert str(ig.check.tvm(s.mod, ig.parse(MOVED))) == str(r)
    wrong = MOVED.replace("y = permute(x, dims=(1, 0))", "z = permute(x, dims=(1, 0))\n  y = flip(z, dims=(0,))")
    assert ig.check.tvm(s.mod["main"], wrong).refuted
    x, k = te.placeholder((6, 8), name="x"), te.reduce_axis((0, 8), name="k")
    total = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="y")  # pyright: ignore[reportUnknownLambdaType]
    s = tir.Schedule(tvm.IRModule({"main": te.create_prim_func([x, total])}))
    loops = s.get_loops(s.get_sblock("y"))
    s.split(loops[0], [None, 4])
    s.split(loops[1], [2, 4])
    r = ig.check.program(exported(s.mod["main"], TOTAL))
    assert r.ok and r.decided, str(r)


def test_shared_loops_of_tvm() -> None:
    """A producer computed at its reader, a sum in two stages, and lengths that a split does not divide."""
    tvm: Any = pytest.importorskip("tvm", reason="apache-tvm is not installed (extra tvm)")
    te: Any = pytest.importorskip("tvm.te")
    tir: Any = pytest.importorskip("tvm.s_tir")
    x = te.placeholder((9,), name="x")
    b = te.compute((9,), lambda i: te.exp(x[i]), name="b")  # pyright: ignore[reportUnknownLambdaType]
    y = te.compute((8,), lambda i: b[i] + b[i + 1], name="y")  # pyright: ignore[reportUnknownLambdaType]
    s = tir.Schedule(tvm.IRModule({"main": te.create_prim_func([x, y])}))
    outer, _ = s.split(s.get_loops(s.get_sblock("y"))[0], [None, 3])
    s.compute_at(s.get_sblock("b"), outer)
    data: Any = exported(s.mod["main"], SHIFTED)
    r = ig.check.program(data)
    assert r.ok and r.decided, str(r)
    data["body"][0]["body"][0]["for"][1] = 3  # without its halo
    assert ig.check.program(data).refuted
    x, k = te.placeholder((6, 8), name="x"), te.reduce_axis((0, 8), name="k")
    total = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="y")  # pyright: ignore[reportUnknownLambdaType]
    s = tir.Schedule(tvm.IRModule({"main": te.create_prim_func([x, total])}))
    _, inner = s.split(s.get_loops(s.get_sblock("y"))[1], [None, 3])
    s.rfactor(inner, 0)
    r = ig.check.program(exported(s.mod["main"], TOTAL))
    assert r.ok and r.decided, str(r)


def test_a_step_of_tvm_in_parallel_iterations_is_a_race() -> None:
    def parallel(body: Any) -> Any:
        body.body.kind = 1
        return body

    made = summed(6, 8, "EQ")
    parallel(made.body)
    assert ig.check.program(neutral(made, TOTAL)).refuted


def test_what_a_store_of_tvm_computes() -> None:
    assert ig.check.program(neutral(summed(6, 8, "EQ"), TOTAL.replace("sum", "amax"))).refuted


def test_an_allocation_of_tvm_ends() -> None:
    x, t, y = (SimpleNamespace(name=n, shape=[number(k)]) for n, k in (("x", 4), ("t", 4), ("y", 4)))

    def function(size: int) -> Any:
        t.shape = [number(size)]
        make = node("BufferStore", buffer=t, indices=[var("i")], value=load(x, var("i")))
        use = node("BufferStore", buffer=y, indices=[var("j")], value=load(t, var("j")))
        return SimpleNamespace(
            body=node("SeqStmt", seq=[node("AllocBuffer", buffer=t), loop("i", 4, make), loop("j", 4, use)])
        )

    text = 'fusion "t" {\n  x = input(shape=(4,), dtype="float32")\n  y = copy(x)\n  output y\n}'
    assert ig.check.program(neutral(function(4), text)).ok
    assert ig.check.program(neutral(function(3), text)).refuted
