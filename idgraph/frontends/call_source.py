"""The call of an import as one straight Python function: allocations, launches, operations of torch's, views, results.

The text is written while a first call is made and checked, for arguments of the same shapes, strides, types and
devices; what that call has found out (how values lie, what has to be copied) stands in it as numbers. It is made of
this module's own names: values are numbered, and what is not a plain number comes by the namespace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from idgraph.arith import CompiledExprs, Expr
from idgraph.errors import EmitError, FrontendError, IdGraphError
from idgraph.frontends.array_space import TorchSpace
from idgraph.frontends.graph import CapturedProgram, EnumConstant, Node, Ref, Value, short, where_of
from idgraph.frontends.opaque_ops import Operation, Raw, call_reference, operand_of, word_of
from idgraph.frontends.partition import VIEWS
from idgraph.runtime.call_signature import mistaken_address
from idgraph.runtime.shape_specialized import ShapeSpecialization
from idgraph.runtime.source_function import function_of

if TYPE_CHECKING:
    import types

    from idgraph.runtime.dispatch import CallPath

# Their results lie without gaps: nothing is asked of them in later calls.
PRODUCTS = frozenset({"aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.baddbmm.default"})
# The same operations by torch's own bindings, which need not go by the operation's schema.
BINDINGS = {
    "aten.mm.default": "mm", "aten.bmm.default": "bmm", "aten.addmm.default": "addmm", "aten.t.default": "t",
    "aten.transpose.int": "transpose", "aten.permute.default": "permute", "aten.unsqueeze.default": "unsqueeze",
    "aten.select.int": "select",
}  # fmt: skip
Guard = Callable[[Sequence[Any]], bool]
REFUSED = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


class _Statement(NamedTuple):
    """A statement with the names that it reads and gives values, and the node whose operation it calls."""

    text: str
    reads: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    node: Node | None = None
    allocates: bool = False
    view: bool = False


class CallSource:
    """Text that grows by a line for each step of a call. ``fits`` turns False where a step has no such line."""

    def __init__(
        self, program: CapturedProgram, space: object, slots: Mapping[str, int], given: Sequence[Any],
        env: Mapping[str, int],
    ) -> None:  # fmt: skip
        self.program, self.slots, self._env = program, slots, env
        self.counters = {s: slots[name] for s, name in program.counters.items()}
        self.fits = isinstance(space, TorchSpace)
        self.space = cast("TorchSpace", space)
        self._count = len(given)
        self._lines: list[_Statement] = []
        self._names: dict[str, Any] = {}
        self._known: set[str] = set()  # values whose strides, and whose alignment, need no look
        self._lying: dict[str, tuple[tuple[int, ...], int]] = {}  # strides and offsets when values were computed
        self._owned: set[str] = set()  # memory that was allocated here, which is aligned for all kernels
        self._views: dict[str, tuple[str, int]] = {}  # of what else, and how many elements behind its start
        self._values = {n: f"a{n}" for n in range(self._count)}
        self._differentiated: set[int] = set()  # slots of arguments with gradients
        self.reinterpret: Any = None  # torch's short ways to make a view, and a tensor; None where it has none
        self._empty: Any = None
        if self.fits:
            torch = self.space.torch
            self.fits = all(isinstance(x, torch.Tensor) or x is None or isinstance(x, (int, float)) for x in given)
            self._names["device"] = self.space.device
            guards: Any = torch._C._dynamo.guards
            self.reinterpret = getattr(guards, "_reinterpret_tensor", None)
            self._empty = getattr(guards, f"_empty_strided_{self.space.device.type}", None)
            self._known.update(self._values.values())
            for n, x in enumerate(given):
                self._note(f"a{n}", x)

    # names ------------------------------------------------------------------------------------------------------------

    def value(self, slot: int) -> str:
        """The variable of a slot."""
        return self._values.setdefault(slot, f"v{slot}")

    def bind(self, name: str, value: Any) -> str:
        """A name of the namespace."""
        self._names[name] = value
        return name

    def constant(self, value: object) -> str:
        """A value that is not computed, as source."""
        if value is None or type(value) in (int, bool):
            return repr(value)
        return self.bind(f"c{len(self._names)}", value)

    def number(self, e: Expr) -> str:
        """The value of an expression: a number, or what computes it from the counters of a call."""
        if not e.names & self.counters.keys():
            return repr(e.evaluate(self._env))
        if e.op == "sym":
            return f"k{self.counters[e.name]}"
        compiled = CompiledExprs([e.substitute({s: n for s, n in self._env.items() if s not in self.counters})])
        compute = self.bind(f"c{len(self._names)}", compiled.function())
        return f"{compute}({', '.join(f'k{self.counters[s]}' for s in compiled.names)})[0]"

    def numbers(self, symbols: Sequence[str]) -> str | None:
        """The values of symbols as a dictionary; None where no counter is among them."""
        if self.counters.keys().isdisjoint(symbols):
            return None
        return f"{{{', '.join(f'{s!r}: {self.number(self.program.sizes.symbols[s])}' for s in symbols)}}}"

    def lies_as(self, name: str, result: Any) -> bool:
        """Whether a value lies as this result of the first call, whatever was done to make it lie so."""
        return self._lying.get(name) == (tuple(result.stride()), result.storage_offset())

    def add(
        self, text: str, reads: Sequence[str] = (), gives: Sequence[str] = (), node: Node | None = None,
        allocates: bool = False, view: bool = False,
    ) -> None:  # fmt: skip
        """One more statement, which may have several lines. ``view``: left out where nothing reads what it gives."""
        self._lines.append(_Statement(text, tuple(reads), tuple(gives), node, allocates, view))

    def turn(self, slot: int, value: Any) -> None:
        """An argument that steps read without its gradient, which is not there while the function runs."""
        if value.device == self.space.device:
            self._differentiated.add(slot)
        else:  # a number that torch keeps on the host
            name = self._values[slot] = f"d{slot}"
            self.bind("to_space", self.space.to_space)
            self.add(f"{name} = to_space(a{slot})", [f"a{slot}"], [name])

    def result(self, slot: int) -> str:
        """The variable of a slot whose value is returned: an argument without its gradient."""
        name = self.value(slot)
        if slot not in self._differentiated:
            return name
        self._differentiated.remove(slot)
        bare = self._values[slot] = f"d{slot}"
        self._known.add(bare)
        self._lying[bare] = self._lying[name]
        self.add(f"{bare} = {name}.detach()", [name], [bare])
        return bare

    # steps ------------------------------------------------------------------------------------------------------------

    def operation(self, node: Node, known: Operation | None, named: Mapping[str, Any], raw: Raw, found: Any) -> None:
        """A call of torch's, with its operands as they are; by `call_reference` where something was laid out anew."""
        target = self.value(self.slots[node.name])
        refs = [r for r in node.refs() if r in self.slots]
        reads = [self.value(self.slots[r]) for r in refs]
        text = self._call_text(node, raw) if self._is_plain(node, named, raw, found) else None
        if text is None:
            program, env, space = self.program, dict(raw.env), self.space

            def reference(counted: Mapping[str, int] | None, *values: Any) -> Any:
                sizes = {**env, **(counted or {})}
                return call_reference(program, node, dict(zip(refs, values, strict=True)), known, sizes, space)

            operands = ", ".join([str(self.numbers([*self.counters])), *reads])
            text = f"{self.bind(f'reference{self.slots[node.name]}', reference)}({operands})"
        if node.target not in VIEWS or len(refs) != 1 or not self._view(node, target, reads[0], named[refs[0]], found):
            self.add(f"{target} = {text}", reads, [target], node)
        self._note(target, found)
        if node.target in PRODUCTS or isinstance(found, tuple) or target in self._views:
            self._known.add(target)  # parts of a tuple are looked at one by one
        if node.target in PRODUCTS:  # in new memory
            self._owned.add(target)

    def _view(self, node: Node, target: str, name: str, operand: Any, found: Any) -> bool:
        """A view as what it shows of a value that lies as in the first call, however many views lead there."""
        root, before = self._views.get(name, (name, 0))
        if self.reinterpret is None or found.dtype != operand.dtype or found.is_conj() or found.is_neg():
            return False
        if found.untyped_storage().data_ptr() != operand.untyped_storage().data_ptr() or not found.numel():
            return False
        if root == name:
            self._look([root], [operand])
        before += found.storage_offset() - operand.storage_offset()
        self._views[target] = root, before
        self.add(f"{target} = {self.shown(root, found, before)}", [root], [target], node, view=True)
        return True

    def shown(self, name: str, value: Any, before: int) -> str:
        """The value that lies in the memory of another, this many elements behind where that starts."""
        self.bind("reinterpret", self.reinterpret)
        return f"reinterpret({name}, {tuple(value.shape)}, {tuple(value.stride())}, {before})"

    def _note(self, name: str, value: Any) -> None:
        if isinstance(value, self.space.torch.Tensor):
            self._lying[name] = tuple(value.stride()), value.storage_offset()

    def _is_plain(self, node: Node, named: Mapping[str, Any], raw: Raw, found: Any) -> bool:
        """Whether operands go in and results come out as they are."""
        for name, value in named.items():
            taken = operand_of(value, self.program[name], raw.env, self.space)
            many = isinstance(value, tuple)
            pairs = zip(cast("Any", taken), cast("Any", value), strict=True) if many else [(taken, value)]
            if any(a is not b and not (type(b) is int and a == b) for a, b in pairs):
                return False
        if isinstance(found, tuple):
            parts = zip(cast("tuple[Any, ...]", found), cast("Sequence[Any]", raw.result), strict=True)
            return all(a is b or a is None for a, b in parts)
        return found is raw.result

    def _call_text(self, node: Node, raw: Raw) -> str | None:
        """The operation with its arguments; None where a name of an argument is not torch's."""
        schema = getattr(raw.call, "_schema", None)
        known = {a.name for a in schema.arguments} if schema is not None else set[str]()
        if not known.issuperset(node.kwargs):
            return None
        args = [self._literal(a, node) for a in node.args]
        args += [f"{k}={self._literal(a, node)}" for k, a in node.kwargs.items()]
        binding = BINDINGS.get(node.target) if schema is not None else None
        name = f"aten_{binding}" if binding is not None else f"op{self.slots[node.name]}"
        if binding is None and schema is not None:
            name = "_".join(str(schema.name).split("::")) + f"_{schema.overload_name or 'default'}"
            name = name if name.isidentifier() else f"op{self.slots[node.name]}"
        self.bind(name, raw.call if binding is None else getattr(self.space.torch, binding))
        return f"{name}({', '.join(args)})"

    def _literal(self, value: Value, node: Node) -> str:
        match value:
            case Ref(name):
                meta = self.program[name].meta
                if isinstance(meta, Expr):
                    return self.number(meta)
                if name in self.slots:
                    return self.value(self.slots[name])
                return repr(meta) if isinstance(meta, int | float) else "None"
            case Expr():
                return self.number(value)
            case tuple():
                return f"[{', '.join(self._literal(v, node) for v in value)}]"
            case EnumConstant(kind, text):
                if kind == "device":
                    return "device"
                return self.bind(f"torch_{text}", word_of(self.space.torch, text, node))
            case None | bool() | int():
                return repr(value)
            case float() if math.isfinite(value):
                return repr(value)
            case _:
                return self.bind(f"c{len(self._names)}", value)

    def part(self, node: Node, source: str, index: int, value: Any) -> None:
        """One of several results."""
        target, whole = self.value(self.slots[node.name]), self.value(self.slots[source])
        self.add(f"{target} = {whole}[{index}]", [whole], [target], node)
        self._note(target, value)

    def reals(self, slots: Sequence[int]) -> list[str]:
        """The variables of these slots; complex values as pairs of reals."""
        found: list[str] = []
        for slot in slots:
            name = self.value(slot)
            self.bind("reals", self.space.reals)
            self.add(f"r{slot} = reals({name})", [name], [f"r{slot}"])
            found.append(f"r{slot}")
        return found

    def kernels(
        self, number: int, route: CallPath | None, inputs: Sequence[str], values: Sequence[Any],
        outputs: Sequence[tuple[int, int]], numbers: str | None = None,
    ) -> None:  # fmt: skip
        """The launches of a segment. ``outputs``: slots, and their places among those of the kernels; ``numbers``: the
        values of symbols, which the route takes behind its inputs."""
        frozen = getattr(route, "frozen", None)
        names = {place: self.value(slot) for slot, place in outputs}
        if route is None:
            self.fits = False
        elif not isinstance(frozen, ShapeSpecialization) or not frozen.gives_whole or any(i.why for i in frozen.inputs):
            call = self.bind(f"kernels{number}", route)
            taken = f"[{', '.join(inputs)}]{'' if numbers is None else f', {numbers}'}"
            rows = [f"r = {call}({taken}, None, None, tell, wait)"]
            rows += [f"{name} = r[{place}]" for place, name in names.items()]
            self.add("\n".join([*rows, "del r"]), inputs, list(names.values()))
        else:
            self._look(inputs, values)
            for slot, place in outputs:
                if frozen.order[place] < 0:  # an argument that kernels write
                    self._values[slot] = names[place] = inputs[-1 - frozen.order[place]]
            made = {place: name for place, name in names.items() if frozen.order[place] >= 0}
            self._launch(number, frozen, inputs, values, made)
        for slot, place in outputs:  # two slots of one place
            if names[place] != self.value(slot):
                self.add(f"{self.value(slot)} = {names[place]}", [names[place]], [self.value(slot)])

    def _look(self, inputs: Sequence[str], values: Sequence[Any]) -> None:
        """Results of torch's that lie otherwise than in the first call are laid out so."""
        for name, value in zip(inputs, values, strict=True):
            if name not in self._known and name not in self._owned:
                self.bind("laid_out", self._laid_out)
                strides = tuple(value.stride())
                self.add(f"if {name}.stride() != {strides}:\n    {name} = laid_out({name}, {strides})", [name], [name])
                self._known.add(name)

    def _laid_out(self, value: Any, strides: tuple[int, ...]) -> Any:
        made = self.space.torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
        return made.copy_(value)

    def _launch(
        self, number: int, frozen: ShapeSpecialization, inputs: Sequence[str], values: Sequence[Any],
        names: Mapping[int, str],
    ) -> None:  # fmt: skip
        addresses = ["0"] * frozen.count
        tests: list[str] = []
        reads = [inputs[i.position] for i in frozen.inputs]
        for i in frozen.inputs:
            name = inputs[i.position]
            root, elements = self._views.get(name, (name, 0))
            behind = elements * values[i.position].element_size() - i.before
            if root in self._owned and behind % i.alignment == 0:
                reads[reads.index(name)] = root
                addresses[i.number] = f"{root}.data_ptr(){f' + {behind}' if behind else ''}"
                continue
            ahead = f" - {i.before}" if i.before else ""
            pointer = addresses[i.number] = f"p{i.number}"
            self.add(f"{pointer} = {name}.data_ptr(){ahead}", [name], [pointer])
            tests.append(mistaken_address(pointer, i.alignment))
        made = [f"t{number}_{n}" for n in range(len(frozen.made))]  # of each part its own, freed with it
        for place, name in names.items():
            made[frozen.order[place]] = name
        self.bind("empty_strided", self._empty or self.space.torch.empty_strided)
        rest = "" if self._empty is not None else ", device=device"
        lines: list[str] = []
        for m, name in zip(frozen.made, made, strict=True):
            dtype = self.bind(f"torch_{m.dtype}", word_of(self.space.torch, m.dtype, None))
            shape, strides = ((m.size,), (1,)) if m.shape is None else (m.shape, m.strides or ())
            self._lying[name] = strides, 0
            named = "" if self._empty is not None else "dtype="
            lines.append(f"{name} = empty_strided({shape}, {strides}, {named}{dtype}{rest})")
            addresses[m.number] = f"{name}.data_ptr()"
        launch = self.bind(f"launch{number}", frozen.launches.direct())
        lines.append(f"{launch}(({', '.join(addresses)}{',' * (len(addresses) == 1)}), wait)")
        used = [p for p in addresses if p.startswith("p")]
        if tests:
            slow = self.bind(f"copying{number}", frozen.whole)
            back = [f"r = {slow}([{', '.join(inputs)}], tell, wait)"]
            back += [f"{name} = r[{place}]" for place, name in names.items()]
            back += ["del r", *(f"{t} = None" for t in made if t not in names.values())]
            block = [f"if {' or '.join(tests)}:", *(f"    {x}" for x in back), "else:", *(f"    {x}" for x in lines)]
            lines = block
        self.add("\n".join(lines), [*(inputs if tests else ()), *reads, *used], made, allocates=True)
        self._owned.update(made)
        self._known.update(made)

    def complexes(self, slot: int, dtype: str) -> None:
        """Pairs of reals as complex values."""
        name = self.value(slot)
        self._lying.pop(name, None)
        self.bind("complexes", self.space.complexes)
        self.add(f"{name} = complexes({name}, {dtype!r})", [name], [name])

    # the function -----------------------------------------------------------------------------------------------------

    def _read_lines(self, results: set[str]) -> list[_Statement]:
        """The statements without views that nothing reads: what was read of them is read of their roots."""
        read, found = set(results), list[_Statement]()
        for line in reversed(self._lines):
            if not line.view or not read.isdisjoint(line.gives):
                read.update(line.reads)
                found.append(line)
        return found[::-1]

    def wrapper(self, results: Sequence[str], given: Sequence[Any]) -> Wrapper:
        """The function, which ends with these values."""
        last: dict[str, int] = {}
        kept = set(results)
        lines = self._read_lines(kept)
        for n, line in enumerate(lines):
            last.update(dict.fromkeys((*line.reads, *line.gives), n))
        rows = ["def call(args, tell, wait):", f"    {', '.join(f'a{n}' for n in range(self._count))}, = args"]
        rows = rows if self._count else rows[:1]
        rows += [*(f"    k{n} = a{n}" for n in self.counters.values()), "    args.clear()"]
        unread = [f"a{n}" for n in range(self._count) if f"a{n}" not in last and f"a{n}" not in kept]
        rows += [f"    del {', '.join(unread)}"] if unread else []
        nodes: dict[int, Node] = {}
        memory: set[int] = set()
        for n, line in enumerate(lines):
            for text in line.text.split("\n"):
                rows.append(f"    {text}")
                if line.node is not None:
                    nodes[len(rows)] = line.node
                if line.allocates:
                    memory.add(len(rows))
            gone = [v for v in dict.fromkeys((*line.reads, *line.gives)) if last[v] == n and v not in kept]
            gone = [v for v in gone if v[0] != "p"]  # addresses are numbers
            rows += [f"    del {', '.join(gone)}"] if gone else []
        rows += [f"    return [{', '.join(results)}]", ""]
        guard = argument_guard(
            self.space.torch, given, [*self.counters.values()], counter_guard(self.program, self._env)
        )
        return Wrapper(self.program, self.space.torch, "\n".join(rows), self._names, nodes, memory, guard)


class Wrapper:
    """The function of a `CallSource`; ``text`` is its source. Several threads may call it at once."""

    __slots__ = ("_call", "_guard", "_memory", "_nodes", "_program", "_torch", "text")

    def __init__(
        self, program: CapturedProgram, torch: Any, text: str, names: Mapping[str, Any], nodes: Mapping[int, Node],
        memory: set[int], guard: Guard | None,
    ) -> None:  # fmt: skip
        self.text, self._program, self._torch, self._nodes, self._memory = text, program, torch, nodes, memory
        self._call: Any = function_of(text, "call", dict(names), "call")
        self._guard = guard

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether arguments that torch's guards have let through (types, devices) lie as those of the first call."""
        try:
            return self._guard is not None and self._guard(args)
        except (AssertionError, AttributeError, TypeError, RuntimeError):
            return False

    def __call__(self, args: list[Any], tell: Any, wait: bool) -> list[Any]:
        """The results; ``args`` is emptied, so that what nobody else holds is freed after its last use."""
        torch = self._torch
        try:
            if torch.is_grad_enabled():
                with torch.no_grad():
                    return self._call(args, tell, wait)
            return self._call(args, tell, wait)
        except IdGraphError:
            raise
        except (*REFUSED, MemoryError) as error:
            line = self._line_of(error.__traceback__)
            first = str(error).strip().partition("\n")[0]
            if line in self._memory:
                raise EmitError(
                    f"{self._program.name}: there is no memory for what kernels write",
                    because=[first], hint="run the program on parts",
                ) from None  # fmt: skip
            if line not in self._nodes:
                raise
            node = self._nodes[line]
            raise FrontendError(f"{where_of(node)}: torch refuses it: {short(first, 200)[1:-1]}") from error

    def _line_of(self, trace: types.TracebackType | None) -> int:
        while trace is not None:
            if trace.tb_frame.f_code is self._call.__code__:
                return trace.tb_lineno
            trace = trace.tb_next
        return 0


def counter_guard(program: CapturedProgram, env: Mapping[str, int]) -> Guard:
    """The ranges and the guards of the counters that a call has, in their order."""
    counters, sizes = program.counters, program.sizes
    ranges = [sizes.symbols[s].symbol_bounds for s in counters]
    guards = CompiledExprs([g for g in sizes.guards if g.names & counters.keys()])

    def holds(given: Sequence[int]) -> bool:
        for value, (low, high, step, rest) in zip(given, ranges, strict=True):
            if (low is not None and value < low) or (high is not None and value > high) or (value - rest) % step:
                return False
        return all(guards({**env, **dict(zip(counters, given, strict=True))}))

    return holds


def argument_guard(
    torch: Any, given: Sequence[Any], counters: Sequence[int] = (), holds: Guard | None = None
) -> Guard | None:
    """The comparison of shapes, strides and types of arguments, and of numbers, where those of ``counters`` may be any
    that ``holds``; None where an argument is neither a plain tensor nor an integer."""
    compare: Any = getattr(getattr(torch._C._dynamo, "guards", None), "assert_size_stride", None)
    numbers = [n for n, x in enumerate(given) if type(x) is int]
    tensors = [n for n in range(len(given)) if n not in numbers]
    kinds = torch.Tensor, torch.nn.Parameter
    if compare is None or any(type(given[n]) not in kinds or given[n].is_neg() for n in tensors):
        return None
    lines = ["def guard(args):"]
    lines += [f"    {', '.join(f'a{n}' for n in range(len(given)))}, = args"] if given else []
    for n, x in ((n, given[n]) for n in tensors):
        lines.append(f"    compare(a{n}, {tuple(x.shape)}, {tuple(x.stride())})")
        lines.append(f"    if a{n}.is_neg() or a{n}.dtype is not d{n}: return False")
    names = {"compare": compare, **{f"d{n}": given[n].dtype for n in tensors}}
    written: Any = function_of("\n".join([*lines, "    return True", ""]), "guard", names, "call")

    def numbered(args: Sequence[Any]) -> bool:
        plain = all(type(args[n]) is int and (n in counters or args[n] == given[n]) for n in numbers)
        return plain and (holds is None or holds([args[n] for n in counters]))

    try:
        shapes, strides = [[*given[n].shape] for n in tensors], [[*given[n].stride()] for n in tensors]
        sizes = {"dynamic_dims_sizes": shapes, "dynamic_dims_strides": strides}
        compared: Any = torch._C._dynamo.guards.TensorGuards(*[given[n] for n in tensors], **sizes).check
    except (AttributeError, TypeError, RuntimeError):
        return lambda args: written(args) and numbered(args)
    # All at once, a tenth of the time, but modes of the thread and gradients count, which nothing here depends on.
    if not numbers:
        return lambda args: compared(*args) or written(args)
    return lambda args: numbered(args) and (compared(*[args[n] for n in tensors]) or written(args))
