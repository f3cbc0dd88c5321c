"""The address of an access is the number that the kernel uses, in the memory that is allocated, of every kind.

The plan of each program is walked here, statement by statement and point by point, and what it loads and stores is
compared with `Access.address` and `Access.buffer` at the same points. Nothing of the planner is used.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import event, given, note, reject, settings

import idgraph as ig
from idgraph.arith import Expr
from idgraph.index import Access
from idgraph.index import AllocatedBuffer as Memory
from idgraph.index.allocation import live_exprs
from idgraph.ir import SCATTERS, Fusion, TensorExpr
from idgraph.kernel.ir import (
    Accumulate,
    BoundsCheck,
    Buffer,
    Comment,
    If,
    KernelModule,
    Let,
    Load,
    Loop,
    SingleThread,
    Stmt,
    Store,
)
from idgraph.lower.fusion_to_kernel import lower_fusion
from idgraph.testing import scheduled_fusions
from tests.emit.shared_cases import SHARED
from tests.property.budget import examples
from tests.property.launches import threaded_fusions

LOADED = 1  # the value of every loaded index: addresses are compared as numbers, not as places that exist
OPTIONAL = {"pad", "cat", "slice_scatter"}  # whose operands are loaded where they exist
Touch = tuple[
    str, str, str, str, tuple[tuple[str, int], ...], int
]  # operation, read or write, tensor, place, point, where


@dataclass
class Walk:
    """The elements that the statements of a plan touch."""

    seen: set[Touch] = field(default_factory=set[Touch])
    operation: str = ""

    def touch(self, kind: str, b: Buffer, address: Expr, env: Mapping[str, int]) -> None:
        if not b.name.startswith("part"):  # the running values of a reduction are not a tensor's
            point = tuple(sorted((n, v) for n, v in env.items() if n.startswith("i")))
            self.seen.add((self.operation, kind, b.title, b.place, point, int(address.evaluate(env))))

    def run(self, body: Sequence[Stmt], env: dict[str, int]) -> None:
        for s in body:
            match s:
                case Comment(text):
                    if " = " in text:
                        self.operation = json.loads(text.split(" = ")[0])
                    elif text.endswith(" is complete"):
                        self.operation = json.loads(text.removesuffix(" is complete"))
                    else:
                        self.operation = ""  # the copy that a scatter starts with
                case Loop(var, extent, _, inner):
                    for v in range(int(extent.evaluate(env))):
                        self.run(inner, {**env, var: v})
                case If(condition, inner):
                    if condition.evaluate(env):
                        self.run(inner, env)
                case SingleThread() | BoundsCheck():
                    self.run(s.body, env)
                case Let(name):
                    env[name] = LOADED
                case Load(_, b, address, guard):
                    if guard.evaluate(env):
                        self.touch("read", b, address, env)
                case Store(b, address):
                    self.touch("write", b, address, env)
                case Accumulate(buffer=b, address=address) if b is not None and address is not None:
                    self.touch("write", b, address, env)
                case _:
                    pass


def walked(plan: KernelModule, symbols: Mapping[str, int]) -> set[Touch]:
    walk = Walk()
    for k in plan.kernels:
        walk.run(k.body, dict(symbols))
    return {t for t in walk.seen if t[0]}


def points(m: ig.IdModel, e: TensorExpr, symbols: Mapping[str, int]) -> Iterator[dict[str, int]]:
    loops = m.loops(e)
    for at in itertools.product(*(range(int(x.extent.evaluate(symbols))) for x in loops)):
        yield {**symbols, **{x.name: v for x, v in zip(loops, at, strict=True)}}


def told(m: ig.IdModel, symbols: Mapping[str, int]) -> set[Touch]:
    """The same, as the index maps say it."""
    found: set[Touch] = set()
    for e in live_exprs(m.fusion):
        write, reads = m.write(e), [m.read(e, k) for k in range(len(e.inputs))]
        loops = m.loops(e)
        folded = {loops[p].name for p, d in enumerate(e.output.loop) if d.kind == "reduction"}
        always = [*write.conditions, *(c for a in reads if e.op not in OPTIONAL for c in a.conditions)]
        nothing = any(int(x.extent.evaluate(symbols)) == 0 for x in loops if x.name in folded)

        def add(a: Access, kind: str, where: Expr, env: Mapping[str, int], of: Memory, e: TensorExpr = e) -> None:
            if of.place != "register":
                env = {**env, **dict.fromkeys(a.loads, LOADED)}
                point = tuple(sorted((n, v) for n, v in env.items() if n.startswith("i")))
                found.add((e.output.name, kind, of.tensor.name, of.place, point, int(where.evaluate(env))))

        for env in points(m, e, symbols):
            if not all(c.evaluate(env) for c in always):
                continue
            for k, a in enumerate(reads):
                if not (k == 0 and e.op in SCATTERS) and all(c.evaluate(env) for c in a.conditions):
                    add(a, "read", a.address, env, a.buffer)
            if not folded:
                add(write, "write", write.address, env, write.buffer)
                if write.buffer is not m.storage(e.output).memory and m.storage(e.output).memory is not None:
                    add(write, "write", write.tensor_address, env, m.storage(e.output).memory)  # type: ignore[arg-type]
        if folded:
            kept = [c for c in write.conditions if not c.names & folded]
            rest = [x for x in loops if x.name not in folded]
            for at in itertools.product(*(range(int(x.extent.evaluate(symbols))) for x in rest)):
                env = {**symbols, **{x.name: v for x, v in zip(rest, at, strict=True)}}
                if all(c.evaluate(env) for c in kept) or nothing:
                    add(write, "write", write.address, env, write.buffer)
                    memory = m.storage(e.output).memory
                    if memory is not None and write.buffer is not memory:
                        add(write, "write", write.tensor_address, env, memory)
    return found


def agree(f: Fusion, symbols: Mapping[str, int] | None = None) -> set[str]:
    """The kinds of memory that both speak of; raises `ScheduleError` for a schedule that no kernel can do."""
    places: set[str] = set()
    for threads in (False, True):
        m = ig.IdModel(f, threads=threads)
        m.verify()
        plan = lower_fusion(f, m, threads)
        values = {**dict.fromkeys(plan.names, 37), **(symbols or {})}  # free strides: any number
        have, want = walked(plan, values), told(m, values)
        # A value that a variable holds already is not loaded again by the next operation of the nest.
        left = {t for t in want - have if t[1] == "write" or t[1:] not in {h[1:] for h in have}}
        assert have <= want and not left, (
            f"kernel only: {sorted(have - want)[:3]}\nindex map only: {sorted(left)[:3]}\n{plan}"
        )
        places |= {t[3] for t in have}
    return places


@settings(max_examples=examples(120))
@given(scheduled_fusions(max_steps=4))
def test_kernels_use_the_addresses_of_the_index_maps(f: Fusion) -> None:
    note(str(f))
    try:
        places = agree(f)
    except ig.IdGraphError:
        reject()
    for place in sorted(places):
        event(place)


@settings(max_examples=examples(120))
@given(threaded_fusions())
def test_so_do_threads(f: Fusion) -> None:
    """Also where arrays are shared, swizzled, padded, and where threads have copies of their own."""
    note(str(f))
    try:
        places = agree(f)
    except ig.IdGraphError:
        reject()
    for place in sorted(places):
        event(place)


@pytest.mark.parametrize("name", sorted(SHARED))
def test_of_tiles(name: str) -> None:
    agree(SHARED[name]())


def test_slices_of_global_memory() -> None:
    """A private array too large for one thread: each thread has its slice."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", (3, 4100)), name="t")
    y = f.output(ig.flip(t, 1))
    for u in (t, y):
        u.parallelize(0, "threadIdx.x")
    t.inline(1)
    assert {"global", "private"} <= agree(f)
    read = ig.IdModel(f).access(y.definition, t)  # type: ignore[arg-type]
    assert (str(read.address), read.buffer.place, str(read.buffer.size)) == ("i0*4100 + 4099 - i1", "global", "12300")
    assert [str(n) for n in read.buffer.extents] == ["3", "4100"]


def test_symbolic_extents() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    t = ig.exp(f.input("x", (n, 7)), name="t")
    y = f.output(t + ig.amax(t, 1, keepdim=True))
    y.split(0, 4)
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    for value in (1, 6):
        agree(f, {"n": value})


def test_an_output_that_is_inlined_is_stored_twice() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.exp(f.input("x", (3, 4)), name="t"))
    y = f.output(ig.flip(t, 1))
    t.inline(1)
    assert agree(f) == {"input", "output", "private"}
    m = ig.IdModel(f)
    write, read = m.write(t.definition), m.access(y.definition, t)  # type: ignore[arg-type]
    assert (str(write.address), write.buffer.place, str(write.tensor_address)) == ("i1", "private", "i0*4 + i1")
    assert (str(read.address), str(read.tensor_address)) == ("3 - i1", "i0*4 + 3 - i1")
    t.inline(0)
    assert m.access(y.definition, t).buffer.place == "output"  # type: ignore[arg-type]
