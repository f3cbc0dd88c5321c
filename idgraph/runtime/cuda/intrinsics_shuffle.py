"""Exchanges between the threads of a block by warp shuffles, written straight into a kernel's machine code.

``block_OP_TYPE(x, count, again)`` combines values along threadIdx.x: within warps by shuffles, then of all warps
through shared memory. ``again``: the exchange is in a loop, and must wait for threads that still read from its last
step. ``columns_OP_TYPE(x, held, wide, count)`` combines ``count`` values along threadIdx.y for each of ``wide``
threads along threadIdx.x, both powers of two, ``wide`` at most 32 and the threads whole warps: those of a warp by
shuffles, the warps' by its first one. ``held`` is a shared array of ``wide`` elements for each warp, which the
exchanges of a kernel have in common. The simulator has the functions of the last part instead.

The numbers of threads are constants here, so that a compiler sees neither loops nor tests of them: as inlined Python,
two exchanges were more than half of a softmax kernel, for every pass of the compiler.

Block-wide reductions and scans over the values that the threads hold.

``tree_OP_TYPE(x, index, group, count)`` combines values of any number of threads along any dimensions, in shared
memory only, which the simulator can do too. ``block_OP_TYPE(x, count, again)`` does it along threadIdx.x, and
``columns_OP_TYPE(x, held, wide, count)`` along threadIdx.y, for threads that reduce rows side by side; with shuffles
they are the ones above. Each gives every thread the same value, bit by bit: the
order of the operands is fixed by the thread numbers. ``scan_OP_TYPE`` and ``scan_tree_OP_TYPE`` give the exclusive
scan and the total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np

from idgraph.ir.device import GPU
from idgraph.runtime.cuda.intrinsics_math import extreme

OPS = ("sum", "prod", "amax", "amin")
KINDS = ("f32", "f64", "int")
WARP = GPU.warp
_SHARED = 3  # LLVM's number of shared memory


def shuffles(cc: tuple[int, int]) -> dict[str, Any]:
    """``block_OP_TYPE(x, count, again)`` and ``columns_OP_TYPE(x, held, wide, count)`` of all operations and types."""
    names = [(op, kind) for op in OPS for kind in KINDS]
    blocks = {f"block_{op}_{kind}": _block(op, kind, cc) for op, kind in names}
    return blocks | {f"columns_{op}_{kind}": _columns(op, kind, cc) for op, kind in names}


def _block(op: str, kind: str, cc: tuple[int, int]) -> Any:
    extending: Any = import_module("numba.cuda.extending")
    held = _type(kind)

    def block(typingctx: Any, x: Any, count: Any, again: Any) -> Any:
        if not _constant(count, again):
            return None
        number, repeated = int(count.literal_value), bool(again.literal_value)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = context.cast(builder, args[0], signature.args[0], held)
            return _Exchange(builder, op, held, cc).block(value, number, repeated)

        return held(x, count, again), codegen

    return extending.intrinsic(block)


def _columns(op: str, kind: str, cc: tuple[int, int]) -> Any:
    extending: Any = import_module("numba.cuda.extending")
    kept = _type(kind)

    def columns(typingctx: Any, x: Any, held: Any, wide: Any, count: Any) -> Any:
        if not _constant(wide, count):
            return None
        across, number = int(wide.literal_value), int(count.literal_value)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = context.cast(builder, args[0], signature.args[0], kept)
            data = context.make_array(signature.args[1])(context, builder, args[1]).data
            return _Exchange(builder, op, kept, cc).columns(value, data, across, number)

        return kept(x, held, wide, count), codegen

    return extending.intrinsic(columns)


def _constant(*given: Any) -> bool:
    return all(hasattr(x, "literal_value") for x in given)


def _type(kind: str) -> Any:
    types: Any = import_module("numba.cuda.types")
    return {"f32": types.float32, "f64": types.float64, "int": types.int64}[kind]


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Instructions for values of type ``held``, combined by ``op``."""

    builder: Any
    op: str
    held: Any
    cc: tuple[int, int]

    def block(self, x: Any, count: int, again: bool) -> Any:
        """Along threadIdx.x."""
        x = self.butterfly(x, _halves(min(count, WARP)))
        if count <= WARP:
            return x
        b, warps = self.builder, count // WARP
        held = self.shared(WARP)
        thread = self.register("tid.x")
        row = b.mul(
            b.add(self.register("tid.y"), b.mul(self.register("ntid.y"), self.register("tid.z"))), self.u32(warps)
        )
        if again:
            self.barrier()
        with b.if_then(b.icmp_unsigned("==", b.and_(thread, self.u32(WARP - 1)), self.u32(0))):
            b.store(x, self.at(held, b.add(row, b.lshr(thread, self.u32(5)))))
        self.barrier()
        if warps & (warps - 1) == 0:  # every lane takes one of the values
            x = b.load(self.at(held, b.add(row, b.and_(thread, self.u32(warps - 1)))))
            return self.butterfly(x, _halves(warps))
        x = b.load(self.at(held, row))
        for n in range(1, warps):
            x = self.combined(x, b.load(self.at(held, b.add(row, self.u32(n)))))
        return x

    def columns(self, x: Any, held: Any, wide: int, count: int) -> Any:
        """Along threadIdx.y."""
        b, warps = self.builder, wide * count // WARP
        x = self.butterfly(x, _doubles(wide, WARP))
        if warps <= 1:
            return x
        groups = min(WARP // wide, warps)  # of the first warp's threads, which take some of the warps' values each
        thread = b.add(b.mul(self.register("tid.y"), self.u32(wide)), self.register("tid.x"))
        lane = b.and_(thread, self.u32(WARP - 1))
        own = b.icmp_unsigned("<", lane, self.u32(wide))
        self.barrier()  # threads may still read from an earlier exchange
        with b.if_then(own):
            b.store(x, self.at(held, b.add(b.mul(b.lshr(thread, self.u32(5)), self.u32(wide)), lane)))
        self.barrier()
        with b.if_then(b.icmp_unsigned("<", thread, self.u32(WARP))):
            at = b.and_(lane, self.u32(wide * groups - 1))
            x = b.load(self.at(held, at))
            for n in range(1, warps // groups):
                x = self.combined(x, b.load(self.at(held, b.add(at, self.u32(n * wide * groups)))))
            x = self.butterfly(x, _doubles(wide, wide * groups))
            with b.if_then(own):
                b.store(x, self.at(held, lane))
        self.barrier()
        return b.load(self.at(held, self.register("tid.x")))

    # instructions -----------------------------------------------------------------------------------------------------

    def combined(self, x: Any, y: Any) -> Any:
        """Two values as one."""
        b, floats = self.builder, self.is_float
        match self.op:
            case "sum":
                return b.fadd(x, y) if floats else b.add(x, y)
            case "prod":
                return b.fmul(x, y) if floats else b.mul(x, y)
            case _:
                return extreme(b, self.op[1:], self.held, x, y, self.cc)

    def butterfly(self, x: Any, steps: Iterable[int]) -> Any:
        """Each thread's value combined with that of the thread whose number differs in one bit, for all ``steps``."""
        for step in steps:
            x = self.combined(x, self.exchanged(x, step))
        return x

    def exchanged(self, x: Any, step: int) -> Any:
        """The value of the lane whose number differs by ``step``; 64 bits as two words."""
        ir, b = _ir(), self.builder
        size = int(self.held.bitwidth)
        word, whole = ir.IntType(32), ir.IntType(size)
        bits = b.bitcast(x, whole) if self.is_float else x
        if size == 32:
            found = self.moved(bits, step)
        else:
            low, high = b.trunc(bits, word), b.trunc(b.lshr(bits, ir.Constant(whole, 32)), word)
            low, high = self.moved(low, step), self.moved(high, step)
            found = b.or_(b.shl(b.zext(high, whole), ir.Constant(whole, 32)), b.zext(low, whole))
        return b.bitcast(found, x.type) if self.is_float else found

    def moved(self, word: Any, step: int) -> Any:
        ir = _ir()
        i32 = ir.IntType(32)
        made = ir.FunctionType(ir.LiteralStructType((i32, ir.IntType(1))), (i32,) * 5)
        numbers = [self.u32(n) for n in (0xFFFFFFFF, 3, step, WARP - 1)]
        given = (numbers[0], numbers[1], word, numbers[2], numbers[3])
        return self.builder.extract_value(self.builder.call(self.function(made, "llvm.nvvm.shfl.sync.i32"), given), 0)

    def barrier(self) -> None:
        ir = _ir()
        self.builder.call(self.function(ir.FunctionType(ir.VoidType(), ()), "llvm.nvvm.barrier0"), ())

    def register(self, name: str) -> Any:
        """A number of the thread, or a size of the block."""
        ir = _ir()
        made = ir.FunctionType(ir.IntType(32), ())
        return self.builder.call(self.function(made, f"llvm.nvvm.read.ptx.sreg.{name}"), ())

    def function(self, made: Any, name: str) -> Any:
        known: Callable[..., Any] = import_module("numba.cuda.cgutils").get_or_insert_function
        return known(self.builder.module, made, name)

    def shared(self, count: int) -> Any:
        """A shared array for this exchange only."""
        ir, b = _ir(), self.builder
        double = ir.DoubleType() if self.held.bitwidth == 64 else ir.FloatType()
        element = double if self.is_float else ir.IntType(64)
        made = ir.ArrayType(element, count)
        found = ir.GlobalVariable(b.module, made, f"exchange{len(b.module.globals)}", _SHARED)
        found.align = int(self.held.bitwidth) // 8
        found.initializer = ir.Constant(made, ir.Undefined)
        return b.addrspacecast(b.bitcast(found, element.as_pointer(_SHARED)), element.as_pointer(), "generic")

    def at(self, data: Any, place: Any) -> Any:
        return self.builder.gep(data, [self.builder.zext(place, _ir().IntType(64))])

    def u32(self, n: int) -> Any:
        ir = _ir()
        return ir.Constant(ir.IntType(32), n)

    @property
    def is_float(self) -> bool:
        types: Any = import_module("numba.cuda.types")
        return isinstance(self.held, types.Float)


def _ir() -> Any:
    return import_module("llvmlite.ir")


def _halves(count: int) -> list[int]:
    """``count`` / 2 and on to 1.

    >>> _halves(8), _halves(1)
    ([4, 2, 1], [])
    """
    return [count >> n for n in range(1, count.bit_length())]


def _doubles(first: int, end: int) -> list[int]:
    """``first`` and its doubles below ``end``.

    >>> _doubles(4, 32), _doubles(32, 32)
    ([4, 8, 16], [])
    """
    return [first << n for n in range(end.bit_length() - first.bit_length())]


BLOCK_OPS = ("sum", "prod", "amax", "amin", "logsum", "near_logsum")
BLOCK_KINDS: Mapping[str, Any] = {"f32": np.float32, "f64": np.float64, "int": np.int64}
# Globals that `exchanges` gives each copy of the functions below.
cuda: Any = None
combine: Any = None
dtype: Any = None
everyone: Any = None


def exchanges(device: Any, jit: Callable[[Any], Any], pairs: Mapping[str, Any], shuffles: bool) -> dict[str, Any]:
    """The functions by name; ``pairs`` has a device function of two values for each of `BLOCK_OPS`."""
    made: dict[str, Any] = {}
    for op in BLOCK_OPS:
        for kind, held in BLOCK_KINDS.items():
            names = {"np": np, "cuda": device, "combine": pairs[op], "dtype": held, "everyone": np.uint32(0xFFFFFFFF)}
            made[f"tree_{op}_{kind}"] = names["tree"] = jit(_with(tree, names, len(made)))
            if not shuffles:
                made[f"block_{op}_{kind}"] = jit(_with(along_x, names, len(made)))
                made[f"columns_{op}_{kind}"] = jit(_with(along_y, names, len(made)))
            made[f"scan_tree_{op}_{kind}"] = names["scan_tree"] = jit(_with(scan_tree, names, len(made)))
            made[f"scan_columns_{op}_{kind}"] = jit(_with(scan_columns if shuffles else scan_along_y, names, len(made)))
            made[f"scan_{op}_{kind}"] = jit(_with(scan if shuffles else scan_along_x, names, len(made)))
    return made


def _with(f: Any, names: Mapping[str, Any], number: int) -> FunctionType:
    """``f`` with global names of its own, on lines of its own: the simulator tells shared arrays apart by line."""
    code = f.__code__
    return FunctionType(code.replace(co_firstlineno=code.co_firstlineno + 1000 * number), dict(names), f.__name__)


def tree(x: Any, index: Any, group: Any, count: Any) -> Any:
    """One value of ``count`` threads, halved in shared memory; ``group`` numbers those that combine with each other."""
    held = cuda.shared.array(1024, dtype)
    at = group * count + index
    cuda.syncthreads()  # threads may still read from an earlier exchange
    held[at] = x
    left: Any = count
    while left > 1:
        half = (left + 1) // 2
        cuda.syncthreads()
        if index < left - half:
            held[at] = combine(held[at], held[at + half])
        left = half
    cuda.syncthreads()
    return held[group * count]


def along_x(x: Any, count: Any, again: Any) -> Any:
    """`tree` along threadIdx.x, with the arguments of the exchange by shuffles."""
    return tree(x, cuda.threadIdx.x, cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z, count)


def along_y(x: Any, held: Any, wide: Any, count: Any) -> Any:
    """`tree` along threadIdx.y, with the arguments of the exchange by shuffles."""
    return tree(x, cuda.threadIdx.y, cuda.threadIdx.x, count)


def scan_tree(x: Any, first: Any, index: Any, group: Any, count: Any) -> Any:
    """(exclusive scan, total) in shared memory; ``first`` is the identity, which the first thread gets."""
    held = cuda.shared.array(1024, dtype)
    at = group * count + index
    cuda.syncthreads()  # threads may still read from an earlier exchange
    held[at] = x
    step: Any = 1
    while step < count:
        cuda.syncthreads()
        other = first
        if index >= step:
            other = held[at - step]
        cuda.syncthreads()
        if index >= step:
            held[at] = combine(other, held[at])
        step = step * 2
    cuda.syncthreads()
    before = first
    if index > 0:
        before = held[at - 1]
    return before, held[group * count + count - 1]


def scan_along_x(x: Any, first: Any, count: Any) -> Any:
    """`scan_tree` along threadIdx.x."""
    return scan_tree(x, first, cuda.threadIdx.x, cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z, count)


def scan(x: Any, first: Any, count: Any) -> Any:
    """`scan_tree` along threadIdx.x: within warps by shuffles, then over the warps' values."""
    width = min(count, 32)
    lane = np.uint32(np.uint32(cuda.threadIdx.x) & np.uint32(width - 1))
    step = 1
    while step < width:
        other = cuda.shfl_up_sync(everyone, x, step)
        if lane >= np.uint32(step):
            x = combine(other, x)
        step = step * 2
    before = cuda.shfl_up_sync(everyone, x, 1)
    if lane == np.uint32(0):
        before = first
    if count <= 32:
        return before, cuda.shfl_sync(everyone, x, np.uint32(cuda.laneid) | np.uint32(width - 1))
    held = cuda.shared.array(32, dtype)
    warps = count // 32
    warp = np.uint32(np.uint32(cuda.threadIdx.x) >> np.uint32(5))
    row = np.uint32(np.uint32(cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z) * np.uint32(warps))
    cuda.syncthreads()
    if lane == np.uint32(31):
        held[np.uint32(row + warp)] = x
    cuda.syncthreads()
    total = first
    mine = first
    for n in range(warps):
        if np.uint32(n) == warp:
            mine = total
        total = combine(total, held[np.uint32(row + np.uint32(n))])
    return combine(mine, before), total


def scan_along_y(x: Any, first: Any, count: Any) -> Any:
    """`scan_tree` along threadIdx.y, for 32 threads along threadIdx.x."""
    return scan_tree(x, first, cuda.threadIdx.y, cuda.threadIdx.x, count)


def scan_columns(x: Any, first: Any, count: Any) -> Any:
    """`scan_tree` along threadIdx.y, for 32 threads along threadIdx.x: a tile, transposed in shared memory."""
    held = cuda.shared.array(1056, dtype)  # 32 rows of 33
    whole = cuda.shared.array(32, dtype)
    lane, row = np.uint32(cuda.threadIdx.x), np.uint32(cuda.threadIdx.y)
    own = np.uint32(np.uint32(row * np.uint32(33)) + lane)
    cuda.syncthreads()
    held[own] = x
    cuda.syncthreads()
    for n in range(32 // count):  # a warp takes so many of the columns
        column = np.uint32(np.uint32(row * np.uint32(32 // count)) + np.uint32(n))
        at = np.uint32(np.uint32(lane * np.uint32(33)) + column)
        y = first
        if lane < np.uint32(count):
            y = held[at]
        step = 1
        while step < count:
            other = cuda.shfl_up_sync(everyone, y, step)
            if lane >= np.uint32(step):
                y = combine(other, y)
            step = step * 2
        before = cuda.shfl_up_sync(everyone, y, 1)
        if lane == np.uint32(0):
            before = first
        if lane < np.uint32(count):
            held[at] = before
        if lane == np.uint32(count - 1):
            whole[column] = y
    cuda.syncthreads()
    return held[own], whole[lane]
