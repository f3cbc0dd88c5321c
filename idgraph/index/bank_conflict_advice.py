"""Paddings and swizzles that take bank conflicts away, each tried on a copy and counted for every access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.display import Printed
from idgraph.errors import IdGraphError
from idgraph.index.access_relation import AccessFunction
from idgraph.index.bank_conflicts import Conflicts
from idgraph.ir import Fusion, NewSteps, Tensor, clone_fusion, item_size
from idgraph.ir.axis_read import Attr
from idgraph.ir.device import current_device
from idgraph.ir.protocols import axis_place

_MAX_CURES = 3


@dataclass(frozen=True, slots=True)
class BankSuggestion:
    """A layout of the shared array after which ``ways`` words at most are wanted of one bank by any access of it.

    ``extra`` elements more than before are needed. `apply` makes a copy of the fusion with that layout.
    """

    text: str
    ways: int
    extra: int
    edits: tuple[NewSteps, ...] = field(repr=False)

    def apply(self, fusion: Fusion) -> Fusion:
        """A copy of ``fusion`` with the array laid out this way."""
        return clone_fusion(fusion, self.edits)

    def __str__(self) -> str:
        left = "no conflict" if self.ways == 1 else f"{self.ways}-way"
        room = f", {self.extra} elements more" if self.extra else ""
        return f"{left} if {self.text}{room}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class BankConflicts(Conflicts, Printed):
    """Bank conflicts of an access of shared memory, over all warps and all steps of its other loops.

    ``ways``: most different words that one phase of a warp wants of one bank (1: no conflict). ``phases`` are those
    that the access needs anyway (1, 2 or 4); ``passes`` is the most that any warp takes. ``lanes`` want different
    words of ``bank``, one lane for each word. ``bytes`` is what a lane moves; ``points`` how many were counted.

    >>> import idgraph as ig
    >>> f = ig.Fusion("tile")
    >>> t = ig.copy(f.input("a", shape=(4, 32, 32)), name="t").set_memory("shared")
    >>> u = f.output(ig.permute(t, (0, 2, 1)))
    >>> for x in (t, u):
    ...     for p, way in enumerate(("blockIdx.x", "threadIdx.y", "threadIdx.x")):
    ...         _ = x.parallelize(p, way)
    >>> found = ig.IdModel(f).access(t.inline(1).uses[0], t).bank_conflicts()
    >>> found.ways, found.bank, [(x.lane, x.byte) for x in found.lanes[:3]]
    (32, 0, [(0, 0), (1, 128), (2, 256)])
    >>> print(found)
    read of t by permute: 32-way bank conflict
      bank 0: lane 0 byte 0, lane 1 byte 128, lane 2 byte 256, lane 3 byte 384, ...
      no conflict if axis 2 of t is swizzled (xor) by axis 1
      no conflict if axis 2 of t is padded by 1, 32 elements more
    """

    def suggestions(self) -> tuple[BankSuggestion, ...]:
        """Paddings and swizzles of the array that take all conflicts away from every access of it, each counted.

        >>> import idgraph as ig
        >>> f = ig.Fusion("tile")
        >>> t = ig.copy(f.input("a", shape=(4, 32, 32)), name="t").set_memory("shared")
        >>> u = f.output(ig.permute(t, (0, 2, 1)))
        >>> for x in (t, u):
        ...     for p, way in enumerate(("blockIdx.x", "threadIdx.y", "threadIdx.x")):
        ...         _ = x.parallelize(p, way)
        >>> a = ig.IdModel(f).access(t.inline(1).uses[0], t)
        >>> [str(change) for change in a.bank_conflicts().suggestions()][:1]
        ['no conflict if axis 2 of t is swizzled (xor) by axis 1']
        """
        return bank_suggestions(self)

    def __str__(self) -> str:
        verb = "write" if self.access.is_write else "read"
        head = f"{verb} of {self.access.tensor.name} by {self.access.expr.op}"
        if not self:
            return f"{head}: no bank conflict at {self.points} points"
        some = ", ".join(f"lane {x.lane} byte {x.byte}" for x in self.lanes[:4])
        more = ", ..." if len(self.lanes) > 4 else ""
        lines = [f"{head}: {self.ways}-way bank conflict", f"  bank {self.bank}: {some}{more}"]
        return "\n".join([*lines, *(f"  {c}" for c in self.suggestions())])

    __repr__ = __str__


def bank_suggestions(found: Conflicts) -> tuple[BankSuggestion, ...]:
    """See `BankConflicts.suggestions`."""
    access = found.access
    if not found or access.maps is None:
        return ()
    try:
        vectors = [c.bytes for c in _counts(_every(access, ()))]
    except IdGraphError:  # the fusion was changed since
        return ()
    made: list[BankSuggestion] = []
    for text, edit in _layouts(access.tensor):
        if sum(c.ways == 1 for c in made) >= _MAX_CURES:
            break
        suggestion = _trial_layout(access, text, edit, vectors)
        if suggestion is not None and suggestion.ways < found.ways:
            made.append(suggestion)
    best = min((c.ways for c in made), default=0)
    return tuple(sorted((c for c in made if c.ways == best), key=lambda c: c.extra))[:_MAX_CURES]


def _trial_layout(access: AccessFunction, text: str, edit: NewSteps, vectors: Sequence[int]) -> BankSuggestion | None:
    """The layout tried on a copy: the worst of all accesses of the array counts, and none may lose its vectors."""
    try:
        after = _every(access, (edit,))
        counts = _counts(after)
    except IdGraphError:
        return None
    if any(c.bytes < n for c, n in zip(counts, vectors, strict=True)):
        return None
    return BankSuggestion(
        text, max(c.ways for c in counts), _array_elements(after[0]) - _array_elements(access), (edit,)
    )


def _array_elements(access: AccessFunction) -> int:
    """Elements of the array; 0 where that is not a constant number."""
    size = access.buffer.size
    return int(size) if size.is_const else 0


def _counts(accesses: Sequence[AccessFunction]) -> list[Conflicts]:
    return [Conflicts.counted(a) for a in accesses if any(x.parallel.startswith("thread") for x in a.loops)]


def _every(access: AccessFunction, edits: tuple[NewSteps, ...]) -> list[AccessFunction]:
    """All accesses of the array in a changed copy, the write first."""
    t = access.tensor
    if access.maps is None:
        return []
    changed = clone_fusion(t.fusion, edits)
    maps = access.maps(changed)
    maps.verify()
    new = changed[t.name]
    found = [] if new.definition is None else [maps.write(new.definition)]
    return [*found, *(maps.read(e, k) for e in new.uses for k in e.operands_of(new))]


def _layouts(t: Tensor) -> Iterator[tuple[str, NewSteps]]:
    """Swizzles of one loop axis by another (or by its last bits), then paddings; inner axes first."""
    count = len(t.domain.exprs) + len(t.domain.loop_exprs)
    loops: tuple[Attr, ...] = tuple(axis_place(t, d) for d in t.loop)
    inner = [p for p, d in enumerate(t.loop) if d.kind != "reduction" and d.extent.is_const and int(d.extent) > 1]
    inner.reverse()
    for y in inner:
        for x in inner:
            n, rows = int(t.loop[y].extent), int(t.loop[x].extent)
            if x == y or n & (n - 1):
                continue
            if rows <= n:
                laid = {x: (f"made{count}.0",), y: (f"made{count}.1",)}
                steps = (("swizzle", ("xor", x, y)), *_lay(t, laid, loops))
                yield f"axis {y} of {t.name} is swizzled (xor) by axis {x}", NewSteps(t.name, steps)
            elif rows % n == 0:
                laid = {x: (f"made{count}.0", f"made{count + 1}.0"), y: (f"made{count + 1}.1",)}
                turned = ("swizzle", ("xor", x + 1, y + (y > x)))
                steps = (("split", (x, n)), turned, *_lay(t, laid, loops))
                yield f"axis {y} of {t.name} is swizzled (xor) by axis {x} modulo {n}", NewSteps(t.name, steps)
    for extra in dict.fromkeys((max(1, current_device().bank_bytes // item_size(t.dtype)), 1, 2, 4, 8)):
        for y in inner:
            steps = (("resize", (y, 0, extra)), *_lay(t, {y: (f"made{count}.0",)}, loops))
            yield f"axis {y} of {t.name} is padded by {extra}", NewSteps(t.name, steps)


def _lay(
    t: Tensor, laid: Mapping[int, tuple[str, ...]], loops: tuple[Attr, ...]
) -> tuple[tuple[str, tuple[Attr, ...]], tuple[str, tuple[Attr, ...]]]:
    """Lay the array out with the axes just made in place of old ones, and go back to the loops as they were."""
    kept: list[Attr] = []
    for p, d in enumerate(t.loop):
        if d.kind != "reduction":
            kept += laid.get(p, (loops[p],))
    return ("set_allocation", (tuple(kept), (True,) * len(kept))), ("set_loop", (loops,))
