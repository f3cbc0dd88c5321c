"""TorchInductor's loop bodies run on numbers: each nest stores what the graph that it was lowered from has there.

What `idgraph.check.decide` says of elements says nothing of what is computed of them. Here bodies run with torch's
operations at their points, one nest after the other, on the memory as the graph's own values fill it: a constant, an
operation, a type or a mask that is wrong stores another number. Inputs are random; then half of them are numbers that
the bodies compare with. Not a proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from idgraph.arith import as_expr
from idgraph.check import inductor_graph_passes as graphs
from idgraph.check.loop_inputs import EXACT, Draw, LoopInputs, copied_input, flattened
from idgraph.check.loop_points import UNDEFINED, LoopFormula, LoopPoints, NotRun, Outside, converted
from idgraph.check.program import BufferLayout
from idgraph.check.report import CheckRow, Difference
from idgraph.check.semantics import reason
from idgraph.check.store_coverage import overlaps
from idgraph.errors import SourceLine
from idgraph.frontends.torch_arrays import load_torch

ROUNDINGS = 16  # other roundings of a graph that are tried where a number differs
SLACK = 4  # times what they change that rounding may change
_DIVISIONS = frozenset(("div", "floor_divide", "fmod", "remainder"))
SLACKS = {2: 5e-2, 4: 1e-4}  # of results of so many bytes, of their size; of others, as narrower types round


@dataclass(frozen=True, slots=True)
class LoopNode:
    """A node of the schedule: its body (None: a library call), the buffers that it makes, whether it computes."""

    name: str
    body: Any
    outputs: tuple[str, ...]
    nothing: bool  # it only names a buffer whose parts others write


class OtherRounding:
    """Rounding as another order of the same operations may leave it: each number is off by about as much as its type
    rounds. Of 16 bits a number need not be rounded at all, to infinity or to 0 above all: none is where ``seed`` is
    even, and half of them where it is odd. Of seed 0 no number is off. ``turn``: the numbers are the graph's own, but
    for the integers that floats out of range are made: each is another one at each turn.
    """

    def __init__(self, torch: Any, seed: int, turn: int | None = None) -> None:
        self.torch, self.maker, self.turn = torch, torch.Generator().manual_seed(seed), turn
        self.size, self.share = 2.0 if seed else 0.0, 0.5 * (seed % 2)

    def wide(self, x: Any) -> Any:
        """A number or a type of 16 bits as one of 32."""
        torch = self.torch
        narrow = (torch.float16, torch.bfloat16) if self.turn is None else ()
        if isinstance(x, torch.Tensor):
            return x.float() if x.dtype in narrow else x
        return torch.float32 if x in narrow else x

    def converted(self, x: Any, dtype: Any) -> Any:
        return converted(self.torch, x, dtype, self.maker, self.turn or 0)

    def off(self, x: Any, meant: Any) -> Any:
        torch = self.torch
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        off = 2 * torch.rand(x.shape, generator=self.maker, dtype=torch.float64) - 1
        return (x.double() * (1 + self.size * torch.finfo(meant).eps * off)).to(x.dtype)

    def cut(self, x: Any, meant: Any) -> Any:
        torch = self.torch
        if x.dtype == meant or not x.is_floating_point():
            return x
        some = torch.rand(x.shape, generator=self.maker) < self.share
        return torch.where(some, x.to(meant).to(x.dtype), x)

    def rounded(self, x: Any, meant: Any) -> Any:
        return self.cut(self.off(x, meant), meant)


@dataclass(slots=True)
class LoopNumbers:
    """The loops of one graph, to be run on the values of the graph that was lowered (``module``)."""

    graph: Any
    module: Any
    name: str
    nodes: Sequence[LoopNode]
    buffers: Sequence[BufferLayout]
    memory: Mapping[str, str]  # buffer -> storage, of updates that no tensor names
    sources: Mapping[str, tuple[str, SourceLine | None]]
    torch: Any = field(init=False)
    inputs: LoopInputs = field(init=False)

    def __post_init__(self) -> None:
        self.torch = load_torch("whose Inductor is checked")
        self.inputs = LoopInputs(self.torch, self.module)

    def rows(self, values: Sequence[Any]) -> list[CheckRow]:
        """Rows of the nests that store other numbers, or one that says how many store the same."""
        every, unknown = dict[str, CheckRow](), dict[str, str]()
        done: set[str] = set()
        with self.torch.no_grad():
            for draw in self.inputs.draws(values):
                try:
                    run = self._run(values, draw)
                except Exception as error:  # an operation that Inductor alone can lower, or inputs that one refuses
                    if draw.scale is not None:
                        continue
                    unknown[self.name] = str(error).partition("\n")[0][:120]
                    break
                for row in self._confirmed(run, draw):
                    every.setdefault(row.node, row)
                unknown |= run.unknown
                done |= run.done
        if every:
            return list(every.values())
        found = [
            CheckRow(n, "", "unknown", "write", f"its numbers are not run: {why}", None, graphs.STAGE, self.name)
            for n, why in unknown.items()
        ]
        if done:
            because = f"loops: {len(done)} nests store the graph's numbers at random inputs"
            found.append(CheckRow(self.name, "", "tested", "write", because, None, graphs.STAGE, self.name))
        return found

    def _run(self, values: Sequence[Any], draw: Draw) -> _Run:
        """All nests on inputs that the graph takes."""
        refused: Exception | None = None
        for inputs in self.inputs.drawn(values, draw):
            try:
                return _Run(self, inputs, self._values(inputs), draw.scale)
            except Exception as error:
                refused = error
        raise refused or NotRun("the graph takes no inputs")

    def _confirmed(self, run: _Run, draw: Draw) -> list[CheckRow]:
        """Rows that are found too where each nest reads what the nests before it stored: a number that is stored as it
        is and computed again of what was rounded is one number there.
        """
        found = list(run.rows())
        again = _Run(self, run.inputs, run.seen, draw.scale, chained=True) if found else None
        own = {r.node for r in again.rows()} if again else set[str]()
        return [r for r in found if r.node in own]

    def rounded_otherwise(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        """Values of the nodes as other roundings, or other integers of floats out of range, may leave them."""
        others = [OtherRounding(self.torch, k) for k in range(ROUNDINGS)]
        others += [OtherRounding(self.torch, 0, k) for k in range(UNDEFINED)]
        return [self._values(inputs, other) for other in others]

    def _values(self, inputs: Sequence[Any], other: OtherRounding | None = None) -> dict[str, Any]:
        """Values of the nodes of the graph by name, as they are then."""
        torch, seen = self.torch, dict[str, Any]()

        class Noted(torch.fx.Interpreter):  # type: ignore[misc, name-defined]
            node: Any = None

            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                called = cast("Callable[[Any, Any, Any], Any]", super().call_function)  # pyright: ignore[reportUnknownMemberType]
                schema = getattr(target, "_schema", None)
                name = "" if schema is None else schema.name.rpartition("::")[2]
                if name in _DIVISIONS:
                    _refuse_traps(torch, *args[:2])
                if other is None:
                    return called(target, args, kwargs)
                args, kwargs = torch.utils._pytree.tree_map(other.wide, (args, kwargs))
                if name in ("copy", "copy_"):
                    args = (args[0], other.converted(args[1], args[0].dtype), *args[2:])
                out = called(target, args, kwargs)
                if name in ("_to_copy", "convert_element_type"):
                    return other.cut(other.converted(args[0], out.dtype), _type_of(self.node, out))
                several = isinstance(out, tuple | list)  # a mean with its variance
                plain = schema is None or schema.is_mutable or name in EXACT
                if plain or not (several or (isinstance(out, torch.Tensor) and out.is_floating_point())):
                    return out  # what only moves or picks numbers is exact, and so is a comparison
                given = tuple(other.off(a, _type_of(n, a)) for n, a in zip(self.node.args, args, strict=True))
                made = called(target, given, kwargs)
                types = _type_of(self.node, made)
                return type(made)(map(other.rounded, made, types)) if several else other.rounded(made, types)

            def run_node(self, n: Any) -> Any:
                self.node = n
                whole = cast("Callable[[Any], Any]", super().run_node)  # pyright: ignore[reportUnknownMemberType]
                out = whole(n) if other is None or n.op == "call_function" else other.wide(whole(n))
                held: object = out
                parts: dict[str, Any] = {n.name: out} if n.op != "output" else {}
                if isinstance(held, (list, tuple)):
                    parts = {f"{n.name}_{k}": t for k, t in enumerate(cast("Sequence[Any]", held))}
                seen.update((k, t.detach().clone()) for k, t in parts.items() if isinstance(t, torch.Tensor))
                return out

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            Noted(self.module).run(*(copied_input(torch, v) for v in inputs))
        return seen


def _type_of(n: Any, x: Any) -> Any:
    """The element type that the graph says of a value, or types of its parts; that of ``x`` where it says none."""
    val: Any = getattr(n, "meta", {}).get("val")
    if isinstance(x, (tuple, list)):
        parts = cast("Sequence[Any]", val or x)
        return tuple(getattr(v, "dtype", None) for v in parts)
    return getattr(val, "dtype", None) or getattr(x, "dtype", None)


def _refuse_traps(torch: Any, a: Any, b: Any) -> None:
    """Raise at the least integer by -1, which stops the process."""
    if isinstance(a, torch.Tensor) and a.dtype in (torch.int32, torch.int64):
        trap = (a == torch.iinfo(a.dtype).min) & torch.as_tensor(b == -1)
        if bool(trap.any()):
            raise NotRun("the least integer by -1")


class _Run:
    """All nests, once."""

    def __init__(
        self, loops: LoopNumbers, inputs: Sequence[Any], seen: Mapping[str, Any], scale: float | None,
        *, chained: bool = False,
    ) -> None:  # fmt: skip
        self.loops, self.inputs, self.seen, self.scale, self.chained = loops, inputs, seen, scale, chained
        self.otherwise: list[dict[str, Any]] | None = None
        self.torch, self.constants, self.types = loops.torch, loops.inputs.constants, loops.inputs.types
        self.home = {b.name: b.home for b in loops.buffers} | dict(loops.memory)
        self.base = {b.name: b.base for b in loops.buffers}
        self.memory: dict[str, Any] = {}
        self.sizes: dict[str, int] = {}
        self.unfilled: set[str] = set()  # storages whose numbers are not known
        self.unknown: dict[str, str] = {}
        self.done: set[str] = set()
        graph = loops.graph
        for name, value in zip(graph.graph_input_names, inputs, strict=True):
            self._input(name, graph.graph_inputs.get(name), value)
        for name, value in graph.constants.items():
            self.memory[name] = flattened(value)

    def _input(self, name: str, box: Any, value: Any) -> None:
        torch = self.torch
        if isinstance(value, torch.Tensor):
            self.memory[name] = flattened(value)
            if hasattr(box, "get_size"):
                for x, n in zip((*box.get_size(), *box.get_stride()), (*value.shape, *value.stride()), strict=False):
                    if getattr(x, "is_Symbol", False):
                        self.sizes[str(x)] = int(n)
        elif getattr(box, "is_Symbol", False):
            self.sizes[str(box)] = int(value)

    def rows(self) -> Iterator[CheckRow]:
        """A row for each nest that stores other numbers; memory is what the graph has after each (``chained``: what
        the nest stored).
        """
        for node in self.loops.nodes:
            made = [b for b in self.loops.buffers if b.after == node.name]
            known = [(b, self.seen[b.tensor]) for b in made if b.tensor in self.seen]
            ran: Any = None
            if node.body is not None:
                try:
                    ran = self._ran(node)
                except NotRun as error:
                    if not error.known:
                        self.unknown[node.name] = str(error)
                except Outside as error:
                    yield self._outside(node, known, error)
                except Exception as error:  # of one nest: others are run
                    self.unknown[node.name] = reason(error)
            for b, value in known:
                if (ran is not None or node.nothing) and b.home not in self.unfilled:
                    row = self._compared(node, b, value, ran)
                    if row is not None:
                        yield row
            homes = {self.home.get(x, x) for x in node.outputs}
            if node.body is None or ran is None or ran.partly:
                self.unfilled |= homes
            for b, value in known if ran is None or ran.partly or not self.chained else ():
                self._fill(b, value)

    def _outside(self, node: LoopNode, known: Sequence[tuple[BufferLayout, Any]], error: Outside) -> CheckRow:
        b = known[0][0] if known else None
        op, line = self.loops.sources.get(b.tensor, ("", None)) if b else ("", None)
        told = Difference({}, "", str(error), "an element of it", "", op, line)
        because = "it reads or writes outside of a memory, at random inputs"
        return CheckRow(node.name, error.name, "refuted", "read", because, told, "after", self.loops.name, op, line)

    # memory -----------------------------------------------------------------------------------------------------------

    def number(self, x: Any) -> int:
        return int(x.evaluate(self.sizes))

    def base_of(self, name: str) -> int:
        return self.number(self.base[name]) if name in self.base else 0

    def storage(self, name: str) -> Any:
        """The memory of a buffer; new memory holds numbers that no program means."""
        home = self.home.get(name, name)
        if home not in self.memory:
            self.memory[home] = self._poisoned(home)
        return self.memory[home]

    def _poisoned(self, home: str) -> Any:
        torch, graph = self.torch, self.loops.graph
        try:
            layout, dtype = graph.get_buffer(home).get_layout(), graph.get_dtype(home)
            count = self.size_of(layout.storage_size())
        except (AttributeError, KeyError, NotImplementedError, RuntimeError):
            raise NotRun(f"the size of {home} is not known", known=True) from None
        if dtype.is_floating_point or dtype.is_complex:
            return torch.full((count,), math.nan, dtype=dtype)
        wide = 1 if dtype == torch.bool else torch.iinfo(dtype).max // 3
        return torch.full((count,), wide, dtype=dtype)

    def size_of(self, x: Any) -> int:
        """An integer of sizes."""
        if isinstance(x, int):
            return x
        return int(LoopFormula(self.torch, {k: self.torch.tensor(v) for k, v in self.sizes.items()}).of(x))

    def _places(self, b: BufferLayout, value: Any) -> Any | None:
        """The part of the storage that a tensor lies in, as a view of its shape."""
        flat = self.storage(b.home)
        steps, start = [self.number(s) for s in b.strides], self.number(b.offset)
        if len(steps) != value.dim() or any(s < 0 for s in steps):
            return None
        last = start + sum((n - 1) * s for n, s in zip(value.shape, steps, strict=True))
        if 0 not in value.shape and not 0 <= start <= last < len(flat):
            return None
        return flat.as_strided(value.shape, steps, start)

    def _fill(self, b: BufferLayout, value: Any) -> None:
        try:
            place = self._places(b, value)
        except (NotRun, KeyError):
            return
        if place is None or overlaps(b, [as_expr(n) for n in value.shape]):
            return
        flat = self.storage(b.home)
        if flat.dtype != value.dtype and not b.copy:
            return
        place.copy_(value)
        if place.numel() == flat.numel() or b.home == b.name:
            self.unfilled.discard(b.home)

    def _compared(self, node: LoopNode, b: BufferLayout, value: Any, ran: LoopPoints | None) -> CheckRow | None:
        torch = self.torch
        place = self._places(b, value)
        if place is None or place.dtype != value.dtype or 0 in value.shape:
            return None
        if ran is not None and ran.partly:
            hit = torch.zeros(len(self.storage(b.home)), dtype=torch.bool)
            hit[ran.written.get(b.home, torch.zeros(0, dtype=torch.int64))] = True
            live = hit.as_strided(place.shape, place.stride(), place.storage_offset())
            place = torch.where(live, place, value)
        if ran is not None and b.home in ran.several:
            return None  # which of several entries stays is left open
        self.done.add(node.name)
        if self.scale is not None and value.is_floating_point():  # what is infinite on the way is as it comes
            place = torch.where(value.isfinite(), place, value)
        size, slack = self.scale or 1.0, SLACKS.get(value.element_size(), 1e-9)
        gap = graphs.differs(value, place, size, slack)
        if gap is not None:
            gap = graphs.differs(value, self._explained(b.tensor, value, place), size, slack)
        if gap is None:
            return None
        op, line = self.loops.sources.get(b.tensor, ("", None))
        shown = f"{b.tensor}{list(gap[0])} = {gap[2]}"
        told = Difference({}, shown, None, f"{gap[1]} there", "", op, line)
        because = "it stores another number than the graph that was lowered has, at random inputs"
        return CheckRow(node.name, b.home, "refuted", "write", because, told, "after", self.loops.name, op, line)

    def _explained(self, name: str, value: Any, place: Any) -> Any:
        """Stored numbers, with the graph's wherever rounding may have made the difference: a remainder or a
        place of the largest jumps at numbers that are rounded one way or the other."""
        torch = self.torch
        if self.otherwise is None:
            self.otherwise = self.loops.rounded_otherwise(self.inputs)
        others = [v[name] for v in self.otherwise if name in v and v[name].shape == value.shape]
        if not others:
            return place
        if not value.is_floating_point():
            return torch.where(torch.stack([x != value for x in others]).any(0), value, place)
        off = torch.stack([_distance(x, value) for x in others]).amax(0)
        return torch.where(_distance(place, value) <= SLACK * off, value, place)

    def _ran(self, node: LoopNode) -> LoopPoints:
        from torch._inductor.virtualized import V

        body = node.body
        points = LoopPoints(self, body)
        handler: Any = points
        with V.set_graph_handler(self.loops.graph), V.set_ops_handler(handler):
            body.indexing = dict(body.indexing_exprs)
            try:
                body.root_block()
            finally:
                body.indexing = None
        return points


def _distance(a: Any, b: Any) -> Any:
    """How far numbers are from each other; infinite where only one of them is infinite or no number."""
    x, y = a.double(), b.double()
    return (x - y).abs().nan_to_num(math.inf, math.inf).masked_fill((x == y) | (x.isnan() & y.isnan()), 0.0)
