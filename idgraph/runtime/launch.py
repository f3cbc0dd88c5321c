"""Running a Python, NumPy or simulated program on arrays: bind symbols, call the kernels in order, return outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.codegen.ops import memory
from idgraph.kernel.ir import Kernel
from idgraph.runtime.binding import Env, bind, flat_input, given_array, global_buffer, output_array, scalars_of
from idgraph.runtime.cuda.simulated import Simulated
from idgraph.runtime.loaded import LoadedKernels

Array = npt.NDArray[Any]


def interpreted(
    program: LoadedKernels, inputs: Mapping[str, Array], symbols: Mapping[str, int] | None, checked: bool, poison: bool
) -> dict[str, Any]:
    """Outputs of a Python or NumPy program, or of a simulated CUDA one."""
    kind = Simulated if program.target == "cuda" else HostPrepared
    ready = kind(program, inputs, symbols, checked, poison)
    ready.launch()
    return ready.results()


class HostPrepared:
    """A Python or NumPy program with its buffers; see `idgraph.runtime.held.prepared`."""

    def __init__(
        self,
        program: LoadedKernels,
        inputs: Mapping[str, Any],
        symbols: Mapping[str, int] | None = None,
        checked: bool = False,
        poison: bool = False,
    ) -> None:
        fusion = program.fusion
        self.program, self._checked = program, checked
        self._given = {name: given_array(name, a) for name, a in inputs.items()}
        self.env = bind(fusion, self._given, symbols)
        program.check_sizes(self.env)  # and again when arrays have given free strides
        self._flat: dict[str, Array] = {}
        self._homes = {b.title: b.name for b in program.plan.buffers if b.place != "private"}
        for t in fusion.inputs:
            made = flat_input(t, self._given[t.name], self.env)
            if t.name in self._homes:
                self._flat[self._homes[t.name]] = made
        for b in program.plan.buffers:
            if b.place in ("output", "global"):
                self._flat[b.name] = global_buffer(program, b, self.env, poison)
        program.check_sizes(self.env)

    def launch(self) -> None:
        """Run all kernels in order; a checked program raises `IndexingError` for a loaded index out of range."""
        with np.errstate(all="ignore"):
            for kernel in self.program.plan.kernels:
                call(self.program, kernel, self._flat, self.env, self._checked)

    def results(self) -> dict[str, Any]:
        """Outputs by name; new arrays, except for memory that another launch would overwrite."""
        return {
            t.name: output_array(t, self._flat[self._homes[t.name]], self.env)
            if t.definition is not None
            else np.array(self._given[t.name].data)
            for t in self.program.fusion.outputs
        }


def call(program: LoadedKernels, kernel: Kernel, flat: Mapping[str, Array], env: Env, checked: bool) -> None:
    function = program.functions(checked)[kernel.name]
    views = [memory.Memory(flat[b.name], b.dtype, b.title, flat[b.name].size) for b in kernel.buffers]
    values: list[Any] = scalars_of(kernel, env)
    if program.target == "numpy":  # a grid is masked, not skipped: by an empty axis too, and a number as an array
        values = [np.int64(v) for v in values]
    function(*views, *values)
