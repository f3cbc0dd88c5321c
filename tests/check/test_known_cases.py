"""Wrong results that users reported for TorchInductor, tried on the release at hand: each fault of the loops is found,
each of the graph is told as one, and what was fixed is not refuted. The numbers are those of its tracker.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional
HERE = torch.__version__.startswith("2.13.")  # the release whose state is told below


def put_then_add(x: Any) -> Any:
    x.index_put_((torch.arange(x.size(0)),), x * 2.0)
    x.add_(x.flip(0))
    return x


def add_list(x: Any) -> Any:
    torch._foreach_add_([x], [x.flip(0)])
    return x


def shift(x: Any) -> Any:
    x[1:] = x[:-1].clone()
    return x


def scatter_then_zero(x: Any, src: Any) -> Any:
    y = torch.slice_scatter(x, src[1:3], dim=0, start=1, end=3)
    x.zero_()
    return y


def overlapping(a: Any) -> Any:
    y = a.clone().as_strided((2, 2), (1, 1), 0)
    y.add_(1.0)
    return y


def nearest(x: Any) -> Any:
    return F.interpolate(x, scale_factor=(1.3, 1.5), mode="nearest")


def strided_outside(x: Any) -> Any:
    full = x.repeat((3, 2))
    return torch.as_strided(full[:, ::2], (3, 2), full.stride())


def strided_after_roll(x: Any) -> Any:
    return torch.as_strided(torch.roll(x, shifts=-1, dims=0), (5, 10), (4, 1), 0)


def add_twice(x: Any, y: Any) -> Any:
    x = x + 10
    y[x] += y[x]
    return y


def roll_and_fill(x: Any) -> Any:
    x = torch.roll(x, -1, 0)
    x[0].fill_(0.0)
    return x


def add_to_view(x: Any, a: Any, i: Any) -> Any:
    y = x.permute(1, 0)
    y.index_add_(0, i, a)
    return y


def swapped_parts(x: Any) -> Any:
    a, b, c = torch.split(x, [3, 2, 3], dim=1)
    return torch.cat([b, a, c], dim=1)


def cropped(x: Any) -> Any:
    p = F.pad(x * torch.sigmoid(x), (-8, 0, 0, 0, 0, 0), "constant", value=0.5)
    return torch.cat((p,), dim=2), p.lt(0.1)


def copied_back(a: Any) -> Any:
    b = a * 2
    a[2:6] = b[1:5]
    c = a[3:7] + 1
    a[0:4] = c
    return a, c


def updated_twice(x: Any, src: Any) -> Any:
    updated = torch.slice_scatter(x, src, 0, 0, 1)
    x.copy_(updated)
    return updated


def rand(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def whole(low: int, high: int, *shape: int) -> Any:
    return torch.arange(low, high).reshape(*shape)


Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]
LOOPS: dict[int, Case] = {  # wrong in the loops of 2.13: refuted after fusion, right before it
    198270: (put_then_add, lambda: (rand(4, 8),)),
    198033: (add_list, lambda: (rand(8, 8),)),
    197829: (shift, lambda: (rand(3, 16, 16),)),
}
GRAPH: dict[int, Case] = {  # wrong before there are loops
    198094: (scatter_then_zero, lambda: (whole(0, 24, 4, 6), whole(-12, 12, 4, 6))),
    174371: (overlapping, lambda: (rand(2, 2, 10),)),
    198201: (nearest, lambda: (whole(0, 12, 1, 1, 3, 4).float(),)),
    175154: (lambda x: F.interpolate(x, scale_factor=1.3, mode="nearest"), lambda: (rand(1, 1, 1, 2).double(),)),
}
MENDED: dict[int, Case] = {
    174963: (strided_after_roll, lambda: (whole(0, 100, 2, 5, 2, 5).to(memory_format=torch.channels_last),)),
    138908: (add_twice, lambda: (torch.full((1, 2), -10), rand(2, 32))),
    102064: (lambda x: x[:, [-1], :], lambda: (rand(1, 64, 24),)),
    117778: (roll_and_fill, lambda: (torch.ones(64, 2),)),
    111133: (add_to_view, lambda: (torch.ones(3, 5), whole(1, 10, 3, 3).float(), torch.tensor([0, 4, 2]))),
    99686: (swapped_parts, lambda: (rand(1, 8),)),
    114221: (cropped, lambda: (rand(3, 4, 20),)),
    94693: (copied_back, lambda: (rand(8, 8),)),
    189895: (lambda m: F.pad(m.sum(dim=-1, dtype=torch.int32), (1, 0)), lambda: (torch.ones(1, 16384).bool(),)),
    116433: (lambda x: (x + 1).view(-1, 1, 2), lambda: (torch.arange(8.0),)),
}


def checked(case: Case) -> ig.check.CheckReport:
    fn, args = case
    return ig.check.inductor(fn, args(), options={"fallback_random": True})


@pytest.mark.skipif(not HERE, reason="the state of another release")
@pytest.mark.parametrize("number", LOOPS)
def test_a_kernel_that_reads_what_it_overwrites_is_refuted(number: int) -> None:
    case = LOOPS[number]
    r = checked(case)
    assert r.refuted and {(x.stage, x.role) for x in r.refuted} == {("after", "read")}, str(r)
    (row,) = r.refuted
    found = row.counterexample
    assert found is not None and found.read and found.meant and "overwrites it" in found.meant
    late = found.meant.split("the point ")[1].split(" of ")[0]
    assert dict(p.split("=") for p in late.split(", ")) != {k: str(v) for k, v in found.point.items()}


@pytest.mark.skipif(not HERE, reason="the state of another release")
def test_a_result_outside_of_its_memory_is_refuted() -> None:
    """Issue 197431: the buffer holds every second column only, the result is a view over all of them."""
    r = checked((strided_outside, lambda: (rand(1, 1),)))
    (row,) = r.refuted
    assert row.stage == "after" and row.counterexample is not None
    assert row.counterexample.read == "buf0[5]" and "which has 3" in str(row.counterexample.meant)


@pytest.mark.sampled
@pytest.mark.skipif(not HERE, reason="the state of another release")
@pytest.mark.parametrize("number", GRAPH)
def test_a_wrong_graph_is_told_as_one(number: int) -> None:
    r = checked(GRAPH[number])
    shared = [row for row in r.refuted if row.stage == "after"]  # 198094 gives out the argument's memory, too
    assert r.refuted and {row.stage for row in r.refuted if row not in shared} == {"graph"}, str(r)
    assert [(row.buffer, row.because) for row in shared] == [
        ("arg1_1", "a result shares memory with an argument that is updated in place")
    ] * (number == 198094)
    assert all(row.counterexample and row.counterexample.read != row.counterexample.meant for row in r.refuted)


@pytest.mark.slow
@pytest.mark.skipif(not HERE or shutil.which("g++") is None, reason="the state of another release; no C++ compiler")
def test_torch_gives_out_the_memory_that_the_row_of_198094_names() -> None:
    fn, args = GRAPH[198094]
    torch._dynamo.reset()
    given, compiled = args(), args()
    meant, found = fn(*given), torch.compile(fn)(*compiled)
    torch._dynamo.reset()
    assert meant.data_ptr() not in {t.data_ptr() for t in given}
    assert found.data_ptr() == compiled[0].data_ptr()


@pytest.mark.sampled
@pytest.mark.parametrize("number", MENDED)
def test_what_was_mended_is_not_refuted(number: int) -> None:
    fn, args = MENDED[number]
    given = args()
    wanted = fn(*[t.clone() for t in given])
    r = checked((fn, args))
    assert r.ok, str(r)
    assert wanted is not None and any(row.verdict == "tested" for row in r.rows)


@pytest.mark.skipif(not HERE, reason="the state of another release")
def test_a_result_in_the_memory_of_an_argument_is_refuted() -> None:
    """Issue 195451: the argument that is updated is given out, where the program gives a tensor of its own."""
    r = checked((updated_twice, lambda: (rand(2), rand(1))))
    (row,) = r.refuted
    assert row.counterexample is not None and row.counterexample.read == "the memory of arg0_1"

    def fresh(x: Any) -> Any:
        x.mul_(2.0)
        return x + 0.0, x.view(-1)

    assert checked((fresh, lambda: (rand(2, 3),))).ok


@pytest.mark.skipif(not HERE, reason="the state of another release")
def test_an_index_that_the_program_refuses_is_told() -> None:
    """Issue 169779: `index_select` takes -1; 151918, where `embedding` did, is fixed: both raise."""
    r = checked((lambda x: torch.index_select(x, 0, torch.tensor([-1])), lambda: (rand(5, 3),)))
    (row,) = r.refuted
    assert row.stage == "graph" and row.counterexample is not None and "IndexError" in str(row.counterexample.meant)
    with pytest.raises(ig.check.CheckError, match="index out of range"):
        checked((torch.embedding, lambda: (rand(8, 1), torch.arange(8) - 4)))


def test_a_strided_tensor_is_reshaped_at_dynamic_sizes() -> None:
    """Issue 172693, right in 2.13."""
    x = rand(4, 6, 16)[:, :, ::2]
    r = ig.check.inductor(lambda x: x.reshape(x.shape[0] * x.shape[1], -1) + 1, (x,), dynamic=True)
    assert r.ok and {row.verdict for row in r.rows} == {"proved", "tested"}, str(r)


def test_a_copy_between_rows_apart_is_no_race() -> None:
    """The update reads only what it does not write: rows of the first half into the second."""

    def fill(x: Any) -> Any:
        x[4:] = x[:4].clone()
        return x

    r = checked((fill, lambda: (rand(8, 5),)))
    assert r.ok and any("overwrites" in row.because for row in r.rows), str(r)
