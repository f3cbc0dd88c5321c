"""Well-formedness of a kernel: names, types, barriers, addresses inside their arrays, no race between barriers.

Addresses are proved inside by the rules of `arith`, else enumerated at every step of their loops, within a budget.
Races are looked for in the first two blocks and the last. Addresses that neither way decides are reported as undecided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.arith import TRUE, Expr, is_true, not_, simplify
from idgraph.ir import DType, is_float, item_size
from idgraph.ir.device import GPU
from idgraph.ir.dtypes import compute_dtype, is_short_float
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.def_use import defs, index_exprs, operands_of, updates
from idgraph.kernel.printer import statement_text
from idgraph.kernel.statements import (
    Access,
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Buffer,
    Compute,
    Half2Op,
    If,
    InitAccumulator,
    Let,
    Load,
    Local,
    Loop,
    RegisterArray,
    Select,
    SingleThread,
    Stmt,
    Store,
    StraightLineBlock,
    VectorAdd,
    VectorLoad,
    VectorStore,
    bodies,
    elements_of,
    walk,
)
from idgraph.kernel.verifier_rules import check_arrays, check_threads, check_words, malformed_error
from idgraph.loading import LOADING

LEAST_BESIDE = 4  # elements of a realigned access


@dataclass(frozen=True, slots=True)
class Verified:
    """How the addresses of a well formed kernel were decided: by proof, by enumeration, or not at all, with the reason.

    ``races`` says whether all accesses to shared and written memory were compared.
    """

    proved: int
    enumerated: int
    undecided: tuple[str, ...]
    races: bool


@dataclass(slots=True)
class Structure:
    """One walk over the statements in their order: what is set where, of which type, and which threads reach a barrier.

    ``set_under`` has, for each variable, the conditions under which statements before have set it.
    """

    name: str
    launch: Mapping[str, tuple[Expr, ...]]
    scope: set[str]
    buffers: dict[str, Buffer]
    set_under: dict[str, list[frozenset[object]]] = field(default_factory=dict[str, list[frozenset[object]]])
    types: dict[str, set[DType]] = field(default_factory=dict[str, set[DType]])
    facts: tuple[Expr, ...] = ()
    under: frozenset[Expr] = frozenset()  # the conditions that are tested around here
    singles: frozenset[object] = frozenset()
    loops: frozenset[object] = frozenset()  # the loops around that one thread runs, of several steps
    accumulators: set[str] = field(default_factory=set[str])
    threads: frozenset[str] = frozenset()
    apart: str = ""  # why not every thread of the block comes here
    steps: frozenset[str] = frozenset()  # the variables of the loops around
    undecided: list[str] = field(default_factory=list[str])

    def body(self, body: Sequence[Stmt]) -> None:
        """All statements of one level."""
        for s in body:
            self.reads(s)
            if isinstance(s, (Barrier, BlockReduce)) and self.apart:
                raise malformed_error(self.name, "not every thread of the block comes to a barrier", s, self.apart)
            if isinstance(s, Access):
                self.access(s)
            if isinstance(s, Accumulate) and s.running is not None:
                self.running(s)
            if isinstance(s, Alloc):
                self.buffers[s.buffer.name] = s.buffer
            if isinstance(s, Let):
                self.scope.add(s.name)
            for x in defs(s):
                self.defined(s, x)
            if isinstance(s, RegisterArray):
                self.types.setdefault(s.name, set()).add(s.dtype)
            self.inside(s)

    def defined(self, s: Stmt, x: Local) -> None:
        """A value has one definition; elements of arrays are memory, and may be set again."""
        if x.at is None and x.name in self.set_under:
            raise malformed_error(self.name, f"{x.name} has a definition before this one", s)
        if isinstance(s, InitAccumulator):
            self.accumulators.add(x.name)
        around = self.under | self.singles | self.loops
        if x.at is not None:  # another element, under another condition, in each step of a loop over lanes
            around = self.singles | {c for c in self.under if not c.names & x.at.names}
        self.set_under.setdefault(x.name, []).append(around)
        self.types.setdefault(x.name, set()).add(x.dtype)

    def inside(self, s: Stmt) -> None:
        """The statements inside one, under what holds there."""
        facts, singles, threads, apart, scope = self.facts, self.singles, self.threads, self.apart, set(self.scope)
        under, loops, steps = self.under, self.loops, self.steps
        match s:
            case Loop(var, extent, way):
                on_threads = way.startswith("threadIdx")
                self.scope.add(var)
                self.steps = steps | {var}
                self.threads = threads | {var} if on_threads else threads
                if "Idx" not in way and extent != 1:
                    self.loops = loops | {id(s)}
                if on_threads and any(simplify(e - extent) != 0 for e in self.launch.get(way, ())):
                    self.partly(s, f"loop {var} leaves threads of {way} idle")
                elif not on_threads:
                    self.apart = apart or self.some(extent, f"loop {var} ends at {extent}")
            case If(condition) | BoundsCheck(condition):
                self.facts = (*facts, *condition.conjuncts)
                if isinstance(s, If) or s.always:  # another check is not a test: its body always runs
                    self.under = under | frozenset(condition.conjuncts)
                    self.apart = apart or self.some(condition, f"the condition {condition}")
            case StraightLineBlock():
                pass
            case SingleThread(dims):
                self.singles = singles | {dims}
                self.apart = apart or f"the first thread of {', '.join(dims)} only"
            case _:
                return
        self.body(bodies(s))
        self.facts, self.singles, self.threads, self.apart, self.under = facts, singles, threads, apart, under
        self.loops, self.steps = loops, steps
        if isinstance(s, Loop):
            self.scope = scope

    def running(self, s: Accumulate) -> None:
        """A running value goes through the steps of the loops that it names, one after the other."""
        lost = sorted(set(s.along) - self.steps)
        if lost:
            raise malformed_error(self.name, f"{s.acc.name} runs along {lost[0]}, and no loop around it does", s)

    def partly(self, s: Loop, why: str) -> None:
        """Barriers inside such a loop are printed outside of its test; an exchange of values is not."""
        if any(isinstance(x, BlockReduce) for x in walk(s.body)):
            self.apart = self.apart or why

    def some(self, e: Expr, why: str) -> str:
        """``why`` where the value of ``e`` may differ between the threads of a block."""
        return why if any(n in self.threads or n.startswith("ld") for n in e.names) else ""

    def reads(self, s: Stmt) -> None:
        """Every variable that a statement reads was set before it, and has the type that the statement takes."""
        for e in index_exprs(s):
            free = sorted(n for n in e.names if n not in self.scope and not _is_zero(e, n))
            if free:
                raise malformed_error(self.name, f"{free[0]} has no value where it is used", s)
        if isinstance(s, Select):
            self.choice(s)
        for x in (*operands_of(s), *updates(s)) if not isinstance(s, Select) else ():
            if isinstance(x, Local):
                self.local(s, x)
        for x in updates(s):
            if x.at is None and x.name not in self.accumulators:
                raise malformed_error(self.name, f"{x.name} is changed, and is not an accumulator", s)
        if isinstance(s, Compute):
            self.operation(s)
        words = s.operands[s.op == "where" :] if isinstance(s, Half2Op) and s.op != "pack" else ()
        if not all(is_short_float(o.dtype) for o in words):
            raise malformed_error(self.name, "words hold 16-bit floats", s)

    def choice(self, s: Select) -> None:
        """An operand is read where its case holds, and none before it."""
        facts = self.facts
        before: tuple[Expr, ...] = ()
        for condition, x in (*s.cases, (TRUE, s.default)):
            if isinstance(x, Local):
                self.facts = (*facts, *before, *condition.conjuncts)
                self.local(s, x)
            before = (*before, *simplify(not_(condition)).conjuncts)
        self.facts = facts

    def operation(self, s: Compute) -> None:
        """The table of operations has it, with as many operands, for the type that it computes in."""
        row = OPERATIONS.get(s.op)
        if row is None or row.kind == "reduction":
            raise malformed_error(self.name, f"{s.op} is not an operation", s)
        if len(s.operands) != row.operands:
            raise malformed_error(self.name, f"{s.op} has {len(s.operands)} operands, not {row.operands}", s)
        text = row.truth or (row.floats if is_float(s.compute) or row.kind == "key" else row.integers)
        if text is None and s.op not in ("cast", "where"):
            raise malformed_error(self.name, f"{s.op} has no meaning for {s.compute}", s)

    def local(self, s: Stmt, x: Local) -> None:
        """A variable is set on the way to where it is read."""
        under = self.set_under.get(x.name)
        if under is None:
            raise malformed_error(self.name, f"{x.name} is read before any statement sets it", s)
        if not any(self.loops >= {c for c in conditions if isinstance(c, int)} for conditions in under):
            raise malformed_error(self.name, f"{x.name} is set in a loop, and read outside of it", s)
        here = frozenset(self.facts) | self.singles | self.loops
        if not any(conditions <= here or self.implied(conditions) for conditions in under):
            self.reached(s, x, under)
        if x.dtype not in self.types[x.name]:
            raise malformed_error(
                self.name, f"{x.name} is {' or '.join(sorted(self.types[x.name]))}, read as {x.dtype}", s
            )

    def implied(self, conditions: frozenset[object]) -> bool:
        known = frozenset(self.facts) | self.singles | self.loops
        return all(c in known or (isinstance(c, Expr) and is_true(c, self.facts)) for c in conditions)

    def reached(self, s: Stmt, x: Local, under: Sequence[frozenset[object]]) -> None:
        """One of the statements that set ``x`` runs at each point where it is read, as far as points tell."""
        known = self.singles | self.loops
        cases = [
            [c for c in conditions if isinstance(c, Expr)]
            for conditions in under
            if known >= {c for c in conditions if not isinstance(c, Expr)}
        ]
        with LOADING:
            from idgraph.kernel.verifier_rules import implied_at_points  # noqa: PLC0415 - NumPy

        found = implied_at_points(self.facts, cases) if cases else False
        if found is None:
            self.undecided.append(f"whether {x.name} is set where it is read: {statement_text(s)}")
        elif found is not True:
            where = f"; not for {', '.join(f'{n} = {v}' for n, v in found.items() if n)}" if found else ""
            raise malformed_error(
                self.name, f"{x.name} is set under a condition that does not hold where it is read{where}", s
            )

    def access(self, s: Access) -> None:
        """The buffer exists, its type is that of the values, and a vector has a size that one access may have."""
        b = s.buffer
        if b is None:
            return
        if self.buffers.get(b.name) != b:
            raise malformed_error(self.name, f"{b.name} is not an array of this kernel", s)
        if isinstance(s, (VectorLoad, VectorStore, VectorAdd)):
            width = elements_of(s)
            if width & (width - 1) or width * item_size(b.dtype) > GPU.vector_bytes:
                raise malformed_error(self.name, f"{width} elements of {b.dtype} are not one access", s)
            if isinstance(s, VectorLoad) and s.realigned:
                self.check_realigned(s, b, width)
        values = s.values if isinstance(s, VectorStore) else (s.value,) if isinstance(s, Store) else ()
        for v in values:
            if (
                isinstance(v, Local)
                and v.dtype != b.dtype
                and not compute_dtype(v.dtype) == compute_dtype(b.dtype) == "float32"
            ):
                raise malformed_error(self.name, f"{b.name} holds {b.dtype}, {v.dtype} is stored", s)
        if (
            isinstance(s, Load)
            and s.local.dtype != b.dtype
            and not (b.dtype == "float32" and is_short_float(s.local.dtype))
        ):
            raise malformed_error(self.name, f"{b.name} holds {b.dtype}, loaded as {s.local.dtype}", s)

    def check_realigned(self, s: Stmt, b: Buffer, width: int) -> None:
        """Elements that begin anywhere come out of vectors of whole words, counted from an aligned first element."""
        if width < LEAST_BESIDE:
            raise malformed_error(self.name, f"{width} elements are not realigned: {LEAST_BESIDE} at least", s)
        if b.alignment % (width * item_size(b.dtype)):
            raise malformed_error(
                self.name, f"{b.name} begins at a multiple of {b.alignment} bytes: its vectors do not", s
            )


def _is_zero(e: Expr, name: str) -> bool:
    """True of the variable of a loop of one step that was left out."""
    return all(s.symbol_bounds[:2] == (0, 0) for s in e.symbols if s.name == name)


def inside(s: Access, facts: Sequence[Expr]) -> bool:
    """Whether the rules prove that an access stays inside its array."""
    b, address = s.buffer, s.address
    if b is None or address is None:
        return True
    known = (*facts, *s.guard.conjuncts) if isinstance(s, Load) else facts
    low, high = address >= 0, address + (elements_of(s) - 1) < b.size
    return is_true(low, known) and is_true(high, known)


def verify_kernel(
    name: str,
    buffers: Sequence[Buffer],
    scalars: Sequence[str],
    body: Sequence[Stmt],
    launch: Mapping[str, tuple[Expr, ...]],
    symbols: Mapping[str, int] | None,
) -> Verified:
    """See `idgraph.kernel.Kernel.verify`."""
    unknown = check_structure(name, buffers, scalars, body, launch)
    open_: list[Access] = []
    proved = _prove(body, (), open_)
    with LOADING:
        from idgraph.kernel.interpreter import KernelInterpreter  # noqa: PLC0415 - NumPy

    known = dict(symbols or {})
    whole = KernelInterpreter(name, known, blocks=False, only=frozenset(map(id, open_)))
    if open_:
        whole.run(body)
    shared = KernelInterpreter(name, known, blocks=True, launch=launch)
    shared.run(body)
    shared.check_races()
    undecided = (*whole.undecided, *unknown)
    return Verified(proved, len(open_) - len(whole.undecided), undecided, not shared.undecided)


def check_structure(
    name: str,
    buffers: Sequence[Buffer],
    scalars: Sequence[str],
    body: Sequence[Stmt],
    launch: Mapping[str, tuple[Expr, ...]],
) -> list[str]:
    """`idgraph.kernel.Kernel.verify` without addresses and races: what is set where it is read, of which type, which
    threads exchange values. Takes a few percent of the time that the kernel took to make; what it does not decide.
    """
    sizes = {n for b in buffers for n in b.size.names} | {n for es in launch.values() for e in es for n in e.names}
    structure = Structure(name, launch, set(scalars) | sizes, {b.name: b for b in buffers})
    structure.body(body)
    for s in walk(tuple(body)) if scalars else ():
        if isinstance(s, Loop) and s.var in scalars:
            raise malformed_error(name, f"{s.var} is a number that the kernel is called with, and a loop's variable", s)
    check_threads(name, launch, body)
    check_words(name, body)
    check_arrays(name, buffers, body)
    return structure.undecided


def _prove(body: Sequence[Stmt], facts: tuple[Expr, ...], open_: list[Access]) -> int:
    """How many accesses are proved to stay inside; the others are added to ``open_``."""
    proved = 0
    for s in body:
        if isinstance(s, Access) and s.buffer is not None:
            held = inside(s, facts)
            proved += held
            open_ += () if held else (s,)
        more = s.condition.conjuncts if isinstance(s, (If, BoundsCheck)) else ()
        proved += _prove(bodies(s), (*facts, *more), open_)
    return proved
