"""Gathers of values that a row's loop computes, by predicate: cases for the oracle and the device."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable

import numpy as np

import idgraph as ig
from idgraph.ir import DType
from idgraph.runtime.program import Target
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate


def two(x: tuple[int, ...], i: tuple[int, ...], of: DType = "int64") -> tuple[ig.Fusion, ig.Tensor, ig.Tensor]:
    """A fusion with a tensor and an index."""
    f = ig.Fusion("f")
    return f, f.input("x", x), f.input("i", i, of)


def loss(columns: int = 300, rows: int = 3) -> ig.Fusion:
    """A cross entropy."""
    f, x, i = two((rows, columns), (rows, 1))
    f.output(-ig.squeeze(ig.gather(ig.log_softmax(x, 1), 1, i), 1))
    return f


def scaled() -> ig.Fusion:
    """What follows reads memory."""
    f, x, i = two((3, 300), (3, 1), "int32")
    f.output(ig.gather(ig.softmax(x * 2.0, 1), 1, i) * f.input("w", (3, 1)))
    return f


def changed() -> ig.Fusion:
    """A value that is not computed element by element."""
    f, x, i = two((3, 300), (3, 1))
    f.output(ig.gather(ig.slice_scatter(x, x[:, :10] * 2.0, 1, 0, 10), 1, i))
    return f


def columns() -> ig.Fusion:
    """Along the first axis, in blocks that are not full."""
    f, x, i = two((300, 8), (1, 8))
    f.output(ig.gather(ig.softmax(x, 0), 0, i))
    return f


def truth() -> ig.Fusion:
    f, x, i = two((3, 300), (3, 1))
    f.output(ig.gather(x > ig.mean(x, 1, keepdim=True), 1, i))
    return f


def running() -> ig.Fusion:
    f, x, i = two((3, 300), (3, 1))
    f.output(ig.gather(ig.cumsum(x, 1), 1, i) * 2.0)
    return f


def entries() -> ig.Fusion:
    """Two indices a row, and rows that no thread has."""
    f, x, i = two((6, 9), (6, 2))
    f.output(ig.gather(x * 2.0, 1, i))
    return f


def beside() -> ig.Fusion:
    """Two gathers, and the whole row too."""
    f, x, i = two((3, 300), (3, 1))
    s = ig.log_softmax(x, 1)
    f.output(ig.gather(s, 1, i), ig.gather(s * 2.0, 1, f.input("j", (3, 1), "int64")), s)
    return f


def needed() -> ig.Fusion:
    """All threads need the element."""
    f, x, i = two((3, 300), (3, 1))
    f.output(x - ig.gather(ig.softmax(x, 1), 1, i))
    return f


CASES: dict[str, Callable[[], ig.Fusion]] = {
    b.__name__: b for b in (loss, scaled, changed, columns, truth, running, entries, beside, needed)
}


def outcome(name: str, target: Target) -> str:
    """The fault of one case: values against the oracle, for indices at both ends; empty if there is none."""
    f = CASES[name]()
    original = ig.parse(str(f))
    given = random_inputs(original, 3)
    for t in f.inputs:
        if t.name in ("i", "j"):
            given[t.name].reshape(-1)[:2] = 0, 8
    want = evaluate(original, given)
    ig.schedule.auto(f, gathers="predicate")
    got = ig.emit(f, target).run(given)
    wrong = [n for n, x in want.items() if not np.allclose(got[n], x, rtol=1e-5, atol=1e-6)]
    return ", ".join(wrong)


def main() -> None:
    """Run the cases on the cuda target and print what is wrong with each as JSON."""
    warnings.simplefilter("ignore")
    print(json.dumps({name: outcome(name, "cuda") for name in CASES}))


if __name__ == "__main__":
    main()
