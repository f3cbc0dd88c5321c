"""Programs at special numbers, beside torch: all of a type in one fusion, so that what compiles compiles once.

``python -m tests.emit.special TARGET`` prints what differs as JSON; with NUMBA_ENABLE_CUDASIM=1 for "cuda" too.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

import idgraph as ig
from idgraph.runtime import emit

Array = npt.NDArray[Any]
Wanted = tuple[torch.Tensor, bool]  # and whether the sign of a zero counts
INF, NAN = float("inf"), float("nan")
POINTS = [0.0, -0.0, 1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0, 1e30, 3e38, -3e38, INF, -INF, NAN, 7.0, -7.0]
HALVES = (1.00390625, 1.01171875, 2049.0, 2051.0, 65519.0, 65520.0, 2.98e-8, 6e-8, -1e-45, 3.39e38)  # to be rounded
UNARY = ("neg", "abs", "relu", "square", "floor", "ceil", "trunc", "round", "sign", "reciprocal")
BINARY = ("add", "sub", "mul", "div", "floor_divide", "maximum", "minimum")
WHOLE = ("add", "sub", "mul", "maximum", "minimum")
QUOTIENTS = ("floor_divide", "remainder", "fmod")
EMPTY = ("sum", "mean", "prod", "any", "all")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def array(t: torch.Tensor) -> Array:
    """As NumPy has it."""
    return t.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if t.dtype == torch.bfloat16 else t.numpy()


def wrong(got: Any, wanted: torch.Tensor, signs: bool) -> str:
    """The first point that differs, or an empty text: equal numbers, NaN where NaN is, zeros of one sign."""
    a, b = np.asarray(got).astype(np.float64), array(wanted).astype(np.float64)
    if str(np.asarray(got).dtype) != str(wanted.dtype)[6:] or a.shape != b.shape:
        return f"{np.asarray(got).dtype}{a.shape}, not {wanted.dtype}{b.shape}"
    same = (np.isnan(a) & np.isnan(b)) | ((a == b) & ((np.signbit(a) == np.signbit(b)) | (not signs)))
    if wanted.dtype == torch.int64:
        same &= np.asarray(got) == array(wanted)  # float64 has not all of them
    at = np.argwhere(~same)
    return f"at {at[0].tolist()}: {a[tuple(at[0])]}, not {b[tuple(at[0])]}" if len(at) else ""


def pairs(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each with each."""
    a, b = torch.meshgrid(values, values, indexing="ij")
    return a.flatten().contiguous(), b.flatten().contiguous()


class Build:
    """A fusion, its arrays, and what torch says of each output."""

    def __init__(self) -> None:
        self.fusion = ig.Fusion("special")
        self.arrays: dict[str, Array] = {}
        self.wanted: dict[str, Wanted] = {}

    def input(self, name: str, t: torch.Tensor) -> ig.Tensor:
        self.arrays[name] = array(t)
        return self.fusion.input(name, tuple(t.shape), str(t.dtype)[6:])

    def says(self, name: str, made: ig.Tensor, wanted: torch.Tensor, signs: bool = True) -> None:
        made.name = name
        self.fusion.output(made)
        self.wanted[name] = wanted, signs

    def differing(self, target: Any) -> dict[str, str]:
        """By output, what differs."""
        with np.errstate(all="ignore"):
            got: Mapping[str, Any] = emit(self.fusion, target).run(self.arrays)
        return {n: text for n, (t, signs) in self.wanted.items() if (text := wrong(got[n], t, signs))}


def floats(dtype: torch.dtype) -> Build:
    """Pointwise operations, C's remainders, orders, and rounding to the halves."""
    made, x = Build(), torch.tensor(POINTS, dtype=torch.float64).to(dtype)
    a, b = pairs(x)
    x_, a_, b_ = made.input("x", x), made.input("a", a), made.input("b", b)
    for name in UNARY:
        made.says(f"{name}_of_x", getattr(ig, name)(x_), getattr(torch, name)(x))
    for name in BINARY:  # torch's sign of the larger of 0.0 and -0.0 is that of its vector instruction
        wanted = getattr(torch, name)(a, b)
        made.says(f"{name}_of_ab", getattr(ig, name)(a_, b_), wanted, signs=name[:3] not in ("max", "min"))
    for name in ("remainder", "fmod") if dtype == torch.float64 else ():
        made.says(f"{name}_of_ab", getattr(ig, name)(a_, b_), getattr(torch, name)(a, b))
    made.says("less", a_ < b_, a < b)
    made.says("same", ig.eq(a_, b_), a == b)
    if dtype == torch.float32:
        h = torch.tensor([*POINTS, *HALVES], dtype=dtype)
        for to in ("float16", "bfloat16"):
            made.says(f"to_{to}", ig.cast(made.input(f"h_{to}", h), to), h.to(getattr(torch, to)))
    return made


def integers(dtype: torch.dtype) -> Build:
    """Wrapped sums and products, and quotients of negative numbers."""
    ends, made = torch.iinfo(dtype), Build()
    values = [0, 1, 2, 7, ends.max, ends.max - 1, ends.min, max(ends.min, -3)]
    a, b = pairs(torch.tensor(values, dtype=dtype))
    a_, b_ = made.input("a", a), made.input("b", b)
    for name in WHOLE:
        made.says(f"{name}_of_ab", getattr(ig, name)(a_, b_), getattr(torch, name)(a, b))
    some = b != 0
    c_, d_ = made.input("c", a[some]), made.input("d", b[some])
    for name in QUOTIENTS:
        made.says(f"{name}_of_cd", getattr(ig, name)(c_, d_), getattr(torch, name)(a[some], b[some]))
        if name != "fmod":  # torch refuses it; a kernel cannot stop
            made.says(f"{name}_by_0", getattr(ig, name)(a_, a_ - a_), torch.zeros_like(a))
    return made


def reductions() -> Build:
    """Reductions of no elements, of infinities and NaN, of halves whose sum overflows, and of integers that wrap."""
    made, none = Build(), torch.zeros((3, 0))
    none_ = made.input("none", none)
    for name in EMPTY:
        made.says(f"{name}_of_none", getattr(ig, name)(none_, 1), getattr(torch, name)(none, dim=1))
    rows = torch.tensor([[1.0, INF, 2.0], [INF, -INF, 1.0], [NAN, 1.0, -INF], [-0.0, -0.0, -0.0]])
    rows_ = made.input("rows", rows)
    for name in ("sum", "amax", "amin", "prod", "any", "all"):
        made.says(f"{name}_of_rows", getattr(ig, name)(rows_, 1), getattr(torch, name)(rows, dim=1), signs=False)
    for dtype, value in ((torch.float16, 65504.0), (torch.bfloat16, 3e38)):
        x = torch.full((2, 1000), value, dtype=dtype)
        made.says(f"mean_{str(dtype)[6:]}", ig.mean(made.input(f"x_{str(dtype)[6:]}", x), 1), torch.mean(x, 1))
    whole = torch.tensor([[2**62, 2**62, 5], [-(2**63), -1, 0]])
    whole_ = made.input("whole", whole)
    for name in ("sum", "prod"):
        made.says(f"{name}_wraps", getattr(ig, name)(whole_, 1), getattr(torch, name)(whole, dim=1))
    return made


BUILDS: dict[str, Callable[[], Build]] = {
    **{f"floats {d}": partial(floats, d) for d in FLOATS},
    **{f"integers {d}": partial(integers, d) for d in INTEGERS},
    "reductions": reductions,
}


def main() -> None:
    """Argument: the target."""
    warnings.simplefilter("ignore")
    print(json.dumps({name: build().differing(sys.argv[1]) for name, build in BUILDS.items()}))


if __name__ == "__main__":
    main()
