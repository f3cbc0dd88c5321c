"""Running a CPU program with guard zones: the memory around each buffer must stay as it was."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np

from idgraph.codegen.ops.memory import storage_dtype
from idgraph.ir import DType
from idgraph.runtime import Program
from idgraph.runtime.binding import BoundArray, given_array
from idgraph.runtime.cpu_launch import CpuMachine
from idgraph.runtime.frozen import ShapeSpecialization
from idgraph.runtime.kinds import NumPy
from idgraph.validate.oracle.moves import Array

GUARD: Final = 4096  # elements before and behind each buffer


def run_guarded(
    program: Program, inputs: Mapping[str, Any], symbols: Mapping[str, int] | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(outputs by name, names of the buffers whose surroundings were written) of a "cpu" program; outputs poisoned."""
    guard = _Guard()
    frozen = ShapeSpecialization(program, guard, CpuMachine(), _given(program, inputs), symbols, False)
    with np.errstate(all="ignore"):
        results = frozen(program.ordered(inputs), poison=True)
    out = {t.name: x for t, x in zip(program.fusion.outputs, results, strict=True)}
    titles = {b.name: b.title for b in program.plan.buffers}
    made = [b for b in program.plan.buffers if b.place in ("output", "global")]
    touched = tuple(
        titles[b.name] for b, (around, mark) in zip(made, guard.zones, strict=True) if not _untouched(around, mark)
    )
    return out, touched


def _given(program: Program, inputs: Mapping[str, Any]) -> dict[str, BoundArray]:
    return {t.name: given_array(t.name, a) for t, a in zip(program.fusion.inputs, program.ordered(inputs), strict=True)}


class _Guard(NumPy):
    """NumPy's arrays inside of larger ones: the memory around each is filled with a byte of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.zones: list[tuple[Array, int]] = []

    def flat(self, size: int, dtype: DType, device: Any) -> Any:
        around = np.empty(size + 2 * GUARD, storage_dtype(dtype))
        # Another byte for each buffer: a value read from one zone must show when it is written into another.
        mark = 0x21 + 2 * (len(self.zones) % 40)
        around.view(np.uint8)[...] = mark
        self.zones.append((around, mark))
        return around[GUARD : GUARD + size]

    def whole(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Any) -> Any:
        return self.view(self.flat(prod(shape), dtype, device), shape, strides, dtype)


def _untouched(around: Array, mark: int) -> bool:
    """Both guard zones still hold their byte."""
    return all(bool((zone.view(np.uint8) == mark).all()) for zone in (around[:GUARD], around[-GUARD:]))
