"""The choices of one kernel: those of its tensors, which must not contradict each other."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.errors import ScheduleError, SourceLine
from idgraph.ir import Tensor
from idgraph.ir.choices import KernelHints


def kernel_choices(tensors: Sequence[Tensor]) -> KernelHints:
    """The choices beside loops that the schedules of ``tensors``, computed by one kernel, hold.

    Raises `ScheduleError` where two of them say different things, or a row shall be held and read in one pass.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(8, 64))
    >>> t, u = ig.amax(x, 1).persistent(), ig.sum(x, 1)
    >>> print(kernel_choices([t, u]))
    persistent=true
    >>> kernel_choices([t, u.persistent(False)])
    Traceback (most recent call last):
    idgraph.errors.ScheduleError: t2 says persistent(False), t1 in the same kernel says persistent(True)
      ...
    """
    by: dict[str, Tensor] = {}
    made = KernelHints()
    for t in tensors:
        for name, value in t.choices.made().items():
            first = by.setdefault(name, t)
            if getattr(first.choices, name) != value:
                raise ScheduleError(
                    f"{t.name} says {_said(t, name)}, {first.name} in the same kernel says {_said(first, name)}",
                    where=_line(t, name), hint="say the same of both",
                )  # fmt: skip
            made = made.but(**{name: value})
    if made.persistent and made.online:
        t, u = by["persistent"], by["online"]
        raise ScheduleError(
            f"{t.name} says persistent(True), {u.name} in the same kernel says online(True)",
            because=("a row that is held is passed over twice, and online is one pass",),
            where=_line(t, "persistent"),
            hint=f"{t.name}.persistent(False), or {u.name}.online(False)",
        )
    if not by:
        return made
    told = [f"{t.name}.{_said(t, name)}{_at(t, name)}" for name, t in by.items()]
    return made.but(of="; ".join(told))


def _said(t: Tensor, name: str) -> str:
    return f"{name}({getattr(t.choices, name)})"


def _line(t: Tensor, name: str) -> SourceLine | None:
    """The user's line that made the choice."""
    return next((s.line for s in reversed(t.log) if s.name == name), None)


def _at(t: Tensor, name: str) -> str:
    line = _line(t, name)
    return f" at {line.file}:{line.line}" if line is not None else ""
