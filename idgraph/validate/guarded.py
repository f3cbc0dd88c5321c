"""Running a CPU program with guard zones: what lies around each buffer must stay as it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from idgraph.runtime import Program, launch
from idgraph.runtime.binding import bind, flat_input, given_array, output_array
from idgraph.validate.oracle.moves import Array

GUARD: Final = 4096  # elements before and behind each buffer


def run_guarded(
    program: Program, inputs: Mapping[str, Any], symbols: Mapping[str, int] | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(outputs by name, names of the buffers whose surroundings were written) of a "cpu" program; outputs poisoned."""
    given = {name: given_array(name, a) for name, a in inputs.items()}
    env = bind(program.fusion, given, symbols)
    homes = {b.title: b.name for b in program.plan.buffers if b.place != "private"}
    flat: dict[str, Array] = {}
    wide: dict[str, tuple[str, Array, int]] = {}
    for t in program.fusion.inputs:
        made = flat_input(t, given[t.name], env)
        if t.name in homes:
            flat[homes[t.name]] = made
    for b in program.plan.buffers:
        if b.place in ("output", "global"):
            plain = launch.global_buffer(program, b, env, True)
            around = np.empty(plain.size + 2 * GUARD, plain.dtype)
            # Another byte for each buffer: what is read in one zone must show when it is written into another.
            mark = 0x21 + 2 * (len(wide) % 40)
            around.view(np.uint8)[...] = mark
            flat[b.name] = around[GUARD : GUARD + plain.size]
            flat[b.name][...] = plain[0]
            wide[b.name] = (b.title, around, mark)
            del plain
    with np.errstate(all="ignore"):
        for kernel in program.plan.kernels:
            launch.call(program, kernel, flat, env, False)
    touched = tuple(title for title, around, mark in wide.values() if not _untouched(around, mark))
    out = {
        t.name: output_array(t, flat[homes[t.name]], env) if t.definition is not None else np.array(given[t.name].data)
        for t in program.fusion.outputs
    }
    return out, touched


def _untouched(around: Array, mark: int) -> bool:
    """Both guard zones still hold their byte."""
    return all(bool((zone.view(np.uint8) == mark).all()) for zone in (around[:GUARD], around[-GUARD:]))
