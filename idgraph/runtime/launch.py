"""Running a program on arrays: bind symbols, lay out buffers, call the kernels in order, return the outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from idgraph.codegen.ops import arrays, memory, scalars
from idgraph.codegen.ops.plain import plain_pairs, plain_vectors
from idgraph.codegen.printers.scalar import site_numbers
from idgraph.kernel.ir import Kernel
from idgraph.runtime import cpu, cpu_entry
from idgraph.runtime.binding import Env, bind, flat_input, given_array, global_buffer, output_array, scalars_of
from idgraph.runtime.cuda.compile import compiled as cuda_compiled
from idgraph.runtime.cuda.device import simulated
from idgraph.runtime.cuda.simulated import Simulated
from idgraph.runtime.faults import out_of_range
from idgraph.runtime.functions import function_of

if TYPE_CHECKING:
    from idgraph.runtime.frozen import Held
    from idgraph.runtime.program import Program

Array = npt.NDArray[Any]
Functions = dict[str, Callable[..., Any]]


def prepared(
    program: Program,
    inputs: Mapping[str, Any],
    symbols: Mapping[str, int] | None = None,
    checked: bool = True,
    poison: bool = False,
    overlap: bool = True,
) -> Held | HostPrepared | Simulated:
    """The program with its buffers laid out: ``launch()`` runs its kernels, any number of times. ``results()`` are its
    outputs, which another launch overwrites. ``overlap``: on CUDA, blocks of a kernel may be placed while the
    last ones of the kernel before it run (they wait for its memory); False starts each alone."""
    if program.target in ("python", "numpy"):
        return HostPrepared(program, inputs, symbols, checked, poison)
    if program.target == "cuda" and simulated():
        return Simulated(program, inputs, symbols, checked, poison)
    return program.caller(checked).held(program.ordered(inputs), symbols, poison, overlap)


def interpreted(
    program: Program, inputs: Mapping[str, Array], symbols: Mapping[str, int] | None, checked: bool, poison: bool
) -> dict[str, Any]:
    """Outputs of a Python or NumPy program, or of a simulated CUDA one."""
    kind = Simulated if program.target == "cuda" else HostPrepared
    ready = kind(program, inputs, symbols, checked, poison)
    ready.launch()
    return ready.results()


class HostPrepared:
    """A Python or NumPy program with its buffers; see `prepared`."""

    def __init__(
        self,
        program: Program,
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


def call(program: Program, kernel: Kernel, flat: Mapping[str, Array], env: Env, checked: bool) -> None:
    function = program.functions(checked)[kernel.name]
    views = [memory.Memory(flat[b.name], b.dtype, b.title, flat[b.name].size) for b in kernel.buffers]
    values: list[Any] = scalars_of(kernel, env)
    if program.target == "numpy":  # a grid is masked, not skipped: by an empty axis too, and a number as an array
        values = [np.int64(v) for v in values]
    function(*views, *values)


def compile_functions(program: Program, checked: bool) -> Functions:
    """The kernels as functions: of buffers and integers; for the CPU and CUDA, what lays launches out."""
    match program.target:
        case "cuda":
            return cuda_compiled(program, checked)
        case "python":
            base: dict[str, Any] = {
                **vars(scalars),
                **plain_vectors(),
                **_python_pairs(),
                "private": memory.private,
                "out_of_range": None,
            }
        case "numpy":
            base = {**vars(arrays), "private": memory.private, "require": None}
        case _:
            base = cpu.namespace()
    made: dict[str, Any] = {}
    for kernel in program.plan.kernels:
        names = dict(base)
        sites = site_numbers(kernel)
        if program.target == "python":
            names["out_of_range"] = _python_fault(sites)
        if program.target == "numpy":
            names["require"] = _numpy_require(sites)
        function = function_of(program.kernel_source(kernel, checked), kernel.name, names, program.target)
        made[kernel.name] = (
            cpu_entry.Compiling(program, kernel, function, checked) if program.target == "cpu" else function
        )
    return made


def _python_pairs() -> dict[str, Any]:
    """Pairs of Python's floats: what a buffer gives is the value already."""
    return plain_pairs(
        {"bf16": float, "f16": float},
        {"bf16": lambda x: scalars.bf16(scalars.f32(x)), "f16": lambda x: scalars.f16(scalars.f32(x))},
    )


def _python_fault(sites: list[Any]) -> Callable[..., NoReturn]:
    def fail(number: int, value: int, *point: int) -> NoReturn:
        raise out_of_range(sites[number - 1].site, value, list(point), None)

    return fail


def _numpy_require(sites: list[Any]) -> Callable[..., None]:
    def require(holds: Any, mask: Any, number: int, value: Any, loops: tuple[Array, ...]) -> None:
        bad = ~np.asarray(holds) if mask is None else ~np.asarray(holds) & mask
        if not bad.any():
            return
        bad, value, *point = np.broadcast_arrays(bad, value, *loops)
        first = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise out_of_range(sites[number - 1].site, int(value[first]), [int(v[first]) for v in point], None)

    return require
