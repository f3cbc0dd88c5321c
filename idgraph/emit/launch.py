"""Running a program on arrays: bind symbols, lay out buffers, call the kernels in order, return the outputs."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from idgraph.arith import Expr
from idgraph.emit import cpu, cuda
from idgraph.emit.cuda_pairs import plain_pairs
from idgraph.emit.cuda_vectors import plain_vectors
from idgraph.emit.layout import Env, bind, empty_buffer, empty_words, flat_input, given_array, output_array
from idgraph.emit.ops import arrays, memory, scalars
from idgraph.emit.plan import Buffer, Kernel, Site
from idgraph.emit.printers.scalar import site_numbers
from idgraph.errors import EmitError, IndexingError

if TYPE_CHECKING:
    from idgraph.emit.program import Program

Array = npt.NDArray[Any]
Functions = dict[str, Callable[..., Any]]


def run(
    program: Program, inputs: Mapping[str, Any], symbols: Mapping[str, int] | None, checked: bool, poison: bool
) -> dict[str, Any]:
    """See `Program.run`."""
    ready = prepared(program, inputs, symbols, checked, poison)
    ready.launch()
    return ready.results()


def prepared(
    program: Program,
    inputs: Mapping[str, Any],
    symbols: Mapping[str, int] | None = None,
    checked: bool = False,
    poison: bool = False,
) -> HostPrepared | cuda.Prepared:
    """The program with its buffers laid out: ``launch()`` runs its kernels, as often as one likes, then come
    ``results()``."""
    kind = cuda.Prepared if program.target == "cuda" else HostPrepared
    return kind(program, inputs, symbols, checked, poison)


class HostPrepared:
    """A Python, NumPy or CPU program with its buffers; see `prepared`."""

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
        self._flat: dict[str, Array] = {}
        self._homes = {b.title: b.name for b in program.plan.buffers if b.place != "private"}
        for t in fusion.inputs:
            made = flat_input(t, self._given[t.name], self.env)
            if t.name in self._homes:
                self._flat[self._homes[t.name]] = made
        for b in program.plan.buffers:
            if b.place in ("output", "global"):
                self._flat[b.name] = global_buffer(program, b, self.env, poison)

    def launch(self) -> None:
        """Run all kernels in order; a checked program raises `IndexingError` for a loaded index out of range."""
        with np.errstate(all="ignore"):
            for kernel in self.program.plan.kernels:
                call(self.program, kernel, self._flat, self.env, self._checked)

    def results(self) -> dict[str, Any]:
        """Outputs by name; arrays of their own, but for what another launch would write again."""
        return {
            t.name: output_array(t, self._flat[self._homes[t.name]], self.env)
            if t.definition is not None
            else np.array(self._given[t.name].data)
            for t in self.program.fusion.outputs
        }


def global_buffer(program: Program, b: Buffer, env: Env, poison: bool) -> Array:
    """Memory that kernels write: a tensor's, or slices of private memory too large for one thread."""
    if b.title in program.fusion_names and b.name.startswith("buf"):
        return empty_buffer(program.fusion[b.title], env, poison)
    return empty_words(max(1, int(b.size.evaluate(env))), b.dtype, poison)


def scalars_of(kernel: Kernel, env: Mapping[str, int]) -> list[int]:
    """Values of the kernel's integer parameters."""
    return [env[s] for s in kernel.scalars]


def call(program: Program, kernel: Kernel, flat: Mapping[str, Array], env: Env, checked: bool) -> None:
    function = program.functions(checked)[kernel.name]
    buffers: list[Any] = [flat[b.name] for b in kernel.buffers]
    if program.target in ("python", "numpy"):
        views = [memory.Memory(a, b.dtype, b.title, a.size) for a, b in zip(buffers, kernel.buffers, strict=True)]
        values: list[Any] = scalars_of(kernel, env)
        if program.target == "numpy":  # a grid is masked, not skipped: by an empty axis too, and a number as an array
            values = [np.int64(v) for v in values]
        function(*views, *values)
        return
    # numba has no float16 on the CPU: kernels see 16-bit words.
    buffers = [a.view(np.uint16) if a.dtype == np.float16 else a for a in buffers]
    sites = site_numbers(kernel) if checked else []
    fault = np.zeros(fault_size(kernel), np.int64)
    function(*buffers, *scalars_of(kernel, env), *([fault] if checked else []))
    if sites and fault[0]:
        raise_fault(kernel, fault, env)


def fault_size(kernel: Kernel) -> int:
    """Number, value and loop variables of a failed check."""
    return 2 + max((len(s.site.loops) for s in site_numbers(kernel)), default=0)


def raise_fault(kernel: Kernel, fault: Array, env: Mapping[str, int]) -> NoReturn:
    """The error of a kernel's failed check."""
    site = site_numbers(kernel)[int(fault[0]) - 1].site
    raise out_of_range(site, int(fault[1]), [int(v) for v in fault[2:]], env)


def out_of_range(site: Site, value: int, point: list[int], env: Mapping[str, int] | None) -> IndexingError:
    """A loaded index is outside the axis it indexes."""
    at = ", ".join(f"{name}={v}" for name, v in zip(site.loops, point, strict=False))
    extent: Expr | int = site.extent if env is None else int(site.extent.evaluate(env))
    return IndexingError(
        f"index {value} loaded from {site.index} is outside axis {site.axis} of {site.tensor}, of extent {extent}",
        where=site.line,
        because=[f"in {site.expr} at {at or 'its only point'}"],
        hint=f"indices run from 0 to {extent} - 1; negative ones do not count from the end",
    )


def compile_functions(program: Program, checked: bool) -> Functions:
    """The kernels of a Python, NumPy or CPU program as functions."""
    match program.target:
        case "cuda":
            return cuda.compiled(program, checked)
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
    made: Functions = {}
    for kernel in program.plan.kernels:
        names = dict(base)
        sites = site_numbers(kernel)
        if program.target == "python":
            names["out_of_range"] = _python_fault(sites)
        if program.target == "numpy":
            names["require"] = _numpy_require(sites)
        function = function_of(program.kernel_source(kernel, checked), kernel.name, names, program.target)
        made[kernel.name] = cpu.compiled(function, kernel) if program.target == "cpu" else function
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


def function_of(source: str, name: str, names: dict[str, Any], target: str) -> Callable[..., Any]:
    """Run generated source, made of this package's own tokens only, and return its function.

    The text stands in `linecache`, so that tracebacks and numba show its lines.
    """
    file = f"<idgraph {target} {name} {abs(hash(source)):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)  # noqa: S102  # no user text: names are numbered, comments are quoted
    found = names[name]
    if not callable(found):
        raise EmitError(f"{name} is no function")
    return found
