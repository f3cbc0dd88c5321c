"""An oracle for counts of memory accesses: the emitted source, run thread by thread, every access written down.

It reads the text of a program for the CPU or CUDA and imports nothing of idgraph. Numbers other than integers have no
meaning here: functions that it does not know give 1.0, so values may be wrong where addresses are not.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np

BUFFER = re.compile(r"^ +# (buf\d+): (\w+)\[(\d+)\] (\w+) \"(.*)\"", re.MULTILINE)
LOOP = re.compile(r" *for (\w+) in ")
KERNEL = re.compile(r"^def (\w+)\((.*)\):", re.MULTILINE)
ITEM = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "float64": 8, "int64": 8}
SECTOR, WARP = 32, 32


@dataclass
class Seen:
    """The accesses of one kernel: how often each address of a tensor was touched; sectors of warps."""

    touched: dict[tuple[str, str], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    warps: dict[tuple[object, ...], set[int]] = field(default_factory=lambda: defaultdict(set))


class Watch:
    """The thread that runs now."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.warp: tuple[int, ...] = ()
        self.loops: dict[int, tuple[str, ...]] = {}
        self.turns: Counter[tuple[object, ...]] = Counter()

    def note(self, buffer: Buffer, kind: str, first: int, width: int, depth: int) -> None:
        frame = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage]
        for at in range(first, first + width):
            if not 0 <= at < len(buffer.data):
                raise IndexError(f"{buffer.title}[{at}] of {len(buffer.data)}")
            self.seen.touched[buffer.title, kind][at] += 1
        step = tuple(frame.f_locals.get(name) for name in self.loops[frame.f_lineno])
        site = (_place(frame.f_code, frame.f_lasti), step, buffer.title, kind)
        self.turns[site] += 1
        sectors = range(first * buffer.item // SECTOR, ((first + width) * buffer.item - 1) // SECTOR + 1)
        self.seen.warps[self.warp, site, self.turns[site]].update(sectors)


@cache
def _place(code: CodeType, at: int) -> tuple[int | None, ...]:
    """Line and columns of an instruction; Python copies some instructions, and copies have one place."""
    return next(itertools.islice(code.co_positions(), at // 2, None))


class Buffer:
    """Memory that a kernel gets."""

    def __init__(self, watch: Watch, title: str, dtype: str, data: list[Any]) -> None:
        self.watch, self.title, self.item, self.data = watch, title, ITEM.get(dtype, 4), data

    def __getitem__(self, at: Any) -> Any:
        self.watch.note(self, "read", int(at), 1, 2)
        return self.data[int(at)]

    def __setitem__(self, at: Any, value: Any) -> None:
        self.watch.note(self, "write", int(at), 1, 2)
        self.data[int(at)] = value


class Private(dict[Any, Any]):
    """An array of a thread or a block: zeros until it is written."""

    def __missing__(self, key: Any) -> Any:
        return 0


def unsigned(bits: int) -> Callable[[Any], int]:
    return lambda x: int(x) & ((1 << bits) - 1)


class Some(float):
    """A number whose value is of no matter."""

    def either(self, other: Any) -> Any:
        return other

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = either

    def __getitem__(self, at: Any) -> Some:
        return self

    def __iter__(self) -> Iterator[Some]:
        return iter((self, self))  # what is before, and the own value, of a scan


def unknown(*_: Any) -> Some:
    return Some(1.0)


def _shown(x: float) -> float:
    return x


def _array(*_: Any) -> Private:
    return Private()


def _wrapped(x: int, n: int) -> int:
    return x if x < n else x - n


def _remainder(a: Any, b: Any) -> int:
    return int(a) % int(b) if b else 0


def _quotient(a: Any, b: Any) -> int:
    return int(a) // int(b) if b else 0


def _and(a: Any, b: Any) -> bool:
    return bool(a) and bool(b)


def _or(a: Any, b: Any) -> bool:
    return bool(a) or bool(b)


def _xor(a: Any, b: Any) -> int:
    return int(a) ^ int(b)


def known_names(watch: Watch, place: SimpleNamespace) -> dict[str, Any]:
    """What addresses are made of."""

    def shared(*_: Any) -> Private:
        return place.shared()

    made: dict[str, Any] = {
        "np": SimpleNamespace(
            empty=_array, zeros=_array, int32=int, float32=float, float64=float, int64=int, uint32=int, bool_=bool,
            int8=int, int16=int, uint8=int, uint16=int, float16=float, uint64=int,
        ),
        "cuda": SimpleNamespace(
            local=SimpleNamespace(array=_array), shared=SimpleNamespace(array=shared),
            syncthreads=lambda: None, syncwarp=unknown, threadIdx=place.thread, blockIdx=place.block,
            blockDim=place.threads, gridDim=place.blocks,
        ),
        "u32": unsigned(32), "u64": unsigned(64), "i64": int, "i32": int, "i16": int, "i8": int, "u8": unsigned(8),
        "count": _shown, "wrapped": _wrapped, "inf": math.inf, "nan": math.nan, "word": 0,
        "maximum": max, "minimum": min, "range": range, "min": min, "max": max, "abs": abs, "bool": bool, "int": int,
        "True": True, "False": False, "in_stream_order": lambda: None,
        "f32": float, "f64": float, "f16": float, "bf16": float, "int_abs": abs,
        "logical_and": _and, "logical_or": _or, "logical_xor": operator.ne, "logical_not": operator.not_,
        "int_remainder": _remainder, "int_floor_divide": _quotient, "bits_xor": _xor,
    }  # fmt: skip
    for n, pair in itertools.product((1, 2, 4, 8, 16), (1, 2)):
        load, store = ("vload", "vstore") if pair == 1 else ("wload", "wstore")
        made[f"{load}{n}"] = made[f"{load}{n}_where"] = _load(watch, n, pair)
        made[f"r{load.lstrip('v')}{n}"] = _load(watch, n, pair, where=False)
        made[f"{store}{n}"] = _store(watch, n, pair)
    return made


def _load(watch: Watch, n: int, pair: int, where: bool = True) -> Callable[..., None]:
    def load(into: Any, at: int, buffer: Buffer, address: int, wanted: Any = True) -> None:
        if where and not wanted:
            for k in range(n):
                into[at + k] = 0
            return
        watch.note(buffer, "read", int(address), n * pair, 2)
        for k in range(n):
            into[at + k] = buffer.data[int(address) + k * pair]

    return load


def _store(watch: Watch, n: int, pair: int) -> Callable[..., None]:
    def store(buffer: Buffer, address: int, values: Any, at: int) -> None:
        watch.note(buffer, "write", int(address), n * pair, 2)
        for k in range(n if pair == 1 else 0):
            buffer.data[int(address) + k] = values[at + k]

    return store


def loops_around(text: str) -> dict[int, tuple[str, ...]]:
    """The variables of the loops around each line of a source."""
    made: dict[int, tuple[str, ...]] = {}
    around: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        depth = len(line) - len(line.lstrip())
        if line.strip():
            around = [x for x in around if x[0] < depth]
        made[number] = tuple(name for _, name in around)
        found = LOOP.match(line)
        if found:
            around.append((depth, found.group(1)))
    return made


def names_in(code: CodeType) -> Iterator[str]:
    """Names that a function looks up."""
    yield from code.co_names
    for c in code.co_consts:
        if isinstance(c, CodeType):
            yield from names_in(c)


def _of_block(shared: dict[int, Private]) -> Callable[[], Private]:
    """The arrays of a block, as each thread asks for them in turn."""
    calls = itertools.count()
    return lambda: shared.setdefault(next(calls), Private())


def counted(
    source: str, launches: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]], inputs: Mapping[str, Any]
) -> tuple[dict[str, Seen], set[str]]:
    """The accesses of each kernel, and names whose meaning was not known.

    ``launches``: blocks and threads by kernel (x, y, z); on a CPU blocks are one number and threads are none."""
    watch, strange = Watch(), set[str]()
    memory: dict[str, list[Any]] = {name: np.asarray(a).astype(object).ravel().tolist() for name, a in inputs.items()}
    made: dict[str, Seen] = {}
    starts = [*KERNEL.finditer(source)]
    for m, after in zip(starts, [*starts[1:], None], strict=True):
        text = source[m.start() : after.start() if after else len(source)]
        name, arguments = m.group(1), [a.strip() for a in m.group(2).split(",")]
        buffers = {
            b: Buffer(watch, title, dtype, memory.setdefault(title, []))
            for b, dtype, _, _, title in BUFFER.findall(text)
        }
        for b, _, size, _, _ in BUFFER.findall(text):
            buffers[b].data.extend([0] * (int(size) - len(buffers[b].data)))
        blocks, threads = launches[name]
        watch.seen = made[name] = Seen()
        watch.loops = loops_around(text)
        axes = SimpleNamespace
        place = axes(thread=axes(), block=axes(), threads=axes(), blocks=axes(), shared=Private)
        space = known_names(watch, place)
        code = compile(text, name, "exec")
        strange |= {n for n in names_in(code) if n not in space and n != name and not n.startswith("buf")}
        space |= {n: unknown for n in strange if n not in space}
        exec(code, space)
        function, given = space[name], [buffers[a] for a in arguments if a in buffers]
        if not threads:
            watch.turns, watch.warp = Counter(), ()
            function(*given, *([0, blocks[0]] if "first_block" in arguments else []))
            continue
        for b in itertools.product(*(range(n) for n in reversed(blocks))):
            shared: dict[int, Private] = {}
            for number, t in enumerate(itertools.product(*(range(n) for n in reversed(threads)))):
                place.shared = _of_block(shared)
                for where, at in ((place.thread, t), (place.block, b)):
                    where.z, where.y, where.x = at
                watch.turns, watch.warp = Counter(), (*b, number // WARP)
                function(*given)
    return made, strange
