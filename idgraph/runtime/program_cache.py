"""Programs on disk: what the schedule and the emission of a fusion came to, so that a later process does neither.

An entry is text under the key of all that it follows from: the fusion, the target, the devices in force, and every
module of the library with what it computes with. It holds the scheduled fusion and the kernels in their text forms,
which the parsers of `idgraph.ir` and `idgraph.kernel` read back exactly, beside what no text shows: memory, numbers
that calls check, decisions. Nothing is evaluated. What cannot be read is made anew.

Fusions that differ in names and lines only share an entry, unless a kernel names tensors in the errors of a call.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from idgraph.arith import Expr
from idgraph.codegen.printers.scalar import site_numbers
from idgraph.errors import IdGraphError, SourceLine
from idgraph.index.int_width import Size
from idgraph.ir import Fusion, parse_fusion
from idgraph.ir.device import TargetName as Target
from idgraph.ir.device import current_device
from idgraph.ir.printer import numbered_text
from idgraph.ir.schedule_log import Decision, Format, Option, Saving, TilingDecision
from idgraph.kernel.ir import Comment, If, Index, Kernel, KernelModule, LaneWidth, Let, Stmt
from idgraph.kernel.parser import parse
from idgraph.runtime.kernel_cache import KernelCache
from idgraph.runtime.program import Program

FORMAT = "idgraph program 1"
SUFFIX = ".program"
COMPUTES = ("numpy", "sympy", "networkx", "numba", "numba-cuda", "torch")  # packages that a program may follow from


@dataclass(frozen=True, slots=True)
class ScheduledProgram:
    """The kernels of a fusion, or of an equal one; ``names`` are those of its tensors there, in their order.
    ``loaded``: they come from a folder."""

    program: Program
    names: tuple[str, ...]
    loaded: bool = False


@dataclass(frozen=True, slots=True)
class ProgramCache:
    """The programs of a folder, which those of `KernelCache` share. ``shared``: one of an equal fusion serves too.

    >>> import tempfile
    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> y = f.output(ig.exp(f.input("x", shape=(8,))))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     known = ProgramCache(Path(folder))
    ...     before = known.find(f, "cpu")
    ...     known.put(f, ig.emit(f, "cpu"))
    ...     found = known.find(f, "cpu")
    >>> before is None, found.names, found.program.source == ig.emit(f, "cpu").source
    (True, ('x', 't1'), True)
    """

    folder: Path
    shared: bool = False

    @property
    def _texts(self) -> KernelCache:
        return KernelCache(self.folder, SUFFIX)

    def find(self, fusion: Fusion, target: Target) -> ScheduledProgram | None:
        """The program of ``fusion``; None where there is none that can be read."""
        for shared in (True, False) if self.shared else (False,):
            text = self._texts.find(program_key(fusion, target, shared))
            found = None if text is None else read_program(text, target, KernelCache(self.folder))
            if found is not None and len(found.names) == len(fusion.tensors):
                return found
        return None

    def has(self, fusion: Fusion, target: Target) -> bool:
        """Whether there is an entry, which may not be readable."""
        keys = [program_key(fusion, target, shared) for shared in ((True, False) if self.shared else (False,))]
        return any(self._texts.find(key) is not None for key in keys)

    def put(self, fusion: Fusion, program: Program) -> None:
        """Store what ``fusion`` became. Raises `EmitError` where the folder cannot be written."""
        text = program_text(program, tuple(t.name for t in fusion.tensors))
        if text is None:
            return
        shared = self.shared and not any(site_numbers(k) for k in program.plan.kernels)
        self._texts.put(program_key(fusion, program.target, shared), text)


def program_key(fusion: Fusion, target: Target, shared: bool) -> str:
    """All that a program follows from. ``shared``: whatever the names and the lines of the fusion.

    >>> import idgraph as ig
    >>> def key(name, size, shared):
    ...     f = ig.Fusion("f")
    ...     _ = f.output(ig.exp(f.input(name, shape=(size,))))
    ...     return program_key(f, "cuda", shared)
    >>> key("a", 8, True) == key("b", 8, True), key("a", 8, False) == key("b", 8, False)
    (True, False)
    >>> key("a", 8, True) == key("a", 9, True)
    False
    """
    used = [current_device("cuda").to_json(), current_device("cpu").to_json()]
    if shared:
        return "\n".join([FORMAT, library_digest(), target, *used, "numbered", numbered_text(fusion)])
    lines = [str(e.source_line) for e in fusion.exprs]
    return "\n".join([FORMAT, library_digest(), target, *used, "named", str(fusion), *lines])


@cache
def library_digest() -> str:
    """A digest of all modules of the library, and of the packages that they compute with."""
    made = hashlib.sha256(sys.version.encode())
    for package in COMPUTES:
        try:
            made.update(f"{package} {metadata.version(package)}\n".encode())
        except metadata.PackageNotFoundError:
            made.update(f"{package} none\n".encode())
    top = Path(__file__).parent.parent
    for f in sorted(top.rglob("*.py")):
        made.update(f"{f.relative_to(top)}\n".encode())
        made.update(f.read_bytes())
    return made.hexdigest()


def program_text(program: Program, names: Sequence[str]) -> str | None:
    """The text of a program; None where a number that its calls check has no text of its own."""
    fusion, plan = program.fusion, program.plan
    sizes = Kernel("sizes", (), (), tuple(_as_statement(s.value) for s in program.sizes))
    if program.views or _parsed(str(sizes)) != sizes:
        return None
    return json.dumps({
        "names": list(names),
        "fusion": str(fusion),
        "outputs": [t.name for t in program.outputs],
        "memory": str(Kernel("memory", plan.buffers, (), ())),
        "kernels": [str(k) for k in plan.kernels],
        "widths": [[asdict(w) for w in k.widths] for k in plan.kernels],
        "symbols": plan.names,
        "titles": plan.titles,
        "needed": sorted(plan.needed, key=str),
        "sizes": str(sizes),
        "checks": [[s.tensor.name, s.what, None if s.line is None else asdict(s.line)] for s in program.sizes],
        "decisions": [asdict(d) for d in fusion.decisions],
        "formats": [asdict(d) for d in fusion.formats],
        "tilings": [asdict(d) for d in fusion.tilings],
    })  # fmt: skip


def _as_statement(value: Expr) -> Stmt:
    """A statement of the expression, whose text declares the ranges of its names."""
    return If(value, (Comment("checked"),)) if value.cond else Let("number", Index(value))


def _expression(s: Stmt) -> Expr:
    match s:
        case If(condition=value) | Let(value=Index(value=value)):
            return value
        case _:
            raise ValueError(f"{s} is not a number that calls check")


def _parsed(text: str) -> Kernel | None:
    try:
        return parse(text)
    except IdGraphError:
        return None


def read_program(text: str, target: Target, cache: KernelCache | None) -> ScheduledProgram | None:
    """The program of `program_text`; None where it is not one."""
    try:
        entry = cast("dict[str, Any]", json.loads(text))
        fusion = parse_fusion(entry["fusion"])
        fusion.decisions = tuple(_decision(d) for d in entry["decisions"])
        fusion.formats = tuple(Format(d["tensor"], tuple(d["order"]), d["summary"], d["at"]) for d in entry["formats"])
        fusion.tilings = tuple(TilingDecision(**d) for d in entry["tilings"])
        kernels = tuple(
            replace(parse(k), widths=tuple(LaneWidth(**w) for w in widths))
            for k, widths in zip(entry["kernels"], entry["widths"], strict=True)
        )
        needed = frozenset((str(t), k) for t, k in entry["needed"])
        plan = KernelModule(kernels, parse(entry["memory"]).buffers, entry["symbols"], entry["titles"], needed)
        values = [_expression(s) for s in parse(entry["sizes"]).body]
        sizes = tuple(
            Size(fusion[name], what, value, None if line is None else SourceLine(**line))
            for (name, what, line), value in zip(entry["checks"], values, strict=True)
        )
        outputs = tuple(fusion[name] for name in entry["outputs"])
        return ScheduledProgram(Program(fusion, target, plan, cache, sizes, outputs), tuple(entry["names"]), True)
    except (IdGraphError, KeyError, TypeError, ValueError):
        return None


def _decision(given: Mapping[str, Any]) -> Decision:
    read, saved = dict(given), given["saved"]
    read["rejected"] = tuple([Option(**o) for o in given["rejected"]])
    read["saved"] = None if saved is None else Saving(**saved)
    read["proof"] = tuple(given["proof"])
    return Decision(**read)
