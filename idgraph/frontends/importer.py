"""From nodes to fusions: one table of handlers, one pass that maps each node or says why it is opaque."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import cast

from idgraph.arith import Expr
from idgraph.errors import FrontendError, IdGraphError, OperationError, one_of
from idgraph.frontends.aliasing import GETITEM, VIEWS
from idgraph.frontends.array_space import PARTS, Pair, part_meta
from idgraph.frontends.dynamic_shapes import Size
from idgraph.frontends.graph import (
    CapturedProgram,
    EnumConstant,
    Meta,
    Node,
    Ref,
    TensorMeta,
    Value,
    is_float_of_sizes,
    is_of_sizes,
    same_size,
    short,
    where_of,
)
from idgraph.ir import DTYPES, DType, Fusion, Scalar, Tensor, is_float
from idgraph.ir import ops_view as movement
from idgraph.ir.ops_pointwise import copy

Lazy = Callable[[], Tensor]
Parts = tuple["Tensor | Lazy | None", ...]
Result = Tensor | Pair | Parts | tuple[Pair, ...] | None
Handler = Callable[["Call"], Result]

HANDLERS: dict[str, Handler] = {}
COMPLEX: dict[str, Handler] = {}  # for calls that read or make complex tensors
OPAQUE: dict[str, str] = {}

# These say where a tensor lives and how its memory is ordered, not what its elements are.
_PLACEMENT = frozenset(
    {"layout", "device", "pin_memory", "memory_format", "non_blocking", "requires_grad", "generator"}
)
_MISSING = object()


class Unmapped(FrontendError):
    """Raised by a handler: this call has no meaning in the IR, for this reason; it becomes opaque."""


def handles(*targets: str) -> Callable[[Handler], Handler]:
    """Register a handler under operation names (import time only)."""

    def register(handler: Handler) -> Handler:
        for target in targets:
            if target in HANDLERS:
                raise ValueError(f"{target} has two handlers")
            HANDLERS[target] = handler
        return handler

    return register


@dataclass(slots=True)
class Call:
    """One call that a handler maps: its operands, looked up, and the fusion to build in.

    Reading an argument marks it as understood; arguments left over make the call opaque, never wrong.
    """

    node: Node
    fusion: Fusion
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    memory: Tensor | None = None  # of the first operand: the tensor without gaps that it is a view of, or itself
    memory_order: tuple[int, ...] = ()  # its axes as they lie in memory, outermost first
    operand_offset: Size = 0  # elements from the start of that memory to the first operand
    updates: bool = False  # whether the result may be written in the memory of the first operand
    used: set[int | str] = field(default_factory=set[int | str])

    def get(self, position: int, name: str, default: object = _MISSING) -> object:
        """Argument ``position`` or keyword ``name``; a placeless argument has position -1."""
        if 0 <= position < len(self.args):
            self.used.add(position)
            return self.args[position]
        if name in self.kwargs:
            self.used.add(name)
            return self.kwargs[name]
        if default is _MISSING:
            raise self.error(f"argument {position} {name!r} is missing")
        return default

    def error(self, what: str, hint: str = "") -> FrontendError:
        """An error that names the node."""
        return FrontendError(f"{where_of(self.node)}: {what}", where=self.node.line, hint=hint)

    def wrong(self, name: str, value: object, wanted: str) -> FrontendError:
        """An argument of the wrong type."""
        shown = value.name if isinstance(value, Tensor) else value
        return self.error(f"argument {name!r} is {short(shown)}, not {wanted}")

    def tensor(self, position: int, name: str) -> Tensor:
        """A tensor argument."""
        value = self.get(position, name)
        if not isinstance(value, Tensor):
            raise self.wrong(name, value, "a tensor")
        return value

    def tensor_or_none(self, position: int, name: str) -> Tensor | None:
        """A tensor argument that may be absent."""
        return None if self.get(position, name, None) is None else self.tensor(position, name)

    def items(self, position: int, name: str) -> tuple[object, ...]:
        """A list of anything."""
        value = self.get(position, name)
        if not isinstance(value, tuple):
            raise self.wrong(name, value, "a list")
        return cast("tuple[object, ...]", value)

    def tensors(self, position: int, name: str) -> tuple[Tensor, ...]:
        """A list of tensors."""
        items = self.items(position, name)
        found = tuple(t for t in items if isinstance(t, Tensor))
        if len(found) != len(items):
            raise self.error(f"argument {name!r} holds other things than tensors")
        return found

    def number(self, position: int, name: str, default: object = _MISSING) -> Scalar:
        """A Python number."""
        value = self.get(position, name, default)
        _known(name, value)
        if not isinstance(value, (bool, int, float)):
            raise self.wrong(name, value, "a number")
        return value

    def element(self, dtype: DType, position: int, name: str, default: object = _MISSING) -> Scalar:
        """A Python number as torch makes an element of ``dtype`` of it: 2.0 and 2.7 of integers are 2."""
        value = self.number(position, name, default)
        if is_float(dtype):
            return float(value)
        if isinstance(value, float) and not isfinite(value):
            raise self.wrong(name, value, f"a number that {dtype} holds")
        return bool(value) if dtype == "bool" else int(value)

    def operand(self, position: int, name: str) -> Tensor | Scalar | Expr:
        """A tensor or a number."""
        value = self.get(position, name)
        if isinstance(value, complex):
            raise Unmapped("complex numbers have no kernels here")
        if not isinstance(value, (Tensor, bool, int, float, Expr)):
            raise self.wrong(name, value, "a tensor or a number")
        return value

    def int(self, position: int, name: str, default: object = _MISSING) -> int:
        """An integer."""
        value = self.get(position, name, default)
        _known(name, value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, value, "an integer")
        return value

    def int_or_none(self, position: int, name: str) -> int | None:
        """An integer that may be absent."""
        return None if self.get(position, name, None) is None else self.int(position, name)

    def ints(self, position: int, name: str, default: object = _MISSING) -> tuple[int, ...]:
        """A list of integers; one integer is a list of one."""
        value = self.get(position, name, default)
        items = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        _known(name, *items)
        found = tuple(v for v in items if isinstance(v, int) and not isinstance(v, bool))
        if len(found) != len(items):
            raise self.wrong(name, items, "a list of integers")
        return found

    def size(self, position: int, name: str, default: object = _MISSING) -> Size:
        """An integer, or a size that is known only when the program runs."""
        value = self.get(position, name, default)
        if isinstance(value, bool) or not isinstance(value, (int, Expr)):
            raise self.wrong(name, value, "an integer")
        return value

    def size_or_none(self, position: int, name: str) -> Size | None:
        """A size that may be absent."""
        return None if self.get(position, name, None) is None else self.size(position, name)

    def sizes(self, position: int, name: str) -> tuple[Size, ...]:
        """A list of sizes; one is a list of one."""
        value = self.get(position, name)
        items = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        found = tuple(v for v in items if isinstance(v, (int, Expr)) and not isinstance(v, bool))
        if len(found) != len(items):
            raise self.wrong(name, items, "a list of integers")
        return found

    def flag(self, position: int, name: str, default: bool = False) -> bool:
        """A boolean."""
        value = self.get(position, name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "a boolean")
        return value

    def text(self, position: int, name: str, default: str) -> str:
        """A string."""
        value = self.get(position, name, default)
        if not isinstance(value, str):
            raise self.wrong(name, value, "a string")
        return value

    def dtype(self, default: str, position: int = -1) -> str:
        """The dtype asked for."""
        value = self.get(position, "dtype", None)
        if value is None:
            return default
        if not isinstance(value, EnumConstant) or value.kind != "dtype":
            raise self.wrong("dtype", value, "a dtype")
        if value.text not in DTYPES:
            raise Unmapped(f"dtype {value.text} is not one of {', '.join(DTYPES)}")
        return value.text

    @property
    def meta(self) -> TensorMeta:
        """The graph's facts about the one result."""
        if not isinstance(self.node.meta, TensorMeta):
            raise self.error("its result is not one tensor")
        return self.node.meta

    def leftovers(self) -> list[str]:
        """Arguments that say more than where a tensor lives and that no handler read."""
        found = [f"argument {k}" for k, v in enumerate(self.args) if k not in self.used and v is not None]
        return found + [
            f"argument {k}"
            for k, v in self.kwargs.items()
            if k not in self.used and k not in _PLACEMENT and v is not None
        ]


def _expressions(value: object) -> Iterator[Expr]:
    """The sizes in a value or in nested tuples of values."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        for v in cast("tuple[object, ...]", value):
            yield from _expressions(v)


def _known(name: str, *values: object) -> None:
    """`Unmapped` where an argument is a size that is known only when the program runs."""
    for v in values:
        if isinstance(v, Expr):
            raise Unmapped(f"its meaning where {name} is the dynamic size {v} is not known here")


def fixed(shape: Sequence[Size]) -> tuple[int, ...]:
    """Extents as numbers; `Unmapped` where one is known only when the program runs."""
    found = tuple(n for n in shape if isinstance(n, int))
    if len(found) != len(shape):
        raise Unmapped(f"its meaning for the dynamic shape ({', '.join(map(str, shape))}) is not known here")
    return found


def fixed_extent(x: Tensor, dim: int) -> int:
    """The extent of one axis as a number; `Unmapped` where it is known only when the program runs."""
    return fixed(x.shape[dim : dim + 1])[0]


def fixed_shape(x: Tensor) -> tuple[int, ...]:
    """The shape of a tensor as numbers; `Unmapped` where one is known only when the program runs."""
    return fixed(x.shape)


@dataclass(slots=True)
class Builder:
    """Builds nodes of a program into one fusion; tensors keep the names of their nodes."""

    program: CapturedProgram
    fusion: Fusion
    values: dict[str, object] = field(default_factory=dict[str, object])

    def input(self, node: Node, stored: bool = False) -> Tensor:
        """Declare the result of ``node`` as an input, with its strides where they are not contiguous. ``stored``:
        kernels wrote it, without gaps or elements that share memory, whatever torch's own strides are.
        """
        meta = node.meta
        if not isinstance(meta, TensorMeta):
            raise FrontendError(f"{where_of(node)}: it is not a tensor", where=node.line)
        if meta.dtype not in DTYPES and meta.dtype not in PARTS:
            raise FrontendError(
                f"{where_of(node)}: dtype {short(meta.dtype)} is not known",
                where=node.line,
                hint=one_of(meta.dtype, DTYPES),
            )
        self.free_name(node.name)
        # Where elements begin in torch's memory does not matter: the array is laid out anew where it must be.
        offset = meta.offset if isinstance(meta.offset, int) and not stored else 0
        self.declare(*meta.shape, *meta.strides)
        strides = None if meta.contiguous or (stored and meta.dense_order is None) else meta.strides
        with self.fusion.at_line(node.line):
            if meta.dtype in PARTS:
                return self._complex_input(node.name, meta, strides, offset)
            tensor = self.fusion.input(node.name, meta.shape, meta.dtype, strides=strides, offset=offset)
        self.values[node.name] = tensor
        return tensor

    def _complex_input(self, name: str, meta: TensorMeta, strides: Sequence[Size] | None, offset: int) -> Tensor:
        """A complex tensor is read as real numbers with a last axis of two."""
        wide = None if strides is None else (*(s * 2 for s in strides), 1)
        shape = (*meta.shape, 2)
        tensor = self.fusion.input(name, shape, PARTS[meta.dtype], strides=wide, offset=offset * 2)
        rank = len(meta.shape)
        self.values[name] = Pair(movement.select(tensor, rank, 0), movement.select(tensor, rank, 1))
        return tensor

    def result(self, name: str) -> Tensor | None:
        """The tensor of a node that is computed here; a complex one with a last axis of two. None for other things."""
        value = self.values.get(name)
        if isinstance(value, Pair):
            known = next((t for t in self.fusion.tensors if t.name == name), None)
            if known is None:
                self.free_name(name)
                known = movement.stack([value.real, value.imag], value.real.ndim, name=name)
            value = known
        return value if isinstance(value, Tensor) and value.definition is not None else None

    def declare(self, *values: object) -> None:
        """Symbols of sizes become the fusion's at first use; none of them where one may be negative (`Unmapped`)."""
        found = [s for v in _expressions(values) for s in v.symbols][::-1]
        for s in found:
            if (low := s.symbol_bounds[0]) is None:
                raise Unmapped(f"it uses {s}, a number that depends on values and may be negative")
            found += low.symbols if isinstance(low, Expr) else ()
        for s in dict.fromkeys(reversed(found)):  # first those that bounds of others name
            low, high, step, _ = s.symbol_bounds
            most = high if isinstance(high, int) else None
            self.fusion.symbol(s.name, min=0 if low is None else low, max=most, multiple_of=step)

    def free_name(self, name: str) -> None:
        """A tensor that took the name of a node gives it back: by itself (t3 of a composite), or for a meaning that
        was not proved."""
        if name not in self.fusion:
            return
        used = {t.name for t in self.fusion.tensors} | self.program.table.keys()
        fresh = next(fresh for k in range(len(used) + 1) if (fresh := f"{name}_{k}") not in used)
        self.fusion[name].name = fresh

    def add(self, node: Node) -> None:
        """Map one call; raises `Unmapped` with the reason where it must be opaque."""
        handler = HANDLERS.get(node.target)
        if self._is_rounding(node):
            raise Unmapped("a whole number that is computed with floats")
        if isinstance(node.meta, Expr | int) and is_of_sizes(node.target):
            self.values[node.name] = node.meta  # a size computed of sizes; a number where the guards say so
            return
        if handler is None and node.target not in COMPLEX:
            raise Unmapped(OPAQUE.get(node.target, "no handler: its meaning in index terms is not known here"))
        args = tuple(self._value(v) for v in node.args)
        kwargs = {k: self._value(v) for k, v in node.kwargs.items()}
        self.declare(args, tuple(kwargs.values()))
        if self._is_complex(node, args):
            handler = COMPLEX.get(node.target)
        if handler is None:
            raise Unmapped("its meaning for complex numbers is not known here")
        call = Call(node, self.fusion, args, kwargs, *self._memory(node), node.name in self.program.updates)
        with self.fusion.at_line(node.line):
            try:
                result = handler(call)
                left = call.leftovers()
                if left:
                    raise Unmapped(f"{', '.join(left)} is not understood")
                if isinstance(result, Tensor):
                    result = self._named(node, result)
            except Unmapped:
                raise
            except (IdGraphError, TypeError) as error:
                if self._is_dynamic(node):
                    reason = error.what if isinstance(error, IdGraphError) else str(error)
                    raise Unmapped(f"for dynamic sizes its meaning is not proved: {reason}") from None
                if not isinstance(error, OperationError):
                    raise
                raise FrontendError(
                    f"{where_of(node)}: {error.what}",
                    where=node.line or error.where,
                    because=error.because,
                    hint=error.hint,
                ) from None
        self._check(node, result)
        self.values[node.name] = result

    def _is_rounding(self, node: Node) -> bool:
        """A size that no expression of other sizes gives, computed of a float."""
        return (
            isinstance(node.meta, Expr)
            and node.meta.op == "sym"
            and any(is_float_of_sizes(self.program[r]) for r in node.refs())
        )

    def _is_complex(self, node: Node, args: object) -> bool:
        """It makes a complex tensor, or reads one."""
        if isinstance(args, tuple):
            return any(self._is_complex(node, a) for a in cast("tuple[object, ...]", args)) or self._is_complex(
                node, None
            )
        metas = node.meta if isinstance(node.meta, tuple) else (node.meta,)
        return isinstance(args, Pair) or any(isinstance(m, TensorMeta) and m.dtype in PARTS for m in metas)

    def _is_dynamic(self, node: Node) -> bool:
        """Some size of an operand or of the result is known only when the program runs."""
        metas = [node.meta, *(self.program[r].meta for r in node.refs())]
        flat = [m for meta in metas for m in (meta if isinstance(meta, tuple) else (meta,))]
        return any(isinstance(m, Expr) or (isinstance(m, TensorMeta) and m.is_dynamic) for m in flat)

    def _memory(self, node: Node) -> tuple[Tensor | None, tuple[int, ...], Size]:
        """The tensor that is the memory of the first operand (None: unknown), its axes in the order they lie in, and
        where in it the operand begins."""
        source = node.args[0] if node.args else None
        meta = self.program[source.name].meta if isinstance(source, Ref) else None
        offset = meta.offset if isinstance(meta, TensorMeta) else 0
        while isinstance(source, Ref):
            made = self.program[source.name]
            if made.kind == "call" and made.target in VIEWS:
                source = made.args[0] if made.args else None
                continue
            order = made.meta.dense_order if isinstance(made.meta, TensorMeta) and made.meta.offset == 0 else None
            found = self.values.get(made.name)
            if order is None or made.target == GETITEM or not isinstance(found, Tensor):
                return None, (), offset
            return found, order, offset
        return None, (), offset

    def _value(self, value: Value) -> object:
        match value:
            case Ref(name) if name not in self.values:
                meta = self.program[name].meta
                if isinstance(meta, TensorMeta) and meta.dtype not in DTYPES:
                    raise Unmapped(f"it reads {short(name)}, and {meta.dtype} has no kernels here")
                raise Unmapped(f"it reads {short(name)}, which has no form in a fusion")
            case Ref(name):
                return self.values[name]
            case tuple():
                return tuple(self._value(v) for v in value)
            case _:
                return value

    def _named(self, node: Node, tensor: Tensor) -> Tensor:
        """The tensor under the node's name; a tensor that already is another node's is copied."""
        if tensor.definition is None or tensor.name in self.values:
            return self._copy(tensor, node.name)
        self.free_name(node.name)
        tensor.name = node.name
        return tensor

    def _copy(self, tensor: Tensor, name: str) -> Tensor:
        """A copy of ``tensor`` called ``name``."""
        self.free_name(name)
        return copy(tensor, name=name)

    def _check(self, node: Node, result: Result) -> None:
        """The result built is what the graph says it is."""
        match result, node.meta:
            case Tensor(), TensorMeta() as meta:
                same = len(result.shape) == len(meta.shape) and all(map(same_size, result.shape, meta.shape))
                if not same or result.dtype != meta.dtype:
                    shape = ", ".join(map(str, result.shape))
                    dynamic = meta.is_dynamic or any(isinstance(n, Expr) and n.names for n in result.shape)
                    if dynamic and result.dtype == meta.dtype:
                        raise Unmapped(f"torch says {meta}, its meaning here is ({shape}): not proved equal")
                    raise FrontendError(
                        f"{where_of(node)}: the graph says {meta}, the operation gives {result.dtype}({shape})",
                        where=node.line,
                    )
            case Pair(real, imag), TensorMeta() as meta:
                told = part_meta(meta)
                self._check(replace(node, meta=told), real)
                self._check(replace(node, meta=told), imag)
            case tuple(), tuple() as metas if len(result) == len(metas):
                return
            case None, None:
                return
            case _:
                raise FrontendError(
                    f"{where_of(node)}: the graph says {describe(node.meta)}, the operation gives something else",
                    where=node.line,
                )


def describe(meta: Meta) -> str:
    """A result's kind for messages."""
    match meta:
        case TensorMeta():
            return str(meta)
        case tuple():
            return f"{len(meta)} tensors"
        case None:
            return "nothing"
        case Expr():
            return f"the size {meta}"
        case _:
            return f"the number {meta}"
