"""Programs of middle sizes, a few thousand elements of any float type: ``auto`` schedules what ``emit`` takes, each
kernel is well formed, and its threads compute what the operations say.

Rows that fill several threads and columns that do not fill a block are where a total is read by other threads than the
one that writes it, where words of two 16-bit floats meet single ones, and where scans stand beside other loops.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import Fusion, Tensor
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from tests.emit.thread_runner import run_threads
from tests.property.budget import examples

SIZES = (1, 2, 3, 4, 6, 8, 12, 17, 32, 33, 34, 64, 65, 96, 100, 130)
MOST = 3000  # elements of a tensor, all threads of which run in Python


def _next(draw: st.DrawFn, made: list[Tensor]) -> list[Tensor]:
    """What one step computes from a late tensor."""
    t = made[-1 - draw(st.integers(0, min(2, len(made) - 1)))]
    axis = draw(st.integers(0, t.ndim - 1))
    n = int(t.axes[axis].extent)
    match draw(
        st.sampled_from(("binary", "unary", "cast", "reduce", "softmax", "slice", "flip", "permute", "cat", "scan"))
    ):
        case "reduce":
            op = draw(st.sampled_from((ig.sum, ig.amax, ig.amin, ig.mean)))
            return [op(t, axis, keepdim=True)]
        case "softmax":
            top = ig.amax(t, axis, keepdim=True)
            return [top, (e := ig.exp(t - top)) / ig.sum(e, axis, keepdim=True)]
        case "unary":
            return [draw(st.sampled_from((ig.neg, ig.exp, ig.relu, ig.tanh)))(t)]
        case "cast":
            return [ig.cast(t, draw(st.sampled_from(("float32", "bfloat16", "float16"))))]
        case "slice" if n > 2:
            return [ig.slice(t, axis, 1, n - 1)]
        case "flip":
            return [ig.flip(t, (axis,))]
        case "permute":
            return [ig.permute(t, tuple(draw(st.permutations(range(t.ndim)))))]
        case "cat" if 2 * prod(int(d.extent) for d in t.axes) <= MOST:
            return [ig.cat([t, ig.neg(t)], axis)]
        case "scan":
            return [ig.cumsum(t, axis)]
        case _:
            u = draw(st.sampled_from([u for u in made if u.ndim == t.ndim and _fits(t, u)]))
            return [draw(st.sampled_from((ig.add, ig.sub, ig.mul)))(t, u)]


def _fits(a: Tensor, b: Tensor) -> bool:
    pairs = [(int(x.extent), int(y.extent)) for x, y in zip(a.axes, b.axes, strict=True)]
    return all(x == y or 1 in (x, y) for x, y in pairs) and prod(map(max, pairs)) <= MOST


@st.composite
def middle(draw: st.DrawFn) -> Fusion:
    """Two to seven steps from one input; inner results may be outputs too."""
    f = Fusion("f")
    shape = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3))
    if prod(shape) > MOST:
        reject()
    made = [f.input("x", shape=shape, dtype=draw(st.sampled_from(("float32", "bfloat16", "float16", "float64"))))]
    for _ in range(draw(st.integers(2, 7))):
        made += _next(draw, made)
    last = made[-1]
    f.output(last, *(t for t in dict.fromkeys(made[1:-1]) if draw(st.booleans())))
    return f


def _computes(f: Fusion) -> None:
    short = any(t.dtype in ("bfloat16", "float16") for t in f.tensors)
    ig.schedule.auto(f)
    p = ig.emit(f, target="cuda")
    for k in p.kernels:
        k.ir.verify()
    inputs = random_inputs(f, 0, {})
    with np.errstate(all="ignore"):
        found, wanted = run_threads(p, inputs), evaluate(f, inputs)
    near = 3e-2 if short else 2e-4
    for t in f.outputs:
        a, b = np.asarray(found[t.name]).astype(float), np.asarray(wanted[t.name]).astype(float)
        np.testing.assert_allclose(a, b, rtol=near, atol=near)


@settings(max_examples=examples(60), deadline=None)
@given(middle())
def test_threads_compute_programs_of_middle_sizes(f: Fusion) -> None:
    note(str(f))
    _computes(f)


FOUND = {
    "two scans of other lengths in one block": """
        x = input(shape=(33,), dtype="float32")
        t1 = slice(x, dims=(0,), starts=(1,), stops=(32,), steps=(1,))
        t2 = cumsum(t1, dim=0)
        t3 = neg(t1)
        t4 = cat(t1, t3, dim=0)
        t5 = cumsum(t4, dim=0)
        t6 = flip(t2, dims=(0,))
        output t5
        output t6
    """,
    "a scan of what is read through a tile": """
        x = input(shape=(65, 32), dtype="bfloat16")
        t1 = permute(x, dims=(1, 0))
        t2 = cumsum(t1, dim=1)
        output t1
        output t2
    """,
    "a scan for a reduction and for another reader": """
        x = input(shape=(100, 3), dtype="float32")
        t1 = cumsum(x, dim=1)
        t2 = mul(t1, t1)
        t3 = amax(t2, dims=(0,), keepdim=true)
        t4 = neg(t2)
        output t3
        output t4
    """,
    "a scan whose reader is looped over as a reduction": """
        x = input(shape=(8, 96, 2), dtype="float32")
        t1 = amax(x, dims=(0,), keepdim=true)
        t2 = cumsum(x, dim=1)
        t3 = mul(t2, t1)
        output t2
        output t3
    """,
    "words of two floats loaded for several arrays": """
        x = input(shape=(130, 6), dtype="bfloat16")
        t1 = add(x, x)
        t2 = add(t1, t1)
        t3 = add(t2, t2)
        t4 = flip(t2, dims=(1,))
        t5 = mul(t4, t2)
        t6 = exp(t3)
        output t3
        output t5
        output t6
    """,
    "an input read twice in a row, once inside a cat": """
        x = input(shape=(2, 66, 1), dtype="float32")
        t1 = neg(x)
        t2 = cat(x, t1, dim=2)
        t3 = mul(x, t2)
        t4 = amax(t2, dims=(2,), keepdim=true)
        output t3
        output t4
    """,
    "a member of a row that follows a reader outside": """
        x = input(shape=(2, 66, 1), dtype="float32")
        t1 = neg(x)
        t2 = cat(x, t1, dim=2)
        t3 = mul(x, t2)
        t4 = neg(t3)
        t5 = cat(t3, t4, dim=1)
        t6 = amax(t2, dims=(2,), keepdim=true)
        output t3
        output t5
        output t6
    """,
    "a largest of columns that do not fill a block, returned": """
        x = input(shape=(64, 34), dtype="float32")
        t1 = amax(x, dims=(0,), keepdim=true)
        t2 = sub(x, t1)
        output t1
        output t2
    """,
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_found_by_such_programs(text: str) -> None:
    _computes(ig.parse(f"fusion f {{{text}}}"))
