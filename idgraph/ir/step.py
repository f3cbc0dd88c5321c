"""One step of a schedule, as a tensor's log keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from idgraph.errors import SourceLine
from idgraph.ir.exprs import Attr, plain_text


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

    >>> log = [MANY, (Step("split", (0, 4), NO_NAMES), Step("merge", (0, 1), NO_NAMES)), NO_NAMES, 7, None]
    >>> told_apart(log)
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
    >>> only_last(log, {"set_memory"})
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
