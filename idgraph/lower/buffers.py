"""The buffers of a plan: names for the memory that `idgraph.index.allocation` gives each tensor, and its limits.

Tensors as the user knows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from idgraph.arith import Expr, and_, simplify
from idgraph.errors import EmitError, IndexingError, ScheduleError
from idgraph.index import AllocatedBuffer as Allocated
from idgraph.index import Storage
from idgraph.index.access_relation import AccessFunction, IndexMaps
from idgraph.index.allocation import Allocator, is_block, is_thread, live_uses
from idgraph.index.races import Runs, line_of
from idgraph.ir import DType, Tensor, TensorExpr, is_integer, item_size
from idgraph.ir.device import current_device
from idgraph.ir.dtypes import compute_dtype
from idgraph.ir.walks import reach
from idgraph.kernel.ir import Buffer, Local


@dataclass(frozen=True, slots=True)
class BufferBinding:
    """Storage of one tensor under the names of a plan: ``memory`` of the whole tensor, at `Access.tensor_address`, the
    ``array`` of an inlined one, and the variable ``value``."""

    storage: Storage
    value: Local
    memory: Buffer | None = None
    array: Buffer | None = None

    @property
    def is_local(self) -> bool:
        """True when consumers take the value from a variable."""
        return self.storage.is_local

    @property
    def in_memory(self) -> bool:
        """True when consumers read it from global memory."""
        return self.storage.in_memory

    @property
    def is_shared(self) -> bool:
        """True when the threads of a block share the array that consumers read."""
        return self.storage.is_shared

    def place(self, access: AccessFunction) -> Expr:
        """The element of the array that an access of the tensor addresses."""
        try:
            return self.storage.place(access.slots, access.allocation)
        except IndexingError as problem:
            raise EmitError(str(problem)) from problem


@dataclass(frozen=True, slots=True)
class ThreadMapping(Runs):
    """How expressions run on a target; ``used`` is False for those without threads."""

    used: bool

    def on_thread(self, e: TensorExpr, p: int) -> bool:
        """True when loop ``p`` of ``e`` runs on blocks or threads of this target."""
        return self.used and is_thread(self.ways[e][p])

    def missing(self, e: TensorExpr, skip: Sequence[int] = (), *, per_block: bool = False) -> tuple[str, ...]:
        """Thread dimensions of the kernel on which no loop of ``e`` (but those in ``skip``) runs: its threads repeat
        the work. ``per_block`` leaves out blocks: each has a copy of its own."""
        ways = [w for p, w in enumerate(self.ways[e]) if p not in skip]
        found = tuple(d for d in self.dims[e] if d not in ways) if self.used else ()
        return tuple(d for d in found if not (per_block and is_block(d)))

    def first_replica(self, e: TensorExpr, maps: IndexMaps, *, per_block: bool = False) -> Expr:
        """True of the first of the threads that compute an element of ``e``, whose loops are as wide as a reader's.

        ``per_block``: as in `missing`.
        """
        loops = enumerate(maps.loops(e))
        on_threads = {
            v.name for p, v in loops if self.on_thread(e, p) and not (per_block and is_block(self.ways[e][p]))
        }
        return and_(*(simplify(x.eq(0)) for x in maps.write(e).replicas if x.names & on_threads))


def private_buffer(name: str, dtype: DType, of: Allocated, threads: ThreadMapping) -> Buffer:
    """Private memory for the part of a tensor that one thread makes: an array, or slices of global memory."""
    title, made = of.tensor.name, of.tensor.definition
    if of.place == "global" and made is not None and threads.missing(made):
        raise EmitError(
            f"{title} needs {of.size} elements for all threads, and no loop of it runs on {threads.missing(made)[0]}",
            where=made.source_line,
            hint=f"inline {title} deeper, or parallelize it as its consumers",
        )
    return Buffer(name, title, dtype, of.size, "global" if of.place == "global" else "private")


def bind_buffers(
    exprs: Sequence[TensorExpr],
    allocator: Allocator,
    threads: ThreadMapping,
    kernels: Sequence[Sequence[TensorExpr]] = (),
) -> Mapping[Tensor, BufferBinding]:
    """Storage of every tensor that ``exprs`` read or write, in these ``kernels``, by default one for each."""
    fusion = allocator.fusion
    made: dict[Tensor, BufferBinding] = {}
    numbers = {t: n for n, t in enumerate(fusion.tensors)}
    live = frozenset(exprs)
    kernel = {e: n for n, inside in enumerate(kernels) for e in inside}
    used = {t for e in exprs for t in e.outputs} | set(fusion.inputs) | set(fusion.outputs)
    for t in sorted(used, key=lambda t: numbers[t]):
        if t.definition is not None:
            _check_memory(t, live_uses(t, live), kernel, threads)
        storage = allocator.storage(t)
        memory, array = storage.memory, None
        value = Local(f"t{numbers[t]}", t.dtype)
        if storage.array is not None:
            array = _array(numbers[t], storage.array, threads)
        made[t] = BufferBinding(storage, value, None if memory is None else _make_buffer(numbers, t, memory), array)
    return made


def _make_buffer(numbers: Mapping[Tensor, int], t: Tensor, of: Allocated) -> Buffer:
    to = of.tensor
    alignment = t.alignment if of.place == "input" else 16
    match of.place:
        case "input" | "output" | "global" as place:
            return Buffer(f"buf{numbers[to]}", to.name, to.dtype, of.size, place, alignment)
        case "shared" | "private" | "register":
            raise EmitError(f"{t.name} has no memory that holds all of it")


def _array(number: int, of: Allocated, threads: ThreadMapping) -> Buffer:
    t = of.tensor
    if of.place != "shared":
        return private_buffer(f"loc{number}", compute_dtype(t.dtype), of, threads)
    buffer = Buffer(f"tile{number}", t.name, t.dtype, of.size, "shared")
    _check_shared(t, buffer, threads)
    return buffer


def _check_memory(
    t: Tensor, uses: Sequence[TensorExpr], kernel: Mapping[TensorExpr, int], threads: ThreadMapping
) -> None:
    """Local and shared memory end with the kernel: a reader must stand in the loops of the writer, or, of what the
    threads of a block share, behind them in the kernel."""
    made = t.definition
    if t.inline_position or made is None or t.memory not in ("local", "shared"):
        return
    if t.memory == "shared" and not threads.used:
        return
    if t in t.fusion.outputs:
        raise ScheduleError(
            f"{t.name} asks for {t.memory} memory, but is an output: its caller reads it in global memory",
            where=t.source_line,
            hint=f"leave out {t.name}.set_memory({t.memory!r}), or make a copy of it the output: "
            f"f.output(ig.copy({t.name}))",
        )
    apart = [u for u in uses if t.memory == "local" or made not in kernel or kernel.get(u) != kernel[made]]
    if apart:
        use = apart[0]
        raise ScheduleError(
            f"{t.name} asks for {t.memory} memory, but is read in another kernel than it is written in",
            where=t.source_line,
            because=[f"written: {made!r}{line_of(made)}", f"read: {use!r}{line_of(use)}"],
            hint=f"inline {t.name} (its readers then run in the loops that write it), run both on the threads of one "
            "block, without loops on blocks, or leave it in global memory",
        )


def _check_shared(t: Tensor, buffer: Buffer, threads: ThreadMapping) -> None:
    if not threads.used or (buffer.size.is_const and int(buffer.size) * item_size(t.dtype) <= current_device().shared):
        return
    raise ScheduleError(
        f"{t.name} needs {buffer.size} elements of shared memory, {item_size(t.dtype)} bytes each",
        where=t.source_line,
        because=[f"a kernel's shared arrays have constant sizes and at most {current_device().shared} bytes in all"],
        hint=f"inline {t.name} deeper, or split its loops into smaller tiles",
    )


def index_title(t: Tensor) -> str:
    """An index tensor as the user knows it: with the inputs that a computed one is made of.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> i = f.input("i", shape=(4,), dtype="int64")
    >>> index_title(i), index_title(i + 1)
    ('i', 't1 (made of i)')
    """
    seen = reach([t], lambda u: () if u.definition is None else u.definition.inputs)
    given = [x.name for x in t.fusion.inputs if x in seen and is_integer(x.dtype) and x is not t]
    if not given:
        return t.name
    e = t.definition
    moved = e is not None and e.op == "where" and e.args[-1] == -1  # see `idgraph.rewrite.rematerialize`
    return f"{t.name} (made of {', '.join(given)}{'; -1 where that is out of range' if moved else ''})"
