"""Kernels of different threads in one launch: values in any order of threads, no race, every address in its array.

The plan is judged by `tests.emit.thread_oracle`, the CUDA source by running it thread by thread, the values by the
operations themselves.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import event, example, given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel.ir import BlockReduce, Kernel, Loop, SingleThread, walk
from idgraph.lower.fusion_to_kernel import lower_fusion
from idgraph.passes.kernel_fusion import fits, fuse_kernels, nested, reblock
from idgraph.runtime import Program, compile_ptx, emit
from idgraph.schedule import KernelConfig
from idgraph.validate import random_inputs
from tests.emit.cases import Case, difference
from tests.emit.rounding import beyond, bounds
from tests.emit.thread_oracle import faults
from tests.emit.thread_runner import bound, run_threads

Step = Callable[[ig.Tensor, random.Random], ig.Tensor]
STEPS: tuple[Step, ...] = (
    lambda x, _: ig.exp(x * 0.1),
    lambda x, _: ig.flip(x, 0),
    lambda x, _: ig.sum(x, 0),
    lambda x, _: ig.sum(x * x, 0),
    lambda x, _: ig.sum(x, 1),
    lambda x, _: ig.amax(x, 0),
    lambda x, _: ig.softmax(x, 1),
    lambda x, _: x - ig.sum(x, 0, keepdim=True),
    lambda x, _: ig.transpose(x, 0, 1) + 1.0,
    lambda x, _: ig.reshape(ig.relu(x), prod(int(d.extent) for d in x.axes)),
    lambda x, _: ig.sum(ig.sum(x, 1), 0),
    lambda x, r: ig.index_select(x, 0, x.fusion.input(f"n{r.random()}", shape=(9,), dtype="int64")),
)


def several(seed: int) -> ig.Fusion:
    """Two to six outputs of two inputs, of which some read another output."""
    r = random.Random(seed)
    f = ig.Fusion("several")
    shapes = [(r.choice((1, 3, 32, 70)), r.choice((2, 8, 33, 130))) for _ in range(2)]
    types: tuple[DType, ...] = ("float32", "float32", "bfloat16")
    sources = [f.input(f"x{n}", shape=s, dtype=r.choice(types)) for n, s in enumerate(shapes)]
    for _ in range(r.randint(2, 6)):
        x = r.choice(sources)
        y = f.output(r.choice(STEPS)(x, r))
        if y.ndim == 2 and r.random() < 0.4:
            sources.append(y)
    return f


def close(f: ig.Fusion, inputs: dict[str, Any], got: dict[str, Any]) -> str:
    """What differs by more than a few roundings of the results."""
    return difference(Case(f), inputs, got)


def judge(f: ig.Fusion, seed: int = 0, told: Callable[..., str] = close, config: KernelConfig | None = None) -> Program:
    """The scheduled fusion's CUDA program, judged; ``told`` says what differs in its values."""
    ig.schedule.auto(f, config=config or KernelConfig())
    program = emit(f, "cuda")
    inputs: dict[str, Any] = random_inputs(f, seed, {})
    for k in program.plan.kernels:
        assert all(": ld" in told for told in k.verify().undecided)  # what depends on a loaded value
    flat, symbols = bound(program, inputs)
    assert faults(program.plan, symbols, flat) == []
    with np.errstate(all="ignore"):
        assert told(f, inputs, run_threads(program, inputs, seed)) == ""
    return program


@settings(max_examples=max(8, settings().max_examples // 5), deadline=None)
@given(st.integers(0, 1 << 30))
@example(254)  # a gather by a masked sum
@example(562194)  # y = x - sum(x), then y - sum(y): numbers below 1000 of terms whose magnitudes add up to 1531
def test_values_and_races_of_joined_launches(seed: int) -> None:
    f = several(seed)
    note(str(f))

    def told(_: ig.Fusion, inputs: dict[str, Any], got: dict[str, Any]) -> str:
        return beyond(several(seed), inputs, got)  # as it was before `auto`

    program = judge(f, seed, told)
    apart = len(lower_fusion(f, ig.IdModel(f), threads=True).kernels)
    event(f"joined {apart - len(program.plan.kernels)}")
    assert len(program.plan.kernels) <= apart


def test_rounding_is_that_of_the_terms_and_a_lost_term_is_beyond_it() -> None:
    f = ig.Fusion("twice")
    x = f.input("x", shape=(70, 3))
    y = f.output(x - ig.sum(x, 0, keepdim=True))
    z = f.output(y - ig.sum(y, 0, keepdim=True))
    inputs = random_inputs(f, 1)
    terms: Any = inputs["x"]
    first: Any = terms - terms.sum(0)
    whole: dict[str, Any] = {y.name: first, z.name: first - first.sum(0)}
    assert beyond(f, inputs, whole) == ""
    assert 2e-4 < np.max(bounds(f, inputs)[z.name]) < 5e-3  # 70 times the rounding of a sum; a term is 0.25 at least
    lost: dict[str, Any] = {y.name: terms - terms[1:].sum(0), z.name: whole[z.name]}
    assert beyond(f, inputs, lost).startswith(y.name)
    late: dict[str, Any] = {y.name: first, z.name: first - first[1:].sum(0)}
    assert beyond(f, inputs, late).startswith(z.name)


def test_sums_of_columns_are_one_nest_that_reads_once() -> None:
    """A norm's gradients of weight and bias."""
    f = ig.Fusion("norm")
    g, x = f.input("g", shape=(70, 40)), f.input("x", shape=(70, 40))
    f.output(ig.sum(g * x, 0), ig.sum(g, 0))
    (kernel,) = judge(f).kernels
    loops = [s for s in kernel.body if isinstance(s, Loop)]
    assert len(loops) == 1
    sums = [s.acc.name for s in walk(kernel.body) if isinstance(s, BlockReduce)]
    assert len(sums) == 2 * 4 and len({name.rpartition("_")[0] for name in sums}) == 2  # four rows side by side


def test_threads_of_another_shape_take_a_plain_nest() -> None:
    f = ig.Fusion("shapes")
    x, w = f.input("x", shape=(64, 48)), f.input("w", shape=(1000,))
    f.output(ig.sum(x, 0), ig.exp(w))
    program = judge(f)
    (kernel,) = program.kernels
    assert set(kernel.launch) == {"blockIdx.x", "threadIdx.x", "threadIdx.y"}
    assert len(compile_ptx(program)) == 1


def test_threads_of_a_smaller_block_take_a_part_of_a_plain_one() -> None:
    """The gradients of a bias beside a residual sum (BERT's backward): blocks of 64 threads take halves of 128."""
    f = ig.Fusion("halves")
    g, x, y = f.input("g", shape=(32, 64)), f.input("x", shape=(31, 67)), f.input("y", shape=(31, 67))
    f.output(ig.sum(g, 0), x + y)
    (kernel,) = judge(f).kernels
    assert prod(int(kernel.launch[d][0]) for d in kernel.launch if d.startswith("thread")) == 64


def test_blocks_of_other_sizes_take_a_plain_nest() -> None:
    """Four blocks of 128 threads in one of 512, or half of one in 64; the last is not full."""
    f = ig.Fusion("shapes")
    y = f.output(ig.exp(f.input("w", shape=(128 * 4 * 5 + 3,))))
    ig.schedule.auto(f)
    (kernel,) = lower_fusion(f, ig.IdModel(f), threads=True).kernels
    nest = nested(kernel)
    assert nest is not None and nest.free and nest.block == (128, 1, 1)
    for block in ((512, 1, 1), (16, 8, 4), (64, 2, 1), (100, 3, 1), (64, 1, 1), (32, 2, 1)):
        assert fits(nest, block)
        made = reblock(nest, block)
        assert prod(int(made.launch[d][0]) for d in made.launch if d.startswith("thread")) == prod(block)
        assert _elements(made) == list(range(int(y.logical[0].extent)))
    assert not fits(nest, (32, 1, 1)) and not fits(nest, (32, 3, 1))


def _elements(k: Kernel) -> list[int]:
    """Elements that the kernel writes, sorted: by going through its loops."""
    found: list[int] = []

    def run(body: Any, env: dict[str, int]) -> None:
        for s in body:
            match s:
                case Loop():
                    for n in range(int(s.extent.evaluate(env))):
                        run(s.body, {**env, s.var: n})
                case _ if hasattr(s, "condition"):
                    if bool(s.condition.evaluate(env)):
                        run(s.body, env)
                case SingleThread():
                    run(s.body, env)
                case _ if type(s).__name__ == "Store":
                    found.append(int(s.address.evaluate(env)))
                case _:
                    pass

    run(k.body, {})
    return sorted(found)


def test_a_launch_waits_for_a_later_one_it_can_join() -> None:
    """The sum of x's columns is ready first, that of y's last; rows lie between: two launches, not three."""
    f = ig.Fusion("later")
    x = f.input("x", shape=(32, 64))
    f.output(ig.sum(x, 0))
    y = f.output(ig.softmax(x, 1))
    f.output(ig.sum(y, 0))
    assert len(judge(f).kernels) == 2


def test_scatters_into_several_tables_are_one_launch() -> None:
    f = ig.Fusion("tables")
    for n in range(3):
        table, rows = f.input(f"t{n}", shape=(20, 8)), f.input(f"r{n}", shape=(12, 8))
        f.output(ig.scatter_add(table, 0, f.input(f"i{n}", shape=(12, 8), dtype="int64"), rows))
    assert len(judge(f).kernels) == 2  # the tables' copies, then what is added


def test_indices_out_of_range_are_told_in_another_shape() -> None:
    f = ig.Fusion("told")
    x, n = f.input("x", shape=(64, 48)), f.input("n", shape=(300,), dtype="int64")
    f.output(ig.sum(x, 0), ig.index_select(f.input("w", shape=(7,)), 0, n))
    ig.schedule.auto(f)
    program = emit(f, "cuda")
    (kernel,) = program.plan.kernels
    assert "threadIdx.y" in kernel.launch
    tree = ast.parse(program.kernel_source(kernel, checked=True))
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    assert {n for n in names if n.startswith("i") and n[1:2].isdigit()} - {"i32", "i64"} <= stored
    assert "fault[2] =" in program.kernel_source(kernel, checked=True)


def test_never_before_what_it_needs() -> None:
    """Chains over many buffers, joined in any way: every kernel behind all that write what it touches."""
    f = ig.Fusion("chain")
    x = f.input("x", shape=(9, 8))
    for n in range(12):
        x = f.output((ig.flip(x, n % 2) if n % 3 else ig.sum(x, 0, keepdim=True) - x) * 0.5)
    ig.schedule.auto(f)
    plan = lower_fusion(f, ig.IdModel(f), threads=True)
    made = fuse_kernels(plan)
    assert faults(made) == []


def _norm(x: ig.Tensor) -> ig.Tensor:
    y = ig.cast(x, "float32")
    return ig.cast(y * ig.rsqrt(ig.mean(y * y, 1, keepdim=True) + 1e-6), x.dtype)


def _softmax(x: ig.Tensor) -> ig.Tensor:
    return ig.softmax(x, 1)


@pytest.mark.sampled
@pytest.mark.parametrize(("threads", "columns"), [(96, 768), (96, 900), (192, 4608), (224, 1792)])
@pytest.mark.parametrize("form", [_norm, _softmax])
def test_rows_of_any_number_of_whole_warps(form: Any, threads: int, columns: int) -> None:
    """Reductions over three, six and seven warps; of 900 columns the last step has idle threads."""
    f = ig.Fusion("warps")
    f.output(form(f.input("x", (3, columns), "bfloat16")))
    (kernel,) = judge(f, config=KernelConfig(threads=threads)).kernels
    assert [int(e) for e in kernel.launch["threadIdx.x"]] == [threads]


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 1)])
def test_empty_and_single(shape: tuple[int, int]) -> None:
    f = ig.Fusion("small")
    x = f.input("x", shape=shape)
    f.output(ig.sum(x, 0), ig.exp(x), ig.sum(x, 1))
    judge(f)
