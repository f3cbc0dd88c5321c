"""Reading a captured graph from JSON. It is untrusted: sizes are limited, fields checked, nothing is run."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, cast

from idgraph.errors import FrontendError, ParseError, SourceLine
from idgraph.frontends.graph import (
    MAX_ELEMENTS,
    CapturedProgram,
    EnumConstant,
    Kind,
    Meta,
    Node,
    Ref,
    TensorMeta,
    Value,
    short,
)
from idgraph.ir.limits import LIMITS, Limits, read_within

MAX_NESTING = 8
MAX_ITEMS = 100_000

_KINDS: dict[str, Kind] = {
    "placeholder": "placeholder", "get_attr": "constant", "call_function": "call", "output": "output",
}  # fmt: skip
_DTYPE = re.compile(
    r"bool|u?int(1|2|3|4|5|6|7|8|16|32|64)|b?float(16|32|64)|float(4|8)_[a-z0-9]{1,20}|complex(32|64|128)"
    r"|q(u?)int[0-9x]{1,4}|bits[0-9x]{1,4}"
)
_WORDS = ("dtype", "device", "layout", "memory_format")
_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def read_program(path: str | os.PathLike[str], limits: Limits = LIMITS) -> CapturedProgram:
    """The program in a JSON file: an object with ``nodes``, each with name, op, target, args, kwargs and out.

    Raises `FrontendError` where the file cannot be read and `ParseError` where it is not a program.
    """
    file = Path(path)
    shown = short(file.name)
    try:
        data = read_within(file, limits.bytes)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "is not a file name"
        raise FrontendError(f"{shown} cannot be read: {reason}") from None
    return program_of(data, file.name, limits)


def program_of(data: bytes, name: str, limits: Limits = LIMITS) -> CapturedProgram:
    """The program in the content of a file called ``name``; see `read_program`.

    >>> program_of(b"", "a.json")
    Traceback (most recent call last):
    idgraph.errors.ParseError: 'a.json': not JSON: Expecting value at line 1 column 1
    """
    shown = short(name)
    if len(data) > limits.bytes:
        raise ParseError(
            f"{shown} is longer than {limits.bytes} bytes",
            hint="a captured graph stores no tensor values; or say limits=Limits(bytes=...)",
        )
    try:
        return parse_program(data, name, limits)
    except RecursionError:
        raise ParseError(f"{shown}: nested too deep") from None
    except ParseError as error:
        raise ParseError(f"{shown}: {error.what}", where=error.where, hint=error.hint) from None
    except FrontendError as error:
        raise FrontendError(f"{shown}: {error.what}", where=error.where, hint=error.hint) from None


def parse_program(data: bytes, name: str = "graph.json", limits: Limits = LIMITS) -> CapturedProgram:
    """The program in JSON text; see `read_program`.

    >>> parse_program(b'{"nodes": [')
    Traceback (most recent call last):
    idgraph.errors.ParseError: not JSON: Expecting value at line 1 column 12
    """
    try:
        text = data.decode("utf-8")
        found: object = json.loads(text, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ParseError(f"not UTF-8 text: byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ParseError(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise ParseError("nested too deep") from None
    except ValueError as error:
        raise ParseError(f"not JSON: {short(str(error))[1:-1]}") from None
    if not isinstance(found, dict):
        raise ParseError(f"a graph is an object with nodes, not {_kind(found)}")
    graph = cast("dict[str, object]", found)
    nodes = graph.get("nodes")
    if not isinstance(nodes, list):
        raise ParseError(f"'nodes' is {_kind(nodes)}, not a list")
    rows = cast("list[object]", nodes)
    limits.check("the graph", len(rows), "nodes")
    count = graph.get("n_nodes")
    if count is not None and count != len(rows):
        raise ParseError(f"'n_nodes' says {short(count)}, the file has {len(rows)} nodes")
    program = _program(rows, name)
    for node in program.nodes:
        for meta in node.meta if isinstance(node.meta, tuple) else (node.meta,):
            if isinstance(meta, TensorMeta):
                limits.check(f"node {short(node.name)}", len(meta.shape), "rank", "axes")
    return program


def _program(rows: list[object], name: str) -> CapturedProgram:
    nodes: list[Node] = []
    results: tuple[Value, ...] | None = None
    for number, row in enumerate(rows):
        node = _node(row, number, name)
        if results is not None:
            raise ParseError(f"node {short(node.name)} comes after the output")
        if node.kind == "output":
            (only,) = node.args if len(node.args) == 1 else (None,)
            if not isinstance(only, tuple) or not all(isinstance(v, (Ref, int, float, type(None))) for v in only):
                raise ParseError("the output node's args are not one list of results")
            results = only
        else:
            nodes.append(node)
    if results is None:
        raise ParseError("no output node: the graph is cut short")
    title = Path(name).stem[:200] if Path(name).stem.isprintable() else "graph"
    return CapturedProgram(title, tuple(nodes), results, claimed=True)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _kind(value: object) -> str:
    names = {"dict": "an object", "list": "a list", "str": "a string", "bool": "a boolean", "NoneType": "missing"}
    return names.get(type(value).__name__, "a number")


def _node(row: object, number: int, file: str) -> Node:
    if not isinstance(row, dict):
        raise ParseError(f"node number {number} is {_kind(row)}, not an object")
    fields = cast("dict[str, object]", row)
    name = fields.get("name")
    if not isinstance(name, str):
        raise ParseError(f"node number {number}: 'name' is {_kind(name)}, not a string")
    where = f"node {short(name)}"
    op, target = fields.get("op"), fields.get("target")
    if not isinstance(op, str) or op not in _KINDS:
        raise ParseError(f"{where}: 'op' is {short(op)}, not one of {', '.join(_KINDS)}")
    if not isinstance(target, str) or not 1 <= len(target) <= 200 or not target.isprintable():
        raise ParseError(f"{where}: 'target' {short(target)} is not a name of 1 to 200 printable characters")
    args, kwargs = fields.get("args", []), fields.get("kwargs", {})
    if not isinstance(args, list):
        raise ParseError(f"{where}: 'args' is {_kind(args)}, not a list")
    if not isinstance(kwargs, dict):
        raise ParseError(f"{where}: 'kwargs' is {_kind(kwargs)}, not an object")
    try:
        positional = _parse_values(cast("list[object]", args), 0)
        named = {_check_word(k): _value(v, 0) for k, v in cast("dict[str, object]", kwargs).items()}
        meta = _meta(fields.get("out"))
    except ParseError as error:
        raise ParseError(f"{where}: {error.what}", hint=error.hint) from None
    node = Node(name, _KINDS[op], target, positional, named, meta)
    code = str(node)
    line = SourceLine(file, number + 1, code[:300])
    return Node(name, node.kind, target, positional, named, meta, line)


def _check_word(text: str) -> str:
    if not (text.isidentifier() and text.isascii() and len(text) <= 60):
        raise ParseError(f"kwarg {short(text)} is not an argument name")
    return text


def _parse_values(items: list[object], depth: int) -> tuple[Value, ...]:
    if len(items) > MAX_ITEMS:
        raise ParseError(f"a list of {len(items)} values")
    return tuple(_value(v, depth) for v in items)


def _value(value: object, depth: int) -> Value:
    if depth > MAX_NESTING:
        raise ParseError(f"values nested deeper than {MAX_NESTING}")
    if isinstance(value, list):
        return _parse_values(cast("list[object]", value), depth + 1)
    if isinstance(value, dict):
        return _tagged(cast("dict[str, object]", value), depth)
    if isinstance(value, str):
        if len(value) > 1000:
            raise ParseError(f"a string of {len(value)} characters")
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return _int(value)
    if value is None or isinstance(value, (bool, float)):
        return value
    raise ParseError(f"{short(value)} is not a value")


def _int(value: int) -> int:
    if not -(2**63) <= value < 2**64:
        raise ParseError("an integer has more than 64 bits")
    return value


def _tagged(value: dict[str, object], depth: int) -> Value:
    if len(value) != 1:
        raise ParseError(
            f"{short(value)} is not a value: one of ref, dtype, slice, float, device, layout, memory_format"
        )
    ((tag, content),) = value.items()
    if tag == "ref" and isinstance(content, str):
        return Ref(content)
    if tag == "float" and isinstance(content, str) and content in _FLOATS:
        return _FLOATS[content]
    if tag == "slice" and isinstance(content, list) and len(cast("list[object]", content)) == 3:
        return slice(*_parse_values(cast("list[object]", content), depth + 1))
    for kind in _WORDS:
        if tag == kind and isinstance(content, str) and len(content) <= 60 and content.isprintable():
            return EnumConstant(kind, content.removeprefix("torch."))
    raise ParseError(f"{short(value)} is not a value: one of ref, dtype, slice, float, device, layout, memory_format")


def _meta(out: object) -> Meta:
    if isinstance(out, list):
        parts: list[TensorMeta | None] = []
        for o in cast("list[object]", out):
            if o is not None and not isinstance(o, dict):
                raise ParseError("'out' is a list of other things than tensors")
            parts.append(None if o is None else _tensor(cast("dict[str, object]", o)))
        return tuple(parts)
    if isinstance(out, dict):
        return _tensor(cast("dict[str, object]", out))
    if isinstance(out, int) and not isinstance(out, bool):
        return _int(out)
    if out is None or isinstance(out, (bool, float)):
        return out
    raise ParseError(f"'out' is {_kind(out)}, not a tensor")


def _tensor(out: Mapping[str, object]) -> TensorMeta:
    shape, strides = _sizes(out, "shape"), _sizes(out, "stride")
    dtype, offset = out.get("dtype"), out.get("storage_offset", 0)
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ParseError(f"'dtype' is {short(dtype)}, not a type of torch")
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < MAX_ELEMENTS:
        raise ParseError(f"'storage_offset' is {short(offset)}, not a number of elements")
    if len(strides) != len(shape):
        raise ParseError(f"{len(shape)} extents with {len(strides)} strides")
    if math.prod(max(n, 1) for n in shape) > MAX_ELEMENTS:
        raise ParseError("the shape has more than 2**62 elements")
    if offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n > 0) > MAX_ELEMENTS:
        raise ParseError("the strides reach beyond 2**62 elements")
    return TensorMeta(shape, dtype, strides, offset)


def _sizes(out: Mapping[str, object], key: str) -> tuple[int, ...]:
    value = out.get(key)
    if not isinstance(value, list):
        raise ParseError(f"'{key}' is {_kind(value)}, not a list")
    items = cast("list[object]", value)
    if len(items) > MAX_ITEMS:
        raise ParseError(f"'{key}' is a list of {len(items)} values")
    found = tuple(v for v in items if isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= MAX_ELEMENTS)
    if len(found) != len(items):
        raise ParseError(f"'{key}' {short(items)} is not a list of non-negative numbers", hint="sizes must be known")
    return found
