"""Compile time of kernels, from the fusion to PTX for sm_90, in processor time, and the length of their source.

    python -m tools.bench.compile_time [--rows rope,norm_gradient] [--json FILE]

The kernels are those of `tools.programs.gpu_rows` and `tools.programs.class_rows` at their real sizes; no device is
needed. The first compilation of a process, which imports the compilers, is done before and not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

import idgraph as ig
from idgraph.runtime import Program, compile_ptx, emit
from tools.bench.gpu import ptx_facts
from tools.programs.class_rows import CLASSES
from tools.programs.gpu_rows import CASES


@dataclass(frozen=True, slots=True)
class Compiled:
    """Seconds of processor time to schedule, to emit and to make PTX of all kernels; ``lines`` of the longest source;
    ``accesses`` of global memory in the PTX, ``wide`` those of 16 bytes."""

    name: str
    schedule: float
    emit: float
    ptx: float
    kernels: int
    lines: int
    accesses: int
    wide: int

    @property
    def each(self) -> float:
        """Seconds of one kernel, from its schedule to PTX."""
        return (self.emit + self.ptx) / self.kernels


def measured(name: str, build: Callable[[], ig.Fusion], schedule: Callable[[ig.Fusion], object]) -> Compiled:
    """One fusion, compiled."""
    f = build()
    times = [time.process_time()]
    schedule(f)
    times.append(time.process_time())
    program = emit(f, target="cuda")
    times.append(time.process_time())
    compile_ptx(program)
    times.append(time.process_time())
    spent = [round(b - a, 3) for a, b in pairwise(times)]
    facts = ptx_facts(program)
    kernels, lines = len(program.kernels), max(source_lines(program))
    accesses, wide = (sum(x[key] for x in facts) for key in ("global", "global16"))
    return Compiled(name, spent[0], spent[1], spent[2], kernels, lines, accesses, wide)


def source_lines(program: Program) -> list[int]:
    """Lines of each kernel's source, without comments."""
    texts = [program.kernel_source(k) for k in program.kernels]
    return [sum(bool(s.strip()) and not s.strip().startswith("#") for s in t.splitlines()) for t in texts]


def shown(rows: list[Compiled]) -> Table:
    """A table, and the median and the worst below it."""
    table = Table(
        "kernels of", "schedule", "emit", "PTX", "kernels", "s a kernel", "lines", title="compile time, seconds"
    )
    for r in rows:
        table.add_row(
            r.name, f"{r.schedule:.2f}", f"{r.emit:.2f}", f"{r.ptx:.2f}", str(r.kernels), f"{r.each:.2f}", str(r.lines)
        )
    each = [r.each for r in rows]
    table.caption = f"a kernel: median {statistics.median(each):.2f} s, worst {max(each):.2f} s"
    return table


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", default="")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    wanted = {key for key in str(chosen.rows).split(",") if key}
    measured("warm", lambda: CASES[0].build(True), ig.schedule.auto)
    rows: list[Compiled] = []
    for c in CASES:
        if not wanted or c.key in wanted:
            rows.append(measured(c.key, lambda c=c: c.build(False), c.schedule or ig.schedule.auto))
    rows += [measured(name, build, ig.schedule.auto) for name, build in CLASSES.items() if not wanted or name in wanted]
    Console().print(shown(rows))
    if chosen.json is not None:
        machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        text = json.dumps(
            {"machine": machine, "python": platform.python_version(), "rows": [asdict(r) for r in rows]}, indent=1
        )
        chosen.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
