"""Where a kernel touches memory and where it computes: each statement with the loops and conditions around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, assert_never

from idgraph.arith import TRUE, Expr, as_expr, interval, simplify, symbol
from idgraph.errors import IdGraphError
from idgraph.ir import DType, is_float
from idgraph.kernel.ir import (
    PRIME,
    Accumulate,
    AccumulateOp,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Buffer,
    Comment,
    Compute,
    Constant,
    ExtractHalf,
    Half2Op,
    If,
    Index,
    InitAccumulator,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    RegisterArray,
    Select,
    SingleThread,
    Stmt,
    Store,
    StraightLineBlock,
    VectorAdd,
    VectorLoad,
    VectorStore,
    walk,
)

Kind = Literal["read", "write", "atomic"]


@dataclass(frozen=True, slots=True)
class EnclosingLoop:
    """A loop around a site; ``number`` tells loops of one name apart."""

    var: str
    extent: int
    parallel: str
    number: int

    @property
    def is_block(self) -> bool:
        """Its steps run on blocks."""
        return self.parallel.startswith("blockIdx")

    @property
    def is_thread(self) -> bool:
        """Its steps run on threads of a block."""
        return self.parallel.startswith("threadIdx")


@dataclass(frozen=True, slots=True)
class MemoryValue:
    """The value in memory at ``address`` of ``buffer``."""

    buffer: Buffer
    address: Expr


@dataclass(frozen=True, slots=True)
class ComputedValue:
    """An operation on values; ``op`` is None where only what they depend on is known."""

    op: str | None
    operands: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class ReducedValue:
    """``start``, which is the identity element or what was combined before, combined with ``value`` at those points of
    ``loops`` at which ``conditions`` hold: at all of them, or where ``running`` up to the point that it is asked at."""

    op: AccumulateOp
    dtype: DType
    start: Value
    value: Value
    loops: tuple[EnclosingLoop, ...]
    conditions: tuple[Expr, ...]
    running: bool = False


Value: TypeAlias = "MemoryValue | ComputedValue | ReducedValue | Constant | Index"


@dataclass(slots=True)
class Data:
    """An index that a kernel loads: the symbol ``name``, how it is made, and the extent that it indexes."""

    name: str
    value: Value
    extent: int = 0


@dataclass(frozen=True, slots=True)
class AccessSite:
    """One statement that touches memory: ``width`` elements from ``address`` on, at each point of ``around``.

    ``dims`` are those thread dimensions along which only the first thread acts. ``note`` is the operation that the
    kernel's text names before the statement, empty where loads of several are gathered first.
    """

    kind: Kind
    buffer: Buffer
    address: Expr
    width: int
    around: tuple[EnclosingLoop, ...]
    conditions: tuple[Expr, ...]
    dims: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Work:
    """One statement that computes ``count`` values of type ``dtype`` at each point of ``around``."""

    op: str
    dtype: DType
    count: int
    around: tuple[EnclosingLoop, ...]
    conditions: tuple[Expr, ...]
    dims: tuple[str, ...]


@dataclass(slots=True)
class KernelSites:
    """All of one kernel: ``data`` are its loaded indices by symbol, ``exchanges`` what threads along some dimensions
    combine of their values, ``stores`` what it writes into arrays of integers, or combines with what is there."""

    sites: list[AccessSite] = field(default_factory=list[AccessSite])
    works: list[Work] = field(default_factory=list[Work])
    exchanges: list[tuple[Work, tuple[str, ...]]] = field(default_factory=list[tuple[Work, tuple[str, ...]]])
    data: dict[str, Data] = field(default_factory=dict[str, Data])
    stores: list[tuple[AccessSite, tuple[Value, ...], AccumulateOp | None]] = field(
        default_factory=list[tuple[AccessSite, tuple[Value, ...], "AccumulateOp | None"]]
    )


@dataclass(frozen=True, slots=True)
class _Context:
    """The loops and conditions around a statement."""

    around: tuple[EnclosingLoop, ...] = ()
    conditions: tuple[Expr, ...] = ()
    dims: tuple[str, ...] = ()


def sites_of(kernel: Kernel, sizes: Mapping[str, int]) -> KernelSites:
    """The sites of a kernel, with numbers for the symbols of extents and strides.

    Raises `IdGraphError` where a loop has no bound.
    """
    return _SiteCollector(kernel, sizes).found


class _SiteCollector:
    def __init__(self, kernel: Kernel, sizes: Mapping[str, int]) -> None:
        self.kernel = kernel
        self.found = KernelSites()
        numbers = {s: as_expr(sizes[s.removesuffix(PRIME)]) for s in kernel.scalars}
        self.known: dict[str, Expr] = {**{n: as_expr(v) for n, v in sizes.items()}, **numbers}
        self.values: dict[str, Value] = {}
        self.starts: dict[str, tuple[_Context, Constant]] = {}
        self.parts = Counter(str(s.acc) for s in walk(kernel.body) if isinstance(s, Accumulate))
        self.note = ""
        self.loops = 0
        self.body(kernel.body, _Context())

    def at(self, e: Expr) -> Expr:
        """``e`` in loop variables and loaded indices."""
        return e.substitute(self.known) if any(n in self.known for n in e.names) else e

    def body(self, statements: tuple[Stmt, ...], place: _Context) -> None:
        for s in statements:
            self.statement(s, place)

    def statement(self, s: Stmt, place: _Context) -> None:
        match s:
            case Loop():
                self.loop(s, place)
            case If(condition, body):
                held = self.at(condition)
                self.body(body, place if held is TRUE else replace(place, conditions=(*place.conditions, held)))
            case StraightLineBlock(body):
                self.body(body, place)
            case SingleThread(dims, body):
                self.body(body, replace(place, dims=(*place.dims, *dims)))
            case BoundsCheck():
                self.checked(s)
                self.body(s.body, place)
            case Comment(text):
                self.note = text
            case Let(name, value):
                self.let(name, value)
            case Load() | VectorLoad() | Store() | VectorStore() | VectorAdd() | Accumulate():
                self.memory(s, place)
            case Compute() | Half2Op() | BlockReduce() | Select() | ExtractHalf():
                self.compute(s, place)
            case InitAccumulator(name, dtype, value):
                acc = str(Local(name, dtype))
                self.starts[acc] = place, Constant(value)
                self.values[acc] = Constant(value)
            case RegisterArray() | Alloc() | Barrier():
                pass
            case _:
                assert_never(s)

    def loop(self, s: Loop, place: _Context) -> None:
        extent = simplify(self.at(s.extent))
        conditions = place.conditions
        if extent.is_const:
            count = int(extent)
        else:
            bound = interval(extent)[1]
            if bound is None:
                raise IdGraphError(
                    f"{self.kernel.name}: loop {s.var} runs to {s.extent}, which has no bound",
                    hint="give the symbol a number: ig.cost(program, symbols={...})",
                )
            count = bound
            conditions = (*conditions, symbol(s.var, 0, None) < extent)
        self.loops += 1
        own = EnclosingLoop(s.var, max(0, count), s.parallel, self.loops)
        hidden = self.known.pop(s.var, None)
        self.body(s.body, replace(place, around=(*place.around, own), conditions=conditions))
        if hidden is not None:
            self.known[s.var] = hidden

    def checked(self, s: BoundsCheck) -> None:
        loaded = self.known.get(s.value)
        data = self.found.data.get(loaded.name) if loaded is not None and loaded.op == "sym" else None
        extent = self.at(s.site.extent)
        if data is not None and extent.is_const:
            data.extent = max(data.extent, int(extent))

    def let(self, name: str, value: Operand) -> None:
        match value:
            case Index(e):
                self.known[name] = self.at(e)
            case Constant(v):
                self.known[name] = as_expr(int(v))
            case Local():
                own = f"{name}@{len(self.found.data)}"
                self.found.data[own] = Data(own, self.value(value))
                self.known[name] = symbol(own)
            case _:
                assert_never(value)

    def value(self, o: Operand) -> Value:
        match o:
            case Constant():
                return o
            case Index(e):
                return Index(self.at(e))
            case Local(name, _, at):
                exact = self.values.get(str(o))
                if exact is not None:
                    return exact
                parts = [v for key, v in self.values.items() if key.partition("[")[0] == name]
                steps = () if at is None else (Index(self.at(at)),)
                return ComputedValue(None, (*parts[:1], *steps))
            case _:
                assert_never(o)

    def memory(self, s: Load | VectorLoad | Store | VectorStore | VectorAdd | Accumulate, place: _Context) -> None:
        match s:
            case Load(local, buffer, address, guard):
                held = self.at(guard)
                inside = place if held is TRUE else replace(place, conditions=(*place.conditions, held))
                self.site("read", buffer, address, 1, inside)
                self.values[str(local)] = MemoryValue(buffer, self.at(address))
            case VectorLoad(made, buffer, address, pairs):
                each = 2 if pairs else 1
                self.site("read", buffer, address, len(made) * each, place)
                for k, local in enumerate(made):
                    self.values[str(local)] = MemoryValue(buffer, self.at(address) + k * each)
            case Store(buffer, address, value):
                self.site("write", buffer, address, 1, place)
                self.stored((value,))
            case VectorStore(buffer, address, values, pairs):
                self.site("write", buffer, address, len(values) * (2 if pairs else 1), place)
                self.stored(values)
            case VectorAdd(buffer, address, values):
                self.site("atomic", buffer, address, len(values), place)
                self.stored(values, "sum")
            case Accumulate(acc, op, value, buffer, address, shared, running):
                self.work(op, acc.dtype, 1, place)
                if running is not None:
                    whole = self.parts[str(acc)] == 1 and buffer is None
                    one = self.reduced(acc, op, value, place) if whole else None
                    made = replace(one, running=True) if one is not None else None
                    self.values[str(running)] = made or ComputedValue(None, (self.value(value),))
                if buffer is not None and address is not None:
                    for kind in ("atomic",) if shared else ("read", "write"):
                        self.site(kind, buffer, address, 1, place)
                    self.stored((value,), op)
                else:
                    found = self.reduced(acc, op, value, place)
                    self.values[str(acc)] = found or ComputedValue(None, (self.value(value),))
            case _:
                assert_never(s)

    def reduced(self, acc: Local, op: AccumulateOp, value: Operand, place: _Context) -> ReducedValue | None:
        """The accumulator behind the loops that lie between its first value and here."""
        if str(acc) not in self.starts:
            return None
        start, _ = self.starts[str(acc)]
        loops, conditions = place.around[len(start.around) :], place.conditions[len(start.conditions) :]
        return ReducedValue(op, acc.dtype, self.value(acc), self.value(value), loops, conditions)

    def compute(self, s: Compute | Half2Op | BlockReduce | Select | ExtractHalf, place: _Context) -> None:
        match s:
            case Compute(local, op, operands, compute):
                self.work(op, compute, 1, place)
                self.values[str(local)] = ComputedValue(op, tuple(self.value(o) for o in operands))
            case Half2Op(local, op, operands):
                if op != "pack" and not op.startswith("pick"):
                    self.work(op, local.dtype, 2, place)
                self.values[str(local)] = ComputedValue(None, tuple(self.value(o) for o in operands))
            case BlockReduce(acc, op, dims, before):
                self.work(op, acc.dtype, 1, place)
                self.found.exchanges.append((self.found.works[-1], dims))
                own = self.value(acc)
                threads = tuple(x for x in place.around if x.parallel in dims)
                if len(threads) == len(dims) and str(acc) in self.starts:
                    self.values[str(acc)] = ReducedValue(op, acc.dtype, self.starts[str(acc)][1], own, threads, ())
                if before is not None:
                    self.values[str(before)] = ComputedValue(None, (own,))
            case Select(local, cases, default):
                chosen = self.value(default)
                for condition, o in reversed(cases):
                    chosen = ComputedValue("where", (Index(self.at(condition)), self.value(o), chosen))
                self.values[str(local)] = chosen
            case ExtractHalf(local, word):
                self.values[str(local)] = ComputedValue(None, (self.value(word),))
            case _:
                assert_never(s)

    def site(self, kind: Kind, buffer: Buffer, address: Expr, width: int, place: _Context) -> None:
        self.found.sites.append(
            AccessSite(kind, buffer, self.at(address), width, place.around, place.conditions, place.dims, self.note)
        )

    def stored(self, values: tuple[Operand, ...], op: AccumulateOp | None = None) -> None:
        """Keep the integers that the last site stores, or combines with: a later kernel may index with them."""
        site = self.found.sites[-1]
        if site.buffer.place in ("global", "output") and not is_float(site.buffer.dtype):
            self.found.stores.append((site, tuple(self.value(v) for v in values), op))

    def work(self, op: str, dtype: DType, count: int, place: _Context) -> None:
        self.found.works.append(Work(op, dtype, count, place.around, place.conditions, place.dims))
