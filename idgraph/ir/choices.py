"""Choices: what a schedule says of a kernel beside its loops. `Tensor.persistent` and its neighbours set them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias

from idgraph.errors import ScheduleError, short_repr, user_line
from idgraph.ir.targets import GPU

MAX_ELEMENTS: Final = 1 << 12
WARP: Final = GPU.warp


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
    elif value & (value - 1) and (name != "threads" or value % WARP):
        whole = f", or a multiple of {WARP}" if name == "threads" else ""
        raise ScheduleError(what, where=user_line(), hint=f"a power of two{whole}")


@dataclass(frozen=True, slots=True)
class KernelHints:
    """Facts of a schedule that one kernel obeys, or refuses by name; None leaves one to the target's rule.

    ``persistent``: a row is held between its passes. ``online``: sums relative to a running maximum, in its pass.
    ``items_per_thread``: elements under way at most. ``parallel``: on the CPU on all cores. ``of`` names the tensors
    that they were set on, and where. ``why`` is the reason of a rule that made them.

    >>> print(Choices(persistent=True, items_per_thread=8))
    persistent=true items_per_thread=8
    >>> Choices.from_words(["online=false"])
    Choices(persistent=None, online=False, items_per_thread=None, parallel=None, of='', why='')
    """

    persistent: bool | None = None
    online: bool | None = None
    items_per_thread: int | None = None
    parallel: bool | None = None
    of: str = field(default="", compare=False)
    why: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for name, value in self.made().items():
            check_choice(name, value, "a kernel", MAX_ELEMENTS if name == "items_per_thread" else None)

    def made(self) -> dict[str, int | bool]:
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
        return " ".join(f"{n}={str(v).lower()}" for n, v in self.made().items())


Memory: TypeAlias = Literal["auto", "local", "shared", "global"]
NAMES: Final = tuple(f.name for f in fields(KernelHints) if f.name not in ("of", "why"))
NO_CHOICES: Final = KernelHints()
NO_RULES: Final[Mapping[str, KernelHints]] = {}
STEPS: Final = (*NAMES, "by_rule")
