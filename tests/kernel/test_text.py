"""The text form of kernels: what is printed is read back exactly, and nothing else is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import IdGraphError, ParseError
from idgraph.kernel.ir import Accumulate, Comment, Kernel, Load, Stmt, Store, VectorAdd, VectorLoad, VectorStore, walk
from idgraph.kernel.printer import SCREEN
from idgraph.runtime.program import stages
from idgraph.testing import scheduled_fusions
from tests.emit.cases import CASES, Case
from tests.emit.row_cases import cross_entropy
from tests.property.budget import NIGHTLY, examples

TARGETS = ("cpu", "cuda")


def kernels(made: Case) -> Iterator[tuple[Kernel, str]]:
    """The kernels of a case and their text for each target that can express it, each once: as they were lowered and
    after the last pass, each night after every pass."""
    seen: dict[str, list[Kernel]] = {}
    for target in TARGETS:
        try:
            after = [plan for _, plan in stages(made.fusion, target)]
            for plan in after if examples(1) == NIGHTLY else (after[0], after[-1]):
                for k in plan.kernels:
                    same_text = seen.setdefault(text := str(k), [])
                    if not any(alike(k, x) for x in same_text):
                        same_text.append(k)
                        yield k, text
        except IdGraphError:
            continue


def alike(a: Kernel, b: Kernel) -> bool:
    """Equal, with the passes that they went through and what their accesses are for."""
    return a.passes == b.passes and a == b and all(same(x, y) for x, y in zip_longest(walk(a.body), walk(b.body)))


def same(a: Stmt, b: Stmt) -> bool:
    """Equal, with what accesses are for."""
    known = (Load, Store, Accumulate, VectorLoad, VectorStore, VectorAdd)
    return a == b and (not isinstance(a, known) or not isinstance(b, known) or a.serves == b.serves)


def assert_read_back(k: Kernel, text: str = "") -> None:
    text = text or str(k)
    back = ig.kernel.parse(text)
    assert alike(back, k)
    assert str(back) == text


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_is_read_back(name: str) -> None:
    for k, text in kernels(CASES[name]()):
        assert_read_back(k, text)


@given(scheduled_fusions())
@settings(max_examples=25, deadline=None)
def test_kernels_of_random_fusions_are_read_back(f: ig.Fusion) -> None:
    for k, text in kernels(Case(f)):
        assert_read_back(k, text)


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


def odd_loss() -> ig.Fusion:
    """Rows that begin anywhere: chunks, what is left of them, and the edges are three nests."""
    return cross_entropy(8192, 50257, "none", False)


@pytest.mark.parametrize(("build", "most"), [(rope, 64), (transposed, 24), (loss, 40), (odd_loss, 58)])
def test_a_kernel_fits_a_screen(build: Callable[[], ig.Fusion], most: int) -> None:
    f = build()
    ig.schedule.auto(f)
    for k in ig.emit(f, "cuda").kernels:
        lines = str(k).splitlines()
        assert len(lines) <= most, len(lines)
        assert_read_back(k)
        assert k.ir is k


@pytest.mark.parametrize("text", ["a ;; b", "a | b", " a", "", "a; b  # c", '"'])
def test_comments_are_read_back(text: str) -> None:
    made = ig.kernel.parse("kernel k():\n  acc t: float32 = 1.0\n")
    for count in (1, SCREEN + 1):  # the second has several statements on a line
        body = (Comment(text), Comment("plain"), *made.body, Comment("last")) * count
        assert_read_back(replace(made, body=body))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["a ;; b", "a | b", "a; b", 'a" | "b', "a  # b", "\\"])
def test_names_in_comments_do_not_change_the_lines(name: str) -> None:
    """A name is quoted: separators in it are not read as such."""
    shown: list[int] = []
    for title in ("plain", name):
        f = ig.Fusion("f")
        x = f.input(title, shape=(8192, 4096))
        f.output(ig.softmax(x, 1) + ig.amax(x, 1, keepdim=True))
        ig.schedule.auto(f)
        for target in TARGETS:
            for k in ig.emit(f, target).kernels:  # pyright: ignore[reportArgumentType]
                assert_read_back(k)
                shown.append(len(str(k).splitlines()))
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]


def test_lines_of_a_long_kernel_are_read_back() -> None:
    lines = "acc a: float32 = 1.0\nb: float32 = add(a, a)\nfor q < 4, unroll: c: float32 = add(b, a)\na <- sum b\n"
    text = "kernel k():\n" + "".join(f"  {line}\n" for line in lines.splitlines() * 20)
    k = ig.kernel.parse(text)
    assert len(str(k).splitlines()) < 40
    assert_read_back(k)
    for wrong in (
        "acc a = 1.0; for q < 4:",
        "if a < 4: acc b: int64 = 1",
        "acc a: int64 = 1; acc b: int64 = 2  # one | two | three",
        "acc new = 1.0",
    ):
        with pytest.raises(ParseError):
            ig.kernel.parse(f"kernel k():\n  {wrong}\n    acc c: float32 = 1.0\n")


NESTED = """kernel k():
  acc s: float32 = 0.0
  acc m: float32 = 0.0
  for i < 4, carries s, carries m:
    acc t: float32 = 0.0
    for j < 4, carries t:
      t <- sum 1.0
    s <- sum t
    for j < 4, threadIdx.x:
      m <- amax 2.0"""


def test_a_loop_says_what_its_steps_hand_on() -> None:
    plain = NESTED.replace(", carries s, carries m", "").replace(", carries t", "")
    assert str(ig.kernel.parse(NESTED)) == NESTED == str(ig.kernel.parse(plain))
    for wrong in ("carries m, carries s", "carries s", "carries t", "carries s, carries m, carries t"):
        with pytest.raises(ParseError, match=r"line 4: the loop i carries s, m"):
            ig.kernel.parse(NESTED.replace("carries s, carries m", wrong))
    with pytest.raises(ParseError, match=r"line 9: the loop j carries nothing"):
        ig.kernel.parse(NESTED.replace("threadIdx.x", "threadIdx.x, carries m"))


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
        ('kernel k():\n  buffer b: float32[4] disk "x"', "not a memory space"),
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
