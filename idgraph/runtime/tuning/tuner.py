"""The search for the fastest config, and where its result is remembered.

The configs to try: stages, each of which changes some choices of the best one so far.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, get_args

from idgraph.display import Printed, Sheet
from idgraph.errors import EmitError, IdGraphError, arguments, one_of, visible
from idgraph.ir import SCATTERS, Fusion, check_fusion
from idgraph.ir.clone import clone_fusion
from idgraph.ir.device import current_device
from idgraph.ir.op_builders import REDUCTIONS
from idgraph.runtime.cuda import device_arrays as calls
from idgraph.runtime.cuda.numba_cuda import need_device, simulated
from idgraph.runtime.interrupts import Device, device_text
from idgraph.runtime.kernel_cache import KernelCache, versions
from idgraph.runtime.program import Program, emit
from idgraph.runtime.tuning.trial import (
    Array,
    Measured,
    Record,
    Timer,
    difference,
    is_faster,
    made_up,
    prepare_launch,
    record_of,
    shortest,
    values_of,
)
from idgraph.schedule.auto import auto
from idgraph.schedule.config import RULE, KernelConfig

Move = Mapping[str, Any]


def _thread_counts() -> list[int]:
    """Threads of a block of the device in force: a warp, twice as many, ... and all."""
    gpu = current_device()
    return [n for k in range(gpu.block_threads.bit_length()) if (n := gpu.warp << k) <= gpu.block_threads]


def _block_sizes() -> tuple[Move, ...]:
    return tuple({"block": n} for n in _thread_counts()[1:])


def _rows_gpu() -> tuple[tuple[Move, ...], ...]:
    """Rows on a GPU: kept in registers or not, warp or block, two passes; then loads in flight, rows of a block."""
    return (
        (
            *({"persistent": k, "threads": n} for k in (True, False) for n in (None, *_thread_counts())),
            {"persistent": False, "online": False},
        ),
        tuple({"items_per_thread": n} for n in (8, 16, 32, 64)),
        tuple({"rows": n} for n in (1, 2, 4, 8)),
    )


_ROWS_CPU: Final[tuple[tuple[Move, ...], ...]] = (
    ({"persistent": True}, {"persistent": False}),
    tuple({"items_per_thread": n} for n in (32, 64, 256)),
    tuple({"rows": n} for n in (1, 4, 16, 64)),
)
_VECTORS: Final[tuple[Move, ...]] = tuple({"vectors": n} for n in (1, 2, 4))
_PARTS: Final[tuple[Move, ...]] = ({"apart": True}, {"apart": False})
_ONE_CORE: Final[tuple[Move, ...]] = ({"parallel": False},)


def stages(fusion: Fusion, target: Literal["cpu", "cuda"]) -> Sequence[Sequence[Move]]:
    """The configurations to try for ``fusion``, one stage after the other.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(8,)) * 2.0)
    >>> stages(f, "cpu")[-1]
    ({'parallel': False},)
    """
    rows = any(e.op in REDUCTIONS and e.is_reduction for e in fusion.exprs)
    kinds = {e.op in SCATTERS or not e.is_reduction for e in fusion.exprs}
    made: list[Sequence[Move]] = []
    if rows:
        made += _rows_gpu() if target == "cuda" else _ROWS_CPU
    if not rows and True in kinds:
        made += [_block_sizes(), _VECTORS, _PARTS] if target == "cuda" else [_block_sizes()]
    if target == "cpu":
        made.append(_ONE_CORE)
    return made


Where = Literal["cpu", "cuda"]
Source = Literal["measured", "memory", "disk"]


@dataclass(frozen=True, slots=True)
class Tuned(Printed):
    """The fastest ``program`` and its ``config``; ``measured`` are the configurations that were tried, ``source`` says
    when: just now ("measured"), earlier in this process ("memory") or in another one ("disk").

    Printed it is a table, the fastest first; `to_data` is the same as plain data.

    >>> import idgraph as ig
    >>> f = ig.Fusion("double")
    >>> t = f.output(f.input("x", shape=(8,)) * 2.0)
    >>> program = ig.emit(f, target="python")
    >>> found = (ig.Measured(ig.schedule.KernelConfig(block=64), 2.0), ig.Measured(ig.schedule.KernelConfig(), 3.0))
    >>> print(ig.Tuned(program, found[0].config, found, "measured"))
    double on python: block=64 (measured)
    config    us  of the fastest  note
    block=64  2.0            1.00
    rule      3.0            1.50
    >>> tuned = ig.Tuned(program, found[0].config, found, "measured")
    >>> tuned.us, tuned.dropped
    (2.0, ())
    """

    program: Program
    config: KernelConfig
    measured: tuple[Measured, ...]
    source: Source

    @property
    def us(self) -> float:
        """Microseconds of the fastest, as measured."""
        return next((m.us for m in self.measured if m.config == self.config), math.nan)

    @property
    def dropped(self) -> tuple[Measured, ...]:
        """Configurations that failed, or computed something else."""
        return tuple(m for m in self.measured if math.isnan(m.us))

    def to_data(self) -> dict[str, Any]:
        """Data for `json.dumps`.

        >>> import idgraph as ig
        >>> f = ig.Fusion("double")
        >>> t = f.output(f.input("x", shape=(8,)) * 2.0)
        >>> sorted(ig.Tuner(timer=lambda work, target: 1.0).tune(f, "cpu").to_data())
        ['config', 'fusion', 'measured', 'source', 'target']
        """
        rows = [
            {"config": m.config.to_data(), "us": None if math.isnan(m.us) else m.us, "note": m.note}
            for m in self.measured
        ]
        return {
            "fusion": self.program.fusion.name, "target": self.program.target, "config": self.config.to_data(),
            "source": self.source, "measured": rows,
        }  # fmt: skip

    def sheet(self) -> Sheet:
        """The table, for notebooks."""
        order = sorted(self.measured, key=lambda m: (math.isnan(m.us), m.us))
        least = next((m.us for m in order), math.nan)
        rows = tuple(
            (
                str(m.config),
                *(("", "") if math.isnan(m.us) else (f"{m.us:.1f}", f"{m.us / least:.2f}")),
                visible(m.note),
            )
            for m in order
        )
        title = f"{self.program.fusion.name} on {self.program.target}: {self.config} ({self.source})"
        return Sheet(title, ("config", "us", "of the fastest", "note"), rows)

    def __str__(self) -> str:
        sheet = self.sheet()
        rows = (sheet.columns, *sheet.rows)
        widths = [max(len(r[k]) for r in rows) for k in range(3)]
        lines = (f"{r[0]:<{widths[0]}}  {r[1]:>{widths[1]}}  {r[2]:>{widths[2]}}  {r[3]}".rstrip() for r in rows)
        return "\n".join([sheet.title, *lines])

    __repr__ = __str__


@dataclass(slots=True, eq=False)
class Tuner:
    """Measures once for each (kernels, shapes, types, target, device), and remembers: in memory, and in ``cache``.

    ``cache`` is a folder, safe to share between processes and to damage: entries are written whole, carry a checksum
    and the versions of all that they follow from, and are measured anew where they do not fit. ``timer`` measures
    microseconds of a run; `shortest` is the default.

    >>> import idgraph as ig
    >>> f = ig.Fusion("double")
    >>> t = f.output(f.input("x", shape=(8,)) * 2.0)
    >>> ig.Tuner(timer=lambda work, target: 1.0).tune(f, "cpu").us
    1.0
    """

    cache: str | Path | None = None
    timer: Timer = shortest
    _known: dict[str, Record] = field(default_factory=dict[str, Record])

    @arguments(EmitError, first=True)
    def tune(
        self,
        fusion: Fusion,
        target: Where = "cuda",
        inputs: Mapping[str, Any] | None = None,
        *,
        symbols: Mapping[str, int] | None = None,
        device: Device = None,
    ) -> Tuned:
        """See `idgraph.tune`."""
        check_fusion(fusion, "tune", EmitError)
        if target not in get_args(Where):
            raise EmitError(f"target {target!r} is not measured", hint=one_of(target, get_args(Where)))
        with _current(target, inputs, device):
            return self._tuned(fusion, target, inputs, symbols)

    def machine(self, target: Where, inputs: Mapping[str, Any] | None = None, device: Device = None) -> str:
        """The processor or the model of the GPU that `tune` would measure on with these arguments: a choice is for it.

        >>> ig = __import__("idgraph")
        >>> ig.Tuner().machine("cpu") == ig.Tuner().machine("cpu")
        True
        """
        with _current(target, inputs, device):
            return device_name(target)

    def _tuned(
        self, fusion: Fusion, target: Where, inputs: Mapping[str, Any] | None, symbols: Mapping[str, int] | None
    ) -> Tuned:
        plain = clone_fusion(fusion)
        rule = self.program(clone_fusion(plain), target, RULE)
        folder = None if self.cache is None else KernelCache(Path(self.cache), ".choice")
        key = choice_key(rule, inputs, symbols)
        source: Source = "memory"
        record = self._known.get(key)
        if record is None and folder is not None:
            text = folder.find(key)
            record, source = None if text is None else record_of(text), "disk"
        if record is not None:
            try:
                program = self.program(fusion, target, record.best)
            except IdGraphError:  # an entry that names what is not a kernel here
                record = None
            else:
                self._known[key] = record
                return Tuned(program, record.best, record.measured, source)
        if folder is not None:
            folder.check()  # not after minutes of measuring
        record = self.measure(plain, rule, inputs, symbols)
        self._known[key] = record  # first: where the disk is full, nothing is measured again
        if folder is not None:
            folder.put(key, record.to_text())
        return Tuned(self.program(fusion, target, record.best), record.best, record.measured, "measured")

    def program(self, fusion: Fusion, target: Where, config: KernelConfig) -> Program:
        """The fusion scheduled and emitted.

        >>> import idgraph as ig
        >>> f = ig.Fusion("double")
        >>> t = f.output(f.input("x", shape=(8,)) * 2.0)
        >>> ig.Tuner().program(f, "cpu", ig.schedule.KernelConfig(block=64)).target
        'cpu'
        """
        auto(fusion, config=config, device="cpu" if target == "cpu" else "H200")
        return emit(fusion, target, cache=self.cache)

    def measure(
        self, plain: Fusion, rule: Program, inputs: Mapping[str, Any] | None, symbols: Mapping[str, int] | None
    ) -> Record:
        """Try every configuration, stage by stage; the program of the rule has to work."""
        target: Where = "cuda" if rule.target == "cuda" else "cpu"
        given = inputs if inputs is not None else made_up(plain, symbols)
        search = _TuningSearch(given, symbols, self.timer, target)
        wanted, us = search.run(rule)
        search.wanted = wanted
        search.add(RULE, us, rule)
        for stage in stages(plain, target):
            start = search.best
            for move in stage:
                config = start.but(**move)
                if not any(m.config == config for m in search.measured):
                    search.attempt(config, partial(self.program, clone_fusion(plain), target, config))
        return Record(search.best, tuple(search.measured))


@dataclass(slots=True)
class _TuningSearch:
    """The best config so far; ``sources`` maps each kernel text to the config that first made it."""

    inputs: Mapping[str, Any]
    symbols: Mapping[str, int] | None
    timer: Timer
    target: Where
    wanted: dict[str, Array] = field(default_factory=dict[str, "Array"])
    best: KernelConfig = RULE
    least: float = math.nan
    measured: list[Measured] = field(default_factory=list[Measured])
    sources: dict[str, Measured] = field(default_factory=dict[str, Measured])

    def run(self, program: Program) -> tuple[dict[str, Array], float]:
        """(values, microseconds)."""
        ready = prepare_launch(program, self.inputs, self.symbols, poison=True)
        ready.launch()
        found = values_of(ready.results(), program.fusion)
        return found, self.timer(ready.launch, self.target)

    def attempt(self, config: KernelConfig, make: Any) -> None:
        """Try one config; any failure drops it, and the reason is kept."""
        try:
            program: Program = make()
            text = kernel_text(program)
            same = self.sources.get(text)
            if same is not None:
                self.measured.append(Measured(config, same.us, f"the kernels of {same.config}"))
                return
            found, us = self.run(program)
            wrong = difference(program.fusion, found, self.wanted)
        except Exception as error:  # a compiler or a driver may raise anything: that config is left out
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.measured.append(Measured(config, math.nan, f"dropped: {reason[:200]}"))
            return
        if wrong:
            self.measured.append(Measured(config, math.nan, f"dropped: {wrong}"))
        else:
            self.add(config, us, program)

    def add(self, config: KernelConfig, us: float, program: Program) -> None:
        self.measured.append(Measured(config, us))
        self.sources[kernel_text(program)] = self.measured[-1]
        if is_faster(us, self.least):
            self.best, self.least = config, us


def kernel_text(program: Program) -> str:
    """The kernels without comments, which hold the user's names and lines; which loops run on all cores."""
    lines = (line.split("#")[0].rstrip() for k in program.kernels for line in program.kernel_source(k).splitlines())
    return "\n".join(lines)


def choice_key(program: Program, inputs: Mapping[str, Any] | None, symbols: Mapping[str, int] | None) -> str:
    """All that a choice follows from: the rule's kernels, sizes, types, device and versions."""
    types = ", ".join(f"{b.name} {b.dtype} {b.size}" for b in program.plan.buffers)
    named = program.fusion.symbols
    shapes = {n: tuple(getattr(a, "shape", ())) for n, a in (inputs or {}).items()} if named else {}
    sizes = ", ".join([*(f"{k}={v}" for k, v in sorted((symbols or {}).items())), *map(str, shapes.values())])
    return "\n".join(
        ["idgraph choice", versions(), _sources(), device_name(program.target), types, sizes, kernel_text(program)]
    )


def _current(target: Where, inputs: Mapping[str, Any] | None, device: Device) -> AbstractContextManager[Any]:
    """The device made the current one: ``device``, else that of the first input on one, else the one that is."""
    text = device_text(device)
    if target != "cuda" or simulated():
        return nullcontext()
    found = text or next((p for a in (inputs or {}).values() if (p := calls.place_of(a)) is not None), None)
    return nullcontext() if found is None else calls.on(found)


def device_name(target: str) -> str:
    """The machine that a measurement is good for."""
    if target == "cuda":
        if simulated():
            return "simulated device"
        device = need_device().get_current_device()
        return f"{device.name} {device.compute_capability}"
    llvm: Any = import_module("llvmlite.binding")
    return f"{llvm.get_host_cpu_name()}, {import_module('numba').get_num_threads()} threads"


@cache
def _sources() -> str:
    """A digest of the modules that turn a config into a kernel."""
    emitting = Path(__file__).parent.parent
    files = [*emitting.rglob("*.py"), *(emitting.parent / "schedule").glob("*.py")]
    made = hashlib.sha256()
    for f in sorted(files):
        made.update(f.read_bytes())
    return made.hexdigest()


@cache
def _process_wide() -> Tuner:
    return Tuner()


@arguments(EmitError, first=True)
def tune(
    fusion: Fusion,
    target: Where = "cuda",
    inputs: Mapping[str, Any] | None = None,
    *,
    symbols: Mapping[str, int] | None = None,
    device: Device = None,
    cache: str | Path | None = None,
    tuner: Tuner | None = None,
) -> Tuned:
    """Schedule ``fusion`` by measurement: its kernels' configs are run on this machine, and the fastest is kept.

    The choices that `idgraph.schedule.auto` makes by a rule (threads of a row, elements in flight, rows of a block, a
    row in registers or read again, one pass or two; on the CPU sums, kept values, tasks, cores) are varied here, a few
    at a time. Each config's results must be those of the rule's, up to rounding; one that fails is dropped and named.
    ``fusion`` gets the schedule of the fastest, and ``.program`` its kernels for ``target``, "cuda" or "cpu".

    ``inputs`` are arrays by name, as `Program.run` takes them; without them values are made up, for the sizes
    ``symbols``. They run on ``device`` ("cuda:1"), by default where the inputs are, else on the current one. Measured
    once for the same kernels, sizes, types and model of device: later calls of this process remember it, and with
    ``cache``, a folder, later processes do too. A ``tuner`` of one's own has its own memory and clock.

    Raises `EmitError` where the fusion itself cannot run on the target.

    >>> import idgraph as ig
    >>> f = ig.Fusion("norm")
    >>> x = f.input("x", shape=(64, 256))
    >>> y = f.output(x - ig.mean(x, 1, keepdim=True))
    >>> tuner = ig.Tuner(timer=lambda work, target: 1.0)  # a clock that finds all alike
    >>> tuned = ig.tune(f, "cpu", tuner=tuner)
    >>> str(tuned.config), tuned.source, ig.tune(f, "cpu", tuner=tuner).source
    ('rule', 'measured', 'memory')
    """
    used = tuner if tuner is not None else Tuner(cache) if cache is not None else _process_wide()
    return used.tune(fusion, target, inputs, symbols=symbols, device=device)
