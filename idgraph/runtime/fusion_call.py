"""`compile`: a fusion as a callable of the caller's own arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from idgraph.errors import EmitError, IdGraphError, ScheduleError, SourceLine, arguments, trimmed, warn_user
from idgraph.index.allocation import has_strides
from idgraph.ir import Fusion
from idgraph.ir.clone import clone_fusion
from idgraph.ir.device import Device, Kind, current_device, use_device
from idgraph.ir.parser import parse_at_lines
from idgraph.ir.schedule_log import NAMES
from idgraph.runtime.compile_workers import POOL, STARTING
from idgraph.runtime.interrupts import device_text
from idgraph.runtime.kernel_cache import KernelCache
from idgraph.runtime.program import Program, Target, emit
from idgraph.runtime.program_cache import ProgramCache, ScheduledProgram, program_text, read_program
from idgraph.schedule import auto

if TYPE_CHECKING:
    from idgraph.runtime.tuning import Tuner

Layout = Literal["copy", "refuse"]
Checks = bool | Literal["now"]
_KEPT = frozenset(("set_allocation", *NAMES))  # steps that `auto` keeps


@runtime_checkable
class Compilable(Protocol):
    """An object that makes callables of itself: an import."""

    def compiled(self, target: Target, **options: Any) -> Callable[..., Any]:
        """See `compile`."""
        ...


class Compiled:
    """The kernels of a fusion as a callable; see `compile`. ``program`` are the kernels.

    >>> import numpy as np
    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(8,))[4:])
    >>> k = ig.compile(f, "numpy")
    >>> k(np.arange(8, dtype=np.float32))
    array([4., 5., 6., 7.], dtype=float32)
    """

    __slots__ = ("_caller", "_copies", "_count", "_layout", "_names", "_single", "_told", "_wait", "program")

    def __init__(
        self, program: Program, checked: Checks = True, layout: Layout = "copy", device: str | None = None
    ) -> None:
        fusion = program.fusion
        self.program = program
        self._caller, self._wait = program.caller(bool(checked), device), checked == "now"
        self._names = tuple(t.name for t in fusion.inputs)
        self._count, self._single = len(self._names), len(fusion.outputs) == 1
        self._layout: Layout = layout
        self._copies = next((t.name for t in fusion.outputs if not has_strides(t)), "")
        self._told: set[tuple[str, str]] = set()

    def __call__(
        self,
        *values: Any,
        out: Any = None,
        symbols: Mapping[str, int] | None = None,
        raw: bool = False,
        fill: float | None = None,
        **named: Any,
    ) -> Any:
        """The outputs for these inputs: one array, or a tuple where the fusion has several outputs.

        ``raw`` and ``fill`` as for `Program.run`."""
        try:
            if named or len(values) != self._count:
                values = self._ordered(values, named)
            if out is not None and self._single:
                out = (out,)
            memory = None if fill is None and not raw else self.program.output_memory(raw, fill)
            if raw and out is not None:
                raise EmitError("out= has the shape of the result, raw=True gives its memory", hint="give one of them")
            if self._copies and not raw and out is None:
                self._tell_outputs()
            found = self._caller(values, symbols, out, memory, self._tell, self._wait)
        except IdGraphError as failure:
            raise trimmed(failure) from failure.__cause__
        return found[0] if self._single else tuple(found)

    def _ordered(self, values: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        name = self.program.fusion.name
        if len(values) > self._count:
            raise EmitError(
                f"{name} takes {self._count} input{'s' * (self._count != 1)}, got {len(values)}",
                hint=f"inputs: {', '.join(self._names)}",
            )
        given = dict(zip(self._names, values, strict=False))
        twice = next((n for n in named if n in given), None)
        if twice is not None:
            raise EmitError(f"input {twice} is given twice, by position and by name")
        return tuple(self.program.ordered({**given, **named}))

    def _tell_outputs(self) -> None:
        if self._layout == "refuse":
            raise EmitError(
                f"output {self._copies} would be copied: no strides describe its memory",
                hint='raw=True gives the memory and its map; or layout="copy"',
            )
        self.program.tell_copies()

    def _tell(self, name: str, why: str) -> None:
        warn_of_copy(self.program.fusion.name, name, why, self._layout, self._told)

    def check(self) -> None:
        """Wait for the calls so far, and raise the first `IndexingError` that they have left.

        >>> import numpy as np
        >>> import idgraph as ig
        >>> f = ig.Fusion("rows")
        >>> t = f.output(ig.gather(f.input("x", shape=(4,)), 0, f.input("i", shape=(2,), dtype="int64")))
        >>> k = ig.compile(f, "numpy")
        >>> k(np.arange(4, dtype=np.float32), np.array([1, 3]))
        array([1., 3.], dtype=float32)
        >>> k.check()
        """
        self._caller.check()

    def copies(self, *values: Any, **named: Any) -> dict[str, str]:
        """The inputs that a call with these arrays copies first, and why.

        >>> import numpy as np
        >>> import idgraph as ig
        >>> f = ig.Fusion("double")
        >>> t = f.output(f.input("x", shape=(4,)) * 2.0)
        >>> ig.compile(f, "numpy").copies(np.arange(4, dtype=np.float32))
        {}
        >>> ig.compile(f, "cpu").copies(np.arange(8, dtype=np.float32)[::2])
        {'x': 'its strides are (2,), not (1,) as declared'}
        """
        return self._caller.copies(self._ordered(values, named), None)

    def __repr__(self) -> str:
        return f"Compiled({self.program!r})"


def warn_of_copy(title: str, name: str, why: str, layout: Layout | None, known: set[tuple[str, str]]) -> None:
    """Say once that an input is copied, or refuse."""
    if layout == "refuse":
        raise EmitError(f"input {name} would be copied: {why}", hint='layout="copy", or x.contiguous()')
    if (name, why) not in known:
        known.add((name, why))
        warn_user(f"{title}: input {name} is copied at each call: {why}")


@arguments(EmitError, first=True)
def compile(
    source: Fusion | Compilable,
    target: Target = "cpu",
    *,
    checked: Checks = True,
    layout: Layout = "copy",
    device: object = None,
    cache: str | Path | None = None,
    tuner: Tuner | None = None,
) -> Callable[..., Any]:
    """A fusion, or an import from PyTorch, as a callable of arrays; compiled for each shape when first called.

    A fusion is called with its inputs in order, or by name, and gives its output (a tuple of several); an import as the
    captured function is. Arrays are torch tensors, NumPy arrays, or anything that speaks DLPack or has a
    ``__cuda_array_interface__``, taken as they lie, on one device; results are of the same kind, on the same device.
    ``out=`` (a tuple for several outputs) is written instead. On a GPU the kernels are queued on the caller's current
    stream, and nothing waits for them or goes through the host's memory, so that calls may be captured in a CUDA graph
    after a first call; a target other than where the arrays are takes them there and back.

    ``checked``: a loaded index out of its axis raises `IndexingError`; False reads zero for it. On a GPU the first call
    for arrays of a shape waits for that, later ones leave it to the next call or to ``check()``, as torch's own device
    checks do, and cost nothing; "now" waits at each call. An access that fails its check is left out.

    ``layout``: an array whose strides or alignment are not as declared, and an output whose memory no strides describe,
    is copied at each call, which is said in a warning the first time, or refused; a call with ``raw=True`` gives the
    memory of outputs and its map (`Program.run`). ``device`` ("cuda:1", 1, ``torch.device("cuda", 1)``) is where the
    host's arrays go (by default the current one), and what tensors are compared with; a tuner measures there. ``cache``
    is a folder of compiled kernels, PTX and machine code: code that this process will run, so nobody else may write
    it; a second process then schedules, emits and compiles nothing. ``tuner`` chooses by measurement.

    A fusion without schedule steps is scheduled by `idgraph.schedule.auto` on a copy; others are taken as they are.
    Any number of threads may call. Raises `EmitError` for what the target cannot do and arrays that do not fit.

    >>> import numpy as np
    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4,))
    >>> y = f.output(x * 2.0)
    >>> double = ig.compile(f)
    >>> double(np.arange(4, dtype=np.float32))
    array([0., 2., 4., 6.], dtype=float32)
    """
    if checked not in (True, False, "now"):
        raise EmitError(f"checked {checked!r} is not known", hint='True, False or "now"')
    if layout not in ("copy", "refuse"):
        raise EmitError(f"layout {layout!r} is not known", hint='"copy" or "refuse"')
    where = device_text(device)
    if not isinstance(source, Fusion):
        return source.compiled(target, checked=checked, layout=layout, device=where, cache=cache, tuner=tuner)
    if tuner is not None and target in ("cpu", "cuda") and not is_scheduled(source):
        program = tuner.tune(clone_fusion(source), "cuda" if target == "cuda" else "cpu", device=where).program
    else:
        program = scheduled(source, target, cache)
    return Compiled(program, checked, layout, where)


def scheduled(
    fusion: Fusion, target: Target, cache: str | Path | None = None,
    tell: Callable[[str, float], object] | None = None,
) -> Program:  # fmt: skip
    """The kernels of a fusion: of the user's schedule where there is one, else scheduled for the target on a copy.

    On the CPU a schedule is for speed: where none is found, one loop nest for each tensor is always correct, and
    is said in a warning. ``tell`` gets the stages, "schedule" and "emit", with their seconds, "load" of a program that
    the folder ``cache`` has, or "other processes" for one that `submit_fusions` had made.
    """
    return scheduled_or_stored(fusion, target, cache, tell).program


def scheduled_or_stored(
    fusion: Fusion, target: Target, cache: str | Path | None = None,
    tell: Callable[[str, float], object] | None = None, shared: bool = False,
) -> ScheduledProgram:  # fmt: skip
    """The same with the names of the tensors that the kernels were made for: ``shared``, those of an equal fusion."""
    began = perf_counter()
    stored, names = None, tuple(t.name for t in fusion.tensors)
    free: Kind | None = target if target in ("cpu", "cuda") and not is_scheduled(fusion) else None
    if cache is not None and free:
        stored = ProgramCache(Path(cache), shared)
        found = stored.find(fusion, target)
        if found is not None:
            if tell is not None:
                tell("load", perf_counter() - began)
            return found
    made = _from_process(fusion, free, cache) if free and POOL.most else None
    if made is not None:
        if stored is not None:
            stored.put(fusion, made)
        if tell is not None:
            tell("other processes", perf_counter() - began)
        return ScheduledProgram(made, names)
    try:
        copy = _scheduled_copy(fusion, free) if free else fusion
        middle = perf_counter()
        made = emit(copy, target, cache=cache)
        if stored is not None:
            stored.put(fusion, made)
    except ScheduleError as failure:
        if target != "cpu" or not free:
            raise
        warn_user(f"{fusion.name}: no schedule was found, each tensor has loops of its own: {failure.what}")
        middle = perf_counter()
        made = emit(fusion, target, cache=cache)
    if tell is not None:
        tell("schedule", middle - began)
        tell("emit", perf_counter() - middle)
    return ScheduledProgram(made, names)


def submit_fusions(fusions: Iterable[Fusion], target: Target, cache: str | Path | None, shared: bool = False) -> None:
    """Have other processes schedule and emit, for `scheduled_or_stored`, what the folder has no program of: from the
    last one backwards, since this process begins at the front."""
    stored = None if cache is None else ProgramCache(Path(cache), shared)
    for fusion in reversed([f for f in fusions if not is_scheduled(f)] if POOL.most else []):
        if stored is None or not stored.has(fusion, target):
            request = _request(fusion, target)
            POOL.submit(json.dumps(request), request, STARTING)


def text_of_request(request: Mapping[str, Any]) -> str | None:
    """The program that a process makes of a fusion that was submitted, as `program_cache.program_text` writes it."""
    lines = [None if line is None else SourceLine(**line) for line in request["lines"]]
    fusion = parse_at_lines(request["fusion"], lines)
    with use_device(Device.from_json(request["cuda"])), use_device(Device.from_json(request["cpu"])):
        made = emit(_scheduled_copy(fusion, request["of"]), request["of"])
        return program_text(made, [t.name for t in fusion.tensors])


def _scheduled_copy(fusion: Fusion, target: Kind) -> Fusion:
    """A copy of what the outputs depend on, scheduled."""
    copy = clone_fusion(fusion, live=True)
    auto(copy, device=current_device(target))
    return copy


def _request(fusion: Fusion, target: Target) -> dict[str, object]:
    """A job of everything that a program follows from."""
    lines = [None if e.source_line is None else asdict(e.source_line) for e in fusion.exprs]
    devices = {kind: current_device(kind).to_json() for kind in ("cuda", "cpu")}
    return {"target": "program", "of": target, "fusion": str(fusion), "lines": lines, **devices}


def _from_process(fusion: Fusion, target: Target, cache: str | Path | None) -> Program | None:
    """The program that another process has made, or makes now; None where none has begun, or could not."""
    text = POOL.take(json.dumps(_request(fusion, target)))
    found = None if text is None else read_program(text, target, None if cache is None else KernelCache(Path(cache)))
    return None if found is None else found.program


def is_scheduled(fusion: Fusion) -> bool:
    """True where the fusion has schedule steps; axes that operations split by themselves do not count.

    The place of a tensor in memory is not a schedule step: a captured program gives it for its results, and `auto`
    keeps it. Neither is a choice beside loops, such as `Tensor.persistent`, which it keeps too.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(8,)) + 1.0)
    >>> _ = t.set_allocation(t.logical)
    >>> before = is_scheduled(f)
    >>> _ = t.split(0, 4)
    >>> before, is_scheduled(f)
    (False, True)
    """
    return any(step.name not in _KEPT for t in fusion.tensors for step in t.log)
