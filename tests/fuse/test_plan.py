# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
"""Kernels: which operations share one, and that what shares one is computed right."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given

import idgraph as ig
from idgraph.fuse.explain import count, operations
from idgraph.fuse.plan import ordered_launches
from idgraph.kernel.def_use import stored_in
from idgraph.runtime.program import launches
from idgraph.testing import fusions
from tests.emit.test_lanes import check
from tools.programs.sized_fusions import FUSIONS


def norm() -> ig.Fusion:
    """A row normalisation beside a total of columns, a reshape and a reader in another order."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(24, 64))
    y = x / ig.sum(x * x, 1, keepdim=True)
    f.output(y, ig.sum(x, 0), ig.reshape(ig.relu(x), 12, 128), ig.transpose(x, 0, 1) + 1.0)
    return f


def test_a_plan_tells_kernels_before_and_after() -> None:
    f = norm()
    text = str(f)
    p = ig.fuse.plan(f)
    assert str(f) == text  # nothing was changed
    assert p.before == len(ig.emit(f, target="cuda").kernels)
    made = {name for k in p.kernels for name in k}
    assert {t.name for t in f.outputs} <= made
    p.apply(f)
    check(f)
    assert len(ig.emit(f, target="cuda").kernels) == p.after == len(p.kernels) < p.before
    assert ig.validate(f, target="numpy").ok
    assert '"after"' in p.to_json() and len(p.sheet().rows) == p.after


@given(fusions())
def test_launches_in_one_order_are_those_of_the_lowered_kernels(f: ig.Fusion) -> None:
    ig.schedule.auto(f)
    found = ordered_launches(f)
    assert found is None or found == operations(f, launches(f))


@pytest.mark.sampled
@pytest.mark.parametrize("family", [name for name in FUSIONS if name != "gather"])  # which loads an index
def test_launches_of_a_long_fusion_are_told_without_lowering(family: str) -> None:
    f = FUSIONS[family](120)
    told = ig.fuse.plan(f).kernels  # from the loops that `auto` has proved
    ig.schedule.auto(f)
    assert told == ordered_launches(f) == operations(f, launches(f))


def test_launches_that_do_not_wait_are_lowered() -> None:
    """A normalisation and totals of columns: nothing says before they are lowered that they share a launch."""
    f = norm()
    ig.schedule.auto(f)
    assert ordered_launches(f) is None


def test_a_plan_is_scored_by_the_bytes_of_both_programs() -> None:
    f = norm()
    p = ig.fuse.plan(f)
    told: list[int] = []
    for made in (f, p.scheduled):
        kernels = ig.cost(ig.emit(made, target="cuda")).kernels
        told.append(sum(k.bytes_read + k.bytes_written for k in kernels))
    assert p.moved() == tuple(told) and told[1] < told[0]
    least = 4 * sum(int(np.prod([int(n) for n in t.shape])) for t in (*f.inputs, *f.outputs))
    assert told[1] >= least  # each input is read once and each output written once, at the least
    g = ig.Fusion("open")
    n = g.symbol("n", min=1)
    g.output(ig.exp(g.input("x", shape=(n, 4))) * 2.0)
    assert ig.fuse.plan(g).moved({"n": 10}) == (640, 320)


def test_an_output_is_written_on_the_way_to_its_reader() -> None:
    f = ig.Fusion("f")
    y = ig.relu(f.input("x", shape=(6, 50)))
    f.output(y, ig.le(y, 0.5), ig.reshape(y, 300) * 2.0)
    ig.schedule.auto(f)
    assert len(ig.emit(f, target="cuda").kernels) == 1
    assert ig.validate(f, target="numpy").ok and ig.validate(f, target="cpu").ok


def test_independent_kernels_share_a_launch_whatever_their_threads() -> None:
    f = ig.Fusion("f")
    x, w = f.input("x", shape=(300, 7)), f.input("w", shape=(55, 410))
    f.output(ig.exp(x))
    f.output(ig.sum(w, 1))
    f.output(ig.flip(x, 0))
    ig.schedule.auto(f)
    kernels = ig.emit(f, target="cuda").kernels
    assert len(kernels) == 1
    check(f)
    written = [b.title for k in kernels for b in k.buffers if b.place == "output"]
    assert sorted(written) == sorted(t.name for t in f.outputs)


def test_a_kernel_never_runs_before_what_it_reads() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(9, 130))
    total = ig.sum(x, 0)
    y = ig.flip(x, 0) * total
    f.output(y, ig.sum(y, 0), ig.exp(x), ig.transpose(y, 0, 1) + ig.transpose(x, 0, 1))
    ig.schedule.auto(f)
    check(f)


def test_views_of_opaque_operations_cost_no_kernel() -> None:
    torch: Any = pytest.importorskip("torch")

    def fn(x: Any, w: Any) -> Any:
        y = torch.relu(x)
        return torch.fft.fft(y.transpose(0, 1)).real + 1.0, torch.fft.fft(w.t()).real

    x, w = torch.randn(6, 5), torch.randn(4, 3)
    imp = ig.from_torch(fn, (x, w))
    for got, want in zip(cast(Any, imp.run(x, w)), fn(x, w), strict=True):
        np.testing.assert_allclose(np.asarray(got), want.numpy(), rtol=1e-4, atol=1e-4)
    assert not any(e.op == "permute" for s in imp.segments if s.fusion is not None for e in _needed(s.fusion))


def test_pairs_of_one_launch_are_no_obstacle() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(24, 64))
    f.output(ig.exp(x), ig.transpose(x, 0, 1) + 1.0, ig.sum(x, 0))
    assert len(ig.fuse.obstacles(f)) > 0
    ig.schedule.auto(f)
    kernels = ig.emit(f, target="cuda").kernels
    made = [{t.name for t in f.outputs} & {b.title for b in k.buffers} for k in kernels]
    for o in ig.fuse.obstacles(f):
        assert not any({o.a.output.name, o.b.output.name} <= names for names in made)


def test_more_arrays_than_a_launch_passes_are_told_as_a_limit() -> None:
    f = ig.Fusion("fan")
    x = f.input("x", shape=(64,))
    f.output(*(x * float(n) for n in range(99)))
    ig.schedule.auto(f)
    kernels = ig.emit(f, target="cuda").kernels
    assert len(kernels) == 2
    sizes = [len(k.buffers) - 1 for k in kernels]
    found = ig.fuse.obstacles(f)
    assert {o.cause for o in found} == {"limits"} and len(found) == sizes[0] * sizes[1]
    assert all("at most 96" in o.proof and o.alignment is None and o.bytes_saved == 256 for o in found)


def test_equal_loops_with_a_launch_between_wait() -> None:
    f = ig.Fusion("between")
    x = f.input("x", shape=(64, 32))
    y = f.output(ig.exp(x))
    total = ig.sum(ig.sum(y, 0), 0)
    f.output(x * total)
    ig.schedule.auto(f)
    causes = {(o.a.output.name, o.b.output.name): o for o in ig.fuse.obstacles(f)}
    told = [o for (a, b), o in causes.items() if a == y.name and b == f.outputs[1].name]
    assert [o.cause for o in told] == ["synchronisation"] and "waits for" in told[0].proof


def test_no_two_tensors_of_a_fusion_lie_in_one_buffer() -> None:
    """Why there is no cause "alias": kernels write buffers of one tensor each, and never an input."""
    f = norm()
    g = ig.Fusion("scatter")
    table, rows, at = g.input("t", shape=(9, 4)), g.input("r", shape=(5, 4)), g.input("i", shape=(5, 4), dtype="int64")
    g.output(ig.scatter_add(table, 0, at, rows), table[2:], ig.reshape(table, 36))
    for made in (f, g):
        ig.schedule.auto(made)
        program = ig.emit(made, target="cuda")
        homes = [(b.name, b.title) for b in program.plan.buffers]
        assert len({name for name, _ in homes}) == len({title for _, title in homes}) == len(homes)
        given = {b.name for b in program.plan.buffers if b.place == "input"}
        assert not any(stored_in(k.body) & given for k in program.plan.kernels)


def test_a_reshape_of_what_lies_in_memory_costs_no_kernel() -> None:
    """An argument, or an opaque call's result, is viewed in another shape; a kernel's result is written in it."""
    torch: Any = pytest.importorskip("torch")

    def fn(x: Any, w: Any) -> Any:
        y = x.view(6, 20) @ w
        return y.view(3, 2, 4).view(4, 6) @ torch.exp(y).view(6, 4)

    x, w = torch.randn(3, 40), torch.randn(20, 4)
    imp = ig.from_torch(fn, (x, w)).calling("aten.mm.default")
    for other in (x, x.t().contiguous().t()):  # another layout than the captured one: copied by torch
        np.testing.assert_allclose(np.asarray(imp.run(other, w)), fn(x, w).numpy(), rtol=1e-4, atol=1e-4)
    fusions = [s.fusion for s in imp.segments if s.fusion is not None]
    assert len(fusions) == 1 and {e.op for e in _needed(fusions[0])} == {"exp", "reshape"}


def _needed(f: ig.Fusion) -> list[ig.TensorExpr]:
    wanted = set(f.outputs)
    for e in reversed(f.exprs):
        if e.output in wanted:
            wanted.update(e.inputs)
    return [e for e in f.exprs if e.output in wanted]


def test_launches_of_what_no_step_was_taken_in_are_counted_without_emitting_them() -> None:
    def gathered() -> ig.Fusion:
        f = ig.Fusion("gathered")
        x, i = f.input("x", shape=(8, 12)), f.input("i", shape=(8, 1), dtype="int64")
        f.output(ig.gather(ig.exp(x), 1, i), ig.cumsum(x, 1) + f.iota(12))
        return f

    def scattered() -> ig.Fusion:
        f = ig.Fusion("scattered")
        x, i = f.input("x", shape=(8, 12)), f.input("i", shape=(8, 1), dtype="int64")
        f.output(ig.scatter_add(x * 2.0, 1, i, ig.sum(x, 1, keepdim=True)))
        return f

    def dead() -> ig.Fusion:
        f = ig.Fusion("dead")
        x = f.input("x", shape=(4, 6))
        ig.exp(x)
        f.output(f.full((4, 6), 2.0), f.full((4, 6), 3.0) * x, ig.cat([x, x], dim=1))
        return f

    for make in (norm, gathered, scattered, dead):
        assert count(make()) == len(launches(make())) == ig.fuse.plan(make()).before
    f = norm()
    ig.schedule.auto(f)
    assert count(f) == len(launches(f))


def test_the_steps_of_an_automatic_schedule_say_the_line_of_its_call() -> None:
    f = norm()
    ig.schedule.auto(f)
    lines = {s.line for t in f.tensors for s in t.log if s.line is not None}
    assert len(lines) == 1
    ig.schedule.auto(f)
    assert {s.line for t in f.tensors for s in t.log if s.line is not None} != lines


def test_numbers_are_computed_by_those_that_need_them() -> None:
    """A tensor without axes has no loop: `x * exp(s)` was two kernels."""
    f = ig.Fusion("f")
    x, s, r = f.input("x", shape=(300,)), f.input("s", shape=()), f.input("r", shape=())
    scale = ig.exp(s) * r
    f.output(x * scale, ig.expand(ig.unsqueeze(x, 0), 4, 300) + scale)
    p = ig.fuse.plan(f)
    assert p.after == 1, p.kernels
    assert ig.validate(p.scheduled, target="numpy").ok and ig.validate(p.scheduled, target="python").ok
