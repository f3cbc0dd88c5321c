"""Functions of torch on the CPU by `ig.compile`, the user's way, beside eager: values first, then times in turns.

    python -m tools.bench.cpu_functions [--names sin,roll] [--rows 1003] [--threads 1] [--seconds 1.0] [--json FILE]
    python -m tools.bench.cpu_functions --table other [--names "x.T + y;gather"]

No kernel is tuned for one of them: a function that a user may call and that falls behind eager is a fault of a
mechanism. Arrays are float32 [rows, 1003], whose rows begin at any alignment; those of the other table are in
`tools.bench.cpu_other`. A share is eager's time over idgraph's, both the tenth percentile of windows taken in turns, so
that other load on the machine spoils few of either. Names of the other table have semicolons between them.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false
from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nn
from rich.console import Console
from rich.progress import track
from rich.table import Table

import idgraph as ig
from tools.bench.cpu import machine
from tools.bench.cpu_other import CASES

COLUMNS = 1003
WINDOW = 5e-4  # seconds of one reading, at least
Tensor = torch.Tensor


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
        "layer_norm": lambda x: nn.layer_norm(x, (COLUMNS,)),
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


OF_ONE = _of_one()
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
NAMES = (*OF_ONE, *OF_TWO)


@dataclass(frozen=True, slots=True)
class Row:
    """Microseconds of a call; ``share``: eager's time over idgraph's."""

    name: str
    rows: int
    threads: int
    right: bool
    eager_us: float
    us: float
    share: float


def measure(name: str, rows: int, threads: int, seconds: float) -> Row:
    """Values, then times in turns."""
    eager, given = case_of(name, rows)
    times: dict[Callable[..., Any], list[float]] = {}
    with _on(threads):
        own = ig.compile(ig.from_torch(eager, given), "cpu")
        want, found = eager(*given), own(*given)
        right = all(_is_right(w, x) for w, x in zip(_all(want), _all(found), strict=True))
        began = time.perf_counter()
        while time.perf_counter() - began < seconds or len(times.get(own, ())) < 3:
            for f in (eager, own):
                times.setdefault(f, []).append(_window(f, given))
    eager_us, us = (float(np.percentile(times[f], 10)) * 1e6 for f in (eager, own))
    shown = rows if name in NAMES else len(given[0])
    return Row(name, shown, threads, right, round(eager_us, 1), round(us, 1), round(eager_us / us, 3))


@contextmanager
def _on(threads: int) -> Generator[None]:
    """torch and numba with so many threads, and with as many as before afterwards."""
    numba = import_module("numba")
    before = torch.get_num_threads(), numba.get_num_threads()
    try:
        torch.set_num_threads(threads)
        numba.set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def case_of(name: str, rows: int) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """A function and the arrays that it is called with."""
    if name in CASES:
        f, made = CASES[name]
        return f, made()
    given = (torch.randn(rows, COLUMNS), torch.randn(rows, COLUMNS))[: 1 if name in OF_ONE else 2]
    return (OF_ONE[name] if name in OF_ONE else OF_TWO[name]), given


def _all(results: Any) -> tuple[Tensor, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _is_right(want: Tensor, found: Tensor) -> bool:
    short = want.dtype in (torch.float16, torch.bfloat16)  # eager rounds between the steps of a formula, too
    close = torch.allclose(found.double(), want.double(), rtol=1e-2 if short else 1e-3, atol=1e-2 if short else 1e-4)
    return want.dtype == found.dtype and close


def _window(f: Callable[..., Any], given: tuple[Tensor, ...]) -> float:
    """Seconds of one call, of as many as fill a window."""
    began = time.perf_counter()
    f(*given)
    repeat = max(1, min(100, int(WINDOW / max(time.perf_counter() - began, 1e-7))))
    began = time.perf_counter()
    for _ in range(repeat):
        f(*given)
    return (time.perf_counter() - began) / repeat


def table_of(rows: list[Row]) -> Table:
    """One line for each function, the slowest beside eager first."""
    mean = float(np.exp(np.mean([np.log(r.share) for r in rows])))
    below = sum(r.share < 0.9 for r in rows)
    title = f"eager's time over idgraph's: {mean:.2f} in the geometric mean, {below} of {len(rows)} below 0.9"
    table = Table(title=title, title_justify="left")
    for column in ("function", "rows", "threads", "values", "eager us", "idgraph us", "share"):
        table.add_column(column, justify="left" if column in ("function", "values") else "right")
    for r in sorted(rows, key=lambda r: r.share):
        said = "right" if r.right else "WRONG"
        table.add_row(r.name, str(r.rows), str(r.threads), said, f"{r.eager_us:.1f}", f"{r.us:.1f}", f"{r.share:.2f}")
    return table


def main() -> int:
    """The table; the status is 1 where a value is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", choices=["functions", "other"], default="functions")
    parser.add_argument("--names", help="functions, with commas (other: semicolons) between them")
    parser.add_argument("--rows", type=int, default=COLUMNS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing for each function")
    parser.add_argument("--json", type=Path, help="where the rows are written")
    options = parser.parse_args()
    every = tuple(CASES) if options.table == "other" else NAMES
    names = every if options.names is None else options.names.split(";" if options.table == "other" else ",")
    rows = [measure(n, options.rows, options.threads, options.seconds) for n in track(names, "functions")]
    Console(width=100).print(table_of(rows))
    if options.json:
        told: dict[str, Any] = {"machine": machine(), "load": os.getloadavg()[0], "torch": torch.__version__}
        told["rows"] = [asdict(r) for r in rows]
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0 if all(r.right for r in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
