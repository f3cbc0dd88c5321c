"""How far two right evaluations of a fusion may lie apart: an analysis of running errors.

Each rule is the first-order error of one operation at the values that the oracle gives: what its operands' errors make
of it, and its own rounding in both evaluations. A sum's own error is that of any order of float32 additions in a few
parts, by the sum of the magnitudes of its terms, which cancelling hides from the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

import idgraph as ig
from idgraph.ir import TensorExpr
from idgraph.validate.oracle.evaluate import evaluate, evaluate_one
from idgraph.validate.oracle.views import MOVES

Array = npt.NDArray[Any]
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # of one rounding
OF_A_SUM = 8  # parts of a float32 sum that is added up in several parts, each with a rounding
OF_A_FUNCTION = 4


def bounds(f: ig.Fusion, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """For each output the largest distance of two right results, element by element; `KeyError` for an operation
    without a rule."""
    with np.errstate(all="ignore"):
        values = evaluate(f, inputs, wanted=[t.name for t in (*f.inputs, *(e.output for e in f.exprs))])
        wide = {name: np.asarray(x, dtype=np.float64) for name, x in values.items()}
        found = {t.name: np.zeros(wide[t.name].shape) for t in f.inputs}
        for e in f.exprs:
            made = _made(e, values, wide, found)
            found[e.output.name] = np.broadcast_to(made, wide[e.output.name].shape)
    return {t.name: found[t.name] for t in f.outputs}


def _made(e: TensorExpr, values: Mapping[str, Array], wide: Mapping[str, Array], found: Mapping[str, Array]) -> Array:
    """The bound of one operation's result."""
    y = wide[e.output.name]
    if e.output.dtype not in UNITS:  # a whole number, of whole numbers
        assert all(t.dtype not in UNITS for t in e.inputs)
        return np.zeros(y.shape)
    if e.op in MOVES:
        moved = [found[t.name] if t.dtype in UNITS else values[t.name] for t in e.inputs]
        return np.asarray(evaluate_one(e, moved, {}, rounded=False), dtype=np.float64)
    # a number is an operand without an error
    x = [wide[a.name] if isinstance(a, ig.Tensor) else np.asarray(cast("float", a), dtype=np.float64) for a in e.args]
    d = [found[a.name] if isinstance(a, ig.Tensor) else np.zeros(()) for a in e.args]
    own = 2 * UNITS[e.output.dtype] * np.abs(y)
    match e.op:
        case "add" | "sub":
            return d[0] + d[1] + own
        case "mul":
            return np.abs(x[0]) * d[1] + np.abs(x[1]) * d[0] + d[0] * d[1] + own
        case "div":
            return d[0] / np.abs(x[1]) + np.abs(y) * d[1] / np.abs(x[1]) + own
        case "exp":
            return np.abs(y) * np.expm1(d[0]) + OF_A_FUNCTION * own
        case "relu":
            return d[0]
        case "amax":
            return np.max(d[0], axis=_axes(e), keepdims=True).reshape(y.shape)
        case "sum":
            terms = d[0] + OF_A_SUM * UNITS["float32"] * np.abs(x[0])
            return np.sum(terms, axis=_axes(e), keepdims=True).reshape(y.shape) + own
        case _:
            raise KeyError(e.op)


def _axes(e: TensorExpr) -> tuple[int, ...]:
    return tuple(int(n) for n in cast("tuple[int, ...]", e.attrs["dims"]))


def beyond(f: ig.Fusion, inputs: Mapping[str, Array], got: Mapping[str, Array]) -> str:
    """The first output that is farther from the oracle's than rounding explains; empty where there is none."""
    wanted, allowed = evaluate(f, inputs), bounds(f, inputs)
    for t in f.outputs:
        a, b = (np.asarray(v[t.name]).astype(np.float64) for v in (got, wanted))
        assert a.shape == b.shape
        smallest = 2.0**-149  # numbers below the normal ones are rounded to these steps
        wrong = np.argwhere(~((np.abs(a - b) <= allowed[t.name] + smallest) | (a == b) | (np.isnan(a) & np.isnan(b))))
        if len(wrong):
            at = tuple(int(c) for c in wrong[0])
            return f"{t.name}{at}: {a[at]} instead of {b[at]}, {allowed[t.name][at]:.2g} allowed, {len(wrong)} wrong"
    return ""
