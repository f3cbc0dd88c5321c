"""Random programs at special numbers through the import, beside eager torch.

Zeros with a sign, infinities, NaN, wrapped integers, halves that overflow, mixed types, numbers of Python's, and
reductions of no elements.

    python -m tools.judges.special_numbers [--programs 2000] [--targets python,numpy] [--seed 0]

Prints what differs, with the program. The judge is that of `tools.judges.torch_operators`; what the page `numbers`
of the guides leaves open is not asked for: integers divided by 0, casts of floats that an integer does not hold.
"""

# torch gives its functions no types:
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import idgraph as ig
from tools.judges.torch_operators import no_farther

torch: Any = import_module("torch")  # its types are not known to the checker

Tensor = Any  # torch.Tensor
FLOATS = ("float32", "float16", "bfloat16", "float64")
WHOLE = ("int64", "int32", "int16", "int8", "uint8")
POINTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 7.0, -7.0, 1e-3, 300.0, 65504.0, 1e30, -3e38, float("inf"),
          -float("inf"), float("nan"))  # fmt: skip
NUMBERS = (0, 1, -1, 2, 3, -7, 0.0, -0.0, 0.5, -2.5, 1e30, float("inf"), -float("inf"), float("nan"), True)
UNARY = ("neg", "abs", "relu", "square", "floor", "ceil", "trunc", "round", "sign", "reciprocal", "sqrt", "rsqrt",
         "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tanh", "erf", "sigmoid", "isnan",
         "isinf", "isfinite", "logical_not", "bitwise_not", "nan_to_num", "frac", "isneginf", "atan", "asinh", "sinh",
         "cosh", "asin", "acos", "acosh", "atanh", "erfc", "sgn", "positive", "logit", "sinc", "deg2rad")  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "maximum", "minimum", "fmax", "fmin", "eq",
          "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or",
          "bitwise_xor", "atan2", "copysign", "pow", "heaviside", "rsub", "hypot", "logaddexp", "xlogy",
          "bitwise_left_shift", "bitwise_right_shift", "logaddexp2", "float_power", "isclose")  # fmt: skip
REDUCTIONS = ("sum", "mean", "prod", "amax", "amin", "any", "all", "argmax", "argmin", "cumsum", "cumprod", "var",
              "logsumexp", "softmax", "nansum", "count_nonzero", "nanmean", "log_softmax", "diff",
              "logcumsumexp", "argsort")  # fmt: skip
EITHER_ZERO = ("max", "min", "clamp", "relu", "sort", "mode", "median")  # of two equal numbers
PAIRS = ("max", "min", "cummax", "cummin", "sort", "median", "nanmedian", "mode")  # values with where they stand
SHIFTS = (0, 1, 7, 8, 15, 31, 32, 63, 64, 100, -1)

NEAR = {
    "bfloat16": 0.03,
    "float16": 4e-3,
    "float32": 1e-5,
}  # of the narrowest type that a program has, after three steps


@dataclass(frozen=True, slots=True)
class Case:
    """A program as text, with the tensors that it reads."""

    text: str
    tensors: tuple[Tensor, ...]

    def __call__(self, *given: Tensor) -> Tensor:
        return eval(self.text, {"torch": torch, "inf": float("inf"), "nan": float("nan"), "x": given})  # noqa: S307 made here


def leaf(rng: random.Random) -> Tensor:
    """A tensor of special numbers."""
    shape = rng.choice(((6,), (6,), (2, 6), (1,), (), (2, 1), (0, 6)))
    count, dtype = max(1, torch.Size(shape).numel()), rng.choice((*FLOATS, *FLOATS, *WHOLE, "bool"))
    kind = getattr(torch, dtype)
    if dtype == "bool":
        values = [rng.random() < 0.5 for _ in range(count)]
    elif dtype in WHOLE:
        ends = torch.iinfo(kind)
        points = (0, 1, 2, 7, ends.max, ends.max - 1, ends.min, max(ends.min, -3), max(ends.min, -1))
        values = [rng.choice(points) for _ in range(count)]
    else:
        values = [rng.choice(POINTS) for _ in range(count)]
    wide = torch.tensor(values, dtype=torch.float64 if dtype in FLOATS else kind).to(kind)
    return wide[: torch.Size(shape).numel()].reshape(shape)


def case(rng: random.Random) -> Case:
    """One program of one to three operations."""
    tensors: list[Tensor] = []

    def operand(depth: int) -> str:
        if depth and rng.random() < 0.5:
            return expression(depth - 1)
        tensors.append(leaf(rng))
        return f"x[{len(tensors) - 1}]"

    def expression(depth: int) -> str:
        kind = rng.random()
        if kind < 0.3:
            return f"torch.{rng.choice(UNARY)}({operand(depth)})"
        if kind < 0.7:
            name, a = rng.choice(BINARY), operand(depth)
            b = repr(rng.choice(NUMBERS)) if rng.random() < 0.3 else operand(depth)
            if name == "floor_divide" and b.startswith("x"):
                b = f"torch.where({b} == 0, 1, {b})"  # integers by 0 are left open
            if name == "copysign":
                b = f"torch.nan_to_num({b})" if b.startswith(("x", "torch")) else "-2.5"  # so is the sign of NaN
            if name == "pow" and b == "True":  # torch computes bool where its description says int64
                b = "1"
            if name == "floor_divide" and rng.random() < 0.4:
                return f"torch.div({a}, {b}, rounding_mode={rng.choice(('trunc', 'floor'))!r})"
            if "shift" in name and rng.random() < 0.7:
                b = repr(rng.choice(SHIFTS))
            return f"torch.{name}({a}, {b})"
        if kind < 0.75:
            return f"torch.where({operand(depth)} > 0, {operand(depth)}, {operand(depth)})"
        if kind < 0.77:
            return f"torch.lerp({operand(depth)}, {operand(depth)}, {rng.choice((0.0, 0.25, 1.0, 2.0))})"
        if kind < 0.78:
            return f"torch.clamp({operand(depth)}, {operand(depth)}, {operand(depth)})"
        if kind < 0.8:
            low, high = sorted(rng.sample((-3, -1, 0, 2, 5.5), 2))
            return f"torch.clamp({operand(depth)}, {low}, {high})"
        if kind < 0.87:
            return f"{operand(depth)}.to(torch.{rng.choice((*FLOATS, 'bool'))})"
        if kind < 0.9:  # to integers what they hold
            return f"torch.clamp(torch.nan_to_num({operand(depth)}.float()), 0, 100).to(torch.{rng.choice(WHOLE)})"
        if kind < 0.93:
            return f"torch.{rng.choice(PAIRS)}({operand(depth)}, dim={rng.choice((0, -1))})[{rng.choice((0, 0, 1))}]"
        name = rng.choice(REDUCTIONS)
        return f"torch.{name}({operand(depth)}, dim={rng.choice((0, -1))})"

    return Case(expression(2), tuple(tensors))


def judged(given: Case, wanted: Tensor, found: Tensor) -> str:
    """What differs, or an empty text."""
    narrow = [
        d for d in ("bfloat16", "float16", "float32") if d in given.text or f"torch.{d}" in map(str, dtypes(given))
    ]
    near = {"rtol": NEAR[narrow[0]], "atol": 1e-5} if narrow and wanted.dtype.is_floating_point else {}
    try:
        torch.testing.assert_close(found, wanted, equal_nan=True, **near)
        if wanted.dtype.is_floating_point and not any(name in given.text for name in EITHER_ZERO):
            zero = (wanted == 0) & (found == 0)
            if (wanted.signbit() != found.signbit())[zero].any():
                return f"{found.tolist()} has other signs of zeros than {wanted.tolist()}"
    except AssertionError as error:
        return "" if no_farther(given, given.tensors, found, wanted) else str(error).replace("\n", " ")
    return ""


def dtypes(given: Case) -> list[Any]:
    """Of the tensors that a program reads."""
    return [t.dtype for t in given.tensors]


def tried(cases: Sequence[Case], targets: Sequence[str]) -> list[str]:
    """Statuses of programs that are compiled together: "equal", or a reason."""
    wanted = [c(*(t.clone() for t in c.tensors)) for c in cases]
    tensors = [t for c in cases for t in c.tensors]
    starts = [sum(len(c.tensors) for c in cases[:k]) for k in range(len(cases))]

    def together(*given: Tensor) -> list[Tensor]:
        return [c(*given[s : s + len(c.tensors)]) for c, s in zip(cases, starts, strict=True)]

    status = ["equal"] * len(cases)
    try:
        imported = ig.from_torch(together, tuple(tensors))
        for target in targets:
            results: Any = imported.run(*(t.clone() for t in tensors), target=target)
            for k, found in enumerate(results):
                told = judged(cases[k], wanted[k], found)
                status[k] = status[k] if status[k] != "equal" or not told else f"differs on {target}: {told}"
    except Exception as error:  # one by one, to name the program
        if len(cases) > 1:
            return [text for c in cases for text in tried([c], targets)]
        kind = "refused" if isinstance(error, ig.IdGraphError) else "fails"
        return [f"{kind}: {type(error).__name__}: {str(error)[:300]}"]
    return status


def programs(count: int, seed: int) -> list[Case]:
    """Random programs that eager torch takes."""
    rng, found = random.Random(seed), list[Case]()
    while len(found) < count:
        made = case(rng)
        try:
            value = made(*made.tensors)
        except Exception:  # torch has no such operation of these types
            continue
        if isinstance(value, torch.Tensor) and not value.is_complex():
            found.append(made)
    return found


def main() -> int:
    """0 where nothing differs and nothing fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--together", type=int, default=20, help="programs that are compiled as one")
    parser.add_argument("--targets", default="python,numpy")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    made = programs(given.programs, given.seed)
    for k in range(0, len(made), given.together):
        batch = made[k : k + given.together]
        for c, status in zip(batch, tried(batch, given.targets.split(",")), strict=True):
            counts[status.partition(" ")[0].rstrip(":")] += 1
            if status != "equal":
                print(f"{c.text}\n  {[(str(t.dtype)[6:], t.tolist()) for t in c.tensors]}\n  {status}", flush=True)
    print(dict(counts))
    return 1 if counts["differs"] or counts["fails"] else 0


if __name__ == "__main__":
    sys.exit(main())
