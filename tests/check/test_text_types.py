"""Integers that wrap, casts, functions and memory that ends: texts of MLIR and Halide that were once called proved."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.check import CheckError

pytest.importorskip("lark")


def meant(operation: str, size: int = 8, kind: str = "float32") -> str:
    return f'fusion "f" {{\n  x = input(shape=({size},), dtype="{kind}")\n  y = {operation}\n  output y\n}}'


def mlir(body: str, size: int = 8, result: str = "8xf32") -> str:
    return f"""func.func @f(%x: memref<{size}xf32>, %y: memref<{result}>) {{
  %z = arith.constant 0.0 : f32
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
{body}
  return
}}"""


def at(index: str, value: str = "", size: int = 8) -> str:
    """``y[i] = x[k]``: ``index`` computes %k, ``value`` %w of %v."""
    stored = "%w" if value else "%v"
    return mlir(
        f"""  affine.for %i = 0 to {size} {{
    {index}
    %v = memref.load %x[%k] : memref<{size}xf32>
    {value}
    memref.store {stored}, %y[%i] : memref<{size}xf32>
  }}""",
        size,
        f"{size}xf32",
    )


SAME = "%k = arith.addi %i, %c0 : index"
ZERO = "%c0 = arith.constant 0 : index\n    "
PAD = """  affine.for %i = 0 to 10 {
    memref.store %z, %y[%i] : memref<10xf32>
    %k = arith.subi %i, %c1 : index
    %ok = arith.cmpi ult, %k, %c8 : index
    scf.if %ok {
      %v = memref.load %x[%k] : memref<8xf32>
      memref.store %v, %y[%i] : memref<10xf32>
    }
  }"""


def test_a_comparison_without_sign_has_both_bounds() -> None:
    fusion = meant("pad(x, left=(1,), right=(1,), value=0.0)")
    right = mlir(PAD, result="10xf32")
    r = ig.check.mlir(right, fusion)
    assert r.ok and r.decided, str(r)
    assert ig.check.mlir(right.replace("ult", "slt"), fusion).refuted
    above = PAD.replace("%z, ", "%v0, ").replace("    memref.store %v0", "    %v0 = memref.load %x[0] : memref<8xf32>\n"
                        "    memref.store %v0").replace("cmpi ult, %k, %c8", "cmpi uge, %k, %c8")  # fmt: skip
    assert "x[-1]" in str(ig.check.mlir(mlir(above, result="10xf32"), fusion))


WRAPS = {
    "trunci": "%a = arith.trunci %i : index to i8\n    %k = arith.index_castui %a : i8 to index",
    "addi": "%a = arith.index_cast %i : index to i16\n    %b = arith.constant 32700 : i16\n    "
    "%d = arith.addi %a, %b : i16\n    %e = arith.index_cast %d : i16 to index\n    "
    "%m = arith.constant 32700 : index\n    %k = arith.subi %e, %m : index",
    "divisor": "%m = arith.constant -2 : index\n    %d = arith.ceildivsi %c4, %m : index\n    "
    "%k = arith.addi %i, %d : index",
}


@pytest.mark.parametrize("case", WRAPS)
def test_an_integer_that_wraps_is_no_formula(case: str) -> None:
    with pytest.raises(CheckError, match="not a formula"):
        ig.check.mlir(at(WRAPS[case], size=300), meant("copy(x)", 300))


def test_an_integer_that_fits_its_type_is_one() -> None:
    for case in ("trunci", "addi"):
        r = ig.check.mlir(at(WRAPS[case], size=60), meant("copy(x)", 60))
        assert r.ok and r.decided, str(r)


@pytest.mark.parametrize(("cast", "right"), [("extui %ok : i1 to i32", True), ("extsi %ok : i1 to i32", False)])
def test_a_bit_is_extended_by_its_sign(cast: str, right: bool) -> None:
    """``x[i + (i < 7)]`` of eight elements."""
    index = (
        f"%c7 = arith.constant 7 : index\n    %ok = arith.cmpi slt, %i, %c7 : index\n    %e = arith.{cast}\n    "
        "%n = arith.index_cast %e : i32 to index\n    %k = arith.addi %i, %n : index"
    )
    fusion = meant("cat(a, b, dim=0)").replace("  y = ", "  a = slice(x, dims=(0,), starts=(1,), stops=(8,), "
        "steps=(1,))\n  b = slice(x, dims=(0,), starts=(7,), stops=(8,), steps=(1,))\n  y = ")  # fmt: skip
    if right:
        r = ig.check.mlir(at(index), fusion)
        assert r.ok and r.decided, str(r)
    else:
        with pytest.raises(CheckError, match="not a formula"):
            ig.check.mlir(at(index), fusion)


COMPUTED = [
    ("%a = arith.fptosi %v : f32 to i32\n    %w = arith.sitofp %a : i32 to f32", "copy(x)", "refuted"),
    ("%w = math.exp2 %v : f32", "exp(x)", "refuted"),
    ("%w = math.absf %v : f32", "copy(x)", "refuted"),
    ("%w = arith.maximumf %v, %z : f32", "copy(x)", "refuted"),
    ("%six = arith.constant 6.0 : f32\n    %w = arith.minimumf %v, %six : f32", "copy(x)", "refuted"),
    ("%a = arith.cmpf olt, %v, %z : f32\n    %w = arith.select %a, %v, %z : f32", "relu(x)", "refuted"),
    ("%a = arith.cmpf ogt, %v, %z : f32\n    %w = arith.select %a, %v, %z : f32", "relu(x)", "right"),
    ("%n = arith.constant 50.0 : f32\n    %w = arith.minimumf %v, %n : f32", "copy(x)", "refuted"),
    ("%n = arith.constant 0.00001 : f32\n    %w = arith.addf %v, %n : f32", "copy(x)", "refuted"),
    ("%n = arith.constant 50.0 : f32\n    %w = arith.minimumf %v, %n : f32", "minimum(x, 50.0)", "right"),
    ("%n = arith.constant -1.0e9 : f32\n    %w = arith.maximumf %v, %n : f32", "copy(x)", "right"),
    ("%n = arith.constant 0xFF800000 : f32\n    %w = arith.maximumf %v, %n : f32", "copy(x)", "right"),
    ("%n = arith.constant 0x7F800000 : f32\n    %w = arith.maximumf %v, %n : f32", "copy(x)", "refuted"),
    ("%a = arith.truncf %v : f32 to f16\n    %w = arith.extf %a : f16 to f32", "copy(x)", "unknown"),
    ("%a = arith.extf %v : f32 to f64\n    %w = arith.truncf %a : f64 to f32", "copy(x)", "right"),
    ("%a = arith.bitcast %v : f32 to i32\n    %w = arith.sitofp %a : i32 to f32", "copy(x)", "unknown"),
]


@pytest.mark.parametrize(("value", "operation", "verdict"), COMPUTED)
def test_what_a_text_computes_is_compared_or_unknown(value: str, operation: str, verdict: str) -> None:
    r = ig.check.mlir(at(ZERO + SAME, value), meant(operation))
    assert bool(r.refuted) == (verdict == "refuted") and r.decided == (verdict == "right"), str(r)


def test_an_argument_of_another_element_type_is_refused() -> None:
    text = at(ZERO + SAME, "%w = arith.extf %v : f32 to f64").replace("%y: memref<8xf32>", "%y: memref<8xf64>")
    with pytest.raises(CheckError, match="holds float64"):
        ig.check.mlir(text, meant("copy(x)"))


@pytest.mark.parametrize(("stored", "right"), [("%i", True), ("%k", False)])
def test_integers_are_compared(stored: str, right: bool) -> None:
    body = f"""  affine.for %i = 0 to 8 {{
    %k = arith.addi %i, %c1 : index
    %n = arith.index_cast {stored} : index to i32
    memref.store %n, %y[%i] : memref<8xi32>
  }}"""
    r = ig.check.mlir(mlir(body, result="8xi32"), meant('iota(n=8, start=0, step=1, dtype="int32")'))
    assert r.ok == r.decided == right, str(r)


ENDS = """  %t = memref.alloc() : memref<8xf32>
  affine.for %i = 0 to 8 {
    %v = memref.load %x[%i] : memref<8xf32>
    memref.store %v, %t[%i] : memref<8xf32>
  }
  affine.for %i = 0 to 8 {
    %v = memref.load %t[%i] : memref<8xf32>
    memref.store %v, %y[%i] : memref<8xf32>
  }
"""
END = "  memref.dealloc %t : memref<8xf32>\n"


def test_memory_that_was_freed_is_not_read() -> None:
    r = ig.check.mlir(mlir(ENDS + END), meant("copy(x)"))
    assert r.ok and r.decided, str(r)
    head, second = ENDS.rsplit("  affine.for", 1)
    with pytest.raises(CheckError, match="is used after line"):
        ig.check.mlir(mlir(f"{head}{END}  affine.for{second}"), meant("copy(x)"))
    inside = ENDS.replace("    memref.store %v, %y", f"  {END}    memref.store %v, %y")
    with pytest.raises(CheckError, match="inside of the one that allocates"):
        ig.check.mlir(mlir(inside), meant("copy(x)"))


HALIDE = [
    ("(float32)((int32)x[i])", "copy(x)", False),
    ("x[(int32)((uint8)i)]", "copy(x)", None),
    ("abs(x[i])", "copy(x)", False),
    ("x[(int32)max((uint32)i - (uint32)8, (uint32)0) + i]", "copy(x)", None),
    ("x[(int32)((uint16)i)]", "copy(x)", True),
    ("select(x[i] > 0.0f, x[i], 0.0f)", "relu(x)", True),
    ("select(x[i] < 0.0f, x[i], 0.0f)", "relu(x)", False),
    ("max(x[i], neg_inf_f32())", "copy(x)", True),
]


@pytest.mark.parametrize(("value", "operation", "right"), HALIDE)
def test_casts_of_halide(value: str, operation: str, right: bool | None) -> None:
    text = f"produce y {{\n  for (i, 0, 300) {{\n    y[i] = {value}\n  }}\n}}"
    if right is None:
        with pytest.raises(CheckError, match="not a formula"):
            ig.check.halide(text, meant(operation, 300))
        return
    r = ig.check.halide(text, meant(operation, 300))
    assert r.ok == r.decided == right, str(r)


@pytest.mark.parametrize(("old", "new"), [("%k = arith.addi %i, %c0", "%i = arith.addi %i, %c0"), ("%v = ", "%x = ")])
def test_a_value_is_defined_once(old: str, new: str) -> None:
    text = at(ZERO + SAME)
    assert ig.check.mlir(text, meant("copy(x)")).decided
    with pytest.raises(CheckError, match="is defined twice"):
        ig.check.mlir(text.replace(old, new), meant("copy(x)"))


@pytest.mark.parametrize("kind", ["9xf32", "8xf64", "4x2xf32"])
def test_a_load_and_a_store_say_the_type_of_their_memory(kind: str) -> None:
    text = at(ZERO + SAME)
    for line in ("%x[%k] : memref<8xf32>", "%y[%i] : memref<8xf32>"):
        with pytest.raises(CheckError, match="is a memref of 8xf32"):
            ig.check.mlir(text.replace(line, line.replace("8xf32", kind)), meant("copy(x)"))
