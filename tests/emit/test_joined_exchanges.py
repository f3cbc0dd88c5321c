"""Kernels that share a launch, and what their threads exchange: the printed source, interpreted thread by thread."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.errors import EmitError
from idgraph.ir import DType, is_float
from idgraph.kernel.def_use import map_body
from idgraph.kernel.ir import Accumulate, Comment, KernelModule, Load, Loop, Stmt, walk
from idgraph.passes import pipeline as table
from idgraph.passes.kernel_fusion import threads_meet
from idgraph.runtime.program import stages
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import compare, rounding_error
from tests.emit.cuda_interpreter import Fault, interpret

Make = Callable[[], ig.Fusion]


def wrong(f: ig.Fusion, seed: int = 0, text: Callable[[str], str] = lambda source: source) -> str:
    """What the interpreted program of ``f`` under `auto` gives that its definition does not; empty where nothing."""
    inputs: dict[str, Any] = random_inputs(f, seed)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        want, exact = evaluate(f, inputs, {}), evaluate(f, inputs, {}, rounded=False)
        ig.schedule.auto(f)
        got = interpret(ig.emit(f, "cuda"), inputs, seed, text)
    for t in f.outputs:
        slack = rounding_error(want[t.name], exact[t.name]) if is_float(t.dtype) else 0.0
        if (found := compare(t.name, t.dtype, got[t.name], want[t.name], slack)).mismatch is not None:
            return str(found.mismatch)
    return ""


def side_by_side(op: str, other: str, dtype: DType = "float32", columns: int = 600) -> ig.Fusion:
    """A scan of rows, and another operation on the same rows that needs nothing of it."""
    f = ig.Fusion("both")
    x = f.input("x", (3, columns), dtype)
    f.output(getattr(ig, op)(x, 1))
    match other:
        case "gather":
            f.output(ig.gather(x, 1, f.input("i", (3, 7), "int64")))
        case "scatter_add":
            f.output(ig.scatter_add(x, 1, f.input("i", (3, 7), "int64"), f.input("s", (3, 7), dtype)))
        case "layer_norm":
            f.output(x - ig.mean(x, 1, keepdim=True))
        case "pointwise":
            f.output(ig.abs(f.input("y", (900,), dtype)))
        case _:
            f.output(getattr(ig, other)(x, 1))
    return f


OTHERS = ("softmax", "sum", "amax", "layer_norm", "gather", "scatter_add", "pointwise", "cummax")


@pytest.mark.parametrize("other", OTHERS)
def test_a_scan_keeps_its_threads_beside_others(other: str) -> None:
    assert wrong(side_by_side("cumsum", other)) == ""


@pytest.mark.parametrize("op", ["cummax", "cummin", "cumprod", "logcumsumexp"])
def test_every_scan_keeps_its_threads(op: str) -> None:
    assert wrong(side_by_side(op, "softmax", columns=300)) == ""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int64"])
def test_scans_of_every_type_keep_their_threads(dtype: DType) -> None:
    assert wrong(side_by_side("cumsum", "amax", dtype, 300)) == ""


def test_a_scan_and_what_follows_it_share_no_block_with_others() -> None:
    f = ig.Fusion("after")
    x = f.input("x", (4, 130))
    f.output(ig.cumsum(x, 1) * 2.0, ig.flip(x, (0,)), ig.sum(x, 0), ig.softmax(x, 1))
    assert wrong(f) == ""


@pytest.mark.parametrize("sizes", [(300, 1000, 70), (5000, 64, 129), (33, 2049)])
def test_nests_without_exchanges_on_the_blocks_of_others(sizes: tuple[int, ...]) -> None:
    f = ig.Fusion("sizes")
    for n, size in enumerate(sizes):
        f.output(ig.neg(f.input(f"x{n}", (size,))))
    rows = f.input("rows", (3, 700))
    f.output(ig.softmax(rows, 1), ig.amax(rows, 0))
    assert wrong(f) == ""


def test_nests_that_need_each_other_are_not_joined() -> None:
    f = ig.Fusion("chain")
    x = f.input("x", (4, 300))
    total = ig.sum(x, 0)
    f.output(ig.cumsum(total, 0), ig.flip(ig.cumsum(x, 1), (0,)), ig.neg(ig.cummax(total, 0)))
    assert wrong(f) == ""


def test_a_running_value_on_threads_is_an_exchange() -> None:
    f = side_by_side("cumsum", "sum")
    ig.schedule.auto(f)
    lowered = next(plan for name, plan in stages(f, "cuda") if name == "lower")
    scans = [k for k in lowered.kernels if any(isinstance(s, Accumulate) and s.along for s in walk(k.body))]
    assert scans
    assert all(threads_meet(k.body) for k in scans)


# reach ---------------------------------------------------------------------------------------------------------------


def embeddings() -> ig.Fusion:
    f = ig.Fusion("embeddings")
    ids, pos = f.input("ids", (4, 32), "int64"), f.input("pos", (1, 32), "int64")
    w, p = f.input("w", (7, 8)), f.input("p", (32, 8))

    def positive(i: ig.Tensor, n: int) -> ig.Tensor:
        return ig.where(i < 0, i + n, i)

    f.output(ig.sum(ig.embedding(positive(ids, 7), w) + ig.embedding(positive(pos, 32), p), 2))
    return f


def routed() -> ig.Fusion:
    """Rows scaled by a permuted weight, put back: an index made of what another one loads."""
    f = ig.Fusion("routed")
    x, w = f.input("x", (4, 4)), f.input("w", (4,))
    perm, inv = f.input("perm", (4,), "int64"), f.input("inv", (4,), "int64")
    scaled = x * ig.unsqueeze(ig.index_select(w, 0, ig.where(perm < 0, perm + 4, perm)), 1)
    f.output(ig.sum(ig.index_select(scaled, 0, ig.where(inv < 0, inv + 4, inv)), 0))
    return f


def rotated() -> ig.Fusion:
    """A rotation written to the slots of a cache."""
    f = ig.Fusion("rotated")
    cache, slots = f.input("cache", (16, 2, 8)), f.input("slots", (6,), "int64")
    k, cos, sin = f.input("k", (6, 2, 8)), f.input("cos", (6, 1, 8)), f.input("sin", (6, 1, 8))
    turned = ig.cat([ig.neg(k[:, :, 4:]), k[:, :, :4]], 2)
    f.output(ig.index_put(cache, (ig.where(slots < 0, slots + 16, slots),), k * cos + turned * sin))
    return f


def stacked(count: int) -> ig.Fusion:
    """Fields of packed words, side by side in memory."""
    f = ig.Fusion("stacked")
    x = f.input("x", (4, 32), "int32")
    fields = [ig.cast(ig.bitwise_and(ig.floor_divide(x, 1 << (3 * n)), 7), "int8") for n in range(count)]
    f.output(ig.reshape(ig.cat([ig.unsqueeze(t, 2) for t in fields], 2), 4, 32 * count))
    return f


def factored(rows: int = 40, columns: int = 48) -> ig.Fusion:
    """Second moments by rows and columns, and what is scaled by both."""
    f = ig.Fusion("factored")
    g = f.input("g", (rows, columns))
    r, c = ig.mean(g * g, 1), ig.mean(g * g, 0)
    by_rows = ig.unsqueeze(ig.rsqrt(r / ig.mean(r, 0)), 1)
    f.output(g * by_rows * ig.unsqueeze(ig.rsqrt(c), 0))
    return f


def from_torch(function: Callable[..., Any], *shapes: tuple[int, ...]) -> ig.Fusion:
    """What a torch function computes of arrays of these shapes; those called index hold small integers."""
    torch = pytest.importorskip("torch")
    names = function.__code__.co_varnames[: len(shapes)]
    given = [
        torch.zeros(s, dtype=torch.int64) if n.startswith("index") else torch.zeros(s)
        for n, s in zip(names, shapes, strict=True)
    ]
    return ig.from_torch(function, given).fusion


def torch_embeddings() -> ig.Fusion:
    def both(w: Any, p: Any, index: Any, index2: Any) -> Any:
        return (w[index] + p[index2]).sum(-1)

    return from_torch(both, (7, 8), (128, 8), (4, 128), (1, 128))


def torch_routed() -> ig.Fusion:
    def routed_rows(x: Any, w: Any, index: Any, index2: Any) -> Any:
        return (x * w[index][:, None])[index2].sum(0)

    return from_torch(routed_rows, (4, 4), (4,), (4,), (4,))


REACH: dict[str, Make] = {
    "torch embeddings": torch_embeddings, "torch routed": torch_routed,
    "embeddings": embeddings, "routed": routed, "rotated": rotated, "factored": factored,
    **{f"stacked_{n}": (lambda n=n: stacked(n)) for n in (3, 5, 6, 7)},
}  # fmt: skip


@pytest.mark.parametrize("sizes", [(1024, 4096), (4096, 4096), (1024, 32768)])
def test_a_block_has_at_most_the_threads_of_a_device(sizes: tuple[int, int]) -> None:
    f = factored(*sizes)
    ig.schedule.auto(f)
    for kernel in ig.emit(f, "cuda").kernels:
        assert prod(int(n) for d, (n, *_) in kernel.launch.items() if d.startswith("thread")) <= 1024


@pytest.mark.parametrize("name", REACH)
def test_what_is_printed_defines_what_it_uses(name: str) -> None:
    assert wrong(REACH[name]()) == ""


@pytest.mark.parametrize("name", REACH)
def test_kernels_are_well_formed_after_every_pass(name: str) -> None:
    f = REACH[name]()
    ig.schedule.auto(f)
    for _, plan in stages(f, "cuda"):
        for k in plan.kernels:
            k.check_structure()


LATE = """
kernel k():
  buffer x: float32[8] input "x"
  buffer y: float32[8] output "y"
  launch blockIdx.x: 8
  for i < 8, blockIdx.x:
    if {set}:
      t: float32 = x[i]
    if {read}:
      y[i] = t
"""


def test_a_value_is_set_where_periods_say_so() -> None:
    ig.kernel.parse(LATE.format(set="(i + 1)%4 == 2", read="i%4 == 1")).check_structure()


def test_a_value_is_not_set_where_a_point_says_so() -> None:
    with pytest.raises(EmitError, match=r"t is set under a condition that does not hold .*; not for i = 1"):
        ig.kernel.parse(LATE.format(set="(i + 1)%4 == 3", read="i%4 == 1")).check_structure()


def test_a_running_value_needs_the_loop_that_it_runs_along() -> None:
    text = """
kernel k():
  buffer x: float32[8] input "x"
  buffer y: float32[8] output "y"
  acc a: float32 = 0
  for i < 8:
    v: float32 = x[i]
    a <- sum v, now s: float32, along {loop}
    y[i] = s
"""
    ig.kernel.parse(text.format(loop="i")).check_structure()
    with pytest.raises(EmitError, match="a runs along t, and no loop around it does"):
        ig.kernel.parse(text.format(loop="t")).check_structure()


ONE = """
kernel k():
  buffer x: float32[2] input "x"
  buffer y: float32[1] output "y"
  launch threadIdx.x: 32
  acc a: float32 = 0
  acc b: float32 = 0
  b <- sum over threadIdx.x
  for i < 2:
    v: float32 = x[i]
    for t < 32, threadIdx.x:
      if t < {adds}:
        a <- sum v
  for t < 32, threadIdx.x:
    if t < {writes}:
      y[0] = a
"""


def test_thread_sums_of_one_thread_are_whole() -> None:
    ig.kernel.parse(ONE.format(adds=1, writes=1)).check_structure()


@pytest.mark.parametrize(("adds", "writes"), [(2, 1), (32, 1), (1, 2), (4, 4)])
def test_thread_sums_of_several_threads_are_parts(adds: int, writes: int) -> None:
    with pytest.raises(EmitError, match=r"a is made of a value that one thread of threadIdx\.x holds"):
        ig.kernel.parse(ONE.format(adds=adds, writes=writes)).check_structure()


def test_emit_refuses_what_no_definition_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ig.Fusion("f")
    f.output(ig.exp(f.input("x", (8,))))
    run = table.run

    def broken(plan: KernelModule, passes: Any) -> KernelModule:
        """The loads are lost."""
        made = run(plan, passes)
        return replace(made, kernels=tuple(replace(k, body=map_body(k.body, lost)) for k in made.kernels))

    def lost(s: Stmt) -> Stmt:
        return Comment("lost") if isinstance(s, Load) else s

    monkeypatch.setattr(table, "run", broken)
    with pytest.raises(EmitError, match="is read before any statement sets it"):
        ig.emit(f, "python")


# the interpreter itself ----------------------------------------------------------------------------------------------


def shared_rows() -> ig.Fusion:
    f = ig.Fusion("shared")
    t = ig.exp(f.input("x", (2, 64)), name="t")
    u = f.output(ig.flip(t, (1,)))
    for v in (t, u):
        v.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    t.inline(1).set_memory("shared")
    return f


def interpreted(f: ig.Fusion, text: Callable[[str], str] = lambda source: source) -> dict[str, Any]:
    return interpret(ig.emit(f, "cuda"), random_inputs(f, 0), 0, text)


def summed() -> ig.Fusion:
    f = ig.Fusion("summed")
    f.output(ig.sum(f.input("x", (2, 64)), 1))
    ig.schedule.auto(f)
    return f


CHANGES: dict[str, tuple[Make, str, str, str]] = {
    "no barrier": (shared_rows, "cuda.syncthreads()", "pass", "without a barrier between|before anybody wrote"),
    "some threads wait": (
        shared_rows,
        "cuda.syncthreads()",
        "(None if cuda.threadIdx.x == 63 and cuda.blockIdx.x else cuda.syncthreads())",
        "threads of a block wait at|before anybody wrote",
    ),
    "every block the first": (shared_rows, "u32(cuda.blockIdx.x)", "u32(0)", "without a barrier between"),
    "a name": (shared_rows, "t2_1 = t1_2", "t2_1 = lost", "name 'lost' is not defined"),
    "outside": (shared_rows, "cuda.shared.array(64", "cuda.shared.array(63", "is outside of its 63 elements"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_faults_of_the_source_are_seen(name: str) -> None:
    make, old, new, what = CHANGES[name]
    interpreted(make())
    assert old in ig.emit(make(), "cuda").source
    with pytest.raises(Fault, match=what):
        interpreted(make(), lambda source: source.replace(old, new))


def test_an_exchange_over_other_threads_is_seen() -> None:
    f = side_by_side("cumsum", "pointwise")
    ig.schedule.auto(f)
    with pytest.raises(Fault, match="threads of a block that has"):
        interpreted(f, lambda source: source.replace(", 128)", ", 64)"))


def test_the_order_of_threads_is_the_seed() -> None:
    f = shared_rows()
    p, inputs = ig.emit(f, "cuda"), random_inputs(f, 0)
    first, second = (interpret(p, inputs, seed)[f.outputs[0].name] for seed in (0, 1))
    assert np.array_equal(first, second)


def test_loops_of_a_joined_scan_are_those_it_had() -> None:
    f = side_by_side("cumsum", "softmax")
    ig.schedule.auto(f)
    for kernel in ig.emit(f, "cuda").kernels:
        for s in walk(kernel.body):
            if isinstance(s, Loop) and s.parallel == "threadIdx.x":
                assert int(s.extent) == int(kernel.launch["threadIdx.x"][0])


SCANNED = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")


@pytest.mark.parametrize("columns", [70, 600])
@pytest.mark.parametrize(("one", "other"), [(a, b) for n, a in enumerate(SCANNED) for b in SCANNED[n + 1 :]])
def test_two_scans_of_one_row_are_one_kernel(one: str, other: str, columns: int) -> None:
    f = ig.Fusion("scans")
    x = f.input("x", (3, columns))
    f.output(getattr(ig, one)(x, 1), ig.neg(getattr(ig, other)(x * 2.0, 1)))
    assert not wrong(f)
    assert len(ig.emit(f, "cuda").kernels) == 1


@pytest.mark.parametrize("dtype", ["int8", "int16", "float16", "bfloat16"])
@pytest.mark.parametrize("ops", [("cumsum", "cummax"), ("cummin", "cumsum")])
def test_scans_of_results_of_other_sizes_share_a_launch_in_any_order(dtype: DType, ops: tuple[str, str]) -> None:
    f = ig.Fusion("f")
    x = f.input("x", (3, 300), dtype)
    f.output(*(getattr(ig, op)(x, 1) for op in ops))
    assert wrong(f) == ""
    assert len(ig.emit(f, "cuda").kernels) == 1
