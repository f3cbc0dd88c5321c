"""The neutral form of a compiled program: loop nests with the formulas of what they read and write, as data.

Any compiler can write it (`NeutralProgram.to_json`, `read_program`): sizes, index formulas and masks are text in
Python's integer syntax over the nest's own loop variables; nothing in it is evaluated as code.

The order in which a program runs, as a tree: loops in order or in any order, guards, and nests as its leaves.

`tree_of` gives the tree of a program whose nests stand in a list; `nests_of` the list of a tree that shares no loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal, assert_never

from idgraph.arith import TRUE, Expr, and_, as_expr, simplify, symbol
from idgraph.errors import IdGraphError, SourceLine
from idgraph.ir import Fusion

ZERO = as_expr(0)
Mode = Literal["store", "add"]


class CheckError(IdGraphError):
    """A compiled program that cannot be read or captured.

    >>> import idgraph as ig
    >>> ig.check.program("{")
    Traceback (most recent call last):
    idgraph.check.program.CheckError: the program is not JSON: ...
    """


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop: ``name`` runs from 0 to ``extent`` - 1."""

    name: str
    extent: Expr

    @property
    def symbol(self) -> Expr:
        """The loop variable with its range."""
        return symbol(self.name, 0, simplify(self.extent - 1))


@dataclass(frozen=True, slots=True)
class LoadedValue:
    """A value that formulas use: the element ``index`` of ``buffer`` (an address, in elements), or ``text``.

    A value that is computed of floating point numbers is known by its ``text`` only: equal texts are equal values.
    """

    buffer: str = ""
    index: Expr = TRUE
    text: str = ""


@dataclass(frozen=True, slots=True)
class IndirectIndex:
    """A loaded ``value`` that addresses an axis of ``size`` elements; one below 0 counts from the end (``wraps``)."""

    value: Expr
    size: Expr
    wraps: bool = True


@dataclass(frozen=True, slots=True)
class Read:
    """Element ``index`` (elements from the start of the buffer) is read at the points where ``when`` holds."""

    buffer: str
    index: Expr
    when: Expr = TRUE


@dataclass(frozen=True, slots=True)
class StatementValue:
    """The computation of a statement (`idgraph.check.statement_values`): ``op`` of ``parts``, a number, or a name."""

    op: str
    parts: tuple[StatementValue, ...] = ()
    number: float = 0.0
    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """Element ``index`` is written where ``when`` holds, from the ``reads``; "add" adds up in any order. ``value``:
    what is stored or added, of the reads, where the program says it.
    """

    buffer: str
    index: Expr
    reads: tuple[Read, ...]
    when: Expr = TRUE
    mode: Mode = "store"
    value: StatementValue | None = None


@dataclass(frozen=True, slots=True)
class Nest:
    """One loop nest: ``loops`` give the element written, over ``reduce`` its value is combined.

    ``loads`` and ``places`` are names in the formulas, in an order in which each uses only those before it. ``kernel``
    groups nests that were fused into one loop, whose points run in any order ("": one after the other). ``unread`` says
    why its formulas could not be read, where that is so. ``loose``: some read is limited by loaded values too, which
    its ``when`` leaves out. ``masked``: so is some write, whose ``value`` is what is there already where they do not
    hold. ``position``: its value is this number at some point of the reduced loops (where a maximum
    lies, say).
    """

    name: str
    loops: tuple[Axis, ...]
    writes: tuple[Write, ...]
    reduce: tuple[Axis, ...] = ()
    loads: Mapping[str, LoadedValue] = field(default_factory=dict[str, LoadedValue])
    places: Mapping[str, IndirectIndex] = field(default_factory=dict[str, IndirectIndex])
    kernel: str = ""
    unread: str = ""
    loose: bool = False
    position: Expr | None = None
    combines: frozenset[str] = frozenset()
    masked: bool = False

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All loops, reduced ones last."""
        return (*self.loops, *self.reduce)

    def substitute(self, given: Mapping[str, Expr]) -> Nest:
        """The same nest where names have these values."""

        def write(w: Write) -> Write:
            reads = tuple(replace(r, index=r.index.substitute(given), when=r.when.substitute(given)) for r in w.reads)
            return replace(w, index=w.index.substitute(given), when=w.when.substitute(given), reads=reads)

        loads = {k: replace(x, index=x.index.substitute(given)) for k, x in self.loads.items()}
        places = {k: replace(x, value=x.value.substitute(given)) for k, x in self.places.items()}
        position = None if self.position is None else self.position.substitute(given)
        writes = tuple(write(w) for w in self.writes)
        return replace(self, writes=writes, loads=loads, places=places, position=position)


@dataclass(frozen=True, slots=True)
class TreeLoop:
    """``body`` runs for each value of ``axis``: one after the other, or, ``any_order``, in any order and at once.

    ``private`` are buffers of which each iteration has one of its own, with nothing in it.
    """

    axis: Axis
    body: tuple[TreeNode, ...]
    any_order: bool = False
    private: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TreeGuard:
    """``body`` runs where ``when`` holds."""

    when: Expr
    body: tuple[TreeNode, ...]


TreeNode = TreeLoop | TreeGuard | Nest


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """Where a tensor of the program lies: element (c0, c1, ...) of ``tensor`` is at ``offset`` + sum of c * stride,
    counted from the start of its storage. Formulas that name this buffer count from ``base`` in it.

    Buffers with one ``storage`` share their memory (slices of one array, an array updated in place). ``after`` names
    the last nest or call that writes it: it is readable from there on; "" is an argument of the program. ``over``: the
    tensor whose value is gone then. ``copy``: it holds a copy of ``tensor``, which may be stored elsewhere too.
    """

    name: str
    tensor: str
    strides: tuple[Expr, ...]
    offset: Expr = ZERO
    storage: str = ""
    after: str = ""
    over: str = ""
    copy: bool = False
    base: Expr = ZERO

    @property
    def home(self) -> str:
        """The storage's name."""
        return self.storage or self.name


@dataclass(frozen=True, slots=True)
class NeutralProgram:
    """A compiled program: what it means (``fusion``), where its tensors lie, and the nests in the order they run.

    ``order`` are names of nests and of calls (library kernels, which have no formulas); ``sources`` what made each
    tensor: the operation and the user's line; ``memory`` the storage, and the place in it, of buffers that no tensor of
    the program names; ``sizes`` the elements of a storage, where that is known; ``constants`` the numbers of inputs on
    one axis that loops spell out. ``body``: the order as a tree (`idgraph.check.program`), where loops are shared.
    """

    name: str
    fusion: Fusion
    buffers: tuple[BufferLayout, ...]
    nests: tuple[Nest, ...]
    order: tuple[str, ...] = ()
    symbols: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    facts: tuple[Expr, ...] = ()
    sources: Mapping[str, tuple[str, SourceLine | None]] = field(
        default_factory=dict[str, tuple[str, SourceLine | None]]
    )
    opaque: frozenset[str] = frozenset()
    memory: Mapping[str, tuple[str, Expr]] = field(default_factory=dict[str, tuple[str, Expr]])
    body: tuple[TreeNode, ...] = ()
    sizes: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    constants: Mapping[str, tuple[object, ...]] = field(default_factory=dict[str, tuple[object, ...]])

    def place_of(self, name: str) -> tuple[str, Expr]:
        """The storage that formulas of a name address, and where in it they count from."""
        b = next((b for b in self.buffers if b.name == name), None)
        return (b.home, b.base) if b is not None else self.memory.get(name, (name, ZERO))


def leaves(body: Sequence[TreeNode]) -> Iterator[Nest]:
    """The nests of a tree, in the order in which they stand."""
    for node in body:
        if isinstance(node, Nest):
            yield node
        else:
            yield from leaves(node.body)


def tree_of(p: NeutralProgram) -> tuple[TreeNode, ...]:
    """The tree of a program: its own, or that of its nests in order, those of a kernel as one loop in any order.

    Raises `CheckError` where the order names a call, or nests of one kernel have not the same number of points.
    """
    if p.body:
        return p.body
    named = {n.name: n for n in p.nests}
    calls = [x for x in p.order if x not in named]
    if calls:
        raise CheckError(f"the call {calls[0]!r} is not run on numbers")
    out: list[TreeNode] = []
    for kernel, group in groupby((named[x] for x in p.order or named), lambda n: n.kernel):
        nests = list(group)
        if not kernel:
            out += nests
        elif len(nests) == 1:
            out.append(_any_order(nests[0]))
        else:
            out.append(_fused(kernel, nests))
    return tuple(out)


def _any_order(n: Nest) -> TreeNode:
    node: TreeNode = replace(n, loops=(), kernel="")
    for a in reversed(n.loops):
        node = TreeLoop(a, (node,), any_order=True)
    return node


def _fused(kernel: str, nests: Sequence[Nest]) -> TreeNode:
    """Nests of one kernel: point k of each, row-major, runs in iteration k."""
    if len({tuple((a.name, a.extent) for a in n.loops) for n in nests}) == 1:
        body: tuple[TreeNode, ...] = tuple(replace(n, loops=(), kernel="") for n in nests)
        for a in reversed(nests[0].loops):
            body = (TreeLoop(a, body, any_order=True),)
        return body[0] if len(body) == 1 else TreeGuard(TRUE, body)
    counts = {simplify(_trip_count(n.loops)) for n in nests}
    if len(counts) > 1:
        raise CheckError(f"nests of the kernel {kernel!r} have not the same number of points")
    axis = Axis(f"point.{kernel}", counts.pop())
    return TreeLoop(axis, tuple(_unraveled(n, axis) for n in nests), any_order=True)


def _trip_count(axes: Sequence[Axis]) -> Expr:
    out = as_expr(1)
    for a in axes:
        out = out * a.extent
    return out


def _unraveled(n: Nest, axis: Axis) -> Nest:
    """A nest without loops, whose loop variables are digits of the one axis."""
    left, given = axis.symbol, dict[str, Expr]()
    for a in reversed(n.loops):
        given[a.name] = simplify(left % a.extent)
        left = left // a.extent
    return replace(n, loops=(), kernel="").substitute(given)


def nests_of(body: Sequence[TreeNode]) -> tuple[Nest, ...] | None:
    """The nests of a tree in which each leaf has loops of its own, all in order or all in any order; None else."""
    out: list[Nest] = []
    for node in body:
        found = _lone_nest(node)
        if found is None:
            return None
        out.append(found)
    return tuple(out)


def _lone_nest(node: TreeNode) -> Nest | None:
    loops: list[TreeLoop] = []
    when = TRUE
    while not isinstance(node, Nest):
        match node:
            case TreeLoop():
                if node.private:
                    return None
                loops.append(node)
            case TreeGuard():
                when = and_(when, node.when)
            case _:
                assert_never(node)
        if len(node.body) != 1:
            return None
        (node,) = node.body
    if len({x.any_order for x in loops}) > 1 or (node.loops and any(x.any_order for x in loops)):
        return None
    writes = tuple(replace(w, when=and_(when, w.when)) for w in node.writes)
    kernel = f"{node.name} by itself" if any(x.any_order for x in loops) else ""
    return replace(node, loops=(*(x.axis for x in loops), *node.loops), writes=writes, kernel=kernel)
