"""The kernel IR: kernels of statements, as plain data that every printer reads. ``print(kernel)`` is its text form.

A kernel speaks of index expressions and tensors, not of a language; `idgraph.kernel.parse` reads the text back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from idgraph.arith import Expr
from idgraph.display import Printed
from idgraph.errors import EmitError, arguments
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
    walk,
)
from idgraph.kernel.verifier import Verified, check_structure, verify_kernel

__all__ = [
    "PRIME", "ZERO", "Accumulate", "AccumulateOp", "Alloc", "Barrier", "Buffer", "BoundsCheck", "Select",
    "SplitAxis", "BlockReduce", "Compute", "InitAccumulator", "ExtractHalf", "If", "Index", "Kernel",
    "StraightLineBlock", "Let", "Load", "Local", "Loop", "Comment", "Constant", "Operand", "Half2Op", "Place",
    "KernelModule", "ProvenanceList", "RegisterArray", "Provenance", "SingleThread", "CheckSite", "Stmt", "Store",
    "VectorAdd", "VectorLoad", "VectorStore", "bodies", "quote", "walk",
]  # fmt: skip

PRIME = "'"  # appended to a symbol's name where the kernels use that name themselves


@dataclass(frozen=True, slots=True)
class LaneWidth:
    """The width of the accesses that ``operation`` (by its output) makes of ``tensor`` in the vectorised ``loop``.

    ``asked``: elements that the loop has. ``got``: elements of the widest access that the kernel makes for it.
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
        return str(self)

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
