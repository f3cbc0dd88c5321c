"""Check the kernels of cases on the simulated device, right and changed, and print what was found as JSON."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

import idgraph as ig
from idgraph.errors import IdGraphError
from idgraph.runtime import Program
from idgraph.validate import KernelReport
from idgraph.validate.index_map_check import index_values
from idgraph.validate.kernel_check import check_kernel_addresses
from idgraph.validate.oracle import bind
from tests.emit.cases import CASES, Case, arrays_of
from tests.validate.test_kernels import BUILT, changes, program


def checked(p: Program, arrays: dict[str, Any], symbols: dict[str, int], engine: Any) -> KernelReport:
    at = bind(p.fusion, {n: np.shape(a) for n, a in arrays.items()}, symbols)
    return check_kernel_addresses(p, at, index_values(p.fusion, at, arrays, 0), engine=engine)


def case(made: Case) -> str:
    """Empty where the device finds what the CPU finds."""
    try:
        p = ig.emit(made.fusion, "cuda")
    except IdGraphError:
        return ""
    arrays, symbols = arrays_of(made), {**made.symbols, **made.sizes}
    here, there = (checked(p, arrays, symbols, e) for e in ("numba", "cuda"))
    if not there.ok:
        return str(there.mismatch)
    if not here.points:
        return ""
    same = all(getattr(here, x) == getattr(there, x) for x in ("ok", "served", "sampled", "untraced"))
    empty = any(d.extent == 0 for t in p.fusion.tensors for d in t.logical)
    return "" if same and (empty or "cuda" in there.engine) else f"{here!r} on the CPU, {there!r} on the device"


def changed(number: int) -> str:
    """Empty where the device finds each change that the CPU finds."""
    p, arrays = program(BUILT[number], "cuda")
    tried = 0
    for n, k in enumerate(p.kernels):
        for what, wrong in list(changes(k))[::8]:
            plan = replace(p.plan, kernels=(*p.kernels[:n], wrong, *p.kernels[n + 1 :]))
            q = Program(p.fusion, "cuda", plan)
            here, there = (checked(q, arrays, {}, e).ok for e in ("numba", "cuda"))
            if here != there:
                return f"{what}: {here} on the CPU, {there} on the device"
            tried += not there
    return "" if tried else "nothing was changed"


def main() -> None:
    """Arguments: names of cases, or numbers of kernels that are changed."""
    warnings.simplefilter("ignore")
    found = {name: changed(int(name)) if name.isdigit() else case(CASES[name]()) for name in sys.argv[1:]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
