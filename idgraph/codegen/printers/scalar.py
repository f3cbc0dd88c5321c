"""Loops over scalars: plain Python, numba for the CPU, and numba.cuda, whose blocks and threads take some loops.

Long: one method for each statement of the kernel IR.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from typing import assert_never

from idgraph.arith import TRUE, Expr, as_expr, is_true, multiple_of, simplify, symbol, to_source
from idgraph.codegen.printers.index32 import (
    LIMIT,
    WARP,
    Inside,
    Narrow,
    NestedChecks,
    by_columns,
    by_shuffles,
    divided,
    divided_by,
    fits,
    is_division,
    operands_of,
    repeated,
    rows_of,
    steps_together,
    without_value,
)
from idgraph.codegen.printers.nesting import PYTHON_BLOCKS, limit_nesting
from idgraph.codegen.runtime_lib.formulas import (
    combined_text,
    enclosed,
    formula,
    inner_text,
    literal,
    local_text,
    operand_text,
    value_type,
)
from idgraph.errors import EmitError
from idgraph.index.allocation import is_thread
from idgraph.ir import DType, is_float, item_size
from idgraph.ir.device import Target
from idgraph.ir.dtypes import ELEMENT_TYPES, is_short_float
from idgraph.kernel.def_use import names
from idgraph.kernel.ir import (
    BLOCK_NUMBER,
    ZERO,
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Buffer,
    Comment,
    Compute,
    ExtractHalf,
    Half2Op,
    If,
    Index,
    InitAccumulator,
    Kernel,
    KernelModule,
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
    beyond_x,
    quote,
    shared_layout,
    single_statement,
    walk,
)
from idgraph.kernel.ir import X as BLOCKS_X
from idgraph.kernel.statements import elements_of
from idgraph.lower.statements import Accumulator, identity

_CHOOSE = "({1} if {0} else {2})"
FUNCTIONS_OF_TYPES = ("i32", "i64")  # also the names of the 33rd loop and of the 65th
BLOCKS = ("first_block", "last_block")  # the second is exclusive
EXCHANGE = "exchange_"  # and the type: the shared array of a kernel's exchanges between columns
_KINDS = {"f32": "float32", "f64": "float64", "int": "int64"}
ANY_ORDER = {"amax": "largest", "amin": "least"}  # of floats for numba on a core, of two zeros either


def scalar_kernel(kernel: Kernel, plan: KernelModule, target: Target, checked: bool) -> str:
    """A function of flat buffers and integers, one statement for each of the plan."""
    wide = target.threads and beyond_x(kernel.launch)
    threads = {s.var: s.parallel for s in walk(kernel.body) if isinstance(s, Loop) and is_thread(s.parallel)}
    short = {v for v, way in threads.items() if target.threads and not (wide and way == BLOCKS_X)}
    offsets = shared_layout(kernel.body).offsets if target.threads else {}
    lanes = frozenset(s.var for s in walk(kernel.body) if isinstance(s, Loop) and s.parallel == "unroll")
    deep = {s.var for s in walk(kernel.body) if isinstance(s, Loop) and s.var in FUNCTIONS_OF_TYPES}
    if deep:
        plan = replace(plan, names={**plan.names, **{n: f"{n}_loop" for n in deep}})
    printer = _Scalar(kernel, plan, target, checked, Narrow(plan.names, short), lanes, offsets, wide)
    params = [b.name for b in kernel.buffers] + [plan.names[s] for s in kernel.scalars]
    if target.cores and runs_parallel(kernel):
        params += BLOCKS
    if checked and target.typed:
        params.append("fault")
    head = [f"def {kernel.name}({', '.join(params)}):"]
    head += [f"    # {b.name}: {b.dtype}[{b.size}] {b.place} {quote(b.title)}" for b in kernel.buffers]
    if target.threads:
        head.append("    in_stream_order()")
    most = PYTHON_BLOCKS - target.threads  # the exchange of several values is a loop too
    body = limit_nesting(kernel.body, most, target.threads)
    if target.typed and body != tuple(kernel.body) and _conditions(body) > _conditions(tuple(kernel.body)):
        # A typed variable has its default in front of the statement that may set it: each step would set it again.
        raise EmitError(
            f"{kernel.name}: more than {most} loops lie within each other, with statements between them",
            hint="merge axes of the tensor, or emit for the target python",
        )
    printer.block(body, 1, outermost=True)
    head += [
        f"    {EXCHANGE}{kind} = cuda.shared.array({n}, np.{_KINDS[kind]})" for kind, n in printer.exchanged.items()
    ]
    return "\n".join([*head, *(printer.lines or ["    pass"])]) + "\n"


def runs_parallel(kernel: Kernel) -> bool:
    """True when one outermost loop over blocks holds all statements of a CPU kernel, and no two blocks may update one
    element."""
    loop = single_statement(kernel.body)
    shared = any(isinstance(s, Accumulate) and s.shared for s in walk(kernel.body))
    return not shared and isinstance(loop, Loop) and loop.parallel.startswith("blockIdx")


def site_numbers(kernel: Kernel) -> list[BoundsCheck]:
    """The checks of a kernel in the order of their numbers."""
    return [s for s in walk(kernel.body) if isinstance(s, BoundsCheck)]


def _conditions(body: tuple[Stmt, ...]) -> int:
    return sum(isinstance(s, If) for s in walk(body))


@dataclass(slots=True)
class _Scalar:
    kernel: Kernel
    plan: KernelModule
    target: Target
    checked: bool
    narrow: Narrow
    lanes: frozenset[str]  # variables of loops that are unrolled
    offsets: dict[str, int]  # of arrays in dynamic shared memory, in bytes
    wide: bool  # blocks are counted along x, y and z
    lines: list[str] = field(default_factory=list[str])
    exchanged: dict[str, int] = field(default_factory=dict[str, int])  # elements that exchanges of a type share
    around: int = 0  # loops around the present statement, other than those on threads
    sites: int = 0
    bound: tuple[str, ...] = ()  # variables of all loops around it; a loop elsewhere may have the same name
    numbers: Iterator[int] = field(default_factory=count)  # of names for what the text would repeat
    inside: Inside = field(default_factory=Inside)  # what unchecked accesses depend on
    usual: str | None = None  # whether the divisions so far were usual; None: each is a division
    part: tuple[int, int] | None = None  # the steps of the next loop that run, from the first up to the second

    # text ---------------------------------------------------------------------------------------------------------

    def name(self, variable: str) -> str:
        return self.plan.names.get(variable, variable)

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def index(self, e: Expr) -> str:
        if self.target.short_indices:
            text = self.narrow.wide(e)
        else:
            text = to_source(e, self.target.dialect, self.plan.names)
        return text[1:-1] if enclosed(text) else text

    def condition(self, e: Expr) -> str:
        if not self.target.short_indices:
            return self.index(e)
        text = self.narrow.text(e)
        return text[1:-1] if enclosed(text) else text

    def address(self, b: Buffer, e: Expr) -> str:
        """The place of an element of ``b``; a constant stands apart: the addressing mode adds it for free."""
        if not self.target.typed or e.is_const:
            return self.index(e)
        if self.target.short_indices and fits(b.size, LIMIT + 1):
            rest, apart = self.split(e)
            if apart is not None and fits(rest) and not rest.is_const:
                return f"{self.narrow.scaled(rest)} + u64({self.index(apart)})"
            return self.narrow.scaled(e)
        # numba counts a negative signed index from the end, which costs three instructions an access.
        return f"u64({self.index(e)})"

    def split(self, e: Expr) -> tuple[Expr, Expr | None]:
        """``e`` as (rest, the part that is constant in each lane); None for a part that may be negative or is zero."""
        terms = e.args if e.op == "add" else (e,)
        apart = [a for a in terms if a.names <= self.lanes]
        found = simplify(sum(apart, as_expr(0)))
        if found == 0 or not fits(found):
            return e, None
        return simplify(sum((a for a in terms if not a.names <= self.lanes), as_expr(0))), found

    def loaded(self, b: Buffer, address: Expr) -> str:
        return self.decoded(b, f"{b.name}[{self.address(b, address)}]")

    def decoded(self, b: Buffer, text: str) -> str:
        """The value of an element as the buffer holds it."""
        if not self.target.typed:
            return text
        if is_short_float(b.dtype):
            return f"{ELEMENT_TYPES[b.dtype].code}_load({text})"
        return f"i64({text})" if value_type(b.dtype) == "int" else text

    def encoded(self, b: Buffer, value: str) -> str:
        """A value as the buffer holds it."""
        if self.target.typed and is_short_float(b.dtype):
            return f"{ELEMENT_TYPES[b.dtype].code}_word({value})"
        return value

    def stored(self, b: Buffer, address: Expr, value: str) -> str:
        return f"{b.name}[{self.address(b, address)}] = {self.encoded(b, value)}"

    # statements ---------------------------------------------------------------------------------------------------

    def block(self, body: Sequence[Stmt], depth: int, outermost: bool = False) -> None:
        before = len(self.lines)
        if self.usual is None and self.target.shuffles and not outermost:
            for part, again in divided(body):
                (self.divide if again else self.statements)(part, depth)
        else:
            self.statements(body, depth, outermost)
        if all(line.lstrip().startswith("#") for line in self.lines[before:]):
            self.put(depth, "pass")

    def divide(self, body: Sequence[Stmt], depth: int) -> None:
        """Quotients by reciprocals; where one was not usual, all again by division."""
        steps, first = steps_together(body), body[0]
        if steps is None or not isinstance(first, Loop):
            self.divide_part(body, depth, None)
            return
        for at in range(0, int(first.extent), steps):  # a loop of them that the compiler keeps would index registers
            self.divide_part(body, depth, (at, at + steps))

    def divide_part(self, body: Sequence[Stmt], depth: int, part: tuple[int, int] | None) -> None:
        """`divide` for all steps of a loop, or a part of them."""
        self.part, self.usual = part, f"usual{next(self.numbers)}"
        self.put(depth, f"{self.usual} = True")
        self.statements(body, depth)
        self.put(depth, f"if not {self.usual}:")
        self.part, self.usual = part, ""
        self.statements([s for s in body if not isinstance(s, Comment)], depth + 1)
        self.usual = None

    def statements(self, body: Sequence[Stmt], depth: int, outermost: bool = False) -> None:
        at = 0
        for alike, some in groupby(body, _exchange):
            run = list(some)
            if alike is not None and len(run) > 1 and self.target.threads:
                self.combine_all([s for s in run if isinstance(s, BlockReduce)], depth)
                at += len(run)
                continue
            for s in run:
                at += 1
                for x in without_value(s, body[at:]) if self.target.cores and not outermost else ():
                    self.put(depth, f"{x.name} = {self.typed(0, x.dtype)}")
                self.statement(s, depth, outermost)

    def statement(self, s: Stmt, depth: int, outermost: bool) -> None:
        match s:
            case Loop():
                self.loop(s, depth, outermost)
            case If(condition, body):
                self.put(depth, f"if {self.condition(condition)}:")
                self.block(body, depth + 1)
            case SingleThread(dims, body):
                if self.target.threads:
                    self.put(depth, f"if {' and '.join(f'cuda.{d} == 0' for d in dims)}:")
                    self.block(body, depth + 1)
                else:
                    self.block(body, depth)
            case StraightLineBlock(body):
                self.block(body, depth)
            case BoundsCheck():
                self.check(s, depth)
            case Comment(text):
                self.put(depth, f"# {text}")
            case InitAccumulator():
                self.put(depth, f"{s.name} = {self.first(s)}")
            case RegisterArray() | Alloc():
                text = self.registers(s) if isinstance(s, RegisterArray) else self.array(s.buffer)
                self.put(depth, f"{s.name if isinstance(s, RegisterArray) else s.buffer.name} = {text}")
            case Barrier(why):
                self.put(depth, f"cuda.syncthreads()  # {why}" if self.target.threads else f"# barrier: {why}")
            case Let(name, value):
                self.inside.let(s)
                self.put(depth, f"{self.name(name)} = {self.int64_operand(value)}")
            case Load():
                self.load(s, depth)
            case Compute():
                self.compute(s, depth)
            case Select():
                self.choose(s, depth)
            case Accumulate():
                self.accumulate(s, depth)
            case BlockReduce():
                self.combine(s, depth)
            case Store(buffer, address, value):
                dtype = value.dtype if isinstance(value, Local) else buffer.dtype
                text = operand_text(value, dtype, self.index)
                self.put(depth, self.stored(buffer, address, text))
            case VectorLoad() if self.inside.of(s.address) is not TRUE:
                self.vector_or_zero(s, depth)
            case VectorLoad() | VectorStore() | VectorAdd():
                self.put(depth, self.vector(s))
            case Half2Op() | ExtractHalf():
                self.put(depth, self.pair(s))
            case _:
                assert_never(s)

    def compute(self, s: Compute, depth: int) -> None:
        """A value; of a division by a number whose reciprocal is known also whether it is that of the division."""
        if not self.usual or not is_division(s):
            again = self.usual is not None and is_division(s)
            text = formula(divided_by(s) if again else s, self.index, _CHOOSE)
            self.put(depth, f"{self.local(s.local)} = {text}")
            return
        given = operands_of(s, self.index)
        self.put(depth, f"{self.local(s.local)} = near_quotient({given})")
        self.put(depth, f"{self.usual} = {self.usual} & is_quotient({given})")

    def first(self, s: InitAccumulator) -> str:
        """The initial value of an accumulator."""
        if self.is_short(s.dtype):
            return f"np.int32({literal(s.value, s.dtype)})"
        return self.typed(s.value, s.dtype)

    def is_short(self, dtype: DType) -> bool:
        """True of accumulators that take 32 bits: on cores, so that a vector holds twice as many (``i32`` gives 64)."""
        return self.target.cores and dtype == "int32"

    def int64_operand(self, o: Operand) -> str:
        """An operand as an int64; computed in 32 bits where an index is proved short."""
        if isinstance(o, Index) and self.target.short_indices and fits(o.value):
            return f"i64({self.narrow.text(o.value)})"
        return operand_text(o, "int64", self.index)

    def load(self, s: Load, depth: int) -> None:
        held = self.inside.of(s.address)
        wanted = [] if held is TRUE else [f"({self.index(held)})"]  # of all 64 bits
        wanted += [] if s.guard is TRUE else [f"({self.condition(s.guard)})"]
        text = self.loaded(s.buffer, s.address)
        if wanted:
            text = _CHOOSE.format(" and ".join(wanted), text, self.typed(0, s.local.dtype))
        self.put(depth, f"{self.local(s.local)} = {text}")

    def place(self, b: Buffer, e: Expr) -> str:
        text = self.address(b, e)
        return f"u64({text})" if self.target.typed and e.is_const else text

    def local(self, x: Local) -> str:
        return local_text(x, self.index)

    def registers(self, s: RegisterArray) -> str:
        """An array of registers; a pair of 16-bit floats is a 32-bit word, in the simulator a tuple."""
        if not self.target.typed:
            return f"[None] * {s.count}"
        kind = "float32" if value_type(s.dtype) == "f32" else _np(s.dtype)
        return f"cuda.local.array({s.count}, {'word' if s.words else f'np.{kind}'})"

    def row(self, values: Sequence[Operand]) -> str:
        """The array that neighbouring values lie in, and the position of the first."""
        first = values[0]
        if not isinstance(first, Local) or first.at is None:
            raise AssertionError("a vector access moves elements of one array of registers")
        at = self.index(first.at)
        return f"{first.name}, {at[1:-1] if enclosed(at) else at}"

    def vector(self, s: VectorLoad | VectorStore | VectorAdd) -> str:
        place = f"{s.buffer.name}, {self.place(s.buffer, s.address)}"
        match s:
            case VectorLoad(made, pairs=pairs, realigned=True):
                return f"{'rwload' if pairs else 'rload'}{len(made)}({self.row(made)}, {self.anywhere(s)})"
            case VectorLoad(made, pairs=pairs):
                return f"{'wload' if pairs else 'vload'}{len(made)}({self.row(made)}, {place})"
            case VectorStore(values=values, pairs=pairs):
                return f"{'wstore' if pairs else 'vstore'}{len(values)}({place}, {self.row(values)})"
            case VectorAdd(values=values):
                texts = (operand_text(v, s.buffer.dtype, self.index) for v in values)
                return f"vadd{len(values)}({place}, ({', '.join(texts)},))"

    def anywhere(self, s: VectorLoad) -> str:
        """Where elements begin that need not be aligned, and where the last vector begins that ends inside of the
        buffer, the greatest number where all do: in 32 bits where those have the number of every element."""
        width = elements_of(s)
        whole = multiple_of(s.buffer.size, width)
        last = simplify(s.buffer.size - width)
        if self.target.short_indices and fits(s.buffer.size):
            end = f"u32({0xFFFFFFFF})" if whole else self.narrow.text(last)
            return f"{s.buffer.name}, {self.narrow.text(s.address)}, {end}"
        end = "0xffffffffffffffff" if whole else f"u64({self.index(last)})"
        return f"{s.buffer.name}, {self.place(s.buffer, s.address)}, {end}"

    def vector_or_zero(self, s: VectorLoad, depth: int) -> None:
        """A vector access where a loaded index may lead it outside: zeros then."""
        if not s.realigned:
            name, given = self.vector(s)[:-1].split("(", 1)
            self.put(depth, f"{name}_where({given}, {self.index(self.inside.of(s.address))})")
            return
        self.put(depth, f"if {self.index(self.inside.of(s.address))}:")
        self.put(depth + 1, self.vector(s))
        array, first = self.row(s.locals).split(", ", 1)
        zero = "no_pair" if s.pairs else self.typed(0, s.locals[0].dtype)
        self.put(depth, "else:")
        for n in range(len(s.locals)):
            at = first if n == 0 else f"({first}) + {n}"
            self.put(depth + 1, f"{array}[{at}] = {zero}")

    def pair(self, s: Half2Op | ExtractHalf) -> str:
        kind, to = ELEMENT_TYPES[s.local.dtype].code, self.local(s.local)
        if isinstance(s, ExtractHalf):
            return f"{to} = {'high' if s.high else 'low'}_{kind}({self.local(s.word)})"
        call = f"pair_{s.op}" if s.op == "where" or s.op.startswith("pick") else f"pair_{s.op}_{kind}"
        return f"{to} = {call}({', '.join(map(self.local, s.operands))})"

    def loop(self, s: Loop, depth: int, outermost: bool) -> None:
        note = f"  # {s.note}" if s.note else ""
        extent, var = self.index(s.extent), self.name(s.var)
        if self.target.threads and is_thread(s.parallel):
            wide = self.wide and s.parallel == BLOCKS_X
            first = "" if s.first == ZERO else f" - {self.narrow.text(s.first)}"
            value = BLOCK_NUMBER if wide else f"u32(cuda.{s.parallel})"
            # Below the first block the difference wraps to a number that no extent reaches.
            self.put(depth, f"{var} = {f'u32({value}{first})' if first and not wide else value + first}{note}")
            self.bound = (*self.bound, s.var)
            below = " and 0 <= " + var if wide and first else ""
            if self.exact(s) and not wide:
                self.named(s.body, depth)
            elif any(isinstance(x, Barrier) for x in walk(s.body)):  # all threads meet there: the test goes inside
                inside = symbol(s.var, None if below else 0, None)
                within = (inside < s.extent) & (inside >= 0) if below else inside < s.extent
                self.named(tested(s.body, within), depth)
            elif wide:
                self.put(depth, f"if {var} < {extent}{below}:")
                self.named(s.body, depth + 1)
            else:
                self.put(depth, f"if {var} < {f'u32({extent})' if fits(s.extent) else extent}:")
                self.named(s.body, depth + 1)
            self.bound = self.bound[:-1]
        else:
            spread = outermost and self.target.cores and runs_parallel(self.kernel)
            # A part of the blocks, on one core; each core has its own.
            hidden = s.parallel == "rolled" and self.target.cores
            if s.stop is not None:
                extent = f"min({extent}, {self.index(s.stop)})"
            points = ", ".join(BLOCKS) if spread else f"count({extent})" if hidden and s.stop is None else extent
            if self.part is not None:
                points, self.part = f"{self.part[0]}, {self.part[1]}", None
            note = f"  # of {extent}, a part on each core{f'; {s.note}' if s.note else ''}" if spread else note
            self.put(depth, f"for {var} in range({points}):{note}")
            self.around += 1
            self.bound = (*self.bound, s.var)
            (self.named if self.target.threads else self.block)(s.body, depth + 1)
            self.bound = self.bound[:-1]
            self.around -= 1

    def named(self, body: Sequence[Stmt], depth: int) -> None:
        """Statements of one thread, or of a loop in it; repeated expressions of loops around get names."""
        if any(isinstance(s, Loop) and is_thread(s.parallel) for s in walk(tuple(body))):
            self.block(body, depth)
            return
        before, sites, plain = len(self.lines), self.sites, self.narrow
        self.narrow = plain.named({})
        self.block(body, depth)
        # A loop inside may bind the variable of one around it again: names are made of the others.
        own = {s.var for s in walk(tuple(body)) if isinstance(s, Loop)}
        found = repeated(self.narrow.asked, {*self.bound} - own, plain.fixed)
        if found:
            del self.lines[before:]
            self.sites = sites
            taken = {n for s in walk(self.kernel.body) for n in names(s)} | {*plain.names.values()}
            known: dict[Expr, str] = {}
            for e in found:
                name = next(n for k in self.numbers if (n := f"n{k}") not in taken)
                self.put(depth, f"{name} = {plain.named(known).text(e)}")
                known[e] = name
            self.narrow = plain.named(known)
            self.block(body, depth)
            plain.asked += found
        plain.asked += self.narrow.asked
        self.narrow = plain

    def exact(self, s: Loop) -> bool:
        """True when as many threads run as the loop has points."""
        extents = self.kernel.launch[s.parallel]
        return all(simplify(e - s.extent) == 0 for e in extents) and is_true(s.extent >= 1)

    def check_rows(self, rows: NestedChecks, depth: int) -> None:
        """One test of all indices, and loads that may be left out.

        No access is under the test: the compiler keeps all of them under way together.
        """
        if rows.early:
            self.block(rows.early, depth)
        conditions = [self.index(s.condition) for s in rows.checks]
        self.put(depth, f"if not ({' and '.join(f'({c})' for c in conditions)}):")
        for n, s in enumerate(rows.checks):
            self.sites += 1
            self.put(depth + 1, f"{'elif' if n else 'if'} not ({conditions[n]}):")
            loops = [self.index(x) for x in s.point] or [self.name(v) for v in s.site.loops]
            self.put(depth + 2, f"if cuda.atomic.compare_and_swap(fault, 0, {self.sites}) == 0:")
            for k, text in enumerate([s.value, *loops], 1):
                self.put(depth + 3, f"fault[{k}] = {text}")
        with ExitStack() as stack:
            for s in rows.checks:
                stack.enter_context(self.inside.of_check(s))
            self.block(rows.body, depth)

    def check(self, s: BoundsCheck, depth: int) -> None:
        rows = rows_of(s) if self.checked and self.target.shuffles else None
        if rows is not None:
            self.check_rows(rows, depth)
            return
        self.sites += 1
        number = self.sites
        condition = self.index(s.condition)
        if not self.checked and s.always:
            self.put(depth, f"if {condition}:")
            self.block(s.body, depth + 1)
            return
        if not self.checked:
            with self.inside.of_check(s):
                self.block(s.body, depth)
            return
        loops = [self.index(x) for x in s.point] or [self.name(v) for v in s.site.loops]
        if not self.target.typed:
            self.put(depth, f"if not ({condition}):")
            self.put(depth + 1, f"out_of_range({', '.join([str(number), s.value, *loops])})")
            self.block(s.body, depth)
            return
        self.put(depth, f"if {condition}:")
        self.block(s.body, depth + 1)
        first = "cuda.atomic.compare_and_swap(fault, 0, %d) == 0" if self.target.threads else "fault[0] == 0"
        self.put(depth, f"elif {first % number if '%' in first else first}:")
        for k, text in enumerate([str(number), s.value, *loops]):
            if k or not self.target.threads:
                self.put(depth + 1, f"fault[{k}] = {text}")

    def choose(self, s: Select, depth: int) -> None:
        to = s.local.dtype
        text = operand_text(s.default, to, self.index, exact=True)
        for condition, value in reversed(s.cases):
            chosen = operand_text(value, to, self.index, exact=True)
            text = _CHOOSE.format(self.condition(condition), chosen, text)
        self.put(depth, f"{self.local(s.local)} = {text[1:-1] if enclosed(text) else text}")

    def accumulate(self, s: Accumulate, depth: int) -> None:
        value = inner_text(s.value, s.acc.dtype, self.index)
        if s.shared and self.target.threads and s.buffer is not None and s.address is not None:
            step = {"sum": "add", "amax": "max"}[s.op]
            kind = {"float32": "f32", "float64": "f64", "int32": "np.int32", "int64": "i64"}[s.buffer.dtype]
            self.put(
                depth, f"cuda.atomic.{step}({s.buffer.name}, {self.address(s.buffer, s.address)}, {kind}({value}))"
            )
            return
        before = s.acc.name
        if s.buffer is not None and s.address is not None:
            before = self.loaded(s.buffer, s.address)
        text = combined_text(s.op, before, value, s.acc.dtype)
        if self.target.cores and s.op in ANY_ORDER and is_float(s.acc.dtype):
            text = f"{ANY_ORDER[s.op]}({before}, {value})"
        if s.acc.dtype in ("int64", "int32"):
            kind = "np.int32" if self.is_short(s.acc.dtype) else f"i{s.acc.dtype[3:]}"
            text = f"{kind}({text})"
        if s.buffer is not None and s.address is not None:
            self.put(depth, self.stored(s.buffer, s.address, text))
        else:
            self.put(depth, f"{s.acc.name} = {text}")
        if s.running is not None:
            now = self.loaded(s.buffer, s.address) if s.buffer is not None and s.address is not None else s.acc.name
            self.put(depth, f"{s.running.name} = {now}")

    def combine_all(self, run: Sequence[BlockReduce], depth: int) -> None:
        """Exchanges of one kind as a loop: its body is compiled once."""
        name = f"all{next(self.numbers)}"
        kind = _KINDS["int" if value_type(run[0].acc.dtype) == "bool" else value_type(run[0].acc.dtype)]
        self.put(depth, f"{name} = cuda.local.array({len(run)}, np.{kind})")
        for n, s in enumerate(run):
            self.put(depth, f"{name}[{n}] = {s.acc.name}")
        self.put(depth, f"for q in range({len(run)}):")
        self.around += 1
        self.combine(replace(run[0], acc=replace(run[0].acc, name=f"{name}[q]")), depth + 1)
        self.around -= 1
        truth = " != 0" if value_type(run[0].acc.dtype) == "bool" else ""
        for n, s in enumerate(run):
            self.put(depth, f"{s.acc.name} = {name}[{n}]{truth}")

    def combine(self, s: BlockReduce, depth: int) -> None:
        """The threads of a block exchange their values; other targets run the same loops one after the other."""
        if not self.target.threads:
            return
        sizes = {d: self.threads(d) for d in (f"threadIdx.{a}" for a in "xyz")}
        count, block = math.prod(sizes[d] for d in s.dims), math.prod(sizes.values())
        # any and all are the maximum and the minimum of integers.
        truth = value_type(s.acc.dtype) == "bool"
        op = {"any": "amax", "all": "amin"}.get(s.op, s.op)
        kind, value = ("int", f"i64({s.acc.name})") if truth else (value_type(s.acc.dtype), s.acc.name)
        if s.before is not None:
            self.put(depth, f"{s.before.name}, {s.acc.name} = {self.handed_on(s, f'{op}_{kind}', value, sizes)}")
            return
        if s.dims == ("threadIdx.x",) and self.target.shuffles and by_shuffles(count, block):
            text = f"block_{op}_{kind}({value}, {count}, {self.around > 0})"
        elif by_columns(s.dims, sizes):
            self.exchanged[kind] = max(block // WARP * sizes["threadIdx.x"], self.exchanged.get(kind, 1))
            text = f"columns_{op}_{kind}({value}, {EXCHANGE}{kind}, {sizes['threadIdx.x']}, {count})"
        else:
            others = tuple(d for d in sizes if d not in s.dims)
            text = (
                f"tree_{op}_{kind}({value}, {_thread_number(s.dims, sizes)}, {_thread_number(others, sizes)}, {count})"
            )
        self.put(depth, f"{s.acc.name} = {text}{' != 0' if truth else ''}")

    def handed_on(self, s: BlockReduce, name: str, value: str, sizes: Mapping[str, int]) -> str:
        """The exclusive scan along ``dims``, and the total of all threads."""
        count, block = (math.prod(sizes[d] for d in dims) for dims in (s.dims, sizes))
        given = f"{value}, {self.typed(identity(Accumulator(s.op, s.acc.dtype)), s.acc.dtype)}"
        tile = block == WARP * count and count <= WARP and count & (count - 1) == 0
        if self.target.shuffles and s.dims == ("threadIdx.x",) and by_shuffles(count, block):
            return f"scan_{name}({given}, {count})"
        if self.target.shuffles and s.dims == ("threadIdx.y",) and tile and sizes["threadIdx.z"] == 1:
            return f"scan_columns_{name}({given}, {count})"
        others = tuple(d for d in sizes if d not in s.dims)
        return f"scan_tree_{name}({given}, {_thread_number(s.dims, sizes)}, {_thread_number(others, sizes)}, {count})"

    def threads(self, dim: str) -> int:
        """Threads of a block along ``dim``; they must be known where threads exchange values."""
        extents = self.kernel.launch.get(dim, ())
        if not all(e.is_const for e in extents):
            raise EmitError(
                f"{dim} has {', '.join(map(str, extents))} threads; those that combine values need a known number",
                hint="split the axis by a constant and put the inner part on the threads",
            )
        return max([int(e) for e in extents], default=1)

    def typed(self, value: bool | int | float, dtype: DType) -> str:
        text = literal(value, dtype)
        return f"i64({text})" if value_type(dtype) == "int" and self.target.typed else text

    def array(self, b: Buffer) -> str:
        size = self.index(b.size)
        if not self.target.typed:
            return f"private({size}, {quote(b.dtype)}, {quote(b.title)})"
        if not self.target.threads:
            return f"np.empty({size}, np.{_np(b.dtype)})"
        kind = "float16" if b.dtype == "float16" else _np(b.dtype)
        count = max(1, int(b.size))
        if b.place == "shared" and b.name in self.offsets:
            at = self.offsets[b.name] // item_size(b.dtype)
            return f"cuda.shared.array(0, dynamic_{kind}, shared_alignment)[{at} : {at + count}]"
        if b.place == "shared":
            return f"cuda.shared.array({count}, np.{kind}, shared_alignment)"
        return f"cuda.local.array({count}, np.{kind})"


def _exchange(s: Stmt) -> tuple[object, ...] | None:
    """Equal for block reductions that differ only in their variable."""
    return (s.op, s.acc.dtype, s.dims) if isinstance(s, BlockReduce) and s.before is None else None


def tested(body: Sequence[Stmt], condition: Expr) -> tuple[Stmt, ...]:
    """``body`` where ``condition`` holds, with its barriers, and the loops around them, for every thread."""
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop) and any(isinstance(x, Barrier) for x in walk(s.body)):
            made.append(replace(s, body=tested(s.body, condition)))
        else:
            made.append(s if isinstance(s, (Barrier, Alloc, Comment)) else If(condition, (s,)))
    return tuple(made)


def _thread_number(dims: Sequence[str], sizes: Mapping[str, int]) -> str:
    """The number of a thread among those along ``dims``, the first one fastest."""
    terms: list[str] = []
    step = 1
    for d in sorted(dims):
        if sizes[d] > 1:
            terms.append(f"i64(cuda.{d}){f' * {step}' if step > 1 else ''}")
        step *= sizes[d]
    return " + ".join(terms) or "0"


def _np(dtype: DType) -> str:
    return "bool_" if dtype == "bool" else f"uint{8 * item_size(dtype)}" if is_short_float(dtype) else dtype
