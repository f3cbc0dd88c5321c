"""`emit` and the program it makes.

The decisions of a program: how gathers and scatters get their elements, and what lies in memory between kernels.

The kernels of a program as a tuple that prints as a table.

Refusals of a fusion by target, and vector widths that it does not get, before anybody emits it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from idgraph.arith import Expr
from idgraph.display import Printed, Sheet, show
from idgraph.errors import (
    ArgumentError,
    EmitError,
    IdGraphError,
    arguments,
    one_of,
    short_repr,
    shortened,
    user_line,
    warn_user,
)
from idgraph.index import IdModel
from idgraph.index.allocation import has_strides
from idgraph.index.int_width import Size, open_sizes
from idgraph.index.loop_tree import IndexMaps
from idgraph.ir import Fusion, Tensor, check_fusion
from idgraph.ir.device import TARGETS
from idgraph.ir.device import TargetName as Target
from idgraph.ir.schedule_log import Decision, Format, TilingDecision
from idgraph.kernel.ir import Kernel, KernelModule, LaneWidth, quote, walk
from idgraph.layout.aliasing import Alias
from idgraph.loading import LOADING
from idgraph.lower.fusion_to_kernel import lower_fusion
from idgraph.lower.schedule_checks import check_schedule
from idgraph.passes import pipeline as table
from idgraph.runtime.cuda.launch import check_limits
from idgraph.runtime.kernel_cache import KernelCache
from idgraph.runtime.loaded_program import LoadedKernels
from idgraph.runtime.vector_widths import with_widths

if TYPE_CHECKING:
    from idgraph.runtime.binding import OutputMemory
    from idgraph.runtime.dispatch import Dispatcher


@dataclass(frozen=True, slots=True)
class ProgramReport(Printed):
    """``gathers`` and ``scatters`` as `idgraph.schedule.auto` decided them (empty for a schedule by hand), ``kernels``
    the number of launches, ``stored`` the (tensor, elements) of global memory between them, ``formats`` the memory
    formats that were chosen, ``tilings`` the loops that a search chose, with the runner-up and the estimates of both,
    ``rows`` for each kernel with rows how they are passed over and why, by the schedule or by
    the target's rule.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 1000)), f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.gather(ig.exp(x), 1, i))
    >>> _ = ig.schedule.auto(f)
    >>> report = ig.emit(f, target="python").report
    >>> report.gathers[0].chosen, report.kernels, report.stored
    ('recompute', 1, ())
    """

    gathers: tuple[Decision, ...]
    scatters: tuple[Decision, ...]
    kernels: int
    stored: tuple[tuple[str, Expr], ...]
    formats: tuple[Format, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    tilings: tuple[TilingDecision, ...] = ()

    def __str__(self) -> str:
        lines = [str(d) for d in (*self.gathers, *self.scatters, *self.formats, *self.tilings)]
        lines += [f"rows of {kernel}: {told}" for kernel, told in self.rows]
        lines.append(f"kernels: {self.kernels}")
        stored = ", ".join(f"{name} ({size} elements)" for name, size in self.stored)
        return "\n".join([*lines, f"in memory between them: {stored or 'nothing'}"])

    __repr__ = __str__


def report_of(fusion: Fusion, plan: KernelModule) -> ProgramReport:
    """The report of a program."""
    gathers = tuple(d for d in fusion.decisions if d.kind == "gather")
    scatters = tuple(d for d in fusion.decisions if d.kind == "scatter")
    stored = tuple((b.title, b.size) for b in plan.buffers if b.place == "global")
    rows = tuple((k.name, told) for k in plan.kernels for told in k.rows)
    return ProgramReport(gathers, scatters, len(plan.kernels), stored, fusion.formats, rows, fusion.tilings)


_COLUMNS = ("kernel", "launch", "reads", "writes", "statements", "passes")


class KernelTable(Printed, tuple[Kernel, ...]):
    """Kernels in launch order. Printed they are a table, `to_json` gives it as data.

    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(8,))[4:])
    >>> print(ig.emit(f).kernels)
    kernel   launch  reads       writes      statements  passes
    kernel0          x: float32  t1: float32          5
    """

    __slots__ = ()

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for k in self:
            launch = ", ".join(f"{d} {' x '.join(map(str, e))}" for d, e in sorted(k.launch.items()))
            reads = ", ".join(f"{b.title}: {b.dtype}" for b in k.buffers if b.place == "input")
            writes = ", ".join(f"{b.title}: {b.dtype}" for b in k.buffers if b.place != "input")
            rows.append((k.name, launch, reads, writes, str(sum(1 for _ in walk(k.body))), ", ".join(k.passes)))
        return rows

    def sheet(self) -> Sheet:
        """One row a kernel."""
        return Sheet(f"{len(self)} kernels", _COLUMNS, tuple(self._rows()))

    def to_json(self) -> str:
        """The table as a JSON list of objects, with the kernels' text under "ir"."""
        rows = [
            {**dict(zip(_COLUMNS, row, strict=True)), "statements": int(row[4]), "passes": list(k.passes), "ir": str(k)}
            for k, row in zip(self, self._rows(), strict=True)
        ]
        return json.dumps(rows, indent=1)

    def __str__(self) -> str:
        rows = [_COLUMNS, *self._rows()]
        widths = [max(len(r[n]) for r in rows) for n in range(len(_COLUMNS))]
        return "\n".join(
            "  ".join(
                c.rjust(w) if n == 4 else c.ljust(w) for n, (c, w) in enumerate(zip(r, widths, strict=True))
            ).rstrip()
            for r in rows
        )


class Program(LoadedKernels):
    """Kernels for one target. ``print(program.plan)`` shows what they do, ``program.source`` how.

    >>> import idgraph as ig
    >>> from idgraph.runtime import emit
    >>> f = ig.Fusion("shift")
    >>> t0 = f.input("t0", shape=(4,))
    >>> t1 = f.output(t0[1:] * 2.0)
    >>> import numpy as np
    >>> emit(f, target="python").run({"t0": np.arange(4, dtype=np.float32)})
    {'t2': array([2., 4., 6.], dtype=float32)}
    >>> p = emit(f, target="python")
    >>> [k.name for k in p.kernels], sorted(p.functions()), p.kernel_source(p.kernels[0]) in p.source
    (['kernel0', 'kernel1'], ['kernel0', 'kernel1'], True)
    >>> p.check_sizes({})
    >>> p.fits_sizes({})
    True
    >>> [x.shape for x in p.ordered({"t0": np.arange(4, dtype=np.float32)})]
    [(4,)]
    >>> p.caller() is p.caller()
    True
    >>> p.sizes
    ()
    """

    __slots__ = ("_callers", "_told", "outputs", "views")

    def __init__(
        self,
        fusion: Fusion,
        target: Target,
        plan: KernelModule,
        cache: KernelCache | None = None,
        sizes: tuple[Size, ...] = (),
        outputs: tuple[Tensor, ...] | None = None,
        views: Mapping[str, Alias] | None = None,
    ) -> None:
        super().__init__(fusion, target, plan, cache, sizes)
        self.outputs = fusion.outputs if outputs is None else outputs
        self.views = {} if views is None else dict(views)
        self._callers: dict[tuple[bool, str | None], Dispatcher] = {}
        self._told = False

    @property
    def kernels(self) -> KernelTable:
        """One nest of loops each, in launch order: name, parameters, statements, launches; prints as a table."""
        return KernelTable(self.plan.kernels)

    @property
    def report(self) -> ProgramReport:
        """How gathers and scatters get their elements, which ways were rejected and why, and what memory it takes.

        >>> import idgraph as ig
        >>> f = ig.Fusion("rows")
        >>> t = f.output(ig.gather(f.input("x", shape=(4,)), 0, f.input("i", shape=(2,), dtype="int64")))
        >>> print(ig.emit(f, target="python").report)
        kernels: 1
        in memory between them: nothing
        """
        return report_of(self.fusion, self.plan)

    @property
    def source(self) -> str:
        """The kernels as text (without the checks of ``run(..., checked=True)``)."""
        head = f"# fusion {quote(self.fusion.name)}: {TARGETS[self.target].about}"
        return "\n\n".join([head, *(self.kernel_source(k) for k in self.kernels)])

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raise `ArgumentError`, which says how the arrays are passed."""
        arrays = ", ".join(f'"{t.name}": ...' for t in self.fusion.inputs)
        raise ArgumentError("a program is not called, it is run", where=user_line(), hint=f"run({{{arrays}}})")

    @arguments(EmitError)
    def copies(self, inputs: Mapping[str, Any], symbols: Mapping[str, int] | None = None) -> dict[str, str]:
        """The inputs that `run` copies before it reads them, each with the reason; NumPy arrays as for `run`.

        >>> import numpy as np
        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> y = f.output(f.input("x", (2, 3)) + 1.0)
        >>> p = ig.emit(f, "numpy")
        >>> p.copies({"x": np.zeros((2, 3), np.float32)})
        {}
        >>> p.copies({"x": np.zeros((3, 2), np.float32).T})
        {'x': 'its strides are (1, 2), not (3, 1) as declared'}
        """
        return self.caller().copies(self._ordered(inputs), symbols)

    @arguments(EmitError)
    def caller(self, checked: bool = True, device: str | None = None) -> Dispatcher:
        """Its calls, which remember the route found for arrays of each shape, type and device."""
        found = self._callers.get((checked, device))
        if found is None:
            with LOADING:
                from idgraph.runtime import dispatch as caller  # noqa: PLC0415  # NumPy, and the targets' compilers behind it

            found = self._callers[checked, device] = caller.Dispatcher(self, checked, device)
        return found

    @arguments(EmitError)
    def ordered(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Arrays by name in the order of the fusion's inputs; raises `EmitError` for one that is missing or unknown."""
        return self._ordered(inputs)

    def _ordered(self, inputs: Mapping[str, Any]) -> list[Any]:
        names = [t.name for t in self.fusion.inputs]
        try:
            found = [inputs[n] for n in names]
        except KeyError:
            missing = next(n for n in names if n not in inputs)
            strange = [f"{short_repr(n)} is not an input" for n in inputs if n not in names]
            every = f"inputs: {', '.join(names)}"
            raise EmitError(f"input {missing} is missing", because=strange[:1], hint=every) from None
        if len(found) != len(inputs):
            extra = next(n for n in inputs if n not in names)
            raise EmitError(
                f"{extra} is not an input of fusion {self.fusion.name}", hint=f"inputs: {', '.join(names) or '(none)'}"
            )
        return found

    @arguments(EmitError)
    def run(
        self,
        inputs: Mapping[str, Any],
        symbols: Mapping[str, int] | None = None,
        *,
        checked: bool = True,
        poison: bool = False,
        raw: bool = False,
        fill: float | None = None,
    ) -> dict[str, Any]:
        """Outputs by name, from arrays by input name: NumPy's, torch's tensors, or what speaks DLPack or has
        ``__cuda_array_interface__``; outputs are of the same kind, on the same device.

        Arrays have exactly the declared shapes and dtypes (bfloat16: torch's, ``ml_dtypes.bfloat16``, 16-bit words of
        other device arrays); one that lies in memory as declared is not copied (`copies` tells). ``symbols`` gives
        extents that no input's shape gives. ``checked`` tests every loaded index; without it one that is out of range
        reads zero. ``poison`` fills outputs with NaN first. `idgraph.compile` needs fewer arguments.

        An output whose layout no strides describe (blocks, padded splits, swizzles) is copied into an array of its
        shape, which is said in a warning the first time; ``raw=True`` gives each output as `RawOutput`: the memory
        that the kernels wrote, and the map from elements to addresses. Elements of memory between those of an output
        are undefined, or ``fill``. A `RawOutput` is an input, too: the kernels read its buffer as it lies where its map
        is that of the declared input, element by element, and else a copy of its elements.

        Raises `EmitError` for arrays that do not fit, `IndexingError` for an index out of range.
        """
        given = self._ordered(inputs)
        memory = self.output_memory(raw, fill, poison)
        if not poison:
            self.tell_copies(raw)
        found = self.caller(checked)(given, symbols, None, memory) if self.fusion.outputs else ()
        made = {t.name: x for t, x in zip(self.fusion.outputs, found, strict=True)}
        if not self.views:
            return made
        with LOADING:
            from idgraph.runtime.host_launch import view  # noqa: PLC0415  # NumPy

        for t in self.outputs:
            if t.name in self.views:
                v = self.views[t.name]
                made[t.name] = view(t, v, made[v.of.name] if v.of in self.outputs else inputs[v.of.name])
        return {t.name: made[t.name] for t in self.outputs}

    def output_memory(self, raw: bool, fill: float | None, poison: bool = False) -> OutputMemory | None:
        """How a call makes memory for outputs; raises `EmitError` for a ``fill`` that an output's type does not have,
        and for ``raw`` views.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> y = f.output(f.input("x", (4,)) * 2.0)
        >>> ig.emit(f, "numpy").output_memory(raw=True, fill=0)
        OutputMemory(poison=False, fill=0, raw=True)
        """
        if not (raw or poison or fill is not None):
            return None
        with LOADING:
            from idgraph.runtime.binding import OutputMemory as Memory  # noqa: PLC0415  # NumPy
            from idgraph.runtime.raw_output import check_fill  # noqa: PLC0415  # NumPy

        if raw and self.views:
            raise EmitError(
                f"{next(iter(self.views))} is a view: it has no memory of its own to be given raw",
                hint="emit(..., views=False)",
            )
        if fill is not None:
            for t in self.fusion.outputs:
                check_fill(t, fill)
        return Memory(poison, fill, raw)

    def tell_copies(self, raw: bool = False) -> None:
        """Warn once of outputs that are copied, as no strides say how they lie, unless they are asked for ``raw``.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> y = f.output(f.input("x", (4,)) * 2.0)
        >>> ig.emit(f, "numpy").tell_copies()
        """
        if raw or self._told:
            return
        self._told = True
        for t in self.fusion.outputs:
            if not has_strides(t):
                warn_user(
                    f"{self.fusion.name}: output {t.name} is copied at each call: no strides describe its memory, "
                    f"which axes that the schedule made lay out; raw=True gives the memory and its map"
                )

    def show(self) -> None:
        """Print the source of the kernels, in colour where standard output is a terminal.

        >>> import idgraph as ig
        >>> f = ig.Fusion("double")
        >>> t = f.output(f.input("x", shape=(4,)) * 2.0)
        >>> ig.emit(f, target="python").show()
        # fusion "double": plain Python; ...
        <BLANKLINE>
        def kernel0(buf0, buf1):
            # buf0: float32[4] input "x"
            # buf1: float32[4] output "t1"
            for i0 in range(4):  # t1.I1
                # "t1" = mul("x")  at "<doctest ...>:1"
                t0 = buf0[i0]
                t1 = f32(t0 * f32(2.0))
                buf1[i0] = t1
        """
        show(self.source)

    def sheet(self) -> Sheet:
        """The rows that notebooks show: the source."""
        return Sheet(repr(self), notes=tuple(self.source.splitlines()))

    def __repr__(self) -> str:
        return f"Program({self.fusion.name!r}, {self.target!r}, {len(self.kernels)} kernels)"


def emit(
    fusion: Fusion,
    target: Target = "python",
    *,
    model: IndexMaps | None = None,
    cache: str | Path | None = None,
    views: bool = False,
    passes: list[tuple[str, KernelModule]] | None = None,
) -> Program:
    """Kernels that compute the outputs of ``fusion`` as scheduled; ``passes`` takes what `stages` gives.

    ``target`` is "python" (reads like the mathematics), "numpy" (whole grids), "cpu" (numba) or "cuda" (numba.cuda; its
    source needs no GPU). ``model`` replaces the index maps, for tests of wrong ones. ``cache`` is a folder that keeps
    compiled CUDA kernels (`idgraph.runtime.kernel_cache`). With ``views``, outputs that are views of inputs or of other
    outputs (`idgraph.layout.alias`) have no kernel: `Program.run` gives views. Raises `FusionError`, `ScheduleError`
    for a race or an inlining no loop nest can do, `EmitError` for what a target cannot express.

    >>> import idgraph as ig
    >>> from idgraph.runtime import emit
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(8,))[4:])
    >>> print(emit(f, target="python").source)
    # fusion "half": plain Python; f32, maximum and the like are in codegen.runtime_lib.python_ops
    <BLANKLINE>
    def kernel0(buf0, buf1):
        # buf0: float32[8] input "x"
        # buf1: float32[4] output "t1"
        for i0 in range(4):  # t1.I2
            # "t1" = slice("x")  at "<doctest ...>:1"
            t0 = buf0[i0 + 4]
            t1 = t0
            buf1[i0] = t1
    <BLANKLINE>
    """
    outputs, found = fusion.outputs, dict[str, Alias]()
    if views:
        with LOADING:
            from idgraph.runtime.host_launch import views_of, without  # noqa: PLC0415  # NumPy

        found = views_of(fusion)
        fusion = without(fusion, found) if found else fusion
    kept = KernelCache(Path(cache)) if cache is not None else None
    if not fusion.outputs and found:
        return Program(fusion, target, KernelModule((), (), {}, {}), kept, (), outputs, found)
    maps, plan = _lowered(fusion, target, model)
    sizes = open_sizes(fusion, maps)
    plan = _optimized(plan, target, passes)
    if TARGETS[target].threads:
        check_limits(plan.kernels)
        plan = with_widths(fusion, maps, plan)
    for kernel in plan.kernels:
        kernel.check_structure()
    return Program(fusion, target, plan, kept, sizes, outputs, found)


def _lowered(fusion: Fusion, target: Target, model: IndexMaps | None) -> tuple[IndexMaps, KernelModule]:
    """The index maps, and the kernels before any pass."""
    if target not in get_args(Target):
        raise EmitError(f"unknown target {target!r}", hint=one_of(target, get_args(Target)))
    check_fusion(fusion, "emit", EmitError).verify()
    check_schedule(fusion, TARGETS[target])
    maps = model
    if maps is None:
        maps = IdModel(fusion)
        maps.verify()
    return maps, lower_fusion(fusion, maps, threads=TARGETS[target].threads, rule=target)


def launches(fusion: Fusion, target: Target = "cuda") -> tuple[Kernel, ...]:
    """The kernels that `emit` launches, in order, before the passes that change no more than a kernel's inside.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(8,))
    >>> y, z = f.output(x * 2.0), f.output(ig.exp(x))
    >>> _ = ig.schedule.auto(f)
    >>> [k.name for k in launches(f)]
    ['kernel0']
    """
    _, plan = _lowered(fusion, target, None)
    return table.run(plan, table.up_to("fuse_launches", target)).kernels


def stages(
    fusion: Fusion, target: Target = "python", *, model: IndexMaps | None = None
) -> Iterator[tuple[str, KernelModule]]:
    """The kernels as they were lowered, and after each pass that changed one: (name, kernels).

    ``model`` has the index maps, where they are there already.

    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(8,))[4:])
    >>> [name for name, _ in stages(f, "cuda")]
    ['lower', 'roll', 'scalar_replacement']
    """
    seen: list[tuple[str, KernelModule]] = []
    _optimized(_lowered(fusion, target, model)[1], target, seen)
    return iter(seen)


def _optimized(plan: KernelModule, target: Target, seen: list[tuple[str, KernelModule]] | None) -> KernelModule:
    """The kernels after all passes; ``seen`` takes those before, and after each pass that changed one."""
    if seen is None:
        return table.run(plan, table.TABLE[target])
    seen.append(("lower", plan))
    for p, made in table.trace(plan, table.TABLE[target]):
        if made.kernels != plan.kernels:
            seen.append((p.name, made))
        plan = made
    return plan


def refusals_of(fusion: Fusion) -> dict[str, IdGraphError]:
    """The error of each target that refuses the fusion."""
    found: dict[str, IdGraphError] = {}
    for target in TARGETS:
        try:
            shortened(emit)(fusion, target=target)  # as `idgraph.emit` says it
        except IdGraphError as error:
            found[target] = error
    return found


def narrow_widths_of(fusion: Fusion) -> tuple[LaneWidth, ...]:
    """The accesses along vectorised loops that a GPU's kernels make narrower than was asked for."""
    try:
        kernels = emit(fusion, target="cuda").kernels
    except IdGraphError:
        return ()
    return tuple(w for k in kernels for w in k.widths if w.is_narrow)
