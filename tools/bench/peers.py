"""Other simplifiers behind one interface: text and ranges in, text out.  Each is run only where it is installed.

Every peer gets what it can express: a symbol's constant bounds, and for a symbolic extent what its interface takes.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from tools.judges.expressions import Bounds

# text and ranges to: a call that simplifies what has been built, and a reader of its result
Prepared = tuple[Callable[[], Any], Callable[[Any], str]]
Prepare = Callable[[str, dict[str, Bounds]], Prepared]


class NotExpressible(Exception):
    """The peer has no way to say this expression."""


def walk(text: str, leaf: Callable[[str | int], Any], node_of: Callable[[str, list[Any]], Any]) -> Any:
    """Build a peer's expression from ours."""
    names: dict[type, str] = {
        ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.BitXor: "^", ast.BitAnd: "&",
        ast.BitOr: "|", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    }  # fmt: skip

    def build(n: ast.expr) -> Any:
        match n:
            case ast.Constant(value=value):
                return leaf(int(value)) if isinstance(value, int) else None
            case ast.Name(id=name):
                return leaf(name)
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return node_of("neg", [build(a)])
            case ast.BinOp(left=a, op=op, right=b):
                return node_of(names[type(op)], [build(a), build(b)])
            case ast.Compare(left=a, ops=[op], comparators=[b]):
                return node_of(names[type(op)], [build(a), build(b)])
            case ast.Call(func=ast.Name(id=name), args=args):
                return node_of(name, [build(a) for a in args])
            case _:
                raise NotExpressible(ast.dump(n))

    return build(ast.parse(text, mode="eval").body)


def _python(op: str, args: list[Any]) -> Any:
    """Operations that a peer's objects overload as Python does."""
    a, b = args[0], args[-1]
    table: dict[str, Callable[[], Any]] = {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "%": lambda: a % b,
        "^": lambda: a ^ b, "&": lambda: a & b, "|": lambda: a | b, "<": lambda: a < b, "<=": lambda: a <= b,
        ">": lambda: a > b, ">=": lambda: a >= b, "neg": lambda: a * -1,
    }  # fmt: skip
    if op not in table:
        raise NotExpressible(op)
    return table[op]()


# ---- tinygrad --------------------------------------------------------------------------------------------------
def tinygrad() -> Prepare:
    """tinygrad's symbolic rewriting of UOps; symbolic extents become constant bounds."""
    ops = importlib.import_module("tinygrad.uop.ops")
    big = 1 << 20

    def prepare(text: str, ranges: dict[str, Bounds]) -> Prepared:
        symbols = {
            name: ops.UOp.variable(name, -big if b.lo is None else b.lo, (b.hi - 1) if isinstance(b.hi, int) else big)
            for name, b in ranges.items()
        }

        def node(op: str, args: list[Any]) -> Any:
            match op:
                case "min":
                    return args[0].minimum(args[1]) if not isinstance(args[0], int) else args[1].minimum(args[0])
                case "max":
                    return args[0].maximum(args[1]) if not isinstance(args[0], int) else args[1].maximum(args[0])
                case "where":
                    x = (
                        args[1]
                        if not isinstance(args[1], int)
                        else args[0].const_like(0).cast(ops.dtypes.weakint) + args[1]
                    )
                    return args[0].where(x, args[2])
                case "==":
                    return args[0].eq(args[1])
                case "!=":
                    return args[0].ne(args[1])
                case _:
                    return _python(op, args)

        e = walk(text, lambda x: x if isinstance(x, int) else symbols[x], node)

        def run() -> Any:
            return e.simplify() if not isinstance(e, (int, bool)) else e

        return run, lambda out: str(out) if isinstance(out, (int, bool)) else _tinygrad_text(out)

    return prepare


def _tinygrad_text(u: Any) -> str:
    name = u.op.name
    signs = {"ADD": "+", "MUL": "*", "FLOORDIV": "//", "FLOORMOD": "%", "XOR": "^", "AND": "&", "OR": "|", "CMPLT": "<",
             "CMPNE": "!=", "CMPEQ": "==", "SUB": "-"}  # fmt: skip
    if name == "CONST":
        value = u.arg
        value = getattr(value, "value", value)
        return str(bool(value)) if isinstance(value, bool) else f"({int(value)})"
    if name in ("BUFFER", "PARAM", "DEFINE_VAR"):
        return str(u.arg.name)
    args = [_tinygrad_text(s) for s in u.src]
    if name == "CMPNE" and args[1] == "True":
        return f"~({args[0]})"
    if name in signs:
        return f"({signs[name].join(args)})"
    if name in ("MAX", "WHERE"):
        return f"{name.lower()}({', '.join(args)})"
    if name == "NEG":
        return f"(-{args[0]})"
    if name == "CAST":
        return args[0]
    raise NotExpressible(name)


# ---- isl -------------------------------------------------------------------------------------------------------
def isl() -> Prepare:
    """isl: gist in the context of the ranges, then its expression generator."""
    islpy = importlib.import_module("islpy")

    def prepare(text: str, ranges: dict[str, Bounds]) -> Prepared:
        def node(op: str, args: list[str]) -> str:
            match op:
                case "//":
                    return f"floor(({args[0]})/{args[1]})"
                case "%":
                    return f"(({args[0]}) mod {args[1]})"
                case "neg":
                    return f"(-({args[0]}))"
                case "min" | "max":
                    return f"{op}({', '.join(args)})"
                case "+" | "-" | "*":
                    return f"({args[0]} {op} {args[1]})"
                case _:
                    raise NotExpressible(op)

        body = walk(text, str, node)
        names = ", ".join(ranges)
        bounds = ["0 <= 0"]
        for n, b in ranges.items():
            bounds += [f"{b.lo} <= {n}"] if b.lo is not None else []
            bounds += [f"{n} < {b.hi}"] if b.hi is not None else []
            bounds += [f"{n} mod {b.step} = 0"] if b.step > 1 else []
        try:
            domain = islpy.Set(f"[{names}] -> {{ : {' and '.join(bounds)} }}")
            value = islpy.PwAff(f"[{names}] -> {{ [{body}] }}")
        except islpy.Error as error:
            raise NotExpressible(str(error)) from None

        def run() -> Any:
            return islpy.AstBuild.from_context(domain).expr_from_pw_aff(value.coalesce().gist(domain))

        return run, lambda out: _isl_text(islpy, out)

    return prepare


def _isl_text(islpy: Any, e: Any) -> str:
    kind = e.get_type()
    if kind == islpy.ast_expr_type.int:
        return f"({e.get_val().to_python()})"
    if kind == islpy.ast_expr_type.id:
        return str(e.get_id().get_name())
    args = [_isl_text(islpy, e.get_op_arg(k)) for k in range(e.get_op_n_arg())]
    t, o = e.get_op_type(), islpy.ast_expr_op_type
    signs = {o.add: "+", o.sub: "-", o.mul: "*", o.div: "//", o.fdiv_q: "//", o.pdiv_q: "//", o.pdiv_r: "%",
             o.zdiv_r: "%",
             o.le: "<=", o.lt: "<", o.ge: ">=", o.gt: ">", o.eq: "==", o.and_: "&", o.or_: "|"}  # fmt: skip
    if t == o.minus:
        return f"(-{args[0]})"
    if t in (o.min, o.max):
        return f"{'min' if t == o.min else 'max'}({', '.join(args)})"
    if t in (o.cond, o.select):
        return f"where({', '.join(args)})"
    return f"({signs[t].join(args)})"


# ---- TVM -------------------------------------------------------------------------------------------------------
def tvm() -> Prepare:
    """TVM's Analyzer on 64-bit variables."""
    root = importlib.import_module("tvm")
    tirx = importlib.import_module("tvm.tirx")
    sym = (
        importlib.import_module("tvm.sym")
        if importlib.util.find_spec("tvm.sym")
        else importlib.import_module("tvm.arith")
    )

    def prepare(text: str, ranges: dict[str, Bounds]) -> Prepared:
        symbols = {name: tirx.Var(name, "int64") for name in ranges}

        def value(x: Any) -> Any:
            return tirx.const(x, "int64") if isinstance(x, int) else x

        def node(op: str, args: list[Any]) -> Any:
            a, b = args[0], args[-1]
            table: dict[str, Callable[[], Any]] = {
                "//": lambda: tirx.floordiv(a, b), "%": lambda: tirx.floormod(a, b), "min": lambda: tirx.min(a, b),
                "max": lambda: tirx.max(a, b), "where": lambda: tirx.Select(args[0], args[1], args[2]),
                "==": lambda: tirx.EQ(a, b), "!=": lambda: tirx.NE(a, b), "&": lambda: tirx.all(a, b),
                "|": lambda: tirx.any(a, b), "^": lambda: tirx.bitwise_xor(a, b),
            }  # fmt: skip
            return table[op]() if op in table else _python(op, args)

        e = walk(text, lambda x: value(x) if isinstance(x, int) else symbols[x], node)

        def run() -> Any:
            analyzer = sym.Analyzer()
            for name, b in ranges.items():
                hi = symbols[b.hi] if isinstance(b.hi, str) else b.hi
                if b.lo is not None and hi is not None:
                    analyzer.bind(symbols[name], root.ir.Range.from_min_extent(value(b.lo), value(hi) - b.lo))
                elif b.lo is not None:
                    analyzer.update(symbols[name], sym.ConstIntBound(b.lo, (1 << 63) - 1), True)
            return analyzer.simplify(e)

        return run, _tvm_text

    return prepare


def _tvm_text(e: Any) -> str:
    kind = type(e).__name__
    signs = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%", "LT": "<", "LE": "<=", "GT": ">",
             "GE": ">=", "EQ": "==", "NE": "!=", "And": "&", "Or": "|"}  # fmt: skip
    if kind == "IntImm":
        return f"({int(e.value)})"
    if kind == "Var":
        return str(e.name)
    if kind in signs:
        return f"({_tvm_text(e.a)}{signs[kind]}{_tvm_text(e.b)})"
    if kind in ("Min", "Max"):
        return f"{kind.lower()}({_tvm_text(e.a)}, {_tvm_text(e.b)})"
    if kind == "Select":
        return f"where({_tvm_text(e.condition)}, {_tvm_text(e.true_value)}, {_tvm_text(e.false_value)})"
    if kind == "Not":
        return f"~{_tvm_text(e.a)}"
    if kind == "Call" and "xor" in str(e.op):
        return f"({_tvm_text(e.args[0])}^{_tvm_text(e.args[1])})"
    raise NotExpressible(kind)


# ---- PyTorch Inductor ------------------------------------------------------------------------------------------
def inductor() -> Prepare:
    """PyTorch Inductor's simplify_with_ranges on its own sympy functions."""
    sympy = importlib.import_module("sympy")
    functions = importlib.import_module("torch.utils._sympy.functions")
    sizevars = importlib.import_module("torch._inductor.sizevars")

    def prepare(text: str, ranges: dict[str, Bounds]) -> Prepared:
        allocator = sizevars.SizeVarAllocator()
        symbols = {
            name: sympy.Symbol(name, integer=True, nonnegative=True if b.lo is not None and b.lo >= 0 else None)
            for name, b in ranges.items()
        }

        def node(op: str, args: list[Any]) -> Any:
            a, b = args[0], args[-1]
            table: dict[str, Callable[[], Any]] = {
                "//": lambda: functions.FloorDiv(a, b),
                "%": lambda: functions.ModularIndexing(a, 1, b) if a.is_nonnegative else functions.PythonMod(a, b),
                "min": lambda: functions.Min(a, b), "max": lambda: functions.Max(a, b), "neg": lambda: -a,
                "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b,
            }  # fmt: skip
            if op not in table:
                raise NotExpressible(op)
            return table[op]()

        e = walk(text, lambda x: sympy.Integer(x) if isinstance(x, int) else symbols[x], node)
        sizes = {
            symbols[n]: symbols[b.hi] if isinstance(b.hi, str) else sympy.Integer(b.hi)
            for n, b in ranges.items()
            if b.lo == 0 and b.hi is not None
        }

        return lambda: allocator.simplify_with_ranges(e, sizes), _sympy_text

    return prepare


def _sympy_text(e: Any) -> str:
    kind = type(e).__name__
    if e.is_Symbol:
        return str(e.name)
    if e.is_Integer:
        return f"({int(e)})"
    args = [_sympy_text(a) for a in e.args]
    match kind:
        case "Add":
            return f"({'+'.join(args)})"
        case "Mul":
            return f"(-{'*'.join(args[1:])})" if e.args[0] == -1 else f"({'*'.join(args)})"
        case "Pow":
            return f"({'*'.join([args[0]] * int(e.args[1]))})"
        case "FloorDiv" | "CleanDiv":
            return f"({args[0]}//{args[1]})"
        case "ModularIndexing":
            inner = args[0] if e.args[1] == 1 else f"({args[0]}//{args[1]})"
            return f"({inner}%{args[2]})"
        case "PythonMod" | "Mod":
            return f"({args[0]}%{args[1]})"
        case "Min" | "Max":
            return f"{kind.lower()}({', '.join(args)})"
        case "Where":
            return f"where({', '.join(args)})"
        case _:
            raise NotExpressible(kind)


def idgraph() -> Prepare:
    """This library."""
    arith = importlib.import_module("idgraph.arith")

    def prepare(text: str, ranges: dict[str, Bounds]) -> Prepared:
        api = {n: (b.lo, b.hi, b.step) for n, b in ranges.items() if b.lo is not None or b.hi is not None}
        e = arith.parse(text, api)

        return lambda: arith.simplify(e), str

    return prepare


PEERS: dict[str, tuple[str, Callable[[], Prepare]]] = {
    "idgraph": ("idgraph", idgraph),
    "tinygrad": ("tinygrad", tinygrad),
    "isl": ("islpy", isl),
    "TVM Analyzer": ("tvm", tvm),
    "Inductor": ("torch", inductor),
}


def installed() -> list[str]:
    """The peers that can be run here."""
    return [name for name, (module, _) in PEERS.items() if importlib.util.find_spec(module) is not None]
