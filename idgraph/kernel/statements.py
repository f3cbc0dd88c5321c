"""Statements of the kernel IR: loops, conditions, loads, computations and stores, as plain data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from idgraph.arith import TRUE, Expr, as_expr
from idgraph.ir import DType, Scalar

ZERO = as_expr(0)
Place = Literal["input", "output", "global", "private", "shared"]
AccumulateOp = Literal["sum", "prod", "amax", "amin", "any", "all", "logsum", "near_logsum"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory for ``size`` elements of ``dtype``; ``title`` is the tensor it holds, as the user named it.

    ``private`` memory belongs to one point of the loops around its `Alloc`, ``shared`` memory to all threads of a block
    at one point of the other loops around it; the rest is passed to the kernels.
    """

    name: str
    title: str
    dtype: DType
    size: Expr
    place: Place
    alignment: int = 16  # bytes that its first element is a multiple of


@dataclass(frozen=True, slots=True)
class Local:
    """A value held in a local variable, of the value type of ``dtype``, or in element ``at`` of an array of them."""

    name: str
    dtype: DType
    at: Expr | None = None

    def __str__(self) -> str:
        return self.name if self.at is None else f"{self.name}[{self.at}]"


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A number the user wrote, or an attribute of the operation.

    Two are equal where no computation can tell them apart: 0.0 is not -0.0, 1 is not 1.0 nor True, and NaN is NaN.

    >>> Constant(0.0) == Constant(-0.0), Constant(1) == Constant(True), Constant(float("nan")) == Constant(float("nan"))
    (False, False, True)
    """

    value: Scalar

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        return type(self.value).__name__, repr(self.value)


@dataclass(frozen=True, slots=True)
class Index:
    """The value of an integer index expression."""

    value: Expr


Operand = Local | Constant | Index


@dataclass(frozen=True, slots=True)
class CheckSite:
    """Where a loaded index is used: for the error that says it is out of range. ``loops`` are the loops around it.

    With axis -1 what is loaded is where a row "begins" or "ends", as ``tensor`` says, of rows of ``extent`` elements.
    """

    tensor: str
    axis: int
    extent: Expr
    index: str
    expr: str
    line: str
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """The purpose of an access: an operation at one of its logical points, those of reduced axes among them.

    The operation makes ``tensor`` (t0, t1, ... of the fusion), and reads its ``operand`` here, or writes its result
    (None). ``point`` is in the variables around the access, and in those of ``over``, each of which takes all values
    below its extent: one access then serves many points. It serves those where ``when`` holds. In a vector access the
    symbol `LANE` is the number of the element.
    """

    tensor: str
    operand: int | None
    point: tuple[Expr, ...]
    over: tuple[tuple[str, Expr], ...] = ()
    when: Expr = TRUE


LANE = "v'"
ProvenanceList = tuple[Provenance, ...]


@dataclass(frozen=True, slots=True)
class SplitAxis:
    """One axis of the schedule that ``loops`` loops, each directly inside the one before, go over: their variables are
    the digits of its index, the outermost one first. Nothing needs the steps from index ``extent`` on."""

    extent: Expr
    loops: int


@dataclass(frozen=True, slots=True)
class Loop:
    """``body`` for ``var`` = 0 .. extent - 1, serially or by blocks and threads (``parallel``; "rolled" is serially, in
    a loop whose number of steps the compiler of the source does not know).

    On blocks, block number ``first`` runs ``var`` = 0: nests may share a launch. ``column``: the axis whose loops begin
    here, where the schedule split it. ``stop``: no step from this number on does anything, so that a printed loop ends
    there.
    """

    var: str
    extent: Expr
    parallel: str
    body: tuple[Stmt, ...]
    note: str = ""
    first: Expr = ZERO
    column: SplitAxis | None = None
    stop: Expr | None = None


def axis_loops(s: Loop) -> list[Loop]:
    """The loops of the axis that begins at ``s``; only that loop where the schedule did not split its axis, or
    something stands between the loops now.

    >>> from idgraph.arith import as_expr
    >>> inner = Loop("t", as_expr(4), "serial", ())
    >>> [v.var for v in axis_loops(Loop("o", as_expr(2), "serial", (inner,), column=SplitAxis(as_expr(7), 2)))]
    ['o', 't']
    """
    chain = [s]
    while s.column is not None and len(chain) < s.column.loops:
        body = chain[-1].body
        if len(body) != 1 or not isinstance(body[0], Loop):
            return [s]
        chain.append(body[0])
    return chain


@dataclass(frozen=True, slots=True)
class If:
    """``body`` where the condition holds."""

    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class SingleThread:
    """``body`` by the first thread along ``dims`` only: its loops do not run on them."""

    dims: tuple[str, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class StraightLineBlock:
    """Straight-line code for all lanes of one thread. Statements outside read only its accumulators."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class BoundsCheck:
    """``body`` where ``condition`` on a loaded value holds; where not, a checked run reports ``site``.

    ``point`` are the values of the site's loops, where these are not variables any more (unrolled lanes).
    An unchecked run tests the condition only where ``always`` is set: before a write.
    """

    condition: Expr
    value: str
    site: CheckSite
    body: tuple[Stmt, ...]
    point: tuple[Expr, ...] = ()
    always: bool = False


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment: the operation that the next statements compute."""

    text: str


@dataclass(frozen=True, slots=True)
class InitAccumulator:
    """An accumulator and its initial value: the one kind of variable that changes, by `Accumulate` and
    Only for `BlockReduce`."""

    name: str
    dtype: DType
    value: Scalar


@dataclass(frozen=True, slots=True)
class RegisterArray:
    """``count`` variables of one thread as an array. Loops over lanes index it, so compilers hold it in registers.

    With ``words`` each element is a pair of 16-bit floats.
    """

    name: str
    dtype: DType
    count: int
    words: bool = False


@dataclass(frozen=True, slots=True)
class Alloc:
    """Private memory of the loops around this statement."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of a block wait here for each other; ``why`` names what they wait for.

    Targets without threads run the loops one after the other and print it as a comment.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Let:
    """An integer variable for index expressions: a loaded value of the operand that it serves."""

    name: str
    value: Operand
    serves: ProvenanceList = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Load:
    """``local`` = the element at ``address`` where ``guard`` holds, else zero."""

    local: Local
    buffer: Buffer
    address: Expr
    guard: Expr = TRUE
    serves: ProvenanceList = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Compute:
    """``local`` = op(operands), computed in ``compute``'s arithmetic, rounded to ``local.dtype``."""

    local: Local
    op: str
    operands: tuple[Operand, ...]
    compute: DType


@dataclass(frozen=True, slots=True)
class Select:
    """``local`` = the operand of the first case whose condition holds, else ``default``."""

    local: Local
    cases: tuple[tuple[Expr, Operand], ...]
    default: Operand


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Combine ``value`` into the variable ``acc``, or into ``buffer`` at ``address``.

    ``shared``: several blocks or threads may update that element, so each update is atomic. ``running`` receives the
    running value: a scan along the loops ``along``, which are visited in order. ``result`` is the type of the finished
    value: partial results need no more precision than its next wider type.
    """

    acc: Local
    op: AccumulateOp
    value: Operand
    buffer: Buffer | None = None
    address: Expr | None = None
    shared: bool = False
    running: Local | None = None
    along: tuple[str, ...] = ()
    result: DType | None = None
    serves: ProvenanceList = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class BlockReduce:
    """A block reduction: the values of ``acc`` of all threads along ``dims`` are combined, and all hold the result.

    ``before`` receives the exclusive scan along ``dims``, the first dimension fastest. Every thread of the block must
    reach it: it contains a barrier.
    """

    acc: Local
    op: AccumulateOp
    dims: tuple[str, ...]
    before: Local | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """Write ``value`` at ``address``."""

    buffer: Buffer
    address: Expr
    value: Operand
    serves: ProvenanceList = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class VectorLoad:
    """``locals`` = the elements from ``address`` on, in one aligned access; with ``pairs`` two in each local.

    ``realigned``: they begin anywhere. The one or two aligned vectors that hold them are read, no element outside of
    the buffer, and the elements are picked out by shifts.
    """

    locals: tuple[Local, ...]
    buffer: Buffer
    address: Expr
    pairs: bool = False
    serves: ProvenanceList = field(default=(), compare=False)
    realigned: bool = False


@dataclass(frozen=True, slots=True)
class VectorStore:
    """Write ``values`` from ``address`` on, in one aligned access; with ``pairs`` each value is two elements."""

    buffer: Buffer
    address: Expr
    values: tuple[Operand, ...]
    pairs: bool = False
    serves: ProvenanceList = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class VectorAdd:
    """Add ``values`` to the elements from ``address`` on, each addition atomic; the whole is aligned."""

    buffer: Buffer
    address: Expr
    values: tuple[Operand, ...]
    serves: ProvenanceList = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Half2Op:
    """``local``, a word of two 16-bit floats, = op of words, element by element, each rounded once.

    "pack" makes it of two values and rounds them; "pick_ab" takes half a of the first word and half b of the second;
    "where" is one of two words, as the bool before them says.
    """

    local: Local
    op: str
    operands: tuple[Local, ...]


@dataclass(frozen=True, slots=True)
class ExtractHalf:
    """``local`` = the low or the high element of a word."""

    local: Local
    word: Local
    high: bool


CompoundStmt = Loop | If | SingleThread | StraightLineBlock | BoundsCheck
"""Statements with statements inside."""
Stmt = (
    Loop | If | SingleThread | StraightLineBlock | BoundsCheck | Comment | InitAccumulator | RegisterArray | Alloc |
    Barrier | Let | Load | Compute | Select | Accumulate | BlockReduce | Store | VectorLoad | VectorStore |
    VectorAdd | Half2Op | ExtractHalf
)  # fmt: skip


Access = Load | Store | Accumulate | VectorLoad | VectorStore | VectorAdd


def quote(text: str) -> str:
    """User text as one quoted ASCII line."""
    return json.dumps(text)


def elements_of(s: Access) -> int:
    """How many neighbouring elements an access moves."""
    match s:
        case VectorLoad(locals=moved, pairs=pairs) | VectorStore(values=moved, pairs=pairs):
            return len(moved) * (2 if pairs else 1)
        case VectorAdd(values=moved):
            return len(moved)
        case Load() | Store() | Accumulate():
            return 1


def bodies(s: Stmt) -> tuple[Stmt, ...]:
    """The statements inside ``s``."""
    return s.body if isinstance(s, CompoundStmt) else ()


def single_statement(body: Iterable[Stmt]) -> Stmt | None:
    """The only statement among notes; None where there is none, or several.

    >>> single_statement((Comment("a"), Comment("b"))), single_statement((Comment("a"), StraightLineBlock(())))
    (None, StraightLineBlock(body=()))
    """
    inside = [s for s in body if not isinstance(s, Comment)]
    return inside[0] if len(inside) == 1 else None


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, outer ones first."""
    open_ = [iter(body)]
    while open_:
        for s in open_[-1]:
            yield s
            inside = bodies(s)
            if inside:
                open_.append(iter(inside))
                break
        else:
            open_.pop()
