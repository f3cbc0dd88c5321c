"""Reading the text form of a fusion. A hand-written reader: nothing is evaluated, names are only looked up."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from idgraph.arith import Expr
from idgraph.arith.text import parse_in, written_terms
from idgraph.errors import IdGraphError, ParseError, SourceLine, arguments, did_you_mean
from idgraph.ir.axis_read import Attr
from idgraph.ir.dtypes import Scalar
from idgraph.ir.fusion import Fusion, Tensor
from idgraph.ir.iter_domain import IterDomain
from idgraph.ir.limits import LIMITS, Limits
from idgraph.ir.loop_transforms import inline
from idgraph.ir.mesh import MAX_MESH_AXES, mesh_of
from idgraph.ir.op_table import apply, primitives
from idgraph.ir.protocols import axis_at
from idgraph.ir.schedule_primitives import choose

MAX_NESTING = 8
MAX_NAME = 2_500  # characters as written: 200 of which each may be escaped as two halves, and quotes
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]++|\#[^\n]*+)|(?P<newline>\n(?:[ \t\r\n]*+\#[^\n]*+)*+[ \t\r\n]*+)
    |(?P<string>"(?:[^"\\\n]++|\\.)*+")|(?P<expr>`[^`\n]*+`)|(?P<number>-?(?:inf\b|nan\b|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?))
    |(?P<word>[A-Za-z_][A-Za-z_0-9]*+)|(?P<mark>[{}(),=])""",
    re.VERBOSE,
)
_NAME = r"""(?:[A-Za-z_][A-Za-z_0-9]*+|"(?:[^"\\\n]++|\\.)*+")[ \t\r]*+"""
_MAKES = re.compile(rf"^[ \t\r]*+{_NAME}=", re.MULTILINE)  # a node, on its line
_DECLARES = {word: re.compile(rf"^[ \t\r]*+{word}[ \t\r]++{_NAME}", re.MULTILINE) for word in ("symbol", "output")}
_STEPS = frozenset(
    {
        "split", "merge", "reorder", "swizzle", "resize", "parallelize", "row_loops", "roll", "stride", "inline",
        "set_loop", "set_allocation", "set_memory", "persistent", "online", "items_per_thread", "parallel",
        "by_rule",
    }
)  # fmt: skip


_INPUT = ("shape", "dtype", "strides", "contiguity", "alignment", "offset")
_SYMBOL = ("min", "max", "multiple_of")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int
    at: int = 0  # characters before it


def _tokens(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ParseError(f"line {line}: unexpected character {text[at]!r}", because=_excerpt(text, at))
        kind = found.lastgroup or ""
        if kind == "newline":  # with the empty lines behind it
            yield _Token(kind, "\n", line, at)
            line += text.count("\n", at, found.end())
        elif kind != "space":
            yield _Token(kind, found.group(), line, at)
        at = found.end()
    yield _Token("end", "", line, at)


def _excerpt(text: str, at: int) -> list[str]:
    """The line around a place, cut, as the reason of an error; none where it is empty."""
    first, last = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    return [f"it says: {line[:80]}" for line in [text[first : last if last >= 0 else None].strip()] if line]


class _FusionParser:
    def __init__(self, text: str, limits: Limits) -> None:
        self.text = text
        self.limits = limits
        self.steps: dict[str, int] = {}  # of the schedule, by tensor
        self.tokens = _tokens(text)
        self.now = next(self.tokens)

    def fail(self, what: str, hint: str = "") -> NoReturn:
        shown = "the end of the text" if self.now.kind == "end" else repr(self.now.text[:40])
        where = _excerpt(self.text, self.now.at)
        raise ParseError(f"line {self.now.line}: {what}, found {shown}", because=[] if hint else where, hint=hint)

    def take(self) -> _Token:
        token = self.now
        if token.kind != "end":
            self.now = next(self.tokens)
        return token

    def at(self, text: str) -> bool:
        """True when the next token is this one."""
        return self.now.text == text

    def take_word(self, word: str) -> _Token | None:
        """Take the next token if it is this one."""
        return self.take() if self.at(word) else None

    def skip_lines(self) -> None:
        while self.now.kind == "newline":
            self.take()

    def mark(self, mark: str) -> None:
        if self.now.text != mark or self.now.kind not in ("mark", "newline"):
            self.fail(f"expected {'a line break' if mark == chr(10) else repr(mark)}")
        self.take()

    def name(self) -> str:
        if len(self.now.text) > MAX_NAME:
            self.fail(f"expected a name, not {len(self.now.text)} characters")
        if self.now.kind == "string":
            return self.string()
        if self.now.kind != "word":
            self.fail("expected a name")
        return self.take().text

    def string(self) -> str:
        try:
            value: object = json.loads(self.now.text)
        except ValueError:
            self.fail("this is not a JSON string")
        self.take()
        return str(value)

    def number(self) -> int | float:
        text = self.take().text
        if re.fullmatch(r"-?\d+", text):
            if len(text) > 40:
                raise ParseError(f"line {self.now.line}: an integer of {len(text)} digits", hint="at most 40")
            return int(text)
        return float(text)

    def value(self, scope: dict[str, Expr], depth: int = 0) -> Attr:
        """An attribute value."""
        if depth > MAX_NESTING:
            self.fail(f"tuples are nested more than {MAX_NESTING} deep")
        token = self.now
        match token.kind:
            case "number":
                return self.number()
            case "string":
                return self.string()
            case "expr":
                self.take()
                what, text = f"the expression in line {token.line}", token.text[1:-1]
                self.limits.check(what, written_terms(text), "terms")
                found = parse_in(text, scope)
                self.limits.check(what, found.key[1], "terms")
                return found
            case "word" if token.text in ("true", "false", "none", "inf", "nan"):
                self.take()
                return {"true": True, "false": False, "none": None, "inf": float("inf"), "nan": float("nan")}[
                    token.text
                ]
            case "mark" if token.text == "(":
                return self.tuple(scope, depth)
            case _:
                self.fail("expected a number, a string, an `expression`, true, false, none or a tuple")

    def tuple(self, scope: dict[str, Expr], depth: int) -> tuple[Attr, ...]:
        """``(a, b,)``."""
        self.mark("(")
        found: list[Attr] = []
        while self.now.text != ")":
            found.append(self.value(scope, depth + 1))
            self.limits.check("a tuple", len(found), "terms", "entries")
            if self.now.text != ",":
                break
            self.take()
        self.mark(")")
        return tuple(found)


def _call(reader: _FusionParser, fusion: Fusion) -> tuple[list[Tensor | Scalar | Expr], dict[str, Attr], list[Attr]]:
    """``(t0, 2.0, key=value, ...)``: operands, attributes, and the positional values as they stood."""
    scope = fusion.symbols
    args: list[Tensor | Scalar | Expr] = []
    attrs: dict[str, Attr] = {}
    plain: list[Attr] = []
    reader.mark("(")
    while reader.now.text != ")" or reader.now.kind != "mark":
        reader.limits.check("a call", len(plain) + len(attrs) + 1, "terms", "arguments")
        if reader.now.kind in ("word", "string") and reader.now.text not in ("true", "false", "none", "inf", "nan"):
            token = reader.now
            word = reader.name()
            if reader.now.text == "=" and token.kind == "word":
                reader.take()
                if word in attrs:
                    reader.fail(f"{word} is given twice")
                attrs[word] = reader.value(scope)
            else:
                plain.append(word)
                if word in fusion:
                    args.append(fusion[word])
                elif token.kind == "word":
                    raise ParseError(
                        f"line {token.line}: there is no tensor {word!r} yet",
                        hint=did_you_mean(word, _tensor_names(fusion), "a tensor is made in a line before its use"),
                    )
        else:
            value = reader.value(scope)
            plain.append(value)
            if isinstance(value, (bool, int, float, Expr)):
                args.append(value)
        if reader.now.text != ",":
            break
        reader.take()
    reader.mark(")")
    return args, attrs, plain


def _ints(value: Attr) -> tuple[int | Expr, ...]:
    if not isinstance(value, tuple) or not all(isinstance(v, (int, Expr)) and not isinstance(v, bool) for v in value):
        raise ParseError(f"{value!r} is not a tuple of integers", hint="(8, 6), or (8,) for one of them")
    return tuple(v for v in value if isinstance(v, (int, Expr)))


def declare_input(fusion: Fusion, name: str, attrs: Mapping[str, Attr]) -> None:
    """`Fusion.input` with arguments as the text form has them."""
    strange = sorted(set(attrs) - set(_INPUT))
    if strange:
        hint = did_you_mean(strange[0], _INPUT, f"one of {', '.join(_INPUT)}")
        raise ParseError(f"input {name}: unknown attribute {strange[0]}", hint=hint)
    contiguity = attrs.get("contiguity")
    alignment, offset = attrs.get("alignment", 16), attrs.get("offset", 0)
    if not isinstance(alignment, int) or not isinstance(offset, (int, Expr)):
        raise ParseError(f"input {name}: alignment and offset are integers")
    fusion.input(
        name,
        _ints(attrs.get("shape")),
        str(attrs.get("dtype", "float32")),
        strides=_ints(attrs["strides"]) if "strides" in attrs else None,
        contiguity=[bool(c) for c in contiguity] if isinstance(contiguity, tuple) else None,
        alignment=alignment,
        offset=offset,
    )


def _parse_symbol(reader: _FusionParser, fusion: Fusion) -> None:
    name = reader.name()
    bounds: dict[str, int | Expr] = {}
    step = 1
    while reader.now.kind == "word":
        key = reader.take().text
        reader.mark("=")
        value = reader.value(fusion.symbols)
        if key in ("min", "max") and isinstance(value, (int, Expr)):
            bounds[key] = value
        elif key == "multiple_of" and isinstance(value, int):
            step = value
        else:
            reader.fail(
                f"{key} of symbol {name} is not min, max or multiple_of with an int", did_you_mean(key, _SYMBOL)
            )
    fusion.symbol(name, min=bounds.get("min", 0), max=bounds.get("max"), multiple_of=step)


def _parse_mesh(reader: _FusionParser, fusion: Fusion) -> None:
    axes: dict[str, int] = {}
    while reader.now.kind == "word":
        name = reader.take().text
        reader.mark("=")
        size = reader.value(fusion.symbols)
        if not isinstance(size, int) or isinstance(size, bool) or name in axes or len(axes) >= MAX_MESH_AXES:
            reader.fail(f"mesh axis {name}: each has one size, an integer")
        axes[name] = size
    fusion.mesh = mesh_of(axes)


def replay_placement(tensor: Tensor, step: str, args: Sequence[Attr], kwargs: Mapping[str, Attr]) -> None:
    """Place ``tensor`` as a statement of the text form says; raises `ParseError` for one that says something else.

    >>> f = parse_fusion('fusion f { \\n t = input(shape=(4,)) \\n mesh x=2 \\n place t shard(0, "x") \\n }')
    >>> print(f["t"].placement)
    shard(0, "x")
    """
    if tensor.fusion.mesh is None:
        raise ParseError(f"place {tensor.name}: the fusion has no mesh", hint="mesh x=2 y=2, in a line before")
    match step, args:
        case "shard", [int() as axis, str() as over] if set(kwargs) <= {"inner"}:
            tensor.shard(axis, over, inner=kwargs.get("inner", False))  # type: ignore[arg-type]
        case "partial", [str() as over, str() as op] if not kwargs:
            tensor.partial(over, op)
        case "replicate", [] if not kwargs:
            tensor.replicate()
        case _:
            what = f"place {tensor.name}: {step} with such arguments is not shard, partial or replicate"
            raise ParseError(what, hint='shard(0, "x"), partial("x", "sum") or replicate()')


def _domains(tensor: Tensor, places: Attr) -> list[IterDomain]:
    if not isinstance(places, tuple):
        raise ParseError(f"schedule {tensor.name}: {places!r} is not a tuple of axes", hint='("logical1", "logical0")')
    found: list[IterDomain] = []
    for place in places:
        axis = axis_at(tensor, place) if isinstance(place, str) else None
        if axis is None:
            raise ParseError(
                f"schedule {tensor.name}: no axis {place!r}",
                hint='"root0", "logical1", or "made3.0" for the first axis that the fourth domain expression makes',
            )
        found.append(axis)
    return found


def replay_step(tensor: Tensor, step: str, args: Sequence[Attr], kwargs: Mapping[str, Attr]) -> None:
    """Take a logged schedule step on ``tensor``; raises `ParseError` for arguments that are not one of that step."""
    if step not in _STEPS:
        every = f"one of {', '.join(sorted(_STEPS))}"
        hint = did_you_mean(step, _STEPS, every)
        raise ParseError(f"schedule {tensor.name}: unknown step {step!r}", hint=hint)
    try:
        match step, args:
            case "set_loop", [names]:
                tensor.set_loop(_domains(tensor, names))
            case "set_allocation", [names, tuple() as flags]:
                tensor.set_allocation(_domains(tensor, names), [bool(f) for f in flags])
            case "set_allocation", [names, tuple() as flags, tuple() as steps]:
                tensor.set_allocation(_domains(tensor, names), [bool(f) for f in flags], steps)  # type: ignore[arg-type]
            case "reorder", [tuple() as pairs]:
                tensor.reorder({p[0]: p[1] for p in pairs if isinstance(p, tuple)})  # type: ignore[misc]
            case "inline", [int() as position] if not kwargs:
                inline(tensor, position, past=True)
            case "persistent" | "online" | "items_per_thread" | "parallel", [bool() | int() as value] if "by" in kwargs:
                choose(tensor, step, value, **kwargs)  # type: ignore[arg-type]
            case (
                "split"
                | "merge"
                | "swizzle"
                | "resize"
                | "roll"
                | "stride"
                | "parallelize"
                | "row_loops"
                | "inline"
                | "set_memory"
                | "persistent"
                | "online"
                | "items_per_thread"
                | "parallel"
                | "by_rule",
                _,
            ):
                getattr(tensor, step)(*args, **kwargs)
            case _:
                raise TypeError
    except TypeError as error:
        method = getattr(Tensor, step)
        takes = getattr(method, "__wrapped__", method).__code__
        names = ", ".join(takes.co_varnames[1 : takes.co_argcount + takes.co_kwonlyargcount])
        raise ParseError(f"schedule {tensor.name}: wrong arguments for {step}", hint=f"{step}({names})") from error


def _statement(reader: _FusionParser, fusion: Fusion) -> Tensor | None:
    """Read one statement; the tensor that it makes."""
    word = reader.now.text if reader.now.kind == "word" else ""
    if word in ("symbol", "output", "schedule", "mesh", "place"):
        reader.take()
        if word in ("mesh", "place") and reader.now.text == "=":  # a tensor of that name
            return _parse_node(reader, fusion, word)
        if word == "symbol":
            _parse_symbol(reader, fusion)
        elif word == "mesh":
            _parse_mesh(reader, fusion)
        elif word == "place":
            tensor, step = _parse_tensor_reference(reader, fusion), reader.name()
            _, kwargs, plain = _call(reader, fusion)
            replay_placement(tensor, step, plain, kwargs)
        elif word == "output":
            fusion.output(_parse_tensor_reference(reader, fusion))
        else:
            tensor, step = _parse_tensor_reference(reader, fusion), reader.name()
            _, kwargs, plain = _call(reader, fusion)
            done = reader.steps[tensor.name] = reader.steps.get(tensor.name, 0) + 1
            reader.limits.check(f"the schedule of {tensor.name}", done, "loops", "steps")
            replay_step(tensor, step, plain, kwargs)
            reader.limits.check(tensor.name, len(tensor.loop), "loops")
        return None
    return _parse_node(reader, fusion, reader.name())


def _parse_node(reader: _FusionParser, fusion: Fusion, name: str) -> Tensor:
    """``= operation(...)`` behind a name."""
    if reader.now.text != "=":
        reader.fail(f"expected '=' behind {name!r}", did_you_mean(name, ("symbol", "output", "schedule", "place")))
    reader.mark("=")
    op = reader.name()
    args, attrs, plain = _call(reader, fusion)
    if len(args) != len(plain):
        reader.fail(f"an operand of {op} is neither a tensor nor a number")
    if op == "input":
        shape = attrs.get("shape")
        reader.limits.check(f"input {name}", len(shape) if isinstance(shape, tuple) else 0, "rank", "axes")
        declare_input(fusion, name, attrs)
    elif op in primitives():
        apply(fusion, op, args, attrs, name)
    else:
        known = ("input", *primitives())
        hint = did_you_mean(op, known, f"one of {', '.join(known)}")
        raise ParseError(f"{name}: unknown operation {op!r}", hint=hint)
    return fusion[name]


def _tensor_names(fusion: Fusion) -> list[str]:
    return [t.name for t in fusion.tensors]


def _parse_tensor_reference(reader: _FusionParser, fusion: Fusion) -> Tensor:
    name = reader.name()
    if name not in fusion:
        reader.fail(f"fusion {fusion.name} has no tensor {name!r}", did_you_mean(name, _tensor_names(fusion)))
    return fusion[name]


@arguments(ParseError, first=True)
def parse_fusion(text: str, *, limits: Limits = LIMITS) -> Fusion:
    """The fusion that ``print(fusion)`` wrote.

    Raises `ParseError` with the line for text that is cut short, larger than ``limits`` (bytes, nodes, terms of an
    expression, rank), or says something that is not a fusion.

    >>> f = parse_fusion('fusion f { \\n t0 = input(shape=(4,)) \\n t1 = mul(t0, 2.0) \\n output t1 \\n }')
    >>> f.exprs[0]
    t1[I1] = mul(t0[I0], 2.0)
    >>> parse_fusion(str(f)) == f
    True
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParseError(f"{type(text).__name__} is not text")
    limits.check("the text", len(text), "bytes")
    limits.check("the text", len(text.encode("utf-8", "surrogatepass")), "bytes")
    if text.count("=") > limits.nodes:
        limits.check("the text", sum(1 for _ in _MAKES.finditer(text)), "nodes")
    for word, declares in _DECLARES.items():
        if text.count(word) > limits.nodes:
            limits.check("the text", sum(1 for _ in declares.finditer(text)), "nodes", f"{word}s")
    reader = _FusionParser(text, limits)
    reader.skip_lines()
    if reader.take_word("fusion") is None:
        reader.fail("expected 'fusion'", did_you_mean(reader.now.text, ("fusion",)))
    fusion = Fusion(reader.name())
    nodes = 0
    reader.mark("{")
    reader.skip_lines()
    while not reader.at("}"):
        line, at = reader.now.line, reader.now.at
        try:
            made = _statement(reader, fusion)
            if made is not None:
                nodes += 1
                limits.check("the text", nodes, "nodes")
                limits.check(made.name, made.ndim, "rank", "axes")
        except IdGraphError as error:
            if isinstance(error, ParseError) and error.what.startswith("line "):
                raise
            why = (*error.because, *([] if error.hint else _excerpt(text, at)))
            raise ParseError(f"line {line}: {error.what}", because=why, hint=error.hint) from error
        if not reader.at("}"):
            reader.mark("\n")
        reader.skip_lines()
    reader.mark("}")
    reader.skip_lines()
    if reader.now.kind != "end":
        reader.fail("expected nothing after the closing brace")
    return fusion


_OWN = Limits(*[sys.maxsize] * 5)  # a fusion that exists has been read or built already


def copy_fusion(fusion: Fusion) -> Fusion:
    """An independent fusion with the same operations, names, schedule and source lines."""
    return snapshot(fusion)()


def snapshot(fusion: Fusion) -> Callable[[], Fusion]:
    """The function that makes independent fusions like ``fusion`` is now, whatever becomes of it.

    >>> f = Fusion("f")
    >>> t = f.output(f.input("x", shape=(8,)) * 2.0)
    >>> before = snapshot(f)
    >>> _ = t.split(0, 4)
    >>> len(before()["t1"].loop), len(t.loop)
    (1, 2)
    """
    return partial(parse_at_lines, str(fusion), [e.source_line for e in fusion.exprs])


def parse_at_lines(text: str, lines: Sequence[SourceLine | None]) -> Fusion:
    """A fusion of its own text, with the user's line of each operation."""
    made = parse_fusion(text, limits=_OWN)
    for e, line in zip(made.exprs, lines, strict=True):
        e.source_line = line
    return made
