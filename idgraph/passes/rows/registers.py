"""Rows in registers (persistent): a row is read once, and each thread keeps its columns for every pass over them.

A thread's columns are straight-line code, so that the arrays which keep them are indexed by constants only, and
compilers hold them in registers. That needs a row of known length, of which no thread gets too much.
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import TRUE, Expr, as_expr, multiple_of, simplify, symbol
from idgraph.errors import EmitError
from idgraph.ir.choices import KernelHints
from idgraph.ir.targets import GPU
from idgraph.kernel.ir import Alloc, If, Loop, Stmt
from idgraph.passes.rows.chunks import columnwise, straight
from idgraph.passes.rows.hoist import cheaper, hoisted, is_short
from idgraph.passes.rows.join import fuse_reduction_loops
from idgraph.passes.rows.keep import cache_row_values
from idgraph.passes.rows.sweep import COLUMN, ReductionLoop
from idgraph.passes.unroll import Lane
from idgraph.schedule.row_rule import CONDITIONS, DIGITS, HELD, NO_VALUE, ONE_PASS, OTHERS, REGISTERS


def persistent_in_registers(
    body: Sequence[Stmt], read_only: frozenset[str], choices: KernelHints
) -> tuple[list[Stmt] | None, str]:
    """The statements of one level with their row in registers, and how many they are; or None, and why: it does not
    fit, or is passed over once. Where ``choices`` ask for it, `EmitError` says why a row passed over twice cannot be.
    """
    asked = choices.persistent is True
    parts = fuse_reduction_loops(body, online=False, of_row=True)
    sweeps = [p for p in parts if isinstance(p, ReductionLoop)]
    if len(sweeps) < 2:
        return None, DIGITS if any(isinstance(p, Loop) and p.column is not None for p in parts) else ONE_PASS
    if not all(_fits(sweeps[0], s) for s in sweeps):
        length = sweeps[0].extent
        why = "its passes run over different columns or threads" if length.is_const else f"its length {length} is open"
        if not asked:
            return None, why
        raise persistence_error(choices, why)
    lead, columns = sweeps[0], int(sweeps[0].extent)
    width = _width(sweeps, columns)
    step = lead.threads * width
    elements = -(-columns // step) * width
    found = cache_row_values(
        parts, read_only, loads=True, at=symbol(f"{COLUMN}_kept", 0, elements - 1), size=as_expr(elements)
    )
    arrays = len(found.buffers)
    if not arrays or not _is_room(elements * arrays, lead.threads):
        why = _too_much(columns, elements * arrays, lead) if arrays else _nothing(sweeps)
        if not asked:
            return None, why
        raise persistence_error(choices, why, _with_threads(columns, width, arrays) if arrays else None)
    made: list[Stmt] = [Alloc(b) for b in found.buffers]
    for before, part in zip(parts, found.parts, strict=True):
        if isinstance(before, ReductionLoop) and isinstance(part, ReductionLoop):
            made += _passed(part, is_short(before), width, elements, read_only)
        elif not isinstance(part, ReductionLoop):
            made.append(part)
    return made, f"each of {lead.threads} threads holds {elements * arrays} values, of {HELD} at most"


def _is_room(held: int, threads: int) -> bool:
    """True where a block has registers for so many values of each thread, and what else a thread needs."""
    return held <= HELD and threads * (held + OTHERS) <= REGISTERS


def _too_much(columns: int, held: int, lead: ReductionLoop) -> str:
    most = min(HELD, REGISTERS // lead.threads - OTHERS)
    return f"each of the {lead.threads} threads of its {columns} columns would hold {held} values, at most {most} fit"


def _nothing(sweeps: Sequence[ReductionLoop]) -> str:
    """Why no value is held: values that are set under a condition (a part of a `cat`) are not compared."""
    return CONDITIONS if any(isinstance(x, If) for s in sweeps for x in s.body) else NO_VALUE


def _with_threads(columns: int, width: int, arrays: int) -> str | None:
    """The least number of threads that can hold the row between them; None where no block can."""
    threads = 1
    while threads <= GPU.max_threads:
        if _is_room(-(-columns // (threads * width)) * width * arrays, threads):
            return f"KernelConfig(threads={threads}) or persistent(False), which reads the row again"
        threads *= 2
    return None


def persistence_error(choices: KernelHints, why: str, hint: str | None = None) -> EmitError:
    """The error of a row that shall be kept and cannot be."""
    return EmitError(
        f"{choices.of or 'a row'}: not persistent",
        because=(why,),
        hint=hint or "persistent(False), which reads the row again",
    )


def _fits(lead: ReductionLoop, s: ReductionLoop) -> bool:
    """The same columns, as many as are known, on the same threads."""
    same = s.extent == lead.extent and s.condition == lead.condition and s.column == lead.column
    return same and s.extent.is_const and int(s.extent) > 0 and (s.way, s.threads, s.lanes) == (
        lead.way, lead.threads, lead.lanes
    )  # fmt: skip


def _width(sweeps: Sequence[ReductionLoop], columns: int) -> int:
    """Elements of one access: as many as divide the row and where every row starts."""
    width = sweeps[0].lanes
    while width > 1 and (columns % width or not all(multiple_of(a, width) for s in sweeps for a in columnwise(s))):
        width //= 2
    return width


def _passed(s: ReductionLoop, short: bool, width: int, elements: int, read_only: frozenset[str]) -> list[Stmt]:
    """One pass: the chunks that every thread has, and one more where the row has it."""
    fixed, s = hoisted(s, read_only)
    s = cheaper(s, fixed, short)
    thread = symbol(s.thread, 0, s.threads - 1) if s.way else as_expr(0)
    chunks, all_have = int(s.extent) // width, int(s.extent) // (width * s.threads)
    inner: list[Stmt] = []
    if all_have:
        inner += _chunks(s, thread, 0, all_have, width, read_only)
    if all_have * width < elements:
        chunk = simplify(thread + all_have * s.threads)
        inner.append(If(chunk < chunks, tuple(_chunks(s, thread, all_have, 1, width, read_only))))
    body: list[Stmt] = [Loop(s.thread, as_expr(s.threads), s.way, tuple(inner), s.loops[0].note)] if s.way else inner
    whole = (*fixed, *body)
    return [If(s.condition, whole)] if s.condition != TRUE else list(whole)


def _chunks(
    s: ReductionLoop, thread: Expr, first: int, count: int, width: int, read_only: frozenset[str]
) -> list[Stmt]:
    """Straight-line code for ``count`` of a thread's chunks, from its ``first`` on."""
    lane = symbol(f"{COLUMN}_lane", 0, count * width - 1)
    chunk = thread + (first + lane // width) * s.threads
    place = {s.column: chunk * width + lane % width, symbol(f"{COLUMN}_kept", 0, None): lane + first * width}
    by_name = {next(iter(k.names)): v for k, v in place.items()}

    def at(e: Expr) -> Expr:
        return e.substitute({x: by_name[x.name] for x in e.symbols if x.name in by_name})

    lanes = [Lane((n,), {lane: n}) for n in range(count * width)] if count * width > 1 else [Lane((), {lane: 0})]
    return straight(s, at, lanes, read_only)
