"""The two checks together: addresses, then values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from idgraph.errors import OperationError, short_repr, user_line
from idgraph.index import IdModel
from idgraph.ir import Fusion, check_fusion
from idgraph.ir.argument_resolution import is_int
from idgraph.runtime import Target, emit
from idgraph.validate.index_map_check import Engine, check_addresses, index_values
from idgraph.validate.kernel_check import check_kernel_addresses
from idgraph.validate.oracle import bind
from idgraph.validate.report import Report, busy, terminal
from idgraph.validate.value_check import check_values, random_inputs


def run_checks(
    f: Fusion,
    target: Target,
    exhaustive: bool,
    seed: int,
    symbols: Mapping[str, int] | None,
    inputs: Mapping[str, Any] | None,
    model: IdModel | None,
    engine: Engine,
) -> Report:
    """See `idgraph.validate.validate`."""
    check_fusion(f, "validate", OperationError)
    if not is_int(seed) or not 0 <= seed < 1 << 64:
        raise OperationError(
            f"validate: seed {short_repr(seed)} is not a seed", where=user_line(), hint="an int from 0 to 2**64 - 1"
        )
    at = bind(f, {n: np.shape(a) for n, a in (inputs or {}).items()}, symbols)
    given = inputs if inputs is not None else random_inputs(f, seed, at)
    m = model if model is not None else IdModel(f)
    addresses = check_addresses(
        f, model=m, symbols=at, inputs=given, seed=seed, exhaustive=exhaustive, engine=engine,
        large="cuda" if target == "cuda" else "numba", progress=terminal,
    )  # fmt: skip
    # A kernel with a wrong address is not run: it may write anywhere.
    values = kernels = program = None
    if addresses.ok:
        program = emit(f, target, model=model)
        with terminal(f"kernels of {f.name}", len(program.kernels)) as advance:
            known = index_values(f, at, given, seed)
            kernels = check_kernel_addresses(
                program, at, known, model=m, seed=seed, exhaustive=exhaustive, engine=engine, advance=advance
            )
    if program is not None and kernels is not None and kernels.ok:
        with busy(f"values of {f.name}: compiling and running {len(f.exprs)} operations for {target}"):
            values = check_values(f, target, program=program, inputs=given, symbols=at, seed=seed)
    return Report(f.name, target, seed, addresses, values, kernels)
