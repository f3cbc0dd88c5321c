"""Everything that is special about numba-cuda: names of the device, launches, arrays on the device, PTX without one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from idgraph.emit.cache import kernel_key
from idgraph.emit.cuda_blocks import exchanges
from idgraph.emit.cuda_driver import DeviceKernel
from idgraph.emit.cuda_math import extrema, short_exp
from idgraph.emit.cuda_pairs import pair_functions, plain_pairs, software_bf16
from idgraph.emit.cuda_vectors import native_bf16, plain_vectors, vectors
from idgraph.emit.layout import (
    Env,
    Given,
    bind,
    bind_strides,
    element_strides,
    extents,
    fits,
    flat_input,
    given_array,
    logical_strides,
    output_array,
)
from idgraph.emit.ops import scalars
from idgraph.emit.ops.compiled import rebound
from idgraph.emit.ops.memory import storage_dtype
from idgraph.emit.plan import Kernel
from idgraph.emit.printers.scalar import site_numbers
from idgraph.emit.shared import shared_layout
from idgraph.errors import EmitError
from idgraph.index import buffer_size
from idgraph.ir import Tensor

if TYPE_CHECKING:
    from idgraph.emit.program import Program

Array = npt.NDArray[Any]
_LIMITS = {
    "blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535,
    "threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64,
}  # fmt: skip


@cache
def load_cuda() -> Any:
    """numba.cuda as numba-cuda makes it, or a clear error."""
    if not hasattr(np, "row_stack"):
        # NumPy 2.5 dropped the name; numba 0.68 still asks for it when it is imported.
        np.row_stack = np.vstack  # pyright: ignore[reportAttributeAccessIssue]
    try:
        cuda: Any = import_module("numba.cuda")
    except ImportError as error:
        raise EmitError(
            "target cuda needs numba-cuda", because=[str(error)], hint="pip install idgraph[cuda]"
        ) from None
    if "numba_cuda" not in str(cuda.__file__):
        raise EmitError(
            "numba.cuda is the one that numba ships, which is deprecated and lacks what the kernels use",
            because=[f"it was loaded from {cuda.__file__}"],
            hint="pip install 'numba-cuda[cu13]'",
        )
    return cuda


def simulated() -> bool:
    """True in numba's simulator, which is chosen by NUMBA_ENABLE_CUDASIM=1 when numba is imported."""
    load_cuda()
    return bool(import_module("numba.core.config").ENABLE_CUDASIM)


def need_device() -> Any:
    """numba.cuda with a device (or its simulator)."""
    cuda = load_cuda()
    if simulated() or cuda.is_available():
        return cuda
    raise EmitError(
        "there is no CUDA device to run on",
        hint="target 'cpu' runs here; NUMBA_ENABLE_CUDASIM=1 simulates a device; compile_ptx(program) needs none",
    )


# compilation ----------------------------------------------------------------------------------------------------------


@cache
def available() -> bool:
    """True when kernels can run here: a CUDA device, or numba's simulator."""
    try:
        need_device()
    except EmitError:
        return False
    return True


def _word_value(word: Any) -> float:
    """The simulator's arrays give NumPy scalars, which overflow where Python's integers do not."""
    return scalars.bf16_load(int(word))


def _value_word(value: float) -> int:
    return scalars.bf16_word(scalars.f32(value))


def _plus(a: Any, b: Any) -> Any:
    return a + b


def _times(a: Any, b: Any) -> Any:
    return a * b


_PAIRS: dict[str, Any] = {"sum": _plus, "prod": _times, "amax": scalars.maximum, "amin": scalars.minimum}


def dynamic_types(scalar: bool) -> dict[str, Any]:
    """Element types of arrays in dynamic shared memory, by name: what numba compiles, or what the simulator takes."""
    kinds = ("bool_", *(f"float{n}" for n in (16, 32, 64)), *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)))
    return {f"dynamic_{k}": getattr(np, k) if scalar else np.dtype(k) for k in kinds}


def namespace(cc: tuple[int, int]) -> dict[str, Any]:
    """The names that kernels use, as device functions inlined into them."""
    cuda = load_cuda()
    if simulated():
        plain: dict[str, Any] = {k: v for k, v in vars(scalars).items() if not k.startswith("__")}
        return {
            **plain, "cuda": cuda, "np": np, "f16_load": float, "f16_word": np.float16,
            "bf16_load": _word_value, "shared_alignment": None, **plain_vectors(),
            **plain_pairs({"bf16": _word_value, "f16": float}, {"bf16": _value_word, "f16": np.float16}),
            **exchanges(cuda, cuda.jit(device=True), _PAIRS, shuffles=False), **dynamic_types(scalar=False),
        }  # fmt: skip
    libdevice: Any = import_module("numba.cuda.libdevice")

    base: dict[str, Any] = {
        "cuda": cuda, "f32": np.float32, "f64": np.float64, "i64": np.int64, "u32": np.uint32, "u64": np.uint64,
        "inf": math.inf, "nan": math.nan, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
        "fmod": math.fmod, "power": math.pow, "atan2": math.atan2, "exp": math.exp, "exp2": math.exp2,
        "expm1": math.expm1, "log": math.log, "log2": math.log2, "log1p": math.log1p, "sqrt": math.sqrt,
        "sin": math.sin, "cos": math.cos, "tan": math.tan, "tanh": math.tanh, "erf": math.erf,
        "f16_load": np.float32, "f16_word": np.float16, "shared_alignment": 16,
    }  # fmt: skip
    bits = {"libdevice": libdevice, "np": np}
    # Inlined where they are used: a device function would ask for a device, and PTX must not need one.
    jit = cuda.jit(device=True, inline="always")

    def float_bits(x: Any) -> Any:
        return np.uint32(libdevice.float_as_int(np.float32(x)))

    def bits_float(word: Any) -> Any:
        return libdevice.int_as_float(np.int32(word))

    def wrapped(a: Any, n: Any) -> Any:
        return min(a, np.uint32(a - n))  # a - n is huge where a < n

    base.update(
        wrapped=jit(wrapped),
        float_bits=jit(float_bits),
        bits_float=jit(bits_float),
        **bits,
        **vectors(),
        **pair_functions(cc),
        **short_exp(),
    )
    if cc >= (8, 0):
        base.update(native_bf16(), **extrema())
    names = rebound(base, jit)
    if cc < (8, 0):
        names.update(software_bf16(names, jit))
    pairs = {**{k: jit(f) for k, f in _PAIRS.items()}, "amax": names["maximum"], "amin": names["minimum"]}
    return {**names, **exchanges(cuda, jit, pairs, shuffles=True), **dynamic_types(scalar=True)}


def kernel_functions(program: Program, checked: bool, cc: tuple[int, int]) -> dict[str, Any]:
    """The kernels of a CUDA program as Python functions, not yet compiled."""
    from idgraph.emit.launch import function_of  # noqa: PLC0415  # launch picks this module for CUDA programs

    names = namespace(cc)
    return {
        k.name: function_of(program.kernel_source(k, checked), k.name, dict(names), "cuda")
        for k in program.plan.kernels
    }


def compile_ptx(program: Program, *, checked: bool = False, cc: tuple[int, int] = (9, 0)) -> list[str]:
    """PTX of each kernel for compute capability ``cc``; needs the CUDA compiler libraries but no device.

    Raises `EmitError` for a program of another target, or inside the simulator.
    """
    if program.target != "cuda":
        raise EmitError(f"PTX is made of cuda programs, this one is for {program.target}")
    cuda = load_cuda()
    if simulated():
        raise EmitError("the simulator compiles no PTX", hint="unset NUMBA_ENABLE_CUDASIM")
    functions: dict[str, Any] = {}

    def make(kernel: Kernel) -> str:
        if not functions:
            functions.update(kernel_functions(program, checked, cc))
        return cuda.compile_ptx(functions[kernel.name], signature(kernel, checked), cc=cc)[0]

    if program.cache is None:
        return [make(k) for k in program.plan.kernels]
    kept = program.cache
    return [kept.text(kernel_key(program, k, checked, cc), partial(make, k)) for k in program.plan.kernels]


def signature(kernel: Kernel, checked: bool) -> tuple[Any, ...]:
    """Types of a kernel's parameters: flat arrays, then 64-bit integers."""
    from_dtype: Any = import_module("numba.cuda.np.numpy_support").from_dtype
    int64: Any = import_module("numba.cuda.types").int64
    flat: list[Any] = [from_dtype(storage_dtype(b.dtype))[::1] for b in kernel.buffers]
    return (*flat, *(int64 for _ in kernel.scalars), *((int64[::1],) if checked else ()))


# running --------------------------------------------------------------------------------------------------------------


def launch_shape(kernel: Kernel, env: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks and threads of a launch: each dimension as large as the largest loop that runs on it."""
    sizes: dict[str, int] = {}
    for dim, found in kernel.launch.items():
        sizes[dim] = max(1, *(int(e.evaluate(env)) for e in found))
        if sizes[dim] > _LIMITS[dim]:
            raise EmitError(
                f"{sizes[dim]} is more than the {_LIMITS[dim]} that {dim} can count",
                hint="split the axis and put the outer part on blockIdx.x",
            )
    threads = tuple(sizes.get(f"threadIdx.{d}", 1) for d in "xyz")
    if math.prod(threads) > 1024:
        raise EmitError(f"{threads} are {math.prod(threads)} threads in a block, of at most 1024")
    return tuple(sizes.get(f"blockIdx.{d}", 1) for d in "xyz"), threads


class Prepared:
    """A CUDA program with its buffers on the device: `launch` starts its kernels, `results` are its outputs.

    Launching again computes again into the same buffers; nothing waits for the device.
    """

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        symbols: Mapping[str, int] | None = None,
        checked: bool = False,
        poison: bool = False,
    ) -> None:
        from idgraph.emit.launch import fault_size, global_buffer, raise_fault, scalars_of  # noqa: PLC0415  # as above

        cuda, fusion = need_device(), program.fusion
        self.program = program
        self._on_device = any(_is_device(a) for a in inputs.values())
        given = {name: _device_given(a) if _is_device(a) else given_array(name, a) for name, a in inputs.items()}
        self.env = bind(fusion, given, symbols)
        self._homes = {b.title: b.name for b in program.plan.buffers if b.place != "private"}
        self._flat: dict[str, Any] = {}
        for t in fusion.inputs:
            g = given[t.name]
            device = _is_device(g.data)
            self._flat[self._homes[t.name]] = (
                _device_flat(t, g, self.env) if device else cuda.to_device(flat_input(t, g, self.env))
            )
        for b in program.plan.buffers:
            if b.place in ("output", "global"):
                host = global_buffer(program, b, self.env, poison)
                self._flat[b.name] = cuda.to_device(host) if poison else cuda.device_array(host.shape, host.dtype)
        functions: dict[str, Any] = dict(program.functions(checked))
        self._kernels: list[tuple[Kernel, Callable[[], None], Any]] = []
        for kernel in program.plan.kernels:
            fault = cuda.to_device(np.zeros(fault_size(kernel), np.int64)) if checked else None
            arguments = [*(self._flat[b.name] for b in kernel.buffers), *map(np.int64, scalars_of(kernel, self.env))]
            blocks, threads = launch_shape(kernel, self.env)
            arguments += [] if fault is None else [fault]
            shared = shared_layout(kernel.body).dynamic
            start = _start(functions[kernel.name], blocks, threads, arguments, shared)
            self._kernels.append((kernel, start, fault))
        self._raise = raise_fault

    def launch(self) -> None:
        """Start all kernels in order; a checked program raises `IndexingError` for a loaded index out of range."""
        for kernel, start, fault in self._kernels:
            start()
            if fault is not None and site_numbers(kernel):
                found = fault.copy_to_host()
                if found[0]:
                    self._raise(kernel, found, self.env)

    def results(self) -> dict[str, Any]:
        """Outputs by name: on the device when some input was, else NumPy arrays."""
        made: dict[str, Any] = {}
        for t in self.program.fusion.outputs:
            buffer = self._flat[self._homes[t.name]]
            made[t.name] = (
                _device_output(t, buffer, self.env) if self._on_device else output_array(t, _host(buffer), self.env)
            )
        return made


def _start(
    function: Any, blocks: tuple[int, ...], threads: tuple[int, ...], arguments: list[Any], shared: int
) -> Callable[[], None]:
    if isinstance(function, DeviceKernel):
        return function.bound(blocks, threads, arguments, shared)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few threads are what small shapes need
        configured = function[blocks, threads, 0, shared]

    def simulate() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the simulator's threads warn of the infinities that kernels make
            configured(*arguments)

    return simulate


def run(
    program: Program, inputs: Mapping[str, Any], symbols: Mapping[str, int] | None, checked: bool, poison: bool
) -> dict[str, Any]:
    """Run once on the device."""
    prepared = Prepared(program, inputs, symbols, checked, poison)
    prepared.launch()
    return prepared.results()


def compiled(program: Program, checked: bool) -> dict[str, Any]:
    """The kernels: compiled to PTX (or found in the program's cache) and loaded; in the simulator, its own."""
    cuda = need_device()
    if simulated():
        return {name: cuda.jit(f) for name, f in kernel_functions(program, checked, (0, 0)).items()}
    major, minor = (int(n) for n in cuda.get_current_device().compute_capability)
    texts = compile_ptx(program, checked=checked, cc=(major, minor))
    return {k.name: DeviceKernel(ptx) for k, ptx in zip(program.plan.kernels, texts, strict=True)}


# arrays on the device -------------------------------------------------------------------------------------------------


class _View:
    """Device memory under another shape, for `numba.cuda.as_cuda_array`."""

    def __init__(self, owner: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": shape, "strides": strides, "typestr": dtype, "data": (address, False), "version": 3,
        }  # fmt: skip


def _is_device(array: Any) -> bool:
    return not isinstance(array, (np.ndarray, np.generic)) and hasattr(array, "__cuda_array_interface__")


def _device_given(array: Any) -> Given:
    """A device array; 16-bit words (``<u2`` or ``<V2``) stand for bfloat16."""
    about = array.__cuda_array_interface__
    kind = np.dtype(about["typestr"])
    name = "bfloat16" if kind.str in ("<u2", "|V2") else kind.name
    shape = tuple(int(n) for n in about["shape"])
    return Given(shape, name, element_strides(shape, about.get("strides"), kind.itemsize), array)


def _device_flat(t: Tensor, g: Given, env: Env) -> Any:
    """The buffer that the declaration describes: the array's own memory where it has that layout."""
    cuda = load_cuda()
    bind_strides(t, env, g.shape, g.strides)
    size = int(buffer_size(t).evaluate(env)) if 0 not in g.shape else 0
    words = storage_dtype(t.dtype)
    want = logical_strides(t, env)
    address = int(g.data.__cuda_array_interface__["data"][0])
    if size and t.offset == 0 and want is not None and fits(g.shape, g.strides, want):
        if address % t.alignment:  # vector accesses were proved with the declared alignment
            raise EmitError(
                f"the array for {t.name} starts at an address that {t.alignment} bytes do not divide",
                where=t.source_line,
                hint=f"declare what it has: f.input(..., alignment={min(t.alignment, address & -address)})",
            )
        return cuda.as_cuda_array(_View(g.data, address, (size,), (words.itemsize,), words.str))
    if 0 in g.shape:
        return cuda.to_device(np.zeros(1, words))
    if g.strides is None:
        raise EmitError(f"input {t.name}: the device array's strides are no whole elements", where=t.source_line)
    span = 1 + sum((n - 1) * s for n, s in zip(g.shape, g.strides, strict=True))
    flat = cuda.as_cuda_array(_View(g.data, address, (span,), (words.itemsize,), words.str)).copy_to_host()
    array = np.lib.stride_tricks.as_strided(flat, g.shape, tuple(s * words.itemsize for s in g.strides))
    return cuda.to_device(flat_input(t, Given(g.shape, g.dtype, g.strides, array), env))


def _device_output(t: Tensor, flat: Any, env: Env) -> Any:
    """An output on the device; bfloat16 as 16-bit words."""
    cuda = load_cuda()
    words = storage_dtype(t.dtype)
    shape, want = extents(t, env), logical_strides(t, env)
    if want is None or 0 in shape:
        made = output_array(t, _host(flat), env)
        return cuda.to_device(np.ascontiguousarray(made).view(words) if t.dtype == "bfloat16" else made)
    address = int(flat.__cuda_array_interface__["data"][0])
    return cuda.as_cuda_array(_View(flat, address, shape, tuple(s * words.itemsize for s in want), words.str))


def _host(array: Any) -> Array:
    return array.copy_to_host()
