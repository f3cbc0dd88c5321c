"""Lanes as loops: the same memory afterwards for any straight code, and short source for the kernels of real models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.arith import Expr, as_expr, simplify, symbol
from idgraph.kernel.def_use import defs
from idgraph.kernel.ir import (
    Buffer,
    Comment,
    Compute,
    Constant,
    If,
    InitAccumulator,
    Kernel,
    KernelModule,
    Load,
    Local,
    Loop,
    Operand,
    RegisterArray,
    Select,
    Stmt,
    Store,
    VectorLoad,
    VectorStore,
    walk,
)
from idgraph.kernel.ssa import is_single, to_ssa
from idgraph.passes import pipeline as table
from idgraph.passes.lane_loop_fusion import along, is_lanes
from idgraph.runtime import compile_ptx
from tests.property.budget import examples
from tools.bench.gpu import ptx_facts
from tools.programs.class_rows import CLASSES
from tools.programs.gpu_rows import CASES

MOST = 200  # lines of one kernel's source: numba takes about 10 ms for each
SIZE = 16
IN = Buffer("a", "a", "int64", as_expr(SIZE), "input")
OUT = Buffer("b", "b", "int64", as_expr(SIZE), "output")


class Machine:
    """Runs statements over integers; knows nothing of packs."""

    def __init__(self) -> None:
        self.memory = {"a": list(range(3, 3 + SIZE)), "b": [-7 * n for n in range(SIZE)]}
        self.values: dict[object, int] = {}

    def key(self, x: Local, env: dict[str, int]) -> object:
        return x.name if x.at is None else (x.name, int(x.at.evaluate(env)))

    def value(self, o: Operand, env: dict[str, int]) -> int:
        return self.values[self.key(o, env)] if isinstance(o, Local) else int(o.value if isinstance(o, Constant) else 0)

    def run(self, body: Sequence[Stmt], env: dict[str, int]) -> None:
        for s in body:
            self.one(s, env)

    def one(self, s: Stmt, env: dict[str, int]) -> None:
        match s:
            case Comment() | RegisterArray():
                pass
            case Loop(var, extent, body=body):
                for n in range(int(extent)):
                    self.run(body, {**env, var: n})
            case If(condition, body):
                self.run(body if condition.evaluate(env) else (), env)
            case InitAccumulator(name, _, value):
                self.values[name] = int(value)
            case Load(local, buffer, address, guard):
                at = int(address.evaluate(env))
                self.values[self.key(local, env)] = self.memory[buffer.name][at] if guard.evaluate(env) else 0
            case VectorLoad(made, buffer, address):
                for n, x in enumerate(made):
                    self.values[self.key(x, env)] = self.memory[buffer.name][int(address.evaluate(env)) + n]
            case Compute(local, op, (x, *rest)):
                a, b = self.value(x, env), sum(self.value(o, env) for o in rest)
                self.values[self.key(local, env)] = {"add": a + b, "sub": a - b, "cast": a}[op]
            case Select(local, cases, default):
                chosen = next((o for c, o in cases if c.evaluate(env)), default)
                self.values[self.key(local, env)] = self.value(chosen, env)
            case Store(buffer, address, value):
                self.memory[buffer.name][int(address.evaluate(env))] = self.value(value, env)
            case VectorStore(buffer, address, values):
                for n, v in enumerate(values):
                    self.memory[buffer.name][int(address.evaluate(env)) + n] = self.value(v, env)
            case _:
                raise AssertionError(f"{s} is not one of these")


def memory(body: Sequence[Stmt], n: int) -> dict[str, list[int]]:
    machine = Machine()
    machine.run(body, {"n": n})
    return machine.memory


N = symbol("n", 0, 3)
NAMES = [f"x_{k}" for k in range(6)]
FIRST: list[Stmt] = [InitAccumulator(f"{n}{lane}", "int64", 0) for n in NAMES for lane in ("", "_0", "_1", "_2", "_3")]


@st.composite
def simple(draw: st.DrawFn) -> Stmt:
    """One statement over a few variables and two buffers, at places that may meet."""

    def local() -> Local:
        return Local(draw(st.sampled_from(NAMES)), "int64")

    def operand() -> Operand:
        return local() if draw(st.booleans()) else Constant(draw(st.integers(-2, 2)))

    def address() -> Expr:
        return N + draw(st.integers(0, SIZE - 4))

    buffer = draw(st.sampled_from([IN, OUT]))
    match draw(st.integers(0, 7)):
        case 0:
            return Load(local(), buffer, address())
        case 1:
            return Compute(local(), draw(st.sampled_from(["add", "sub"])), (operand(), operand()), "int64")
        case 2:
            return Compute(local(), "cast", (local(),), "int64")
        case 3:
            return Select(local(), ((draw(st.integers(0, 3)) > N, operand()),), operand())
        case 4:
            return Store(OUT, address(), operand())
        case 5:
            return InitAccumulator(local().name, "int64", draw(st.integers(-3, 3)))
        case 6:
            pair = draw(st.permutations(NAMES))[:2]
            return VectorLoad(tuple(Local(n, "int64") for n in pair), buffer, as_expr(4))
        case _:
            return VectorStore(OUT, as_expr(2), (operand(), operand()))


@st.composite
def programs(draw: st.DrawFn) -> list[Stmt]:
    """Straight code: single statements, conditions, and statements of two or four lanes."""
    made: list[Stmt] = []
    for _ in range(draw(st.integers(0, 14))):
        s = draw(simple())
        match draw(st.integers(0, 3)):
            case 0:
                made.append(s)
            case 1:
                made.append(If(draw(st.integers(0, 3)) > N, (s, *draw(st.lists(simple(), max_size=2)))))
            case _:
                made += lanes(s, draw(st.sampled_from([2, 4])))
    return made


def lanes(s: Stmt, count: int) -> list[Stmt]:
    """A statement for each of some lanes: what a pass may roll."""
    made: list[Stmt] = []
    for lane in range(count):

        def moved(o: Any, lane: int = lane) -> Any:
            return replace(o, name=f"{o.name}_{lane}") if isinstance(o, Local) else o

        match s:
            case Load(local, buffer, address, guard):
                made.append(Load(moved(local), buffer, (address + lane) % SIZE, guard))
            case Compute(local, op, given_, compute):
                made.append(Compute(moved(local), op, tuple(map(moved, given_)), compute))
            case Store(buffer, address, value):
                made.append(Store(buffer, (address + lane) % SIZE, moved(value)))
            case _:
                made.append(s)
    return made


LAST = [table.PASSES[n] for n in ("roll", "fuse_lanes", "scalar_replacement")]


def in_kernel(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The rolled form, of a program in which every variable is set first."""
    kernel = Kernel("k", (IN, OUT), ("n",), to_ssa([*FIRST, *body]))
    (made,) = table.run(KernelModule((kernel,), (IN, OUT), {"n": "n"}, {}), LAST).kernels
    return made.body


@given(programs())
@settings(max_examples=examples(300))
def test_rolled_code_leaves_the_same_memory(body: list[Stmt]) -> None:
    given_once = to_ssa([*FIRST, *body])
    assert is_single(given_once)
    found = in_kernel(body)
    for s in walk(found):
        if isinstance(s, (VectorLoad, VectorStore)):  # one access moves neighbouring elements of one array
            given_ = s.locals if isinstance(s, VectorLoad) else s.values
            places = [(x.name, x.at) for x in given_ if isinstance(x, Local) and x.at is not None]
            assert [(places[0][0], simplify(places[0][1] + n)) for n in range(len(given_))] == places
    for n in range(4):
        assert memory(found, n) == memory(given_once, n) == memory([*FIRST, *body], n)


def test_lanes_become_one_loop() -> None:
    body: list[Stmt] = []
    x, y = ([Local(f"{name}_{k}", "int64") for k in range(4)] for name in "xy")
    body += [Load(x[k], IN, N + 2 * k) for k in range(4)]
    body += [Compute(y[k], "add", (x[k], x[3 - k]), "int64") for k in range(4)]
    body += [Store(OUT, N + k, y[k]) for k in range(4)]
    loops = [s for s in walk(in_kernel(body)) if is_lanes(s)]
    assert [len(s.body) for s in loops if "q" in {v for b in s.body for v in _index_names(b)}]
    stores = [s for s in walk(in_kernel(body)) if isinstance(s, Store)]
    assert [str(s.address) for s in stores] == ["n + q"]


def _index_names(s: Stmt) -> set[str]:
    return {n for x in defs(s) if x.at is not None for n in x.at.names}


def test_a_store_stays_between_the_loads_around_it() -> None:
    a, b = Local("x_0", "int64"), Local("x_1", "int64")
    body = [Load(a, OUT, N), Store(OUT, N, Constant(1)), Load(b, OUT, N), Store(OUT, N + 1, a), Store(OUT, N + 2, b)]
    kinds = [type(s) for s in walk(in_kernel(body)) if isinstance(s, (Load, Store))]
    assert kinds[:3] == [Load, Store, Load]


@pytest.mark.parametrize(
    ("indices", "wanted"),
    [
        ([N, N + 3, N + 6], "n + q*3"), ([N * 2, N * 2, N * 2], "n*2"), ([N, N + 3, N + 5], "None"),
        ([(N + 1) // 2, (N + 2) // 2, (N + 3) // 2], "(n + q + 1)//2"), ([N, N * 2, N * 3], "None"),
    ],
)  # fmt: skip
def test_indices_along_a_variable(indices: list[Expr], wanted: str) -> None:
    assert str(along(indices, symbol("q", 0, 2))) == wanted


KERNELS = [*(c.key for c in CASES), *CLASSES]


def program(key: str) -> Any:
    case = next((c for c in CASES if c.key == key), None)
    f = CLASSES[key]() if case is None else case.build(False)
    (ig.schedule.auto if case is None or case.schedule is None else case.schedule)(f)
    return ig.emit(f, target="cuda")


@pytest.mark.sampled
@pytest.mark.parametrize("key", KERNELS)
def test_source_is_short(key: str) -> None:
    made = program(key)
    for kernel in made.kernels:
        lines = [s for s in made.kernel_source(kernel).splitlines() if s.strip() and not s.strip().startswith("#")]
        assert len(lines) <= MOST, "\n".join(lines)


@pytest.mark.sampled
@pytest.mark.parametrize("key", ["rope_sections", "residual_norm", "quantised_rows", "table_norm"])
def test_arrays_of_lanes_are_registers(key: str) -> None:
    pytest.importorskip("numba_cuda")
    made = program(key)
    assert any("local.array" in made.kernel_source(k) for k in made.kernels)
    assert not any(".local" in ptx for ptx in compile_ptx(made))
    assert any(x["global16"] for x in ptx_facts(made))
