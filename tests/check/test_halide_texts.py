"""Texts of the shapes that Halide prints: each is right, and refuted with one thing in it changed."""

from __future__ import annotations

import pytest

import idgraph as ig

ADD = """fusion "f" {
  x = input(shape=(12,), dtype="float32")
  y = add(x, 1.5)
  output y
}"""
BLUR = """fusion "f" {
  x = input(shape=(14,), dtype="float32")
  e = mul(x, 2.0)
  a = slice(e, dims=(0,), starts=(0,), stops=(12,), steps=(1,))
  b = slice(e, dims=(0,), starts=(2,), stops=(14,), steps=(1,))
  y = add(a, b)
  output y
}"""
ROWS = """fusion "f" {
  x = input(shape=(4, 6), dtype="float32")
  y = sum(x, dims=(1,))
  output y
}"""
MOVE = """fusion "f" {
  x = input(shape=(5, 8), dtype="float32")
  y = permute(x, dims=(1, 0))
  output y
}"""
CLAMP = """fusion "f" {
  x = input(shape=(12,), dtype="int32")
  t = maximum(x, 0)
  y = minimum(t, 255)
  output y
}"""
HEAD = """module name=f, target=x86-64-linux-avx2 {
external_plus_metadata func f (x, y) {
 assert((reinterpret<uint64>((struct halide_buffer_t *)y.buffer)) != (uint64)0, halide_error_buffer_is_null("y"))
 let x = (void *)_halide_buffer_get_host((struct halide_buffer_t *)x.buffer)
 let y.type = (uint32)_halide_buffer_get_type((struct halide_buffer_t *)y.buffer)
"""
TEXTS = {
    "a module with its checks": (
        ADD, HEAD + """ if ((uint1)_halide_buffer_is_bounds_query((struct halide_buffer_t *)x.buffer)) {
  (struct halide_buffer_t *)_halide_buffer_init((struct halide_buffer_t *)x.buffer, (int32)0)
 } else {
  produce y {
   for (y.s0.i, 0, 12) {
    y[y.s0.i] = (float32)x[y.s0.i] + 1.500000f
   }
  }
 }
}
}""", ("1.500000f", "1.250000f"),
    ),
    "an allocation before a condition": (
        BLUR, """produce y {
 for (y.s0.o, 0, 4) {
  allocate e[float32 * 5] in Stack
  if (0 <= y.s0.o) {
   produce e {
    for (e.s0.i, 0, 5) {
     e[e.s0.i] = x[(y.s0.o*3) + e.s0.i]*2.000000f
    }
   }
   consume e {
    for (y.s0.i, 0, 3) {
     y[(y.s0.o*3) + y.s0.i] = e[y.s0.i] + e[y.s0.i + 2]
    }
   }
  }
  free e
 }
}""", ("e[y.s0.i + 2]", "e[y.s0.i + 1]"),
    ),
    "a condition of an allocation": (
        BLUR, """produce y {
 for (y.s0.o, 0, 4) {
  allocate e[float32 * 5] in Heap if (y.s0.o < 4)
  for (e.s0.i, 0, 5) {
   e[e.s0.i] = x[(y.s0.o*3) + e.s0.i]*2.000000f
  }
  for (y.s0.i, 0, 3) {
   y[(y.s0.o*3) + y.s0.i] = e[y.s0.i] + e[y.s0.i + 2]
  }
  free e
 }
}""", ("(e.s0.i, 0, 5)", "(e.s0.i, 0, 4)"),
    ),
    "a folded buffer": (
        BLUR, """allocate e[float32 * 4]
produce y {
 for (y.s0.i, 0, 12) {
  let e.min = select(0 < y.s0.i, y.s0.i + 2, y.s0.i)
  for (e.s0.i, e.min, (y.s0.i - e.min) + 3) {
   e[e.s0.i % 4] = x[e.s0.i]*2.000000f
  }
  y[y.s0.i] = e[y.s0.i % 4] + e[(y.s0.i + 2) % 4]
 }
}
free e""", ("% 4] = x", "% 2] = x"),
    ),
    "lets in a stored value": (
        ADD, """produce y {
 parallel (y.s0.i, 0, 12) {
  y[y.s0.i] =
    let t1 = x[y.s0.i] in
    let t2 = t1 + 1.000000f in
    t2 + 0.500000f
 }
}""", ("t2 + 0.5", "t1 + 0.5"),
    ),
    "vectors by name": (
        ADD, """produce y {
 for (y.s0.i.o, 0, 3) {
  let t5 = ramp(y.s0.i.o*4, 1, 4)
  y[t5 aligned(4, 0)] = (float32x4)x[t5 aligned(4, 0)] + x4(1.500000f)
 }
}""", ("ramp(y.s0.i.o*4", "ramp(y.s0.i.o*3"),
    ),
    "masked lanes": (
        ADD, """produce y {
 for (y.s0.o, 0, 2) {
  predicate (ramp(y.s0.o*8, 1, 8) < x8(12))
   y[ramp(y.s0.o*8, 1, 8)] = ((float32x8)x[ramp(y.s0.o*8, 1, 8)] if (ramp(y.s0.o*8, 1, 8) < x8(12))) + x8(1.500000f)
 }
}""", ("x8(12)", "x8(11)"),
    ),
    "a tail that is shifted back": (
        ADD, """produce y {
 for (y.s0.i.o, 0, 3) {
  let y.s0.i.base = min(y.s0.i.o*5, 7)
  for (y.s0.i.i, 0, 5) {
   y[y.s0.i.base + y.s0.i.i] = x[y.s0.i.base + y.s0.i.i] + 1.500000f
  }
 }
}""", ("*5, 7)", "*5, 6)"),
    ),
    "a guarded tail": (
        ADD, """produce y {
 for (y.s0.i.o, 0, 3) {
  for (y.s0.i.i, 0, 5) {
   if (likely((y.s0.i.i + (y.s0.i.o*5)) < 12)) {
    y[(y.s0.i.o*5) + y.s0.i.i] = x[(y.s0.i.o*5) + y.s0.i.i] + 1.500000f
   }
  }
 }
}""", ("< 12", "< 11"),
    ),
    "an update after a fill": (
        ROWS, """produce y {
 parallel (y.s0.i, 0, 4) {
  y[y.s0.i] = 0.000000f
 }
 parallel (y.s1.i, 0, 4) {
  for (y.s1.r$x, 0, 6) {
   y[y.s1.i] = y[y.s1.i] + x[(y.s1.i*6) + y.s1.r$x]
  }
 }
}""", ("for (y.s1.r$x, 0, 6)", "for (y.s1.r$x, 1, 5)"),
    ),
    "a sum in lanes": (
        ROWS, """produce y {
 for (y.s0.i, 0, 4) {
  allocate y.intm[float32 * 3] in Stack
  produce y.intm {
   y.intm[ramp(0, 1, 3)] = x3(0.000000f)
   for (y.intm.s1.r, 0, 2) {
    y.intm[ramp(0, 1, 3)] = y.intm[ramp(0, 1, 3)] + (float32x3)x[ramp((y.s0.i*6) + (y.intm.s1.r*3), 1, 3)]
   }
  }
  consume y.intm {
   y[y.s0.i] = 0.000000f
   for (y.s1.r, 0, 3) {
    y[y.s0.i] = y[y.s0.i] + y.intm[y.s1.r]
   }
  }
  free y.intm
 }
}""", ("(y.intm.s1.r*3), 1, 3)", "(y.intm.s1.r*2), 1, 3)"),
    ),
    "a transposition by strides": (
        MOVE, """let x.stride.1 = (int32)_halide_buffer_get_stride((struct halide_buffer_t *)x.buffer, 1)
produce y {
 parallel<Default_Host> (y.s0.j, 0, 8) {
  for (y.s0.i, 0, 5) {
   y[(y.s0.j*5) + y.s0.i] = x[(x.stride.1*y.s0.i) + y.s0.j]
  }
 }
}""", ("(x.stride.1*y.s0.i) + y.s0.j", "(x.stride.1*y.s0.j) + y.s0.i"),
    ),
    "blocks and an unrolled loop": (
        MOVE, """produce y {
 for (y.s0.jo, 0, 4) {
  unrolled (y.s0.ji, 0, 2) {
   let t9 = (y.s0.jo*2) + y.s0.ji
   y[ramp(t9*5, 1, 5)] = x[ramp(t9, 8, 5)]
  }
 }
}""", ("ramp(t9, 8, 5)", "ramp(t9, 7, 5)"),
    ),
    "if, else if, else": (
        ADD, """produce y {
 for (y.s0.i, 0, 12) {
  if (y.s0.i < 4) {
   y[y.s0.i] = x[y.s0.i] + 1.500000f
  } else if (y.s0.i < 8) {
   y[y.s0.i] = 1.500000f + x[y.s0.i]
  } else {
   y[y.s0.i] = x[y.s0.i] - -1.500000f
  }
 }
}""", ("- -1.5", "- 1.5"),
    ),
    "numbers that are clamped": (
        CLAMP, """produce y {
 for (y.s0.i, 0, 12) {
  y[y.s0.i] = max(min((int32)x[y.s0.i], 255), 0)
 }
}""", ("255), 0", "127), 0"),
    ),
    "another function's store in between": (
        BLUR, """allocate e[float32 * 14] in Heap
produce e {
 parallel (e.s0.i, 0, 14) {
  e[e.s0.i] = x[e.s0.i]*2.000000f
 }
}
consume e {
 produce y {
  parallel (y.s0.i, 0, 12) {
   y[y.s0.i] = e[y.s0.i] + e[y.s0.i + 2]
  }
 }
}
free e""", ("(e.s0.i, 0, 14)", "(e.s0.i, 1, 13)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_decided(name: str) -> None:
    meant, text, (old, new) = TEXTS[name]
    sizes = {"x.stride.1": 8}
    r = ig.check.halide(text, meant, sizes=sizes)
    assert r.ok and r.decided, str(r)
    assert old in text
    assert ig.check.halide(text.replace(old, new), meant, sizes=sizes).refuted


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("let t5 = ramp", "let t5 = x[ramp(0, 1, 4)] + ramp", "loaded before it is used"),
        ("y[t5 al", "halide_prefetch(x)\n  y[t5 al", "a call for its effect"),
        ("(float32x4)x[t5 aligned(4, 0)]", "(x[t5] if (t5 < x4(9)))", "another predicate"),
    ],
)
def test_what_is_not_known_is_refused(old: str, new: str, says: str) -> None:
    meant, text, _ = TEXTS["vectors by name"]
    with pytest.raises(ig.check.CheckError, match=says):
        ig.check.halide(text.replace(old, new), meant)
