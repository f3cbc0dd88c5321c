"""Elements at other alignments than the output, out of aligned vectors: values, addresses, PTX, the shifts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import idgraph as ig
from idgraph.index import strides
from idgraph.ir import DType
from idgraph.kernel.ir import VectorLoad, walk
from idgraph.runtime import Program, compile_ptx
from idgraph.schedule import KernelConfig
from idgraph.validate import check_addresses
from tests.emit.thread_runner import run_threads

DTYPES: tuple[DType, ...] = ("float32", "float16", "bfloat16", "int32", "int8", "bool")
RULE = KernelConfig()


def biased(columns: int, dtype: DType) -> ig.Fusion:
    """Rows of odd width with a bias: the bias of a row begins anywhere."""
    f = ig.Fusion("biased")
    x, b = f.input("x", shape=(9, columns), dtype=dtype), f.input("b", shape=(columns,), dtype=dtype)
    f.output(x & b if dtype == "bool" else x + b)
    return f


def padded(columns: int, dtype: DType) -> ig.Fusion:
    """Rows that are padded on the input only."""
    f = ig.Fusion("padded")
    x = f.input("x", shape=(9, columns), strides=((columns + 15) // 16 * 16, 1), dtype=dtype)
    f.output(~x if dtype == "bool" else x + x)
    return f


def sliced(columns: int, dtype: DType) -> ig.Fusion:
    """The first column left out: the input begins one element behind the output in each row, by a constant."""
    f = ig.Fusion("sliced")
    x = f.input("x", shape=(9, columns + 1), dtype=dtype)
    f.output(~x[:, 1:] if dtype == "bool" else x[:, 1:] + x[:, 1:])
    return f


def program_of(f: ig.Fusion, config: KernelConfig = RULE) -> Program:
    ig.schedule.auto(f, config=config)
    return ig.emit(f, "cuda")


def realigned_in(p: Program) -> list[VectorLoad]:
    """The loads of elements that begin anywhere."""
    return [s for k in p.kernels for s in walk(k.body) if isinstance(s, VectorLoad) and s.realigned]


def strides_of(t: ig.Tensor) -> list[int]:
    """Elements from one neighbour to the next, along each axis."""
    return [int(n) for n in strides(t)]


def arrays_of(f: ig.Fusion) -> dict[str, Any]:
    """Numbers that differ between neighbours, and small enough for every type."""
    rng = np.random.default_rng(3)
    made: dict[str, Any] = {}
    for t in f.inputs:
        shape = [int(n) for n in t.shape]
        x = rng.integers(0, 2, shape) if t.dtype == "bool" else rng.integers(-60, 60, shape)
        kind = np.dtype(ml_dtypes.bfloat16 if t.dtype == "bfloat16" else t.dtype)
        made[t.name] = np.lib.stride_tricks.as_strided(
            np.zeros(int(np.dot([n - 1 for n in shape], strides_of(t))) + 1, kind),
            shape,
            [kind.itemsize * n for n in strides_of(t)],
        )
        made[t.name][...] = x
    return made


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1024, 1025, 1027, 1030, 1039])
@pytest.mark.parametrize("build", [biased, padded, sliced])
def test_values_and_addresses(build: Callable[[int, DType], ig.Fusion], columns: int, dtype: DType) -> None:
    """Every phase of a row: 9 rows of odd widths begin at each of 8 phases. Values are those of the numpy target."""
    f = build(columns, dtype)
    arrays = arrays_of(f)
    want = ig.emit(f, "numpy").run(arrays)
    p = program_of(f)
    for k in p.kernels:
        k.verify()
    assert check_addresses(f).ok
    found = run_threads(p, arrays, seed=1)
    assert all(np.array_equal(np.asarray(found[n]), np.asarray(v)) for n, v in want.items())


@pytest.mark.parametrize(("build", "columns"), [(biased, 1025), (padded, 1025), (sliced, 1024), (sliced, 1025)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool"])
def test_rows_at_other_alignments_are_realigned(
    build: Callable[[int, DType], ig.Fusion], columns: int, dtype: DType
) -> None:
    assert realigned_in(program_of(build(columns, dtype)))


@pytest.mark.parametrize("build", [biased, padded, sliced])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_wider_elements_stay(build: Callable[[int, DType], ig.Fusion], dtype: DType) -> None:
    """As many loads as a vector has of them run as fast as a copy."""
    assert not realigned_in(program_of(build(1025, dtype)))


def test_rows_that_begin_alike_stay_as_they_are() -> None:
    f = ig.Fusion("f")
    f.output(f.input("x", shape=(9, 1025), dtype="float16") + f.input("y", shape=(9, 1025), dtype="float16"))
    assert not realigned_in(program_of(f))


def test_parts_of_a_cat_stay_with_neighbouring_threads() -> None:
    f = ig.Fusion("f")
    f.output(ig.cat([f.input(f"x{n}", shape=(64, n), dtype="bfloat16") for n in (301, 77, 1023)], dim=1))
    assert not realigned_in(program_of(f))


def test_a_config_leaves_padded_rows_to_neighbouring_threads() -> None:
    assert not realigned_in(program_of(padded(1025, "bfloat16"), KernelConfig(realigned=False)))


def test_a_kernel_is_refused_whose_vectors_do_not_begin_at_words() -> None:
    """The text form reads back; two elements, or a buffer that begins elsewhere, are not realigned."""
    text = """kernel k():
  buffer x: int16[68] input "x"
  buffer y: int16[64] output "y"
  for i < 16:
    (a: int16, b: int16, c: int16, d: int16) = x[i*4 + 3; 4] realigned
    y[i*4; 4] = (a, b, c, d)"""
    kernel = ig.kernel.parse(text)
    assert str(kernel) == text
    kernel.verify()
    for old, new in ((' input "x"', ' input "x" align 4'), ("i*4 + 3", "i*4 + 5")):
        with pytest.raises(ig.EmitError):
            ig.kernel.parse(text.replace(old, new)).verify()
    two = text.replace(", c: int16, d: int16) = x[i*4 + 3; 4]", ") = x[i*4 + 3; 2]").replace(
        "4] = (a, b, c, d)", "2] = (a, b)"
    )
    with pytest.raises(ig.EmitError, match="2 elements are not realigned"):
        ig.kernel.parse(two).verify()


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_ptx_has_wide_accesses_only_in_the_body(dtype: DType) -> None:
    """Two wide loads, and single ones of the ends; none of registers' arrays in memory, no division of 64 bits."""
    pytest.importorskip("numba_cuda")
    (text,) = compile_ptx(program_of(padded(1025, dtype)))
    assert text.count("ld.global.v4") == 2 and text.count("st.global.v4") >= 1
    assert ".local" not in text and "div.s64" not in text and "div.u64" not in text and "rem.u64" not in text
    assert text.count("shf.r.wrap.b32") == 4


@pytest.mark.parametrize(("rows", "kind"), [(4096, "u32"), (90_000, "u64")])
def test_numbers_of_elements_are_short_where_the_array_is(rows: int, kind: str) -> None:
    """50264 elements a row: 90 000 of them have more elements than a number of 32 bits can tell."""
    f = ig.Fusion("padded")
    f.output(f.input("x", shape=(rows, 50257), dtype="bfloat16", strides=(50264, 1)) * 2.0)
    (line,) = [x for x in program_of(f).source.splitlines() if "rwload4(" in x]
    assert line.rsplit(", ", 1)[1].startswith(f"{kind}(")


# the shifts, compiled for this processor ------------------------------------------------------------------------------


class Reader:
    """`covering` as a function of this processor, in numbers of 32 or 64 bits; ``seen`` are the (address, bytes) that
    it has loaded."""

    def __init__(self, width: int, size: int, bits: int) -> None:
        ir: Any = import_module("llvmlite.ir")
        binding: Any = import_module("llvmlite.binding")
        covering: Any = import_module("idgraph.runtime.cuda.intrinsics_memory").covering
        self.width, self.seen = width, list[tuple[int, int]]()
        self.told = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)(self.see)
        word, long, pointer = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
        number, taken = ir.IntType(bits), {32: ctypes.c_uint32, 64: ctypes.c_uint64}[bits]
        told_at = ir.Constant(long, ctypes.cast(self.told, ctypes.c_void_p).value)

        plain: Any = ir.IRBuilder

        class Watched(plain):
            """A builder whose loads are told."""

            def load(self, ptr: Any, *more: Any, **named: Any) -> Any:
                kind = ptr.type.pointee
                count = kind.count * 4 if isinstance(kind, ir.VectorType) else kind.width // 8
                to = self.inttoptr(told_at, ir.FunctionType(ir.VoidType(), [long, long]).as_pointer())
                self.call(to, [self.ptrtoint(ptr, long), ir.Constant(long, count)])
                return plain.load(self, ptr, *more, **named)

        def funnel(builder: Any, low: Any, high: Any, bits: Any) -> Any:
            both = builder.or_(builder.shl(builder.zext(high, long), ir.Constant(long, 32)), builder.zext(low, long))
            return builder.trunc(builder.lshr(both, builder.zext(bits, long)), word)

        module = ir.Module()
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer, number, number, pointer]), "read")
        builder = Watched(function.append_basic_block())
        data, at, last, to = function.args
        out = builder.bitcast(to, word.as_pointer())
        for n, found in enumerate(covering(builder, data, at, width, size, last, funnel)):
            builder.store(found, builder.gep(out, [ir.Constant(long, n)]))
        builder.ret_void()
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine()
        self.engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
        self.engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, taken, taken, ctypes.c_void_p)
        self.function = kind(self.engine.get_function_address("read"))

    def see(self, address: int, count: int) -> None:
        """A load, as the function tells it."""
        self.seen.append((address, count))

    def read(self, array: Any, first: int, last: int) -> Any:
        """The elements of an array from one on."""
        self.seen.clear()
        made = np.zeros(self.width, array.dtype)
        self.function(array.ctypes.data, first, last, made.ctypes.data)
        return made


def aligned(count: int, size: int) -> Any:
    """Random elements whose first one lies at a multiple of 16 bytes."""
    kind = np.dtype(f"u{size}")
    room = np.zeros(count * size + 16, np.uint8)
    start = -room.ctypes.data % 16
    found = room[start : start + count * size].view(kind)
    found[:] = np.random.default_rng(count).integers(0, np.iinfo(kind).max, count, dtype=kind)
    return found


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("width", "size"), [(4, 1), (8, 1), (16, 1), (4, 2), (8, 2), (4, 4)])
def test_the_shifts_find_every_element(width: int, size: int, bits: int) -> None:
    """All first elements of arrays of many lengths. Vectors are aligned, and none crosses the end of its array."""
    reader = Reader(width, size, bits)
    for count in range(width, 4 * width + 1):
        array = aligned(count, size)
        begin = array.ctypes.data
        last = 2**bits - 1 if count % width == 0 else count - width
        for first in range(count - width + 1):
            assert np.array_equal(reader.read(array, first, last), array[first : first + width]), (count, first)
            assert all(a % n == 0 and begin <= a and a + n <= begin + array.nbytes for a, n in reader.seen)
            whole = (first + 2 * width - 1) // width * width <= count
            assert [n for _, n in reader.seen] == [width * size, *([width * size] if whole else [size] * width)]
