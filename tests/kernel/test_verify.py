"""Verify accepts the kernels of every pass, and refuses each that is spoiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings

import idgraph as ig
from idgraph.errors import EmitError, IdGraphError
from idgraph.kernel.ir import Barrier, Compute, Kernel, Load, Local, Loop, SingleThread, Stmt, Store, bodies, walk
from idgraph.runtime.program import stages
from idgraph.testing import scheduled_fusions
from tests.emit.cases import CASES, Case
from tests.emit.shared_cases import SHARED
from tests.property.launches import threaded_fusions


def verify_all(made: Case) -> None:
    seen: list[Kernel] = []  # targets lower many a fusion alike
    for target in ("cuda", "cpu", "python"):
        try:
            plans = list(stages(made.fusion, target))
        except IdGraphError:
            continue
        for name, plan in plans:
            for k in [k for k in plan.kernels if k not in seen]:
                seen.append(k)
                try:
                    k.verify({**made.symbols, **made.sizes})
                except EmitError as problem:
                    raise AssertionError(f"after {name}") from problem


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_after_every_pass(name: str) -> None:
    verify_all(CASES[name]())


@given(scheduled_fusions(max_steps=4))
@settings(max_examples=20, deadline=None)
def test_kernels_of_random_fusions(f: ig.Fusion) -> None:
    verify_all(Case(f))


@given(threaded_fusions())
@settings(max_examples=20, deadline=None)
def test_kernels_on_threads(f: ig.Fusion) -> None:
    verify_all(Case(f))


# spoiled kernels ------------------------------------------------------------------------------------------------------


def changed(k: Kernel, f: Callable[[Stmt], tuple[Stmt, ...]]) -> Kernel:
    """The kernel with other statements for each; bodies of loops and conditions stay inside."""

    def level(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for s in body:
            for x in f(s):
                made.append(replace(x, body=level(bodies(x))) if bodies(x) else x)  # pyright: ignore[reportCallIssue]
        return tuple(made)

    return replace(k, body=level(k.body))


@pytest.mark.parametrize("name", SHARED)
def test_a_barrier_that_is_left_out(name: str) -> None:
    """Each barrier of the cases with shared memory is needed."""
    for k in ig.emit(SHARED[name](), "cuda").kernels:
        assert k.verify().races
        for barrier in [s for s in walk(k.body) if isinstance(s, Barrier)]:
            wrong = changed(k, lambda s, gone=barrier: () if s is gone else (s,))
            with pytest.raises(EmitError, match="threads without a barrier"):
                wrong.verify()


def softmax() -> Kernel:
    f = ig.Fusion("softmax")
    f.output(ig.softmax(f.input("x", shape=(3, 1030)), 1))
    ig.schedule.auto(f)
    return ig.emit(f, "cuda").kernels[0]


def sums() -> Kernel:
    f = ig.Fusion("sums")
    f.output(ig.sum(f.input("x", shape=(3, 1024)), 1))
    ig.schedule.auto(f)
    return ig.emit(f, "cuda").kernels[0]


def test_a_value_that_nobody_sets() -> None:
    k = softmax()
    (first, *_) = [s for s in walk(k.body) if isinstance(s, Compute) and s.op == "sub"]
    with pytest.raises(EmitError, match=r"read before any statement sets it|under a condition"):
        changed(k, lambda s: () if isinstance(s, Compute) and s.local.name == first.local.name else (s,)).verify()


def test_a_value_of_another_type() -> None:
    k = softmax()

    def other(s: Stmt) -> tuple[Stmt, ...]:
        if not isinstance(s, Compute) or s.op != "exp":
            return (s,)
        return (
            replace(s, operands=tuple(replace(o, dtype="float64") if isinstance(o, Local) else o for o in s.operands)),
        )

    with pytest.raises(EmitError, match="is float32, read as float64"):
        changed(k, other).verify()


def test_an_address_behind_the_end() -> None:
    k = softmax()
    for s in [s for s in walk(k.body) if isinstance(s, (Load, Store))]:
        size = s.buffer.size
        wrong = changed(k, lambda x, s=s, n=size: (replace(x, address=s.address + n),) if x is s else (x,))  # type: ignore[misc]
        with pytest.raises(EmitError, match="it touches element"):
            wrong.verify()


def test_a_write_by_all_threads() -> None:
    """Without the test for the first one, threads of a block write one element: the same value, by chance."""
    k = sums()
    assert any(isinstance(s, SingleThread) for s in walk(k.body))
    threads = Loop("z", k.launch["threadIdx.x"][0], "threadIdx.x", ())
    wrong = changed(k, lambda s: (replace(threads, body=s.body),) if isinstance(s, SingleThread) else (s,))
    with pytest.raises(EmitError, match="threads without a barrier"):
        wrong.verify()


def test_a_barrier_that_some_threads_miss() -> None:
    k = ig.kernel.parse("""
kernel k():
  launch threadIdx.x: 8
  for t < 8, threadIdx.x:
    if t < 4:
      barrier  # too few
""")
    with pytest.raises(EmitError, match="not every thread of the block comes to a barrier"):
        k.verify()


def test_a_variable_of_no_loop() -> None:
    text = 'kernel k():\n  buffer b: float32[4] input "x"\n  t: float32 = b[i]'
    with pytest.raises(EmitError, match="i has no value where it is used"):
        ig.kernel.parse(text).verify()


def test_two_blocks_write_one_element() -> None:
    text = """
kernel k():
  buffer b: float32[4] output "x"
  launch blockIdx.x: 8
  for i < 8, blockIdx.x:
    b[i//2] = 1.0
"""
    with pytest.raises(EmitError, match="blocks without a launch between them"):
        ig.kernel.parse(text).verify()


def test_what_is_not_decided_is_told() -> None:
    text = """
kernel k(n):
  where n in 1, _
  buffer b: float32[n] input "x"
  for i < n:
    t: float32 = b[i*i%7]
"""
    k = ig.kernel.parse(text)
    assert "n is not known" in k.verify().undecided[0] and not k.verify().races
    assert k.verify({"n": 7}).undecided == ()
    with pytest.raises(EmitError, match="it touches element"):
        ig.kernel.parse(text.replace("i*i%7", "i*i%7 + 1")).verify({"n": 2})
