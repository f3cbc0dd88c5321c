"""Checking index maps and kernels against an oracle: `validate` and its `Report`.

Importing this package loads no NumPy; validating does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from idgraph.errors import IdGraphError, arguments, did_you_mean, no_attribute
from idgraph.ir import Fusion
from idgraph.loading import LOADING, load
from idgraph.runtime import Target

if TYPE_CHECKING:
    from idgraph.index import IdModel
    from idgraph.validate.index_map_check import Engine, check_addresses
    from idgraph.validate.report import (
        AddressMismatch,
        AddressReport,
        KernelReport,
        Mismatch,
        Report,
        TensorError,
        ValueMismatch,
        ValueReport,
    )  # fmt: skip
    from idgraph.validate.value_check import check_values, random_inputs, tolerance

__all__ = [
    "AddressMismatch", "AddressReport", "KernelReport", "Mismatch", "Report", "TensorError", "ValueMismatch",
    "ValueReport", "check_addresses", "check_values", "random_inputs", "tolerance", "validate",
]  # fmt: skip

_LATER = {
    "AddressMismatch": "report", "AddressReport": "report", "KernelReport": "report", "Mismatch": "report",
    "Report": "report", "TensorError": "report", "ValueMismatch": "report", "ValueReport": "report",
    "check_addresses": "index_map_check",
    "random_inputs": "value_check", "check_values": "value_check", "tolerance": "value_check",
}  # fmt: skip


@arguments(IdGraphError, first=True)
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
    """Check the index maps, then every address that the kernels for ``target`` touch, then run them and check values.

    Index maps: each access of each operation at every loop point (a sample where ``exhaustive`` is False or the space
    is beyond memory, which the report says), against the operation applied to element numbers. Kernels: each access
    of the last IR at each step of its loops, vectors, tails and memory of blocks and threads among them, against the
    element at the logical point that it serves; every point that an operation needs was served. Values: the emitted
    program on random data (``seed``) or on ``inputs``, against float64. Symbols are read off ``inputs`` or given in
    ``symbols``.
    Where an address is wrong the kernel is not run. Raises what building the kernels raises (`ScheduleError`,
    `EmitError`); a wrong result is not an error but a report with a counterexample.

    >>> import idgraph as ig
    >>> f = ig.Fusion("rotation")
    >>> t0 = f.input("t0", shape=(64,))
    >>> t4 = f.output(t0 + ig.cat([t0[32:], t0[:32]], dim=0))
    >>> r = validate(f, target="python")
    >>> r.ok, r.points, r.addresses.exhaustive, r.values.elements
    (True, 512, True, 64)
    >>> r.kernels.exhaustive, r.served["cat2"]
    (True, 64)
    """
    with LOADING:
        from idgraph.validate.run import run_checks  # noqa: PLC0415 - loads NumPy

    equal = [found.name for found in f.equalities]
    symbols = {n: v for n, v in symbols.items() if n not in equal} if symbols is not None else None
    unknown = next((n for n in symbols or () if n not in f.symbols), None)
    if unknown is not None:
        known = tuple(f.symbols)
        raise IdGraphError(
            f"{unknown!r} is not a symbol of fusion {f.name}",
            hint=did_you_mean(unknown, known, f"its symbols are {', '.join(known)}" if known else "it has none"),
        )
    return run_checks(f, target, exhaustive, seed, symbols, inputs, model, engine)


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise no_attribute(sys.modules[__name__], name)
    return getattr(load(f"{__name__}.{_LATER[name]}"), name)


class _ValidateModule(ModuleType):
    """``ig.validate`` is the function; where a tool puts the package in its place, calling that does the same."""

    __call__ = staticmethod(validate)


sys.modules[__name__].__class__ = _ValidateModule
