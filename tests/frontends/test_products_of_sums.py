"""What the page of numbers says of a product within a sum: torch rounds once, kernels here twice, the same on each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.runtime import Target

torch: Any = pytest.importorskip("torch")
Function = Callable[[Any, Any, Any], Any]
TARGETS: tuple[Target, ...] = ("python", "numpy", "cpu")


def between(a: Any, b: Any, c: Any) -> Any:
    """torch's two formulas, from the nearer end."""
    near: Any = abs(c) < 0.5
    where: Any = np.where
    return where(near, a + c * (b - a), b - (b - a) * (1 - c))


CASES: dict[str, tuple[Function, Function]] = {
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c), lambda a, b, c: a + b * c),
    "add": (lambda a, b, c: torch.add(a, b, alpha=2.5), lambda a, b, c: a + 2.5 * b),
    "sub": (lambda a, b, c: torch.sub(a, b, alpha=2.5), lambda a, b, c: a - 2.5 * b),
    "rsub": (lambda a, b, c: torch.rsub(a, b, alpha=2.5), lambda a, b, c: b - 2.5 * a),
    "lerp": (lambda a, b, c: torch.lerp(a, b, c), between),
}


def run(function: Callable[..., Any], inputs: list[Any], target: Target) -> np.ndarray[Any, Any]:
    f = ig.from_torch(function, tuple(inputs)).fusion
    given = {t.name: x.numpy() for t, x in zip(f.inputs, inputs, strict=False)}
    (found,) = ig.emit(f, target=target).run(given).values()
    return np.asarray(found)


def test_a_product_that_overflows_alone() -> None:
    """torch's float32 product is part of one operation, ours of float16 is a float32."""

    def twice(a: Any, b: Any) -> Any:
        return torch.sub(a, b, alpha=2)

    for dtype, value, theirs, ours in (
        (torch.float32, 3e38, np.float32(-3e38), -np.inf), (torch.float16, 65504.0, -np.inf, np.float16(-65504.0)),
    ):  # fmt: skip
        x = torch.full((16,), value, dtype=dtype)
        assert (twice(x, x).numpy() == theirs).all()
        for target in TARGETS:
            assert (run(twice, [x, x.clone()], target) == ours).all()


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_a_product_within_a_sum_is_rounded_by_itself(name: str) -> None:
    theirs, ours = CASES[name]
    r = np.random.default_rng(5)
    arrays = [r.standard_normal(400, dtype=np.float32) for _ in range(3)]
    arrays[0][:3], arrays[1][:3], arrays[2][:3] = (-1e-45, 3e38, 0.0), (1e-45, 3e38, -0.0), (0.25, 2.0, 0.5)
    inputs = [torch.from_numpy(x) for x in arrays]
    with np.errstate(over="ignore", under="ignore"):
        expected = ours(*arrays)
    for target in TARGETS:
        np.testing.assert_array_equal(run(theirs, inputs, target), expected, strict=True)
    torch_found = theirs(*inputs).numpy()
    exact = ours(*(x.astype(np.float64) for x in arrays))
    difference = np.abs(torch_found.astype(np.float64)[3:] - expected[3:])
    spacing = np.spacing(np.maximum.reduce([np.abs(x[3:]) for x in (*arrays, expected)]) * np.float32(4))
    assert (difference <= spacing).all() and difference.any()
    assert (np.abs(expected[3:] - exact[3:]) <= 2 * spacing).all()
