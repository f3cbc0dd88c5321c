"""Storage: the memory that each tensor really gets. Decided here, once: index maps and kernels both ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass
from typing import Literal, Protocol

from idgraph.arith import Expr, IndexMap, as_expr, simplify, symbol
from idgraph.errors import IndexingError, ScheduleError, arguments
from idgraph.graphs.broadcast_forwarding import descendants
from idgraph.graphs.coordinate_rules import backward, forward
from idgraph.ir import SCATTERS, DomainExpr, Fusion, IterDomain, RowPartition, Tensor, TensorExpr
from idgraph.ir.loop_transforms import reachable


class LoopInfo(Protocol):
    """The facts that storage needs of a loop, see `LoopVariable`."""

    @property
    def extent(self) -> Expr: ...
    @property
    def domain(self) -> IterDomain: ...
    @property
    def parallel(self) -> str: ...
    @property
    def symbol(self) -> Expr: ...


@dataclass(frozen=True, slots=True)
class ArrayTile:
    """An array over ``extents`` (elements): the tensor's own loops at the positions ``kept``, or with ``laid_out`` its
    allocation axes at those positions. ``strides`` (elements) are those that the user gave, None where an axis lies
    around what is inside it without a gap."""

    tensor: Tensor
    kept: tuple[int, ...]
    extents: tuple[Expr, ...]
    laid_out: bool
    given: tuple[Expr | None, ...] = ()

    @property
    def strides(self) -> tuple[Expr, ...]:
        """Elements between neighbours along each axis of the array."""
        made: list[Expr] = []
        inner = as_expr(1)
        given = self.given or (None,) * len(self.extents)
        for n, stride in zip(reversed(self.extents), reversed(given), strict=True):
            made.insert(0, inner if stride is None else stride)
            inner = simplify(made[0] * n)
        return tuple(made)

    @property
    def size(self) -> Expr:
        """Elements that the array holds, gaps between them included."""
        if any(n == 0 for n in self.extents):
            return as_expr(0)
        last = as_expr(0)
        for n, stride in zip(self.extents, self.strides, strict=True):
            last = last + (n - 1) * stride
        return simplify(last + 1)

    def place(self, slots: Sequence[Expr | None], allocation: Sequence[Expr]) -> Expr:
        """Element of the array for an access with these loop slots and allocation coordinates."""
        place = as_expr(0)
        dense = all(s is None for s in self.given)
        for n, stride, p in zip(self.extents, self.strides, self.kept, strict=True):
            at = allocation[p] if self.laid_out else slots[p]
            if at is None:
                raise IndexingError(f"loop axis {p} of {self.tensor.name} has no coordinate where it is read")
            place = place * n + at if dense else place + at * stride
        return simplify(place)


def is_placed(t: Tensor) -> bool:
    """Whether the loops of ``t`` put rows one behind the other: readers know places, not the rows that fill them."""
    return any(isinstance(x, RowPartition) and x.combines for x in t.domain.exprs)


def tile(t: Tensor, own: Sequence[int], loops: Sequence[LoopInfo], *, laid_out: bool = True) -> ArrayTile:
    """The array of ``t`` where each step of its loops at the positions ``own`` has a copy.

    ``loops`` are those of its definition. Axes of the allocation that the schedule made (padding, swizzles), or that
    have strides of their own, lay it out where ``laid_out`` says so; otherwise its loops do, in the order of the
    allocation, unless readers do not know them (`is_placed`). Raises `ScheduleError` for an array laid out by the
    allocation over loops that take their extent from another axis.
    """
    demanded = any(d not in t.logical for d in t.allocation) or any(s is not None for s in t.domain.strides)
    if (laid_out and demanded) or is_placed(t):
        for p, (loop, d) in enumerate(zip(loops, t.loop, strict=True)):
            if p not in own and loop.domain is not d:
                raise ScheduleError(
                    f"the allocation of {t.name} says nothing about its loop {p}, which takes the extent "
                    f"{loop.extent} of {loop.domain.label}",
                    where=t.source_line,
                    hint=f"leave the allocation of {t.name} by itself: its loops are laid out in their order",
                )
        follow = reachable([t.loop[p] for p in own if loops[p].extent != 1], [*t.domain.exprs, *t.domain.loop_exprs])
        kept = tuple(p for p, d in enumerate(t.allocation) if d not in follow and not d.is_broadcast)
        given = tuple(t.domain.strides[p] for p in kept)
        return ArrayTile(t, kept, tuple(t.allocation[p].extent for p in kept), True, given)
    rest = [p for p, d in enumerate(t.loop) if p not in own and d.kind != "reduction"]
    if t.allocation != t.axes:
        exprs = [*t.domain.exprs, *t.domain.loop_exprs]
        made = [{d, *descendants(d, exprs)} for d in t.allocation]
        rest.sort(key=lambda p: max((n for n, of in enumerate(made) if t.loop[p] in of), default=-1))
    return ArrayTile(t, tuple(rest), tuple(loops[p].extent for p in rest), False)


@arguments(IndexingError)
def strides(t: Tensor) -> tuple[Expr, ...]:
    """Elements between neighbours along each allocation axis: as given, else contiguous (inner extents multiplied).

    A free stride (a symbol) counts from the axis inside it: the axes outside it follow from it.

    >>> import idgraph as ig
    >>> [str(s) for s in strides(ig.Fusion("f").input("t", shape=(4, 8)))]
    ['8', '1']
    """
    made: list[Expr] = []
    inner = as_expr(1)
    for d, given in zip(reversed(t.allocation), reversed(t.domain.strides), strict=True):
        stride = given if given is not None else inner
        made.insert(0, stride)
        inner = simplify(stride * d.extent)
    return tuple(made)


@arguments(IndexingError)
def address_of(t: Tensor, allocation: Sequence[Expr]) -> Expr:
    """Elements from the start of t's buffer, its offset included."""
    if len(allocation) != len(t.allocation):
        raise IndexingError(
            f"{t.name} has {len(t.allocation)} allocation axes, {len(allocation)} coordinates are given"
        )
    address = as_expr(t.offset)
    for x, stride in zip(allocation, strides(t), strict=True):
        address = address + x * stride
    return simplify(address)


@arguments(IndexingError)
def buffer_size(t: Tensor) -> Expr:
    """Elements that the buffer must hold: one past the largest address, 0 for a tensor without elements."""
    if any(d.extent == 0 for d in t.allocation):
        return as_expr(0)
    size = as_expr(t.offset) + 1
    for d, stride in zip(t.allocation, strides(t), strict=True):
        size = size + (d.extent - 1) * stride
    return simplify(size)


# Operations whose elements follow from their coordinates: each reader makes them again, without memory.
COUNTED = frozenset({"iota", "full"})


def counted_exprs(fusion: Fusion) -> frozenset[TensorExpr]:
    """The operations whose values each reader makes in place."""
    # A scatter begins with a copy of its operand 0, so that must be in memory.
    exprs = fusion.exprs
    kept = set(fusion.outputs) | {e.inputs[0] for e in exprs if e.op in SCATTERS}
    return frozenset([e for e in exprs if e.op in COUNTED and kept.isdisjoint(e.outputs)])


def live_exprs(fusion: Fusion) -> tuple[TensorExpr, ...]:
    """The expressions that the outputs depend on, producers first; without those whose values each reader makes."""
    wanted = set(fusion.outputs)
    for e in reversed(fusion.exprs):
        if not wanted.isdisjoint(e.outputs):
            wanted.update(e.inputs)
    made = counted_exprs(fusion)
    return tuple([e for e in fusion.exprs if e not in made and not wanted.isdisjoint(e.outputs)])


def live_uses(t: Tensor, among: Set[TensorExpr]) -> tuple[TensorExpr, ...]:
    """The consumers of ``t`` that are ``among`` those that run."""
    return tuple(dict.fromkeys(u for u in t.uses if u in among))


Place = Literal["input", "output", "global", "shared", "private", "register"]

# Elements of one thread's private array beyond which it moves to global memory, one slice for each thread.
LOCAL_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class AllocatedBuffer:
    """Memory that is allocated: ``size`` elements at ``place``, which elements of ``tensor`` go to.

    ``place``: "input", "output" and "global" memory holds a whole tensor ("global" also the slices of private arrays
    that are too large for one thread); a "shared" array belongs to a block, a "private" one to a thread, both to one
    point of the loops they are inlined in; a "register" is a variable, or a number that each reader makes anew.
    ``axes`` are those that it is laid out by, outermost first: allocation axes, or loops. ``extents`` are theirs.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.exp(f.input("x", shape=(3, 4)), name="t")
    >>> y = f.output(t + 1.0)
    >>> a = ig.IdModel(f).write(t.definition)
    >>> a.buffer.place, str(a.buffer.size), str(a.address)
    ('global', '12', 'i0*4 + i1')
    >>> a = ig.IdModel(f).write(t.inline(1).definition)
    >>> a.buffer.place, str(a.buffer.size), str(a.address), str(a.tensor_address)
    ('private', '4', 'i1', 'i0*4 + i1')
    >>> ig.IdModel(f).write(t.inline(2).definition).buffer.place
    'register'
    """

    tensor: Tensor
    place: Place
    axes: tuple[IterDomain, ...]
    extents: tuple[Expr, ...]
    size: Expr

    def __str__(self) -> str:
        box = " x ".join(map(str, self.extents)) or "1"
        return f"{self.place} memory of {self.tensor.name}: {box}, {self.size} elements"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage of one tensor. ``memory`` holds all of it, at `Access.tensor_address`; ``array`` what is made at one
    point of the loops that it is inlined in, laid out by ``tile`` from ``start`` on. An output that is inlined may have
    both: its readers take it from the array. Readers find it in a variable where neither holds it for them.
    """

    tensor: Tensor
    memory: AllocatedBuffer | None = None
    array: AllocatedBuffer | None = None
    tile: ArrayTile | None = None
    start: Expr | None = None

    @property
    def in_memory(self) -> bool:
        """True when consumers read it from memory that holds the whole tensor."""
        return self.memory is not None and self.array is None and not self.is_local

    @property
    def is_local(self) -> bool:
        """True when consumers take the value from a variable."""
        t = self.tensor
        return self.array is None and (self.memory is None or (t.inline_position > 0 and t.memory != "global"))

    @property
    def is_shared(self) -> bool:
        """True when the threads of a block share the array that consumers read."""
        return self.array is not None and self.array.place == "shared"

    def buffer(self, *, write: bool) -> AllocatedBuffer:
        """The memory of an access. A write goes to the array; one that has none to the whole tensor's memory."""
        found = self.array if self.array is not None else self.memory
        if found is None or (self.is_local and not write):
            return AllocatedBuffer(self.tensor, "register", (), (), as_expr(1))
        return found

    def place(self, slots: Sequence[Expr | None], allocation: Sequence[Expr]) -> Expr:
        """The element of the array that an access with these loop slots and allocation coordinates means."""
        if self.tile is None:
            return as_expr(0)
        inside = self.tile.place(slots, allocation)
        return inside if self.start is None else simplify(self.start + inside)

    def address(self, slots: Sequence[Expr | None], allocation: Sequence[Expr], whole: Expr, *, write: bool) -> Expr:
        """Elements from the start of `buffer`; ``whole`` is the address in memory that holds the whole tensor."""
        if self.array is not None:
            return self.place(slots, allocation)
        return whole if self.buffer(write=write) is self.memory else as_expr(0)


def product(extents: Sequence[Expr]) -> Expr:
    """Elements of a box."""
    total: Expr = as_expr(1)
    for n in extents:
        total = total * n
    return simplify(total)


def flatten(extents: Sequence[Expr], coordinates: Sequence[Expr]) -> Expr:
    """Row-major position of ``coordinates`` in a box of ``extents``."""
    place: Expr = as_expr(0)
    for n, c in zip(extents, coordinates, strict=True):
        place = place * n + c
    return simplify(place)


def is_thread(way: str) -> bool:
    """True of block and thread indices."""
    return way.startswith(("blockIdx", "threadIdx"))


def is_block(way: str) -> bool:
    """True of block indices."""
    return way.startswith("blockIdx")


def row_major(t: Tensor) -> bool:
    """True of a tensor that lies in memory in the order of its shape, without gaps."""
    return t.allocation == t.axes and t.offset == 0 and all(s is None for s in t.domain.strides)


def aliased_updates(fusion: Fusion, exprs: Sequence[TensorExpr]) -> dict[Tensor, Tensor]:
    """Tensors that a scatter updates and nothing else needs, each with the tensor whose memory it may live in. An input
    is updated where that is asked for, by a scatter whose result is an output."""
    found: dict[Tensor, Tensor] = {}
    live = frozenset(exprs)
    for e in reversed(exprs):
        x = e.inputs[0] if e.op in SCATTERS else None
        if x is None or fusion.is_output(x) or x.memory != "auto":
            continue
        if x.definition is None and not (e.attrs.get("in_place") is True and fusion.is_output(e.output)):
            continue
        alone = live_uses(x, live) == (e,) and e.operands_of(x) == (0,)
        if alone and row_major(x) and row_major(e.output) and x.alignment >= e.output.alignment:
            found[x] = found.get(e.output, e.output)
    return found


def in_memory(t: Tensor, outputs: Collection[Tensor], live: Set[TensorExpr]) -> bool:
    """Whether all of a computed tensor is stored in memory of its own, unless it is that of a scatter's result.

    A tensor that is to be inlined yet, as its kind of memory says, is stored only as one of the ``outputs``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.exp(f.input("x", shape=(64,)))
    >>> u = f.output(t * 2.0)
    >>> in_memory(t, f.outputs, {*f.exprs}), in_memory(t.inline(1), f.outputs, {*f.exprs})
    (True, False)
    """
    if t in outputs or t.memory == "global":
        return True
    return not t.inline_position and not (t.memory in ("shared", "local") and live_uses(t, live))


class Allocator:
    """Decides where the tensors of a fusion live, each when first asked for.

    ``loops`` are those of an expression. ``threads``: loops on blocks and threads run on them, so that each has private
    memory of its own; where False they run one after another, as on the targets that have no threads (``serial``): no
    block shares memory there, so that what waits to be read by another nest lies in the memory of all.
    """

    def __init__(
        self, fusion: Fusion, loops: Callable[[TensorExpr], Sequence[LoopInfo]], *, threads: bool, serial: bool = False
    ) -> None:
        self.fusion, self.threads, self._serial = fusion, threads, serial
        self._loops = loops
        live = live_exprs(fusion)
        self.live = frozenset(live)
        self.ways = {e: tuple(x.parallel for x in loops(e)) for e in fusion.exprs}
        self._updated = aliased_updates(fusion, live)
        self._counted = counted_exprs(fusion)
        self._outputs = frozenset(fusion.outputs)
        self._found: dict[Tensor, Storage] = {}

    def storage(self, t: Tensor) -> Storage:
        """The storage of ``t``."""
        found = self._found.get(t)
        if found is None:
            found = self._found[t] = self._decide(t)
        return found

    def _decide(self, t: Tensor) -> Storage:
        if t.definition is None and t not in self._updated:
            return Storage(t, _buffer_of_alias(t, t, "input"))
        if t.definition in self._counted:
            return Storage(t)
        k, memory = t.inline_position, None
        if t in self._updated and k == 0:
            to = self._updated[t]
            memory = _buffer_of_alias(t, to, "output" if to in self._outputs else "global")
        elif in_memory(t, self._outputs, self.live):
            memory = _buffer_of_alias(t, t, "output" if t in self._outputs else "global")
        if k == 0 and t.memory == "shared" and self._serial:
            return Storage(t, _buffer_of_alias(t, t, "output" if t in self._outputs else "global"))
        waits = k == 0 and t.memory in ("shared", "local") and live_uses(t, self.live)  # to be inlined yet
        if (k == 0 and not waits) or t.memory == "global":
            return Storage(t, memory)
        return self._inlined(t, memory)

    def on_thread(self, e: TensorExpr, p: int) -> bool:
        """True when loop ``p`` of ``e`` runs on blocks or threads that there are."""
        return self.threads and is_thread(self.ways[e][p])

    def _inlined(self, t: Tensor, memory: AllocatedBuffer | None) -> Storage:
        """A variable, or an array over what is made at one point of the shared loops.

        Axes left of the compute-at position need no memory, nor do those along which the memory is private: blocks and
        threads of local memory, blocks of shared memory. Threads right or left of the position share what is shared.
        """
        e = t.definition
        if e is None:
            return Storage(t, memory)
        k, loops, shared = t.inline_position, self._loops(e), t.memory == "shared"
        ways = self.ways[e]
        # A loop of one step needs no room either.
        skip = {p for p, v in enumerate(loops) if t.loop[p].kind == "reduction" or v.extent == 1}
        if not shared and not is_placed(t) and all(p in skip for p in range(k, len(loops))):
            return Storage(t, memory)

        def is_own(p: int) -> bool:
            """One copy of the array for each step of this loop."""
            if shared and is_thread(ways[p]):
                return is_block(ways[p]) and (p < k or self.threads)
            return p < k or self.on_thread(e, p)

        own = [p for p in range(len(loops)) if is_own(p)]
        made = tile(t, own, loops, laid_out=t.memory in ("local", "shared"))
        axes = tuple(t.allocation[p] if made.laid_out else loops[p].domain for p in made.kept)
        if shared:
            return Storage(t, memory, AllocatedBuffer(t, "shared", axes, made.extents, made.size), made)
        array, start = self.private_array(t, axes, made.extents, made.size)
        return Storage(t, memory, array, made, start)

    def private_array(
        self, t: Tensor, axes: Sequence[IterDomain], extents: Sequence[Expr], size: Expr | None = None
    ) -> tuple[AllocatedBuffer, Expr | None]:
        """An array of each thread over a box of ``extents``, for what is made of ``t``: ``size`` elements, more than
        the box has where there are gaps between them. One too large for registers and
        local memory is a slice of global memory for each thread: the second result is where the slice starts."""
        e, size = t.definition, product(extents) if size is None else size
        if e is None or not self.threads or (size.is_const and int(size) <= LOCAL_LIMIT):
            return AllocatedBuffer(t, "private", tuple(axes), tuple(extents), size), None
        own = [v for p, v in enumerate(self._loops(e)) if self.on_thread(e, p)]
        start = as_expr(0)
        for v in own:
            start = start * v.extent + v.symbol
        box = (*(v.extent for v in own), *extents)
        over = (*(v.domain for v in own), *axes)
        whole = simplify(product([v.extent for v in own]) * size)
        return AllocatedBuffer(t, "global", over, box, whole), simplify(start * size)


def _buffer_of_alias(t: Tensor, to: Tensor, place: Place) -> AllocatedBuffer:
    """Memory of all of ``t``, which is that of ``to``."""
    return AllocatedBuffer(to, place, t.allocation, tuple(d.extent for d in t.allocation), buffer_size(to))


def has_strides(t: Tensor) -> bool:
    """Whether strides along the tensor's own axes say where its elements lie.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(10,)) * 2.0)
    >>> before = has_strides(t)
    >>> _ = t.split(0, 4).set_allocation(t.loop)
    >>> before, has_strides(t)
    (True, False)
    """
    own = set(t.axes)
    return own >= set(t.allocation) and all(d in t.allocation or d.is_broadcast for d in own)


def memory_map(t: Tensor) -> IndexMap:
    """From the coordinates of an element (i0, i1, ...) to its address in the memory of ``t``, in elements, the offset
    included. The shape of the map is the number of elements that the memory holds, gaps included.

    Raises `IndexingError` where an allocation axis does not follow from the tensor's axes.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(10, 4)) * 2.0)
    >>> _ = t.split(0, 8).reorder({1: 2, 2: 1}).set_allocation(t.loop)
    >>> print(memory_map(t), memory_map(t).shape[0])
    (i0, i1) -> (i0 + i0//8*24 + i1*8) 64
    """
    symbols = tuple(symbol(f"i{k}", 0, simplify(d.extent - 1)) for k, d in enumerate(t.axes))
    known: dict[IterDomain, Expr] = dict(zip(t.axes, symbols, strict=True))
    pending: list[DomainExpr] = [*t.domain.exprs, *t.domain.loop_exprs]
    while pending:
        rest = [x for x in pending if not _apply_expression(x, known)]
        if len(rest) == len(pending):
            break
        pending = rest
    missing = next((d for d in t.allocation if d not in known), None)
    if missing is not None:
        raise IndexingError(
            f"allocation axis {missing.label} does not follow from the shape of {t.name}", where=t.source_line
        )
    address = address_of(t, [known[d] for d in t.allocation])
    return IndexMap(symbols, (address,), (buffer_size(t),))


def _apply_expression(x: DomainExpr, known: dict[IterDomain, Expr]) -> bool:
    """Apply one expression forward or backward, if one side is known."""
    if all(d in known for d in x.inputs):
        known.update(zip(x.outputs, forward(x, tuple(known[d] for d in x.inputs)), strict=True))
    elif all(d in known for d in x.outputs):
        known.update(zip(x.inputs, backward(x, tuple(known[d] for d in x.outputs)), strict=True))
    else:
        return False
    return True
