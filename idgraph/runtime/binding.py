"""Arrays against declarations: symbols bound from shapes, flat buffers with the declared strides, outputs as arrays.

Extents, strides and offsets count elements; only NumPy's own strides are bytes.

Checks of loaded indices that failed, as kernels report them and as the user reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

import numpy as np
import numpy.typing as npt

from idgraph.arith import Expr, as_expr, integer_root
from idgraph.codegen.printers.scalar import site_numbers
from idgraph.codegen.runtime_lib.numpy_ops import storage_dtype
from idgraph.errors import EmitError, IndexingError
from idgraph.index import buffer_size, strides
from idgraph.index.allocation import has_strides, memory_map
from idgraph.ir import Fusion, IterDomain, Tensor
from idgraph.kernel.ir import PRIME, Buffer, CheckSite, Kernel
from idgraph.runtime.raw_output import RawOutput, raw_output

if TYPE_CHECKING:
    from idgraph.runtime.executable import Executable


Array = npt.NDArray[Any]
Env = dict[str, int]
FOREIGN = "in foreign byte order"


class OutputMemory(NamedTuple):
    """How memory that kernels write is made: with this number in every element first, or ``poison`` (NaN, or an odd
    integer); ``raw``: outputs are given as `RawOutput`."""

    poison: bool = False
    fill: float | None = None
    raw: bool = False

    @property
    def fills(self) -> bool:
        """Whether memory is written before kernels run."""
        return self.poison or self.fill is not None


class BoundArray(NamedTuple):
    """An array argument: ``strides`` in elements, None where they are not whole non-negative numbers of elements;
    ``whole``: the data is the memory that kernels read, from its first element on, whatever lies where in it."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None
    data: Any
    device: str = "cpu"
    whole: bool = False


def element_strides(shape: Sequence[int], byte_strides: Sequence[int] | None, size: int) -> tuple[int, ...] | None:
    """Strides in elements; row-major where none are given."""
    if byte_strides is None:
        made: list[int] = []
        inner = 1
        for n in reversed(shape):
            made.insert(0, inner)
            inner *= n
        return tuple(made)
    if any(s % size or s < 0 for s in byte_strides):
        return None
    return tuple(s // size for s in byte_strides)


def given_array(name: str, value: object) -> BoundArray:
    """A NumPy array (or what NumPy reads as one without changing a type) as `BoundArray`."""
    if not isinstance(value, (np.ndarray, np.generic)):
        raise EmitError(
            f"input {name} is a {type(value).__name__}, not an array",
            hint="pass NumPy arrays: np.asarray(x), or x.numpy() of a torch tensor",
        )
    if isinstance(value, np.ma.MaskedArray):
        raise masked(name)
    array: Array = np.asarray(cast("Array", value))
    own = element_strides(array.shape, array.strides, array.itemsize)
    return BoundArray(array.shape, dtype_name(array.dtype), own, array)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name that declarations use."""
    return dtype.name if dtype.isnative else f"{dtype.name} {FOREIGN}"


def masked(name: str) -> EmitError:
    """The array masks some of its elements."""
    return EmitError(
        f"input {name} is a masked array: kernels would read what lies under the mask",
        hint="say what stands there: array.filled(0)",
    )


# symbols --------------------------------------------------------------------------------------------------------------


def bind(fusion: Fusion, given: Mapping[str, BoundArray], symbols: Mapping[str, int] | None) -> Env:
    """Values of all symbols of ``fusion``; raises `EmitError` where arrays, symbols and declarations disagree."""
    names = [t.name for t in fusion.inputs]
    missing, extra = [n for n in names if n not in given], [n for n in given if n not in names]
    if missing or extra:
        raise EmitError(
            f"input {missing[0]} is missing" if missing else f"{extra[0]} is not an input of fusion {fusion.name}",
            hint=f"inputs: {', '.join(names) or '(none)'}",
        )
    env = _bind_symbols(fusion, symbols)
    for t in fusion.inputs:
        g = given[t.name]
        if g.dtype != t.dtype:
            raise mistyped(t, g)
        if len(g.shape) != t.ndim:
            raise _misfit(t, g, f"{t.ndim} axes declared, the array has {len(g.shape)}")
        for d, n in zip(t.axes, g.shape, strict=True):
            if d.extent.op == "sym":
                env.setdefault(d.extent.name, n)
    _solve(fusion, given, env)
    unknown = [s for s in fusion.symbols if s not in env]
    if unknown:
        raise EmitError(
            f"symbol {unknown[0]} follows from no input's shape",
            because=[
                f"axis {p} of {t.name} has {d.extent} elements, as other values of its symbols may give too"
                for t in fusion.inputs
                for p, d in enumerate(t.axes)
                if unknown[0] in d.extent.names
            ],
            hint=f"run(..., symbols={{{unknown[0]!r}: ...}})",
        )
    _check_equal(fusion, symbols, env)
    for s, e in fusion.symbols.items():
        _check_symbol(s, e, env)
    for t in fusion.inputs:
        g = given[t.name]
        for p, (d, n) in enumerate(zip(t.axes, g.shape, strict=True)):
            wanted = int(d.extent.evaluate(env))
            if wanted != n:
                how = "" if d.extent.is_const else f" = {d.extent}"
                equal = [str(x) for x in fusion.equalities if d.extent.is_const or x.value.names & d.extent.names]
                raise _misfit(t, g, f"axis {p} is declared {wanted}{how}, the array has {n}", equal)
    return env


def _check_equal(fusion: Fusion, symbols: Mapping[str, Any] | None, env: Env) -> None:
    """Values of the symbols that an operation made equal to others, in their declared bounds."""
    for found in fusion.equalities:
        env[found.name] = value = int(fusion.in_symbols(found.value).evaluate(env))
        given = (symbols or {}).get(found.name, value)
        if given != value:
            raise EmitError(
                f"symbol {found.name} = {given}, and {found.value} is {value}: they are equal",
                because=[str(found)],
                hint=f"leave {found.name} out, or give both one value",
            )
    for found in fusion.equalities:
        _check_symbol(found.name, found.symbol, env)


def _solve(fusion: Fusion, given: Mapping[str, BoundArray], env: Env) -> None:
    """Values of the symbols of larger extents, ``n*4`` or ``n + 1``: where one is open, and one value fits."""
    open_ = [
        (t, p, d.extent, n)
        for t in fusion.inputs
        for p, (d, n) in enumerate(zip(t.axes, given[t.name].shape, strict=True))
        if not d.extent.names <= env.keys()
    ]
    moved = True
    while moved:
        moved = False
        for t, p, extent, n in open_:
            left = [s for s in extent.symbols if s.name not in env]
            if len(left) != 1 or left[0].name not in fusion.symbols:
                continue
            known = {s: as_expr(env[s.name]) for s in extent.symbols if s.name in env}
            root = integer_root(extent.substitute(known), left[0], n)
            if root.value is not None:
                env[left[0].name] = root.value
                moved = True
            elif root.known and not root.several:
                raise _misfit(t, given[t.name], f"axis {p} has {n} elements, and {extent} is {n} for no {left[0]}")


def _bind_symbols(fusion: Fusion, symbols: Mapping[str, Any] | None) -> Env:
    env: Env = {}
    for name, value in (symbols or {}).items():
        equal = any(found.name == name for found in fusion.equalities)
        if name not in fusion.symbols and not equal:
            raise EmitError(
                f"{name!r} is not a symbol of fusion {fusion.name}", hint=f"symbols: {list(fusion.symbols)}"
            )
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise EmitError(f"symbol {name} = {value!r} is not an integer")
        if not equal:
            env[name] = int(cast("int", value))
    return env


def mistyped(t: Tensor, g: BoundArray) -> EmitError:
    """The array has another type than the input."""
    turned = "array.astype(array.dtype.newbyteorder('=')) turns the bytes round"
    hint = turned if FOREIGN in g.dtype else f"convert the array, or declare dtype={g.dtype!r} for {t.name}"
    return EmitError(f"input {t.name} is declared {t.dtype}, the array is {g.dtype}", where=t.source_line, hint=hint)


def _misfit(t: Tensor, g: BoundArray, why: str, because: Sequence[str] = ()) -> EmitError:
    declared = ", ".join(map(str, t.shape))
    return EmitError(
        f"input {t.name} of shape {g.shape} does not fit ({declared}): {why}",
        where=t.source_line,
        because=[*because],
        hint=f"pass an array of shape ({declared}), or declare an axis of any extent: f.symbol(name)",
    )


def _check_symbol(name: str, e: Expr, env: Env) -> None:
    value, (low, high, step, rest) = env[name], e.symbol_bounds
    low, high = (int(b.evaluate(env)) if isinstance(b, Expr) else b for b in (low, high))
    if (
        (isinstance(low, int) and value < low)
        or (isinstance(high, int) and value > high)
        or value % step != rest % step
    ):
        every = f", a multiple of {step}" if step > 1 else ""
        raise EmitError(f"symbol {name} = {value} is outside its declaration: {low} to {high}{every}")


def bind_strides(t: Tensor, env: Env, shape: Sequence[int], actual: Sequence[int] | None) -> None:
    """Give values to the free strides of ``t``: the array's own where they describe it, else contiguous."""
    axes = {d: p for p, d in enumerate(t.axes)}
    for own in (actual, None):
        tried = dict(env)
        inner = 1
        for d, stride in reversed(list(zip(t.allocation, strides(t), strict=True))):
            if stride.op == "sym" and stride.name.startswith("stride") and stride.name not in tried:
                tried[stride.name] = own[axes[d]] if own is not None and d in axes else inner
            inner = int(stride.evaluate(tried)) * int(d.extent.evaluate(tried))
        want = logical_strides(t, tried)
        if own is None or (want is not None and fits(shape, own, want)):
            env.update(tried)
            return


def logical_strides(t: Tensor, env: Mapping[str, int]) -> tuple[int, ...] | None:
    """Elements between neighbours along each axis of ``t.shape``; None where memory is not a strided view of it."""
    found: dict[IterDomain, int] = {d: int(s.evaluate(env)) for d, s in zip(t.allocation, strides(t), strict=True)}
    if not has_strides(t):
        return None
    return tuple(found.get(d, 0) for d in t.axes)


# buffers --------------------------------------------------------------------------------------------------------------


def extents(t: Tensor, env: Mapping[str, int]) -> tuple[int, ...]:
    """The shape as numbers."""
    return tuple(int(d.extent.evaluate(env)) for d in t.axes)


def fits(shape: Sequence[int], have: Sequence[int] | None, want: Sequence[int]) -> bool:
    """True when strides agree on every axis that has more than one element."""
    return have is not None and all(n <= 1 or a == b for n, a, b in zip(shape, have, want, strict=True))


def why_copied(t: Tensor, g: BoundArray, env: Env) -> str:
    """Why an array does not lie in memory as ``t`` is declared, or ""; ``env`` has the free strides too."""
    want = logical_strides(t, env)
    if want is None:
        return "its memory is laid out by axes that the schedule made"
    if t.offset != 0:
        return f"it is declared to begin at element {t.offset} of its memory"
    if g.strides is None:
        return "its strides are negative, or no whole numbers of elements"
    if not fits(g.shape, g.strides, want):
        return f"its strides are {g.strides}, not {want} as declared"
    return "" if g.data.flags.aligned else "its elements are not aligned in memory"


def copies(fusion: Fusion, inputs: Mapping[str, Any], symbols: Mapping[str, int] | None) -> dict[str, str]:
    """See `Program.copies`."""
    given = {name: given_array(name, a) for name, a in inputs.items()}
    env = bind(fusion, given, symbols)
    found: dict[str, str] = {}
    for t in fusion.inputs:
        g = given[t.name]
        bind_strides(t, env, g.shape, g.strides)
        why = "" if 0 in g.shape else why_copied(t, g, env)
        if why:
            found[t.name] = why
    return found


def flat_input(t: Tensor, g: BoundArray, env: Env) -> Array:
    """The buffer that the declaration of ``t`` describes, as words kernels see; shared with the array if it can be."""
    array: Array = g.data
    data = array.view(np.uint16) if t.dtype == "bfloat16" else array
    shape = g.shape
    bind_strides(t, env, shape, g.strides)
    size = int(buffer_size(t).evaluate(env)) if 0 not in shape else 0
    want = logical_strides(t, env)
    offset = int(t.offset.evaluate(env)) if isinstance(t.offset, Expr) else t.offset
    if size == 0:
        return np.zeros(1, data.dtype)
    if not why_copied(t, g, env):
        return np.lib.stride_tricks.as_strided(data, (size,), (data.itemsize,), writeable=False)
    flat = _room(t.name, size, data.dtype, t.source_line, zero=True)
    if want is None:
        flat[places(t, env)] = data
        return flat
    view = np.lib.stride_tricks.as_strided(flat[offset:], shape, tuple(s * data.itemsize for s in want))
    view[...] = data
    if has_distinct_elements(shape, want):
        return flat
    same = view == data
    if data.dtype.kind == "f":
        same |= (view != view) & (data != data)
    if not bool(np.all(same)):
        raise overlap_message(t, want)
    return flat


def has_distinct_elements(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether each element is known to have a place of its own."""
    end = 0
    for step, n in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if step <= end:
            return False
        end += step * (n - 1)
    return True


def overlap_message(t: Tensor, want: Sequence[int]) -> EmitError:
    """That an array holds different elements where its declaration has one."""
    return EmitError(
        f"input {t.name}: its strides {tuple(want)} put several elements of the array at one address, and they differ",
        where=t.source_line,
        hint="pass an array that is constant along the axes of stride 0: np.broadcast_to(row, shape)",
    )


def empty_buffer(t: Tensor, env: Env, memory: OutputMemory | None) -> Array:
    """Memory for an output or a global intermediate."""
    bind_strides(t, env, extents(t, env), None)
    size = max(1, int(buffer_size(t).evaluate(env))) if 0 not in extents(t, env) else 1
    return empty_words(size, t.dtype, memory, t)


def _room(name: str, size: int, dtype: np.dtype[Any], line: object, *, zero: bool = False) -> Array:
    """New memory; raises `EmitError` where the machine has too little."""
    try:
        return np.zeros(size, dtype) if zero else np.empty(size, dtype)
    except (MemoryError, ValueError):
        raise EmitError(
            f"there is no memory for {name}: {size} elements of {dtype.itemsize} bytes",
            where=str(line) if line else None,
            hint="inline it into what reads it, or run the program on parts",
        ) from None


def empty_words(size: int, dtype: Any, memory: OutputMemory | None, of: Tensor | None = None) -> Array:
    """``size`` elements of ``dtype`` as kernels see them."""
    name, line = ("a private array", None) if of is None else (of.name, of.source_line)
    made = _room(name, size, storage_dtype(dtype), line)
    if memory is not None and memory.fills:
        fill_words(made, dtype, memory.fill)
    return made


def fill_words(words: Array, dtype: str, value: float | None) -> None:
    """Write a number, or poison (NaN, an odd integer), into every element of memory as kernels see it."""
    if value is None:
        words[...] = 0x7FC1 if dtype == "bfloat16" else np.nan if words.dtype.kind == "f" else 85
    elif dtype == "bfloat16":
        import ml_dtypes  # noqa: PLC0415  # only where there are such values

        words[...] = np.asarray(value, ml_dtypes.bfloat16).view(np.uint16)
    else:
        words[...] = value


def global_buffer(program: Executable, b: Buffer, env: Env, memory: OutputMemory | None) -> Array:
    """Memory that kernels write: a tensor's, or slices of private memory too large for one thread."""
    if b.title in program.fusion_names and b.name.startswith("buf"):
        return empty_buffer(program.fusion[b.title], env, memory)
    return empty_words(max(1, int(b.size.evaluate(env))), b.dtype, memory)


def scalars_of(kernel: Kernel, env: Mapping[str, int]) -> list[int]:
    """Values of the kernel's integer parameters."""
    return [env[s.removesuffix(PRIME)] for s in kernel.scalars]


def given_output(t: Tensor, flat: Array, env: Mapping[str, int], raw: bool) -> Array | RawOutput:
    """An output's buffer as a caller gets it: as `output_array`, or ``raw`` with its map."""
    if not raw:
        return output_array(t, flat, env)
    shape = extents(t, env)
    return raw_output(t, _as_dtype(t, flat)[: 0 if 0 in shape else None], shape, env)


def _as_dtype(t: Tensor, flat: Array) -> Array:
    if t.dtype != "bfloat16":
        return flat
    import ml_dtypes  # noqa: PLC0415  # only where there are such values

    return flat.view(ml_dtypes.bfloat16)


def output_array(t: Tensor, flat: Array, env: Mapping[str, int]) -> Array:
    """An output's buffer as an array of its shape and dtype."""
    flat, shape = _as_dtype(t, flat), extents(t, env)
    if 0 in shape:
        return np.empty(shape, flat.dtype)
    want = logical_strides(t, env)
    if want is None:
        return flat[places(t, env)]
    return np.lib.stride_tricks.as_strided(flat, shape, tuple(s * flat.itemsize for s in want))


def updated_inputs(fusion: Fusion, homes: Collection[str]) -> dict[str, str]:
    """Name of an output -> that of the input in whose memory kernels write it; ``homes``: tensors with buffers."""
    found = [e for e in fusion.exprs if e.attrs.get("in_place") is True and e.output.name in homes]
    return {e.output.name: x.name for e in found if (x := e.inputs[0]).definition is None and x.name not in homes}


def passed_input(t: Tensor, g: BoundArray, env: Env, raw: bool) -> Array | RawOutput:
    """An output that is an input: a copy of it."""
    return given_output(t, flat_input(t, g, env).copy(), env, True) if raw else np.array(g.data)


def places(t: Tensor, env: Mapping[str, int]) -> Array:
    """The address of every element of ``t``, where memory follows axes made by splits, merges and swizzles."""
    shape = extents(t, env)
    found = memory_map(t)
    values: dict[str, Any] = dict(env)
    for p, (s, n) in enumerate(zip(found.symbols, shape, strict=True)):
        values[s.name] = np.arange(n, dtype=np.int64).reshape([-1 if q == p else 1 for q in range(len(shape))])
    return np.broadcast_to(found.results[0].evaluate_array(values), shape)


def fault_size(kernel: Kernel) -> int:
    """Number, value and loop variables of a failed check."""
    return 2 + max((len(s.site.loops) for s in site_numbers(kernel)), default=0)


def raise_fault(kernel: Kernel, fault: Any, env: Mapping[str, int]) -> NoReturn:
    """The error of a kernel's failed check."""
    site = site_numbers(kernel)[int(fault[0]) - 1].site
    raise out_of_range(site, int(fault[1]), [int(v) for v in fault[2:]], env)


def out_of_range(site: CheckSite, value: int, point: list[int], env: Mapping[str, int] | None) -> IndexingError:
    """A loaded index is outside the axis it indexes."""
    at = ", ".join(f"{name}={v}" for name, v in zip(site.loops, point, strict=False))
    extent: Expr | int = site.extent if env is None else int(site.extent.evaluate(env))
    if site.axis < 0:
        return IndexingError(
            f"{site.index} holds {value} where a row {site.tensor}: these are no offsets of rows of {extent} elements",
            where=site.line,
            because=[f"in {site.expr} at {at or 'its only point'}"],
            hint=f"offsets begin at 0, never fall, and end at {extent}",
        )
    return IndexingError(
        f"index {value} loaded from {site.index} is outside axis {site.axis} of {site.tensor}, of extent {extent}",
        where=site.line,
        because=[f"in {site.expr} at {at or 'its only point'}"],
        hint=f"indices run from 0 to {extent} - 1; negative ones do not count from the end",
    )
