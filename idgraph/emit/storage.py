"""Where each tensor's elements live while the kernels run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from idgraph.arith import Expr, as_expr
from idgraph.emit.nest import IndexMaps, LoopVar, flatten, is_thread, product, reduced
from idgraph.emit.plan import Buffer, Local
from idgraph.errors import EmitError
from idgraph.index import buffer_size
from idgraph.ir import DType, Fusion, Tensor, TensorExpr

# Elements of one thread's private array beyond which it moves to global memory, one slice for each thread.
LOCAL_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Home:
    """Storage of one tensor.

    ``memory``: an input, an output or a global intermediate, at `Access.address`. ``local``: a variable. ``private``:
    an array indexed by the tensor's own loops at the positions ``kept``. A fusion output that is inlined has both.
    """

    tensor: Tensor
    value: Local
    memory: Buffer | None = None
    private: Buffer | None = None
    kept: tuple[int, ...] = ()
    extents: tuple[Expr, ...] = ()
    prefix: Expr | None = None

    @property
    def is_local(self) -> bool:
        """True when consumers take the value from a variable."""
        return self.tensor.inline_position > 0 and self.private is None and self.tensor.definition is not None

    def place(self, slots: Sequence[Expr | None]) -> Expr:
        """The element of the private array for these coordinates of the tensor's loop axes."""
        chosen: list[Expr] = []
        for p in self.kept:
            slot = slots[p]
            if slot is None:
                raise EmitError(f"loop axis {p} of {self.tensor.name} has no coordinate where it is read")
            chosen.append(slot)
        inside = flatten(self.extents, chosen)
        return inside if self.prefix is None else self.prefix + inside


def memory_dtype(dtype: DType) -> DType:
    """The type in which a private array keeps values: 16-bit floats stay in float32 until they reach memory."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


@dataclass(frozen=True, slots=True)
class Threads:
    """How expressions run: ``ways`` loop by loop, ``dims`` the thread dimensions of the kernel each one is in.

    ``used`` is False for targets without threads.
    """

    used: bool
    ways: Mapping[TensorExpr, tuple[str, ...]]
    dims: Mapping[TensorExpr, tuple[str, ...]]

    def on_thread(self, e: TensorExpr, p: int) -> bool:
        """True when loop ``p`` of ``e`` runs on blocks or threads of this target."""
        return self.used and is_thread(self.ways[e][p])

    def missing(self, e: TensorExpr, skip: Sequence[int] = ()) -> tuple[str, ...]:
        """Thread dimensions of the kernel on which no loop of ``e`` (but those in ``skip``) runs: its threads repeat
        the work."""
        ways = [w for p, w in enumerate(self.ways[e]) if p not in skip]
        return tuple(d for d in self.dims[e] if d not in ways) if self.used else ()


def private_buffer(
    name: str, e: TensorExpr, dtype: DType, extents: Sequence[Expr], loops: Sequence[LoopVar], threads: Threads
) -> tuple[Buffer, Expr | None]:
    """Private memory for a box of ``extents``; on threads, one too large for registers and local memory is a slice of
    global memory for each thread (the second result is where the slice starts)."""
    size, title = product(extents), e.output.name
    if not threads.used or (size.is_const and int(size) <= LOCAL_LIMIT):
        return Buffer(name, title, dtype, size, "private"), None
    own = [v for p, v in enumerate(loops) if threads.on_thread(e, p)]
    if threads.missing(e):
        raise EmitError(
            f"{title} needs {size} elements for each thread, and no loop of it runs on {threads.missing(e)[0]}",
            where=e.source_line,
            hint=f"inline {title} deeper, or parallelize it as its consumers",
        )
    place = flatten([v.extent for v in own], [v.symbol for v in own]) if own else as_expr(0)
    total = product([*(v.extent for v in own), size])
    return Buffer(name, title, dtype, total, "global"), place * size


def homes(fusion: Fusion, exprs: Sequence[TensorExpr], maps: IndexMaps, threads: Threads) -> Mapping[Tensor, Home]:
    """Storage of every tensor that ``exprs`` read or write."""
    outputs = set(fusion.outputs)
    made: dict[Tensor, Home] = {}
    numbers = {t: n for n, t in enumerate(fusion.tensors)}
    used = {t for e in exprs for t in (*e.inputs, *e.outputs)} | set(fusion.inputs) | outputs
    for t in sorted(used, key=lambda t: numbers[t]):
        n = numbers[t]
        value = Local(f"t{n}", t.dtype)
        if t.definition is None:
            made[t] = Home(t, value, Buffer(f"buf{n}", t.name, t.dtype, buffer_size(t), "input", t.alignment))
            continue
        k = t.inline_position
        if t.memory == "shared":
            raise EmitError(
                f"{t.name} asks for shared memory, which the kernels do not use yet",
                hint='set_memory("auto") keeps an inlined tensor with its thread and any other in global memory',
            )
        memory = None
        if t in outputs or k == 0:
            memory = Buffer(f"buf{n}", t.name, t.dtype, buffer_size(t), "output" if t in outputs else "global")
        if k == 0:
            made[t] = Home(t, value, memory)
            continue
        made[t] = _inlined(t, n, value, memory, maps, threads)
    return made


def _inlined(t: Tensor, n: int, value: Local, memory: Buffer | None, maps: IndexMaps, threads: Threads) -> Home:
    e = t.definition
    if e is None:
        raise EmitError(f"{t.name} is an input and cannot be inlined")
    k, loops = t.inline_position, maps.loops(e)
    skip = set(reduced(e, loops))
    if all(p in skip for p in range(k, len(loops))):
        return Home(t, value, memory)
    # Every thread has an array of its own, so axes that run on threads need no room in it.
    kept = tuple(p for p in range(k, len(loops)) if p not in skip and not threads.on_thread(e, p))
    extents = tuple(loops[p].extent for p in kept)
    buffer, prefix = private_buffer(f"loc{n}", e, memory_dtype(t.dtype), extents, loops, threads)
    return Home(t, value, memory, buffer, kept, extents, prefix)
