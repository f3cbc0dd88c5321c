"""Where each tensor's elements live while the kernels run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from idgraph.arith import Expr, as_expr
from idgraph.emit.nest import (
    AccessMap,
    IndexMaps,
    LoopVar,
    flatten,
    is_block,
    is_thread,
    live_uses,
    product,
    reduced,
)
from idgraph.emit.plan import Buffer, Local
from idgraph.emit.scatter import in_place
from idgraph.emit.shared import LIMIT
from idgraph.errors import EmitError, ScheduleError
from idgraph.index import buffer_size
from idgraph.index.tiles import tile
from idgraph.ir import DType, Fusion, Tensor, TensorExpr, item_size

# Elements of one thread's private array beyond which it moves to global memory, one slice for each thread.
LOCAL_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Home:
    """Storage of one tensor.

    ``memory``: an input, an output or a global intermediate, at `Access.address`. ``local``: a variable. ``array``: a
    private or shared array over ``extents``: the tensor's own loops at the positions ``kept``, or with ``laid_out``
    its allocation axes at those positions. A fusion output that is inlined may have two of them.
    """

    tensor: Tensor
    value: Local
    memory: Buffer | None = None
    array: Buffer | None = None
    kept: tuple[int, ...] = ()
    extents: tuple[Expr, ...] = ()
    prefix: Expr | None = None
    laid_out: bool = False

    @property
    def is_local(self) -> bool:
        """True when consumers take the value from a variable."""
        t = self.tensor
        return t.inline_position > 0 and self.array is None and t.definition is not None and t.memory != "global"

    @property
    def in_memory(self) -> bool:
        """True when consumers read it from global memory."""
        return self.memory is not None and self.array is None and not self.is_local

    @property
    def is_shared(self) -> bool:
        """True when the threads of a block share the array that consumers read."""
        return self.array is not None and self.array.place == "shared"

    def place(self, access: AccessMap) -> Expr:
        """The element of the array that an access of the tensor means."""
        return self.at(access.allocation if self.laid_out else access.slots)

    def at(self, coordinates: Sequence[Expr | None]) -> Expr:
        """The element of the array for these coordinates of the tensor's loop (or allocation) axes."""
        chosen: list[Expr] = []
        for p in self.kept:
            slot = coordinates[p]
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

    def missing(self, e: TensorExpr, skip: Sequence[int] = (), *, per_block: bool = False) -> tuple[str, ...]:
        """Thread dimensions of the kernel on which no loop of ``e`` (but those in ``skip``) runs: its threads repeat
        the work. ``per_block`` leaves out blocks: each has a copy of its own."""
        ways = [w for p, w in enumerate(self.ways[e]) if p not in skip]
        found = tuple(d for d in self.dims[e] if d not in ways) if self.used else ()
        return tuple(d for d in found if not (per_block and is_block(d)))


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
    updated = in_place(fusion, exprs)
    used = {t for e in exprs for t in e.outputs} | set(fusion.inputs) | outputs
    for t in sorted(used, key=lambda t: numbers[t]):
        n = numbers[t]
        value = Local(f"t{n}", t.dtype)
        if t.definition is None:
            made[t] = Home(t, value, Buffer(f"buf{n}", t.name, t.dtype, buffer_size(t), "input", t.alignment))
            continue
        k = t.inline_position
        _check_memory(t, live_uses(t, exprs))
        memory = None
        if t in updated and k == 0:
            to = updated[t]
            place = "output" if to in outputs else "global"
            memory = Buffer(f"buf{numbers[to]}", to.name, to.dtype, buffer_size(to), place)
        elif t in outputs or k == 0 or t.memory == "global":
            memory = Buffer(f"buf{n}", t.name, t.dtype, buffer_size(t), "output" if t in outputs else "global")
        if k == 0 or t.memory == "global":
            made[t] = Home(t, value, memory)
            continue
        made[t] = _inlined(t, n, value, memory, maps, threads)
    return made


def _check_memory(t: Tensor, uses: Sequence[TensorExpr]) -> None:
    """Local and shared memory end with the kernel: whoever reads it must be in the loops that write it."""
    if t.memory in ("local", "shared") and t.inline_position == 0 and uses:
        made, use = t.definition, uses[0]
        raise ScheduleError(
            f"{t.name} asks for {t.memory} memory, but is read in another kernel than it is written in",
            where=t.source_line,
            because=[f"written: {made!r}{line_of(made)}", f"read: {use!r}{line_of(use)}"],
            hint=f"inline {t.name} (its readers then run in the loops that write it), or leave it in global memory",
        )


def line_of(e: TensorExpr | None) -> str:
    """`` (file:line: text)`` of the user's line, or nothing."""
    return f" ({e.source_line})" if e is not None and e.source_line else ""


def _inlined(t: Tensor, n: int, value: Local, memory: Buffer | None, maps: IndexMaps, threads: Threads) -> Home:
    """A variable, or an array over what is made at one point of the shared loops.

    Axes left of the compute-at position need no room, nor do those along which the memory is private: blocks and
    threads of local memory, blocks of shared memory. Threads right or left of the position share what is shared.
    """
    e = t.definition
    if e is None:
        raise EmitError(f"{t.name} is an input and cannot be inlined")
    k, loops, shared = t.inline_position, maps.loops(e), t.memory == "shared"
    skip = set(reduced(e, loops))
    # A loop of one step needs no room either.
    skip |= {p for p, v in enumerate(loops) if v.extent == 1}
    if not shared and all(p in skip for p in range(k, len(loops))):
        return Home(t, value, memory)

    def is_own(p: int) -> bool:
        """One copy of the array for each step of this loop."""
        way = threads.ways[e][p]
        if shared and is_thread(way):
            return is_block(way) and (p < k or threads.used)
        return p < k or threads.on_thread(e, p)

    own = [p for p in range(len(loops)) if is_own(p)]
    laid_out = t.memory in ("local", "shared")
    array = tile(t, own, loops, laid_out=laid_out)
    kept, extents, laid_out = array.kept, array.extents, array.laid_out
    if shared:
        buffer = Buffer(f"tile{n}", t.name, t.dtype, product(extents), "shared")
        _check_shared(t, buffer, threads)
        return Home(t, value, memory, buffer, kept, extents, None, laid_out)
    buffer, prefix = private_buffer(f"loc{n}", e, memory_dtype(t.dtype), extents, loops, threads)
    return Home(t, value, memory, buffer, kept, extents, prefix, laid_out)


def _check_shared(t: Tensor, buffer: Buffer, threads: Threads) -> None:
    if not threads.used or (buffer.size.is_const and int(buffer.size) * item_size(t.dtype) <= LIMIT):
        return
    raise ScheduleError(
        f"{t.name} needs {buffer.size} elements of shared memory, {item_size(t.dtype)} bytes each",
        where=t.source_line,
        because=[f"a kernel's shared arrays have constant sizes and at most {LIMIT} bytes in all"],
        hint=f"inline {t.name} deeper, or split its loops into smaller tiles",
    )
