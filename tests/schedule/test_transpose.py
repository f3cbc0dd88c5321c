"""Transposes through tiles in shared memory: which fusions get one, wide accesses, no bank conflicts, right values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import Expr
from idgraph.ir import DType, item_size
from idgraph.kernel.ir import Kernel, Load, Loop, Store, VectorLoad, VectorStore, walk
from idgraph.runtime import compile_ptx, emit
from tests.emit.thread_oracle import faults

Build = Callable[[], ig.Fusion]


@pytest.fixture(autouse=True)
def one_processor() -> Iterator[None]:
    """One processor of an H200, with its share of all rates, and few registers: a block keeps it busy, and no thread
    transposes in registers, so that tensors as small as these are worth a tile."""
    whole = ig.cost.devices["H200"]
    n = whole.processors
    shares = {k: getattr(whole, k) / n for k in ("bandwidth", "cache_bandwidth", "loads", "atomics")}
    with ig.cost.use_device(replace(whole, name="one processor", processors=1, thread_registers=16, **shares)):
        yield


def moved(shape: tuple[int, ...], dims: tuple[int, ...], dtype: DType = "float32") -> ig.Fusion:
    f = ig.Fusion("moved")
    f.output(ig.permute(f.input("x", shape, dtype), dims, name="y"))
    return f


def around(shape: tuple[int, int], dtype: DType = "float32") -> ig.Fusion:
    """Work before and after, a residual that runs along the output, and a bias along each axis."""
    f = ig.Fusion("around")
    x, r = f.input("x", shape, dtype), f.input("r", shape[::-1], dtype)
    row, column = f.input("row", (shape[0],), dtype), f.input("column", (shape[1], 1), dtype)
    f.output(ig.relu(ig.permute(ig.exp(x * 0.5), (1, 0)) + row) * r + column)
    return f


def two_inputs() -> ig.Fusion:
    f = ig.Fusion("two")
    a, b = f.input("a", (24, 40)), f.input("b", (24, 40))
    f.output(ig.permute(a, (1, 0)) * ig.permute(b, (1, 0)))
    return f


def many_inputs() -> ig.Fusion:
    """More tiles than fit: some inputs are read as they lie."""
    f = ig.Fusion("many")
    parts = [ig.permute(f.input(f"x{n}", (64, 80), "float64"), (1, 0)) for n in range(12)]
    total = parts[0]
    for p in parts[1:]:
        total = total + p
    f.output(total)
    return f


def with_its_transpose() -> ig.Fusion:
    f = ig.Fusion("symmetric")
    a = f.input("a", (60, 60))
    f.output(a + a.T)
    return f


def of_an_output() -> ig.Fusion:
    """One kernel writes a tensor, another one transposes it."""
    f = ig.Fusion("of an output")
    y = f.output(ig.exp(f.input("x", (60, 92))))
    f.output(ig.permute(y, (1, 0)) + 1.0)
    return f


def flattened() -> ig.Fusion:
    """NCHW to rows of channels."""
    f = ig.Fusion("flattened")
    x = f.input("x", (2, 16, 6, 8))
    f.output(ig.reshape(ig.permute(x, (0, 2, 3, 1)), 96, 16))
    return f


def strided_view() -> ig.Fusion:
    """A transposed view comes in, a contiguous copy goes out."""
    f = ig.Fusion("view")
    f.output(ig.copy(f.input("x", (40, 24), strides=(1, 40))))
    return f


def other_memory() -> ig.Fusion:
    """The output lies in memory the other way round."""
    f = ig.Fusion("memory")
    y = f.output(f.input("x", (24, 40)) * 2.0)
    y.set_allocation([y.logical[1], y.logical[0]])
    return f


def cast_on_the_way() -> ig.Fusion:
    f = ig.Fusion("cast")
    f.output(ig.cast(ig.permute(f.input("x", (32, 64), "bfloat16"), (1, 0)), "float32"))
    return f


TILED: dict[str, Build] = {
    "square": lambda: moved((64, 64), (1, 0)),
    "cut on both sides": lambda: moved((60, 92), (1, 0)),
    "odd": lambda: moved((33, 45), (1, 0)),
    "odd bytes": lambda: moved((33, 45), (1, 0), "int8"),
    "even": lambda: moved((62, 126), (1, 0), "bfloat16"),
    "batched": lambda: moved((3, 16, 24), (0, 2, 1), "bfloat16"),
    "batch inside": lambda: moved((28, 3, 32), (2, 1, 0)),
    "channels last": lambda: moved((2, 16, 6, 8), (0, 2, 3, 1), "bfloat16"),
    "channels first": lambda: moved((2, 6, 8, 16), (0, 3, 1, 2), "bfloat16"),
    "odd pixels": lambda: moved((2, 16, 7, 7), (0, 2, 3, 1)),
    "float16": lambda: moved((32, 48), (1, 0), "float16"),
    "uint8": lambda: moved((64, 128), (1, 0), "uint8"),
    "int64": lambda: moved((18, 34), (1, 0), "int64"),
    "bool": lambda: moved((64, 128), (1, 0), "bool"),
    "around": lambda: around((24, 40)),
    "around bfloat16": lambda: around((24, 40), "bfloat16"),
    "two inputs": two_inputs,
    "many inputs": many_inputs,
    "with its transpose": with_its_transpose,
    "flattened": flattened,
    "of an output": of_an_output,
    "strided view": strided_view,
    "other memory": other_memory,
    "cast": cast_on_the_way,
}
DIRECT: dict[str, Build] = {
    "inner axis kept": lambda: moved((16, 24, 32), (1, 0, 2)),
    "not moved": lambda: moved((16, 24), (0, 1)),
    "few columns": lambda: moved((64, 3), (1, 0)),
    "few rows": lambda: moved((2, 64), (1, 0)),
}


def shared(f: ig.Fusion) -> list[str]:
    return [t.name for t in f.tensors if t.memory == "shared"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", TILED)
def test_tiled_and_right(name: str) -> None:
    f = TILED[name]()
    ig.schedule.auto(f, layout=False)
    assert shared(f)
    report = ig.validate(f, target="numpy")
    assert report.ok, report


@pytest.mark.parametrize("name", DIRECT)
def test_direct_where_no_tile_helps(name: str) -> None:
    f = DIRECT[name]()
    ig.schedule.auto(f, layout=False)
    assert not shared(f)
    assert ig.validate(f, target="numpy").ok


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", ["cut on both sides", "odd pixels", "batched", "two inputs", "flattened", "of an output"]
)
def test_no_thread_races(name: str) -> None:
    f = TILED[name]()
    ig.schedule.auto(f, layout=False)
    assert faults(emit(f, "cuda").plan) == []


@pytest.mark.parametrize("target", ["python", pytest.param("cpu", marks=pytest.mark.slow)])
def test_values_on_other_targets(target: Any) -> None:
    f = around((24, 40), "bfloat16")
    ig.schedule.auto(f, layout=False)
    assert ig.validate(f, target=target).ok


def test_scheduling_again_changes_nothing() -> None:
    f = moved((64, 64), (1, 0))
    ig.schedule.auto(f, layout=False)
    before, source = [t.name for t in f.tensors], emit(f, "cuda").source.replace("\n", "")
    ig.schedule.auto(f, layout=False)
    assert [t.name for t in f.tensors] == before
    assert len(shared(f)) == 1
    assert len(emit(f, "cuda").source.replace("\n", "")) == len(source)


def test_the_users_copy_is_the_tile() -> None:
    f = ig.Fusion("own")
    c = ig.copy(f.input("x", (32, 64)), name="c")
    f.output(ig.permute(c, (1, 0)))
    ig.schedule.auto(f, layout=False)
    assert shared(f) == ["c"]
    assert len(f.tensors) == 3


# accesses -------------------------------------------------------------------------------------------------------------

WIDE = {
    "float32": 4, "bfloat16": 8, "int8": 16, "uint8": 16, "int64": 2, "int32": 4, "float64": 2, "int16": 8,
}  # fmt: skip


def wide(s: VectorLoad | VectorStore) -> int:
    """Elements of one access."""
    return len(s.locals if isinstance(s, VectorLoad) else s.values) * (2 if s.pairs else 1)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", WIDE)
def test_sixteen_bytes_on_both_sides(dtype: DType) -> None:
    f = moved((256, 256), (1, 0), dtype)
    ig.schedule.auto(f, layout=False)
    (kernel,) = emit(f, "cuda").plan.kernels
    loads = {(s.buffer.place, wide(s)) for s in walk(kernel.body) if isinstance(s, VectorLoad)}
    stores = {(s.buffer.place, wide(s)) for s in walk(kernel.body) if isinstance(s, VectorStore)}
    assert loads == {("input", WIDE[dtype])}
    assert stores == {("shared", WIDE[dtype]), ("output", WIDE[dtype])}
    single = [s for s in walk(kernel.body) if isinstance(s, (Load, Store)) and s.buffer.place != "shared"]
    assert not single


def test_ptx_of_the_large_transpose() -> None:
    pytest.importorskip("numba_cuda")
    f = moved((16384, 16384), (1, 0), "bfloat16")
    ig.schedule.auto(f, layout=False)
    (ptx,) = compile_ptx(emit(f, "cuda"))
    assert ptx.count("ld.global.v4") == ptx.count("st.global.v4") == ptx.count("st.shared.v4") == 4
    assert ptx.count("ld.shared.u16") == 32
    assert "bar.sync" in ptx
    for word in (".local", "rem.s64", "div.s64"):
        assert word not in ptx


def test_the_compiler_keeps_every_store_under_a_condition() -> None:
    """libNVVM 13.0 lost one of the four: an exclusive or in an unrolled loop went on from the round before."""
    pytest.importorskip("numba_cuda")
    f = moved((128, 256, 56, 56), (0, 2, 3, 1), "bfloat16")
    ig.schedule.auto(f, layout=False)
    program = emit(f, "cuda")
    assert "^" not in program.source and "bits_xor" in program.source
    (ptx,) = compile_ptx(program)
    assert ptx.count("ld.global.v4") == ptx.count("st.shared.v4") == 4


def ways(kernel: Kernel, s: Load | Store | VectorLoad | VectorStore, loops: dict[str, int]) -> int:
    """The largest number of different words that one phase of a warp's access asks of one bank.

    32 banks of 4 bytes; an access of up to 4 bytes has all lanes in one phase, of 8 bytes 16 lanes, of 16 bytes 8.
    """
    width = wide(s) if isinstance(s, (VectorLoad, VectorStore)) else 1
    size = item_size(s.buffer.dtype)
    lanes = 32 // max(1, width * size // 4)
    threads = int(kernel.launch["threadIdx.x"][0])
    (thread,) = [x.var for x in walk(kernel.body) if isinstance(x, Loop) and x.parallel == "threadIdx.x"][:1]
    names = [n for n in s.address.names if n != thread]
    worst = 0
    for point in product(*(range(min(loops[n], 3)) for n in names)):
        env: dict[str, Any] = dict(zip(names, point, strict=True))
        at = np.broadcast_to(s.address.evaluate_array({**env, thread: np.arange(threads)}), threads) * size
        for first in range(0, threads, lanes):
            # Every word that a lane touches, each once.
            words = np.unique((at[first : first + lanes, None] + np.arange(width * size)) // 4)
            worst = max(worst, int(np.bincount(words % 32).max()))
    return worst


def conflicts(f: ig.Fusion) -> int:
    (kernel,) = emit(f, "cuda").plan.kernels
    loops = {s.var: int(s.extent) for s in walk(kernel.body) if isinstance(s, Loop)}
    found = [
        ways(kernel, s, loops)
        for s in walk(kernel.body)
        if isinstance(s, (Load, Store, VectorLoad, VectorStore)) and s.buffer.place == "shared"
    ]
    assert found
    return max(found)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((256, 256), d) for d in WIDE] + [((130, 66), "bfloat16"), ((33, 45), "float32"), ((33, 45), "int8"),
     ((60, 124), "bfloat16"), ((124, 124), "uint8"), ((62, 62), "uint8")],
)  # fmt: skip
def test_no_bank_conflicts_by_enumeration(shape: tuple[int, int], dtype: DType) -> None:
    f = moved(shape, (1, 0), dtype)
    ig.schedule.auto(f, layout=False)
    assert conflicts(f) == 1


def test_the_enumeration_sees_a_conflict() -> None:
    """The same tile with its chunks left in place."""
    f = moved((256, 256), (1, 0))
    ig.schedule.auto(f, layout=False)
    tile = f[shared(f)[0]]
    swizzle = next(x for x in tile.domain.loop_exprs if type(x).__name__ == "Swizzle")
    plain = [swizzle.inputs[1] if d is swizzle.outputs[1] else d for d in tile.allocation]
    tile.set_allocation([swizzle.inputs[0] if d is swizzle.outputs[0] else d for d in plain])
    assert conflicts(f) == 8


def test_every_element_has_one_place_in_the_tile() -> None:
    """Producer and consumer name the same slot for an element: by the accesses of the model, over the whole tensor."""
    f = moved((40, 24), (1, 0))
    ig.schedule.auto(f, layout=False)
    m, tile = ig.IdModel(f), f[shared(f)[0]]
    (kernel,) = emit(f, "cuda").plan.kernels
    assert kernel.launch["threadIdx.x"][0] == 64
    (use,) = tile.uses
    made: dict[tuple[int, ...], tuple[int, ...]] = {}

    def visit(e: ig.TensorExpr, take: Callable[[tuple[int, ...], tuple[int, ...]], None]) -> None:
        a = m.access(e, tile)
        loops = m.loops(e)
        for point in product(*(range(int(x.extent)) for x in loops)):
            env = dict(zip((x.name for x in loops), point, strict=True))
            if a.predicate.evaluate(env):

                def number(x: Expr, env: dict[str, int] = env) -> int:
                    return int(x.evaluate(env))

                take(tuple(map(number, a.coordinates)), tuple(map(number, a.allocation)))

    visit(tile.definition, lambda at, slot: made.__setitem__(at, slot))  # type: ignore[arg-type]
    assert len(made) == len(set(made.values())) == 40 * 24
    read: list[tuple[int, ...]] = []

    def check(at: tuple[int, ...], slot: tuple[int, ...]) -> None:
        assert made[at] == slot
        read.append(at)

    visit(use, check)
    assert sorted(read) == sorted(made)
    assert np.prod([int(d.extent) for d in tile.allocation]) >= len(made)
