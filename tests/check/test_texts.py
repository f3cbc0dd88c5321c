"""MLIR's and Halide's text: right programs, wrong ones (halo, tile, stride, races), and garbage refused by name."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.check import CheckError
from tests.cli.test_commands import run

pytest.importorskip("lark")

BLUR = """fusion "blur" {
  x = input(shape=(18,), dtype="float32")
  e = exp(x)
  a = slice(e, dims=(0,), starts=(0,), stops=(16,), steps=(1,))
  b = slice(e, dims=(0,), starts=(2,), stops=(18,), steps=(1,))
  y = add(a, b)
  output y
}"""
BLUR_MLIR = """#start = affine_map<(d0)[s0] -> (d0 * 4 + s0)>
module {
  func.func @blur(%x: memref<18xf32>, %y: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    affine.parallel (%t) = (0) to (4) {
      %tile = memref.alloca() : memref<6xf32>
      affine.for %i = 0 to 6 {
        %0 = affine.load %x[%t * 4 + %i] : memref<18xf32>
        %1 = math.exp %0 : f32
        affine.store %1, %tile[%i] : memref<6xf32>
      }
      affine.for %i = 0 to 4 {
        %0 = affine.load %tile[%i] : memref<6xf32>
        %1 = affine.load %tile[%i + 2] : memref<6xf32>
        %2 = arith.addf %0, %1 : f32
        %at = affine.apply #start(%t)[%c0]
        affine.store %2, %y[%at + %i] : memref<16xf32>
      }
    }
    return
  }
}"""
BLUR_STMT = """produce y {
  let four = 4
  parallel (y.s0.t, 0, 4) {
    allocate tile[float32 * 6] in Stack
    produce tile {
      for (tile.s0.i, 0, 6) {
        tile[tile.s0.i] = (float32)exp_f32(x[(y.s0.t*four) + tile.s0.i])
      }
    }
    consume tile {
      y[ramp(y.s0.t*4, 1, 4)] = tile[ramp(0, 1, 4)] + tile[ramp(2, 1, 4)]
    }
    free tile
  }
}"""
PRODUCT = """fusion "mm" {
  a = input(shape=(4, 6), dtype="float32")
  b = input(shape=(6, 5), dtype="float32")
  c = matmul(a, b)
  output c
}"""
PRODUCT_MLIR = """func.func @mm(%a: memref<4x6xf32>, %b: memref<6x5xf32>, %c: memref<4x5xf32>) {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  scf.parallel (%i) = (%c0) to (%c4) step (%c1) {
    affine.for %j = 0 to 5 {
      memref.store %zero, %c[%i, %j] : memref<4x5xf32>
    }
    scf.for %k0 = %c0 to %c6 step %c2 {
      affine.for %j = 0 to 5 {
        affine.for %k1 = 0 to 2 {
          %k = arith.addi %k0, %k1 : index
          %0 = memref.load %a[%i, %k] : memref<4x6xf32>
          %1 = memref.load %b[%k, %j] : memref<6x5xf32>
          %2 = memref.load %c[%i, %j] : memref<4x5xf32>
          %3 = arith.mulf %0, %1 : f32
          %4 = arith.addf %2, %3 : f32
          memref.store %4, %c[%i, %j] : memref<4x5xf32>
        }
      }
    }
  }
  return
}"""
PRODUCT_STMT = """produce c {
  parallel (c.s0.i, 0, 4) {
    for (c.s0.j, 0, 5) {
      c[(c.s0.i*5) + c.s0.j] = 0.000000f
    }
    for (c.s1.k, 0, 6) {
      for (c.s1.j, 0, 5) {
        c[(c.s0.i*5) + c.s1.j] = c[(c.s0.i*5) + c.s1.j] + (a[(c.s0.i*6) + c.s1.k]*b[(c.s1.k*5) + c.s1.j])
      }
    }
  }
}"""
PAD = """fusion "pad" {
  x = input(shape=(5, 7), dtype="float32")
  t = permute(x, dims=(1, 0))
  y = pad(t, left=(0, 1), right=(0, 2), value=0.0)
  output y
}"""
PAD_MLIR = """#in = affine_set<(d0) : (d0 - 1 >= 0, 5 - d0 >= 0)>
func.func @pad(%x: memref<5x7xf32>, %y: memref<7x8xf32>) {
  %zero = arith.constant 0.0 : f32
  affine.for %it = 0 to 7 step 3 {
    affine.for %j = 0 to 8 {
      affine.for %i = #first(%it) to min #last(%it) {
        affine.if #in(%j) {
          %0 = affine.load %x[%j - 1, %i] : memref<5x7xf32>
          affine.store %0, %y[%i, %j] : memref<7x8xf32>
        } else {
          affine.store %zero, %y[%i, %j] : memref<7x8xf32>
        }
      }
    }
  }
  return
}
#first = affine_map<(d0) -> (d0)>
#last = affine_map<(d0) -> (d0 + 3, 7)>"""
PAD_STMT = """produce y {
  for (y.i, 0, 7) {
    vectorized (y.j, 0, 8) {
      y[(y.i*8) + y.j] = select((1 <= y.j) && (y.j < 6), x[(max(min(y.j, 5), 1) - 1)*7 + y.i], 0.000000f)
    }
  }
}"""
VIEW_MLIR = """func.func @pad(%x: memref<5x7xf32>, %y: memref<7x8xf32>) {
  %zero = arith.constant 0.0 : f32
  affine.parallel (%i, %j) = (0, 0) to (7, 8) {
    affine.store %zero, %y[%i, %j] : memref<7x8xf32>
  }
  %v = memref.subview %y[0, 1] [7, 5] [1, 1] : memref<7x8xf32> to memref<7x5xf32, strided<[8, 1], offset: 1>>
  affine.parallel (%i, %j) = (0, 0) to (7, 5) {
    %0 = affine.load %x[%j, %i] : memref<5x7xf32>
    affine.store %0, %v[%i, %j] : memref<7x5xf32, strided<[8, 1], offset: 1>>
  }
  return
}"""
TEXTS = {
    "blur.mlir": (BLUR_MLIR, BLUR), "blur.stmt": (BLUR_STMT, BLUR), "product.mlir": (PRODUCT_MLIR, PRODUCT),
    "product.stmt": (PRODUCT_STMT, PRODUCT), "pad.mlir": (PAD_MLIR, PAD), "pad.stmt": (PAD_STMT, PAD),
    "view.mlir": (VIEW_MLIR, PAD),
}  # fmt: skip
WRONG = [
    ("blur.mlir", "0 to 6", "0 to 5"),  # a halo too small
    ("blur.mlir", "%t * 4 + %i", "%t * 3 + %i"),  # a stride of tiles
    ("blur.mlir", "(d0 * 4 + s0)", "(d0 * 4 + s0 + 1)"),
    ("blur.mlir", "%i + 2", "%i + 1"),
    ("blur.stmt", "(tile.s0.i, 0, 6)", "(tile.s0.i, 0, 5)"),
    ("blur.stmt", "ramp(2, 1, 4)", "ramp(2, 2, 4)"),
    ("blur.stmt", "y.s0.t*4, 1", "y.s0.t*3, 1"),
    ("product.mlir", "%a[%i, %k]", "%a[%i, %k0]"),  # the tile's first column only
    ("product.mlir", "to (%c4)", "to (%c2)"),
    (
        "product.mlir",
        "    affine.for %j = 0 to 5 {\n      memref.store %zero, %c[%i, %j] : memref<4x5xf32>\n    }\n",
        "",
    ),
    ("product.mlir", "scf.for %k0 = %c0 to", "scf.for %k0 = %c2 to"),
    ("product.stmt", "(c.s1.k*5) + c.s1.j", "(c.s1.j*6) + c.s1.k"),
    ("product.stmt", "for (c.s1.k, 0, 6)", "parallel (c.s1.k, 0, 5)"),
    ("pad.mlir", "5 - d0 >= 0", "6 - d0 >= 0"),  # a mask too wide
    ("pad.mlir", "%j - 1, %i", "%j - 1, %it"),
    ("pad.stmt", "y.j < 6", "y.j < 5"),
    ("pad.stmt", "*7 + y.i", "*8 + y.i"),
    ("view.mlir", "%y[0, 1]", "%y[0, 2]"),
    ("view.mlir", "%x[%j, %i]", "%x[%i, %j]"),
]


def judged(name: str, text: str, fusion: str) -> ig.check.CheckReport:
    return ig.check.mlir(text, fusion) if name.endswith("mlir") else ig.check.halide(text, fusion)


@pytest.mark.parametrize("name", TEXTS)
def test_right_texts_are_decided(name: str) -> None:
    r = judged(name, *TEXTS[name])
    assert r.ok and r.decided, str(r)


@pytest.mark.parametrize(("name", "old", "new"), WRONG)
def test_wrong_texts_are_refuted(name: str, old: str, new: str) -> None:
    text, fusion = TEXTS[name]
    assert old in text
    r = judged(name, text.replace(old, new), fusion)
    assert r.refuted and r.refuted[0].counterexample is not None, str(r)


@pytest.mark.parametrize("name", ["blur.mlir", "blur.stmt"])
def test_a_tile_that_parallel_iterations_share_is_a_race_with_both_points(name: str) -> None:
    text, fusion = TEXTS[name]
    own = (
        "      %tile = memref.alloca() : memref<6xf32>\n"
        if name.endswith("mlir")
        else "    allocate tile[float32 * 6] in Stack\n"
    )
    shared = text.replace(own, "").replace("    free tile\n", "")
    head = "    affine.parallel" if name.endswith("mlir") else "  parallel"
    shared = shared.replace(head, own.strip() + "\n" + head)
    r = judged(name, shared, fusion)
    found = r.refuted[0].counterexample
    assert found is not None and "any order" in r.refuted[0].because and found.meant is not None and "=1" in found.meant
    order = shared.replace("affine.parallel (%t) = (0) to (4)", "affine.for %t = 0 to 4").replace(
        "parallel (y", "for (y"
    )
    assert judged(name, order, fusion).decided


ROWS = """fusion "rows" {
  x = input(shape=(4, 6), dtype="float32")
  y = sum(x, dims=(1,))
  output y
}"""
STEPS = """func.func @rows(%x: memref<4x6xf32>, %y: memref<4xf32>) {
  %zero = arith.constant 0.0 : f32
  affine.parallel (%i) = (0) to (4) {
    affine.store %zero, %y[%i] : memref<4xf32>
    affine.for %k = 0 to 6 {
      %0 = affine.load %x[%i, %k] : memref<4x6xf32>
      %1 = affine.load %y[%i] : memref<4xf32>
      %2 = arith.addf %1, %0 : f32
      affine.store %2, %y[%i] : memref<4xf32>
    }
  }
  return
}"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("affine.for %k = 0 to 6", "affine.parallel (%k) = (0) to (6)"),  # no atomic step: a race
        ("addf", "maximumf"), ("addf", "mulf"), ("constant 0.0", "constant 1.0"), ("addf %1, %0", "subf %1, %0"),
    ],
)  # fmt: skip
def test_a_step_is_a_load_and_a_store(old: str, new: str) -> None:
    r = ig.check.mlir(STEPS, ROWS)
    assert r.ok and r.decided, str(r)
    assert ig.check.mlir(STEPS.replace(old, new), ROWS).refuted


@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
def test_a_step_of_halide_in_iterations_of_any_order_is_a_race(kind: str) -> None:
    text = """produce y {
  for (y.i, 0, 4) {
    y[y.i] = 0.000000f
    for (y.k, 0, 6) {
      y[y.i] = y[y.i] + x[(y.i*6) + y.k]
    }
  }
}"""
    r = ig.check.halide(text, ROWS)
    assert r.ok and r.decided, str(r)
    assert ig.check.halide(text.replace("for (y.k", f"{kind} (y.k"), ROWS).refuted


@pytest.mark.parametrize(("name", "small"), [("blur.mlir", "memref<5xf32>"), ("blur.stmt", "float32 * 5")])
def test_an_allocation_ends(name: str, small: str) -> None:
    text, fusion = TEXTS[name]
    r = judged(name, text.replace("memref<6xf32>", small).replace("float32 * 6", small), fusion)
    assert r.refuted and "outside of the memory" in str(r)


SWAP = """func.func @f(%x: memref<8xf32>, %y: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    %0 = affine.load %x[%i] : memref<8xf32>
    affine.store %0, %y[%i] : memref<8xf32>
  }
  affine.for %i = 0 to 4 {
    %0 = affine.load %y[%i] : memref<8xf32>
    %1 = affine.load %y[7 - %i] : memref<8xf32>
    affine.store %1, %y[%i] : memref<8xf32>
    affine.store %0, %y[7 - %i] : memref<8xf32>
  }
  return
}"""
MIRROR = 'fusion "f" {\n  x = input(shape=(8,), dtype="float32")\n  y = flip(x, dims=(0,))\n  output y\n}'


def test_a_value_is_the_one_of_its_load() -> None:
    r = ig.check.mlir(SWAP, MIRROR)
    assert r.ok and r.decided, str(r)
    late = SWAP.replace("    affine.store %0, %y[7 - %i]", "    %2 = affine.load %y[%i] : memref<8xf32>\n"
                        "    affine.store %2, %y[7 - %i]")  # fmt: skip
    assert ig.check.mlir(late, MIRROR).refuted


def test_a_load_before_a_loop_does_not_see_its_stores() -> None:
    """Each step goes on from the value of before the loop."""
    own = "      %1 = affine.load %y[%i] : memref<4xf32>\n"
    early = STEPS.replace(own, "").replace("    affine.for", own + "    affine.for")
    assert ig.check.mlir(early, ROWS).refuted


def test_both_values_of_a_select_are_loaded() -> None:
    text = """func.func @f(%x: memref<4xf32>, %y: memref<6xf32>) {
  %zero = arith.constant 0.0 : f32
  %c1 = arith.constant 1 : index
  affine.for %i = 0 to 6 {
    %before = arith.cmpi slt, %i, %c1 : index
    %0 = affine.load %x[max(%i)] : memref<4xf32>
    %1 = arith.select %before, %zero, %0 : f32
    affine.store %1, %y[%i] : memref<6xf32>
  }
  return
}"""
    shifted = text.replace("max(%i)", "%i - 1").replace("memref<6xf32>", "memref<5xf32>").replace("0 to 6", "0 to 5")
    fusion = MIRROR.replace("(8,)", "(4,)").replace("flip(x, dims=(0,))", "pad(x, left=(1,), right=(0,), value=0.0)")
    r = ig.check.mlir(shifted, fusion)
    assert r.refuted and "x[-1]" in str(r)
    clamp = "%m = arith.maxsi %i, %c1 : index\n    %0 = affine.load %x[%m - 1]"
    r = ig.check.mlir(shifted.replace("%0 = affine.load %x[%i - 1]", clamp), fusion)
    assert r.ok and r.decided, str(r)


UNKNOWN = [
    ("blur.mlir", "affine.load %x", "affine.vector_load %x", "line 8 column 14: `affine.vector_load`"),
    ("blur.mlir", "memref<18xf32>", "memref<?xf32>", "line 3"),
    ("blur.mlir", "%i + 2", "%0 + 2", "line 14 column"),
    ("blur.mlir", "%tile[%i] : memref<6xf32>\n      }", "%there[%i] : memref<6xf32>\n      }", "`%there`"),
    ("blur.stmt", "exp_f32(x", "shuffle(x", "`shuffle`"),
    ("blur.stmt", "parallel (y", "gpu_block (y", "line 3"),
    ("blur.stmt", "0, 6)", "0, x.extent.0)", "line 6"),
    ("blur.stmt", "tile[ramp(0, 1, 4)]", "tile[ramp(0, 1, 8)]", "lanes"),
]


@pytest.mark.parametrize(("name", "old", "new", "said"), UNKNOWN)
def test_what_is_not_known_is_refused_with_its_place(name: str, old: str, new: str, said: str) -> None:
    text, fusion = TEXTS[name]
    assert old in text
    with pytest.raises(CheckError) as error:
        judged(name, text.replace(old, new), fusion)
    assert said in str(error.value), str(error.value)


EXP = """fusion "e" {
  x = input(shape=(16,), dtype="float32")
  y = exp(x)
  output y
}"""
PRINTED = """module attributes {dlti.dl_spec = #dlti.dl_spec<>} {
  func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func @e(%x: memref<16xf32> {bufferization.writable = false}, %y: memref<16xf32, 1>) attributes {a.b} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c16 = arith.constant 16 : i32
    %alloc = memref.alloc() {alignment = 64 : i64} : memref<16xf32>
    memref.copy %x, %alloc : memref<16xf32> to memref<16xf32>
    affine.parallel (%i) = (0) to (16) step (5) {
      affine.parallel (%j) = (%i) to (min(%i + 5, 16)) {
        %0 = affine.load %alloc[%j] {nontemporal = true} : memref<16xf32>
        affine.store %0, %alloc[%j] : memref<16xf32>
      }
    } {tiled = true}
    scf.for %k = %c0 to %c16 step %c1  : i32 {
      %n = arith.muli %k, %c1 overflow<nsw, nuw> : i32
      %at = arith.index_cast %n : i32 to index
      %1 = memref.load %alloc[%at] : memref<16xf32>
      %2 = math.exp %1 fastmath<fast> : f32
      memref.store %2, %y[%at] : memref<16xf32, 1>
    }
    return
  }
}"""


def test_what_a_printer_adds_is_read() -> None:
    assert ig.check.mlir(PRINTED, EXP).decided
    for old, new in (("copy %x, %alloc", "copy %alloc, %x"), ("%k, %c1 o", "%k, %c0 o")):
        assert old in PRINTED
        assert ig.check.mlir(PRINTED.replace(old, new), EXP).refuted
    with pytest.raises(CheckError, match=r"line 8 .*one fixed shape"):
        ig.check.mlir(
            PRINTED.replace("%alloc : memref<16xf32> to memref<16xf32>", "%z : memref<16xf32> to memref<16xf32>"), EXP
        )


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ("%r = affine.for %i = 0 to 16 iter_args(%a = %c) -> (f32) {", "memref of one element"),
        ("%0 = vector.transfer_read %x[%i], %c : memref<16xf32>, vector<4xf32>", "before vectors"),
        ("%v = memref.transpose %x (i, j) -> (j, i) : memref<4x6xf32> to memref<6x4xf32>", "fold-memref-alias-ops"),
        ("scf.forall (%i) in (16) {", "scf.parallel"),
        ("func.call @g(%x, %y) : (memref<16xf32>, memref<16xf32>) -> ()", "inline"),
    ],
)
def test_a_line_that_is_not_known_says_what_to_do(line: str, way: str) -> None:
    with pytest.raises(CheckError, match="line 2 ") as found:
        ig.check.mlir(f"func.func @e(%x: memref<16xf32>, %y: memref<16xf32>) {{\n  {line}\n  return\n}}", EXP)
    assert way in (found.value.hint or "")


def test_a_call_that_takes_memory_may_write_it() -> None:
    text = "produce y {\n  let r = f((struct halide_buffer_t *)x.buffer)\n  assert(r == 0, r)\n}"
    with pytest.raises(CheckError, match=r"line 2 .*may write"):
        ig.check.halide(text, EXP)


@settings(deadline=None)
@given(st.sampled_from(sorted(TEXTS)), st.integers(0, 1 << 32))
def test_garbage_ends_in_one_error(name: str, seed: int) -> None:
    """Parts of a right text exchanged, lost, doubled, with signs that do not belong there."""
    r = random.Random(seed)
    text, fusion = TEXTS[name]
    for _ in range(r.randint(1, 4)):
        a, b = sorted(r.randrange(len(text) + 1) for _ in range(2))
        b = min(b, a + r.choice((1, 3, 30)))
        text = (
            text[:a]
            + r.choice(("", text[a:b] * 2, "{", ")", "0", "-", "%i", "x", "\x00", "/ 0", "99999999999"))
            + text[b:]
        )
    with contextlib.suppress(CheckError):
        judged(name, text, fusion)


@pytest.mark.parametrize("ending", ["mlir", "stmt"])
def test_the_command_line_reads_texts(ending: str, tmp_path: Path) -> None:
    text, fusion = TEXTS[f"blur.{ending}"]
    file, means = tmp_path / f"blur.{ending}", tmp_path / "blur.txt"
    file.write_text(text)
    means.write_text(fusion)
    assert run("check", str(file), "--means", str(means), cwd=tmp_path).returncode == 0
    file.write_text(text.replace("0 to 6", "0 to 5").replace("0, 6)", "0, 5)"))
    assert run("check", str(file), "--means", str(means), cwd=tmp_path).returncode == 1
    assert run("check", str(file), cwd=tmp_path).returncode == 2
