"""Division by a number whose reciprocal is known: the device's arithmetic, compiled for this processor, bit for bit."""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.kernel.ir import Compute, Loop, walk
from idgraph.passes.cse_dce import by_one_reciprocal
from idgraph.runtime import Program, compile_ptx
from idgraph.runtime.cuda import intrinsics_math as arithmetic
from idgraph.schedule import KernelConfig
from tests.emit.test_realign import program_of
from tests.emit.thread_runner import run_threads


class Compiled:
    """`near_quotient` and `is_quotient` over arrays of float32, as functions of this processor."""

    def __init__(self) -> None:
        ir: Any = import_module("llvmlite.ir")
        binding: Any = import_module("llvmlite.binding")
        single, long = ir.FloatType(), ir.IntType(64)
        pointer = single.as_pointer()
        module = ir.Module()
        for name in ("near_quotient", "is_quotient"):
            kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, pointer, pointer, long])
            function = ir.Function(module, kind, name)
            entry, loop, done = (function.append_basic_block(n) for n in ("entry", "loop", "done"))
            builder = ir.IRBuilder(entry)
            builder.branch(loop)
            builder.position_at_end(loop)
            at = builder.phi(long)
            x, by, inverse = (builder.load(builder.gep(a, [at])) for a in function.args[:3])
            found = getattr(arithmetic, name)(builder, x, by, inverse)
            if name == "is_quotient":
                found = builder.uitofp(found, single)
            builder.store(found, builder.gep(function.args[3], [at]))
            after = builder.add(at, ir.Constant(long, 1))
            at.add_incoming(ir.Constant(long, 0), entry)
            at.add_incoming(after, loop)
            builder.cbranch(builder.icmp_unsigned("<", after, function.args[4]), loop, done)
            builder.position_at_end(done)
            builder.ret_void()
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(features="+fma")
        self.engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
        self.engine.finalize_object()

    def run(self, name: str, *given: Any) -> Any:
        """The function of each element."""
        made = np.empty(given[0].size, np.float32)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_uint64)
        function = kind(self.engine.get_function_address(name))
        flat = [np.ascontiguousarray(a, np.float32).reshape(-1) for a in given]
        function(*(a.ctypes.data for a in flat), made.ctypes.data, made.size)
        return made


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return Compiled()


def bits(x: Any) -> Any:
    return np.where(np.isnan(x), np.int32(-1), x.view(np.int32))


def numbers(kind: str, count: int) -> tuple[Any, Any]:
    """Numerators and divisors."""
    rng = np.random.default_rng(count)
    sign = rng.choice(np.array([-1, 1], np.float32), count)
    words = rng.integers(0, 2**32, (2, count), dtype=np.uint32).view(np.float32)
    if kind == "all":
        return words[0], words[1]
    if kind == "rows":  # of a softmax: up to one, by one or more
        return np.exp(rng.uniform(-105, 0, count)).astype(np.float32), rng.uniform(1, 4096, count).astype(np.float32)
    if kind == "near halves":  # mantissas whose quotients lie beside what halves a step
        low = rng.integers(0, 64, (2, count), dtype=np.uint32)
        words = (np.uint32(0x3F800000) + low * rng.choice(np.array([1, 2**17], np.uint32), (2, count))).view(np.float32)
        return words[0] * sign, words[1]
    exponent = rng.integers(-149, -100, count)  # "tiny": quotients below the normal numbers
    by = np.ldexp(rng.uniform(1, 2, count), rng.integers(-45, 45, count))
    return (sign * np.ldexp(rng.uniform(1, 2, count), exponent)).astype(np.float32), by.astype(np.float32)


@pytest.mark.parametrize("kind", ["all", "rows", "near halves", "tiny"])
def test_quotients_are_rounded_as_divisions_where_they_say_so(compiled: Compiled, kind: str) -> None:
    x, by = numbers(kind, 1 << 20)
    with np.errstate(all="ignore"):
        inverse, wanted = np.float32(1) / by, x / by
    usual = compiled.run("is_quotient", x, by, inverse) == 1
    found = compiled.run("near_quotient", x, by, inverse)
    assert np.array_equal(bits(found)[usual], bits(wanted)[usual])
    assert usual.mean() > {"all": 0.1, "rows": 0.97, "near halves": 1 - 1e-9, "tiny": 0.1}[kind]
    if kind == "tiny":  # the second rounding is wrong for some of the others
        inside = ~usual & (np.abs(by) < 2.0**40) & (np.abs(by) >= 2.0**-40)
        assert (bits(found)[inside] != bits(wanted)[inside]).any()


def test_zeros_keep_their_signs(compiled: Compiled) -> None:
    x, by = np.array([0.0, -0.0, 0.0, -0.0], np.float32), np.array([3.0, 3.0, -3.0, -3.0], np.float32)
    inverse = np.float32(1) / by
    assert compiled.run("is_quotient", x, by, inverse).all()
    assert np.array_equal(bits(compiled.run("near_quotient", x, by, inverse)), bits(x / by))


def test_what_is_not_usual_is_told(compiled: Compiled) -> None:
    strange = np.array([np.inf, -np.inf, np.nan, 2.0**20, -(2.0**127)], np.float32)
    one = np.ones_like(strange)
    assert not compiled.run("is_quotient", strange, one, one).any()
    by = np.array([0.0, -0.0, np.inf, np.nan, 2.0**-41, 2.0**40, 1e-45], np.float32)
    with np.errstate(all="ignore"):
        assert not compiled.run("is_quotient", np.ones_like(by), by, np.float32(1) / by).any()


@pytest.mark.sampled
@pytest.mark.parametrize("exponent", [-40, -1, 0, 1, 39])
def test_every_divisor_of_some_numerators(compiled: Compiled, exponent: int) -> None:
    """All mantissas of a divisor, by numerators whose quotients are the hardest: one, and one step beside it."""
    by = (np.arange(1 << 23, dtype=np.uint32) + np.uint32((127 + exponent) << 23)).view(np.float32)
    for top in (0x3F800000, 0x3F800001, 0x3FFFFFFF):
        x = np.full_like(by, np.uint32(top).view(np.float32))
        found = compiled.run("near_quotient", x, by, np.float32(1) / by)
        assert np.array_equal(found, x / by)


# kernels --------------------------------------------------------------------------------------------------------------


def by_row(width: int) -> ig.Fusion:
    """Rows divided by a number of their own, which is a reduction: by the reciprocal."""
    f = ig.Fusion("by_row")
    x = f.input("x", (6, width))
    f.output(x / ig.amax(x, 1, keepdim=True))
    return f


def operations_of(p: Program) -> set[str]:
    return {s.op for k in p.kernels for s in walk(k.body) if isinstance(s, Compute)}


@pytest.mark.parametrize("width", [64, 1000, 2048])
def test_unusual_numbers_are_divided_again(width: int) -> None:
    """The threads' `near_quotient` is NaN for what is not usual: those lanes must not be taken."""
    p = program_of(by_row(width), KernelConfig(threads=64))
    assert "div_by" in operations_of(p) and "if not usual" in p.source
    rng = np.random.default_rng(width)
    x = rng.uniform(-3, 3, (6, width)).astype(np.float32)
    x[1] *= np.float32(2.0**-60)  # divisors that are not usual
    x[2, ::7] = np.float32(1e-42)
    x[3, 5], x[4, 3] = -np.inf, np.float32(-(2.0**30))
    x[5, ::3] = -0.0
    (found,) = run_threads(p, {"x": x}, seed=1).values()
    assert np.array_equal(bits(np.asarray(found)), bits(x / x.max(1, keepdims=True)))


def test_one_test_for_a_thread_s_divisions() -> None:
    """At most 8 divisions are tested at once, so 16 of a loop are two tests; none of them branches on its own."""
    wide = program_of(by_row(1024), KernelConfig(threads=64))
    loops = [s for k in wide.kernels for s in walk(k.body) if isinstance(s, Loop) and s.parallel == "unroll"]
    assert any(int(s.extent) > 8 and any(isinstance(x, Compute) and x.op == "div_by" for x in s.body) for s in loops)
    assert wide.source.count("if not usual") == 2


def _lanes_divided() -> ig.Fusion:
    """Elements divided by a number, and by one value of their row that no reduction makes."""
    f = ig.Fusion("lanes")
    x, s = f.input("x", (64, 768)), f.input("s", (64, 1))
    f.output(ig.round(x / 0.3) + x / s)
    return f


def test_lanes_have_the_reciprocal_of_their_divisor_in_common() -> None:
    """Bit for bit as divisions, of numbers that are not usual too; one test for the eight of a thread."""
    p = program_of(_lanes_divided())
    assert p.source.count("if not usual") == 1 and {"div_by", "reciprocal"} <= operations_of(p)
    rng = np.random.default_rng(3)
    x, s = rng.normal(size=(64, 768)).astype(np.float32), rng.uniform(0.5, 2, (64, 1)).astype(np.float32)
    x[3, ::5], x[4, ::2] = np.inf, np.float32(1e-42)
    x[5] *= np.float32(2.0**30)
    s[6], s[7] = 0.0, np.float32(1e-30)
    (found,) = run_threads(p, {"x": x, "s": s}, seed=1).values()
    with np.errstate(all="ignore"):
        wanted = np.rint(x / np.float32(0.3)) + x / s
    assert np.array_equal(bits(np.asarray(found)), bits(wanted))


def test_a_divisor_that_changes_between_divisions_has_no_common_reciprocal() -> None:
    k = ig.kernel.parse("""
kernel k():
  buffer x: float32[2] input "x"
  buffer y: float32[2] output "y"
  a: float32 = x[0]
  b: float32 = x[1]
  c: float32 = div(a, b)
  b: float32 = neg(a)
  d: float32 = div(a, b)
  y[0] = c
  y[1] = d
""")
    assert by_one_reciprocal(k.body) == list(k.body)


def test_few_divisions_stay() -> None:
    f = ig.Fusion("f")
    f.output(ig.mean(f.input("x", (64, 300)), 1))
    assert "div_by" not in operations_of(program_of(f))


@pytest.mark.parametrize("width", [1000, 2048])
def test_ptx_keeps_registers_in_registers(width: int) -> None:
    pytest.importorskip("numba_cuda")
    (text,) = compile_ptx(program_of(by_row(width), KernelConfig(threads=64)))
    assert ".local" not in text and "rcp.rn.f32" in text


def test_two_rows_that_a_thread_holds_stay_in_registers() -> None:
    """Each is divided by its own norm, in parts of four steps: the compiler does not write out a loop of eight such."""
    pytest.importorskip("numba_cuda")
    f = ig.Fusion("cosine")
    wide = [ig.cast(f.input(n, (4096, 512), "bfloat16"), "float32") for n in "xy"]
    a, b = (x / ig.maximum(ig.sqrt(ig.sum(x * x, 1, keepdim=True)), 1e-12) for x in wide)
    f.output(a)
    f.output(ig.sum(a * b, 1))
    program = program_of(f)
    assert program.source.count("if not usual") == 8
    assert all(".local" not in text for text in compile_ptx(program))


def test_a_wide_number_of_a_row_leaves_rows_of_16_bits_short() -> None:
    """A slope of each row in float32 is no column: all columns that are read and written have 16 bits."""

    def softmax_of(wide_columns: bool) -> set[str]:
        f = ig.Fusion("slopes")
        x, slope = ig.cast(f.input("x", (64, 512), "bfloat16"), "float32"), f.input("slope", (64, 1))
        beside = f.input("beside", (512,)) if wide_columns else 1.0
        f.output(ig.cast(ig.softmax(x * slope * beside, 1), "bfloat16"))
        return operations_of(program_of(f))

    assert any(op.startswith("fast_exp") for op in softmax_of(wide_columns=False))
    assert not any(op.startswith("fast_exp") for op in softmax_of(wide_columns=True))


def test_quotients_of_functions_are_tested_together() -> None:
    """One test for eight quotients, whatever their numerators are computed by: not a branch for each element."""
    f = ig.Fusion("f")
    x, s = f.input("x", (8192, 2048)), f.input("s", (8192,))
    f.output(ig.sum(ig.exp(x) / ig.unsqueeze(s, 1), 1))
    ig.schedule.auto(f)
    program = ig.emit(f, target="cuda")
    lines = [line.strip() for k in program.kernels for line in program.kernel_source(k).splitlines()]
    at = [n for n, line in enumerate(lines) if line.startswith("usual") and line.endswith("= True")]
    assert at and all(lines[n + 1].startswith("for q in range(") for n in at)


def test_functions_of_a_library_are_not_computed_again() -> None:
    """Quotients of what they give are tested, and divided again, in a loop of their own: the dividends are held."""
    f = ig.Fusion("companding")
    x = f.input("x", (8, 2048))
    f.output(ig.log1p(ig.abs(ig.tanh(x)) * 255.0) / 5.545177444479562)
    p = program_of(f)
    assert [p.source.count(f"f32({name}(") for name in ("tanh", "log1p")] == [1, 1]
    assert "if not usual" in p.source
    given = np.random.default_rng(7).normal(size=(8, 2048)).astype(np.float32)
    given[3, ::5], given[4, ::2], given[5, 7] = np.float32(1e-42), 0.0, np.nan
    (found,) = run_threads(p, {"x": given}, seed=1).values()
    wanted = np.log1p(np.abs(np.tanh(given.astype(np.float64))) * 255.0) / 5.545177444479562
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6, atol=3e-45)
