"""The address check of kernels as they run: every access of the last IR, at every step of its loops.

Each access says which operation it serves, and at which logical point. The check runs the kernel's own loops and
conditions, with each access as a comparison: the address with that of the element which the operation's definition has
there, and an array of a block or a thread with the element that was left in it. Then every logical point of every
operation that reads or writes memory must have been served: once, or again where loops are wider than the tensor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from idgraph.index import IdModel
from idgraph.ir import TensorExpr
from idgraph.ir.device import TARGETS
from idgraph.kernel.ir import Kernel, Loop, Provenance, bodies, walk
from idgraph.kernel.printer import statement_text
from idgraph.kernel.statements import Access, elements_of
from idgraph.loading import LOADING
from idgraph.lower.provenance import START
from idgraph.runtime.cuda.numba_cuda import available as cuda_available
from idgraph.runtime.program import Program
from idgraph.validate.concrete_access import Case, build_case, free_strides
from idgraph.validate.index_map_check import Engine
from idgraph.validate.kernel_check_cuda import DeviceSource, fits_device
from idgraph.validate.kernel_check_source import LOOPS, OUT, POINT, TEXT, KernelCheckSource, UntracedError
from idgraph.validate.oracle.views import Array
from idgraph.validate.reference_tables import Expected, table_bytes
from idgraph.validate.report import AddressMismatch, KernelReport

DEVICE = 1 << 24  # checks of one operation from which a device, where there is one, is sooner done
PLAIN = 200_000  # checks of one operation below which compiling takes longer than Python
LARGEST = 1 << 32  # checks of one operation; of more, a part of the outermost loop is checked
SAMPLED = 1 << 24
NEVER, TWICE = "never serves a point", "serves a point more than once"


def check_kernel_addresses(
    program: Program,
    symbols: Mapping[str, int],
    values: Mapping[str, Array],
    *,
    model: IdModel | None = None,
    seed: int = 0,
    exhaustive: bool = True,
    table_limit: int = 5 << 30,
    engine: Engine = "auto",
    advance: Callable[[int], None] | None = None,
) -> KernelReport:
    """Check every access of the kernels of ``program``; ``values`` are those of the index tensors, by name.

    ``engine`` "cuda" runs the checks of a CUDA program as kernels on the device, as "auto" does where there is one and
    much to do; "numba" and "numpy" run them on the CPU.

    Stops at the first wrong access. An operation of more than `LARGEST` checks, or whose tables would not fit, is
    checked in part, and the report says so.
    """
    f, started = program.fusion, time.perf_counter()
    at = {**symbols, **free_strides(f, symbols)}
    maps = model if model is not None else IdModel(f)
    check = _Check(program, Expected(f, at, values), at, exhaustive, table_limit, np.random.default_rng(seed), engine)
    served: dict[str, int] = {}
    accesses = points = 0
    for name in _operation_names(program):
        e = check.expected.expr(name)
        found = check.operation(name, None if e is None else build_case(maps, e, at))
        accesses += found.accesses
        points += found.points
        if found.mismatch is not None:
            return check.report(found.mismatch, accesses, points, served, started)
        if e is not None and not name.endswith(START):
            served[e.name] = found.served
        check.expected.forget(name)
        if advance is not None:
            advance(found.points)
    return check.report(None, accesses, points, served, started)


def _operation_names(program: Program) -> list[str]:
    """The operations that accesses serve, in the order of the fusion."""
    bodies = (s for k in program.kernels for s in walk(k.body))
    found = [
        *(n for n, _ in program.plan.needed),
        *(x.tensor for s in bodies if isinstance(s, Access) for x in s.serves),
    ]
    return sorted(dict.fromkeys(found), key=lambda n: (int(n[1:]) if n[1:].isdigit() else 0, n))


@dataclass(frozen=True, slots=True)
class _KernelFinding:
    mismatch: AddressMismatch | None
    accesses: int = 0
    points: int = 0
    served: int = 0


@dataclass(slots=True)
class _Check:
    program: Program
    expected: Expected
    symbols: Mapping[str, int]
    exhaustive: bool
    table_limit: int
    rng: np.random.Generator
    engine: Engine = "auto"
    engines: set[str] = field(default_factory=set[str])
    sampled: list[str] = field(default_factory=list[str])
    untraced: list[str] = field(default_factory=list[str])

    def report(
        self, mismatch: AddressMismatch | None, accesses: int, points: int, served: dict[str, int], started: float
    ) -> KernelReport:
        engine = "+".join(sorted(self.engines)) or "python"
        seconds = time.perf_counter() - started
        return KernelReport(
            mismatch, accesses, points, engine, seconds, served, tuple(self.sampled), tuple(self.untraced)
        )

    def operation(self, name: str, case: Case | None) -> _KernelFinding:
        """All accesses that serve one operation, in all kernels."""
        marks: dict[int | None, Array] = {}
        accesses = points = 0
        whole = True
        on_device = self.on_device(name)
        for kernel in self.program.kernels:
            mine = [s for s in walk(kernel.body) if isinstance(s, Access) and any(x.tensor == name for x in s.serves)]
            if not mine:
                continue
            steps = _estimate_checks(kernel, name, self.symbols)
            part = self.part(name, case, steps)
            whole &= part is None
            try:
                source, text, engine = self.source(kernel, name, part, steps, on_device)
            except UntracedError as problem:
                self.untraced.append(f"{name} in {kernel.name}: {problem}")
                return _KernelFinding(None)
            out = np.zeros(OUT, np.int64)
            self.engines.add(engine)
            _run(source, text, engine, out)
            for operand, key in source.seen.items():
                served_here = source.arrays[key]
                known = marks.get(operand)
                marks[operand] = served_here if known is None else np.add(known, served_here, dtype=np.int32)
            accesses += len(mine)
            points += int(out[4])
            if out[0]:
                return _KernelFinding(self.mismatch(source, out), accesses, points)
        if not whole or case is None:
            return _KernelFinding(None, accesses, points)
        for operand in (k for n, k in self.program.plan.needed if n == name):
            at = self.expected.write(name).shape if operand is None else self.expected.read(name, operand).wanted.shape
            marks.setdefault(operand, np.zeros(at or (1,), np.uint8))  # where nobody serves it any more
        missing = self.coverage(name, case, marks)
        served = max((int(np.count_nonzero(m)) for m in marks.values()), default=0)
        return _KernelFinding(missing, accesses, points, served)

    def source(
        self, kernel: Kernel, name: str, part: tuple[int, int] | None, steps: int, on_device: bool
    ) -> tuple[KernelCheckSource, str, str]:
        """(the check of an operation in a kernel, its text, the engine that runs it)."""
        threads = TARGETS[self.program.target].threads
        if on_device:
            made = DeviceSource(kernel, name, self.expected, self.symbols, "numba", threads, part)
            text = made.build()
            if fits_device(made):
                return made, text, "cuda"
        engine = "numba" if steps > PLAIN else "python"
        source = KernelCheckSource(kernel, name, self.expected, self.symbols, engine, threads, part)
        return source, source.build(), engine

    def on_device(self, name: str) -> bool:
        """Whether the checks of an operation run on the device: it has the same threads, and there is much to do."""
        if not TARGETS[self.program.target].threads or self.engine not in ("auto", "cuda"):
            return False
        return self.engine == "cuda" or (
            sum(_estimate_checks(k, name, self.symbols) for k in self.program.kernels) > DEVICE and cuda_available()
        )

    def part(self, name: str, case: Case | None, steps: int) -> tuple[int, int] | None:
        """The part of the outermost loops that is checked, None for all."""
        fits = case is None or table_bytes(case) <= self.table_limit
        if self.exhaustive and steps <= LARGEST and fits:
            return None
        size = max(1, min(1024, 1024 * SAMPLED // max(1, steps)))
        first = int(self.rng.integers(0, 1024 - size + 1))
        self.sampled.append(f"{name}: {size} of 1024 parts of the outermost loop; coverage not checked")
        return first, first + size

    def coverage(self, name: str, case: Case, marks: Mapping[int | None, Array]) -> AddressMismatch | None:
        """A point that the operation needs and no access served, or that one served twice."""
        e = case.expr
        for operand, mark in sorted(marks.items(), key=lambda m: -1 if m[0] is None else m[0]):
            needed: Array = np.ones(mark.shape, np.bool_)
            if operand is None and not name.endswith(START) and (made := self.expected.write(name).wanted) is not None:
                needed = (made >= 0).reshape(mark.shape)
            if operand is not None:
                needed = (self.expected.read(name, operand).wanted >= 0).reshape(mark.shape)
            if not case.must_cover and not name.endswith(START):
                needed = needed & self.expected.needed_points(name, operand is None).reshape(mark.shape)
            if bool((needed & (mark == 0)).any()):
                return _uncovered(e, operand, NEVER, np.argwhere(needed & (mark == 0))[0])
            if operand is None and not case.widened and bool((mark > 1).any()):
                return _uncovered(e, operand, TWICE, np.argwhere(mark > 1)[0])
        return None

    def mismatch(self, source: KernelCheckSource, out: Array) -> AddressMismatch:
        """The counterexample that a check wrote down."""
        code, number, address, want = (int(n) for n in out[:4])
        place = source.places[number]
        e = self.expected.expr(place.purpose.tensor)
        loops = {v: int(n) for v, n in zip(place.loops, out[LOOPS:], strict=False)}
        point = tuple(int(n) for n in out[POINT : POINT + len(place.purpose.point)])
        expected = self.expected_address(place.purpose, want) if want >= 0 else None
        tensor = "" if place.access.buffer is None else place.access.buffer.title
        return AddressMismatch(
            f"{source.kernel.name} {TEXT[code]}", repr(e) if e is not None else place.purpose.tensor, tensor,
            place.purpose.operand, loops, point or None, None, want if want >= 0 else None, address, expected,
            (statement_text(place.access),),
        )  # fmt: skip

    def expected_address(self, purpose: Provenance, element: int) -> int:
        """The address of an element of the tensor that an access is for."""
        if self.expected.expr(purpose.tensor) is None:
            return element
        k = purpose.operand
        table = (self.expected.write(purpose.tensor) if k is None else self.expected.read(purpose.tensor, k)).addresses
        return element if table is None else int(table[element])


def _uncovered(e: TensorExpr, operand: int | None, kind: str, at: Array) -> AddressMismatch:
    t = e.output if operand is None else e.inputs[operand]
    point = tuple(int(c) for c in at)
    return AddressMismatch(kind, repr(e), t.name, operand, {}, point, None, None, None, None)


def _estimate_checks(kernel: Kernel, name: str, symbols: Mapping[str, int]) -> int:
    """About how many checks there are: steps of the loops around each access."""
    total = 0

    def visit(body: tuple[Any, ...], times: int) -> None:
        nonlocal total
        for s in body:
            if isinstance(s, Access):
                total += times * elements_of(s) * sum(x.tensor == name for x in s.serves)
            inner = times
            if isinstance(s, Loop):
                bare = {x: symbols.get(x.name.rstrip("'"), 1 << 6) for x in s.extent.symbols}
                inner *= max(1, int(s.extent.substitute(bare))) if bare else int(s.extent)
            visit(bodies(s), inner)

    visit(kernel.body, 1)
    return total


def _run(source: KernelCheckSource, text: str, engine: str, out: Array) -> None:
    """Run a check; its marks and what it found are in ``source.arrays`` and ``out`` then."""
    with LOADING:
        from idgraph.validate.engines import compiled_check, load_source  # noqa: PLC0415

    if isinstance(source, DeviceSource):
        with LOADING:
            from idgraph.validate.engines import run_kernel_check  # noqa: PLC0415

        run_kernel_check(source, text, out)
        return
    check = compiled_check(text) if engine == "numba" else load_source(text, "kernel_check").check
    check(out, *source.arrays.values())
