"""Independent kernels in one launch: merged nests, ranges of blocks, and what must stay apart."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.kernel.ir import Comment, Loop, VectorLoad
from idgraph.runtime import compile_ptx
from tests.emit.statements import repeated
from tests.emit.test_lanes import check


def scheduled(f: ig.Fusion) -> ig.Fusion:
    ig.schedule.auto(f)
    return f


def blocks(f: ig.Fusion) -> list[tuple[int, int]]:
    """(first block, blocks) of each nest of the one kernel."""
    (kernel,) = ig.emit(f, target="cuda").kernels
    return [(int(s.first), int(s.extent)) for s in kernel.body if isinstance(s, Loop)]


def test_nests_that_read_one_input_are_one_nest() -> None:
    f = ig.Fusion("two")
    c = f.input("c", shape=(64, 32))
    for name in ("q", "k"):
        f.output(f.input(name, shape=(64, 32)) * c)
    program = ig.emit(scheduled(f), target="cuda")
    assert blocks(f) == [(0, 4)]
    (kernel,) = program.kernels
    assert sum(isinstance(s, VectorLoad) for s in repeated(kernel.body)) == 3  # c is read once
    (ptx,) = compile_ptx(program)
    assert ptx.count("ld.global.v4") == 3
    check(f)


def test_nests_of_several_sizes_run_on_ranges_of_blocks() -> None:
    f = ig.Fusion("heads")
    x = f.input("x", shape=(16, 24, 64))
    for part in (x[:, :16], x[:, 16:20], x[:, 20:]):
        f.output(ig.transpose(part, 0, 1) * 2.0)
    assert blocks(scheduled(f)) == [(0, 32), (32, 8)]
    check(f)


def test_a_reader_of_what_is_written_stays_behind() -> None:
    f = ig.Fusion("chain")
    a = f.output(f.input("x", shape=(8, 16)) + 1.0)
    f.output(ig.cat([a[4:], a[:4]]))
    assert len(ig.emit(scheduled(f), target="cuda").kernels) == 2
    check(f)


def test_sums_and_their_neighbours_stay_apart() -> None:
    f = ig.Fusion("sums")
    x = f.input("x", shape=(8, 16))
    f.output(ig.sum(x, 1))
    f.output(x + 1.0)
    assert all(
        sum(isinstance(s, Loop) for s in k.body if not isinstance(s, Comment)) == 1
        for k in ig.emit(scheduled(f), target="cuda").kernels
    )
    check(f)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1, 1)])
def test_empty_and_single_nests(sizes: tuple[int, int]) -> None:
    f = ig.Fusion("sizes")
    for n in sizes:
        f.output(f.input(f"x{n}{len(f.inputs)}", shape=(n, 4)) + 1.0)
    scheduled(f)
    check(f)


def test_symbolic_ranges() -> None:
    f = ig.Fusion("symbolic")
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    f.output(f.input("x", shape=(n,)) + 1.0)
    f.output(f.input("y", shape=(m,)) * 2.0)
    (kernel,) = ig.emit(scheduled(f), target="cuda").kernels
    first, second = (s for s in kernel.body if isinstance(s, Loop))
    assert str(second.first) == str(first.extent) and str(kernel.launch["blockIdx.x"][0]).count("//") == 2
    assert len(compile_ptx(ig.emit(f, target="cuda"))) == 1
