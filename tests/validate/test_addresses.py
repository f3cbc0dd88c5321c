"""The address check: engines, layouts, symbols, sampling, what it counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, reject, settings

import idgraph as ig
from idgraph.ir import Fusion
from idgraph.testing import scheduled_fusions
from idgraph.validate import check_addresses, check_values, random_inputs, validate
from idgraph.validate import index_map_check as addresses
from idgraph.validate.concrete_access import build_case, laid_out, layout_of
from idgraph.validate.engines import address_check_ptx
from idgraph.validate.reference_tables import build_tables
from tests.emit.turns import simulated


def rotation(shape: tuple[int, ...] = (4, 8), **options: Any) -> Fusion:
    """x + cat(x[k:], x[:k]) over the last axis."""
    f = ig.Fusion("rotation")
    x = f.input("x", shape=shape, **options)
    k = shape[-1] // 2
    f.output(x + ig.cat([x[..., k:], x[..., :k]], -1))
    return f


def test_it_counts_access_points() -> None:
    """Two slices of 16 points, cat and add of 32, each read once and written once, cat and add with two reads."""
    r = check_addresses(rotation())
    assert (r.ok, r.accesses, r.points) == (True, 2 * 2 + 3 + 3, 2 * 2 * 16 + 2 * 3 * 32)
    assert r.exhaustive


@settings(max_examples=3)
@given(scheduled_fusions(max_steps=3))
@pytest.mark.slow
def test_compiled_and_numpy_agree(f: Fusion) -> None:
    """The compiled engine sees what NumPy sees."""
    note(str(f))
    m = ig.IdModel(f)
    try:
        m.verify()
    except ig.ScheduleError:
        reject()
    slow, fast = check_addresses(f, model=m, engine="numpy"), check_addresses(f, model=m, engine="numba")
    assert str(slow.mismatch) == str(fast.mismatch)
    assert slow.points == fast.points


LAYOUTS: list[tuple[str, dict[str, Any]]] = [
    ("rows apart", {"strides": (10, 1)}),
    ("columns first", {"strides": (1, 4)}),
    ("one row", {"strides": (0, 1)}),
    ("offset", {"offset": 3}),
    ("free strides", {"contiguity": (False, False)}),
    ("free outer stride", {"contiguity": (False, True)}),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda p: p[0])
def test_layouts_of_inputs(layout: tuple[str, dict[str, Any]]) -> None:
    """Addresses and values with every way an input may lie in memory."""
    f = rotation(**layout[1])
    assert check_addresses(f).ok
    assert check_values(f, "python").ok


@pytest.mark.sampled
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_memory_in_split_and_permuted_axes(engine: str) -> None:
    """set_allocation: another order, and the axes of a split (a table of addresses)."""
    for change in (_columns_first, _tiled):
        f = rotation()
        t = f.outputs[0]
        change(t)
        report = check_addresses(f, engine="numba" if engine == "numba" else "numpy")
        assert report.ok, str(report.mismatch)
        assert check_values(f, "python").ok


def _columns_first(t: ig.Tensor) -> None:
    t.set_allocation([t.logical[1], t.logical[0]])


def _tiled(t: ig.Tensor) -> None:
    t.split(1, 4)
    rows, outer, inner = t.loop
    t.set_allocation([outer, rows, inner])


def test_symbols() -> None:
    """A symbolic extent is checked at the size given, and asks for one."""
    f = ig.Fusion("f")
    n = f.symbol("n", min=2, multiple_of=2)
    x = f.input("x", shape=(3, n))
    f.output(x + ig.cat([x[:, n // 2 :], x[:, : n // 2]], 1))
    report = validate(f, target="python", symbols={"n": 10})
    assert report.ok, str(report)
    assert report.points == 2 * 2 * 15 + 2 * 3 * 30
    with pytest.raises(ig.OperationError, match="symbol n has no value"):
        validate(f, target="python")


def test_a_sample_is_called_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for, or forced by size; the report names the operations and the seed."""
    f = rotation()
    asked = check_addresses(f, exhaustive=False, seed=5)
    assert asked.ok
    assert not asked.exhaustive
    assert any("seed 5" in s for s in asked.sampled)
    monkeypatch.setattr(addresses, "TABLE_BYTES", 100)
    forced = check_addresses(f)
    assert [s.split(":")[0] for s in forced.sampled] == ["cat2", "add3"]  # the slices are small enough
    assert "a sample of the points" in str(validate(f, target="python"))


def test_reductions_and_contractions() -> None:
    """Every reduction index of every element once, with uneven splits of both kinds of loops."""
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(3, 7)), f.input("b", shape=(7, 5))
    t = f.output(ig.matmul(a, b))
    s = f.output(ig.amax(t, (0, 1)))
    t.split(2, 3).split(0, 2)
    s.merge(0).split(0, 4)
    for engine in ("numpy", "numba"):
        report = check_addresses(f, engine="numba" if engine == "numba" else "numpy")
        assert report.ok, str(report.mismatch)


def test_empty_and_size_one() -> None:
    """No element, one element, no axis."""
    for build in _EDGES:
        f = ig.Fusion("f")
        build(f)
        report = validate(f, target="python")
        assert report.ok, str(report)


def _nothing(f: Fusion) -> None:
    x = f.input("x", shape=(0, 4))
    f.output(ig.cat([x, x], 0) + 1.0)
    f.output(ig.sum(x, 0))


def _one(f: Fusion) -> None:
    x = f.input("x", shape=(1, 1))
    f.output(ig.cat([x, ig.neg(x)], 0), ig.sum(x))


def _scalar(f: Fusion) -> None:
    x = f.input("x", shape=())
    f.output(ig.exp(x) + f.full((), 2.0))


_EDGES: list[Callable[[Fusion], None]] = [_nothing, _one, _scalar]


def test_wider_loops_are_named() -> None:
    """A broadcast operand inlined into a wider loop is computed at least once, and the report says so."""
    f = ig.Fusion("f")
    x, row = f.input("x", shape=(3, 4)), f.input("row", shape=(1, 4))
    scaled = row * 2.0
    f.output(x + scaled)
    scaled.inline(2)
    report = check_addresses(f)
    assert report.ok
    assert report.widened == ("mul0",)


def test_random_inputs_keep_indices_in_range() -> None:
    """Each index tensor lies in the axis it points into, through casts and arithmetic free operations too."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(5, 70))
    i = f.input("i", shape=(5, 3), dtype="int32")
    w = f.input("w", shape=(4, 2))
    ids = f.input("ids", shape=(6,), dtype="int64")
    f.output(ig.gather(x, 1, ig.cast(i, "int64")), ig.embedding(ids, w))
    made = random_inputs(f, seed=3)
    assert 10 < made["i"].max() < 70
    assert made["i"].min() >= 0
    assert 0 <= made["ids"].min() <= made["ids"].max() < 4
    again = random_inputs(f, seed=3)
    assert all(np.array_equal(made[n], again[n]) for n in made)


def test_arrays_lie_as_declared() -> None:
    """Strides, offset and stride 0 of random inputs."""
    f = ig.Fusion("f")
    t = f.input("t", shape=(2, 3), strides=(0, 2), offset=1)
    layout = layout_of(t, {})
    assert (layout.strides, layout.offset, layout.size) == ((0, 2), 1, 6)
    view = laid_out(np.arange(6.0, dtype=np.float32).reshape(2, 3), layout)
    assert view.strides == (0, 8)
    assert view[0].tolist() == view[1].tolist()


def test_a_tensor_beyond_memory_is_refused() -> None:
    """One clear error instead of running out of memory."""
    f = ig.Fusion("f")
    f.output(ig.neg(f.input("x", shape=(1 << 20, 1 << 20))))
    with pytest.raises(ig.OperationError, match="more than the 2,147,483,648 that the oracle numbers"):
        check_addresses(f)


def test_engine_is_checked() -> None:
    """An unknown engine is an error."""
    with pytest.raises(ig.EmitError, match="unknown engine"):
        check_addresses(rotation(), engine="abacus")  # type: ignore[arg-type]


_SIMULATED = """
import idgraph as ig
from idgraph.validate import check_addresses
f = ig.Fusion("f")
x = f.input("x", shape=(2, 6))
i = f.input("i", shape=(2, 1), dtype="int64")
t = x + ig.cat([-x[:, 3:], x[:, :3]], 1)
f.output(t, ig.sum(t, 1), ig.gather(x, 1, i))
t.split(1, 4)
a, b = check_addresses(f, engine="cuda"), check_addresses(f, engine="numpy")
assert a.ok and a.points == b.points and a.engine == "cuda", a

class Wrong(ig.IdModel):
    def read(self, e, operand):
        import dataclasses
        a = super().read(e, operand)
        return dataclasses.replace(a, address=a.address + 1) if e.op == "add" else a

a, b = (check_addresses(f, model=Wrong(f), engine=g).mismatch for g in ("cuda", "numpy"))
assert a is not None and str(a) == str(b), (a, b)
print("same")
"""


@pytest.mark.slow
def test_gpu_engine_in_the_simulator() -> None:
    """The GPU engine's kernels, thread by thread, in a process of their own."""
    done = simulated("-c", _SIMULATED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "same"


@pytest.mark.slow
def test_gpu_engine_compiles() -> None:
    """PTX of every kind of access, without a device: reductions, loads, slots, a layout table."""
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(2, 6)), f.input("i", shape=(2, 1), dtype="int64")
    t = x + ig.cat([-x[:, 3:], x[:, :3]], 1)
    f.output(t, ig.sum(t, 1), ig.gather(x, 1, i))
    _tiled(t)
    m = ig.IdModel(f)
    for e in f.exprs[-3:]:
        case = build_case(m, e, {})
        tables = build_tables(case, {"i": np.zeros((2, 1), np.int64)}, {})
        assert ".visible .entry" in address_check_ptx(case, tables)


@pytest.mark.gpu
def test_gpu_engine() -> None:
    """The same on a real device, at a size of its own."""
    f = rotation((64, 4096))
    a, b = check_addresses(f, engine="cuda"), check_addresses(f, engine="numpy")
    assert a.ok
    assert a.points == b.points


def flat(x: ig.Tensor) -> ig.Tensor:
    return ig.flatten(x)


def rolled(x: ig.Tensor) -> ig.Tensor:
    return ig.roll(x, 1, 1)


def softmax(x: ig.Tensor) -> ig.Tensor:
    return ig.softmax(x, 1)


@pytest.mark.parametrize("target", ["python", "numpy"])
@pytest.mark.parametrize("move", [flat, rolled, softmax])
@pytest.mark.parametrize("inlined", [False, True])
def test_symbolic_axis_that_turns_out_empty(move: Callable[[ig.Tensor], ig.Tensor], inlined: bool, target: Any) -> None:
    f = ig.Fusion("f")
    n = f.symbol("n")
    x = f.input("x", shape=(4, n))
    t = f.output(ig.cat([move(x), f.input("y", shape=(4, 3) if move is not flat else (5,))], -1))
    if inlined:
        ig.schedule.like(f, t)
        ig.schedule.inline_most(f)
    for size in (0, 2):
        report = validate(f, target=target, symbols={"n": size})
        assert report.ok, str(report)


def test_inlined_into_an_empty_loop() -> None:
    f = ig.Fusion("f")
    y = ig.copy(f.input("y", shape=(1, 2)))
    f.output(y + f.input("x", shape=(0, 2)))
    y.inline(1)
    report = validate(f, target="numpy")
    assert report.ok, str(report)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("dim", [0, 1])
def test_an_index_without_axes(dim: int, engine: Any) -> None:
    f = Fusion("f")
    x, i = f.input("x", (4, 3)), f.input("i", (), "int64")
    row = f.input("row", (3, 4)[dim : dim + 1])
    at = (i,) if dim == 0 else (None, i)
    f.output(ig.index_put(x, at, row))
    f.output(ig.index_put(x, at, row, accumulate=True) + 1.0)
    f.output(ig.index_get(x, at) * 2.0)
    assert check_addresses(f, engine=engine).ok
    assert ig.validate(f, target="python").ok
