"""KernelConfig: which of several equal kernels, as numbers that a rule or a measurement chooses.

Blocks, threads and vectors: what the automatic schedules share of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from idgraph.errors import ScheduleError, arguments
from idgraph.ir import Tensor
from idgraph.ir.device import current_device
from idgraph.ir.schedule_log import MAX_ELEMENTS, check_choice

MAX_VECTORS = 16


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """One of the kernels that compute the same; None leaves a choice to the rule.

    ``threads`` of a row are a power of two or whole warps, ``rows`` of a block (on the CPU: of a task) a power of two.
    Work element by element: ``block`` is the number of threads of a block, ``vectors`` how many accesses to each array
    one thread has under way, ``apart`` gives the parts that cuts leave (halves of a rotation) threads of their own;
    without ``realigned`` rows that begin at another alignment than those written are read element by element, by
    neighbouring threads; with ``whole_steps`` a thread takes all of a short innermost axis (the channels of a picture).
    Rows: ``items_per_thread`` are on a GPU those whose loads one thread has under way, on the CPU those whose terms are
    added up in float32 before they go to a float64 sum; ``online`` takes sums relative to a running maximum, in the
    pass that finds it; ``persistent`` holds a row between its passes, in registers of the threads (up to 64 values), on
    the CPU in an array (values that are expensive to compute). ``parallel``: on the CPU on all cores.

    Given to `ig.schedule.auto`; `ig.emit` takes it from the fusion. Raises `ScheduleError` for numbers
    that no kernel can have.

    >>> print(KernelConfig(threads=128, persistent=True))
    threads=128 persistent=True
    >>> print(KernelConfig())
    rule
    """

    threads: int | None = None
    rows: int | None = None
    block: int | None = None
    vectors: int | None = None
    apart: bool | None = None
    realigned: bool | None = None
    whole_steps: bool | None = None
    items_per_thread: int | None = None
    online: bool | None = None
    persistent: bool | None = None
    parallel: bool | None = None

    def __post_init__(self) -> None:
        threads = current_device().block_threads
        most = {
            "threads": threads, "rows": threads, "block": threads,
            "vectors": MAX_VECTORS, "items_per_thread": MAX_ELEMENTS,
        }  # fmt: skip
        for f in fields(self):
            value: object = getattr(self, f.name)
            if value is not None:
                check_choice(f.name, value, "a KernelConfig", most.get(f.name))

    def but(self, **choices: Any) -> KernelConfig:
        """The same with other choices.

        >>> print(KernelConfig(threads=128).but(rows=2))
        threads=128 rows=2
        """
        return replace(self, **choices)

    def to_data(self) -> dict[str, int | bool]:
        """The choices that are made, by name.

        >>> KernelConfig(threads=128, persistent=True).to_data()
        {'threads': 128, 'persistent': True}
        """
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}

    @staticmethod
    @arguments(ScheduleError)
    def from_data(data: Mapping[str, object]) -> KernelConfig:
        """The inverse of `to_data`; raises `ScheduleError` for anything else.

        >>> KernelConfig.from_data({"rows": 4}).rows
        4
        """
        known = {f.name for f in fields(KernelConfig)}
        made: dict[str, Any] = {}  # the constructor says what is wrong with values
        for name, value in data.items():
            if name not in known or not isinstance(value, (int, bool)):
                raise ScheduleError(f"{str(name)[:40]!r} is not a field of KernelConfig", hint=", ".join(sorted(known)))
            made[name] = value
        return KernelConfig(**made)

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.to_data().items()) or "rule"


RULE = KernelConfig()


ADDED_TOGETHER: Final = ("float32",)  # types of which a device adds several elements of memory at once


def cut_blocks(t: Tensor, count: int, block: int, vectors: int = 1) -> None:
    """The first ``count`` loops of ``t`` as one, cut into blocks of ``block`` threads.

    A thread takes ``vectors`` points, a block apart, so that neighbouring threads stay neighbours in memory.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", (64, 32)) + 1.0)
    >>> cut_blocks(t, 2, 128, vectors=4)
    >>> [(str(d.extent), d.parallel) for d in t.loop]
    [('4', 'serial'), ('128', 'serial'), ('4', 'unroll')]
    """
    for _ in range(count - 1):
        t.merge(0)
    t.split(0, block * vectors)
    if vectors > 1:
        t.split(1, block).reorder({1: 2}).parallelize(2, "unroll")


HELD = 64  # values of a row, and of all that is kept of it, in one thread of a GPU
OTHERS = 32  # registers of a thread for addresses, sums and loads in flight


def most_values(threads: int) -> int:
    """Values of a row that each thread of a block of ``threads`` can hold beside its other registers.

    >>> most_values(256), most_values(1024)
    (64, 32)
    """
    return min(HELD, current_device().registers // threads - OTHERS)
