"""The part of a program that compiles and runs: its kernels, their source, and the sizes that fit them.

Which kernel cache a program has, and under which key a kernel of it is kept.

Memory between kernels that several tensors take in turn: by liveness, whatever the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping

from idgraph.arith import Expr, as_expr
from idgraph.codegen.printers import kernel_source
from idgraph.display import Printed
from idgraph.errors import EmitError, arguments
from idgraph.index.int_width import Fitting, Size, check_sizes, fitting
from idgraph.ir import Fusion
from idgraph.ir.device import TARGETS
from idgraph.ir.device import TargetName as Target
from idgraph.kernel.ir import Buffer, Kernel, KernelModule, most_threads
from idgraph.runtime.kernel_cache import FORMAT, KernelCache, fallback, versions


class Executable(Printed):
    """Kernels for one target, as compilers and launches see them; `idgraph.Program` is one that can be called."""

    __slots__ = ("_fitting", "_sizes", "_sources", "cache", "fusion", "fusion_names", "plan", "target", "texts")

    def __init__(
        self,
        fusion: Fusion,
        target: Target,
        plan: KernelModule,
        cache: KernelCache | None = None,
        sizes: tuple[Size, ...] = (),
    ) -> None:
        self.fusion = fusion
        self.target: Target = target
        self.plan = plan
        self.cache = cache
        self.fusion_names = frozenset(t.name for t in fusion.tensors)
        self.texts: dict[tuple[bool, tuple[int, int]], tuple[str, ...]] = {}  # PTX, by checked and by device
        self._sizes = sizes
        self._fitting: list[Fitting] = []
        self._sources: dict[tuple[str, bool], tuple[Kernel, str]] = {}  # by name, and checked or not

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The numbers that `check_sizes` looks at."""
        return self._sizes

    @property
    def asks_for_sizes(self) -> bool:
        """Whether there are numbers that `check_sizes` looks at."""
        return bool(self._sizes)

    def fits_sizes(self, env: Mapping[str, int]) -> bool:
        """Whether `check_sizes` is known to pass."""
        return not self._sizes or any(f.holds(env) for f in self._fitting)

    @arguments(EmitError)
    def check_sizes(self, env: Mapping[str, int]) -> None:
        """Raise `EmitError` where some number does not fit 64 bits when the symbols have these values."""
        if not self.fits_sizes(env):
            found = fitting(self._sizes, env)
            if found is None:
                check_sizes(self._sizes, env)
            else:
                self._fitting.append(found)

    @arguments(EmitError)
    def kernel_source(self, kernel: Kernel, checked: bool = False) -> str:
        """One kernel as text."""
        found = self._sources.get((kernel.name, checked))
        if found is None or found[0] is not kernel:
            found = kernel, kernel_source(kernel, self.plan, TARGETS[self.target], checked)
            self._sources[kernel.name, checked] = found
        return found[1]


def cache_of(program: Executable) -> KernelCache | None:
    """Where the kernels of ``program`` are kept."""
    return program.cache or fallback()


def kernel_key(program: Executable, kernel: Kernel, checked: bool, cc: tuple[int, int]) -> str:
    """All that a kernel's PTX follows from: its source without comments, types, device and versions."""
    source = "\n".join(line.split("#")[0].rstrip() for line in program.kernel_source(kernel, checked).splitlines())
    types = ", ".join(b.dtype for b in kernel.buffers)
    form = f"{types}; {len(kernel.scalars)}; {checked}; {most_threads(kernel.launch)} threads"
    return "\n".join([FORMAT, versions(), f"sm_{cc[0]}{cc[1]}", form, source])


def live_ranges(plan: KernelModule) -> Mapping[str, tuple[int, int]]:
    """Name of a buffer -> the first and the last kernel that has it."""
    found: dict[str, tuple[int, int]] = {}
    for number, kernel in enumerate(plan.kernels):
        for b in kernel.buffers:
            found[b.name] = found.get(b.name, (number, 0))[0], number
    return found


def reused_memory(plan: KernelModule) -> Mapping[str, str]:
    """Name of a buffer -> that of the earlier one whose memory it takes; others have memory of their own.

    Only what no caller sees is shared, among tensors of equal size and type, where all kernels that have the earlier
    one have ended before the first that has the later one: kernels of a stream run one after the other. Inputs and
    outputs keep theirs, so no result lies in the memory of another.

    >>> import idgraph as ig
    >>> f = ig.Fusion("chain")
    >>> t = f.input("x", shape=(8,))
    >>> for _ in range(5):
    ...     t = ig.exp(t)
    >>> _ = f.output(t)
    >>> program = ig.emit(f, target="cpu")  # not scheduled: a kernel for each operation
    >>> titles = {b.name: b.title for b in program.plan.buffers}
    >>> {titles[a]: titles[b] for a, b in reused_memory(program.plan).items()}
    {'t3': 't1', 't4': 't2'}
    """
    ranges = live_ranges(plan)
    between = [b for b in plan.buffers if b.place == "global" and b.name in ranges]
    free: dict[tuple[Expr, str], list[tuple[int, Buffer]]] = {}  # memory, and the last kernel that has it so far
    found: dict[str, str] = {}
    for b in sorted(between, key=lambda b: ranges[b.name]):
        first, last = ranges[b.name]
        same = free.setdefault((as_expr(b.size), b.dtype), [])
        at = next((n for n, (ended, _) in enumerate(same) if ended < first), None)
        if at is None:
            same.append((last, b))
            continue
        found[b.name] = same[at][1].name
        same[at] = last, same[at][1]
    return found
