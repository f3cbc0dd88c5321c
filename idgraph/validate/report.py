"""The result of a check: a Report, and for a failure the smallest counterexample."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from idgraph.display import Printed, Sheet


@dataclass(frozen=True, slots=True)
class AddressMismatch(Printed):
    """One access that goes wrong at one point of its loops, the first in the order of the loops.

    ``operand`` is None for the write. ``element`` is the row-major element number the access has, ``expected`` the one
    that the operation's definition has there (None: none); ``address`` and ``expected_address`` are elements from the
    start of the buffer. ``path`` says how the loops lead to the axes of the tensor.
    """

    kind: str
    expr: str
    tensor: str
    operand: int | None
    point: Mapping[str, int]
    coordinates: tuple[int, ...] | None
    element: int | None
    expected: int | None
    address: int | None
    expected_address: int | None
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = "writes" if self.operand is None else f"reads (operand {self.operand})"
        lines = [f"{self.kind}: {self.expr}", f"  {verb} {self.tensor}"]
        at = ", ".join(f"{name} = {value}" for name, value in self.point.items())
        lines.append(f"  at the loop point {at or '(no loops)'}")
        if self.coordinates is not None:
            lines.append(f"  index map: coordinates {self.coordinates}, element {self.element}, address {self.address}")
        said = "no element" if self.expected is None else f"element {self.expected}, address {self.expected_address}"
        lines.append(f"  definition: {said}")
        return "\n".join([*lines, *(f"  path: {step}" for step in self.path)])

    __repr__ = __str__

    def sheet(self) -> Sheet:
        """The notebook form: the access, the point, both answers."""
        return _failure(str(self))


@dataclass(frozen=True, slots=True)
class ValueMismatch(Printed):
    """One element of an output whose value is not what the definition says."""

    tensor: str
    coordinates: tuple[int, ...]
    value: float | int | bool
    expected: float | int | bool
    tolerance: float
    wrong: int
    elements: int
    note: str = ""

    def __str__(self) -> str:
        lines = [
            f"wrong value: {self.tensor}[{', '.join(map(str, self.coordinates))}]",
            f"  kernel: {self.value!r}",
            f"  definition: {self.expected!r} (tolerance {self.tolerance:.3g})",
            f"  {self.wrong} of {self.elements} elements differ",
        ]
        if not self.elements:
            return f"wrong run of {self.tensor}: {self.note}"
        return "\n".join([*lines, f"  {self.note}"] if self.note else lines)

    __repr__ = __str__

    def sheet(self) -> Sheet:
        """The notebook form: the element and both values."""
        return _failure(str(self))


def _failure(text: str) -> Sheet:
    """Its first line in red, the others as facts: ``name: value``."""
    title, *rest = text.splitlines()
    facts = [line.strip().partition(": ") for line in rest]
    return Sheet(title, ("", ""), tuple((a, b) if sep else ("", a) for a, sep, b in facts), good=False)


Mismatch = AddressMismatch | ValueMismatch


@dataclass(frozen=True, slots=True)
class _AccessCheck:
    mismatch: AddressMismatch | None
    accesses: int
    points: int
    engine: str
    seconds: float

    @property
    def ok(self) -> bool:
        """No mismatch."""
        return self.mismatch is None

    def __bool__(self) -> bool:
        return self.ok

    def __int__(self) -> int:
        return self.points


@dataclass(frozen=True, slots=True)
class AddressReport(_AccessCheck):
    """The address check: how much was looked at, and how. True when every access was right.

    ``points`` counts (access, loop point) pairs. ``exhaustive`` is False where some operation was too large and only a
    sample of its points was looked at (``sampled`` names them). ``widened`` names operations with a promoted loop
    (inlined where a consumer's axis gives the extent): those visit an element at least once, all others exactly once.
    Of the ``seconds``, ``looking`` were spent at points, the rest on the oracle's tables (on a GPU also on compiling
    and copying).

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.roll(f.input("x", shape=(8,)), 3, 0))
    >>> r = ig.validate(f, target="python").addresses
    >>> r.ok, r.exhaustive, r.points
    (True, True, 16)
    """

    sampled: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    looking: float = 0.0

    @property
    def exhaustive(self) -> bool:
        """Every point of every access was checked."""
        return not self.sampled


@dataclass(frozen=True, slots=True)
class KernelReport(_AccessCheck):
    """The address check of the kernels as they run: every access of the last IR. True when every one was right.

    ``served`` counts, for each operation that reads or writes memory, the logical points that accesses served.
    ``points`` counts (access, purpose, step of its loops); ``sampled`` names operations that were looked at in part,
    ``untraced`` those that the check could not follow, and why.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.roll(f.input("x", shape=(8,)), 3, 0))
    >>> r = ig.validate(f, target="python").kernels
    >>> r.ok, r.exhaustive, r.served
    (True, True, {'roll0': 8})
    """

    served: Mapping[str, int]
    sampled: tuple[str, ...] = ()
    untraced: tuple[str, ...] = ()

    @property
    def exhaustive(self) -> bool:
        """Every step of every access was checked."""
        return not self.sampled and not self.untraced


@dataclass(frozen=True, slots=True)
class TensorError:
    """The largest difference found in one output, beside what was allowed; ``elements`` were compared."""

    tensor: str
    dtype: str
    elements: int
    largest: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class ValueReport:
    """The value check: a kernel run on random data against the float64 oracle. True when all values were right.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.roll(f.input("x", shape=(8,)), 3, 0))
    >>> r = ig.validate(f, target="python").values
    >>> r.ok, r.elements
    (True, 8)
    """

    mismatch: ValueMismatch | None
    target: str
    errors: tuple[TensorError, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """No mismatch."""
        return self.mismatch is None

    @property
    def elements(self) -> int:
        """Output elements compared."""
        return sum(e.elements for e in self.errors)

    def __bool__(self) -> bool:
        return self.ok

    def __int__(self) -> int:
        return self.elements


@dataclass(frozen=True, slots=True)
class Report(Printed):
    """The result of `validate`. ``counterexample`` is None when all is well.

    >>> import idgraph as ig
    >>> from idgraph.validate import validate
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.roll(f.input("x", shape=(8,)), 3, 0))
    >>> r = validate(f, target="python")
    >>> r.ok, r.points, r.counterexample
    (True, 16, None)
    >>> r.served
    {'roll0': 8}
    """

    fusion: str
    target: str
    seed: int
    addresses: AddressReport | None
    values: ValueReport | None
    kernels: KernelReport | None = None

    @property
    def served(self) -> Mapping[str, int]:
        """For each operation that reads or writes memory, the logical points that the kernels' accesses served."""
        return self.kernels.served if self.kernels is not None else {}

    @property
    def ok(self) -> bool:
        """The checks, as far as they ran, found nothing wrong."""
        return self.counterexample is None

    @property
    def points(self) -> int:
        """(access, loop point) pairs whose address was checked."""
        return self.addresses.points if self.addresses is not None else 0

    @property
    def counterexample(self) -> Mismatch | None:
        """The mismatch of the index maps where there is one, else of the kernels' addresses, else of the values."""
        if self.addresses is not None and self.addresses.mismatch is not None:
            return self.addresses.mismatch
        if self.kernels is not None and self.kernels.mismatch is not None:
            return self.kernels.mismatch
        return self.values.mismatch if self.values is not None else None

    def __bool__(self) -> bool:
        return self.ok

    def sheet(self) -> Sheet:
        """The verdict in green or red, what was checked, and the counterexample."""
        title, *rest = str(self).splitlines()
        return Sheet(title, notes=tuple(rest), good=self.ok)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [f"{self.fusion} on {self.target}: {'ok' if self.ok else 'FAILED'} (seed {self.seed})"]
        if self.addresses is not None:
            lines += _address_lines(self.addresses)
        if self.kernels is not None:
            lines += _kernel_lines(self.kernels)
        if self.values is not None:
            lines += _value_lines(self.values)
        elif not all(r is None or r.ok for r in (self.addresses, self.kernels)):
            lines.append("  values: not run, because an address is wrong")
        if self.counterexample is not None:
            lines.append(str(self.counterexample))
        return "\n".join(lines)


def _address_lines(a: AddressReport) -> list[str]:
    how = "every point" if a.exhaustive else "a sample of the points"
    rate = a.points / a.seconds / 1e6 if a.seconds > 0 else 0.0
    lines = [
        f"  addresses: {'ok' if a.ok else 'WRONG'}, {a.accesses} accesses, {a.points:,} checks ({how}), "
        f"{a.engine}, {a.seconds:.2f} s, {rate:.0f} M/s"
    ]
    lines += [f"    sampled: {s}" for s in a.sampled]
    lines += [f"    visited at least once (wider loops): {s}" for s in a.widened]
    return lines


def _kernel_lines(k: KernelReport) -> list[str]:
    how = "every step" if k.exhaustive else "a part of the steps"
    lines = [
        f"  kernels: {'ok' if k.ok else 'WRONG'}, {k.accesses} accesses, {k.points:,} checks ({how}), "
        f"{k.engine}, {k.seconds:.2f} s"
    ]
    lines += [f"    sampled: {s}" for s in k.sampled]
    return [*lines, *(f"    not followed: {s}" for s in k.untraced)]


def _value_lines(v: ValueReport) -> list[str]:
    lines = [f"  values: {'ok' if v.ok else 'WRONG'}, {v.elements:,} elements, {v.seconds:.2f} s"]
    for e in v.errors:
        lines.append(f"    {e.tensor} ({e.dtype}): largest error {e.largest:.3g}, allowed {e.tolerance:.3g}")
    return lines


OUTSIDE_WRITE: Final = 2
ADDRESS: Final = 3
OUTSIDE_READ: Final = 4
ELEMENT: Final = 5
LOOSE: Final = 6
STRICT: Final = 7
UNWRITTEN: Final = 8
SLOT_RANGE: Final = 9
SLOT_ELEMENT: Final = 10
SLOT_EMPTY: Final = 11
LOAD_RANGE: Final = 12
LOAD_BOUNDS: Final = 13
SPREAD: Final = 14
TWICE: Final = 15
NEVER: Final = 16
REDUCED: Final = 17

TEXT: Final = {
    OUTSIDE_WRITE: "writes outside the tensor",
    ADDRESS: "wrong address",
    OUTSIDE_READ: "reads outside the tensor",
    ELEMENT: "reads the wrong element",
    LOOSE: "reads where the operation reads nothing (a missing predicate)",
    STRICT: "does not read what the operation reads (a predicate too strict)",
    UNWRITTEN: "reads where nothing is written",
    SLOT_RANGE: "reads a buffer slot outside the producer's loops",
    SLOT_ELEMENT: "reads a buffer slot that holds another element",
    SLOT_EMPTY: "reads a buffer slot that is never written",
    LOAD_RANGE: "loads an index outside the index tensor",
    LOAD_BOUNDS: "its own load bounds refuse an index that is in range",
    SPREAD: "one accumulator gets terms of several elements",
    TWICE: "writes an element more than once",
    NEVER: "never writes an element",
    REDUCED: "reduces an index more than once, or not at all",
}


@dataclass(frozen=True, slots=True)
class Scan:
    """The first faulty point (row-major over the loops), its fault code and access; ``writes`` counts right points.

    ``seconds`` is the time spent only on points, where an engine can separate it from compiling and copying.
    """

    writes: int
    bad: int | None
    code: int = 0
    place: int = 0
    seconds: float | None = None


Advance = Callable[[int], None]
Progress = Callable[[str, int], AbstractContextManager[Advance]]


def _nothing(_: int) -> None:
    return None


@contextmanager
def silent(_title: str, _total: int) -> Generator[Advance]:
    """No progress is shown."""
    yield _nothing


@contextmanager
def terminal(title: str, total: int) -> Generator[Advance]:
    """A bar on stderr for work that takes a while; nothing where stderr is not a terminal."""
    if total < 50_000_000 or not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)

        def advance(count: int) -> None:
            bar.advance(task, count)

        yield advance


@contextmanager
def busy(title: str) -> Generator[Callable[[str], None]]:
    """A moving sign on stderr for work of unknown length; nothing where stderr is not a terminal.

    What it gives takes the name of the step that begins.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415

    with Console(stderr=True).status(escape(title)) as status:
        yield lambda step: status.update(escape(f"{title}: {step}"))
