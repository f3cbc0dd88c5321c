"""Sizes and points that are tried where all are too many, and small helpers of the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.arith import Expr, as_expr, simplify
from idgraph.check.by_points import Space
from idgraph.check.form import IndirectIndex, LoadedValue, NeutralProgram
from idgraph.check.meaning import NoIndexMeaning
from idgraph.ir import Tensor

SAMPLES = 512  # points of a larger space that are tried for a counterexample


def extents_of(t: Tensor) -> tuple[Expr, ...]:
    """The shape as expressions."""
    return tuple(as_expr(n) for n in t.shape)


def at_names(x: Expr, names: Mapping[str, Expr]) -> Expr:
    """A formula with names replaced, in its smallest form."""
    return simplify(x.substitute(dict(names))) if names else simplify(x)


def uses(x: LoadedValue | IndirectIndex) -> frozenset[str]:
    if isinstance(x, IndirectIndex):
        return x.value.names | x.size.names
    return frozenset() if x.text else x.index.names


def some_points(space: Space, most: int) -> npt.NDArray[np.int64]:
    """Some loop points, the first and last among them."""
    total = prod(n for _, n in space.loops)
    count = max(min(SAMPLES, most // space.inner), 2)
    drawn = np.random.default_rng(0).integers(0, total, count)
    return np.unique(np.concatenate([drawn, [0, total - 1]]))


def sample_sizes(p: NeutralProgram) -> Iterator[dict[str, int]]:
    """Values of the symbols that satisfy the facts: the sizes at which a dynamic program is enumerated."""
    if not p.symbols:
        yield {}
        return
    found = 0
    for salt in range(400):
        env: dict[str, int] = {}
        for k, (name, s) in enumerate(p.symbols.items()):
            low, high, step, rest = s.symbol_bounds
            least = int(low) if isinstance(low, int) else 2
            most = int(high) if isinstance(high, int) else 1 << 40
            first = least + (rest - least) % step
            env[name] = min(first + step * ((salt * (2 * k + 3) + k + 1) % 9), max(most, first))
        if all(bool(f.evaluate(env)) for f in p.facts if f.names <= env.keys()):
            yield env
            found += 1
        if found == 3:
            return
    if not found:
        raise NoIndexMeaning("no sizes were found that satisfy its guards")
