"""Running a Python, NumPy or simulated program on arrays: bind symbols, call the kernels in order, return outputs.

Outputs that are views of inputs: a caller who takes views needs no kernel and no memory for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from idgraph.codegen.runtime_lib import numpy_ops as memory
from idgraph.errors import EmitError
from idgraph.index.allocation import strides
from idgraph.ir import Fusion, Tensor
from idgraph.ir.clone import clone_fusion
from idgraph.layout.aliasing import Alias, alias
from idgraph.layout.inference import demanded
from idgraph.runtime.binding import (
    OutputMemory,
    bind,
    flat_input,
    given_array,
    given_output,
    global_buffer,
    passed_input,
    scalars_of,
    updated_inputs,
)
from idgraph.runtime.executable import reused_memory
from idgraph.runtime.loaded_program import LoadedKernels

Array = npt.NDArray[Any]


class HostPrepared:
    """A Python or NumPy program with its buffers; see `idgraph.runtime.tuning.trial.prepare_launch`."""

    reuses = True  # memory between kernels, which several tensors take in turn

    def __init__(
        self,
        program: LoadedKernels,
        inputs: Mapping[str, Any],
        symbols: Mapping[str, int] | None = None,
        checked: bool = False,
        memory: OutputMemory | None = None,
    ) -> None:
        fusion = program.fusion
        self.program, self._checked = program, checked
        self._given = {name: given_array(name, a) for name, a in inputs.items()}
        self.env = bind(fusion, self._given, symbols)
        program.check_sizes(self.env)  # and again when arrays have given free strides
        self._flat: dict[str, Any] = {}
        self._homes = {b.title: b.name for b in program.plan.buffers if b.place != "private"}
        updated = updated_inputs(fusion, self._homes)
        self._homes |= {x: self._homes[t] for t, x in updated.items()}
        for t in fusion.inputs:
            made = flat_input(t, self._given[t.name], self.env)
            made = made.copy() if t.name in updated.values() else made
            if t.name in self._homes:
                self._flat[self._homes[t.name]] = self.placed(made)
        # Where memory is filled first, each tensor has its own: an element never written shows.
        fresh = not self.reuses or (memory is not None and memory.fills)
        taken = dict[str, str]() if fresh else reused_memory(program.plan)
        for b in program.plan.buffers:
            if b.place in ("output", "global") and b.name not in taken and b.title not in updated:
                self._flat[b.name] = self.placed(global_buffer(program, b, self.env, memory))
        self._flat |= {name: self._flat[of] for name, of in taken.items()}
        program.check_sizes(self.env)

    def placed(self, array: Array) -> Any:
        """The memory of a buffer, as kernels get it."""
        return array

    def on_host(self, flat: Any) -> Array:
        """The memory that kernels got, on the host."""
        return flat

    def launch(self) -> None:
        """Run all kernels in order; a checked program raises `IndexingError` for a loaded index out of range."""
        with np.errstate(all="ignore"):
            for kernel in self.program.plan.kernels:
                views = [memory.Memory(x := self._flat[b.name], b.dtype, b.title, x.size) for b in kernel.buffers]
                values: list[Any] = scalars_of(kernel, self.env)
                if self.program.target == "numpy":  # a grid is masked, not skipped: by an empty axis, and a number too
                    values = [np.int64(v) for v in values]
                self.program.functions(self._checked)[kernel.name](*views, *values)

    def results(self, raw: bool = False) -> dict[str, Any]:
        """Outputs by name; new arrays, except for memory that another launch would overwrite."""
        return {
            t.name: given_output(t, self.on_host(self._flat[self._homes[t.name]]), self.env, raw)
            if t.definition is not None
            else passed_input(t, self._given[t.name], self.env, raw)
            for t in self.program.fusion.outputs
        }


def views_of(fusion: Fusion) -> dict[str, Alias]:
    """The outputs that are views of inputs or of other outputs, with numbers for strides and offset; none that runs
    backwards, and none that the user laid out in another way.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4, 6))
    >>> a, b = f.output(x.T[1:]), f.output(x * 2.0)
    >>> c = f.output(b[:, 2:])
    >>> for name, v in views_of(f).items():
    ...     print(name, "is", v)
    t2 is a view of x: strides (1, 6), offset 1
    t4 is a view of t3: strides (6, 1), offset 2
    """
    found: dict[str, Alias] = {}
    for t in fusion.outputs:
        v = alias(fusion, t) if t.definition is not None else None
        if isinstance(v, Alias) and v.of.definition is not None and (v.of is t or v.of not in fusion.outputs):
            continue
        if not (isinstance(v, Alias) and isinstance(v.offset, int) and all(isinstance(n, int) for n in t.shape)):
            continue
        if all(isinstance(s, int) and s >= 0 for s in v.strides) and _as_demanded(t, v):
            found[t.name] = v
    return found


def _as_demanded(t: Tensor, v: Alias) -> bool:
    """Whether ``t`` may lie as the view does: nobody demanded a layout, or this one, axes of one element aside."""
    if not demanded(t):
        return True
    by_axis = dict(zip(t.allocation, strides(t), strict=True))
    rows = zip(t.axes, v.strides, strict=True)
    return all(d.extent == 1 or (d in by_axis and by_axis[d] == s) for d, s in rows)


def without(fusion: Fusion, names: Mapping[str, object]) -> Fusion:
    """A copy of the fusion whose outputs are the others."""
    return clone_fusion(fusion, outputs=[t.name for t in fusion.outputs if t.name not in names])


def view(t: Tensor, v: Alias, given: Any) -> Any:
    """Output ``t`` in the memory of the array of the input or output that it is a view of.

    Raises `EmitError` for an array that does not lie as declared, and for one that is neither NumPy's nor torch's.
    """
    by_axis = dict(zip(v.of.allocation, strides(v.of), strict=True))
    declared = tuple(int(by_axis[d]) for d in v.of.axes)
    shape, steps = tuple(int(n) for n in t.shape), tuple(int(s) for s in v.strides)
    start = int(v.offset) - int(v.of.offset)
    if isinstance(given, np.ndarray):
        array = cast("npt.NDArray[Any]", given)
        size = array.dtype.itemsize
        _check_strides(v.of, declared, tuple(s // size for s in array.strides))
        return strided(array, shape, steps, start)
    if hasattr(given, "as_strided") and hasattr(given, "storage_offset"):
        _check_strides(v.of, declared, tuple(given.stride()))
        return given.as_strided(shape, steps, given.storage_offset() + start)
    raise EmitError(
        f"{t.name} is a view of {v.of.name}, and {type(given).__name__} gives no views",
        where=t.source_line,
        hint="NumPy arrays and torch tensors do; or emit(..., views=False)",
    )


def strided(array: npt.NDArray[Any], shape: tuple[int, ...], steps: tuple[int, ...], start: int) -> npt.NDArray[Any]:
    """A view of the memory of an array, ``start`` elements behind where the array begins; strides in elements.

    >>> strided(np.arange(6.0), (2, 2), (1, 2), 1).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    if 0 in shape:
        return np.empty(shape, array.dtype)
    size = array.dtype.itemsize
    first = np.lib.stride_tricks.as_strided(array, (1,), (size,))
    whole = np.lib.stride_tricks.as_strided(first, (start + 1,), (size,))
    return np.lib.stride_tricks.as_strided(whole[start:], shape, tuple(s * size for s in steps))


def _check_strides(t: Tensor, declared: tuple[int, ...], found: tuple[int, ...]) -> None:
    if any(a != b and n != 1 for a, b, n in zip(declared, found, t.shape, strict=True)):
        raise EmitError(
            f"{t.name} has strides {found}, not {declared} as declared: outputs that are views of it lie elsewhere",
            where=t.source_line,
            hint="declare the strides that it has, or emit(..., views=False)",
        )
