"""Values of a row that a later sweep takes from an earlier one: only those that are equal, at columns that are.

Sweeps as plain statements, as the pass gets them; the widths of rows in registers on whole fusions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import idgraph as ig
from idgraph.arith import TRUE, as_expr, simplify, symbol
from idgraph.kernel.ir import Accumulate, Buffer, Compute, Load, Local, Loop, Provenance, Stmt, VectorLoad, walk
from idgraph.passes.rows.persistent import RowCache, cache_row_values
from idgraph.passes.rows.reduction_fusion import Part
from idgraph.passes.rows.reduction_loop import ReductionLoop

COUNT = 8
C = symbol("c", 0, COUNT - 1)
X = Buffer("buf0", "x", "float32", as_expr(COUNT), "input")
SCALE = Local("m", "float32")
RESCALED = Compute(SCALE, "add", (SCALE, SCALE), "float32")


def sweep(tag: str, columns: int = COUNT, threads: int = 0, condition: ig.Expr = TRUE) -> ReductionLoop:
    """exp(x[c] * m), added up: variables of this sweep are named after ``tag``."""
    x, scaled, made = (Local(f"{n}{tag}", "float32") for n in ("x", "scaled", "made"))
    body = (
        Load(x, X, C, serves=(Provenance(f"t{tag}", 0, (C,)),)),
        Compute(scaled, "mul", (x, SCALE), "float32"),
        Compute(made, "exp", (scaled,), "float32"),
        Accumulate(Local(f"sum{tag}", "float32"), "sum", made),
    )
    way, steps = ("threadIdx.x", threads) if threads else ("serial", columns)
    return ReductionLoop((Loop("c", as_expr(steps), way, body),), C, as_expr(columns), condition, body)


def kept(parts: Sequence[Part], loads: bool = False) -> tuple[RowCache, set[str]]:
    """What the pass makes of the parts, and the variables that are read from arrays which it keeps."""
    found = cache_row_values(parts, frozenset({X.name}), loads, C, as_expr(COUNT))
    bodies: tuple[Stmt, ...] = tuple(s for p in found.parts if isinstance(p, ReductionLoop) for s in p.body)
    names = {b.name for b in found.buffers}
    return found, {s.local.name for s in walk(bodies) if isinstance(s, Load) and s.buffer.name in names}


def purposes(found: RowCache) -> list[set[str]]:
    """The tensors that each load of the parts serves."""
    loads = [s for p in found.parts if isinstance(p, ReductionLoop) for s in p.body if isinstance(s, Load)]
    return [{p.tensor for p in s.serves} for s in loads if s.buffer is X]


@pytest.mark.parametrize("loads", [False, True])
def test_an_equal_value_is_taken(loads: bool) -> None:
    found, taken = kept((sweep("1"), sweep("2")), loads)
    assert taken == {"made2"} and len(found.buffers) == 1


def test_a_variable_of_the_row_that_is_set_between_makes_another_value() -> None:
    """The load is equal, what is computed of it and of the variable is not."""
    assert kept((sweep("1"), RESCALED, sweep("2")))[1] == set()
    assert kept((sweep("1"), RESCALED, sweep("2")), loads=True)[1] == {"x2"}


def test_a_variable_that_an_earlier_sweep_sets_is_another_one_after_it() -> None:
    """The sum of the first sweep is the scale of the second, under the name that both use."""
    sums = replace(sweep("1"), body=(*sweep("1").body[:-1], Accumulate(SCALE, "sum", Local("made1", "float32"))))
    assert kept((sums, sweep("2")))[1] == set()


OTHERS: dict[str, ReductionLoop] = {
    "fewer columns": sweep("2", columns=6),
    "other threads": sweep("2", threads=4),
    "under a condition": sweep("2", condition=symbol("i0", 0, 9) < 5),
}


@pytest.mark.parametrize("name", OTHERS)
def test_sweeps_over_other_columns_keep_nothing_for_each_other(name: str) -> None:
    found, taken = kept((sweep("1"), OTHERS[name]))
    assert not taken and not found.buffers


def test_a_variable_that_is_set_twice_is_no_one_value() -> None:
    one = sweep("2")
    again = replace(one, body=(*one.body, *sweep("2").body[:3], one.body[-1]))
    assert kept((sweep("1"), again))[1] == set()


def test_a_load_serves_what_it_replaces_and_no_more() -> None:
    """The load of a sweep that still reads for itself serves that sweep."""
    found, taken = kept((sweep("1"), RESCALED, sweep("2")), loads=True)
    assert taken == {"x2"} and purposes(found)[0] == {"t1", "t2"}
    cheap = replace(sweep("3"), body=(*sweep("3").body[:2], Accumulate(SCALE, "sum", Local("scaled3", "float32"))))
    found, taken = kept((sweep("1"), sweep("2"), cheap))
    assert taken == {"made2"} and purposes(found) == [{"t1", "t2"}, {"t3"}]


@pytest.mark.parametrize("start", [4, 5])
def test_threads_read_neighbours_where_no_vector_is_aligned(start: int) -> None:
    """Rows that begin at any element have no vector access: each thread takes one column, and then one further on."""
    f = ig.Fusion("f")
    f.output(ig.softmax(f.input("x", shape=(64, 1024 + start))[:, start:], 1))
    ig.schedule.auto(f)
    (k,) = ig.emit(f, target="cuda").kernels
    assert "persistent" in k.rows[0] or "held" in k.rows[0]
    wide = [s for s in walk(k.body) if isinstance(s, VectorLoad) and s.buffer.place == "input"]
    loads = [s for s in walk(k.body) if isinstance(s, Load) and s.buffer.place == "input"]
    assert bool(wide) is (start % 4 == 0) and bool(loads) is not bool(wide)
    for s in loads:
        (thread,) = (x for x in s.address.symbols if x.name == "i2")
        assert simplify(s.address.substitute({thread: thread + 1}) - s.address) == 1


def test_a_quotient_by_a_number_of_the_row_is_held_where_there_is_room() -> None:
    """Three passes over ``x / t`` divide once for each element where a thread has registers for both, and in each pass
    where it has not."""

    def quotients(columns: int) -> int:
        f = ig.Fusion("kl")
        x, t = f.input("x", (512, columns)), f.input("t", (512,))
        a, b = (y - ig.log(ig.sum(ig.exp(y), 1, keepdim=True)) for y in (x / ig.unsqueeze(t, 1), x))
        f.output(ig.sum(ig.exp(a) * (a - b), 1))
        ig.schedule.auto(f, config=ig.schedule.KernelConfig(threads=128, persistent=True))
        found = ig.emit(f, "cuda").kernels[0]
        return sum(s.op == "div_by" for s in walk(found.body) if isinstance(s, Compute))

    few, many = quotients(2048), quotients(6144)
    assert few == 1 < many
