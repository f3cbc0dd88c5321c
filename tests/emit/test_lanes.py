"""Unrolled and vectorised loops as lanes: the same values as loops, and the accesses that a GPU wants.

The lane form is CUDA's; here it is printed as plain Python and run, so that every case is checked without a device.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.index.allocation import is_thread
from idgraph.kernel.ir import (
    Compute,
    Constant,
    ExtractHalf,
    Half2Op,
    If,
    Let,
    Load,
    Local,
    Loop,
    Select,
    Store,
    StraightLineBlock,
    VectorLoad,
    VectorStore,
    walk,
)
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.lower.fusion_to_kernel import lower_fusion
from idgraph.passes import pipeline as table
from idgraph.passes.cse_dce import eliminate_dead_code
from idgraph.passes.lane_loop_fusion import is_lanes
from idgraph.passes.lane_unrolling import unroll_lanes
from idgraph.passes.packed_half2 import pack_half2
from idgraph.runtime import Program, compile_ptx
from idgraph.schedule import KernelConfig
from idgraph.testing import fusions
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from tests.emit.statements import repeated
from tests.property.budget import examples

NO_ROWS = tuple(p for p in table.TABLE["cuda"] if p.name != "rows")


def lane_program(f: ig.Fusion) -> Program:
    """The fusion as CUDA's plan, printed for Python."""
    return Program(f, "python", table.run(lower_fusion(f, ig.IdModel(f), threads=False), NO_ROWS))


def check(f: ig.Fusion, given: dict[str, Any] | None = None) -> Program:
    """Lanes give the definition's values."""
    inputs: dict[str, Any] = given if given is not None else random_inputs(f, 0, {})
    program = lane_program(f)
    found, wanted = program.run(inputs, poison=True), evaluate(f, inputs)
    for t in f.outputs:
        np.testing.assert_allclose(
            found[t.name].astype(np.float64), np.asarray(wanted[t.name], np.float64), rtol=2e-2, atol=2e-2
        )
    return program


def rotation(dtype: str = "float32") -> ig.Fusion:
    f = ig.Fusion("rotation")
    t = f.input("t", shape=(4, 64), dtype=dtype)
    f.output(t + ig.cat([t[:, 32:], t[:, :32]], dim=1))
    return f


def _interleaved() -> ig.Fusion:
    f = ig.Fusion("interleaved")
    x, c = f.input("x", shape=(3, 16)), f.input("c", shape=(3, 8))
    even, odd = x[:, ::2], x[:, 1::2]
    f.output(ig.flatten(ig.stack([even * c - odd, odd * c + even], dim=-1), 1))
    return f


def _one(build: Callable[[ig.Tensor], ig.Tensor], shape: tuple[int, ...], dtype: str = "float32") -> ig.Fusion:
    f = ig.Fusion("f")
    f.output(build(f.input("x", shape=shape, dtype=dtype)))
    return f


def _indexed(build: Callable[[ig.Tensor, ig.Tensor], ig.Tensor], index: tuple[int, ...]) -> ig.Fusion:
    f = ig.Fusion("indexed")
    x = f.input("x", shape=(6, 16))
    f.output(build(x, f.input("index", shape=index, dtype="int64")))
    return f


def _rope(dtype: str, residual: bool = False, wide: bool = False) -> ig.Fusion:
    """Rotate-half RoPE; ``wide``: computed in float32, rounded at the end."""
    f = ig.Fusion("rope")
    x = f.input("x", shape=(2, 3, 4, 32), dtype=dtype)
    cos, sin = (f.input(n, shape=(2, 1, 4, 32), dtype=dtype) for n in ("cos", "sin"))
    y = ig.cast(x, "float32") if wide else x
    out = y * cos + ig.cat([-y[..., 16:], y[..., :16]], dim=-1) * sin
    out = out + y if residual else out
    f.output(ig.cast(out, dtype) if wide else out)
    return f


def _pairwise(dtype: str) -> ig.Fusion:
    """GPT-J's convention: neighbours are computed in different ways."""
    f = ig.Fusion("interleaved")
    x, c = f.input("x", shape=(3, 32), dtype=dtype), f.input("c", shape=(3, 16), dtype=dtype)
    even, odd = x[:, ::2], x[:, 1::2]
    f.output(ig.flatten(ig.stack([even * c - odd, odd * c + even], dim=-1), 1))
    return f


def _stored_between(dtype: str) -> ig.Fusion:
    """A value between two functions is an output as well, and one is read in both halves of a word."""
    f = ig.Fusion("between")
    x = f.input("x", shape=(3, 32), dtype=dtype)
    e = f.output(ig.exp(x * 0.3))
    t = ig.tanh(e)
    f.output(t * ig.sigmoid(t))
    f.output(ig.flatten(ig.stack([ig.tanh(x[:, 1::2]), ig.exp(x[:, ::2])], dim=-1), 1) * ig.cos(x))
    return f


def _between(dtype: str) -> dict[str, Callable[[], ig.Fusion]]:
    """Functions whose values between are rounded as well."""

    def one(build: Callable[[ig.Tensor], ig.Tensor]) -> Callable[[], ig.Fusion]:
        return lambda: _one(build, (3, 32), dtype)

    return {
        f"functions of products {dtype}": one(lambda x: x * ig.sigmoid(x * 1.702)),
        f"products of functions {dtype}": one(lambda x: ig.tanh(x[:, :16]) * ig.sigmoid(x[:, 16:])),
        f"a chain of functions {dtype}": one(lambda x: ig.cos(ig.tanh(ig.sin(x) + 0.3) / 0.7)),
        f"values between that are stored {dtype}": lambda: _stored_between(dtype),
    }


def _chosen(dtype: str, by_row: bool) -> ig.Fusion:
    """Rows, or elements, of one tensor or another."""
    f = ig.Fusion("f")
    x, y = (f.input(n, (6, 32), dtype=dtype) for n in "xy")
    c = f.input("c", (6, 1 if by_row else 32), dtype="bool")
    f.output(ig.where(c, x, y))
    return f


SHORT: dict[str, Callable[[], ig.Fusion]] = {
    "rows chosen bf16": lambda: _chosen("bfloat16", by_row=True),
    "elements chosen f16": lambda: _chosen("float16", by_row=False),
    "rope bf16": lambda: _rope("bfloat16"),
    "rope f16": lambda: _rope("float16"),
    "rope bf16 with residual": lambda: _rope("bfloat16", residual=True),
    "rope bf16 in float32": lambda: _rope("bfloat16", wide=True),
    "rope f16 in float32": lambda: _rope("float16", wide=True),
    "pairs of two ways bf16": lambda: _pairwise("bfloat16"),
    "pairs of two ways f16": lambda: _pairwise("float16"),
    "interleaved moves bf16": lambda: _one(lambda x: ig.flatten(ig.stack([x, x + x], dim=-1), 1), (3, 16), "bfloat16"),
    "neighbours exchanged bf16": lambda: _one(
        lambda x: ig.flatten(ig.stack([x[:, 1::2], x[:, ::2]], dim=-1), 1) * x, (3, 32), "bfloat16"
    ),
    "abs, sub and exp bf16": lambda: _one(lambda x: ig.exp(x - ig.abs(x)) * x, (3, 16), "bfloat16"),
    "a number times f16": lambda: _one(lambda x: x * 0.3 - x, (3, 16), "float16"),
    "shift by one bf16": lambda: _one(lambda x: ig.pad(x[:, 1:], (0, 1)) + x, (3, 16), "bfloat16"),
    **_between("bfloat16"),
    **_between("float16"),
    "padded halves f16": lambda: _one(lambda x: ig.pad(x, (4, 4)) * 2.0, (3, 24), "float16"),
}
CASES: dict[str, Callable[[], ig.Fusion]] = {
    **SHORT,
    "rotation": rotation,
    "rotation bf16": lambda: rotation("bfloat16"),
    "rotation f16": lambda: rotation("float16"),
    "rotation i64": lambda: rotation("int64"),
    "interleaved": _interleaved,
    "three parts": lambda: _one(lambda x: ig.cat([x[:, 16:], x[:, :8], x[:, 8:16]], 1) * x, (5, 24)),
    "uneven cut": lambda: _one(lambda x: ig.cat([x[:, 5:], x[:, :5]], 1) + x, (5, 24)),
    "pad": lambda: _one(lambda x: ig.pad(x, (4, 4)) + 1.0, (3, 24)),
    "pad one": lambda: _one(lambda x: ig.pad(x, (1, 3)) + 1.0, (3, 20)),
    "roll": lambda: _one(lambda x: ig.roll(x, 3, 1) + x, (3, 16)),
    "flip": lambda: _one(lambda x: ig.flip(x, 1) - x, (3, 16)),
    "transpose": lambda: _one(lambda x: x.T + 1.0, (8, 12)),
    "slice with a step": lambda: _one(lambda x: x[:, ::2] * x[:, 1::2], (3, 16)),
    "row sums": lambda: _one(lambda x: x / ig.sum(x, 1, keepdim=True), (3, 16)),
    "embedding": lambda: _indexed(lambda x, i: ig.embedding(i, x), (5,)),
    "embedding of bf16 rows, added": lambda: _indexed(
        lambda x, i: ig.embedding(i, ig.cast(x, "bfloat16")) + ig.embedding(i, x), (2, 3)
    ),
    "gather": lambda: _indexed(lambda x, i: ig.gather(x, 1, i) * 2.0, (6, 12)),
    "gather of a smaller index": lambda: _indexed(lambda x, i: ig.gather(x, 1, i), (3, 16)),
    "two gathers": lambda: _indexed(lambda x, i: ig.gather(x, 1, i) - ig.gather(x, 0, i % 6), (6, 16)),
    "gather, slice and cat": lambda: _indexed(
        lambda x, i: ig.cat([ig.gather(x, 1, i)[:, 8:], x[:, 4:12]], dim=1), (6, 16)
    ),
    "index_select": lambda: _indexed(lambda x, i: ig.index_select(x, 1, i) + 1.0, (8,)),
    "twice": lambda: _one(lambda x: (x * x)[:, 4:12] + x[:, :8] * x[:, 8:], (3, 16)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_lanes_give_the_values_of_loops(name: str) -> None:
    f = CASES[name]()
    ig.schedule.auto(f)
    check(f)


@pytest.mark.sampled
@pytest.mark.parametrize("name", SHORT)
def test_pairs_have_the_bits_of_single_elements(name: str) -> None:
    f = SHORT[name]()
    ig.schedule.auto(f)
    inputs: dict[str, Any] = random_inputs(f, 1, {})
    found, wanted = lane_program(f).run(inputs), ig.emit(f, target="python").run(inputs)
    for t in f.outputs:
        np.testing.assert_array_equal(found[t.name].view(np.uint16), wanted[t.name].view(np.uint16))


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "most"), [("rope bf16", 130), ("rope f16", 130), ("rope bf16 with residual", 140)])
def test_rope_in_16_bits_is_computed_in_pairs(name: str, most: int) -> None:
    """Each half of the heads' width has warps of its own: straight code, four loads and one store a thread."""
    f = SHORT[name]()
    ig.schedule.auto(f)
    statements = [s for k in lane_program(f).kernels for s in repeated(k.body)]
    assert not [s for s in statements if isinstance(s, (Load, Store, Compute, ExtractHalf))]
    (ptx,) = compile_ptx(ig.emit(f, target="cuda"))
    lines = [line.split()[0] for line in ptx[ptx.index("{") :].splitlines() if line.startswith("\t") and ";" in line]
    assert len(lines) < most and not [op for op in lines if op.startswith("cvt.rn")]
    assert [sum(op.startswith(f"{way}.global.v4") for op in lines) for way in ("ld", "st")] == [8, 2]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_values_between_are_rounded_in_pairs(dtype: str) -> None:
    """One instruction rounds two of them; a function that has no form for pairs reads the halves of the word."""
    f = SHORT[f"functions of products {dtype}"]()
    ig.schedule.auto(f)
    statements = [s for k in lane_program(f).kernels for s in repeated(k.body)]
    assert not [s for s in statements if isinstance(s, Compute) and s.local.dtype == dtype]
    packed = [s for s in statements if isinstance(s, Half2Op)]
    assert sum(s.op == "pack" for s in packed) == 2 * sum(s.op == "mul" for s in packed) > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_words_are_chosen_where_both_halves_are(dtype: str) -> None:
    """Both are loaded before the choice: in a branch they would wait for the condition."""
    for by_row in (True, False):
        f = _chosen(dtype, by_row)
        ig.schedule.auto(f)
        (kernel,) = lane_program(f).kernels
        assert any(isinstance(s, Half2Op) and s.op == "where" for s in repeated(kernel.body)) is by_row
    f = _chosen(dtype, by_row=True)
    ig.schedule.auto(f)
    (ptx,) = compile_ptx(ig.emit(f, target="cuda"))
    assert "selp.b32" in ptx and ptx.index("selp.b32") > ptx.rindex("ld.global") and "cvt.rn" not in ptx


def test_a_value_that_one_lane_needs_alone_is_computed_once() -> None:
    """The exp of ``b`` is negated by itself: as half of a word it would be computed twice."""
    k = ig.kernel.parse("""
kernel k():
  buffer x: bfloat16[64] input "x"
  buffer y: bfloat16[64] output "y"
  buffer z: bfloat16[32] output "z"
  for i < 32:
    lanes:
      (a: bfloat16, b: bfloat16) = x[i*2; 2]
      c: bfloat16 = exp(a)
      d: bfloat16 = exp(b)
      e: bfloat16 = tanh(c)
      f: bfloat16 = tanh(d)
      y[i*2; 2] = (e, f)
      g: bfloat16 = neg(d)
      z[i] = g
""")
    made = eliminate_dead_code(pack_half2(k))
    assert [s.op for s in walk(made.body) if isinstance(s, Compute)] == ["exp", "exp", "tanh", "tanh", "neg"]


@pytest.mark.parametrize("way", ["unroll", "vectorize"])
def test_one_lane_sets_what_is_read_behind_it(way: str) -> None:
    """A loop of one step is its body: a tensor in registers that it makes is read after it."""
    f = ig.Fusion("f")
    one = ig.add(f.input("x", (3, 4))[:, 0:1], 1)
    padded = ig.pad(one, (0, 3))
    f.output(ig.add(padded, 1))
    for t in (one, padded):
        t.inline(1)
    one.parallelize(1, way)  # type: ignore[arg-type]
    check(f)


CONFIGS = st.builds(
    KernelConfig, block=st.sampled_from([None, 4, 32, 64]), vectors=st.sampled_from([None, 1, 2, 4]),
    apart=st.sampled_from([None, False, True]),
)  # fmt: skip


@given(fusions(), CONFIGS)
@settings(max_examples=examples(150))
def test_random_fusions_scheduled_automatically(f: ig.Fusion, config: KernelConfig) -> None:
    inputs: dict[str, Any] = random_inputs(f, 0, {})  # before `auto`, which may change what an index points into
    ig.schedule.auto(f, config=config)
    check(f, inputs)


def test_an_embedding_reads_its_id_once_and_whole_rows() -> None:
    f = CASES["embedding"]()
    ig.schedule.auto(f)
    statements = [s for k in lane_program(f).kernels for s in repeated(k.body)]
    assert [len(s.locals) for s in statements if isinstance(s, VectorLoad)] == [4]
    assert [len(s.values) for s in statements if isinstance(s, VectorStore)] == [4]
    assert sum(isinstance(s, Let) for s in statements) == sum(isinstance(s, Load) for s in statements) == 1


def test_a_computed_index_of_whole_rows_is_one_for_all_lanes() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", (9, 8)), f.input("i", (3,), "int64")
    f.output(ig.gather(x, 0, ig.remainder(ig.expand(ig.unsqueeze(i, 1), (3, 8)) * 3 + 1, 9)))
    ig.schedule.auto(f)
    statements = [s for k in check(f).kernels for s in repeated(k.body)]
    assert [len(s.locals) for s in statements if isinstance(s, VectorLoad)] == [4]


def test_a_computed_index_of_each_lane_is_its_own() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", (4, 9)), f.input("i", (4, 8), "int64")
    f.output(ig.gather(x, 1, ig.remainder(i * 3 + 1, 9)))
    ig.schedule.auto(f)
    statements = [s for k in check(f).kernels for s in repeated(k.body)]
    assert sum(isinstance(s, Let) for s in statements) == 4


@pytest.mark.parametrize("bad", [0, 1, 7])
def test_a_checked_run_names_the_lane_whose_index_is_out_of_range(bad: int) -> None:
    f = CASES["gather"]()
    ig.schedule.auto(f)
    inputs: dict[str, Any] = random_inputs(f, 0, {})
    program = lane_program(f)
    program.run(inputs, checked=True)
    inputs["index"][2, bad] = 16
    with pytest.raises(ig.IndexingError, match="index 16 loaded from index is outside axis 1 of x") as caught:
        program.run(inputs, checked=True)
    # 2 * 12 + bad elements lie before it; the block is the first, threads have 4 lanes.
    assert f"i0=0, i1={(24 + bad) // 4}, i2={bad % 4}" in str(caught.value)


def test_a_rotation_reads_each_element_once_without_a_test() -> None:
    f = rotation()
    ig.schedule.auto(f)
    statements = [s for k in lane_program(f).kernels for s in repeated(k.body)]
    assert [len(s.locals) for s in statements if isinstance(s, VectorLoad)] == [4, 4]
    assert [len(s.values) for s in statements if isinstance(s, VectorStore)] == [4, 4]
    assert not [s for s in statements if isinstance(s, (Load, Store))]
    assert not [s for s in statements if isinstance(s, Select)]
    assert all(is_lanes(s) or is_thread(s.parallel) for s in statements if isinstance(s, Loop))


def test_ptx_of_a_bf16_rotation() -> None:
    f = rotation("bfloat16")
    ig.schedule.auto(f)
    (ptx,) = compile_ptx(ig.emit(f, target="cuda"))
    assert ptx.count("ld.global.v4") == 2 and ptx.count("st.global.v4") == 2
    assert not any(word in ptx for word in ("rem.s64", "div.s64", "rem.u64", "div.u64", ".local"))


def test_an_input_that_is_not_aligned_is_read_element_by_element() -> None:
    f = ig.Fusion("f")
    f.output(f.input("x", shape=(4, 16), alignment=4) + 1.0)
    ig.schedule.auto(f)
    statements = [s for k in check(f).kernels for s in repeated(k.body)]
    assert not [s for s in statements if isinstance(s, VectorLoad)]


def test_an_offset_input_is_read_in_the_widest_aligned_parts() -> None:
    f = ig.Fusion("f")
    f.output(f.input("x", shape=(4, 16), offset=2) + 1.0)
    ig.schedule.auto(f)
    statements = [s for k in check(f).kernels for s in repeated(k.body)]
    assert {len(s.locals) for s in statements if isinstance(s, VectorLoad)} == {2}


def test_what_is_chosen_anew_is_another_value() -> None:
    """Two lanes may share a variable for values made of the same, not for values made of one local at two times."""
    x, a, b, c = (Local(n, "int64") for n in "xabc")
    held = ValueNumbering()
    for s in (Select(x, (), Constant(1)), Compute(a, "neg", (x,), "int64"), Compute(b, "neg", (x,), "int64")):
        held.define(s)
    for s in (Select(x, (), Constant(2)), Compute(c, "neg", (x,), "int64")):
        held.define(s)
    assert held.number(a) == held.number(b)
    assert held.number(a) != held.number(c)


APART = """
kernel k():
  buffer x: float32[2432] input "x"
  buffer z: float32[2432] input "z"
  buffer y: float32[2432] output "y"
  for i < 2048:
    for w < 4, unroll:
      if (i + w*128) % 301 < 100:
        a: float32 = x[i + w*128]
      if (i + w*128) % 301 >= 100:
        b: float32 = z[i + w*128]
      t: float32 = choose((i + w*128) % 301 < 100 ? a, b)
      y[i + w*128] = t
"""


def test_tests_of_single_lanes_split_nothing() -> None:
    """A split would settle one of four lanes, and double the code of all."""
    (loop,) = unroll_lanes(ig.kernel.parse(APART)).body
    assert isinstance(loop, Loop) and [type(s) for s in loop.body] == [StraightLineBlock]


def test_a_test_of_all_lanes_splits_them() -> None:
    (loop,) = unroll_lanes(ig.kernel.parse(APART.replace("(i + w*128) % 301", "i"))).body
    assert isinstance(loop, Loop) and [type(s) for s in loop.body] == [If, If]


def test_a_test_of_what_the_lanes_load_splits_nothing() -> None:
    """The index is known only behind its load, inside the lanes."""
    loads = "      n: int32 = k[i]\n      let ld0 = n\n"
    text = APART.replace("(i + w*128) % 301", "ld0").replace(
        "  for i <", '  buffer k: int32[2048] input "k"\n  for i <'
    )
    text = text.replace("kernel k():", "kernel k():\n  where ld0 in 0, 2047").replace(
        "      if ld0 < 100", f"{loads}      if ld0 < 100"
    )
    made = unroll_lanes(ig.kernel.parse(text))
    made.verify()
    (loop,) = made.body
    assert isinstance(loop, Loop) and [type(s) for s in loop.body] == [StraightLineBlock]
