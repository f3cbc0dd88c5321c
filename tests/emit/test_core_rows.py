"""Loops for a core: rows of plain indices out of any nest of loops, by the passes that make them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import idgraph as ig
from idgraph.codegen.printers.scalar import runs_parallel
from idgraph.kernel.ir import Accumulate, Comment, Compute, If, Kernel, Loop, Stmt, walk
from idgraph.passes.load_hoisting import licm_loads
from idgraph.passes.loop_flattening import flatten_loops
from idgraph.passes.loop_partition import unswitched
from idgraph.passes.narrowing import elide_double_rounding
from idgraph.passes.reduction_flattening import flatten_reduction_loops


def _rotated(f: ig.Fusion) -> ig.Tensor:
    x, c = f.input("x", (2, 3, 16, 128), "bfloat16"), f.input("c", (1, 1, 16, 128), "bfloat16")
    return x * c + ig.cat([-x[..., 64:], x[..., :64]], dim=-1) * c


def _embedded(f: ig.Fusion) -> ig.Tensor:
    return ig.embedding(f.input("i", (12,), "int64"), f.input("t", (7, 1024)))


def _rows_put(f: ig.Fusion) -> ig.Tensor:
    x, i, new = f.input("x", (7, 64)), f.input("i", (2048,), "int64"), f.input("new", (2048, 64))
    return ig.index_put(x, [i], new)  # each row asks for the last entry that names it: a number made of a loaded one


def _added_along_rows(f: ig.Fusion) -> ig.Tensor:
    x, i, s = f.input("x", (24, 512)), f.input("i", (24, 512), "int64"), f.input("s", (24, 512))
    return ig.scatter_add(x, 1, i, s)


def _gathered(f: ig.Fusion) -> ig.Tensor:
    return ig.gather(f.input("x", (40, 192)), 1, f.input("i", (40, 192), "int64"))


CASES: dict[str, tuple[Callable[[ig.Fusion], ig.Tensor], set[str]]] = {
    "halves rotated": (_rotated, {"collapse", "unswitch", "round_once"}),
    "embedding": (_embedded, {"collapse", "hoist_loads"}),
    "rows put": (_rows_put, {"hoist_loads"}),
    "added along rows": (_added_along_rows, set()),
    "gather": (_gathered, {"collapse"}),
    "sums of channels": (lambda f: ig.sum(f.input("x", (16, 8, 20, 20)), (0, 2, 3)), {"columns"}),
    "largest of channels": (lambda f: ig.amax(f.input("x", (16, 8, 20, 20)), (0, 2, 3)), {"columns", "keep_rolled"}),
    "columns of odd length": (lambda f: ig.sum(f.input("x", (2001, 67)), 0), {"columns", "interchange"}),
    "largest of columns": (lambda f: ig.amax(f.input("x", (330, 515)), 0), {"interchange"}),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_values_and_addresses(name: str) -> None:
    build, wanted = CASES[name]
    f = ig.Fusion("f")
    t = f.output(build(f))
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        x.name: rng.integers(0, 7, [int(n) for n in x.shape]).astype(
            ml_dtypes.bfloat16 if x.dtype == "bfloat16" else x.dtype
        )
        for x in f.inputs
    }
    want = np.asarray(ig.emit(f, "numpy").run(arrays)[t.name], np.float64)
    ig.schedule.auto(f)
    p = ig.emit(f, "cpu")
    assert wanted <= {name for k in p.kernels for name in k.passes}
    assert np.array_equal(np.asarray(p.run(arrays, poison=True)[t.name], np.float64), want)
    assert ig.validate(f, target="cpu").ok


def _kernel(body: str, buffers: str = 'buffer x: float32[4096] input "x"') -> Kernel:
    return ig.kernel.parse(f'kernel k():\n  {buffers}\n  buffer y: float32[4096] output "y"\n{body}')


def _loops(k: Kernel) -> list[int]:
    return [int(s.extent) for s in walk(k.body) if isinstance(s, Loop)]


@pytest.mark.parametrize(
    ("shape", "dim", "blocks"),
    [((24, 512), 1, 24), ((3, 5, 40), 2, 15), ((3, 40, 5), 1, 3), ((37, 53), 1, 37), ((1, 64), 1, 1)],
)
def test_a_core_takes_all_that_may_meet_in_an_element(shape: tuple[int, ...], dim: int, blocks: int) -> None:
    f = ig.Fusion("f")
    x, i, s = f.input("x", shape), f.input("i", shape, "int64"), f.input("s", shape)
    t = f.output(ig.scatter_add(x, dim, i, s))
    want: dict[str, Any] = {
        "x": np.zeros(shape, np.float32),
        "s": np.arange(prod(shape), dtype=np.float32).reshape(shape),
    }
    want["i"] = np.random.default_rng(0).integers(0, shape[dim], shape)
    expected = ig.emit(f, "numpy").run(want)[t.name]
    ig.schedule.auto(f, device="cpu")
    p = ig.emit(f, "cpu")
    kernel = p.kernels[-1]
    assert _loops(kernel)[0] == blocks
    assert runs_parallel(kernel) and not any(isinstance(s, Accumulate) and s.shared for s in walk(kernel.body))
    assert np.array_equal(p.run(want)[t.name], expected)


def test_entries_in_front_of_all_axes_are_added_on_one_core() -> None:
    f = ig.Fusion("f")
    x, i, s = f.input("x", (7, 8)), f.input("i", (200,), "int64"), f.input("s", (200, 8))
    f.output(ig.index_put(x, [i], s, accumulate=True))
    ig.schedule.auto(f, device="cpu")
    assert not runs_parallel(ig.emit(f, "cpu").kernels[-1])


COMPUTED = """  for b < 16, blockIdx.x:
    for c < 64:
      n: int64 = i[b]
      STEP
      let at = m
      check (at >= 0) & (at < 8), of at, site "x", axis 0, extent 8, index "i", in "y", at "f.py:1":
        v: int64 = x[at*64 + c]
        y[b*64 + c] = v
      LAST
"""


@pytest.mark.parametrize(
    ("step", "last", "leaves"),
    [
        ("m: int64 = mul(n, 2)", "z[b*64 + c] = m", True),
        ("m: int64 = mul(n, {c})", "z[b*64 + c] = m", False),
        ("m: int64 = mul(n, 2)", "m: int64 = cast(3)", False),
        ("m: int64 = mul(n, 2)", "i[b] = m", False),
        ("k: int64 = x[c]\n      m: int64 = mul(n, k)", "z[b*64 + c] = m", False),
    ],
)
def test_an_index_computed_of_a_loaded_one_leaves_the_loop(step: str, last: str, leaves: bool) -> None:
    names = {"i": 256, "x": 512, "y": 1024, "z": 1024}
    buffers = "".join(f'  buffer {b}: int64[{n}] {"input" if b == "x" else "output"} "{b}"\n' for b, n in names.items())
    body = COMPUTED.replace("STEP", step).replace("LAST", last)
    kernel = ig.kernel.parse(f"kernel k():\n  where at in _, _\n{buffers}{body}")
    inner = next(s for s in walk(licm_loads(kernel).body) if isinstance(s, Loop) and s.var == "c")
    assert any(isinstance(s, Compute) and s.op == "mul" for s in walk(inner.body)) is not leaves


def test_nothing_is_moved_where_the_order_counts() -> None:
    nest = "  for b < 8, blockIdx.x:\n    for t < 16, threadIdx.x:\n      for q < 4:\n"
    scattered = nest + (
        "        i: int64 = cast(3)\n        let at = i\n        v: float32 = x[b*64 + t*4 + q]\n        y[at] = v\n"
    )
    assert _loops(flatten_loops(_kernel(scattered))) == [8, 16, 4]
    plain = nest + "        v: float32 = x[b*64 + t*4 + q]\n        y[b*64 + t*4 + q] = v\n"
    assert _loops(flatten_loops(_kernel(plain))) == [1, 512]


def test_a_value_that_is_read_again_is_rounded_before() -> None:
    bf16 = 'buffer x: bfloat16[64] input "x"\n  buffer z: bfloat16[64] output "z"'
    text = "  for i < 64:\n    u: bfloat16 = x[i]\n    v: bfloat16 = mul(u, u)\n    z[i] = v\n"
    assert "v: float32" in str(elide_double_rounding(_kernel(text, bf16)))
    again = text + "    w: float32 = cast(v)\n    y[i] = w\n"
    assert "v: float32" not in str(elide_double_rounding(_kernel(again, bf16)))


def test_tests_of_the_step_stay_in_the_loop() -> None:
    text = "  for r < 4:\n    for c < 64:\n      if {}:\n        v: float32 = x[r*64 + c]\n        y[r*64 + c] = v\n"
    for test, above in (("c < 9", Loop), ("r < 2", If)):
        (rows,) = unswitched(_kernel(text.format(test))).body
        assert isinstance(rows, Loop)
        assert [type(s) for s in rows.body if not isinstance(s, Comment)] == [above]
        assert _loops(unswitched(_kernel(text.format(test)))) == [4, 64]  # the other side has no statement


def test_rows_that_are_one_already_stay() -> None:
    def all_of(body: tuple[Stmt, ...]) -> list[Stmt]:
        return list(walk(body))

    text = (
        "  acc s: float32 = 0.0\n  for i < 8{}:\n    for t < 16, threadIdx.x:\n      v: float32 = x[i*16 + t]\n"
        "      s <- sum v\n  y[0] = s\n"
    )
    k = _kernel(text.format(", column 128 of 2"))
    assert all_of(flatten_reduction_loops(k).body) == all_of(k.body)
    assert _loops(flatten_reduction_loops(_kernel(text.format("")))) == [128]


def test_what_threads_share_is_read_by_the_thread_that_wrote_it() -> None:
    """A loop on threads over shared elements stays: each thread reads what it wrote itself, without a barrier."""
    body = (
        '  alloc tile: float32[2] shared "tile"\n  for t < 1, threadIdx.x:\n    for c < 2:\n'
        "      v: float32 = x[c]\n      tile[c] = v\n  acc s: float32 = 0.0\n"
        "  for c < 2:\n    for t < 1, threadIdx.x:\n      v: float32 = {}[c]\n      s <- sum v\n  y[0] = s\n"
    )
    shared, plain = (_kernel(body.format(b)) for b in ("tile", "x"))
    assert flatten_reduction_loops(shared).body == shared.body and flatten_reduction_loops(plain).body != plain.body
