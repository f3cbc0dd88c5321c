"""Storage: the memory that each tensor really gets. Decided here, once: index maps and kernels both ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass
from typing import Literal, Protocol

from idgraph.arith import Expr, as_expr, simplify
from idgraph.index.layout import buffer_size
from idgraph.index.live import counted_exprs, live_exprs, live_uses
from idgraph.index.tiles import ArrayTile, TileLoop, tile
from idgraph.ir import SCATTERS, Fusion, IterDomain, Tensor, TensorExpr

Place = Literal["input", "output", "global", "shared", "private", "register"]

# Elements of one thread's private array beyond which it moves to global memory, one slice for each thread.
LOCAL_LIMIT = 4096


class LoopInfo(TileLoop, Protocol):
    """The facts that storage needs of a loop."""

    @property
    def parallel(self) -> str: ...
    @property
    def symbol(self) -> Expr: ...


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
    """Tensors that a scatter updates and nothing else needs, each with the tensor whose memory it may live in."""
    found: dict[Tensor, Tensor] = {}
    live = frozenset(exprs)
    for e in reversed(exprs):
        x = e.inputs[0] if e.op in SCATTERS else None
        if x is None or x.definition is None or fusion.is_output(x) or x.memory != "auto":
            continue
        alone = live_uses(x, live) == (e,) and e.operands_of(x) == (0,)
        if alone and row_major(x) and row_major(e.output):
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
        if t.definition is None:
            return Storage(t, _whole(t, t, "input"))
        if t.definition in self._counted:
            return Storage(t)
        k, memory = t.inline_position, None
        if t in self._updated and k == 0:
            to = self._updated[t]
            memory = _whole(t, to, "output" if to in self._outputs else "global")
        elif in_memory(t, self._outputs, self.live):
            memory = _whole(t, t, "output" if t in self._outputs else "global")
        if k == 0 and t.memory == "shared" and self._serial:
            return Storage(t, _whole(t, t, "output" if t in self._outputs else "global"))
        waits = k == 0 and t.memory in ("shared", "local") and live_uses(t, self.live)  # to be inlined yet
        if (k == 0 and not waits) or t.memory == "global":
            return Storage(t, memory)
        return self._inlined(t, memory)

    def on_thread(self, e: TensorExpr, p: int) -> bool:
        """True when loop ``p`` of ``e`` runs on blocks or threads that there are."""
        return self.threads and is_thread(self.ways[e][p])

    def _inlined(self, t: Tensor, memory: AllocatedBuffer | None) -> Storage:
        """A variable, or an array over what is made at one point of the shared loops.

        Axes left of the compute-at position need no room, nor do those along which the memory is private: blocks and
        threads of local memory, blocks of shared memory. Threads right or left of the position share what is shared.
        """
        e = t.definition
        if e is None:
            return Storage(t, memory)
        k, loops, shared = t.inline_position, self._loops(e), t.memory == "shared"
        ways = self.ways[e]
        # A loop of one step needs no room either.
        skip = {p for p, v in enumerate(loops) if t.loop[p].kind == "reduction" or v.extent == 1}
        if not shared and all(p in skip for p in range(k, len(loops))):
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


def _whole(t: Tensor, to: Tensor, place: Place) -> AllocatedBuffer:
    """Memory of all of ``t``, which is that of ``to``."""
    return AllocatedBuffer(to, place, t.allocation, tuple(d.extent for d in t.allocation), buffer_size(to))
