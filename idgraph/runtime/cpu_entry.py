"""Compiled CPU kernels as machine code that takes one block of 64-bit words: addresses and sizes, then integers.

numba's own way into a compiled function looks at the type of every argument of every call. Here the types are known,
so that a call is one jump. Kernels that differ in the names of their variables only, as those of the layers of a model
do, are compiled once; machine code is kept on disk where the program has a cache.
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from idgraph.codegen.printers.scalar import runs_parallel
from idgraph.errors import EmitError
from idgraph.ir import DType
from idgraph.kernel.ir import Kernel, Loop, Stmt, bodies, walk
from idgraph.passes.rows.sweep import COLUMN
from idgraph.runtime.binding import scalars_of
from idgraph.runtime.cache import KernelCache, kernel_key
from idgraph.runtime.cpu import load_numba

if TYPE_CHECKING:
    from idgraph.runtime.program import Program

SMALL = 1 << 15  # loop points up to which one core is done before others have begun
Entry = Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class Body:
    """A kernel's code without the names of its variables, which bytecode numbers; what it is compiled for."""

    code: tuple[object, ...]
    types: tuple[DType, ...]  # of its buffers
    integers: int
    parallel: bool
    rows: bool
    function: Callable[..., Any] = field(compare=False)


class Compiling:
    """A kernel that is compiled when a call first wants it: for all cores, or for one where the work is small."""

    __slots__ = ("_checked", "_entries", "_function", "_kernel", "_program")

    def __init__(self, program: Program, kernel: Kernel, function: Callable[..., Any], checked: bool) -> None:
        self._program, self._kernel, self._function, self._checked = program, kernel, function, checked
        self._entries: dict[bool, Entry] = {}

    def entry(self, env: Mapping[str, int]) -> Entry:
        """The machine code for these sizes."""
        always = self._program.config.parallel is True
        named = {**env, **dict(zip(self._kernel.scalars, scalars_of(self._kernel, env), strict=True))}
        parallel = runs_parallel(self._kernel) and (always or work(self._kernel.body, named) > SMALL)
        found = self._entries.get(parallel)
        if found is None:
            body = body_of(self._function, self._kernel, self._checked, parallel)
            kept = self._program.cache
            if kept is None:
                found = entry(body)
            else:
                key = f"{processor()}\n{kernel_key(self._program, self._kernel, self._checked, (0, 0))}\n{parallel}"
                found = entry(body, replace(kept, suffix=".obj"), key)
            self._entries[parallel] = found
        return found


def work(body: Sequence[Stmt], env: Mapping[str, int]) -> int:
    """Points of the loops, those of other loops added up.

    >>> work((), {})
    1
    """
    inner = sum(int(s.extent.evaluate(env)) * work(s.body, {**env, s.var: 0}) for s in body if isinstance(s, Loop))
    return max(inner, sum(work(bodies(s), env) for s in body if not isinstance(s, Loop) and bodies(s)), 1)


def body_of(function: Callable[..., Any], kernel: Kernel, checked: bool, parallel: bool) -> Body:
    """The function that is compiled for a kernel; a checked one has a last array for failures."""
    code = function.__code__
    constants = tuple((type(c).__name__, repr(c)) for c in code.co_consts)
    rows = any(isinstance(s, Loop) and s.var.split("_")[0] == COLUMN for s in walk(kernel.body))
    types: tuple[DType, ...] = tuple(b.dtype for b in kernel.buffers)
    key = (code.co_code, constants, code.co_names, code.co_argcount)
    return Body((*key, checked), types, len(kernel.scalars), parallel, rows, function)


def entry(body: Body, kept: KernelCache | None = None, key: str = "") -> Entry:
    """The kernel as a function of a block of words: for each buffer its address and its elements, then the integers,
    then the same two of what failed. It returns 0, or another number where there was no memory."""
    load_numba()
    with import_module("numba.core.compiler_lock").global_compiler_lock:
        return _entry(body, kept, key)


@lru_cache(maxsize=1024)
def _entry(body: Body, kept: KernelCache | None, key: str) -> Entry:
    types: Any = import_module("numba.core.types")
    known = _arrays()
    arrays = [known[t] for t in body.types]
    checks = [known["int64"]] if body.code[-1] else []
    signature = (*arrays, *(types.int64 for _ in range(body.integers)), *checks)
    found = None if kept is None else kept.find(key)
    if found is not None:
        name, library = _loaded(found)
    else:
        if kept is not None:
            kept.check()
        name, library = _compiled(body, signature)
        if kept is not None:
            kept.put(key, f"{name}\n{base64.b64encode(library._get_compiled_object()).decode()}")
    return _jump(library.get_pointer_to_function(name), signature, library)


@cache
def _arrays() -> dict[DType, Any]:
    """numba's types of flat arrays; it has no float16 on the CPU, whose kernels see 16-bit words."""
    load_numba()
    types: Any = import_module("numba.core.types")
    names: dict[DType, str] = {"bool": "boolean", "float16": "uint16", "bfloat16": "uint16"}
    dtypes: tuple[DType, ...] = (
        "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    )  # fmt: skip
    return {d: types.Array(getattr(types, names.get(d, d)), 1, "C") for d in dtypes}


def _compiled(body: Body, signature: tuple[Any, ...]) -> tuple[str, Any]:
    # Sums over a row may be taken in any order, so that they run as vectors; nothing else is allowed to change.
    order = {"reassoc"} if body.rows else False
    dispatcher: Any = load_numba().njit(body.function, error_model="numpy", parallel=body.parallel, fastmath=order)
    dispatcher.compile(signature)
    made = dispatcher.overloads[signature]
    return str(made.fndesc.llvm_func_name), made.library


def _loaded(text: str) -> tuple[str, Any]:
    """A library of the machine code that another process has made."""
    load_numba()
    name, code = text.split("\n", 1)
    target: Any = import_module("numba.core.registry").cpu_target.target_context
    import_module("numba.np.ufunc.parallel")._launch_threads()
    empty: Any = import_module("llvmlite.binding").parse_assembly("")
    state = (name[:60], "object", (base64.b64decode(code), empty.as_bitcode()))
    return name, target.codegen().unserialize_library(state)


def _jump(address: int, signature: Sequence[Any], library: Any) -> Entry:
    """A function of one pointer that calls the kernel at ``address`` with what the words say."""
    registry, types = import_module("numba.core.registry"), import_module("numba.core.types")
    ir: Any = import_module("llvmlite.ir")
    context: Any = registry.cpu_target.target_context
    call: Any = context.call_conv.get_function_type(types.none, signature)
    word, byte = ir.IntType(64), ir.IntType(8)
    made: Any = context.codegen().create_library(f"idgraph_jump_{address:x}")
    module: Any = made.create_ir_module("jump")
    function: Any = ir.Function(
        module, ir.FunctionType(ir.IntType(32), [word.as_pointer()]), f"idgraph_jump_{address:x}"
    )
    builder: Any = ir.IRBuilder(function.append_basic_block())
    at = 0

    def take() -> Any:
        nonlocal at
        at += 1
        return builder.load(builder.gep(function.args[0], [ir.Constant(word, at - 1)]))

    result, exception = (builder.alloca(t.pointee) for t in call.args[:2])
    values: list[Any] = [result, exception]
    for t in signature:
        if not isinstance(t, types.Array):
            values.append(take())
            continue
        data, size = take(), take()
        null, item = ir.Constant(byte.as_pointer(), None), t.dtype.bitwidth // 8 if hasattr(t.dtype, "bitwidth") else 1
        pointer = builder.inttoptr(data, call.args[len(values) + 4])
        values += [null, null, size, ir.Constant(word, item), pointer, size, ir.Constant(word, item)]
    kernel = builder.inttoptr(ir.Constant(word, address), call.as_pointer())
    builder.ret(builder.call(kernel, values))
    made.add_ir_module(module)
    made.finalize()
    place = made.get_pointer_to_function(function.name)
    # The interpreter's lock is held: numba's threads take one parallel kernel at a time.
    start = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(place)
    start.libraries = (library, made)  # type: ignore[attr-defined]
    return start


def no_memory(kernel: Kernel) -> EmitError:
    """The error of a kernel whose own arrays found no memory."""
    return EmitError(f"{kernel.name} has no memory for its private arrays", hint="run the program on parts")


@cache
def processor() -> str:
    """The target of machine code: the processor, its features, and the number of numba's threads."""
    llvm: Any = import_module("llvmlite.binding")
    able = sorted(k for k, v in llvm.get_host_cpu_features().items() if v)
    config: Any = import_module("numba.core.config")
    names = ("OPT", "CPU_NAME", "CPU_FEATURES", "THREADING_LAYER", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK")
    told = [f"{n}={getattr(config, n, None)}" for n in names]
    return "\n".join([llvm.get_process_triple(), llvm.get_host_cpu_name(), ",".join(able), *told])
