"""Source of the address check of one operation in one kernel: the kernel's own loops, its accesses as comparisons.

The text is made of the kernel's index expressions, numbers and names of our own; no user name enters it. Memory of
blocks and threads is simulated with element numbers: a write leaves the number of its element, a read looks for the one
that the operation wants there. Threads run one after the other, part by part between barriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from idgraph.arith import FALSE, TRUE, Expr, as_expr, symbol, to_source
from idgraph.codegen.printers.nesting import PYTHON_BLOCKS
from idgraph.index.allocation import is_thread
from idgraph.ir import SCATTERS, Fusion
from idgraph.kernel.ir import (
    Accumulate,
    BoundsCheck,
    Buffer,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Provenance,
    SingleThread,
    Stmt,
    Store,
    StraightLineBlock,
    VectorAdd,
    VectorLoad,
    VectorStore,
    bodies,
    walk,
)
from idgraph.kernel.statements import LANE, Access, elements_of
from idgraph.validate.check_source import row_major_source
from idgraph.validate.oracle.views import Array
from idgraph.validate.reference_tables import Expected

OUTSIDE, ELEMENT, LOOSE, RANGE, SLOT, ALIGNED, MEMORY = range(2, 9)
TEXT: Final = {
    OUTSIDE: "serves a point outside the operation's",
    ELEMENT: "touches the wrong element",
    LOOSE: "reads where the operation reads nothing",
    RANGE: "touches memory outside its array",
    SLOT: "reads an array that holds another element there",
    ALIGNED: "is a vector access at an address that is not a multiple of its width",
    MEMORY: "touches the memory of another tensor",
}
POINT, LOOPS, OUT = 5, 20, 64  # where `out` has the logical point and the loop variables; its length


NOTE: Final = f"""def note(out, code, number, address, want, point, loops):
    out[0], out[1], out[2], out[3] = code, number, address, want
    for k in range(len(point)):
        out[{POINT} + k] = point[k]
    for k in range(len(loops)):
        out[{LOOPS} + k] = loops[k]

"""


class UntracedError(Exception):
    """The check cannot follow the kernel; the reason."""


@dataclass(frozen=True, slots=True)
class CheckPoint:
    """One access for one purpose, as a fault's number names it: its statement, and the loops around it."""

    access: Access
    purpose: Provenance
    loops: tuple[str, ...]


@dataclass(slots=True)
class KernelCheckSource:
    """``lines`` of ``def check(out, arrays)``; ``arrays`` by parameter name; ``places`` by number.

    ``seen`` names the marks of (operand) that are in ``arrays``: how often each point was served.
    """

    kernel: Kernel
    name: str
    expected: Expected
    symbols: Mapping[str, int]
    dialect: str
    parallel: bool = True  # blocks and threads run at a time, each with memory of its own
    part: tuple[int, int] | None = None  # of the steps of the outermost loop, in 1024ths
    lines: list[str] = field(default_factory=list[str])
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    places: list[CheckPoint] = field(default_factory=list[CheckPoint])
    seen: dict[int | None, str] = field(default_factory=dict["int | None", str])
    slots: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    common: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])  # dimensions around an array
    scope: dict[str, str] = field(default_factory=dict[str, str])  # variables here: kernel name -> source name
    threads: dict[str, str] = field(default_factory=dict[str, str])  # thread dimension -> variable here
    nested: int = 0  # loops around

    def build(self) -> str:
        """The source."""
        self.find_slots()
        resets = self.resets()
        for b in self.slots.values():
            self.arrays[f"slot_{b.name}"] = np.full(max(1, self.size(b) * self.copies(b)), -1, np.int64)
        self.level(self.kernel.body, self.statements_to_keep(), 1, resets)
        head = f"def check(out, {', '.join(self.arrays)}):"
        return "\n".join([NOTE, head, "    n = 0", *self.lines, "    out[4] = n"])

    def find_slots(self) -> None:
        """The arrays of blocks and threads that accesses of this operation touch."""
        accesses = [s for s in walk(self.kernel.body) if isinstance(s, Access) and self.mine(s)]
        self.slots = {b.name: b for s in accesses if (b := s.buffer) is not None and memory_of(b) is None}

    # what is part of it -------------------------------------------------------------------------------------------

    def mine(self, s: Access) -> bool:
        return any(x.tensor == self.name for x in s.serves)

    def looked_at(self, s: Access) -> list[Provenance]:
        """The purposes of an access that this check looks at."""
        found = [x for x in s.serves if x.tensor == self.name]
        if not found and s.buffer is not None and s.buffer.name in self.slots:
            found = [x for x in s.serves if x.operand is None]
        return found

    def statements_to_keep(self) -> set[int]:
        """The statements to keep, by identity: accesses, the variables that they need, and what is around."""
        accesses = [s for s in walk(self.kernel.body) if isinstance(s, Access) and self.looked_at(s)]
        wanted = {id(s) for s in accesses}
        names = {n for s in accesses for e in self.exprs(s) for n in e.names}
        while True:
            around = set(self.around(self.kernel.body, wanted))
            for s in walk(self.kernel.body):
                if id(s) in around:
                    names |= {n for e in ((s.condition,) if isinstance(s, (If, BoundsCheck)) else ()) for n in e.names}
                    names |= s.extent.names if isinstance(s, Loop) else frozenset()
            more = [s for s in walk(self.kernel.body) if isinstance(s, Let) and s.name in names and id(s) not in wanted]
            if not more:
                return wanted | around
            wanted |= {id(s) for s in more}
            names |= {n for s in more for e in self.exprs(s) for n in e.names}

    def exprs(self, s: Access | Let) -> Iterator[Expr]:
        purposes = s.serves if isinstance(s, Let) else self.looked_at(s)
        for x in purposes:
            yield from (*x.point, x.when, *(e for _, e in x.over))
        match s:
            case Let(_, Index(value)):
                yield value
            case Load():
                yield from (s.address, s.guard)
            case Store() | VectorLoad() | VectorStore() | VectorAdd():
                yield s.address
            case Accumulate() if s.address is not None:
                yield s.address
            case _:
                pass

    def around(self, body: Sequence[Stmt], wanted: set[int]) -> Iterator[int]:
        for s in body:
            inner = list(self.around(bodies(s), wanted))
            if inner or any(id(x) in wanted for x in bodies(s)):
                yield id(s)
            yield from inner

    def resets(self) -> dict[int, list[str]]:
        """Arrays that each step of a loop begins with empty, by the identity of the loop; 0: emptied once."""
        made: dict[int, list[str]] = {}
        for name in self.slots:
            chains: list[list[Loop]] = []
            loop_chains(self.kernel.body, name, [], chains)
            shared = list[Loop]()
            for column in zip(*chains, strict=False):
                if any(x is not column[0] for x in column):
                    break
                shared.append(column[0])
            self.common[name] = frozenset(s.parallel for s in shared)
            made.setdefault(id(shared[-1]) if shared else 0, []).append(name)
        return made

    # memory of blocks and threads ---------------------------------------------------------------------------------

    def size(self, b: Buffer) -> int:
        return int(self.bound(b.size))

    def launched(self, dim: str) -> int:
        return max((int(self.bound(e)) for e in self.kernel.launch.get(dim, ())), default=1)

    def dims(self, b: Buffer) -> list[str]:
        """The dimensions of the launch along which each point has an array of its own."""
        own = "" if b.place == "private" else "blockIdx" if b.place == "shared" else "none"
        if not self.parallel:
            return []
        return [d for d in sorted(self.kernel.launch) if d.startswith(own) and d not in self.common[b.name]]

    def copies(self, b: Buffer) -> int:
        made = 1
        for d in self.dims(b):
            made *= self.launched(d)
        return made

    def others(self, b: Buffer) -> list[str]:
        """The dimensions that no loop here runs along: statements here run at each point of them."""
        return [d for d in self.dims(b) if d not in self.threads and self.launched(d) > 1]

    def slot(self, b: Buffer, address: str, others: Mapping[str, str]) -> str:
        """The element of the array that this thread has."""
        place = "0"
        for d in self.dims(b):
            place = f"({place}) * {self.launched(d)} + {self.threads.get(d) or others.get(d, '0')}"
        return f"slot_{b.name}[({place}) * {self.size(b)} + {address}]"

    # text ---------------------------------------------------------------------------------------------------------

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def bound(self, e: Expr) -> Expr:
        """``e`` with the numbers of symbols."""
        values: dict[Expr, int] = {}
        for s in e.symbols:
            if s.name in self.scope:
                continue
            low, high = s.symbol_bounds[:2]
            if s.name.rstrip("'") in self.symbols:
                values[s] = self.symbols[s.name.rstrip("'")]
            elif low == high == 0:
                values[s] = 0  # of a loop of one step that was left out
            else:
                raise UntracedError(f"{s.name} has no value where it is used")
        try:
            return e.substitute(values) if values else e
        except ZeroDivisionError:  # by the extent of an axis without elements: no step comes here
            return FALSE if e.is_condition else as_expr(-1)

    def text(self, e: Expr) -> str:
        return to_source(self.bound(e), "python" if self.dialect == "python" else "numba", self.scope)

    def level(
        self, body: Sequence[Stmt], kept: set[int], depth: int, resets: Mapping[int, list[str]], of: int = 0
    ) -> None:
        before = len(self.lines)
        for name in resets.get(of, ()):
            self.put(depth, f"slot_{name}[:] = -1")
        for s in body:
            if id(s) in kept:
                self.statement(s, kept, depth, resets)
        if len(self.lines) == before:
            self.put(depth, "pass")

    def statement(self, s: Stmt, kept: set[int], depth: int, resets: Mapping[int, list[str]]) -> None:
        match s:
            case Loop():
                self.loop(s, kept, depth, resets)
            case If(condition) | BoundsCheck(condition):
                self.put(depth, f"if {self.text(condition)}:")
                self.level(s.body, kept, depth + 1, resets, -1)
            case SingleThread() | StraightLineBlock():
                self.level(s.body, kept, depth, resets, -1)
            case Let():
                self.let(s, depth)
            case _ if isinstance(s, Access):
                self.access(s, depth)
            case _:
                pass

    def loop(self, s: Loop, kept: set[int], depth: int, resets: Mapping[int, list[str]]) -> None:
        name, extent = source_name(s.var), self.text(s.extent)
        steps = extent
        if depth == 1 and self.part is not None:
            steps = f"{extent} * {self.part[0]} // 1024, ({extent} * {self.part[1]} + 1023) // 1024"
        once = steps == "1"
        self.put(depth, f"{name} = 0" if once else f"for {name} in range({steps}):")
        self.nested += not once
        if self.nested > PYTHON_BLOCKS:
            raise UntracedError(f"more than {PYTHON_BLOCKS} loops lie within each other")
        scope, threads = self.scope, self.threads
        self.scope = {**scope, s.var: name}
        if is_thread(s.parallel) or s.parallel.startswith("blockIdx"):
            self.threads = {**threads, s.parallel: name}
        self.level(s.body, kept, depth + (not once), resets, id(s))
        self.scope, self.threads = scope, threads
        self.nested -= not once

    def let(self, s: Let, depth: int) -> None:
        """A loaded index, by the oracle: the value of the operand at the point that it serves."""
        name = source_name(s.name)
        if isinstance(s.value, Index):
            self.put(depth, f"{name} = {self.text(s.value.value)}")
            self.scope = {**self.scope, s.name: name}
            return
        if not s.serves:
            raise UntracedError(f"{s.name} is an index that serves no operation")
        self.put(depth, f"{name} = 0")
        scope = self.scope
        for x in s.serves[:1]:
            if x.operand is None:
                raise UntracedError(f"{s.name} is not an operand")
            read = self.expected.read(x.tensor, x.operand)
            values = np.ascontiguousarray(self.expected.values[read.tensor.name]).reshape(-1)
            table, of = (
                self.array(f"want_{x.tensor}_{x.operand}", read.wanted),
                self.array(f"value_{x.tensor}_{x.operand}", values),
            )
            depth = self.each(x, depth)  # of one load for many points, any has the value: its load is checked at all
            inside = [f"0 <= {self.text(c)} < {n}" for c, n in zip(x.point, read.wanted.shape, strict=True)]
            self.put(depth, f"if {' and '.join(inside) or 'True'}:")
            at = ", ".join(map(self.text, x.point)) or "0"
            self.put(depth + 1, f"w = {table}[{at}]")
            self.put(depth + 1, "if w >= 0:")
            self.put(depth + 2, f"{name} = {of}[w]")
            if x.over:
                self.put(depth + 2, "break")
        self.scope = {**scope, s.name: name}

    def each(self, x: Provenance, depth: int) -> int:
        """Loops over the points that one access serves, and its test, begun; the depth inside them."""
        for var, extent in x.over:
            name = source_name(var)
            self.put(depth, f"for {name} in range({self.text(extent)}):")
            self.scope = {**self.scope, var: name}
            depth += 1
        if x.when is not TRUE:
            self.put(depth, f"if {self.text(x.when)}:")
            depth += 1
        return depth

    def array(self, name: str, table: Array) -> str:
        self.arrays[name] = table.reshape(1) if table.ndim == 0 else table
        return name

    # accesses -----------------------------------------------------------------------------------------------------

    def access(self, s: Access, depth: int) -> None:
        b, address = s.buffer, s.address
        if b is None or address is None:
            return
        if isinstance(s, Load) and s.guard is not TRUE:
            self.put(depth, f"if {self.text(s.guard)}:")
            depth += 1
        width = elements_of(s)
        scope = self.scope
        if width > 1:
            if not (isinstance(s, VectorLoad) and s.realigned):
                self.put(depth, f"first = {self.text(address)}")
                self.number(s, self.looked_at(s)[0])
                self.fail(depth, f"first % {width} != 0", ALIGNED, "first", "-1", ())
            lane = source_name(LANE)
            self.put(depth, f"for {lane} in range({width}):")
            self.scope = {**scope, LANE: lane}
            address = address + symbol(LANE, 0, width - 1)
            depth += 1
        for x in self.looked_at(s):
            self.purpose(s, x, b, address, depth)
        self.scope = scope

    def number(self, s: Access, x: Provenance) -> None:
        self.places.append(CheckPoint(s, x, tuple(self.scope)))

    def fail(self, depth: int, when: str, code: int, address: str, want: str, point: Sequence[str]) -> None:
        if when == "False":
            return
        self.put(depth, f"if {when}:")
        around = list(self.scope.values())[: OUT - LOOPS - 1]
        told = [f"({', '.join([*names, '0'])},)" for names in (point[: LOOPS - POINT - 1], around)]
        self.put(depth + 1, f"note(out, {code}, {len(self.places) - 1}, {address}, {want}, {told[0]}, {told[1]})")
        self.put(depth + 1, "return")

    def purpose(self, s: Access, x: Provenance, b: Buffer, address: Expr, depth: int) -> None:
        """One access, for one purpose, compared with what the oracle says."""
        self.number(s, x)
        scope = self.scope
        depth = self.each(x, depth)
        point = [f"p{n}" for n in range(len(x.point))]
        for name, e in zip(point, x.point, strict=True):
            self.put(depth, f"{name} = {self.text(e)}")
        self.put(depth, f"address = {self.text(address)}")
        self.put(depth, "n += 1")
        size = self.size(b) if b.name in self.slots else None
        if size is not None:
            self.fail(depth, f"address < 0 or address >= {size}", RANGE, "address", "-1", point)
        if x.operand is None:
            self.write(s, x, b, point, depth)
        else:
            self.read(x, x.operand, b, point, depth)
        self.scope = scope

    def write(self, s: Access, x: Provenance, b: Buffer, point: list[str], depth: int) -> None:
        """A result, or a value that a thread keeps for itself."""
        if self.expected.expr(x.tensor) is None:  # a row that a pass keeps: the number of its column
            self.put(depth, f"w = {point[0]}")
        else:
            expected = self.expected.write(x.tensor)
            if memory_of(b) is None:  # a running value may be begun for points behind the end, which nobody reads
                inside = [f"0 <= {p} < {n}" for p, n in zip(point, expected.shape, strict=True)]
                number = row_major_source(point, expected.shape)
                self.put(depth, f"w = ({number}) if {' and '.join(inside) or 'True'} else -2")
            else:
                self.outside(depth, point, expected.shape)
                self.put(depth, f"w = {row_major_source(point, expected.shape)}")
                self.memory(depth, b, expected.tensor.name)
                self.mark(depth, None, point, expected.shape)
                if expected.wanted is not None:
                    self.put(depth, f"w = {self.array(f'to_{x.tensor}', expected.wanted)}[{', '.join(point) or '0'}]")
                self.element(depth, f"at_{x.tensor}", expected.addresses, point)
                return
        if isinstance(s, (Load, VectorLoad)):
            self.fail(depth, f"{self.slot(b, 'address', {})} != w", SLOT, "address", "w", point)
            return
        others: dict[str, str] = {}
        for d in self.others(b):
            others[d] = f"z_{d.replace('.', '_')}"
            self.put(depth, f"for {others[d]} in range({self.launched(d)}):")
            depth += 1
        self.put(depth, f"{self.slot(b, 'address', others)} = w")

    def read(self, x: Provenance, k: int, b: Buffer, point: list[str], depth: int) -> None:
        expected = self.expected.read(x.tensor, k)
        shape = expected.wanted.shape
        self.outside(depth, point, shape)
        at = ", ".join(point) or "0"
        self.put(depth, f"w = {self.array(f'want_{x.tensor}_{k}', expected.wanted)}[{at}]")
        if expected.allowed is not None:
            self.put(depth, "if w < 0:")
            self.put(depth + 1, f"w = {self.array(f'free_{x.tensor}_{k}', expected.allowed)}[{at}]")
        self.fail(depth, "w < 0", LOOSE, "address", "-1", point)
        self.mark(depth, k, point, shape)
        if memory_of(b) is not None:
            self.memory(depth, b, expected.tensor.name)
            self.element(depth, f"at_{x.tensor}_{k}", expected.addresses, point)
        else:
            self.fail(depth, f"{self.slot(b, 'address', {})} != w", SLOT, "address", "w", point)

    def outside(self, depth: int, point: Sequence[str], shape: Sequence[int]) -> None:
        if len(point) != len(shape):
            raise UntracedError(f"a point of {len(point)} coordinates for {len(shape)} axes")
        tests = [f"{p} < 0 or {p} >= {n}" for p, n in zip(point, shape, strict=True)]
        self.fail(depth, " or ".join(tests) or "False", OUTSIDE, "address", "-1", point)

    def memory(self, depth: int, b: Buffer, title: str) -> None:
        """The buffer is the tensor's, or that of the scatter that updates it in place."""
        if b.title not in in_place(self.expected.fusion, title):
            self.fail(depth, "True", MEMORY, "address", "w", ())

    def element(self, depth: int, name: str, addresses: Array | None, point: list[str]) -> None:
        want = "w" if addresses is None else f"{self.array(name, addresses)}[w]"
        self.fail(depth, f"address != {want}", ELEMENT, "address", "w", point)

    def mark(self, depth: int, operand: int | None, point: Sequence[str], shape: tuple[int, ...]) -> None:
        """Count that a point was served; the count saturates at 200."""
        name = "wrote" if operand is None else f"seen_{operand}"
        if name not in self.arrays:
            self.arrays[name] = np.zeros(shape or (1,), np.uint8)
            self.seen[operand] = name
        at = f"{name}[{', '.join(point) or '0'}]"
        self.put(depth, f"if {at} < 200:")
        self.put(depth + 1, f"{at} += 1")


def loop_chains(body: Sequence[Stmt], name: str, chain: list[Loop], found: list[list[Loop]]) -> None:
    """The loops around each access of an array."""
    for s in body:
        if isinstance(s, Access) and s.buffer is not None and s.buffer.name == name:
            found.append(chain)
        loop_chains(bodies(s), name, [*chain, s] if isinstance(s, Loop) else chain, found)


def source_name(name: str) -> str:
    """A variable of the check for one of the kernel."""
    return "v_" + name.replace("'", "_p").replace(".", "_d")


def memory_of(b: Buffer) -> int | None:
    """The number of the tensor that has a buffer of its own in memory; None for arrays of blocks and threads."""
    return int(b.name[3:]) if b.name.startswith("buf") and b.name[3:].isdigit() else None


def in_place(f: Fusion, title: str) -> frozenset[str]:
    """Tensors that may share one memory with the tensor called ``title``: along scatters that update in place."""
    found = {title}
    while True:
        pairs = [(e.inputs[0].name, e.output.name) for e in f.exprs if e.op in SCATTERS]
        more = {t for pair in pairs if found.intersection(pair) for t in pair}
        if more <= found:
            return frozenset(found)
        found |= more
