"""The text form of kernels, printed. `idgraph.kernel.parser` reads it back, exactly.

One line a statement, two spaces a level; a kernel of more than `SCREEN` statements has short ones side by side.
A name in an expression is the variable of the innermost loop of that name, from 0 to its extent - 1, or as a line
``where`` declares; an undeclared name is any integer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import assert_never

from idgraph.arith import TRUE, Expr, simplify, symbol
from idgraph.ir import DType
from idgraph.kernel.def_use import carried, defs, index_exprs, operands_of, updates
from idgraph.kernel.statements import (
    LANE,
    ZERO,
    Access,
    Accumulate,
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
    Let,
    Load,
    Local,
    Loop,
    Operand,
    Provenance,
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
    quote,
    walk,
)

BESIDE = " ;; "  # between two comments on one line
NEXT = "; "  # between two statements on one line
OF_NEXT = " | "  # between their comments, which stand behind the line
SCREEN = 60  # statements; a kernel of more has several on a line
WIDTH = 150  # columns of such a line, without its comment
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
ONE_LINE = (Load, Compute, Select, Store, VectorLoad, VectorStore, Half2Op, ExtractHalf)


def kernel_text(
    name: str,
    buffers: Sequence[Buffer],
    scalars: Sequence[str],
    body: Sequence[Stmt],
    launch: Mapping[str, tuple[Expr, ...]],
    passes: Sequence[str] = (),
    choices: str = "",
    rows: Sequence[str] = (),
    ruled: Sequence[tuple[str, str, str]] = (),
) -> str:
    """All lines of a kernel."""
    names = _SymbolNames(buffers, body, launch)
    out = [f"kernel {name}({', '.join(scalars)}):"]
    out += [f"  passes {', '.join(passes)}"] if passes else []
    out += [f"  choose {choices}"] if choices else []
    out += [f"  row {told}" for told in rows]
    out += [f"  rule {acc} {made}: {why}" for acc, made, why in ruled]
    is_long = sum(1 for _ in walk(tuple(body))) > SCREEN
    declared = list(names.lines())
    out += [f"  where {line}" for line in ([NEXT.join(declared)] if is_long and declared else declared)]
    out += [f"  buffer {buffer_text(b, names.expr)}" for b in buffers]
    launched = [f"{d}: {', '.join(map(names.expr, e))}" for d, e in launch.items()]
    out += [f"  launch {'; '.join(launched)}"] if launched else []
    return "\n".join([*out, *_Lines(names, WIDTH if is_long else 0).body(body, 1)])


def statement_text(s: Stmt) -> str:
    """The head of one statement, without its body."""
    return _Lines(_SymbolNames((), (s,), {}), 0).line(s)


def is_plain(s: Stmt) -> bool:
    """True of a comment that may share a line: it is not blank, and no separator stands outside of its quoted names."""
    if not isinstance(s, Comment) or not s.text or s.text != s.text.strip():
        return False
    bare = _bare(s.text)
    return '"' not in bare and not any(mark.strip() in bare for mark in (BESIDE, OF_NEXT))


def split_comments(text: str, mark: str) -> list[str]:
    """Comments that share a line, split at each ``mark`` outside of quoted names.

    >>> split_comments('"a | b" = cast("x") | "t2" = neg("a | b")', " | ")
    ['"a | b" = cast("x")', '"t2" = neg("a | b")']
    """
    made: list[str] = []
    start = 0
    for piece in _bare(text).split(mark):
        made.append(text[start : start + len(piece)])
        start += len(piece) + len(mark)
    return made


def _bare(text: str) -> str:
    """``text`` with each quoted name as a word of the same length."""
    return _QUOTED.sub(lambda m: "q" * len(m[0]), text)


def is_short(s: Loop) -> bool:
    """True of a loop of one statement without others inside it, and without a comment."""
    one = s.body[0] if len(s.body) == 1 else None
    return one is not None and not s.note and not bodies(one) and isinstance(one, ONE_LINE)


def may_share_line(s: Stmt) -> bool:
    """True of a statement that may share a line with others: short, and not an access that says what it serves."""
    if isinstance(s, Loop):
        return is_short(s) and may_share_line(s.body[0])
    return isinstance(s, (*ONE_LINE, InitAccumulator, Let, BlockReduce, Accumulate)) and not getattr(s, "serves", ())


def implied(loop: Loop) -> Expr:
    """The default variable of a loop: from 0 to the extent - 1."""
    return _counter(loop.var, loop.extent)


@lru_cache(maxsize=4096)
def _counter(name: str, extent: Expr) -> Expr:
    return symbol(name, 0, simplify(extent - 1))


def buffer_text(b: Buffer, expr: Callable[[Expr], str] = str) -> str:
    """Name, type, size, place, title, and the alignment where it is not 16 bytes."""
    aligned = "" if b.alignment == 16 else f" align {b.alignment}"
    return f"{b.name}: {b.dtype}[{expr(b.size)}] {b.place} {quote(b.title)}{aligned}"


# symbols --------------------------------------------------------------------------------------------------------------


class _SymbolNames:
    """The names of symbols; symbols that are not variables of the loops around them are listed in front."""

    def __init__(self, buffers: Sequence[Buffer], body: Sequence[Stmt], launch: Mapping[str, tuple[Expr, ...]]) -> None:
        self.scope: dict[str, Expr] = {}
        self.open: dict[Expr, None] = {}
        for e in (*(b.size for b in buffers), *(e for es in launch.values() for e in es)):
            self._learn(e)
        self._visit(body)
        loops = {s.var for s in walk(tuple(body)) if isinstance(s, Loop)}
        times = Counter(s.name for s in self.open)
        numbers = Counter[str]()
        self.aliases: dict[Expr, Expr] = {}
        for s in self.open:
            if times[s.name] > 1 or s.name in loops:
                numbers[s.name] += 1
                self.aliases[s] = symbol(f"{s.name}#{numbers[s.name]}")

    def _visit(self, body: Sequence[Stmt]) -> None:
        for s in body:
            for e in expressions(s):
                self._learn(e)
            before = self.scope
            if isinstance(s, (Load, Store, Accumulate, VectorLoad, VectorStore, VectorAdd, Let)):
                for x in s.serves:
                    self.scope = {**before, **serving(s, x)}
                    for e in (*x.point, *(e for _, e in x.over), x.when):
                        self._learn(e)
            self.scope = before
            if isinstance(s, Loop):
                self.scope = {**before, s.var: implied(s)}
            self._visit(bodies(s))
            self.scope = before

    def _learn(self, e: Expr) -> None:
        scope = self.scope
        new = [s for s in e.symbols if s not in self.open and scope.get(s.name) != s]
        for s in sorted(new, key=lambda s: s.key) if new else ():
            if s not in self.open:
                for bound in s.symbol_bounds[:2]:
                    if isinstance(bound, Expr):
                        scope, self.scope = self.scope, {}
                        self._learn(bound)
                        self.scope = scope
                self.open[s] = None

    def expr(self, e: Expr) -> str:
        """An expression under the names of this kernel."""
        if not self.aliases:
            return str(e)
        found = {s: self.aliases[s] for s in e.symbols if s in self.aliases and self.scope.get(s.name) != s}
        return str(e.substitute(found) if found else e)

    def lines(self) -> Iterator[str]:
        """``n: 1, _``: name, bounds, and the step and remainder where there are any."""
        for s in self.open:
            low, high, step, rest = s.symbol_bounds
            bounds = ["_" if b is None else self.expr(b) if isinstance(b, Expr) else str(b) for b in (low, high)]
            yield f"{self.expr(s)} in {', '.join([*bounds, *([str(step), str(rest)] if step != 1 else [])])}"


def expressions(s: Stmt) -> Iterator[Expr]:
    """All index expressions that the line of a statement shows."""
    yield from index_exprs(s)
    for x in (*defs(s), *updates(s), *operands_of(s)):
        if isinstance(x, Local) and x.at is not None:
            yield x.at


def serving(s: Access | Let, x: Provenance) -> dict[str, Expr]:
    """The variables of a purpose that are not those around its access."""
    made = {v: _counter(v, e) for v, e in x.over}
    width = 1 if isinstance(s, Let) else elements_of(s)
    return {LANE: symbol(LANE, 0, width - 1), **made} if width > 1 else made


# lines ----------------------------------------------------------------------------------------------------------------


def _leading_run(body: Sequence[Stmt]) -> Sequence[Stmt]:
    """The statements at the front that share a line: arrays of registers; comments without a mark of their own."""
    s = body[0]
    if isinstance(s, RegisterArray) or is_plain(s):
        kind = type(s)
        end = next(
            (n for n, x in enumerate(body) if type(x) is not kind or (kind is Comment and not is_plain(x))), len(body)
        )
        return body[:end]
    return body[:1]


def _comment_text(notes: Sequence[Stmt]) -> str:
    """Comments on one line."""
    return BESIDE.join(s.text for s in notes if isinstance(s, Comment))


class _Lines:
    """``types`` are the types last given to variables; a variable of another type is printed with its type.

    Short statements share lines of up to ``width`` columns; 0: each has its own.
    """

    def __init__(self, names: _SymbolNames, width: int) -> None:
        self.names = names
        self.width = width
        self.types: dict[str, DType] = {}

    def body(self, body: Sequence[Stmt], depth: int) -> Iterator[str]:
        units = list(self.units(body))
        at = 0
        while at < len(units):
            notes, alike = units[at]
            line, told = "  " * depth + self.shared_line(alike), [_comment_text(notes)]
            at += 1
            while at < len(units) and may_share_line(alike[0]) and may_share_line(units[at][1][0]):
                notes, following = units[at]
                known = dict(self.types)
                more = f"{line}{NEXT}{self.shared_line(following)}"
                if len(more) > self.width:
                    self.types = known
                    break
                line, alike = more, following
                told.append(_comment_text(notes))
                at += 1
            while told and not told[-1]:
                told.pop()
            yield f"{line}  # {OF_NEXT.join(told)}" if told else line
            s, scope = alike[0], self.names.scope
            if isinstance(s, Loop):
                self.names.scope = {**scope, s.var: implied(s)}
            if not isinstance(s, Loop) or not is_short(s):
                yield from self.body(bodies(s), depth + 1)
            self.names.scope = scope

    def units(self, body: Sequence[Stmt]) -> Iterator[tuple[Sequence[Stmt], Sequence[Stmt]]]:
        """The comments that stand behind a statement, and the statement; or arrays of registers, or only comments."""
        at = 0
        while at < len(body):
            alike = _leading_run(body[at:])
            at += len(alike)
            if is_plain(alike[0]) and at < len(body) and self.takes_note(body[at]):
                yield alike, body[at : at + 1]
                at += 1
            else:
                yield (), alike

    def takes_note(self, s: Stmt) -> bool:
        """True of a statement behind whose line the comment in front of it stands."""
        long = isinstance(s, (InitAccumulator, Let, BlockReduce, Accumulate)) or (
            isinstance(s, Loop) and may_share_line(s)
        )
        return isinstance(s, ONE_LINE) or (self.width > 0 and long)

    def shared_line(self, alike: Sequence[Stmt]) -> str:
        """The line of statements that share one, and the only statement of a short loop."""
        s = alike[0]
        if isinstance(s, Comment) and is_plain(s):
            return f"# {_comment_text(alike)}"
        if isinstance(s, RegisterArray):
            return f"registers {', '.join(self.line(x).partition(' ')[2] for x in alike)}"
        if not (isinstance(s, Loop) and is_short(s)):
            return self.line(s)
        text, scope = self.line(s), self.names.scope
        self.names.scope = {**scope, s.var: implied(s)}
        text = f"{text} {self.line(s.body[0])}"
        self.names.scope = scope
        return text

    def local(self, x: Local) -> str:
        """A variable that is read."""
        how = "" if self.types.get(x.name) == x.dtype else f":{x.dtype}"
        return f"{x.name}{'' if x.at is None else f'[{self.names.expr(x.at)}]'}{how}"

    def definition(self, x: Local) -> str:
        """A variable that is set: ``t0: float32``, in a long kernel without the type that it has already."""
        known = self.width > 0 and self.types.get(x.name) == x.dtype
        self.types[x.name] = x.dtype
        return f"{x.name}{'' if x.at is None else f'[{self.names.expr(x.at)}]'}{'' if known else f': {x.dtype}'}"

    def operand(self, o: Operand) -> str:
        match o:
            case Local():
                return self.local(o)
            case Constant(value):
                return repr(value)
            case Index(value):
                return f"{{{self.names.expr(value)}}}"
            case _:
                assert_never(o)

    def operands(self, os: Sequence[Operand]) -> str:
        return ", ".join(map(self.operand, os))

    def lanes(self, os: Sequence[Operand], show: Callable[[Local], str]) -> str:
        """Neighbouring elements of one array as ``t[4; 8]``: from element 4 on, 8 of them; others one by one."""
        first = os[0]
        if isinstance(first, Local) and first.at is not None:
            row = [Local(first.name, first.dtype, first.at + n) for n in range(len(os))]
            if row == list(os):
                text = show(first)
                at = self.names.expr(first.at)
                return text.replace(f"[{at}]", f"[{at}; {len(os)}]", 1)
        return f"({', '.join(show(o) if isinstance(o, Local) else self.operand(o) for o in os)})"

    def serves(self, s: Access | Let) -> str:
        return f"  @ {'; '.join(self.purpose(s, x) for x in s.serves)}" if s.serves else ""

    def purpose(self, s: Access | Let, x: Provenance) -> str:
        expr, scope = self.names.expr, self.names.scope
        over = [f", for {v} < {expr(e)}" for v, e in x.over]
        self.names.scope = {**scope, **serving(s, x)}
        point = ", ".join(map(expr, x.point))
        when = "" if x.when is TRUE else f", if {expr(x.when)}"
        self.names.scope = scope
        return f"{x.tensor}{'' if x.operand is None else f'.{x.operand}'}({point}){''.join(over)}{when}"

    def line(self, s: Stmt) -> str:
        """The head of one statement, without its body."""
        expr = self.names.expr
        match s:
            case Loop(var, extent, parallel, _, note, first, column, stop):
                how = "" if parallel == "serial" else f", {parallel}"
                start = "" if first == ZERO else f", from {expr(first)}"
                axis = "" if column is None else f", column {expr(column.extent)} of {column.loops}"
                handed_on = "".join(f", carries {name}" for name in carried(s))
                end = "" if stop is None else f", stop {expr(stop)}"
                return f"for {var} < {expr(extent)}{how}{start}{axis}{end}{handed_on}:{'  # ' + note if note else ''}"
            case If(condition):
                return f"if {expr(condition)}:"
            case StraightLineBlock():
                return "lanes:"
            case SingleThread(dims):
                return f"single {', '.join(dims)}:"
            case BoundsCheck():
                return self.check(s)
            case Comment(text):
                return f"# {text}" if is_plain(s) else f"note {quote(text)}"
            case InitAccumulator(name, dtype, value):
                return f"acc {self.definition(Local(name, dtype))} = {value!r}"
            case RegisterArray(name, dtype, number, words):
                self.types[name] = dtype
                return f"registers {name}: {dtype}{'x2' if words else ''}[{number}]"
            case Alloc(buffer):
                return f"alloc {buffer_text(buffer, expr)}"
            case Barrier(why):
                return f"barrier  # {why}"
            case Let(name, value):
                return f"let {name} = {self.operand(value)}{self.serves(s)}"
            case BlockReduce(acc, op, dims, before):
                first = "" if before is None else f", {self.definition(before)} before"
                return f"{self.local(acc)} <- {op} over {', '.join(dims)}{first}"
            case Compute(_, op, operands, compute):
                given = self.operands(operands)
                return (
                    f"{self.definition(s.local)} = {op}({given}){'' if compute == s.local.dtype else f' in {compute}'}"
                )
            case Select(_, cases, default):
                chain = "".join(f"{expr(c)} ? {self.operand(o)}, " for c, o in cases)
                last = self.operand(default)
                return f"{self.definition(s.local)} = choose({chain}{last})"
            case Half2Op(_, op, operands):
                given = self.operands(operands)
                return f"{self.definition(s.local)} = pair.{op}({given})"
            case ExtractHalf(_, word, high):
                given = self.operand(word)
                return f"{self.definition(s.local)} = half.{'high' if high else 'low'}({given})"
            case _:
                return self.access(s) + self.serves(s)

    def access(self, s: Access) -> str:
        expr = self.names.expr
        match s:
            case Load(local, buffer, address, guard):
                where = "" if guard is TRUE else f" if {expr(guard)}"
                return f"{self.definition(local)} = {buffer.name}[{expr(address)}]{where}"
            case Store(buffer, address, value):
                return f"{buffer.name}[{expr(address)}] = {self.operand(value)}"
            case VectorLoad(made, buffer, address, pairs, realigned=realigned):
                how = f"{' realigned' if realigned else ''}{' in pairs' if pairs else ''}"
                return f"{self.lanes(made, self.definition)} = {buffer.name}[{expr(address)}; {elements_of(s)}]{how}"
            case VectorStore(buffer, address, values, pairs):
                place = f"{buffer.name}[{expr(address)}; {elements_of(s)}]"
                return f"{place} = {self.lanes(values, self.local)}{' in pairs' if pairs else ''}"
            case VectorAdd(buffer, address, values):
                return f"{buffer.name}[{expr(address)}; {len(values)}] <- add {self.lanes(values, self.local)}"
            case Accumulate():
                return self.accumulate(s)

    def accumulate(self, s: Accumulate) -> str:
        expr = self.names.expr
        more: list[str] = []
        if s.buffer is None or s.address is None:
            to = self.local(s.acc)
        else:
            to = f"{s.buffer.name}[{expr(s.address)}]"
            more.append(f"as {s.acc.name}:{s.acc.dtype}")
        value = self.operand(s.value)
        more += ["atomic"] if s.shared else []
        more += [f"now {self.definition(s.running)}"] if s.running is not None else []
        more += [f"along {v}" for v in s.along]
        more += [f"to {s.result}"] if s.result is not None else []
        return f"{to} <- {', '.join([f'{s.op} {value}', *more])}"

    def check(self, s: BoundsCheck) -> str:
        expr, site = self.names.expr, s.site
        told = [quote(x) for x in (site.tensor, site.index, site.expr, site.line)]
        parts = [
            expr(s.condition), f"of {s.value}", f"site {told[0]}", f"axis {site.axis}", f"extent {expr(site.extent)}",
            f"index {told[1]}", f"in {told[2]}", f"at {told[3]}",
        ]  # fmt: skip
        parts += [f"loop {v}" for v in site.loops]
        parts += [f"point {expr(e)}" for e in s.point]
        parts += ["always"] if s.always else []
        return f"check {', '.join(parts)}:"
