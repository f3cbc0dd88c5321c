"""Whole grids at once for NumPy: each loop is an axis of a grid, conditions are masks, locals are arrays over the grid.

Every statement runs over all points of the loops around it before the next one does; the result is the same because
values private to a loop are arrays over that loop here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from idgraph.arith import TRUE, Expr, as_expr, maximum, simplify, to_source
from idgraph.codegen.printers.index32 import Inside
from idgraph.codegen.runtime_lib.formulas import formula, inner_text, literal, operand_text
from idgraph.errors import EmitError
from idgraph.kernel.ir import (
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
    InitAccumulator,
    Kernel,
    KernelModule,
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
    quote,
)
from idgraph.lower.statements import Accumulator, identity

_CHOOSE = "choose({0}, {1}, {2})"
AXES = 32  # of an array of NumPy, in all versions


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where a statement stands: the loop variables around it and the name of the mask, if any."""

    indent: int
    rank: int
    loops: tuple[str, ...] = ()
    mask: str = "None"

    @property
    def grid(self) -> str:
        return f"shape({', '.join(self.loops)})" if self.loops else f"({'1, ' * self.rank})"


def vector_kernel(kernel: Kernel, plan: KernelModule, checked: bool) -> str:
    """A function of `Memory` buffers and integers."""
    printer = _Vector(plan, checked, _rank(kernel.body))
    if printer.rank > AXES:
        raise EmitError(
            f"{printer.rank} loops lie within each other, and arrays of NumPy have up to {AXES} axes",
            hint="merge axes of the tensor, or take the target 'python' or 'cpu'",
        )
    params = [b.name for b in kernel.buffers] + [plan.names[s] for s in kernel.scalars]
    head = [f"def {kernel.name}({', '.join(params)}):"]
    head += [f"    # {b.name}: {b.dtype}[{b.size}] {b.place} {quote(b.title)}" for b in kernel.buffers]
    printer.block(kernel.body, _Scope(1, printer.rank))
    return "\n".join([*head, *(printer.lines or ["    pass"])]) + "\n"


def _rank(body: Sequence[Stmt]) -> int:
    return max((isinstance(s, Loop) + _rank(bodies(s)) for s in body), default=0)


def _largest_grid(body: Sequence[Stmt]) -> Expr:
    """The largest number of points of the loops inside ``body``."""
    sizes = [
        s.extent * _largest_grid(s.body) if isinstance(s, Loop) else _largest_grid(bodies(s)) for s in body if bodies(s)
    ]
    return simplify(maximum(1, *sizes)) if sizes else as_expr(1)


@dataclass(slots=True)
class _Vector:
    plan: KernelModule
    checked: bool
    rank: int
    lines: list[str] = field(default_factory=list[str])
    masks: int = 0
    sites: int = 0
    inside: Inside = field(default_factory=Inside)  # what unchecked accesses depend on
    # The loops around each accumulator's declaration.
    depths: dict[str, int] = field(default_factory=dict[str, int])

    def put(self, at: _Scope, text: str) -> None:
        self.lines.append("    " * at.indent + text)

    def index(self, e: Expr) -> str:
        return to_source(e, "numpy", self.plan.names)

    def block(self, body: Sequence[Stmt], at: _Scope) -> None:
        before = len(self.lines)
        for s in body:
            self.statement(s, at)
        if all(line.lstrip().startswith("#") for line in self.lines[before:]):
            self.put(at, "pass")

    def statement(self, s: Stmt, at: _Scope) -> None:
        match s:
            case Loop():
                self.loop(s, at)
            case If(condition, body):
                self.block_where(condition, body, at)
            case SingleThread(_, body) | StraightLineBlock(body):
                self.block(body, at)
            case BoundsCheck():
                self.check(s, at)
            case Comment(text):
                self.put(at, f"# {text}")
            case InitAccumulator(name, dtype, value):
                self.depths[name] = len(at.loops)
                self.put(at, f"{name} = {literal(value, dtype)}")
            case Alloc(b):
                grid = f", {at.grid}" if at.loops else ""
                self.put(at, f"{b.name} = private({self.index(b.size)}, {quote(b.dtype)}, {quote(b.title)}{grid})")
            case Barrier(why):
                self.put(at, f"# barrier: {why}")
            case Let(name, value):
                self.inside.let(s)
                self.put(at, f"{name} = {operand_text(value, 'int64', self.index)}")
            case Load(local, buffer, address, guard):
                held = self.inside.of(address)
                if held is not TRUE:
                    text = f"{buffer.name}.load({self.address(buffer, address)}, both({at.mask}, {self.index(held)}))"
                    self.put(at, f"{local.name} = {_CHOOSE.format(self.index(held), text, literal(0, local.dtype))}")
                    return
                mask = at.mask if guard is TRUE else f"both({at.mask}, {self.index(guard)})"
                self.put(at, f"{local.name} = {buffer.name}.load({self.address(buffer, address)}, {mask})")
            case Compute():
                self.put(at, f"{s.local.name} = {formula(s, self.index, _CHOOSE)}")
            case Select():
                self.choose(s, at)
            case Accumulate():
                self.accumulate(s, at)
            case BlockReduce():
                raise AssertionError("whole grids have no threads")
            case VectorLoad() | VectorStore() | VectorAdd() | Half2Op() | ExtractHalf() | RegisterArray():
                raise AssertionError("whole grids have no lanes")
            case Store(buffer, address, value):
                dtype = value.dtype if isinstance(value, Local) else buffer.dtype
                text = operand_text(value, dtype, self.index)
                self.put(at, f"{buffer.name}.store({self.address(buffer, address)}, {text}, {at.mask}, {at.grid})")
            case _:
                assert_never(s)

    def address(self, b: Buffer, e: Expr) -> str:
        text = self.index(e)
        return f"{b.name}.at + {text}" if b.place in ("private", "shared") else text

    def loop(self, s: Loop, at: _Scope) -> None:
        inside = replace(at, loops=(*at.loops, s.var))
        note = f"  # {s.note}" if s.note else ""
        if at.loops:
            self.put(at, f"{s.var} = axis({self.index(s.extent)}, {len(at.loops)}, {self.rank}){note}")
        else:
            points = self.index(_largest_grid(s.body))
            self.put(at, f"for {s.var} in chunks({self.index(s.extent)}, {points}, {self.rank}):{note}")
            inside = replace(inside, indent=at.indent + 1)
        self.block(s.body, inside)

    def masked(self, condition: str, at: _Scope) -> _Scope:
        self.masks += 1
        name = f"m{self.masks}"
        self.put(at, f"{name} = {condition if at.mask == 'None' else f'both({at.mask}, {condition})'}")
        return replace(at, mask=name)

    def block_where(self, condition: Expr, body: Sequence[Stmt], at: _Scope) -> None:
        self.block(body, self.masked(self.index(condition), at))

    def check(self, s: BoundsCheck, at: _Scope) -> None:
        self.sites += 1
        if self.checked:
            loops = ", ".join(s.site.loops)
            wanted = self.index(s.condition)
            self.put(at, f"require({wanted}, {at.mask}, {self.sites}, {s.value}, ({loops}{',' if loops else ''}))")
        elif s.always:
            self.block_where(s.condition, s.body, at)
            return
        else:
            with self.inside.of_check(s):
                self.block(s.body, at)
            return
        self.block(s.body, at)

    def choose(self, s: Select, at: _Scope) -> None:
        to = s.local.dtype
        text = operand_text(s.default, to, self.index, exact=True)
        for condition, value in reversed(s.cases):
            text = _CHOOSE.format(self.index(condition), operand_text(value, to, self.index, exact=True), text)
        self.put(at, f"{s.local.name} = {text}")

    def accumulate(self, s: Accumulate, at: _Scope) -> None:
        value = inner_text(s.value, s.acc.dtype, self.index)
        if s.running is not None:
            self.scan(s, value, at)
            return
        if s.buffer is not None and s.address is not None:
            place = self.address(s.buffer, s.address)
            self.put(at, f"{s.buffer.name}.accumulate({quote(s.op)}, {place}, {value}, {at.mask}, {at.grid})")
            return
        start = literal(identity(Accumulator(s.op, s.acc.dtype)), s.acc.dtype)
        depth = self.depths[s.acc.name]
        self.put(
            at, f"{s.acc.name} = combined({quote(s.op)}, {start}, {s.acc.name}, {value}, {at.mask}, {at.grid}, {depth})"
        )

    def scan(self, s: Accumulate, value: str, at: _Scope) -> None:
        """All running values of a grid at once, from those that the chunk before left."""
        if s.running is None:
            raise AssertionError("a scan gives its running value")
        start = literal(identity(Accumulator(s.op, s.acc.dtype)), s.acc.dtype)
        axes = tuple(at.loops.index(v) for v in s.along)
        before = s.acc.name
        place = self.address(s.buffer, s.address) if s.buffer is not None and s.address is not None else ""
        if s.buffer is not None:
            self.put(at, f"{s.acc.name} = {s.buffer.name}.load({place}, None)")
        given = f"{quote(s.op)}, {start}, {before}, {value}, {at.mask}, {at.grid}, {axes}"
        self.put(at, f"{s.acc.name}, {s.running.name} = scanned({given})")
        if s.buffer is not None:
            self.put(at, f"{s.buffer.name}.store({place}, {s.acc.name}, None, {at.grid})")
