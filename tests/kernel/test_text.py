"""The text form of kernels: what is printed is read back exactly, and nothing else is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import IdGraphError, ParseError
from idgraph.kernel.ir import Accumulate, Kernel, Load, Stmt, Store, VectorAdd, VectorLoad, VectorStore, walk
from idgraph.runtime.program import stages
from idgraph.testing import scheduled_fusions
from tests.emit.cases import CASES, Case
from tests.emit.row_cases import cross_entropy

TARGETS = ("cpu", "cuda")


def kernels(made: Case) -> Iterator[Kernel]:
    """The kernels of a case after each pass of each target that can express it, each once."""
    seen: list[Kernel] = []
    for target in TARGETS:
        try:
            for _, plan in stages(made.fusion, target):
                fresh = [k for k in plan.kernels if not any(alike(k, x) for x in seen)]
                seen += fresh
                yield from fresh
        except IdGraphError:
            continue


def alike(a: Kernel, b: Kernel) -> bool:
    """Equal, with the passes that they went through and what their accesses are for."""
    return a.passes == b.passes and a == b and all(same(x, y) for x, y in zip_longest(walk(a.body), walk(b.body)))


def same(a: Stmt, b: Stmt) -> bool:
    """Equal, with what accesses are for."""
    known = (Load, Store, Accumulate, VectorLoad, VectorStore, VectorAdd)
    return a == b and (not isinstance(a, known) or not isinstance(b, known) or a.serves == b.serves)


def assert_read_back(k: Kernel) -> None:
    text = str(k)
    back = ig.kernel.parse(text)
    assert alike(back, k)
    assert str(back) == text


@pytest.mark.parametrize("name", CASES)
def test_every_kernel_is_read_back(name: str) -> None:
    for k in kernels(CASES[name]()):
        assert_read_back(k)


@given(scheduled_fusions())
@settings(max_examples=25, deadline=None)
def test_kernels_of_random_fusions_are_read_back(f: ig.Fusion) -> None:
    for k in kernels(Case(f)):
        assert_read_back(k)


def rope() -> ig.Fusion:
    f = ig.Fusion("rope")
    x, c, s = (f.input(n, shape=(64, 32, 128), dtype="bfloat16") for n in "xcs")
    f.output(x * c + ig.cat([-x[:, :, 64:], x[:, :, :64]], 2) * s)
    return f


def transposed() -> ig.Fusion:
    f = ig.Fusion("turned")
    f.output(ig.transpose(f.input("x", shape=(512, 256)), 0, 1))
    return f


def loss() -> ig.Fusion:
    return cross_entropy(8192, 4096, "none", False)


@pytest.mark.parametrize(("build", "most"), [(rope, 64), (transposed, 24), (loss, 76)])
def test_a_kernel_fits_a_screen(build: Callable[[], ig.Fusion], most: int) -> None:
    f = build()
    ig.schedule.auto(f)
    for k in ig.emit(f, "cuda").kernels:
        lines = str(k).splitlines()
        assert len(lines) <= most, len(lines)
        assert k.ir is k


TEXT = str(ig.emit(transposed(), "cpu").kernels[0])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no kernel here"),
        ("kernel k():\n    x = 1", "too deep|belongs"),
        ("kernel k():\n   x = 1", "odd number"),
        ("kernel k():\n  for i < __import__('os'):", "line 2"),
        ("kernel k():\n  t: float32 = buf0[0]", "line 2"),
        ("kernel k():\n  t: float32 = add(u, 1)", "u has no type"),
        ("kernel k():\n  acc t: floaty = 1", "'floaty' is not a type"),
        ("kernel k():\n  for i < 4, warp:\n", "not a way"),
        ("kernel k():\n  if 4:\n", "not a condition"),
        ("kernel k():\n  t: float32 = add(1, 2", "line 2"),
        ("kernel k():\n  # a\x0bb", "not printable"),
        ('kernel k():\n  buffer b: float32[4] disk "x"', "not a place"),
        ('kernel k():\n  buffer b: float32[4] input "x"\n  b[0; 4] = (1, 2)', "2 values for 4"),
        ("x" * 5_000_000, "too long"),
        ("kernel k():\n" + "\n" * 30_000, "too long"),
        ("kernel k():\n  t: float32 = add(" + "(" * 5000 + "1" + ")" * 5000 + ")", "line 2"),
    ],
)
def test_text_that_says_no_kernel(text: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        ig.kernel.parse(text)


@given(st.integers(0, len(TEXT)), st.integers(0, 6), st.text(max_size=6))
@settings(max_examples=300, deadline=None)
def test_changed_text_is_read_or_refused(at: int, cut: int, more: str) -> None:
    try:
        k = ig.kernel.parse(TEXT[:at] + more + TEXT[at + cut :])
    except ParseError:
        return
    assert ig.kernel.parse(str(k)) == k


@given(st.text(alphabet='kernel():\n forit<=0123[]{}`"@;,.?#_-', max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        k = ig.kernel.parse("kernel k():\n" + text)
    except ParseError:
        return
    assert ig.kernel.parse(str(k)) == k


@pytest.mark.parametrize(
    "line", ["registers a: float32[4], b", "for i < 4: for j < 2: x = 1", "for i < 4 x", "launch blockIdx.x: 4; 5"]
)
def test_lines_that_are_no_lines(line: str) -> None:
    with pytest.raises(ParseError):
        ig.kernel.parse(f"kernel k():\n  {line}\n")
