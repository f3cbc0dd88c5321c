"""What the rules of the targets decide for rows lies in the schedule, and is what the kernels would decide."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import takewhile
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings

import idgraph as ig
from idgraph.arith import TRUE, Expr, simplify, symbol
from idgraph.ir import DType
from idgraph.ir.clone import clone_fusion
from idgraph.ir.op_builders import REDUCTIONS
from idgraph.ir.schedule_log import KernelHints
from idgraph.kernel.def_use import index_exprs
from idgraph.kernel.ir import Accumulate, Alloc, BoundsCheck, Comment, If, Kernel, Load, Loop, Stmt, Store, walk
from idgraph.runtime.program import stages
from idgraph.schedule import KernelConfig
from idgraph.schedule.reduction_persistence import CONDITIONS, DIGITS, NO_VALUE
from idgraph.testing import fusions
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from tests.emit.row_cases import NORMS, cross_entropy, rows, safe_logsumexp, weighted_norm
from tests.emit.thread_runner import run_threads
from tests.property.budget import examples

TARGETS = ("cuda", "cpu")


def softmax(shape: tuple[int, int] = (8, 96)) -> ig.Fusion:
    return rows(lambda x: ig.softmax(x, 1), shape)


def groups(x: ig.Tensor) -> ig.Tensor:
    """Rows of 32 columns of a longer one, each divided by its largest."""
    parts = ig.reshape(x, (8, 3, 32))
    return ig.reshape(parts / ig.amax(ig.abs(parts), 2, keepdim=True), (8, 96))


def causal(x: ig.Tensor) -> ig.Tensor:
    at = ig.unsqueeze(x.fusion.iota(x.shape[1]), 0)
    return ig.softmax(ig.where(at > 40, float("-inf"), x), 1)


BUILDS: dict[str, Callable[[], ig.Fusion]] = {
    **{
        f"{name} {dtype} {shape}": lambda name=name, shape=shape, dtype=dtype: rows(NORMS[name], shape, dtype)
        for name in NORMS
        for dtype, shape in (("float32", (33, 7)), ("float32", (64, 65536)), ("bfloat16", (4096, 4096)))
    },
    "loss": lambda: cross_entropy(256, 4096, "mean", gradient=False),
    "loss and gradient": lambda: cross_entropy(256, 4096, "mean", gradient=True),
    "gradient of rows": lambda: cross_entropy(256, 32000, "none", gradient=True),
    "weighted": lambda: weighted_norm((64, 1024), "float16"),
    "safe": lambda: rows(safe_logsumexp, (64, 1024)),
    "groups": lambda: rows(groups, (8, 96)),
    "causal": lambda: rows(causal, (8, 96)),
    "side by side": lambda: rows(lambda x: ig.softmax(x, 0), (96, 64)),
    "other terms": lambda: rows(lambda x: ig.sum(ig.exp(x * 0.5 - ig.amax(x, 1, keepdim=True)), 1), (64, 1024)),
    "two sums": lambda: rows(lambda x: ig.sum(x, 1) + ig.amax(x, 1), (64, 96)),
}


def sources(f: ig.Fusion, target: Any) -> list[str]:
    program = ig.emit(f, target)
    return [program.kernel_source(k) for k in program.kernels]


DECIDED = {  # as measured on an H200, and as a kernel's own rule decided by its statements before the schedule did
    "softmax float32 (33, 7)": ("held", "held 256"),
    "softmax float32 (64, 65536)": ("online 32", "held 256"),
    "softmax bfloat16 (4096, 4096)": ("held", "held 256"),
    "log_softmax float32 (33, 7)": ("held", "again 256"),
    "log_softmax float32 (64, 65536)": ("online 32", "again 256"),
    "log_softmax bfloat16 (4096, 4096)": ("held", "again 256"),
    "layer norm float32 (33, 7)": ("held", "again 256"),
    "layer norm float32 (64, 65536)": ("again 32", "again 256"),
    "layer norm bfloat16 (4096, 4096)": ("held", "again 256"),
    "rms norm float32 (33, 7)": ("held", "again 256"),
    "rms norm float32 (64, 65536)": ("again 32", "again 256"),
    "rms norm bfloat16 (4096, 4096)": ("held", "again 256"),
    "loss": ("online 16, again 16", "again 256"),
    "loss and gradient": ("held, again 16", "held 256, again 256"),
    "gradient of rows": ("online 32", "held 256"),
    "weighted": ("held", "again 256"),
    "safe": ("online 16", "again 256"),
    "groups": ("held", "again 256"),
    "causal": ("held", "held 256"),
    "side by side": ("held", "held 256"),
    "other terms": ("held", "again 256"),
    "two sums": ("again 16", "again 256"),
}


def words(c: KernelHints) -> str:
    """A decision in words: held, online, or read again; and the elements under way."""
    how = "held" if c.persistent else "online" if c.online else "again"
    return how if c.items_per_thread is None else f"{how} {c.items_per_thread}"


def forget_rules(f: ig.Fusion) -> None:
    """From now on no rule says anything."""
    for t in f.tensors:
        t.forget("by_rule")
        t.ruled = {}


@pytest.mark.parametrize("name", BUILDS)
def test_decisions(name: str) -> None:
    f = BUILDS[name]()
    ig.schedule.auto(f)
    for target, wanted in zip(TARGETS, DECIDED[name], strict=True):
        assert ", ".join(dict.fromkeys(words(t.ruled[target]) for t in f.tensors if t.ruled)) == wanted


@pytest.mark.parametrize(
    ("shape", "dtype", "wanted", "how"),
    [
        ((21, 65536), "float32", (1, 128), "held"),  # threads of a row, rows of a block
        ((100, 65536), "float32", (4, 32), "held"),
        ((1024, 65536), "float32", (32, 32), "held"),
        ((2048, 65536), "float32", (64, 16), "held"),  # 1024 threads: fewer rows, of 64 bytes
        ((4096, 65536), "float32", (128, 8), "held"),
        ((8192, 65536), "float32", (8, 32), "online 8"),  # no block holds it
        ((2048, 65536), "bfloat16", (16, 16), "online 4"),  # 16 rows of 16 bits would be half of what memory gives
        ((512, 512), "float32", (32, 8), "held"),  # few rows: smaller blocks, for more processors
    ],
)
def test_rows_side_by_side_that_are_written_are_held(
    shape: tuple[int, int], dtype: DType, wanted: tuple[int, int], how: str
) -> None:
    f = rows(lambda x: ig.cast(ig.softmax(ig.cast(x, "float32"), 0), dtype), shape, dtype)
    (said,) = ig.schedule.auto(f).rows
    assert (said.threads, said.together) == wanted
    assert {words(t.ruled["cuda"]) for t in f.tensors if t.ruled} == {how}


@pytest.mark.parametrize(("columns", "threads"), [(4096, 128), (5120, 128), (6144, 256)])
def test_half_of_the_threads_where_fewer_of_them_are_idle(columns: int, threads: int) -> None:
    f = rows(lambda x: ig.cast(ig.softmax(ig.cast(x, "float32"), 1), "bfloat16"), (4096, columns), "bfloat16")
    assert [r.threads for r in ig.schedule.auto(f).rows] == [threads]


def test_two_inputs_have_as_many_threads_as_hold_both() -> None:
    f = ig.Fusion("gradient")
    g, y = (f.input(n, shape=(512, 65536), dtype="float32") for n in "gy")
    f.output((g - ig.sum(g * y, 0, keepdim=True)) * y)
    (said,) = ig.schedule.auto(f).rows
    assert said.threads == 32
    assert {words(t.ruled["cuda"]) for t in f.tensors if t.ruled} == {"held"}


def test_threads_that_the_user_chooses_hold_what_fits() -> None:
    f = rows(lambda x: ig.softmax(x, 0), (8192, 4096))
    ig.schedule.auto(f, config=KernelConfig(threads=64, persistent=True))
    with pytest.raises(ig.EmitError, match=r"not persistent") as error:
        ig.emit(f, "cuda")
    assert "KernelConfig(threads=256)" in str(error.value)  # the way out, though blocks have four rows then
    ig.schedule.auto(f, config=KernelConfig(threads=256, persistent=True))
    ig.emit(f, "cuda")
    for threads, how in ((16, "held"), (4, "online 8")):  # of 256 columns, four would hold 64 each, twice
        f = rows(lambda x: ig.softmax(x, 0), (256, 65536))
        (said,) = ig.schedule.auto(f, config=KernelConfig(threads=threads)).rows
        assert said.threads == threads
        assert {words(t.ruled["cuda"]) for t in f.tensors if t.ruled} == {how}


@pytest.mark.sampled
@pytest.mark.parametrize("columns", [5, 64, 70, 200])
@pytest.mark.parametrize("shared", [1, 2])
def test_values_of_rows_side_by_side_that_are_held(columns: int, shared: int) -> None:
    """A softmax, and a norm of a sum that is written too: as many threads a row as hold it, the last ones with fewer
    columns, in blocks of which the last is not full."""
    f = ig.Fusion("mid")
    x, y = (f.input(n, shape=(2, columns, 67), dtype="float32") for n in "xy")
    h = x if shared == 1 else f.output(x + y)
    f.output(ig.softmax(h, 1))
    ig.schedule.auto(f)
    assert {words(t.ruled["cuda"]) for t in f.tensors if t.ruled} == {"held"}
    p = ig.emit(f, target="cuda")
    assert all(any(isinstance(x, Alloc) for x in walk(k.ir.body)) for k in p.kernels)  # the row
    inputs = random_inputs(f, 0, {})
    found = run_threads(p, inputs)
    for name, wanted in evaluate(f, inputs).items():
        np.testing.assert_allclose(found[name], wanted, rtol=2e-6, atol=1e-7)


@settings(max_examples=examples(20), deadline=None)
@given(fusions())
def test_kernels_of_random_fusions_do_as_decided(f: ig.Fusion) -> None:
    """Each reduction has a decision. A row is held where that of all its reductions is, as far as two passes read one
    place in every column: not under a condition, nor by digits of the loops, which the tensors do not tell."""
    t = next((t for t in f.outputs if t.ndim and t.dtype == "float32"), None)
    if t is not None:
        f.output(ig.exp(t - ig.amax(t, t.ndim - 1, keepdim=True)) * ig.sum(t, t.ndim - 1, keepdim=True))
    ig.schedule.auto(f)
    for u in f.tensors:
        sums = u.definition is not None and u.definition.is_reduction and u.definition.op in REDUCTIONS
        assert not sums or set(u.ruled) == set(TARGETS), u.name
    obeyed(f)


def obeyed(f: ig.Fusion) -> None:
    """What the kernels for CUDA do is what was decided, but for accesses that are of no use, and they tell which."""
    before = before_rows(f)
    for k in ig.emit(f, "cuda").kernels:
        ruled, held = [c for _, c in before[k.name].default_hints], ["held by" in r for r in k.rows]
        if held and all(c.persistent for c in ruled) and not any(held):
            twice = read_twice(before[k.name])
            assert not twice, (k, twice)
            told = {why for r in k.rows for why in (CONDITIONS, DIGITS, NO_VALUE) if f"not held: {why};" in r}
            assert told and len(told) <= len(k.rows), k.rows
            assert CONDITIONS not in told or has_conditions(before[k.name]), k
            assert DIGITS not in told or has_digits(before[k.name]) or has_conditions(before[k.name]), k
        assert any(c.persistent for c in ruled) or not any(held), k


def before_rows(f: ig.Fusion) -> dict[str, Kernel]:
    """The kernels for CUDA as the pass that obeys the rules gets them."""
    *_, (_, before) = takewhile(lambda stage: stage[0] != "rows", stages(f, "cuda"))
    return {k.name: k for k in before.kernels}


def read_twice(kernel: Kernel) -> set[Access]:
    """What two passes over one row both read, in memory that the kernel does not write."""
    written = {x.buffer.name for x in walk(kernel.body) if isinstance(x, (Store, Accumulate)) and x.buffer is not None}
    found: set[Access] = set()
    for level in levels(kernel.body):
        passes = [one_pass(x) for x in level if isinstance(x, Loop)]
        rows_of = {shape for shape, _, sums in passes if sums}
        seen: dict[object, set[Access]] = {}
        for shape, reads, _ in passes:
            known = seen.setdefault(shape, set())
            if shape in rows_of:
                found |= {r for r in known & reads if r[0] not in written}
            known |= reads
    return found


def levels(body: Sequence[Stmt]) -> Iterator[Sequence[Stmt]]:
    """Lists of statements outside of the passes over columns."""
    yield body
    for s in body:
        if isinstance(s, (If, BoundsCheck)) or (isinstance(s, Loop) and s.column is None):
            yield from levels(s.body)


Access = tuple[str, str]  # a buffer, and an index by the digits of the column


def one_pass(s: Loop) -> tuple[object, set[Access], bool]:
    """The shape of the loops over columns, what every column reads at a place of its own, and whether they reduce.
    Nothing, where a condition on the column stands around it all or a loop within, or an index has a digit of it."""
    chain: list[Loop] = [s]
    for _ in range(1, 1 if s.column is None else s.column.loops):
        (inner,) = chain[-1].body
        assert isinstance(inner, Loop)
        chain.append(inner)
    digits = {v.var: symbol(f"d{n}", 0, simplify(v.extent - 1)) for n, v in enumerate(chain)}
    body, around = bare(chain[-1].body), list[str]()
    guards = [x for x in body if isinstance(x, If)]
    while guards and len(guards) == len(body) and len({x.condition for x in guards}) == 1:
        around.append(str(guards[0].condition))
        if guards[0].condition.names & digits.keys():
            return None, set(), False
        body = bare([x for g in guards for x in g.body])
        guards = [x for x in body if isinstance(x, If)]
    whole = list(walk(tuple(body)))
    nested = any(isinstance(x, Loop) or (isinstance(x, Accumulate) and x.running is not None) for x in whole)
    branches = [x for g in guards for x in g.body]
    if (
        nested
        or any(isinstance(x, (If, Accumulate)) for x in branches)
        or any(by_digits(e, digits.keys()) for x in whole for e in index_exprs(x))
    ):
        return None, set(), False
    place = {x: digits[x.name] for y in body if isinstance(y, Load) for x in y.address.symbols if x.name in digits}
    reads = {
        (x.buffer.name, str(simplify(x.address.substitute(place))))
        for x in body if isinstance(x, Load) and x.address.names & digits.keys()
        and x.guard == TRUE and x.local.dtype != "bool"
    }  # fmt: skip
    sums = any(isinstance(x, Accumulate) and x.buffer is None for x in body)
    return (*((str(v.extent), v.parallel) for v in chain), *around), reads, sums


def bare(body: Sequence[Stmt]) -> list[Stmt]:
    """Without notes and loops of one step."""
    found: list[Stmt] = []
    for s in body:
        found += bare(s.body) if isinstance(s, Loop) and s.extent == 1 else [] if isinstance(s, Comment) else [s]
    return found


def by_digits(e: Expr, names: Collection[str]) -> bool:
    mine = e.op in ("floordiv", "mod") and not e.names.isdisjoint(names)
    return mine or any(by_digits(x, names) for x in e.args)


def inside_columns(kernel: Kernel) -> list[Stmt]:
    """The statements in loops over columns."""
    loops = [s for s in walk(kernel.body) if isinstance(s, Loop) and s.column is not None]
    return [x for s in loops for x in walk(s.body)]


def has_conditions(kernel: Kernel) -> bool:
    return any(isinstance(x, If) for x in inside_columns(kernel))


def has_digits(kernel: Kernel) -> bool:
    indices = [e for x in inside_columns(kernel) for e in index_exprs(x)]
    return any(mark in str(e) for e in indices for mark in ("%", "//"))


def exchanged(x: ig.Tensor) -> ig.Tensor:
    return ig.cat((x[1:], x[:1]), 0)


def rotated(x: ig.Tensor) -> ig.Tensor:
    return ig.roll(x, (1,), (1,))


def test_a_row_that_is_not_held_though_ruled_tells_why() -> None:
    f = rows(lambda x: norm(exchanged(x)), (2, 4))
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cuda").kernels
    before = before_rows(f)[kernel.name]
    assert all(c.persistent for _, c in before.default_hints)
    assert any(f"not held: {CONDITIONS}" in r for r in kernel.rows)
    assert has_conditions(before) and not has_digits(before)
    right(f)


@pytest.mark.parametrize("columns", [4, 5, 64, 300])
def test_a_row_that_is_turned_round_is_held(columns: int) -> None:
    """Its index is a remainder, another one at each step of a thread."""
    f = rows(lambda x: norm(rotated(x)), (2, columns))
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cuda").kernels
    assert any("read once and held" in r for r in kernel.rows)
    right(f)


def norm(x: ig.Tensor) -> ig.Tensor:
    return ig.exp(x - ig.amax(x, 1, keepdim=True)) * ig.sum(x, 1, keepdim=True)


def test_a_row_of_one_element_that_memory_repeats_holds_nothing() -> None:
    """Both passes read the same element at every step, so there is no row of values to hold."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(2, 3), strides=(0, 1))
    f.output(x - ig.amax(x, 0, keepdim=True))
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cuda").kernels
    (row,) = kernel.rows
    assert "not held: no value of one pass is read by another" in row
    right(f)


def beside(shape: tuple[int, int]) -> ig.Fusion:
    """Rows of columns that lie apart, and other results of the same memory that the launch computes beside them."""
    f = ig.Fusion("beside")
    x = f.input("x", shape=shape, strides=(1, shape[0]))
    f.output(ig.copy(ig.expand(x[:, :1], shape)))
    f.output(norm(x))
    f.output(ig.copy(x))
    return f


@pytest.mark.parametrize("shape", [(5, 6), (7, 8)])
def test_a_row_is_held_though_another_nest_of_its_launch_has_other_columns(shape: tuple[int, int]) -> None:
    """The loop of the other nest was taken for a pass over the row, which was read three times then."""
    f = beside(shape)
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cuda").kernels
    assert "fuse_launches" in kernel.passes and read_twice(before_rows(f)[kernel.name])
    (row,) = kernel.rows
    assert row.startswith("read once and held by the target's rule")
    right(f)
    assert ig.validate(f, target="python").ok


def test_rows_that_nothing_is_said_of_are_read_again() -> None:
    f = softmax((24, 4096))
    ig.schedule.auto(f)
    forget_rules(f)
    (kernel,) = ig.emit(f, "cuda").kernels
    assert kernel.rows == (
        "2 passes, sums follow the running maximum by the target's rule; not held: nothing says that it is held; "
        "16 elements in flight by the target's rule",
    )
    right(f)


def test_a_schedule_shows_what_was_decided_and_why() -> None:
    f = softmax((4096, 4096))
    told = ig.schedule.auto(f)
    top = next(t for t in f.tensors if t.definition is not None and t.definition.op == "amax")
    held = '"cuda", persistent=true, online=false, why="each of 256 threads holds 32 values, of 64 at most"'
    assert f"schedule {top.name} row_loops((0,), (1,), threads=256, rows=1, lanes=4)" in str(f)
    assert f"schedule {top.name} by_rule({held})" in str(f)
    assert 'by_rule("cpu", persistent=true, online=false, items_per_thread=256, why="held in arrays: 16384' in str(f)
    assert "on cuda: persistent=true online=false (each of 256 threads holds 32 values" in str(told)
    for copy in (ig.parse(str(f)), clone_fusion(f)):
        assert str(copy) == str(f) and copy[top.name].ruled == top.ruled
        assert [k.rows for k in ig.emit(copy, "cuda").kernels] == [k.rows for k in ig.emit(f, "cuda").kernels]


@pytest.mark.parametrize(
    "build", [lambda: softmax((512, 4096)), lambda: cross_entropy(256, 32000, "none", gradient=False)]
)
def test_what_the_rule_chose_set_by_hand_gives_the_same_kernel(build: Callable[[], ig.Fusion]) -> None:
    for target in TARGETS:
        f = build()
        ig.schedule.auto(f)
        ruled = sources(f, target)
        for t in f.tensors:
            made = t.ruled[target].explicit() if t.ruled else {}
            for name, value in made.items():
                getattr(t, name)(value)
        assert any(t.choices.explicit() for t in f.tensors)
        forget_rules(f)
        assert sources(f, target) == ruled


def right(f: ig.Fusion) -> None:
    inputs = random_inputs(f, 0, {})
    got, wanted = run_threads(ig.emit(f, "cuda"), inputs), evaluate(f, inputs)
    for t in f.outputs:
        np.testing.assert_allclose(
            np.asarray(got[t.name], float), np.asarray(wanted[t.name], float), rtol=2e-5, atol=1e-5
        )


@pytest.mark.sampled
@pytest.mark.parametrize(
    "choices",
    [
        {"persistent": True}, {"persistent": False}, {"persistent": False, "online": False}, {"online": True},
        {"persistent": False, "items_per_thread": 4},
    ],
)  # fmt: skip
def test_other_facts_give_other_kernels_that_are_right(choices: dict[str, Any]) -> None:
    kernels: list[list[str]] = []
    for chosen in ({}, choices):
        f = softmax()
        ig.schedule.auto(f)
        for t in f.tensors:
            if t.ruled:
                made: dict[str, Any] = {**t.ruled["cuda"].explicit(), **chosen}
                t.by_rule("cuda", **made)
        right(f)
        kernels.append(sources(f, "cuda"))
    assert (kernels[0] == kernels[1]) == (choices in ({"persistent": True}, {"online": True}))


@pytest.mark.parametrize("threads", [8, 32])
@pytest.mark.parametrize(("rows_", "lanes"), [(1, 4), (4, 1)])
def test_row_loops_set_by_hand(threads: int, rows_: int, lanes: int) -> None:
    f = softmax()
    ig.schedule.auto(f)
    config = KernelConfig(threads=threads, rows=rows_)
    g = softmax()
    ig.schedule.auto(g, config=config)
    assert f"threads={threads}, rows={rows_}" in str(g)
    h = ig.Fusion("sum")
    x = h.input("x", shape=(8, 96))
    t = h.output(ig.sum(x, 1)).row_loops((0,), (1,), threads=threads, rows=rows_, lanes=lanes)
    by_steps = clone_fusion(h)[t.name]
    assert [(str(d.extent), d.parallel) for d in by_steps.loop] == [(str(d.extent), d.parallel) for d in t.loop]
    for made in (g, h):
        right(made)


def test_row_loops_are_the_steps_that_they_stand_for() -> None:
    def made(by_hand: bool) -> list[tuple[str, str]]:
        t = ig.sum(ig.Fusion("f").input("x", shape=(6, 10, 64)), 2)
        if by_hand:
            t.merge(0).split(1, 4).split(1, 8).parallelize(2, "threadIdx.x").parallelize(3, "vectorize")
            t.split(0, 2).parallelize(1, "threadIdx.y").parallelize(0, "blockIdx.x")
        else:
            t.row_loops((0, 1), (2,), threads=8, rows=2, lanes=4)
        return [(str(d.extent), d.parallel) for d in t.loop]

    assert made(by_hand=True) == made(by_hand=False)


def test_a_user_s_choice_stays_when_auto_runs_again() -> None:
    f = softmax((512, 4096))
    sums = [t for t in f.tensors if t.definition is not None and t.definition.is_reduction]
    for t in sums:
        t.persistent(False)
    for _ in range(2):
        ig.schedule.auto(f, config=KernelConfig(persistent=True, items_per_thread=8))
        assert [str(t.choices) for t in sums] == ["persistent=false items_per_thread=8"] * 2
        assert all(set(c.explicit()) == {"online"} for t in sums for c in t.ruled.values())
        assert "kept" not in ig.emit(f, "cuda").source
    ig.schedule.auto(f)
    assert [str(t.choices) for t in sums] == ["persistent=false"] * 2


def test_a_rule_is_void_with_other_loops() -> None:
    f = softmax((512, 4096))
    ig.schedule.auto(f)
    t = next(t for t in f.tensors if t.ruled)
    t.split(0, 2)
    assert not t.ruled and f"schedule {t.name} by_rule" not in str(f)


WRONG: list[tuple[Callable[[ig.Tensor], Any], str]] = [
    (lambda t: t.by_rule("tpu", persistent=True), "unknown target 'tpu'"),
    (lambda t: t.by_rule("cuda", items_per_thread=3), "items_per_thread=3"),
    (lambda t: t.row_loops((0,), (0,)), "0 is not a loop of t1, or is named twice"),
    (lambda t: t.row_loops((0,), (7,)), "7 is not a loop of t1"),
    (lambda t: t.row_loops((0,), range(1, 10**18)), "columns of t1 are a list of at most 3 loop positions"),
    (lambda t: t.row_loops(cast("Any", iter([0])), (1,)), "axes of t1 are a list of at most 3 loop positions"),
    (lambda t: t.row_loops((), ()), "neither a row nor a column"),
    (lambda t: t.row_loops((0,), (1,), threads=3), "threads=3 of row_loops of t1"),
    (lambda t: t.row_loops((0, 1), (2,), lanes=64), "lanes=64"),
    (lambda t: t.row_loops((0,), (1, 2)), "a reduced and a kept axis cannot become one loop"),
]


@pytest.mark.parametrize(("step", "told"), WRONG)
def test_a_wrong_fact_leaves_the_fusion_as_it_was(step: Callable[[ig.Tensor], Any], told: str) -> None:
    f = ig.Fusion("f")
    t = ig.sum(f.input("x", shape=(4, 6, 64)), 2, name="t1")
    f.output(t)
    before, loop = str(f), t.loop
    with pytest.raises(ig.ScheduleError, match="^[^\n]*" + told.replace("(", r"\(")):
        step(t)
    assert str(f) == before and t.loop == loop


def test_a_kernel_shows_the_rule_before_the_pass_that_obeys() -> None:
    f = softmax((512, 4096))
    ig.schedule.auto(f)
    before = next(iter(ig.emit(f, "cuda").kernels))
    text = "kernel k():\n  rule acc1 persistent=false online=true items_per_thread=16: one pass does it\n"
    parsed = ig.kernel.parse(text + '  buffer x: float32[1] output "x"\n  x[0] = 1.0\n')
    assert [(acc, str(c), c.why) for acc, c in parsed.default_hints] == [
        ("acc1", "persistent=false online=true items_per_thread=16", "one pass does it")
    ]
    assert ig.kernel.parse(str(parsed)).default_hints == parsed.default_hints and before.default_hints == ()


def test_passes_before_and_behind_a_gather_are_of_one_row() -> None:
    """The check of a computed index stands around what reads it, not around the passes over the columns behind it."""
    f = cross_entropy(256, 32000, "none", gradient=True)
    ig.schedule.auto(f)
    told = [r for k in ig.emit(f, "cuda").kernels for r in k.rows]
    assert len(told) == 1 and told[0].startswith("2 passes, sums follow the running maximum"), told


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("columns", "dtype", "threads"),
    [
        (4096, "bfloat16", 128), (4608, "bfloat16", 192), (5120, "bfloat16", 128), (6144, "bfloat16", 256),
        (8192, "bfloat16", 256), (9216, "bfloat16", 192), (10240, "float16", 256), (12288, "bfloat16", 512),
        (2560, "bfloat16", 160), (3584, "bfloat16", 224), (7168, "float16", 224), (10752, "bfloat16", 224),
        (14336, "bfloat16", 256), (4352, "bfloat16", 128), (4608, "float32", 512), (9216, "float32", 512),
    ],
)  # fmt: skip
def test_threads_that_a_row_leaves_few_of_idle(columns: int, dtype: Any, threads: int) -> None:
    """Three and a half steps of 256 threads are four of 224, whole warps, and two and a half are five of 128.

    As measured on an H200, of 16 bits alone, and two pieces for rows that are reduced once."""
    f = rows(NORMS["rms norm"], (8192, columns), dtype)
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cuda").kernels
    assert [int(e) for e in kernel.launch["threadIdx.x"]] == [threads]
    assert "kept0" in sources(f, "cuda")[0]


def test_one_number_a_row_of_more_bits_does_not_change_the_threads() -> None:
    f = ig.Fusion("weight norm")
    v, g = f.input("v", shape=(8192, 4608), dtype="bfloat16"), f.input("g", shape=(8192, 1))
    x = ig.cast(v, "float32")
    f.output(ig.cast(x * (g / ig.sqrt(ig.sum(x * x, 1, keepdim=True))), "bfloat16"))
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cuda").kernels
    assert [int(e) for e in kernel.launch["threadIdx.x"]] == [192]


@pytest.mark.parametrize(("rows_", "threads"), [((512, 2048), 8), ((16384, 1), 16)])
def test_rows_that_come_from_a_cache_have_few_threads(rows_: tuple[int, int], threads: int) -> None:
    """Distances of all pairs read each element again and again, where the loads of a sum wait for memory."""
    m, n = rows_
    f = ig.Fusion("distances")
    a, b = f.input("a", shape=(m, 1, 64)), f.input("b", shape=(1, n, 64))
    f.output(ig.sum(ig.abs(a - b), 2))
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cuda").kernels
    assert [int(e) for e in kernel.launch["threadIdx.x"]] == [threads]


def _bias_gradient(rows_: int, columns: int) -> ig.Fusion:
    """A one-hot loss' gradient added to another one, and the sum of that over the rows."""
    f = ig.Fusion("bias gradient")
    x, t = (f.input(n, (rows_, columns), "bfloat16") for n in "xt")
    y = ig.unsqueeze(f.input("y", (rows_,), "int64"), 1)
    hot = ig.where(ig.eq(ig.unsqueeze(f.iota(columns), 0), y), 1.0, 0.0)
    out = f.output(t + ig.cast(hot - ig.exp(x) * ig.sum(hot, 1, keepdim=True), "bfloat16"))
    f.output(ig.sum(ig.cast(out, "float32"), 0))
    return f


def test_what_columns_do_not_move_says_nothing_of_their_memory() -> None:
    decided = ig.schedule.auto(_bias_gradient(2048, 8192))
    assert "side by side" not in decided.rows[0].why and decided.rows[0].lanes == 8


def test_a_cast_of_an_output_is_computed_where_it_is_read() -> None:
    f = _bias_gradient(2048, 8192)
    ig.schedule.auto(f)
    large = {b.title for k in ig.emit(f, "cuda").kernels for b in k.buffers if b.place == "global"}
    assert not large, large


def _classes(rows_: int, count: int, classes: int) -> ig.Fusion:
    f = ig.Fusion("classes")
    x, y = f.input("x", (rows_, count)), f.input("y", (rows_, count), "int64")
    hot = ig.cast(ig.eq(ig.unsqueeze(y, 1), ig.unsqueeze(f.iota(classes), (0, 2))), "float32")
    f.output(ig.sum(hot * ig.unsqueeze(x, 1), 2))
    return f


def test_rows_of_the_same_elements_are_loaded_once() -> None:
    f = _classes(512, 4096, 24)
    (row,) = ig.schedule.auto(f).rows
    assert "same elements" in row.why
    (cost,) = ig.cost(ig.emit(f, "cuda")).kernels
    assert cost.sectors * 32 <= 24 / 4 * cost.bytes_moved


def test_exchanges_of_a_loop_wait_for_each_other() -> None:
    """Rows of one block exchange through one array; the last steps of one read it while the next one writes."""
    f = _classes(64, 500_000, 16)
    ig.schedule.auto(f)

    (text,) = re.findall(r"all\d\[q\] = block_sum_f64\(.*\)", ig.emit(f, "cuda").source)
    assert text.endswith(", 256, True)")


def test_windows_that_overlap_are_a_thread_s_each() -> None:
    f = ig.Fusion("windows")
    x = f.input("x", (64, 65536))
    at = ig.unsqueeze(f.iota(16369, step=4), 1) + ig.unsqueeze(f.iota(64), 0)
    f.output(ig.sum(ig.index_get(x, [None, at]), 2))
    (row,) = ig.schedule.auto(f).rows
    assert row.threads == 1 and "side by side" in row.why
    assert "vload4" in ig.emit(f, "cuda").source


def test_rows_behind_a_reshape_are_as_many_a_thread_as_an_access_holds() -> None:
    """Four float32 numbers are an access of 16 bytes, whichever views the row is read through."""
    f = ig.Fusion("marginal")
    x = f.input("x", (8192, 64, 64))
    flat = ig.reshape(x, (8192, 4096))
    p = ig.reshape(ig.exp(flat - ig.amax(flat, 1, keepdim=True)), (8192, 64, 64))
    f.output(ig.sum(p, 1))
    ig.schedule.auto(f)
    assert [str(d.extent) for d in f.outputs[0].loop if d.kind != "reduction"][2:] == ["4"]


@pytest.mark.parametrize(("quotients", "threads"), [(True, 4), (False, 2)])
def test_rows_side_by_side_that_are_read_again_are_held(quotients: bool, threads: int) -> None:
    """Of a quotient by the maximum each element is read again, or held; a sum of exp is found in the same pass."""

    def term(x: ig.Tensor) -> ig.Tensor:
        most = ig.amax(x, 1, keepdim=True)
        return x / most if quotients else ig.exp(x - most)

    f = ig.Fusion("cosine")
    x, y = f.input("x", (256, 64, 1024)), f.input("y", (256, 64, 1024))
    f.output(ig.sum(term(x) * term(y), 1))
    said = ig.schedule.auto(f)
    assert [r.threads for r in said.rows] == [threads]
    assert (True in [r.choices.persistent for r in said.rules if r.target == "cuda"]) == (threads == 4)
