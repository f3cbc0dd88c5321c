"""The kernel IR: kernels of statements, as plain data that every printer reads. ``print(kernel)`` is its text form.

A kernel speaks of index expressions and tensors, not of a language; `idgraph.kernel.parse` reads the text back.

Grids: how many blocks a device counts along x, y and z, the shape of a grid for more blocks than x counts, and the
threads of a block.

Shared memory of one kernel: static up to what every device grants, else one dynamic piece that its arrays share.

Devices grant a block 48 KiB of static shared memory; more has to be asked for at the launch (99 KiB on compute 8.6 and
8.9, 163 KiB on 8.0, 227 KiB on 9.0 and 10.0), and arrays are then parts of one piece, at offsets of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

from idgraph.arith import Expr, as_expr, ceildiv, interval, maximum
from idgraph.display import Printed
from idgraph.errors import EmitError, ScheduleError, arguments
from idgraph.ir import item_size
from idgraph.ir.device import ALIGNMENT, GPU, current_device
from idgraph.ir.schedule_log import NO_CHOICES, KernelHints
from idgraph.kernel.printer import kernel_text
from idgraph.kernel.statements import (
    ZERO,
    Accumulate,
    AccumulateOp,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Buffer,
    CheckSite,
    Comment,
    CompoundStmt,
    Compute,
    Constant,
    ExtractHalf,
    Half2Op,
    If,
    Index,
    InitAccumulator,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    Place,
    Provenance,
    ProvenanceList,
    RegisterArray,
    Select,
    SingleThread,
    SplitAxis,
    Stmt,
    Store,
    StraightLineBlock,
    VectorAdd,
    VectorLoad,
    VectorStore,
    bodies,
    quote,
    single_statement,
    walk,
)
from idgraph.kernel.verifier import Verified, check_structure, verify_kernel

__all__ = [
    "PRIME", "ZERO", "Accumulate", "AccumulateOp", "Alloc", "Barrier", "Buffer", "BoundsCheck", "Select",
    "SplitAxis", "BlockReduce", "Compute", "InitAccumulator", "ExtractHalf", "If", "Index", "Kernel",
    "StraightLineBlock", "Let", "Load", "Local", "Loop", "Comment", "Constant", "Operand", "Half2Op", "Place",
    "KernelModule", "CompoundStmt", "ProvenanceList", "RegisterArray", "Provenance", "SingleThread", "CheckSite",
    "Stmt", "Store", "VectorAdd", "VectorLoad", "VectorStore", "bodies", "quote", "single_statement", "walk",
]  # fmt: skip

PRIME = "'"  # appended to a symbol's name where the kernels use that name themselves


@dataclass(frozen=True, slots=True)
class LaneWidth:
    """The width of the accesses that ``operation`` (by its output) makes of ``tensor`` in the vectorised ``loop``.

    ``asked``: elements that the loop has (``most``, where a symbol says how many). ``got``: elements of the widest
    access that the kernel makes for it.
    ``most``: those of ``asked`` that one access of a GPU, of 16 bytes, can move.
    """

    operation: str
    tensor: str
    loop: str
    asked: int
    got: int
    most: int

    @property
    def is_narrow(self) -> bool:
        """Whether the access is narrower than the loop, and the device, allow."""
        return self.got < self.most

    def __str__(self) -> str:
        return f"{self.operation}: {self.loop} over {self.tensor}: asked {self.asked}, got {self.got}"


@dataclass(frozen=True, slots=True)
class Kernel(Printed):
    """One nest of loops: ``buffers`` and ``scalars`` (symbols of extents and strides) are its parameters.

    ``launch`` holds, for each parallel dimension used, the extents of the loops that run on it. ``passes`` names the
    passes that have changed it, ``choices`` what its schedule says beside loops (see `Tensor.persistent`),
    ``rows`` how its rows are passed over and why, also where the target's rule decided. ``default_hints`` is what that
    rule decided in the schedule (`Tensor.by_rule`), for the running value of each reduction, until the pass that obeys.
    ``widths``: of the accesses along vectorised loops, asked and got, on the target "cuda"; elsewhere there are none.

    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(8,))[4:])
    >>> print(ig.emit(f).kernels[0])
    kernel kernel0():
      buffer buf0: float32[8] input "x"
      buffer buf1: float32[4] output "t1"
      for i0 < 4:  # t1.I2
        t0: float32 = buf0[i0 + 4]  @ t1.0(i0)  # "t1" = slice("x")  at "<doctest ...>:1"
        t1: float32 = cast(t0)
        buf1[i0] = t1  @ t1(i0)
    >>> k = ig.emit(f).kernels[0]
    >>> k.ir is k
    True
    """

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[str, ...]
    body: tuple[Stmt, ...]
    launch: dict[str, tuple[Expr, ...]] = field(default_factory=dict[str, "tuple[Expr, ...]"])
    passes: tuple[str, ...] = field(default=(), compare=False)
    choices: KernelHints = NO_CHOICES
    rows: tuple[str, ...] = field(default=(), compare=False)
    default_hints: tuple[tuple[str, KernelHints], ...] = ()
    widths: tuple[LaneWidth, ...] = field(default=(), compare=False)

    @arguments(EmitError)
    def verify(self, symbols: Mapping[str, int] | None = None) -> Verified:
        """Raise `EmitError` where the kernel is not well formed; else return how its addresses were decided.

        Definitions reach uses, types agree, each address lies inside its array where its predicate holds, a barrier is
        reached by all threads of a block, and two threads do not touch one element without a barrier between them,
        unless they only read or are atomic. ``symbols`` gives numbers to symbols, for addresses that no proof decides.

        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> k = ig.emit(f).kernels[0]
        >>> k.verify()
        Verified(proved=2, enumerated=0, undecided=(), races=True)
        >>> ig.kernel.parse(str(k).replace("i0 + 4", "i0 + 5")).verify()
        Traceback (most recent call last):
        idgraph.errors.EmitError: kernel0 is not well formed: it touches element 8 of the 8 of buf0
          ...
        """
        return verify_kernel(self.name, self.buffers, self.scalars, self.body, self.launch, symbols)

    def check_structure(self) -> None:
        """The part of `verify` that is quick enough for each kernel that is printed: values are set where they are
        read, and of their type; the threads that exchange values are those of one row. Raises `EmitError`.

        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> k = ig.emit(f).kernels[0]
        >>> k.check_structure()
        >>> from dataclasses import replace
        >>> (loop,) = k.body
        >>> replace(k, body=(replace(loop, body=loop.body[2:]),)).check_structure()
        Traceback (most recent call last):
        idgraph.errors.EmitError: kernel0 is not well formed: t0 is read before any statement sets it
          ...
        """
        check_structure(self.name, self.buffers, self.scalars, self.body, self.launch)

    @property
    def ir(self) -> Kernel:
        """The kernel itself, which is its IR."""
        return self

    def __repr__(self) -> str:
        buffers = ", ".join(f"{b.place} {b.title}" for b in self.buffers)
        return f"Kernel({self.name!r}, {sum(1 for _ in walk(self.body))} statements: {buffers})"

    def __str__(self) -> str:
        ruled = [(acc, str(c), c.why) for acc, c in self.default_hints]
        return kernel_text(
            self.name, self.buffers, self.scalars, self.body, self.launch, self.passes, str(self.choices), self.rows,
            ruled,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class KernelModule(Printed):
    """Kernels in launch order. ``names`` maps symbols to source names, ``titles`` tensors t0, t1, ... to user names.

    ``needed`` are the reads (tensor, operand) and the writes to memory (tensor, None) of the kernels as lowered: the
    address check expects each of them to be served after all passes.
    """

    kernels: tuple[Kernel, ...]
    buffers: tuple[Buffer, ...]
    names: dict[str, str]
    titles: dict[str, str]
    needed: frozenset[tuple[str, int | None]] = field(default=frozenset(), compare=False)

    def __repr__(self) -> str:
        return f"KernelModule({', '.join(k.name for k in self.kernels)})"

    def __str__(self) -> str:
        head = [f"{b.name}: {b.dtype}[{b.size}] {b.place} {quote(b.title)}" for b in self.buffers]
        return "\n".join([*head, *(str(k) for k in self.kernels)])


X, Y, Z = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
BLOCK_NUMBER: Final = (
    "i64(cuda.blockIdx.x) + i64(cuda.gridDim.x) * (i64(cuda.blockIdx.y) + i64(cuda.gridDim.y) * i64(cuda.blockIdx.z))"
)
"""The number of a block in a grid of three dimensions, x fastest, as a source says it."""


def most_blocks() -> int:
    """The number of blocks that x, y and z count together: over 2^62.

    >>> most_blocks() > 2**62
    True
    """
    return GPU.limits[X] * GPU.limits[Y] * GPU.limits[Z]


def beyond_x(launch: Mapping[str, Sequence[Expr]]) -> bool:
    """True of a launch that may have more blocks along x than a device counts there, and none along y and z: its blocks
    are then counted along all three. A number of blocks without an upper bound is left as it is.

    >>> beyond_x({"blockIdx.x": (as_expr(2**32),)}), beyond_x({"blockIdx.x": (as_expr(2**31 - 1),)})
    (True, False)
    >>> beyond_x({"blockIdx.x": (as_expr(2**32),), "blockIdx.y": (as_expr(2),)})
    False
    """
    most = [interval(e)[1] for e in launch.get(X, ())]
    return Y not in launch and Z not in launch and any(n is not None and n > GPU.limits[X] for n in most)


def grid_of(blocks: int) -> tuple[int, int, int]:
    """A grid of at least ``blocks`` blocks and fewer than y times z more: as few as possible along z, then along y.

    >>> grid_of(5), grid_of(2**31 - 1), grid_of(2**32), grid_of(2**50)
    ((5, 1, 1), (2147483647, 1, 1), (1431655766, 3, 1), (2147454977, 58255, 9))
    """
    y = -(-blocks // GPU.limits[X])
    z = max(1, -(-y // GPU.limits[Y]))
    y = max(1, -(-y // z))
    return max(1, -(-blocks // (y * z))), y, z


def grid_exprs(blocks: Expr) -> tuple[Expr, Expr, Expr]:
    """The same of a number of blocks that a call tells.

    >>> [str(e) for e in grid_exprs(as_expr(2**32))]
    ['1431655766', '3', '1']
    """
    one = as_expr(1)
    y = ceildiv(blocks, as_expr(GPU.limits[X]))
    z = maximum(one, ceildiv(y, as_expr(GPU.limits[Y])))
    y = maximum(one, ceildiv(y, z))
    return maximum(one, ceildiv(blocks, y * z)), y, z


def most_threads(launch: Mapping[str, Sequence[Expr]]) -> int:
    """The threads of a block, or the most that a block may have where their number is a symbol's.

    >>> most_threads({"threadIdx.x": (as_expr(64), as_expr(32)), "threadIdx.y": (as_expr(4),)})
    256
    """
    extents = [found for dim, found in launch.items() if dim.startswith("threadIdx")]
    if any(not n.is_const for e in extents for n in e):
        return current_device().block_threads
    return prod(max(1, *(int(n) for n in e)) for e in extents)


EXCHANGE = 8 * 1024  # bytes, at most, in which the threads of a block combine values of one type by one operation


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """``offsets`` in bytes of each array in the dynamic piece of ``dynamic`` bytes; none where all are static.
    ``total`` bytes are needed in all, those for exchanges between threads among them."""

    total: int
    dynamic: int
    offsets: dict[str, int]


def bytes_of(b: Buffer) -> int:
    """Bytes of a shared array, padded to the alignment of the next one."""
    return -(-max(1, int(b.size)) * item_size(b.dtype) // ALIGNMENT) * ALIGNMENT


def shared_arrays(body: Sequence[Stmt]) -> tuple[Buffer, ...]:
    """The shared arrays of a kernel, in the order of their places."""
    found = {s.buffer.name: s.buffer for s in walk(tuple(body)) if isinstance(s, Alloc) and s.buffer.place == "shared"}
    return tuple(found.values())


def shared_layout(body: Sequence[Stmt]) -> SharedLayout:
    """Where the shared arrays of a kernel lie."""
    offsets: dict[str, int] = {}
    at = 0
    for b in shared_arrays(body):
        offsets[b.name] = at
        at += bytes_of(b)
    exchanged = {(s.op, s.acc.dtype, s.before is None) for s in walk(tuple(body)) if isinstance(s, BlockReduce)}
    total = at + EXCHANGE * len(exchanged) if at else 0
    return SharedLayout(total, at, offsets) if total > current_device().static_shared else SharedLayout(total, 0, {})


def check_shared_total(body: Sequence[Stmt]) -> None:
    """Raise `ScheduleError` where the shared arrays of a kernel do not fit together."""
    arrays, total = shared_arrays(body), shared_layout(body).total
    most = current_device().shared
    if total > most:
        exchanges = total - sum(map(bytes_of, arrays))
        rest = [f"exchanges between its threads: {exchanges} bytes"] if exchanges else []
        raise ScheduleError(
            f"a kernel's shared arrays need {total} bytes of at most {most}",
            because=[*(f"{b.title}: {bytes_of(b)} bytes" for b in arrays), *rest],
            hint="split the loops into smaller tiles, or keep one of them elsewhere",
        )
