"""The CUDA source of a program, run in this process: every thread a generator that yields at each barrier.

Threads of a block take turns in a random order, blocks too; shared arrays start full of NaN. What the simulator does
with a thousand operating-system threads takes milliseconds here.
"""

from __future__ import annotations

import itertools
import operator
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from idgraph.codegen.runtime_lib import python_ops as scalars
from idgraph.codegen.runtime_lib.vector_ops import plain_pairs, plain_vectors
from idgraph.kernel.ir import Kernel, shared_layout
from idgraph.runtime import Program
from idgraph.runtime.binding import OutputMemory, bind, flat_input, given_array, global_buffer, output_array, scalars_of
from idgraph.runtime.cuda.launch import launch_shape
from idgraph.runtime.cuda.namespace import dynamic_types, simulated_element, simulated_value


def _filled(size: int, dtype: Any) -> Any:
    made = np.empty(size, dtype)
    made[...] = (
        np.nan if made.dtype.kind == "f" else None if made.dtype == object else 85 if made.dtype.kind != "b" else True
    )
    return made


def _word_value(word: Any) -> float:
    return scalars.bf16_load(int(word))


def _value_word(value: float) -> Any:
    return np.uint16(scalars.bf16_word(value))


def _nothing() -> None:
    """One kernel runs after the other."""


class _Shared:
    """Arrays of one block: each place in the source that asks for a static one has its own, size 0 is all of the
    dynamic piece."""

    def __init__(self, dynamic: int) -> None:
        self.arrays: dict[int, Any] = {}
        self.dynamic = np.full(dynamic, 255, np.uint8)

    def array(self, place: int, size: int, dtype: Any, alignment: object = None) -> Any:
        if size == 0:
            return self.dynamic[: self.dynamic.size // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)
        if place not in self.arrays:
            self.arrays[place] = _filled(size, dtype)
        return self.arrays[place]


_EXCHANGE = re.compile(r"\b(block|columns|tree)_(sum|prod|amax|amin)_(f32|f64|int)\((.*)\)")
_SCAN = re.compile(r"\bscan_(columns_|tree_|)(sum|prod|amax|amin)_(f32|f64|int)\((.*)\)")
_COMBINED: Mapping[str, Any] = {
    "sum": operator.add, "prod": operator.mul, "amax": scalars.maximum, "amin": scalars.minimum,
}  # fmt: skip


def _add(array: Any, at: Any, value: Any) -> None:
    array[at] += value


def _larger(array: Any, at: Any, value: Any) -> None:
    array[at] = max(array[at], value)


_ATOMIC = SimpleNamespace(add=_add, max=_larger)


def _request(call: re.Match[str]) -> str:
    """An exchange in the source as a request: (operation, value, group) of each thread that combines."""
    how, op, _, inside = call.groups()
    value, *rest = inside.rsplit(", ", 2 if how == "block" else 3)
    group = {"block": "cuda.threadIdx.y, cuda.threadIdx.z", "columns": "cuda.threadIdx.x, 0"}.get(how, f"{rest[1]}, 0")
    return f'(yield ("{op}", {value}, {group}))'


def _scan_request(call: re.Match[str]) -> str:
    """A scan in the source as a request: (operation, value, its identity, place in the group, group)."""
    how, op, _, inside = call.groups()
    value, first, *rest = inside.rsplit(", ", 4 if how == "tree_" else 2)
    places = {
        "": "cuda.threadIdx.x, cuda.threadIdx.y, cuda.threadIdx.z",
        "columns_": "cuda.threadIdx.y, cuda.threadIdx.x, 0",
    }
    return f'(yield ("scan {op}", {value}, {first}, {places.get(how) or f"{rest[0]}, {rest[1]}, 0"}))'


def _scanned(asked: list[Any]) -> list[Any]:
    """For each thread what those before it in its group have together, and what all have."""
    found: list[Any] = [None] * len(asked)
    totals: dict[Any, Any] = {}
    for n in sorted(range(len(asked)), key=lambda n: int(asked[n][3])):
        op, value, first, _, *group = asked[n]
        before = totals.get(key := tuple(map(int, group)), first)
        found[n], totals[key] = before, _COMBINED[op.removeprefix("scan ")](before, value)
    return [(before, totals[tuple(map(int, x[4:]))]) for before, x in zip(found, asked, strict=True)]


def _answers(asked: list[Any]) -> list[Any]:
    """The value of each thread: its group's values combined, in the order in which they came."""
    if asked[0][0].startswith("scan "):
        return _scanned(asked)
    groups: dict[Any, Any] = {}
    for op, value, *group in asked:
        key = (op, *map(int, group))
        groups[key] = value if key not in groups else _COMBINED[op](groups[key], value)
    return [groups[(op, *map(int, group))] for op, _, *group in asked]


@cache
def _names() -> Mapping[str, Any]:
    """The names that a kernel's source may use, but for ``cuda``."""
    plain = {k: v for k, v in vars(scalars).items() if not k.startswith("__")}
    return {
        **plain, "np": np, "f16_load": float, "f16_word": np.float16, "shared_alignment": None,
        "in_stream_order": _nothing, "word": object,
        "bf16_load": _word_value, **plain_vectors(simulated_value, simulated_element), **dynamic_types(scalar=False),
        **plain_pairs({"bf16": _word_value, "f16": float}, {"bf16": _value_word, "f16": np.float16}),
    }  # fmt: skip


def _threads(source: str, name: str) -> Callable[..., Iterator[Any]]:
    """The kernel as a generator that takes what ``cuda`` is for its thread before its arguments."""
    names = dict(_names())
    source = source.replace(f"def {name}(", f"def {name}(cuda, ", 1).replace("(cuda, )", "(cuda)", 1)
    exec(compile(source + "    return\n    yield\n", name, "exec"), names)
    return names[name]


def _next(thread: Any, answer: Any) -> Any:
    """Run a thread to where it waits: None at a barrier, its request where it combines, "done" at the end."""
    try:
        return thread.send(answer)
    except StopIteration:
        return "done"


def bound(program: Program, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """The inputs as kernels see them, by tensor name, and the values of symbols and open strides."""
    given = {name: given_array(name, a) for name, a in inputs.items()}
    env = bind(program.fusion, given, None)
    return {t.name: flat_input(t, given[t.name], env) for t in program.fusion.inputs}, env


def run_threads(program: Program, inputs: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """Outputs by name. Raises `AssertionError` where threads of a block wait at different numbers of barriers."""
    fusion, order = program.fusion, random.Random(seed)
    given = {name: given_array(name, a) for name, a in inputs.items()}
    env = bind(fusion, given, None)
    homes = {b.title: b.name for b in program.plan.buffers if b.place not in ("private", "shared")}
    flat = {homes[t.name]: flat_input(t, given[t.name], env) for t in fusion.inputs if t.name in homes}
    for b in program.plan.buffers:
        if b.place in ("output", "global"):
            flat[b.name] = global_buffer(program, b, env, OutputMemory(poison=True))
    for kernel in program.plan.kernels:
        arguments = [*(flat[b.name] for b in kernel.buffers), *scalars_of(kernel, env)]
        run = block_runner(program, kernel, arguments, env, order)
        for at in _shuffled(launch_shape(kernel, env)[0], order):
            run(at)
    return {
        t.name: output_array(t, flat[homes[t.name]], env) if t.definition is not None else np.array(given[t.name].data)
        for t in fusion.outputs
    }


def block_runner(
    program: Program, kernel: Kernel, arguments: Sequence[Any], env: Mapping[str, int], order: random.Random
) -> Callable[[Mapping[str, int]], None]:
    """A function that runs one block, given by its numbers along x, y and z, its threads in random ``order``."""
    source = program.kernel_source(kernel).replace("cuda.syncthreads()", "yield")
    source = _SCAN.sub(_scan_request, _EXCHANGE.sub(_request, source))
    places = itertools.count()
    source = re.sub(r"shared\.array\(", lambda _: f"shared.array({next(places)}, ", source)
    thread = _threads(source, kernel.name)
    blocks, threads = launch_shape(kernel, env)
    shared = shared_layout(kernel.body).dynamic

    def run(at: Mapping[str, int]) -> None:
        cuda = {
            "blockIdx": SimpleNamespace(**at),
            "gridDim": SimpleNamespace(**dict(zip("xyz", blocks, strict=True))),
            "shared": _Shared(shared),
            "local": SimpleNamespace(array=_filled),
            "atomic": _ATOMIC,
        }
        waiting: list[Any] = [
            thread(SimpleNamespace(threadIdx=SimpleNamespace(**t), **cuda), *arguments)
            for t in _shuffled(threads, order)
        ]
        told: list[Any] = [None] * len(waiting)
        while waiting:
            turns = list(zip(waiting, told, strict=True))
            order.shuffle(turns)
            waiting = [t for t, _ in turns]
            met: list[Any] = [_next(t, answer) for t, answer in turns]
            kinds: set[Any] = {m[0] if isinstance(m, tuple) else m for m in met}
            assert len(kinds) == 1, "threads wait at different barriers"
            told = _answers(met) if isinstance(met[0], tuple) else [None] * len(met)
            waiting = [] if met[0] == "done" else waiting

    return run


def _shuffled(sizes: tuple[int, ...], order: random.Random) -> list[dict[str, int]]:
    found = [dict(zip("xyz", p, strict=True)) for p in itertools.product(*map(range, sizes))]
    order.shuffle(found)
    return found
