"""Captured torch programs as fusions: read from a file or from torch, counted, and run through emitted kernels.

Fusions from files are Python programs that build one, or the text form.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.display import Printed, Sheet
from idgraph.errors import FrontendError, IdGraphError, ParseError, SourceLine, arguments
from idgraph.frontends.callable_import import CompiledImport
from idgraph.frontends.graph import CapturedProgram, Node, TensorMeta, short, where_of
from idgraph.frontends.graph_json import program_of, read_program
from idgraph.frontends.imported import Imported, StageSeconds
from idgraph.frontends.opaque_ops import Operation
from idgraph.frontends.partition import PartitionPlan, is_projection, plan
from idgraph.frontends.session import CompileOptions
from idgraph.frontends.torch_arrays import is_torch, load_torch
from idgraph.ir import Fusion, Tensor, parse_fusion
from idgraph.ir.limits import LIMITS, Limits, read_within
from idgraph.reports.collect import Emission
from idgraph.reports.metric_tables import Metrics, metric_parts
from idgraph.reports.model import OpaqueFacts
from idgraph.reports.program_report import IndexReport, Part, report_parts
from idgraph.runtime import Target

if TYPE_CHECKING:
    from idgraph.cost import Device
    from idgraph.runtime.tuning import Tuner


@dataclass(frozen=True, slots=True)
class Coverage(Printed):
    """``mapped``: ATen operation name -> number of calls; ``opaque``: name -> why it is not mapped.

    >>> print(Coverage({"aten.add.Tensor": 2}, {"aten.sort.default": "order depends on values"}))
    2 calls mapped, 1 operation opaque
      aten.add.Tensor    2
      aten.sort.default  opaque: order depends on values
    """

    mapped: dict[str, int]
    opaque: dict[str, str]

    def sheet(self) -> Sheet:
        """Opaque operations first."""
        rows = [(name, "", reason) for name, reason in sorted(self.opaque.items())]
        rows += [(name, str(count), "") for name, count in sorted(self.mapped.items())]
        title = str(self).partition("\n")[0]
        return Sheet(title, ("operation", "calls", "opaque because"), tuple(rows), good=not self.opaque)

    def __str__(self) -> str:
        rows = [(name, str(count)) for name, count in sorted(self.mapped.items())]
        rows += [(name, f"opaque: {reason}") for name, reason in sorted(self.opaque.items())]
        width = max((len(name) for name, _ in rows), default=0)
        calls, kinds = sum(self.mapped.values()), len(self.opaque)
        head = f"{calls} call{'s' * (calls != 1)} mapped, {kinds} operation{'s' * (kinds != 1)} opaque"
        return "\n".join([head, *(f"  {name:<{width}}  {what}" for name, what in rows)])

    __repr__ = __str__


@dataclass(slots=True)
class Import(Imported, Printed):
    """An imported program: its ``fusion``, its ``coverage``, and `run`.

    Results of opaque operations are inputs of ``fusion``; ``segments`` are the fusions that run between them. ``bound``
    holds values of placeholders that `run` does not take (parameters, buffers, constants). ``wrapper`` is the source of
    the function that the last new call of torch tensors runs; before any, `call_source`.
    """

    ways: dict[Hashable, CompiledImport] = field(
        default_factory=dict[Hashable, "CompiledImport"], repr=False, compare=False
    )

    @property
    def coverage(self) -> Coverage:
        """The operations that were mapped and those that are opaque."""
        return Coverage(dict(sorted(self.plan.mapped.items())), dict(sorted(self.plan.opaque.items())))

    def calling(self, *operations: str) -> Import:
        """The same program with these ATen operations left to torch, as calls between the fusions.

        Matrix products are the case for it: a library multiplies large matrices far faster than a plain loop nest.
        Raises `FrontendError` for an operation that the program does not call.

        >>> import torch
        >>> from idgraph.frontends import from_torch
        >>> a, b = torch.ones(2, 3), torch.ones(3, 4)
        >>> imp = from_torch(lambda a, b: (a + 1) @ b, (a, b)).calling("aten.mm.default")
        >>> imp.coverage.opaque, imp.run(a, b, target="numpy")[0].tolist()
        ({'aten.mm.default': 'left to torch by choice'}, [6.0, 6.0, 6.0, 6.0])
        """
        found = _chosen(self.program, operations)
        missing = sorted(set(operations) - {self.program[name].target for name in found})
        if missing:
            called = sorted({n.target for n in self.program.nodes if n.kind == "call"})
            raise FrontendError(
                f"{self.program.name} does not call {', '.join(map(short, missing))}",
                hint=f"it calls {', '.join(called)}",
            )
        return self._with(plan(self.program, found))

    def _with(self, other: PartitionPlan) -> Import:
        """The same program by a plan, without the kernels that were made."""
        return replace(
            self, plan=other, kernels={}, ways={}, equal={}, renamed={}, loaded=0, written={}, stages=StageSeconds()
        )

    def source_stack(self, tensor: Tensor | str) -> tuple[SourceLine, ...]:
        """The user's lines that led to a node's tensor, outermost first; the last may be of an installed package.

        Raises `FrontendError` for a tensor that no node of the program made.
        """
        name = tensor if isinstance(tensor, str) else tensor.name
        if name not in self.program.table:
            raise FrontendError(
                f"{short(name)} is not a node of {self.program.name}", hint="tensors have their nodes' names"
            )
        return self.program[name].stack

    def sheet(self) -> Sheet:
        """The coverage, under the program's name."""
        found = self.coverage.sheet()
        return replace(found, title=f"{self.program.name}: {found.title}")

    def __str__(self) -> str:
        return f"{self.program.name}: {self.coverage}"

    @arguments(FrontendError, first=True)
    def report(
        self,
        *,
        auto: bool = False,
        advance: Callable[[int], None] | None = None,
        suggestions: int | None = None,
        target: Target = "cuda",
        device: Device | str | None = None,
        symbols: Mapping[str, int] | None = None,
        measure: bool = False,
    ) -> IndexReport:
        """A report of the program's indices, segment by segment: tables, JSON, an HTML page; see `idgraph.reports`.

        ``auto`` reports each segment as `ig.schedule.auto` would schedule a copy of it, else as it is scheduled now.
        ``suggestions``: the number of accesses for which wider ones are sought, as in `ig.report`, of each segment;
        ``target``, ``device``, ``symbols`` and ``measure`` as there. ``kernels`` of the report says how many are
        distinct, how many are those of an equal segment, and the seconds that calls have spent so far, by stage:

        >>> import torch
        >>> from idgraph.frontends import from_torch
        >>> imp = from_torch(lambda x: ((x @ x).relu() @ x).relu(), (torch.eye(8),)).calling("aten.mm.default")
        >>> k = imp.report().kernels
        >>> len(k), k.distinct, k.reused, k.seconds
        (2, 1, 1, {})
        >>> _ = imp.run(torch.eye(8))
        >>> sorted(imp.report().kernels.seconds)
        ['emit', 'schedule']
        """
        coverage = self.coverage
        return report_parts(
            self.program.name,
            self._parts(),
            mapped=coverage.mapped,
            opaque=coverage.opaque,
            auto=auto,
            advance=advance,
            suggestions=suggestions,
            how=Emission(target, device, dict(symbols or {}), measure),
            seconds=self.stages.seconds,
        )

    @arguments(FrontendError)
    def metrics(
        self,
        *,
        model: str | None = None,
        target: Target = "cuda",
        device: Device | str | None = None,
        auto: bool = True,
        align: bool = False,
        measure: bool = False,
        symbols: Mapping[str, int] | None = None,
    ) -> Metrics:
        """The metric tables of the program: kernels, graphs, pairs of operations; see `idgraph.reports.metrics`."""
        return metric_parts(
            model or self.program.name, self._parts(), target=target, device=device, auto=auto, align=align,
            measure=measure, symbols=symbols,
        )  # fmt: skip

    def _parts(self) -> list[Part]:
        return [
            Part(s.fusion, tuple(self._captured_text(n) for n in s.calls if not is_projection(self.plan, n)))
            for s in self.segments
        ]

    def _captured_text(self, node: Node) -> OpaqueFacts:
        return OpaqueFacts(node.name, node.target, self.plan.reasons.get(node.name, ""), node.line)

    def __repr__(self) -> str:
        calls = sum(self.plan.mapped.values())
        return f"Import({self.program.name!r}, {calls} calls mapped, {len(self.coverage.opaque)} operations opaque)"

    def run(
        self, *args: object, target: str = "cpu", checked: bool = True, tuner: Tuner | None = None, **kwargs: object
    ) -> object:
        """The program's results for these arguments, through emitted kernels; opaque operations are torch's own.

        ``args``: torch tensors or NumPy arrays in the order of ``parameters``, or nested as the captured function takes
        them. Results are a tuple (None where the program has no result), or what the captured function returns; torch
        tensors, on its device, when an argument is one, else arrays, with the strides captured. Tensors that the
        program changes in place are changed. Raises `FrontendError` for an argument of another shape or dtype than
        captured, and, when ``checked``,
        `IndexingError` for a loaded index out of range.

        With a ``tuner`` (`idgraph.Tuner`) kernels for "cpu" and "cuda" are chosen by measurement on these arguments,
        the first time; a fusion that the user scheduled is taken as it is.
        """
        key = target, checked, tuner
        found = self.ways.get(key)
        if found is None:
            found = self.ways[key] = CompiledImport(
                self, CompileOptions(target, "now" if checked else False, tuner=tuner)
            )
        return found(*args, **kwargs)

    @arguments(FrontendError, first=True)
    def call_source(self, target: Target = "cpu") -> str:
        """The function that calls of torch tensors run, as Python text: allocations, launches, operations of torch's.

        It is written during a call: one of arguments as captured, with zeros for integers and numbers below one for
        floats, on the host or the current CUDA device. Raises `FrontendError` for a program whose sizes are open, or
        of which a step has no text; else what `run` raises.

        >>> import torch
        >>> from idgraph.frontends import from_torch
        >>> imp = from_torch(lambda a, b: (a + 1) @ b, (torch.ones(2, 3), torch.ones(3, 4)))
        >>> print("\\n".join(imp.calling("aten.mm.default").call_source().splitlines()[:2]))
        def call(args, tell, wait):
            a0, a1, = args
        """
        if target not in self.written:
            torch: Any = load_torch("whose tensors the call takes")
            device = "cuda" if target == "cuda" else "cpu"
            args = [example_argument(torch, n, device) for n in self.parameters]
            fresh = self._with(self.plan)
            fresh.unflatten = fresh.flatten = None
            fresh.bound = {k: v.to(device) if is_torch(v) else v for k, v in self.bound.items()}
            CompiledImport(fresh, CompileOptions(target))(*args)
            self.written |= fresh.written
        if target not in self.written:
            raise FrontendError(f"{self.program.name}: a step of its call has no text", hint="run() makes the call")
        return self.written[target]

    @property
    def wrapper(self) -> str:
        """The source of the function that the last new call of torch tensors runs; before any, `call_source`."""
        return next(reversed(self.written.values()), "") or self.call_source()

    def compiled(self, target: Target, **options: Any) -> CompiledImport:
        """See `idgraph.compile`: the program's results for its arguments, every time in the same way."""
        kept = options.pop("cache", None)
        mine = self._with(self.plan) if kept is not None else self
        return CompiledImport(mine, CompileOptions(target, cache=kept, **options))


def example_argument(torch: Any, node: Node, device: str) -> Any:
    """An argument as captured: zeros for integers, numbers below one for floats."""
    meta = node.meta
    if isinstance(meta, TensorMeta) and not meta.is_dynamic:
        dtype = getattr(torch, meta.dtype)
        made = torch.empty_strided(meta.shape, meta.strides, dtype=dtype, device=device)
        return made.uniform_() if dtype.is_floating_point or dtype.is_complex else made.zero_()
    if meta is None or isinstance(meta, (bool, int, float)):
        return meta
    raise FrontendError(f"{where_of(node)}: its size is open", hint="a program that was captured with fixed sizes")


@arguments(FrontendError, first=True)
def from_json(path: str | os.PathLike[str], *, limits: Limits = LIMITS) -> Import:
    """Import a captured graph from a JSON file.

    The file is untrusted: nothing in it is evaluated, and a file that is not a program, or that is larger than
    ``limits`` (bytes, nodes, rank), ends in one `ParseError` or `FrontendError` that names the node.
    """
    return import_program(read_program(path, limits))


def import_program(
    program: CapturedProgram,
    bound: Mapping[str, object] | None = None,
    operations: Mapping[str, Operation] | None = None,
    calling: Collection[str] = (),
) -> Import:
    """Import nodes that are already read; ``bound`` are values of placeholders, ``operations`` of opaque nodes.
    ``calling``: operations that are left to torch, where the program calls them."""
    return Import(plan(program, _chosen(program, calling)), dict(bound or {}), dict(operations or {}))


def _chosen(program: CapturedProgram, operations: Collection[str]) -> dict[str, str]:
    return {n.name: "left to torch by choice" for n in program.nodes if n.target in operations}


MAX_BYTES = 64_000_000


def load(path: str) -> Fusion:
    """The fusion of a file; of a captured graph with opaque calls, all that is mapped as one fusion."""
    found = read_file(path)
    return found.fusion if isinstance(found, Import) else found


def read_file(path: str) -> Fusion | Import:
    """The fusion or program of a file: ``.py`` is run and must leave one Fusion, ``.json`` is a captured graph.

    Everything else is read as text. A name that says another format than the file has is refused. Raises
    `IdGraphError`; only a ``.py`` file is ever executed, and what it prints goes to stderr.
    """
    file = Path(path)
    try:
        data = read_within(file, MAX_BYTES)  # once: what is read from a pipe is gone
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no file name"
        raise ParseError(f"cannot read {path!r}: {reason}") from error
    if len(data) > MAX_BYTES:
        raise ParseError(f"{path!r} is longer than {MAX_BYTES} bytes")
    _check_name(file, data)
    if file.suffix == ".json":
        return import_program(program_of(data, file.name))
    if file.suffix == ".py":
        if not file.is_file():
            raise ParseError(f"{path!r} is not a plain file, and a program is run from one")
        return _run_program(file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ParseError(f"cannot read {path!r}: not UTF-8 text at byte {error.start}") from error
    try:
        return parse_fusion(text)
    except RecursionError:
        raise ParseError(f"{path!r}: nested too deep") from None


_FORMATS = {
    ".json": (re.compile(r"[\[{]"), "a captured graph (JSON)"),
    ".py": (re.compile(r"(?m)\A(?:\s*|#.*\n)*(?:import |from \S+ import )"), "a Python program"),
    "": (re.compile(r"fusion\s+\S+\s*\{"), "the text of a fusion"),
}


def _check_name(file: Path, data: bytes) -> None:
    """Raise `ParseError` where the beginning of a file is of another format than its name says."""
    begin = data[:4096].decode("utf-8-sig", "ignore").lstrip()
    said = file.suffix if file.suffix in _FORMATS else ""
    found = next((s for s, (pattern, _) in _FORMATS.items() if pattern.match(begin)), said)
    if found == said:
        return
    suffix = found or ".txt"
    raise ParseError(
        f"{str(file)!r} holds {_FORMATS[found][1]}, its name says {_FORMATS[said][1]}",
        hint=f"name it {str(file.with_suffix(suffix))!r}",
    )


def names_of(file: Path) -> dict[str, object]:
    """The globals that a program leaves, run as ``python FILE`` does: its own folder is searched for modules."""
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(_Aside()):
            return runpy.run_path(str(file))
    except (IdGraphError, MemoryError):
        raise
    except SystemExit as error:
        raise ParseError(f"{str(file)!r} ended itself with exit status {error.code}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a program may raise what it wants
        raise ParseError(f"{str(file)!r} failed{_line_in(file, error)}: {type(error).__name__}: {error}") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _run_program(file: Path) -> Fusion:
    """The one fusion that a program leaves."""
    names = names_of(file)
    found = {id(v): v for v in names.values() if isinstance(v, Fusion)}
    if len(found) != 1:
        raise ParseError(
            f"{str(file)!r} leaves {len(found)} fusions in its globals",
            hint="build exactly one ig.Fusion at the top level",
        )
    return next(iter(found.values()))


class _Aside(io.TextIOBase):
    """Standard error by another name: a program that closes its output closes nothing of ours."""

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _line_in(file: Path, error: BaseException) -> str:
    """The last line of ``file`` that led to the error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == str(file) and f.lineno is not None]
    return f" at line {lines[-1]}" if lines else ""
