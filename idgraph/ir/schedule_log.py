"""One step of a schedule, as a tensor's log keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, Protocol, TypeAlias

from idgraph.display import Printed
from idgraph.errors import ScheduleError, SourceLine, short_repr, user_line
from idgraph.ir.axis_read import Attr, plain_text
from idgraph.ir.device import current_device


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """One logged schedule step: the method's name and its arguments (axes by name where domains were given).

    ``line`` is the user's. ``at`` grows from step to step over all tensors of a fusion: replayed in another order, a
    step may not be legal.
    """

    name: str
    args: tuple[Attr, ...]
    kwargs: Mapping[str, Attr]
    at: int = field(default=0, compare=False)
    line: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        given = [*map(plain_text, self.args), *(f"{k}={plain_text(v)}" for k, v in self.kwargs.items())]
        return f"{self.name}({', '.join(given)})"


Flat: TypeAlias = list[Any]
"""Steps as a log keeps them, five entries for each: no object a step for the collector to walk. Steps that many tensors
have are one entry: ``MANY``, the steps, NO_NAMES, the number of the first, the line."""
_ENTRIES = 5
MANY = ""
NO_NAMES: Mapping[str, Attr] = {}
"""The named arguments of a step without any."""


def steps_in(flat: Sequence[Any]) -> tuple[ScheduleStep, ...]:
    """The steps of a flat log.

    >>> [str(s) for s in steps_in(["split", (0, 4), {"inner": False}, 1, None, "merge", (0, 1), NO_NAMES, 2, None])]
    ['split(0, 4, inner=False)', 'merge(0, 1)']
    """
    found: list[ScheduleStep] = []
    for n in range(0, len(flat), _ENTRIES):
        name, args, kwargs, at, line = flat[n : n + _ENTRIES]
        if name == MANY:
            found += [ScheduleStep(s.name, s.args, s.kwargs, at + k, line) for k, s in enumerate(args)]
        else:
            found.append(ScheduleStep(name, args, kwargs, at, line))
    return tuple(found)


def distinct_steps(flat: Flat) -> None:
    """Give each step of a flat log entries of its own.

    >>> split, merge = ScheduleStep("split", (0, 4), NO_NAMES), ScheduleStep("merge", (0, 1), NO_NAMES)
    >>> log = [MANY, (split, merge), NO_NAMES, 7, None]
    >>> distinct_steps(log)
    >>> log[::5], log[3::5], [s.at for s in steps_in(log)]
    (['split', 'merge'], [7, 8], [7, 8])
    """
    if MANY in flat[::_ENTRIES]:
        flat[:] = [x for s in steps_in(flat) for x in (s.name, s.args, s.kwargs, s.at, s.line)]


def without(flat: Flat, name: str) -> None:
    """Take the steps of that name out of a flat log.

    >>> log = ["split", (0, 4), NO_NAMES, 1, None, "inline", (1,), NO_NAMES, 2, None]
    >>> without(log, "inline")
    >>> [s.name for s in steps_in(log)]
    ['split']
    """
    found = False
    for at in range(0, len(flat), _ENTRIES):  # asked of every tensor that is scheduled; most have no such step
        if flat[at] == MANY and name in [s.name for s in flat[at + 1]]:
            distinct_steps(flat)
            found = True
            break
        found = found or flat[at] == name
    if found:
        _keep(flat, [n for n, other in enumerate(flat[::_ENTRIES]) if other != name])


def keep_last_step(flat: Flat, names: Iterable[str]) -> None:
    """Keep of a flat log the last step of each of those names.

    >>> log = [x for n in (4, 5) for x in ("set_memory", (n,), NO_NAMES, n, None)]
    >>> keep_last_step(log, {"set_memory"})
    >>> [s.args for s in steps_in(log)]
    [(5,)]
    """
    distinct_steps(flat)
    last = {name: n for n, name in enumerate(flat[::_ENTRIES])}
    _keep(flat, sorted(last[name] for name in names if name in last))


def only_first(flat: Flat, count: int) -> None:
    """Keep the first ``count`` steps of a flat log.

    >>> log = [x for n in (4, 5) for x in ("set_memory", (n,), NO_NAMES, n, None)]
    >>> only_first(log, 1)
    >>> [s.args for s in steps_in(log)]
    [(4,)]
    """
    distinct_steps(flat)
    del flat[count * _ENTRIES :]


def _keep(flat: Flat, numbers: Iterable[int]) -> None:
    flat[:] = [x for n in numbers for x in flat[n * _ENTRIES : (n + 1) * _ENTRIES]]


MAX_ELEMENTS: Final = 1 << 12


def check_choice(name: str, value: object, of: str, most: int | None = None) -> None:
    """Raise `ScheduleError` unless ``value`` is a bool, or with ``most`` a power of two up to that number; ``threads``
    may be whole warps, too.

    >>> check_choice("rows", 3, "a KernelConfig", 1024)
    Traceback (most recent call last):
    idgraph.errors.ScheduleError: rows=3 of a KernelConfig
      ...
    """
    what = f"{name}={short_repr(value)} of {of}"
    if most is None:
        if not isinstance(value, bool):
            raise ScheduleError(what, where=user_line(), hint="True, False or None")
    elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ScheduleError(what, where=user_line(), hint=f"an integer from 1 to {most}")
    elif value & (value - 1) and (name != "threads" or value % current_device().warp):
        whole = f", or a multiple of {current_device().warp}" if name == "threads" else ""
        raise ScheduleError(what, where=user_line(), hint=f"a power of two{whole}")


@dataclass(frozen=True, slots=True)
class KernelHints:
    """Facts of a schedule that one kernel obeys, or refuses by name; None leaves one to the target's rule.

    ``persistent``: a row is held between its passes. ``online``: sums relative to a running maximum, in its pass.
    ``items_per_thread``: elements under way at most. ``parallel``: on the CPU on all cores. ``of`` names the tensors
    that they were set on, and where. ``why`` is the reason of a rule that made them.
    """

    persistent: bool | None = None
    online: bool | None = None
    items_per_thread: int | None = None
    parallel: bool | None = None
    of: str = field(default="", compare=False)
    why: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for name, value in self.explicit().items():
            check_choice(name, value, "a kernel", MAX_ELEMENTS if name == "items_per_thread" else None)

    def explicit(self) -> dict[str, int | bool]:
        """The choices that are made, by name."""
        return {n: v for n in NAMES if (v := getattr(self, n)) is not None}

    def but(self, **changes: Any) -> KernelHints:
        """The same with other choices."""
        return replace(self, **changes)

    @staticmethod
    def from_words(words: list[str]) -> KernelHints:
        """The inverse of ``str``; raises `ScheduleError` for anything else."""
        read: Mapping[str, bool] = {"true": True, "false": False}
        made: dict[str, Any] = {}
        for word in words:
            name, _, value = word.partition("=")
            number = int(value) if value.isascii() and value.isdigit() and len(value) < 8 else None
            if name not in NAMES or name in made or (value not in read and number is None):
                raise ScheduleError(f"{word[:40]!r} is not a choice of a kernel", hint=", ".join(NAMES))
            made[name] = read.get(value, number)
        return KernelHints(**made)

    def __str__(self) -> str:
        return " ".join(f"{n}={str(v).lower()}" for n, v in self.explicit().items())


Memory: TypeAlias = Literal["auto", "local", "shared", "global"]
NAMES: Final = tuple(f.name for f in fields(KernelHints) if f.name not in ("of", "why"))
NO_CHOICES: Final = KernelHints()
NO_RULES: Final[Mapping[str, KernelHints]] = {}
STEPS: Final = (*NAMES, "by_rule")


@dataclass(frozen=True, slots=True)
class Option:
    """One way that was looked at: ``cost`` in ``unit`` (None where it is impossible), and the reason.

    >>> Option("recompute", None, "a sort is not computed element by element").cost is None
    True
    """

    name: str
    cost: float | None
    why: str
    unit: str = "element accesses"

    def amount(self) -> str:
        """The cost in words.

        >>> Option("global", 4096, "stores t1").amount(), Option("recompute", 2.5, "", "us on H200, 1 kernel").amount()
        ('4,096 element accesses', '2.5 us on H200, 1 kernel')
        >>> Option("recompute", None, "a sort").amount()
        'impossible'
        """
        return "impossible" if self.cost is None else f"{self.cost:,} {self.unit}"


@dataclass(frozen=True, slots=True)
class Saving:
    """Bytes that a way does not store, and does not move (stores and reads), against the way that stores everything.

    >>> s = Saving(3_293_642_752, 6_587_285_504)
    >>> print(s)
    3.29 GB not stored, 6.59 GB not moved (1.5 ms at 4.26 TB/s)
    """

    not_stored: int
    not_moved: int

    def milliseconds(self, bandwidth: float | None = None) -> float:
        """Time to move them at ``bandwidth`` bytes a second; by default that of the device in force.

        >>> Saving(3_000_000_000, 6_000_000_000).milliseconds(bandwidth=1e12)
        6.0
        """
        return 1e3 * self.not_moved / (bandwidth or current_device().bandwidth)

    def __str__(self) -> str:
        stored, moved = (_bytes_text(n) for n in (self.not_stored, self.not_moved))
        ms = self.milliseconds()
        time = f"{ms:.1f} ms" if ms >= 0.1 else f"{1e3 * ms:.2f} us"
        return f"{stored} not stored, {moved} not moved ({time} at {current_device().bandwidth / 1e12:g} TB/s)"


def _bytes_text(n: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} bytes"


@dataclass(frozen=True, slots=True)
class Decision(Printed):
    """The way ``chosen`` for an operation (a gather or a scatter), its reason, and the ways rejected.

    ``tensor`` is the operation's result, ``source`` the tensor that it gathers from or scatters into, ``entries`` the
    number of loaded indices for each row ("one", or an extent), ``line`` the user's. ``forced`` says that the user
    chose. ``saved`` are bytes that the way does not move, ``proof`` why it gives the same, claim by claim.

    >>> print(Decision("gather", "t3", "t1", "one", "", "recompute", "cheaper", (Option("global", 9, "stores t1"),)))
    gather t3 of t1, one index a row: recompute (cheaper)
      not global: 9 element accesses; stores t1
    """

    kind: str
    tensor: str
    source: str
    entries: str
    line: str
    chosen: str
    reason: str
    rejected: tuple[Option, ...] = ()
    forced: bool = False
    saved: Saving | None = None
    proof: tuple[str, ...] = ()

    def __str__(self) -> str:
        index = "index" if self.entries == "one" else "indices"
        at = f" at {self.line}" if self.line else ""
        by = ", as asked for" if self.forced else ""
        head = f"{self.kind} {self.tensor} of {self.source}, {self.entries} {index} a row{at}: {self.chosen} "
        lines = [f"{head}({self.reason}{by})"]
        lines += [f"  {self.saved}"] if self.saved is not None else []
        lines += [f"  {p}" for p in self.proof]
        for option in self.rejected:
            lines.append(f"  not {option.name}: {option.amount()}; {option.why}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ReductionDecision(Printed):
    """The loops chosen for reductions over the same axes: ``threads`` share one row, ``together`` rows share a block.

    ``lanes`` are the elements of one access, ``passes`` how often later values make a kernel go over a row, unless it
    is held or sums follow a running maximum.

    >>> print(ReductionDecision(("t1", "t2"), "64", "4096", 1024, 1, 4, 2, "fewer rows than 264"))
    rows t1, t2: 64 of 4096 columns, 2 passes: 1024 threads a row, 1 row a block, 4 lanes (fewer rows than 264)
    """

    tensors: tuple[str, ...]
    rows: str
    columns: str
    threads: int
    together: int
    lanes: int
    passes: int
    why: str

    def __str__(self) -> str:
        n, k = self.together, self.passes
        head = f"rows {', '.join(self.tensors)}: {self.rows} of {self.columns} columns, {k} pass{'es' * (k > 1)}"
        return f"{head}: {self.threads} threads a row, {n} row{'s' * (n > 1)} a block, {self.lanes} lanes ({self.why})"


@dataclass(frozen=True, slots=True)
class Ruled(Printed):
    """The decision of a target's rule for the rows of ``tensors``, reductions of one loop nest (`Tensor.by_rule`).

    >>> print(Ruled("cuda", ("t1",), KernelHints(persistent=False, items_per_thread=16), "one pass does it"))
    rows t1 on cuda: persistent=false items_per_thread=16 (one pass does it)
    """

    target: str
    tensors: tuple[str, ...]
    choices: KernelHints
    why: str

    def __str__(self) -> str:
        return f"rows {', '.join(self.tensors)} on {self.target}: {self.choices} ({self.why})"


@dataclass(frozen=True, slots=True)
class TilingDecision(Printed):
    """The loops that a search chose for ``tensor`` among ``candidates``, and the runner-up, each with its estimate.

    >>> print(TilingDecision("t1", "4 x 4 a thread", "2.4 us", "through shared memory", "2.6 us", 14))
    loops of t1: 4 x 4 a thread (2.4 us)
      not, of 14: through shared memory (2.6 us)
    """

    tensor: str
    chosen: str
    cost: str
    second: str
    second_cost: str
    candidates: int

    def __str__(self) -> str:
        head = f"loops of {self.tensor}: {self.chosen} ({self.cost})"
        return f"{head}\n  not, of {self.candidates}: {self.second} ({self.second_cost})"


class TriedSchedule(Protocol):
    """A schedule that was chosen among, its estimated time in microseconds, and whether it was chosen."""

    @property
    def schedule(self) -> Any:
        """It prints as steps; ``apply(fusion)`` takes them."""
        ...

    @property
    def cost(self) -> float:
        """Microseconds by `ig.cost`."""
        ...

    @property
    def chosen(self) -> bool:
        """True of one."""
        ...


@dataclass(frozen=True, slots=True)
class Decided(Printed):
    """Decisions of an automatic schedule: the ways of gathers and scatters, memory formats, loops over rows, what their
    kernels hold, and loops that a search chose.

    ``candidates`` are the schedules that it chose among, the chosen one first, then the cheapest; each has
    ``.schedule`` (prints as steps; ``.config``, ``.fusion``, ``.apply(fusion)``), ``.cost`` in microseconds by
    `ig.cost` and ``.chosen``. They are built and estimated when first asked for. ``runner_up`` is the cheapest that was
    not chosen, or None. Both raise `ScheduleError` where the fusion has changed since, or has sizes that are symbols.

    >>> print(Decided())
    nothing to decide
    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(4096, 64)) * 2.0)
    >>> s = ig.schedule.auto(f, device="H100")
    >>> [c.chosen for c in s.candidates].count(True), s.runner_up.chosen
    (1, False)
    """

    operations: tuple[Decision, ...] = ()
    formats: tuple[Format, ...] = ()
    rows: tuple[ReductionDecision, ...] = ()
    rules: tuple[Ruled, ...] = ()
    tilings: tuple[TilingDecision, ...] = ()
    search: Callable[[], tuple[TriedSchedule, ...]] = field(default=tuple, repr=False, compare=False)
    _found: list[Any] = field(default_factory=list[Any], repr=False, compare=False)

    @property
    def candidates(self) -> tuple[TriedSchedule, ...]:
        """See the class."""
        if not self._found:
            self._found.append(self.search())
        return self._found[0]

    @property
    def runner_up(self) -> TriedSchedule | None:
        """See the class."""
        return next((c for c in self.candidates if not c.chosen), None)

    def __str__(self) -> str:
        made = (*self.operations, *self.formats, *self.rows, *self.rules, *self.tilings)
        return "\n".join(map(str, made)) or "nothing to decide"


@dataclass(frozen=True, slots=True)
class Format:
    """The memory format that an automatic schedule gave a tensor: ``order``, axis numbers outermost in memory first.

    ``summary`` is the decision in words, ``at`` the schedule step that it made: any other of the tensor's is the
    user's.
    """

    tensor: str
    order: tuple[int, ...]
    summary: str
    at: int

    def __str__(self) -> str:
        return self.summary
