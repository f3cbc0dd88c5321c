"""MLIR's loops over memory in the neutral form: `affine`, `scf`, `memref` and `arith`, from their text."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idgraph.arith import TRUE, Expr, and_, as_expr, maximum, minimum, not_, or_, simplify, where
from idgraph.check.program import CheckError
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

_WHAT = "MLIR"
_GRAMMAR = Path(__file__).with_name("mlir.lark").read_text(encoding="utf-8")
_WAYS: Mapping[str, str] = {  # a part of a line -> what to do where it is not known
    "iter_args": "keep what a loop carries in a memref of one element", "init (": "sum up in a memref of one element",
    "vector": "take the text from before vectors are made", "gpu.": "take the text from before loops become kernels",
    "all (": "lower it to scf.parallel", "scf.while": "loops have bounds here", "call": "inline what it calls",
    "memref.global": "what it holds is an argument here", "affine_map": "--normalize-memrefs removes maps of layouts",
    "memref.": "fold views into addresses: --fold-memref-alias-ops --expand-strided-metadata",
    "->": "results are arguments: --buffer-results-to-out-params", "loc": "print it without locations",
    "?": "specialize the function: sizes and strides are numbers here", '"': "print it in the forms of the operations",
}  # fmt: skip
_COMPARE = {"eq": "==", "ne": "!=", "slt": "<", "sle": "<=", "sgt": ">", "sge": ">=",
            "ult": "<", "ule": "<=", "ugt": ">", "uge": ">="}  # fmt: skip
_PREDICATES = {
    **{f"{o}{k}": k for k in ("eq", "ne", "gt", "ge", "lt", "le") for o in ("o", "u", "")},
}  # fmt: skip
_INTEGER: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "addi": lambda a, b: a + b, "subi": lambda a, b: a - b, "muli": lambda a, b: a * b,
    "minsi": minimum, "maxsi": maximum, "andi": and_,
}  # fmt: skip
_DIVISIONS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "floordivsi": lambda a, b: a // b, "ceildivsi": lambda a, b: (a + b - 1) // b,
    "divsi": lambda a, b: a // b, "divui": lambda a, b: a // b,
    "remsi": lambda a, b: a % b, "remui": lambda a, b: a % b,
}  # fmt: skip
_FLOORS = frozenset({"floordivsi", "ceildivsi"})  # the others are the same for what is not negative
_CASTS = frozenset({"index_cast", "index_castui", "extsi", "extui", "trunci"})
_FLOATS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_FUNCTIONS = {"addf": "add", "subf": "sub", "mulf": "mul", "divf": "div", "negf": "neg", "maximumf": "max",
              "maxnumf": "max", "minimumf": "min", "minnumf": "min", "absf": "abs", "exp": "exp", "log": "log",
              "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh", "sin": "sin", "cos": "cos", "erf": "erf",
              "powf": "pow", "floor": "floor", "ceil": "ceil",
              "maxf": "max", "minf": "min", "exp2": "exp2", "expm1": "expm1", "log2": "log2", "log10": "log10",
              "log1p": "log1p", "tan": "tan", "atan": "atan", "atan2": "atan2", "sinh": "sinh", "cosh": "cosh",
              "asin": "asin", "acos": "acos", "roundeven": "round", "trunc": "trunc", "fma": "fma", "fptosi": "trunc",
              "fptoui": "trunc"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemRef:
    """A memref: the buffer, and where element (c0, c1, ...) lies in it."""

    buffer: str
    strides: tuple[int, ...]
    offset: Expr
    size: int  # of the buffer
    shape: str = ""  # as declared; "" for a part of another


def exported(text: str, program: str) -> dict[str, object]:
    """A function of MLIR text as data for `idgraph.check.program`; ``program``: the fusion text that it should mean."""
    tree = parsed(_GRAMMAR, text, _WHAT, _WAYS)
    types = element_types(program)
    reader = MlirImporter(TextTree(types=frozenset(types.values())), types)
    functions = [x for x in tree.children if x.data == "func"]
    for x in tree.children:
        if x.data == "alias":
            reader.aliases[str(x.children[0])] = x.children[1]
    if len(functions) != 1:
        raise CheckError(f"{_WHAT}: {len(functions)} functions with a body; one is read")
    reader.function(functions[0])
    return reader.tree.neutral(program)


@dataclass(slots=True)
class MlirImporter:
    """One function: SSA values and memrefs by name."""

    tree: TextTree = field(default_factory=TextTree)
    types: Mapping[str, str] = field(default_factory=dict[str, str])  # of the program's tensors
    values: dict[str, TextValue] = field(default_factory=dict[str, TextValue])
    memory: dict[str, MemRef] = field(default_factory=dict[str, MemRef])
    aliases: dict[str, Any] = field(default_factory=dict[str, Any])
    buffers: set[str] = field(default_factory=set[str])

    def function(self, f: Any) -> None:
        for p in f.children[1:-1]:
            if p is not None and p.data == "param":
                self.declare(p.children[0], p.children[1])
                self.holds(p.children[0], p.children[1])
        self.region(f.children[-1])

    def holds(self, name: Any, kind: Any) -> None:
        """An argument that a tensor of the program names has its element type."""
        wanted, shape = self.types.get(str(name)[1:]), str(kind.children[0])
        found = _FLOATS.get(shape.split("x")[-1])
        if wanted is not None and found is not None and kind.children[0].type == "SHAPE" and wanted != found:
            raise refused(_WHAT, kind, f"{name} holds {found}, and the program's {str(name)[1:]} is {wanted}")

    def declare(self, name: Any, kind: Any) -> None:
        """Memory of an argument or an allocation; a number of the caller's is refused where it is used."""
        shape = kind.children[0]
        if shape.type != "SHAPE":
            return
        plain = str(name)[1:]
        buffer, k = plain, 1
        while buffer in self.buffers:
            buffer, k = f"{plain}_{k}", k + 1
        self.buffers.add(buffer)
        strides, offset, size = _laid_out(kind)
        self.fresh(name)
        self.memory[str(name)] = MemRef(buffer, strides, offset, size, str(shape))

    def region(self, r: Any) -> None:
        values, memory = dict(self.values), dict(self.memory)
        for s in r.children:
            getattr(self, f"on_{s.data}")(s)
        self.values, self.memory = values, memory

    # formulas ---------------------------------------------------------------------------------------------------------

    def fresh(self, name: Any) -> None:
        if str(name) in self.values or str(name) in self.memory:
            raise refused(_WHAT, name, f"`{name}` is defined twice")

    def define(self, name: Any, value: TextValue) -> None:
        self.fresh(name)
        self.values[str(name)] = value

    def value(self, token: Any) -> TextValue:
        found = self.values.get(str(token))
        if found is None:
            raise refused(_WHAT, token, f"`{token}` is not a value that is known here")
        return found

    def number(self, token: Any) -> Expr:
        return integer(self.value(token), _WHAT, token)

    def numbers(self, tokens: Any) -> list[Expr]:
        return [] if tokens is None else [self.number(t) for t in tokens.children]

    def formula(self, e: Any, scope: Mapping[str, Expr]) -> Expr:
        kind, parts = e.data, e.children
        if kind == "number":
            return as_expr(int(parts[0]))
        if kind == "value":
            return self.number(parts[0])
        if kind == "dimension":
            if str(parts[0]) not in scope:
                raise refused(_WHAT, parts[0], f"`{parts[0]}` is not a dimension of this map")
            return scope[str(parts[0])]
        if kind in ("min", "max"):
            return _extreme([self.formula(x, scope) for x in parts[0].children], largest=kind == "max")
        a, *rest = [self.formula(x, scope) for x in parts]
        if kind == "neg":
            return -a
        b = rest[0]
        if kind in ("mod", "floordiv", "ceildiv") and not (b.is_const and int(b) > 0):
            raise refused(_WHAT, e, f"{kind} by what is not a positive number")
        return {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "mod": lambda: a % b,
                "floordiv": lambda: a // b, "ceildiv": lambda: (a + b - 1) // b}[kind]()  # fmt: skip

    def scope(self, node: Any, m: Any, dims: Any, symbols: Any) -> dict[str, Expr]:
        names = [str(t) for part in m.children[:2] if part is not None for t in part.children]
        given = [*self.numbers(dims), *self.numbers(symbols)]
        if len(names) != len(given):
            raise refused(_WHAT, node, f"{len(given)} operands for {len(names)} dimensions and symbols")
        return dict(zip(names, given, strict=True))

    def named(self, x: Any, kind: str) -> Any:
        found = self.aliases.get(str(x)) if not hasattr(x, "data") else x
        if found is None or found.data != kind:
            raise refused(_WHAT, x, f"`{x}` is not a {kind} that is known here")
        return found

    def applied(self, a: Any) -> list[Expr]:
        m = self.named(a.children[0], "map")
        scope = self.scope(a, m, a.children[1], a.children[2])
        return [self.formula(e, scope) for e in m.children[2].children]

    def bound(self, b: Any, *, low: bool) -> Expr:
        (x,) = b.children
        if not hasattr(x, "data"):
            return as_expr(int(x)) if x.type == "INT" else self.number(x)
        return _extreme(self.applied(x), largest=low)

    # loops ------------------------------------------------------------------------------------------------------------

    def nest(self, node: Any, names: Sequence[Any], bounds: Sequence[tuple[Expr, Expr, int]], region: Any,
             *, any_order: bool) -> None:  # fmt: skip
        """Loops, outermost first. Bounds of other loops: the longest it can be, and a guard."""
        if not names:
            self.region(region)
            return
        (low, high, step), name = bounds[0], names[0]
        if step < 1:
            raise refused(_WHAT, node, f"a step of {step}")

        def inside(i: Expr) -> None:
            self.define(name, TextValue(simplify(low + i * step)))
            self.nest(node, names[1:], bounds[1:], region, any_order=any_order)
            del self.values[str(name)]

        unknown = refused(_WHAT, node, "a loop whose length is not known")
        self.tree.loop(str(name)[1:], (high - low + step - 1) // step, inside, unknown, any_order=any_order)

    def on_affine_for(self, s: Any) -> None:
        name, low, high, step, region = s.children
        bounds = (self.bound(low, low=True), self.bound(high, low=False), int(step or 1))
        self.nest(s, [name], [bounds], region, any_order=False)

    def on_scf_for(self, s: Any) -> None:
        name, low, high, step, region = s.children
        bounds = (self.number(low), self.number(high), self.constant_of(step))
        self.nest(s, [name], [bounds], region, any_order=False)

    def constant_of(self, token: Any) -> int:
        found = simplify(self.number(token))
        if not found.is_const:
            raise refused(_WHAT, token, "a step that is not a number")
        return int(found)

    def on_affine_parallel(self, s: Any) -> None:
        names, low, high, step, region = s.children
        lows, highs = ([self.formula(e, {}) for e in x.children] for x in (low, high))
        self._parallel(s, names, lows, highs, [int(x) for x in step.children] if step else [1] * len(lows), region)

    def on_scf_parallel(self, s: Any) -> None:
        names, low, high, step, region = s.children
        steps = [self.constant_of(t) for t in step.children]
        self._parallel(s, names, self.numbers(low), self.numbers(high), steps, region)

    def _parallel(self, s: Any, names: Any, lows: list[Expr], highs: list[Expr], steps: list[int], region: Any) -> None:
        if not len(names.children) == len(lows) == len(highs) == len(steps):
            raise refused(_WHAT, s, "as many bounds and steps as loops are needed")
        self.nest(s, names.children, list(zip(lows, highs, steps, strict=True)), region, any_order=True)

    def on_affine_if(self, s: Any) -> None:
        which, dims, symbols, yes, no = s.children
        found = self.named(which, "set")
        scope = self.scope(s, found, dims, symbols)
        held = TRUE
        for c in found.children[2:]:
            a, op, b = c.children
            held = and_(held, COMPARISONS[str(op)](self.formula(a, scope), self.formula(b, scope)))
        self._branches(held, yes, no)

    def on_scf_if(self, s: Any) -> None:
        c, yes, no = s.children
        found = self.value(c).what
        if found is None or not found.cond:
            raise refused(_WHAT, c, "a condition that is not a formula of loops and numbers")
        self._branches(found, yes, no)

    def _branches(self, held: Expr, yes: Any, no: Any) -> None:
        self.tree.guard(held, lambda: self.region(yes))
        if no is not None:
            self.tree.guard(not_(held), lambda: self.region(no))

    # memory -----------------------------------------------------------------------------------------------------------

    def address(self, token: Any, indices: Any, kind: Any = None) -> tuple[str, Expr]:
        m = self.memory.get(str(token))
        if m is None:
            raise refused(_WHAT, token, f"`{token}` is not a memref of a fixed shape")
        said = "" if kind is None else str(kind.children[0])
        if m.shape and said and said != m.shape:
            raise refused(_WHAT, token, f"`{token}` is a memref of {m.shape}, not of {said}")
        found = [] if indices is None else [self.formula(e, {}) for e in indices.children]
        if len(found) != len(m.strides):
            raise refused(_WHAT, token, f"{len(found)} indices for {len(m.strides)} axes")
        return self.element(token, found)

    def element(self, token: Any, at: Sequence[Expr]) -> tuple[str, Expr]:
        m = self.memory[str(token)]
        return m.buffer, simplify(m.offset + sum((x * s for x, s in zip(at, m.strides, strict=True)), as_expr(0)))

    def on_load(self, s: Any) -> None:
        name, memory, indices, kind = s.children
        buffer, index = self.address(memory, indices, kind)
        self.define(name, self.tree.load(buffer, index, s.meta.line, self.memory[str(memory)].size))

    def on_store(self, s: Any) -> None:
        value, memory, indices, kind = s.children
        self.tree.store(*self.address(memory, indices, kind), self.value(value), s.meta.line)

    def on_copy(self, s: Any) -> None:
        """Loops over the elements, in any order."""
        source, target, kind, other = s.children
        sizes = [int(n) for n in str(kind.children[0]).split("x")[:-1]]
        strides = [self.memory[str(m)].strides for m in (source, target) if str(m) in self.memory]
        if len(strides) != 2 or any(len(x) != len(sizes) for x in strides) or kind.children[0] != other.children[0]:
            raise refused(_WHAT, s, "a copy of what is not memory of one fixed shape")

        def loops(at: tuple[Expr, ...]) -> None:
            if len(at) < len(sizes):
                unknown = refused(_WHAT, s, "a copy of unknown length")
                self.tree.loop("copy", as_expr(sizes[len(at)]), lambda i: loops((*at, i)), unknown, any_order=True)
                return
            (a, p), (b, q) = (self.element(m, at) for m in (source, target))
            self.tree.store(b, q, self.tree.load(a, p, s.meta.line, self.memory[str(source)].size), s.meta.line)

        loops(())

    def on_alloc(self, s: Any) -> None:
        name, kind = s.children
        if kind.children[0].type != "SHAPE":
            raise refused(_WHAT, s, "an allocation that is not a memref")
        self.declare(name, kind)
        made = self.memory[str(name)]
        self.tree.allocated(made.buffer, made.size)

    def on_dealloc(self, s: Any) -> None:
        found = self.memory.get(str(s.children[0]))
        if found is not None:
            self.tree.free(found.buffer, s.meta.line)

    def on_return(self, s: Any) -> None:
        return None

    on_yield = on_return

    def on_subview(self, s: Any) -> None:
        name, base, offsets, sizes, steps, *_ = s.children
        buffer, start = self.address(base, offsets)
        strides = self.memory[str(base)].strides
        if not len(strides) == len(sizes.children) == len(steps.children):
            raise refused(_WHAT, s, f"offsets, sizes and strides for {len(strides)} axes are needed")
        found = tuple(a * int(b) for a, b in zip(strides, steps.children, strict=True))
        self.fresh(name)
        self.memory[str(name)] = MemRef(buffer, found, start, self.memory[str(base)].size)

    # values -----------------------------------------------------------------------------------------------------------

    def on_apply(self, s: Any) -> None:
        name, *rest = s.children
        found = self.applied(rest[-1])
        if len(rest) == 1 and len(found) != 1:
            raise refused(_WHAT, s, f"a map of {len(found)} results")
        self.define(name, TextValue(_extreme(found, largest=str(rest[0]) == "affine.max")))

    def on_constant(self, s: Any) -> None:
        name, x, kind = s.children
        if x.type == "BOOL":
            self.define(name, TextValue(TRUE if x == "true" else not_(TRUE)))
        elif x.type == "INT":
            self.define(name, fitted(as_expr(int(x)), _bits(kind)))
        else:
            self.define(name, _of_bits(str(x), kind) if str(x).startswith("0x") else number(float(x)))

    def on_arith(self, s: Any) -> None:
        name, op, predicate, operands, _, kind, target = s.children
        args = [self.value(t) for t in operands.children]
        self.define(name, self.arith(str(op).split(".")[1], str(predicate), args, kind, target))

    def arith(self, op: str, predicate: str, args: list[TextValue], kind: Any, target: Any) -> TextValue:
        """``kind`` is the type of the operands, ``target`` the one of a cast's result."""
        if op == "select" and len(args) == 3:
            return chosen(*args)
        whole = [a.what for a in args if a.what is not None]
        if len(whole) == len(args) == 1 and op in (*_CASTS, "sitofp", "uitofp"):
            return _cast(op, whole[0], 64 if target is None else _bits(target))
        if len(whole) == len(args) == 2:
            found = _of_integers(op, predicate, whole[0], whole[1], _bits(kind))
            if found is not None:
                return found
        if op in ("cmpf", "cmpi") and len(args) == 2:
            return combined(
                args, _PREDICATES.get(predicate if op == "cmpf" or predicate[:1] != "s" else predicate[1:], "")
            )
        if op in ("extf", "truncf", "sitofp", "uitofp") and len(args) == 1:
            narrow = target is not None and self.tree.narrows(_FLOATS.get(str(target.children[0]), ""))
            return combined(args) if narrow else args[0]
        return combined(args, _FUNCTIONS.get(op, ""))


def _cast(op: str, x: Expr, bits: int) -> TextValue:
    """An integer of another type. A bit is -1 or 1, by its extension; without a sign, no number is negative."""
    low = simplify(x).range.lo
    if x.cond or (op in ("extui", "index_castui", "uitofp") and (low is None or low < 0)):
        return TextValue(where(x, 1, 0)) if x.cond and op in ("extui", "index_castui", "uitofp") else TextValue()
    return fitted(x, bits)


def _of_integers(op: str, predicate: str, a: Expr, b: Expr, bits: int) -> TextValue | None:
    """An operation on integers and conditions; None where it is none that is known."""
    if op == "cmpi" and predicate in _COMPARE and not a.cond and not b.cond:
        plain = COMPARISONS[_COMPARE[predicate]]
        if not predicate.startswith("u"):
            return TextValue(plain(a, b))
        x, y = simplify(a < 0), simplify(b < 0)  # what is negative is above all that is not
        other = plain(where(x, 1, 0), where(y, 1, 0))
        return TextValue(simplify(where(or_(and_(x, y), and_(not_(x), not_(y))), plain(a, b), other)))
    if op in _INTEGER and a.cond == b.cond == (op == "andi"):
        found = _INTEGER[op](a, b)
        return TextValue(simplify(found)) if found.cond else fitted(found, bits)
    if op in _DIVISIONS and not a.cond and b.is_const and int(b) > 0:
        low = simplify(a).range.lo
        if op in _FLOORS or (low is not None and low >= 0):
            return fitted(_DIVISIONS[op](a, b), bits)
    return None


def _bits(kind: Any) -> int:
    """The width of a type of integers; 64 of an index."""
    name = "" if kind is None else str(kind.children[0])
    return int(name[1:]) if re.fullmatch(r"i[0-9]{1,4}", name) else 64


def _of_bits(digits: str, kind: Any) -> TextValue:
    """A float that is written as its bits: infinities."""
    name, bits = "" if kind is None else str(kind.children[0]), int(digits, 16)
    form = {"f16": ("<H", "<e"), "f32": ("<I", "<f"), "f64": ("<Q", "<d")}.get(name)
    if form is None or bits >> 8 * struct.calcsize(form[0]):
        return TextValue()
    return number(float(struct.unpack(form[1], struct.pack(form[0], bits))[0]))


def _extreme(found: Sequence[Expr], *, largest: bool) -> Expr:
    out = found[0]
    for x in found[1:]:
        out = maximum(out, x) if largest else minimum(out, x)
    return out


def _laid_out(kind: Any) -> tuple[tuple[int, ...], Expr, int]:
    """Strides and offset of a memref's type, and the elements that it spans from the start of its memory."""
    shape, layout = kind.children
    sizes = [int(n) for n in str(shape).split("x")[:-1]]
    if layout is None:
        strides: list[int] = []
        step = 1
        for n in reversed(sizes):
            strides.append(step)
            step *= n
        return tuple(reversed(strides)), as_expr(0), step
    steps, offset = layout.children
    found = tuple(int(x) for x in steps.children)
    if len(found) != len(sizes):
        raise refused(_WHAT, kind, f"{len(found)} strides for {len(sizes)} axes")
    start = int(offset or 0)
    return found, as_expr(start), start + 1 + sum((n - 1) * s for n, s in zip(sizes, found, strict=True))
