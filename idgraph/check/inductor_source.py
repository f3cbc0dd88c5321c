"""A program with the loop nests of its generated source in place of the scheduler's: the same rows are decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from idgraph.check.inductor_wrapper import launches
from idgraph.check.program import BufferLayout, Nest, NeutralProgram, Write
from idgraph.check.triton import read_kernel


def of_source(
    program: NeutralProgram, text: str, dtypes: Mapping[str, str] | None = None
) -> tuple[NeutralProgram, list[str]]:
    """The same program with the nests that its generated source has; and kernels that could not be read, with reasons.

    Buffers keep the names that the wrapper gives them, those of the scheduler.
    """
    nests: list[Nest] = []
    unread: list[str] = []
    order = list(program.order)
    made = {b.name: b for b in program.buffers}
    updated: set[str] = set()
    calls: Counter[str] = Counter()
    for launch in launches(text, program.symbols):
        found = read_kernel(launch, dtypes)
        calls[launch.kernel] += 1
        if calls[launch.kernel] > 1:  # a kernel that is called again, for other buffers
            found.nests = [replace(n, name=f"{n.name} call {calls[launch.kernel]}") for n in found.nests]
        if found.unread:
            unread.append(f"{launch.kernel}: {found.unread}")
            continue
        written: list[BufferLayout] = []
        for n in found.nests:
            write = n.writes[0]
            into = _target(program, write, made, updated)
            if into is not None:
                written.append(into)
                n = replace(n, writes=(replace(write, buffer=into.name, index=write.index),))
            nests.append(n)
        at = min((order.index(b.after) for b in written if b.after in order), default=len(order))
        names = [n.name for n in found.nests]
        order[at:at] = [n for n in names if n not in order]
    return replace(program, nests=tuple(nests), order=tuple(order)), unread


def _target(
    program: NeutralProgram, write: Write, made: Mapping[str, BufferLayout], updated: set[str]
) -> BufferLayout | None:
    """The buffer that a store fills: of the wrapper's name, or the next update of that memory."""
    later = [b for b in program.buffers if b.home == write.buffer and b.over and b.name not in updated]
    own = made.get(write.buffer)
    fresh = own is not None and own.after and own.name not in updated
    if own is not None and fresh and write.mode == "store" and not (later and own.name in updated):
        updated.add(own.name)
        return own
    if later:
        updated.add(later[0].name)
        return later[0]
    return own
