"""torch's type promotion: every pair of types, with axes, without, and as Python's numbers; eager is the judge."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

import pytest

from idgraph.frontends import from_torch

torch: Any = importlib.import_module("torch")  # half of its functions have no types
T = Any
Key = tuple[str, str]

# Numbers that a narrower type wraps, rounds or has no room for.
ROWS: dict[str, list[Any]] = {
    "bool": [True, False, True, True], "uint8": [200, 255, 1, 3], "int8": [-128, 127, 1, 3],
    "int16": [2049, -3, 7, 300], "int32": [70001, -2049, 3, 5], "int64": [2**24 + 1, -2049, 3, 5],
    "float16": [1e-3, 1.7, 0.3, -2.5], "bfloat16": [1e-3, 1.7, 300.0, -2.5],
    "float32": [1.7, 1e-3, 70000.3, -2.0], "float64": [1.7, 1e-3, 70000.3, -2.0],
}  # fmt: skip
SINGLE: list[dict[str, Any]] = [
    {"bool": True, "uint8": 173, "int8": -7, "int16": 2049, "int32": 70001, "int64": 4097, "float16": 1.7,
     "bfloat16": 1.7, "float32": 65537.3, "float64": 1.7003},
    {"bool": False, "uint8": 255, "int8": 100, "int16": -3001, "int32": -70001, "int64": 300, "float16": 3e-3,
     "bfloat16": 257.0, "float32": 1.0007, "float64": 1e5 + 0.3},
]  # fmt: skip
NUMBERS: dict[str, Any] = {"bool": True, "int": 3, "float": 1.7003, "negative": -2}
TYPES = tuple(ROWS)

OPERATIONS: dict[str, Callable[[Any, Any], T]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "add", "sub", "rsub", "mul", "div", "remainder", "fmod", "pow", "atan2", "maximum", "minimum", "hypot",
            "logaddexp", "logaddexp2", "copysign", "fmax", "fmin", "lt", "eq", "ge", "bitwise_and", "bitwise_xor",
            "logical_and", "logical_xor", "bitwise_left_shift", "bitwise_right_shift", "clamp_min", "clamp_max",
        )
    },
    "trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "where": lambda a, b: torch.where(torch.tensor([True, False, True, False]), a, b),
    "masked_fill": lambda a, b: torch.masked_fill(a, a > 0, b),
    "lerp_weight": lambda a, b: torch.lerp(a, a * 2, b),
    "lerp_end": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul_factor": lambda a, b: torch.addcmul(a, b, a),
    "addcmul_term": lambda a, b: torch.addcmul(b, a, a),
    "addcdiv_divisor": lambda a, b: torch.addcdiv(a, a, b),
    "addcdiv_term": lambda a, b: torch.addcdiv(b, a, a),
}  # fmt: skip


def _operands(single: dict[str, Any]) -> dict[Key, T]:
    rows = {("row", t): torch.tensor(v, dtype=getattr(torch, t)) for t, v in ROWS.items()}
    return rows | {("single", t): torch.tensor(v, dtype=getattr(torch, t)) for t, v in single.items()}


def _pairs() -> list[tuple[Key, Key]]:
    tensors = [(kind, t) for kind in ("row", "single") for t in TYPES]
    found = [(a, b) for a in tensors for b in tensors]
    numbers = [(("row", t), ("number", n)) for t in TYPES for n in NUMBERS]
    return found + numbers + [(b, a) for a, b in numbers]


def _valid(f: Callable[[Any, Any], T], value: Callable[[Key], Any]) -> list[tuple[Key, Key]]:
    """The pairs that eager takes."""
    found: list[tuple[Key, Key]] = []
    for a, b in _pairs():
        try:
            result = f(value(a), value(b))
        except (RuntimeError, TypeError, NotImplementedError):
            continue
        if str(result.dtype).removeprefix("torch.") in TYPES:
            found.append((a, b))
    return found


def _tolerance(name: str, dtype: Any) -> dict[str, float]:
    """float32 and float64 round functions by their libraries; torch takes short powers in several rounded steps."""
    if dtype in (torch.float32, torch.float64):
        return {"rtol": 2e-6, "atol": 1e-6}
    short_power = name == "pow" and dtype.is_floating_point
    return {"rtol": 2 * torch.finfo(dtype).eps if short_power else 0.0, "atol": 0.0}


@pytest.mark.sampled
@pytest.mark.parametrize("single", SINGLE, ids=["first", "second"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_pair_of_types(name: str, single: dict[str, Any]) -> None:
    f, operands = OPERATIONS[name], _operands(single)
    names = list(operands)
    values = tuple(operands.values())
    pairs = _valid(f, lambda k: NUMBERS[k[1]] if k[0] == "number" else operands[k])
    if name == "pow":
        pairs.remove((("row", "bool"), ("number", "bool")))  # int64 when torch captures it, bool in eager
    assert len(pairs) > 12

    def program(*given: T) -> list[T]:
        def pick(k: Key) -> Any:
            return NUMBERS[k[1]] if k[0] == "number" else given[names.index(k)]

        return [f(pick(a), pick(b)) for a, b in pairs]

    imported = from_torch(program, values)
    assert not imported.coverage.opaque
    wrong: list[str] = []
    outputs: list[T] = list(cast("Any", imported.run(*values, target="numpy")))
    for pair, got, expected in zip(pairs, outputs, program(*values), strict=True):
        tolerance = _tolerance(name, expected.dtype)
        try:
            torch.testing.assert_close(got, expected, equal_nan=True, **tolerance)
        except AssertionError:
            wrong.append(f"{pair}: {got.tolist()}, eager {expected.tolist()}")
    assert not wrong, "\n".join(wrong)


def test_quotient_of_bytes_by_their_sum() -> None:
    """The sum is an int64 without axes that uint8 has no room for; a quotient takes it as a float32."""
    u = torch.tensor([200, 100], dtype=torch.uint8)
    program: Callable[[T], T] = lambda u: u / u.sum()  # noqa: E731
    got = from_torch(program, (u,)).run(u, target="numpy")
    torch.testing.assert_close(got, torch.tensor([200 / 300, 100 / 300]))


@pytest.mark.parametrize("short", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_a_scale_that_a_short_float_has_no_room_for(short: str, target: str) -> None:
    """Products and quotients take a second operand without axes as a float32, sums round it first."""
    x, scale = torch.tensor([1e-3, 2e-3]).to(getattr(torch, short)), torch.tensor(65536.0 * 4)

    def program(x: T, scale: T) -> list[T]:
        return [x * scale, x / scale, torch.div(x * 1e3, scale * 1e-6, rounding_mode="trunc"), x + scale, scale * x]

    outputs: list[T] = list(cast("Any", from_torch(program, (x, scale)).run(x, scale, target=target)))
    for got, expected in zip(outputs, program(x, scale), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
