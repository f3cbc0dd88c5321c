"""Checking index maps and kernels against an oracle: `validate` and its `Report`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from idgraph.emit import Target
from idgraph.index import IdModel
from idgraph.ir import Fusion
from idgraph.validate.addresses import Engine, check_addresses
from idgraph.validate.inputs import random_inputs
from idgraph.validate.oracle import bind
from idgraph.validate.progress import terminal
from idgraph.validate.report import (
    AddressMismatch,
    AddressReport,
    Mismatch,
    Report,
    TensorError,
    ValueMismatch,
    ValueReport,
)
from idgraph.validate.values import check_values, tolerance

__all__ = [
    "AddressMismatch", "AddressReport", "Mismatch", "Report", "TensorError", "ValueMismatch", "ValueReport",
    "check_addresses", "check_values", "random_inputs", "tolerance", "validate",
]  # fmt: skip


def validate(
    f: Fusion,
    target: Target = "cpu",
    exhaustive: bool = True,
    seed: int = 0,
    *,
    symbols: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    model: IdModel | None = None,
    engine: Engine = "auto",
) -> Report:
    """Check every address a kernel would touch, then run it on ``target`` and check every value.

    Addresses: each access of each operation at every loop point (a sample where ``exhaustive`` is False or the space
    is beyond memory, which the report says), against the operation applied to element numbers. Values: the emitted
    program on random data (``seed``) or on ``inputs``, against float64. Symbols are read off ``inputs`` or given in
    ``symbols``.
    Raises what building the kernels raises (`ScheduleError`, `EmitError`); a wrong result is no error but a report with
    a counterexample.

    >>> import idgraph as ig
    >>> f = ig.Fusion("rotation")
    >>> t0 = f.input("t0", shape=(64,))
    >>> t4 = f.output(t0 + ig.cat([t0[32:], t0[:32]], dim=0))
    >>> r = validate(f, target="python")
    >>> r.ok, r.points, r.addresses.exhaustive, r.values.elements
    (True, 512, True, 64)
    """
    at = bind(f, {n: np.shape(a) for n, a in (inputs or {}).items()}, symbols)
    given = inputs if inputs is not None else random_inputs(f, seed, at)
    m = model if model is not None else IdModel(f)
    addresses = check_addresses(
        f, model=m, symbols=at, inputs=given, seed=seed, exhaustive=exhaustive, engine=engine,
        large="cuda" if target == "cuda" else "numba", progress=terminal,
    )  # fmt: skip
    values = check_values(f, target, model=model, inputs=given, symbols=at, seed=seed)
    return Report(f.name, target, seed, addresses, values)
