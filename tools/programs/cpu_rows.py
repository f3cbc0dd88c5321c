"""The cases of `tools.bench.cpu`: sizes that two cores handle in milliseconds, in PyTorch and, if short, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import idgraph as ig
from idgraph.ir import DType
from tools.programs import gpu_rows

Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CpuCase:
    """``torch`` and ``numpy`` compute the outputs of ``build`` from tensors and arrays by input name."""

    key: str
    build: Callable[[], ig.Fusion]
    torch: Callable[[Any, Arrays], tuple[Any, ...]]
    numpy: Callable[[Arrays], object] | None = None


def _rope(dtype: DType) -> Callable[[], ig.Fusion]:
    def build() -> ig.Fusion:
        f = ig.Fusion(f"RoPE q,k {dtype} [1, 32, 1024, 128]")
        cos, sin = (f.input(n, (1, 1, 1024, 128), dtype) for n in ("cos", "sin"))
        for n in ("q", "k"):
            x = f.input(n, (1, 32, 1024, 128), dtype)
            f.output(x * cos + ig.cat([-x[..., 64:], x[..., :64]], dim=-1) * sin)
        return f

    return build


def _rope_numpy(x: Arrays) -> object:
    n = 64
    return [x[k] * x["cos"] + np.concatenate([-x[k][..., n:], x[k][..., :n]], -1) * x["sin"] for k in ("q", "k")]


def _cross_entropy(classes: int, gradient: bool, dtype: DType) -> Callable[[], ig.Fusion]:
    def build() -> ig.Fusion:
        f = ig.Fusion(f"cross entropy{' and gradient' if gradient else ''} {dtype} 512 x {classes}")
        x, y = f.input("x", (512, classes), dtype), f.input("y", (512,), "int64")
        f.output(ig.cross_entropy(x, y))
        if gradient:
            f.output(ig.cross_entropy_backward(None, x, y))
        return f

    return build


def _cross_entropy_numpy(x: Arrays) -> object:
    top: Any = x["x"].max(1)
    sums: Any = np.log(np.exp(x["x"] - top[:, None]).sum(1))
    lost: Any = sums + top - x["x"][np.arange(len(top)), x["y"]]
    return lost.mean()


def _embedding() -> ig.Fusion:
    f = ig.Fusion("embedding float32, 4096 of [32000, 1024]")
    ids = f.input("ids", (4096,), "int64")
    f.output(ig.embedding(ids, f.input("table", (32000, 1024))))
    return f


def _gather() -> ig.Fusion:
    f = ig.Fusion("gather float32 [2048, 2048]")
    f.output(ig.gather(f.input("x", (2048, 2048)), 1, f.input("index", (2048, 2048), "int64")))
    return f


def _index_put(accumulate: bool) -> Callable[[], ig.Fusion]:
    def build() -> ig.Fusion:
        f = ig.Fusion(f"index_put{' accumulating' if accumulate else ''} float32, 4096 rows of [8000, 1024]")
        x, ids, new = f.input("x", (8000, 1024)), f.input("ids", (4096,), "int64"), f.input("new", (4096, 1024))
        at = ids if accumulate else (f.iota(4096, step=1237) + ids[:1]) % 8000  # torch promises no last writer
        f.output(ig.index_put(x, [at], new, accumulate=accumulate))
        return f

    return build


def _index_put_torch(torch: Any, x: Arrays) -> tuple[Any, ...]:
    slots = (torch.arange(4096) * 1237 + x["ids"][:1]) % 8000
    return (x["x"].index_put((slots,), x["new"]),)


def _scatter_add() -> ig.Fusion:
    f = ig.Fusion("scatter_add float32 [1024, 2048] along 1")
    x, i, s = f.input("x", (1024, 2048)), f.input("index", (1024, 2048), "int64"), f.input("s", (1024, 2048))
    f.output(ig.scatter_add(x, 1, i, s))
    return f


def _total(dtype: DType) -> Callable[[], ig.Fusion]:
    def build() -> ig.Fusion:
        f = ig.Fusion(f"sum of {dtype} [16777216]")
        f.output(ig.sum(f.input("x", (1 << 24,), dtype)))
        return f

    return build


def _sum_torch(torch: Any, x: Arrays) -> tuple[Any, ...]:
    return (torch.sum(x["x"]),)


CASES: tuple[CpuCase, ...] = (
    CpuCase("rope", _rope("float32"), gpu_rows.rope_torch, _rope_numpy),
    CpuCase("rope_bf16", _rope("bfloat16"), gpu_rows.rope_torch),
    CpuCase("ce", _cross_entropy(32000, False, "float32"), gpu_rows.cross_entropy_torch, _cross_entropy_numpy),
    CpuCase("ce_bf16", _cross_entropy(32000, False, "bfloat16"), gpu_rows.cross_entropy_torch),
    CpuCase("ce_grad", _cross_entropy(32000, True, "float32"), gpu_rows.cross_entropy_gradient_torch),
    CpuCase("ce_grad_bf16", _cross_entropy(32000, True, "bfloat16"), gpu_rows.cross_entropy_gradient_torch),
    CpuCase("embedding", _embedding, gpu_rows.embedding_torch, lambda x: x["table"][x["ids"]]),
    CpuCase("gather", _gather, gpu_rows.gather_torch, lambda x: np.take_along_axis(x["x"], x["index"], 1)),
    CpuCase("index_put", _index_put(False), _index_put_torch),
    CpuCase(
        "index_add", _index_put(True), lambda torch, x: (x["x"].index_put((x["ids"],), x["new"], accumulate=True),)
    ),
    CpuCase("scatter_add", _scatter_add, lambda torch, x: (x["x"].scatter_add(1, x["index"], x["s"]),)),
    CpuCase("total", _total("float32"), _sum_torch, lambda x: np.sum(x["x"])),
    CpuCase("total_bf16", _total("bfloat16"), _sum_torch),
)
