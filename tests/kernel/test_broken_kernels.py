"""Three small kernels, broken by hand in one place each: the text or `Kernel.verify` refuses each, with its reason."""

from __future__ import annotations

import re

import pytest

import idgraph as ig
from idgraph.errors import IdGraphError

NEIGHBOURS = """
kernel k():
  buffer x: float32[64] input "x"
  buffer y: float32[64] output "y"
  launch blockIdx.x: 2; threadIdx.x: 32
  for i < 2, blockIdx.x:
    alloc s: float32[32] shared "s"
    for j < 32, threadIdx.x:
      a: float32 = x[i*32 + j]
      s[j] = a
      barrier  # s is complete
      b: float32 = s[(j + 1) % 32]
      c: float32 = add(a, b)
      y[i*32 + j] = c
"""
COPY = """
kernel k():
  buffer x: float32[64] input "x"
  buffer y: float32[64] output "y"
  launch threadIdx.x: 16
  registers t: float32[4]
  for j < 16, threadIdx.x:
    t[0; 4]: float32 = x[j*4; 4]
    y[j*4; 4] = t[0; 4]
"""
SUMS = """
kernel k():
  buffer x: float32[64] input "x"
  buffer y: float32[4] output "y"
  launch blockIdx.x: 4; threadIdx.x: 16
  for i < 4, blockIdx.x:
    acc acc: float64 = 0
    for j < 16, threadIdx.x:
      v: float32 = x[i*16 + j]
      acc <- sum v, to float32
    acc <- sum over threadIdx.x
    r: float32 = cast(acc)
    single threadIdx.x:
      y[i] = r
"""
READ_AGAIN = (
    SUMS.replace("y: float32[4]", "y: float32[64]")
    .replace("  for i", "  acc r: float32 = 0\n  for i")
    .replace("r: float32 = cast(acc)", "r <- sum acc")
    .replace(
        "    single threadIdx.x:\n      y[i] = r\n",
        "    for j < 16, threadIdx.x:\n      w: float32 = neg(r)\n      y[i*16 + j] = w\n",
    )
)
FIRST = """
kernel k():
  buffer x: float32[8] input "x"
  buffer y: float32[16] output "y"
  launch threadIdx.x: 16
  acc acc: float64 = 0
  for i < 8:
    for j < 1, threadIdx.x:
      v: float32 = x[i]
      acc <- sum v, to float32
  r: float32 = cast(acc)
  for j < 1, threadIdx.x:
    y[j] = r
  single threadIdx.x:
    y[1] = r
"""
KEPT = """
kernel k():
  buffer x: float32[128] input "x"
  buffer y: float32[16] output "y"
  buffer z: float32[1] output "z"
  launch threadIdx.x: 16
  acc acc: float64 = 0
  for i < 8:
    for j < 16, threadIdx.x:
      v: float32 = x[i*16 + j]
      acc <- sum v, to float32
  r: float32 = cast(acc)
  for j < 16, threadIdx.x:
    q: float32 = add(r, 1)
    y[j] = q
  single threadIdx.x:
    z[0] = 1
"""
CROSSED = """
kernel k():
  buffer x: float32[20] input "x"
  buffer y: float32[20] output "y"
  launch threadIdx.x: 5; threadIdx.y: 4
  alloc s: float32[20] shared "s"
  for j < 4, threadIdx.y:
    for i < 5, threadIdx.x:
      a: float32 = x[i*4 + j]
      s[i*4 + j] = a
  for i < 5, threadIdx.x:
    for j < 4, threadIdx.y:
      b: float32 = s[i*4 + j]
      y[i*4 + j] = b
"""
LOOPS = """
kernel k():
  buffer x: float32[64] input "x"
  buffer y: float32[4] output "y"
  for i < 4:
    acc acc: float32 = 0
    for j < 16:
      v: float32 = x[i*16 + j]
      acc <- sum v
    y[i] = acc
"""
BROKEN: list[tuple[str, str, str, str]] = [
    # values
    (NEIGHBOURS, "      a: float32 = x[i*32 + j]\n", "", "a has no type here"),
    (NEIGHBOURS, "s[j] = a", "s[j] = r", "r has no type here"),
    (NEIGHBOURS, "a: float32 = x", "a: int64 = x", "x holds float32, loaded as int64"),
    (NEIGHBOURS, "add(a, b)", "add(a:int64, b)", "a is float32, read as int64"),
    (NEIGHBOURS, "add(a, b)", "frob(a, b)", "frob is not an operation"),
    (NEIGHBOURS, "add(a, b)", "add(a)", "add has 1 operands, not 2"),
    (NEIGHBOURS, "c: float32 = add(a, b)", "c: int64 = cast(a)", "y holds float32, int64 is stored"),
    (SUMS, "r: float32 = cast(acc)", "r: float64 = cast(acc)", "y holds float32, float64 is stored"),
    (SUMS, "    acc acc: float64 = 0\n", "", "acc has no type here"),
    (
        NEIGHBOURS, "      b: float32 = s[(j + 1) % 32]\n", "      if j < 3:\n        b: float32 = s[(j + 1) % 32]\n",
        "b is set under a condition that does not hold where it is read",
    ),
    (NEIGHBOURS, "c: float32 = add", "b: float32 = neg(a)\n      c: float32 = add", "b has a definition before this"),
    (SUMS, "v: float32 = x", "acc: float64 = cast(1)\n      v: float32 = x", "acc has a definition before"),
    (SUMS, "    r: float32 = cast(acc)", "    r: float32 = cast(acc)\n    r <- sum r", "is changed, and is not"),
    (LOOPS, "    y[i] = acc", "    y[i] = v", "v is set in a loop, and read outside of it"),
    (LOOPS, "acc <- sum v", "acc <- sum w", "w has no type here"),
    # addresses and arrays
    (NEIGHBOURS, "x[i*32 + j]", "x[i*32 + j + 1]", "it touches element 64 of the 64 of x"),
    (NEIGHBOURS, "x[i*32 + j]", "x[i*32 + j - 1]", "it touches element -1 of the 64 of x"),
    (NEIGHBOURS, "s[(j + 1) % 32]", "s[j + 1]", "it touches element 32 of the 32 of s"),
    (NEIGHBOURS, "float32[32] shared", "float32[31] shared", "it touches element 31 of the 31 of s"),
    (NEIGHBOURS, "= x[i*32 + j]", "= z[i*32 + j]", "is not a load, nor an operation"),
    (NEIGHBOURS, "x[i*32 + j]", "x[q*32 + j]", "q has no value where it is used"),
    (NEIGHBOURS, "      y[i*32 + j] = c", "    y[i*32 + j] = c", "j has no value where it is used"),
    (NEIGHBOURS, "      y[i*32 + j] = c\n", "", "nothing writes its output y"),
    (NEIGHBOURS, "y[i*32 + j] = c", "x[i*32 + j] = c", "it writes its input x"),
    (SUMS, "y[i] = r", "x[i] = r\n      y[i] = r", "it writes its input x"),
    (SUMS, 'x: float32[64] input "x"', 'x: float32[64] input "x"\n  buffer x: float32[64] input "x"', "two buffers x"),
    # registers and vectors
    (COPY, "x[j*4; 4]", "x[j*4 + 4; 4]", "it touches element 64 of the 64 of x"),
    (COPY, "t[0; 4]: float32 = x[j*4; 4]", "t[0; 3]: float32 = x[j*4; 3]", "3 elements of float32 are not one access"),
    (COPY, "t[0; 4]: float32", "t[1; 4]: float32", "element 4 of the 4 of t"),
    (COPY, "    t[0; 4]: float32 = x[j*4; 4]\n", "", "t is read before any statement sets it"),
    (COPY, "t[0; 4]: float32 = x[j*4; 4]", "t[0; 2]: float32 = x[j*4; 2]", "element 2 of t is read before"),
    (COPY, "  registers t: float32[4]\n", "", "t is not an array of registers here"),
    (COPY, "registers t: float32[4]", "registers t: float64[4]", "t holds float64, not float32"),
    # threads
    (NEIGHBOURS, "      barrier  # s is complete\n", "", "s[0] is touched by several threads without a barrier"),
    (
        NEIGHBOURS, "      barrier  # s is complete\n", "      if j < 16:\n        barrier  # s is complete\n",
        "not every thread of the block comes to a barrier",
    ),
    (NEIGHBOURS, "y[i*32 + j] = c", "y[j] = c", "y[0] is touched by several blocks"),
    (NEIGHBOURS, "y[i*32 + j] = c", "y[i*32] = c", "y[0] is touched by several threads"),
    (NEIGHBOURS, "threadIdx.x: 32", "threadIdx.x: 16", "it is launched with 16 of threadIdx.x"),
    (NEIGHBOURS, "blockIdx.x: 2", "blockIdx.x: 1", "it is launched with 1 of blockIdx.x"),
    (NEIGHBOURS, "; threadIdx.x: 32", "", "the kernel is launched without threadIdx.x"),
    (SUMS, "    acc <- sum over threadIdx.x\n", "", "r is made of a value that one thread"),
    (SUMS, "sum over threadIdx.x", "sum over threadIdx.y", "the kernel is launched without threadIdx.y"),
    (SUMS, "acc <- sum over", "acc <- amax over", "parts of acc were made by sum, and are combined by amax"),
    (
        SUMS, "    acc <- sum over threadIdx.x\n", "      if j < 3:\n        acc <- sum over threadIdx.x\n",
        "not every thread of the block comes to a barrier",
    ),
    (SUMS, "    single threadIdx.x:\n      y[i] = r", "    y[i] = r", "every thread of threadIdx.x writes the same"),
    (FIRST, "for j < 1, threadIdx.x:\n    y", "for j < 16, threadIdx.x:\n    y", "r is made of a value that one"),
    (KEPT, "y[j] = q", "y[i] = q", "i has no value where it is used"),
    (KEPT, "y[j] = q", "y[0] = q", "q is made of a value that one"),
    (KEPT, "add(r, 1)", "add(r, r)", "q is made of a value that one"),
    (CROSSED, "b: float32 = s[i*4 + j]", "b: float32 = s[j*5 + i]", "several threads without a barrier"),
    (SUMS, "single threadIdx.x", "single threadIdx.y", "every thread of threadIdx.x writes the same"),
    (
        READ_AGAIN, "    r <- sum acc", "    single threadIdx.x:\n      r <- sum acc",
        "w is made of a value that one",
    ),
]  # fmt: skip


@pytest.mark.parametrize("text", [NEIGHBOURS, COPY, SUMS, FIRST, KEPT, CROSSED, LOOPS])
def test_as_they_are(text: str) -> None:
    k = ig.kernel.parse(text)
    assert k.verify().races and ig.kernel.parse(str(k)) == k


@pytest.mark.parametrize(("text", "old", "new", "why"), BROKEN)
def test_broken_in_one_place(text: str, old: str, new: str, why: str) -> None:
    assert text.count(old) == 1
    with pytest.raises(IdGraphError, match=re.escape(why)):
        ig.kernel.parse(text.replace(old, new)).verify()
