"""Calls on a GPU: no copy, the caller's stream, graphs, memory left alone, nothing leaked."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def rotation() -> ig.Fusion:
    f = ig.Fusion("rotation")
    x, y = f.input("x", (64, 128), "bfloat16"), f.input("y", (64, 128), "bfloat16")
    f.output(ig.cat([x[:, 64:], x[:, :64]], dim=1) + y)
    return f


def wanted(x: Any, y: Any) -> Any:
    return torch.cat([x[:, 64:], x[:, :64]], 1) + y


def tensors(count: int = 2, device: str = "cuda") -> list[Any]:
    return [torch.randn(64, 128, dtype=torch.bfloat16, device=device) for _ in range(count)]


def turned_sums(x: Any, y: Any) -> Any:
    """Two kernels, and a result that is a view."""
    return (x + y).sum(0), x.t(), x * y


def rows() -> ig.Fusion:
    f = ig.Fusion("rows")
    i, w = f.input("i", (64,), "int64"), f.input("w", (100, 64))
    f.output(ig.embedding(i, w))
    return f


def test_tensors_as_they_lie_and_out() -> None:
    k, args = ig.compile(rotation(), "cuda"), tensors()
    torch.testing.assert_close(k(*args), wanted(*args))
    out = torch.empty_like(args[0])
    assert k(*args, out=out) is out
    torch.testing.assert_close(out, wanted(*args))
    assert k(*args).device == args[0].device


def test_the_callers_stream() -> None:
    k, (x, y) = ig.compile(rotation(), "cuda"), tensors()
    k(x, y)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        z = x * 2
        found = k(z, y)
    side.synchronize()
    torch.testing.assert_close(found, wanted(x * 2, y))


def test_a_graph_replays_the_call() -> None:
    for fusion, args, other in (
        (rotation(), tensors(), tensors()),
        (rows(), [torch.arange(64, device="cuda"), torch.rand(100, 64, device="cuda")],
         [torch.arange(64, device="cuda") + 9, torch.rand(100, 64, device="cuda")]),
    ):  # fmt: skip
        k = ig.compile(fusion, "cuda")
        k(*args)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = k(*args)
        for a, b in zip(args, other, strict=True):
            a.copy_(b)
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(found, k(*other))


def test_an_index_out_of_range_raises() -> None:
    k: Any = ig.compile(rows(), "cuda")
    at, table = torch.arange(64, device="cuda"), torch.rand(100, 64, device="cuda")
    at[5] = 100
    with pytest.raises(ig.IndexingError, match="index 100 loaded from i is outside axis 0 of w"):
        k(at, table)
    at[5] = 7
    torch.testing.assert_close(k(at, table), table[at])
    at[5] = -3
    k(at, table)  # nothing waits for it now
    with pytest.raises(ig.IndexingError, match="index -3"):
        k.check()
    k.check()
    with pytest.raises(ig.IndexingError, match="index -3"):
        ig.compile(rows(), "cuda", checked="now")(at, table)
    at[5] = 10**9
    found = ig.compile(rows(), "cuda", checked=False)(at, table)
    assert not found[5].any()
    torch.testing.assert_close(found[6:], table[at[6:]])


def test_other_arrays() -> None:
    cuda: Any = pytest.importorskip("numba").cuda
    f = ig.Fusion("f")
    x = f.input("x", (64, 128))
    f.output(x + 1.0)
    k = ig.compile(f, "cuda")
    host = np.random.default_rng(0).random((64, 128), np.float32)
    np.testing.assert_array_equal(k(host), host + 1)
    on = cuda.to_device(host)
    found = k(on)
    np.testing.assert_array_equal(found.copy_to_host(), host + 1)
    torch.testing.assert_close(k(torch.from_numpy(host)), torch.from_numpy(host) + 1)
    strided = torch.from_numpy(host).cuda().t().contiguous().t()
    with pytest.warns(UserWarning, match="x is copied at each call: its strides"):
        torch.testing.assert_close(k(strided).cpu(), torch.from_numpy(host) + 1)


def test_ten_thousand_calls_leak_nothing() -> None:
    for fusion, args in (
        (rotation(), tensors()),
        (rows(), [torch.arange(64, device="cuda"), torch.rand(100, 64, device="cuda")]),
        (ig.from_torch(turned_sums, tensors()), tensors()),
    ):
        k = ig.compile(fusion, "cuda")
        for _ in range(100):
            k(*args)
        torch.cuda.synchronize()
        free, held = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
        for _ in range(10_000):
            k(*args)
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() == held
        if "PYTEST_XDIST_WORKER" not in os.environ:  # other workers use the device too
            assert torch.cuda.mem_get_info()[0] == free


def test_memory_around_the_results_is_left_alone() -> None:
    k, args = ig.compile(rotation(), "cuda"), tensors()
    for shift in (0, 8, 64):
        wide = torch.full((64 * 128 + 4096,), 7.0, dtype=torch.bfloat16, device="cuda")
        out = wide[2048 + shift : 2048 + shift + 64 * 128].view(64, 128)
        k(*args, out=out)
        torch.testing.assert_close(out, wanted(*args))
        assert bool((wide[: 2048 + shift] == 7).all()) and bool((wide[2048 + shift + 64 * 128 :] == 7).all())
