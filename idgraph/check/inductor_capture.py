"""TorchInductor's scheduler nodes in the neutral form: everything that touches its insides stands in this module.

Capture runs Inductor as it is up to the end of its scheduler and stops before code generation (``source``: after it,
before anything is compiled; Triton text is written for CPUs too, and neither Triton nor a GPU is needed for that).
Loop bodies are replayed through a handler that notes formulas and computes nothing.

Long: one module to change when Inductor changes.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, cast

from idgraph.arith import TRUE, ArithError, Expr, and_, as_expr, from_sympy, not_, simplify, symbol, where
from idgraph.check import inductor_graph_passes as graphs
from idgraph.check.algebraic import flat_of
from idgraph.check.index_values import Value, combine
from idgraph.check.index_values import ValueTable as _Table
from idgraph.check.loop_numbers import LoopNode, LoopNumbers
from idgraph.check.loop_points import NoEffects
from idgraph.check.program import (
    ZERO,
    Axis,
    BufferLayout,
    CheckError,
    IndirectIndex,
    LoadedValue,
    Nest,
    NeutralProgram,
    Read,
    Write,
)
from idgraph.check.report import CheckRow, Difference
from idgraph.check.semantics import reason
from idgraph.errors import SourceLine
from idgraph.frontends.graph import TensorMeta
from idgraph.frontends.import_ import Import, import_program
from idgraph.frontends.torch_arrays import load_torch
from idgraph.frontends.torch_export import Captured, read_graph

VERSIONS = ((2, 11), (2, 14))  # releases of torch whose insides are known: from the first, below the second
_SCATTERS_OF_VIEWS = {
    f"aten.{view}": f"{view.split('.')[0]}_scatter"
    for view in ("slice.Tensor", "select.int", "diagonal.default", "as_strided.default")
}
TRITON: Mapping[str, Any] = {  # how source is written: for a GPU as it is there, on a CPU as Triton too
    "cpu_backend": "triton", "loop_ordering_after_fusion": True, "triton.coalesce_tiling_analysis": True,
}  # fmt: skip


def _load_checked_torch() -> Any:
    torch = load_torch("whose Inductor is checked")
    parts = tuple(int(p) for p in torch.__version__.split("+")[0].split(".")[:2] if p.isdigit())
    if not VERSIONS[0] <= parts < VERSIONS[1]:
        low, high = (".".join(map(str, v)) for v in VERSIONS)
        raise CheckError(
            f"torch {torch.__version__} has an Inductor that is not known here",
            because=(f"known are the releases from {low} to before {high}",),
            hint="the neutral form (ig.check.program) takes what any compiler writes",
        )
    return torch


@dataclass(slots=True)
class Lowered:
    """One graph that Inductor lowered: its program before and after loop transformations, in the neutral form."""

    name: str
    imported: Import
    before: NeutralProgram
    after: NeutralProgram
    calls: tuple[str, ...] = ()
    source: str = ""
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    outside: tuple[CheckRow, ...] = ()  # results that lie beyond the memory that is allocated for them


class _Stop(BaseException):
    """Leaves Inductor before it generates code; no handler of Inductor's catches it."""


@dataclass(slots=True)
class _Record:
    """The notes taken while one graph is lowered."""

    results: dict[str, Any] = field(default_factory=dict[str, Any])
    values: dict[str, Any] = field(default_factory=dict[str, Any])  # what each held then: an update replaces it
    writers: dict[str, str] = field(default_factory=dict[str, str])  # buffer -> the node that was lowered then
    before: dict[str, Any] = field(default_factory=dict[str, Any])


class Capture:
    """Inductor, watched: `lowered` are the graphs in the order in which they were lowered."""

    def __init__(
        self, *, source: bool = False, options: Mapping[str, Any] | None = None, name: str = "program"
    ) -> None:
        self.torch = _load_checked_torch()
        self.source = source
        self.options = dict(options or {})
        self.name = name
        self.lowered: list[Lowered] = []
        self.failed: list[str] = []
        self.values: list[CheckRow] = []  # rewrites before there are loops, judged by values
        self._backward = False
        self._last: Any = None  # the graph that was lowered last, after passes
        self._records: dict[int, _Record] = {}

    def run(self, fn: Callable[..., Any], args: Sequence[Any], *, dynamic: bool | None = None) -> Any:
        """Compile and run ``fn``, backward too where a result needs gradients."""
        torch = self.torch
        given = graphs.copies(args, drawn=True)
        wanted = again = None
        if given is not None:
            wanted, again = (graphs.eager(fn, given, seed) for seed in (1, 2))
        given = given if given is not None else tuple(args)
        with self.watching():
            torch._dynamo.reset()
            compiled = torch.compile(fn, backend=self._backend(), dynamic=dynamic, fullgraph=False)
            out = compiled(*given)
            found = graphs.results(torch, out, given)
        if isinstance(wanted, Exception):
            self.values.insert(0, graphs.accepted(self.name, wanted))
        elif wanted is not None and not isinstance(again, Exception):
            self.values.insert(0, graphs.judged(self.name, "graphs that torch made of it", wanted, found, again))
        return out

    def graph(self, module: Any, inputs: Sequence[Any], name: str, *, backward: bool = False) -> None:
        """Lower a graph of ATen operations as Inductor would; ``inputs`` may be fake tensors."""
        from torch._inductor.compile_fx import compile_fx_inner

        with self.watching():
            self.name = name
            self._inner(compile_fx_inner)(module, inputs, is_backward=backward)

    def _backend(self) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        def backend(module: Any, inputs: Any) -> Any:
            return compile_fx(module, inputs, inner_compile=self._inner(compile_fx_inner))

        return backend

    def _inner(self, compile_inner: Callable[..., Any]) -> Callable[..., Any]:
        def inner(module: Any, inputs: Any, **kwargs: Any) -> Any:
            graph = module.graph.__class__()
            graph.output(graph.graph_copy(module.graph, {}))
            for n in module.graph.nodes:  # a pass of Inductor's names `aten.clone` without saying which one
                n.target = getattr(n.target, "default", n.target) if hasattr(n.target, "overloads") else n.target
            plain = self.torch.fx.GraphModule(module, graph)
            self._backward = bool(kwargs.get("is_backward", False))
            before = len(self.lowered)
            try:
                return compile_inner(module, inputs, **kwargs)
            except _Stop:
                pass
            name = self.lowered[before].name if len(self.lowered) > before else self.name
            left = [self._last]  # compared once

            def run(given: Any) -> Any:
                values = list(given)
                given.clear()
                return self._compared(plain, left.pop(), values, name) if left else plain(*values)

            vars(run)["_boxed_call"] = True  # the list of arguments is the callee's
            return run

        return inner

    def _compared(self, plain: Any, after: Any, values: list[Any], name: str) -> Any:
        """The results of a graph as Inductor was given it; a row says whether its passes changed them."""
        torch = self.torch
        given, changed, third = (graphs.copies(values, drawn=False) for _ in range(3))
        after, loops, places = after if after is not None else (None, None, ())
        if loops is not None:
            self.values += loops.rows(values)
        out = plain(*values)
        if after is None or given is None or changed is None or third is None:
            return out
        what = "passes over the graph"
        try:
            with torch.no_grad():
                wanted = plain(*given)
                again = plain(*third)
                found = torch.fx.Interpreter(after).run(*changed)
        except Exception as error:  # an operation that Inductor alone can lower
            because = f"{what}: the graph cannot be run: {str(error).splitlines()[0][:120] if str(error) else error!r}"
            self.values.append(CheckRow(name, "", "unknown", because=because, stage=graphs.STAGE, graph=name))
            return out
        tensors = [[t for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]
                   for x in ((wanted, given), (found, changed), again)]  # fmt: skip
        self.values.append(graphs.judged(name, what, *tensors))
        names = [n.name for n in after.graph.nodes if n.op == "placeholder"]
        self.values += graphs.sharing(name, wanted, given, names, places)
        return out

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Inductor's graphs are noted, its caches left out."""
        torch = self.torch
        from torch._functorch import config as functorch_config
        from torch._inductor import config
        from torch._inductor.graph import GraphLowering

        lowering: Any = GraphLowering
        settings: tuple[Any, Any] = config, functorch_config
        kept = run_node, codegen = lowering.run_node, lowering.codegen
        watcher = self

        def noted_node(graph: Any, n: Any) -> Any:
            before = len(graph.buffers)
            result = run_node(graph, n)
            record = watcher._records.setdefault(id(graph), _Record())
            record.results[n.name], record.values[n.name] = result, _value_in(result)
            record.writers.update((b.get_name(), n.name) for b in graph.buffers[before:])
            return result

        def noted_codegen(graph: Any) -> Any:
            source = ""
            if watcher.source:
                made = codegen(graph)
                source = str(getattr(made[0], "value", made[0]))
            else:
                graph.init_wrapper_code()
                graph._update_scheduler()
            watcher._note(graph, source)
            raise _Stop

        changes: dict[str, Any] = {"force_disable_caches": True, "_pre_fusion_custom_pass": self._before}
        changes |= TRITON if self.source else {}
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # torch's own, about caches that are off here
            stack.enter_context(settings[0].patch({**changes, **self.options}))
            stack.enter_context(settings[1].patch(enable_autograd_cache=False))
            lowering.run_node, lowering.codegen = noted_node, noted_codegen
            hashed, utils = torch.utils._triton.triton_hash_with_backend, torch.utils._triton
            if self.source:  # it asks for a GPU's driver, and keys a cache that is off here
                utils.triton_hash_with_backend = lambda: ""
            try:
                yield
            finally:
                lowering.run_node, lowering.codegen = kept
                utils.triton_hash_with_backend = hashed
                torch._dynamo.reset()

    def _before(self, nodes: Any) -> Any:
        from torch._inductor.virtualized import V

        record = self._records.setdefault(id(V.graph), _Record())
        for top in nodes:
            for s in top.get_nodes():
                record.before[s.get_name()] = getattr(s, "_body", None)
        return nodes

    def _note(self, graph: Any, source: str) -> None:
        part = "backward" if self._backward else "forward"
        name = f"{self.name} {part}" + (f" {len(self.lowered)}" if len(self.lowered) > 1 else "")
        record = self._records.pop(id(graph), _Record())
        places = [_memory_of(o) for o in graph.graph_outputs]
        self._last = graph.orig_gm, None, places
        try:
            reader = _GraphImporter(self.torch, graph, record, name, source)
            self.lowered.append(reader.read())
            self._last = graph.orig_gm, reader.numbers(self.lowered[-1].after), places
        except Exception as error:  # of one graph, told in a row of its own
            self.failed.append(f"{name}: {reason(error)}")


@dataclass(slots=True)
class _GraphImporter:
    """One lowered graph, read."""

    torch: Any
    graph: Any
    record: _Record
    name: str
    source: str
    imported: Import = field(init=False)
    wholes: dict[str, str] = field(default_factory=dict[str, str])
    listed: frozenset[str] = frozenset()  # nodes for the parts of an operation on lists, in place
    symbols: dict[str, Expr] = field(default_factory=dict[str, Expr])
    named: dict[str, Expr] = field(default_factory=dict[str, Expr])  # and symbols that torch joined with others since

    def read(self) -> Lowered:
        shims, self.wholes = _functional(self.torch, self.graph.orig_gm)
        self.listed = frozenset(n.name for n in shims if getattr(n, "listed", False))
        bound = {n.name: attrgetter(n.target)(self.graph.orig_gm) for n in shims if n.op == "get_attr"}
        shim = SimpleNamespace(graph=SimpleNamespace(nodes=shims))
        program, _ = read_graph(Captured(shim, self.name, bound=bound))
        self.imported = import_program(program, bound)
        self.symbols = dict(program.sizes.symbols)
        self.named = self._joined_symbols()
        nodes = [s for top in self.graph.scheduler.nodes for s in top.get_nodes()]
        kernels = {
            s.get_name(): s.get_name() if type(top).__name__.startswith("ForeachKernel") else top.get_name()
            for top in self.graph.scheduler.nodes for s in top.get_nodes()
        }  # fmt: skip
        order = tuple(s.get_name() for s in nodes)
        buffers = self._buffers(nodes)
        calls = tuple(f"{s.get_name()}: {_node_kind(s)}" for s in nodes if getattr(s, "_body", None) is None)
        made: list[NeutralProgram] = []
        for stage in ("before", "after"):
            nests: list[Nest] = []
            for s in nodes:
                body = self.record.before.get(s.get_name()) if stage == "before" else getattr(s, "_body", None)
                body = self._first_body(s, body) if stage == "before" else body
                if body is not None:
                    nests.append(self._nest(s, body, kernels[s.get_name()] if stage == "after" else ""))
            made.append(self._program(buffers, nests, order))
        dtypes = self._dtypes(nodes)
        return Lowered(
            self.name,
            self.imported,
            made[0],
            made[1],
            calls,
            self.source,
            dtypes,
            (*self._outside(), *self._result_types(), *self._stored_types(buffers, dtypes)),
        )

    def numbers(self, program: NeutralProgram) -> LoopNumbers:
        """The loops after fusion, to be run on numbers."""
        nodes = [s for top in self.graph.scheduler.nodes for s in top.get_nodes()]
        found = [
            LoopNode(s.get_name(), getattr(s, "_body", None), tuple(b.get_name() for b in s.get_outputs()),
                     type(s).__name__ == "NopKernelSchedulerNode")
            for s in nodes
        ]  # fmt: skip
        storages = {k: home for k, (home, _) in program.memory.items()}
        return LoopNumbers(self.graph, self.graph.orig_gm, self.name, found, program.buffers, storages, program.sources)

    def _outside(self) -> tuple[CheckRow, ...]:
        """A row for each result that is a view beyond the end of its buffer, whose elements were never computed."""
        rows: list[CheckRow] = []
        for k, out in enumerate(self.graph.graph_outputs):
            view = out if type(out).__name__ == "ReinterpretView" else getattr(out, "data", out)
            if type(view).__name__ != "ReinterpretView":
                continue
            base = view.data.get_layout() if hasattr(view.data, "get_layout") else None
            sizes = [self._size(n) for n in view.layout.size]
            last = self._size(view.layout.offset)
            for n, s in zip(sizes, view.layout.stride, strict=True):
                last = last + (n - 1) * self._size(s)
            room = self._size(base.storage_size()) if base is not None else last + 1
            if not (last.is_const and room.is_const) or int(last) < int(room) or any(int(n) == 0 for n in sizes):
                continue
            name = view.data.get_name()
            told = Difference(
                {}, f"result {k}{[int(n) - 1 for n in sizes]}", f"{name}[{int(last)}]",
                f"an element of {name}, which has {int(room)}", "",
            )  # fmt: skip
            because = "a result lies outside of the memory that is allocated for it"
            rows.append(CheckRow(f"result {k}", name, "refuted", "read", because, told, "after", self.name))
        return tuple(rows)

    def _result_types(self) -> Iterator[CheckRow]:
        """A row for each result that is stored in another type than the program's."""
        output = next(n for n in self.graph.orig_gm.graph.nodes if n.op == "output")
        for k, (n, out) in enumerate(zip(output.args[0], self.graph.graph_outputs, strict=False)):
            meant = getattr(getattr(n, "meta", {}).get("val"), "dtype", None)
            found = out.get_dtype() if meant is not None and hasattr(out, "get_dtype") else meant
            if meant != found:
                told = Difference({}, f"result {k}", str(found), str(meant), "")
                because = "a result has another element type than the program's"
                yield CheckRow(f"result {k}", n.name, "refuted", "write", because, told, "after", self.name)

    def _stored_types(self, buffers: Sequence[BufferLayout], dtypes: Mapping[str, str]) -> Iterator[CheckRow]:
        """A row for each buffer of its own whose elements have another type than the tensor that it holds."""
        tensors = {t.name: t.dtype for t in self.imported.fusion.tensors}
        for b in buffers:
            meant, found = tensors.get(b.tensor), dtypes.get(b.name)
            if not b.copy and b.name == b.home and b.after and meant and found and found != meant:
                told = Difference({}, b.name, found, meant, "")
                because = "a buffer has another element type than the program's tensor"
                yield CheckRow(b.after, b.name, "refuted", "write", because, told, "after", self.name)

    def _dtypes(self, nodes: Sequence[Any]) -> dict[str, str]:
        """Element types of buffers, by name."""
        names = [b.get_name() for s in nodes for b in s.get_outputs()] + list(self.graph.graph_inputs)
        found: dict[str, str] = {}
        for name in names:
            with contextlib.suppress(KeyError, AttributeError, NotImplementedError):
                found[name] = str(self.graph.get_dtype(name)).removeprefix("torch.")
        return found

    def _first_body(self, s: Any, body: Any) -> Any:
        """The body as lowered, before the scheduler simplified and reordered its loops."""
        if body is None:
            return None
        try:
            from torch._inductor.virtualized import V

            with V.set_graph_handler(self.graph):
                return s.node.get_default_sizes_body()[1]
        except (AttributeError, TypeError, AssertionError, IndexError):
            return body

    def _program(
        self, buffers: tuple[BufferLayout, ...], nests: Sequence[Nest], order: tuple[str, ...]
    ) -> NeutralProgram:
        imported = self.imported
        sources: dict[str, tuple[str, SourceLine | None]] = {
            n.name: (f"{n.name} = {n.target}", n.line) for n in imported.program.nodes
        }
        opaque = frozenset(n.name for n in imported.program.nodes if n.name in imported.plan.reasons)
        return NeutralProgram(
            self.name, imported.fusion, buffers, tuple(nests), order, self.symbols,
            tuple(imported.program.sizes.guards), sources, opaque, self._memory(buffers), constants=self._constants(),
        )  # fmt: skip

    def _constants(self) -> dict[str, tuple[object, ...]]:
        """Numbers of the tensors that the graph holds and that lie in no memory: bodies have them as constants."""
        held = [n for n in self.graph.orig_gm.graph.nodes if n.op == "get_attr" and self._stored(n.name) is None]
        found = {n.name: attrgetter(n.target)(self.graph.orig_gm) for n in held}
        return {k: tuple(v.tolist()) for k, v in found.items() if isinstance(v, self.torch.Tensor) and v.dim() == 1}

    def _memory(self, buffers: Sequence[BufferLayout]) -> dict[str, tuple[str, Expr]]:
        """Storages of the buffers that operations in place write and that no tensor names."""
        known = {b.name for b in buffers}
        out: dict[str, tuple[str, Expr]] = {}
        for s in (s for top in self.graph.scheduler.nodes for s in top.get_nodes()):
            layout: Any = getattr(s.node, "layout", None)
            if type(layout).__name__ == "MutationLayoutSHOULDREMOVE" and s.node.get_name() not in known:
                out[s.node.get_name()] = (layout.get_buffer().get_name(), as_expr(0))
        return out

    # where tensors lie ------------------------------------------------------------------------------------------------

    def _buffers(self, nodes: Sequence[Any]) -> tuple[BufferLayout, ...]:
        graph = self.graph
        maker = {b.get_name(): s.get_name() for s in nodes for b in s.get_outputs()}
        mutators: dict[str, list[tuple[str, str]]] = {}
        for s in nodes:
            layout: Any = getattr(s.node, "layout", None)
            if type(layout).__name__ == "MutationLayoutSHOULDREMOVE":
                target = layout.get_buffer().get_name()
                mutators.setdefault(target, []).append((s.node.get_name(), s.get_name()))
            elif getattr(s, "_body", None) is None and hasattr(s.node, "get_mutation_names"):
                for target in s.node.get_mutation_names():
                    mutators.setdefault(target, []).append((s.node.get_name(), s.get_name()))
        found: list[BufferLayout] = []
        held: dict[str, list[tuple[str, Any]]] = {}  # buffer -> graph nodes whose value it holds, in order
        table = self.imported.program.table
        for n in graph.orig_gm.graph.nodes:
            if n.op == "output":
                continue
            for k, a in enumerate(n.args[0] if f"{n.name}_0" in self.listed else ()):
                part = self._stored(a.name)
                if part is not None:
                    held.setdefault(part[0], []).append((f"{n.name}_{k}", part[1]))
            place = self._stored(n.name)
            if n.op == "placeholder":
                own = _stored(SimpleNamespace(data=SimpleNamespace(data=self._input(n.name))), input_=True)
                if own is not None and place is not None and place[0] != own[0]:  # copied, in another order
                    copied = self._buffer(place[0], n.name, place[1], place[0], maker.get(place[0], ""))
                    found.append(replace(copied, copy=True))
                place = own
            name = f"{n.args[0].name}_{n.args[1]}" if str(n.target) == "<built-in function getitem>" else n.name
            name = n.name if name not in self.listed and n.name in table else name  # a part of a list
            known = table.get(name)  # a preparation of a softmax is not a node of the program
            if n.op == "call_function" and (known is None or not isinstance(known.meta, TensorMeta)):
                continue
            # What is stored for a reader that computes it again is dead: no node is left that writes it.
            if place is not None and (place[0] in maker or place[0] not in graph.name_to_buffer):
                held.setdefault(place[0], []).append((name, place[1]))
        place = {n.name: k for k, n in enumerate(graph.orig_gm.graph.nodes)}
        for name, entries in held.items():
            found += self._in_storage(name, entries, mutators.get(name, []), maker, place)
        return tuple(self._pieces(nodes, [*found, *self._call_operands(nodes, found, maker)]))

    def _call_operands(
        self, nodes: Sequence[Any], found: Sequence[BufferLayout], maker: Mapping[str, str]
    ) -> list[BufferLayout]:
        """Buffers that only library calls read, or a check at run time, which no graph node names: they hold copies of
        the operands.
        """
        out, every = {b.name: b for b in found}, {n.name: n for n in self.graph.orig_gm.graph.nodes}
        for s in nodes:
            own = s.get_outputs()
            origin: Any = every.get(self.record.writers.get(own[0].get_name() if own else "", ""))
            if origin is None:
                continue
            args = [a for a in self.torch.utils._pytree.tree_leaves(list(origin.args)) if hasattr(a, "meta")]
            given = [x for x in getattr(s.node, "inputs", ()) if hasattr(x, "get_name")]
            if not s.is_extern():
                given = [s.node] if str(origin.target).startswith("aten._assert_async") else []
            for a, x in zip(args, given, strict=True) if len(args) == len(given) else ():
                name, known = x.get_name(), self.imported.program.table.get(a.name)
                layout = getattr(x, "layout", None) or getattr(getattr(x, "data", None), "layout", None)
                if name in out or name not in maker or known is None or not isinstance(known.meta, TensorMeta):
                    continue
                if hasattr(layout, "stride"):
                    out[name] = replace(self._buffer(name, a.name, layout, name, maker[name]), copy=True)
        return [b for b in out.values() if b not in found]

    def _in_storage(
        self, name: str, entries: list[tuple[str, Any]], changed: Sequence[tuple[str, str]], maker: Mapping[str, str],
        place: Mapping[str, int],
    ) -> list[BufferLayout]:  # fmt: skip
        """The buffers of one storage: first values, updates in their order, views of what was written since."""
        found: list[BufferLayout] = []
        writes = [self._update(buf, entries) for buf, _ in changed]
        entries += [w for w in writes if w not in entries]
        entries.sort(key=lambda e: place[e[0] if e[0] in place else e[0].rpartition("_")[0]])
        start = entries.index(writes[0]) if writes else len(entries)
        first = entries[:start]
        op = ""
        for tensor, layout in entries[start:]:  # views of what was written since
            if (tensor, layout) in writes:
                op = changed[writes.index((tensor, layout))][1]
            elif changed:
                found.append(self._buffer(f"{name}#{tensor}", tensor, layout, name, op))
        for k, (tensor, layout) in enumerate(first):
            found.append(self._buffer(name if k == 0 else f"{name}#{k}", tensor, layout, name, maker.get(name, "")))
        source = ""
        if not first and writes:
            node = self.imported.program.table[writes[0][0]]
            source = next(node.refs(), "")
            found.append(replace(self._buffer(name, source, writes[0][1], name, maker.get(name, "")), copy=True))
        before = first[0][0] if first else source
        for k, ((buf, op), (tensor, layout)) in enumerate(zip(changed, writes, strict=True)):
            if any(later == tensor for later, _ in writes[k + 1 :]):  # a step on the way, which no tensor names
                continue
            found.append(replace(self._buffer(buf, tensor, layout, name, op), over=before))
            whole = next((w for w, part in self.wholes.items() if part == tensor), None)
            if whole is not None:
                before = whole
                rank = len(cast("TensorMeta", self.imported.program.table[whole].meta).shape)
                lying = next((x for _, x in first if len(x.stride) == rank), layout)
                found.append(self._buffer(f"{buf}@", whole, lying, name, op))
            else:
                before = tensor
        return found

    def _stored(self, name: str) -> tuple[str, Any] | None:
        """Where a node's value lies; None where its box holds a later one: an update of what is in no memory yet."""
        result, then = self.record.results.get(name), self.record.values.get(name)
        now = _value_in(result)
        if then is not None and now is not then and getattr(now, "data", None) is not then:
            return None
        return _stored(result)

    def _input(self, name: str) -> Any:
        """The buffer of an argument, also after the graph has updated it."""
        for table in ("graph_inputs_original", "graph_inputs"):
            found = getattr(self.graph, table, {}).get(name)
            while found is not None and not hasattr(found, "layout") and hasattr(found, "data"):
                found = found.data
            if found is not None and hasattr(found, "layout"):
                return found
        return None

    def _pieces(self, nodes: Sequence[Any], found: list[BufferLayout]) -> list[BufferLayout]:
        """Parts of a cat are written into its buffer: a part that no graph node names is a part of the cat itself."""
        known = {b.name: b for b in found}
        whole = {b.name: b for b in found}
        out = list(found)
        for s in nodes:
            layout: Any = getattr(s.node, "layout", None)
            if type(layout).__name__ != "NonOwningLayout":
                continue
            name, home = s.node.get_name(), layout.view.get_name()
            cat = whole.get(home)
            if name in known:  # and updates of it in place
                base = self._size(layout.view.get_layout().offset)
                out = [
                    replace(b, storage=home, offset=simplify(base + b.offset), base=base) if b.home == name else b
                    for b in out
                ]
            elif cat is not None:
                out.append(replace(cat, name=name, storage=home, base=self._size(layout.view.get_layout().offset)))
        return out

    def _update(self, buffer: str, entries: Sequence[tuple[str, Any]]) -> tuple[str, Any]:
        """The node whose lowering made an update in place, and how what it writes lies."""
        name = self.record.writers.get(buffer, "")
        known = next((e for e in entries if e[0] == name or self._part_of(e[0], name)), None)
        if known is not None:
            return known
        node: Any = next((n for n in self.graph.orig_gm.graph.nodes if n.name == name), None)
        view: Any = node.args[0] if node is not None and node.args else None
        value: Any = getattr(view, "meta", {}).get("val")
        if name not in self.imported.program.table or not hasattr(value, "stride"):
            raise CheckError(f"which operation makes {buffer}, an update in place, is not known here")
        base = next((x for n, x in entries if view.args and n == getattr(view.args[0], "name", "")), None)
        if base is not None and all(str(x).isdecimal() for x in (*base.size, *base.stride, base.offset)):
            memory = self.torch.empty_strided(
                [int(n) for n in base.size], [int(n) for n in base.stride], device="meta"
            )  # as Inductor lays it out, which may be another way than the graph's
            value = view.target(memory, *view.args[1:], **view.kwargs)
            return name, SimpleNamespace(stride=value.stride(), offset=value.storage_offset() + int(base.offset))
        return name, SimpleNamespace(stride=value.stride(), offset=value.storage_offset())

    def _part_of(self, part: str, name: str) -> bool:
        return part in self.listed and part.rpartition("_")[0] == name

    def _buffer(self, name: str, tensor: str, layout: Any, storage: str, after: str) -> BufferLayout:
        strides = tuple(self._size(s) for s in layout.stride)
        return BufferLayout(name, tensor, strides, self._size(getattr(layout, "offset", 0)), storage, after)

    def _joined_symbols(self) -> dict[str, Expr]:
        """Sizes by the name of their symbols, those that guards made a number or an expression of others too."""
        env: Any = self.graph.sizevars.shape_env
        found = dict(self.symbols)
        for s in env.replacements:
            with contextlib.suppress(ArithError):
                x = from_sympy(env.replace(s))
                found.setdefault(s.name, x.substitute({n: found[n] for n in x.names if n in found}))
        return found

    def _size(self, x: Any) -> Expr:
        return self._named(as_expr(x) if isinstance(x, int) else from_sympy(x))

    def _named(self, x: Expr) -> Expr:
        return simplify(x.substitute({n: self.named[n] for n in x.names if n in self.named}))

    # loop bodies ------------------------------------------------------------------------------------------------------

    def _nest(self, s: Any, body: Any, kernel: str) -> Nest:
        from torch._inductor.virtualized import V

        loops, reduce = (
            tuple(Axis(v.name, self._size(body.var_ranges[v])) for v in group if v in body.var_ranges)
            for group in (body.iter_vars, body.reduce_vars)
        )
        ranges = {a.name: a.symbol for a in (*loops, *reduce)}
        number = flat_of([a.symbol for a in reduce], [a.extent for a in reduce])
        notes = Notes({**self.named, **ranges}, self.torch, number)
        handler: Any = notes  # Inductor asks for what it calls, by name
        try:
            with V.set_graph_handler(self.graph), V.set_ops_handler(handler):
                body.indexing = dict(body.indexing_exprs)
                try:
                    body.root_block()
                finally:
                    body.indexing = None
        except ArithError as error:
            names = [b.get_name() for b in s.get_outputs()]
            writes = tuple(Write(n, as_expr(0), ()) for n in names)
            return Nest(s.get_name(), loops, writes, reduce, kernel=kernel, unread=error.what)
        written = {n for w in notes.writes for n in w.index.names}
        loops += tuple(a for a in reduce if a.name in written)  # of a scan: its input is written too
        reduce = tuple(a for a in reduce if a.name not in written)
        return Nest(
            s.get_name(), loops, tuple(notes.writes), reduce, dict(notes.loads), dict(notes.places), kernel,
            loose=notes.loose, position=notes.position, combines=frozenset(notes.combines),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoopBodyValue:
    """A value of a loop body: what it is, as far as it is an integer or a condition, and the reads it is made of."""

    what: Value
    reads: frozenset[Read]
    live: Expr = TRUE  # where it is not the 0 of a ``where``; may depend on loaded values

    def __getitem__(self, k: int) -> LoopBodyValue:
        return self


class Notes(NoEffects):
    """Inductor's operations, noted instead of computed: loads, stores, masks and what indices are made of."""

    def __init__(self, scope: Mapping[str, Expr], torch: Any, number: Expr = ZERO) -> None:
        self._scope = dict(scope)
        self._number = number  # of a point of the reduced loops
        self._torch = torch
        self._table = _Table()
        self._data: set[str] = set()
        self._reads_of: dict[str, frozenset[Read]] = {}
        self.loads: dict[str, LoadedValue] = {}
        self.places: dict[str, IndirectIndex] = {}
        self.writes: list[Write] = []
        self.loose = False
        self.position: Expr | None = None
        self.combines: set[str] = set()

    def _index(self, x: Any) -> Expr:
        e = as_expr(int(x)) if isinstance(x, int) else from_sympy(x)
        return e.substitute({n: self._scope[n] for n in e.names if n in self._scope})

    def load(self, name: str, index: Any) -> LoopBodyValue:
        at = self._index(index)
        key = LoadedValue(name, at)
        known = next((n for n, x in self.loads.items() if x == key), None)
        if known is None:
            known = f"v{len(self.loads)}"
            self.loads[known] = key
        value = symbol(known)
        self._data.add(known)
        dtype = self._dtype(name)
        behind = [r for n in at.names for r in self._reads_of.get(n, ())]
        return LoopBodyValue(value.ne(0) if dtype == "bool" else value, frozenset([Read(name, at), *behind]))

    def _dtype(self, name: str) -> str:
        from torch._inductor.virtualized import V

        try:
            return str(V.graph.get_dtype(name)).removeprefix("torch.")
        except (KeyError, AttributeError):
            return ""

    def load_seed(self, name: str, offset: Any) -> LoopBodyValue:
        at = self._index(offset)
        return LoopBodyValue(f"seed({name}, {at})", frozenset([Read(name, at)]))

    def store(self, name: str, index: Any, value: Any, mode: Any = None) -> None:
        if mode not in (None, "atomic_add"):
            raise ArithError(f"a store of mode {mode!r} is not known here")
        self._written(name, index, value, "add" if mode else "store")

    def store_reduction(self, name: str, index: Any, value: Any) -> None:
        self._written(name, index, value, "store")

    def _written(self, name: str, index: Any, value: Any, mode: Any) -> None:
        reads = value.reads if isinstance(value, LoopBodyValue) else frozenset[Read]()
        at = self._index(index)
        own = [r for n in at.names for r in self._reads_of.get(n, ())]
        live = value.live if mode == "add" and isinstance(value, LoopBodyValue) else TRUE
        self.writes.append(Write(name, at, tuple(sorted({*reads, *own}, key=str)), live, mode))

    def reduction(self, dtype: Any, src_dtype: Any, kind: str, value: Any) -> Any:
        parts = cast("Sequence[Any]", value if isinstance(value, (tuple, list)) else (value,))
        made = LoopBodyValue(f"reduction {kind}", self._joined(parts))
        self.combines.add(kind)
        if kind in ("argmax", "argmin"):
            place = _what(parts[1]) if len(parts) > 1 else self._number
            if not isinstance(place, Expr) or self.position not in (None, place):
                raise ArithError("the index that it gives is not an integer formula of its loops")
            self.position = place
        count = 3 if kind.startswith("welford") else 2 if kind == "online_softmax_reduce" else 1
        return made if count == 1 else (made,) * count

    def scan(self, dtypes: Any, combine_fn: Any, values: Any) -> Any:
        return tuple(LoopBodyValue("scan", self._joined([v])) for v in values)

    def sort(self, dtypes: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        raise ArithError("which element a sort takes depends on values")

    def partial_accumulate(self, *args: Any, **kwargs: Any) -> Any:
        raise ArithError("a reduction that accumulates in parts is not known here")

    def masked(self, mask: Any, body: Callable[[], Any], other: Any) -> LoopBodyValue:
        inner = body()
        c = _condition(mask)
        parts = [c] if c is None or c.op != "and" else c.args
        counts = bool(_reads(inner))  # a condition on where it reads (a pad, gathered) limits it as it stands
        held = and_(
            *(p if p is not None and not p.names & self.loads.keys() else self._may(p, True, counts) for p in parts)
        )
        reads = {Read(r.buffer, r.index, and_(r.when, held)) for r in _reads(inner)}
        what = combine("where", [_what(mask), _what(inner), _literal(other)], self._table)
        return LoopBodyValue(what, frozenset(reads) | _reads(mask))

    def where(self, condition: Any, a: Any, b: Any) -> LoopBodyValue:
        c = _condition(condition)
        counts = {(r.buffer, r.index) for r in _reads(a)} != {(r.buffer, r.index) for r in _reads(b)}
        yes, no = self._may(c, True, counts), self._may(c, False, counts)
        reads = {Read(r.buffer, r.index, simplify(and_(r.when, yes))) for r in _reads(a)}
        reads |= {Read(r.buffer, r.index, simplify(and_(r.when, no))) for r in _reads(b)}
        what = combine("where", [_what(condition), _what(a), _what(b)], self._table)
        live = TRUE
        if c is not None and _is_zero(b):
            live = and_(c, a.live if isinstance(a, LoopBodyValue) else TRUE)
        return LoopBodyValue(what, frozenset(reads) | _reads(condition), live)

    def _may(self, c: Expr | None, wanted: bool, counts: bool) -> Expr:
        """Where a read can happen; ``counts``: it happens on this side of the condition only."""
        if c is None:
            self.loose |= counts
            return TRUE
        table = _Table()
        table.loads.update(dict.fromkeys(self._data, ""))
        found = table.may(c, wanted)
        self.loose |= table.loose and counts
        return found

    def indirect_indexing(self, value: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> Any:
        import sympy

        if not isinstance(value, LoopBodyValue):
            return cast("Any", sympy).sympify(value)
        n = self._index(size)
        what = value.what
        if isinstance(what, str):
            text = f"v{len(self.loads)}"
            self.loads[text] = LoadedValue(text=what)
            self._data.add(text)
            what = symbol(text)
        elif what.cond:
            what = where(what, 1, 0)
        name = f"x{len(self.places)}"
        self.places[name] = IndirectIndex(simplify(what), n, wrap_neg)
        self._scope[name] = symbol(name, 0, simplify(n - 1))
        self._data.add(name)
        self._reads_of[name] = value.reads
        return sympy.Symbol(name, integer=True, nonnegative=True)

    def index_expr(self, index: Any, dtype: Any) -> LoopBodyValue:
        if type(index).__name__ == "IntTrueDiv":  # a factor of sizes: a float
            parts = [self._index(a) for a in index.args]
            text = combine("div", [str(float(int(x))) if x.is_const else x for x in parts], self._table)
            return LoopBodyValue(text, frozenset())
        at = self._index(index)
        return LoopBodyValue(at, frozenset(r for n in at.names for r in self._reads_of.get(n, ())))

    value_expr = index_expr

    def constant(self, value: Any, dtype: Any) -> LoopBodyValue:
        return LoopBodyValue(_literal(value), frozenset())

    def to_dtype(self, x: Any, dtype: Any, src_dtype: Any = None, use_compute_types: bool = True) -> LoopBodyValue:
        what = _what(x)
        if isinstance(what, Expr):
            if str(dtype) == "torch.bool":
                what = what if what.cond else what.ne(0)
            elif what.cond:
                what = where(what, 1, 0)
        elif _is_integer(dtype) and not _is_integer(src_dtype):
            text, what = what, self._table.truncated(what)
            self.loads[what.name] = LoadedValue(text=f"trunc({text})")
            self._data.add(what.name)
        return LoopBodyValue(what, _reads(x), x.live if isinstance(x, LoopBodyValue) else TRUE)

    def _joined(self, parts: Sequence[Any]) -> frozenset[Read]:
        out: frozenset[Read] = frozenset()
        for p in parts:
            out |= _reads(p)
        return out

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def noted(*args: Any, **kwargs: Any) -> LoopBodyValue:
            what = combine(_NAMES.get(name, name), [_what(a) for a in args], self._table)
            return LoopBodyValue(what, self._joined(args))

        return noted


_NAMES = {"floordiv": "floor_divide", "and_": "logical_and", "or_": "logical_or", "truediv": "div"}


def _is_integer(dtype: Any) -> bool:
    return dtype is not None and not dtype.is_floating_point and not dtype.is_complex and str(dtype) != "torch.bool"


def _reads(x: Any) -> frozenset[Read]:
    return x.reads if isinstance(x, LoopBodyValue) else frozenset()


def _what(x: Any) -> Value:
    return x.what if isinstance(x, LoopBodyValue) else _literal(x)


def _literal(x: Any) -> Value:
    if isinstance(x, bool):
        return TRUE if x else not_(TRUE)
    return as_expr(x) if isinstance(x, int) else str(x)


def _is_zero(x: Any) -> bool:
    what = _what(x)
    return str(what) in ("0", "0.0", "-0.0")


def _condition(x: Any) -> Expr | None:
    what = _what(x)
    return None if isinstance(what, str) else what if what.cond else what.ne(0)


# graphs ---------------------------------------------------------------------------------------------------------------


def _memory_of(result: Any) -> str:
    """The buffer that a result of a graph lies in; empty for a number, and for no result."""
    try:
        return str(result.get_name())
    except (AttributeError, NotImplementedError):
        return ""


def _value_in(result: Any) -> Any:
    """The content of the box of a lowered value; None where it is not a box."""
    data: Any = getattr(result, "data", None)
    return getattr(data, "data", None) if type(data).__name__ == "StorageBox" else None


def _stored(result: Any, *, input_: bool = False) -> tuple[str, Any] | None:
    """(buffer, layout) of a lowered value that lies in memory as it is; None for one computed where it is used."""
    data: Any = getattr(result, "data", None)
    kind = "StorageBox" if input_ else type(data).__name__
    if kind == "ReinterpretView":
        return data.get_name(), data.layout
    if kind != "StorageBox":
        return None
    inner = data.data
    layout = getattr(inner, "layout", None)
    name = getattr(inner, "name", None)
    if name is None or layout is None or not hasattr(layout, "stride"):
        return None
    return inner.get_name(), inner.get_layout()


def _functional(torch: Any, module: Any) -> tuple[list[Any], dict[str, str]]:
    """The graph's nodes with operations that write in place named as those that do not, and what is read after them
    being what they made; with the names of nodes that stand for a whole tensor after a part of it was written.
    """
    made: dict[Any, Any] = {}
    out: list[Any] = []
    changed: list[Any] = []  # an updated argument is a result too
    wholes: dict[str, str] = {}
    lists: dict[Any, list[Any]] = {}
    maxima: dict[Any, Any] = {}
    Node = type("Node", (SimpleNamespace,), {"__hash__": object.__hash__})
    for n in module.graph.nodes:
        shim = Node(op=n.op, name=n.name, target=_pure(torch, n.target), meta=n.meta, users={})
        shim.args = torch.fx.node.map_arg(n.args, made.__getitem__)
        shim.kwargs = torch.fx.node.map_arg(n.kwargs, made.__getitem__)
        for a in n.all_input_nodes:
            made[a].users[shim] = None
        made[n] = shim
        if str(n.target) == "prims.prepare_softmax_online.default":
            continue
        parts = _foreach_parts(torch, Node, n, shim)
        if parts is not None:
            out += parts
            made.update(zip(n.args[0], parts, strict=True) if _mutates(n.target) else ())
            lists[n] = parts
            continue
        if str(n.target) == "<built-in function getitem>" and n.args[0] in lists:
            made[n] = lists[n.args[0]][n.args[1]]
            continue
        out += _softmax_part(torch, Node, n, shim, maxima) if n.op == "call_function" else [shim]
        if n.op == "call_function" and shim.target is not n.target and _mutates(n.target):
            target = n.args[0]
            if str(n.target).startswith("aten.copy_"):
                changed.append(shim)
            part, view, value, views = n.name, target, shim, list[Any]()
            while (inverse := _written_back(torch, view, value, made)) is not None:  # what the view shows is new too
                views.append(view)
                part, view = f"{part}_whole", view.args[0]
                value = Node(op="call_function", name=part, target=inverse[0], meta=view.meta, users={},
                             args=inverse[1], kwargs=dict(views[-1].kwargs))  # fmt: skip
                out.append(value)
            if views:
                wholes[part] = n.name
                made[view] = value
            for v in reversed(views[1:]):  # views between are of what is new
                made[v] = Node(op="call_function", name=f"{part}_{v.name}", target=v.target, meta=v.meta, users={},
                               args=(made[v.args[0]], *v.args[1:]), kwargs=dict(v.kwargs))  # fmt: skip
                out.append(made[v])
            for x in out[len(out) - len(views) - len(views[1:]) :]:
                for arg in (y for y in x.args if isinstance(y, Node)):
                    arg.users[x] = None
            made[target] = shim
        if n.op == "output":
            shim.args = ((*shim.args[0], *changed),)
    return out, wholes


def _written_back(torch: Any, view: Any, value: Any, made: Mapping[Any, Any]) -> tuple[Any, tuple[Any, ...]] | None:
    """The operation and arguments that give what a view shows, once the view holds ``value``; None for no view."""
    name = str(view.target)
    if name == "aten.permute.default":
        dims = [d % len(view.args[1]) for d in view.args[1]]
        return view.target, (value, [dims.index(k) for k in range(len(dims))])
    scatter = _SCATTERS_OF_VIEWS.get(name)
    if scatter is None:
        return None
    return getattr(torch.ops.aten, scatter).default, (made[view.args[0]], value, *view.args[1:])


def _foreach_parts(torch: Any, Node: Any, n: Any, shim: Any) -> list[Any] | None:
    """An operation on lists as one operation for each of their tensors; None for any other operation."""
    name = getattr(getattr(n.target, "_schema", None), "name", "")
    if not name.startswith("aten::_foreach_"):
        return None
    packet = getattr(torch.ops.aten, name.removeprefix("aten::_foreach_").removesuffix("_"), None)
    first = shim.args[0]
    out: list[Any] = []
    for k, x in enumerate(first):
        args: tuple[Any, ...] = tuple(cast("Any", a)[k] if isinstance(a, (list, tuple)) else a for a in shim.args)
        target = getattr(packet, "Tensor", None) or getattr(packet, "default", n.target)
        part = Node(op="call_function", name=f"{n.name}_{k}", target=target, args=args, kwargs=shim.kwargs,
                    meta=x.meta, users={}, listed=_mutates(n.target))  # fmt: skip
        for a in args:
            if isinstance(a, Node):
                a.users[part] = None
        out.append(part)
    return out


def _softmax_part(torch: Any, Node: Any, n: Any, shim: Any, maxima: dict[Any, Any]) -> list[Any]:
    """``getitem`` of Inductor's own softmax preparation as its meaning: the maximum, and the sum of exponentials.

    The sum is relative to the maximum that the program has (``maxima``), where it has one: loops may read that.
    """
    source = n.args[0] if n.args else None
    if str(getattr(source, "target", "")) != "prims.prepare_softmax_online.default":
        return [shim]
    aten, x = torch.ops.aten, shim.args[0].args[0]
    dim = shim.args[0].args[1]

    def node(name: str, target: Any, args: tuple[Any, ...], meta: Any) -> Any:
        return Node(op="call_function", name=name, target=target, args=args, kwargs={}, meta=meta, users={})

    if n.args[1] == 0:
        shim.target, shim.args = aten.amax.default, (x, [dim], True)
        maxima[source] = shim
        return [shim]
    known = maxima.get(source)
    top = known or node(f"{n.name}_max", aten.amax.default, (x, [dim], True), n.meta)
    sub = node(f"{n.name}_sub", aten.sub.Tensor, (x, top), x.meta)
    exp = node(f"{n.name}_exp", aten.exp.default, (sub,), x.meta)
    shim.target, shim.args = aten.sum.dim_IntList, (exp, [dim], True)
    return [sub, exp, shim] if known else [top, sub, exp, shim]


def _mutates(target: Any) -> bool:
    return type(target).__name__ == "OpOverload" and bool(target._schema.is_mutable)


def _pure(torch: Any, target: Any) -> Any:
    if type(target).__name__ == "OpOverloadPacket":  # a pass of Inductor's makes `aten.clone`
        target = getattr(target, "default", target)
    if type(target).__name__ != "OpOverload":
        return target
    if str(target) == "aten.reshape.default":
        return torch.ops.aten.view.default
    if not target._schema.is_mutable:
        return target
    name, overload = target._schema.name.split("::")[1], target._overloadname
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    return getattr(packet, overload, target) if name.endswith("_") else target


def _node_kind(s: Any) -> str:
    node = s.node
    found = getattr(node, "python_kernel_name", None) or getattr(node, "op_overload", None) or type(node).__name__
    return str(found)
