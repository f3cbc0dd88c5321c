"""From torch itself: torch.export with decompositions, or make_fx where export cannot; the graph becomes our nodes.

Long: one conversion, in the order in which a graph is read.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import os
import re
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

from idgraph.errors import FrontendError, SourceLine, user_line
from idgraph.frontends.aten import HANDLERS, OPAQUE
from idgraph.frontends.decompositions import table, to_core
from idgraph.frontends.dynamic_shapes import Reader
from idgraph.frontends.graph import (
    CapturedProgram,
    EnumConstant,
    Kind,
    Meta,
    Node,
    Ref,
    TensorMeta,
    Value,
    as_number,
    is_of_sizes,
    short,
    where_of,
)
from idgraph.frontends.import_ import Import, import_program
from idgraph.frontends.importer import GETITEM
from idgraph.frontends.torch_arrays import ONE_MEMORY, is_torch, load_torch, overlaps, repeats, shares_memory
from idgraph.frontends.torch_patches import FILE, arguments_of, as_module, export_patches

_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in [^\n]*(?:\n(?!  File)\s*([^\n]*))?')
_HERE = str(Path(__file__).parent)
_STANDARD = str(Path(traceback.__file__).parent)  # Python's own library; packages that are installed may be below it
_KINDS: dict[str, Kind] = {"placeholder": "placeholder", "get_attr": "constant", "call_function": "call"}

OVERLAPPING_VIEWS = ("aten.unfold.default", "aten.as_strided.default")
# What a write through a view with overlapping elements is where nothing writes; some are gradients.
OVERLAPPING_WRITES = ("aten.unfold_backward.default", "aten.as_strided_scatter.default")
BRANCH = "a branch on values is not captured: torch.where(condition, a, b) instead of if"

Args = tuple[object, ...]


@dataclass(slots=True)
class Captured:
    """A torch graph with what is not in it: values of its parameters, and how results are packed."""

    graph: Any
    name: str
    bound: dict[str, object] = field(default_factory=dict[str, object])
    mutated: list[str] = field(default_factory=list[str])
    flatten: Callable[[Sequence[object], Mapping[str, object]], list[object]] | None = None
    unflatten: Callable[[list[object]], object] | None = None
    claimed: bool = False  # make_fx loses the offsets of views of real tensors


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Without the warning that torch 2.13 raises about its own copying of a program."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".isinstance.treespec, LeafSpec.. is deprecated", FutureWarning)
        yield


@contextlib.contextmanager
def _whole_stacks() -> Generator[None]:
    """Make torch note every frame of the user's, not only those of functions named ``forward``."""
    base: Any = load_torch("which from_torch reads programs of").fx.proxy.TracerBase
    before = getattr(base, "_filter_traceback_frames", None)
    if before is None:  # another release of torch: the lines are those that it notes
        yield
        return

    def full_stack(tracer: object, frames: traceback.StackSummary) -> traceback.StackSummary:
        ours = max(
            (k for k, f in enumerate(frames) if f.filename.startswith(_HERE) and f.filename != FILE), default=None
        )
        if ours is None:  # another thread's tracing
            return before(tracer, frames)
        others = (_torch_folder(), _HERE)
        return traceback.StackSummary.from_list([f for f in frames[ours + 1 :] if not f.filename.startswith(others)])

    base._filter_traceback_frames = full_stack
    try:
        yield
    finally:
        base._filter_traceback_frames = before


@_quiet()
@_whole_stacks()
def capture(
    source: object,
    example_args: Sequence[object] | None,
    example_kwargs: Mapping[str, object] | None,
    name: str | None,
    strict: bool,
    dynamic_shapes: object = None,
    *,
    certain: bool = False,
    calling: Collection[str] = (),
) -> Import:
    """See `idgraph.frontends.from_torch`. ``certain``: what a graph of ATen operations says of memory is right;
    ``calling``: operations that are left to torch."""
    torch: Any = load_torch("which from_torch reads programs of")
    title = name or _title_of(source)
    args, kwargs = arguments_of(torch, example_args), dict(example_kwargs or {})
    given: Any = source
    if isinstance(source, torch.export.ExportedProgram):
        found = _exported(given, title)
    elif isinstance(source, torch.fx.GraphModule) and _is_aten((writing := _with_new_values(torch, given))[0].graph):
        module, written = writing
        found = _graph_module(_decomposed(torch, module), title)
        found.claimed = not certain
        names = [n.name for n in found.graph.graph.nodes if n.op == "placeholder"]
        found.mutated += [names[k] for k in written]
    else:
        if args is None:
            raise FrontendError(
                "from_torch needs example arguments to capture this program",
                where=user_line(),
                hint="from_torch(f, (x,))",
            )
        found = _captured(source, args, kwargs, title, strict, dynamic_shapes)
    program, operations = read_graph(found)
    imported = import_program(program, found.bound, operations, calling)
    imported.flatten, imported.unflatten = found.flatten, found.unflatten
    return imported


def _title_of(source: object) -> str:
    found = getattr(source, "__name__", None) or type(source).__name__
    return found if isinstance(found, str) and found.isprintable() and found else "program"


def _with_new_values(torch: Any, module: Any) -> tuple[Any, list[int]]:
    """A graph that writes arguments, which it does not read after, as one whose first results are their new values, and
    the numbers of these arguments; another graph as it is."""
    arguments = [n for n in module.graph.nodes if n.op == "placeholder"]
    written: dict[Any, Any] = {}  # argument -> what is written
    memory: dict[Any, Any] = {n: n for n in arguments}  # views -> whose memory they show
    for n in module.graph.nodes:
        shown = [memory[x] for x in n.all_input_nodes if x in memory]
        if n.op != "output" and any(x in written for x in shown):
            return module, []
        if n.target is torch.ops.aten.copy_.default and n.args[0] in arguments and not n.users:
            written[n.args[0]] = n
        elif shown and (n.target is operator.getitem or _shares_memory(n.target)):
            memory[n] = shown[0]
    if not written:
        return module, []
    made, nodes = torch.fx.Graph(), dict[Any, Any]()
    made.graph_copy(module.graph, nodes)
    values = [nodes[n.args[1]] for n in written.values()]
    for n in written.values():
        made.erase_node(nodes[n])
    end = module.graph.output_node()
    results = torch.fx.node.map_arg(end.args[0], nodes.__getitem__)
    made.output((*values, *(results if isinstance(results, (tuple, list)) else [results])))
    return torch.fx.GraphModule(module, made), [arguments.index(n) for n in written]


def _shares_memory(target: Any) -> bool:
    return type(target).__name__ == "OpOverload" and any(r.alias_info is not None for r in target._schema.returns)


def _is_aten(graph: Any) -> bool:
    """Made of operations known here, with shapes: nothing needs to be captured again."""
    calls = [n for n in graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
    shaped = all("val" in n.meta for n in graph.nodes if n.op == "placeholder" or (n.op == "call_function" and n.users))
    return shaped and all(n.op == "call_function" and _is_plain(n.target) for n in calls)


def _is_plain(target: Any) -> bool:
    """An operation of torch that writes no operand, or one on sizes."""
    name = target_name(target)
    if type(target).__name__ != "OpOverload":
        return is_of_sizes(name)
    return name in HANDLERS or name in OPAQUE or not _writes(target)


def _writes(target: Any) -> bool:
    """An operation of torch that changes an operand."""
    return type(target).__name__ == "OpOverload" and bool(target._schema.is_mutable)


def _written(node: Any) -> list[Any]:
    """The operands that a call changes, one by one."""
    if node.op != "call_function" or not _writes(node.target):
        return []
    schema = node.target._schema.arguments
    given = (*node.args, *(node.kwargs.get(a.name) for a in schema[len(node.args) :]))
    changed = [x for a, x in zip(schema, given, strict=True) if a.alias_info is not None and a.alias_info.is_write]
    flat: list[Any] = [x for c in changed for x in (cast("list[Any]", c) if isinstance(c, list | tuple) else [c])]
    return [x for x in flat if "val" in getattr(x, "meta", ())]


def _captured(
    source: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    title: str,
    strict: bool,
    dynamic_shapes: object,
) -> Captured:
    """torch.export, or make_fx where export cannot (a program that computes gradients, say)."""
    torch: Any = load_torch("which from_torch reads programs of")
    if not callable(source):
        raise FrontendError(f"{type(source).__name__} is not a function, module, ExportedProgram or GraphModule")
    module = source if isinstance(source, torch.nn.Module) else as_module(torch, source)
    exported: Any = None
    try:
        shapes = _for_export(torch, module, args, dynamic_shapes)
        with export_patches(strict):
            exported = torch.export.export(module, args, kwargs or None, strict=strict, dynamic_shapes=shapes)
        refuse_overlap(title, exported)
        return _exported(exported, title)
    except FrontendError:
        raise
    except Exception as refused:
        _refuse_memory(torch, title, exported, refused, (args, kwargs))
        if dynamic_shapes is not None:
            raise FrontendError(
                f"{title} cannot be captured with dynamic sizes: {_first_line(refused)}",
                where=_raised_at(refused),
                because=[f"torch.export: {line}" for line in str(refused).strip().splitlines()[:12]],
            ) from None
        # torch.export raises many kinds; make_fx has the last word
        try:
            with export_patches():
                return _traced(torch, module, args, kwargs, title)
        except FrontendError:
            raise
        except Exception as error:
            raise FrontendError(
                f"{title} cannot be captured: {_first_line(error)}",
                where=_raised_at(refused) or _raised_at(error),
                because=[f"torch.export: {_first_line(refused)}", f"make_fx: {_first_line(error)}"],
                hint=BRANCH if "data-dependent" in f"{refused}{error}" else "",
            ) from None


def refuse_overlap(title: str, exported: Any) -> None:
    """Raise for a write through a view with overlapping elements, or through windows that leave elements out. torch's
    functionalization leaves other values than eager in the elements that the view has twice, among them those of an
    axis that was expanded, or, of windows, not at all."""
    for n, view in ((c, written) for c in exported.graph.nodes for written in _written(c)):
        if repeats(view.meta["val"]):
            raise _overlap(title, n.meta.get("stack_trace"))
        while getattr(view, "op", "") == "call_function" and _is_view(view.target):
            made: Any = view
            if target_name(made.target) in OVERLAPPING_VIEWS and overlaps(made.meta["val"]):
                raise _overlap(title, n.meta.get("stack_trace"))
            if target_name(made.target) == "aten.unfold.default" and _leaves_out(made):
                raise FrontendError(
                    f"{title} writes to windows that leave elements out",
                    where=source_line(n.meta.get("stack_trace")),
                    because=["torch's functionalization makes those elements 0"],
                    hint="write to the tensor that the windows are of: y[::2] = 5.0, not y.unfold(0, 1, 2)[:] = 5.0",
                )
            view = made.args[0]


def _leaves_out(unfold: Any) -> bool:
    """Whether some element is in none of the windows; of sizes that are not known, whether that is not excluded."""
    whole, windows = unfold.args[0].meta["val"].numel(), unfold.meta["val"].numel()
    return not (isinstance(whole, int) and isinstance(windows, int) and whole == windows)


def _overlap(title: str, trace: object) -> FrontendError:
    return FrontendError(
        f"{title} writes to a view of which several elements are one in memory",
        where=source_line(trace),
        because=["what such a write leaves depends on its order"],
        hint="write to the tensor that the view is of: y[0:2] = 5.0 instead of y.unfold(0, 2, 1)[0] = 5.0",
    )


def _is_view(target: Any) -> bool:
    """An operation of torch whose result may lie in the memory of its first operand."""
    if type(target).__name__ != "OpOverload":
        return False
    returned = target._schema.returns
    return bool(returned) and returned[0].alias_info is not None


def _refuse_memory(torch: Any, title: str, exported: Any, refused: Exception, given: object) -> None:
    """Raise for a program that no graph without writes stands for. make_fx would take it, with other values."""
    text = str(refused)
    if "internal overlap" in text:  # of torch's functionalization
        raise _overlap(title, text.partition("Original traceback:")[2]) from None
    calls = [] if exported is None else [n for n in exported.graph.nodes if n.op == "call_function"]
    calls = [n for n in calls if type(n.target).__name__ == "OpOverload"]
    for n in calls:
        if torch.Tag.inplace_view in n.target.tags and n.args[0].op == "placeholder":
            plain = n.target._opname.rstrip("_")
            raise FrontendError(
                f"{title} changes the shape or the strides of its argument {short(n.args[0].name)} in place",
                where=source_line(n.meta.get("stack_trace")),
                because=[f"it calls {n.target._opname}, and a captured program changes values only"],
                hint=f"a view of it: y = x.{plain}(...) instead of x.{n.target._opname}(...)",
            ) from None
    if any(_writes(n.target) for n in calls):
        tree: Any = torch.utils._pytree
        arrays = [v for v in tree.tree_leaves(given) if is_torch(v)]
        pair = next(((k, j) for j, b in enumerate(arrays) for k in range(j) if shares_memory(arrays[k], b)), None)
        if pair is not None:
            raise FrontendError(
                f"{title}: example tensors {pair[0]} and {pair[1]} lie in one memory, and the program writes its "
                "arguments",
                hint=ONE_MEMORY,
            ) from None


def _for_export(torch: Any, module: Any, args: Args, dynamic_shapes: object) -> object:
    """``dynamic_shapes`` as torch.export wants them: a function's variable arguments stand in a tuple of their own."""
    if not isinstance(dynamic_shapes, (tuple, list)):
        return dynamic_shapes
    given = cast("Sequence[object]", dynamic_shapes)
    kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds and len(given) == len(args):
        plain = sum(k in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in kinds)
        return (*given[:plain], tuple(given[plain:]))
    return tuple(given)


def _first_line(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {short(first, 200)[1:-1]}"


def _raised_at(error: Exception) -> SourceLine | None:
    """The user's line that torch could not capture."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        found = _user_line(frame.filename, frame.lineno or 0, frame.line or "")
        if found is not None:
            return found
    return None


def _exported(exported: Any, title: str) -> Captured:
    """An exported program, decomposed to core ATen."""
    torch: Any = load_torch("which from_torch reads programs of")
    core: Any = to_core(exported)
    signature, graph = core.graph_signature, core.graph_module.graph
    values: dict[str, object] = {**core.state_dict, **core.constants}
    found = Captured(core.graph_module, title)
    kinds: Any = torch.export.graph_signature.InputKind
    for spec in signature.input_specs:
        if spec.kind == kinds.USER_INPUT:
            if not hasattr(spec.arg, "name") or getattr(spec.arg, "value", None) is not None:
                continue
        elif spec.kind == kinds.CONSTANT_TENSOR and as_number(torch, graph, spec.arg.name, values.get(spec.target)):
            continue
        elif spec.target in values:
            found.bound[spec.arg.name] = values[spec.target]
        else:
            raise FrontendError(f"node {short(spec.arg.name)}: an input of kind {spec.kind.name}, without a value")
    outputs: Any = torch.export.graph_signature.OutputKind
    arguments = {s.target: s.arg.name for s in signature.input_specs if s.target is not None}
    for spec in signature.output_specs:
        if spec.kind == outputs.USER_OUTPUT:
            break
        known = {outputs.BUFFER_MUTATION: arguments.get(spec.target), outputs.USER_INPUT_MUTATION: spec.target}
        name = known.get(spec.kind)
        if name is None:
            raise FrontendError(f"an output of kind {spec.kind.name} is not imported")
        found.mutated.append(name)
    _packing(torch, core.call_spec, found)
    return found


def _packing(torch: Any, call_spec: Any, found: Captured) -> None:
    """Arguments and results as the program itself takes and gives them."""
    tree: Any = torch.utils._pytree

    def flatten(args: Sequence[object], kwargs: Mapping[str, object]) -> list[object]:
        flat, spec = tree.tree_flatten((tuple(args), dict(kwargs)))
        if call_spec.in_spec is not None and spec != call_spec.in_spec:
            raise FrontendError(
                f"{found.name}: the arguments are not nested as the example arguments were",
                hint="the same number of arguments, the same lists, tuples and dicts",
            )
        return flat

    found.flatten = flatten
    found.unflatten = lambda flat: tree.tree_unflatten(flat, call_spec.out_spec)


def _graph_module(module: Any, title: str) -> Captured:
    """A graph of ATen operations as it stands."""
    found = Captured(module, title, claimed=True)
    for node in module.graph.nodes:
        if node.op == "get_attr":
            found.bound[node.name] = attrgetter(str(node.target))(module)
    return found


def _decomposed(torch: Any, module: Any) -> Any:
    """The graph with operations that have no handler taken apart, where torch knows how."""
    known = table(torch._decomp.core_aten_decompositions())
    calls = [n for n in module.graph.nodes if n.op == "call_function"]
    if not any(n.target in known and target_name(n.target) not in HANDLERS for n in calls):
        return module
    given = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
    fake, given = _one_fake_mode(torch, given)
    whole = {n.target for n in calls if _is_attention_with_more(n)}
    needed = {op: f for op, f in known.items() if target_name(op) not in HANDLERS and op not in whole}
    make_fx: Any = torch.fx.experimental.proxy_tensor.make_fx
    try:
        with torch.fx.traceback.preserve_node_meta(), fake or contextlib.nullcontext():
            taken = make_fx(torch.fx.Interpreter(module).run, decomposition_table=needed)(*given)
    except Exception:  # torch raises many kinds; the graph as it stands is right too, with those operations opaque
        return module
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    for node, name in zip([n for n in taken.graph.nodes if n.op == "placeholder"], names, strict=True):
        node._rename(name)
    return taken


def _one_fake_mode(torch: Any, values: list[Any]) -> tuple[Any, list[Any]]:
    """The mode of these values without data, and they; `make_fx` of tensors with data gives each a mode of its own, in
    whose place one for all stands."""
    fake: Any = torch._subclasses.fake_tensor
    if len({id(v.fake_mode) for v in values if isinstance(v, fake.FakeTensor)}) < 2:
        return torch._guards.detect_fake_mode(values), values
    mode = fake.FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        return mode, [
            torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) if is_torch(v) else v
            for v in values
        ]


def _is_attention_with_more(node: Any) -> bool:
    """An attention whose other results are used: torch's decomposition does not make what the backward reads."""
    more = (u for u in node.users if target_name(u.target) == GETITEM and u.args[1] != 0)
    return "scaled_dot_product" in target_name(node.target) and any(u.users for u in more)


def _traced(torch: Any, module: Any, args: Args, kwargs: dict[str, object], title: str) -> Captured:
    """make_fx with the core decompositions: parameters are constants of the graph."""
    make_fx: Any = torch.fx.experimental.proxy_tensor.make_fx
    tree: Any = torch.utils._pytree
    flat, in_spec = tree.tree_flatten((args, kwargs))
    tensors = [k for k, v in enumerate(flat) if is_torch(v)]
    out_spec: list[Any] = []

    def forward(*given: object) -> tuple[object, ...]:
        full = list(flat)
        for k, v in zip(tensors, given, strict=True):
            full[k] = v
        inner_args, inner_kwargs = tree.tree_unflatten(full, in_spec)
        out, spec = tree.tree_flatten(module(*inner_args, **inner_kwargs))
        out_spec[:] = [spec]
        return tuple(out)

    decompositions = table(torch._decomp.core_aten_decompositions())
    given = [flat[k] for k in tensors]
    functional = torch.func.functionalize(forward, remove="mutations_and_views")
    try:
        graph = make_fx(functional, decomposition_table=decompositions, record_stack_traces=True)(*given)
    except Exception:  # torch raises many kinds; a program that calls backward() cannot be functionalized
        graph = make_fx(forward, decomposition_table=decompositions, record_stack_traces=True)(*given)
    if any(_writes(n.target) for n in graph.graph.nodes if n.op == "call_function"):
        # a decomposition wrote in place; the flat graph shows it, so that functionalize can remove it
        again = torch.func.functionalize(graph, remove="mutations_and_views")
        graph = make_fx(again, record_stack_traces=True)(*given)
    graph.graph.eliminate_dead_code()
    if any(target_name(n.target) in (*OVERLAPPING_WRITES, "aten.expand.default") for n in graph.graph.nodes):
        clones = [v.detach().clone().requires_grad_(v.requires_grad) for v in given]
        refuse_overlap(title, make_fx(forward, record_stack_traces=True)(*clones))
    found = _graph_module(graph, title)

    def flatten(given: Sequence[object], named: Mapping[str, object]) -> list[object]:
        values, spec = tree.tree_flatten((tuple(given), dict(named)))
        if spec != in_spec:
            raise FrontendError(f"{title}: the arguments are not nested as the example arguments were")
        for k, v in enumerate(values):
            if k not in tensors and v != flat[k]:
                raise FrontendError(f"{title}: captured for {short(flat[k])}, got {short(v)}")
        return [values[k] for k in tensors]

    found.flatten = flatten
    found.unflatten = lambda out: tree.tree_unflatten(out, out_spec[0])
    return found


# torch's graph to our nodes -------------------------------------------------------------------------------------------


def read_graph(found: Captured) -> tuple[CapturedProgram, dict[str, Callable[..., object]]]:
    """The nodes of a torch graph, and the operations of those that may be opaque."""
    nodes: list[Node] = []
    operations: dict[str, Callable[..., object]] = {}
    results: tuple[Value, ...] = ()
    sizes = Reader()
    for n in found.graph.graph.nodes:
        if n.op == "output":
            out = _value(n.args[0], n, sizes)
            results = out if isinstance(out, tuple) else (out,)
            continue
        kind = _KINDS.get(n.op)
        if kind is None:
            raise FrontendError(
                f"node {short(n.name)}: a {n.op} is not an ATen operation", hint="give example arguments"
            )
        target = target_name(n.target) if kind == "call" else str(n.target)
        args = tuple(_value(a, n, sizes) for a in n.args) if kind == "call" else ()
        kwargs = {k: _value(v, n, sizes) for k, v in n.kwargs.items()} if kind == "call" else {}
        if kind == "constant" and n.name not in found.bound:
            raise FrontendError(
                f"node {short(n.name)}: a program inside the program (torch.cond, torch.while_loop and the like)",
                where=source_line(n.meta.get("stack_trace")) or _line_of_users(n),
                hint="capture each branch by itself, or write the choice as torch.where",
            )
        value = found.bound[n.name] if kind == "constant" else n.meta.get("val")
        trace = n.meta.get("stack_trace")
        meta = meta_of(value, n.name, sizes)
        node = Node(n.name, kind, target, args, kwargs, meta, source_line(trace), source_stack(trace))
        if kind == "call" and _writes(n.target):
            raise FrontendError(
                f"{where_of(node)}: it writes its operands",
                where=node.line,
                hint="give the program itself, or this graph with example arguments",
            )
        if kind == "call" and target != GETITEM:
            operations[n.name] = n.target
        nodes.append(node)
    program = CapturedProgram(found.name[:200], tuple(nodes), results, sizes.sizes, tuple(found.mutated), found.claimed)
    return program, operations


def _line_of_users(node: Any) -> SourceLine | None:
    return next((line for u in node.users if (line := source_line(u.meta.get("stack_trace"))) is not None), None)


def target_name(target: object) -> str:
    """``aten.add.Tensor`` of an operation of torch; ``_operator.getitem`` of Python's.

    >>> import operator
    >>> target_name(operator.getitem)
    '_operator.getitem'
    """
    if type(target).__name__ == "OpOverload":
        return str(target)
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", None)
    return GETITEM if name == "getitem" and module == "_operator" else f"{module}.{name}"


def _value(value: Any, node: Any, sizes: Reader) -> Value:
    kind, name = type(value).__name__, getattr(value, "name", None)
    if kind == "Node" and isinstance(name, str):
        return Ref(name)
    if isinstance(value, (list, tuple)):
        return tuple(_value(v, node, sizes) for v in cast("Iterable[object]", value))
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    if isinstance(value, slice):
        bounds = cast("slice[object, object, object]", value)
        return slice(*(_value(v, node, sizes) for v in (bounds.start, bounds.stop, bounds.step)))
    match kind:
        case "dtype" | "layout" | "memory_format":
            return EnumConstant(kind, str(value).removeprefix("torch."))
        case "device":
            return EnumConstant("device", str(value))
        case "SymInt" | "SymBool":
            return sizes.size(value)
        case _:
            raise FrontendError(f"node {short(node.name)}: an argument of type {kind} is not imported")


def meta_of(value: Any, name: str, sizes: Reader) -> Meta:
    """Shape, type and strides of a (fake) tensor; of several for a list of them; a size that is computed."""
    if is_torch(value):
        if value.layout != load_torch("which made it").strided:
            raise FrontendError(
                f"node {short(name)}: a tensor of layout {str(value.layout).removeprefix('torch.')}",
                because=["no index gives the position of its elements"],
                hint="x.to_dense() before the program",
            )
        shape, strides = tuple(map(sizes.size, value.shape)), tuple(map(sizes.size, value.stride()))
        offset = sizes.size(value.storage_offset())
        return TensorMeta(shape, str(value.dtype).removeprefix("torch."), strides, offset)
    if isinstance(value, (list, tuple)):
        found = [meta_of(v, name, sizes) for v in cast("Iterable[object]", value)]
        return tuple(m if isinstance(m, TensorMeta) else None for m in found)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    match type(value).__name__:
        case "SymInt" | "SymBool":
            return sizes.size(value)
        case "SymFloat":  # computed from sizes: a number of Python's, a tensor without axes here
            return TensorMeta((), "float64", ())
        case _:
            pass
    raise FrontendError(f"node {short(name)}: a value of type {type(value).__name__} is not imported")


def source_line(trace: object) -> SourceLine | None:
    """The innermost line of a stack trace of torch's: of the user's own, else of installed packages other than torch.

    >>> str(source_line('File "a/rope.py", line 12, in forward\\n    return x[:2]'))
    'rope.py:12: return x[:2]'
    """
    frames = _frames(trace)
    own = [line for line, installed in frames if not installed]
    return own[-1] if own else frames[-1][0] if frames else None


def source_stack(trace: object) -> tuple[SourceLine, ...]:
    """All lines of a stack trace outside of torch, outermost first."""
    return tuple(line for line, _ in _frames(trace))


def _frames(trace: object) -> list[tuple[SourceLine, bool]]:
    """Lines outside of torch, outermost first, and whether they are of an installed package."""
    if not isinstance(trace, str):
        return []
    found = ((_user_line(file, int(line), code), file) for file, line, code in _FRAME.findall(trace[-20_000:]))
    return [(line, file.startswith(_installed())) for line, file in found if line is not None]


@cache
def _installed() -> tuple[str, ...]:
    """The folders of Python's own modules and of installed packages."""
    paths = sysconfig.get_paths()
    return tuple(f"{paths[k]}{os.sep}" for k in ("stdlib", "purelib", "platlib") if k in paths)


@cache
def _torch_folder() -> str:
    """Where torch itself is installed; a user's own folder may well be called torch."""
    torch: Any = load_torch("which a program was captured by")
    return f"{Path(torch.__file__).parent}{os.sep}"


def _user_line(file: str, line: int, code: str) -> SourceLine | None:
    """A line of the user's: outside of torch, of this package and of Python's own library."""
    if file.startswith((_HERE, _torch_folder())) or file.startswith(("<string>", "<eval_with_key>")):
        return None
    if file.startswith(_STANDARD) and "site-packages" not in file:
        return None
    return SourceLine(file if file.startswith("<") else Path(file).name, line, code.strip())
