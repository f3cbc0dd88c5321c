"""Halide's lowered statements (``.stmt`` text) in the neutral form: loops, allocations, stores, conditions, vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, maximum, minimum, not_, or_, simplify, where
from idgraph.check.statement_values import FUNCTIONS
from idgraph.check.text_tree import (
    COMPARISONS,
    TextTree,
    TextValue,
    chosen,
    combined,
    element_types,
    fitted,
    integer,
    number,
    parsed,
    refused,
)

_WHAT = "Halide"
_GRAMMAR = Path(__file__).with_name("halide.lark").read_text(encoding="utf-8")
_WAYS: Mapping[str, str] = {  # a part of a line -> what to do where it is not known
    "<": "take the statement of a schedule for CPUs", "{": "take a schedule without atomic or asynchronous stages",
}  # fmt: skip
_SAME = frozenset({"likely", "likely_if_innermost", "promise_clamped", "unsafe_promise_clamped", "strict_float"})
_REFUSED = frozenset({"shuffle", "concat_vectors", "interleave_vectors", "slice_vectors", "vector_reduce_add",
                      "extract_element", "atomic"})  # fmt: skip
_SUMS = frozenset({"add", "mul", "min", "max"})
_SINGLE = frozenset({"neg", "exp", "log", "sqrt", "sin", "cos", "tanh", "abs", "floor", "ceil", "trunc", "round", "tan",
                     "asin", "acos", "atan", "sinh", "cosh"})  # fmt: skip
_COMPARED = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_FUNCTIONS = {
    **{k: k for k in (*_SUMS, "sub", "div", "neg", "abs")}, "pow_f32": "pow", "pow_f64": "pow",
    **{f"{k}_{t}": k for k in (*_SINGLE - {"neg", "abs"}, "atan2") for t in ("f32", "f64")},
    "fma": "fma", "both": "and", "either": "or", "negation": "not", "inf_f32": "inf", "inf_f64": "inf",
}  # fmt: skip


def exported(text: str, program: str, sizes: Mapping[str, int] | None = None) -> dict[str, object]:
    """A lowered statement as data for `idgraph.check.program`; ``program`` is the fusion's text that it should mean,
    ``sizes`` are numbers for names that the text takes from its arguments (``x.stride.1``).
    """
    tree = parsed(_GRAMMAR, text, _WHAT, _WAYS)
    given = {n: TextValue(as_expr(k)) for n, k in (sizes or {}).items()}
    reader = HalideImporter(given, frozenset(given), TextTree(types=frozenset(element_types(program).values())))
    for s in tree.children:
        if hasattr(s, "data"):
            reader.statement(s)
    return reader.tree.neutral(program)


@dataclass(slots=True)
class HalideImporter:
    """One statement: values by name."""

    values: dict[str, TextValue]
    given: frozenset[str]
    tree: TextTree = field(default_factory=TextTree)
    lane: Expr | None = None
    vectors: dict[str, Any] = field(default_factory=dict[str, Any])  # names of vectors: what they stand for

    def statement(self, s: Any) -> None:
        getattr(self, f"on_{s.data}")(s)

    def block(self, b: Any) -> None:
        before = dict(self.values)
        for s in b.children:
            self.statement(s)
        self.values = before

    def on_produce(self, s: Any) -> None:
        self.block(s.children[-1])

    on_function = on_produce

    def on_evaluate(self, s: Any) -> None:
        raise refused(_WHAT, s, f"a call for its effect, `{s.children[1]}`, which may write,")

    def on_loop(self, s: Any) -> None:
        kind, _, name, low, extent, _, block = s.children
        start = integer(self.value(low), _WHAT, low)
        trips = integer(self.value(extent), _WHAT, extent)

        def inside(i: Expr) -> None:
            before = self.values.get(str(name))
            self.values[str(name)] = TextValue(simplify(start + i))
            self.block(block)
            del self.values[str(name)]
            if before is not None:
                self.values[str(name)] = before

        unknown = refused(_WHAT, s, f"a loop whose length is not known: {name}")
        self.tree.loop(str(name), trips, inside, unknown, any_order=str(kind) in ("parallel", "vectorized"))

    def on_allocate(self, s: Any) -> None:
        name, _, *counts, _, _, _ = s.children
        size = as_expr(1)
        for x in counts:
            size = size * integer(self.value(x), _WHAT, x)
        size = simplify(size)
        self.tree.allocated(str(name), int(size) if size.is_const else None)

    def on_free(self, s: Any) -> None:
        self.tree.free(str(s.children[0]), s.meta.line)

    def on_assert(self, s: Any) -> None:
        return None

    def on_let(self, s: Any) -> None:
        name, e = s.children
        for call in e.find_data("call"):
            if any(call.find_data("pointer")) and not str(call.children[0]).startswith("_halide_buffer_"):
                raise refused(_WHAT, s, f"a call that takes memory, `{call.children[0]}`, which may write,")
        e = self.opened(e)
        if _vectors(e) and any(e.find_data("load")):
            raise refused(_WHAT, s, f"a vector that is loaded before it is used, {name},")
        if _vectors(e):
            self.vectors[str(name)] = e
        elif str(name) not in self.given:
            self.values[str(name)] = self.value(e)

    def opened(self, e: Any) -> Any:
        """An expression with the vectors that its names stand for."""
        if not self.vectors or not hasattr(e, "data"):
            return e
        if e.data == "name" and str(e.children[0]) in self.vectors:
            return self.vectors[str(e.children[0])]
        out = copy(e)
        out.children = [self.opened(x) for x in e.children]
        return out

    def on_if(self, s: Any) -> None:
        c, yes, no = s.children
        held = self.value(c).what
        if held is None or not held.cond:
            raise refused(_WHAT, s, "a condition that is not a formula of loops and numbers")
        if held is not FALSE:
            self.tree.guard(held, lambda: self.block(yes))
        if no is not None:
            self.tree.guard(not_(held), lambda: self.block(no) if no.data == "block" else self.statement(no))

    def on_store(self, s: Any) -> None:
        predicate, name, index, _, e = (self.opened(x) for x in s.children)
        widths = {_lane_count(x) for part in (predicate, index, e) for x in _vectors(part)}
        if not widths:
            self._stored(s, predicate, str(name), index, e)
            return
        if len(widths) > 1:
            raise refused(_WHAT, s, f"vectors of {sorted(widths)} lanes in one statement")
        whole = _vectors(index)
        if not whole:
            raise refused(_WHAT, s, "a vector stored to one element")

        def lanes(lane: Expr) -> None:
            self.lane = lane
            self._stored(s, predicate, str(name), index, e)
            self.lane = None

        width = as_expr(widths.pop())
        self.tree.loop(f"{name}.lane", width, lanes, refused(_WHAT, s, "a vector of no length"), any_order=True)

    def _stored(self, s: Any, predicate: Any, name: str, index: Any, e: Any) -> None:
        at, value = simplify(integer(self.value(index), _WHAT, index)), self.value(e)
        if self.lane is not None and any(
            r.buffer == name and simplify(r.index - at) != as_expr(0) for r in value.reads
        ):
            raise refused(_WHAT, s, f"a vector of {name} made of other elements of {name}")
        for x in e.find_data("load"):
            if x.children[-1] is not None and x.children[-1] != predicate:
                raise refused(_WHAT, s, "a load under another predicate than its store")
        held = TRUE if predicate is None else self.value(predicate).what
        if held is None:
            raise refused(_WHAT, s, "a predicate that is not a formula of loops and numbers")
        if held is TRUE:
            self.tree.store(name, at, value, s.meta.line)
        else:
            self.tree.guard(held, lambda: self.tree.store(name, at, value, s.meta.line))

    # values -----------------------------------------------------------------------------------------------------------

    def value(self, e: Any) -> TextValue:
        kind, parts = e.data, e.children
        special: Callable[[Any], TextValue] | None = getattr(self, f"of_{kind}", None)
        if special is not None:
            return special(e)
        args = [self.value(x) for x in parts if hasattr(x, "data")]
        if kind == "cast":
            return self.cast(str(parts[0]), args[0])
        if kind in ("pointer", "broadcast"):
            return args[0] if kind != "pointer" else combined(args)
        return self.operation(kind, args, str(parts[1]) if kind == "compare" else "")

    def operation(self, kind: str, args: list[TextValue], compared: str = "") -> TextValue:
        whole = [a.what for a in args if a.what is not None]
        if len(whole) == len(args):
            found = _integer_result(kind, whole, compared)
            width = next((a.width for a in args if a.width is not None), None)
            if found is not None and (found.cond or width is None):
                return TextValue(simplify(found))
            if found is not None and width is not None:
                return fitted(found, width[0], signed=width[1])
        op = _COMPARED.get(compared) or _FUNCTIONS.get(kind, "")
        return combined(args, op if op and len(args) == FUNCTIONS[op][0] else "")

    def cast(self, kind: str, x: TextValue) -> TextValue:
        """A value of another type: an integer that fits it, a float cut to its integer part or to fewer digits."""
        found = re.match(r"(bfloat|float|uint|int)(\d+)", kind)
        if found is None or found[2] == "1":  # a condition
            return x if x.what is not None and x.what.cond else combined([x])
        name, bits = found[1], int(found[2])
        if name.endswith("float"):
            return combined([x]) if self.tree.narrows(f"{name}{bits}") else replace(x, width=None)
        if x.what is None:
            return combined([x], "trunc")
        return fitted(where(x.what, 1, 0) if x.what.cond else x.what, bits, signed=name == "int")

    def of_number(self, e: Any) -> TextValue:
        return TextValue(as_expr(int(e.children[0])))

    def of_float(self, e: Any) -> TextValue:
        digits = str(e.children[0]).rstrip("fh")
        return TextValue() if digits.startswith('"') else number(float(digits))

    def of_boolean(self, e: Any) -> TextValue:
        return TextValue(TRUE if e.children[0] == "true" else not_(TRUE))

    def of_name(self, e: Any) -> TextValue:
        name = str(e.children[0])
        found = self.values.get(name)
        if found is None:
            return TextValue()  # of an argument; refused where an index or a bound needs it
        return found

    def of_let_in(self, e: Any) -> TextValue:
        name, value, body = e.children
        before = dict(self.values)
        self.values[str(name)] = self.value(value)
        found = self.value(body)
        self.values = before
        return found

    def of_load(self, e: Any) -> TextValue:
        name, index, *_ = e.children
        size = self.tree.sizes.get(str(name))
        return self.tree.load(str(name), integer(self.value(index), _WHAT, e), e.meta.line, size)

    def of_call(self, e: Any) -> TextValue:
        name = str(e.children[0])
        if name in _REFUSED:
            raise refused(_WHAT, e, f"`{name}` is not known here")
        args = [self.value(x) for x in e.children[1:] if x is not None]
        if name in ("neg_inf_f32", "neg_inf_f64"):
            return number(-inf)
        if name in _SAME and args:
            return args[0]
        if name == "_halide_buffer_is_bounds_query":  # the pipeline runs on memory that is there
            return TextValue(FALSE)
        if name in ("select", "if_then_else") and len(args) == 3:
            return chosen(*args)
        if name == "ramp" and len(args) == 3:
            base, step = (integer(a, _WHAT, e) for a in args[:2])
            return TextValue(base + step * (self.lane if self.lane is not None else as_expr(0)))
        return self.operation(name, args)


def _vectors(e: Any) -> list[Any]:
    """The ramps and broadcasts of an expression."""
    if not hasattr(e, "data"):
        return []
    found = [x for part in e.children for x in _vectors(part)]
    return [*found, e] if e.data == "broadcast" or (e.data == "call" and str(e.children[0]) == "ramp") else found


def _lane_count(e: Any) -> int:
    last = e.children[0] if e.data == "broadcast" else e.children[-1].children[0]
    digits = re.fullmatch(r"x?(\d{1,6})", str(last))
    if digits is None:
        raise refused(_WHAT, e, "a vector whose width is not a number")
    return int(digits[1])


def _integer_result(kind: str, args: list[Expr], compared: str) -> Expr | None:
    """The value of an operation on integers and conditions; None where it is none."""
    conditions = [a.cond for a in args]
    if kind == "negation" and conditions == [True]:
        return not_(args[0])
    if kind in ("both", "either") and conditions == [True, True]:
        return and_(*args) if kind == "both" else or_(*args)
    if any(conditions):
        return None
    if kind == "neg" and len(args) == 1:
        return -args[0]
    if len(args) != 2:
        return None
    a, b = args
    if kind == "compare":
        return COMPARISONS[compared](a, b)
    if kind in ("div", "mod"):
        return None if not b.is_const or int(b) <= 0 else a // b if kind == "div" else a % b
    known: dict[str, Callable[[Expr, Expr], Expr]] = {
        "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "min": minimum, "max": maximum,
    }  # fmt: skip
    return known[kind](a, b) if kind in known else None
