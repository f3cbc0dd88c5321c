"""Reading the text form of a kernel. A hand-written reader: nothing is evaluated, names are only looked up.

The grammar stands in the guide *The kernel IR*. Reading gives back the kernel that was printed, exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from idgraph.arith import TRUE, Expr
from idgraph.errors import IdGraphError, ParseError, arguments
from idgraph.ir import DType
from idgraph.ir.schedule_log import NO_CHOICES, KernelHints
from idgraph.kernel.def_use import carried
from idgraph.kernel.ir import Kernel
from idgraph.kernel.lexer import (
    LineParser,
    WrongError,
    closing,
    dtype_of,
    integer_of,
    lane_count,
    name_of,
    parted_once,
    reduction_of,
    scalar_of,
    split_once,
    split_top_level,
    string_of,
    way_of,
)
from idgraph.kernel.printer import BESIDE, OF_NEXT, ONE_LINE, implied, split_comments
from idgraph.kernel.statements import (
    ZERO,
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Buffer,
    CheckSite,
    Comment,
    Compute,
    ExtractHalf,
    Half2Op,
    If,
    InitAccumulator,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    RegisterArray,
    Select,
    SingleThread,
    SplitAxis,
    Stmt,
    Store,
    StraightLineBlock,
    VectorAdd,
    VectorLoad,
    VectorStore,
)

MAX_TEXT: Final = 4_000_000
MAX_LINES: Final = 20_000
MAX_DEPTH: Final = 64
LONGEST: Final = 400  # characters of a problem that a message shows
_PLACE: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)\[(?P<at>.*)\]\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    depth: int
    text: str


@arguments(ParseError)
def parse(text: str) -> Kernel:
    """The kernel whose text form, as ``str(kernel)`` prints it, is ``text``: the same statements, types and addresses.

    Text may come from anywhere: it is never evaluated, at most `MAX_TEXT` characters, `MAX_LINES` lines and `MAX_DEPTH`
    levels are read, and every problem raises one `ParseError` that names the line. Whether the kernel is well formed is
    another question: `Kernel.verify` answers it.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel double(n):
    ...   where n in 1, _
    ...   buffer x: float32[n] input "x"
    ...   for i < n:
    ...     t: float32 = x[i]
    ... ''')
    >>> k.scalars, ig.kernel.parse(str(k)) == k
    (('n',), True)
    """
    if len(text) > MAX_TEXT:
        raise ParseError(f"kernel text is too long: {len(text)} characters, at most {MAX_TEXT}")
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise ParseError(f"kernel text is too long: {len(lines)} lines, at most {MAX_LINES}")
    return _KernelParser(lines=list(_split_lines(lines))).kernel()


def _split_lines(lines: list[str]) -> Iterator[_Line]:
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if not line.isprintable():
            raise ParseError(f"line {n}: a character that is not printable")
        bare = line.lstrip(" ")
        depth, odd = divmod(len(line) - len(bare), 2)
        if odd or depth > MAX_DEPTH:
            raise ParseError(f"line {n}: {'an odd number of spaces in front' if odd else 'too deep'}")
        yield _Line(n, depth, bare)


def _error_text(line: _Line, problem: str) -> str:
    """The text of an error; a problem may quote a line of any length."""
    return f"line {line.number}: {problem if len(problem) <= LONGEST else problem[:LONGEST] + '...'}"


OPENING = ("for ", "if ", "single ", "check ", "lanes:", "barrier")  # lines whose comment is their own


@dataclass(slots=True)
class _KernelParser(LineParser):
    lines: list[_Line] = field(default_factory=list[_Line])
    at: int = 0

    # kernel and levels --------------------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        """All lines."""
        if not self.lines:
            raise ParseError("line 1: no kernel here", hint="it begins with `kernel name(scalars):`")
        try:
            return self._kernel()
        except WrongError as problem:
            line = self.lines[min(self.at, len(self.lines) - 1)]
            raise ParseError(_error_text(line, str(problem)), hint=line.text[:80]) from None
        except IdGraphError as problem:
            line = self.lines[min(self.at, len(self.lines) - 1)]
            raise ParseError(_error_text(line, str(problem)), hint=line.text[:80]) from problem

    def _kernel(self) -> Kernel:
        first = self.lines[0]
        found = re.match(r"kernel (\w+)\((.*)\):\Z", first.text, re.ASCII)
        if found is None or first.depth:
            raise WrongError("it begins with `kernel name(scalars):`")
        scalars = tuple(name_of(x) for x in split_top_level(found[2], ",")) if found[2] else ()
        self.at = 1
        passes: tuple[str, ...] = ()
        choices, rows, ruled = NO_CHOICES, list[str](), list[tuple[str, KernelHints]]()
        launch: dict[str, tuple[Expr, ...]] = {}
        parameters: list[Buffer] = []
        while self.at < len(self.lines) and self.lines[self.at].depth == 1:
            word, _, rest = self.lines[self.at].text.partition(" ")
            match word:
                case "passes":
                    passes = tuple(name_of(x) for x in split_top_level(rest, ","))
                case "choose":
                    choices = KernelHints.from_words(rest.split(" "))
                case "row":
                    rows.append(rest)
                case "rule":
                    made, _, why = rest.partition(": ")
                    acc, *words = made.split(" ")
                    ruled.append((name_of(acc), KernelHints.from_words(words).but(why=why)))
                case "where":
                    for part in split_top_level(rest, ";"):
                        self.where(part)
                case "buffer":
                    parameters.append(self.buffer(rest))
                case "launch":
                    for part in split_top_level(rest, ";"):
                        way, extents = split_once(part, ": ")
                        launch[way_of(way)] = tuple(map(self.expr, split_top_level(extents, ",")))
                case _:
                    break
            self.at += 1
        body = self.level(1)
        if self.at < len(self.lines):
            raise WrongError("this line belongs to no statement before it")
        return Kernel(found[1], tuple(parameters), scalars, body, launch, passes, choices, tuple(rows), tuple(ruled))

    def level(self, depth: int) -> tuple[Stmt, ...]:
        """The statements of one level."""
        made: list[Stmt] = []
        while self.at < len(self.lines) and self.lines[self.at].depth == depth:
            text = self.lines[self.at].text
            if text.startswith("registers "):
                made += map(self.registers, split_top_level(text.partition(" ")[2], ","))
                self.at += 1
            elif text.startswith('note "'):
                made.append(Comment(string_of(text.partition(" ")[2])))
                self.at += 1
            elif text.startswith("# "):
                made += (Comment(x) for x in split_comments(text[2:], BESIDE))
                self.at += 1
            else:
                head, mark, note = parted_once(text, "  # ")
                if text.startswith(OPENING) and (not mark or head.endswith(":") or head == "barrier"):
                    head, note = text, ""  # a comment of its own
                made += self.statements_of_line(head, note, depth)
        if self.at < len(self.lines) and self.lines[self.at].depth > depth:
            raise WrongError("this line is too deep")
        return tuple(made)

    def statements_of_line(self, head: str, note: str, depth: int) -> Iterator[Stmt]:
        """The statements of one line, each behind its comments: one, or several that have none inside them."""
        alone = "; " not in head or any(parted_once(head, m)[1] for m in ("  @ ", "  # "))
        parts = [head] if alone else split_top_level(head, ";")
        notes = split_comments(note, OF_NEXT)
        if len(notes) > len(parts):
            raise WrongError(f"{len(notes)} comments for {len(parts)} statements")
        first = self.at
        for part, told in zip_longest(parts, notes, fillvalue=""):
            if len(parts) > 1 and part.endswith(":"):
                raise WrongError("a statement with others inside it begins a line")
            yield from (Comment(x) for x in split_comments(told, BESIDE) if told)
            self.at = first
            yield self.statement(part, depth)

    def inside(self, depth: int) -> tuple[Stmt, ...]:
        self.at += 1
        return self.level(depth + 1)

    def statement(self, text: str, depth: int) -> Stmt:
        word = text.partition(" ")[0]
        match word:
            case "for":
                return self.loop(text, depth)
            case "lanes:" if text == word:
                return StraightLineBlock(self.inside(depth))
            case "if" | "single" | "check":
                head = split_once(text, " ")[1]
                if not head.endswith(":"):
                    raise WrongError("a colon ends this line")
                if word == "if":
                    condition = self.condition(head[:-1])
                    return If(condition, self.inside(depth))
                if word == "single":
                    dims = tuple(way_of(x) for x in split_top_level(head[:-1], ","))
                    return SingleThread(dims, self.inside(depth))
                return self.check(split_top_level(head[:-1], ","), depth)
            case _:
                made = self.simple(word, text)
                self.at += 1
                return made

    def loop(self, text: str, depth: int) -> Loop:
        head, mark, one = parted_once(text, ": ")
        note = ""
        if not mark and not text.endswith(":"):
            raise WrongError("a colon ends this line")
        if not mark:
            head = text[:-1]
        elif one.startswith(" # "):
            note, one = one[3:], ""
        parts, line = split_top_level(head[4:], ","), self.at
        var, extent = split_once(parts[0], " < ")
        made = Loop(name_of(var), self.expr(extent), "serial", (), note)
        how, first, column, stop = "serial", ZERO, None, None
        told: list[str] = []
        for part in parts[1:]:
            if part.startswith("from "):
                first = self.expr(part[5:])
            elif part.startswith("column "):
                axis, loops = split_once(part[7:], " of ")
                column = SplitAxis(self.expr(axis), integer_of(loops))
            elif part.startswith("stop "):
                stop = self.expr(part[5:])
            elif part.startswith("carries "):
                told.append(name_of(part[8:]))
            else:
                how = way_of(part)
        scope, self.scope = self.scope, {**self.scope, made.var: implied(made)}
        if one:  # the loop's only statement
            body: tuple[Stmt, ...] = (self.statement(one, depth),)
            if not isinstance(body[0], ONE_LINE):
                raise WrongError("a statement with others inside it begins a line")
        else:
            body = self.inside(depth)
        self.scope = scope
        loop = Loop(made.var, made.extent, how, body, note, first, column, stop)
        if told and tuple(told) != carried(loop):
            self.at = line
            raise WrongError(f"the loop {made.var} carries {', '.join(carried(loop)) or 'nothing'}")
        return loop

    def check(self, parts: list[str], depth: int) -> BoundsCheck:
        """``check CONDITION, of NAME, site "..", axis N, extent E, index "..", in "..", at "..", ...``"""
        words = ("of ", "site ", "axis ", "extent ", "index ", "in ", "at ")
        if len(parts) < 1 + len(words) or any(not p.startswith(w) for p, w in zip(parts[1:], words, strict=False)):
            raise WrongError(f"a check has a condition, then {', '.join(w.strip() for w in words)}")
        condition = self.condition(parts[0])
        value, tensor, axis, extent, index, expr, line = (p[len(w) :] for p, w in zip(parts[1:8], words, strict=True))
        loops = tuple(name_of(p[5:]) for p in parts[8:] if p.startswith("loop "))
        point = tuple(self.expr(p[6:]) for p in parts[8:] if p.startswith("point "))
        always = parts[-1] == "always"
        if 8 + len(loops) + len(point) + always != len(parts):
            raise WrongError("a check ends with its loops, their point, and `always`")
        site = CheckSite(
            string_of(tensor),
            -1 if axis == "-1" else integer_of(axis),
            self.expr(extent),
            string_of(index),
            string_of(expr),
            string_of(line),
            loops,
        )
        return BoundsCheck(condition, name_of(value), site, self.inside(depth), point, always)

    # one line -----------------------------------------------------------------------------------------------------

    def simple(self, word: str, text: str) -> Stmt:
        """A statement without others inside it."""
        match word:
            case "barrier":
                return Barrier(split_once(text, "  # ")[1])
            case "acc" if not text.startswith("acc <-"):
                left, value = split_once(text[4:], " = ")
                acc = self.definition(left)
                if acc.at is not None:
                    raise WrongError("an accumulator is not one of an array")
                return InitAccumulator(acc.name, acc.dtype, scalar_of(value))
            case "alloc":
                return Alloc(self.buffer(text[6:]))
            case "let":
                head, _, tail = parted_once(text[4:], "  @ ")
                name, value = split_once(head, " = ")
                return Let(name_of(name), self.operand(value), self.serves(tail, None))
            case _:
                return self.access(text)

    def registers(self, text: str) -> RegisterArray:
        """``name: type[count]``"""
        found = re.match(r"([\w.]+): (\w+?)(x2)?\[(\d{1,6})\]\Z", text, re.ASCII)
        if found is None:
            raise WrongError("registers have a name, a type and a count")
        made = self.definition(f"{found[1]}: {found[2]}")
        return RegisterArray(made.name, made.dtype, int(found[4]), bool(found[3]))

    def access(self, text: str) -> Stmt:
        head, _, tail = parted_once(text, "  @ ")
        left, mark, right = parted_once(head, " <- ")
        if mark:
            made = self.update(left, right, tail)
        else:
            left, mark, right = parted_once(head, " = ")
            if not mark:
                raise WrongError("this is not a statement")
            place = _PLACE.match(left)
            if place is not None and place["name"] in self.buffers:
                made = self.store(self.buffers[place["name"]], place["at"], right, tail)
            else:
                made = self.set(left, right, tail)
        if tail and not isinstance(made, (Load, Store, Accumulate, VectorLoad, VectorStore, VectorAdd)):
            raise WrongError("this statement is not an access")
        return made

    def store(self, buffer: Buffer, at: str, right: str, tail: str) -> Stmt:
        address, mark, count = parted_once(at, "; ")
        if not mark:
            return Store(buffer, self.expr(at), self.operand(right), self.serves(tail, None))
        width = lane_count(count)
        bare, pairs = (right[: -len(" in pairs")], True) if right.endswith(" in pairs") else (right, False)
        values = self.lanes(bare)
        if len(values) * (2 if pairs else 1) != width:
            raise WrongError(f"{len(values)} values for {width} elements")
        return VectorStore(buffer, self.expr(address), values, pairs, self.serves(tail, width))

    def update(self, left: str, right: str, tail: str) -> Stmt:
        place = _PLACE.match(left)
        buffer = self.buffers.get(place["name"]) if place is not None else None
        found = re.match(r"(\w+) over (.*)\Z", right, re.ASCII)
        if found is not None:
            *dims, last = split_top_level(found[2], ",")
            before = self.definition(last[: -len(" before")]) if last.endswith(" before") else None
            ways = tuple(way_of(x) for x in (dims if before is not None else (*dims, last)))
            return BlockReduce(self.local(left), reduction_of(found[1]), ways, before)
        if place is not None and buffer is not None and "; " in place["at"] and right.startswith("add "):
            address, _, count = parted_once(place["at"], "; ")
            values = self.lanes(right[4:])
            if len(values) != lane_count(count):
                raise WrongError(f"{len(values)} values for {count} elements")
            return VectorAdd(buffer, self.expr(address), values, self.serves(tail, len(values)))
        parts = split_top_level(right, ",")
        how, value = split_once(parts[0], " ")
        given = self.operand(value)
        acc = None if buffer is not None else self.local(left)
        shared, running, result = False, None, None
        along: list[str] = []
        for part in parts[1:]:
            word, _, rest = part.partition(" ")
            match word:
                case "as":
                    acc = self.local(rest)
                case "atomic" if not rest:
                    shared = True
                case "now":
                    running = self.definition(rest)
                case "along":
                    along.append(name_of(rest))
                case "to":
                    result = dtype_of(rest)
                case _:
                    raise WrongError(f"an update has no part {word!r}")
        if acc is None:
            raise WrongError("an update of memory says `as name:type`")
        address = self.expr(place["at"]) if place is not None and buffer is not None else None
        return Accumulate(
            acc,
            reduction_of(how),
            given,
            buffer,
            address,
            shared,
            running,
            tuple(along),
            result,
            self.serves(tail, None),
        )

    def set(self, left: str, right: str, tail: str) -> Stmt:
        """A statement that gives variables a value."""
        source, word, guard = parted_once(right, " if ")
        bare = source.removesuffix(" in pairs")
        pairs, realigned = bare != source, bare.endswith(" realigned")
        place = _PLACE.match(bare.removesuffix(" realigned"))
        buffer = self.buffers.get(place["name"]) if place is not None else None
        if place is not None and buffer is not None:
            address, mark, count = parted_once(place["at"], "; ")
            if not mark and not pairs and not realigned:
                local = self.definition(left)
                where = self.condition(guard) if word else TRUE
                return Load(local, buffer, self.expr(place["at"]), where, self.serves(tail, None))
            width = lane_count(count)
            made = self.made_lanes(left, width // 2 if pairs else width)
            return VectorLoad(made, buffer, self.expr(address), pairs, self.serves(tail, width), realigned)
        call = re.match(r"([a-z][a-z_0-9.]*)\(", right, re.ASCII)
        if call is None:
            raise WrongError(f"{right[:40]!r} is not a load, nor an operation")
        inside, compute = self.called(right, call[1])
        return self.computed(left, call[1], inside, compute)

    def called(self, text: str, op: str) -> tuple[list[str], DType | None]:
        """The arguments of ``op(...)``, and the type behind it."""
        rest = text[len(op) :]
        end = closing(rest)
        inside = split_top_level(rest[1:end], ",") if end > 1 else []
        after = rest[end + 1 :]
        if after and not after.startswith(" in "):
            raise WrongError(f"{after!r} stands behind the arguments")
        return inside, dtype_of(after[4:]) if after else None

    def computed(self, left: str, op: str, inside: list[str], compute: DType | None) -> Stmt:
        if op == "choose":
            cases: list[tuple[Expr, Operand]] = []
            for part in inside[:-1]:
                condition, value = split_once(part, " ? ")
                cases.append((self.condition(condition), self.operand(value)))
            if not inside:
                raise WrongError("a choice has a last value")
            last = self.operand(inside[-1])
            return Select(self.definition(left), tuple(cases), last)
        operands = tuple(map(self.operand, inside))
        local = self.definition(left)
        if op.startswith(("pair.", "half.")):
            words = tuple(o for o in operands if isinstance(o, Local))
            if len(words) != len(operands) or compute is not None:
                raise WrongError("words are variables")
            if op.startswith("pair."):
                return Half2Op(local, op[5:], words)
            if op not in ("half.high", "half.low") or len(words) != 1:
                raise WrongError("a half is high or low, of one word")
            return ExtractHalf(local, words[0], op == "half.high")
        if "." in op:
            raise WrongError(f"{op!r} is not an operation")
        return Compute(local, op, operands, compute or local.dtype)
