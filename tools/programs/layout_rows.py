"""Memory formats on a GPU: rows of `tools.bench.gpu`, each beside a copy of the same bytes, eager and torch.compile.

Inputs lie in memory as the fusions declare it: channels last, by columns, padded, of sizes that no vector divides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import idgraph as ig
from idgraph.ir import DType
from tools.programs.gpu_rows import Case, Tensors


def _nhwc(f: ig.Fusion, name: str, shape: tuple[int, int, int, int], dtype: DType) -> ig.Tensor:
    n, c, h, w = shape
    return f.input(name, shape=(n, c, h, w), strides=(c * h * w, 1, c * w, c), dtype=dtype)


def two_outputs(small: bool) -> ig.Fusion:
    """The example of NVIDIA/Fuser #1756: half(relu(x * s + b)) and x * s + b > 0, x channels last in float16."""
    f = ig.Fusion("#1756: NHWC fp16, two outputs")
    n, c = (2, 16) if small else (32, 1024)
    x = ig.cast(_nhwc(f, "x", (n, c, 25, 25), "float16"), "float32")
    s, b = (ig.cast(f.input(name, shape=(1, c, 1, 1), dtype="float16"), "float32") for name in "sb")
    y = x * s + b
    f.output(ig.cast(ig.relu(y), "float16"), y > 0)
    return f


def two_outputs_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same; in double precision no rounding to half. Products of two halves are exact: y > 0 is, too."""
    wide = x["x"].dtype == torch.float64
    a, s, b = (x[n] if wide else x[n].float() for n in ("x", "s", "b"))
    y = a * s + b
    return (torch.relu(y) if wide else torch.relu(y).half(), y > 0)


def epilogue(small: bool) -> ig.Fusion:
    """relu(x + bias + residual), NHWC, bfloat16: what follows a convolution."""
    f = ig.Fusion("NHWC bias + residual + relu bf16")
    shape = (2, 16, 5, 6) if small else (64, 256, 56, 56)
    x, r = (ig.cast(_nhwc(f, name, shape, "bfloat16"), "float32") for name in ("x", "r"))
    bias = ig.cast(f.input("bias", shape=(1, shape[1], 1, 1), dtype="bfloat16"), "float32")
    f.output(ig.cast(ig.relu(x + bias + r), "bfloat16"))
    return f


def epilogue_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    if x["x"].dtype == torch.float64:
        return (torch.relu(x["x"] + x["bias"] + x["r"]),)
    return (torch.relu(x["x"].float() + x["bias"].float() + x["r"].float()).to(torch.bfloat16),)


def by_columns(small: bool) -> ig.Fusion:
    """x * 2 of a matrix that lies by columns."""
    f = ig.Fusion("column-major x * 2")
    n = 64 if small else 16384
    f.output(f.input("x", shape=(n, n), strides=(1, n)) * 2.0)
    return f


def row_sums(small: bool) -> ig.Fusion:
    """Sums of the rows of a matrix that lies by columns."""
    f = ig.Fusion("row sums, column-major")
    rows, columns = (64, 96) if small else (16384, 8192)
    f.output(ig.sum(f.input("x", shape=(rows, columns), strides=(1, rows)), 1))
    return f


def _total(n: int, small_n: int) -> Callable[[bool], ig.Fusion]:
    def build(small: bool) -> ig.Fusion:
        f = ig.Fusion(f"relu(x) * 2 + 1, {n} f32")
        f.output(ig.relu(f.input("x", shape=(small_n if small else n,))) * 2.0 + 1.0)
        return f

    return build


def total_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    return (torch.relu(x["x"]) * 2.0 + 1.0,)


def _rows(rows: int, columns: int, small_columns: int, stride: int | None = None) -> Callable[[bool], ig.Fusion]:
    def build(small: bool) -> ig.Fusion:
        count, n = (5, small_columns) if small else (rows, columns)
        f = ig.Fusion(f"swish of {rows} x {columns} bf16" + (" with bias" if stride is None else ", padded rows"))
        strides = None if stride is None else ((n + 7) // 8 * 8, 1)
        x = ig.cast(f.input("x", shape=(count, n), dtype="bfloat16", strides=strides), "float32")
        if stride is None:
            x = x + ig.cast(f.input("bias", shape=(n,), dtype="bfloat16"), "float32")
        f.output(ig.cast(x * ig.sigmoid(x), "bfloat16"))
        return f

    return build


def rows_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    wide = x["x"].dtype == torch.float64
    y = x["x"] if wide else x["x"].float()
    y = y + x["bias"].to(y.dtype) if "bias" in x else y
    y = y * torch.sigmoid(y)
    return (y if wide else y.to(torch.bfloat16),)


def _less_by_row(rows: int, columns: int, small_columns: int) -> Callable[[bool], ig.Fusion]:
    def build(small: bool) -> ig.Fusion:
        count, n = (5, small_columns) if small else (rows, columns)
        f = ig.Fusion(f"exp(x - m) of {rows} x {columns} bf16")
        x = ig.cast(f.input("x", shape=(count, n), dtype="bfloat16"), "float32")
        f.output(ig.cast(ig.exp(x - f.input("m", shape=(count, 1))), "bfloat16"))
        return f

    return build


def less_by_row_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    if x["x"].dtype == torch.float64:
        return (torch.exp(x["x"] - x["m"]),)
    return (torch.exp(x["x"].float() - x["m"]).to(torch.bfloat16),)


CASES: tuple[Case, ...] = (
    Case("two_outputs", 0.97, two_outputs, two_outputs_torch),
    Case("epilogue", 0.97, epilogue, epilogue_torch),
    Case("by_columns", 0.97, by_columns, lambda torch, x: (x["x"] * 2.0,)),
    Case("row_sums", 0.95, row_sums, lambda torch, x: (x["x"].sum(1),)),
    Case("total_even", 0.0, _total(1_000_000, 1000), total_torch),
    Case("total_odd", 0.0, _total(1_000_003, 1003), total_torch),
    Case("large_even", 0.95, _total(1 << 28, 1024), total_torch),
    Case("large_odd", 0.95, _total((1 << 28) + 3, 1027), total_torch),
    Case("rows_even", 0.0, _rows(30, 50256, 256), rows_torch),
    Case("rows_odd", 0.0, _rows(30, 50257, 257), rows_torch),
    Case("many_rows_even", 0.95, _rows(4096, 50256, 256), rows_torch),
    Case("many_rows_odd", 0.95, _rows(4096, 50257, 257), rows_torch),
    Case("less_even", 0.95, _less_by_row(4096, 50256, 1040), less_by_row_torch),
    Case("less_odd", 0.95, _less_by_row(4096, 50257, 1041), less_by_row_torch),
    Case("padded_rows", 0.0, _rows(4096, 50257, 257, 50264), rows_torch),
)
