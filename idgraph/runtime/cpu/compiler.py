"""Compiled CPU kernels as machine code that takes one block of 64-bit words: addresses and sizes, then integers.

numba's own dispatcher inspects the type of every argument of every call. Here the types are known, so that a call is
one jump. A kernel whose outermost loop runs over blocks takes the first and the last of them, so that one machine code
serves small work on one core and large work on all (`idgraph.runtime.cpu.trampoline`). Kernels that
differ in the names of their variables only, as those of the layers of a model do, are compiled once; machine code is
kept on disk where the program has a cache.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from types import FunctionType
from typing import Any

from idgraph.codegen.printers.scalar import runs_parallel
from idgraph.errors import EmitError
from idgraph.ir import DType
from idgraph.ir.dtypes import DTYPES, is_short_float, item_size
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.ir import Accumulate, Compute, Kernel, Loop, walk
from idgraph.passes.rows.reduction_loop import COLUMN
from idgraph.runtime.compile_workers import POOL
from idgraph.runtime.cpu.namespace import load_numba
from idgraph.runtime.cpu.trampoline import Entry, make_trampoline
from idgraph.runtime.cpu.vector_abi import IDLE, inline_vector_variants
from idgraph.runtime.executable import Executable, cache_of, kernel_key
from idgraph.runtime.interrupts import run_uninterruptible, signal_safe
from idgraph.runtime.kernel_cache import KernelCache

ROW = 128  # elements of a row that C's memcpy copies faster than a loop with its ends
FEW = 4  # instructions on an element that memory is slower than
SMALL = 1 << 15  # loop points up to which one core is done before others have begun


@dataclass(frozen=True, slots=True)
class CompileKey:
    """A kernel's bytecode, which numbers its variables and has no names, and the types that it is compiled for."""

    code: tuple[object, ...]
    types: tuple[DType, ...]  # of its buffers
    integers: int  # the first block and the one behind the last among them, where it has blocks
    rows: bool
    streams: bool  # it only moves memory: see `is_memory_bound`
    short: bool  # its rows are short: see `has_short_rows`
    checked: bool
    function: Callable[..., Any] = field(compare=False)


@dataclass(frozen=True, slots=True)
class CacheSlot:
    """Where machine code is kept, and under which key: that of the first kernel whose body it is."""

    cache: KernelCache
    key: str = field(compare=False)


class LazyKernel:
    """A kernel that is compiled when a call first wants it, and run on all cores, or on one where the work is small."""

    __slots__ = ("_always", "_checked", "_entries", "_function", "_program", "_several", "kernel")

    def __init__(self, program: Executable, kernel: Kernel, function: Callable[..., Any], checked: bool) -> None:
        self._program, self.kernel, self._function, self._checked = program, kernel, function, checked
        self._entries: dict[bool, Entry] = {}
        self._several, self._always = runs_parallel(kernel), kernel.choices.parallel is True

    def entry(self, points: int) -> Entry:
        """The machine code for loops of so many points."""
        spread = self._several and (self._always or points > SMALL)
        found = self._entries.get(spread)
        if found is None:
            body, slot = self.body()
            found = self._entries[spread] = entry(body, spread, slot)
        return found

    def body(self) -> tuple[CompileKey, CacheSlot | None]:
        """The function that is compiled, and where its machine code is kept."""
        body = body_of(self._function, self.kernel, self._checked)
        kept = cache_of(self._program)
        if kept is None:
            return body, None
        source = kernel_key(self._program, self.kernel, self._checked, (0, 0))
        key = "\n".join([processor(), source, *map(str, (body.rows, body.streams, body.short))])
        return body, CacheSlot(replace(kept, suffix=".obj"), key)


def body_of(function: Callable[..., Any], kernel: Kernel, checked: bool) -> CompileKey:
    """The function that is compiled for a kernel; a checked one has a last array for failures."""
    code = function.__code__
    constants = tuple((type(c).__name__, repr(c)) for c in code.co_consts)
    rows = any(isinstance(s, Loop) and s.var.split("_")[0] == COLUMN for s in walk(kernel.body))
    types: tuple[DType, ...] = tuple(b.dtype for b in kernel.buffers)
    key = (code.co_code, constants, code.co_names, code.co_argcount)
    scalars = len(kernel.scalars) + 2 * runs_parallel(kernel)
    return CompileKey(key, types, scalars, rows, is_memory_bound(kernel), has_short_rows(kernel), checked, function)


def is_memory_bound(kernel: Kernel) -> bool:
    """Whether a kernel waits for memory and for nothing else: a few plain operations on each element that it reads.

    Its vectors have 256 bits: longer ones moved less (1003 rows of 1003 float32, x + y on one core of an EPYC with
    AVX-512: 144 us instead of 150, torch 146), and are for kernels that compute.
    """
    inside = list(walk(kernel.body))
    computed = [OPERATIONS[s.op] for s in inside if isinstance(s, Compute)]
    if any(isinstance(s, Accumulate) for s in inside) or any(o.cycles not in ("free", "plain") for o in computed):
        return False
    return sum(3 if o.name in ("maximum", "minimum") else o.cycles == "plain" for o in computed) <= FEW  # NaN is kept


def has_short_rows(kernel: Kernel) -> bool:
    """Whether an innermost loop has fewer than `ROW` steps."""
    loops = [s for s in walk(kernel.body) if isinstance(s, Loop)]
    inside = [s for s in loops if not any(isinstance(x, Loop) for x in walk(s.body))]
    return any(s.extent.is_const and 1 < int(s.extent) < ROW for s in inside)


def entry(body: CompileKey, spread: bool = False, kept: CacheSlot | None = None) -> Entry:
    """The kernel as a function of a block of words: for each buffer its address and its elements, then the integers,
    then the same two of what failed. It returns 0, or another number where there was no memory. ``spread``: its blocks
    on all cores."""

    def compiled() -> Entry:
        load_numba()
        with import_module("numba.core.compiler_lock").global_compiler_lock:
            return _entry(body, spread, kept)

    return run_uninterruptible(compiled)


@lru_cache(maxsize=1024)
def _entry(body: CompileKey, spread: bool, kept: CacheSlot | None) -> Entry:
    name, library = _machine_code(body, kept)
    last = 2 * len(body.types) + body.integers - 1
    return make_trampoline(library.get_pointer_to_function(name), _signature(body), library, last if spread else None)


_COMPILED: set[CompileKey] = set()


@lru_cache(maxsize=1024)
def _machine_code(body: CompileKey, kept: CacheSlot | None) -> tuple[str, Any]:
    """The function's name and the library that holds it."""
    _COMPILED.add(body)
    found = None if kept is None else kept.cache.find(kept.key)
    if found is not None:
        return load_library(found)
    if kept is not None:
        kept.cache.check()
    # One process may load machine code of several others: each function has a unique name, the digest of its key.
    title = "kernel" if kept is None else f"kernel_{sha256(kept.key.encode()).hexdigest()}"
    text = POOL.take(body)
    name, library = compile_library(body, title) if text is None else load_library(text)
    if kept is not None:
        kept.cache.put(kept.key, object_text(name, library) if text is None else text)
    return name, library


def object_text(name: str, library: Any) -> str:
    """A function of a library as text: its name, then the object file."""
    return f"{name}\n{base64.b64encode(library._get_compiled_object()).decode()}"


def share_waiting(kernels: Sequence[LazyKernel]) -> None:
    """Compile here what no process has begun with, from the last one backwards: processes begin at the front."""
    for k in reversed(kernels):
        body, slot = k.body()
        if POOL.is_waiting(body):
            entry(body, False, slot)


def submit(program: Executable, kernels: Iterable[LazyKernel], checked: bool) -> None:
    """Have other processes compile the kernels of a program that nobody has compiled yet."""
    for k in kernels:
        body, slot = k.body()
        if body in _COMPILED or (slot is not None and slot.cache.find(slot.key) is not None):
            continue
        request = {
            "target": "cpu", "machine": processor(), "name": k.kernel.name, "types": body.types,
            "source": program.kernel_source(k.kernel, checked), "integers": body.integers, "rows": body.rows,
            "streams": body.streams, "short": body.short, "checked": checked,
        }  # fmt: skip
        POOL.submit(body, request)


def _signature(body: CompileKey) -> tuple[Any, ...]:
    known, types = _arrays(), import_module("numba.core.types")
    checks = [known["int64"]] if body.checked else []
    return (*(known[t] for t in body.types), *(types.int64 for _ in range(body.integers)), *checks)


@cache
def _arrays() -> dict[DType, Any]:
    """numba's types of flat arrays; it has no float16 on the CPU, whose kernels see 16-bit words."""
    load_numba()
    types: Any = import_module("numba.core.types")

    def name(d: DType) -> str:
        return "boolean" if d == "bool" else f"uint{8 * item_size(d)}" if is_short_float(d) else d

    return {d: types.Array(getattr(types, name(d)), 1, "C") for d in DTYPES}


def compile_library(body: CompileKey, title: str) -> tuple[str, Any]:
    """The function's name and the library that holds it, compiled here; ``title`` is unique in the process."""
    signature = _signature(body)
    function = FunctionType(body.function.__code__, body.function.__globals__, title)
    function.__qualname__ = title  # numba names machine code by it, and Python takes it from the code, not the title
    # Sums over a row may be taken in any order, so that they run as vectors; nothing else is allowed to change.
    order = {"reassoc"} if body.rows else False
    # It is called by a jump only, so it needs no wrapper.
    jit: Any = load_numba().njit(
        error_model="numpy", fastmath=order, no_cpython_wrapper=True, no_cfunc_wrapper=True,
        pipeline_class=compiler(body.streams, body.short),
    )  # fmt: skip
    dispatcher: Any = jit(function)
    with signal_safe():
        dispatcher.compile(signature)
    made = dispatcher.overloads[signature]
    return str(made.fndesc.llvm_func_name), made.library


@cache
def compiler(streams: bool, short: bool) -> Any:
    """numba's compiler for kernels, no two arrays of which share memory: LLVM need not test that, nor give up.

    What is written is memory of its own (`idgraph.runtime.shape_specialized`), or an ``out=`` that shares memory with
    nothing. Of kernels that `is_memory_bound` names, vectors of 256 bits are preferred, as by clang's
    -mprefer-vector-width. Loops that copy are calls of C's memcpy where rows are ``short`` only: it is slower for long
    ones (cat of 1003 columns: 1.4 times as slow). The passes in `IDLE` are left out.
    """
    lowering: Any = import_module("numba.core.lowering")
    passes: Any = import_module("numba.core.typed_passes")
    machinery: Any = import_module("numba.core.compiler_machinery")
    base: Any = import_module("numba.core.compiler")
    pointer: Any = import_module("llvmlite.ir").PointerType

    class Lower(lowering.Lower):
        def setup_function(self, fndesc: Any) -> None:
            super().setup_function(fndesc)  # pyright: ignore[reportUnknownMemberType]
            inline_vector_variants(self.library)
            for argument in self.function.args:
                if isinstance(argument.type, pointer):
                    argument.add_attribute("noalias")
            # llvmlite knows no attribute with a value; it writes each one as it is
            if streams:
                set[str].add(self.function.attributes, '"prefer-vector-width"="256"')
            if not short:
                set[str].add(self.function.attributes, '"no-builtin-memcpy"')

    class Lowering(passes.NativeLowering):
        _name = f"idgraph_lowering_{streams}_{short}"

        @property
        def lowering_class(self) -> Any:
            return Lower

    machinery.register_pass(mutates_CFG=True, analysis_only=False)(Lowering)

    class Compiler(base.CompilerBase):
        def define_pipelines(self) -> list[Any]:
            made = base.DefaultPassBuilder.define_nopython_pipeline(self.state)
            kept = [(p, why) for p, why in made.passes if p.__name__ not in IDLE]
            made.passes = [(Lowering, why) if p is passes.NativeLowering else (p, why) for p, why in kept]
            made.finalize()
            return [made]

    return Compiler


def load_library(text: str) -> tuple[str, Any]:
    """A library of the machine code that another process has made."""
    load_numba()
    name, code = text.split("\n", 1)
    target: Any = import_module("numba.core.registry").cpu_target.target_context
    import_module("numba.core.runtime").rtsys.initialize(target)  # what allocates, which compiling would have brought
    # numba finds a function of machine code only where a module defines the name.
    names: Any = import_module("llvmlite.binding").parse_assembly(f'define void @"{name}"() {{ unreachable }}')
    state = (name[:60], "object", (base64.b64decode(code), names.as_bitcode()))
    return name, target.codegen().unserialize_library(state)


def no_memory(kernel: Kernel) -> EmitError:
    """The error of a kernel whose own arrays found no memory."""
    return EmitError(f"{kernel.name} has no memory for its private arrays", hint="run the program on parts")


@cache
def processor() -> str:
    """The target of machine code: the processor, its features, and numba's settings."""
    llvm: Any = import_module("llvmlite.binding")
    able = sorted(k for k, v in llvm.get_host_cpu_features().items() if v)
    config: Any = import_module("numba.core.config")
    names = ("OPT", "CPU_NAME", "CPU_FEATURES", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK")
    told = [f"{n}={getattr(config, n, None)}" for n in names]
    return "\n".join([llvm.get_process_triple(), llvm.get_host_cpu_name(), ",".join(able), *told])
