"""The contents of a report: plain facts about segments, operations, accesses, cycles and memory traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from idgraph.arith import Expr, as_expr, simplify
from idgraph.cost.report import KernelCost
from idgraph.errors import SourceLine
from idgraph.graphs import Cycle, CycleKind
from idgraph.index.access import Access
from idgraph.index.allocation import Place
from idgraph.index.vector_width import Limit
from idgraph.ir import Fusion

Amount = int | Expr  # an int where no symbol is left
Pattern = Literal["contiguous", "same element", "strided", "irregular", "data-dependent", "one element"]


def amount(x: Amount) -> Amount:
    """An int where ``x`` is constant, else the simplified expression.

    >>> amount(as_expr(6) * 7)
    42
    """
    made = simplify(as_expr(x))
    return int(made) if made.is_const else made


def total(amounts: Iterable[Amount]) -> Amount:
    """The sum.

    >>> total([1, 2, 3])
    6
    """
    made = as_expr(0)
    for x in amounts:
        made = made + x
    return amount(made)


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """An input or output of a segment. ``strides`` are elements, None where row-major; ``shape`` has ints or text."""

    name: str
    role: Literal["input", "output", "intermediate"]
    shape: tuple[int | str, ...]
    dtype: str
    strides: tuple[int | str, ...] | None
    line: SourceLine | None


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of memory that one tensor costs in the program as emitted; ``exact`` is False where ``why`` says so.

    ``read`` and ``written``: of distinct elements, once for each kernel that touches them (and for each pass of it
    that the cache does not keep). Registers and thread-private arrays have no row.
    """

    tensor: str
    role: Literal["input", "output", "intermediate"]
    read: int
    written: int
    size: int
    exact: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """A value loaded to index with: symbol ``name`` is ``tensor[coordinates]``."""

    name: str
    tensor: str
    coordinates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SuggestionFacts:
    """A change after which an access moves ``width`` elements at once along ``loop``, tried on a copy.

    ``keeps_result``: only layout or schedule change; else the program does (another slice or extent).
    """

    text: str
    width: int
    loop: str
    keeps_result: bool


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """One operation reads or writes one tensor.

    ``address`` counts elements of the memory that is allocated, at ``place`` (see `idgraph.index.Buffer`). ``loop`` is
    the one that the claims are about: the vectorised loop, else the innermost with more than one step. ``step`` is the
    number of elements from one step of it to the next (None: differs from step to step), ``pattern`` its name.
    ``vector_width`` elements may move in one aligned access of ``vector_bytes``; ``limit`` (of
    `idgraph.index.VectorWidth`) and ``why`` say what stops a wider one. ``points`` is the number of points of its
    loops, ``bounds`` are what the loaded indices must obey. ``suggestions`` are changes that would allow more, None
    where none were tried (`idgraph.reports.report` says of which they are).

    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(8,))[4:])
    >>> a = ig.report(f).segments[0].operations[0].accesses[0]
    >>> a.contiguous, a.vectorisable, a.data_dependent, a.narrow, a.in_memory, a.where
    (True, True, False, False, True, 'i0')
    """

    kind: Literal["read", "write"]
    operand: int | None
    tensor: str
    shape: tuple[int | str, ...]
    dtype: str
    coordinates: tuple[str, ...]
    address: str
    place: Place
    predicate: str
    loop: str
    step: str | None
    pattern: Pattern
    vector_width: int
    vector_bytes: int
    limit: Limit
    why: str
    index_bits: int
    points: Amount
    loads: tuple[LoadFacts, ...] = ()
    bounds: tuple[str, ...] = ()
    suggestions: tuple[SuggestionFacts, ...] | None = None
    access: Access | None = field(default=None, repr=False, compare=False)

    @property
    def narrow(self) -> bool:
        """True for an access of several distinct elements for which the widest access is not proved."""
        several = self.pattern not in ("one element", "same element")
        return several and self.in_memory and self.limit != "widest"

    @property
    def in_memory(self) -> bool:
        """True unless the value lies in a register or in a thread-private array."""
        return self.place not in ("register", "private")

    @property
    def where(self) -> str:
        """The address as tables show it, with the kind of memory where that is not the whole tensor's."""
        if self.place == "register":
            return self.place
        return f"{self.address} ({self.place})" if self.place in ("shared", "private") else self.address

    @property
    def contiguous(self) -> bool:
        """Neighbouring steps of ``loop`` touch neighbouring elements (or there is one element only)."""
        return self.pattern in ("contiguous", "one element")

    @property
    def contiguous_along(self) -> tuple[str, ...]:
        """All loops whose step is one element, proved when asked for.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> y = f.output(f.input("x", shape=(8, 16)) * 2.0)
        >>> ig.report(f).accesses[0].contiguous_along
        ('i1',)
        """
        a = self.access
        return () if a is None else tuple(x.name for x in a.loops if x.extent != 1 and a.explain_contiguous(x))

    @property
    def vectorisable(self) -> bool:
        """More than one element may move at once."""
        return self.vector_width > 1

    @property
    def data_dependent(self) -> bool:
        """True where the address depends on loaded values."""
        return bool(self.loads)


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """One loop of an operation, with the number of its steps."""

    name: str
    extent: int | str
    parallel: str


@dataclass(frozen=True, slots=True)
class OperationFacts:
    """One operation: its result, its loops outermost first, and its accesses, the write first."""

    name: str
    op: str
    text: str
    line: SourceLine | None
    loops: tuple[LoopFacts, ...]
    inlined_at: int
    accesses: tuple[AccessFacts, ...]

    def __repr__(self) -> str:
        return f"OperationFacts({self.text})"


@dataclass(frozen=True, slots=True)
class CycleFacts:
    """One way around in a graph. ``resizes``: a slice, pad, cat, roll or stride is on it.

    ``steps`` are its axis expressions with their owners, ``lines`` the user's, ``closed_by`` the operation whose
    mapping joins the two ends. ``consequence`` says what a search over the graph may do there.
    """

    graph: str
    kind: CycleKind
    shift: str | None
    modulus: str | None
    map: str
    holds: str
    resizes: bool
    changes_index: bool
    tensors: tuple[str, ...]
    steps: tuple[str, ...]
    lines: tuple[SourceLine, ...]
    closed_by: str | None
    closing_line: SourceLine | None
    consequence: str
    cycle: Cycle[Any] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SelfMappingFacts:
    """Two axes of one tensor that the exact graph takes for one, as in ``t + t.T``."""

    tensor: str
    first: str
    second: str
    reason: str


@dataclass(frozen=True, slots=True)
class OpaqueFacts:
    """A call without index meaning: it runs as the reference, and the fusion is cut around it."""

    name: str
    op: str
    reason: str
    line: SourceLine | None


@dataclass(frozen=True, slots=True)
class Boundary:
    """Why a kernel begins: it shares ``tensor`` with ``earlier`` ("stores" or "reads" there), and ``cause`` keeps the
    two apart (of `idgraph.fuse`; "" where no pair of their operations is kept apart)."""

    earlier: str
    tensor: str
    how: str
    cause: str
    because: str

    def __str__(self) -> str:
        why = f": {self.cause}, {self.because}" if self.cause else ": their loops could be one"
        return f"{self.earlier} {self.how} {self.tensor}{why}"


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel as emitted: the tensors that its operations make, in the order of its text; why it is not part of an
    earlier kernel; its source; its estimated cost, and microseconds measured where it was run."""

    name: str
    operations: tuple[str, ...]
    boundaries: tuple[Boundary, ...]
    source: str
    cost: KernelCost = field(repr=False)
    measured_us: float | None = None


class ProgramKernels(tuple[KernelFacts, ...]):
    """The kernels of a program, in the order in which they run.

    ``distinct``: how many are compiled; ``reused``: how many are those of an equal earlier segment (a layer of the same
    shape) by other names; ``seconds`` that calls have spent so far, by stage ("schedule", "emit", "compile", "first
    call"), empty before the first.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> _ = f.output(ig.exp(f.input("x", (8,))))
    >>> ig.report(f).kernels.distinct, ig.report(f).kernels.reused, dict(ig.report(f).kernels.seconds)
    (1, 0, {})
    """

    distinct: int
    seconds: Mapping[str, float]

    def __new__(
        cls, rows: Iterable[KernelFacts], reused: int = 0, seconds: Mapping[str, float] | None = None
    ) -> ProgramKernels:
        """``rows``: all of them, ``reused`` of which are not compiled again."""
        made = super().__new__(cls, rows)
        made.distinct, made.seconds = len(made) - reused, dict(seconds or {})
        return made

    @property
    def reused(self) -> int:
        """Kernels that an equal earlier segment has."""
        return len(self) - self.distinct

    def __str__(self) -> str:
        spent = "".join(f", {stage} {seconds:.2f} s" for stage, seconds in self.seconds.items())
        return f"{self.distinct} distinct kernel{'s' * (self.distinct != 1)}, {self.reused} reused{spent}"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One fusion (or none, where nothing is mapped) and the opaque calls after it.

    ``kernels`` are those that are emitted for it; ``refused`` says why there are none: then its bytes are not known.
    ``identity``: its operations and schedule with tensors numbered, where kernels of an equal segment serve it too; ""
    where they name its tensors (checked indices).

    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(8,))[4:])
    >>> s = ig.report(f).segments[0]
    >>> len(s.accesses), len(s.memory_accesses), s.bytes_read, s.bytes_written, s.bytes_between, s.exact
    (2, 2, 16, 16, 0, True)
    """

    number: int
    name: str
    tensors: tuple[TensorFacts, ...]
    operations: tuple[OperationFacts, ...]
    cycles: tuple[CycleFacts, ...]
    self_mappings: tuple[SelfMappingFacts, ...]
    traffic: tuple[Traffic, ...]
    calls: tuple[OpaqueFacts, ...]
    kernels: tuple[KernelFacts, ...] = ()
    refused: str = ""
    fusion: Fusion | None = field(default=None, repr=False, compare=False)
    identity: str = field(default="", repr=False)

    def __repr__(self) -> str:
        return f"SegmentFacts({self.name!r}, {len(self.operations)} operations, {len(self.kernels)} kernels)"

    @property
    def accesses(self) -> tuple[AccessFacts, ...]:
        """All accesses, operation by operation."""
        return tuple(a for e in self.operations for a in e.accesses)

    @property
    def memory_accesses(self) -> tuple[AccessFacts, ...]:
        """The accesses of memory; registers and thread-private arrays are left out."""
        return tuple(a for a in self.accesses if a.in_memory)

    @property
    def bytes_read(self) -> int | None:
        """Bytes read of the inputs: distinct elements, counted once for each kernel that reads them."""
        return self._bytes(t.read for t in self.traffic if t.role == "input")

    @property
    def bytes_written(self) -> int | None:
        """Bytes written to the outputs."""
        return self._bytes(t.written for t in self.traffic if t.role == "output")

    @property
    def bytes_between(self) -> int | None:
        """Bytes of stored intermediates, written and read again. Inlining saves them."""
        return self._bytes(x for t in self.traffic if t.role != "input" for x in _between(t))

    def _bytes(self, parts: Iterable[int]) -> int | None:
        return None if self.refused else sum(parts)

    @property
    def exact(self) -> bool:
        """True when every byte count is exact, not a bound."""
        return not self.refused and all(t.exact for t in self.traffic)


def _between(t: Traffic) -> tuple[int, ...]:
    return (t.read, t.written) if t.role == "intermediate" else (t.read,)


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """`idgraph.reports.IndexReport` as data."""

    name: str
    segments: tuple[SegmentFacts, ...]
    mapped: Mapping[str, int] = field(default_factory=dict[str, int])
    opaque: Mapping[str, str] = field(default_factory=dict[str, str])
    schedule: str = "as given"
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def cycles(self) -> tuple[CycleFacts, ...]:
        """Every cycle of every segment's exact graph."""
        return tuple(c for s in self.segments for c in s.cycles)

    @property
    def resize_cycles(self) -> tuple[CycleFacts, ...]:
        """The cycles with a slice, pad, cat, roll or stride on them."""
        return tuple(c for c in self.cycles if c.resizes)

    @property
    def accesses(self) -> tuple[AccessFacts, ...]:
        """Every access of every operation."""
        return tuple(a for s in self.segments for a in s.accesses)

    @property
    def contiguous(self) -> tuple[AccessFacts, ...]:
        """Accesses of memory whose lanes are neighbours there."""
        return tuple(a for a in self.memory_accesses if a.contiguous)

    @property
    def vectorisable(self) -> tuple[AccessFacts, ...]:
        """Accesses of memory that may move more than one element at once."""
        return tuple(a for a in self.memory_accesses if a.vectorisable)

    @property
    def data_dependent(self) -> tuple[AccessFacts, ...]:
        """Accesses at loaded indices."""
        return tuple(a for a in self.accesses if a.data_dependent)

    @property
    def calls(self) -> tuple[OpaqueFacts, ...]:
        """Opaque calls, in the order in which they run."""
        return tuple(c for s in self.segments for c in s.calls)

    @property
    def memory_accesses(self) -> tuple[AccessFacts, ...]:
        """Every access of memory: values that stay with a thread are left out."""
        return tuple(a for s in self.segments for a in s.memory_accesses)

    @property
    def kernels(self) -> ProgramKernels:
        """Every kernel, in the order in which they run; how many are distinct, and the seconds of their stages."""
        seen: set[str] = set()
        reused = 0
        for s in self.segments:
            reused += len(s.kernels) if s.identity in seen else 0
            seen.update([s.identity] if s.identity else [])
        return ProgramKernels((k for s in self.segments for k in s.kernels), reused, self.seconds)

    @property
    def bytes_read(self) -> int | None:
        """Bytes read of the inputs: distinct elements, once for each kernel; None where a segment is not emitted."""
        return _sum(s.bytes_read for s in self.segments)

    @property
    def bytes_written(self) -> int | None:
        """Bytes written to the outputs; None where a segment is not emitted."""
        return _sum(s.bytes_written for s in self.segments)

    @property
    def bytes_between(self) -> int | None:
        """Bytes of stored intermediates, written and read again; None where a segment is not emitted."""
        return _sum(s.bytes_between for s in self.segments)

    @property
    def exact(self) -> bool:
        """True when every byte count is exact, not a bound."""
        return all(s.exact for s in self.segments)


def _sum(parts: Iterable[int | None]) -> int | None:
    found = list(parts)
    return None if None in found else sum(x for x in found if x is not None)
