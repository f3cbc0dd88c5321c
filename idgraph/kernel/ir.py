"""The plan: kernels of loops, conditions, loads, computations and stores, as plain data that every printer reads.

A plan speaks of index expressions and tensors, not of a language. ``print(program.plan)`` shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, assert_never

from idgraph.arith import TRUE, Expr, as_expr
from idgraph.ir import DType, Scalar

ZERO = as_expr(0)
Place = Literal["input", "output", "global", "private", "shared"]
AccumulateOp = Literal["sum", "prod", "amax", "amin", "any", "all"]


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
class Number:
    """A number the user wrote, or an attribute of the operation.

    Two are equal where no computation can tell them apart: 0.0 is not -0.0, 1 is not 1.0 nor True, and NaN is NaN.

    >>> Number(0.0) == Number(-0.0), Number(1) == Number(True), Number(float("nan")) == Number(float("nan"))
    (False, False, True)
    """

    value: Scalar

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        return type(self.value).__name__, repr(self.value)


@dataclass(frozen=True, slots=True)
class Index:
    """The value of an integer index expression."""

    value: Expr


Operand = Local | Number | Index


@dataclass(frozen=True, slots=True)
class Site:
    """Where a loaded index is used: for the error that says it is out of range. ``loops`` are the loops around it."""

    tensor: str
    axis: int
    extent: Expr
    index: str
    expr: str
    line: str
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """``body`` for ``var`` = 0 .. extent - 1, serially or by blocks and threads (``parallel``).

    On blocks, the block numbered ``first`` is the one of ``var`` = 0: nests may share a launch.
    """

    var: str
    extent: Expr
    parallel: str
    body: tuple[Stmt, ...]
    note: str = ""
    first: Expr = ZERO


@dataclass(frozen=True, slots=True)
class If:
    """``body`` where the condition holds."""

    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Single:
    """``body`` by the first thread along ``dims`` only: its loops do not run on them."""

    dims: tuple[str, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """``body`` where ``condition`` on a loaded value holds; where not, a checked run reports ``site``.

    ``point`` are the values of the site's loops, where these are not variables any more (unrolled lanes).
    A run that is not checked tests it only where ``always``: before a write.
    """

    condition: Expr
    value: str
    site: Site
    body: tuple[Stmt, ...]
    point: tuple[Expr, ...] = ()
    always: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A comment: the operation that the next statements compute."""

    text: str


@dataclass(frozen=True, slots=True)
class Declare:
    """A local variable and its first value."""

    name: str
    dtype: DType
    value: Scalar


@dataclass(frozen=True, slots=True)
class Registers:
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

    Loops run one after the other where there are no threads, so there it is a comment.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Let:
    """An integer variable for index expressions: a loaded value."""

    name: str
    value: Operand


@dataclass(frozen=True, slots=True)
class Load:
    """``local`` = the element at ``address`` where ``guard`` holds, else zero."""

    local: Local
    buffer: Buffer
    address: Expr
    guard: Expr = TRUE


@dataclass(frozen=True, slots=True)
class Compute:
    """``local`` = op(operands), computed in ``compute``'s arithmetic, rounded to ``local.dtype``."""

    local: Local
    op: str
    operands: tuple[Operand, ...]
    compute: DType


@dataclass(frozen=True, slots=True)
class Choose:
    """``local`` = the operand of the first case whose condition holds, else ``default``."""

    local: Local
    cases: tuple[tuple[Expr, Operand], ...]
    default: Operand


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Combine ``value`` into the variable ``acc``, or into ``buffer`` at ``address``.

    ``shared``: several blocks or threads may update that element, each update must be one step. ``running`` takes the
    value as it is then: a scan along the loops ``along``, which are visited in order. ``result`` is the type that the
    whole is rounded to: partial results need not be more exact than its next wider one.
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


@dataclass(frozen=True, slots=True)
class Combine:
    """The threads of a block along ``dims`` make one value of what each holds in ``acc``; then all of them hold it.

    Every thread of the block gets here: it is an exchange and a barrier.
    """

    acc: Local
    op: AccumulateOp
    dims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Write ``value`` at ``address``."""

    buffer: Buffer
    address: Expr
    value: Operand


@dataclass(frozen=True, slots=True)
class VectorLoad:
    """``locals`` = the elements from ``address`` on, in one aligned access; with ``pairs`` two in each local."""

    locals: tuple[Local, ...]
    buffer: Buffer
    address: Expr
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class VectorStore:
    """Write ``values`` from ``address`` on, in one aligned access; with ``pairs`` each value is two elements."""

    buffer: Buffer
    address: Expr
    values: tuple[Operand, ...]
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class VectorAdd:
    """Add ``values`` to the elements from ``address`` on, each in one step that no other thread comes between; the
    whole is aligned."""

    buffer: Buffer
    address: Expr
    values: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class PairCompute:
    """``local``, a word of two 16-bit floats, = op of words, element by element, each rounded once.

    "pack" makes it of two values and rounds them; "pick_ab" takes half a of the first word and half b of the second.
    """

    local: Local
    op: str
    operands: tuple[Local, ...]


@dataclass(frozen=True, slots=True)
class Half:
    """``local`` = the low or the high element of a word."""

    local: Local
    word: Local
    high: bool


Stmt = (
    Loop | If | Single | Checked | Note | Declare | Registers | Alloc | Barrier | Let | Load | Compute | Choose
    | Accumulate | Combine | Store | VectorLoad | VectorStore | VectorAdd | PairCompute | Half
)  # fmt: skip


PRIME = "'"  # behind a symbol's name inside the kernels, where that name is taken there


@dataclass(frozen=True, slots=True)
class Kernel:
    """One nest of loops: ``buffers`` and ``scalars`` (symbols of extents and strides) are its parameters.

    ``launch`` holds, for each parallel dimension used, the extents of the loops that run on it. ``passes`` names those
    that have changed it since it was made.
    """

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[str, ...]
    body: tuple[Stmt, ...]
    launch: dict[str, tuple[Expr, ...]] = field(default_factory=dict[str, "tuple[Expr, ...]"])
    passes: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        head = f"{self.name}({', '.join([b.name for b in self.buffers] + list(self.scalars))}):"
        grid = "".join(f"\n  {d}: {', '.join(map(str, e))}" for d, e in sorted(self.launch.items()))
        return "\n".join([head + grid, *_lines(self.body, "  ")])


@dataclass(frozen=True, slots=True)
class Plan:
    """Kernels in launch order. ``names`` maps symbols to source names, ``titles`` tensors t0, t1, ... to user names."""

    kernels: tuple[Kernel, ...]
    buffers: tuple[Buffer, ...]
    names: dict[str, str]
    titles: dict[str, str]

    def __str__(self) -> str:
        head = [f"{b.name}: {b.dtype}[{b.size}] {b.place} {quote(b.title)}" for b in self.buffers]
        return "\n".join([*head, *(str(k) for k in self.kernels)])


def quote(text: str) -> str:
    """User text as one quoted ASCII line."""
    return json.dumps(text)


def _operand(o: Operand) -> str:
    match o:
        case Local():
            return str(o)
        case Number(value):
            return repr(value)
        case Index(value):
            return f"`{value}`"
        case _:
            assert_never(o)


def bodies(s: Stmt) -> tuple[Stmt, ...]:
    """The statements inside ``s``."""
    match s:
        case Loop(body=body) | If(body=body) | Single(body=body) | Checked(body=body):
            return body
        case _:
            return ()


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, outer ones first."""
    for s in body:
        yield s
        yield from walk(bodies(s))


def _lines(body: tuple[Stmt, ...], pad: str) -> Iterator[str]:
    for s in body:
        yield pad + _head(s)
        yield from _lines(bodies(s), pad + "  ")


def _head(s: Stmt) -> str:
    match s:
        case Loop(var, extent, parallel, _, note, first):
            how = "" if parallel == "serial" else f" {parallel}" if first == ZERO else f" {parallel} from {first} on"
            return f"for {var} < {extent}{how}:{'  # ' + note if note else ''}"
        case If(condition):
            return f"if {condition}:"
        case Single(dims):
            return f"first of {', '.join(dims)}:"
        case Checked(condition, value, site):
            return f"check {condition}:  # {value} indexes axis {site.axis} of {quote(site.tensor)}"
        case Note(text):
            return f"# {text}"
        case Declare(name, dtype, value):
            return f"{name}: {dtype} = {value!r}"
        case Registers(name, dtype, number, words):
            return f"{name}: {dtype}{'x2' if words else ''}[{number}] registers"
        case Alloc(buffer):
            return f"{buffer.name}: {buffer.dtype}[{buffer.size}]{' shared' if buffer.place == 'shared' else ''}"
        case Barrier(why):
            return f"barrier  # {why}"
        case Let(name, value):
            return f"{name} = {_operand(value)}"
        case Load(local, buffer, address, guard):
            tail = "" if guard is TRUE else f" if {guard} else 0"
            return f"{local} = {buffer.name}[{address}]{tail}"
        case Compute(local, op, operands, compute):
            how = "" if compute == local.dtype else f" in {compute}"
            return f"{local}: {local.dtype} = {op}({', '.join(map(_operand, operands))}){how}"
        case Choose(local, cases, default):
            chain = "".join(f"{_operand(o)} if {c} else " for c, o in cases)
            return f"{local}: {local.dtype} = {chain}{_operand(default)}"
        case Accumulate(acc, op, value, buffer, address, shared, running, along):
            to = acc.name if buffer is None else f"{buffer.name}[{address}]"
            tail = "" if running is None else f", {running.name} its running value along {', '.join(along)}"
            return f"{to} <- {op} {_operand(value)}{' atomically' if shared else ''}{tail}"
        case Combine(acc, op, dims):
            return f"{acc.name} <- {op} of all {', '.join(dims)}"
        case Store(buffer, address, value):
            return f"{buffer.name}[{address}] = {_operand(value)}"
        case VectorLoad(made, buffer, address, pairs):
            how = " in pairs" if pairs else ""
            return f"{', '.join(str(x) for x in made)} = {buffer.name}[{address} ...]{how}"
        case VectorStore(buffer, address, values, pairs):
            return f"{buffer.name}[{address} ...] = {', '.join(map(_operand, values))}{' in pairs' if pairs else ''}"
        case VectorAdd(buffer, address, values):
            return f"{buffer.name}[{address} ...] <- sum {', '.join(map(_operand, values))} atomically"
        case PairCompute(local, op, operands):
            return f"{local}: {local.dtype} pair = {op}({', '.join(map(_operand, operands))})"
        case Half(local, word, high):
            return f"{local}: {local.dtype} = {'high' if high else 'low'} of {word}"
        case _:
            assert_never(s)
