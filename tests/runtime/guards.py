"""Kernels between guard zones: a write outside of a buffer changes a zone, a read outside makes results follow from it.

`found` runs a program twice, its buffers between zones of other bytes each time. `main`, in a process of its own,
runs CPU kernels on buffers that end, or begin, at memory which nobody may touch: an access outside kills the process.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from math import prod
from typing import Any

import numpy as np

import idgraph as ig
from idgraph.codegen.runtime_lib.numpy_ops import storage_dtype
from idgraph.index import Access
from idgraph.ir import DType, TensorExpr
from idgraph.runtime import Program
from idgraph.runtime.array_backends import NumPy, Torch, numpy_type
from idgraph.runtime.binding import OutputMemory
from idgraph.runtime.cpu.launch import CpuMachine
from idgraph.runtime.cuda import device_arrays as calls
from idgraph.runtime.shape_specialized import ShapeSpecialization

ZONE = 4096  # bytes before and behind each buffer
FILLS = (0x00, 0xFF, 0x3F)  # zero, NaN and -1, a number


# fusions --------------------------------------------------------------------------------------------------------------


def rotation(f: ig.Fusion) -> None:
    x = f.input("x", (6, 37))
    f.output(x + ig.cat([x[:, 5:], x[:, :5]], 1))


def wide_rotation(f: ig.Fusion) -> None:
    x, y = f.input("x", (8, 128), "bfloat16"), f.input("y", (8, 128), "bfloat16")
    f.output(ig.cat([-x[:, 64:], x[:, :64]], 1) * y)


def softmax(f: ig.Fusion) -> None:
    f.output(ig.softmax(f.input("x", (5, 257)), 1))


def norm(f: ig.Fusion) -> None:
    x = ig.cast(f.input("x", (7, 200), "float16"), "float32")
    apart = x - ig.mean(x, 1, keepdim=True)
    f.output(ig.cast(apart * ig.rsqrt(ig.mean(apart * apart, 1, keepdim=True) + 1e-5), "float16"))
    f.output(apart)


def column_sums(f: ig.Fusion) -> None:
    f.output(ig.sum(f.input("x", (301, 19)), 0))


def running_sums(f: ig.Fusion) -> None:
    f.output(ig.cumsum(f.input("x", (3, 1111)), 1))


def turned(f: ig.Fusion) -> None:
    f.output(ig.permute(f.input("x", (33, 65)), (1, 0)) * 2.0)


def backwards(f: ig.Fusion) -> None:
    x = f.input("x", (4, 50))
    f.output(ig.cat([ig.flip(x[:, 1:4], 1), x, ig.flip(x[:, 46:49], 1)], 1))


def every_third(f: ig.Fusion) -> None:
    f.output(f.input("x", (100,))[1::3] + 1.0)


def rows(f: ig.Fusion) -> None:
    f.output(ig.embedding(f.input("i", (9,), "int64"), f.input("w", (10, 24))))


def added(f: ig.Fusion) -> None:
    x, i = f.input("x", (10, 8)), f.input("i", (10, 8), "int64")
    f.output(ig.scatter_add(x, 0, i, f.input("s", (10, 8))))


def padded(f: ig.Fusion) -> None:
    x = f.input("x", (3, 17))
    f.output(ig.pad(x, (2, 5)) * 3.0)


def narrow(f: ig.Fusion) -> None:
    f.output(ig.cast(ig.round(f.input("x", (5, 77)) * 10.0), "int8"))


def two_results(f: ig.Fusion) -> None:
    x = f.input("x", (64, 64))
    f.output(ig.sum(x, 0))
    f.output(ig.amax(x, 1))


CASES: tuple[Callable[[ig.Fusion], None], ...] = (
    rotation, wide_rotation, softmax, norm, column_sums, running_sums, turned, backwards, every_third, rows, added,
    padded, narrow, two_results,
)  # fmt: skip


def fusion(case: Callable[[ig.Fusion], None]) -> ig.Fusion:
    f = ig.Fusion(case.__name__)
    case(f)
    return f


def arrays(f: ig.Fusion) -> list[Any]:
    """Values for its inputs, multiples of 1/256, whose sums are exact in any order; indices are those of ten rows."""
    draw = np.random.default_rng(3)
    made: list[Any] = []
    for t in f.inputs:
        shape = tuple(int(n) for n in t.shape)
        x = (
            draw.integers(0, 10, shape)
            if t.dtype == "int64"
            else (np.round(draw.standard_normal(shape) * 256) / 256).astype(np.float32)
        )
        made.append(x if t.dtype == "int64" else (x.view(np.uint32) >> 16).astype(np.uint16) if t.dtype == "bfloat16"
                    else x.astype(t.dtype))  # fmt: skip
    return made


class Beside(ig.IdModel):
    """An index model whose writes, or reads, are ``by`` elements beside what they should be."""

    def __init__(self, f: ig.Fusion, written: bool, by: int) -> None:
        super().__init__(f)
        self.written, self.by = written, by

    def write(self, e: TensorExpr) -> Access:
        a = super().write(e)
        return replace(a, address=a.address + self.by) if self.written else a

    def read(self, e: TensorExpr, operand: int) -> Access:
        a = super().read(e, operand)
        return a if self.written else replace(a, address=a.address + self.by)


def program(case: Callable[[ig.Fusion], None], target: Any, beside: tuple[bool, int] | None = None) -> Program:
    """The kernels as a call schedules them; a planted fault needs a loop nest that proves nothing."""
    f = fusion(case)
    if beside is not None:
        return ig.emit(f, target, model=Beside(f, *beside))
    ig.schedule.auto(f)
    return ig.emit(f, target)


# zones ----------------------------------------------------------------------------------------------------------------


class Zoned(Torch):
    """torch's memory between zones of one byte."""

    def __init__(self, torch: Any, fill: int) -> None:
        super().__init__(torch)
        self.byte, self.rooms = fill, list[tuple[Any, int]]()

    def flat(self, size: int, dtype: DType, device: Any) -> Any:
        kind = self._types[dtype]
        bytes_of = size * kind.itemsize
        room = self.torch.full((ZONE + bytes_of + ZONE,), self.byte, dtype=self.torch.uint8, device=device)
        self.rooms.append((room, bytes_of))
        return room[ZONE : ZONE + bytes_of].view(kind)

    def adopt_buffer(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Any) -> Any:
        return self.flat(prod(shape), dtype, device).as_strided(shape, strides)

    def intact(self) -> bool:
        """Whether all zones are as they were."""
        return all(
            bool((room[:ZONE] == self.byte).all()) and bool((room[ZONE + n :] == self.byte).all())
            for room, n in self.rooms
        )


def found(torch: Any, p: Program, device: str = "cpu") -> str:
    """What the guard zones tell: "", or "writes outside" or "reads outside"."""
    seen: list[list[Any]] = []
    for fill in FILLS:
        kind = Zoned(torch, fill)
        given = [
            _placed(torch, kind, t.dtype, a, device) for t, a in zip(p.fusion.inputs, arrays(p.fusion), strict=True)
        ]
        before = [x.clone() for x in given]
        facts = {t.name: kind.declared(t.name, x) for t, x in zip(p.fusion.inputs, given, strict=True)}
        machine = CpuMachine() if device == "cpu" else calls.machine_of(kind, device)
        results = ShapeSpecialization(p, kind, machine, facts, None, True)(given, None, OutputMemory(poison=True))
        if device != "cpu":
            torch.cuda.synchronize()
        if not kind.intact() or not all(torch.equal(a, b) for a, b in zip(given, before, strict=True)):
            return "writes outside"
        seen.append([x.contiguous().view(torch.uint8).cpu() for x in results])
    same = all(bool(torch.equal(a, b)) for other in seen[1:] for a, b in zip(seen[0], other, strict=True))
    return "" if same else "reads outside"


def _placed(torch: Any, kind: Zoned, dtype: DType, array: Any, device: str) -> Any:
    made = kind.flat(array.size, dtype, device).view(array.shape)
    words = torch.from_numpy(array.view(np.int16) if dtype == "bfloat16" else array)
    made.copy_(words.view(torch.bfloat16) if dtype == "bfloat16" else words)
    return made


# pages ----------------------------------------------------------------------------------------------------------------


class Paged(NumPy):
    """Memory that ends at a page which nobody may touch, or begins behind one; 16-byte steps, as accesses are wide."""

    def __init__(self, at_end: bool) -> None:
        self.at_end, self.kept = at_end, list[Any]()

    def room(self, bytes_of: int) -> int:
        page = mmap.PAGESIZE
        inner = -(-max(bytes_of, 1) // page) * page
        memory = mmap.mmap(-1, inner + 2 * page)
        self.kept.append(memory)
        first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        protect(first, page)
        protect(first + page + inner, page)
        return first + page + (inner - -(-bytes_of // 16) * 16 if self.at_end else 0)

    def flat(self, size: int, dtype: DType, device: Any) -> Any:
        words = storage_dtype(dtype)
        at = self.room(size * words.itemsize)
        memory: Any = (ctypes.c_char * (size * words.itemsize)).from_address(at)
        return np.frombuffer(memory, words)

    def adopt_buffer(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Any) -> Any:
        return self.view(self.flat(prod(shape), dtype, device), shape, strides, dtype)


def protect(at: int, size: int) -> None:
    """Let nobody read or write these pages."""
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(at), ctypes.c_size_t(size), 0):
        raise OSError("mprotect")


def paged(p: Program, at_end: bool) -> None:
    """Run CPU kernels on such memory."""
    kind, given = Paged(at_end), list[Any]()
    for t, a in zip(p.fusion.inputs, arrays(p.fusion), strict=True):
        made = kind.flat(a.size, t.dtype, None)
        made[...] = a.reshape(-1)
        shaped = kind.view(made, a.shape, tuple(s // a.itemsize for s in a.strides), t.dtype)
        given.append(shaped)
    facts = {t.name: kind.declared(t.name, x) for t, x in zip(p.fusion.inputs, given, strict=True)}
    ShapeSpecialization(p, kind, CpuMachine(), facts, None, True)(given, None, OutputMemory(poison=True))


def simulated() -> None:
    """Run kernels in numba's simulator of CUDA, which has to be chosen before numba is loaded."""
    told: dict[str, Any] = {"inside": []}
    for case in (rotation, wide_rotation, rows, padded, narrow, every_third):
        p = program(case, "cuda")
        given = {t.name: as_declared(t.dtype, a) for t, a in zip(p.fusion.inputs, arrays(p.fusion), strict=True)}
        p.run(given, poison=True)
        told["inside"].append(case.__name__)
    for written in (True, False):
        for by in (4, -4):
            p = program(every_third, "cuda", (written, by))
            try:
                p.run({"x": np.zeros(100, np.float32)})
                told[f"{written} {by}"] = "nothing seen"
            except ig.IndexingError as error:
                told[f"{written} {by}"] = "outside a buffer" if "outside a buffer" in str(error) else str(error)
    print(json.dumps(told))


def as_declared(dtype: DType, array: Any) -> Any:
    """NumPy's array of a type."""
    return array.view(numpy_type(dtype)) if dtype == "bfloat16" else array


def main(asked: Sequence[str]) -> None:
    """Arguments: none; or "write" or "read" and the elements beside, for a planted fault, and perhaps "cuda:0"; or
    "simulated"."""
    if asked and asked[0] == "simulated":
        simulated()
        return
    if asked[2:] == ["cuda:0"]:
        beside = asked[0] == "write", int(asked[1])
        print(found(import_module("torch"), program(turned, "cuda", beside), asked[2]))
        return
    if asked and asked[0] in ("write", "read"):
        paged(program(turned, "cpu", (asked[0] == "write", int(asked[1]))), int(asked[1]) > 0)
        print("nothing seen")
        return
    for case in CASES:
        for at_end in (True, False):
            print(case.__name__, at_end, flush=True)
            paged(program(case, "cpu"), at_end)
    print("all", len(CASES))


if __name__ == "__main__":
    main(sys.argv[1:])
