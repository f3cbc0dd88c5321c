"""The neutral form as JSON: read with limits, every mistake named; and written.

```
{"version": 1, "program": fusion text (ig.parse), "name": str,
 "symbols": {"n": {"min": 1, "max": null, "multiple_of": 1}}, "facts": ["n % 8 == 0"],
 "buffers": {"buf0": {"tensor": "t3", "strides": [64, 1], "offset": 0, "base": 0, "storage": "buf0", "after": "k0",
                      "over": "t1", "copy": false, "size": 512}},
 "nests": [{"name": "k0", "loops": [["i", 64]], "reduce": [["r", 8]], "kernel": "", "position": "r",
            "loads": {"v0": {"buffer": "idx", "index": "i"} or {"text": "floor(x * 0.5)"}},
            "places": {"p0": {"value": "v0", "size": 128}},
            "writes": [{"buffer": "buf0", "index": "i", "when": "i < 60", "mode": "store" or "add", "value": "r0*2.0",
                        "reads": [{"buffer": "x", "index": "i*8 + r", "when": "True"}]}]}],
 "order": ["k0"]}
```
In place of `nests` and `order`, where nests share loops, a tree of nests (without `kernel`), loops and guards.
```
{"body": [{"for": ["i", 8], "order": "serial" or "any", "private": ["tile"],
           "body": [{"if": "i < 7", "body": [nest, ...]}, nest, ...]}]}
```
Inputs and outputs of the fusion that no buffer names lie as the fusion says, in a buffer of their own name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import assert_never, cast

from idgraph.arith import TRUE, ArithError, Expr, as_expr, parse, symbol
from idgraph.check.program import (
    Axis,
    BufferLayout,
    CheckError,
    IndirectIndex,
    LoadedValue,
    Nest,
    NeutralProgram,
    Read,
    StatementValue,
    TreeGuard,
    TreeLoop,
    TreeNode,
    Write,
    leaves,
    nests_of,
)
from idgraph.check.statement_values import formula_names, parse_value, unmasked, with_loads
from idgraph.errors import IdGraphError, SourceLine, nearest
from idgraph.ir import Fusion, Tensor, parse_fusion
from idgraph.ir.limits import read_within

LARGEST = 32 << 20  # characters of JSON
MOST = 100_000  # entries of one list
LONGEST = 100_000  # characters of one formula
NAME = 200
DEPTH = 60  # loops and guards inside of each other
VERSION = 1
KEYS: Mapping[str, tuple[str, ...]] = {  # of each object of the form
    "a program": ("version", "program", "name", "symbols", "facts", "buffers", "nests", "order", "body"),
    "a symbol": ("min", "max", "multiple_of"),
    "a buffer": ("tensor", "strides", "offset", "base", "storage", "after", "over", "copy", "size"),
    "a nest": ("name", "loops", "reduce", "kernel", "loads", "places", "writes", "position"),
    "a loop": ("for", "order", "private", "body"),
    "a guard": ("if", "body"),
    "a load": ("buffer", "index", "text"),
    "a place": ("value", "size"),
    "a write": ("buffer", "index", "when", "mode", "reads", "value"),
    "a read": ("buffer", "index", "when"),
}


def read_any(data: Mapping[str, object] | str | os.PathLike[str]) -> NeutralProgram:
    """A program from a dict, JSON text, or the path of a file."""
    if isinstance(data, Mapping):
        return read_program(data)
    text = os.fspath(data)
    if not text.lstrip().startswith(("{", "[")):
        try:
            content = read_within(text, LARGEST)
            if len(content) > LARGEST:
                raise CheckError(f"{text!r} has more than {LARGEST} bytes")
            text = content.decode("utf-8")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
            raise CheckError(f"{text[:200]!r} cannot be read: {why}") from None
    if len(text) > LARGEST:
        raise CheckError(f"the program has more than {LARGEST} characters")
    try:
        found: object = json.loads(text)
    except RecursionError:
        raise CheckError("the program is nested too deep") from None
    except ValueError as error:
        at = f" at line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        what = error.msg if isinstance(error, json.JSONDecodeError) else "a number with too many digits"
        raise CheckError(f"the program is not JSON: {what}{at}") from None
    if not isinstance(found, dict):
        raise CheckError("the program is not a JSON object")
    return read_program(cast("Mapping[str, object]", found))


def read_program(data: Mapping[str, object]) -> NeutralProgram:
    """A program from a dict."""
    top = _ProgramParser(data, "program", "a program")
    version = data.get("version", VERSION)
    if type(version) is not int or version != VERSION:
        raise CheckError(
            f"program.version: {str(version)[:NAME]!r} is not known here", hint=f"the form has version {VERSION}"
        )
    fusion_text = top.text("program", LARGEST)
    try:
        fusion = parse_fusion(fusion_text)
    except IdGraphError as error:
        raise CheckError(f"program: {error.what}", because=error.because, hint="the text form of a fusion") from None
    scope = {
        name: _symbol(_ProgramParser(v, f"symbols.{name}", "a symbol"), name)
        for name, v in top.table("symbols").items()
    }
    facts = tuple(_parse_formula(x, f"facts[{k}]", scope, condition=True) for k, x in enumerate(top.rows("facts")))
    nests, body = _parse_nests(top, scope)
    every = [*nests, *leaves(body)]
    names = [n.name for n in every]
    if len(set(names)) != len(names):
        raise CheckError("nests: two nests have one name")
    given = dict[str, BufferLayout]()
    memory, sizes = dict[str, tuple[str, Expr]](), dict[str, Expr]()
    for n, v in top.table("buffers").items():
        r = _ProgramParser(v, f"buffers.{n}", "a buffer")
        storage = r.text("storage", default=n)
        if "size" in r.data:
            sizes[storage] = _storage_size(r, scope)
        if "size" in r.data and "tensor" not in r.data and all(t.name != n for t in fusion.tensors):
            memory[n] = storage, r.formula("base", scope, 0)
        else:
            given[n] = _buffer(r, n, fusion, scope)
    written = {w.buffer: n.name for n in every for w in n.writes}
    for t in fusion.tensors:
        stored = t.definition is None or t.name in written
        if stored and t.name not in given and not any(b.tensor == t.name for b in given.values()):
            given[t.name] = _row_major_buffer(t, written.get(t.name, ""))
    order = tuple(str(x) for x in top.rows("order")) or tuple(names)
    if len(set(order)) < len(order) or not set(names) <= set(order):
        raise CheckError("order: each nest stands in it once", hint="leave it out where nests run as they stand")
    kernels = {n.name: n.kernel for n in nests}
    runs = [k for k, _ in groupby(order, lambda name: kernels.get(name, ""))]
    apart = next((k for k in runs if k and runs.count(k) > 1), None)
    if apart is not None:
        raise CheckError(f"order: the nests of kernel {apart!r} do not stand together, though they are one loop")
    for b in given.values():
        if b.after and b.after not in order:
            raise CheckError(f"buffers.{b.name}.after: no nest or call of the order is called {b.after!r}")
    title = top.get("name")
    sources: dict[str, tuple[str, SourceLine | None]] = {
        t.name: (f"{t.name} = {t.definition.op}", None) for t in fusion.tensors if t.definition is not None
    }
    return NeutralProgram(
        str(title)[:NAME] if title is not None else fusion.name, fusion, tuple(given.values()), nests, order,
        scope, facts, sources, memory=memory, body=body, sizes=sizes,
    )  # fmt: skip


def _parse_nests(top: _ProgramParser, symbols: Mapping[str, Expr]) -> tuple[tuple[Nest, ...], tuple[TreeNode, ...]]:
    """The nests of a program, or its tree; a tree whose nests share no loop is the list of them."""
    if "body" not in top.data:
        rows = enumerate(top.rows("nests"))
        return tuple(_parse_nest(_ProgramParser(x, f"nests[{k}]", "a nest"), symbols) for k, x in rows), ()
    for key in ("nests", "order"):
        if key in top.data:
            raise CheckError(f"program.{key}: a program with a body has its nests there, in their order")
    body = _parse_body(top, "", symbols, {}, 0)
    flat = nests_of(body)
    return (flat, ()) if flat is not None else ((), body)


def _parse_body(
    r: _ProgramParser, where: str, symbols: Mapping[str, Expr], outer: Mapping[str, Expr], depth: int
) -> tuple[TreeNode, ...]:
    if depth > DEPTH:
        raise r.fail("body", f"more than {DEPTH} loops and guards are inside of each other")
    return tuple(
        _parse_node(x, f"{where}body[{k}]", symbols, outer, depth) for k, x in enumerate(r.rows("body"))
    )  # fmt: skip


def _keys(x: object) -> frozenset[str]:
    return frozenset(cast("Mapping[str, object]", x)) if isinstance(x, Mapping) else frozenset()


def _parse_node(x: object, where: str, symbols: Mapping[str, Expr], outer: Mapping[str, Expr], depth: int) -> TreeNode:
    keys = _keys(x)
    if "if" in keys:
        r = _ProgramParser(x, where, "a guard")
        when = r.formula("if", {**symbols, **outer}, condition=True)
        return TreeGuard(when, _parse_body(r, f"{where}.", symbols, outer, depth + 1))
    if "for" not in keys and "body" in keys:
        raise CheckError(f'{where}: a node with a body has a "for" or an "if"')
    if "for" not in keys:
        r = _ProgramParser(x, where, "a nest")
        if r.text("kernel", default=""):
            raise r.fail("kernel", 'nests in a body have none: the "order" of a loop around them says "any"')
        return _parse_nest(r, symbols, outer)
    r = _ProgramParser(x, where, "a loop")
    (axis,) = _axes(r, "for", {**symbols, **outer}, [r.data["for"]], symbols)
    order = r.text("order", default="serial")
    if order not in ("serial", "any"):
        raise r.fail("order", 'it is neither "serial" nor "any"')
    private = r.rows("private")
    if not all(isinstance(n, str) and 1 <= len(n) <= NAME and n.isprintable() for n in private):
        raise r.fail("private", "it is not a list of names of buffers")
    body = _parse_body(r, f"{where}.", symbols, {**outer, axis.name: axis.symbol}, depth + 1)
    return TreeLoop(axis, body, order == "any", tuple(str(n) for n in private))


class _ProgramParser:
    """One JSON object; every complaint says where in the program it is."""

    def __init__(self, data: object, where: str, kind: str) -> None:
        if not isinstance(data, Mapping):
            raise CheckError(f"{where}: it is not a JSON object")
        for key in cast("Mapping[object, object]", data):
            if key not in KEYS[kind]:
                shown = str(key)[:NAME]
                near = nearest(shown, KEYS[kind])
                hint = f"did you mean {near!r}?" if near else f"known keys: {', '.join(KEYS[kind])}"
                raise CheckError(f"{where}: {shown!r} is not a key of {kind}", hint=hint)
        self.data = cast("Mapping[str, object]", data)
        self.where = where

    def get(self, key: str) -> object:
        return self.data.get(key)

    def fail(self, key: str, what: str) -> CheckError:
        return CheckError(f"{self.where}.{key}: {what}")

    def text(self, key: str, most: int = NAME, default: str | None = None) -> str:
        value = self.data.get(key, default)
        if not isinstance(value, str) or len(value) > most or (most == NAME and not value.isprintable()):
            raise self.fail(key, f"it is not text of at most {most} characters")
        return value

    def flag(self, key: str) -> bool:
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            raise self.fail(key, "it is neither true nor false")
        return value

    def rows(self, key: str) -> Sequence[object]:
        value = self.data.get(key, [])
        if not isinstance(value, (list, tuple)) or len(cast("list[object]", value)) > MOST:
            raise self.fail(key, f"it is not a list of at most {MOST} entries")
        return cast("Sequence[object]", value)

    def table(self, key: str) -> Mapping[str, object]:
        value = self.data.get(key, {})
        if not isinstance(value, Mapping) or len(cast("Mapping[str, object]", value)) > MOST:
            raise self.fail(key, f"it is not a JSON object of at most {MOST} entries")
        for name in cast("Mapping[object, object]", value):
            if not isinstance(name, str) or not 1 <= len(name) <= NAME or not name.isprintable():
                raise self.fail(key, "a name is not a printable text of at most 200 characters")
        return cast("Mapping[str, object]", value)

    def formula(self, key: str, scope: Mapping[str, Expr], default: object = None, *, condition: bool = False) -> Expr:
        return _parse_formula(self.data.get(key, default), f"{self.where}.{key}", scope, condition=condition)


def _parse_formula(value: object, where: str, scope: Mapping[str, Expr], *, condition: bool = False) -> Expr:
    """A number, or text in integer syntax, of names in scope."""
    if isinstance(value, bool) and condition:
        return TRUE if value else ~TRUE
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62:
        found = as_expr(value)
    elif isinstance(value, str) and len(value) <= LONGEST:
        try:
            raw = parse(value)
        except ArithError as error:
            raise CheckError(f"{where}: {error.what}", hint=error.hint) from None
        missing = sorted(raw.names - scope.keys())
        if missing:
            known = ", ".join(map(repr, scope)) or "none"
            raise CheckError(
                f"{where}: {missing[0]!r} is not a loop, loaded value or symbol there",
                hint=f"names there: {known[:NAME]}; a loop's variable is one only inside of the loop",
            )
        found = raw.substitute({n: scope[n] for n in raw.names})
    else:
        raise CheckError(f"{where}: it is not a formula: an integer, or text of at most {LONGEST} characters")
    if found.cond != condition:
        raise CheckError(f"{where}: `{str(found)[:80]}` is {'no ' if condition else 'a '}condition")
    return found


def _symbol(r: _ProgramParser, name: str) -> Expr:
    low, high, step = r.data.get("min", 1), r.data.get("max"), r.data.get("multiple_of", 1)
    if type(low) is not int or not (high is None or type(high) is int) or type(step) is not int or step < 1:
        raise CheckError(f"{r.where}: min, max and multiple_of are integers")
    return symbol(name, low, high, step)


def _axes(
    r: _ProgramParser, key: str, scope: Mapping[str, Expr], rows: Sequence[object], symbols: Mapping[str, Expr]
) -> tuple[Axis, ...]:
    made: list[Axis] = []
    for k, pair in enumerate(rows):
        if not isinstance(pair, (list, tuple)) or len(cast("list[object]", pair)) != 2:
            raise r.fail(f"{key}[{k}]", "it is not a pair of a name and an extent")
        name, extent = cast("Sequence[object]", pair)
        if not isinstance(name, str) or not name.isidentifier() or len(name) > NAME or name in scope:
            raise r.fail(f"{key}[{k}]", "the name is not an identifier, or is taken")
        axis = Axis(name, _parse_formula(extent, f"{r.where}.{key}[{k}]", symbols))
        low = axis.extent.range.lo
        if axis.extent.is_const and (low is None or low < 0):
            raise r.fail(f"{key}[{k}]", "the extent is negative")
        made.append(axis)
    return tuple(made)


def _parse_nest(r: _ProgramParser, symbols: Mapping[str, Expr], outer: Mapping[str, Expr] | None = None) -> Nest:
    scope = {**symbols, **(outer or {})}
    loops = _axes(r, "loops", scope, r.rows("loops"), symbols)
    scope |= {a.name: a.symbol for a in loops}
    reduce = _axes(r, "reduce", scope, r.rows("reduce"), symbols)
    scope |= {a.name: a.symbol for a in reduce}
    loads, places = r.table("loads"), r.table("places")
    for name in (*loads, *places):
        if not name.isidentifier() or name in scope:
            raise r.fail("loads", f"{name!r} is not an identifier, or is taken")
        scope[name] = symbol(name)
    sizes = {n: _ProgramParser(v, f"{r.where}.places.{n}", "a place") for n, v in places.items()}
    for n, x in sizes.items():
        scope[n] = symbol(n, 0, x.formula("size", symbols) - 1)
    found_loads = {
        n: _parse_loaded_value(_ProgramParser(v, f"{r.where}.loads.{n}", "a load"), scope) for n, v in loads.items()
    }
    found_places = {n: IndirectIndex(x.formula("value", scope), x.formula("size", symbols)) for n, x in sizes.items()}
    rows = [_ProgramParser(w, f"{r.where}.writes[{k}]", "a write") for k, w in enumerate(r.rows("writes"))]
    given = [_write(w, scope) for w in rows]
    writes = [unmasked(w, found_loads, scope) for w in given]
    masked = any(a is not b for a, b in zip(given, writes, strict=True))
    if masked and not found_places and not any(formula_names(w) & found_loads.keys() for w in writes):
        found_loads = {}
    return Nest(
        r.text("name"), loops, tuple(with_loads(w, found_loads, found_places) for w in writes), reduce,
        found_loads, found_places, r.text("kernel", default=""), masked=masked,
        position=r.formula("position", scope) if "position" in r.data else None,
    )  # fmt: skip


def _parse_loaded_value(r: _ProgramParser, scope: Mapping[str, Expr]) -> LoadedValue:
    if "text" in r.data:
        return LoadedValue(text=r.text("text", LONGEST))
    return LoadedValue(r.text("buffer"), r.formula("index", scope))


def _write(r: _ProgramParser, scope: Mapping[str, Expr]) -> Write:
    mode = r.text("mode", default="store")
    if mode not in ("store", "add"):
        raise r.fail("mode", 'it is neither "store" nor "add"')
    reads = [_ProgramParser(x, f"{r.where}.reads[{k}]", "a read") for k, x in enumerate(r.rows("reads"))]
    return Write(
        r.text("buffer"), r.formula("index", scope),
        tuple(Read(x.text("buffer"), x.formula("index", scope), _when(x, scope)) for x in reads),
        _when(r, scope), "add" if mode == "add" else "store", _statement_value(r, len(reads), scope),
    )  # fmt: skip


def _statement_value(r: _ProgramParser, reads: int, scope: Mapping[str, Expr]) -> StatementValue | None:
    if "value" not in r.data:
        return None
    names = frozenset(scope) | {f"r{k}" for k in range(reads)}
    return parse_value(r.text("value", LONGEST), names, f"{r.where}.value")


def _when(r: _ProgramParser, scope: Mapping[str, Expr]) -> Expr:
    return r.formula("when", scope, True, condition=True)


def _storage_size(r: _ProgramParser, symbols: Mapping[str, Expr]) -> Expr:
    found = r.formula("size", symbols)
    if found.is_const and int(found) < 0:
        raise r.fail("size", "it is negative")
    return found


def _buffer(r: _ProgramParser, name: str, fusion: Fusion, scope: Mapping[str, Expr]) -> BufferLayout:
    tensor = r.text("tensor", default=name)
    t = next((t for t in fusion.tensors if t.name == tensor), None)
    if t is None:
        raise r.fail("tensor", f"the program has no tensor {tensor!r}")
    plain = _row_major_buffer(t, "")
    given = r.rows("strides") if "strides" in r.data else plain.strides
    strides = tuple(
        x if isinstance(x, Expr) else _parse_formula(x, f"{r.where}.strides[{k}]", scope) for k, x in enumerate(given)
    )
    if len(strides) != len(t.shape):
        raise r.fail("strides", f"{len(strides)} strides for {len(t.shape)} axes of {tensor}")
    if any(s.is_const and int(s) < 0 for s in strides):
        raise r.fail("strides", "a stride is negative")
    copied = r.flag("copy")
    return BufferLayout(
        name, tensor, strides, r.formula("offset", scope, 0), r.text("storage", default=name),
        r.text("after", default=""), r.text("over", default=""), copied, r.formula("base", scope, 0),
    )  # fmt: skip


def _row_major_buffer(t: Tensor, after: str) -> BufferLayout:
    """A tensor in row-major order, in a buffer of its own."""
    strides: list[Expr] = []
    step = as_expr(1)
    for n in reversed(t.shape):
        strides.append(step)
        step = step * n
    return BufferLayout(t.name, t.name, tuple(reversed(strides)), storage=t.name, after=after)


def to_json(p: NeutralProgram) -> str:
    """The neutral form of a program as JSON text.

    Long: one dict, and what it needs for each kind of node.
    """

    def shown(x: Expr) -> object:
        return int(x) if x.is_const and not x.cond else str(x)

    def reads(w: Write) -> list[object]:
        return [{"buffer": r.buffer, "index": shown(r.index), "when": str(r.when)} for r in w.reads]

    def nest(n: Nest) -> object:
        return {
            "name": n.name, "kernel": n.kernel, **({"position": shown(n.position)} if n.position is not None else {}),
            "loops": [[a.name, shown(a.extent)] for a in n.loops],
            "reduce": [[a.name, shown(a.extent)] for a in n.reduce],
            "loads": {
                k: {"text": x.text} if x.text else {"buffer": x.buffer, "index": shown(x.index)}
                for k, x in n.loads.items()
            },
            "places": {k: {"value": shown(x.value), "size": shown(x.size)} for k, x in n.places.items()},
            "writes": [
                {"buffer": w.buffer, "index": shown(w.index), "when": str(w.when), "mode": w.mode, "reads": reads(w),
                 **({"value": w.value.text} if w.value is not None else {})}
                for w in n.writes
            ],
        }  # fmt: skip

    def tree(x: TreeNode) -> object:
        match x:
            case Nest():
                return nest(x)
            case TreeGuard():
                return {"if": str(x.when), "body": [tree(y) for y in x.body]}
            case TreeLoop():
                return {
                    "for": [x.axis.name, shown(x.axis.extent)], "private": list(x.private),
                    "order": "any" if x.any_order else "serial", "body": [tree(y) for y in x.body],
                }  # fmt: skip
            case _:
                assert_never(x)

    def bounds(s: Expr) -> object:
        low, high, step, _ = s.symbol_bounds
        most = high if isinstance(high, int) else None
        return {"min": low if isinstance(low, int) else 1, "max": most, "multiple_of": step}

    runs = (
        {"body": [tree(x) for x in p.body]} if p.body else {"nests": [nest(n) for n in p.nests], "order": list(p.order)}
    )
    return json.dumps({
        "version": VERSION, "name": p.name, "program": str(p.fusion),
        "symbols": {n: bounds(s) for n, s in p.symbols.items()},
        "facts": [str(f) for f in p.facts],
        "buffers": {
            b.name: {
                "tensor": b.tensor, "strides": [shown(s) for s in b.strides], "offset": shown(b.offset),
                "base": shown(b.base), "storage": b.home, "after": b.after, "over": b.over, "copy": b.copy,
                **({"size": shown(p.sizes[b.home])} if b.home in p.sizes else {}),
            } for b in p.buffers
        } | {
            n: {"storage": home, "base": shown(base), "size": shown(p.sizes[home])}
            for n, (home, base) in p.memory.items() if home in p.sizes
        },
        **runs,
    })  # fmt: skip
