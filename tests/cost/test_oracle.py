"""The counts against programs that count for themselves: every load and store of the Python target, one by one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig
from idgraph.codegen.runtime_lib import numpy_ops as memory
from idgraph.kernel.ir import Alloc, walk
from idgraph.runtime import Program
from idgraph.testing import fusions
from idgraph.validate.value_check import random_inputs
from tests.property import numpy_programs

Touched = dict[tuple[str, str, str], Counter[int]]  # (kernel, tensor, "read" or "write") -> address -> times


class Spy(memory.Memory):
    """A buffer that tells of every access."""

    seen: ClassVar[Touched] = {}
    kernel = ""

    def __getitem__(self, address: int) -> Any:
        self.seen.setdefault((Spy.kernel, self.title, "read"), Counter())[address] += 1
        return super().__getitem__(address)

    def __setitem__(self, address: int, value: Any) -> None:
        self.seen.setdefault((Spy.kernel, self.title, "write"), Counter())[address] += 1
        super().__setitem__(address, value)


def counted(program: Program, inputs: dict[str, Any]) -> Touched:
    """Every access that a run of the program makes."""

    def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> None:
            Spy.kernel = name
            spies = [_spy(a) if isinstance(a, memory.Memory) else a for a in arguments]
            function(*spies)

        return run

    Spy.seen = {}
    functions = program.functions()
    plain = dict(functions)
    functions.update({n: named(n, f) for n, f in plain.items()})
    try:
        program.run(inputs)
    finally:
        functions.update(plain)
    return Spy.seen


def _spy(m: memory.Memory) -> Spy:
    return Spy(m.data, m.dtype, m.title, m.size)


def followed(program: Program) -> bool:
    """Whether no integers lie in an array of a kernel's own: what an index made of them is, is not known."""
    arrays = [s.buffer for k in program.kernels for s in walk(k.body) if isinstance(s, Alloc)]
    return all(b.dtype in ("float16", "bfloat16", "float32", "float64") for b in arrays)


def compare(program: Program, inputs: dict[str, Any], seen: Touched) -> int:
    """The cost says the same where it says that it is exact; how many (kernel, tensor) pairs were compared."""
    known = followed(program)
    cost = ig.cost(program, "H200", inputs=inputs)
    sizes = {b.title: np.dtype("uint16" if b.dtype == "bfloat16" else b.dtype).itemsize for b in program.plan.buffers}
    for k in cost.kernels:
        assert k.exact or not known
        if not k.exact:
            continue
        for way, kinds in (("read", ("read", "atomic")), ("write", ("write", "atomic"))):
            asked: Counter[str] = Counter()
            for a in k.accesses:
                if a.kind in kinds and a.place not in ("private", "shared"):
                    asked[a.tensor] += a.points * a.width
            for tensor in {n for kernel, n, w in seen if kernel == k.name and w == way} | set(asked):
                there = seen.get((k.name, tensor, way), Counter())
                assert asked[tensor] == sum(there.values()), (k.name, tensor, way)
        for t in k.tensors:
            read, written = (seen.get((k.name, t.tensor, way), Counter()) for way in ("read", "write"))
            assert t.bytes_read == len(read) * sizes[t.tensor], (k.name, t.tensor, "read")
            assert t.bytes_written == len(written) * sizes[t.tensor], (k.name, t.tensor, "written")
            sectors = {x * sizes[t.tensor] // 32 for x in read}, {x * sizes[t.tensor] // 32 for x in written}
            assert t.bytes_moved == 32 * sum(map(len, sectors))
    return sum(len(k.tensors) for k in cost.kernels)


@given(st.data())
def test_random_fusions_load_and_store_what_the_cost_says(data: st.DataObject) -> None:
    f = data.draw(fusions())
    if data.draw(st.booleans()):
        ig.schedule.auto(f)
    inputs = random_inputs(f)
    program = ig.emit(f, "python")
    seen = counted(program, inputs)
    if any(t.definition is None or t in f.outputs for t in f.tensors):
        compare(program, inputs, seen)


@given(st.integers(0, 1 << 30))
def test_indices_that_a_program_computes_are_known(seed: int) -> None:
    """Whatever integers are made of integers, reduced, scanned or scattered, and index something."""
    r = random.Random(seed)
    p = numpy_programs.Program(r, r.randrange(1, 6), dtype="int64")
    v = r.choice([v for v in p.values if v.tensor.definition is not None])
    size = r.randrange(2, 40)
    p.fusion.output(ig.embedding(ig.remainder(v.tensor, size), p.fusion.input("table", (size, r.choice((1, 3))))))
    if r.random() < 0.5:
        ig.schedule.auto(p.fusion)
    inputs = {**p.inputs, "table": np.zeros([int(n) for n in p.fusion["table"].shape], np.float32)}
    program = ig.emit(p.fusion, "python")
    compare(program, inputs, counted(program, inputs))


def sums() -> ig.Fusion:
    f = ig.Fusion("sums")
    x = f.input("x", (64, 48))
    f.output(ig.sum(x, 0))
    f.output(ig.sum(x, 1))
    return f


def rotation() -> ig.Fusion:
    f = ig.Fusion("rotation")
    t = f.input("t", (4, 64), "bfloat16")
    f.output(t + ig.cat([t[:, 32:], t[:, :32]], 1))
    return f


def strided() -> ig.Fusion:
    f = ig.Fusion("strided")
    x = f.input("x", (40, 50))
    f.output(ig.exp(x)[1:30:3, ::-2] * f.input("b", (25,)))
    return f


def scattered() -> ig.Fusion:
    f = ig.Fusion("scattered")
    x, i, s = f.input("x", (9, 7)), f.input("i", (30,), "int64"), f.input("s", (30, 7))
    f.output(ig.index_put(x, [i], s, accumulate=True))
    return f


@pytest.mark.parametrize("build", [sums, rotation, strided, scattered])
@pytest.mark.parametrize("scheduled", [False, True])
def test_programs_load_and_store_what_the_cost_says(build: Callable[[], ig.Fusion], scheduled: bool) -> None:
    f = build()
    if scheduled:
        ig.schedule.auto(f)
    inputs = random_inputs(f)
    program = ig.emit(f, "python")
    assert compare(program, inputs, counted(program, inputs)) >= 2


def summed(i: ig.Tensor) -> ig.Tensor:
    return ig.sum(i, 1)


def scanned(i: ig.Tensor) -> ig.Tensor:
    return ig.reshape(ig.cumsum(i, 1), 12)


def counted_up(i: ig.Tensor) -> ig.Tensor:
    """How often each number is there, in memory."""
    flat = ig.reshape(i, 12)
    return ig.scatter_add(flat * 0, 0, flat, flat * 0 + 1)


def joined(i: ig.Tensor) -> ig.Tensor:
    return ig.cat([ig.reshape(i, 12), ig.reshape(i, 12) * 2], 0)


def written_in_part(i: ig.Tensor) -> ig.Tensor:
    """One kernel writes all of it, another one element."""
    one = i.fusion.input("one", (1,), "int64")
    return ig.index_put(ig.reshape(i, 12) * 2, [one], one + 1)


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("build", [summed, scanned, counted_up, joined, written_in_part])
def test_an_index_that_is_combined_is_known(build: Callable[[ig.Tensor], ig.Tensor], scheduled: bool) -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", (40,)), f.input("i", (3, 4), "int64")
    f.output(ig.gather(x, 0, build(i)))
    if scheduled:
        ig.schedule.auto(f)
    inputs = {**random_inputs(f), "i": np.array([[3, 1, 0, 7], [9, 9, 2, 1], [0, 4, 1, 1]])}
    program = ig.emit(f, "python")
    assert followed(program)
    assert compare(program, inputs, counted(program, inputs)) > 0


@pytest.mark.parametrize("at", range(4))
def test_an_index_that_another_kernel_decides_is_known(at: int) -> None:
    """A gather through a cat: its index is compared, clamped and chosen, and stored for the kernel that gathers."""
    f = ig.Fusion("f")
    x, i = f.input("x", (1, 2)), f.input("i", (1,), "int64")
    both = -ig.cat([x, x], 1)
    f.output(ig.gather(ig.select(both, 0, 0) + ig.select(both, 0, 0) * 2.0, 0, i))
    ig.schedule.auto(f)
    inputs = {**random_inputs(f), "i": np.array([at])}
    program = ig.emit(f, "python")
    assert compare(program, inputs, counted(program, inputs)) > 0
