"""The address check of the last IR: right kernels pass, and each access that is changed in any way is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import idgraph as ig
from idgraph.errors import IdGraphError
from idgraph.kernel.def_use import map_body
from idgraph.kernel.ir import Accumulate, If, Kernel, Load, Loop, Stmt, Store, VectorAdd, VectorLoad, VectorStore, walk
from idgraph.runtime import Program
from idgraph.runtime.program import Target
from idgraph.schedule import KernelConfig
from idgraph.testing import scheduled_fusions
from idgraph.validate import KernelReport, random_inputs, validate
from idgraph.validate import kernel_check as kernels
from idgraph.validate.index_map_check import index_values
from idgraph.validate.kernel_check import check_kernel_addresses
from idgraph.validate.oracle import bind
from tests.emit.cases import CASES, Case, arrays_of
from tests.emit.row_cases import NORMS, cross_entropy, rows

ACCESS = (Load, Store, VectorLoad, VectorStore, VectorAdd)


def checked(p: Program, arrays: Mapping[str, Any], symbols: Mapping[str, int]) -> KernelReport:
    at = bind(p.fusion, {n: np.shape(a) for n, a in arrays.items()}, symbols)
    return check_kernel_addresses(p, at, index_values(p.fusion, at, arrays, 0))


def report(made: Case, target: Target) -> KernelReport | None:
    """None where the target cannot express the case."""
    try:
        p = ig.emit(made.fusion, target)
    except IdGraphError:
        return None
    return checked(p, arrays_of(made), {**made.symbols, **made.sizes})


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["cuda", "cpu", "python"])
@pytest.mark.parametrize("name", CASES)
def test_every_address_of_every_case(name: str, target: Target) -> None:
    r = report(CASES[name](), target)
    if r is not None:
        assert r.ok and r.exhaustive, (str(r.mismatch), r.untraced)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name",
    [
        "rotation_auto", "gather", "scatter_add", "softmax_row",
        *(pytest.param(n, marks=pytest.mark.nightly) for n in ("matmul_through_tiles", "pairs_float16")),  # long
    ],
)  # fmt: skip
def test_compiled_checks_count_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in CASES:
        pytest.skip(f"no case {name}")
    plain = report(CASES[name](), "cuda")
    monkeypatch.setattr(kernels, "PLAIN", 0)
    compiled = report(CASES[name](), "cuda")
    assert plain is not None and compiled is not None
    assert (plain.engine, compiled.engine) == ("python", "numba")
    assert (plain.ok, plain.points, plain.served) == (compiled.ok, compiled.points, compiled.served)


@given(scheduled_fusions(max_steps=4))
@settings(max_examples=25, deadline=None)
def test_kernels_of_random_fusions(f: ig.Fusion) -> None:
    for target in ("cuda", "cpu"):
        r = report(Case(f, random_inputs(f, 0, {})), target)
        if r is not None:
            assert r.ok and r.exhaustive, (str(r.mismatch), r.untraced)


@pytest.mark.parametrize("way", ["one-hot", "predicate", "recompute"])
@pytest.mark.parametrize("indices", [1, 3])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_indices_that_are_compared(way: str, indices: int, target: Target) -> None:
    """A gather that compares its index with the numbers of the axis loads it all the same."""
    f = ig.Fusion("f")
    x, i = f.input("x", (5, 4)), f.input("i", (indices,), "int64")
    f.output(ig.index_select(ig.exp(x), 0, i))
    ig.schedule.auto(f, gathers=way)  # type: ignore[arg-type] - a name of the table
    r = report(Case(f, random_inputs(f, 0, {})), target)
    assert r is not None
    assert r.ok and r.exhaustive, (str(r.mismatch), r.untraced)


ROWS: dict[str, Callable[[], ig.Fusion]] = {
    "softmax of 1027": lambda: rows(NORMS["softmax"], (3, 1027)),
    "softmax of 20000": lambda: rows(NORMS["softmax"], (3, 20000), "bfloat16"),
    "loss of 9001": lambda: cross_entropy(3, 9001, "mean", True),
    "norm of 4096": lambda: rows(NORMS["layer norm"], (2, 4096)),
    "norm of 1500": lambda: rows(NORMS["layer norm"], (2, 1500)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_every_kind(name: str, target: Target) -> None:
    """In registers, in chunks that begin anywhere, with a running maximum, in blocks of columns and their rest."""
    f = ROWS[name]()
    ig.schedule.auto(f)
    r = report(Case(f, random_inputs(f, 0, {})), target)
    assert r is not None and r.ok and r.exhaustive, r and str(r.mismatch)


@pytest.mark.parametrize("columns", [1027, 1029, 2055])
def test_rows_read_again(columns: int) -> None:
    """Chunks counted from the first aligned element, which each row has elsewhere."""
    again = KernelConfig(persistent=False)
    f = rows(NORMS["softmax"], (5, columns))
    ig.schedule.auto(f, config=again)
    r = report(Case(f, random_inputs(f, 0, {})), "cuda")
    assert r is not None and r.ok and r.exhaustive, r and str(r.mismatch)


# changed kernels ------------------------------------------------------------------------------------------------------


def rope() -> ig.Fusion:
    f = ig.Fusion("rope")
    x, c, s = (f.input(n, shape=(4, 2, 32), dtype="bfloat16") for n in "xcs")
    f.output(x * c + ig.cat([-x[:, :, 16:], x[:, :, :16]], 2) * s)
    return f


def softmax() -> ig.Fusion:
    f = ig.Fusion("softmax")
    f.output(ig.softmax(f.input("x", shape=(2, 1030)), 1))
    return f


def turned() -> ig.Fusion:
    f = ig.Fusion("turned")
    f.output(ig.transpose(f.input("x", shape=(64, 96)), 0, 1))
    return f


def gathered() -> ig.Fusion:
    f = ig.Fusion("gathered")
    x, i = f.input("x", shape=(7, 64)), f.input("i", shape=(12,), dtype="int64")
    f.output(ig.index_select(x, 0, i) * 2.0)
    return f


def added() -> ig.Fusion:
    f = ig.Fusion("added")
    x, i = f.input("x", shape=(7, 64)), f.input("i", shape=(12, 64), dtype="int64")
    f.output(ig.scatter_add(x, 0, i, f.input("s", shape=(12, 64))))
    return f


def loss() -> ig.Fusion:
    return cross_entropy(5, 300, "none", True, "float32")


BUILT: list[Callable[[], ig.Fusion]] = [rope, softmax, turned, gathered, added, loss]


def program(build: Callable[[], ig.Fusion], target: Target) -> tuple[Program, dict[str, Any]]:
    f = build()
    ig.schedule.auto(f)
    return ig.emit(f, target), random_inputs(f, 0, {})


def changes(k: Kernel) -> Iterator[tuple[str, Kernel]]:
    """The kernel with one access moved, taken away, or made where it should not be."""
    seen = [s for s in walk(k.body) if isinstance(s, ACCESS) or (isinstance(s, Accumulate) and s.buffer is not None)]
    for n, s in enumerate(seen[:12]):
        width = len(s.values) if isinstance(s, (VectorStore, VectorAdd)) else 1
        width = len(s.locals) if isinstance(s, VectorLoad) else width
        if s.address is not None:
            yield f"{n} moved: {s}", _with(k, s, (replace(s, address=s.address + width),))
            if s.address != 0:
                yield f"{n} to the first: {s}", _with(k, s, (replace(s, address=s.address * 0),))
        if s.buffer is not None and not s.buffer.name.startswith("kept"):
            yield f"{n} left out: {s}", _with(k, s, ())
    memory = [s for s in seen if s.buffer is not None and s.buffer.name.startswith("buf")]
    for s in walk(k.body):
        if isinstance(s, Loop) and s.extent.is_const and int(s.extent) > 1 and any(x in memory for x in walk(s.body)):
            yield f"one step less: {s.var}", _with(k, s, (replace(s, extent=s.extent - 1),))
        if isinstance(s, If):
            yield f"never: {s.condition}", _with(k, s, ())


def _with(k: Kernel, s: Stmt, other: tuple[Stmt, ...]) -> Kernel:
    """The kernel with ``other`` in the place of one statement, found by identity."""

    def level(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for x in body:
            inner = getattr(x, "body", None)
            made += other if x is s else (replace(x, body=level(inner)) if isinstance(inner, tuple) else x,)  # pyright: ignore
        return tuple(made)

    return replace(k, body=level(k.body))


def test_nothing_changes_by_itself() -> None:
    p, _ = program(rope, "cuda")
    for k in p.kernels:
        assert map_body(k.body, lambda s: s) == k.body


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.parametrize("build", BUILT)
def test_each_changed_access_is_found(build: Callable[[], ig.Fusion], target: Target) -> None:
    p, arrays = program(build, target)
    right = checked(p, arrays, {})
    assert right.ok
    tried = 0
    for n, k in enumerate(p.kernels):
        for what, wrong in changes(k):
            plan = replace(p.plan, kernels=(*p.kernels[:n], wrong, *p.kernels[n + 1 :]))
            r = checked(Program(p.fusion, target, plan), arrays, {})
            # A step that only computes is not an access: the value check finds it.
            assert not r.ok or (r.points == right.points and what.startswith("one step")), what
            tried += not r.ok
    assert tried >= 4


def test_validate_says_what_was_served() -> None:
    f = softmax()
    ig.schedule.auto(f)
    r = validate(f, "cpu")
    assert r.ok and r.kernels is not None
    assert r.kernels.exhaustive and "kernels: ok" in str(r)
    assert r.served["amax0"] == 2 * 1030 and f.outputs[0].definition is not None
    assert r.served[f.outputs[0].definition.name] == 2 * 1030


def test_a_part_is_called_a_part() -> None:
    p, arrays = program(turned, "cpu")
    at = bind(p.fusion, {n: np.shape(a) for n, a in arrays.items()}, {})
    r = check_kernel_addresses(p, at, {}, exhaustive=False)
    assert r.ok and not r.exhaustive and "coverage not checked" in r.sampled[0]
