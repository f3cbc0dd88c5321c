"""TVM's scheduled functions in the neutral form: a PrimFunc's loops, stores and loads as JSON data.

Nodes are read by the names of their classes; only `exported` needs ``apache-tvm``, to lower blocks to loops.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from math import prod
from typing import Any

from idgraph.check.program import CheckError
from idgraph.check.statement_values import FUNCTIONS, OPAQUE

_BINARY: Mapping[str, str] = {
    "Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=",
    "EQ": "==", "NE": "!=", "And": "&", "Or": "|",
}  # fmt: skip
_VALUES: Mapping[str, str] = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Max": "max", "Min": "min", "LT": "lt", "LE": "le",
    "GT": "gt", "GE": "ge", "EQ": "eq", "NE": "ne", "FloorDiv": "floordiv", "FloorMod": "mod",
}  # fmt: skip
_LOADS = ("BufferLoad", "TensorLoad")
_UNKNOWN = f"{OPAQUE}()"
_ANY_ORDER = frozenset({"1", "2", "4", "ForKind.PARALLEL", "ForKind.VECTORIZED", "ForKind.THREAD_BINDING"})
_INDEX_BITS = 32  # integers of so many do not wrap here
LARGE = 1 << 18  # points of a sum that is not followed point by point
_Node = dict[str, object]
_PASSES = (
    "LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque", "LowerOpaqueBlock",
)  # fmt: skip


def exported(function: Any, program: str) -> dict[str, object]:
    """A PrimFunc of ``apache-tvm`` (scheduled, its blocks still there), or an IRModule of one, as data for
    `idgraph.check.program`.

    ``program`` is what it should mean, a fusion's text whose tensors have the names of the function's buffers. Raises
    `CheckError` where TVM is missing or the function has a form that is not known here.
    """
    try:  # an extra
        tvm: Any = import_module("tvm")
        transform: Any = import_module("tvm.s_tir").transform
    except ImportError:
        raise CheckError("a function of TVM needs apache-tvm", hint="pip install apache-tvm") from None
    try:
        made: Any = tvm.IRModule({"main": _only_function(function, tvm)})
        for name in _PASSES:
            made = getattr(transform, name)()(made)
    except CheckError:
        raise
    except Exception as error:  # TVM's own, of what it does not take
        what = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise CheckError(f"TVM cannot lower a {type(function).__name__}: {what[:200]}") from None
    return neutral(made["main"], program)


def _only_function(x: Any, tvm: Any) -> Any:
    if not isinstance(x, tvm.IRModule):
        return x
    every: list[Any] = list(x.functions.values())
    if len(every) != 1:
        raise CheckError(f"an IRModule of {len(every)} functions", hint='give one of them: module["main"]')
    return every[0]


def neutral(function: Any, program: str) -> dict[str, object]:
    """The same of a function that is loops, conditions and stores already."""
    reader = _TirExporter()
    body, _ = reader.body(function.body, ())
    sizes = {"buffers": reader.sizes} if reader.sizes else {}
    return {"version": 1, "program": program, **sizes, "body": [_large_sum(x) for x in body]}


class _TirExporter:
    """Statements as they stand: loops, guards, and a nest for each store."""

    def __init__(self) -> None:
        self.count = 0
        self.sizes: dict[str, dict[str, int]] = {}

    def body(self, s: Any, loops: tuple[str, ...]) -> tuple[list[_Node], list[str]]:
        """(the nodes of a statement, buffers that it allocates)."""
        kind = type(s).__name__
        if kind == "SeqStmt":
            parts = [self.body(x, loops) for x in s.seq]
            return [n for nodes, _ in parts for n in nodes], [x for _, own in parts for x in own]
        if kind == "For":
            return [self._loop(s, loops)], []
        if kind == "IfThenElse":
            c = _formula_text(s.condition)
            branches = [(c, s.then_case)]
            if s.else_case is not None:
                branches.append((f"where({c}, 1, 0) == 0", s.else_case))
            parts = [(when, *self.body(x, loops)) for when, x in branches]
            return [{"if": when, "body": nodes} for when, nodes, _ in parts], [x for _, _, own in parts for x in own]
        if kind == "BufferStore":
            return [self._store(s)], []
        if kind in ("AttrStmt", "DeclBuffer", "AllocBuffer", "Allocate"):
            own = [str(s.buffer.name)] if kind == "AllocBuffer" else []
            if own:
                self.sizes[own[0]] = {"size": prod(int(n) for n in s.buffer.shape)}
            if getattr(s, "body", None) is None:
                return [], own
            nodes, more = self.body(s.body, loops)
            return nodes, [*own, *more]
        raise CheckError(f"a statement of TVM that is not known here: {kind}")

    def _loop(self, s: Any, loops: tuple[str, ...]) -> _Node:
        if int(s.min) != 0:
            raise CheckError(f"a loop that starts at {s.min}: loops start at 0")
        name = str(s.loop_var.name)
        if name in loops:
            raise CheckError(f"two loops inside of each other have the variable {name}")
        nodes, own = self.body(s.body, (*loops, name))
        order = "any" if str(getattr(s, "kind", 0)) in _ANY_ORDER else "serial"
        return {"for": [name, int(s.extent)], "order": order, "private": own, "body": nodes}

    def _store(self, s: Any) -> _Node:
        name, index = str(s.buffer.name), self._address(s.buffer, s.indices)
        reads: list[dict[str, object]] = []
        self._reads(s.value, (), reads)
        self.count += 1
        write: _Node = {"buffer": name, "index": index, "mode": "store", "reads": reads}
        write["value"] = self._value(s.value, reads)
        return {"name": f"{name}.{self.count - 1}", "writes": [write]}

    def _reads(self, e: Any, when: tuple[str, ...], into: list[dict[str, object]]) -> None:
        kind = type(e).__name__
        if kind in _LOADS:
            b = e.buffer if hasattr(e, "buffer") else e.source
            found: dict[str, object] = {
                "buffer": str(b.name),
                "index": self._address(b, e.indices),
                "when": _conjunction(when),
            }
            if found not in into:
                into.append(found)
        elif kind == "Select" or (kind == "Call" and str(e.op.name).endswith("if_then_else")):
            parts = (e.condition, e.true_value, e.false_value) if kind == "Select" else e.args
            yes, no = _where_read(parts[0], when)
            self._reads(parts[0], when, into)
            self._reads(parts[1], yes, into)
            self._reads(parts[2], no, into)
        elif kind == "Call":
            for a in e.args:
                self._reads(a, when, into)
        else:
            for part in ("a", "b", "value"):
                x = getattr(e, part, None)
                if x is not None and hasattr(x, "span"):
                    self._reads(x, when, into)

    def _value(self, e: Any, reads: list[dict[str, object]], when: tuple[str, ...] = ()) -> str:
        """The computation of a value, in the neutral form's syntax."""
        kind = type(e).__name__
        if kind in _LOADS:
            found: list[dict[str, object]] = []
            self._reads(e, when, found)
            return f"r{reads.index(found[0])}"
        if kind in ("FloatImm", "IntImm"):
            return repr(float(e.value if kind == "FloatImm" else int(e)))
        if kind == "Var":
            return str(e.name)
        if kind == "Call":
            name = str(e.op.name).rsplit(".", 1)[-1]
            if name == "if_then_else":
                return self._choice(e.args, reads, when)
            parts = [self._value(x, reads, when) for x in e.args]
            name = {"fabs": "abs"}.get(name, name)
            known = name in FUNCTIONS and FUNCTIONS[name][0] == len(parts)
            return f"{name}({', '.join(parts)})" if known else _UNKNOWN
        if kind == "Select":
            return self._choice((e.condition, e.true_value, e.false_value), reads, when)
        if kind == "Cast":
            return _cast_value(self._value(e.value, reads, when), _type_of(e.value), _type_of(e))
        if kind in ("And", "Or"):
            return f"({self._value(e.a, reads, when)} {kind.lower()} {self._value(e.b, reads, when)})"
        if kind == "Not":
            return f"(not {self._value(e.a, reads, when)})"
        if kind not in _VALUES or (kind == "Div" and not _type_of(e).startswith("float")):
            return _UNKNOWN
        return f"{_VALUES[kind]}({self._value(e.a, reads, when)}, {self._value(e.b, reads, when)})"

    def _choice(self, parts: Any, reads: list[dict[str, object]], when: tuple[str, ...]) -> str:
        yes, no = _where_read(parts[0], when)
        c = self._value(parts[0], reads, when)
        return f"where({c}, {self._value(parts[1], reads, yes)}, {self._value(parts[2], reads, no)})"

    def _address(self, b: Any, indices: Any) -> str:
        """Row-major."""
        out = "0"
        for n, x in zip(b.shape, indices, strict=True):
            out = f"({out})*{_formula_text(n)} + {_formula_text(x)}"
        return out


def _large_sum(node: _Node) -> _Node:
    """A sum that is started and added up in one nest of loops, as a nest that reduces where it has too many points to
    be followed: its start must run at the first point of the loops that its address does not use, and only there.
    """
    chain: list[Any] = []
    at: Any = node
    while "body" in at and len(at["body"]) == 1:
        chain.append(at)
        (at,) = at["body"]
    if "body" in at and "for" in at:
        chain.append(at)
    loops = [tuple(x["for"]) for x in chain if "for" in x]
    last: Any = chain[-1]["body"] if chain else []
    if prod(n for _, n in loops) < LARGE or len(last) != 2 or any(x.get("private") for x in chain):
        return node
    start, update = last
    if "if" not in start or len(start["body"]) != 1 or "writes" not in start["body"][0] or "writes" not in update:
        return node
    (a,), (b,) = start["body"][0]["writes"], update["writes"]
    free = [n for n, _ in loops if not re.search(rf"\b{re.escape(n)}\b", b["index"])]
    guards = [x["if"] for x in chain if "if" in x]
    first = sorted(re.sub(r"[()\s]", "", x) for x in start["if"].split("&"))
    ordered = not any(x.get("order") == "any" and x["for"][0] in free for x in chain)
    late = any(re.search(rf"\b{re.escape(n)}\b", g) for n in free for g in guards)
    own = {"buffer": b["buffer"], "index": b["index"], "when": "True"}
    same = a["buffer"] == b["buffer"] and a["index"] == b["index"] and not a["reads"] and own in b["reads"]
    if not (same and ordered and not late and first == sorted(f"{n}==0" for n in free)):
        return node
    reads = [x for x in b["reads"] if x != own]
    write = {"buffer": b["buffer"], "index": b["index"], "when": _conjunction(tuple(guards)), "reads": reads}
    inner = [list(p) for p in loops if p[0] in free]
    own = [list(p) for p in loops if p[0] not in free]
    return {"name": update["name"], "loops": own, "reduce": inner, "writes": [write]}


def _type_of(e: Any) -> str:
    return str(getattr(e, "dtype", "float32"))


def _cast_value(value: str, old: str, new: str) -> str:
    """A cast; what has fewer digits then, or may wrap, is not known here."""
    bits = int(re.sub(r"\D", "", new) or 1)
    if new.startswith("float"):
        return _UNKNOWN if old.startswith("float") and bits < int(re.sub(r"\D", "", old)) else value
    if not new.startswith("int") or bits < _INDEX_BITS:
        return _UNKNOWN
    return f"trunc({value})" if old.startswith("float") else value


def _where_read(condition: Any, when: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where both branches of a choice are read: anywhere, where loaded values choose."""
    if _has_load(condition):
        return when, when
    c = _formula_text(condition)
    return (*when, c), (*when, _negated(c))


def _has_load(e: Any) -> bool:
    if type(e).__name__ in _LOADS:
        return True
    parts = [getattr(e, name, None) for name in ("a", "b", "value", "condition", "true_value", "false_value")]
    return any(_has_load(x) for x in (*parts, *getattr(e, "args", ())) if hasattr(x, "span"))


def _negated(condition: str) -> str:
    return f"(1 - where({condition}, 1, 0) == 1)"


def _conjunction(conditions: tuple[str, ...]) -> str:
    return " & ".join(f"({c})" for c in conditions) or "True"


def _formula_text(e: Any) -> str:
    """An index formula in the neutral form's syntax."""
    kind = type(e).__name__
    if kind in ("IntImm", "int"):
        return str(int(e))
    if kind == "Var":
        return str(e.name)
    if kind in _BINARY:
        return f"({_formula_text(e.a)} {_BINARY[kind]} {_formula_text(e.b)})"
    if kind in ("Min", "Max"):
        return f"{kind.lower()}({_formula_text(e.a)}, {_formula_text(e.b)})"
    if kind == "Select" or (kind == "Call" and str(e.op.name).endswith("if_then_else")):
        parts = (e.condition, e.true_value, e.false_value) if kind == "Select" else e.args
        return f"where({', '.join(map(_formula_text, parts))})"
    if kind == "Cast" and re.fullmatch(r"int(32|64)", _type_of(e)):
        return _formula_text(e.value)
    raise CheckError(f"an index of TVM that is not known here: {kind}")
