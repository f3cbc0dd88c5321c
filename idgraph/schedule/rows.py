"""Row fusions: reductions over the same axes, and what is pointwise around them, in one nest over the rows.

A *space* is the rows (kept axes) and columns (reduced axes) of a reduction; every tensor whose axes are rows, or rows
and columns, joins it. Reductions and tensors of one number a row are inlined at the rows, so that each row's results
stay with its threads; what is pointwise over the columns is computed again for each reduction or output that needs it
(`recompute`), so that nothing as large as the input is stored in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from idgraph.arith import Expr
from idgraph.index.warps import WARP
from idgraph.ir import (
    SCANS,
    SCATTERS,
    Fixed,
    Fusion,
    IterDomain,
    Loaded,
    Mapped,
    Merge,
    Split,
    Tensor,
    TensorExpr,
    item_size,
)
from idgraph.ir.pointwise import same_extent
from idgraph.ir.reduce import REDUCTIONS
from idgraph.ir.registry import apply
from idgraph.schedule.blocks import VECTOR_BYTES
from idgraph.schedule.config import MAX_THREADS, RULE, KernelConfig
from idgraph.schedule.follow import read_order
from idgraph.schedule.inline import recompute
from idgraph.schedule.legal import nest_conflict
from idgraph.schedule.settle import sharing

Labels = dict[IterDomain, int]
REDUCING_THREADS = 256  # threads of a block that reduces one long row
WRITING_THREADS = 512  # the same where it also writes a row
CHUNKS = 4  # pieces of 16 bytes that each thread takes of a row, where there are enough rows for all processors
FEW_ROWS = 264  # fewer rows than two blocks for each multiprocessor of a large GPU: more threads for each
LONG = 1 << 16  # columns that one block should not write alone
NEAR = 64  # tensors looked at behind a reduction
BLOCK = 128  # threads of a block that works on several short rows
BUSY = 1 << 18  # threads that a large GPU runs at once
LEAST_COLUMNS = 16  # columns of each thread, where several share a row
ACROSS_THREADS = 512  # of a block whose neighbouring threads take neighbouring rows


@dataclass(slots=True)
class Space:
    """Tensors over one set of rows and columns: ``labels`` says which row or column each axis of a member is.

    Rows are numbered from 0, columns after them; ``extents`` in that order. ``fixed`` holds members that depend on a
    reduction of the space.
    """

    rows: int
    extents: tuple[Expr, ...]
    labels: dict[Tensor, Labels] = field(default_factory=dict[Tensor, Labels])
    fixed: set[Tensor] = field(default_factory=set[Tensor])

    def is_row(self, t: Tensor) -> bool:
        """True of a member with one number a row: a reduction, or made of those."""
        return t in self.labels and (reduces(t) or not any(n >= self.rows for n in self.labels[t].values()))

    def uses(self, t: Tensor) -> list[TensorExpr]:
        """The readers of ``t``, each once."""
        return list(dict.fromkeys(t.uses))

    def complete(self, labels: Labels) -> bool:
        """True where the axes are all rows, with all columns or none."""
        found = sorted(labels.values())
        return found in ([*range(self.rows)], [*range(len(self.extents))])


def reduces(t: Tensor) -> bool:
    """True of the output of a reduction with one operand."""
    return t.definition is not None and t.definition.op in REDUCTIONS and t.definition.is_reduction


def spaces(fusion: Fusion) -> list[Space]:
    """The spaces of a fusion, those of the largest reductions first; a tensor is in one of them at most.

    Of equal ones those come first whose result goes back to all columns, as in a softmax: what is computed there waits
    for the rows, and would be a kernel of its own in another space.
    """
    made: list[Space] = []
    taken: set[Tensor] = set()
    seeds = [e.output for e in fusion.exprs if reduces(e.output)]
    for seed in sorted(seeds, key=lambda t: (-_size(t), not _goes_back(t))):
        if seed not in taken:
            space = _grown(fusion, seed, taken)
            taken.update(space.labels)
            made.append(space)
    return made


def _goes_back(seed: Tensor) -> bool:
    """Whether a tensor with as many elements as ``seed`` reduces is computed from its result."""
    whole, seen, work = _size(seed), {seed}, [seed]
    while work and len(seen) < NEAR:
        t = work.pop()
        for use in t.uses:
            o = use.output
            if o not in seen and use.op not in SCATTERS and use.op not in SCANS and not use.is_reduction:
                if _size(o) == whole:
                    return True
                seen.add(o)
                work.append(o)
    return False


def _size(t: Tensor) -> int:
    total = 1
    for d in t.logical:
        total *= int(d.extent) if d.extent.is_const else 1 << 20
    return total


def _grown(fusion: Fusion, seed: Tensor, taken: set[Tensor]) -> Space:
    own = read_order(seed.definition) if seed.definition is not None else ()
    order = sorted(own, key=lambda d: d.kind == "reduction")
    space = Space(sum(d.kind != "reduction" for d in own), tuple(d.extent for d in order))
    space.labels[seed] = {d: n for n, d in enumerate(order)}
    open_ = [seed]
    while open_:
        t = open_.pop()
        for other, labels in (*_producers(space, t), *_consumers(space, t)):
            if other not in space.labels and other not in taken and space.complete(labels):
                space.labels[other] = labels
                open_.append(other)
    _cut(fusion, space)
    return space


def _producers(space: Space, t: Tensor) -> Iterator[tuple[Tensor, Labels]]:
    """Computed operands of ``t`` that could join, with the labels that ``t`` gives their axes."""
    e, known = t.definition, space.labels[t]
    if e is None:
        return
    for p, row in zip(e.inputs, e.reads, strict=True):
        labels: Labels = {}
        fits = p.definition is not None and p.definition.op not in SCATTERS and p.definition.op not in SCANS
        for axis, read in zip(p.axes, row, strict=True):
            match read:
                case Mapped(d) if d in known:
                    labels[axis] = known[d]
                case Fixed(why="broadcast" | "squeeze"):
                    pass
                case _:
                    fits = fits and axis.is_broadcast and not isinstance(read, Loaded)
        if fits and _label_reduced(space, p, labels):
            yield p, labels


def _label_reduced(space: Space, p: Tensor, labels: Labels) -> bool:
    """Label the reduced axes of ``p``: they must be the columns."""
    reduced = [d for d in p.logical if d.kind == "reduction"]
    columns = space.extents[space.rows :]
    if not reduced:
        return True
    if not reduces(p) or any(n >= space.rows for n in labels.values()) or not _same(reduced, columns):
        return False
    labels.update({d: space.rows + n for n, d in enumerate(reduced)})
    return True


def _is_narrow(space: Space) -> bool:
    """True where the rows are too few for the processors, and long."""
    rows, columns = _product(space.extents[: space.rows]), _product(space.extents[space.rows :])
    return space.rows == 0 or (rows is not None and rows < FEW_ROWS // 16 and (columns is None or columns > LONG))


def _same(axes: Sequence[IterDomain], extents: Sequence[Expr]) -> bool:
    return len(axes) == len(extents) and all(same_extent(d.extent, n) for d, n in zip(axes, extents, strict=True))


def _consumers(space: Space, t: Tensor) -> Iterator[tuple[Tensor, Labels]]:
    """Readers of ``t`` that could join, with labels for the axes they are computed over."""
    for use in space.uses(t):
        o, labels, clash = use.output, Labels(), False
        if use.op in SCATTERS or use.op in SCANS:
            continue  # loops over an index, or along an axis in order
        for p, row in zip(use.inputs, use.reads, strict=True):
            known = space.labels.get(p)
            if known is None or any(isinstance(r, Fixed) and r.why == "select" for r in row):
                continue
            for axis, read in zip(p.axes, row, strict=True):
                if isinstance(read, Mapped) and axis in known:
                    clash = clash or labels.setdefault(read.domain, known[axis]) != known[axis]
        rest = [d for d in o.root if d not in labels and not d.is_broadcast]
        free = [n for n in range(len(space.extents)) if n not in labels.values()]
        if clash or (rest and not _same(rest, [space.extents[n] for n in free])):
            continue
        labels.update(dict(zip(rest, free, strict=False)) if rest else {})
        reduced = sorted(labels[d] for d in o.root if d.kind == "reduction" and d in labels)
        columns = [*range(space.rows, len(space.extents))]
        if reduced and not (reduces(o) and reduced == columns):
            continue
        if not reduced and len(labels) > space.rows and _is_narrow(space):
            continue  # a few blocks would write it all: it is a kernel of its own
        # Tensors that are reshaped afterwards are computed over the axes from before.
        if all(isinstance(x, (Split, Merge)) for x in o.domain.exprs) and not (reduced and o.domain.exprs):
            yield o, labels


def _cut(fusion: Fusion, space: Space) -> None:
    """Drop members computed from tensors outside that depend on the space's reductions: they go to a later kernel."""
    outside: set[Tensor] = set()
    for e in fusion.exprs:
        t = e.output
        if any(p in outside for p in e.inputs):
            outside.add(t)
            space.labels.pop(t, None)
        elif t in space.labels:
            if reduces(t) or any(p in space.fixed for p in e.inputs):
                space.fixed.add(t)
        elif any(p in space.fixed for p in e.inputs):
            outside.add(t)


# private copies -------------------------------------------------------------------------------------------------------


# The reduction or output that a value is computed for; ROWS: anything of one number a row; ENDS: what is written over
# the columns, all in one pass.
Owner = Tensor | str
ROWS = "rows"
ENDS = "ends"


def separate(fusion: Fusion, space: Space, others: set[Tensor]) -> set[Tensor]:
    """Give each reduction and each output a copy of its own of what it computes over the columns.

    ``others`` are the members of other spaces, which are copied for readers here when their own space is separated.
    Returns the members that end in memory and are read from there: outputs over the columns, what other kernels read.
    """
    ends = {t for t in space.labels if not space.uses(t) or (t in fusion.outputs and not space.is_row(t))}
    for t in [t for t in fusion.tensors if t in space.fixed]:
        outside = [u for u in space.uses(t) if u.output not in space.labels]
        if outside and len(outside) == len(space.uses(t)):
            ends.add(t)
        elif outside and t not in ends:
            ends.add(_kept(space, t, outside))
    owner: dict[Tensor, Owner] = {}
    for e in reversed(fusion.exprs):
        t = e.output
        groups = _by_owner(space, t, owner, ends)
        alone = t in others or _stays_alone(t)
        if t in space.labels and space.is_row(t):
            owner[t] = t if reduces(t) or t in ends else ROWS
            copied = [] if alone or t in space.fixed else _outside(space, groups)
        elif t in ends:
            owner[t] = ENDS
            copied = [] if alone else [(k, [u for u in g if u.output in space.labels]) for k, g in groups.items()]
        elif alone or not any(k in (ROWS, ENDS) or k in space.labels for k in groups):
            owner[t] = t if alone or len(groups) != 1 else next(iter(groups))
            copied = []
        else:
            first, *rest = groups.items()
            owner[t] = first[0]
            copied = rest
        for key, uses in copied:
            if uses:
                owner[_copied(space, t, uses)] = key
    return ends


def _stays_alone(t: Tensor) -> bool:
    """True of what is not worth, or not able, to be computed twice: reductions, scatters, what is gathered from."""
    e = t.definition
    gathered = any(isinstance(r, Loaded) for u in t.uses for k in u.operands_of(t) for r in u.reads[k])
    return e is None or gathered or any(d.kind not in ("iteration", "broadcast") for d in t.logical)


def _by_owner(space: Space, t: Tensor, owner: dict[Tensor, Owner], ends: set[Tensor]) -> dict[Owner, list[TensorExpr]]:
    found: dict[Owner, list[TensorExpr]] = {}
    for u in space.uses(t):
        o = u.output
        row = o in space.labels and space.is_row(o) and not reduces(o) and o not in ends
        found.setdefault(ROWS if row else owner.get(o, o), []).append(u)
    return found


def _outside(space: Space, groups: dict[Owner, list[TensorExpr]]) -> list[tuple[Owner, list[TensorExpr]]]:
    return [(k, [u for u in g if u.output not in space.labels]) for k, g in groups.items()]


def _kept(space: Space, t: Tensor, outside: Sequence[TensorExpr]) -> Tensor:
    """A copy of ``t`` in memory, which other kernels read."""
    fusion = t.fusion
    with fusion.at_line(t.definition.source_line if t.definition is not None else None):
        made = apply(fusion, "copy", (t,), {}, None)
    for use in sorted(outside, key=fusion.exprs.index, reverse=True):
        fusion.replace_operand(use, t, made)
    space.labels[made] = {b: n for a, b in zip(t.axes, made.axes, strict=True) for n in _label(space, t, a)}
    return made


def _label(space: Space, t: Tensor, d: IterDomain) -> list[int]:
    return [space.labels[t][d]] if d in space.labels[t] else []


def _copied(space: Space, t: Tensor, uses: Sequence[TensorExpr]) -> Tensor:
    """A private copy of ``t`` for ``uses``."""
    fusion = t.fusion
    *others, last = sorted(uses, key=fusion.exprs.index)
    made = recompute(t, last)
    for use in reversed(others):
        fusion.replace_operand(use, t, made)
    if t in space.labels and all(u.output in space.labels for u in uses):
        pairs = (*zip(t.root, made.root, strict=True), *zip(t.logical, made.logical, strict=True))
        space.labels[made] = {b: n for a, b in pairs for n in _label(space, t, a)}
    return made


# loops ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """The loops of one space: ``lanes`` elements of a vector, ``threads`` for each row, ``rows`` of a block.

    ``across`` says that neighbouring threads take neighbouring rows (the rows are what is contiguous); the ``threads``
    of one row lie in the block's other direction.
    """

    lanes: int
    threads: int
    rows: int
    across: bool

    @property
    def row_loops(self) -> int:
        """Loops left of the columns."""
        return 2 if self.across or self.rows > 1 else 1


def shape_of(space: Space, writes: bool, config: KernelConfig = RULE) -> Shape:
    """Threads and lanes for the space: by its extents and by which axes lie innermost in memory.

    Long rows get a block each, of the more threads the fewer rows there are; short ones a part of a warp or a few
    warps, several rows a block. What ``config`` chooses is taken as far as the row has elements for it.
    """
    columns = [t for t in space.labels if not space.is_row(t) or reduces(t)]
    read = [p for t in columns if t.definition is not None for p in t.definition.inputs if not p.definition]
    across = any(_innermost(space, t) < space.rows for t in space.labels if reduces(t))
    count, rows = _product(space.extents[space.rows :]), _product(space.extents[: space.rows])
    if across:
        return _across(rows, count, config)
    sizes = [item_size(t.dtype) for t in (*read, *columns) if not t.definition or t in t.fusion.outputs]
    lanes = VECTOR_BYTES // min([*sizes, 4])
    usual = WRITING_THREADS if writes else REDUCING_THREADS
    if count is None:
        return Shape(lanes, config.threads or usual, 1, across=False)
    few = rows is not None and rows < FEW_ROWS
    wanted = -(-count // (lanes if few or count <= WARP * lanes or config.threads else lanes * CHUNKS))
    most = config.threads or (1024 if few else usual)
    threads = 1
    while threads < most and threads < wanted:
        threads *= 2
    while lanes > 1 and threads * lanes > max(1, count) * 2 - 1:
        lanes //= 2
    block = 1
    most = config.rows or -(-BLOCK // threads)
    while block < most and (rows is None or block < rows):
        block *= 2
    return Shape(lanes, threads, max(1, min(block, MAX_THREADS // threads)), across=False)


def _across(rows: int | None, count: int | None, config: KernelConfig) -> Shape:
    """Neighbouring threads on neighbouring rows; where those are too few for a device, more threads for each row."""
    threads = 1
    if rows is not None and count is not None:
        most = config.threads or WARP
        while threads < most and rows * threads < BUSY and threads * 2 * LEAST_COLUMNS <= count:
            threads *= 2
    return Shape(1, threads, config.rows or max(WARP, min(BLOCK, ACROSS_THREADS // threads)), across=True)


def _product(extents: Sequence[Expr]) -> int | None:
    total = 1
    for n in extents:
        if not n.is_const:
            return None
        total *= int(n)
    return total


def _innermost(space: Space, t: Tensor) -> int:
    """The label of the axis along which most of what ``t`` is computed from lies side by side in memory."""
    own = [d for d in (read_order(t.definition) if t.definition is not None else ()) if d in space.labels[t]]
    return space.labels[t][own[-1]] if own else 0


def apply_loops(space: Space, t: Tensor, how: Shape) -> None:
    """Loops of a member: rows on blocks, columns on threads and lanes."""
    labels = space.labels[t]
    if not all(d in t.loop for d in labels):
        t.set_loop(t.root)
    order = sorted(range(len(t.loop)), key=lambda p: labels.get(t.loop[p], len(space.extents)))
    if order != sorted(order):
        t.reorder(order)
    columns = len(labels) - space.rows
    for _ in range(columns - 1):
        t.merge(space.rows)
    for _ in range(space.rows - 1):
        t.merge(0)
    first = min(space.rows, 1)
    if columns and how.across and how.threads > 1:
        t.split(first, how.threads).parallelize(first + 1, "threadIdx.y")
    elif columns and not how.across:
        t.split(first, how.lanes).split(first, how.threads)
        t.parallelize(first + 1, "threadIdx.x").parallelize(first + 2, "vectorize")
    if not first:
        return
    if how.row_loops == 2:
        t.split(0, how.rows).parallelize(1, "threadIdx.x" if how.across else "threadIdx.y")
    t.parallelize(0, "blockIdx.x")


@dataclass(slots=True)
class Scheduled:
    """``members`` have their loops; those in ``inlined`` are to be inlined at the position given."""

    members: set[Tensor] = field(default_factory=set[Tensor])
    inlined: list[tuple[Tensor, int]] = field(default_factory=list[tuple[Tensor, int]])

    def inline(self) -> None:
        """Inline what belongs to rows; where no loop nest can do it, the tensors stay in memory."""
        for t, position in self.inlined:
            t.inline(position)
        for t, _ in self.inlined:
            if t.inline_position and nest_conflict(t.fusion, sharing(t)) is not None:
                for other, _ in self.inlined:
                    other.inline(0)
                return


def share_equal(fusion: Fusion) -> None:
    """Operations that do the same to the same tensors are done once: only the first of them stays.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4, 8))
    >>> t = f.output(ig.sum(x, 1) * ig.sum(x, 1))
    >>> share_equal(f)
    >>> [u.name for u in t.definition.inputs]
    ['t1', 't1']
    """
    known: dict[object, Tensor] = {}
    for e in fusion.exprs:
        args = tuple(id(a) if isinstance(a, Tensor) else (type(a).__name__, repr(a)) for a in e.args)
        attrs = tuple((k, repr(v)) for k, v in sorted(e.attrs.items()))
        first = known.setdefault((e.op, args, attrs, e.output.dtype), e.output)
        if first is not e.output and e.output not in fusion.outputs and len(e.outputs) == 1:
            fusion.replace(e.output, first)


def schedule_rows(fusion: Fusion, config: KernelConfig = RULE) -> Scheduled:
    """Loops for every reduction and what belongs to its rows; the rest of the fusion follows them."""
    done = Scheduled()
    if any(reduces(t) for t in fusion.tensors):
        share_equal(fusion)
    found = spaces(fusion)
    for space in found:
        others = {t for other in found if other is not space for t in other.labels}
        ends = separate(fusion, space, others)
        how = shape_of(space, any(not space.is_row(t) for t in ends), config)
        for t in [t for t in fusion.tensors if t in space.labels]:
            if not (space.is_row(t) or t in ends):
                continue
            apply_loops(space, t, how)
            done.members.add(t)
            uses = space.uses(t)
            inside = [u for u in uses if u.output in space.labels]
            if t not in ends and inside and len(inside) == len(uses) and space.rows:
                done.inlined.append((t, how.row_loops))
    return done
