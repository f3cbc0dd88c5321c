"""Functions of torch on the CPU, the rows of ``tools.bench.cpu --table functions`` and ``--table other``.

No kernel is tuned for one of them. Those of one and of two arrays are called with float32 [rows, 1003], whose rows
begin at any alignment; `OTHER` has the types, shapes and axes that these lack, each with its own arguments.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.nn.functional as nn

Tensor = torch.Tensor
Case = tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]
N: Final = 1003


def _of_one() -> dict[str, Callable[[Tensor], Any]]:
    named: dict[str, Callable[[Tensor], Any]] = {
        name: getattr(torch, name)
        for name in (
            "exp", "exp2", "expm1", "sin", "cos", "tan", "tanh", "atan", "sinh", "cosh", "asinh", "erf", "erfc",
            "sigmoid", "sign", "floor", "round", "trunc", "abs", "neg", "square", "reciprocal",
        )
    }  # fmt: skip
    named |= {name: _of_size(name) for name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")}
    named |= {
        name: getattr(nn, name)
        for name in ("relu", "gelu", "silu", "mish", "softplus", "elu", "selu", "hardswish", "logsigmoid", "leaky_relu")
    }
    return named | {
        "x * 2": lambda x: x * 2,
        "clamp": lambda x: x.clamp(-1, 1),
        "pow 1.5": lambda x: x.abs() ** 1.5,
        "asin": lambda x: torch.asin(x / 8),
        "gelu tanh": lambda x: nn.gelu(x, approximate="tanh"),
        "fmod": lambda x: torch.fmod(x, 0.3),
        "remainder": lambda x: torch.remainder(x, 0.3),
        "to float16": lambda x: x.half(),
        "to bfloat16": lambda x: x.bfloat16(),
        "to int32": lambda x: x.int(),
        "sum of rows": lambda x: x.sum(1),
        "mean of columns": lambda x: x.mean(0),
        "sum of all": lambda x: x.sum(),
        "maximum of rows": lambda x: x.amax(1),
        "maximum of columns": lambda x: x.amax(0),
        "argmax": lambda x: x.argmax(1),
        "product of rows": lambda x: x.prod(1),
        "variance": lambda x: x.var(1),
        "norm": lambda x: x.norm(dim=1),
        "any": lambda x: (x > 3).any(1),
        "softmax": lambda x: torch.softmax(x, 1),
        "log_softmax": lambda x: torch.log_softmax(x, 1),
        "logsumexp": lambda x: torch.logsumexp(x, 1),
        "layer_norm": lambda x: nn.layer_norm(x, (N,)),
        "cumsum": lambda x: x.cumsum(1),
        "transpose": lambda x: x.t().contiguous(),
        "flip": lambda x: x.flip(1),
        "roll": lambda x: x.roll(3, 1),
        "pad": lambda x: nn.pad(x, (1, 2)),
        "reflecting pad": lambda x: nn.pad(x[None], (2, 2), mode="reflect"),
        "neighbours": lambda x: x + x.roll(1, 1) - x.roll(-1, 1),
    }


def _of_size(name: str) -> Callable[[Tensor], Any]:
    f: Any = getattr(torch, name)
    return lambda x: f(x.abs())


OF_ONE: Final = _of_one()
OF_TWO: Mapping[str, Callable[[Tensor, Tensor], Any]] = {
    "x + y": lambda x, y: x + y,
    "x / y": lambda x, y: x / y,
    "maximum": torch.maximum,
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "logical_and": lambda x, y: (x > 0) & (y > 0),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "stack": lambda x, y: torch.stack([x, y]),
    "mse_loss": nn.mse_loss,
    "bce_with_logits": nn.binary_cross_entropy_with_logits,
}

DOUBLES: Final = (
    "exp", "log", "log1p", "expm1", "sin", "cos", "tanh", "sigmoid", "erf", "sqrt", "atan", "log10",
)  # fmt: skip


def _normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape).to(dtype)


def _of(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(_normal(*s, dtype=dtype) for s in shapes)


def _whole(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.randint(0, 100, shape).to(dtype)


def _doubles() -> dict[str, Case]:
    def case(name: str) -> Case:
        f: Any = getattr(torch, name)
        positive = name in ("log", "log1p", "log10", "sqrt")
        return (lambda x: f(x.abs())) if positive else f, _of((512, N), dtype=torch.float64)

    return {f"{n} float64": case(n) for n in DOUBLES}


def _types() -> dict[str, Case]:
    half, short, wide = torch.float16, torch.bfloat16, torch.float64
    bytes_ = torch.uint8
    one, two = ((N, N),), ((N, N), (N, N))
    return {
        "x + y float64": (torch.add, _of(*two, dtype=wide)),
        "softmax float64": (lambda x: torch.softmax(x, 1), _of((512, N), dtype=wide)),
        "x + y bfloat16": (torch.add, _of(*two, dtype=short)),
        "gelu bfloat16": (nn.gelu, _of(*one, dtype=short)),
        "softmax bfloat16": (lambda x: torch.softmax(x, 1), _of(*one, dtype=short)),
        "silu times y float16": (lambda x, y: nn.silu(x) * y, _of(*two, dtype=half)),
        "sum of rows bfloat16": (lambda x: x.sum(1), _of(*one, dtype=short)),
        "float16 to float32": (lambda x: x.float(), _of(*one, dtype=half)),
        "bfloat16 to float32": (lambda x: x.float(), _of(*one, dtype=short)),
        "x + y int32": (torch.add, lambda: (_whole(N, N), _whole(N, N))),
        "x * y int64": (torch.mul, lambda: (_whole(N, N, dtype=torch.int64), _whole(N, N, dtype=torch.int64))),
        "x // 7 int32": (lambda x: x // 7, lambda: (_whole(N, N),)),
        "x % y int32": (torch.remainder, lambda: (_whole(N, N), _whole(N, N) + 1)),
        "sum of rows int32": (lambda x: x.sum(1), lambda: (_whole(N, N),)),
        "maximum of rows int32": (lambda x: x.amax(1), lambda: (_whole(N, N),)),
        "x + y uint8": (torch.add, lambda: (_whole(N, N, dtype=bytes_), _whole(N, N, dtype=bytes_))),
        "picture to floats": (
            lambda x: (x.permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.22,
            lambda: (_whole(4, 224, 224, 3, dtype=bytes_),),
        ),
        "x == y": (torch.eq, _of(*two)),
        "count of positive": (lambda x: (x > 0).sum(1), _of(*one)),
        "int32 to float32": (lambda x: x.float(), lambda: (_whole(N, N),)),
    }


def _strides() -> dict[str, Case]:
    return {
        "x[:, ::2] * 2": (lambda x: x[:, ::2] * 2, _of((N, 2 * N))),
        "x[::2] + y": (lambda x, y: x[::2] + y, _of((2 * N, N), (N, N))),
        "x.T + y": (lambda x, y: x.t() + y, _of((N, N), (N, N))),
        "x.T float64": (lambda x: x.t().contiguous(), _of((N, N), dtype=torch.float64)),
        "x.T float16": (lambda x: x.t().contiguous(), _of((N, N), dtype=torch.float16)),
        "x.T uint8": (lambda x: x.t().contiguous(), lambda: (_whole(N, N, dtype=torch.uint8),)),
        "x.T of 4096": (lambda x: x.t().contiguous(), _of((4096, 512))),
        "x.T batched": (lambda x: x.transpose(1, 2).contiguous(), _of((32, 128, 257))),
        "heads to tokens": (lambda x: x.transpose(1, 2).contiguous(), _of((4, 128, 16, 64))),
        "NCHW to NHWC": (lambda x: x.permute(0, 2, 3, 1).contiguous(), _of((8, 64, 56, 56))),
        "NHWC to NCHW": (lambda x: x.permute(0, 3, 1, 2).contiguous(), _of((8, 56, 56, 64))),
        "NCHW to NHWC of 3": (lambda x: x.permute(0, 2, 3, 1).contiguous(), _of((4, 3, 224, 224))),
        "row plus matrix": (torch.add, _of((N,), (N, N))),
        "column plus matrix": (torch.add, _of((N, 1), (N, N))),
        "row plus column": (torch.add, _of((N, 1), (1, N))),
        "x * 2 of 3 columns": (lambda x: x * 2, _of((300000, 3))),
        "sum of 7 columns": (lambda x: x.sum(1), _of((100000, 7))),
        "flip rows": (lambda x: x.flip(0), _of((N, N))),
        "tril": (torch.tril, _of((N, N))),
    }


def _reductions() -> dict[str, Case]:
    shape = ((8, 64, 56, 56),)
    return {
        "mean of middle axis": (lambda x: x.mean(1), _of((32, 257, 128))),
        "variance of columns": (lambda x: x.var(0), _of((N, N))),
        "mean of NCHW planes": (lambda x: x.mean((2, 3)), _of(*shape)),
        "sum of NCHW channels": (lambda x: x.sum((0, 2, 3)), _of(*shape)),
        "softmax of columns": (lambda x: torch.softmax(x, 0), _of((N, N))),
        "softmax of middle axis": (lambda x: torch.softmax(x, 1), _of((32, 257, 128))),
        "log_softmax of 10": (lambda x: torch.log_softmax(x, 1), _of((100000, 10))),
        "argmax of columns": (lambda x: x.argmax(0), _of((N, N))),
        "minimum of all": (lambda x: x.amin(), _of((N, N))),
        "maximum with places": (lambda x: x.max(1), _of((N, N))),
        "cumsum of columns": (lambda x: x.cumsum(0), _of((N, N))),
        "cumprod": (lambda x: x.cumprod(1), _of((N, N))),
        "cummax": (lambda x: x.cummax(1)[0], _of((N, N))),
        "norm of all": (lambda x: x.norm(), _of((N, N))),
        "group_norm": (lambda x: nn.group_norm(x, 8), _of(*shape)),
        "batch_norm": (
            lambda x, m, v: nn.batch_norm(x, m, v), lambda: (_normal(*shape[0]), _normal(64), _normal(64).abs() + 1),
        ),
        "layer_norm of 768": (
            lambda x, w, b: nn.layer_norm(x, (768,), w, b), _of((2048, 768), (768,), (768,)),
        ),
        "rms norm": (
            lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, _of((2048, 768), (768,)),
        ),
        "cross_entropy": (nn.cross_entropy, lambda: (_normal(N, N), _whole(N, dtype=torch.int64))),
        "all": (lambda x: (x < 9).all(), _of((N, N))),
    }  # fmt: skip


def _moves() -> dict[str, Case]:
    index = torch.int64
    return {
        "gather": (lambda x, i: x.gather(1, i), lambda: (_normal(N, N), _whole(N, N, dtype=index))),
        "index_select": (lambda x, i: x.index_select(0, i), lambda: (_normal(N, N), _whole(2000, dtype=index))),
        "index_select columns": (lambda x, i: x.index_select(1, i), lambda: (_normal(N, N), _whole(500, dtype=index))),
        "embedding": (lambda w, i: nn.embedding(i, w), lambda: (_normal(100, 256), _whole(64, 64, dtype=index))),
        "embedding sum": (
            lambda w, i: nn.embedding(i, w).sum(1), lambda: (_normal(100, 256), _whole(512, 16, dtype=index)),
        ),
        "one_hot": (lambda i: nn.one_hot(i, 100), lambda: (_whole(4096, dtype=index),)),
        "cat of three": (lambda x, y, z: torch.cat([x, y, z], 1), _of((N, 301), (N, 77), (N, 512))),
        "cat of rows": (lambda x, y: torch.cat([x, y]), _of((N, N), (N, N))),
        "chunks swapped": (lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), _of((N, 1024))),
        "pixel shuffle": (lambda x: nn.pixel_shuffle(x, 2), _of((4, 64, 56, 56))),
        "pixel unshuffle": (lambda x: nn.pixel_unshuffle(x, 2), _of((4, 16, 112, 112))),
        "max_pool": (lambda x: nn.max_pool2d(x, 2), _of((8, 64, 56, 56))),
        "max_pool of 3": (lambda x: nn.max_pool2d(x, 3, 2, 1), _of((4, 64, 56, 56))),
        "avg_pool": (lambda x: nn.avg_pool2d(x, 2), _of((8, 64, 56, 56))),
        "upsample": (lambda x: nn.interpolate(x, scale_factor=2.0), _of((4, 64, 28, 28))),
        "pad of pictures": (lambda x: nn.pad(x, (1, 1, 1, 1)), _of((8, 64, 56, 56))),
        "masked_fill": (lambda x, m: x.masked_fill(m > 0, -1.0), _of((N, N), (N, N))),
        "gated": (lambda x: nn.glu(x, 1), _of((N, 2048))),
        "expand and add": (lambda x, y: x[:, None] + y[None], _of((64, 128), (128, 128))),
        "repeat_interleave": (lambda x: x.repeat_interleave(4, 1), _of((64, 8, 2048))),
        "rotated halves": (
            lambda x, c, s: x * c + torch.cat([-x[..., 64:], x[..., :64]], -1) * s,
            _of((32, 256, 128), (256, 128), (256, 128)),
        ),
        "x + 1 of 64": (lambda x: x + 1, _of((64,))),
        "softmax of 64 rows": (lambda x: torch.softmax(x, 1), _of((64, N))),
        "x + y of 64 rows": (torch.add, _of((64, N), (64, N))),
    }  # fmt: skip


OTHER: Final[dict[str, Case]] = {**_doubles(), **_types(), **_strides(), **_reductions(), **_moves()}


def arguments_of(name: str, rows: int) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """A function and the arrays that it is called with."""
    if name in OTHER:
        f, made = OTHER[name]
        return f, made()
    if name in OF_ONE:
        return OF_ONE[name], (torch.randn(rows, N),)
    return OF_TWO[name], (torch.randn(rows, N), torch.randn(rows, N))
