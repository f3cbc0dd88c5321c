"""Errors of the functions that kernels compute, in units in the last place (ulp) of float32, beside torch's own.

    python -m tools.bench.ulp --device cpu
    python -m tools.bench.ulp --device cuda --json ulp.json

A function is computed at every 4999th float32 there is, at 400 000 places from -110 to 110, and beside its edges (0, 1,
where it overflows, where results are subnormal), and compared with float64's result. One ulp is the distance of the
float32 numbers around the exact result. A result that is infinite, NaN or of the wrong sign has to be torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

import idgraph as ig
from tools.bench import report

Array = npt.NDArray[Any]
TINY = 2.0**-126  # the smallest float32 that is not subnormal
_erf: Any = np.frompyfunc(math.erf, 1, 1)
EDGES = (0.0, 1.0, -1.0, 0.5, 2.0**-12, 0.55, 0.625, 0.84375, 1.25, 2.857, 3.9, 6.0, 9.0, 9.02, 10.0, 16.6, 20.0, 30.0,
         87.3, 88.72284, 103.97, 104.0, 126.0, 127.9, 128.0, 149.0, math.pi, math.pi / 2, 1e5, 1e10, 3e38)  # fmt: skip


def _erf64(x: Array) -> Array:
    return np.asarray(_erf(x)).astype(np.float64)


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


# Name -> float64's function. torch has it under the same name, in torch or in torch.nn.functional.
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": _rsqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "erf": _erf64,
    "sigmoid": _sigmoid,
}  # fmt: skip


def places() -> Array:
    """The arguments, float32."""
    every = np.arange(0, 1 << 32, 4999, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = np.array([*EDGES, *(-e for e in EDGES)], np.float32)
    near = [edges]
    for towards in (np.inf, -np.inf):
        at = edges
        for _ in range(40):
            at = np.nextafter(at, np.float32(towards))
            near.append(at)
    found = np.concatenate([every, np.linspace(-110, 110, 400_000, dtype=np.float32), *near])
    return found[np.isfinite(found)]


def exact(name: str, x: Array) -> Array:
    """float64's result."""
    with np.errstate(all="ignore"):
        return FUNCTIONS[name](x.astype(np.float64))


def ulps(found: Array, wanted: Array) -> Array:
    """The distance of float32 results from exact ones, in ulp; infinity where one is not finite and they differ."""
    with np.errstate(all="ignore"):
        near = np.abs(wanted.astype(np.float32))
        step = np.spacing(np.minimum(near, np.float32(3.4028233e38))).astype(np.float64)
        away = np.abs(found.astype(np.float64) - wanted) / step
        rounded = wanted.astype(np.float32)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    return np.where(same, np.where(np.isfinite(rounded), away, 0.0), np.where(np.isfinite(found), away, np.inf))


def fusion(name: str, size: int) -> ig.Fusion:
    """The function of an array."""
    f = ig.Fusion(name)
    made: Any = getattr(ig, name)
    f.output(made(f.input("x", (size,))))
    return f


def measured(name: str, x: Array, device: str) -> tuple[float, float]:
    """The largest error of kernels, and of torch's, where results are not subnormal."""
    torch: Any = import_module("torch")
    given = torch.from_numpy(x).to(device)
    k = ig.compile(fusion(name, x.size), "cpu" if device == "cpu" else "cuda")
    wanted = exact(name, x)
    ours, theirs = (r.cpu().numpy() for r in (k(given), getattr(torch, name)(given)))
    return largest(ours, wanted), largest(theirs, wanted)


def largest(found: Array, wanted: Array) -> float:
    """The largest error where the exact result is no subnormal number."""
    away = ulps(found, wanted)
    return float(away[~((np.abs(wanted) < TINY) & (wanted != 0))].max())


def main() -> None:
    """One table, JSON."""
    parser = report.arguments(__doc__)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    x = places()
    found = {name: measured(name, x, options.device) for name in FUNCTIONS}
    title = f"largest errors in ulp of float32, {x.size} arguments, {options.device}"
    report.show(title, ("function", "kernels", "torch"), ((n, *(f"{e:.2f}" for e in es)) for n, es in found.items()))
    report.write(options.json, found)


if __name__ == "__main__":
    main()
