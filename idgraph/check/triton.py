"""The addresses of generated Triton source, read from its text: `tl.load`, `tl.store`, decompositions, masks.

The text is parsed (`ast.parse`), never evaluated or executed. Each kernel that Inductor's wrapper calls becomes loop
nests of the neutral form, one for each store; a form that is not known here is reported, not guessed.

Long: one parser of one language, with the forms that it knows.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import TRUE, ArithError, Expr, and_, as_expr, not_, simplify, symbol, where
from idgraph.check.index_values import Value, ValueTable, combine, substitute_symbols, unwrapped, wrapped_parts
from idgraph.check.inductor_wrapper import Argument, WrapperLaunch, name_of, parse_source
from idgraph.check.program import ZERO, Axis, CheckError, IndirectIndex, LoadedValue, Nest, Read, StatementValue, Write

PREFIXES = ("z", "y", "x")
REDUCERS: Mapping[str, str] = {  # to Inductor's name of the reduction, where it has one operation
    "sum": "sum", "max2": "max", "min2": "min", "any": "any", "prod": "prod", "xor_sum": "xor_sum", "max": "max",
    "min": "min", "min_with_index": "min", "max_with_index": "max", "welford": "", "reduce": "",
    "online_softmax_reduce": "",
}  # fmt: skip
METHODS = frozenset({"to", "broadcast_to", "reshape", "expand_dims"})  # they change no element's value
BLOCK = 1024  # a block that torch chooses at run time, of any axis, may have as many points
STATEMENTS = frozenset({"device_assert", "debug_barrier", "static_assert", "static_print", "assume", "multiple_of"})
BINARY: Mapping[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip


class Unreadable(Exception):
    """A form of source that is not known here."""


@dataclass(frozen=True, slots=True)
class TritonValue:
    """A value of a kernel: what it is as far as it is an integer or a condition, what it is made of, its own masks."""

    what: Value
    reads: frozenset[Read] = frozenset()
    guards: frozenset[str] = frozenset()
    live: Expr = TRUE  # where it is not the 0 of a ``where``; may depend on loaded values
    combines: frozenset[str] = frozenset()  # the reductions in it
    position: Expr | None = None  # of a position in reduced loops: the number of each point
    copied: bool = False  # it is an element of memory, at all points


def toward_zero(name: str, a: Value, b: Value, node: ast.expr) -> Expr:
    """The machine's division of integers, toward zero: the floor for what is not negative only."""
    if not isinstance(a, Expr) or not isinstance(b, Expr) or a.cond or b.cond or not (b.is_const and int(b) > 0):
        raise Unreadable(f"a division by what may be 0 or negative: {shown(node)}")
    whole = where(a >= 0, a // b, -((-a) // b))
    return simplify(whole if name == "div_trunc" else a - b * whole)


def is_slices(text: str) -> bool:
    """``...[:, None]``: nothing but slices after the range."""
    tail = text[text.index("[") + 1 :].removesuffix(".to(tl.int64)")
    return tail.endswith("]") and set(tail[:-1]) <= set(":,None")


def shown(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:100]


@dataclass(slots=True)
class TritonNests:
    """The nests of a kernel, one for each store; ``unread``: the reason where its source has an unknown form.

    ``results`` are the buffers that it may write.
    """

    nests: list[Nest] = field(default_factory=list[Nest])
    results: list[str] = field(default_factory=list[str])
    unread: str = ""


# kernels --------------------------------------------------------------------------------------------------------------


def read_kernel(launch: WrapperLaunch, dtypes: Mapping[str, str] | None = None) -> TritonNests:
    """The nests of one kernel, one for each store, in terms of the wrapper's buffers."""
    found = TritonNests()
    try:
        functions = [n for n in ast.walk(parse_source(launch.source)) if isinstance(n, ast.FunctionDef)]
        main = next((f for f in functions if f.name == launch.kernel or f.name == "triton_"), None)
        if main is None:
            raise Unreadable("its function is not in its source")
        _TritonKernel(launch, main, dict(dtypes or {})).read(found)
    except Unreadable as why:
        found.unread = str(why)
    except (ArithError, CheckError) as error:
        found.unread = error.what
    except RecursionError:
        found.unread = "its expressions are nested too deep"
    return found


class _TritonKernel:
    """One kernel, its statements taken in order, each name bound to what it stands for."""

    def __init__(self, launch: WrapperLaunch, function: ast.FunctionDef, dtypes: dict[str, str]) -> None:
        self.launch = launch
        self.function = function
        self.dtypes = dtypes
        self.table = ValueTable()
        self.env: dict[str, TritonValue] = {}
        self.pointers: dict[str, Argument] = {}
        self.axes: dict[str, Axis] = {}  # index symbol -> axis
        self.current: dict[str, str] = {}  # prefix -> index symbol now
        self.masked: set[str] = set()  # prefixes whose mask is not a constant
        self.loads: dict[str, LoadedValue] = {}
        self.places: dict[str, IndirectIndex] = {}
        self.data: set[str] = set()
        self.behind: dict[str, frozenset[Read]] = {}
        self.stored: dict[tuple[str, Expr], TritonValue] = {}
        self.writes: list[tuple[Write, tuple[Axis, ...], TritonValue]] = []
        self.bounds: dict[Expr, Expr] = {}  # loaded value -> size of the axis that it addresses
        self.fresh = 0
        self.loose = False

    def read(self, found: TritonNests) -> None:
        params = self.function.args.args
        plain = [a.arg for a in params if not (a.annotation is not None and "constexpr" in ast.unparse(a.annotation))]
        if len(plain) < len(self.launch.arguments):
            raise Unreadable(f"it takes {len(plain)} arguments, the wrapper gives {len(self.launch.arguments)}")
        for name, given in zip(plain, self.launch.arguments, strict=False):
            if given.item:
                boolean = self.dtypes.get(given.buffer) == "bool"
                value = symbol(self._load_name(given.buffer, ZERO))
                self.env[name] = TritonValue(value.ne(0) if boolean else value, frozenset({Read(given.buffer, ZERO)}))
            elif given.buffer:
                self.pointers[name] = given
                found.results += [given.buffer] if name.startswith(("out_ptr", "in_out_ptr")) else []
            elif given.number is not None:
                self.env[name] = TritonValue(given.number)
        self._body(self.function.body)
        for k, (write, axes, value) in enumerate(self.writes):
            found.nests.append(self._nest(write, axes, value, k))

    def _nest(self, write: Write, axes: tuple[Axis, ...], value: TritonValue, k: int) -> Nest:
        """A store as a nest: index variables of its address are its loops, the others are reduced."""
        used: dict[str, None] = {}
        for x in (*(r.index for r in write.reads), *(r.when for r in write.reads)):
            self._variables(x, used)
        reduce = tuple(self.axes[n] for n in used if n in self.axes and self.axes[n] not in axes)
        loads = dict(self.loads)
        return Nest(
            f"{self.launch.kernel}[{k}]", axes, (write,), reduce, loads, dict(self.places), self.launch.kernel,
            loose=self.loose, position=value.position, combines=value.combines,
        )  # fmt: skip

    def _variables(self, x: Expr, into: dict[str, None]) -> None:
        for n in sorted(x.names):
            if n in self.places:
                self._variables(self.places[n].value, into)
            elif n in self.loads:
                self._variables(self.loads[n].index if not self.loads[n].text else ZERO, into)
            else:
                into[n] = None

    # statements -------------------------------------------------------------------------------------------------------

    def _body(self, body: Sequence[ast.stmt]) -> None:
        for s in body:
            match s:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, value)
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                    self._unpack([name_of(t) for t in targets], value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._assign(name, value)
                case ast.Expr(value=ast.Call() as call):
                    self._effect(call)
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    pass
                case ast.For():
                    self._loop(s)
                case _:
                    raise Unreadable(f"a statement that is not known here: {shown(s)}")

    def _unpack(self, names: list[str], value: ast.expr) -> None:
        if isinstance(value, ast.Tuple):
            found = [self._value(v) for v in value.elts]
        else:
            first = self._value(value)
            found = [replace(first, position=None), *[first] * (len(names) - 1)]  # a value, and where it is
        for name, v in zip(names, found, strict=True):
            self.env[name] = v

    def _assign(self, name: str, value: ast.expr) -> None:
        prefix = name.removesuffix("index")
        if name.endswith("index") and prefix in PREFIXES:
            self._pointwise_index(prefix, value)
        elif name.endswith("index") and prefix.startswith("r") and prefix != "r":
            self._reduced_index(prefix, value)
        elif name.endswith(("offset", "base")) and name not in self.env:
            self.env[name] = TritonValue(ast.unparse(value))
        elif name.endswith("mask") and name.removesuffix("mask") in self.current:
            self._mask(name, value)
        else:
            self.env[name] = self._value(value)

    def _pointwise_index(self, prefix: str, value: ast.expr) -> None:
        """``xindex = xoffset + tl.arange(0, XBLOCK)[...]``, ``xoffset`` being XBLOCK times the program id."""
        text = ast.unparse(value).replace(" ", "")
        offset = self.env.get(f"{prefix}offset")
        block = f"{prefix.upper()}BLOCK"
        plain = text.startswith(f"{prefix}offset+tl.arange(0,{block})[") and is_slices(text)
        start = str(offset.what).replace(" ", "") if offset is not None else ""
        if not plain or not (start.startswith(("tl.program_id(", "(tl.program_id(")) and start.endswith(f"*{block}")):
            raise Unreadable(f"an index of a form that is not known here: {prefix}index = {text[:80]}")
        self._new_axis(prefix, f"{prefix}index")

    def _reduced_index(self, prefix: str, value: ast.expr) -> None:
        text = ast.unparse(value).replace(" ", "")
        block = f"{prefix.upper()}BLOCK"
        whole = text.startswith(f"tl.arange(0,{block})[") and is_slices(text)
        looped = text in (f"{prefix}offset+{prefix}base", f"{prefix}base+{prefix}offset")
        if not whole and not looped:
            raise Unreadable(f"an index of a form that is not known here: {prefix}index = {text[:80]}")
        self.fresh += 1
        self._new_axis(prefix, f"{prefix}index.{self.fresh}")

    def _new_axis(self, prefix: str, name: str) -> None:
        numel = self.env.get(f"{prefix}numel")
        if numel is None or not isinstance(numel.what, Expr):
            raise Unreadable(f"the size {prefix}numel is not known")
        axis = Axis(name, numel.what)
        self.axes[name] = axis
        self.current[prefix] = name
        self.env[f"{prefix}index"] = TritonValue(axis.symbol)

    def _mask(self, name: str, value: ast.expr) -> None:
        """``xmask = xindex < xnumel``, or all True where blocks divide the size."""
        prefix = name.removesuffix("mask")
        found = self._value(value)
        text, known = ast.unparse(value).replace(" ", ""), self.env.get(f"{prefix.upper()}BLOCK")
        block = known.what if known is not None and isinstance(known.what, Expr) else as_expr(BLOCK)
        size = self.axes[self.current[prefix]].extent
        if text == f"{prefix}index<{prefix}numel":
            self.masked.add(prefix)
            self.env[name] = TritonValue(found.what, found.reads, frozenset({prefix}))
        elif found.what is TRUE and (size == as_expr(1) or simplify(size % block) == ZERO):
            self.env[name] = found
        else:
            raise Unreadable(f"a mask that lets points beyond {prefix}numel = {size} through: {name} = {text[:80]}")

    def _loop(self, s: ast.For) -> None:
        """``for r0_offset in range(0, r0_numel, R0_BLOCK):`` goes over all of r0."""
        text = ast.unparse(s.iter).replace(" ", "")
        name = name_of(s.target)
        prefix = name.removesuffix("offset")
        known = (f"range(0,{prefix}numel,{prefix.upper()}BLOCK)", f"tl.range(0,{prefix}numel,{prefix.upper()}BLOCK")
        if not name.endswith("offset") or not (text == known[0] or text.startswith(known[1])) or s.orelse:
            raise Unreadable(f"a loop of a form that is not known here: for {name} in {text[:80]}")
        self.env[name] = TritonValue(name)
        self._body(s.body)

    def _effect(self, call: ast.Call) -> None:
        name = name_of(call.func)
        if name == "store":
            self._store(call, "store")
        elif name == "atomic_add":
            self._store(call, "add")
        elif name == "device_assert" and call.args:
            self._bounds(call.args[0])
        elif name not in STATEMENTS:
            raise Unreadable(f"a call that is not known here: {shown(call)}")

    def _bounds(self, node: ast.expr) -> None:
        """``(0 <= tmp4) & (tmp4 < 33)``: the size of the axis that a loaded value addresses."""
        for c in ast.walk(node):
            if isinstance(c, ast.Compare) and len(c.ops) == 1 and isinstance(c.ops[0], ast.Lt):
                value, size = self._value(c.left).what, self._value(c.comparators[0]).what
                if isinstance(value, Expr) and value.names & self.data and isinstance(size, Expr):
                    self.bounds[value] = size
                    if isinstance(c.left, ast.Name):  # from here on it is a place of that axis
                        self.env[c.left.id] = replace(self.env[c.left.id], what=self._place(value, size))

    def _store(self, call: ast.Call, mode: str) -> None:
        pointer, at, behind = self._address(call.args[0])
        value = self._value(call.args[1])
        mask = self._mask_of(call.args[2]) if len(call.args) > 2 else TritonValue(TRUE)
        for k in call.keywords:
            if k.arg == "mask":
                mask = self._mask_of(k.value)
        given = self.pointers[pointer]
        used = self._guarded(call, at, mask, PREFIXES)
        axes = [self.axes[n] for p, n in self.current.items() if p in PREFIXES]
        axes += [self.axes[n] for n in used if n in self.axes and self.axes[n] not in axes]
        when = self._condition(mask) if mode == "store" else and_(self._condition(mask), value.live)
        index = simplify(at + given.offset)
        reads = tuple(sorted({*value.reads, *behind}, key=str))
        copy = StatementValue("name", name="r0", text="r0") if value.copied and len(reads) == 1 else None
        write = Write(given.buffer, index, reads, when, "add" if mode == "add" else "store", copy)
        self.stored[given.buffer, index] = value
        self.writes.append((write, tuple(axes), value))

    def _guarded(self, call: ast.Call, at: Expr, mask: TritonValue, always: Sequence[str] = ()) -> dict[str, None]:
        """Variables of an address; the mask keeps those that end inside of a block, and ``always`` these, in range."""
        used: dict[str, None] = {}
        self._variables(at, used)
        needed = {p for p, n in self.current.items() if p in self.masked and (p in always or n in used)}
        missing = needed - mask.guards
        if missing:
            what = f"a {name_of(call.func).replace('atomic_add', 'store')}"
            raise Unreadable(f"{what} that {min(missing)}mask does not guard: {shown(call)}")
        return used

    def _mask_of(self, node: ast.expr) -> TritonValue:
        """The mask of a load or store; None where it has no mask."""
        return TritonValue(TRUE) if isinstance(node, ast.Constant) and node.value is None else self._value(node)

    def _condition(self, mask: TritonValue) -> Expr:
        if not isinstance(mask.what, Expr):
            raise Unreadable(f"a mask that is not a condition of indices: {mask.what[:80]}")
        return simplify(mask.what if mask.what.cond else mask.what.ne(0))

    # values -----------------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> TritonValue:
        match node:
            case ast.Name(id=name):
                if name not in self.env:
                    return TritonValue(name)
                return self.env[name]
            case ast.Constant(value=bool() as v):
                return TritonValue(TRUE if v else not_(TRUE))
            case ast.Constant(value=int() as v):
                return TritonValue(as_expr(v))
            case ast.Constant(value=v):
                return TritonValue(str(v))
            case ast.BinOp(left=a, op=op, right=b):
                return self._binary(op, self._value(a), self._value(b), node)
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return self._joined("neg", [self._value(a)])
            case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=a):
                return self._joined("logical_not", [self._value(a)])
            case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in COMPARE:
                return self._joined(COMPARE[type(op)], [self._value(a), self._value(b)])
            case ast.Subscript(value=a):
                return self._value(a)
            case ast.Call():
                return self._call(node)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return self._joined("tuple", [self._value(v) for v in elts])
            case ast.Attribute():
                return TritonValue(ast.unparse(node))
            case ast.IfExp(test=test, orelse=b) if "dtype is tl.float" in ast.unparse(test):
                other = self._value(b)  # an integer is not a float
                return other if isinstance(other.what, Expr) else self._joined("either", [other])
            case ast.IfExp(test=test, body=a, orelse=b):  # of types, chosen when the kernel is compiled
                return self._joined("either", [self._value(test), self._value(a), self._value(b)])
            case ast.Compare():
                return self._joined("compare", [self._value(v) for v in (node.left, *node.comparators)])
            case _:
                raise Unreadable(f"an expression that is not known here: {shown(node)}")

    def _binary(self, op: ast.operator, a: TritonValue, b: TritonValue, node: ast.expr) -> TritonValue:
        if type(op) in BINARY:
            return self._joined(BINARY[type(op)], [a, b])
        if isinstance(op, (ast.BitAnd, ast.BitOr)):
            both = all(isinstance(v.what, Expr) and v.what.cond for v in (a, b))
            name = "and" if isinstance(op, ast.BitAnd) else "or"
            made = self._joined(f"logical_{name}" if both else f"bitwise_{name}", [a, b])
            guards = a.guards | b.guards if name == "and" else a.guards & b.guards
            return replace(made, guards=guards)
        if isinstance(op, (ast.FloorDiv, ast.Mod)):
            name = "div_trunc" if isinstance(op, ast.FloorDiv) else "fmod"
            found = self._joined(name, [a, b])
            whole = isinstance(found.what, str) and isinstance(a.what, Expr) and isinstance(b.what, Expr)
            return replace(found, what=toward_zero(name, a.what, b.what, node)) if whole else found
        return self._joined(type(op).__name__, [a, b])

    def _joined(self, op: str, parts: Sequence[TritonValue]) -> TritonValue:
        reads = frozenset(r for p in parts for r in p.reads)
        combines = frozenset(k for p in parts for k in p.combines)
        position = next((p.position for p in parts if p.position is not None), None)
        return TritonValue(
            combine(op, [p.what for p in parts], self.table), reads, combines=combines, position=position
        )

    def _call(self, call: ast.Call) -> TritonValue:
        name = name_of(call.func)
        if name == "load" and isinstance(call.func, ast.Attribute) and name_of(call.func.value) == "tl":
            return self._load(call)
        method = isinstance(call.func, ast.Attribute) and name_of(call.func.value) != "tl"
        if method and isinstance(call.func, ast.Attribute) and name in METHODS:
            found = self._value(call.func.value)
            return replace(found, copied=False) if name == "to" else found
        args = [self._value(a) for a in call.args]
        if name == "full" and len(args) >= 2:
            return args[1]
        if name in ("broadcast_to", "reshape", "expand_dims", "max_contiguous", "multiple_of") and args:
            return args[0]
        if name == "where" and len(args) == 3:
            return self._where(*args)
        if name == "div_floor_integer":
            return self._joined("floor_divide", args)
        if name == "remainder_integer":
            return self._joined("remainder", args)
        if name in ("maximum", "minimum") and len(args) == 2:
            return self._joined(name, args)
        made = self._joined(name, args)
        return self._reduced(made, name, args) if name in REDUCERS else made

    def _reduced(self, made: TritonValue, name: str, args: Sequence[TritonValue]) -> TritonValue:
        """A reduction: reads under new names of the reduced variables, which are gone over from here on."""
        names: dict[str, Expr] = {}
        reads = made.reads
        for r in reads:
            used: dict[str, None] = {}
            self._variables(r.index, used)
            self._variables(r.when, used)
            for n in used:
                if n in self.axes and n.startswith("r") and n not in names:
                    self.fresh += 1
                    fresh = Axis(f"{n.split('.')[0]}.{self.fresh}", self.axes[n].extent)
                    self.axes[fresh.name] = fresh
                    names[n] = fresh.symbol
        found = frozenset(Read(r.buffer, self._turn(r.index, names), self._turn(r.when, names)) for r in reads)
        number = args[1].position or args[1].what if name.endswith("_with_index") and len(args) > 1 else None
        position = self._turn(number, names) if isinstance(number, Expr) else None
        return TritonValue(made.what, found, combines=made.combines | {REDUCERS[name]}, position=position)

    def _turn(self, x: Expr, names: Mapping[str, Expr]) -> Expr:
        """A formula with variables renamed, also in what it is loaded by."""
        given = {n: names[n] for n in x.names if n in names}
        for n in x.names:
            if n in self.places:
                p = self.places[n]
                value = self._turn(p.value, names)
                if value != p.value:
                    given[n] = self._place(value, p.size)
            elif n in self.loads and not self.loads[n].text:
                at = self._turn(self.loads[n].index, names)
                if at != self.loads[n].index:
                    given[n] = self._named_load(replace(self.loads[n], index=at))
        return x.substitute(given) if given else x

    def _where(self, c: TritonValue, a: TritonValue, b: TritonValue) -> TritonValue:
        made = self._joined("where", [c, a, b])
        if not isinstance(c.what, Expr):
            return made
        cond = c.what if c.what.cond else c.what.ne(0)
        table = ValueTable()
        table.loads.update(dict.fromkeys(self.data, ""))
        yes, no = table.may(cond, True), table.may(cond, False)
        self.loose |= table.loose and {(r.buffer, r.index) for r in a.reads} != {(r.buffer, r.index) for r in b.reads}
        reads = {Read(r.buffer, r.index, simplify(and_(r.when, yes))) for r in a.reads}
        reads |= {Read(r.buffer, r.index, simplify(and_(r.when, no))) for r in b.reads}
        live = and_(cond, a.live) if str(b.what) in ("0", "0.0", "-0.0") else TRUE
        return replace(made, reads=frozenset(reads) | c.reads, live=live)

    def _load(self, call: ast.Call) -> TritonValue:
        pointer, at, behind = self._address(call.args[0])
        mask = self._mask_of(call.args[1]) if len(call.args) > 1 else TritonValue(TRUE)
        for k in call.keywords:
            if k.arg == "mask":
                mask = self._mask_of(k.value)
        given = self.pointers[pointer]
        self._guarded(call, at, mask)
        table = ValueTable()
        table.loads.update(dict.fromkeys(self.data, ""))
        when = TRUE
        if isinstance(mask.what, Expr) and not mask.what.is_const:
            when = simplify(table.may(mask.what if mask.what.cond else mask.what.ne(0)))
            self.loose |= table.loose
        elif isinstance(mask.what, Expr) and mask.what.cond:
            when = mask.what
        index = simplify(at + given.offset)
        known = self.stored.get((given.buffer, index))
        if known is not None:  # the value that this kernel stored there before
            return known
        name = given.before if pointer.startswith("in_out_ptr") and given.before else given.buffer
        if any(b == given.buffer for b, _ in self.stored) and not pointer.startswith("in_out_ptr"):
            raise Unreadable(f"a load of what the kernel stored at another address: {shown(call)}")
        value = symbol(self._load_name(name, index))
        boolean = self.dtypes.get(name) == "bool"
        reads = frozenset({Read(name, index, when), *behind, *mask.reads})
        return TritonValue(value.ne(0) if boolean else value, reads, copied=when is TRUE)

    def _load_name(self, name: str, index: Expr) -> str:
        found = self._named_load(LoadedValue(name, index))
        return found.name

    def _named_load(self, key: LoadedValue) -> Expr:
        known = next((n for n, x in self.loads.items() if x == key), None)
        if known is None:
            known = f"v{len(self.loads)}"
            self.loads[known] = key
            self.data.add(known)
        return symbol(known)

    def _address(self, node: ast.expr) -> tuple[str, Expr, frozenset[Read]]:
        """(pointer, elements from it, reads that the address is made of) of ``ptr + (formula)``."""
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.left, ast.Name)):
            raise Unreadable(f"an address of a form that is not known here: {shown(node)}")
        pointer = node.left.id
        if pointer not in self.pointers:
            raise Unreadable(f"{pointer} is not a buffer that the wrapper gives")
        found = self._value(node.right)
        what = found.what
        if isinstance(what, str):
            raise Unreadable(f"an address that is not an integer formula: {what[:80]}")
        return pointer, self._placed(what), found.reads

    def _placed(self, x: Expr) -> Expr:
        """Loaded values in an address as indices of the axis that they address; its size is what the kernel asserts."""
        for value, size in self.bounds.items():
            if value.names <= x.names:
                x = substitute_symbols(x, {value: self._place(value, size)})
        loaded = self.data - set(self.places)
        x = substitute_symbols(x, {w: self._place(w, size) for w, size in wrapped_parts(x) if w.names & loaded})
        loose = sorted(x.names & (self.data - set(self.places)))
        if loose:
            raise Unreadable(
                f"a loaded value in an address, of an axis whose size the kernel does not say: {str(x)[:120]}"
            )
        return simplify(x)

    def _place(self, value: Expr, size: Expr) -> Expr:
        bare = unwrapped(value, size)
        place = IndirectIndex(bare, size, bare != value)
        known = next((n for n, p in self.places.items() if p == place), None)
        if known is None:
            known = f"x{len(self.places)}.at"
            self.places[known] = place
            self.data.add(known)
        return symbol(known, 0, simplify(size - 1))
