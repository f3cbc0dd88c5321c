"""A captured program: nodes in execution order, each an ATen call with its operands and the shape of its result.

Both readers (JSON files, torch's own graphs) make this form; the importer reads nothing else.

Numbers that torch lifts out of a program as tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from idgraph.arith import Expr, is_true, maximum, simplify, symbol
from idgraph.errors import FrontendError, SourceLine
from idgraph.frontends.dynamic_shapes import DynamicSizes, Size, values_of

Kind = Literal["placeholder", "constant", "call", "output"]
MAX_ELEMENTS = 2**62


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of the node of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class EnumConstant:
    """A dtype, device, layout or memory format, by torch's name without "torch."."""

    kind: Literal["dtype", "device", "layout", "memory_format"]
    text: str


Value = None | bool | int | float | complex | str | Ref | EnumConstant | slice | Expr | tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """The facts about a tensor before it is computed; ``strides`` and ``offset`` are elements.

    >>> TensorMeta((2, 3), "float32", (3, 1)).contiguous, TensorMeta((2, 3), "float32", (1, 2)).contiguous
    (True, False)
    """

    shape: tuple[Size, ...]
    dtype: str
    strides: tuple[Size, ...]
    offset: Size = 0

    @property
    def contiguous(self) -> bool:
        """True when elements lie in row-major order without gaps."""
        return 0 in self.shape or all(
            n == 1 or same_size(s, w) for n, s, w in zip(self.shape, self.strides, row_major(self.shape), strict=True)
        )

    @property
    def dense_order(self) -> tuple[int, ...] | None:
        """The axes from the outermost in memory inwards, where elements lie without gaps; None where they do not.

        >>> TensorMeta((2, 3), "float32", (1, 2)).dense_order, TensorMeta((2, 3), "float32", (4, 1)).dense_order
        ((1, 0), None)
        """
        if self.contiguous:
            return tuple(range(len(self.shape)))
        steps = [s for s in self.strides if isinstance(s, int)]
        if len(steps) != len(self.strides):
            return None
        order = sorted(range(len(steps)), key=lambda p: (self.shape[p] == 1, -steps[p]))
        turned = TensorMeta(tuple(self.shape[p] for p in order), self.dtype, tuple(steps[p] for p in order))
        return tuple(order) if turned.contiguous else None

    @property
    def is_dynamic(self) -> bool:
        """True where some size is known only at run time."""
        return any(isinstance(n, Expr) for n in (*self.shape, *self.strides, self.offset))

    def at(self, env: Mapping[str, int]) -> TensorMeta:
        """The same with sizes as numbers."""
        if not self.is_dynamic:
            return self
        # The offset of a view at a computed place (x[i]) has a symbol that no argument binds; nothing reads it here.
        known = isinstance(self.offset, int) or self.offset.names <= env.keys()
        (offset,) = values_of((self.offset,), env) if known else (0,)
        return TensorMeta(values_of(self.shape, env), self.dtype, values_of(self.strides, env), offset)

    def __str__(self) -> str:
        return f"{self.dtype}({', '.join(map(str, self.shape))})"


# An expression is a size, or a condition on sizes, that the program computes.
Meta = TensorMeta | tuple["TensorMeta | None", ...] | Expr | int | float | bool | None


def same_size(a: Size, b: Size) -> bool:
    """True where two sizes are provably equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    found = simplify(a - b)
    if not found.is_const and any(s.symbol_bounds[2] > 1 for s in found.symbols):
        found = simplify(found.substitute({s: _multiple_of_step(s) for s in found.symbols}))
    return found.is_const and int(found) == 0


def _multiple_of_step(s: Expr) -> Expr:
    """A symbol as its step times an unknown, so that quotients of the step become that unknown."""
    low, high, step, rest = s.symbol_bounds
    if step == 1 or rest or not isinstance(low, int):
        return s
    return symbol(s.name, -(-low // step), high // step if isinstance(high, int) else None) * step


def row_major(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Contiguous strides, in elements.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides: list[Size] = []
    step: Size = 1
    for n in reversed(shape):
        strides.append(step)
        least = max(n, 1) if isinstance(n, int) else n if is_true(n >= 1) else maximum(n, 1)
        step = step * least
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class Node:
    """One node: a placeholder, a constant of the module, a call of an operation, or the output.

    ``target`` is "aten.add.Tensor" for a call, the placeholder's name, or the attribute of a constant. ``line`` is
    where the user wrote it, ``stack`` the calls that led there, outermost first, where torch noted them.
    """

    name: str
    kind: Kind
    target: str
    args: tuple[Value, ...] = ()
    kwargs: Mapping[str, Value] = field(default_factory=dict[str, Value])
    meta: Meta = None
    line: SourceLine | None = None
    stack: tuple[SourceLine, ...] = ()

    def refs(self) -> Iterator[str]:
        """Names of the nodes it reads, in order, repeated where read twice."""
        yield from refs_of(self.args)
        yield from refs_of(tuple(self.kwargs.values()))

    def __str__(self) -> str:
        shown = [show(a) for a in self.args] + [f"{k}={show(v)}" for k, v in self.kwargs.items()]
        return f"{self.name} = {self.target}({', '.join(shown)})"


def refs_of(value: Value) -> Iterator[str]:
    """Names of nodes inside a value."""
    match value:
        case Ref(name):
            yield name
        case tuple():
            for v in value:
                yield from refs_of(v)
        case _:
            return


def show(value: Value) -> str:
    """A value as torch's graphs print it."""
    match value:
        case Ref(name):
            return name
        case EnumConstant(_, text):
            return text
        case tuple():
            return f"[{', '.join(map(show, value))}]"
        case _:
            return repr(value)


@dataclass(frozen=True, slots=True)
class CapturedProgram:
    """A captured program: ``nodes`` in execution order and ``results``, what the output node returns.

    The first results are the new values of ``mutated``, placeholders that the program changes in place. ``claimed``:
    the nodes are read from a file or traced by make_fx, so that what they say of memory is not certain.

    >>> meta = TensorMeta((4,), "float32", (1,))
    >>> x = Node("x", "placeholder", "x", meta=meta)
    >>> y = Node("y", "call", "aten.neg.default", (Ref("x"),), meta=meta)
    >>> program = CapturedProgram("f", (x, y), (Ref("y"),))
    >>> program["y"].target, [n.name for n in program.placeholders]
    ('aten.neg.default', ['x'])
    """

    name: str
    nodes: tuple[Node, ...]
    results: tuple[Value, ...]
    sizes: DynamicSizes = field(default_factory=DynamicSizes, repr=False, compare=False)
    mutated: tuple[str, ...] = ()
    claimed: bool = False
    table: dict[str, Node] = field(init=False, repr=False, compare=False)
    updates: frozenset[str] = field(init=False, repr=False, compare=False)
    counters: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", {n.name: n for n in self.nodes})
        check(self)
        object.__setattr__(self, "updates", self._updates())
        object.__setattr__(self, "counters", self._counters())

    def _counters(self) -> dict[str, str]:
        """The symbols that no tensor's sizes or place depend on, as the number of tokens in a cache, each with the
        integer argument that gives its value."""
        metas = [v for n in self.nodes for v in (n.meta if isinstance(n.meta, tuple) else (n.meta,))]
        used: list[Any] = [s for m in metas if isinstance(m, TensorMeta) for s in (*m.shape, *m.strides, m.offset)]
        names = {name for e in used if isinstance(e, Expr) for name in e.names}
        arguments = [n for n in self.nodes if n.kind == "placeholder" and isinstance(n.meta, Expr)]
        found = {n.meta.name: n.name for n in arguments if isinstance(n.meta, Expr) and n.meta.op == "sym"}
        return {s: name for s, name in found.items() if s not in names and s in self.sizes.symbols}

    def _updates(self) -> frozenset[str]:
        """Nodes that may write their first operand, an argument, where it lies: its new value is theirs, and nothing
        else reads it."""
        pairs = zip(self.results, self.mutated, strict=False)
        values = Counter(v.name for v in self.results if isinstance(v, Ref))
        new = {v.name: x for v, x in pairs if isinstance(v, Ref) and v.name not in self.mutated}
        read: Counter[str] = Counter()
        needed = {n.name for n in self.nodes}.difference(r for n in self.nodes for r in n.refs()).union(values)
        for n in reversed(self.nodes):
            if n.name in needed:  # of what is copied to, only the shape is read
                refs = [*refs_of(n.args[1:])] if n.target == "aten.copy.default" else [*n.refs()]
                read.update(refs)
                needed.update(refs)
        made = [n for n in self.nodes if n.name in new and n.args[:1] == (Ref(new[n.name]),)]
        alone = [n.name for n in made if read[new[n.name]] == 1 and not values[new[n.name]]]
        return frozenset(() if self.claimed else alone)

    def __getitem__(self, name: str) -> Node:
        return self.table[name]

    @property
    def placeholders(self) -> tuple[Node, ...]:
        """The inputs, in order."""
        return tuple(n for n in self.nodes if n.kind == "placeholder")


def where_of(node: Node) -> str:
    """``node 'mul' (aten.mul.Tensor)`` for messages, on one line whatever the name holds."""
    return f"node {short(node.name)}" + (f" ({short(node.target)[1:-1]})" if node.kind == "call" else "")


def short(text: object, limit: int = 60) -> str:
    """A quoted, printable, one-line form of untrusted text."""
    shown = repr(text)
    return shown if len(shown) <= limit else f"{shown[: limit - 4]}...{shown[-1]}"


def check(program: CapturedProgram) -> None:
    """Names are unique and printable, and every node reads only nodes before it."""
    seen: set[str] = set()
    for node in program.nodes:
        if not 1 <= len(node.name) <= 200 or not node.name.isprintable():
            raise FrontendError(f"{where_of(node)}: a node's name is 1 to 200 printable characters", where=node.line)
        if node.name in seen:
            raise FrontendError(f"{where_of(node)}: a second node of this name", where=node.line)
        for ref in node.refs():
            if ref not in seen:
                raise FrontendError(
                    f"{where_of(node)} reads {short(ref)}, which is not a node before it", where=node.line
                )
        seen.add(node.name)
    for ref in refs_of(program.results):
        if ref not in seen:
            raise FrontendError(f"the output returns {short(ref)}, which is not a node")


def as_number(torch: Any, graph: Any, name: str, value: Any) -> bool:
    """Whether a constant has no axes (`torch.tensor(3)` in a program); it is then made a number of the graph."""
    if getattr(value, "ndim", None) != 0 or value.dtype.is_complex or value.is_quantized:
        return False
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    (old,) = (n for n in placeholders if n.name == name)
    with graph.inserting_after(placeholders[-1]):
        new = graph.call_function(torch.ops.aten.full.default, ([], value.item()), {"dtype": value.dtype})
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)
    graph.erase_node(old)
    return True


def is_of_sizes(target: str) -> bool:
    """An operation on sizes only: Python's arithmetic, torch's sym_ functions, the size of a tensor."""
    return target.startswith(("_operator.", "torch.sym_", "torch._sym_", "math.", "builtins.", "aten.sym_"))


def is_float_of_sizes(node: Node) -> bool:
    """A float that Python computes of sizes: a tensor without axes here, a number for operations of torch."""
    return isinstance(node.meta, TensorMeta) and node.target != "_operator.getitem" and is_of_sizes(node.target)
