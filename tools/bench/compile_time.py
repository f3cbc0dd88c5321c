"""Compile time of kernels, from the fusion to PTX for sm_90, in processor time, and the length of their source.

    python -m tools.bench.compile_time [--rows rope,norm_gradient] [--json FILE]

The kernels are those of `tools.programs.gpu_rows` and `tools.programs.class_rows` at their real sizes; no device is
needed. The first compilation of a process, which imports the compilers, is done before and not counted.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise

import idgraph as ig
from idgraph.runtime import Program, compile_ptx, emit
from tools.bench import report
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


def show(rows: list[Compiled]) -> None:
    """A table, and the median and the worst below it."""
    columns = ("kernels of", "schedule", "emit", "PTX", "kernels", "s a kernel", "lines")
    lines = (
        (r.name, f"{r.schedule:.2f}", f"{r.emit:.2f}", f"{r.ptx:.2f}", r.kernels, f"{r.each:.2f}", r.lines)
        for r in rows
    )
    report.show("compile time, seconds", columns, lines)
    each = [r.each for r in rows]
    print(f"a kernel: median {statistics.median(each):.2f} s, worst {max(each):.2f} s")


def main() -> None:
    """Measure, print, store."""
    parser = report.arguments(__doc__)
    parser.add_argument("--rows", default="")
    options = parser.parse_args()
    made = {c.key: (lambda c=c: c.build(False), c.schedule or ig.schedule.auto) for c in CASES}
    made |= {name: (build, ig.schedule.auto) for name, build in CLASSES.items()}
    wanted = report.chosen(parser, options.rows, made)
    measured("warm", lambda: CASES[0].build(True), ig.schedule.auto)
    rows = [measured(name, *made[name]) for name in made if name in wanted]
    show(rows)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    python = platform.python_version()
    report.write(options.json, {"machine": machine, "python": python, "rows": [asdict(r) for r in rows]})


if __name__ == "__main__":
    main()
