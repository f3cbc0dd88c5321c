"""idgraph behind ``torch.compile``: ``torch.compile(model, backend="idgraph")``.

torch captures the model and its gradients (AOT autograd); each graph is imported, what has index meaning runs through
emitted kernels on the tensors as they lie, the rest is torch's own, call by call. A graph that cannot be imported or
emitted as a whole runs in eager mode, with a warning that says why.

Models of many small kernels run as CUDA graphs, by torch's own trees of them, as for Inductor: they warm a call up,
capture it, give all graphs of a process one pool of memory, and run what cannot be captured as before. A replay runs no
Python of a call; failed checks of loaded indices, which kernels write to the host's memory, are looked at before each.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, cast

from idgraph.errors import FrontendError, IdGraphError, nearest
from idgraph.frontends.callable_import import Runner
from idgraph.frontends.eager_check import compare_with_eager
from idgraph.frontends.graph import short
from idgraph.frontends.graph_rewrites import (
    refuse_written_views,
    with_constant_masks,
    with_division_checks,
    with_padded_products,
)
from idgraph.frontends.import_ import Import
from idgraph.frontends.joint_graph import decompositions, partition
from idgraph.frontends.session import CompileOptions
from idgraph.frontends.torch_arrays import load_torch
from idgraph.frontends.torch_export import capture
from idgraph.frontends.torch_patches import patched
from idgraph.ir.device import current_device
from idgraph.loading import load
from idgraph.runtime.compile_workers import limit_workers
from idgraph.runtime.kernel_cache import fallback, user_folder
from idgraph.runtime.program import Program

LOG = logging.getLogger("idgraph.backend")
# A library multiplies matrices far faster than a loop nest; convolutions have no kernels here at all.
PRODUCTS = ("aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.baddbmm.default", "aten.dot.default",
            "aten.mv.default", "aten.addmv.default")  # fmt: skip


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The options of ``torch.compile(..., options={...})``.

    ``check``: "first" compares the addresses of each fusion with what its operations mean, and a first call, on copies
    of its arguments, with the function that torch captured, in eager mode: results (values, strides, dtype, whose
    memory), what it leaves in its arguments, and gradients for random gradients of the results. ``log``: True prints
    what was mapped, the kernels, seconds by stage, and what is left to torch and why, a function gets it as text (the
    logger "idgraph.backend" always does). ``opaque``: "eager", or "inductor" to have torch's own compiler make the
    operations that are not mapped. ``products``: "eager" leaves matrix products to torch's libraries, "idgraph" makes
    kernels of them. ``checked``: loaded indices out of range raise, and integers divided by zero on a CPU. ``cache``:
    the folder of schedules and compiled kernels, which nobody else may write; True: ``idgraph`` in the user's folder of
    caches, where that can be written; False: none. ``workers``: the most processes that schedule fusions and
    compile kernels beside this one; None: a core each. ``cudagraphs``: calls on a GPU are captured into CUDA graphs and
    replayed, as by ``mode="reduce-overhead"``.
    """

    check: Literal["first"] | None = None
    log: bool | Callable[[str], object] = False
    opaque: Literal["eager", "inductor"] = "eager"
    products: Literal["eager", "idgraph"] = "eager"
    checked: bool = True
    cache: str | bool = True
    workers: int | None = None
    cudagraphs: bool = False

    @staticmethod
    def read(given: Mapping[str, object] | None) -> BackendOptions:
        """Raises `FrontendError` for a name or a value that is not known."""
        found = dict(given or {})
        allowed: dict[str, tuple[object, ...]] = {
            "check": ("first", None), "opaque": ("eager", "inductor"), "products": ("eager", "idgraph"),
            "checked": (True, False), "cudagraphs": (True, False),
        }  # fmt: skip
        known = [f.name for f in fields(BackendOptions)]
        for name, value in found.items():
            if name not in known:
                near = nearest(str(name), known)
                raise FrontendError(
                    f"{short(name)} is not an option of the backend",
                    hint=f"did you mean {near!r}?" if near else f"options are {', '.join(known)}",
                )
            if name in allowed and value not in allowed[name]:
                raise FrontendError(f"option {name} is {short(value)}", hint=f"one of {allowed[name]}")
        if not isinstance(found.get("cache", True), (bool, str)):
            raise FrontendError(f"option cache is {short(found['cache'])}", hint="a folder's name, True or False")
        workers = found.get("workers")
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 0):
            raise FrontendError(f"option workers is {short(workers)}", hint="a number of processes, or None")
        return BackendOptions(**cast("dict[str, Any]", found))


def backend(
    module: Any, examples: Sequence[Any], *, options: Mapping[str, object] | None = None, mode: str | None = None,
    **_: object,
) -> Any:  # fmt: skip
    """The entry that torch calls with a captured graph; returns the function that runs it, forward and backward.
    ``mode``: "default", or "reduce-overhead", which asks for CUDA graphs."""
    torch: Any = load_torch("whose compiler this is a backend of")
    if mode not in (None, "default", "reduce-overhead"):
        raise FrontendError(f"mode {short(mode)} is not known to the backend", hint='"default" or "reduce-overhead"')
    told = BackendOptions.read({**({"cudagraphs": True} if mode == "reduce-overhead" else {}), **dict(options or {})})
    graphs = CudaGraphs(len(examples)) if told.cudagraphs else None
    if told.workers is not None:
        limit_workers(told.workers)
    try:
        refuse_written_views(module, examples)
    except FrontendError as error:
        _leave_to_eager(told, "function", error)
        return module.forward
    common: Any = torch._dynamo.backends.common
    way: Any = common.aot_autograd(
        fw_compiler=partial(_graph, told, graphs, "forward"), bw_compiler=partial(_graph, told, graphs, "backward"),
        inference_compiler=partial(_graph, told, graphs, "inference"), decompositions=decompositions(),
        partition_fn=partial(partition, partial(_pad_products, told, "joint")),
        keep_inference_input_mutations=not torch.is_grad_enabled(),  # autograd counts the writes to what it saves
    )  # fmt: skip
    compiled = way(with_constant_masks(patched(module)), examples)
    return _compared_once(compiled, module) if told.check == "first" else compiled


def _pad_products(options: BackendOptions, part: str, graph: Any) -> Any:
    """The graph with products on padded operands; forward and backward share what is padded, and so are cut after."""
    if options.products != "eager":
        return graph
    found, made = with_padded_products(graph, current_device("cuda"))
    for product in made:
        _say(options, f"{part}: {product}")
    return found


def _graph(options: BackendOptions, graphs: CudaGraphs | None, part: str, graph: Any, examples: Sequence[Any]) -> Any:
    """One graph of ATen operations as a function of a list of tensors."""
    try:
        home = _device(graph, examples)
        graph = _pad_products(options, part, graph) if part == "inference" else graph
        imported = _imported(options, graph, part)
        target = "cpu" if home.type == "cpu" else "cuda"
        runner = Runner(imported, CompileOptions(target, options.checked, home=home, cache=_cache(options.cache)))
        runner.prepare()
    except (IdGraphError, NotImplementedError) as error:
        _leave_to_eager(options, f"{part} graph", error)
        return _boxed(lambda args: graph.forward(*_emptied(args)))
    _say(options, f"{part}: {report(imported)}")
    if options.check == "first":
        _validate_addresses(imported)
    count = len(imported.program.mutated)  # whose new values are written, and returned first
    work = _first_timed(options, part, imported, lambda args: tuple(runner.boxed(args)[count:]))
    if graphs is not None:
        wrapped = graphs.wrap(work, part, graph, examples, partial(runner.check, False))
        if isinstance(wrapped, str):
            _say(options, f"{part}: no CUDA graph: {wrapped}", logging.WARNING)
        else:
            work = wrapped
    return _boxed(work)


def _leave_to_eager(options: BackendOptions, what: str, error: Exception) -> None:
    """Say that a graph, or a function as it was captured, runs in eager mode, and why."""
    first = str(error).partition("\n")[0]
    warnings.warn(f"idgraph: a {what} is left to eager mode: {first}", stacklevel=3)
    _say(options, f"{what.removesuffix(' graph')}: left to eager mode\n{error}")


def _first_timed(
    options: BackendOptions, part: str, imported: Import, work: Callable[[list[Any]], Any]
) -> Callable[[list[Any]], Any]:
    """``work``, whose first call is timed and reported."""
    calls: list[Callable[[list[Any]], Any]] = []

    def first(args: list[Any]) -> Any:
        began = perf_counter()
        found = work(args)
        calls[:] = [work]
        imported.stages.add("first call", perf_counter() - began)
        _say(options, f"{part}: {imported.stages}")
        for text in imported.written.values():
            LOG.debug("%s: a call runs\n%s", part, text)
        return found

    calls.append(first)
    return lambda args: calls[0](args)


def _cache(option: str | bool) -> Path | None:
    """The folder of compiled kernels; None: the one of the process, if it has one, or none."""
    if isinstance(option, str):
        return Path(option)
    return user_folder() if option and fallback() is None else None


def _boxed(work: Callable[[list[Any]], Any]) -> Any:
    """The function of a list of arguments, which it empties (torch calls such functions boxed)."""
    made: Any = work
    made._boxed_call = True
    return made


def _emptied(args: list[Any]) -> tuple[Any, ...]:
    """The arguments, which the list no longer holds."""
    given = tuple(args)
    args.clear()
    return given


def _imported(options: BackendOptions, graph: Any, part: str) -> Import:
    # Torch makes a result that lies in an argument anew, from the place where ours lies: it must be that view.
    graph = with_division_checks(graph) if options.checked else graph
    calling = PRODUCTS if options.products == "eager" else ()
    imported = capture(graph, None, None, part, False, certain=True, calling=calling)
    if options.opaque == "inductor":
        made = {n: _by_inductor(op) for n, op in imported.operations.items() if n in imported.plan.reasons}
        imported.operations = {**imported.operations, **made}
    return imported


def _device(graph: Any, examples: Sequence[Any]) -> Any:
    """The device that a graph works on. Raises `FrontendError` for one that takes tensors from one to another: all
    kernels of a graph run on one."""
    torch: Any = load_torch("whose graph it is")
    given = [x for x in examples if isinstance(x, torch.Tensor)]
    ends = torch.utils._pytree.tree_leaves(graph.graph.output_node().args)
    made = [n.meta.get("val") for n in ends if isinstance(n, torch.fx.Node)]
    found = [n.meta.get("val") for n in graph.graph.nodes]
    devices = [next((x for x in given if x.dim()), given[0]).device] if given else []
    devices += [x.device for x in made if isinstance(x, torch.Tensor)]
    devices += [x.device for x in found if isinstance(x, torch.Tensor) and x.device.type != "cpu"]
    if len(set(devices)) > 1:
        raise FrontendError(f"it works on several devices: {', '.join(sorted(set(map(str, devices))))}")
    return devices[0] if devices else torch.device("cpu")


def _say(options: BackendOptions, text: str, level: int = logging.INFO) -> None:
    LOG.log(level, text)
    if callable(options.log):
        options.log(text)
    elif options.log:
        print(text)  # noqa: T201 - what was asked for


def report(imported: Import) -> str:
    """The fate of a graph: calls that are mapped, kernels of each part, and calls left to torch, with reasons."""
    lines = [str(imported.coverage)]
    for number, segment in enumerate(imported.segments):
        made = [k for (n, _, _), k in imported.kernels.items() if n == number and isinstance(k, Program)]
        if segment.fusion is not None and made:
            of = _counted(len(segment.fusion.exprs), "operation")
            lines.append(f"part {number}: {of} in {_counted(len(made[0].kernels), 'kernel')}")
            if len(made[0].kernels) > 1:
                lines += [f"  {line}" for line in str(made[0].report).splitlines()]
    every = [k for k in imported.kernels.values() if isinstance(k, Program)]
    distinct = sum(len(p.kernels) for p in {id(k): k for k in every}.values())
    reused = sum(len(k.kernels) for k in every) - distinct
    stored = f"; {_counted(imported.loaded, 'part')} from disk" if imported.loaded else ""
    kernels = f"{_counted(distinct, 'distinct kernel')}, {reused} reused from equal parts{stored}"
    return "\n".join([*lines, f"{kernels}; {imported.stages}".removesuffix("; ")])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _validate_addresses(imported: Import) -> None:
    """Raises `FrontendError` for an address of a fusion that is not what its operations mean."""
    validate: Any = load("idgraph.validate")  # asked for by option; validate and frontends know nothing of each other
    for segment in imported.segments:
        if segment.fusion is not None and not segment.fusion.symbols:
            answer = validate.check_addresses(segment.fusion, exhaustive=False)
            if not answer.ok:
                raise FrontendError(f"{imported.program.name}: a wrong address", because=[str(answer.mismatch)])


def _compared_once(compiled: Callable[..., Any], module: Any) -> Callable[..., Any]:
    """``compiled``, whose first call is compared with ``module``, the captured function of the user, in eager mode."""
    state = {"first": True}

    def call(*args: Any) -> Any:
        if state["first"]:
            compare_with_eager(compiled, module, args, getattr(module, "__name__", "") or type(module).__name__)
            state["first"] = False
        return compiled(*args)

    return call


def _by_inductor(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation of torch's, compiled by Inductor for each set of shapes."""
    torch: Any = load_torch("whose compiler is asked for")
    known: dict[object, Any] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        tree: Any = torch.utils._pytree
        flat, spec = tree.tree_flatten((args, kwargs))
        at = [n for n, v in enumerate(flat) if isinstance(v, torch.Tensor)]
        rest = tuple((n, repr(v)) for n, v in enumerate(flat) if n not in at)
        tensors = [flat[n] for n in at]
        key = (rest, tuple((t.shape, t.stride(), t.dtype, t.device) for t in tensors))
        if key not in known:

            def of_tensors(*given: Any) -> Any:
                full = list(flat)
                for n, t in zip(at, given, strict=True):
                    full[n] = t
                a, k = tree.tree_unflatten(full, spec)
                found = operation(*a, **k)
                many = isinstance(found, (tuple, list))
                return cast("Any", found) if many else (found,)

            made = torch.fx.experimental.proxy_tensor.make_fx(of_tensors)(*tensors)
            single = not isinstance(operation(*args, **kwargs), (tuple, list))
            known[key] = torch._inductor.compile(made, tensors), single
        compiled, single = known[key]
        found = compiled(*tensors)
        return found[0] if single else found

    return call


def register() -> None:
    """Make "idgraph" a name that ``torch.compile`` knows; importing this module has done it.

    torch may know it already, as an entry point of the installed package: it then loads this module for the name, and
    enters what it loaded itself.
    """
    torch: Any = load_torch("whose compiler this is a backend of")
    registry: Any = torch._dynamo.backends.registry
    if "idgraph" not in registry._COMPILER_FNS and registry._BACKENDS.get("idgraph") is None:
        registry.register_backend(name="idgraph")(backend)


register()


Call = Callable[[list[Any]], Any]


class CudaGraphs:
    """The graphs of one module of the user's, which takes ``count`` arguments: forward, then backward."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._device: int | None = None  # of the forward graph, where that is captured

    def wrap(self, work: Call, part: str, graph: Any, examples: Sequence[Any], poll: Callable[[], None]) -> Call | str:
        """``work`` as a CUDA graph for each set of its integers; or why it is none. ``poll`` raises what replays failed
        at.

        A backward graph that cannot be captured runs as it is, and says so to torch, whose memory it frees.
        """
        torch: Any = load_torch("whose CUDA graphs are asked for")
        backend: Any = load("torch._dynamo.backends.cudagraphs")
        trees: Any = load("torch._inductor.cudagraph_trees")
        backward = part == "backward"
        fixed = self._fixed(torch, graph, len(examples), backward)
        skipped = backend.check_for_skip(graph, len(fixed))
        if skipped:
            device, self._device = self._device, None
            if not backward or device is None:
                return str(skipped)
            manager = trees.get_manager(device, create_if_none_exists=False)

            def plain(args: list[Any]) -> Any:
                manager.set_to_running_backward()
                return work(args)

            return plain if manager is not None else str(skipped)
        if backward and self._device is None:
            return "the forward graph is none"
        self._device = backend.get_device_index(graph)
        replayed = trees.cudagraphify_impl(
            work, list(examples), fixed, device_index=self._device, is_backward=backward,
            is_inference=part == "inference", stack_traces=backend.get_stack_traces(graph),
            placeholders=backend.get_placeholder_info(graph.graph),
            mutated_input_idxs=backend.find_input_mutations(graph.graph),
        )  # fmt: skip

        def call(args: list[Any]) -> Any:
            poll()
            return replayed(args)

        return call

    def _fixed(self, torch: Any, graph: Any, count: int, backward: bool) -> Sequence[int]:
        """The arguments that have the same address in every call: parameters, and what forward graphs leave."""
        utils: Any = load("torch._inductor.utils")
        if backward:
            return range(utils.count_tangents(graph))
        context = torch._guards.TracingContext.try_get()
        facts = None if context is None else context.fw_metadata
        if facts is not None and facts.static_input_indices:
            return tuple(facts.static_input_indices)
        return range(max(0, utils.num_fw_fixed_arguments(self._count, count)))
